// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Receiving half of a stream.
//!
//! A window of 256 messages. The first piece of a message to arrive resolves where the message goes;
//! each piece is placed at once. Receives complete, and READs, atomics and FLUSHes are executed, when all
//! earlier messages are complete. Responses wait in a small ring; what they carry is read when it is sent.

use super::super::api::{
    AtomicOp, Flush, Host, Opcode, Payload, RecvDone, Refusal, RemoteAccess, Store, StreamError,
};
use super::super::seq::Msn;
use super::super::wire::{Data, NakReason, Op, Operands};
use super::{Piece, STREAM_WINDOW};

/// State of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Empty,
    /// Pieces are arriving.
    Receiving,
    /// All bytes are placed.
    Complete,
    /// READ, atomic or FLUSH, waiting for its turn.
    Held,
}

/// A message under reception.
struct RxMsg<T> {
    state: State,
    op: Op,
    attempt: u8,
    solicited: bool,
    total: u32,
    got: u32,
    operands: Operands,
    /// Remote range (WRITE, READ, atomics).
    remote: Option<T>,
    /// Matched receive.
    recv: Option<T>,
}

impl<T> RxMsg<T> {
    fn empty() -> Self {
        Self {
            state: State::Empty,
            op: Op::Send,
            attempt: 0,
            solicited: false,
            total: 0,
            got: 0,
            operands: Operands::default(),
            remote: None,
            recv: None,
        }
    }
}

/// What a response carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Bytes of the target.
    Read,
    /// Original value of an atomic.
    Atomic(u64),
    /// Executed.
    Done,
    /// Nothing: it failed.
    Error(NakReason),
}

/// A response in progress.
struct Response<T> {
    rid: u32,
    target: Option<T>,
    answer: Answer,
    total: u32,
    sent: u32,
    unresolved: u32,
    /// Nothing (more) of this attempt is to be sent.
    sent_all: bool,
    attempt: u8,
    /// A piece was too large for its route: to be sent again from the start when all pieces are resolved.
    cut: bool,
    /// Counted in `pending`.
    pending: bool,
}

impl<T> Response<T> {
    /// Nothing is left to be sent, for now; whether it no longer counts as pending.
    fn end_attempt(&mut self) -> bool {
        self.sent_all = true;
        core::mem::take(&mut self.pending)
    }
}

/// Why and where a stream stopped receiving.
#[derive(Clone, Copy, Debug)]
struct Fatal {
    msn: Msn,
    refusal: Refusal,
    ssn: Option<u32>,
}

/// Receiving half of a stream.
pub struct Responder<S: Store, T> {
    ring: S::Buf<RxMsg<T>>,
    una: Msn,
    responses: S::Buf<Option<Response<T>>>,
    /// Oldest response not finished, next to send from, next free: serial, modulo the ring.
    oldest: u32,
    cursor: u32,
    newest: u32,
    /// READs and atomics of the requester at most (max_dest_rd_atomic).
    limit: u32,
    /// READs and atomics held, and responses with pieces not yet sent: the requester certainly waits for these.
    pending: u32,
    fatal: Option<Fatal>,
    closed: bool,
}

/// What to send for a piece of a response.
pub(crate) struct ResponsePacket<'a, T> {
    pub(crate) data: Data,
    /// Memory to be read.
    pub(crate) source: Option<&'a T>,
}

type Nak = (NakReason, u8);

impl<S: Store, T> Responder<S, T> {
    /// A half that expects message `first`.
    pub(crate) fn new(first: Msn, responses: u8) -> Result<Self, S::Error> {
        let n = u32::from(responses).clamp(1, 128).next_power_of_two();
        Ok(Self {
            ring: S::buf(STREAM_WINDOW as usize, |_| RxMsg::empty())?,
            una: first,
            responses: S::buf(n as usize, |_| None)?,
            oldest: 0,
            cursor: 0,
            newest: 0,
            limit: u32::from(responses),
            pending: 0,
            fatal: None,
            closed: false,
        })
    }

    /// Changes how many READs and atomics the requester may have outstanding.
    pub(crate) fn set_limit(&mut self, responses: u8) {
        self.limit = u32::from(responses);
    }

