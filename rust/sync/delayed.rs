// SPDX-License-Identifier: GPL-2.0

//! Delayed work in process context.

use core::{marker::PhantomData, ptr::NonNull};
use kernel::{
    ffi::{c_uint, c_void},
    prelude::*,
};

/// `struct mroce_dwork`, opaque.
#[repr(C)]
struct RawDwork {
    _opaque: [u8; 0],
}

type AgainFn = unsafe extern "C" fn(ctx: *mut c_void) -> c_uint;

// Of `rust/ffi/helpers_net.h`.
extern "C" {
    fn mroce_dwork_alloc(f: AgainFn, ctx: *mut c_void) -> *mut RawDwork;
    fn mroce_dwork_queue(d: *mut RawDwork, ms: c_uint);
    fn mroce_dwork_shutdown(d: *mut RawDwork);
    fn mroce_dwork_free(d: *mut RawDwork);
}

/// A function to be called in process context.
pub trait DelayedCall {
    /// Runs in a kworker; may sleep. Returns after how many milliseconds it
    /// wants to run again, if it does.
    fn run() -> Option<u32>;
}

/// Delayed work that calls `C::run`. Dropping it waits for the call to end.
///
/// # Invariants
///
/// The pointer is valid and owned.
pub struct Delayed<C: DelayedCall>(NonNull<RawDwork>, PhantomData<C>);

// SAFETY: the work item has its own lock.
unsafe impl<C: DelayedCall> Send for Delayed<C> {}
// SAFETY: as above.
unsafe impl<C: DelayedCall> Sync for Delayed<C> {}

unsafe extern "C" fn delayed_call<C: DelayedCall>(_ctx: *mut c_void) -> c_uint {
    C::run().unwrap_or(0)
}

impl<C: DelayedCall> Delayed<C> {
    /// Makes the work item, not queued. May sleep.
    pub fn new() -> Result<Self> {
        // SAFETY: the callback ignores its context.
        let raw = unsafe { mroce_dwork_alloc(delayed_call::<C>, core::ptr::null_mut()) };
        // INVARIANT: fresh memory, owned by us.
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?, PhantomData))
    }

    /// Ends all calls, also those asked for later, and waits for a running one.
    /// Not from the call itself; may sleep.
    pub fn shutdown(&self) {
        // SAFETY: valid by the type's invariant.
        unsafe { mroce_dwork_shutdown(self.0.as_ptr()) };
    }

    /// Runs the call `ms` milliseconds from now, unless it is queued already.
    pub fn queue(&self, ms: u32) {
        // SAFETY: valid by the type's invariant.
        unsafe { mroce_dwork_queue(self.0.as_ptr(), ms) };
    }
}

impl<C: DelayedCall> Drop for Delayed<C> {
    fn drop(&mut self) {
        self.shutdown();
        // SAFETY: owned, and not in use after the shutdown.
        unsafe { mroce_dwork_free(self.0.as_ptr()) };
    }
}
