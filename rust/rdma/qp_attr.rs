// SPDX-License-Identifier: GPL-2.0

//! Attributes of queue pairs (InfiniBand specification, 11.2.5.2).

use super::{AhAttr, AhValues, Mtu, QpCap, QpInitAttr, QpType};
use crate::ffi::bindings as ffi;
use kernel::prelude::*;

/// States of a queue pair (InfiniBand specification, 10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Just created.
    Reset,
    /// May post receives.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained, or draining.
    Sqd,
    /// Send queue in error.
    Sqe,
    /// Everything posted is flushed.
    Err,
}

impl QpState {
    /// The state with this number in C and in user space.
    pub fn from_raw(raw: u32) -> Result<Self> {
        Ok(match raw {
            ffi::IB_QPS_RESET => Self::Reset,
            ffi::IB_QPS_INIT => Self::Init,
            ffi::IB_QPS_RTR => Self::Rtr,
            ffi::IB_QPS_RTS => Self::Rts,
            ffi::IB_QPS_SQD => Self::Sqd,
            ffi::IB_QPS_SQE => Self::Sqe,
            ffi::IB_QPS_ERR => Self::Err,
            _ => return Err(EINVAL),
        })
    }

    /// Its number in C and in user space.
    pub fn as_raw(self) -> u32 {
        match self {
            Self::Reset => ffi::IB_QPS_RESET,
            Self::Init => ffi::IB_QPS_INIT,
            Self::Rtr => ffi::IB_QPS_RTR,
            Self::Rts => ffi::IB_QPS_RTS,
            Self::Sqd => ffi::IB_QPS_SQD,
            Self::Sqe => ffi::IB_QPS_SQE,
            Self::Err => ffi::IB_QPS_ERR,
        }
    }
}

/// A set of attributes (`enum ib_qp_attr_mask`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpMask(u32);

impl QpMask {
    /// [`QpAttr::state`].
    pub const STATE: Self = Self(ffi::IB_QP_STATE);
    /// [`QpAttr::cur_state`].
    pub const CUR_STATE: Self = Self(ffi::IB_QP_CUR_STATE);
    /// [`QpAttr::en_sqd_async_notify`].
    pub const EN_SQD_ASYNC_NOTIFY: Self = Self(ffi::IB_QP_EN_SQD_ASYNC_NOTIFY);
    /// [`QpAttr::access_flags`].
    pub const ACCESS_FLAGS: Self = Self(ffi::IB_QP_ACCESS_FLAGS);
    /// [`QpAttr::pkey_index`].
    pub const PKEY_INDEX: Self = Self(ffi::IB_QP_PKEY_INDEX);
    /// [`QpAttr::port`].
    pub const PORT: Self = Self(ffi::IB_QP_PORT);
    /// [`QpAttr::qkey`].
    pub const QKEY: Self = Self(ffi::IB_QP_QKEY);
    /// [`QpAttr::ah`].
    pub const AV: Self = Self(ffi::IB_QP_AV);
    /// [`QpAttr::path_mtu`].
    pub const PATH_MTU: Self = Self(ffi::IB_QP_PATH_MTU);
    /// [`QpAttr::timeout`].
    pub const TIMEOUT: Self = Self(ffi::IB_QP_TIMEOUT);
    /// [`QpAttr::retry_cnt`].
    pub const RETRY_CNT: Self = Self(ffi::IB_QP_RETRY_CNT);
    /// [`QpAttr::rnr_retry`].
    pub const RNR_RETRY: Self = Self(ffi::IB_QP_RNR_RETRY);
    /// [`QpAttr::rq_psn`].
    pub const RQ_PSN: Self = Self(ffi::IB_QP_RQ_PSN);
    /// [`QpAttr::max_rd_atomic`].
    pub const MAX_QP_RD_ATOMIC: Self = Self(ffi::IB_QP_MAX_QP_RD_ATOMIC);
    /// Alternate path.
    pub const ALT_PATH: Self = Self(ffi::IB_QP_ALT_PATH);
    /// [`QpAttr::min_rnr_timer`].
    pub const MIN_RNR_TIMER: Self = Self(ffi::IB_QP_MIN_RNR_TIMER);
    /// [`QpAttr::sq_psn`].
    pub const SQ_PSN: Self = Self(ffi::IB_QP_SQ_PSN);
    /// [`QpAttr::max_dest_rd_atomic`].
    pub const MAX_DEST_RD_ATOMIC: Self = Self(ffi::IB_QP_MAX_DEST_RD_ATOMIC);
    /// Path migration.
    pub const PATH_MIG_STATE: Self = Self(ffi::IB_QP_PATH_MIG_STATE);
    /// Queue sizes.
    pub const CAP: Self = Self(ffi::IB_QP_CAP);
    /// [`QpAttr::dest_qp_num`].
    pub const DEST_QPN: Self = Self(ffi::IB_QP_DEST_QPN);
    /// Everything that the specification defines.
    pub const STANDARD: Self = Self(ffi::IB_QP_ATTR_STANDARD_BITS);

