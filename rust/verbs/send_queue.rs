// SPDX-License-Identifier: GPL-2.0

//! The kernel's side of a send queue.
//!
//! Indices run modulo 2^32 and name ring slot and private slot alike:
//!
//! ```text
//!   completed        pulled          producer (user's word, read once per pull)
//!      |  in the engine |  posted, unseen  |
//!      v                v                  v
//!  ----+----------------+------------------+----
//! ```
//!
//! A work request is copied out of the shared ring exactly once, when it is pulled; what the engine
//! and the data path need afterwards is in the private slot, so a process that rewrites its ring
//! changes nothing but requests it has not been charged for yet. `pulled - completed` never exceeds
//! the number of slots. The slot is given back to user space when the request completes, in posting
//! order (IB specification 10.8.3.1).

use super::{
    dev::Device,
    limits,
    mw::BindWr,
    ring::Ring,
    sge::{load, walk, BoundSge, ListError},
};
use crate::{
    abi,
    engine::{Flush, Opcode, Refusal, Request, WcStatus, WqeId},
    sync::PageSlice,
};
use kernel::prelude::*;

/// Bytes of a message as the data path gathers them.
pub enum Segment<'a> {
    /// Part of a pinned page.
    Page(PageSlice<'a>),
    /// Inline data, private to the kernel.
    Inline(&'a [u8]),
}

/// What checking a work request needs to know about its QP.
pub(super) struct Context<'a> {
    pub(super) dev: &'a Device,
    pub(super) pd: u32,
    /// Whether READs and atomics are possible at all (`max_rd_atomic` is not 0).
    pub(super) reads: bool,
    /// Whether each request reports its completion.
    pub(super) signal_all: bool,
}

/// What a request that concerns only this side does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum LocalOp {
    #[default]
    None,
    /// Bind a window.
    Bind(BindWr),
    /// Invalidate a key.
    Invalidate {
        /// The key.
        key: u32,
    },
}

#[derive(Clone, Copy, Default)]
struct Slot {
    wr_id: u64,
    opcode: u32,
    flags: u32,
    num_sge: u32,
    inline_len: u32,
    len: u32,
    /// The union of the work request: where a datagram goes.
    operands: [u64; 2],
    local: LocalOp,
}

pub(super) struct SendQueue {
    ring: Option<Ring>,
    slots: KVVec<Slot>,
    /// `max_sge` for each slot.
    sges: KVVec<BoundSge>,
    /// `max_inline` for each slot.
    inline: KVVec<u8>,
    max_sge: u32,
    max_inline: u32,
    pulled: u32,
    completed: u32,
    /// A request that cannot be carried out was pulled: it is the last one.
    poisoned: bool,
    /// User space has been told to ring the doorbell. While not, the engine comes back by itself:
    /// it pulls until it is told that the queue is empty.
    armed: bool,
}

/// A private vector of `len` default elements.
pub(super) fn filled<T: Default>(len: usize) -> Result<KVVec<T>> {
    let mut v = KVVec::with_capacity(len, GFP_KERNEL)?;
    for _ in 0..len {
        v.push_within_capacity(T::default()).map_err(|_| ENOMEM)?;
    }
    Ok(v)
}

/// `a * b` as a vector length.
pub(super) fn product(a: u32, b: u32) -> Result<usize> {
    usize::try_from(u64::from(a).checked_mul(u64::from(b)).ok_or(EINVAL)?).map_err(|_| EINVAL)
}

/// Completion opcode of a work request opcode (`enum ib_wr_opcode` to `enum ib_wc_opcode`).
fn wc_opcode(opcode: u32) -> u32 {
    match opcode {
        abi::wr::RDMA_WRITE | abi::wr::RDMA_WRITE_WITH_IMM => abi::wc_opcode::RDMA_WRITE,
        abi::wr::RDMA_READ => abi::wc_opcode::RDMA_READ,
        abi::wr::ATOMIC_CMP_AND_SWP => abi::wc_opcode::COMP_SWAP,
        abi::wr::ATOMIC_FETCH_AND_ADD => abi::wc_opcode::FETCH_ADD,
        abi::wr::LOCAL_INV => abi::wc_opcode::LOCAL_INV,
        abi::wr::BIND_MW => abi::wc_opcode::BIND_MW,
        abi::wr::FLUSH => abi::wc_opcode::FLUSH,
        abi::wr::ATOMIC_WRITE => abi::wc_opcode::ATOMIC_WRITE,
        _ => abi::wc_opcode::SEND,
    }
}

