// SPDX-License-Identifier: GPL-2.0

//! Random numbers, keyed hashes, the monotonic clock, rate-limited messages.

use crate::ffi::bindings as ffi;

/// Fills `buf` with cryptographically strong random bytes. Any context.
pub fn random_bytes(buf: &mut [u8]) {
    // SAFETY: `buf` is valid for writes of its length.
    unsafe { ffi::get_random_bytes(buf.as_mut_ptr().cast(), buf.len()) }
}

/// An unguessable 32-bit number. Any context.
pub fn random_u32() -> u32 {
    let mut buf = [0; 4];
    random_bytes(&mut buf);
    u32::from_ne_bytes(buf)
}

/// An unguessable 64-bit number. Any context.
pub fn random_u64() -> u64 {
    let mut buf = [0; 8];
    random_bytes(&mut buf);
    u64::from_ne_bytes(buf)
}

/// Nanoseconds of `CLOCK_MONOTONIC`. Any context.
#[inline]
pub fn ktime_now_ns() -> u64 {
    // SAFETY: No preconditions once the clock runs, which is before any module loads.
    unsafe { ffi::mroce_ktime_get_ns() }
}

/// A secret key for [`MacKey::mac`] (SipHash-2-4).
pub struct MacKey {
    key: ffi::siphash_key_t,
}

impl MacKey {
    /// A fresh random key.
    pub fn random() -> Self {
        Self {
            key: ffi::siphash_key_t {
                key: [random_u64(), random_u64()],
            },
        }
    }

    /// Keyed 64-bit hash of `data`: without the key it can neither be computed nor guessed better
    /// than by chance. Any context.
    pub fn mac(&self, data: &[u8]) -> u64 {
        // SAFETY: `data` and the key are valid for reads.
        unsafe { ffi::mroce_siphash(data.as_ptr().cast(), data.len(), &self.key) }
    }
}

/// Whether a message caused by a peer or by user space may be logged now (10 in 5 seconds).
pub fn log_allowed() -> bool {
    // SAFETY: No preconditions; the state behind it has its own lock.
    unsafe { ffi::mroce_ratelimit_ok() }
}

/// `pr_warn!` for what a peer or a user can trigger at will: at most 10 in 5 seconds.
macro_rules! pr_warn_limited {
    ($($arg:tt)*) => {
        if $crate::sync::log_allowed() {
            ::kernel::pr_warn!($($arg)*)
        }
    };
}
pub(crate) use pr_warn_limited;
