// SPDX-License-Identifier: GPL-2.0

//! Event counters.

use kernel::sync::atomic::{ordering::Relaxed, Atomic};

/// A counter that only grows, updated from any context and read without ordering. Wraps.
#[repr(transparent)]
pub struct Counter(Atomic<i64>);

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.0.add(1, Relaxed);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.add(n as i64, Relaxed);
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed) as u64
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}
