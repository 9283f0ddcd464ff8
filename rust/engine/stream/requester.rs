// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Sending half of a stream.
//!
//! Requests are pulled from the send queue into a ring and complete in the order of the ring. A
//! message is sent in pieces; it is done when all pieces are acknowledged (or, for READ and atomics, when
//! all of the response is here). A retryable refusal ends the *attempt*: when all its
//! pieces are resolved and the delay is over, the whole message is sent again under the next
//! attempt number. A fatal refusal of message k lets the earlier ones finish, completes k with the error
//! and flushes the rest.

use super::super::api::{
    Host, Opcode, Payload, Refusal, Request, RequesterAttr, Store, StreamError, WcStatus,
};
use super::super::seq::{Msn, ReqIdx};
use super::super::time::{Instant, Span};
use super::super::wire::{Data, NakReason, Op, Operands};
use super::Piece;

/// First delay after "not ready".
const NOT_READY_DELAY: Span = Span::from_micros(500);
/// A READ or atomic without answer is asked again after so long where the QP has no time-out.
const ASK_AGAIN: Span = Span::from_millis(500);
/// Longest delay after "not ready".
const NOT_READY_MAX: Span = Span::from_millis(50);

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
struct TxMsg {
    req: Request,
    msn: Msn,
    ssn: u32,
    /// Bytes of this attempt handed to paths.
    sent: u32,
    /// Bytes of the response placed.
    got: u32,
    /// Pieces handed to paths and not resolved.
    unresolved: u32,
    attempt: u8,
    /// Nothing (more) of this attempt is to be sent.
    sent_all: bool,
    /// The attempt was refused.
    refused: bool,
    /// The refusal of this attempt has been charged to the RNR budget.
    charged: bool,
    /// Counted in `reads`.
    reading: bool,
    /// Attempt of the response that `got` counts.
    response_attempt: u8,
    /// The response is complete; a local request has been executed.
    answered: bool,
    /// A first piece has been sent, in whatever attempt.
    begun: bool,
    /// An earlier message was refused for good: never to be sent again.
    flushed: bool,
}

impl TxMsg {
    fn is_done(&self) -> bool {
        match self.req.opcode {
            Opcode::Local => self.answered,
            op if op.expects_response() => self.answered,
            _ => self.sent_all && self.unresolved == 0 && !self.refused,
        }
    }
}

/// Sending half of a stream.
pub struct Requester<S: Store> {
    ring: S::Buf<TxMsg>,
    mask: u32,
    una: ReqIdx,
    cursor: ReqIdx,
    next: ReqIdx,
    next_msn: Msn,
    next_ssn: u32,
    /// READs and atomics begun and not answered.
    reads: u32,
    attr: RequesterAttr,
    ready: bool,
    dead: bool,
    pause_until: Option<Instant>,
    rnr_count: u8,
    not_ready_count: u8,
    not_ready_since: Option<Instant>,
    failing: Option<(ReqIdx, WcStatus)>,
    /// Since when there is something to wait for.
    waiting_since: Option<Instant>,
    progress_at: Instant,
}

impl<S: Store> Requester<S> {
    /// An idle half with room for `window` requests.
    pub(crate) fn new(window: u16) -> Result<Self, S::Error> {
        let n = u32::from(window)
            .clamp(4, super::STREAM_WINDOW)
            .next_power_of_two();
        Ok(Self {
            ring: S::buf(n as usize, |_| TxMsg::default())?,
            mask: n.wrapping_sub(1),
            una: ReqIdx::default(),
            cursor: ReqIdx::default(),
            next: ReqIdx::default(),
            next_msn: Msn::default(),
            next_ssn: 0,
            reads: 0,
            attr: RequesterAttr {
                timeout: Span::ZERO,
                retry_cnt: 0,
                rnr_retry: 0,
                max_rd_atomic: 1,
                first_msn: Msn::default(),
            },
            ready: false,
            dead: false,
            pause_until: None,
            rnr_count: 0,
            not_ready_count: 0,
            not_ready_since: None,
            failing: None,
            waiting_since: None,
            progress_at: Instant::default(),
        })
    }