    pub(super) fn from_raw(raw: kernel::ffi::c_int) -> Self {
        Self(raw as u32)
    }

    /// Whether all attributes of `other` are in the set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing but attributes of `other` is in the set.
    pub fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

impl core::ops::BitOr for QpMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Whether the specification allows the transition from `cur` to `next` with exactly such
/// attributes (`ib_modify_qp_is_ok()`).
pub fn modify_is_ok(cur: QpState, next: QpState, qp_type: QpType, mask: QpMask) -> bool {
    // SAFETY: A pure function of its arguments.
    unsafe { ffi::ib_modify_qp_is_ok(cur.as_raw(), next.as_raw(), qp_type.as_raw(), mask.0) }
}

/// The attributes of a modification. Getters are meaningful if [`mask`](Self::mask) contains them.
pub struct QpAttr<'a> {
    raw: &'a ffi::ib_qp_attr,
    mask: QpMask,
}

impl<'a> QpAttr<'a> {
    pub(super) fn new(raw: &'a ffi::ib_qp_attr, mask: QpMask) -> Self {
        Self { raw, mask }
    }

    /// What is to be changed.
    pub fn mask(&self) -> QpMask {
        self.mask
    }

    /// The state to go to, if the mask has one.
    pub fn state(&self) -> Result<Option<QpState>> {
        if !self.mask.contains(QpMask::STATE) {
            return Ok(None);
        }
        QpState::from_raw(self.raw.qp_state).map(Some)
    }

    /// The state that the caller believes the queue pair to be in, if the mask has one.
    pub fn cur_state(&self) -> Result<Option<QpState>> {
        if !self.mask.contains(QpMask::CUR_STATE) {
            return Ok(None);
        }
        QpState::from_raw(self.raw.cur_qp_state).map(Some)
    }

    /// Whether to tell when the send queue has drained.
    pub fn en_sqd_async_notify(&self) -> bool {
        self.raw.en_sqd_async_notify != 0
    }

    /// Payload size of the path; `None` if out of range.
    pub fn path_mtu(&self) -> Option<Mtu> {
        Mtu::from_raw(self.raw.path_mtu)
    }

    /// Q_Key.
    pub fn qkey(&self) -> u32 {
        self.raw.qkey
    }

    /// First packet number expected, 24 bits.
    pub fn rq_psn(&self) -> u32 {
        self.raw.rq_psn & 0xff_ffff
    }

    /// First packet number to send, 24 bits.
    pub fn sq_psn(&self) -> u32 {
        self.raw.sq_psn & 0xff_ffff
    }

    /// The peer's queue pair, 24 bits.
    pub fn dest_qp_num(&self) -> u32 {
        self.raw.dest_qp_num & 0xff_ffff
    }

    /// What the peer may do ([`access`](super::access) bits).
    pub fn access_flags(&self) -> u32 {
        self.raw.qp_access_flags as u32
    }

