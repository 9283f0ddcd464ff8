// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use super::{AhAttr, AhValues, Device, Driver, Pd, Udata};
use crate::ffi::bindings as ffi;
use core::mem::MaybeUninit;
use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*, types::Opaque};

/// An address handle (`struct ib_ah`).
///
/// Unlike other objects it may be made and destroyed where nothing sleeps, even with interrupts off:
/// it has no [`Handle`](super::Handle).
///
/// # Invariants
///
/// A shared reference exists only between the end of the driver's create and destroy: `drv` is
/// initialised, and `ib` is a live object of a device of driver `D`. `ib` is the first field, so a
/// pointer to one is a pointer to the other.
#[repr(C)]
pub struct Ah<D: Driver> {
    ib: Opaque<ffi::ib_ah>,
    drv: MaybeUninit<D::Ah>,
}

impl<D: Driver> Ah<D> {
    /// # Safety
    ///
    /// `ib` must have passed `init` and not yet `fini`, for all of `'a`.
    pub(super) unsafe fn from_raw<'a>(ib: *const ffi::ib_ah) -> &'a Self {
        // SAFETY: `ib` is the first field of an initialised `Self`.
        unsafe { &*ib.cast::<Self>() }
    }

    /// Creates the driver's part in the zeroed memory behind `ib`.
    ///
    /// # Safety
    ///
    /// `ib` must be a new object, allocated by the core with the size of `Self`, of a device of
    /// driver `D`.
    pub(super) unsafe fn init(
        ib: *mut ffi::ib_ah,
        make: impl FnOnce(&NewAh<'_, D>) -> Result<D::Ah>,
    ) -> Result {
        // SAFETY: The core set the field up before it called create.
        let pd = unsafe { (*ib).pd };
        // SAFETY: A domain outlives the objects in it.
        let drv = make(&NewAh(unsafe { Pd::from_raw(pd) }))?;
        let this = ib.cast::<Self>();
        // SAFETY: The memory has the size of `Self` and nobody else uses it yet.
        unsafe { (&raw mut (*this).drv).write(MaybeUninit::new(drv)) };
        Ok(())
    }

    /// Ends the object.
    ///
    /// # Safety
    ///
    /// Call once, after `init` succeeded; nobody else may use the object.
    pub(super) unsafe fn fini(ib: *mut ffi::ib_ah) {
        // SAFETY: `drv` was initialised by `init`, and is dropped only here.
        unsafe { (*ib.cast::<Self>()).drv.assume_init_drop() };
    }

    /// The driver's part.
    pub fn data(&self) -> &D::Ah {
        // SAFETY: Initialised by the type invariant.
        unsafe { self.drv.assume_init_ref() }
    }
}

/// An address handle while the driver creates it.
pub struct NewAh<'a, D: Driver>(&'a Pd<D>);

impl<D: Driver> NewAh<'_, D> {
    /// The protection domain.
    pub fn pd(&self) -> &Pd<D> {
        self.0
    }

    /// The device the object belongs to.
    pub fn device(&self) -> &Device<D> {
        self.0.device()
    }
}

/// Operations on address handles. Any context, and the driver's part is dropped in any; only user
/// space comes in process context.
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
