// SPDX-License-Identifier: GPL-2.0

//! Network devices: a counted reference, and the notifier chain.

use super::sys;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    bindings::net_device,
    error::to_result,
    ffi::c_ulong,
    prelude::*,
    str::CStr, //
};

/// A counted reference to a `struct net_device`.
///
/// While it exists the namespace of the device cannot finish going away:
/// `netdev_run_todo()` waits for it, so the owner must drop it once told of
/// [`Event::Unregister`].
///
/// # Invariants
///
/// The pointer is valid, and one reference of `dev_hold()` is owned.
pub(crate) struct NetDevice(NonNull<net_device>);

// SAFETY: the reference count and the fields read here are usable from any CPU.
unsafe impl Send for NetDevice {}
// SAFETY: as above; no method gives mutable access.
unsafe impl Sync for NetDevice {}

impl NetDevice {
    /// Takes a new reference.
    ///
    /// # Safety
    ///
    /// `dev` must be valid, and stay so for the duration of the call.
    pub(crate) unsafe fn get(dev: NonNull<net_device>) -> Self {
        // SAFETY: valid by the caller's promise.
        unsafe { sys::mroce_netdev_hold(dev.as_ptr()) };
        // INVARIANT: the reference was just taken.
        Self(dev)
    }

    pub(super) fn as_ptr(&self) -> *mut net_device {
        self.0.as_ptr()
    }

    /// What tells this device from others in an event; only to be compared.
    pub(crate) fn id(&self) -> NetdevId {
        NetdevId(self.0.as_ptr() as usize)
    }

    /// The interface index.
    pub(crate) fn ifindex(&self) -> u32 {
        // SAFETY: valid by the type's invariant.
        unsafe { sys::mroce_netdev_ifindex(self.as_ptr()) }
    }

    /// Largest IP packet in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        // SAFETY: valid by the type's invariant.
        unsafe { sys::mroce_netdev_mtu(self.as_ptr()) }
    }

    /// Which network namespace the device is in; unique for the boot.
    pub(crate) fn net_cookie(&self) -> u64 {
        // SAFETY: valid by the type's invariant; a device always has a namespace.
        unsafe { sys::mroce_netdev_net_cookie(self.as_ptr()) }
    }

    /// Whether the device is up and has a carrier.
    pub(crate) fn is_running(&self) -> bool {
        // SAFETY: valid by the type's invariant.
        unsafe { sys::mroce_netdev_running(self.as_ptr()) != 0 }
    }

    /// Link speed in Mbit/s, if the driver knows. Takes the rtnl lock: not from
    /// a notifier; may sleep.
    pub(crate) fn speed(&self) -> Option<u32> {
        // SAFETY: valid by the type's invariant.
        match unsafe { sys::mroce_netdev_speed(self.as_ptr()) } {
            0 => None,
            mbits => Some(mbits),
        }
    }

    /// The device's name now; a rename may change the bytes under the reader.
    pub(crate) fn name(&self) -> &CStr {
        // SAFETY: valid by the type's invariant.
        let name = unsafe { sys::mroce_netdev_name(self.as_ptr()) };
        // SAFETY: `net_device.name` is an array that always holds a NUL and
        // lives as long as the device.
        unsafe { CStr::from_char_ptr(name) }
    }
}

impl Drop for NetDevice {
    fn drop(&mut self) {
        // SAFETY: gives back the reference that the invariant says is owned.
        unsafe { sys::mroce_netdev_put(self.as_ptr()) };
    }
}

/// The identity of a network device, for comparison only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NetdevId(usize);

/// The events of the netdevice notifier chain that matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// Administratively up (`NETDEV_UP`).
    Up,
    /// Administratively down (`NETDEV_DOWN`, `NETDEV_GOING_DOWN`).
    Down,
    /// Carrier or flags changed (`NETDEV_CHANGE`).
    Change,
    /// The MTU has changed (`NETDEV_CHANGEMTU`).
    Mtu,
    /// The device goes away or to another namespace (`NETDEV_UNREGISTER`).
    Unregister,
}

// enum netdev_cmd, include/linux/netdevice.h.
const NETDEV_UP: c_ulong = 1;
const NETDEV_DOWN: c_ulong = 2;
const NETDEV_CHANGE: c_ulong = 4;
const NETDEV_UNREGISTER: c_ulong = 6;
const NETDEV_CHANGEMTU: c_ulong = 7;

/// Who is told about network devices. Called with the rtnl lock held, in
/// process context.
pub(crate) trait Observer {
    /// `event` happened to `dev`.
    fn netdev_event(dev: NetdevId, event: Event);
}

unsafe extern "C" fn trampoline<O: Observer>(dev: *mut net_device, event: c_ulong) {
    let event = match event {
        NETDEV_UP => Event::Up,
        NETDEV_DOWN => Event::Down,
        NETDEV_CHANGE => Event::Change,
        NETDEV_CHANGEMTU => Event::Mtu,
        NETDEV_UNREGISTER => Event::Unregister,
        _ => return,
    };
    O::netdev_event(NetdevId(dev as usize), event);
}

/// The module's registration with the network stack: pernet callbacks and the
/// notifier. Dropping it waits for every callback of `net` to end, so it must
/// be dropped last.
pub(crate) struct Registration<O>(PhantomData<O>);

impl<O: Observer> Registration<O> {
    /// Registers; existing devices are reported at once as `Up`. May sleep.
    ///
    /// Only one registration may exist at a time; the module has just one.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: the trampoline stays in place until `mroce_net_exit()`, which
        // `drop` calls before the module's text goes.
        to_result(unsafe { sys::mroce_net_init(trampoline::<O>) })?;
        Ok(Self(PhantomData))
    }
}

impl<O> Drop for Registration<O> {
    fn drop(&mut self) {
        // SAFETY: `new` succeeded, once, for this value.
        unsafe { sys::mroce_net_exit() };
    }
}
