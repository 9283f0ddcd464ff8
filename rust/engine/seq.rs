// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Serial numbers modulo 2^32 (RFC 1982 in spirit): no `Ord`, only distances.

macro_rules! serial {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(u32);

        impl $name {
            /// The number with this wire value.
            #[inline]
            pub const fn new(value: u32) -> Self {
                Self(value)
            }

            /// The wire value.
            #[inline]
            pub const fn get(self) -> u32 {
                self.0
            }

            /// The number `n` further on.
            #[inline]
            #[must_use]
            pub const fn plus(self, n: u32) -> Self {
                Self(self.0.wrapping_add(n))
            }

            /// The following number.
            #[inline]
            #[must_use]
            pub const fn next(self) -> Self {
                self.plus(1)
            }

            /// Steps from `from` forward to `self`, modulo 2^32.
            #[inline]
            pub const fn distance(self, from: Self) -> u32 {
                self.0.wrapping_sub(from.0)
            }

            /// Whether `self` lies before `other`, taking them to be less than 2^31 apart.
            #[inline]
            pub const fn precedes(self, other: Self) -> bool {
                self.0 != other.0 && other.0.wrapping_sub(self.0) < 0x8000_0000
            }

            /// Whether `self` lies in the `len` numbers that begin at `base`.
            #[inline]
            pub const fn within(self, base: Self, len: u32) -> bool {
                self.distance(base) < len
            }
        }
    };
}

serial! {
    /// Packet sequence number of one direction of one path.
    Psn
}
serial! {
    /// Message number of one direction of a stream, as on the wire.
    Msn
}
serial! {
    /// Index of a pulled request at its requester; also names the response on the wire.
    ReqIdx
}
serial! {
    /// Transmission number on one path: every send, first or repeated, takes the next one.
    TxOrder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps() {
        let a = Psn::new(u32::MAX);
        assert_eq!(a.next(), Psn::new(0));
        assert!(a.precedes(a.next()));
        assert!(!a.next().precedes(a));
        assert!(!a.precedes(a));
        assert!(Psn::new(3).within(a, 5));
        assert!(!Psn::new(4).within(a, 5));
        assert_eq!(Psn::new(2).distance(a), 3);
    }
}
