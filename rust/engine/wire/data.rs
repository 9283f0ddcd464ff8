// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! DATA packets: a piece of a message, complete in itself.
//!
//! ```text
//! 16      17              20              23      24      28       32       36
//! +-------+---------------+---------------+-------+-------+--------+--------+----------
//! | op    | dst QPN       | src QPN       |attempt| MSN   | total  | offset | operands, payload
//! +-------+---------------+---------------+-------+-------+--------+--------+----------
//! ```
//!
//! Operands by operation: SEND `ssn`; SEND_IMM/SEND_INV `ssn imm`; WRITE `rkey va`; WRITE_IMM
//! `rkey va ssn imm`; READ `rkey va rid`; atomics `rkey va rid compare swap`; FLUSH `rkey va rid how`;
//! ATOMIC_WRITE `rkey va rid value`; READ_RESP and DONE none; ATOMIC_RESP `original`; RESP_ERROR `reason`. In responses MSN holds the `rid` of the request.

use super::{Common, Kind, Reader, WireError, Writer, COMMON_LEN, FLAG_SOLICITED};

/// The longest header of a DATA packet.
pub const MAX_DATA_HEADER: usize = COMMON_LEN + 20 + 32;

/// Operation of a DATA packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the verbs operations")]
pub enum Op {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
    CmpSwap,
    FetchAdd,
    Flush,
    AtomicWrite,
    ReadResp,
    AtomicResp,
    RespError,
    Done,
}

impl Op {
    /// All operations.
    pub const ALL: [Op; 14] = [
        Op::Send,
        Op::SendImm,
        Op::SendInv,
        Op::Write,
        Op::WriteImm,
        Op::Read,
        Op::CmpSwap,
        Op::FetchAdd,
        Op::Flush,
        Op::AtomicWrite,
        Op::ReadResp,
        Op::AtomicResp,
        Op::RespError,
        Op::Done,
    ];

    // 0x30.. are kept free for extensions.
    fn to_wire(self) -> u8 {
        match self {
            Op::Send => 0x01,
            Op::SendImm => 0x02,
            Op::SendInv => 0x03,
            Op::Write => 0x04,
            Op::WriteImm => 0x05,
            Op::Read => 0x06,
            Op::CmpSwap => 0x07,
            Op::FetchAdd => 0x08,
            Op::Flush => 0x09,
            Op::AtomicWrite => 0x0a,
            Op::ReadResp => 0x20,
            Op::AtomicResp => 0x21,
            Op::RespError => 0x22,
            Op::Done => 0x23,
        }
    }

    fn from_wire(v: u8) -> Option<Self> {
        Some(match v {
            0x01 => Op::Send,
            0x02 => Op::SendImm,
            0x03 => Op::SendInv,
            0x04 => Op::Write,
            0x05 => Op::WriteImm,
            0x06 => Op::Read,
            0x07 => Op::CmpSwap,
            0x08 => Op::FetchAdd,
            0x09 => Op::Flush,
            0x0a => Op::AtomicWrite,
            0x20 => Op::ReadResp,
            0x21 => Op::AtomicResp,
            0x22 => Op::RespError,
            0x23 => Op::Done,
            _ => return None,
        })
    }

    /// Whether message bytes follow the header.
    pub const fn has_payload(self) -> bool {
        matches!(
            self,
            Op::Send | Op::SendImm | Op::SendInv | Op::Write | Op::WriteImm | Op::ReadResp
        )
    }

    /// Whether the packet answers a request.
    pub const fn is_response(self) -> bool {
        matches!(
            self,
            Op::ReadResp | Op::AtomicResp | Op::RespError | Op::Done
        )
    }

    /// Whether the message is answered by another: READ, atomics, FLUSH.
    pub const fn expects_response(self) -> bool {
        matches!(
            self,
            Op::Read | Op::CmpSwap | Op::FetchAdd | Op::AtomicWrite | Op::Flush
        )
    }

    /// Whether the message consumes a receive.
    pub const fn consumes_receive(self) -> bool {
        matches!(self, Op::Send | Op::SendImm | Op::SendInv | Op::WriteImm)
    }

    /// Whether R_Key and address follow.
    const fn names_memory(self) -> bool {
        matches!(
            self,
            Op::Write
                | Op::WriteImm
                | Op::Read
                | Op::CmpSwap
                | Op::FetchAdd
                | Op::Flush
                | Op::AtomicWrite
        )
    }

    /// Header length with this operation.
    pub const fn header_len(self) -> usize {
        COMMON_LEN
            + 20
            + match self {
                Op::Send => 4,
                Op::SendImm | Op::SendInv => 8,
                Op::Write => 12,
                Op::WriteImm | Op::Flush => 20,
                Op::Read => 16,
                Op::CmpSwap | Op::FetchAdd => 32,
                Op::AtomicWrite => 24,
                Op::ReadResp | Op::Done => 0,
                Op::AtomicResp => 8,
                Op::RespError => 4,
            }
    }
}

