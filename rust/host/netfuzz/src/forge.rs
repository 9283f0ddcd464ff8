// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Datagrams that lie, written by the engine's own encoder: every type, from what the sender knows
//! and from guesses.

use crate::rng::Rng;
use metaroce_engine::engine::wire::{
    Ack, Common, Data, Datagram, Handshake, Kind, Nak, NakReason, Op, Operands, ACK_LEN,
    FLAG_CANDIDATE, FLAG_EPOCH, FLAG_LAZY, FLAG_PROBE, HANDSHAKE_LEN, MAX_HEADER, NAK_LEN,
};
use std::collections::{BTreeSet, VecDeque};

/// What a datagram pretends to be. The order is that of [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as the packet types")]
pub enum Class {
    Data,
    Void,
    Ack,
    Nak,
    Init,
    InitAck,
    Reset,
    Probe,
    Datagram,
    Cut,
    Longer,
    Changed,
    Noise,
    Replay,
}

/// Names of the classes, for the figures.
pub const NAMES: [&str; 14] = [
    "DATA",
    "VOID",
    "ACK",
    "NAK",
    "INIT",
    "INIT_ACK",
    "RESET",
    "PROBE",
    "DATAGRAM",
    "cut short",
    "too long",
    "bits changed",
    "noise",
    "replayed",
];

const REASONS: [NakReason; 6] = [
    NakReason::Rnr,
    NakReason::NotReady,
    NakReason::InvalidRequest,
    NakReason::Access,
    NakReason::Operation,
    NakReason::Flushed,
];

/// A QP of the victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Qp {
    /// Its number.
    pub qpn: u32,
    /// The QP it believes to be connected to.
    pub peer: u32,
    /// Next message number that it expects.
    pub msn: u32,
    /// Next send sequence number.
    pub ssn: u32,
    /// Next response id.
    pub rid: u32,
}

/// A memory region of the victim.
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    /// Its key.
    pub rkey: u32,
    /// First byte.
    pub va: u64,
    /// Bytes.
    pub len: u32,
}

/// A request of the victim that waits for a response.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The QP that asked, and the QP that was asked.
    pub from: u32,
    /// The QP that was asked.
    pub to: u32,
    /// Under which number it wants the answer.
    pub rid: u32,
    /// Bytes wanted.
    pub total: u32,
}

/// Own packets of a path: sent again, as they were, until they are acknowledged.
#[derive(Clone, Default)]
pub struct Sending {
    una: u32,
    next: u32,
    packets: VecDeque<Vec<u8>>,
}

impl Sending {
    /// All before `seq` has been acknowledged.
    pub fn acknowledged(&mut self, seq: u32) {
        let n = seq.wrapping_sub(self.una);
        if n <= self.next.wrapping_sub(self.una) {
            self.packets.drain(..n as usize);
            self.una = seq;
        }
    }

    /// A refused packet's place is taken by one that carries nothing.
    pub fn replace(&mut self, seq: u32, packet: &[u8]) {
        let at = seq.wrapping_sub(self.una) as usize;
        if let Some(old) = self.packets.get_mut(at) {
            *old = packet.to_vec();
        }
    }
}

/// What has come in on a path.
#[derive(Clone, Default)]
pub struct Seen {
    /// All before has come in.
    pub low: u32,
    /// None from here on has.
    pub high: u32,
    /// What has, from `low` on.
    pub more: BTreeSet<u32>,
}

impl Seen {
    /// A packet has come in.
    pub fn add(&mut self, seq: u32) {
        let ahead = seq.wrapping_sub(self.low);
        if ahead >= 256 {
            return;
        }
        self.more.insert(seq);
        if ahead >= self.high.wrapping_sub(self.low) {
            self.high = seq.wrapping_add(1);
        }
        while self.more.remove(&self.low) {
            self.low = self.low.wrapping_add(1);
        }
    }
}

/// What the sender knows of the victim; zeros are guesses.
#[derive(Default)]
pub struct Known {
    /// The victim's connection id and tag.
    pub conn_id: u32,
    /// See `conn_id`.
    pub tag: u32,
    /// The last handshake that the victim sent.
    pub handshake: Option<Handshake>,
    /// QPs.
    pub qps: Vec<Qp>,
    /// Memory regions.
    pub regions: Vec<Region>,
    /// READs and atomics to be answered.
    pub asked: Vec<Asked>,
    /// Own sequences, by path.
    pub sending: Vec<Sending>,
    /// What the victim has sent, by path.
    pub seen: Vec<Seen>,
}

