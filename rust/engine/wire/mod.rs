// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The wire format, version 1. All numbers are big-endian.
//!
//! Every packet begins with 16 bytes, except DATAGRAM, which belongs to no connection (see `datagram.rs`):
//!
//! ```text
//!  0       1       2       3       4               8               12              16
//! +-------+-------+-------+-------+---------------+---------------+---------------+
//! |ver|typ| flags | path  |tx cnt | connection id | tag           | sequence      |
//! +-------+-------+-------+-------+---------------+---------------+---------------+
//! ```
//!
//! Connection id and tag are those the *receiver* of the datagram chose (0 in INIT, where they are not
//! known). `tx cnt` counts the transmissions of one (path, sequence), so that an acknowledgement
//! can say which of them arrived. The rest depends on the type and, for DATA, on the operation.
//!
//! Parsing accepts any bytes and never panics; it checks everything that can be checked without
//! state.

mod control;
mod data;
mod datagram;

pub use control::{Ack, Handshake, Nak, NakReason, ACK_LEN, HANDSHAKE_LEN, NAK_LEN};
pub use data::{Data, Op, Operands, MAX_DATA_HEADER};
pub use datagram::{Datagram, DATAGRAM_LEN};

use super::time::Span;

/// Version of the format.
pub const VERSION: u8 = 1;
/// Bytes of the common header.
pub const COMMON_LEN: usize = 16;
/// The longest header of any packet: so many linear bytes (or the whole datagram, if it is
/// shorter) the embedder hands to [`super::Connection::handle_datagram`].
pub const MAX_HEADER: usize = 96;
/// Flag: low bit of the path's route epoch.
pub const FLAG_EPOCH: u8 = 0x01;
/// Flag of DATA: solicited event.
pub const FLAG_SOLICITED: u8 = 0x02;
/// Flag of ACK: what arrived last is a PROBE; its number and try are echoed.
pub const FLAG_PROBE: u8 = 0x04;
/// Flag of PROBE: sent over a route that is only tried.
pub const FLAG_CANDIDATE: u8 = 0x10;
/// Flag of DATA: nobody waits for the acknowledgement, it may be late by [`ACK_DELAY`].
pub const FLAG_LAZY: u8 = 0x08;
/// So long at most the acknowledgement of packets with [`FLAG_LAZY`] is delayed. Well below the shortest
/// probe time-out.
pub const ACK_DELAY: Span = Span::from_micros(100);

/// Why a datagram is not a packet of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Shorter than its type demands.
    Truncated,
    /// Longer than its type allows.
    Trailing,
    /// Another version.
    Version,
    /// Unknown packet type.
    Type,
    /// Unknown operation or inconsistent fields.
    Field,
}

/// Packet type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sequenced packet with a piece of a message.
    Data,
    /// Sequenced packet without content: fills a sequence number.
    Void,
    /// Acknowledgement of a path.
    Ack,
    /// Refusal of one packet.
    Nak,
    /// Handshake request.
    Init,
    /// Handshake answer.
    InitAck,
    /// "I know no such connection": echoes id and tag of the offending packet.
    Reset,
    /// Asks for an acknowledgement of a path; not sequenced, without content but for padding.
    Probe,
}

impl Kind {
    fn from_wire(v: u8) -> Option<Self> {
        Some(match v {
            1 => Kind::Data,
            2 => Kind::Void,
            3 => Kind::Ack,
            4 => Kind::Nak,
            5 => Kind::Init,
            6 => Kind::InitAck,
            7 => Kind::Reset,
            8 => Kind::Probe,
            _ => return None,
        })
    }

    fn to_wire(self) -> u8 {
        match self {
            Kind::Data => 1,
            Kind::Void => 2,
            Kind::Ack => 3,
            Kind::Nak => 4,
            Kind::Init => 5,
            Kind::InitAck => 6,
            Kind::Reset => 7,
            Kind::Probe => 8,
        }
    }
}

/// The common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Packet type.
    pub kind: Kind,
    /// `FLAG_*`.
    pub flags: u8,
    /// Path the sequence number belongs to.
    pub path: u8,
    /// Transmission count of the packet, from 1, modulo 256. PROBE: probes before it that should have
    /// been answered, at most 255.
    pub tx_count: u8,
    /// Connection id at the receiver.
    pub conn_id: u32,
    /// Verification tag chosen by the receiver.
    pub tag: u32,
    /// Path sequence (DATA, VOID), cumulative acknowledgement (ACK), refused sequence (NAK), number of the
    /// probe (PROBE).
    pub seq: u32,
}

/// What can be said about a datagram before its connection is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// Packet type. INIT and RESET are found by the sender's address, all others by `dst_conn_id`.
    pub kind: Kind,
    /// Receiver's connection id; in RESET the *sender's* id, echoed; 0 in INIT.
    pub dst_conn_id: u32,
    /// Verification tag.
    pub tag: u32,
}

