// SPDX-License-Identifier: GPL-2.0

//! The kernel's side of a receive queue that belongs to one QP.
//!
//! The receive that message `ssn` consumes is the one with that index: sender and receiver count
//! alike, so that messages may arrive in any order. A receive is copied out of the shared ring when
//! the first packet of its message arrives (it is *matched*), and never read again. Receives
//! complete in message order.

use super::{
    dev::Device,
    limits,
    ring::Ring,
    send_queue::{filled, product},
    sge::{load, walk, BoundSge},
};
use crate::{abi, engine::Refusal, sync::PageSlice};
use kernel::prelude::*;

#[derive(Clone, Copy, Default)]
struct Slot {
    wr_id: u64,
    num_sge: u32,
    matched: bool,
    /// Sum of the elements' lengths.
    len: u64,
}

pub(super) struct RecvQueue {
    ring: Option<Ring>,
    slots: KVVec<Slot>,
    sges: KVVec<BoundSge>,
    max_sge: u32,
    completed: u32,
    lost: Lost,
}

/// Messages that an unreliable QP has dropped because no receive was posted. They shift the receives
/// of the messages behind them.
///
/// Once a message has been matched, none before it is dropped: receives are posted in order, so those of
/// earlier messages are there too.
#[derive(Clone, Copy, Default)]
struct Lost {
    /// Those from the oldest incomplete message on: bit `ssn % 256` of a window of 256.
    window: [u64; 4],
    /// In `window`.
    pending: u32,
    /// Before the window.
    settled: u32,
}

impl Lost {
    fn bit(ssn: u32) -> (usize, u64) {
        ((ssn >> 6) as usize & 3, 1 << (ssn & 63))
    }

    fn contains(&self, ssn: u32) -> bool {
        let (word, bit) = Self::bit(ssn);
        self.window.get(word).is_some_and(|w| w & bit != 0)
    }

    fn flip(&mut self, ssn: u32) {
        let (word, bit) = Self::bit(ssn);
        if let Some(w) = self.window.get_mut(word) {
            *w ^= bit;
        }
    }
}

/// Why a receive cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// None is posted under that number.
    NotPosted,
    /// Its own list is wrong: the responder's fault.
    Broken,
    /// The message is longer.
    TooLong,
}

/// Reads the elements of a receive at `index` into `list`; returns `(wr_id, number, total)`.
pub(super) fn load_recv(
    dev: &Device,
    pd: u32,
    ring: &Ring,
    index: u32,
    list: &mut [BoundSge],
) -> Result<(u64, u32, u64), (u64, Mismatch)> {
    let wqe: abi::RecvWqe = ring.read(index, 0).ok_or((0, Mismatch::Broken))?;
    let broken = (wqe.wr_id, Mismatch::Broken);
    let list = list.get_mut(..wqe.num_sge as usize).ok_or(broken)?;
    let offset = core::mem::size_of::<abi::RecvWqe>();
    let total = load(dev, pd, ring, index, offset, list, true).map_err(|_| broken)?;
    let total = total.min(u64::from(limits::MAX_MSG_SIZE));
    Ok((wqe.wr_id, wqe.num_sge, total))
}

impl RecvQueue {
    /// Process context.
    pub(super) fn new(ring: Ring, max_sge: u32) -> Result<Self> {
        let entries = ring.entries();
        Ok(Self {
            slots: filled(product(entries, 1)?)?,
            sges: filled(product(entries, max_sge)?)?,
            ring: Some(ring),
            max_sge,
            completed: 0,
            lost: Lost::default(),
        })
    }

    /// Number of the receive for message `ssn`.
    pub(super) fn receive_of(&self, ssn: u32) -> u32 {
        let mut shift = self.lost.settled;
        if self.lost.pending != 0 {
            // Message `completed + settled` is the oldest incomplete one.
            let mut at = self.completed.wrapping_add(self.lost.settled);
            for _ in 0..limits::STREAM_WINDOW {
                if at == ssn {
                    break;
                }
                shift = shift.wrapping_add(self.lost.contains(at).into());
                at = at.wrapping_add(1);
            }
        }
        ssn.wrapping_sub(shift)
    }

    /// Message `ssn`, which has not been matched, is dropped.
    pub(super) fn lose(&mut self, ssn: u32) {
        if !self.lost.contains(ssn) {
            self.lost.flip(ssn);
            self.lost.pending = self.lost.pending.saturating_add(1);
        }
    }

    /// It is the turn of message `ssn`, which was dropped.
    pub(super) fn settle(&mut self, ssn: u32) {
        if self.lost.contains(ssn) {
            self.lost.flip(ssn);
            self.lost.pending = self.lost.pending.saturating_sub(1);
            self.lost.settled = self.lost.settled.wrapping_add(1);
        }
    }

