// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Instants and spans. The engine reads no clock: the embedder passes the time in.

/// A point in time: nanoseconds of the embedder's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Instant {
    /// The instant `ns` nanoseconds after the clock's zero.
    #[inline]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock's zero.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant plus `span`, saturating.
    #[inline]
    #[must_use]
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Time from `earlier` to `self`; zero when `earlier` is not earlier.
    #[inline]
    pub const fn since(self, earlier: Instant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The earlier of two optional deadlines.
    #[inline]
    pub fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if a <= b { a } else { b }),
            (some, None) | (None, some) => some,
        }
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of `ns` nanoseconds.
    #[inline]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// A span of `us` microseconds, saturating.
    #[inline]
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds, saturating.
    #[inline]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds.
    #[inline]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Sum, saturating.
    #[inline]
    #[must_use]
    pub const fn plus(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }

    /// `self * factor`, saturating.
    #[inline]
    #[must_use]
    pub const fn times(self, factor: u64) -> Span {
        Span(self.0.saturating_mul(factor))
    }

    /// Half of it.
    #[inline]
    #[must_use]
    pub const fn halved(self) -> Span {
        Span(self.0 / 2)
    }

    /// `self` doubled `shift` times, at most `cap`.
    #[must_use]
    pub fn backed_off(self, shift: u8, cap: Span) -> Span {
        let shift = if shift > 20 { 20 } else { shift };
        self.times(1u64.wrapping_shl(u32::from(shift))).min(cap)
    }

    /// IB local ACK timeout: 4.096 us x 2^code; 0 means no limit and gives [`Span::ZERO`]
    /// (IB spec vol. 1, 9.7.6.1.3).
    pub const fn from_ack_timeout_code(code: u8) -> Span {
        let code = code & 31;
        if code == 0 {
            return Span::ZERO;
        }
        Span(4_096u64.wrapping_shl(code as u32))
    }

    /// IB RNR NAK timer field to a delay (IB spec vol. 1, table 45).
    pub fn from_rnr_code(code: u8) -> Span {
        // Hundredths of a millisecond, by code.
        const TABLE: [u32; 32] = [
            65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
            1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
        ];
        let hundredths = TABLE.get(usize::from(code & 31)).copied().unwrap_or(1);
        Span::from_micros(u64::from(hundredths).saturating_mul(10))
    }
}