    /// RTS.
    pub(crate) fn start(&mut self, attr: &RequesterAttr) {
        if !self.ready {
            self.next_msn = attr.first_msn;
        }
        self.attr = *attr;
        self.ready = true;
    }

    /// Requests pulled and not completed.
    pub(crate) fn outstanding(&self) -> u32 {
        self.next.distance(self.una)
    }

    /// Whether at least half of the ring is free: nothing waits for a request to complete.
    pub(crate) fn has_slack(&self) -> bool {
        self.outstanding() <= self.mask.wrapping_add(1) / 2
    }

    fn get(&self, idx: ReqIdx) -> Option<&TxMsg> {
        if !idx.within(self.una, self.outstanding()) {
            return None;
        }
        self.ring.get((idx.get() & self.mask) as usize)
    }

    fn get_mut(&mut self, idx: ReqIdx) -> Option<&mut TxMsg> {
        if !idx.within(self.una, self.outstanding()) {
            return None;
        }
        let at = (idx.get() & self.mask) as usize;
        self.ring.get_mut(at)
    }

    /// The doorbell was rung (or the send queue may be non-empty for another reason).
    pub(crate) fn on_kick(&mut self, now: Instant) {
        if self.waiting_since.is_none() && self.ready && !self.dead {
            self.waiting_since = Some(now);
        }
    }

    /// The next piece to be sent, of at most `max` bytes. Books it as unresolved.
    pub(crate) fn next_piece<H: Host>(
        &mut self,
        now: Instant,
        max: u32,
        window: u32,
        qp: &H::Qp,
        host: &mut H,
        raised: &mut Option<StreamError>,
    ) -> Option<Piece> {
        if !self.ready || self.dead || self.pause_until.is_some() {
            return None;
        }
        loop {
            if self.cursor == self.next {
                if self.failing.is_some() || !self.pull(now, window, qp, host) {
                    return None;
                }
                continue;
            }
            let cursor = self.cursor;
            if self.failing.is_some_and(|(at, _)| !cursor.precedes(at)) {
                return None;
            }
            let reads = self.reads;
            let limit = u32::from(self.attr.max_rd_atomic).max(1);
            let Some(msg) = self.get_mut(cursor) else {
                // Completed meanwhile (answered before the request was acknowledged).
                self.cursor = cursor.next();
                continue;
            };
            if msg.sent_all {
                self.cursor = cursor.next();
                continue;
            }
            if msg.req.opcode == Opcode::Local {
                let req = msg.req;
                if req.fence && cursor != self.una {
                    return None;
                }
                if let Some(error) = self.local(now, cursor, &req, qp, host) {
                    *raised = Some(error);
                    return None;
                }
                continue;
            }
            let responds = msg.req.opcode.expects_response();
            // Only the first time: later READs may depend on this message's second attempt.
            if !msg.begun {
                if (msg.req.fence && reads > 0) || (responds && reads >= limit) {
                    return None;
                }
                msg.begun = true;
                msg.reading = responds;
                if responds {
                    self.reads = reads.saturating_add(1);
                    if reads == 0 {
                        self.progress_at = now;
                    }
                }
            }
            let msg = self.get_mut(cursor)?;
            if responds {
                return Some(Self::whole(cursor, msg));
            }
            let offset = msg.sent;
            let len = msg.req.len.saturating_sub(offset).min(max);
            msg.sent = offset.saturating_add(len);
            msg.sent_all = msg.sent >= msg.req.len;
            msg.unresolved = msg.unresolved.saturating_add(1);
            return Some(Piece {
                index: cursor.get(),
                offset,
                len,
                attempt: msg.attempt,
            });
        }
    }

    /// The one piece of a READ or atomic request.
    fn whole(idx: ReqIdx, msg: &mut TxMsg) -> Piece {
        msg.sent_all = true;
        msg.unresolved = msg.unresolved.saturating_add(1);
        Piece {
            index: idx.get(),
            offset: 0,
            len: 0,
            attempt: msg.attempt,
        }
    }

