// SPDX-License-Identifier: GPL-2.0

//! Queue pairs as the core sees them: creation, states, attributes.
//!
//! ```text
//!   RESET -> INIT -> RTR -> RTS <-> SQD
//!     ^        |      |      |       |        any -> RESET, any -> ERR
//!     +--------+------+------+-------+-> ERR   softirq: RTR, RTS, SQD -> ERR
//! ```
//!
//! A UC QP is an RC QP that drops messages for which no receive is posted, and has no READs and atomics. The
//! transport loses nothing, which the service allows.
//!
//! A datagram QP has no peer to connect to; an error of its send queue leads from RTS to SQE, from where
//! it goes back to RTS.
//!
//! Which transition needs and allows which attributes is table 91 of the IB specification (11.2.5.2),
//! as the core implements it; here the values are checked and the transition is carried out.

use super::{
    dev::{device_of, QP_ACCESS},
    limits,
    posters::Posters,
    qp::{Qp, QpParts, Receives},
    recv_queue::RecvQueue,
    ring::Ring,
    send_queue::SendQueue,
    srq::Taken,
    AddressVector, Driver, Transport,
};
use crate::{
    abi,
    engine::{seq::Msn, time::Span, RequesterAttr, StreamAttr},
    rdma::{
        self, modify_is_ok, AhValues, GidType, MmapEntry, Mtu, QpAttr, QpAttrOut, QpCap,
        QpInitAttr, QpMask, QpState, QpType, RecvWr, SendWr,
    },
    sync::pr_warn_limited,
    BoundTransport,
};
use core::mem::size_of;
use kernel::{prelude::*, sync::Arc};

/// What modify_qp sets and query_qp tells.
#[derive(Clone, Copy)]
pub(super) struct Attrs {
    pub(super) access_flags: u32,
    pub(super) max_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) dest_qpn: u32,
    max_dest_rd_atomic: u8,
    pub(super) qkey: u32,
    rq_psn: u32,
    sq_psn: u32,
    path_mtu: Mtu,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    port: u32,
    pkey_index: u16,
    ah: AhValues,
}

impl Default for Attrs {
    fn default() -> Self {
        Self {
            access_flags: 0,
            max_rd_atomic: 0,
            min_rnr_timer: 0,
            dest_qpn: 0,
            max_dest_rd_atomic: 0,
            qkey: 0,
            rq_psn: 0,
            sq_psn: 0,
            path_mtu: Mtu::B256,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            port: 1,
            pkey_index: 0,
            ah: AhValues::default(),
        }
    }
}

/// `why` unless `ok`.
fn require<E>(ok: bool, why: E) -> Result<(), E> {
    if ok {
        Ok(())
    } else {
        Err(why)
    }
}

