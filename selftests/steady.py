#!/usr/bin/env python3
"""Verified traffic between two processes until a file says stop, for tests that
disturb something else meanwhile: WRITE and READ back, SEND with the contents
checked at the receiver, fetch-and-add with the sum checked. Every completion
must succeed. Arguments: those of python_pair, --stop FILE, --qps N, --size N."""

import argparse
import os
import select
import sys
import time

import pyverbs.enums as e

from pair import Endpoint, Side, expect, pattern

RECEIVES = 16
SEND_MAX = 8192


class Lane:
    """One queue pair. Side a: source, what was read back, original value of the
    atomic. Side b: target, counter, receives."""

    def __init__(self, side, size):
        self.side, self.size = side, size
        self.end = Endpoint(side, 2 * size + 64 + RECEIVES * SEND_MAX, depth=64)
        self.end.mr.write(b"\0" * self.end.length, self.end.length)
        self.rounds = self.got = 0
        if not side.is_a:
            for slot in range(RECEIVES):
                self.receive(slot)
        self.end.connect()

    def receive(self, slot):
        self.end.recv(slot, SEND_MAX, 2 * self.size + 64 + slot * SEND_MAX)

    def post(self, seed):
        """WRITE, READ back, SEND, fetch-and-add."""
        end, size = self.end, self.size
        self.length = 1 + seed * 7919 % size
        self.data = pattern(self.length, seed)
        end.mr.write(self.data, self.length)
        raddr = end.remote["addr"]
        end.send(e.IBV_WR_RDMA_WRITE, 1, self.length, 0, raddr=raddr)
        end.send(e.IBV_WR_RDMA_READ, 2, self.length, size, raddr=raddr)
        short = 8 + seed * 104729 % (SEND_MAX - 8)
        text = seed.to_bytes(8, "big") + pattern(short - 8, seed)
        offset = 2 * size + 64
        end.mr.write(text, short, offset)
        end.send(e.IBV_WR_SEND, 3, short, offset)
        end.atomic(e.IBV_WR_ATOMIC_FETCH_AND_ADD, raddr + 2 * size, 1, wr_id=4)

    def check(self, limit):
        entries = self.end.wait_ok(4, limit)
        expect([c.wr_id for c in entries] == [1, 2, 3, 4], "completions are out of order")
        got = self.end.mr.read(self.length, self.size)
        expect(got == self.data, f"what was written and read back differs, {self.length} bytes")
        # fetch-and-add returns into the first 8 bytes of the region.
        old = int.from_bytes(self.end.mr.read(8, 0), sys.byteorder)
        expect(old == self.rounds, f"the counter was {old} after {self.rounds} additions")
        self.rounds += 1

    def drain(self):
        """Side b: checks what has been received."""
        number, entries = self.end.cq.poll(RECEIVES)
        for entry in entries[:number]:
            expect(entry.status == e.IBV_WC_SUCCESS, f"a receive completed with status {entry.status}")
            offset = 2 * self.size + 64 + entry.wr_id * SEND_MAX
            text = self.end.mr.read(entry.byte_len, offset)
            seed = int.from_bytes(text[:8], "big")
            expect(text[8:] == pattern(len(text) - 8, seed), f"a message of {len(text)} bytes differs")
            self.receive(entry.wr_id)
            self.got += 1


def sender(side, lanes, args):
    begin, total, longest = time.monotonic(), 0, 0.0
    seed = args.seed
    while not os.path.exists(args.stop):
        start = time.monotonic()
        for lane in lanes:
            seed += 1
            lane.post(seed)
        for lane in lanes:
            lane.check(args.limit)
            total += lane.length
        longest = max(longest, time.monotonic() - start)
    side.put("swap", [lane.rounds for lane in lanes])
    side.get()
    rounds = sum(lane.rounds for lane in lanes)
    expect(rounds > 0, "nothing was transferred")
    print(f"{rounds} rounds, {total} bytes written and read back in "
          f"{time.monotonic() - begin:.1f} s, the longest round took {longest:.2f} s", flush=True)


def receiver(side, lanes, args):
    want = None
    end = None
    while want is None or [lane.got for lane in lanes] != want:
        for lane in lanes:
            lane.drain()
        if want is None:
            if side.buffer or select.select([side.sock], [], [], 0.001)[0]:
                want = side.get()
                end = time.monotonic() + args.limit
        else:
            expect(time.monotonic() < end, f"received {[lane.got for lane in lanes]} instead of {want}")
    side.put("swap")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices="ab", required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--gid", type=int, required=True)
    parser.add_argument("--stop", required=True)
    parser.add_argument("--qps", type=int, default=4)
    parser.add_argument("--size", type=int, default=65536)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=60, help="seconds for one round")
    parser.add_argument("--ready", help="made when the traffic begins")
    args = parser.parse_args()
    side = Side(args)

    def case(side):
        lanes = [Lane(side, args.size) for _ in range(args.qps)]
        if side.is_a:
            if args.ready:
                with open(args.ready, "w", encoding="utf-8"):
                    pass
            sender(side, lanes, args)
        else:
            receiver(side, lanes, args)

    side.run("verified traffic: every byte, every completion, the sum", case)
    sys.stdout.flush()
    os._exit(0)  # pyverbs' destructors depend on their order


main()
