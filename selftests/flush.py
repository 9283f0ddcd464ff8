#!/usr/bin/env python3
"""FLUSH and ATOMIC WRITE: what they do, what is refused, and their order after WRITEs."""

import time

import pyverbs.enums as e
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.wr import SGE, SendWR

from pair import ALL_ACCESS, Endpoint, expect, main, pattern

GLOBAL, PERSISTENT = e.IBV_ACCESS_FLUSH_GLOBAL, e.IBV_ACCESS_FLUSH_PERSISTENT
OPS = e.IBV_QP_EX_WITH_FLUSH | e.IBV_QP_EX_WITH_ATOMIC_WRITE | e.IBV_QP_EX_WITH_RDMA_WRITE
SIZE = 65536


class Ex(Endpoint):
    def __init__(self, side, access=ALL_ACCESS | GLOBAL):
        super().__init__(side, SIZE, access=ALL_ACCESS if side.is_a else access, send_ops=OPS)

    def begin(self, wr_id):
        self.qp.wr_start()
        self.qp.wr_id, self.qp.wr_flags = wr_id, e.IBV_SEND_SIGNALED

    def store(self, data, raddr, rkey, wr_id=1):
        self.begin(wr_id)
        self.qp.wr_atomic_write(rkey, raddr, data)
        self.qp.wr_complete()

    def flush(self, raddr, length, rkey, kind=e.IBV_FLUSH_GLOBAL, level=e.IBV_FLUSH_RANGE, wr_id=2):
        self.begin(wr_id)
        self.qp.wr_flush(rkey, raddr, length, kind, level)
        self.qp.wr_complete()


def pair_up(side, access=ALL_ACCESS | GLOBAL, qp_access=ALL_ACCESS | GLOBAL | PERSISTENT):
    end = Ex(side, access)
    end.connect(access=qp_access)
    return end


def gone(side, end):
    side.barrier()
    end.close()


def atomic_write(side):
    end = pair_up(side)
    data = pattern(8, 1)
    if side.is_a:
        end.store(data, end.remote["addr"] + 16, end.remote["rkey"])
        entry = end.wait_ok()[0]
        expect(entry.opcode == e.IBV_WC_ATOMIC_WRITE, f"opcode {entry.opcode}")
    side.barrier()
    if not side.is_a:
        expect(end.mr.read(40, 0) == b"\0" * 16 + data + b"\0" * 16, "the data differs")
    gone(side, end)


def atomic_write_sge(side):
    """The same by ibv_post_send with two elements of 3 and 5 bytes; then with too few."""
    end = pair_up(side)
    data = pattern(8, 2)
    if side.is_a:
        end.mr.write(data, 8)
        for last in (5, 4):
            sges = [SGE(end.mr.buf, 3, end.mr.lkey), SGE(end.mr.buf + 3, last, end.mr.lkey)]
            wr = SendWR(opcode=e.IBV_WR_ATOMIC_WRITE, num_sge=2, sg=sges)
            wr.set_wr_rdma(end.remote["rkey"], end.remote["addr"])
            end.qp.post_send(wr)
            if last == 5:
                end.wait_ok()
        end.wait_status(e.IBV_WC_LOC_LEN_ERR)
    side.barrier()
    if not side.is_a:
        expect(end.mr.read(8, 0) == data, "the data differs")
    gone(side, end)


def atomic_write_fails(want, offset=0, key_change=0, access=ALL_ACCESS, qp_access=ALL_ACCESS):
    def case(side):
        end = pair_up(side, access, qp_access)
        if side.is_a:
            end.store(b"x" * 8, end.remote["addr"] + offset, end.remote["rkey"] ^ key_change)
            end.wait_status(want)
        side.barrier()
        if not side.is_a:
            expect(end.mr.read(SIZE, 0) == b"\0" * SIZE, "memory has changed")
        gone(side, end)
    return case


def flush(length, level=e.IBV_FLUSH_RANGE, offset=0):
    def case(side):
        end = pair_up(side)
        if side.is_a:
            end.flush(end.remote["addr"] + offset, length, end.remote["rkey"], level=level)
            entry = end.wait_ok()[0]
            expect(entry.opcode == e.IBV_WC_FLUSH, f"opcode {entry.opcode}")
        gone(side, end)
    return case