/// Reads the fields needed to find the connection. `head` is the datagram's beginning.
pub fn peek(head: &[u8]) -> Result<Peek, WireError> {
    let c = Common::parse(&mut Reader::new(head))?;
    Ok(Peek {
        kind: c.kind,
        dst_conn_id: c.conn_id,
        tag: c.tag,
    })
}

/// The RESET that answers a packet for an unknown connection; `None` for packets that must not
/// be answered (INIT, RESET, malformed). The embedder limits the rate.
pub fn reset_for(head: &[u8]) -> Option<[u8; COMMON_LEN]> {
    let c = Common::parse(&mut Reader::new(head)).ok()?;
    if !matches!(
        c.kind,
        Kind::Data | Kind::Void | Kind::Ack | Kind::Nak | Kind::Probe
    ) {
        return None;
    }
    let mut out = [0u8; COMMON_LEN];
    let reset = Common {
        kind: Kind::Reset,
        flags: 0,
        path: 0,
        tx_count: 0,
        seq: 0,
        ..c
    };
    reset.emit(&mut Writer::new(&mut out));
    Some(out)
}

/// A parsed packet.
#[derive(Clone, Copy, Debug)]
pub enum Packet {
    /// DATA; header length in bytes is in [`Data::header_len`].
    Data(Data),
    /// VOID.
    Void,
    /// ACK.
    Ack(Ack),
    /// NAK.
    Nak(Nak),
    /// INIT.
    Init(Handshake),
    /// INIT_ACK.
    InitAck(Handshake),
    /// RESET.
    Reset,
    /// PROBE.
    Probe,
}

/// Parses the head of a datagram of `len` bytes in all.
pub fn parse(head: &[u8], len: u32) -> Result<(Common, Packet), WireError> {
    let mut r = Reader::new(head);
    let c = Common::parse(&mut r)?;
    // All types but DATA and PROBE, which may be padded, have one length. The head may be less than the datagram, but
    // not than such a packet.
    let fixed = match c.kind {
        Kind::Data | Kind::Probe => None,
        Kind::Void | Kind::Reset => Some(COMMON_LEN),
        Kind::Ack => Some(ACK_LEN),
        Kind::Nak => Some(NAK_LEN),
        Kind::Init | Kind::InitAck => Some(HANDSHAKE_LEN),
    };
    if fixed.is_some_and(|n| len as usize > n) {
        return Err(WireError::Trailing);
    }
    let p = match c.kind {
        Kind::Data => Packet::Data(Data::parse(&mut r, &c, len)?),
        Kind::Void => Packet::Void,
        Kind::Ack => Packet::Ack(Ack::parse(&mut r)?),
        Kind::Nak => Packet::Nak(Nak::parse(&mut r)?),
        Kind::Init => Packet::Init(Handshake::parse(&mut r)?),
        Kind::InitAck => Packet::InitAck(Handshake::parse(&mut r)?),
        Kind::Reset => Packet::Reset,
        Kind::Probe => Packet::Probe,
    };
    Ok((c, p))
}

impl Common {
    fn parse(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let vt = r.u8()?;
        let flags = r.u8()?;
        let path = r.u8()?;
        let tx_count = r.u8()?;
        let conn_id = r.u32()?;
        let tag = r.u32()?;
        let seq = r.u32()?;
        if vt >> 4 != VERSION {
            return Err(WireError::Version);
        }
        let kind = Kind::from_wire(vt & 0x0f).ok_or(WireError::Type)?;
        Ok(Self {
            kind,
            flags,
            path,
            tx_count,
            conn_id,
            tag,
            seq,
        })
    }

    /// Writes a packet that is nothing but this header (VOID, RESET, PROBE); returns its length.
    pub fn emit_alone(&self, buf: &mut [u8]) -> usize {
        let mut w = Writer::new(buf);
        self.emit(&mut w);
        w.len()
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) {
        w.u8((VERSION << 4) | self.kind.to_wire());
        w.u8(self.flags);
        w.u8(self.path);
        w.u8(self.tx_count);
        w.u32(self.conn_id);
        w.u32(self.tag);
        w.u32(self.seq);
    }
}

/// Checked big-endian reader.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    fn u8(&mut self) -> Result<u8, WireError> {
        self.take::<1>().map(u8::from_be_bytes)
    }

    #[inline]
    fn u16(&mut self) -> Result<u16, WireError> {
        self.take::<2>().map(u16::from_be_bytes)
    }

    #[inline]
    fn u24(&mut self) -> Result<u32, WireError> {
        let [a, b, c] = self.take::<3>()?;
        Ok(u32::from_be_bytes([0, a, b, c]))
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, WireError> {
        self.take::<4>().map(u32::from_be_bytes)
    }

    #[inline]
    fn u64(&mut self) -> Result<u64, WireError> {
        self.take::<8>().map(u64::from_be_bytes)
    }
}

