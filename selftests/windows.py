#!/usr/bin/env python3
"""Memory windows: what they grant, to whom, how long; and all that is refused."""

import errno

import pyverbs.enums as e
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.wr import SendWR

from pair import ALL_ACCESS, Endpoint, expect, main, pattern

RIGHTS = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
LOCAL = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_MW_BIND
WRITE, READ, SEND_INV = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_SEND_WITH_INV
PAGE = 4096


class Window(Endpoint):
    """Side b's region grants nothing to peers by itself."""

    def __init__(self, side, access=LOCAL):
        super().__init__(side, 2 * PAGE, access=ALL_ACCESS if side.is_a else access)

    def bind1(self, mw, addr, length, access=RIGHTS, mr=None, wait=True):
        self.qp.bind_mw(mw, MWBind(MWBindInfo(mr or self.mr, addr, length, access),
                                   e.IBV_SEND_SIGNALED, 77))
        if wait:
            entry = self.wait_ok()[0]
            expect((entry.wr_id, entry.opcode) == (77, e.IBV_WC_BIND_MW), "not the bind's completion")
        return mw.rkey

    def bind2(self, mw, addr, length, access=RIGHTS, mr=None, wait=True):
        wr = SendWR(opcode=e.IBV_WR_BIND_MW, wr_id=78)
        wr.set_bind_wr(mw, MWBindInfo(mr or self.mr, addr, length, access))
        self.qp.post_send(wr)
        if wait:
            entry = self.wait_ok()[0]
            expect((entry.wr_id, entry.opcode) == (78, e.IBV_WC_BIND_MW), "not the bind's completion")
        return wr.rkey

    def invalidate(self, key, wait=True):
        wr = SendWR(opcode=e.IBV_WR_LOCAL_INV, wr_id=79)
        wr.imm_data = key
        self.qp.post_send(wr)
        if wait:
            entry = self.wait_ok()[0]
            expect(entry.opcode == e.IBV_WC_LOCAL_INV, "not the invalidation's completion")

    def access(self, opcode, key, addr, length, ok=True):
        self.send(opcode, 1, length, raddr=addr % (1 << 64), rkey=key)
        if ok:
            self.wait_ok()
        else:
            self.wait_status(e.IBV_WC_REM_ACCESS_ERR)


def bound(kind, access=RIGHTS, start=64, length=PAGE, zero=False):
    """Both ends connected, b's window bound; returns end, window, key, address for peers."""
    def make(side):
        end = Window(side)
        end.connect()
        mw = key = None
        if not side.is_a:
            mw = MW(end.pd, kind)
            bind = end.bind1 if kind == e.IBV_MW_TYPE_1 else end.bind2
            flags = access | (e.IBV_ACCESS_ZERO_BASED if zero else 0)
            key = bind(mw, end.mr.buf + start, length, flags)
        key = side.swap(key) or key
        addr = 0 if zero else (end.remote["addr"] if side.is_a else end.mr.buf) + start
        return end, mw, key, addr
    return make


def gone(side, end, mw=None):
    side.barrier()
    if mw:
        mw.close()
    end.close()


def works(kind, zero=False):
    def case(side):
        end, mw, key, addr = bound(kind, zero=zero)(side)
        data = pattern(PAGE, 3)
        if side.is_a:
            end.mr.write(data, PAGE)
            end.access(WRITE, key, addr, PAGE)
            end.access(READ, key, addr + 8, 64)
            expect(end.mr.read(64, 0) == data[8:72], "READ returned other bytes")
            end.atomic(e.IBV_WR_ATOMIC_FETCH_AND_ADD, addr, 1, rkey=key)
            end.wait_ok()
            expect(end.mr.read(8, 0) == data[:8], "the atomic found other bytes")
        side.barrier()
        if not side.is_a:
            first = (int.from_bytes(data[:8], "little") + 1) % (1 << 64)
            want = first.to_bytes(8, "little") + data[8:]
            expect(end.mr.read(PAGE, 64) == want, "the data differs")
        gone(side, end, mw)
    return case


def refused(kind, opcode, offset=0, length=64, access=RIGHTS, key_change=0, zero=False):
    """The region goes on behind the window, but the peer is not let in there."""
    def case(side):
        end, mw, key, addr = bound(kind, access, zero=zero)(side)
        if side.is_a:
            end.access(opcode, key ^ key_change, addr + offset, length, ok=False)
        side.barrier()
        if not side.is_a:
            expect(end.mr.read(2 * PAGE, 0) == b"\0" * 2 * PAGE, "memory has changed")
        gone(side, end, mw)
    return case


