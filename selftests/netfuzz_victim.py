#!/usr/bin/env python3
"""A process whose peer is hostile (see rust/host/netfuzz/src/peer.rs): it keeps queue
pairs connected to an address, makes them anew when they have failed, and writes
what its peer knows into a file. Between and behind the memory that the peer may
write lies memory that it may not."""

import argparse
import collections
import ctypes
import mmap
import os
import random
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from pair import ALL_ACCESS, STATUS

CHUNK = 65536  # guard, all rights, guard, remote read, guard, local only, guard
QPS, RECEIVES, SENDS = 8, 32, 16

parser = argparse.ArgumentParser()
parser.add_argument("--device", required=True)
parser.add_argument("--gid", type=int, required=True)
parser.add_argument("--peer", required=True, help="its GID")
parser.add_argument("--file", required=True)
parser.add_argument("--stop", required=True)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

rng = random.Random(args.seed)
ctx = Context(name=args.device)
pd = PD(ctx)
memory = mmap.mmap(-1, 7 * CHUNK)
memory.write(b"\x5a" * (7 * CHUNK))
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
RIGHTS = [ALL_ACCESS, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ, e.IBV_ACCESS_LOCAL_WRITE]
regions = [MR(pd, CHUNK, rights, address=base + (2 * i + 1) * CHUNK) for i, rights in enumerate(RIGHTS)]
cq = CQ(ctx, 8192)
counts = collections.Counter()


class Pair:
    """A queue pair and the number of the one that it believes to be connected to."""

    def __init__(self, index):
        cap = QPCap(max_send_wr=SENDS, max_recv_wr=RECEIVES, max_send_sge=1, max_recv_sge=1)
        kind = e.IBV_QPT_UC if index == QPS - 1 else e.IBV_QPT_RC
        self.qp = QP(pd, QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=cap, sq_sig_all=1))
        self.uc = kind == e.IBV_QPT_UC
        self.peer = 0x100 + index
        self.index = index
        self.connect()

    def connect(self):
        self.psn = rng.getrandbits(24)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ALL_ACCESS
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 16
        attr.min_rnr_timer = 1
        attr.rnr_retry = attr.retry_cnt = 7
        attr.timeout = 17
        attr.rq_psn = attr.sq_psn = self.psn
        attr.dest_qp_num = self.peer
        route = GlobalRoute(dgid=GID(args.peer), sgid_index=args.gid, hop_limit=64)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.qp.to_rts(attr)
        self.sent = self.received = 0
        for _ in range(RECEIVES):
            self.receive()
        for _ in range(SENDS):
            self.send()

    def receive(self):
        region = regions[0]
        sge = SGE(region.buf + 32768 + rng.randrange(8) * 2048, 2048, region.lkey)
        self.qp.post_recv(RecvWR(wr_id=self.index, num_sge=1, sg=[sge]))

    def send(self):
        region = regions[0]
        opcode = rng.choice((e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE) if self.uc else (
            e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_RDMA_READ,
            e.IBV_WR_ATOMIC_FETCH_AND_ADD))
        length = 8 if opcode == e.IBV_WR_ATOMIC_FETCH_AND_ADD else rng.randrange(1, 20000)
        sge = SGE(region.buf + 4096, length, region.lkey)
        wr = SendWR(wr_id=0x100 | self.index, opcode=opcode, num_sge=1, sg=[sge],
                    send_flags=e.IBV_SEND_SIGNALED)
        if opcode == e.IBV_WR_ATOMIC_FETCH_AND_ADD:
            wr.set_wr_atomic(1, 0x1000, 1, 0)
        elif opcode != e.IBV_WR_SEND:
            wr.set_wr_rdma(1, 0x1000)
        self.qp.post_send(wr)

    def again(self):
        counts["QPs made anew"] += 1
        self.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        self.connect()


def tell():
    """What the peer knows."""
    with open(args.file + ".new", "w", encoding="utf-8") as file:
        for pair in pairs:
            file.write(f"qp {pair.qp.qp_num} {pair.peer} {pair.psn}\n")
        for region in regions:
            file.write(f"mr {region.rkey} {region.buf} {CHUNK}\n")
    os.rename(args.file + ".new", args.file)


pairs = [Pair(index) for index in range(QPS)]
tell()
print("ready", flush=True)
while not os.path.exists(args.stop):
    number, entries = cq.poll(256)
    for entry in entries[:number]:
        what = "receive" if entry.wr_id < 0x100 else "request"
        counts[f"{what} {STATUS.get(entry.status, entry.status)}"] += 1
        pair = pairs[entry.wr_id & 0xff]
        if entry.status == e.IBV_WC_SUCCESS:
            try:
                if what == "receive":
                    pair.receive()
                else:
                    pair.send()
            except Exception:  # pylint: disable=broad-except
                counts["posts refused"] += 1
    if number == 256:
        continue
    failed = [p for p in pairs if p.qp.query(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_ERR]
    for pair in failed:
        pair.again()
    if failed:
        tell()
    time.sleep(0.01)

for what in sorted(counts):
    print(f"{what}: {counts[what]}")
text = memory[:]
for chunk in (0, 2, 3, 4, 5, 6):
    area = text[chunk * CHUNK:(chunk + 1) * CHUNK]
    if area != b"\x5a" * CHUNK:
        at = next(i for i, byte in enumerate(area) if byte != 0x5a)
        sys.exit(f"chunk {chunk} of the memory was changed at byte {at}")
print("what the peer may not write is unchanged", flush=True)
os._exit(0)  # pyverbs' destructors depend on their order
