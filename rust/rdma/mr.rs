// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use super::{Device, Driver, Pd, Udata};
use crate::ffi::bindings as ffi;
use kernel::{build_error, error::VTABLE_DEFAULT_ERROR, prelude::*, types::Opaque};

/// Access rights (`enum ib_access_flags`).
pub mod access {
    use crate::ffi::bindings as ffi;

    /// The local device may write.
    pub const LOCAL_WRITE: u32 = ffi::IB_ACCESS_LOCAL_WRITE;
    /// A peer may write.
    pub const REMOTE_WRITE: u32 = ffi::IB_ACCESS_REMOTE_WRITE;
    /// A peer may read.
    pub const REMOTE_READ: u32 = ffi::IB_ACCESS_REMOTE_READ;
    /// A peer may do atomic operations.
    pub const REMOTE_ATOMIC: u32 = ffi::IB_ACCESS_REMOTE_ATOMIC;
    /// Memory windows may be bound to it.
    pub const MW_BIND: u32 = ffi::IB_ACCESS_MW_BIND;
    /// A peer may flush writes so that everybody sees them.
    pub const FLUSH_GLOBAL: u32 = ffi::IB_ACCESS_FLUSH_GLOBAL;
    /// A peer may flush writes so that they survive a loss of power.
    pub const FLUSH_PERSISTENT: u32 = ffi::IB_ACCESS_FLUSH_PERSISTENT;
    /// Addresses are offsets into the region.
    pub const ZERO_BASED: u32 = ffi::IB_ZERO_BASED;
    /// Pages are brought in when they are used.
    pub const ON_DEMAND: u32 = ffi::IB_ACCESS_ON_DEMAND;
    /// Backed by huge pages.
    pub const HUGETLB: u32 = ffi::IB_ACCESS_HUGETLB;
    /// Writes may overtake each other.
    pub const RELAXED_ORDERING: u32 = ffi::IB_ACCESS_RELAXED_ORDERING;
    /// Bits that a driver may ignore.
    pub const OPTIONAL: u32 = ffi::IB_ACCESS_OPTIONAL;
}

/// A memory region (`struct ib_mr`).
///
/// # Invariants
///
/// `ib` is a live region of a device of driver `D`; it is the first field. The whole is a `KBox`
/// that belongs to the core between registration and deregistration.
#[repr(C)]
pub struct Mr<D: Driver> {
    ib: Opaque<ffi::ib_mr>,
    drv: D::Mr,
}

impl<D: Driver> Mr<D> {
    /// # Safety
    ///
    /// `ib` must come from [`new`](Self::new) and be alive for `'a`.
    pub(super) unsafe fn from_raw<'a>(ib: *mut ffi::ib_mr) -> &'a Self {
        // SAFETY: `ib` is the first field of `Self`.
        unsafe { &*ib.cast::<Self>() }
    }

    /// Wraps a driver's region for the core, which owns it from now on.
    pub(super) fn new(pd: &Pd<D>, drv: D::Mr, iova: u64, length: u64) -> Result<*mut ffi::ib_mr> {
        let mut ib: ffi::ib_mr = pin_init::zeroed();
        ib.device = pd.device().as_raw();
        ib.pd = pd.as_raw();
        ib.lkey = drv.lkey();
        ib.rkey = drv.rkey();
        ib.iova = iova;
        ib.length = length;
        let this = KBox::new(
            Self {
                ib: Opaque::new(ib),
                drv,
            },
            GFP_KERNEL,
        )?;
        Ok(KBox::into_raw(this).cast())
    }

    /// Takes the region back from the core.
    ///
    /// # Safety
    ///
    /// `ib` must come from [`new`](Self::new), and nobody may use it any more.
    pub(super) unsafe fn take(ib: *mut ffi::ib_mr) -> KBox<Self> {
        // SAFETY: `new` made it from a box of this type.
        unsafe { KBox::from_raw(ib.cast::<Self>()) }
    }

    /// The driver's part.
    pub fn data(&self) -> &D::Mr {
        &self.drv
    }

    /// The device the region belongs to.
    pub fn device(&self) -> &Device<D> {
        // SAFETY: The object is alive by the type invariant; the field is constant.
        let dev = unsafe { (*self.ib.get()).device };
        // SAFETY: A device outlives its objects.
        unsafe { Device::from_raw(dev) }
    }
}

/// What to register.
#[derive(Clone, Copy, Debug)]
pub struct MrRequest {
    /// Address in the calling process.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// The address by which work requests and peers name `start`.
    pub iova: u64,
    /// [`access`] bits.
    pub access: u32,
}

/// Operations on memory regions. Process context.
#[vtable]
pub trait MrOps<D: Driver>: Sized + Send + Sync {
    /// Registers memory of the calling process.
    fn reg_user(pd: &Pd<D>, request: &MrRequest, udata: Udata<'_>) -> Result<Self>;

    /// Makes a region for all kernel memory.
    fn get_dma(_pd: &Pd<D>, _access: u32) -> Result<Self> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Key for local use.
    fn lkey(&self) -> u32;

    /// Key for peers.
    fn rkey(&self) -> u32;

    /// Revokes the region: after return nobody accesses its memory. It is about to be dropped.
    fn dereg(&self, mr: &Mr<D>) -> Result;
}
