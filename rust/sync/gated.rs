// SPDX-License-Identifier: GPL-2.0

//! A value that can be taken away from its users.

use super::{Gate, GateGuard};
use core::{cell::UnsafeCell, ops::Deref};
use kernel::prelude::*;

/// A value behind a [`Gate`]: usable in any context until it is revoked, and dropped in process
/// context by whoever revokes it, however many `Arc`s to its owner are still around.
///
/// # Invariants
///
/// `value` is `Some` and not changed while the gate is open or has users inside.
#[pin_data]
pub struct Gated<T> {
    #[pin]
    gate: Gate,
    value: UnsafeCell<Option<T>>,
    #[pin]
    revoke: kernel::sync::Mutex<()>,
}

// SAFETY: Moving it moves the value.
unsafe impl<T: Send> Send for Gated<T> {}
// SAFETY: Users share the value, and any thread may be the one that drops it.
unsafe impl<T: Send + Sync> Sync for Gated<T> {}

impl<T> Gated<T> {
    /// An open gate with `value` behind it.
    pub fn new(value: T) -> impl PinInit<Self> {
        // INVARIANT: `Some`, and the gate is open.
        pin_init!(Self {
            gate <- Gate::new(),
            value: UnsafeCell::new(Some(value)),
            revoke <- kernel::new_mutex!((), "Gated::revoke"),
        })
    }

    /// Lends the value, unless it was revoked. Any context.
    #[inline]
    pub fn enter(&self) -> Option<GatedRef<'_, T>> {
        let inside = self.gate.enter()?;
        // SAFETY: By the type invariant nobody writes the cell while `inside` lives.
        let value = unsafe { &*self.value.get() }.as_ref()?;
        Some(GatedRef {
            value,
            _inside: inside,
        })
    }

    /// Whether the value was revoked. Only a hint while other threads may do it.
    pub fn is_revoked(&self) -> bool {
        self.gate.is_closed()
    }

    /// Takes the value away: waits until nobody uses it, then drops it. Process context; not while
    /// holding a reference from [`enter`](Self::enter). Calling it again is harmless.
    pub fn revoke(&self) {
        self.gate.close_and_wait();
        let lock = self.revoke.lock();
        // SAFETY: The gate is closed and empty, so nobody reads the cell, and the mutex keeps out
        // other callers of this function.
        let value = unsafe { &mut *self.value.get() }.take();
        drop(lock);
        drop(value);
    }
}

/// Access to the value of a [`Gated`].
pub struct GatedRef<'a, T> {
    value: &'a T,
    _inside: GateGuard<'a>,
}

impl<T> Deref for GatedRef<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}