/// Operands of all operations together; those an operation lacks are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operands {
    /// Send sequence number: which receive.
    pub ssn: u32,
    /// Immediate, R_Key to invalidate or how to flush; reason in RESP_ERROR.
    pub imm: u32,
    /// Remote key.
    pub rkey: u32,
    /// Remote address of the message's first byte.
    pub va: u64,
    /// Compare operand; original value in ATOMIC_RESP.
    pub compare: u64,
    /// Swap or add operand, or what an atomic write writes.
    pub swap: u64,
    /// Under which number the response shall come.
    pub rid: u32,
}

/// A DATA header.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Operation.
    pub op: Op,
    /// Receiver's QP number.
    pub dst_qpn: u32,
    /// Sender's QP number.
    pub src_qpn: u32,
    /// Which attempt at the message, modulo 256.
    pub attempt: u8,
    /// Message number; in responses the request's `rid`.
    pub msn: u32,
    /// Bytes of the whole message.
    pub total: u32,
    /// First byte of this piece.
    pub offset: u32,
    /// Solicited event asked for.
    pub solicited: bool,
    /// Operands.
    pub operands: Operands,
    /// Bytes of this header (set by parsing).
    pub header_len: u32,
    /// Bytes of payload (set by parsing).
    pub payload_len: u32,
}

impl Data {
    pub(super) fn parse(r: &mut Reader<'_>, c: &Common, len: u32) -> Result<Self, WireError> {
        let op = Op::from_wire(r.u8()?).ok_or(WireError::Field)?;
        let dst_qpn = r.u24()?;
        let src_qpn = r.u24()?;
        let attempt = r.u8()?;
        let msn = r.u32()?;
        let total = r.u32()?;
        let offset = r.u32()?;
        let mut o = Operands::default();
        if op.names_memory() {
            o.rkey = r.u32()?;
            o.va = r.u64()?;
        }
        match op {
            Op::Send => o.ssn = r.u32()?,
            Op::SendImm | Op::SendInv | Op::WriteImm => {
                o.ssn = r.u32()?;
                o.imm = r.u32()?;
            }
            Op::Read => o.rid = r.u32()?,
            Op::Flush => {
                o.rid = r.u32()?;
                o.imm = r.u32()?;
            }
            Op::AtomicWrite => {
                o.rid = r.u32()?;
                o.swap = r.u64()?;
            }
            Op::CmpSwap | Op::FetchAdd => {
                o.rid = r.u32()?;
                o.compare = r.u64()?;
                o.swap = r.u64()?;
            }
            Op::AtomicResp => o.compare = r.u64()?,
            Op::RespError => o.imm = r.u32()?,
            Op::Write | Op::ReadResp | Op::Done => {}
        }
        let header_len = u32::try_from(op.header_len()).map_err(|_| WireError::Field)?;
        let payload_len = len.checked_sub(header_len).ok_or(WireError::Truncated)?;
        // A piece lies inside its message; only an empty message has an empty piece. A message has at most
        // 2^31 bytes (IB spec vol. 1, 9.7.1).
        let end = offset.checked_add(payload_len).ok_or(WireError::Field)?;
        let ok = if op.has_payload() {
            total <= 0x8000_0000 && end <= total && (payload_len > 0 || total == 0)
        } else {
            payload_len == 0 && total <= 0x8000_0000
        };
        if !ok {
            return Err(WireError::Field);
        }
        let solicited = c.flags & FLAG_SOLICITED != 0;
        Ok(Self {
            op,
            dst_qpn,
            src_qpn,
            attempt,
            msn,
            total,
            offset,
            solicited,
            operands: o,
            header_len,
            payload_len,
        })
    }

    /// Writes common and DATA header, returns their length.
    pub fn emit(&self, mut common: Common, buf: &mut [u8]) -> usize {
        common.kind = Kind::Data;
        if self.solicited {
            common.flags |= FLAG_SOLICITED;
        }
        let mut w = Writer::new(buf);
        common.emit(&mut w);
        w.u8(self.op.to_wire());
        w.u24(self.dst_qpn);
        w.u24(self.src_qpn);
        w.u8(self.attempt);
        w.u32(self.msn);
        w.u32(self.total);
        w.u32(self.offset);
        let o = &self.operands;
        if self.op.names_memory() {
            w.u32(o.rkey);
            w.u64(o.va);
        }
        match self.op {
            Op::Send => w.u32(o.ssn),
            Op::SendImm | Op::SendInv | Op::WriteImm => {
                w.u32(o.ssn);
                w.u32(o.imm);
            }
            Op::Read => w.u32(o.rid),
            Op::Flush => {
                w.u32(o.rid);
                w.u32(o.imm);
            }
            Op::AtomicWrite => {
                w.u32(o.rid);
                w.u64(o.swap);
            }
            Op::CmpSwap | Op::FetchAdd => {
                w.u32(o.rid);
                w.u64(o.compare);
                w.u64(o.swap);
            }
            Op::AtomicResp => w.u64(o.compare),
            Op::RespError => w.u32(o.imm),
            Op::Write | Op::ReadResp | Op::Done => {}
        }
        w.len()
    }
}