    /// Path to the peer.
    pub fn ah(&self) -> AhAttr<'a> {
        AhAttr::new(&self.raw.ah_attr)
    }

    /// Index of the partition key.
    pub fn pkey_index(&self) -> u16 {
        self.raw.pkey_index
    }

    /// Outstanding reads and atomics as requester.
    pub fn max_rd_atomic(&self) -> u8 {
        self.raw.max_rd_atomic
    }

    /// Outstanding reads and atomics as responder.
    pub fn max_dest_rd_atomic(&self) -> u8 {
        self.raw.max_dest_rd_atomic
    }

    /// Code of the delay that peers are asked to wait when no receive is posted (5 bits).
    pub fn min_rnr_timer(&self) -> u8 {
        self.raw.min_rnr_timer
    }

    /// The local port, from 1.
    pub fn port(&self) -> u32 {
        self.raw.port_num
    }

    /// Code of the acknowledgement timeout: 4.096 us times 2 to this power; 0 is no timeout.
    pub fn timeout(&self) -> u8 {
        self.raw.timeout
    }

    /// Retries without any answer.
    pub fn retry_cnt(&self) -> u8 {
        self.raw.retry_cnt
    }

    /// Retries when the peer has no receive posted; 7 is no limit.
    pub fn rnr_retry(&self) -> u8 {
        self.raw.rnr_retry
    }
}

/// Where a query puts the attributes.
pub struct QpAttrOut<'a> {
    attr: &'a mut ffi::ib_qp_attr,
    init: QpInitAttr<'a>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident => $field:ident: $ty:ty,)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&mut self, value: $ty) -> &mut Self {
                self.attr.$field = value.into();
                self
            }
        )*
    };
}

impl<'a> QpAttrOut<'a> {
    pub(super) fn new(attr: &'a mut ffi::ib_qp_attr, init: &'a mut ffi::ib_qp_init_attr) -> Self {
        Self {
            attr,
            init: QpInitAttr::new(init),
        }
    }

    /// Current state.
    pub fn set_state(&mut self, state: QpState) -> &mut Self {
        self.attr.qp_state = state.as_raw();
        self.attr.cur_qp_state = state.as_raw();
        self
    }

    /// Payload size of the path.
    pub fn set_path_mtu(&mut self, mtu: Mtu) -> &mut Self {
        self.attr.path_mtu = mtu.as_raw();
        self
    }

    /// Path to the peer.
    pub fn set_ah(&mut self, values: &AhValues) -> &mut Self {
        values.store(&mut self.attr.ah_attr);
        self
    }

    /// Sizes of the queues.
    pub fn set_cap(&mut self, cap: &QpCap) -> &mut Self {
        cap.store(&mut self.attr.cap);
        self.init.set_cap(cap);
        self
    }

    /// Whether every send request produces a completion.
    pub fn set_signal_all(&mut self, all: bool) -> &mut Self {
        self.init.set_signal_all(all);
        self
    }

    /// What the peer may do ([`access`](super::access) bits).
    pub fn set_access_flags(&mut self, flags: u32) -> &mut Self {
        self.attr.qp_access_flags = flags as kernel::ffi::c_int;
        self
    }

    /// Whether the send queue is still draining.
    pub fn set_sq_draining(&mut self, draining: bool) -> &mut Self {
        self.attr.sq_draining = draining.into();
        self
    }

    setters! {
        /// Q_Key.
        set_qkey => qkey: u32,
        /// First packet number expected.
        set_rq_psn => rq_psn: u32,
        /// First packet number to send.
        set_sq_psn => sq_psn: u32,
        /// The peer's queue pair.
        set_dest_qp_num => dest_qp_num: u32,
        /// Index of the partition key.
        set_pkey_index => pkey_index: u16,
        /// Outstanding reads and atomics as requester.
        set_max_rd_atomic => max_rd_atomic: u8,
        /// Outstanding reads and atomics as responder.
        set_max_dest_rd_atomic => max_dest_rd_atomic: u8,
        /// Code of the receiver-not-ready delay.
        set_min_rnr_timer => min_rnr_timer: u8,
        /// The local port.
        set_port => port_num: u32,
        /// Code of the acknowledgement timeout.
        set_timeout => timeout: u8,
        /// Retries without any answer.
        set_retry_cnt => retry_cnt: u8,
        /// Retries when the peer has no receive posted.
        set_rnr_retry => rnr_retry: u8,
    }
}