    fn pull<H: Host>(&mut self, now: Instant, window: u32, qp: &H::Qp, host: &mut H) -> bool {
        let room = window.min(self.mask.wrapping_add(1));
        if self.outstanding() >= room {
            return false;
        }
        let Some(req) = host.pull_request(qp) else {
            if self.una == self.next {
                self.waiting_since = None;
            }
            return false;
        };
        if self.una == self.next {
            self.waiting_since = Some(now);
            self.progress_at = now;
        }
        let idx = self.next;
        self.next = idx.next();
        let msn = self.next_msn;
        let ssn = self.next_ssn;
        if req.opcode != Opcode::Local {
            self.next_msn = msn.next();
        }
        if req.opcode.consumes_receive() {
            self.next_ssn = ssn.wrapping_add(1);
        }
        if let Some(msg) = self.get_mut(idx) {
            *msg = TxMsg {
                req,
                msn,
                ssn,
                ..TxMsg::default()
            };
        }
        true
    }

    /// Executes a local request. Returns the error to be raised.
    fn local<H: Host>(
        &mut self,
        now: Instant,
        idx: ReqIdx,
        req: &Request,
        qp: &H::Qp,
        host: &mut H,
    ) -> Option<StreamError> {
        let status = match req.local {
            WcStatus::Success => host.execute_local(qp, req.wqe),
            error => error,
        };
        if let Some(msg) = self.get_mut(idx) {
            msg.sent_all = true;
            msg.answered = true;
        }
        if status != WcStatus::Success {
            self.fail_at(idx, status);
        }
        self.complete(now, qp, host)
    }

    /// The packet for a piece.
    pub(crate) fn describe(&self, index: u32, attempt: u8) -> Option<(Data, Request)> {
        let idx = ReqIdx::new(index);
        let msg = self.get(idx)?;
        if msg.attempt != attempt || self.failing.is_some_and(|(at, _)| !idx.precedes(at)) {
            return None;
        }
        let op = match msg.req.opcode {
            Opcode::Send => Op::Send,
            Opcode::SendImm => Op::SendImm,
            Opcode::SendInv => Op::SendInv,
            Opcode::Write => Op::Write,
            Opcode::WriteImm => Op::WriteImm,
            Opcode::Read => Op::Read,
            Opcode::CmpSwap => Op::CmpSwap,
            Opcode::FetchAdd => Op::FetchAdd,
            Opcode::AtomicWrite => Op::AtomicWrite,
            Opcode::Flush => Op::Flush,
            Opcode::Local => return None,
        };
        let r = &msg.req;
        let data = Data {
            op,
            dst_qpn: 0,
            src_qpn: 0,
            attempt,
            msn: msg.msn.get(),
            total: r.len,
            offset: 0,
            solicited: r.solicited,
            operands: Operands {
                ssn: msg.ssn,
                imm: r.imm,
                rkey: r.rkey,
                va: r.va,
                compare: r.compare,
                swap: r.swap,
                rid: index,
            },
            header_len: 0,
            payload_len: 0,
        };
        Some((data, *r))
    }

    /// A piece was placed by the peer.
    pub(crate) fn on_acked(&mut self, now: Instant, index: u32) {
        self.progress_at = now;
        self.not_ready_since = None;
        self.not_ready_count = 0;
        let pause = self.pause_until.is_some();
        let idx = ReqIdx::new(index);
        let Some(msg) = self.get_mut(idx) else { return };
        msg.unresolved = msg.unresolved.saturating_sub(1);
        if msg.unresolved == 0 {
            if msg.refused && !pause {
                self.restart(idx);
            } else if !msg.refused && msg.sent_all && msg.req.opcode.consumes_receive() {
                self.rnr_count = 0;
            }
        }
    }

    /// A piece was given up before it left.
    pub(crate) fn on_unsent(&mut self, index: u32) {
        if let Some(msg) = self.get_mut(ReqIdx::new(index)) {
            msg.unresolved = msg.unresolved.saturating_sub(1);
        }
    }

    /// A piece is too large for its route: the attempt is over, the next one is in smaller pieces.
    pub(crate) fn on_cut(&mut self, index: u32, attempt: u8) {
        let pause = self.pause_until.is_some();
        let idx = ReqIdx::new(index);
        let Some(msg) = self.get_mut(idx) else { return };
        msg.unresolved = msg.unresolved.saturating_sub(1);
        if msg.attempt != attempt || msg.answered {
            return;
        }
        msg.refused = true;
        msg.sent_all = true;
        if msg.unresolved == 0 && !pause {
            self.restart(idx);
        }
    }

