"""Unreliable datagrams: what arrives, what is dropped, what fails."""

import ipaddress
import json
import os
import random
import subprocess
import time

from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqInitAttr, SrqAttr
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

from pair import expect, main, status

GRH = 40
QKEY = 0x11111111


class Datagrams:
    """A UD QP with one buffer, and the way to the other side's."""

    def __init__(self, side, length=8192, depth=64, max_inline=0, shared=False):
        self.side = side
        self.pd = PD(side.ctx)
        self.cq = CQ(side.ctx, 4 * depth)
        self.length = length
        self.mr = MR(self.pd, length, e.IBV_ACCESS_LOCAL_WRITE)
        self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=depth, max_sge=1))) if shared else None
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth, max_send_sge=2, max_recv_sge=2,
                    max_inline_data=max_inline)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=self.cq, rcq=self.cq,
                                         cap=cap, srq=self.srq))
        attr = QPAttr(port_num=1)
        attr.qkey = QKEY
        self.qp.to_rts(attr)
        self.mtu = 128 << side.ctx.query_port(1).active_mtu
        self.remote = side.swap({"qpn": self.qp.qp_num, "gid": side.gid_text})
        self.ah = self.new_ah(self.pd)

    def new_ah(self, pd):
        route = GlobalRoute(dgid=GID(self.remote["gid"]), sgid_index=self.side.gid, hop_limit=64)
        return AH(pd, attr=AHAttr(port_num=1, is_global=1, gr=route))

    def recv(self, wr_id=0, length=None):
        sge = SGE(self.mr.buf, self.length if length is None else length, self.mr.lkey)
        (self.srq or self.qp).post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=[sge]))

    def send(self, data, wr_id=0, qkey=QKEY, imm=None, ah=None, inline=False):
        if data:
            self.mr.write(data, len(data))
        sge = SGE(self.mr.buf, len(data), self.mr.lkey)
        opcode = e.IBV_WR_SEND if imm is None else e.IBV_WR_SEND_WITH_IMM
        flags = e.IBV_SEND_SIGNALED | (e.IBV_SEND_INLINE if inline else 0)
        wr = SendWR(wr_id=wr_id, opcode=opcode, num_sge=1, sg=[sge], send_flags=flags,
                    imm_data=imm or 0)
        wr.set_wr_ud(ah or self.ah, self.remote["qpn"], qkey)
        self.qp.post_send(wr)

    def wait(self, limit=30):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            number, entries = self.cq.poll(1)
            if number:
                return entries[0]
        raise AssertionError(f"no completion after {limit}s")

    def wait_ok(self, wr_id):
        wc = self.wait()
        expect(wc.status == e.IBV_WC_SUCCESS, f"completion {wc.wr_id} has {status(wc)}")
        expect(wc.wr_id == wr_id, f"completion of {wc.wr_id} instead of {wr_id}")
        return wc

    def arrived(self, data, wc):
        """Checks a receive's completion and every byte of it."""
        expect(wc.byte_len == len(data) + GRH, f"{wc.byte_len} bytes instead of {len(data) + GRH}")
        expect(wc.src_qp == self.remote["qpn"], f"source QP {wc.src_qp:#x}")
        expect(wc.wc_flags & e.IBV_WC_GRH, "no GRH")
        got = self.mr.read(len(data) + GRH, 0)
        expect(got[GRH:] == data, "the data differs")
        mine = ipaddress.IPv6Address(self.side.gid_text)
        theirs = ipaddress.IPv6Address(self.remote["gid"])
        if mine.ipv4_mapped:
            expect(got[20] == 0x45, f"not an IPv4 header: {got[:GRH].hex()}")
            expect(got[32:36] == theirs.ipv4_mapped.packed, "source address")
            expect(got[36:40] == mine.ipv4_mapped.packed, "destination address")
        else:
            expect(got[0] >> 4 == 6, f"not an IPv6 header: {got[:GRH].hex()}")
            expect(got[8:24] == theirs.packed, "source address")
            expect(got[24:40] == mine.packed, "destination address")

    def counter(self, name):
        text = subprocess.run(["rdma", "-j", "statistic", "show", "link",
                               self.side.args.device + "/1"], check=True,
                              stdout=subprocess.PIPE).stdout
        return int(json.loads(text)[0][name])

    def wait_counter(self, name, least):
        """Drivers other than ours have no such counter."""
        if not self.side.strict:
            return
        end = time.monotonic() + 30
        while self.counter(name) < least:
            expect(time.monotonic() < end, f"{name} stays at {self.counter(name)}")
            time.sleep(0.02)

    def start(self, name):
        return self.counter(name) if self.side.strict else 0


def pattern(seed, length):
    return random.Random(seed).randbytes(length)


def exchange(side, d, lengths, **how):
    """a sends each length to b, which compares."""
    for n, length in enumerate(lengths):
        data = pattern(n, length)
        if side.is_a:
            side.barrier()
            d.send(data, wr_id=n, **how)
            d.wait_ok(n)
        else:
            d.recv(wr_id=n)
            side.barrier()
            wc = d.wait_ok(n)
            d.arrived(data, wc)
            if how.get("imm") is not None:
                expect(wc.wc_flags & e.IBV_WC_WITH_IMM, "no immediate")
                expect(wc.imm_data == how["imm"], f"immediate {wc.imm_data:#x}")
        side.barrier()


