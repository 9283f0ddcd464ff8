// SPDX-License-Identifier: GPL-2.0

//! Addresses. An IPv4 address is kept v4-mapped (RFC 4291 section 2.5.5.2),
//! which is also what its RoCE GID looks like, so both families are one type.

use super::sys::RawFlow;
use core::fmt;

/// An IPv6 address or a v4-mapped IPv4 address, in network byte order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IpAddr(pub(crate) [u8; 16]);

const V4_PREFIX: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

impl IpAddr {
    /// Whether this is an IPv4 address.
    pub fn is_v4(&self) -> bool {
        self.0.starts_with(&V4_PREFIX)
    }

    /// Whether the address means something only together with an interface
    /// (fe80::/10, RFC 4291 section 2.5.6).
    pub fn is_link_local(&self) -> bool {
        let [a, b, ..] = self.0;
        a == 0xfe && b & 0xc0 == 0x80
    }
}

// The kernel's `pr_*!` have their own traits, `write!` has those of `core`.
impl kernel::fmt::Display for IpAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for IpAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_v4() {
            let [.., a, b, c, d] = self.0;
            return write!(f, "{a}.{b}.{c}.{d}");
        }
        for (i, pair) in self.0.chunks_exact(2).enumerate() {
            if let &[hi, lo] = pair {
                let sep = if i == 0 { "" } else { ":" };
                write!(f, "{sep}{:x}", u16::from_be_bytes([hi, lo]))?;
            }
        }
        Ok(())
    }
}

/// Where a packet goes and how it is marked; the source port is the socket's.
#[derive(Clone, Copy)]
pub struct Flow {
    /// Local address.
    pub src: IpAddr,
    /// Peer's address.
    pub dst: IpAddr,
    /// Interface the packet must leave by; 0 for the routing table's choice.
    pub oif: u32,
    /// UDP destination port, host order.
    pub dport: u16,
    /// The IP header's DSCP and ECN bits (RFC 2474, RFC 3168).
    pub tos: u8,
}

impl Flow {
    pub(super) fn to_raw(self) -> RawFlow {
        RawFlow {
            src: self.src.0,
            dst: self.dst.0,
            oif: self.oif,
            dport: self.dport,
            v6: u8::from(!self.dst.is_v4()),
            tos: self.tos,
        }
    }
}
