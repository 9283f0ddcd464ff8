#!/usr/bin/env python3
"""Exact sizes by SEND, WRITE and READ, with the bytes compared."""

import pyverbs.enums as e

from pair import Endpoint, expect, main, pattern

SIZES = [0, 1, 2, 3, 33, 1023, 1024, 1025, 4095, 4096, 4097, 65537, 16 << 20]
GUARD = 64


def differs(got, want):
    """Where two byte strings differ, or None."""
    if got == want:
        return None
    for index, (x, y) in enumerate(zip(got, want)):
        if x != y:
            return f"byte {index} of {len(want)} is {x:#x} instead of {y:#x}"
    return None


def transfer(opcode, size):
    def case(side):
        end = Endpoint(side, size + 2 * GUARD)
        data = pattern(size, size)
        guard = b"\x5a" * GUARD
        reader = opcode == e.IBV_WR_RDMA_READ
        source = side.is_a != reader  # a sends and writes; for READ b holds the data
        end.mr.write(guard + (data if source else b"\0" * size) + guard, size + 2 * GUARD)
        if not side.is_a and opcode in (e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE_WITH_IMM):
            end.recv(7, size, GUARD)
        end.connect()
        if side.is_a:
            end.send(opcode, 1, size, GUARD, raddr=end.remote["addr"] + GUARD, imm=0x1234)
            end.wait_ok(1, 60)
        elif opcode in (e.IBV_WR_SEND, e.IBV_WR_RDMA_WRITE_WITH_IMM):
            entry = end.wait_ok(1, 60)[0]
            expect(entry.wr_id == 7, f"wr_id is {entry.wr_id}")
            expect(entry.byte_len == size, f"byte_len is {entry.byte_len}")
        side.barrier()
        if not source:
            got = end.mr.read(size + 2 * GUARD, 0)
            wrong = differs(got[GUARD:GUARD + size], data)
            expect(not wrong, wrong)
            expect(got[:GUARD] == guard and got[GUARD + size:] == guard,
                   "bytes beside the buffer were overwritten")
        side.barrier()
        end.close()
    return case


def many(side):
    """A deep queue of mixed sizes, in order and intact."""
    sizes = [1, 1025, 0, 4097, 33, 2048, 9000, 3] * 8
    total = sum(sizes)
    end = Endpoint(side, total, depth=len(sizes))
    data = pattern(total, 99)
    offset = 0
    if not side.is_a:
        end.mr.write(b"\0" * total, total)
        for index, size in enumerate(sizes):
            end.recv(index, size, offset)
            offset += size
    end.connect()
    if side.is_a:
        end.mr.write(data, total)
        for index, size in enumerate(sizes):
            end.send(wr_id=index, length=size, offset=offset)
            offset += size
        entries = end.wait_ok(len(sizes))
    else:
        entries = end.wait_ok(len(sizes))
        wrong = differs(end.mr.read(total, 0), data)
        expect(not wrong, wrong)
    expect([c.wr_id for c in entries] == list(range(len(sizes))), "completions are out of order")
    side.barrier()
    end.close()


CASES = [(f"{name}, {size} bytes", transfer(opcode, size))
         for name, opcode in (("SEND", e.IBV_WR_SEND), ("WRITE", e.IBV_WR_RDMA_WRITE),
                              ("WRITE with immediate", e.IBV_WR_RDMA_WRITE_WITH_IMM),
                              ("READ", e.IBV_WR_RDMA_READ))
         for size in SIZES]
CASES.append(("64 SENDs of mixed sizes", many))
main(CASES)
