// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use super::{object::core_object, AhAttr, AhValues, Driver, Pd, Udata};
use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*};

core_object! {
    /// An address handle (`struct ib_ah`).
    Ah, NewAh, ib_ah, Ah
}

impl<D: Driver> NewAh<'_, D> {
    /// The protection domain.
    pub fn pd(&self) -> &Pd<D> {
        // SAFETY: The core set the field up before it called create.
        let pd = unsafe { (*self.ib).pd };
        // SAFETY: A domain outlives the objects in it.
        unsafe { Pd::from_raw(pd) }
    }
}

/// Operations on address handles.
#[vtable]
pub trait AhOps<D: Driver>: Sized + Send + Sync {
    /// Creates a handle. `may_sleep` tells whether this is process context.
    fn create(
        _ah: &NewAh<'_, D>,
        _attr: &AhAttr<'_>,
        _may_sleep: bool,
        _udata: Option<Udata<'_>>,
    ) -> Result<Self> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The values it was created with.
    fn query(&self, _ah: &Ah<D>) -> Result<AhValues> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

#[vtable]
impl<D: Driver> AhOps<D> for super::Unsupported {}
