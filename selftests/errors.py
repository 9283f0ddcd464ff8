#!/usr/bin/env python3
"""What must fail, fails with the right completion status, in order."""

import os
import select
import signal
import time

import pyverbs.enums as e
from pyverbs.cq import CQ

from pyverbs.qp import QPAttr

from pair import ALL_ACCESS, Endpoint, Skip, expect, main, pattern, status


def gone(side, end):
    """Waits for the other side, then frees the endpoint."""
    side.barrier()
    end.close()


def access_error(opcode, rkey_change=0, offset=0, length=64, access=ALL_ACCESS, qp_access=ALL_ACCESS):
    def case(side):
        end = Endpoint(side, 4096, access=ALL_ACCESS if side.is_a else access)
        end.connect(access=qp_access)
        if side.is_a:
            raddr = (end.remote["addr"] + offset) % (1 << 64)
            end.send(opcode, 1, length, raddr=raddr, rkey=end.remote["rkey"] ^ rkey_change)
            entry = end.wait_status(e.IBV_WC_REM_ACCESS_ERR)
            expect(entry.wr_id == 1, f"wr_id is {entry.wr_id}")
            expect(entry.qp_num == end.qp.qp_num, "qp_num is wrong")
            expect(end.state() == e.IBV_QPS_ERR, "the QP is not in the error state")
        gone(side, end)
    return case


def middle_of_message(side):
    """The first packets fit, a later one runs out of the region."""
    end = Endpoint(side, 65536 if side.is_a else 8192)
    if not side.is_a:
        end.mr.write(b"\0" * 8192, 8192)
    end.connect()
    if side.is_a:
        end.mr.write(pattern(65536, 1), 65536)
        for number in range(4):
            end.send(e.IBV_WR_RDMA_WRITE, number, 65536)
        end.wait_status(e.IBV_WC_REM_ACCESS_ERR)
        for number in range(1, 4):
            entry = end.wait_status(e.IBV_WC_WR_FLUSH_ERR)
            expect(entry.wr_id == number, f"flushed {entry.wr_id} instead of {number}")
            expect(entry.qp_num == end.qp.qp_num, "qp_num is wrong")
    gone(side, end)


def rnr_none(side):
    """No receive is posted and rnr_retry is 0: fails at once."""
    end = Endpoint(side)
    end.connect(rnr_retry=0)
    if side.is_a:
        begin = time.monotonic()
        end.send(length=64)
        end.wait_status(e.IBV_WC_RNR_RETRY_EXC_ERR, 20)
        expect(time.monotonic() - begin < 10, "took longer than 10 s")
    gone(side, end)


def rnr_forever(side):
    """rnr_retry 7 waits for a receive that comes late."""
    end = Endpoint(side)
    end.connect(rnr_retry=7)
    if side.is_a:
        end.mr.write(pattern(64, 5), 64)
        end.send(length=64)
        count, _ = end.cq.poll(1)
        expect(count == 0, "completed without a receive")
        side.barrier()
        end.wait_ok(1, 30)
    else:
        # Several periods of the receiver-not-ready timer (0.64 ms each).
        time.sleep(0.5)
        side.barrier()
        end.recv(1, 64)
        end.wait_ok(1, 30)
        expect(end.mr.read(64, 0) == pattern(64, 5), "the data differs")
    gone(side, end)


def receive_too_short(side):
    end = Endpoint(side)
    if not side.is_a:
        end.recv(1, 32)
    end.connect()
    if side.is_a:
        end.send(length=64)
        if side.strict:
            end.wait_status(e.IBV_WC_REM_INV_REQ_ERR)
        else:
            expect(end.wait(1)[0].status != e.IBV_WC_SUCCESS, "completed with success")
    elif side.strict:
        end.wait_status(e.IBV_WC_LOC_LEN_ERR)
    else:
        expect(end.wait(1)[0].status != e.IBV_WC_SUCCESS, "completed with success")
    gone(side, end)


def local_protection(side):
    """A bad lkey is the sender's own error."""
    end = Endpoint(side)
    if not side.is_a:
        end.recv(1)
    end.connect()
    if side.is_a:
        from pyverbs.wr import SGE, SendWR
        sge = SGE(end.mr.buf, 64, end.mr.lkey ^ 0x100000)
        end.qp.post_send(SendWR(wr_id=3, opcode=e.IBV_WR_SEND, num_sge=1, sg=[sge],
                                send_flags=e.IBV_SEND_SIGNALED))
        if side.strict:
            end.wait_status(e.IBV_WC_LOC_PROT_ERR)
        else:
            expect(end.wait(1)[0].status != e.IBV_WC_SUCCESS, "completed with success")
    gone(side, end)