    /// Ends the use of the ring; what is returned is to be dropped in process context, unlocked.
    pub(super) fn close(&mut self) -> (Option<Ring>, KVVec<BoundSge>) {
        (
            self.ring.take(),
            core::mem::replace(&mut self.sges, KVVec::new()),
        )
    }

    /// Back to an empty queue (QP to RESET).
    pub(super) fn reset(&mut self) {
        for sge in self.sges.iter_mut() {
            *sge = BoundSge::default();
        }
        for slot in self.slots.iter_mut() {
            *slot = Slot::default();
        }
        self.completed = 0;
        self.lost = Lost::default();
        if let Some(ring) = &self.ring {
            ring.reset();
            ring.set_kernel_flags(0);
        }
    }

    /// From now on user space announces each posted receive (the QP failed: they are flushed).
    pub(super) fn announce(&mut self) {
        if let Some(ring) = &self.ring {
            ring.set_kernel_flags(abi::RING_NEED_WAKEUP);
        }
    }

    /// Number of slots.
    pub(super) fn entries(&self) -> u32 {
        self.ring.as_ref().map_or(0, Ring::entries)
    }

    fn slot_index(&self, index: u32) -> usize {
        let mask = self.slots.len().wrapping_sub(1);
        index as usize & mask
    }

    /// Matches receive number `ssn` for a message that puts `need` bytes into it.
    pub(super) fn match_recv(
        &mut self,
        dev: &Device,
        pd: u32,
        ssn: u32,
        need: u32,
    ) -> Result<(), Mismatch> {
        let ring = self.ring.as_ref().ok_or(Mismatch::NotPosted)?;
        let posted = ring.producer().wrapping_sub(self.completed);
        let ahead = ssn.wrapping_sub(self.completed);
        if ahead >= posted.min(ring.entries()) {
            return Err(Mismatch::NotPosted);
        }
        let at = self.slot_index(ssn);
        let from = at.saturating_mul(self.max_sge as usize);
        let to = from.saturating_add(self.max_sge as usize);
        let slot = self.slots.get_mut(at).ok_or(Mismatch::NotPosted)?;
        if !slot.matched {
            let list = self.sges.get_mut(from..to).ok_or(Mismatch::Broken)?;
            match load_recv(dev, pd, ring, ssn, list) {
                Ok((wr_id, num_sge, len)) => {
                    *slot = Slot {
                        wr_id,
                        num_sge,
                        matched: true,
                        len,
                    };
                }
                Err((wr_id, why)) => {
                    slot.wr_id = wr_id;
                    return Err(why);
                }
            }
        }
        if u64::from(need) > slot.len {
            return Err(Mismatch::TooLong);
        }
        Ok(())
    }

    /// Lends the memory of bytes `offset..offset + len` of a matched receive.
    pub(super) fn scatter(
        &self,
        ssn: u32,
        offset: u32,
        len: u32,
        f: &mut dyn FnMut(PageSlice<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let at = self.slot_index(ssn);
        let slot = self.slots.get(at).ok_or(Refusal::Operation)?;
        if !slot.matched {
            return Err(Refusal::Operation);
        }
        let from = at.saturating_mul(self.max_sge as usize);
        let to = from.saturating_add(slot.num_sge as usize);
        let list = self.sges.get(from..to).ok_or(Refusal::Operation)?;
        walk(list, offset, len, f)
    }

    /// Ends the oldest receive and returns its cookie; `None` when nothing is posted. The caller
    /// that flushes bounds the number of calls by the queue's size.
    pub(super) fn complete_next(&mut self) -> Option<u64> {
        let ring = self.ring.as_ref()?;
        let index = self.completed;
        let at = self.slot_index(index);
        let slot = self.slots.get_mut(at)?;
        let wr_id = if slot.matched {
            slot.wr_id
        } else {
            if ring.producer() == index {
                return None;
            }
            let wqe: abi::RecvWqe = ring.read(index, 0)?;
            wqe.wr_id
        };
        let from = at.saturating_mul(self.max_sge as usize);
        let to = from.saturating_add(self.max_sge as usize);
        *slot = Slot::default();
        if let Some(list) = self.sges.get_mut(from..to) {
            for sge in list {
                *sge = BoundSge::default();
            }
        }
        self.completed = index.wrapping_add(1);
        ring.set_consumer(self.completed);
        Some(wr_id)
    }

    /// Number of the oldest receive that has not completed.
    pub(super) fn oldest(&self) -> u32 {
        self.completed
    }
}
