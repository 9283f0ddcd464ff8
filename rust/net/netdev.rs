// SPDX-License-Identifier: GPL-2.0

//! Network devices: their notifier chain, and what `sync::NetDev` lacks.

use super::{addr::IpAddr, sys};
use crate::sync::NetDev;
use core::marker::PhantomData;
use kernel::{
    bindings::net_device,
    error::to_result,
    ffi::c_ulong,
    prelude::*,
    str::CStr, //
};

/// Which network namespace the device is in; unique for the boot.
pub fn net_cookie(dev: &NetDev) -> u64 {
    // SAFETY: the device is alive by its type's invariant, and always has a
    // namespace.
    unsafe { sys::mroce_netdev_net_cookie(dev.as_ptr().cast()) }
}

/// The device's name now, for messages; renaming may change it while it is read.
pub fn name(dev: &NetDev) -> &CStr {
    // SAFETY: the device is alive by its type's invariant.
    let name = unsafe { sys::mroce_netdev_name(dev.as_ptr().cast()) };
    // SAFETY: the name is an array in the device that always holds a NUL.
    unsafe { CStr::from_char_ptr(name) }
}

/// Link speed in Mbit/s, if the driver knows. Takes the rtnl lock: not from a
/// notifier; may sleep.
pub fn speed(dev: &NetDev) -> Option<u32> {
    // SAFETY: the device is alive by its type's invariant.
    match unsafe { sys::mroce_netdev_speed(dev.as_ptr().cast()) } {
        0 => None,
        mbits => Some(mbits),
    }
}

/// Whether `address`, an IPv6 one, is the device's own. Any context.
pub fn has_v6(dev: &NetDev, address: &IpAddr) -> bool {
    // SAFETY: the device is alive by its type's invariant; the 16 bytes of the
    // address are valid for reads.
    unsafe { sys::mroce_netdev_has_v6(dev.as_ptr().cast(), address.0.as_ptr()) }
}

/// The events of the netdevice notifier chain that matter here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
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
pub trait Observer {
    /// `event` happened to `dev`.
    fn netdev_event(dev: &NetDev, event: Event);
}

/// # Safety
///
/// Only for the notifier chain: `dev` is alive for the call.
unsafe extern "C" fn trampoline<O: Observer>(dev: *mut net_device, event: c_ulong) {
    let event = match event {
        NETDEV_UP => Event::Up,
        NETDEV_DOWN => Event::Down,
        NETDEV_CHANGE => Event::Change,
        NETDEV_CHANGEMTU => Event::Mtu,
        NETDEV_UNREGISTER => Event::Unregister,
        _ => return,
    };
    // SAFETY: the notifier chain passes a device that is alive for the call.
    O::netdev_event(unsafe { NetDev::from_raw(dev.cast()) }, event);
}

/// The module's registration with the network stack: pernet callbacks and the
/// notifier. Dropping it waits for every callback of `net` to end, so it must
/// be dropped last.
pub struct Registration<O>(PhantomData<O>);

impl<O: Observer> Registration<O> {
    /// Registers; existing devices are reported at once as `Up`. May sleep.
    ///
    /// Only one registration may exist at a time; the module has just one.
    pub fn new() -> Result<Self> {
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
