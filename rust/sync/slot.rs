// SPDX-License-Identifier: GPL-2.0

//! A module-wide object that exists between module load and unload.

use core::marker::PhantomData;
use kernel::{
    prelude::*,
    sync::{
        atomic::{ordering, Atomic},
        rcu, Arc,
    },
};

/// A `static` that holds an `Arc<T>` while the module is set up.
///
/// Readers use the object in an RCU read section, at no cost; [`Slot::take`] waits for them.
///
/// # Invariants
///
/// `ptr` is 0 or what `Arc::into_raw` gave for an `Arc<T>` whose count the slot owns.
pub struct Slot<T> {
    ptr: Atomic<usize>,
    _owns: PhantomData<fn(T) -> T>,
}

impl<T: Send + Sync> Slot<T> {
    /// An empty slot.
    pub const fn new() -> Self {
        // INVARIANT: 0 is allowed.
        Self {
            ptr: Atomic::new(0),
            _owns: PhantomData,
        }
    }

    /// Puts `object` in. Fails with `EBUSY` when there is one already.
    pub fn put(&self, object: Arc<T>) -> Result {
        let raw = Arc::into_raw(object);
        // INVARIANT: The count of `object` now belongs to the slot, if the slot was empty. Full
        // ordering publishes what the pointer points to.
        match self.ptr.cmpxchg(0, raw as usize, ordering::Full) {
            Ok(_) => Ok(()),
            Err(_) => {
                // SAFETY: `raw` is from `into_raw` above and the slot did not take it.
                drop(unsafe { Arc::from_raw(raw) });
                Err(EBUSY)
            }
        }
    }

    /// Runs `f` on the object, if there is one. Any context; `f` must not sleep.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Option<R> {
        let _guard = rcu::read_lock();
        let raw = self.ptr.load(ordering::Acquire) as *const T;
        if raw.is_null() {
            return None;
        }
        // SAFETY: By the invariant `raw` points to the `T` of an `Arc`; `take` gives the count back
        // only after the RCU read section entered above has ended.
        Some(f(unsafe { &*raw }))
    }

    /// Another reference to the object, if there is one. Any context.
    pub fn get(&self) -> Option<Arc<T>> {
        let _guard = rcu::read_lock();
        let raw = self.ptr.load(ordering::Acquire) as *const T;
        if raw.is_null() {
            return None;
        }
        // SAFETY: As in `with`; `Arc::into_raw` right after keeps the slot's count.
        let ours = unsafe { Arc::from_raw(raw) };
        let copy = ours.clone();
        let _ = Arc::into_raw(ours);
        Some(copy)
    }

    /// Empties the slot, waits for the readers, and gives the object back. Process context.
    pub fn take(&self) -> Option<Arc<T>> {
        let raw = self.ptr.xchg(0, ordering::Full) as *const T;
        if raw.is_null() {
            return None;
        }
        rcu::synchronize_rcu();
        // SAFETY: The count was the slot's, and no reader can still use the pointer.
        Some(unsafe { Arc::from_raw(raw) })
    }
}
