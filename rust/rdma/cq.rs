// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::{object::core_object, wr::WcArray, Driver, Udata};
use crate::ffi::bindings as ffi;
use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

core_object! {
    /// A completion queue (`struct ib_cq`).
    Cq, NewCq, ib_cq, Cq
}

impl<D: Driver> NewCq<'_, D> {
    /// Says how many entries the queue really has.
    pub fn set_cqe(&self, cqe: u32) {
        // SAFETY: The object is the caller's until creation is over.
        unsafe { (*self.ib).cqe = i32::try_from(cqe).unwrap_or(i32::MAX) };
    }
}

impl<D: Driver> Cq<D> {
    /// Number of entries.
    pub fn cqe(&self) -> u32 {
        // SAFETY: The object is alive by the type invariant. The field changes only in `resize`,
        // which the core serialises with other commands on the queue.
        u32::try_from(unsafe { (*self.as_raw()).cqe }).unwrap_or(0)
    }
}

/// What a new completion queue should be like.
#[derive(Clone, Copy, Debug)]
pub struct CqInitAttr {
    /// Entries wanted, at least 1.
    pub cqe: u32,
    /// Completion vector, below the device's `num_comp_vectors`.
    pub comp_vector: u32,
    /// `IB_UVERBS_CQ_FLAGS_*`; refuse those that are not known.
    pub flags: u32,
}

impl CqInitAttr {
    /// # Safety
    ///
    /// `raw` must be valid for reads.
    pub(super) unsafe fn from_raw(raw: *const ffi::ib_cq_init_attr) -> Self {
        // SAFETY: Valid by contract.
        let raw = unsafe { &*raw };
        Self {
            cqe: raw.cqe,
            comp_vector: raw.comp_vector,
            flags: raw.flags,
        }
    }
}

/// Which completions wake the owner of a queue (`enum ib_cq_notify_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// Only solicited completions and errors.
    pub solicited_only: bool,
    /// Report if completions are already there.
    pub report_missed: bool,
}

impl Notify {
    pub(super) fn from_raw(raw: ffi::ib_cq_notify_flags) -> Self {
        Self {
            solicited_only: raw & ffi::IB_CQ_SOLICITED_MASK == ffi::IB_CQ_SOLICITED,
            report_missed: raw & ffi::IB_CQ_REPORT_MISSED_EVENTS != 0,
        }
    }
}

/// Operations on completion queues. Process context unless said otherwise.
#[vtable]
pub trait CqOps<D: Driver>: Sized + Send + Sync {
    /// Creates a queue; `udata` is `None` for a kernel client, which happens only if
    /// [`poll`](Self::poll) is defined.
    fn create(cq: &NewCq<'_, D>, attr: &CqInitAttr, udata: Option<Udata<'_>>) -> Result<Self>;

    /// No queue pair uses it any more; it is about to be dropped.
    fn destroy(&self, _cq: &Cq<D>) {}

    /// Changes the number of entries; returns the new number.
    fn resize(&self, _cq: &Cq<D>, _cqe: u32, _udata: Udata<'_>) -> Result<u32> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Arms the queue: the next completion that `notify` asks for is to be announced with
    /// [`CqHandle::completed`](super::Handle::completed). Returns whether completions are there if
    /// asked to. Any context for kernel clients; user space comes in process context.
    fn req_notify(&self, _cq: &Cq<D>, _notify: Notify) -> Result<bool> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Moves completions into `wcs`. For kernel clients; any context.
    fn poll(&self, _cq: &Cq<D>, _wcs: &mut WcArray<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}
