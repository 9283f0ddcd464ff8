// SPDX-License-Identifier: GPL-2.0

//! Checked view of a ring shared with a process.
//!
//! See `metaroce-abi.h` for the layout. Nothing read here is believed: geometry is the kernel's own
//! copy, a slot index is masked, and what comes out of a slot is data to be validated. A process
//! that writes what it should not spoils its own queue.

use crate::{abi, rdma::UserRing};
use kernel::{prelude::*, sync::Arc};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A queue's shared memory and its geometry. Copies share the memory.
#[derive(Clone)]
pub(super) struct Ring {
    mem: Arc<UserRing>,
    /// A power of two.
    entries: u32,
    stride: usize,
}

/// Rounds a slot up so that SGEs and cache lines fall well.
fn stride_of(slot: usize) -> Result<usize> {
    slot.checked_next_multiple_of(64).ok_or(EINVAL)
}

impl Ring {
    /// At least `want` slots of at least `slot` bytes. Process context.
    pub(super) fn new(want: u32, slot: usize) -> Result<Self> {
        let entries = want.max(1).checked_next_power_of_two().ok_or(EINVAL)?;
        let stride = stride_of(slot)?;
        let slots = stride.checked_mul(entries as usize).ok_or(EINVAL)?;
        let len = slots.checked_add(abi::RING_HEADER).ok_or(EINVAL)?;
        let ring = Self {
            mem: UserRing::new(len)?,
            entries,
            stride,
        };
        Ok(ring)
    }

    /// The memory, for mapping it.
    pub(super) fn mem(&self) -> &Arc<UserRing> {
        &self.mem
    }

    /// What user space is told; `offset` is that of the mapping.
    pub(super) fn info(&self, offset: u64) -> Result<abi::RingInfo> {
        Ok(abi::RingInfo {
            offset,
            length: u32::try_from(self.mem.len())?,
            entries: self.entries,
            stride: u32::try_from(self.stride)?,
            reserved: 0,
        })
    }

    pub(super) fn entries(&self) -> u32 {
        self.entries
    }

    /// User space's index of a work queue; what it published before is visible afterwards.
    pub(super) fn producer(&self) -> u32 {
        self.mem.read_u32_acquire(abi::RING_PRODUCER).unwrap_or(0)
    }

    /// User space's index of a completion queue.
    pub(super) fn consumer(&self) -> u32 {
        self.mem.read_u32_acquire(abi::RING_CONSUMER).unwrap_or(0)
    }

    /// Publishes completions.
    pub(super) fn set_producer(&self, index: u32) {
        let _ = self.mem.write_u32_release(abi::RING_PRODUCER, index);
    }

    /// Gives slots of a work queue back.
    pub(super) fn set_consumer(&self, index: u32) {
        let _ = self.mem.write_u32_release(abi::RING_CONSUMER, index);
    }

    /// Tells the process how it has to announce entries; a full barrier follows, so that looking
    /// for entries afterwards finds those that were not announced.
    pub(super) fn set_kernel_flags(&self, flags: u32) {
        let _ = self.mem.write_u32(abi::RING_KERNEL_FLAGS, flags);
        self.mem.full_barrier();
    }

    /// What was told last; entries published before are found by whoever set it, or announced.
    pub(super) fn wants_wakeup(&self) -> bool {
        self.mem.full_barrier();
        let flags = self.mem.read_u32(abi::RING_KERNEL_FLAGS).unwrap_or(0);
        flags & abi::RING_NEED_WAKEUP != 0
    }

    /// The same where nothing depends on the order.
    pub(super) fn set_kernel_flags_relaxed(&self, flags: u32) {
        let _ = self.mem.write_u32(abi::RING_KERNEL_FLAGS, flags);
    }

    /// Both indices back to 0. Only while the process leaves the queue alone (QP to RESET).
    pub(super) fn reset(&self) {
        let _ = self.mem.write_u32(abi::RING_PRODUCER, 0);
        let _ = self.mem.write_u32_release(abi::RING_CONSUMER, 0);
    }

    /// Starts with the entries `from..to` of `old`, under the same indices. `EINVAL` if they do not
    /// fit. The process has been kept from both rings.
    pub(super) fn take_over(&self, old: &Ring, from: u32, to: u32) -> Result {
        let n = to.wrapping_sub(from);
        if n > self.entries || n > old.entries || self.stride != old.stride {
            return Err(EINVAL);
        }
        let mut buf = [0u8; 64];
        for i in 0..n {
            let index = from.wrapping_add(i);
            // Strides are multiples of 64.
            for at in (0..self.stride).step_by(buf.len()) {
                if old.read_bytes(index, at, &mut buf) {
                    self.write(index, at, &buf);
                }
            }
        }
        let _ = self.mem.write_u32(abi::RING_PRODUCER, to);
        let _ = self.mem.write_u32_release(abi::RING_CONSUMER, from);
        Ok(())
    }

    /// Offset of `len` bytes `at` bytes into slot `index`, if they lie in the slot.
    fn place(&self, index: u32, at: usize, len: usize) -> Option<usize> {
        if at.checked_add(len)? > self.stride {
            return None;
        }
        let slot = (index & self.entries.wrapping_sub(1)) as usize;
        slot.checked_mul(self.stride)?
            .checked_add(abi::RING_HEADER)?
            .checked_add(at)
    }

    /// Copies a value out of slot `index`, once.
    pub(super) fn read<T: FromBytes + IntoBytes>(&self, index: u32, at: usize) -> Option<T> {
        let offset = self.place(index, at, core::mem::size_of::<T>())?;
        let mut value = T::new_zeroed();
        self.mem.read_bytes(offset, value.as_mut_bytes())?;
        Some(value)
    }

    /// Copies bytes out of slot `index`; `false` if they do not lie in the slot.
    pub(super) fn read_bytes(&self, index: u32, at: usize, to: &mut [u8]) -> bool {
        self.place(index, at, to.len())
            .and_then(|offset| self.mem.read_bytes(offset, to))
            .is_some()
    }

    /// Copies bytes into slot `index`.
    pub(super) fn write_bytes(&self, index: u32, at: usize, bytes: &[u8]) {
        if let Some(offset) = self.place(index, at, bytes.len()) {
            let _ = self.mem.write_bytes(offset, bytes);
        }
    }

    /// Copies a value into slot `index`.
    pub(super) fn write<T: IntoBytes + Immutable>(&self, index: u32, at: usize, value: &T) {
        self.write_bytes(index, at, value.as_bytes());
    }
}
