// SPDX-License-Identifier: GPL-2.0

//! A call in softirq context, asked for where interrupts may be off.

use crate::ffi::bindings as ffi;
use core::{marker::PhantomData, mem::ManuallyDrop, ptr::NonNull};
use kernel::{ffi::c_void, prelude::*, sync::Arc};

/// An object that is called.
pub trait BhCall: Send + Sync + 'static {
    /// [`BhWork::raise`] was called since the last time. Softirq.
    fn run(this: &Arc<Self>);
}

/// A work item of the bottom-half workqueue that calls one object. Dropped in process context; then
/// it waits for a call in progress, and there are no more.
///
/// # Invariants
///
/// The pointer is valid and owned; its context is a `T` of which one count of its `Arc` is owned.
pub struct BhWork<T: BhCall> {
    work: NonNull<ffi::mroce_bh_work>,
    _object: PhantomData<Arc<T>>,
}

// SAFETY: The work item has its own lock.
unsafe impl<T: BhCall> Send for BhWork<T> {}
// SAFETY: As above.
unsafe impl<T: BhCall> Sync for BhWork<T> {}

unsafe extern "C" fn call<T: BhCall>(ctx: *mut c_void) {
    // SAFETY: The count stays with the `BhWork`, whose drop waits for this call.
    let object = ManuallyDrop::new(unsafe { Arc::from_raw(ctx.cast_const().cast::<T>()) });
    T::run(&object);
}

impl<T: BhCall> BhWork<T> {
    /// For `object`; nothing is queued. Process context.
    pub fn new(object: Arc<T>) -> Result<Self> {
        let ctx = Arc::into_raw(object);
        // SAFETY: The function matches the context, which lives as long as the work item.
        let work = unsafe { ffi::mroce_bh_work_alloc(Some(call::<T>), ctx.cast_mut().cast()) };
        let Some(work) = NonNull::new(work) else {
            // SAFETY: From `into_raw` above; nobody else has it.
            drop(unsafe { Arc::from_raw(ctx) });
            return Err(ENOMEM);
        };
        // INVARIANT: Fresh memory; the count is that of `into_raw`.
        Ok(Self {
            work,
            _object: PhantomData,
        })
    }

    /// Asks for a call, unless one is asked for already. Any context.
    pub fn raise(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { ffi::mroce_bh_work_raise(self.work.as_ptr()) };
    }

    /// Waits for a call in progress; there are no more afterwards. Process context.
    pub fn stop(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { ffi::mroce_bh_work_stop(self.work.as_ptr()) };
    }
}

impl<T: BhCall> Drop for BhWork<T> {
    fn drop(&mut self) {
        self.stop();
        // SAFETY: Owned by the type invariant, and stopped.
        let ctx = unsafe { ffi::mroce_bh_work_free(self.work.as_ptr()) };
        // SAFETY: The context is the `Arc` from `new`, whose count goes with this value.
        drop(unsafe { Arc::from_raw(ctx.cast_const().cast::<T>()) });
    }
}
