// SPDX-License-Identifier: GPL-2.0

//! Queue pairs as the data path sees them.
//!
//! Methods marked "softirq" run in softirq context, or in process context with bottom halves
//! disabled, under the lock of the connection that the QP is attached to.

use super::{
    cq::{Cq, Wake},
    dev::Device,
    key, limits,
    mr::{Access, Mr},
    mw::{self, Mw, Resolved},
    qp_modify::Attrs,
    recv_queue::{Mismatch, RecvQueue},
    send_queue::{Context, LocalOp, SendQueue},
    srq::{SharedRecv, Srq, Taken},
    Transport,
};
use crate::{
    abi,
    engine::{
        AtomicOp, Flush, Opcode, RecvDone, Refusal, RemoteAccess, Request, StreamError, WcStatus,
        WqeId,
    },
    new_spinlock_bh,
    rdma::{QpCap, QpEvent, QpHandle, QpState, QpType},
    sync::{pr_warn_limited, PageSlice, SpinLockBh},
    BoundTransport,
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            ordering::{Acquire, Full, Relaxed, Release},
            Atomic,
        },
        barrier::{smp_mb, Full as ReadWrite},
        Arc, Mutex,
    },
};

pub(crate) use super::send_queue::Segment;

type Link = <BoundTransport as Transport>::Link;

/// What a message under reception writes to, or a READ reads from.
pub enum Target {
    /// No memory: a remote operation of length 0.
    Empty,
    /// The matched receive of that number.
    Recv {
        /// Number of the receive.
        ssn: u32,
    },
    /// A message of an unreliable QP for which no receive was posted: it is dropped.
    Lost {
        /// Number of the message.
        ssn: u32,
    },
    /// A receive taken from a shared queue.
    Shared(KBox<SharedRecv>),
    /// Part of a region.
    Remote {
        /// The region.
        mr: Arc<Mr>,
        /// Bytes from its start.
        offset: u64,
        /// Number of bytes.
        len: u32,
    },
    /// Part of the region behind a window.
    Window {
        /// The window.
        mw: Arc<Mw>,
        /// Where, under which binding.
        at: Resolved,
        /// Number of bytes.
        len: u32,
    },
}

/// Where receives come from.
pub(super) enum Receives {
    /// The QP's own queue.
    Own(RecvQueue),
    /// A shared queue, and what was taken from it.
    Shared(Arc<Srq>, Taken),
}

/// A queue pair.
#[pin_data]
pub struct Qp {
    qpn: u32,
    qp_type: QpType,
    /// Unlike the number, never given to another QP: windows belong to it.
    id: u64,
    pd: u32,
    dev: Arc<Device>,
    handle: Arc<QpHandle>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    signal_all: bool,
    cap: QpCap,
    /// `QpState::as_raw`. Softirq only ever sets it to ERR; all else happens under `attrs`.
    state: Atomic<u32>,
    /// Nothing is received any more: the receives may be flushed.
    stopped: Atomic<u32>,
    /// `access` bits of what peers may do.
    access: Atomic<u32>,
    max_rd_atomic: Atomic<u32>,
    min_rnr_timer: Atomic<u32>,
    dest_qpn: Atomic<u32>,
    /// Of a datagram QP.
    pub(super) qkey: Atomic<u32>,
    comm_est: Atomic<u32>,
    /// The event was raised.
    last_wqe: Atomic<u32>,
    /// Whether to tell when SQD has drained.
    sqd_notify: Atomic<u32>,
    #[pin]
    pub(super) attrs: Mutex<Attrs>,
    #[pin]
    sq: SpinLockBh<SendQueue>,
    #[pin]
    rq: SpinLockBh<Receives>,
    #[pin]
    link: SpinLockBh<Option<Link>>,
}

/// Parts of a new QP.
pub(super) struct QpParts {
    pub(super) qp_type: QpType,
    pub(super) pd: u32,
    pub(super) dev: Arc<Device>,
    pub(super) handle: Arc<QpHandle>,
    pub(super) send_cq: Arc<Cq>,
    pub(super) recv_cq: Arc<Cq>,
    pub(super) signal_all: bool,
    pub(super) cap: QpCap,
    pub(super) sq: SendQueue,
    pub(super) rq: Receives,
}

static NEXT_ID: Atomic<u64> = Atomic::new(1);