impl Attrs {
    /// Takes over what `attr` has, checking each value's range. Says what is wrong.
    fn apply(&mut self, attr: &QpAttr<'_>) -> Result<(), &'static str> {
        let mask = attr.mask();
        if mask.contains(QpMask::PORT) {
            require(attr.port() == 1, "there is only port 1")?;
            self.port = 1;
        }
        if mask.contains(QpMask::PKEY_INDEX) {
            require(attr.pkey_index() == 0, "there is only P_Key 0")?;
        }
        if mask.contains(QpMask::ACCESS_FLAGS) {
            require(
                attr.access_flags() & !QP_ACCESS == 0,
                "unknown access flags",
            )?;
            self.access_flags = attr.access_flags();
        }
        if mask.contains(QpMask::QKEY) {
            self.qkey = attr.qkey();
        }
        if mask.contains(QpMask::AV) {
            self.ah = attr.ah().values();
            require(self.ah.port == 1, "there is only port 1")?;
        }
        if mask.contains(QpMask::PATH_MTU) {
            self.path_mtu = attr.path_mtu().ok_or("unknown path MTU")?;
        }
        if mask.contains(QpMask::TIMEOUT) {
            require(attr.timeout() < 32, "timeout above 31")?;
            self.timeout = attr.timeout();
        }
        if mask.contains(QpMask::RETRY_CNT) {
            require(attr.retry_cnt() <= 7, "retry_cnt above 7")?;
            self.retry_cnt = attr.retry_cnt();
        }
        if mask.contains(QpMask::RNR_RETRY) {
            require(attr.rnr_retry() <= 7, "rnr_retry above 7")?;
            self.rnr_retry = attr.rnr_retry();
        }
        if mask.contains(QpMask::RQ_PSN) {
            self.rq_psn = attr.rq_psn();
        }
        if mask.contains(QpMask::SQ_PSN) {
            self.sq_psn = attr.sq_psn();
        }
        if mask.contains(QpMask::MAX_QP_RD_ATOMIC) {
            require(
                attr.max_rd_atomic() <= limits::MAX_RD_ATOMIC,
                "max_rd_atomic above the limit",
            )?;
            self.max_rd_atomic = attr.max_rd_atomic();
        }
        if mask.contains(QpMask::MAX_DEST_RD_ATOMIC) {
            require(
                attr.max_dest_rd_atomic() <= limits::MAX_RD_ATOMIC,
                "max_dest_rd_atomic above the limit",
            )?;
            self.max_dest_rd_atomic = attr.max_dest_rd_atomic();
        }
        if mask.contains(QpMask::MIN_RNR_TIMER) {
            require(attr.min_rnr_timer() < 32, "min_rnr_timer above 31")?;
            self.min_rnr_timer = attr.min_rnr_timer();
        }
        if mask.contains(QpMask::DEST_QPN) {
            self.dest_qpn = attr.dest_qp_num();
        }
        Ok(())
    }
}

/// The core's queue pair.
pub struct QpObject {
    inner: Arc<Qp>,
    /// Of the send and the receive ring; the latter is `None` with a shared receive queue, both are for
    /// a kernel client.
    _maps: [Option<MmapEntry>; 2],
    /// A kernel client's.
    posters: Option<Pin<KBox<Posters>>>,
}

impl QpObject {
    /// The queue pair itself.
    pub fn inner(&self) -> &Arc<Qp> {
        &self.inner
    }

    /// Connects the QP to its peer: INIT to RTR.
    fn attach(&self, attrs: &Attrs, attr: &QpAttr<'_>) -> Result {
        let ah = attr.ah();
        let sgid = ah.sgid().filter(|sgid| sgid.gid_type() == GidType::RoceUdp);
        let Some(sgid) = sgid else {
            pr_warn_limited!(
                "QP {:#x} cannot be connected: its source is not a RoCE v2 GID\n",
                self.inner.qpn()
            );
            return Err(EINVAL);
        };
        let av = AddressVector {
            sgid: sgid.gid().0,
            dgid: attrs.ah.dgid.0,
            sgid_index: attrs.ah.sgid_index,
            hop_limit: attrs.ah.hop_limit,
            traffic_class: attrs.ah.traffic_class,
            flow_label: attrs.ah.flow_label,
            netdev: sgid.netdev().ok_or(ENODEV)?,
        };
        let stream = StreamAttr {
            local_qpn: self.inner.qpn(),
            remote_qpn: attrs.dest_qpn,
            first_msn: Msn::new(attrs.rq_psn),
            window: limits::STREAM_WINDOW,
            responses: attrs.max_dest_rd_atomic,
        };
        BoundTransport::attach(self.inner.device(), &self.inner, &av, &stream)
    }

    /// RTR to RTS, and changes of its attributes in SQD.
    fn start(&self, attrs: &Attrs) -> Result {
        // An unreliable QP has no attributes for this. It is told when its peer is gone, all the same.
        let unreliable = self.inner.qp_type() == QpType::Uc;
        let (timeout, retry_cnt) = match unreliable {
            true => UC_TIMEOUT,
            false => (attrs.timeout, attrs.retry_cnt),
        };
        let requester = RequesterAttr {
            timeout: match timeout {
                0 => Span::ZERO,
                code => Span::from_ack_timeout_code(code),
            },
            retry_cnt,
            rnr_retry: attrs.rnr_retry,
            max_rd_atomic: attrs.max_rd_atomic,
            first_msn: Msn::new(attrs.sq_psn),
        };
        BoundTransport::start_requester(&self.inner, &requester)
    }