    /// A piece was refused.
    pub(crate) fn on_nak(
        &mut self,
        now: Instant,
        index: u32,
        attempt: u8,
        reason: NakReason,
        timer: u8,
    ) {
        let idx = ReqIdx::new(index);
        let Some(msg) = self.get_mut(idx) else { return };
        msg.unresolved = msg.unresolved.saturating_sub(1);
        if msg.attempt != attempt || msg.answered {
            return;
        }
        let status = match reason {
            NakReason::Rnr | NakReason::NotReady => {
                let first = !msg.refused;
                msg.refused = true;
                msg.sent_all = true;
                if reason == NakReason::Rnr {
                    self.charge_rnr(idx);
                }
                if first {
                    let delay = match reason {
                        NakReason::Rnr => Span::from_rnr_code(timer),
                        _ => {
                            let n = self.not_ready_count;
                            self.not_ready_count = n.saturating_add(1);
                            if self.not_ready_since.is_none() {
                                self.not_ready_since = Some(now);
                            }
                            NOT_READY_DELAY.backed_off(n / 2, NOT_READY_MAX)
                        }
                    };
                    if self.pause_until.is_none() {
                        self.pause_until = Some(now.after(delay));
                    }
                } else if self.pause_until.is_none()
                    && self.get(idx).is_some_and(|m| m.unresolved == 0)
                {
                    self.restart(idx);
                }
                return;
            }
            // The refusal that matters is that of an earlier message; it is on its way.
            NakReason::Flushed => {
                msg.refused = true;
                msg.flushed = true;
                msg.sent_all = true;
                return;
            }
            NakReason::InvalidRequest => WcStatus::RemInvReqErr,
            NakReason::Access => WcStatus::RemAccessErr,
            NakReason::Operation => WcStatus::RemOpErr,
        };
        msg.refused = true;
        self.fail_at(idx, status);
    }

    /// Charges an RNR refusal to the budget if the message is the oldest that waits for a receive.
    fn charge_rnr(&mut self, idx: ReqIdx) {
        let mut i = self.una;
        while i != idx {
            if self
                .get(i)
                .is_some_and(|m| m.req.opcode.consumes_receive() && !m.is_done())
            {
                return;
            }
            i = i.next();
        }
        let Some(msg) = self.get_mut(idx) else { return };
        if msg.charged {
            return;
        }
        msg.charged = true;
        if self.attr.rnr_retry >= 7 {
            return;
        }
        if self.rnr_count >= self.attr.rnr_retry {
            self.fail_at(idx, WcStatus::RnrRetryExcErr);
        } else {
            self.rnr_count = self.rnr_count.saturating_add(1);
        }
    }

    /// Sends a message again from its start.
    fn restart(&mut self, idx: ReqIdx) {
        if self.failing.is_some_and(|(at, _)| !idx.precedes(at)) {
            return;
        }
        let Some(msg) = self.get_mut(idx) else { return };
        if msg.flushed {
            return;
        }
        if msg.is_done() {
            msg.refused = false;
            return;
        }
        msg.attempt = msg.attempt.wrapping_add(1);
        msg.sent = 0;
        msg.sent_all = false;
        msg.refused = false;
        msg.charged = false;
        if idx.precedes(self.cursor) {
            self.cursor = idx;
        }
    }

    fn restart_refused(&mut self) {
        let mut i = self.una;
        while i != self.next {
            if self.get(i).is_some_and(|m| m.refused && m.unresolved == 0) {
                self.restart(i);
            }
            i = i.next();
        }
    }

    /// Everything on its way is forgotten (the peer's end is a new one): all messages start again.
    pub(crate) fn rewind(&mut self) {
        let mut i = self.una;
        while i != self.next {
            if let Some(msg) = self.get_mut(i) {
                msg.unresolved = 0;
                if !msg.is_done() || (msg.sent > 0 && !msg.req.opcode.expects_response()) {
                    msg.refused = true;
                }
            }
            self.restart(i);
            i = i.next();
        }
        self.pause_until = None;
    }

