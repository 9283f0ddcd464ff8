// SPDX-License-Identifier: GPL-2.0

//! A reference to a network device, as the RDMA core and the network stack pass it around.
//!
//! It is here because `rdma` and `net` both need it and must not know each other.

use crate::ffi::bindings as ffi;
use core::ptr::NonNull;
use kernel::{
    sync::aref::{ARef, AlwaysRefCounted},
    types::Opaque,
};

/// A `struct net_device`.
///
/// # Invariants
///
/// A `&NetDev` points to a device whose reference count is not zero for the reference's lifetime.
/// Holding a reference keeps the memory, not the registration: the device may be going away, and
/// whoever keeps an [`ARef`] must drop it on `NETDEV_UNREGISTER`.
#[repr(transparent)]
pub struct NetDev(Opaque<ffi::net_device>);

// SAFETY: The methods use only fields that the kernel lets any context read, and the reference
// count is atomic.
unsafe impl Send for NetDev {}
// SAFETY: As above.
unsafe impl Sync for NetDev {}

// SAFETY: `dev_hold`/`dev_put` are the device's reference count.
unsafe impl AlwaysRefCounted for NetDev {
    fn inc_ref(&self) {
        // SAFETY: The device is alive by the type invariant.
        unsafe { ffi::mroce_nd_hold(self.as_ptr()) }
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller gives up a reference it owns.
        unsafe { ffi::mroce_nd_put(obj.as_ptr().cast()) }
    }
}

impl NetDev {
    /// A reference to the device at `ptr`.
    ///
    /// # Safety
    ///
    /// The device must have a non-zero reference count for all of `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut ffi::net_device) -> &'a Self {
        // SAFETY: `NetDev` is transparent over the C type, and the caller vouches for `'a`.
        unsafe { &*ptr.cast() }
    }

    /// Takes over one reference count of the device at `ptr`; `None` for a null pointer.
    ///
    /// # Safety
    ///
    /// `ptr` must be null or a device of which the caller owns a reference count.
    pub unsafe fn from_raw_owned(ptr: *mut ffi::net_device) -> Option<ARef<Self>> {
        let ptr = NonNull::new(ptr)?;
        // SAFETY: The caller owns the count that the `ARef` takes over.
        Some(unsafe { ARef::from_raw(ptr.cast()) })
    }

    /// The C pointer.
    #[inline]
    pub fn as_ptr(&self) -> *mut ffi::net_device {
        self.0.get()
    }

    /// Interface index, unique in its namespace.
    pub fn ifindex(&self) -> u32 {
        // SAFETY: The device is alive by the type invariant.
        let index = unsafe { ffi::mroce_nd_ifindex(self.as_ptr()) };
        u32::try_from(index).unwrap_or(0)
    }

    /// Maximum transmission unit in bytes.
    pub fn mtu(&self) -> u32 {
        // SAFETY: The device is alive by the type invariant.
        unsafe { ffi::mroce_nd_mtu(self.as_ptr()) }
    }

    /// Whether the interface is administratively up.
    pub fn is_up(&self) -> bool {
        // SAFETY: The device is alive by the type invariant.
        unsafe { ffi::mroce_nd_is_up(self.as_ptr()) }
    }

    /// Whether there is a carrier.
    pub fn has_carrier(&self) -> bool {
        // SAFETY: The device is alive by the type invariant.
        unsafe { ffi::mroce_nd_carrier_ok(self.as_ptr()) }
    }

    /// Whether this is a VLAN device on top of another one.
    pub fn is_vlan(&self) -> bool {
        // SAFETY: The device is alive by the type invariant.
        unsafe { ffi::mroce_nd_is_vlan(self.as_ptr()) }
    }

    /// VLAN id, if it is a VLAN device.
    pub fn vlan_id(&self) -> Option<u16> {
        // SAFETY: The device is alive by the type invariant.
        let id = unsafe { ffi::mroce_nd_vlan_id(self.as_ptr()) };
        (id < 0x1000).then_some(id)
    }

    /// EUI-64 made from the hardware address (RFC 4291 appendix A); random if it has none.
    pub fn eui64(&self) -> [u8; 8] {
        let mut eui = [0; 8];
        // SAFETY: The device is alive by the type invariant; `eui` has the 8 bytes written.
        unsafe { ffi::mroce_nd_eui64(self.as_ptr(), eui.as_mut_ptr()) };
        eui
    }

    /// The network namespace's C pointer. The caller must hold what keeps the device in it.
    pub fn net(&self) -> *mut ffi::net {
        // SAFETY: The device is alive by the type invariant.
        unsafe { ffi::mroce_nd_net(self.as_ptr()) }
    }
}
