// SPDX-License-Identifier: GPL-2.0

//! Memory windows.

use super::{object::core_object, Driver, Pd, Udata};
use crate::ffi::bindings as ffi;
use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

core_object! {
    /// A memory window (`struct ib_mw`).
    Mw, NewMw, ib_mw, Mw
}

/// Kind of a window (`enum ib_mw_type`, IB specification 10.6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MwType {
    /// Bound by the consumer's library; belongs to a protection domain.
    Type1,
    /// Bound by a work request under a key the consumer chooses; belongs to a queue pair.
    Type2,
}

impl<D: Driver> NewMw<'_, D> {
    /// The protection domain.
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: The core set the field up before it called alloc.
        let pd = unsafe { (*self.ib).pd };
        // SAFETY: A domain outlives the objects in it.
        unsafe { Pd::from_raw(pd) }
    }

    /// Kind.
    pub fn kind(&self) -> Result<MwType> {
        // SAFETY: The core set the field up before it called alloc.
        match unsafe { (*self.ib).type_ } {
            ffi::IB_MW_TYPE_1 => Ok(MwType::Type1),
            ffi::IB_MW_TYPE_2 => Ok(MwType::Type2),
            _ => Err(EINVAL),
        }
    }

    /// Gives it its key.
    pub fn set_rkey(&self, rkey: u32) {
        // SAFETY: The object is the caller's until creation is over.
        unsafe { (*self.ib).rkey = rkey };
    }
}

/// Operations on memory windows. Process context.
#[vtable]
pub trait MwOps<D: Driver>: Sized + Send + Sync {
    /// Creates a window that is not bound; must call [`NewMw::set_rkey`].
    fn alloc(_mw: &NewMw<'_, D>, _udata: Option<Udata<'_>>) -> Result<Self> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Unbinds it: after return nobody accesses memory through it. It is about to be dropped.
    fn dealloc(&self, _mw: &Mw<D>) {}
}
