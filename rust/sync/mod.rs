// SPDX-License-Identifier: GPL-2.0

//! Locks, reference tables and other sharing primitives that the `kernel` crate lacks.
//!
//! Everything here can be used by any layer; nothing here knows RDMA or the network. The rule that
//! shapes it: packets are handled in softirq context, so whatever process context shares with that
//! must be taken with bottom halves disabled ([`SpinLockBh`]), and whatever outlives a callback is
//! either an `Arc` or guarded by a [`Gate`] that teardown can wait for.

mod bh_work;
mod delayed;
mod gate;
mod gated;
mod key_table;
mod netdev;
mod page;
mod rand;
mod slot;
mod spinlock_bh;
mod stats;
mod token;

pub use bh_work::{BhCall, BhWork};
pub use delayed::{Delayed, DelayedCall};
pub use gate::{Gate, GateGuard};
pub use gated::{Gated, GatedRef};
pub use key_table::KeyTable;
pub use netdev::NetDev;
pub use page::{MappedSlice, PageSlice};
pub(crate) use rand::pr_warn_limited;
pub use rand::{ktime_now_ns, log_allowed, random_bytes, random_u32, random_u64, MacKey};
pub use slot::Slot;
pub use spinlock_bh::{new_spinlock_bh, SpinLockBh, SpinLockBhBackend, SpinLockBhGuard};
pub use stats::Counter;
pub use token::BhDisabled;