/// Makes datagrams.
pub struct Forger {
    /// Choices.
    pub rng: Rng,
    /// Knowledge.
    pub known: Known,
    /// A field is a lie once in so many times; 0 = never.
    pub lies: u32,
}

/// Bytes of a well-formed packet of a type, longest for DATA.
const SWEEP: usize = 140;

impl Forger {
    /// With these choices, knowing nothing.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            known: Known::default(),
            lies: 4,
        }
    }

    fn lie(&mut self, truth: u32) -> u32 {
        if self.rng.once_in(self.lies) {
            self.rng.wild(truth)
        } else {
            truth
        }
    }

    fn common(&mut self, kind: Kind, path: u8, seq: u32) -> Common {
        let flags = match self.rng.below(8) {
            0 => self.rng.u8(),
            1 => FLAG_LAZY | FLAG_EPOCH,
            2 => FLAG_PROBE,
            3 => FLAG_CANDIDATE,
            _ => 0,
        };
        let (conn_id, tag) = (self.known.conn_id, self.known.tag);
        Common {
            kind,
            flags,
            path: if self.rng.once_in(self.lies.saturating_mul(8)) {
                self.rng.u8()
            } else {
                path
            },
            tx_count: if self.rng.once_in(3) {
                self.rng.u8()
            } else {
                1
            },
            conn_id: if self.known.conn_id == 0 || self.rng.once_in(self.lies.saturating_mul(16)) {
                self.rng.wild(conn_id)
            } else {
                conn_id
            },
            tag: if self.known.tag == 0 || self.rng.once_in(self.lies.saturating_mul(16)) {
                self.rng.wild(tag)
            } else {
                tag
            },
            seq,
        }
    }

    fn any_path(&mut self) -> u8 {
        let n = self.known.sending.len().clamp(1, 64) as u32;
        self.rng.below(n) as u8
    }

    /// A sequenced packet, which `make` writes, or one again that has not been acknowledged.
    fn sequenced(&mut self, make: impl Fn(&mut Self, u8, u32) -> Vec<u8>) -> Vec<u8> {
        let path = self.any_path();
        let lie = self.rng.once_in(self.lies.saturating_mul(2));
        let Some(s) = self.known.sending.get_mut(usize::from(path)) else {
            let seq = self.rng.wild(0);
            return make(self, path, seq);
        };
        if lie {
            let una = s.una;
            let seq = self.rng.wild(una);
            return make(self, path, seq);
        }
        let seq = s.next;
        if s.packets.len() > 100 || (!s.packets.is_empty() && self.rng.once_in(4)) {
            let near = self.rng.below(s.packets.len().min(4) as u32) as usize;
            return s.packets.get(near).cloned().unwrap_or_default();
        }
        let packet = make(self, path, seq);
        if let Some(s) = self.known.sending.get_mut(usize::from(path)) {
            s.next = s.next.wrapping_add(1);
            s.packets.push_back(packet.clone());
        }
        packet
    }

    /// An honest acknowledgement of a path.
    pub fn honest_ack(&mut self, path: u8) -> Vec<u8> {
        let seen = self.known.seen.get(usize::from(path)).cloned();
        let seen = seen.unwrap_or_default();
        let common = Common {
            kind: Kind::Ack,
            flags: 0,
            path,
            tx_count: 0,
            conn_id: self.known.conn_id,
            tag: self.known.tag,
            seq: seen.low,
        };
        let mut ack = Ack {
            echo_seq: seen.high.wrapping_sub(1),
            echo_tx: 1,
            received: seen.high,
            ..Ack::default()
        };
        for seq in &seen.more {
            if let Some(word) = ack.sack.get_mut((seq / 64 % 4) as usize) {
                *word |= 1 << (seq % 64);
            }
        }
        let mut buf = [0u8; ACK_LEN];
        let n = ack.emit(common, &mut buf);
        buf[..n].to_vec()
    }

    /// A packet that carries nothing but sequence `seq` of `path`: closes the gap that a refusal left.
    pub fn void(&mut self, path: u8, seq: u32) -> Vec<u8> {
        let common = Common {
            kind: Kind::Void,
            flags: 0,
            path,
            tx_count: 1,
            conn_id: self.known.conn_id,
            tag: self.known.tag,
            seq,
        };
        let mut buf = [0u8; MAX_HEADER];
        let n = common.emit_alone(&mut buf);
        buf[..n].to_vec()
    }

    /// A handshake packet. `answer` is the nonce that is echoed; honest if told so.
    pub fn handshake(&mut self, answer: Option<u64>, own: &Handshake, honest: bool) -> Vec<u8> {
        let mut hs = *own;
        if let Some(nonce) = answer {
            hs.nonce = nonce;
        }
        let kind = if answer.is_some() {
            Kind::InitAck
        } else {
            Kind::Init
        };
        let mut common = Common {
            kind,
            flags: 0,
            path: 0,
            tx_count: 0,
            conn_id: 0,
            tag: 0,
            seq: 0,
        };
        if answer.is_some() {
            common.conn_id = self.known.conn_id;
            common.tag = self.known.tag;
        }
        if !honest && self.lies != 0 {
            common = self.common(kind, common.path, common.seq);
            match self.rng.below(10) {
                0 => hs.nonce = self.rng.u64(),
                1 => hs.epoch = self.rng.u64(),
                2 => hs.conn_id = self.rng.wild(hs.conn_id),
                3 => hs.tag = self.rng.wild(hs.tag),
                4 => hs.features = self.rng.u32(),
                5 => hs.paths = self.rng.u8(),
                6 => hs.planes = self.rng.u8(),
                7 => hs.max_payload = self.rng.u32() as u16,
                8 => hs.window = self.rng.wild(64) as u16,
                _ => {}
            }
        }
        let mut buf = [0u8; HANDSHAKE_LEN];
        let n = hs.emit(common, &mut buf);
        buf[..n].to_vec()
    }

    fn own_handshake(&mut self) -> Handshake {
        Handshake {
            nonce: self.rng.u64(),
            epoch: self.rng.u64(),
            conn_id: self.rng.u32() | 1,
            tag: self.rng.u32(),
            features: 0,
            paths: 8,
            planes: 1,
            max_payload: 1400,
            window: 256,
        }
    }

    /// A request in the name of the QP that a QP of the victim is connected to.
    fn request(&mut self) -> (Data, usize) {
        // What a QP with the usual rights grants, most of the time.
        const GRANTED: [Op; 7] = [
            Op::Send,
            Op::SendImm,
            Op::Write,
            Op::WriteImm,
            Op::Read,
            Op::CmpSwap,
            Op::FetchAdd,
        ];
        let strange = self.rng.once_in(self.lies);
        let from: &[Op] = if strange { &Op::ALL } else { &GRANTED };
        let op = *self.rng.pick(from).unwrap_or(&Op::Send);
        let which = self.rng.below(self.known.qps.len() as u32) as usize;
        let qp = self.known.qps.get(which).copied().unwrap_or(Qp {
            qpn: self.rng.below(1 << 24),
            peer: self.rng.below(1 << 24),
            ..Qp::default()
        });
        let index = if strange {
            self.rng.below(self.known.regions.len() as u32) as usize
        } else {
            0
        };
        let region = self.known.regions.get(index).copied().unwrap_or(Region {
            rkey: self.rng.u32(),
            va: self.rng.u64(),
            len: 4096,
        });
        let mut total = match self.rng.below(4) {
            0 => self.rng.below(16),
            1 => self.rng.below(1300),
            _ => self.rng.below(600),
        };
        if op.expects_response() && op != Op::Read && op != Op::Flush {
            total = 8;
        }
        let mut offset = 0;
        let mut len = if op.has_payload() { total.min(1300) } else { 0 };
        if op.has_payload() && self.rng.once_in(self.lies.saturating_mul(2)) {
            // A piece that does not fit its message, or a message of many pieces.
            total = self.rng.wild(total);
            offset = self.rng.wild(offset);
            len = self.rng.below(1300);
        }
        let room = region.len.saturating_sub(total).max(1);
        let va = region.va.wrapping_add(u64::from(self.rng.below(room))) & !7;
        let data = Data {
            op,
            dst_qpn: self.lie(qp.qpn) & 0xff_ffff,
            src_qpn: self.lie(qp.peer) & 0xff_ffff,
            attempt: if self.rng.once_in(self.lies) {
                self.rng.u8()
            } else {
                0
            },
            msn: self.lie(qp.msn),
            total: self.lie(total),
            offset: self.lie(offset),
            solicited: self.rng.once_in(2),
            operands: Operands {
                ssn: self.lie(qp.ssn),
                imm: if op == Op::Flush {
                    self.lie(1)
                } else {
                    self.lie(region.rkey)
                },
                rkey: self.lie(region.rkey),
                va: if self.rng.once_in(self.lies) {
                    self.rng.wild64(va)
                } else {
                    va
                },
                compare: self.rng.u64(),
                swap: self.rng.u64(),
                rid: self.lie(qp.rid),
            },
            header_len: 0,
            payload_len: 0,
        };
        // What an honest peer would send next.
        if let Some(qp) = self.known.qps.get_mut(which) {
            if !op.is_response() {
                qp.msn = qp.msn.wrapping_add(1);
                qp.ssn = qp.ssn.wrapping_add(u32::from(op.consumes_receive()));
                qp.rid = qp.rid.wrapping_add(u32::from(op.expects_response()));
            }
        }
        (data, len as usize)
    }

    /// An answer to a READ or atomic of the victim.
    fn response(&mut self, asked: Asked) -> (Data, usize) {
        const ANSWERS: [Op; 6] = [
            Op::ReadResp,
            Op::ReadResp,
            Op::ReadResp,
            Op::AtomicResp,
            Op::RespError,
            Op::Done,
        ];
        let op = *self.rng.pick(&ANSWERS).unwrap_or(&Op::Done);
        let offset = if asked.total > 1300 {
            self.rng.below(asked.total / 1300) * 1300
        } else {
            0
        };
        let len = asked.total.saturating_sub(offset).min(1300);
        let data = Data {
            op,
            dst_qpn: self.lie(asked.from) & 0xff_ffff,
            src_qpn: self.lie(asked.to) & 0xff_ffff,
            attempt: 0,
            msn: self.lie(asked.rid),
            total: self.lie(asked.total),
            offset: self.lie(offset),
            solicited: false,
            operands: Operands {
                imm: self.lie(4),
                compare: self.rng.u64(),
                ..Operands::default()
            },
            header_len: 0,
            payload_len: 0,
        };
        let len = if op == Op::ReadResp {
            self.lie(len).min(1400)
        } else {
            0
        };
        (data, len as usize)
    }

    fn data(&mut self) -> Vec<u8> {
        self.sequenced(|forger, path, seq| {
            let asked = forger.rng.pick(&forger.known.asked).copied();
            let (data, len) = match asked {
                Some(asked) if forger.rng.once_in(3) => forger.response(asked),
                _ => forger.request(),
            };
            let common = forger.common(Kind::Data, path, seq);
            let mut buf = [0u8; MAX_HEADER];
            let n = data.emit(common, &mut buf);
            let mut out = buf[..n].to_vec();
            let fill = forger.rng.u8();
            out.resize(n + len, fill);
            out
        })
    }

    /// The sequences seen on a path: the lowest and the highest.
    fn seen(&self, path: u8) -> (u32, u32) {
        let seen = self.known.seen.get(usize::from(path));
        seen.map_or((0, 0), |s| (s.low, s.high))
    }

    fn ack(&mut self) -> Vec<u8> {
        let path = self.any_path();
        let (low, high) = self.seen(path);
        let seq = match self.rng.below(3) {
            0 => self.lie(low),
            1 => self.lie(high),
            _ => low.wrapping_add(self.rng.below(256)),
        };
        let mut common = self.common(Kind::Ack, path, seq);
        common.tx_count = self.rng.u8();
        let mut ack = Ack {
            echo_seq: low.wrapping_add(self.rng.below(high.wrapping_sub(low).clamp(1, 512))),
            echo_tx: self.rng.below(4) as u8,
            delay_us: self.rng.u32() as u16,
            received: self.rng.wild(high),
            ce: self.rng.wild(0),
            dups: self.rng.wild(0),
            grant: if self.rng.once_in(4) {
                self.rng.wild(1)
            } else {
                0
            },
            sack: [0; 4],
        };
        for word in &mut ack.sack {
            *word = match self.rng.below(3) {
                0 => 0,
                1 => u64::MAX,
                _ => self.rng.u64(),
            };
        }
        let mut buf = [0u8; ACK_LEN];
        let n = ack.emit(common, &mut buf);
        buf[..n].to_vec()
    }

    fn nak(&mut self) -> Vec<u8> {
        let path = self.any_path();
        let (low, high) = self.seen(path);
        let seq = low.wrapping_add(self.rng.below(high.wrapping_sub(low).clamp(1, 300)));
        let seq = self.lie(seq);
        let common = self.common(Kind::Nak, path, seq);
        let nak = Nak {
            reason: *self.rng.pick(&REASONS).unwrap_or(&NakReason::Rnr),
            timer: self.rng.u8(),
        };
        let mut buf = [0u8; NAK_LEN];
        let n = nak.emit(common, &mut buf);
        buf[..n].to_vec()
    }

    fn plain(&mut self, kind: Kind) -> Vec<u8> {
        let make = |forger: &mut Self, path, seq| {
            let common = forger.common(kind, path, seq);
            let mut buf = [0u8; MAX_HEADER];
            let n = common.emit_alone(&mut buf);
            buf[..n].to_vec()
        };
        if kind == Kind::Void {
            return self.sequenced(make);
        }
        let path = self.any_path();
        let seq = self.rng.wild(0);
        make(self, path, seq)
    }

    fn unreliable(&mut self) -> Vec<u8> {
        let qpn = match self.rng.below(4) {
            0 => 1,
            1 => 0xff_ffff,
            2 => self.rng.pick(&self.known.qps).map_or(2, |q| q.qpn),
            _ => self.rng.below(1 << 24),
        };
        let datagram = Datagram {
            dst_qpn: qpn,
            src_qpn: self.rng.below(1 << 24),
            qkey: if self.rng.once_in(2) {
                0x8001_0000
            } else {
                self.rng.u32()
            },
            solicited: self.rng.once_in(2),
            imm: if self.rng.once_in(2) {
                Some(self.rng.u32())
            } else {
                None
            },
        };
        let mut out = datagram.emit().to_vec();
        let mut len = self.rng.below(1400) as usize;
        if self.rng.once_in(3) {
            len = 256; // a management datagram
        }
        out.extend(self.rng.bytes(len));
        out
    }

    /// One well-formed packet of a class.
    fn whole(&mut self, class: Class) -> Vec<u8> {
        match class {
            Class::Void => self.plain(Kind::Void),
            Class::Ack => self.ack(),
            Class::Nak => self.nak(),
            Class::Init => {
                let own = self.own_handshake();
                self.handshake(None, &own, false)
            }
            Class::InitAck => {
                let own = self.own_handshake();
                let nonce = match self.known.handshake {
                    Some(hs) if self.rng.once_in(2) => hs.nonce,
                    _ => self.rng.u64(),
                };
                self.handshake(Some(nonce), &own, false)
            }
            Class::Reset => self.plain(Kind::Reset),
            Class::Probe => self.plain(Kind::Probe),
            Class::Datagram => self.unreliable(),
            Class::Noise => {
                let n = match self.rng.below(64) {
                    0 => 60000 + self.rng.below(5000),
                    1..=8 => self.rng.below(1472),
                    _ => self.rng.below(120),
                } as usize;
                let mut bytes = self.rng.bytes(n);
                if let Some(first) = bytes.first_mut() {
                    if self.rng.once_in(2) {
                        *first = 0x10 | (*first & 0x0f);
                    }
                }
                bytes
            }
            Class::Data | Class::Cut | Class::Longer | Class::Changed | Class::Replay => {
                self.data()
            }
        }
    }

    /// The next datagram.
    pub fn datagram(&mut self) -> (Class, Vec<u8>) {
        let class = match self.rng.below(20) {
            0..=7 => Class::Data,
            8 => Class::Void,
            9..=11 => Class::Ack,
            12 => Class::Nak,
            13 => Class::Init,
            14 => Class::InitAck,
            15 => Class::Reset,
            16 => Class::Probe,
            17 => Class::Datagram,
            _ => Class::Noise,
        };
        let mut bytes = self.whole(class);
        if !self.rng.once_in(8) || self.lies == 0 {
            return (class, bytes);
        }
        self.damage(&mut bytes)
            .map_or((class, Vec::new()), |class| (class, bytes))
    }

    /// Changes, cuts or lengthens a packet.
    fn damage(&mut self, bytes: &mut Vec<u8>) -> Option<Class> {
        Some(match self.rng.below(3) {
            0 => {
                let n = self.rng.below(bytes.len() as u32) as usize;
                bytes.truncate(n);
                Class::Cut
            }
            1 => {
                let n = 1 + self.rng.below(64) as usize;
                let more = self.rng.bytes(n);
                bytes.extend(more);
                Class::Longer
            }
            _ => {
                for _ in 0..=self.rng.below(4) {
                    let at = self.rng.below(bytes.len().min(96) as u32) as usize;
                    let bit = 1 << self.rng.below(8);
                    *bytes.get_mut(at)? ^= bit;
                }
                Class::Changed
            }
        })
    }

    /// Every type, each cut at every length and made longer step by step.
    pub fn sweep(&mut self) -> Vec<(Class, Vec<u8>)> {
        const ALL: [Class; 9] = [
            Class::Data,
            Class::Void,
            Class::Ack,
            Class::Nak,
            Class::Init,
            Class::InitAck,
            Class::Reset,
            Class::Probe,
            Class::Datagram,
        ];
        let mut out = Vec::new();
        let mut add = |class: Class, whole: &[u8]| {
            for n in 0..=SWEEP {
                let mut bytes = whole.to_vec();
                bytes.resize(n, 0xa5);
                let class = match n {
                    _ if n < whole.len() => Class::Cut,
                    _ if n > whole.len() => Class::Longer,
                    _ => class,
                };
                out.push((class, bytes));
            }
        };
        for class in ALL {
            let whole = self.whole(class);
            add(class, &whole);
        }
        for op in Op::ALL {
            let (mut data, len) = self.request();
            data.op = op;
            let (path, seq) = (self.any_path(), self.rng.u32());
            let common = self.common(Kind::Data, path, seq);
            let mut buf = [0u8; MAX_HEADER];
            let n = data.emit(common, &mut buf);
            let mut bytes = buf[..n].to_vec();
            bytes.resize(n + if op.has_payload() { len } else { 0 }, 0x5a);
            add(Class::Data, &bytes);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metaroce_engine::engine::wire;

    fn informed(lies: u32) -> Forger {
        let mut forger = Forger::new(3);
        forger.lies = lies;
        forger.known.conn_id = 0x1111_1111;
        forger.known.tag = 0x2222_2222;
        forger.known.qps = vec![Qp {
            qpn: 0x12,
            peer: 0x34,
            ..Qp::default()
        }];
        forger.known.regions = vec![Region {
            rkey: 5,
            va: 0x10000,
            len: 65536,
        }];
        forger.known.sending = vec![Sending::default(); 8];
        forger.known.seen = vec![Seen::default(); 8];
        forger
    }

    #[test]
    fn without_lies_all_packets_are_well_formed_and_name_the_connection() {
        let mut forger = informed(0);
        for _ in 0..20_000 {
            let (class, bytes) = forger.datagram();
            if matches!(class, Class::Noise | Class::Datagram) {
                continue;
            }
            let unnamed = class == Class::Init;
            let head = &bytes[..bytes.len().min(MAX_HEADER)];
            let (common, _) = wire::parse(head, bytes.len() as u32).unwrap();
            let named = (common.conn_id, common.tag) == (0x1111_1111, 0x2222_2222);
            assert!(named != unnamed, "{class:?}");
        }
    }

    #[test]
    fn lies_reach_every_class_and_many_are_malformed() {
        let mut forger = informed(4);
        let mut seen = [0u32; NAMES.len()];
        let mut malformed = 0u32;
        for _ in 0..20_000 {
            let (class, bytes) = forger.datagram();
            seen[class as usize] += 1;
            let head = &bytes[..bytes.len().min(MAX_HEADER)];
            malformed += u32::from(wire::parse(head, bytes.len() as u32).is_err());
        }
        // Replays come from elsewhere.
        assert!(seen[..NAMES.len() - 1].iter().all(|n| *n > 50), "{seen:?}");
        assert!(malformed > 2_000, "{malformed}");
    }

    #[test]
    fn packets_are_sent_again_until_they_are_acknowledged() {
        let mut s = Sending::default();
        for n in 0..5u8 {
            s.packets.push_back(vec![n]);
            s.next += 1;
        }
        s.replace(3, &[9]);
        s.acknowledged(2);
        s.acknowledged(1); // late
        s.acknowledged(9); // never sent
        assert_eq!(s.packets, [vec![2], vec![9], vec![4]]);
        s.acknowledged(5);
        assert!(s.packets.is_empty());
    }

    #[test]
    fn what_came_in_is_told_apart_from_gaps() {
        let mut seen = Seen::default();
        for seq in [0, 2, 3, 1, 5, 400] {
            seen.add(seq);
        }
        assert_eq!((seen.low, seen.high, seen.more.len()), (4, 6, 1));
    }

    #[test]
    fn the_sweep_has_each_length_of_each_type() {
        let sweep = informed(4).sweep();
        assert_eq!(sweep.len(), (9 + Op::ALL.len()) * (SWEEP + 1));
    }
}
