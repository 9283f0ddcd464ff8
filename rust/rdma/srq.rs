// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use super::{object::core_object, wr::RecvWr, Driver, Pd, Udata};
use crate::ffi::bindings as ffi;
use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

core_object! {
    /// A shared receive queue (`struct ib_srq`).
    Srq, NewSrq, ib_srq, Srq
}

impl<D: Driver> NewSrq<'_, D> {
    /// The protection domain.
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: The core set the field up before it called create.
        let pd = unsafe { (*self.ib).pd };
        // SAFETY: A domain outlives the objects in it.
        unsafe { Pd::from_raw(pd) }
    }

    /// Whether it is an ordinary one (not for XRC or tag matching).
    pub fn is_basic(&self) -> bool {
        // SAFETY: The core set the field up before it called create.
        unsafe { (*self.ib).srq_type == ffi::IB_SRQT_BASIC }
    }
}

impl<D: Driver> Srq<D> {
    /// The protection domain.
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: The object is alive by the type invariant.
        let pd = unsafe { (*self.as_raw()).pd };
        // SAFETY: A domain outlives the objects in it.
        unsafe { Pd::from_raw(pd) }
    }
}

/// Size and limit of a shared receive queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct SrqAttr {
    /// Receives that fit in.
    pub max_wr: u32,
    /// Scatter elements of each.
    pub max_sge: u32,
    /// When fewer receives are left, an event is raised, once. 0: never.
    pub limit: u32,
}

impl SrqAttr {
    pub(super) fn from_raw(raw: &ffi::ib_srq_attr) -> Self {
        Self {
            max_wr: raw.max_wr,
            max_sge: raw.max_sge,
            limit: raw.srq_limit,
        }
    }

    pub(super) fn store(&self, raw: &mut ffi::ib_srq_attr) {
        raw.max_wr = self.max_wr;
        raw.max_sge = self.max_sge;
        raw.srq_limit = self.limit;
    }
}

/// Which attributes a modification changes (`enum ib_srq_attr_mask`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqMask {
    /// The queue's size, [`SrqAttr::max_wr`].
    pub max_wr: bool,
    /// The limit, [`SrqAttr::limit`].
    pub limit: bool,
}

/// Operations on shared receive queues. Process context unless said otherwise.
#[vtable]
pub trait SrqOps<D: Driver>: Sized + Send + Sync {
    /// Creates a queue; writes the real sizes to `attr`.
    fn create(
        _srq: &NewSrq<'_, D>,
        _attr: &mut SrqAttr,
        _udata: Option<Udata<'_>>,
    ) -> Result<Self> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// No queue pair uses it any more; it is about to be dropped.
    fn destroy(&self, _srq: &Srq<D>) {}

    /// Changes size or limit.
    fn modify(
        &self,
        _srq: &Srq<D>,
        _attr: &SrqAttr,
        _mask: SrqMask,
        _udata: Option<Udata<'_>>,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Size and limit now.
    fn query(&self, _srq: &Srq<D>) -> Result<SrqAttr> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Posts one receive. For kernel clients; any context.
    fn post_recv(&self, _srq: &Srq<D>, _wr: &RecvWr<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

#[vtable]
impl<D: Driver> SrqOps<D> for super::Unsupported {}