/// How a FLUSH is to be done: `type` and `level` of the work request.
fn flush_of(wqe: &abi::SendWqe) -> Result<Flush, WcStatus> {
    let [a, b, c, d, e, f, g, h] = wqe.operand1.to_ne_bytes();
    let (kind, level) = (
        u32::from_ne_bytes([a, b, c, d]),
        u32::from_ne_bytes([e, f, g, h]),
    );
    match (kind, level) {
        (1..=3, 0 | 1) => Flush::from_wire(kind | level << 8).ok_or(WcStatus::LocQpOpErr),
        _ => Err(WcStatus::LocQpOpErr),
    }
}

/// Bytes that a FLUSH names.
fn flush_len(wqe: &abi::SendWqe) -> Result<u32, WcStatus> {
    if flush_of(wqe)?.whole {
        return Ok(0);
    }
    match u32::try_from(wqe.operand0) {
        Ok(len) if len <= limits::MAX_MSG_SIZE => Ok(len),
        _ => Err(WcStatus::LocLenErr),
    }
}

impl SendQueue {
    /// Process context.
    pub(super) fn new(ring: Ring, max_sge: u32, max_inline: u32) -> Result<Self> {
        let entries = ring.entries();
        ring.set_kernel_flags(abi::RING_NEED_WAKEUP);
        Ok(Self {
            slots: filled(product(entries, 1)?)?,
            sges: filled(product(entries, max_sge)?)?,
            inline: filled(product(entries, max_inline)?)?,
            ring: Some(ring),
            max_sge,
            max_inline,
            pulled: 0,
            completed: 0,
            poisoned: false,
            armed: true,
        })
    }

    /// Ends the use of the ring; what is returned is to be dropped in process context, unlocked.
    pub(super) fn close(&mut self) -> (Option<Ring>, KVVec<BoundSge>, KVVec<u8>) {
        (
            self.ring.take(),
            core::mem::replace(&mut self.sges, KVVec::new()),
            core::mem::replace(&mut self.inline, KVVec::new()),
        )
    }

    /// Back to an empty queue (QP to RESET). Nothing of it may be in the engine any more.
    pub(super) fn reset(&mut self) {
        for sge in self.sges.iter_mut() {
            *sge = BoundSge::default();
        }
        self.pulled = 0;
        self.completed = 0;
        self.poisoned = false;
        if let Some(ring) = &self.ring {
            ring.reset();
        }
        self.arm();
    }

    /// From now on user space rings the doorbell; what it has posted before is visible.
    pub(super) fn arm(&mut self) {
        if let Some(ring) = &self.ring {
            ring.set_kernel_flags(abi::RING_NEED_WAKEUP);
        }
        self.armed = true;
    }

    /// Whether something is posted. If not, user space has been told to ring the doorbell.
    fn look(&mut self) -> bool {
        for _ in 0..2 {
            let Some(ring) = &self.ring else {
                return false;
            };
            if ring.producer() != self.pulled {
                if self.armed {
                    ring.set_kernel_flags_relaxed(0);
                    self.armed = false;
                }
                return true;
            }
            if self.armed {
                return false;
            }
            // Then look once more: what was posted before the flag was seen.
            self.arm();
        }
        false
    }

    /// Whether the engine holds no request of this queue.
    pub(super) fn is_idle(&self) -> bool {
        self.pulled == self.completed
    }

    fn slot_index(&self, index: u32) -> usize {
        let mask = self.slots.len().wrapping_sub(1);
        index as usize & mask
    }

    fn sges_of(&self, index: u32) -> &[BoundSge] {
        let at = self.slot_index(index);
        let n = self.slots.get(at).map_or(0, |s| s.num_sge as usize);
        let from = at.saturating_mul(self.max_sge as usize);
        self.sges.get(from..from.saturating_add(n)).unwrap_or(&[])
    }

