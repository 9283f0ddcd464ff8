"""Two processes, one at each end of a link, that run verbs cases in step.

A test program defines functions taking a Side and hands them to main().
Both processes run the same function; side.is_a tells them apart. Side a
prints "PASS name", "FAIL name: why" or "SKIP name" for each case.
"""

import argparse
import json
import os
import random
import select
import socket
import sys
import time
import traceback

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

ALL_ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
              | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC)
STATUS = {getattr(e, n): n for n in dir(e) if n.startswith("IBV_WC_") and n[7:] in (
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR",
    "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR",
    "REM_ABORT_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR")}


class Skip(Exception):
    """The case does not apply to this device."""


class PeerFailed(Exception):
    """The other process reported a failure."""


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


def pattern(length, seed):
    """Bytes that differ with offset and seed."""
    return random.Random(seed).randbytes(length)


class Endpoint:
    """A connected queue pair with its CQ and one memory region; with send_ops, an extended one."""

    def __init__(self, side, length=4096, access=ALL_ACCESS, depth=64, cq=None,
                 sig_all=1, max_inline=0, send_ops=0, qp_type=e.IBV_QPT_RC):
        self.side = side
        self.pd = PD(side.ctx)
        self.cq = cq or CQ(side.ctx, 4 * depth)
        self.length = max(length, 1)
        self.mr = MR(self.pd, self.length, access)
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=2,
                    max_recv_sge=2, max_inline_data=max_inline)
        if send_ops:
            mask = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
            self.qp = QPEx(side.ctx, QPInitAttrEx(
                qp_type=qp_type, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=sig_all,
                pd=self.pd, send_ops_flags=send_ops, comp_mask=mask))
        else:
            self.qp = QP(self.pd, QPInitAttr(qp_type=qp_type, scq=self.cq, rcq=self.cq,
                                             cap=cap, sq_sig_all=sig_all))
        self.psn = random.getrandbits(24)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ALL_ACCESS
        self.qp.to_init(attr)

    def connect(self, rnr_retry=7, retry_cnt=7, timeout=14, rd_atomic=4, mtu=None,
                access=ALL_ACCESS, dest_rd_atomic=None):
        """Exchanges parameters with the other side and goes to RTS."""
        side = self.side
        self.remote = side.swap({
            "qpn": self.qp.qp_num, "psn": self.psn, "gid": side.gid_text,
            "addr": self.mr.buf, "rkey": self.mr.rkey, "length": self.length})
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = access
        attr.path_mtu = mtu or side.ctx.query_port(1).active_mtu
        attr.max_dest_rd_atomic = rd_atomic if dest_rd_atomic is None else dest_rd_atomic
        attr.max_rd_atomic = rd_atomic
        attr.min_rnr_timer = 12
        attr.rnr_retry = rnr_retry
        attr.retry_cnt = retry_cnt
        attr.timeout = timeout
        attr.rq_psn = self.remote["psn"]
        attr.sq_psn = self.psn
        attr.dest_qp_num = self.remote["qpn"]
        route = GlobalRoute(dgid=GID(self.remote["gid"]), sgid_index=side.gid, hop_limit=64)
        attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.qp.to_rts(attr)
        if access != ALL_ACCESS:
            # to_rts() leaves the rights as they were set with INIT.
            self.qp.modify(attr, e.IBV_QP_ACCESS_FLAGS)
        side.barrier()

    def sge(self, length=None, offset=0):
        return SGE(self.mr.buf + offset, self.length if length is None else length, self.mr.lkey)

    def recv(self, wr_id=0, length=None, offset=0):
        sge = self.sge(length, offset)
        self.qp.post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=[sge]))

    def send(self, opcode=None, wr_id=0, length=None, offset=0, raddr=None, rkey=None,
             flags=e.IBV_SEND_SIGNALED, imm=0):
        opcode = e.IBV_WR_SEND if opcode is None else opcode
        sge = self.sge(length, offset)
        wr = SendWR(wr_id=wr_id, opcode=opcode, num_sge=1, sg=[sge], send_flags=flags, imm_data=imm)
        if opcode not in (e.IBV_WR_SEND, e.IBV_WR_SEND_WITH_IMM):
            wr.set_wr_rdma(self.remote["rkey"] if rkey is None else rkey,
                           self.remote["addr"] if raddr is None else raddr)
        self.qp.post_send(wr)

    def atomic(self, opcode, raddr, compare_add, swap=0, wr_id=0, rkey=None):
        wr = SendWR(wr_id=wr_id, opcode=opcode, num_sge=1, sg=[self.sge(8)],
                    send_flags=e.IBV_SEND_SIGNALED)
        wr.set_wr_atomic(self.remote["rkey"] if rkey is None else rkey, raddr, compare_add, swap)
        self.qp.post_send(wr)

    def wait(self, count=1, limit=30):
        """The next completions; an error when they do not come in time."""
        end = time.monotonic() + limit
        got = []
        while len(got) < count:
            number, entries = self.cq.poll(count - len(got))
            got += entries[:number]
            if len(got) < count and time.monotonic() > end:
                raise AssertionError(f"{len(got)} of {count} completions after {limit}s: "
                                     + ", ".join(status(c) for c in got))
        return got

    def wait_ok(self, count=1, limit=30):
        entries = self.wait(count, limit)
        for entry in entries:
            expect(entry.status == e.IBV_WC_SUCCESS,
                   f"completion {entry.wr_id} has {status(entry)}")
        return entries

    def wait_status(self, want, limit=60):
        entry = self.wait(1, limit)[0]
        expect(entry.status == want, f"{status(entry)} instead of {STATUS[want]}")
        return entry

    def state(self):
        return self.qp.query(e.IBV_QP_STATE)[0].qp_state

    def close(self):
        self.qp.close()
        self.mr.close()
        self.cq.close()
        self.pd.close()


