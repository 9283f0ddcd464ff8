// SPDX-License-Identifier: GPL-2.0

//! `rdma link add` and `rdma link delete`.
//!
//! C header: [`include/rdma/rdma_netlink.h`](srctree/include/rdma/rdma_netlink.h)

use super::{Device, Driver};
use crate::{ffi::bindings as ffi, sync::NetDev};
use core::marker::PhantomData;
use kernel::{error::from_result, prelude::*, str::CStr, types::Opaque};

/// A type of link that user space can add.
///
/// A module also needs the alias `rdma-link-TYPE`, by which the core loads it on demand.
pub trait LinkType: 'static {
    /// The driver behind it.
    type Driver: Driver;
    /// The type's name.
    const TYPE: &'static CStr;

    /// Adds a device called `name` on top of `netdev`. Process context, RTNL not held.
    fn newlink(name: &CStr, netdev: &NetDev) -> Result;

    /// All devices of the type are about to be unregistered, and none can be added any more: what
    /// [`Driver::going_away`] does, for each of them. Process context.
    fn going_away();
}

/// The registration of a [`LinkType`].
///
/// When dropped, first no more links can be added, then the queue pairs of all devices of the driver
/// fail ([`LinkType::going_away`]), then the devices are unregistered, waiting for them. So put it
/// before (above) everything that the devices use.
pub struct LinkRegistration<L: LinkType> {
    ops: KBox<Opaque<ffi::rdma_link_ops>>,
    _type: PhantomData<L>,
}

// SAFETY: The list that the C structure is in has its own lock.
unsafe impl<L: LinkType> Send for LinkRegistration<L> {}
// SAFETY: As above; there are no methods.
unsafe impl<L: LinkType> Sync for LinkRegistration<L> {}

impl<L: LinkType> LinkRegistration<L> {
    /// Lets user space add links.
    pub fn new() -> Result<Self> {
        let mut ops: ffi::rdma_link_ops = pin_init::zeroed();
        ops.type_ = L::TYPE.to_bytes_with_nul().as_ptr().cast();
        ops.newlink = Some(Self::newlink);
        let ops = KBox::new(Opaque::new(ops), GFP_KERNEL)?;
        // SAFETY: The structure stays where it is, in its box, until it is unregistered in drop.
        unsafe { ffi::rdma_link_register(ops.get()) };
        Ok(Self {
            ops,
            _type: PhantomData,
        })
    }

    unsafe extern "C" fn newlink(
        name: *const kernel::ffi::c_char,
        netdev: *mut ffi::net_device,
    ) -> kernel::ffi::c_int {
        from_result(|| {
            // SAFETY: The core passes a NUL-terminated string that is valid during the call.
            let name = unsafe { CStr::from_char_ptr(name.cast()) };
            // SAFETY: The core holds a reference during the call.
            let netdev = unsafe { NetDev::from_raw(netdev) };
            L::newlink(name, netdev).map(|()| 0)
        })
    }
}

impl<L: LinkType> Drop for LinkRegistration<L> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`. Waits for callbacks that are running.
        unsafe { ffi::rdma_link_unregister(self.ops.get()) };
        L::going_away();
        Device::<L::Driver>::unregister_all();
    }
}