    fn inline_of(&self, index: u32) -> &[u8] {
        let at = self.slot_index(index);
        let n = self.slots.get(at).map_or(0, |s| s.inline_len as usize);
        let from = at.saturating_mul(self.max_inline as usize);
        self.inline.get(from..from.saturating_add(n)).unwrap_or(&[])
    }

    /// The last two operands of a pulled request.
    pub(super) fn operands(&self, wqe: WqeId) -> [u64; 2] {
        let at = self.slot_index(wqe.0 as u32);
        self.slots.get(at).map_or([0; 2], |slot| slot.operands)
    }

    /// Goes on after a request that could not be carried out (SQE to RTS).
    pub(super) fn restart(&mut self) {
        self.poisoned = false;
    }

    /// Takes the next posted work request. One that is not in order comes out as
    /// [`Opcode::Local`] with its error, so that it fails in its turn, after those before it.
    pub(super) fn pull(&mut self, cx: &Context<'_>) -> Option<Request> {
        if self.poisoned || !self.look() {
            return None;
        }
        let ring = self.ring.as_ref()?;
        if self.pulled.wrapping_sub(self.completed) >= ring.entries() {
            // More than fits: the process has overwritten its index. It waits for itself.
            return None;
        }
        let index = self.pulled;
        let wqe: abi::SendWqe = ring.read(index, 0)?;
        let at = self.slot_index(index);
        let slot = self.slots.get_mut(at)?;
        *slot = Slot {
            wr_id: wqe.wr_id,
            opcode: wqe.opcode,
            flags: wqe.send_flags,
            operands: [wqe.operand0, wqe.operand1],
            ..Slot::default()
        };
        self.pulled = index.wrapping_add(1);

        let mut request = Request {
            wqe: WqeId(u64::from(index)),
            fence: wqe.send_flags & abi::send_flags::FENCE != 0,
            solicited: wqe.send_flags & abi::send_flags::SOLICITED != 0,
            signaled: cx.signal_all || wqe.send_flags & abi::send_flags::SIGNALED != 0,
            ..Request::default()
        };
        if let Err(status) = self.load(cx, index, &wqe, &mut request) {
            request.opcode = Opcode::Local;
            request.local = status;
            self.poisoned = true;
        }
        Some(request)
    }

    /// Checks a copied work request and fills private slot and request from it.
    fn load(
        &mut self,
        cx: &Context<'_>,
        index: u32,
        wqe: &abi::SendWqe,
        request: &mut Request,
    ) -> Result<(), WcStatus> {
        use abi::wr;
        if wqe.send_flags & !abi::send_flags::ALL != 0 {
            return Err(WcStatus::LocQpOpErr);
        }
        let imm = u32::from_be(wqe.imm_data);
        (request.opcode, request.imm) = match wqe.opcode {
            wr::SEND => (Opcode::Send, 0),
            wr::SEND_WITH_IMM => (Opcode::SendImm, imm),
            wr::SEND_WITH_INV => (Opcode::SendInv, wqe.imm_data),
            wr::RDMA_WRITE => (Opcode::Write, 0),
            wr::RDMA_WRITE_WITH_IMM => (Opcode::WriteImm, imm),
            wr::RDMA_READ => (Opcode::Read, 0),
            wr::ATOMIC_CMP_AND_SWP => (Opcode::CmpSwap, 0),
            wr::ATOMIC_FETCH_AND_ADD => (Opcode::FetchAdd, 0),
            wr::ATOMIC_WRITE => (Opcode::AtomicWrite, 0),
            wr::FLUSH => (Opcode::Flush, flush_of(wqe)?.to_wire()),
            wr::LOCAL_INV => {
                let key = wqe.imm_data;
                return self.load_local(index, wqe, LocalOp::Invalidate { key }, request);
            }
            wr::BIND_MW => {
                let bind = LocalOp::Bind(BindWr::from_wqe(wqe));
                return self.load_local(index, wqe, bind, request);
            }
            _ => return Err(WcStatus::LocQpOpErr),
        };
        request.rkey = wqe.rkey;
        request.va = wqe.remote_addr;
        if request.opcode.expects_response() && !cx.reads {
            return Err(WcStatus::LocQpOpErr);
        }
        let incoming = matches!(
            request.opcode,
            Opcode::Read | Opcode::CmpSwap | Opcode::FetchAdd
        );
        let inline = wqe.send_flags & abi::send_flags::INLINE != 0;

        let len = if request.opcode == Opcode::Flush {
            if inline || wqe.num_sge != 0 {
                return Err(WcStatus::LocQpOpErr);
            }
            flush_len(wqe)?
        } else if inline && request.opcode == Opcode::AtomicWrite {
            // Eight bytes, which lie in the entry itself.
            wqe.inline_length
        } else if inline {
            if incoming {
                return Err(WcStatus::LocQpOpErr);
            }
            self.load_inline(index, wqe.inline_length)?
        } else {
            self.load_sges(cx, index, wqe.num_sge, incoming)?
        };

        request.len = match request.opcode {
            Opcode::CmpSwap => {
                request.compare = wqe.operand0;
                request.swap = wqe.operand1;
                8
            }
            Opcode::FetchAdd => {
                request.swap = wqe.operand0;
                8
            }
            Opcode::AtomicWrite if len != 8 => return Err(WcStatus::LocLenErr),
            Opcode::AtomicWrite => {
                let bytes = match inline {
                    true => wqe.operand0.to_ne_bytes(),
                    false => self.first_bytes(index)?,
                };
                request.swap = u64::from_be_bytes(bytes);
                8
            }
            _ => len,
        };
        if len < request.len {
            // The answer of an atomic does not fit its scatter list.
            return Err(WcStatus::LocLenErr);
        }
        let at = self.slot_index(index);
        self.slots.get_mut(at).ok_or(WcStatus::LocQpOpErr)?.len = request.len;
        Ok(())
    }