def status(entry):
    return STATUS.get(entry.status, f"status {entry.status}")


class Side:
    """This process: device, GID, and the channel to the other one."""

    def __init__(self, args):
        self.is_a = args.side == "a"
        self.name = args.side
        self.args = args
        self.strict = os.environ.get("DRIVER") == "metaroce"  # others have known deviations
        self.gid = args.gid
        self.case = 0
        self.buffer = b""
        if self.is_a:
            server = socket.socket(socket.AF_UNIX)
            server.bind(args.socket)
            server.listen(1)
            server.settimeout(30)
            self.sock, _ = server.accept()
        else:
            end = time.monotonic() + 30
            while True:
                self.sock = socket.socket(socket.AF_UNIX)
                try:
                    self.sock.connect(args.socket)
                    break
                except OSError:
                    self.sock.close()
                    if time.monotonic() > end:
                        raise
                    select.select([], [], [], 0.05)
        self.ctx = Context(name=args.device)
        gid = self.ctx.query_gid(1, self.gid)
        self.gid_text = str(getattr(gid, "gid", gid))

    def put(self, kind, value=None):
        text = json.dumps({"case": self.case, "kind": kind, "value": value})
        self.sock.sendall(text.encode() + b"\n")

    def get(self, limit=90):
        """The next message of this case."""
        self.sock.settimeout(limit)
        while True:
            while b"\n" not in self.buffer:
                data = self.sock.recv(65536)
                if not data:
                    raise PeerFailed("the other side is gone")
                self.buffer += data
            line, self.buffer = self.buffer.split(b"\n", 1)
            message = json.loads(line)
            if message["case"] < self.case:
                continue
            if message["kind"] == "failed":
                raise PeerFailed(f"other side: {message['value']}")
            if message["kind"] == "skip":
                raise Skip(message["value"])
            return message["value"]

    def swap(self, value):
        self.put("swap", value)
        return self.get()

    def barrier(self):
        self.swap(None)

    def run(self, name, function):
        """One case on both sides; side a prints the verdict."""
        self.case += 1
        verdict = "PASS " + name
        try:
            function(self)
            self.put("swap", "end")
            self.get()
        except Skip as ex:
            self.put("skip", str(ex))
            verdict = f"SKIP {name} ({ex})"
        except PeerFailed as ex:
            self.put("failed", "see the other side")
            verdict = f"FAIL {name}: {ex}"
        except Exception as ex:  # pylint: disable=broad-except
            traceback.print_exc(file=sys.stderr)
            text = f"{type(ex).__name__}: {ex}".replace("\n", " ").replace("#", "")
            self.put("failed", text)
            verdict = f"FAIL {name}: {text}"
        # Both sides leave the case together, whatever happened in it.
        self.case += 1
        self.barrier()
        if self.is_a:
            print(verdict, flush=True)


def main(cases):
    """cases: list of (name, function)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices="ab", required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--gid", type=int, required=True)
    parser.add_argument("--only")
    args = parser.parse_args()
    side = Side(args)
    for name, function in cases:
        if not args.only or args.only in name:
            side.run(name, function)
    sys.stdout.flush()
    os._exit(0)  # pyverbs' destructors depend on their order