def over(how):
    """A key that was valid is not any more."""
    def case(side):
        kind = e.IBV_MW_TYPE_1 if how in ("rebind", "empty") else e.IBV_MW_TYPE_2
        end, mw, key, addr = bound(kind)(side)
        if side.is_a:
            end.access(WRITE, key, addr, 64)
        side.barrier()
        if how == "remote" and side.is_a:
            end.send(SEND_INV, 5, 64, imm=key)
            end.wait_ok()
        elif how == "remote":
            end.recv(9)
            entry = end.wait_ok()[0]
            expect(entry.wc_flags & e.IBV_WC_WITH_INV, "IBV_WC_WITH_INV is missing")
            expect(entry.imm_data == key, f"key {entry.imm_data:#x} instead of {key:#x}")
        elif not side.is_a:
            if how == "local":
                end.invalidate(key)
            elif how == "rebind":
                new = end.bind1(mw, end.mr.buf, PAGE)
                expect(new != key, "the key is the old one")
            elif how == "empty":
                end.bind1(mw, 0, 0, 0)
            elif how == "dealloc":
                mw.close()
        side.barrier()
        if side.is_a:
            end.access(WRITE, key, addr, 64, ok=False)
        gone(side, end, mw)
    return case


def other_qp(kind, ok):
    """A window of type 2 is for the QP that bound it; one of type 1 for the domain."""
    def case(side):
        end, mw, key, addr = bound(kind)(side)
        other = Window(side)
        if not side.is_a:
            # In the same protection domain.
            other.close()
            other = Window.__new__(Window)
            share(other, end)
        other.connect()
        if side.is_a:
            other.access(WRITE, key, addr, 64, ok=ok)
            end.access(WRITE, key, addr, 64)
        side.barrier()
        if not side.is_a:
            other.qp.close()
            other.cq.close()
        else:
            other.close()
        gone(side, end, mw)
    return case


def share(other, end):
    """Makes `other` an endpoint of its own QP in the domain of `end`."""
    from pyverbs.cq import CQ
    from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
    other.side, other.pd, other.mr, other.length, other.psn = end.side, end.pd, end.mr, end.length, 5
    other.cq = CQ(end.side.ctx, 64)
    other.qp = QP(other.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=other.cq, rcq=other.cq,
                                       cap=QPCap(max_send_wr=8, max_recv_wr=8), sq_sig_all=1))
    attr = QPAttr(port_num=1)
    attr.qp_access_flags = ALL_ACCESS
    other.qp.to_init(attr)


def not_invalidated(kind):
    """The peer may not invalidate this: its SEND fails, and the window goes on."""
    def case(side):
        end = Window(side, ALL_ACCESS | LOCAL)
        end.connect()
        mw = key = None
        if not side.is_a:
            end.recv(1)
            key = end.mr.rkey
            if kind:
                mw = MW(end.pd, kind)
                key = (end.bind1 if kind == e.IBV_MW_TYPE_1 else end.bind2)(mw, end.mr.buf, 64)
                key ^= kind == e.IBV_MW_TYPE_2  # a variant that is not valid
        key = side.swap(key) or key
        if side.is_a:
            end.send(SEND_INV, 5, 64, imm=key)
            end.wait_status(e.IBV_WC_REM_ACCESS_ERR)
        else:
            end.wait_status(e.IBV_WC_WR_FLUSH_ERR)
        gone(side, end, mw)
    return case


def bind_fails(kind, addr=0, length=64, access=RIGHTS, mr_access=LOCAL, twice=False, pd="same"):
    """Refused with IBV_WC_MW_BIND_ERR; the QP goes to the error state and flushes."""
    def case(side):
        end = Window(side, mr_access)
        end.connect()
        if not side.is_a:
            mr, mw, other = end.mr, None, None
            if pd != "same":
                other = PD(side.ctx)
            if pd == "mr":
                mr = MR(other, PAGE, mr_access)
            mw = MW(other if pd == "mw" else end.pd, kind)
            bind = end.bind1 if kind == e.IBV_MW_TYPE_1 else end.bind2
            if twice:
                bind(mw, mr.buf, 64)
            bind(mw, (mr.buf + addr) % (1 << 64), length, access, mr, wait=False)
            end.wait_status(e.IBV_WC_MW_BIND_ERR)
            expect(end.state() == e.IBV_QPS_ERR, "the QP is not in the error state")
            end.send(wr_id=4)
            end.wait_status(e.IBV_WC_WR_FLUSH_ERR)
            mw.close()
            if mr is not end.mr:
                mr.close()
        gone(side, end)
    return case


def other_domain(side):
    """The library refuses to bind a window of type 1 to another domain's region."""
    end = Window(side)
    end.connect()
    if not side.is_a:
        other = PD(side.ctx)
        mr = MR(other, PAGE, LOCAL)
        mw = MW(end.pd, e.IBV_MW_TYPE_1)
        try:
            end.bind1(mw, mr.buf, 64, mr=mr, wait=False)
        except PyverbsRDMAError as ex:
            expect(ex.error_code == errno.EPERM, f"errno {ex.error_code}")
        else:
            raise AssertionError("bound across domains")
        mw.close()
        mr.close()
    gone(side, end)