    /// The first 8 bytes of a loaded gather list, as they are now.
    fn first_bytes(&self, index: u32) -> Result<[u8; 8], WcStatus> {
        let mut bytes = [0; 8];
        let mut rest = bytes.as_mut_slice();
        walk(self.sges_of(index), 0, 8, &mut |part| {
            let n = part.read(rest);
            rest = core::mem::take(&mut rest).get_mut(n..).unwrap_or(&mut []);
            Ok(())
        })
        .map_err(|_| WcStatus::LocProtErr)?;
        Ok(bytes)
    }

    fn load_local(
        &mut self,
        index: u32,
        wqe: &abi::SendWqe,
        op: LocalOp,
        request: &mut Request,
    ) -> Result<(), WcStatus> {
        if wqe.send_flags & abi::send_flags::INLINE != 0 || wqe.num_sge != 0 {
            return Err(WcStatus::LocQpOpErr);
        }
        request.opcode = Opcode::Local;
        let at = self.slot_index(index);
        self.slots.get_mut(at).ok_or(WcStatus::LocQpOpErr)?.local = op;
        Ok(())
    }

    /// What a pulled request of [`Opcode::Local`] does.
    pub(super) fn local_op(&self, wqe: WqeId) -> LocalOp {
        let at = self.slot_index(wqe.0 as u32);
        self.slots.get(at).map_or(LocalOp::None, |slot| slot.local)
    }

    fn load_inline(&mut self, index: u32, len: u32) -> Result<u32, WcStatus> {
        let ring = self.ring.as_ref().ok_or(WcStatus::LocQpOpErr)?;
        if len > self.max_inline {
            return Err(WcStatus::LocLenErr);
        }
        let at = self.slot_index(index);
        let from = at.saturating_mul(self.max_inline as usize);
        let to = self
            .inline
            .get_mut(from..from.saturating_add(len as usize))
            .ok_or(WcStatus::LocQpOpErr)?;
        if !ring.read_bytes(index, core::mem::size_of::<abi::SendWqe>(), to) {
            return Err(WcStatus::LocQpOpErr);
        }
        self.slots
            .get_mut(at)
            .ok_or(WcStatus::LocQpOpErr)?
            .inline_len = len;
        Ok(len)
    }

