// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! ACK, NAK and the handshake.

use super::{Common, Reader, WireError, Writer, COMMON_LEN};

/// Bytes of an ACK.
pub const ACK_LEN: usize = COMMON_LEN + 56;
/// Bytes of a NAK.
pub const NAK_LEN: usize = COMMON_LEN + 4;
/// Bytes of INIT and INIT_ACK.
pub const HANDSHAKE_LEN: usize = COMMON_LEN + 36;

/// Acknowledgement of one path. The common header's sequence is cumulative: everything before it
/// has been placed.
///
/// ```text
/// 16         20     21     22         24         28        32          36       40
/// | echo seq |echo n| rsvd | delay us | received | CE seen | dups seen | grant  | bitmap (32 bytes)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Sequence of the packet that arrived last; the probe's number with [`super::FLAG_PROBE`].
    pub echo_seq: u32,
    /// Its transmission count.
    pub echo_tx: u8,
    /// Time from its arrival to this ACK in microseconds.
    pub delay_us: u16,
    /// Packets received on the path so far, modulo 2^32.
    pub received: u32,
    /// Of these, with Congestion Experienced.
    pub ce: u32,
    /// Of these, already known.
    pub dups: u32,
    /// Rate granted by the receiver in KiB per millisecond; 0 = no limit.
    pub grant: u32,
    /// Bit `s % 256` (word `s % 256 / 64`, bit `s % 64`) is set when sequence `s` of the 256 from the cumulative one
    /// on has been placed.
    pub sack: [u64; 4],
}

impl Ack {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let echo_seq = r.u32()?;
        let echo_tx = r.u8()?;
        let _ = r.u8()?;
        let delay_us = r.u16()?;
        let received = r.u32()?;
        let ce = r.u32()?;
        let dups = r.u32()?;
        let grant = r.u32()?;
        let mut sack = [0u64; 4];
        for word in &mut sack {
            *word = r.u64()?;
        }
        Ok(Self {
            echo_seq,
            echo_tx,
            delay_us,
            received,
            ce,
            dups,
            grant,
            sack,
        })
    }

    /// Writes the packet, returns its length.
    pub fn emit(&self, common: Common, buf: &mut [u8]) -> usize {
        let mut w = Writer::new(buf);
        common.emit(&mut w);
        w.u32(self.echo_seq);
        w.u8(self.echo_tx);
        w.u8(0);
        w.u16(self.delay_us);
        w.u32(self.received);
        w.u32(self.ce);
        w.u32(self.dups);
        w.u32(self.grant);
        for word in &self.sack {
            w.u64(*word);
        }
        w.len()
    }
}

/// Why a packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakReason {
    /// No receive; try again after the RNR delay.
    Rnr,
    /// No such QP, or not able to receive yet; try again.
    NotReady,
    /// Invalid request.
    InvalidRequest,
    /// Remote access error.
    Access,
    /// Remote operation error.
    Operation,
    /// An earlier message of the stream was refused for good.
    Flushed,
}

impl NakReason {
    /// Wire value.
    pub fn to_wire(self) -> u8 {
        match self {
            NakReason::Rnr => 1,
            NakReason::NotReady => 2,
            NakReason::InvalidRequest => 3,
            NakReason::Access => 4,
            NakReason::Operation => 5,
            NakReason::Flushed => 6,
        }
    }

    /// From the wire.
    pub fn from_wire(v: u8) -> Option<Self> {
        Some(match v {
            1 => NakReason::Rnr,
            2 => NakReason::NotReady,
            3 => NakReason::InvalidRequest,
            4 => NakReason::Access,
            5 => NakReason::Operation,
            6 => NakReason::Flushed,
            _ => return None,
        })
    }
}

/// Refusal of the packet (path, sequence) of the common header, whose transmission count it echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nak {
    /// Why.
    pub reason: NakReason,
    /// RNR timer code with [`NakReason::Rnr`].
    pub timer: u8,
}

impl Nak {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let reason = NakReason::from_wire(r.u8()?).ok_or(WireError::Field)?;
        let timer = r.u8()? & 31;
        let _ = r.u16()?;
        Ok(Self { reason, timer })
    }

    /// Writes the packet, returns its length.
    pub fn emit(&self, common: Common, buf: &mut [u8]) -> usize {
        let mut w = Writer::new(buf);
        common.emit(&mut w);
        w.u8(self.reason.to_wire());
        w.u8(self.timer);
        w.u16(0);
        w.len()
    }
}

/// INIT and INIT_ACK: the same fields, so that the answer is never longer than the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// INIT: random; INIT_ACK: echoed.
    pub nonce: u64,
    /// Sender's epoch.
    pub epoch: u64,
    /// Sender's connection id.
    pub conn_id: u32,
    /// Sender's verification tag.
    pub tag: u32,
    /// Optional features, none yet.
    pub features: u32,
    /// Paths the sender can serve.
    pub paths: u8,
    /// Planes the sender has.
    pub planes: u8,
    /// Payload bytes per datagram the sender can serve.
    pub max_payload: u16,
    /// Messages in flight per stream the sender can track.
    pub window: u16,
}

impl Handshake {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let nonce = r.u64()?;
        let epoch = r.u64()?;
        let conn_id = r.u32()?;
        let tag = r.u32()?;
        let features = r.u32()?;
        let paths = r.u8()?;
        let planes = r.u8()?;
        let max_payload = r.u16()?;
        let window = r.u16()?;
        let _ = r.u16()?;
        if conn_id == 0 || paths == 0 || max_payload < 64 || window == 0 {
            return Err(WireError::Field);
        }
        Ok(Self {
            nonce,
            epoch,
            conn_id,
            tag,
            features,
            paths,
            planes,
            max_payload,
            window,
        })
    }

    /// Writes the packet, returns its length.
    pub fn emit(&self, common: Common, buf: &mut [u8]) -> usize {
        let mut w = Writer::new(buf);
        common.emit(&mut w);
        w.u64(self.nonce);
        w.u64(self.epoch);
        w.u32(self.conn_id);
        w.u32(self.tag);
        w.u32(self.features);
        w.u8(self.paths);
        w.u8(self.planes);
        w.u16(self.max_payload);
        w.u16(self.window);
        w.u16(0);
        w.len()
    }
}