    fn fail_at(&mut self, idx: ReqIdx, status: WcStatus) {
        match self.failing {
            Some((at, _)) if !idx.precedes(at) => {}
            _ => self.failing = Some((idx, status)),
        }
    }

    /// The request cannot be carried out for a local reason.
    pub(crate) fn fail_local(&mut self, index: u32, status: WcStatus) {
        let idx = ReqIdx::new(index);
        if self.get(idx).is_some() {
            self.fail_at(idx, status);
        }
    }

    /// Fails the oldest request; pulls one if there is none. For time-outs.
    fn fail_oldest<H: Host>(&mut self, now: Instant, qp: &H::Qp, host: &mut H, status: WcStatus) {
        if self.una == self.next {
            let Some(req) = host.pull_request(qp) else {
                self.waiting_since = None;
                return;
            };
            let idx = self.next;
            self.next = idx.next();
            if let Some(msg) = self.get_mut(idx) {
                *msg = TxMsg {
                    req,
                    sent_all: true,
                    refused: true,
                    ..TxMsg::default()
                };
            }
            self.progress_at = now;
        }
        self.failing = Some((self.una, status));
    }

    /// The peer has forgotten the stream: fails the oldest request, if there is one, and flushes the
    /// rest.
    pub(crate) fn fail_oldest_for_restart<H: Host>(
        &mut self,
        now: Instant,
        qp: &H::Qp,
        host: &mut H,
    ) {
        if self.ready && !self.dead {
            self.fail_oldest(now, qp, host, WcStatus::RetryExcErr);
            let _ = self.complete(now, qp, host);
        }
        self.dead = true;
    }

    /// Completes what is done, in order; when the failing request is the oldest, fails it and flushes the
    /// rest. Returns the error to be raised.
    pub(crate) fn complete<H: Host>(
        &mut self,
        now: Instant,
        qp: &H::Qp,
        host: &mut H,
    ) -> Option<StreamError> {
        while self.una != self.next {
            let una = self.una;
            let msg = self.get(una)?;
            if let Some((at, status)) = self.failing {
                if at == una {
                    host.complete_request(qp, msg.req.wqe, status, 0);
                    self.una = una.next();
                    self.flush(qp, host);
                    return Some(StreamError::Requester(status));
                }
            }
            if !msg.is_done() {
                return None;
            }
            let (wqe, len) = (msg.req.wqe, msg.req.len);
            host.complete_request(qp, wqe, WcStatus::Success, len);
            self.una = una.next();
            if self.cursor.precedes(self.una) {
                self.cursor = self.una;
            }
            self.waiting_since = Some(now);
        }
        None
    }

    /// Completes all pulled requests as flushed; the half is dead from then on.
    pub(crate) fn flush<H: Host>(&mut self, qp: &H::Qp, host: &mut H) {
        self.dead = true;
        self.pause_until = None;
        self.waiting_since = None;
        while self.una != self.next {
            if let Some(msg) = self.get(self.una) {
                host.complete_request(qp, msg.req.wqe, WcStatus::WrFlushErr, 0);
            }
            self.una = self.una.next();
        }
        self.cursor = self.next;
        self.failing = None;
    }