/// Checked big-endian writer. Writes past the end are dropped (and a bug: the length then tells).
pub(super) struct Writer<'a> {
    rest: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(rest: &'a mut [u8]) -> Self {
        Self { rest, len: 0 }
    }

    /// Bytes written.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some((head, rest)) = core::mem::take(&mut self.rest).split_first_chunk_mut::<N>() {
            *head = bytes;
            self.rest = rest;
            self.len = self.len.wrapping_add(N);
        }
    }

    #[inline]
    fn u8(&mut self, v: u8) {
        self.put([v]);
    }

    #[inline]
    fn u16(&mut self, v: u16) {
        self.put(v.to_be_bytes());
    }

    #[inline]
    fn u24(&mut self, v: u32) {
        let [_, a, b, c] = v.to_be_bytes();
        self.put([a, b, c]);
    }

    #[inline]
    fn u32(&mut self, v: u32) {
        self.put(v.to_be_bytes());
    }

    #[inline]
    fn u64(&mut self, v: u64) {
        self.put(v.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(kind: Kind) -> Common {
        Common {
            kind,
            flags: 1,
            path: 3,
            tx_count: 2,
            conn_id: 7,
            tag: 9,
            seq: 11,
        }
    }

    #[test]
    fn data_round_trip() {
        for op in Op::ALL {
            let d = Data {
                op,
                dst_qpn: 0x123456,
                src_qpn: 0x654321,
                attempt: 5,
                msn: 77,
                total: 3000,
                offset: 1000,
                solicited: true,
                operands: Operands {
                    ssn: 1,
                    imm: 2,
                    rkey: 3,
                    va: 4,
                    compare: 5,
                    swap: 6,
                    rid: 8,
                },
                header_len: 0,
                payload_len: 0,
            };
            let mut buf = [0u8; MAX_HEADER];
            let n = d.emit(common(Kind::Data), &mut buf);
            assert!(n <= MAX_DATA_HEADER);
            let payload = if op.has_payload() { 500 } else { 0 };
            let (c, p) = parse(buf.get(..n).unwrap(), n as u32 + payload).unwrap();
            assert_eq!(c.flags, FLAG_EPOCH | FLAG_SOLICITED);
            let Packet::Data(q) = p else { panic!() };
            assert_eq!(q.op, op);
            assert_eq!(
                (q.dst_qpn, q.src_qpn, q.attempt, q.msn),
                (0x123456, 0x654321, 5, 77)
            );
            assert_eq!(q.payload_len, payload);
            assert_eq!(q.header_len as usize, n);
            for short in 0..n {
                assert!(parse(buf.get(..short).unwrap(), short as u32).is_err());
            }
        }
    }

    #[test]
    fn other_types_have_one_length() {
        let hs = Handshake {
            nonce: 1,
            epoch: 2,
            conn_id: 3,
            tag: 4,
            features: 0,
            paths: 8,
            planes: 1,
            max_payload: 1400,
            window: 64,
        };
        let nak = Nak {
            reason: NakReason::Rnr,
            timer: 1,
        };
        for (kind, want) in [
            (Kind::Void, COMMON_LEN),
            (Kind::Probe, COMMON_LEN),
            (Kind::Reset, COMMON_LEN),
            (Kind::Ack, ACK_LEN),
            (Kind::Nak, NAK_LEN),
            (Kind::Init, HANDSHAKE_LEN),
            (Kind::InitAck, HANDSHAKE_LEN),
        ] {
            let mut buf = [0u8; 2 * MAX_HEADER];
            let n = match kind {
                Kind::Ack => Ack::default().emit(common(kind), &mut buf),
                Kind::Nak => nak.emit(common(kind), &mut buf),
                Kind::Init | Kind::InitAck => hs.emit(common(kind), &mut buf),
                _ => common(kind).emit_alone(&mut buf),
            };
            assert_eq!(n, want, "{kind:?}");
            for len in 0..buf.len() {
                let head = buf.get(..len.min(MAX_HEADER)).unwrap();
                let got = parse(head, len as u32).map(|(c, _)| c.kind);
                let expected = match len {
                    _ if len < n => Err(WireError::Truncated),
                    _ if len > n && kind != Kind::Probe => Err(WireError::Trailing),
                    _ => Ok(kind),
                };
                assert_eq!(got, expected, "{kind:?}, {len} bytes");
            }
        }
    }

    #[test]
    fn reset_answers_only_data() {
        let mut buf = [0u8; MAX_HEADER];
        common(Kind::Ack).emit(&mut Writer::new(&mut buf));
        let r = reset_for(&buf).unwrap();
        assert_eq!(
            peek(&r),
            Ok(Peek {
                kind: Kind::Reset,
                dst_conn_id: 7,
                tag: 9
            })
        );
        assert!(reset_for(&r).is_none());
        assert!(reset_for(&[]).is_none());
    }
}