    fn transition(&self, cur: QpState, next: QpState, attrs: &Attrs, attr: &QpAttr<'_>) -> Result {
        let qp = &self.inner;
        match (cur, next) {
            (_, QpState::Reset) => {
                qp.reset();
                if let Some(posters) = &self.posters {
                    posters.reset();
                }
                Ok(())
            }
            (QpState::Err, QpState::Err) => Ok(()),
            (_, QpState::Err) => {
                qp.enter_error();
                Ok(())
            }
            (QpState::Init, QpState::Rtr) if qp.is_datagram() => {
                qp.publish(attrs);
                BoundTransport::attach_datagram(qp.device(), qp)?;
                qp.change_state(cur, next)
            }
            (QpState::Rtr, QpState::Rts) if qp.is_datagram() => qp.change_state(cur, next),
            (QpState::Sqe, QpState::Rts) => {
                qp.restart_sends();
                qp.change_state(cur, next)?;
                BoundTransport::kick(qp);
                Ok(())
            }
            (QpState::Init, QpState::Rtr) => {
                qp.publish(attrs);
                qp.change_state(cur, next)?;
                self.attach(attrs, attr).inspect_err(|_| {
                    // Not connected, so nobody else can have changed the state.
                    let _ = qp.change_state(next, cur);
                })
            }
            (QpState::Rtr, QpState::Rts) => {
                qp.publish(attrs);
                qp.change_state(cur, next)?;
                self.start(attrs).inspect_err(|_| {
                    // Fails if an error came first; then the state is right already.
                    let _ = qp.change_state(next, cur);
                })
            }
            (QpState::Sqd, QpState::Rts) if qp.is_datagram() => {
                qp.change_state(cur, next)?;
                BoundTransport::kick(qp);
                Ok(())
            }
            (QpState::Sqd, QpState::Sqd | QpState::Rts) if !qp.is_datagram() => {
                qp.publish(attrs);
                qp.change_state(cur, next)?;
                BoundTransport::set_responses(qp, attrs.max_dest_rd_atomic);
                // In RTS, sending goes on.
                self.start(attrs)
            }
            (QpState::Rts, QpState::Sqd) => {
                qp.change_state(cur, next)?;
                qp.check_drained();
                Ok(())
            }
            (a, b) if a == b => Ok(()),
            (QpState::Reset, QpState::Init) => qp.change_state(cur, next),
            _ => Err(EINVAL),
        }
    }
}

#[vtable]
impl rdma::QpOps<Driver> for QpObject {
    fn create(
        new: &rdma::NewQp<'_, Driver>,
        attr: &mut QpInitAttr<'_>,
        udata: Option<rdma::Udata<'_>>,
    ) -> Result<Self> {
        let qp_type = attr.qp_type();
        let known = [QpType::Rc, QpType::Uc, QpType::Ud, QpType::Gsi];
        if !known.contains(&qp_type) || attr.create_flags() != 0 {
            return Err(EOPNOTSUPP);
        }
        // The GSI is the kernel's; there is one for each port.
        require(
            qp_type != QpType::Gsi || (udata.is_none() && attr.port() == 1),
            EINVAL,
        )?;
        let want = attr.cap();
        require(
            want.max_send_wr <= limits::MAX_QP_WR
                && want.max_recv_wr <= limits::MAX_QP_WR
                && want.max_send_sge <= limits::MAX_SGE
                && want.max_recv_sge <= limits::MAX_SGE
                && want.max_inline_data <= limits::MAX_INLINE,
            EINVAL,
        )?;
        let max_send_sge = want.max_send_sge.max(1);
        let max_recv_sge = want.max_recv_sge.max(1);
        let sge_bytes = |n: u32| (n as usize).saturating_mul(size_of::<abi::Sge>());
        let payload = sge_bytes(max_send_sge).max(want.max_inline_data as usize);
        let sq_ring = Ring::new(
            want.max_send_wr,
            size_of::<abi::SendWqe>().saturating_add(payload),
        )?;
        let srq = new.srq().map(|srq| srq.data().inner().clone());
        let rq_ring = match &srq {
            Some(_) => None,
            None => Some(Ring::new(
                want.max_recv_wr,
                size_of::<abi::RecvWqe>().saturating_add(sge_bytes(max_recv_sge)),
            )?),
        };
        let cap = QpCap {
            max_send_wr: sq_ring.entries(),
            max_recv_wr: rq_ring.as_ref().map_or(0, Ring::entries),
            max_send_sge,
            max_recv_sge,
            max_inline_data: want.max_inline_data,
        };

        let maps = match &udata {
            Some(udata) => {
                let ucontext = udata.ucontext(new.device()).ok_or(EINVAL)?;
                let map = |ring: &Ring| MmapEntry::new(ucontext, ring.mem().clone());
                [Some(map(&sq_ring)?), rq_ring.as_ref().map(map).transpose()?]
            }
            None => [None, None],
        };
        let info = |ring: Option<&Ring>, map: &Option<MmapEntry>| match (ring, map) {
            (Some(ring), Some(map)) => ring.info(map.offset()),
            _ => Ok(abi::RingInfo::default()),
        };
        let [sq_map, rq_map] = &maps;
        let resp = abi::CreateQpResp {
            sq: info(Some(&sq_ring), sq_map)?,
            rq: info(rq_ring.as_ref(), rq_map)?,
            max_inline: cap.max_inline_data,
            max_send_sge,
            max_recv_sge,
            reserved: 0,
        };

        let dev = device_of(new.device());
        let rings = (sq_ring.clone(), rq_ring.clone());
        let mut parts = Some(QpParts {
            qp_type,
            pd: new.pd().data().id(),
            dev: dev.clone(),
            handle: new.handle().clone(),
            send_cq: new.send_cq().ok_or(EINVAL)?.data().inner().clone(),
            recv_cq: new.recv_cq().ok_or(EINVAL)?.data().inner().clone(),
            signal_all: attr.signal_all(),
            cap,
            sq: SendQueue::new(sq_ring, max_send_sge, cap.max_inline_data)?,
            rq: match (rq_ring, srq) {
                (_, Some(srq)) => Receives::Shared(srq, Taken::default()),
                (Some(ring), None) => Receives::Own(RecvQueue::new(ring, max_recv_sge)?),
                (None, None) => return Err(EINVAL),
            },
        });
        let (qpn, inner) = if qp_type == QpType::Gsi {
            let qp = Qp::new(GSI_QPN, parts.take().ok_or(EBUSY)?)?;
            dev.qps.insert(GSI_QPN, qp.clone(), GFP_KERNEL)?;
            (GSI_QPN, qp)
        } else {
            loop {
                let made = dev.qps.insert_random(QPN_MASK, GFP_KERNEL, |qpn| {
                    // The last one stands for multicast.
                    if qpn <= GSI_QPN || qpn == QPN_MASK {
                        return Err(EAGAIN);
                    }
                    Qp::new(qpn, parts.take().ok_or(EBUSY)?)
                });
                match made {
                    Err(e) if e == EAGAIN => continue,
                    other => break other?,
                }
            }
        };
        let finish = || match &udata {
            Some(udata) => udata.respond(&resp).map(|()| None),
            None => Posters::new(&inner, rings.0, rings.1, cap).map(Some),
        };
        let posters = finish().inspect_err(|_| inner.close())?;
        let this = Self {
            inner,
            _maps: maps,
            posters,
        };
        new.set_qp_num(qpn);
        attr.set_cap(&cap);
        Ok(this)
    }

