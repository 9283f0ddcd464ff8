#!/usr/bin/env python3
"""An application whose device is taken away while queue pairs are in use.

Two queue pairs of one process talk to each other: one sends what nobody
receives, a third one is only initialised. It says "ready", waits until the
device is gone, and expects every work request flushed, in order, and the
event that tells of the end.
"""

import argparse
import os
import signal
import sys

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

COUNT = 8

parser = argparse.ArgumentParser()
parser.add_argument("--device", required=True)
parser.add_argument("--gid", type=int, required=True)
args = parser.parse_args()

ctx = Context(name=args.device)
pd = PD(ctx)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
sge = SGE(mr.buf, 64, mr.lkey)
cqs, qps = [], []
for number in range(3):
    cqs.append(CQ(ctx, 64))
    cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
    qps.append(QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cqs[number], rcq=cqs[number],
                                 cap=cap, sq_sig_all=1)))
for number, peer in ((0, 1), (1, 0)):
    route = GlobalRoute(dgid=ctx.query_gid(1, args.gid), sgid_index=args.gid, hop_limit=64)
    attr = QPAttr(port_num=1)
    attr.path_mtu = e.IBV_MTU_1024
    attr.rnr_retry = attr.retry_cnt = 7
    attr.min_rnr_timer = 12
    attr.timeout = 14
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.dest_qp_num = qps[peer].qp_num
    attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
    qps[number].to_rts(attr)
qps[2].to_init(QPAttr(port_num=1))

wanted = {0: [], 2: []}
for wr_id in range(COUNT):
    # The second queue pair has no receives: these are refused again and again.
    qps[0].post_send(SendWR(wr_id=wr_id, num_sge=1, sg=[sge], send_flags=e.IBV_SEND_SIGNALED))
    for number in (0, 2):
        qps[number].post_recv(RecvWR(wr_id=100 + wr_id, num_sge=1, sg=[sge]))
print("ready", flush=True)

signal.alarm(60)


def await_fatal():
    """Returns when the device is reported to be gone."""
    while ctx.get_async_event().event_type != e.IBV_EVENT_DEVICE_FATAL:
        pass


def flushed(number, sends):
    """Every work request of a queue pair, flushed in order."""
    got = []
    while len(got) < COUNT + sends:
        count, entries = cqs[number].poll(64)
        got += entries[:count]
    for entry in got:
        if entry.status != e.IBV_WC_WR_FLUSH_ERR or entry.qp_num != qps[number].qp_num:
            sys.exit(f"QP {number}: completion {entry.wr_id} has status {entry.status}, qp_num {entry.qp_num}")
    ids = [entry.wr_id for entry in got]
    if [i for i in ids if i < 100] != list(range(sends)):
        sys.exit(f"QP {number}: sends completed: {ids}")
    if [i for i in ids if i >= 100] != list(range(100, 100 + COUNT)):
        sys.exit(f"QP {number}: receives completed: {ids}")


await_fatal()
flushed(0, COUNT)
flushed(2, 0)
if cqs[1].poll(1)[0]:
    sys.exit("QP 1 completed something")
print(f"{2 * COUNT + COUNT} work requests were flushed, in order", flush=True)
os._exit(0)  # pyverbs' destructors depend on their order