def flush_fails(want, length=64, offset=0, key_change=0, kind=e.IBV_FLUSH_GLOBAL,
                level=e.IBV_FLUSH_RANGE, access=ALL_ACCESS | GLOBAL,
                qp_access=ALL_ACCESS | GLOBAL | PERSISTENT):
    def case(side):
        end = pair_up(side, access, qp_access)
        if side.is_a:
            end.flush(end.remote["addr"] + offset, length, end.remote["rkey"] ^ key_change, kind, level)
            end.wait_status(want)
        gone(side, end)
    return case


def no_persistence(side):
    """Memory that does not survive a loss of power is not registered for that."""
    if not side.is_a:
        pd = PD(side.ctx)
        try:
            MR(pd, 4096, ALL_ACCESS | PERSISTENT)
        except PyverbsRDMAError:
            pass
        else:
            raise AssertionError("registered")
        pd.close()


def order(side):
    """Who sees the flag sees all of the message before it, and FLUSH comes after it."""
    end = pair_up(side)
    rounds, body = 40, SIZE - 8
    for number in range(1, rounds + 1):
        flag = number.to_bytes(8, "little")
        data = pattern(body, number)
        if side.is_a:
            end.mr.write(data, body)
            end.begin(1)
            end.qp.wr_rdma_write(end.remote["rkey"], end.remote["addr"])
            end.qp.wr_set_sge(SGE(end.mr.buf, body, end.mr.lkey))
            end.qp.wr_atomic_write(end.remote["rkey"], end.remote["addr"] + body, flag)
            end.qp.wr_flush(end.remote["rkey"], end.remote["addr"], SIZE, e.IBV_FLUSH_GLOBAL,
                            e.IBV_FLUSH_RANGE)
            end.qp.wr_complete()
            opcodes = [entry.opcode for entry in end.wait_ok(3)]
            expect(opcodes == [e.IBV_WC_RDMA_WRITE, e.IBV_WC_ATOMIC_WRITE, e.IBV_WC_FLUSH],
                   f"completions {opcodes}")
        else:
            limit = time.monotonic() + 60
            while end.mr.read(8, body) != flag:
                expect(time.monotonic() < limit, "the flag does not come")
            expect(end.mr.read(body, 0) == data, "the flag came before the data")
        side.barrier()
    gone(side, end)


INV, ACCESS = e.IBV_WC_REM_INV_REQ_ERR, e.IBV_WC_REM_ACCESS_ERR
NO_WRITE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ
main([
    ("ATOMIC WRITE", atomic_write),
    ("ATOMIC WRITE by ibv_post_send, 8 and 7 bytes", atomic_write_sge),
    ("ATOMIC WRITE to an odd address", atomic_write_fails(INV, offset=4)),
    ("ATOMIC WRITE behind the region", atomic_write_fails(ACCESS, offset=SIZE)),
    ("ATOMIC WRITE with a wrong key", atomic_write_fails(ACCESS, key_change=1)),
    ("ATOMIC WRITE without the region's right", atomic_write_fails(ACCESS, access=NO_WRITE)),
    ("ATOMIC WRITE without the QP's right", atomic_write_fails(INV, qp_access=NO_WRITE)),
    ("FLUSH of a range", flush(SIZE)),
    ("FLUSH of nothing", flush(0)),
    ("FLUSH of a whole region, range ignored", flush(1 << 40, e.IBV_FLUSH_MR, offset=SIZE)),
    ("FLUSH over the region's end", flush_fails(ACCESS, length=SIZE + 1)),
    ("FLUSH before the region", flush_fails(ACCESS, offset=-1)),
    ("FLUSH of nothing with a wrong key", flush_fails(ACCESS, length=0, key_change=1)),
    ("FLUSH of a whole region with a wrong key",
     flush_fails(ACCESS, key_change=1, level=e.IBV_FLUSH_MR)),
    ("FLUSH of more than a message", flush_fails(e.IBV_WC_LOC_LEN_ERR, length=(1 << 31) + 1)),
    ("FLUSH without the region's right", flush_fails(ACCESS, access=ALL_ACCESS)),
    ("FLUSH without the QP's right", flush_fails(INV, qp_access=ALL_ACCESS)),
    ("FLUSH for persistence", flush_fails(ACCESS, kind=e.IBV_FLUSH_PERSISTENT)),
    ("FLUSH for both", flush_fails(ACCESS, kind=e.IBV_FLUSH_PERSISTENT | e.IBV_FLUSH_GLOBAL)),
    ("FLUSH for nothing", flush_fails(e.IBV_WC_LOC_QP_OP_ERR, kind=0)),
    ("FLUSH of an unknown level", flush_fails(e.IBV_WC_LOC_QP_OP_ERR, level=2)),
    ("registration for persistence", no_persistence),
    ("order after WRITEs", order),
])