/// `enum ib_wc_status` of an engine status.
fn wc_status(status: WcStatus) -> u32 {
    use crate::rdma::WcStatus as Raw;
    match status {
        WcStatus::Success => Raw::Success,
        WcStatus::LocLenErr => Raw::LocLenErr,
        WcStatus::LocQpOpErr => Raw::LocQpOpErr,
        WcStatus::LocProtErr => Raw::LocProtErr,
        WcStatus::WrFlushErr => Raw::WrFlushErr,
        WcStatus::MwBindErr => Raw::MwBindErr,
        WcStatus::BadRespErr => Raw::BadRespErr,
        WcStatus::LocAccessErr => Raw::LocAccessErr,
        WcStatus::RemInvReqErr => Raw::RemInvReqErr,
        WcStatus::RemAccessErr => Raw::RemAccessErr,
        WcStatus::RemOpErr => Raw::RemOpErr,
        WcStatus::RetryExcErr => Raw::RetryExcErr,
        WcStatus::RnrRetryExcErr => Raw::RnrRetryExcErr,
    }
    .as_raw()
}

impl Qp {
    pub(super) fn new(qpn: u32, parts: QpParts) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                qpn,
                qp_type: parts.qp_type,
                id: NEXT_ID.fetch_add(1, Relaxed),
                pd: parts.pd,
                dev: parts.dev,
                handle: parts.handle,
                send_cq: parts.send_cq,
                recv_cq: parts.recv_cq,
                signal_all: parts.signal_all,
                cap: parts.cap,
                state: Atomic::new(QpState::Reset.as_raw()),
                stopped: Atomic::new(0),
                access: Atomic::new(0),
                max_rd_atomic: Atomic::new(0),
                min_rnr_timer: Atomic::new(0),
                dest_qpn: Atomic::new(0),
                qkey: Atomic::new(0),
                comm_est: Atomic::new(0),
                last_wqe: Atomic::new(0),
                sqd_notify: Atomic::new(0),
                attrs <- new_mutex!(Attrs::default(), "metaroce qp attrs"),
                sq <- new_spinlock_bh!(parts.sq, "metaroce sq"),
                rq <- new_spinlock_bh!(parts.rq, "metaroce rq"),
                link <- new_spinlock_bh!(None, "metaroce qp link"),
            }),
            GFP_KERNEL,
        )
    }

    /// Number, 24 bits.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Transport service.
    pub(super) fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// Protection domain.
    pub(super) fn pd(&self) -> u32 {
        self.pd
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.dev
    }

    /// Number of the connected QP.
    pub fn dest_qpn(&self) -> u32 {
        self.dest_qpn.load(Relaxed)
    }

    /// State now; softirq may move it to ERR at any time.
    pub fn state(&self) -> QpState {
        QpState::from_raw(self.state.load(Acquire)).unwrap_or(QpState::Err)
    }

    /// Sizes.
    pub(super) fn cap(&self) -> QpCap {
        self.cap
    }

    /// Whether each send request reports its completion.
    pub(super) fn signal_all(&self) -> bool {
        self.signal_all
    }

    /// Moves from `from` to `to`, unless an error came first.
    pub(super) fn change_state(&self, from: QpState, to: QpState) -> Result {
        self.state
            .cmpxchg(from.as_raw(), to.as_raw(), Full)
            .map(|_| ())
            .map_err(|_| EINVAL)
    }

    /// Makes the attributes that softirq needs known.
    pub(super) fn publish(&self, attrs: &Attrs) {
        self.access.store(attrs.access_flags, Relaxed);
        self.max_rd_atomic
            .store(attrs.max_rd_atomic.into(), Relaxed);
        self.min_rnr_timer
            .store(attrs.min_rnr_timer.into(), Relaxed);
        self.dest_qpn.store(attrs.dest_qpn, Relaxed);
        self.qkey.store(attrs.qkey, Relaxed);
    }

    /// Asks for an event when the send queue has drained.
    pub(super) fn set_sqd_notify(&self, on: bool) {
        self.sqd_notify.store(on.into(), Relaxed);
    }

    // The transport's link.

    /// Runs `f` on what the transport hung on the QP. Any context; below the lock held come only
    /// those of the queues.
    pub fn link<R>(&self, f: impl FnOnce(Option<&Link>) -> R) -> R {
        f(self.link.lock().as_ref())
    }

    /// Connects the QP.
    pub fn set_link(&self, link: Link) {
        let old = self.link.lock().replace(link);
        drop(old);
    }

    /// Disconnects the QP.
    pub fn take_link(&self) -> Option<Link> {
        self.link.lock().take()
    }

    // Requester.

    /// The next send request. Softirq.
    pub fn pull_request(&self) -> Option<Request> {
        let cx = Context {
            dev: &self.dev,
            pd: self.pd,
            reads: self.max_rd_atomic.load(Relaxed) != 0,
            signal_all: self.signal_all,
        };
        let mut sq = self.sq.lock();
        // Under the lock: once it is SQD and the queue was seen drained, nothing is pulled any more.
        if self.state() != QpState::Rts {
            return None;
        }
        sq.pull(&cx)
    }

    /// Carries out a local operation, which is pulled and next in order. Softirq.
    pub fn execute_local(&self, wqe: WqeId) -> WcStatus {
        let op = self.sq.lock().local_op(wqe);
        let result = match op {
            LocalOp::None => return WcStatus::LocQpOpErr,
            LocalOp::Bind(bind) => mw::bind(&self.dev, self.pd, self.id, &bind),
            LocalOp::Invalidate { key } => {
                mw::invalidate(&self.dev, self.pd, self.id, key).ok_or("no such key of this QP")
            }
        };
        match result {
            Ok(()) => WcStatus::Success,
            Err(why) => {
                pr_warn_limited!("QP {:#x}: {:?} failed: {}\n", self.qpn, op, why);
                WcStatus::MwBindErr
            }
        }
    }

    /// A pulled request is over. Softirq.
    pub fn complete_request(&self, wqe: WqeId, status: WcStatus, _byte_len: u32) {
        if status != WcStatus::Success {
            // IB specification 10.7.2.2: a completion error moves an RC QP to the error state, and
            // stops the send queue of others.
            if !self.is_datagram() {
                self.state.store(QpState::Err.as_raw(), Release);
            } else if status != WcStatus::WrFlushErr {
                let _ = self.change_state(QpState::Rts, QpState::Sqe);
            }
        }
        let mut wake = Wake::default();
        let mut sq = self.sq.lock();
        if let Some(mut cqe) = sq.complete(wqe, status, self.signal_all) {
            cqe.status = wc_status(status);
            cqe.qp_num = self.qpn;
            wake = self.send_cq.push(&cqe, false, &self.handle);
        }
        let drained = sq.is_idle();
        drop(sq);
        self.send_cq.wake(wake);
        if drained {
            match self.state() {
                QpState::Err | QpState::Sqe => self.flush_sends(),
                QpState::Sqd => self.drained(),
                _ => (),
            }
        }
    }

    /// Tells that the send queue has drained, once, if asked to.
    fn drained(&self) {
        if self.sqd_notify.xchg(0, Full) != 0 {
            self.handle.event(QpEvent::SendQueueDrained);
        }
    }

    /// After a change to SQD.
    pub(super) fn check_drained(&self) {
        if self.is_drained() {
            self.drained();
        }
    }

    /// Whether no send request is under way.
    pub(super) fn is_drained(&self) -> bool {
        self.sq.lock().is_idle()
    }

    /// What a pulled request says about the destination of a datagram.
    pub(super) fn ud_operands(&self, wqe: WqeId) -> [u64; 2] {
        self.sq.lock().operands(wqe)
    }

    /// Starts the send queue again after an error.
    pub(super) fn restart_sends(&self) {
        self.sq.lock().restart();
    }

    /// Lends bytes `offset..offset + len` of the message of a pulled request, in order. Softirq.
    pub fn send_segments(
        &self,
        wqe: WqeId,
        offset: u32,
        len: u32,
        mut f: impl FnMut(Segment<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.sq.lock().gather(wqe, offset, len, &mut f)
    }

    /// Lends the memory for bytes `offset..offset + len` of the answer to a READ or an atomic.
    /// Softirq.
    pub fn response_segments(
        &self,
        wqe: WqeId,
        offset: u32,
        len: u32,
        mut f: impl FnMut(PageSlice<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.sq.lock().scatter(wqe, offset, len, &mut f)
    }

    /// Stores what an atomic found. Softirq.
    pub fn place_atomic(&self, wqe: WqeId, original: u64) -> Result<(), Refusal> {
        let bytes = original.to_ne_bytes();
        let mut at: usize = 0;
        self.response_segments(wqe, 0, 8, |part| {
            let rest = bytes.get(at..).unwrap_or(&[]);
            at = at.saturating_add(part.write(rest));
            Ok(())
        })
    }

    // Responder.

    fn may_receive(&self) -> Result<(), Refusal> {
        match self.state() {
            QpState::Rts | QpState::Sqd | QpState::Sqe => Ok(()),
            QpState::Rtr => {
                // IB specification 11.6.3.1: the first message while in RTR.
                if !self.is_datagram() && self.comm_est.xchg(1, Full) == 0 {
                    self.handle.event(QpEvent::CommunicationEstablished);
                }
                Ok(())
            }
            _ => Err(Refusal::NotReady),
        }
    }

    /// Whether a message waits for its receive, instead of being dropped.
    fn is_reliable(&self) -> bool {
        self.qp_type != QpType::Uc
    }

    fn rnr(&self) -> Refusal {
        Refusal::Rnr {
            timer: (self.min_rnr_timer.load(Relaxed) & 31) as u8,
        }
    }

    /// A receive for message `ssn` of `total_len` bytes. Softirq.
    pub fn match_recv(&self, ssn: u32, total_len: u32) -> Result<Target, Refusal> {
        self.may_receive()?;
        let matched = match &mut *self.rq.lock() {
            Receives::Own(rq) => {
                let number = rq.receive_of(ssn);
                let matched = rq.match_recv(&self.dev, self.pd, number, total_len);
                if matched == Err(Mismatch::NotPosted) && !self.is_reliable() {
                    rq.lose(ssn);
                }
                matched.map(|()| Target::Recv { ssn: number })
            }
            Receives::Shared(srq, taken) => self.take_shared(srq, taken, ssn, total_len),
        };
        match matched {
            Ok(target) => Ok(target),
            Err(Mismatch::NotPosted) if !self.is_reliable() => Ok(Target::Lost { ssn }),
            Err(Mismatch::NotPosted) => Err(self.rnr()),
            Err(Mismatch::TooLong) => Err(Refusal::Length),
            Err(Mismatch::Broken) => Err(Refusal::Operation),
        }
    }

    fn take_shared(
        &self,
        srq: &Srq,
        taken: &mut Taken,
        ssn: u32,
        need: u32,
    ) -> Result<Target, Mismatch> {
        match taken.failed {
            // Asked again, or about a later message of a stream that fails.
            Some((failed, _, why)) if failed == ssn => return Err(why),
            Some(_) => return Err(Mismatch::NotPosted),
            None => (),
        }
        taken.reserve().map_err(|_| Mismatch::NotPosted)?;
        let room = KBox::<SharedRecv>::new_uninit(GFP_ATOMIC).map_err(|_| Mismatch::NotPosted)?;
        match srq.take(&self.dev, ssn, need) {
            Ok(recv) => {
                taken.add(ssn, recv.wr_id);
                Ok(Target::Shared(KBox::write(room, recv)))
            }
            Err((_, Mismatch::NotPosted)) => Err(Mismatch::NotPosted),
            Err((wr_id, why)) => {
                taken.failed = Some((ssn, wr_id, why));
                Err(why)
            }
        }
    }

    /// Whether the peer may invalidate a key with its message (IB specification 10.6.5). Softirq.
    pub fn match_invalidate(&self, rkey: u32) -> Result<(), Refusal> {
        self.may_receive()?;
        let mw = self.dev.mw(rkey).ok_or(Refusal::Access)?;
        match mw.may_invalidate(self.pd, self.id, rkey) {
            true => Ok(()),
            false => Err(Refusal::Access),
        }
    }

    /// Checks a whole remote operation (IB specification 9.7.4.1.3 and 9.7.5.2.3). Softirq.
    pub fn match_remote(
        &self,
        what: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<Target, Refusal> {
        self.may_receive()?;
        if !self.is_reliable() && what != RemoteAccess::Write {
            return Err(Refusal::InvalidRequest);
        }
        if !Access::from_bits(self.access.load(Relaxed)).allows(what) {
            return Err(Refusal::InvalidRequest);
        }
        let atomic = matches!(what, RemoteAccess::Atomic | RemoteAccess::AtomicWrite);
        if atomic && va % 8 != 0 {
            return Err(Refusal::InvalidRequest);
        }
        if len > limits::MAX_MSG_SIZE {
            return Err(Refusal::InvalidRequest);
        }
        let flush = match what {
            RemoteAccess::Flush(how) => Some(how),
            _ => None,
        };
        if len == 0 && flush.is_none() {
            // The key of an empty operation is not checked (C9-88).
            return Ok(Target::Empty);
        }
        if key::names_window(rkey) {
            let mw = self.dev.mw(rkey).ok_or(Refusal::Access)?;
            let at = mw
                .resolve(self.pd, self.id, what, rkey, va, len)
                .ok_or(Refusal::Access)?;
            return Ok(Target::Window { mw, at, len });
        }
        let mr = self.dev.mr(rkey).ok_or(Refusal::Access)?;
        if mr.pd() != self.pd || !mr.access().allows(what) {
            return Err(Refusal::Access);
        }
        let offset = match flush {
            Some(how) if how.whole => 0,
            _ => mr.offset_of(va, len.into()).ok_or(Refusal::Access)?,
        };
        Ok(Target::Remote { mr, offset, len })
    }

    /// Lends the memory of bytes `offset..offset + len` of a target, in order, for writing into it
    /// or, of a READ's target, for reading from it. Softirq.
    pub fn target_segments(
        &self,
        target: &Target,
        offset: u32,
        len: u32,
        mut f: impl FnMut(PageSlice<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        match target {
            Target::Empty if len == 0 => Ok(()),
            Target::Empty | Target::Lost { .. } => Err(Refusal::InvalidRequest),
            Target::Recv { ssn } => match &*self.rq.lock() {
                Receives::Own(rq) => rq.scatter(*ssn, offset, len, &mut f),
                Receives::Shared(..) => Err(Refusal::Operation),
            },
            Target::Shared(recv) => recv.scatter(offset, len, &mut f),
            Target::Remote {
                mr,
                offset: start,
                len: total,
            } => {
                let end = offset.checked_add(len).ok_or(Refusal::InvalidRequest)?;
                if end > *total {
                    return Err(Refusal::InvalidRequest);
                }
                let at = start.saturating_add(u64::from(offset));
                mr.segments(at, u64::from(len), &mut f)
            }
            Target::Window { mw, at, len: total } => {
                let end = offset.checked_add(len).ok_or(Refusal::InvalidRequest)?;
                if end > *total {
                    return Err(Refusal::InvalidRequest);
                }
                mw.segments(at, offset, len, &mut f)
            }
        }
    }

    /// Executes an atomic on a target of 8 bytes. Softirq.
    pub fn atomic(&self, target: &Target, op: AtomicOp) -> Result<u64, Refusal> {
        let mut found = None;
        self.target_segments(target, 0, 8, |part| {
            // Aligned by `match_remote` in the peer's terms; what counts is the page.
            found = match op {
                AtomicOp::CmpSwap { compare, swap } => part.compare_swap(compare, swap),
                AtomicOp::FetchAdd { add } => part.fetch_add(add),
                AtomicOp::Write { value } => part
                    .store(u64::from_ne_bytes(value.to_be_bytes()))
                    .then_some(0),
            };
            found.map(|_| ()).ok_or(Refusal::InvalidRequest)
        })?;
        found.ok_or(Refusal::InvalidRequest)
    }

    /// Executes a FLUSH. Softirq.
    ///
    /// Writes are copies by a CPU, and all earlier ones are over: all that is left to do for global
    /// visibility is a barrier. Persistence is never granted, see [`match_remote`](Self::match_remote).
    pub fn flush_target(&self, target: &Target, how: Flush) -> Result<(), Refusal> {
        match target {
            Target::Remote { mr, .. } if mr.is_registered() && !how.persistent => {
                smp_mb(ReadWrite);
                Ok(())
            }
            _ => Err(Refusal::Access),
        }
    }

    /// A message that consumed a receive is complete. Softirq.
    pub fn complete_recv(&self, target: Target, done: RecvDone) {
        let (opcode, flags, imm) = match done.opcode {
            Opcode::WriteImm => (
                abi::wc_opcode::RECV_RDMA_WITH_IMM,
                abi::wc_flags::WITH_IMM,
                done.imm.to_be(),
            ),
            Opcode::SendImm => (
                abi::wc_opcode::RECV,
                abi::wc_flags::WITH_IMM,
                done.imm.to_be(),
            ),
            Opcode::SendInv => (abi::wc_opcode::RECV, abi::wc_flags::WITH_INV, done.imm),
            _ => (abi::wc_opcode::RECV, 0, 0),
        };
        let cqe = abi::Cqe {
            opcode,
            byte_len: done.len,
            imm_data: imm,
            qp_num: self.qpn,
            src_qp: self.dest_qpn(),
            wc_flags: flags,
            ..abi::Cqe::default()
        };
        if done.opcode == Opcode::SendInv {
            // Allowed when the message was matched. If the key is not valid any more, all is well.
            let _ = mw::invalidate(&self.dev, self.pd, self.id, done.imm);
        }
        self.finish_recv(target, cqe, done.solicited);
    }

    /// The number of the own queue's oldest receive. Softirq.
    pub(super) fn next_recv(&self) -> Option<u32> {
        match &*self.rq.lock() {
            Receives::Own(rq) => Some(rq.oldest()),
            Receives::Shared(..) => None,
        }
    }

    /// Completes the receive of `target` with `cqe`, which lacks only its cookie. Softirq.
    pub(super) fn finish_recv(&self, target: Target, cqe: abi::Cqe, solicited: bool) {
        let mut rq = self.rq.lock();
        // A receive that is not there any more was flushed: the QP failed meanwhile.
        let wr_id = match (&mut *rq, &target) {
            (Receives::Own(rq), Target::Lost { ssn }) => {
                rq.settle(*ssn);
                None
            }
            (Receives::Own(rq), Target::Recv { ssn }) if rq.oldest() == *ssn => rq.complete_next(),
            (Receives::Shared(_, taken), Target::Shared(recv)) => {
                taken.remove(recv.ssn).then_some(recv.wr_id)
            }
            _ => None,
        };
        let Some(wr_id) = wr_id else {
            return;
        };
        let wake = self
            .recv_cq
            .push(&abi::Cqe { wr_id, ..cqe }, solicited, &self.handle);
        drop(rq);
        self.recv_cq.wake(wake);
    }

    /// The stream failed: the QP goes to ERR. Softirq. What the engine still holds of the send
    /// queue is flushed by it, in [`complete_request`](Self::complete_request).
    pub fn stream_error(&self, error: StreamError) {
        self.state.store(QpState::Err.as_raw(), Release);
        match error {
            StreamError::Requester(_) => (),
            StreamError::Responder { refusal, ssn } => {
                let status = match refusal {
                    Refusal::Length => WcStatus::LocLenErr,
                    Refusal::Access => WcStatus::LocAccessErr,
                    _ => WcStatus::LocProtErr,
                };
                let event = match refusal {
                    Refusal::Access => Some(QpEvent::AccessError),
                    Refusal::InvalidRequest => Some(QpEvent::RequestError),
                    _ => None,
                };
                match (event, ssn) {
                    (None, Some(ssn)) => self.fail_recv(ssn, status),
                    (Some(event), _) => self.handle.event(event),
                    (None, None) => self.handle.event(QpEvent::Fatal),
                }
            }
            StreamError::PeerRestarted => self.handle.event(QpEvent::Fatal),
        }
        self.stopped.store(1, Release);
        self.flush();
    }

    /// Completes receive `ssn`, the oldest one, with an error of its own.
    fn fail_recv(&self, ssn: u32, status: WcStatus) {
        let mut rq = self.rq.lock();
        let wr_id = match &mut *rq {
            Receives::Own(rq) if rq.oldest() == ssn => rq.complete_next(),
            Receives::Own(_) => None,
            Receives::Shared(_, taken) => taken.failed.take().map(|(_, wr_id, _)| wr_id),
        };
        let Some(wr_id) = wr_id else {
            return;
        };
        let wake = self.push_recv_error(wr_id, status);
        drop(rq);
        self.recv_cq.wake(wake);
    }

    fn push_recv_error(&self, wr_id: u64, status: WcStatus) -> Wake {
        self.recv_cq.push(
            &abi::Cqe {
                wr_id,
                status: wc_status(status),
                opcode: abi::wc_opcode::RECV,
                qp_num: self.qpn,
                src_qp: self.dest_qpn(),
                ..abi::Cqe::default()
            },
            true,
            &self.handle,
        )
    }

    // Errors.

    /// Moves the QP to ERR on behalf of the application. Process context.
    pub(super) fn enter_error(self: &Arc<Self>) {
        self.state.store(QpState::Err.as_raw(), Release);
        if self.link(|link| link.is_some()) {
            BoundTransport::fail(self);
        }
        self.stopped.store(1, Release);
        self.flush();
    }

    /// Moves the QP to ERR if one of its completion queues has overrun: completions were lost, or
    /// would be. Process context.
    pub(super) fn fail_overrun(self: &Arc<Self>) {
        if !self.send_cq.is_overrun() && !self.recv_cq.is_overrun() {
            return;
        }
        let _attrs = self.attrs.lock();
        if matches!(self.state(), QpState::Reset | QpState::Err) {
            return;
        }
        self.enter_error();
        // IB specification 11.6.3.2: no completion can tell of it.
        self.handle.event(QpEvent::Fatal);
    }

    /// Flushes what is posted and not in the engine's hands, in order (IB specification 10.3.1.7).
    /// Only in ERR. Any context.
    pub(super) fn flush(&self) {
        self.flush_sends();
        self.flush_recvs();
    }

    fn flush_sends(&self) {
        let mut wake = Wake::default();
        let mut sq = self.sq.lock();
        // Before looking: nobody comes back by himself any more.
        sq.arm();
        for _ in 0..sq.entries() {
            let Some(mut cqe) = sq.flush_next() else {
                break;
            };
            cqe.status = wc_status(WcStatus::WrFlushErr);
            cqe.qp_num = self.qpn;
            wake = wake.and(self.send_cq.push(&cqe, false, &self.handle));
        }
        drop(sq);
        self.send_cq.wake(wake);
    }

    fn flush_recvs(&self) {
        if self.stopped.load(Acquire) == 0 {
            return;
        }
        let mut wake = Wake::default();
        let mut rq = self.rq.lock();
        let last_wqe = match &mut *rq {
            Receives::Own(rq) => {
                // Before looking: what user space posts from now on it announces.
                rq.announce();
                for _ in 0..rq.entries() {
                    let Some(wr_id) = rq.complete_next() else {
                        break;
                    };
                    wake = wake.and(self.push_recv_error(wr_id, WcStatus::WrFlushErr));
                }
                false
            }
            Receives::Shared(_, taken) => {
                while let Some(wr_id) = taken.pop() {
                    wake = wake.and(self.push_recv_error(wr_id, WcStatus::WrFlushErr));
                }
                true
            }
        };
        drop(rq);
        self.recv_cq.wake(wake);
        if last_wqe && self.last_wqe.xchg(1, Full) == 0 {
            self.handle.event(QpEvent::LastWqeReached);
        }
    }

    /// Back to RESET. Process context, `attrs` held.
    pub(super) fn reset(self: &Arc<Self>) {
        self.state.store(QpState::Err.as_raw(), Release);
        if self.link(|link| link.is_some()) {
            BoundTransport::detach(self);
        }
        self.sq.lock().reset();
        let old = match &mut *self.rq.lock() {
            Receives::Own(rq) => {
                rq.reset();
                None
            }
            Receives::Shared(_, taken) => Some(core::mem::take(taken)),
        };
        drop(old);
        self.last_wqe.store(0, Relaxed);
        self.stopped.store(0, Relaxed);
        self.comm_est.store(0, Relaxed);
        self.sqd_notify.store(0, Relaxed);
        self.state.store(QpState::Reset.as_raw(), Release);
    }

    /// The end. Process context.
    pub(super) fn close(self: &Arc<Self>) {
        self.state.store(QpState::Err.as_raw(), Release);
        if self.link(|link| link.is_some()) {
            BoundTransport::detach(self);
        }
        self.dev.qps.remove(self.qpn);
        let sq = self.sq.lock().close();
        let rq = match &mut *self.rq.lock() {
            Receives::Own(rq) => Some(rq.close()),
            Receives::Shared(..) => None,
        };
        drop(sq);
        drop(rq);
    }

    /// User space rang the doorbell. Process context.
    pub(super) fn doorbell(self: &Arc<Self>) -> Result {
        match self.state() {
            QpState::Rts => {
                BoundTransport::kick(self);
                Ok(())
            }
            // Requests wait until the queue is started again.
            QpState::Sqd => Ok(()),
            QpState::Sqe => {
                self.flush_sends();
                Ok(())
            }
            QpState::Err => {
                self.flush();
                Ok(())
            }
            _ => Err(EINVAL),
        }
    }
}
