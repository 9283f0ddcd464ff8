// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

use super::{
    object::core_object,
    wr::{RecvWr, SendWr},
    Ah, Cq, Driver, Gid, Pd, QpAttr, QpAttrOut, QpMask, Srq, Udata,
};
use crate::ffi::bindings as ffi;
use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

core_object! {
    /// A queue pair (`struct ib_qp`).
    Qp, NewQp, ib_qp, Qp
}

/// Transport service of a queue pair (`enum ib_qp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The connection manager's, QP 1.
    Gsi,
    /// Anything else, by its number in C.
    Other(u32),
}

impl QpType {
    fn from_raw(raw: ffi::ib_qp_type) -> Self {
        match raw {
            ffi::IB_QPT_RC => Self::Rc,
            ffi::IB_QPT_UC => Self::Uc,
            ffi::IB_QPT_UD => Self::Ud,
            ffi::IB_QPT_GSI => Self::Gsi,
            other => Self::Other(other as u32),
        }
    }

    pub(super) fn as_raw(self) -> ffi::ib_qp_type {
        match self {
            Self::Rc => ffi::IB_QPT_RC,
            Self::Uc => ffi::IB_QPT_UC,
            Self::Ud => ffi::IB_QPT_UD,
            Self::Gsi => ffi::IB_QPT_GSI,
            Self::Other(raw) => raw as ffi::ib_qp_type,
        }
    }
}

/// Sizes of the two queues (`struct ib_qp_cap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCap {
    /// Send requests that fit in.
    pub max_send_wr: u32,
    /// Receives that fit in.
    pub max_recv_wr: u32,
    /// Gather elements of a send request.
    pub max_send_sge: u32,
    /// Scatter elements of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
}

impl QpCap {
    pub(super) fn from_raw(raw: &ffi::ib_qp_cap) -> Self {
        Self {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline_data: raw.max_inline_data,
        }
    }

    pub(super) fn store(&self, raw: &mut ffi::ib_qp_cap) {
        raw.max_send_wr = self.max_send_wr;
        raw.max_recv_wr = self.max_recv_wr;
        raw.max_send_sge = self.max_send_sge;
        raw.max_recv_sge = self.max_recv_sge;
        raw.max_inline_data = self.max_inline_data;
    }
}

/// What a new queue pair should be like.
pub struct QpInitAttr<'a> {
    raw: &'a mut ffi::ib_qp_init_attr,
}

impl<'a> QpInitAttr<'a> {
    pub(super) fn new(raw: &'a mut ffi::ib_qp_init_attr) -> Self {
        Self { raw }
    }

    /// Transport service.
    pub fn qp_type(&self) -> QpType {
        QpType::from_raw(self.raw.qp_type)
    }

    /// Sizes wanted.
    pub fn cap(&self) -> QpCap {
        QpCap::from_raw(&self.raw.cap)
    }

    /// Tells the real sizes.
    pub fn set_cap(&mut self, cap: &QpCap) {
        cap.store(&mut self.raw.cap);
    }

    /// Whether every send request produces a completion.
    pub fn signal_all(&self) -> bool {
        self.raw.sq_sig_type == ffi::IB_SIGNAL_ALL_WR
    }

    pub(super) fn set_signal_all(&mut self, all: bool) {
        self.raw.sq_sig_type = if all {
            ffi::IB_SIGNAL_ALL_WR
        } else {
            ffi::IB_SIGNAL_REQ_WR
        };
    }

    /// `IB_QP_CREATE_*`; refuse those that are not known.
    pub fn create_flags(&self) -> u32 {
        self.raw.create_flags
    }

    /// The port, for the special queue pairs.
    pub fn port(&self) -> u32 {
        self.raw.port_num
    }
}