    /// The QP is in error: nothing more is received.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Handles a piece of a request. `Ok` means placed (or known): it will be acknowledged.
    pub(crate) fn on_request<H: Host<Target = T>>(
        &mut self,
        data: &Data,
        payload: Payload,
        qp: &H::Qp,
        host: &mut H,
    ) -> Result<(), Nak> {
        let msn = Msn::new(data.msn);
        if !msn.within(self.una, STREAM_WINDOW) {
            // Long complete, sent again under a new attempt; or of another life of the QP.
            let behind = self.una.distance(msn);
            let known = behind > 0 && behind <= STREAM_WINDOW;
            return if known {
                Ok(())
            } else {
                Err((NakReason::NotReady, 0))
            };
        }
        if let Some(fatal) = self.fatal {
            if msn == fatal.msn {
                return Err(nak_of(fatal.refusal));
            }
            if fatal.msn.precedes(msn) {
                return Err((NakReason::Flushed, 0));
            }
        }
        if self.closed {
            return Err((NakReason::NotReady, 0));
        }
        match self.receive(msn, data, payload, qp, host) {
            Ok(()) => Ok(()),
            Err(refusal @ (Refusal::Rnr { .. } | Refusal::NotReady)) => Err(nak_of(refusal)),
            Err(refusal) => {
                let ssn = data.op.consumes_receive().then_some(data.operands.ssn);
                self.set_fatal(Fatal { msn, refusal, ssn });
                Err(nak_of(refusal))
            }
        }
    }

    fn set_fatal(&mut self, fatal: Fatal) {
        if self.fatal.is_none_or(|f| fatal.msn.precedes(f.msn)) {
            self.fatal = Some(fatal);
        }
    }

    fn receive<H: Host<Target = T>>(
        &mut self,
        msn: Msn,
        data: &Data,
        payload: Payload,
        qp: &H::Qp,
        host: &mut H,
    ) -> Result<(), Refusal> {
        let at = (msn.get() & (STREAM_WINDOW - 1)) as usize;
        let Some(msg) = self.ring.get_mut(at) else {
            return Err(Refusal::Operation);
        };
        match msg.state {
            State::Complete | State::Held => return Ok(()),
            State::Empty => {
                // IB specification 9.7.4.1.5: more than were granted. A response all of which is on its
                // way may have arrived, so it does not count.
                if data.op.expects_response() && self.pending >= self.limit {
                    return Err(Refusal::InvalidRequest);
                }
                Self::begin(msg, data, qp, host)?;
            }
            State::Receiving => {
                if msg.op != data.op || msg.total != data.total {
                    return Err(Refusal::InvalidRequest);
                }
                let newer = data.attempt.wrapping_sub(msg.attempt);
                if newer >= 128 {
                    return Ok(());
                }
                if newer > 0 {
                    msg.attempt = data.attempt;
                    msg.got = 0;
                }
            }
        }
        if msg.state == State::Held {
            self.pending = self.pending.saturating_add(1);
            return Ok(());
        }
        if payload.len > 0 {
            let target = match msg.op {
                Op::Write | Op::WriteImm => msg.remote.as_ref(),
                _ => msg.recv.as_ref(),
            };
            let Some(target) = target else {
                return Err(Refusal::Operation);
            };
            host.place(qp, target, data.offset, payload)?;
        }
        let got = msg.got.saturating_add(payload.len);
        if got > msg.total {
            return Err(Refusal::InvalidRequest);
        }
        msg.got = got;
        if got == msg.total {
            msg.state = State::Complete;
        }
        Ok(())
    }

    /// First piece of a message: resolves where it goes.
    fn begin<H: Host<Target = T>>(
        msg: &mut RxMsg<T>,
        data: &Data,
        qp: &H::Qp,
        host: &mut H,
    ) -> Result<(), Refusal> {
        let o = &data.operands;
        let mut state = State::Receiving;
        let access = match data.op {
            Op::Write | Op::WriteImm => Some(RemoteAccess::Write),
            Op::Read => Some(RemoteAccess::Read),
            Op::CmpSwap | Op::FetchAdd => Some(RemoteAccess::Atomic),
            Op::AtomicWrite => Some(RemoteAccess::AtomicWrite),
            Op::Flush => {
                let how = Flush::from_wire(o.imm).ok_or(Refusal::InvalidRequest)?;
                Some(RemoteAccess::Flush(how))
            }
            _ => None,
        };
        let mut remote = None;
        if let Some(access) = access {
            let atomic = matches!(access, RemoteAccess::Atomic | RemoteAccess::AtomicWrite);
            if atomic && (data.total != 8 || o.va & 7 != 0) {
                return Err(Refusal::InvalidRequest);
            }
            if access != RemoteAccess::Write {
                state = State::Held;
            }
            remote = Some(host.match_remote(qp, access, o.rkey, o.va, data.total)?);
        }
        if data.op == Op::SendInv {
            host.match_invalidate(qp, o.imm)?;
        }
        let mut recv = None;
        if data.op.consumes_receive() {
            let total = if data.op == Op::WriteImm {
                0
            } else {
                data.total
            };
            recv = Some(host.match_recv(qp, o.ssn, total)?);
        }
        *msg = RxMsg {
            state,
            op: data.op,
            attempt: data.attempt,
            solicited: data.solicited,
            total: data.total,
            got: 0,
            operands: *o,
            remote,
            recv,
        };
        Ok(())
    }

