// SPDX-License-Identifier: GPL-2.0

//! Calls that happen later: a soft timer and a BH work item for one object
//! ([`Softirq`]).
//!
//! It holds a counted reference to the object it calls. That is a cycle on
//! purpose, broken by `shutdown()`, which must come from process context and
//! after which nothing is called any more. An object whose owner forgets it
//! leaks; it is never used after it is freed.
//!
//! ```text
//!   new() --bind(Arc)--> armed/raised ... --shutdown()--> dead, Arc given back
//! ```

use super::sys;
use core::ptr::NonNull;
use kernel::{
    ffi::c_void,
    prelude::*,
    sync::Arc, //
};

/// An object with a timer and a bottom-half call.
pub trait SoftirqCalls: Send + Sync + 'static {
    /// The armed time has come. Softirq.
    fn on_timer(&self);
    /// [`Softirq::raise`] was called since the last time. Softirq.
    fn on_raised(&self);
}

/// A soft hrtimer and a BH work item that call one object.
///
/// # Invariants
///
/// The pointer is valid and owned; its context is the `T` of an `Arc` whose
/// count this value owns until `shutdown`.
pub struct Softirq<T: SoftirqCalls>(NonNull<sys::RawSoftirq>, *const T);

// SAFETY: the timer and the work item have their own locks.
unsafe impl<T: SoftirqCalls> Send for Softirq<T> {}
// SAFETY: as above.
unsafe impl<T: SoftirqCalls> Sync for Softirq<T> {}

unsafe extern "C" fn timer_call<T: SoftirqCalls>(ctx: *mut c_void) {
    // SAFETY: the context is alive until `shutdown`, which waits for this call.
    unsafe { &*ctx.cast::<T>() }.on_timer();
}

unsafe extern "C" fn work_call<T: SoftirqCalls>(ctx: *mut c_void) {
    // SAFETY: the context is alive until `shutdown`, which waits for this call.
    unsafe { &*ctx.cast::<T>() }.on_raised();
}

impl<T: SoftirqCalls> Softirq<T> {
    /// Makes the pair; nothing is armed. May sleep.
    pub fn new(object: Arc<T>) -> Result<Self> {
        let ctx = Arc::into_raw(object);
        // SAFETY: the callbacks match the context's type, and the context
        // stays alive because its count is not given back before `shutdown`.
        let raw = unsafe {
            sys::mroce_softirq_alloc(timer_call::<T>, work_call::<T>, ctx.cast_mut().cast())
        };
        match NonNull::new(raw) {
            // INVARIANT: fresh memory; the count came from `into_raw`.
            Some(raw) => Ok(Self(raw, ctx)),
            None => {
                // SAFETY: `ctx` came from `into_raw` above and nobody has it.
                drop(unsafe { Arc::from_raw(ctx) });
                Err(ENOMEM)
            }
        }
    }

    /// (Re)starts the timer for the monotonic time `at_ns`.
    pub fn arm(&self, at_ns: u64) {
        // SAFETY: valid by the type's invariant.
        unsafe { sys::mroce_softirq_arm(self.0.as_ptr(), at_ns) };
    }

    /// Asks for `on_raised`, once the packets now being received are done.
    pub fn raise(&self) {
        // SAFETY: valid by the type's invariant.
        unsafe { sys::mroce_softirq_raise(self.0.as_ptr()) };
    }

    /// Ends all calls, waits for those running, and gives the object back.
    /// Process context, without any lock the calls take; may sleep. The caller
    /// has made sure that nobody arms or raises it any more.
    pub fn shutdown(self) -> Arc<T> {
        // SAFETY: valid by the type's invariant.
        unsafe { sys::mroce_softirq_shutdown(self.0.as_ptr()) };
        // SAFETY: valid, owned, and no longer in use by any callback.
        unsafe { sys::mroce_softirq_free(self.0.as_ptr()) };
        // SAFETY: the count owned by the invariant; nothing refers to it now.
        unsafe { Arc::from_raw(self.1) }
    }
}