    fn load_sges(
        &mut self,
        cx: &Context<'_>,
        index: u32,
        num_sge: u32,
        write: bool,
    ) -> Result<u32, WcStatus> {
        let ring = self.ring.as_ref().ok_or(WcStatus::LocQpOpErr)?;
        if num_sge > self.max_sge {
            return Err(WcStatus::LocQpOpErr);
        }
        let at = self.slot_index(index);
        let from = at.saturating_mul(self.max_sge as usize);
        let list = self
            .sges
            .get_mut(from..from.saturating_add(num_sge as usize))
            .ok_or(WcStatus::LocQpOpErr)?;
        let offset = core::mem::size_of::<abi::SendWqe>();
        let total =
            load(cx.dev, cx.pd, ring, index, offset, list, write).map_err(|why| match why {
                ListError::Malformed => WcStatus::LocQpOpErr,
                ListError::Protection => WcStatus::LocProtErr,
            })?;
        self.slots.get_mut(at).ok_or(WcStatus::LocQpOpErr)?.num_sge = num_sge;
        if total > u64::from(limits::MAX_MSG_SIZE) {
            return Err(WcStatus::LocLenErr);
        }
        u32::try_from(total).map_err(|_| WcStatus::LocLenErr)
    }

    /// Lends bytes `offset..offset + len` of the message of a pulled request, in order.
    pub(super) fn gather(
        &self,
        wqe: WqeId,
        offset: u32,
        len: u32,
        f: &mut dyn FnMut(Segment<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let index = wqe.0 as u32;
        let inline = self.inline_of(index);
        if !inline.is_empty() {
            let from = offset as usize;
            let bytes = inline
                .get(from..from.saturating_add(len as usize))
                .ok_or(Refusal::Operation)?;
            return f(Segment::Inline(bytes));
        }
        walk(self.sges_of(index), offset, len, &mut |page| {
            f(Segment::Page(page))
        })
    }

    /// Lends the memory where bytes `offset..offset + len` of the answer to a pulled request go.
    pub(super) fn scatter(
        &self,
        wqe: WqeId,
        offset: u32,
        len: u32,
        f: &mut dyn FnMut(PageSlice<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        walk(self.sges_of(wqe.0 as u32), offset, len, f)
    }

    /// Ends the oldest pulled request. Returns its completion, without the QP's fields, if there is
    /// to be one.
    pub(super) fn complete(
        &mut self,
        wqe: WqeId,
        status: WcStatus,
        signal_all: bool,
    ) -> Option<abi::Cqe> {
        let index = wqe.0 as u32;
        if index != self.completed || self.is_idle() {
            kernel::warn_on!(true);
            return None;
        }
        let at = self.slot_index(index);
        let slot = *self.slots.get(at)?;
        let from = at.saturating_mul(self.max_sge as usize);
        let to = from.saturating_add(slot.num_sge as usize);
        if let Some(list) = self.sges.get_mut(from..to) {
            for sge in list {
                *sge = BoundSge::default();
            }
        }
        self.completed = index.wrapping_add(1);
        if let Some(ring) = &self.ring {
            ring.set_consumer(self.completed);
        }
        let signaled = signal_all || slot.flags & abi::send_flags::SIGNALED != 0;
        if status == WcStatus::Success && !signaled {
            return None;
        }
        let opcode = wc_opcode(slot.opcode);
        let byte_len = match opcode {
            abi::wc_opcode::RDMA_READ | abi::wc_opcode::COMP_SWAP | abi::wc_opcode::FETCH_ADD
                if status == WcStatus::Success =>
            {
                slot.len
            }
            _ => 0,
        };
        Some(abi::Cqe {
            wr_id: slot.wr_id,
            opcode,
            byte_len,
            ..abi::Cqe::default()
        })
    }

    /// Flushes one request that was not pulled. `None` when there is none, or when the engine still
    /// holds earlier ones. The caller bounds the number of calls by the queue's size.
    pub(super) fn flush_next(&mut self) -> Option<abi::Cqe> {
        let ring = self.ring.as_ref()?;
        let index = self.completed;
        if !self.is_idle() || ring.producer() == index {
            return None;
        }
        let wqe: abi::SendWqe = ring.read(index, 0)?;
        self.completed = index.wrapping_add(1);
        self.pulled = self.completed;
        ring.set_consumer(self.completed);
        Some(abi::Cqe {
            wr_id: wqe.wr_id,
            opcode: wc_opcode(wqe.opcode),
            ..abi::Cqe::default()
        })
    }

    /// Number of slots.
    pub(super) fn entries(&self) -> u32 {
        self.ring.as_ref().map_or(0, Ring::entries)
    }
}