    /// Delivers what has become the oldest: completes receives, executes READs and atomics. Returns the
    /// error to be raised.
    pub(crate) fn advance<H: Host<Target = T>>(
        &mut self,
        qp: &H::Qp,
        host: &mut H,
    ) -> Option<StreamError> {
        if self.closed {
            return None;
        }
        loop {
            if let Some(fatal) = self.fatal {
                if fatal.msn == self.una {
                    let (refusal, ssn) = (fatal.refusal, fatal.ssn);
                    return Some(StreamError::Responder { refusal, ssn });
                }
            }
            let full = self.newest.wrapping_sub(self.oldest) as usize >= self.responses.len();
            let at = (self.una.get() & (STREAM_WINDOW - 1)) as usize;
            let msg = self.ring.get_mut(at)?;
            match msg.state {
                State::Empty | State::Receiving => return None,
                State::Complete => {
                    let msg = core::mem::replace(msg, RxMsg::empty());
                    if let Some(target) = msg.recv {
                        let done = RecvDone {
                            ssn: msg.operands.ssn,
                            len: msg.total,
                            opcode: match msg.op {
                                Op::SendImm => Opcode::SendImm,
                                Op::SendInv => Opcode::SendInv,
                                Op::WriteImm => Opcode::WriteImm,
                                _ => Opcode::Send,
                            },
                            imm: msg.operands.imm,
                            solicited: msg.solicited,
                        };
                        host.complete_recv(qp, target, done);
                    }
                }
                State::Held => {
                    if full {
                        return None;
                    }
                    let msg = core::mem::replace(msg, RxMsg::empty());
                    self.execute(msg, qp, host);
                }
            }
            self.una = self.una.next();
        }
    }

    fn execute<H: Host<Target = T>>(&mut self, msg: RxMsg<T>, qp: &H::Qp, host: &mut H) {
        let o = &msg.operands;
        let outcome = match (msg.op, msg.remote.as_ref()) {
            (_, None) => Err(Refusal::Operation),
            (Op::CmpSwap, Some(target)) => {
                let (compare, swap) = (o.compare, o.swap);
                host.atomic(qp, target, AtomicOp::CmpSwap { compare, swap })
                    .map(Answer::Atomic)
            }
            (Op::FetchAdd, Some(target)) => host
                .atomic(qp, target, AtomicOp::FetchAdd { add: o.swap })
                .map(Answer::Atomic),
            (Op::AtomicWrite, Some(target)) => host
                .atomic(qp, target, AtomicOp::Write { value: o.swap })
                .map(|_| Answer::Done),
            (Op::Flush, Some(target)) => Flush::from_wire(o.imm)
                .ok_or(Refusal::InvalidRequest)
                .and_then(|how| host.flush(qp, target, how))
                .map(|()| Answer::Done),
            (_, Some(_)) => Ok(Answer::Read),
        };
        let answer = outcome.unwrap_or_else(|refusal| {
            let (msn, ssn) = (self.una.next(), None);
            self.set_fatal(Fatal { msn, refusal, ssn });
            Answer::Error(nak_of(refusal).0)
        });
        let slot = self.newest;
        self.newest = slot.wrapping_add(1);
        if let Some(place) = self.response_slot(slot) {
            *place = Some(Response {
                rid: o.rid,
                target: msg.remote,
                answer,
                total: msg.total,
                sent: 0,
                unresolved: 0,
                sent_all: false,
                attempt: 0,
                cut: false,
                pending: true,
            });
        }
    }

    fn response_slot(&mut self, slot: u32) -> Option<&mut Option<Response<T>>> {
        let mask = self.responses.len().wrapping_sub(1);
        self.responses.get_mut(slot as usize & mask)
    }

    fn response(&self, slot: u32) -> Option<&Response<T>> {
        if slot.wrapping_sub(self.oldest) >= self.newest.wrapping_sub(self.oldest) {
            return None;
        }
        let mask = self.responses.len().wrapping_sub(1);
        self.responses.get(slot as usize & mask)?.as_ref()
    }

    fn response_mut(&mut self, slot: u32) -> Option<&mut Response<T>> {
        if slot.wrapping_sub(self.oldest) >= self.newest.wrapping_sub(self.oldest) {
            return None;
        }
        self.response_slot(slot)?.as_mut()
    }