    fn modify(
        &self,
        _qp: &rdma::Qp<Driver>,
        attr: &QpAttr<'_>,
        udata: Option<rdma::Udata<'_>>,
    ) -> Result {
        if let Some(udata) = udata {
            udata.no_io()?;
        }
        let mask = attr.mask();
        if !mask.is_within(QpMask::STANDARD) {
            return Err(EOPNOTSUPP);
        }
        // No alternate paths (the transport has many of its own), no resizing.
        let none = [QpMask::ALT_PATH, QpMask::PATH_MIG_STATE, QpMask::CAP];
        if none.into_iter().any(|m| mask.contains(m)) {
            return Err(EOPNOTSUPP);
        }

        let mut attrs = self.inner.attrs.lock();
        let cur = self.inner.state();
        if attr.cur_state()?.is_some_and(|state| state != cur) {
            return Err(EINVAL);
        }
        let next = attr.state()?.unwrap_or(cur);
        let refused = |why: &str| {
            let qpn = self.inner.qpn();
            pr_warn_limited!(
                "QP {:#x} cannot go from {:?} to {:?}: {}\n",
                qpn,
                cur,
                next,
                why
            );
            EINVAL
        };
        require(
            modify_is_ok(cur, next, self.inner.qp_type(), mask),
            "an attribute is missing, or not allowed there",
        )
        .map_err(refused)?;

        let mut changed = *attrs;
        changed.apply(attr).map_err(refused)?;
        if mask.contains(QpMask::EN_SQD_ASYNC_NOTIFY) {
            self.inner.set_sqd_notify(attr.en_sqd_async_notify());
        }
        self.transition(cur, next, &changed, attr)
            .inspect_err(|_| self.inner.set_sqd_notify(false))?;
        *attrs = if next == QpState::Reset {
            Attrs::default()
        } else {
            changed
        };
        self.inner.publish(&attrs);
        Ok(())
    }

