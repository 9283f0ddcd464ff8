// SPDX-License-Identifier: GPL-2.0

//! UDP tunnel sockets (`include/net/udp_tunnel.h`).
//!
//! One socket per namespace and family listens on the protocol's port and
//! receives everything. The others exist for their source port, one per path
//! slot: a port reserved by a bound socket cannot be used by anybody else, so
//! the fabric's ECMP hash sees a flow that is only ours.

use super::{
    addr::{
        Flow,
        IpAddr, //
    },
    skb::{
        RxPacket,
        TxPacket, //
    },
    sys, //
};
use crate::sync::NetDev;
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    bindings::sk_buff,
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*, //
};

/// Address family of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What the headers below ours said about a received datagram.
#[derive(Clone, Copy)]
pub struct RxInfo {
    /// The sender's address.
    pub src: IpAddr,
    /// Our address.
    pub dst: IpAddr,
    /// Namespace of the receiving socket ([`super::netdev::net_cookie`]).
    pub net_cookie: u64,
    /// Bytes after the UDP header.
    pub len: u32,
    /// Interface the packet came in by.
    pub ifindex: u32,
    /// The sender's UDP port, host order.
    pub sport: u16,
    /// The two ECN bits of the IP header (RFC 3168 section 5).
    pub ecn: u8,
    /// The VLAN that it was received on.
    pub vlan: Option<u16>,
}

/// `struct mroce_rx_info.vlan` without one.
const NO_VLAN: u16 = 0xffff;

/// Who gets the datagrams of a listening socket.
pub trait Receiver {
    /// One datagram, UDP checksum verified. Softirq, RCU read section.
    fn receive(packet: RxPacket, info: &RxInfo, from: Listener<'_>);
}

/// The socket that a datagram came through, to answer without a connection.
///
/// # Invariants
///
/// The socket is valid for `'a`.
#[derive(Clone, Copy)]
pub struct Listener<'a>(NonNull<sys::RawSock>, PhantomData<&'a sys::RawSock>);

impl Listener<'_> {
    /// Sends a packet from the listening port. Softirq.
    pub fn transmit(&self, flow: &Flow, packet: TxPacket) -> Result {
        let raw = flow.to_raw();
        // SAFETY: the socket is valid by the type's invariant; the packet is
        // given away.
        to_result(unsafe { sys::mroce_xmit_once(self.0.as_ptr(), &raw, packet.into_raw()) })
    }
}

/// # Safety
///
/// Only for `mroce_encap_rcv()`: all pointers valid for the call.
unsafe extern "C" fn trampoline<R: Receiver>(
    skb: *mut sk_buff,
    socket: *mut sys::RawSock,
    info: *const sys::RawRxInfo,
) {
    // SAFETY: `mroce_encap_rcv()` passes a pointer to its own filled variable.
    let raw = unsafe { &*info };
    let Some(skb) = NonNull::new(skb) else {
        return;
    };
    // SAFETY: the callback is given the skb, whose data starts after the UDP
    // header.
    let packet = unsafe { RxPacket::from_raw(skb) };
    let info = RxInfo {
        src: IpAddr(raw.src),
        dst: IpAddr(raw.dst),
        net_cookie: raw.net_cookie,
        len: raw.len,
        ifindex: raw.ifindex,
        sport: raw.sport,
        ecn: raw.ecn,
        vlan: (raw.vlan != NO_VLAN).then_some(raw.vlan),
    };
    // SAFETY: not NULL, see above. INVARIANT: RCU keeps it for the call.
    let listener = Listener(unsafe { NonNull::new_unchecked(socket) }, PhantomData);
    R::receive(packet, &info, listener);
}

/// A bound tunnel socket, or one's share in it.
///
/// When the namespace goes away first, the socket is closed and sending
/// through it fails; the value stays valid.
///
/// # Invariants
///
/// The pointer is valid and one reference of `mroce_sock_open()` is owned.
pub struct Socket(NonNull<sys::RawSock>);

// SAFETY: reference counts are under a mutex, the socket itself under RCU.
unsafe impl Send for Socket {}
// SAFETY: as above.
unsafe impl Sync for Socket {}

impl Socket {
    /// A share in the namespace's listening socket on `port` (not 0), created
    /// if needed. `EAFNOSUPPORT` for IPv6 when that is disabled. May sleep.
    pub fn listen<R: Receiver>(dev: &NetDev, family: Family, port: u16) -> Result<Self> {
        Self::open(dev, family, port, Some(trampoline::<R>))
    }

    /// A socket of one's own with a port of the kernel's choice, only to send
    /// from. May sleep.
    pub fn source(dev: &NetDev, family: Family) -> Result<Self> {
        Self::open(dev, family, 0, None)
    }

    fn open(dev: &NetDev, family: Family, port: u16, rx: Option<sys::RxFn>) -> Result<Self> {
        let v6 = (family == Family::V6).into();
        // SAFETY: the device is valid by its type's invariant; the callback is
        // a function of this module, which waits for receivers before it goes.
        let raw = from_err_ptr(unsafe { sys::mroce_sock_open(dev.as_ptr().cast(), v6, port, rx) })?;
        // INVARIANT: not an error pointer, so one reference was given to us.
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }

    /// The UDP port bound, host order.
    pub fn port(&self) -> u16 {
        // SAFETY: valid by the type's invariant.
        unsafe { sys::mroce_sock_port(self.0.as_ptr()) }
    }

    /// Sends a packet for which no route is kept. BH must be disabled.
    pub fn transmit_once(&self, flow: &Flow, packet: TxPacket) -> Result {
        let raw = flow.to_raw();
        // SAFETY: the socket is valid by the type's invariant; the packet is
        // given away.
        to_result(unsafe { sys::mroce_xmit_once(self.0.as_ptr(), &raw, packet.into_raw()) })
    }

    pub(super) fn as_ptr(&self) -> *mut sys::RawSock {
        self.0.as_ptr()
    }
}

impl Drop for Socket {
    /// May sleep.
    fn drop(&mut self) {
        // SAFETY: gives back the reference owned by the invariant.
        unsafe { sys::mroce_sock_put(self.0.as_ptr()) };
    }
}