    /// The next piece of a response, of at most `max` bytes. Books it as unresolved.
    pub(crate) fn next_piece(&mut self, max: u32) -> Option<Piece> {
        while self.cursor != self.newest {
            let slot = self.cursor;
            match self.response_mut(slot) {
                Some(r) if !r.sent_all => {
                    let offset = r.sent;
                    let len = match r.answer {
                        Answer::Read => r.total.saturating_sub(offset).min(max),
                        _ => 0,
                    };
                    r.sent = offset.saturating_add(len);
                    r.unresolved = r.unresolved.saturating_add(1);
                    let attempt = r.attempt;
                    let all = r.answer != Answer::Read || r.sent >= r.total;
                    if all && r.end_attempt() {
                        self.pending = self.pending.saturating_sub(1);
                    }
                    return Some(Piece {
                        index: slot,
                        offset,
                        len,
                        attempt,
                    });
                }
                _ => self.cursor = slot.wrapping_add(1),
            }
        }
        None
    }

    /// The packet for a piece.
    pub(crate) fn describe(&self, piece: &Piece) -> Option<ResponsePacket<'_, T>> {
        let r = self.response(piece.index)?;
        let mut operands = Operands::default();
        let (op, source) = match r.answer {
            Answer::Read => (Op::ReadResp, r.target.as_ref()),
            Answer::Atomic(original) => {
                operands.compare = original;
                (Op::AtomicResp, None)
            }
            Answer::Done => (Op::Done, None),
            Answer::Error(reason) => {
                operands.imm = u32::from(reason.to_wire());
                (Op::RespError, None)
            }
        };
        let data = Data {
            op,
            dst_qpn: 0,
            src_qpn: 0,
            attempt: r.attempt,
            msn: r.rid,
            total: if op == Op::ReadResp { r.total } else { 0 },
            offset: if op == Op::ReadResp { piece.offset } else { 0 },
            solicited: false,
            operands,
            header_len: 0,
            payload_len: 0,
        };
        Some(ResponsePacket { data, source })
    }

    /// A piece is too large for its route: the response is sent again, in smaller pieces.
    pub(crate) fn on_cut(&mut self, slot: u32) {
        let Some(r) = self.response_mut(slot) else {
            return;
        };
        r.cut = true;
        if r.end_attempt() {
            self.pending = self.pending.saturating_sub(1);
        }
        self.on_acked(slot);
    }

    /// A piece has arrived at the requester, or was given up.
    pub(crate) fn on_acked(&mut self, slot: u32) {
        let (oldest, cursor) = (self.oldest, self.cursor);
        if let Some(r) = self.response_mut(slot) {
            r.unresolved = r.unresolved.saturating_sub(1);
            if r.cut && r.unresolved == 0 {
                r.cut = false;
                r.attempt = r.attempt.wrapping_add(1);
                r.sent = 0;
                r.sent_all = false;
                if slot.wrapping_sub(oldest) < cursor.wrapping_sub(oldest) {
                    self.cursor = slot;
                }
            }
        }
        while self.oldest != self.newest {
            let oldest = self.oldest;
            let done = self
                .response(oldest)
                .is_none_or(|r| r.sent_all && r.unresolved == 0 && !r.cut);
            if !done {
                break;
            }
            if let Some(place) = self.response_slot(oldest) {
                *place = None;
            }
            self.oldest = oldest.wrapping_add(1);
        }
    }

    /// The memory of a response cannot be read any more: from now on it is an error.
    pub(crate) fn on_fault(&mut self, slot: u32) {
        if let Some(r) = self.response_mut(slot) {
            r.answer = Answer::Error(NakReason::Access);
            if r.end_attempt() {
                self.pending = self.pending.saturating_sub(1);
            }
        }
        let msn = self.una;
        self.set_fatal(Fatal {
            msn,
            refusal: Refusal::Access,
            ssn: None,
        });
    }

    /// Whether a response has something left to send.
    pub(crate) fn has_work(&self) -> bool {
        self.cursor != self.newest
    }
}

fn nak_of(refusal: Refusal) -> Nak {
    match refusal {
        Refusal::Rnr { timer } => (NakReason::Rnr, timer),
        Refusal::NotReady => (NakReason::NotReady, 0),
        Refusal::Length | Refusal::InvalidRequest => (NakReason::InvalidRequest, 0),
        Refusal::Access => (NakReason::Access, 0),
        Refusal::Operation => (NakReason::Operation, 0),
    }
}