    fn query(&self, _qp: &rdma::Qp<Driver>, out: &mut QpAttrOut<'_>, _mask: QpMask) -> Result {
        let attrs = self.inner.attrs.lock();
        let state = self.inner.state();
        out.set_state(state)
            .set_path_mtu(attrs.path_mtu)
            .set_ah(&attrs.ah)
            .set_cap(&self.inner.cap())
            .set_signal_all(self.inner.signal_all())
            .set_access_flags(attrs.access_flags)
            .set_sq_draining(state == QpState::Sqd && !self.inner.is_drained())
            .set_qkey(attrs.qkey)
            .set_rq_psn(attrs.rq_psn)
            .set_sq_psn(attrs.sq_psn)
            .set_dest_qp_num(attrs.dest_qpn)
            .set_pkey_index(attrs.pkey_index)
            .set_max_rd_atomic(attrs.max_rd_atomic)
            .set_max_dest_rd_atomic(attrs.max_dest_rd_atomic)
            .set_min_rnr_timer(attrs.min_rnr_timer)
            .set_port(attrs.port)
            .set_timeout(attrs.timeout)
            .set_retry_cnt(attrs.retry_cnt)
            .set_rnr_retry(attrs.rnr_retry);
        Ok(())
    }

    fn destroy(&self, _qp: &rdma::Qp<Driver>) {
        if let Some(posters) = &self.posters {
            posters.stop();
        }
        self.inner.close();
    }

    fn doorbell(&self, _qp: &rdma::Qp<Driver>) -> Result {
        match &self.posters {
            Some(posters) => {
                posters.doorbell();
                Ok(())
            }
            None => self.inner.doorbell(),
        }
    }

    fn post_send(&self, qp: &rdma::Qp<Driver>, wr: &SendWr<'_>) -> Result {
        let posters = self.posters.as_ref().ok_or(EINVAL)?;
        posters.send(qp, self.inner.state(), wr)
    }

    fn post_recv(&self, _qp: &rdma::Qp<Driver>, wr: &RecvWr<'_>) -> Result {
        let posters = self.posters.as_ref().ok_or(EINVAL)?;
        posters.recv(self.inner.state(), wr)
    }
}

/// Timeout code and retry count of a UC QP: 0.5 s, 7 times.
const UC_TIMEOUT: (u8, u8) = (17, 7);

/// Number of the GSI.
const GSI_QPN: u32 = 1;
/// QP numbers have 24 bits.
const QPN_MASK: u32 = 0xff_ffff;