def flush_order(side):
    """Moving to the error state flushes everything, in posting order."""
    end = Endpoint(side)
    end.connect()
    if not side.is_a:
        from pyverbs.qp import QPAttr
        for number in range(10):
            end.recv(100 + number)
        attr = QPAttr(qp_state=e.IBV_QPS_ERR)
        end.qp.modify(attr, e.IBV_QP_STATE)
        for number in range(10):
            end.send(wr_id=number)
        entries = end.wait(20)
        expect(all(c.status == e.IBV_WC_WR_FLUSH_ERR for c in entries), "not all are flushed")
        recvs = [c.wr_id for c in entries if c.wr_id >= 100]
        sends = [c.wr_id for c in entries if c.wr_id < 100]
        expect(recvs == list(range(100, 110)), f"receives: {recvs}")
        expect(sends == list(range(10)), f"sends: {sends}")
        expect(all(c.qp_num == end.qp.qp_num for c in entries), "qp_num is wrong")
    gone(side, end)


def dead_peer(side):
    """The other QP is destroyed: the sender's retries run out."""
    end = Endpoint(side)
    end.connect(retry_cnt=2, timeout=10)
    if side.is_a:
        side.barrier()
        end.send(e.IBV_WR_RDMA_WRITE, 1, 64)
        entry = end.wait(1, 60)[0]
        expect(entry.status == e.IBV_WC_RETRY_EXC_ERR, f"status is {entry.status}")
        side.barrier()
        end.close()
    else:
        end.close()
        side.barrier()
        side.barrier()


def event_of(ctx, kind, limit=30):
    """Waits for an asynchronous event of that kind."""
    signal.alarm(limit)
    found = None
    while found != kind:
        event = ctx.get_async_event()
        found = event.event_type
        event.ack()  # else the object could not be destroyed
    signal.alarm(0)


def overrun(side):
    """More completions than the queue holds: both QPs that report to it fail, though one is idle."""
    if not side.strict:
        raise Skip("others leave the QPs as they are")
    end = Endpoint(side, depth=64, cq=CQ(side.ctx, 16) if side.is_a else None)
    idle = Endpoint(side, cq=end.cq)
    if side.is_a:
        idle.recv(1)
    end.connect()
    idle.connect()
    if side.is_a:
        room = end.cq.cqe
        count = 0
        try:
            while count < 4 * room:
                end.send(e.IBV_WR_RDMA_WRITE, count, 64)
                count += 1
        except OSError:
            pass  # the queue is full, or the QP has failed already
        expect(count > room, f"only {count} posted for {room} completions")
        event_of(side.ctx, e.IBV_EVENT_CQ_ERR)
        for _ in range(2):
            event_of(side.ctx, e.IBV_EVENT_QP_FATAL)
        expect(end.state() == e.IBV_QPS_ERR, "the QP is not in the error state")
        expect(idle.state() == e.IBV_QPS_ERR, "the idle QP is not in the error state")
        entries = end.wait(room)
        expect([c.wr_id for c in entries] == list(range(room)), "the completions before are not whole")
        expect(all(c.status == e.IBV_WC_SUCCESS for c in entries), "the completions before are not good")
        expect(end.cq.poll(1)[0] == 0, "a completion came after the overrun")
    side.barrier()
    idle.qp.close()
    end.close()


def too_many_reads(side):
    """The responder grants one READ, the requester thinks that there are eight."""
    if not side.strict:
        raise Skip("others do not count")
    size = 1 << 20
    end = Endpoint(side, size)
    end.connect(rd_atomic=8, dest_rd_atomic=1)
    if side.is_a:
        for number in range(8):
            end.send(READ, number, size)
        entries = end.wait(8)
        seen = [c.status for c in entries]
        expect([c.wr_id for c in entries] == list(range(8)), "completions are out of order")
        expect(seen == [e.IBV_WC_SUCCESS, e.IBV_WC_REM_INV_REQ_ERR] + 6 * [e.IBV_WC_WR_FLUSH_ERR],
               f"statuses: {[status(c) for c in entries]}")
    else:
        event_of(side.ctx, e.IBV_EVENT_QP_REQ_ERR)
        expect(end.state() == e.IBV_QPS_ERR, "the QP is not in the error state")
    gone(side, end)


