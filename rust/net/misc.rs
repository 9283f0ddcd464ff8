// SPDX-License-Identifier: GPL-2.0

//! Clock, random numbers, and one rate limit for remotely caused log lines.

use super::sys;

/// `CLOCK_MONOTONIC` in nanoseconds. Any context.
pub(crate) fn now_ns() -> u64 {
    // SAFETY: `ktime_get()` may be called in any context but NMI.
    unsafe { sys::mroce_now_ns() }
}

/// A random number fit for secrets. Any context.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: `bytes` is writable for the 8 bytes announced.
    unsafe { sys::mroce_random(bytes.as_mut_ptr().cast(), 8) };
    u64::from_ne_bytes(bytes)
}

/// Whether a log line that a remote machine caused may be written now: ten in
/// five seconds for the whole module. Any context.
pub(crate) fn log_allowed() -> bool {
    // SAFETY: the rate limit state is static and has its own lock.
    unsafe { sys::mroce_log_allowed() != 0 }
}
