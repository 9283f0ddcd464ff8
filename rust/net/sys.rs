// SPDX-License-Identifier: GPL-2.0

//! Declarations of `rust/ffi/helpers_net.h`; the two must stay in step.

use kernel::{
    bindings::{
        net_device,
        sk_buff, //
    },
    ffi::{
        c_char,
        c_int,
        c_uint,
        c_ulong,
        c_void, //
    },
};

/// `struct mroce_rx_info`.
#[repr(C)]
pub(super) struct RawRxInfo {
    pub(super) src: [u8; 16],
    pub(super) dst: [u8; 16],
    pub(super) net_cookie: u64,
    pub(super) len: u32,
    pub(super) ifindex: u32,
    pub(super) sport: u16,
    pub(super) ecn: u8,
    pub(super) v6: u8,
    pub(super) vlan: u16,
}

/// `struct mroce_flow`.
#[repr(C)]
pub(super) struct RawFlow {
    pub(super) src: [u8; 16],
    pub(super) dst: [u8; 16],
    pub(super) oif: u32,
    pub(super) dport: u16,
    pub(super) v6: u8,
    pub(super) tos: u8,
}

/// `struct mroce_sock`, opaque.
#[repr(C)]
pub(super) struct RawSock([u8; 0]);
/// `struct mroce_route`, opaque.
#[repr(C)]
pub(super) struct RawRoute([u8; 0]);
/// `struct mroce_softirq`, opaque.
#[repr(C)]
pub(super) struct RawSoftirq([u8; 0]);

pub(super) type RxFn = unsafe extern "C" fn(*mut sk_buff, *mut RawSock, *const RawRxInfo);
pub(super) type CallFn = unsafe extern "C" fn(*mut c_void);
pub(super) type NetdevFn = unsafe extern "C" fn(*mut net_device, c_ulong);
pub(super) type WalkFn = unsafe extern "C" fn(*mut c_void, *const c_void, c_uint) -> c_int;

extern "C" {
    pub(super) fn mroce_net_init(f: NetdevFn) -> c_int;
    pub(super) fn mroce_net_exit();

    pub(super) fn mroce_sock_open(
        dev: *mut net_device,
        v6: c_int,
        port: u16,
        rx: Option<RxFn>,
    ) -> *mut RawSock;
    pub(super) fn mroce_sock_put(s: *mut RawSock);
    pub(super) fn mroce_sock_port(s: *const RawSock) -> u16;

    pub(super) fn mroce_skb_alloc(len: c_uint) -> *mut sk_buff;
    pub(super) fn mroce_skb_put(skb: *mut sk_buff, len: c_uint) -> *mut c_void;
    pub(super) fn mroce_skb_add(skb: *mut sk_buff, len: c_uint) -> *mut c_void;
    pub(super) fn mroce_skb_shorten(skb: *mut sk_buff, len: c_uint);
    pub(super) fn mroce_skb_set_burst(skb: *mut sk_buff, size: c_uint, n: c_uint);
    pub(super) fn mroce_skb_free(skb: *mut sk_buff);
    pub(super) fn mroce_skb_len(skb: *const sk_buff) -> c_uint;
    pub(super) fn mroce_skb_consume(skb: *mut sk_buff);
    pub(super) fn mroce_skb_read(
        skb: *const sk_buff,
        offset: c_uint,
        to: *mut c_void,
        len: c_uint,
    ) -> c_int;
    pub(super) fn mroce_skb_grh(skb: *const sk_buff, to: *mut u8);
    pub(super) fn mroce_skb_walk(
        skb: *mut sk_buff,
        offset: c_uint,
        len: c_uint,
        f: WalkFn,
        ctx: *mut c_void,
    ) -> c_int;

    pub(super) fn mroce_route_alloc() -> *mut RawRoute;
    pub(super) fn mroce_route_free(r: *mut RawRoute);
    pub(super) fn mroce_route_mtu(r: *mut RawRoute, s: *mut RawSock, f: *const RawFlow) -> c_int;
    pub(super) fn mroce_xmit(
        r: *mut RawRoute,
        s: *mut RawSock,
        f: *const RawFlow,
        skb: *mut sk_buff,
    ) -> c_int;
    pub(super) fn mroce_xmit_once(s: *mut RawSock, f: *const RawFlow, skb: *mut sk_buff) -> c_int;

    pub(super) fn mroce_softirq_alloc(
        timer: CallFn,
        work: CallFn,
        ctx: *mut c_void,
    ) -> *mut RawSoftirq;
    pub(super) fn mroce_softirq_arm(t: *mut RawSoftirq, expires_ns: u64);
    pub(super) fn mroce_softirq_raise(t: *mut RawSoftirq);
    pub(super) fn mroce_softirq_shutdown(t: *mut RawSoftirq);
    pub(super) fn mroce_softirq_free(t: *mut RawSoftirq);

    pub(super) fn mroce_netdev_net_cookie(dev: *const net_device) -> u64;
    pub(super) fn mroce_netdev_speed(dev: *mut net_device) -> u32;
    pub(super) fn mroce_netdev_has_v6(dev: *const net_device, addr: *const u8) -> bool;
    pub(super) fn mroce_netdev_name(dev: *const net_device) -> *const c_char;
}