def change_rd_atomic(side):
    """max_dest_rd_atomic and max_rd_atomic are raised and lowered while READs are under way."""
    size, rounds = 65536, 20
    end = Endpoint(side, size)
    if not side.is_a:
        end.mr.write(pattern(size, 11), size)
    end.connect(rd_atomic=1)

    def change(what, value):
        attr = QPAttr(qp_state=e.IBV_QPS_SQD)
        end.qp.modify(attr, e.IBV_QP_STATE)
        attr = QPAttr(qp_state=e.IBV_QPS_SQD)
        if what == e.IBV_QP_MAX_DEST_RD_ATOMIC:
            attr.max_dest_rd_atomic = value
        else:
            attr.max_rd_atomic = value
        end.qp.modify(attr, what)
        attr = QPAttr(qp_state=e.IBV_QPS_RTS)
        end.qp.modify(attr, e.IBV_QP_STATE)
        now = end.qp.query(what)[0]
        now = now.max_dest_rd_atomic if what == e.IBV_QP_MAX_DEST_RD_ATOMIC else now.max_rd_atomic
        expect(now == value, f"is {now}, not {value}")

    for number in range(rounds):
        value = (1, 16, 2, 5)[number % 4]
        if side.is_a:
            for index in range(32):
                end.send(READ, index, size)
            end.wait_ok(8)
        # Never more at the requester than at the responder.
        growing = value > (5, 1, 16, 2)[number % 4]
        if side.is_a == growing:
            side.barrier()
        change(e.IBV_QP_MAX_QP_RD_ATOMIC if side.is_a else e.IBV_QP_MAX_DEST_RD_ATOMIC, value)
        if side.is_a != growing:
            side.barrier()
        if side.is_a:
            end.wait_ok(24)
        side.barrier()
    if side.is_a:
        expect(end.mr.read(size, 0) == pattern(size, 11), "the data differs")
    gone(side, end)


def drained_event(side):
    """In SQD no request is started; the event tells when those under way are over, if asked for."""
    size, count = 1 << 20, 16
    end = Endpoint(side, size)
    end.connect()

    def has_event():
        fds = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        fds = [int(os.path.basename(fd)) for fd in fds
               if os.path.islink(fd) and "infinibandevent" in os.readlink(fd)]
        expect(fds, "there is no file for events")
        return bool(select.select(fds, [], [], 0)[0])

    def move(state, notify=None):
        attr = QPAttr(qp_state=state)
        mask = e.IBV_QP_STATE
        if notify is not None:
            attr.en_sqd_async_notify = notify
            mask |= e.IBV_QP_EN_SQD_ASYNC_NOTIFY
        end.qp.modify(attr, mask)

    def idle():
        limit = time.monotonic() + 30
        while end.qp.query(e.IBV_QP_STATE)[0].sq_draining:
            expect(time.monotonic() < limit, "the queue does not drain")

    while has_event():
        side.ctx.get_async_event().ack()  # of the port, or of an earlier case
    for notify in (0, 1) if side.is_a else ():
        for number in range(count):
            end.send(WRITE, number, size)
        move(e.IBV_QPS_SQD, notify)
        if notify:
            event_of(side.ctx, e.IBV_EVENT_SQ_DRAINED)
        idle()
        expect(not has_event(), "there is an event that was not asked for")
        before = len(end.cq.poll(count)[1])
        expect(before < count, "all requests were carried out, the case shows nothing")
        end.send(WRITE, count, 64)
        expect(end.cq.poll(1)[0] == 0, "a request was carried out in SQD")
        move(e.IBV_QPS_RTS)
        end.wait_ok(count + 1 - before)
    gone(side, end)


NO_WRITE = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ
NO_READ = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
WRITE, READ = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ
main([
    ("WRITE with a wrong rkey", access_error(WRITE, rkey_change=0x1)),
    ("WRITE with the rkey of no region", access_error(WRITE, rkey_change=0x7fff00)),
    ("READ with a wrong rkey", access_error(READ, rkey_change=0x1)),
    ("WRITE behind the region", access_error(WRITE, offset=4096)),
    ("WRITE over the region's end", access_error(WRITE, offset=4090)),
    ("WRITE before the region", access_error(WRITE, offset=-8)),
    ("READ over the region's end", access_error(READ, offset=4090)),
    ("WRITE near 2 to the 64", access_error(WRITE, offset=(1 << 64) - 16)),
    ("WRITE without the region's right", access_error(WRITE, access=NO_WRITE)),
    ("READ without the region's right", access_error(READ, access=NO_READ)),
    ("access error in the middle of a message, then flushes in order", middle_of_message),
    ("no receive posted, rnr_retry 0", rnr_none),
    ("late receive, rnr_retry 7", rnr_forever),
    ("receive shorter than the message", receive_too_short),
    ("send with a wrong lkey", local_protection),
    ("flush order", flush_order),
    ("peer's QP gone: retries run out", dead_peer),
    ("completion queue overrun", overrun),
    ("more READs than granted", too_many_reads),
    ("grants of READs change under load", change_rd_atomic),
    ("SQD drains, and tells if asked to", drained_event),
])
