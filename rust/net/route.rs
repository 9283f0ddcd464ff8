// SPDX-License-Identifier: GPL-2.0

//! A cached route, and the way out through it.

use super::{
    addr::Flow,
    skb::TxPacket,
    socket::Socket,
    sys, //
};
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    prelude::*, //
};

/// The route of one flow. It is looked up on first use and again when the
/// routing table has changed (`dst_check()`). Each flow has its own, because a
/// multipath route is chosen by the ports too.
///
/// # Invariants
///
/// The pointer is valid and owned.
pub struct Route(NonNull<sys::RawRoute>);

// SAFETY: a route is not bound to a CPU or a task.
unsafe impl Send for Route {}

impl Route {
    /// An empty cache. May sleep.
    pub fn new() -> Result<Self> {
        // SAFETY: process context as documented.
        let raw = unsafe { sys::mroce_route_alloc() };
        // INVARIANT: fresh memory, owned by us.
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }

    /// Largest IP packet in bytes that the route takes whole.
    pub fn mtu(&mut self, socket: &Socket, flow: &Flow) -> Result<u32> {
        let raw = flow.to_raw();
        // SAFETY: all pointers are valid by their types' invariants; `&mut`
        // gives the exclusion the function asks for.
        let ret = unsafe { sys::mroce_route_mtu(self.0.as_ptr(), socket.as_ptr(), &raw) };
        to_result(ret)?;
        u32::try_from(ret).map_err(|_| EINVAL)
    }

    /// Sends the packet from the socket's port. `Ok` means that the IP layer
    /// took it. BH must be disabled. The stack may deliver to this very
    /// machine, but only later, from its own softirq.
    pub fn transmit(&mut self, socket: &Socket, flow: &Flow, packet: TxPacket) -> Result {
        let raw = flow.to_raw();
        // SAFETY: all pointers are valid by their types' invariants; `&mut`
        // gives the exclusion; the packet is given away.
        to_result(unsafe {
            sys::mroce_xmit(self.0.as_ptr(), socket.as_ptr(), &raw, packet.into_raw())
        })
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: owned by the type's invariant.
        unsafe { sys::mroce_route_free(self.0.as_ptr()) };
    }
}
