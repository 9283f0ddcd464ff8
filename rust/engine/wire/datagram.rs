// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! DATAGRAM: a message of an unreliable-datagram QP, whole in one packet.
//!
//! It belongs to no connection: no sequence, no acknowledgement, no tag. What protects the receiver is
//! the Q_Key (IB specification 9.8.3). So it shares only the first byte with the common header:
//!
//! ```text
//!  0       1       2               4       5               8       9               12
//! +-------+-------+---------------+-------+---------------+-------+---------------+
//! |ver|typ| flags | reserved      | resvd | dst QP number | resvd | src QP number |
//! +-------+-------+---------------+-------+---------------+-------+---------------+
//! | Q_Key                         | immediate                     | payload ...
//! +-------------------------------+-------------------------------+
//!  12                              16                              20
//! ```

use super::{Reader, WireError, Writer, FLAG_SOLICITED, VERSION};

/// Packet type; the others are [`super::Kind`]s.
const TYPE: u8 = 9;
/// Flag: there is an immediate.
const FLAG_IMMEDIATE: u8 = 0x10;

/// Bytes of the header; payload follows.
pub const DATAGRAM_LEN: usize = 20;

/// Bytes of a management datagram (IB specification 13.4.2).
const MAD_LEN: u32 = 256;
/// Its first byte, the base version (IB specification 13.4.3).
const MAD_BASE_VERSION: u8 = 1;

/// The header of a DATAGRAM packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Destination QP number, 24 bits; all ones: the members of the multicast group it is sent to.
    pub dst_qpn: u32,
    /// Sending QP's number, 24 bits.
    pub src_qpn: u32,
    /// Must be that of the destination QP.
    pub qkey: u32,
    /// Whether the sender asks for a solicited event.
    pub solicited: bool,
    /// Immediate data, host order.
    pub imm: Option<u32>,
}

impl Datagram {
    /// Whether a packet is a DATAGRAM of this version; all others are for [`super::peek`].
    #[inline]
    pub fn is_one(head: &[u8]) -> bool {
        head.first() == Some(&((VERSION << 4) | TYPE))
    }

    /// Reads the header. The payload is what follows [`DATAGRAM_LEN`] bytes.
    pub fn parse(head: &[u8]) -> Result<Self, WireError> {
        if !Self::is_one(head) {
            return Err(WireError::Type);
        }
        let mut r = Reader::new(head);
        r.u8()?;
        let flags = r.u8()?;
        r.u16()?;
        r.u8()?;
        let dst_qpn = r.u24()?;
        r.u8()?;
        let src_qpn = r.u24()?;
        let qkey = r.u32()?;
        let imm = r.u32()?;
        Ok(Self {
            dst_qpn,
            src_qpn,
            qkey,
            solicited: flags & FLAG_SOLICITED != 0,
            imm: (flags & FLAG_IMMEDIATE != 0).then_some(imm),
        })
    }

    /// Whether the payload of a packet of `len` bytes in all is a management datagram by its looks. The GSI takes
    /// nothing else: its clients expect all of the bytes, and complain about others without limit.
    pub fn has_mad(head: &[u8], len: u32) -> bool {
        len == MAD_LEN.saturating_add(DATAGRAM_LEN as u32)
            && head.get(DATAGRAM_LEN) == Some(&MAD_BASE_VERSION)
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; DATAGRAM_LEN] {
        let mut out = [0u8; DATAGRAM_LEN];
        let mut w = Writer::new(&mut out);
        let mut flags = 0;
        if self.solicited {
            flags |= FLAG_SOLICITED;
        }
        if self.imm.is_some() {
            flags |= FLAG_IMMEDIATE;
        }
        w.u8((VERSION << 4) | TYPE);
        w.u8(flags);
        w.u16(0);
        w.u8(0);
        w.u24(self.dst_qpn);
        w.u8(0);
        w.u24(self.src_qpn);
        w.u32(self.qkey);
        w.u32(self.imm.unwrap_or(0));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::wire::{parse, peek};

    fn samples() -> impl Iterator<Item = Datagram> {
        [None, Some(0), Some(0x0102_0304)]
            .into_iter()
            .flat_map(|imm| {
                [false, true].into_iter().map(move |solicited| Datagram {
                    dst_qpn: 0xff_ffff,
                    src_qpn: 0x12_3456,
                    qkey: 0x8001_0000,
                    solicited,
                    imm,
                })
            })
    }

    #[test]
    fn a_management_datagram_has_one_length_and_version() {
        let mut packet = [0u8; DATAGRAM_LEN + 300];
        for version in 0..=255u8 {
            *packet.get_mut(DATAGRAM_LEN).unwrap() = version;
            for len in 0..packet.len() {
                let head = packet.get(..len).unwrap();
                let want = version == 1 && len == DATAGRAM_LEN + 256;
                assert_eq!(Datagram::has_mad(head, len as u32), want, "{version} {len}");
            }
        }
    }

    #[test]
    fn round_trip() {
        for d in samples() {
            let bytes = d.emit();
            assert!(Datagram::is_one(&bytes));
            assert_eq!(Datagram::parse(&bytes), Ok(d));
            let mut longer = [0xeeu8; DATAGRAM_LEN + 3];
            longer[..DATAGRAM_LEN].copy_from_slice(&bytes);
            assert_eq!(Datagram::parse(&longer), Ok(d));
        }
    }

    #[test]
    fn truncated_is_refused() {
        for d in samples() {
            let bytes = d.emit();
            for n in 0..DATAGRAM_LEN {
                assert!(Datagram::parse(&bytes[..n]).is_err(), "{n} bytes");
            }
        }
    }

    #[test]
    fn other_versions_and_types_are_refused() {
        let mut bytes = samples().next().unwrap().emit();
        for first in 0..=255u8 {
            bytes[0] = first;
            let ours = first == (VERSION << 4) | TYPE;
            assert_eq!(Datagram::is_one(&bytes), ours);
            assert_eq!(Datagram::parse(&bytes).is_ok(), ours);
            if ours {
                // The engine knows no such packet.
                assert_eq!(peek(&bytes), Err(WireError::Type));
                assert!(parse(&bytes, bytes.len() as u32).is_err());
            }
        }
    }

    #[test]
    fn layout() {
        let d = Datagram {
            dst_qpn: 0x01_0203,
            src_qpn: 0x04_0506,
            qkey: 0x0708_090a,
            solicited: true,
            imm: Some(0x0b0c_0d0e),
        };
        let want = [
            0x19, 0x12, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
        ];
        assert_eq!(d.emit(), want);
    }
}
