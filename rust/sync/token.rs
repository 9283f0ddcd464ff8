// SPDX-License-Identifier: GPL-2.0

//! Proof of execution context.

use crate::ffi::bindings as ffi;
use kernel::types::NotThreadSafe;

/// Bottom halves are disabled on this CPU for as long as this value lives.
///
/// Take one around code that must not be interrupted by this CPU's own softirqs, for instance a
/// burst of transmissions from process context. Nests.
pub struct BhDisabled {
    _not_send: NotThreadSafe,
}

impl BhDisabled {
    /// Disables bottom halves. Not for hardirq context.
    #[inline]
    pub fn new() -> Self {
        // SAFETY: Disabling is always allowed; `drop` balances it on the same CPU, because the
        // value cannot leave this thread and the thread cannot migrate while BHs are off.
        unsafe { ffi::mroce_local_bh_disable() };
        Self {
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for BhDisabled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Balances the call in `new`.
        unsafe { ffi::mroce_local_bh_enable() };
    }
}