macro_rules! qp_parents {
    ($Type:ty, $ib:ident) => {
        impl<D: Driver> $Type {
            /// The protection domain.
            pub fn pd(&self) -> &Pd<D> {
                // SAFETY: The core set the field before it called create, and it is constant.
                let pd = unsafe { (*self.$ib()).pd };
                // SAFETY: A domain outlives the objects in it.
                unsafe { Pd::from_raw(pd) }
            }

            /// The send queue's completion queue.
            pub fn send_cq(&self) -> Option<&Cq<D>> {
                // SAFETY: The core set the field before it called create, and it is constant.
                let cq = unsafe { (*self.$ib()).send_cq };
                // SAFETY: A completion queue outlives the queue pairs that use it.
                (!cq.is_null()).then(|| unsafe { Cq::from_raw(cq) })
            }

            /// The receive queue's completion queue.
            pub fn recv_cq(&self) -> Option<&Cq<D>> {
                // SAFETY: The core set the field before it called create, and it is constant.
                let cq = unsafe { (*self.$ib()).recv_cq };
                // SAFETY: A completion queue outlives the queue pairs that use it.
                (!cq.is_null()).then(|| unsafe { Cq::from_raw(cq) })
            }

            /// The shared receive queue, if it has one instead of its own.
            pub fn srq(&self) -> Option<&Srq<D>> {
                // SAFETY: The core set the field before it called create, and it is constant.
                let srq = unsafe { (*self.$ib()).srq };
                // SAFETY: A shared receive queue outlives the queue pairs that use it.
                (!srq.is_null()).then(|| unsafe { Srq::from_raw(srq) })
            }

            /// Whether user space owns it.
            pub fn is_user(&self) -> bool {
                // SAFETY: The core set the field before it called create, and it is constant.
                unsafe { !(*self.$ib()).uobject.is_null() }
            }
        }
    };
}
qp_parents!(Qp<D>, as_raw);
qp_parents!(NewQp<'_, D>, new_raw);

impl<D: Driver> NewQp<'_, D> {
    fn new_raw(&self) -> *mut ffi::ib_qp {
        self.ib
    }

    /// Gives it its number, 24 bits.
    pub fn set_qp_num(&self, qpn: u32) {
        // SAFETY: The object is the caller's until creation is over.
        unsafe { (*self.ib).qp_num = qpn };
    }
}

impl<D: Driver> Qp<D> {
    /// Address handle, QP number and Q_Key of a datagram that is being posted; `None` for a connected
    /// queue pair.
    pub fn destination<'w>(&self, wr: &'w SendWr<'_>) -> Option<(&'w Ah<D>, u32, u32)> {
        match self.qp_type() {
            // SAFETY: The queue pair is a datagram one of this driver; requests are posted on their own.
            QpType::Ud | QpType::Gsi => unsafe { wr.ud() },
            _ => None,
        }
    }

    /// Its number.
    pub fn qp_num(&self) -> u32 {
        // SAFETY: The object is alive by the type invariant; constant after creation.
        unsafe { (*self.as_raw()).qp_num }
    }

    /// Transport service.
    pub fn qp_type(&self) -> QpType {
        // SAFETY: The object is alive by the type invariant; constant after creation.
        QpType::from_raw(unsafe { (*self.as_raw()).qp_type })
    }
}

/// Operations on queue pairs. Process context unless said otherwise.
#[vtable]
pub trait QpOps<D: Driver>: Sized + Send + Sync {
    /// Creates a queue pair in the reset state; must call [`NewQp::set_qp_num`] and
    /// [`QpInitAttr::set_cap`]. `udata` is `None` for a kernel client.
    fn create(
        qp: &NewQp<'_, D>,
        attr: &mut QpInitAttr<'_>,
        udata: Option<Udata<'_>>,
    ) -> Result<Self>;

    /// Changes state and attributes. Not serialised by the core against other commands.
    fn modify(&self, qp: &Qp<D>, attr: &QpAttr<'_>, udata: Option<Udata<'_>>) -> Result;

    /// Reports attributes; may report more than `mask` asks for.
    fn query(&self, qp: &Qp<D>, attr: &mut QpAttrOut<'_>, mask: QpMask) -> Result;

    /// Stops it; after return nothing of the driver uses the C object. It is about to be dropped.
    fn destroy(&self, qp: &Qp<D>);

    /// User space has put requests into its send ring and asks to have them processed.
    fn doorbell(&self, _qp: &Qp<D>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Posts one send request. For kernel clients; any context. [`doorbell`](Self::doorbell)
    /// follows, after the last of a list.
    fn post_send(&self, _qp: &Qp<D>, _wr: &SendWr<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Posts one receive. For kernel clients; any context.
    fn post_recv(&self, _qp: &Qp<D>, _wr: &RecvWr<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Joins a multicast group.
    fn attach_mcast(&self, _qp: &Qp<D>, _gid: Gid, _lid: u16) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Leaves a multicast group.
    fn detach_mcast(&self, _qp: &Qp<D>, _gid: Gid, _lid: u16) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}