def sizes(side):
    d = Datagrams(side)
    exchange(side, d, [0, 1, 2, 3, 33, 255, d.mtu - 1, d.mtu])


def immediate(side):
    exchange(side, Datagrams(side), [0, 5, 1000], imm=0x01020304)


def inline(side):
    exchange(side, Datagrams(side, max_inline=256), [0, 1, 255, 256], inline=True)


def shared_queue(side):
    exchange(side, Datagrams(side, shared=True), [0, 1, 1000])


def many(side):
    """No receive is lost or used twice while there are enough."""
    d = Datagrams(side, depth=64)
    if side.is_a:
        side.barrier()
        for n in range(32):
            d.send(b"", wr_id=n, imm=n)
        for n in range(32):
            d.wait_ok(n)
    else:
        for n in range(64):
            d.recv(wr_id=n)
        side.barrier()
        got = [d.wait_ok(n).imm_data for n in range(32)]
        expect(got == list(range(32)), f"order {got}")
    side.barrier()


def wrong_qkey(side):
    d = Datagrams(side)
    if side.is_a:
        side.barrier()
        d.send(b"wrong", wr_id=1, qkey=QKEY + 1)
        d.wait_ok(1)
        side.barrier()
        d.send(b"right", wr_id=2)
        d.wait_ok(2)
    else:
        before = d.start("rx_wrong_qkey_dropped")
        d.recv(wr_id=7)
        side.barrier()
        d.wait_counter("rx_wrong_qkey_dropped", before + 1)
        side.barrier()
        d.arrived(b"right", d.wait_ok(7))
    side.barrier()


def no_receive(side):
    """Without a receive, and with one that is too small, a datagram is lost and nothing else happens."""
    d = Datagrams(side)
    small = 64
    if side.is_a:
        side.barrier()
        d.send(b"lost", wr_id=1)
        d.wait_ok(1)
        side.barrier()
        d.send(bytes(small), wr_id=2)
        d.wait_ok(2)
        side.barrier()
        d.send(b"fits", wr_id=3)
        d.wait_ok(3)
    else:
        before = d.start("rx_datagrams_dropped")
        side.barrier()
        d.wait_counter("rx_datagrams_dropped", before + 1)
        d.recv(wr_id=7, length=small)
        side.barrier()
        d.wait_counter("rx_datagrams_dropped", before + 2)
        side.barrier()
        d.arrived(b"fits", d.wait_ok(7))
    side.barrier()


def too_long(side):
    """Longer than the MTU: nothing is sent, and it is no error (C10-93.1.1)."""
    if not side.strict:
        return
    d = Datagrams(side)
    if side.is_a:
        side.barrier()
        d.send(bytes(d.mtu + 1), wr_id=1)
        d.wait_ok(1)
        d.send(b"next", wr_id=2)
        d.wait_ok(2)
    else:
        d.recv(wr_id=7)
        side.barrier()
        d.arrived(b"next", d.wait_ok(7))
    side.barrier()


def foreign_ah(side):
    """An address handle of another domain stops the send queue; it can be started again."""
    if not side.strict:
        return
    d = Datagrams(side)
    if side.is_a:
        pd = PD(side.ctx)
        ah = d.new_ah(pd)
        side.barrier()
        d.send(b"", wr_id=1, ah=ah)
        wc = d.wait()
        expect(wc.status == e.IBV_WC_LOC_QP_OP_ERR and wc.wr_id == 1, f"{wc.wr_id}: {status(wc)}")
        state = d.qp.query(e.IBV_QP_STATE)[0].qp_state
        expect(state == e.IBV_QPS_SQE, f"state {state}")
        d.send(b"", wr_id=2)
        wc = d.wait()
        expect(wc.status == e.IBV_WC_WR_FLUSH_ERR and wc.wr_id == 2, f"{wc.wr_id}: {status(wc)}")
        attr = QPAttr(qp_state=e.IBV_QPS_RTS, cur_qp_state=e.IBV_QPS_SQE)
        d.qp.modify(attr, e.IBV_QP_STATE | e.IBV_QP_CUR_STATE)
        d.send(b"again", wr_id=3)
        d.wait_ok(3)
    else:
        d.recv(wr_id=7)
        side.barrier()
        d.arrived(b"again", d.wait_ok(7))
    side.barrier()


def flush(side):
    """In the error state receives come back."""
    d = Datagrams(side)
    for n in range(3):
        d.recv(wr_id=n)
    d.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
    for n in range(3):
        wc = d.wait()
        expect(wc.status == e.IBV_WC_WR_FLUSH_ERR and wc.wr_id == n, f"{wc.wr_id}: {status(wc)}")
    side.barrier()


VIA = os.environ.get("VIA", "")
main([(name + VIA, case) for name, case in [
    ("datagrams of 0 to MTU bytes", sizes),
    ("datagrams with immediate", immediate),
    ("inline datagrams", inline),
    ("datagrams into a shared receive queue", shared_queue),
    ("many datagrams in order", many),
    ("a wrong Q_Key is dropped and counted", wrong_qkey),
    ("datagrams without a receive are dropped", no_receive),
    ("a datagram longer than the MTU is not sent", too_long),
    ("an address handle of another domain", foreign_ah),
    ("receives are flushed", flush),
]])
