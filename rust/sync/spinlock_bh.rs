// SPDX-License-Identifier: GPL-2.0

//! A spinlock that is taken with bottom halves disabled.
//!
//! C headers: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)

use crate::ffi::bindings as ffi;
use kernel::{
    bindings,
    sync::lock::{Backend, Guard, Lock},
};

/// A spinlock shared between process context and softirqs.
///
/// Taking it disables bottom halves on this CPU, so a softirq that wants the same lock cannot
/// interrupt the holder. It may be taken in process context and in softirq context, not in hardirq
/// context, and not with interrupts disabled (releasing it would warn).
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// Proof that a [`SpinLockBh`] is held; releases it when dropped.
pub type SpinLockBhGuard<'a, T> = Guard<'a, T, SpinLockBhBackend>;

/// Initialiser of a [`SpinLockBh`] with its own lockdep class.
#[macro_export]
macro_rules! new_spinlock_bh {
    ($inner:expr $(, $name:literal)? $(,)?) => {
        $crate::sync::SpinLockBh::new(
            $inner, ::kernel::optional_name!($($name)?), ::kernel::static_lock_class!())
    };
}
pub use new_spinlock_bh;

/// The kernel's `spin_lock_bh()` and `spin_unlock_bh()` as a lock backend.
pub struct SpinLockBhBackend;

// SAFETY: A `spinlock_t` gives mutual exclusion between all CPUs, and with bottom halves disabled
// also between a CPU's process context and its softirqs. `relock` uses the same method as `lock`.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    #[inline]
    unsafe fn init(
        ptr: *mut Self::State,
        name: *const kernel::ffi::c_char,
        key: *mut bindings::lock_class_key,
    ) {
        // SAFETY: `ptr` is valid for writes; `name` and `key` live for ever (contract of `init`).
        // Both sides name the same C types.
        unsafe { ffi::mroce_spin_lock_bh_init(ptr.cast(), name, key.cast()) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: `ptr` is an initialised spinlock (contract of `lock`).
        unsafe { ffi::mroce_spin_lock_bh(ptr.cast()) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: `ptr` is an initialised spinlock (contract of `try_lock`).
        let taken = unsafe { ffi::mroce_spin_trylock_bh(ptr.cast()) };
        (taken != 0).then_some(())
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: The caller owns the lock (contract of `unlock`).
        unsafe { ffi::mroce_spin_unlock_bh(ptr.cast()) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: `ptr` is an initialised spinlock (contract of `assert_is_held`).
        unsafe { ffi::mroce_spin_assert_held(ptr.cast()) }
    }
}