    /// A response packet.
    pub(crate) fn on_response<H: Host>(
        &mut self,
        now: Instant,
        data: &Data,
        payload: Payload,
        qp: &H::Qp,
        host: &mut H,
    ) {
        let idx = ReqIdx::new(data.msn);
        let Some(msg) = self.get_mut(idx) else { return };
        if !msg.reading || msg.answered || !msg.req.opcode.expects_response() {
            return;
        }
        let req = msg.req;
        let outcome = match (data.op, req.opcode) {
            (Op::ReadResp, Opcode::Read) => {
                let newer = data.attempt.wrapping_sub(msg.response_attempt);
                if newer >= 128 {
                    return;
                }
                if newer > 0 {
                    msg.response_attempt = data.attempt;
                    msg.got = 0;
                }
                let got = msg.got.saturating_add(payload.len);
                if data.total != req.len || got > req.len {
                    Err(WcStatus::BadRespErr)
                } else {
                    msg.got = got;
                    msg.answered = got == req.len;
                    if payload.len == 0 {
                        Ok(())
                    } else {
                        host.place_response(qp, req.wqe, data.offset, payload)
                            .map_err(local_status)
                    }
                }
            }
            (Op::AtomicResp, Opcode::CmpSwap | Opcode::FetchAdd) => {
                msg.answered = true;
                host.place_atomic(qp, req.wqe, data.operands.compare)
                    .map_err(local_status)
            }
            (Op::Done, Opcode::AtomicWrite | Opcode::Flush) => {
                msg.answered = true;
                Ok(())
            }
            (Op::RespError, _) => Err(
                match u8::try_from(data.operands.imm)
                    .ok()
                    .and_then(NakReason::from_wire)
                {
                    Some(NakReason::Access) => WcStatus::RemAccessErr,
                    Some(NakReason::InvalidRequest) => WcStatus::RemInvReqErr,
                    _ => WcStatus::RemOpErr,
                },
            ),
            _ => Err(WcStatus::BadRespErr),
        };
        self.progress_at = now;
        match outcome {
            Ok(()) => {
                if self.get(idx).is_some_and(|m| m.answered) {
                    self.reads = self.reads.saturating_sub(1);
                }
            }
            Err(status) => {
                self.fail_at(idx, status);
            }
        }
    }

    /// Time has passed: ends pauses, notices time-outs. `heard`: when the peer was last heard.
    /// Returns whether there may be something to send, and the error to be raised, if any.
    pub(crate) fn on_time<H: Host>(
        &mut self,
        now: Instant,
        heard: Instant,
        qp: &H::Qp,
        host: &mut H,
    ) -> (bool, Option<StreamError>) {
        if self.dead || !self.ready {
            return (false, None);
        }
        let mut woken = false;
        if self.pause_until.is_some_and(|at| at <= now) {
            self.pause_until = None;
            self.restart_refused();
            woken = true;
        }
        let budget = self.budget();
        let Some(waiting) = self.waiting_since else {
            return (woken, None);
        };
        let silent = now.since(heard.max(waiting)) >= budget;
        let absent = self
            .not_ready_since
            .is_some_and(|at| now.since(at) >= budget);
        if budget != Span::ZERO && (silent || absent) {
            self.fail_oldest(now, qp, host, WcStatus::RetryExcErr);
            return (woken, self.complete(now, qp, host));
        }
        // The responder took the request but does not answer: is it still there? Ask again under the
        // next attempt number; a responder that knows the request ignores it.
        let oldest = self.una;
        let unanswered = self.get(oldest).is_some_and(|m| {
            m.reading && !m.answered && m.sent_all && m.unresolved == 0 && !m.refused
        });
        if unanswered && now.since(self.progress_at) >= self.patience() {
            self.progress_at = now;
            self.restart(oldest);
            woken = true;
        }
        (woken, None)
    }

    /// After how long without progress a READ or atomic is asked again. Without a time-out too: the
    /// responder may have been restarted, which it can only tell when it is asked.
    fn patience(&self) -> Span {
        match self.attr.timeout {
            Span::ZERO => ASK_AGAIN,
            timeout => timeout,
        }
    }

    fn budget(&self) -> Span {
        self.attr
            .timeout
            .times(u64::from(self.attr.retry_cnt).saturating_add(1))
    }

    /// When [`Self::on_time`] is to be called.
    pub(crate) fn deadline(&self, heard: Instant) -> Option<Instant> {
        if self.dead || !self.ready {
            return None;
        }
        let mut at = self.pause_until;
        let budget = self.budget();
        if let (Some(waiting), true) = (self.waiting_since, budget != Span::ZERO) {
            at = Instant::earliest(at, Some(heard.max(waiting).after(budget)));
            if let Some(since) = self.not_ready_since {
                at = Instant::earliest(at, Some(since.after(budget)));
            }
        }
        if self.waiting_since.is_some() && self.reads > 0 {
            at = Instant::earliest(at, Some(self.progress_at.after(self.patience())));
        }
        at
    }
}

/// What a refusal by the requester's own memory means for its request.
fn local_status(refusal: Refusal) -> WcStatus {
    match refusal {
        Refusal::Length => WcStatus::LocLenErr,
        Refusal::Operation => WcStatus::LocQpOpErr,
        _ => WcStatus::LocProtErr,
    }
}
