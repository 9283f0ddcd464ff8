#!/usr/bin/env python3
"""Unreliable connections: what they deliver, what they drop, and what they lack."""

import errno

import pyverbs.enums as e
from pyverbs.pyverbs_error import PyverbsRDMAError

from pair import Endpoint, expect, main, pattern

SIZE = 16384
SEND_IMM, WRITE_IMM = e.IBV_WR_SEND_WITH_IMM, e.IBV_WR_RDMA_WRITE_WITH_IMM


def make(side, **kwargs):
    return Endpoint(side, 4 * SIZE, qp_type=e.IBV_QPT_UC, **kwargs)


def gone(side, end):
    side.barrier()
    end.close()


def data(opcode):
    def case(side):
        end = make(side)
        bytes_ = pattern(SIZE, int(opcode))
        if not side.is_a:
            end.recv(9, SIZE)
        end.connect()
        if side.is_a:
            end.mr.write(bytes_, SIZE)
            end.send(opcode, 1, SIZE, imm=7)
            end.wait_ok()
        elif opcode != e.IBV_WR_RDMA_WRITE:
            entry = end.wait_ok()[0]
            expect((entry.wr_id, entry.byte_len) == (9, SIZE), f"{entry.wr_id}: {entry.byte_len} bytes")
        side.barrier()
        if not side.is_a:
            expect(end.mr.read(SIZE, 0) == bytes_, "the data differs")
        gone(side, end)
    return case


def dropped(opcode):
    """Messages without a receive are lost, those before and behind them are not."""
    def case(side):
        end = make(side)
        end.connect()
        number = 0
        for receives, messages in ((3, 5), (0, 4), (2, 2), (1, 30), (4, 4)):
            if not side.is_a:
                for _ in range(receives):
                    number += 1
                    end.recv(number, 3000)
            side.barrier()
            got = []
            if side.is_a:
                for k in range(messages):
                    end.send(opcode, k, 3000, imm=1000 * messages + k)
                end.wait_ok(messages)
            else:
                got = end.wait_ok(receives)
            side.barrier()
            if side.is_a:
                continue
            expect(end.cq.poll(1)[0] == 0, "more completions than receives")
            # Posting order, whichever messages found a receive; all did if there were enough.
            expect([c.wr_id for c in got] == list(range(number - receives + 1, number + 1)),
                   f"receives {[c.wr_id for c in got]}")
            found = [c.imm_data - 1000 * messages for c in got]
            expect(found == sorted(set(found)), f"messages {found}")
            expect(receives < messages or found == list(range(messages)), f"messages {found}")
        gone(side, end)
    return case


def fails(opcode, want, **kwargs):
    def case(side):
        end = make(side)
        end.connect()
        if side.is_a:
            if opcode == e.IBV_WR_ATOMIC_FETCH_AND_ADD:
                end.atomic(opcode, end.remote["addr"], 1)
            else:
                end.send(opcode, 1, 64, rkey=end.remote["rkey"] ^ kwargs.get("key_change", 0))
            end.wait_status(want)
        gone(side, end)
    return case


def no_such_operations(side):
    """The extended API says at creation what there is not."""
    if side.is_a:
        for ops in (e.IBV_QP_EX_WITH_RDMA_READ, e.IBV_QP_EX_WITH_FLUSH,
                    e.IBV_QP_EX_WITH_ATOMIC_WRITE, e.IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD):
            try:
                make(side, send_ops=ops)
            except PyverbsRDMAError as ex:
                expect(ex.error_code == errno.EOPNOTSUPP, f"errno {ex.error_code}")
            else:
                raise AssertionError(f"created with {ops:#x}")


main([
    ("SEND", data(e.IBV_WR_SEND)),
    ("SEND with immediate", data(SEND_IMM)),
    ("WRITE", data(e.IBV_WR_RDMA_WRITE)),
    ("WRITE with immediate", data(WRITE_IMM)),
    ("SENDs without a receive", dropped(SEND_IMM)),
    ("WRITEs with immediate without a receive", dropped(WRITE_IMM)),
    ("READ", fails(e.IBV_WR_RDMA_READ, e.IBV_WC_LOC_QP_OP_ERR)),
    ("atomic", fails(e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WC_LOC_QP_OP_ERR)),
    ("WRITE with a wrong key", fails(e.IBV_WR_RDMA_WRITE, e.IBV_WC_REM_ACCESS_ERR, key_change=1)),
    ("operations that UC lacks", no_such_operations),
])