def invalid_key(what):
    """LOCAL_INV of what cannot be invalidated."""
    def case(side):
        end, mw, key, _ = bound(e.IBV_MW_TYPE_1 if what == "type 1" else e.IBV_MW_TYPE_2)(side)
        if not side.is_a:
            end.invalidate({"type 1": key, "variant": key ^ 1, "region": end.mr.rkey}[what], wait=False)
            end.wait_status(e.IBV_WC_MW_BIND_ERR)
        gone(side, end, mw)
    return case


def busy_region(side):
    """A region is not deregistered while windows are bound to it."""
    end, mw, key, _ = bound(e.IBV_MW_TYPE_2)(side)
    if not side.is_a:
        try:
            end.mr.close()
        except PyverbsRDMAError as ex:
            expect(ex.error_code == errno.EBUSY, f"errno {ex.error_code}")
        else:
            raise AssertionError("deregistered under a window")
        end.invalidate(key)
    gone(side, end, mw)


ONE, TWO = e.IBV_MW_TYPE_1, e.IBV_MW_TYPE_2
NEAR_TOP = (1 << 64) - 16
main([
    ("type 1 works", works(ONE)),
    ("type 2 works", works(TWO)),
    ("type 2, zero based, works", works(TWO, zero=True)),
    ("WRITE before the window", refused(ONE, WRITE, offset=-8)),
    ("WRITE behind the window", refused(TWO, WRITE, offset=PAGE)),
    ("WRITE over the window's end", refused(TWO, WRITE, offset=PAGE - 63)),
    ("READ over the end, zero based", refused(TWO, READ, offset=PAGE - 63, zero=True)),
    ("READ before the window, zero based", refused(TWO, READ, offset=-1, zero=True)),
    ("WRITE near 2 to the 64", refused(ONE, WRITE, offset=NEAR_TOP)),
    ("WRITE near 2 to the 64, zero based", refused(TWO, WRITE, offset=NEAR_TOP, zero=True)),
    ("WRITE without that right", refused(TWO, WRITE, access=e.IBV_ACCESS_REMOTE_READ)),
    ("READ without that right", refused(ONE, READ, access=e.IBV_ACCESS_REMOTE_WRITE)),
    ("another variant of the key", refused(ONE, WRITE, key_change=1)),
    ("another index of the key", refused(TWO, WRITE, key_change=0x100)),
    ("old key after another bind", over("rebind")),
    ("old key after an empty bind", over("empty")),
    ("key after LOCAL_INV", over("local")),
    ("key after SEND with invalidate", over("remote")),
    ("key after the window is freed", over("dealloc")),
    ("type 1 is for all QPs of its domain", other_qp(ONE, True)),
    ("type 2 is for its QP only", other_qp(TWO, False)),
    ("SEND with invalidate of a region", not_invalidated(0)),
    ("SEND with invalidate of a window of type 1", not_invalidated(ONE)),
    ("SEND with invalidate of another variant", not_invalidated(TWO)),
    ("bind over the region's end", bind_fails(ONE, addr=2 * PAGE - 63)),
    ("bind before the region", bind_fails(TWO, addr=-1)),
    ("bind near 2 to the 64", bind_fails(TWO, addr=NEAR_TOP)),
    ("bind of 2 to the 64 - 1 bytes", bind_fails(TWO, length=(1 << 64) - 1)),
    ("bind of zero based over the end", bind_fails(TWO, addr=PAGE, length=PAGE + 1,
                                                   access=RIGHTS | e.IBV_ACCESS_ZERO_BASED)),
    ("bind to a region without that right", bind_fails(ONE, mr_access=e.IBV_ACCESS_LOCAL_WRITE)),
    ("bind of remote write to what is not writable", bind_fails(TWO, mr_access=e.IBV_ACCESS_MW_BIND)),
    ("bind with a right that windows do not grant", bind_fails(TWO, access=e.IBV_ACCESS_MW_BIND)),
    ("bind of a bound window of type 2", bind_fails(TWO, twice=True)),
    ("bind of an empty window of type 2", bind_fails(TWO, length=0)),
    ("bind of another domain's window", bind_fails(TWO, pd="mw")),
    ("bind to another domain's region", bind_fails(TWO, pd="mr")),
    ("ibv_bind_mw to another domain's region", other_domain),
    ("LOCAL_INV of a window of type 1", invalid_key("type 1")),
    ("LOCAL_INV of another variant", invalid_key("variant")),
    ("LOCAL_INV of a region", invalid_key("region")),
    ("deregistration under a window", busy_region),
])
