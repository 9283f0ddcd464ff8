// SPDX-License-Identifier: GPL-2.0

//! metaroce: RDMA over lossy Ethernet, in software.
//!
//! A reliable-connection RDMA device (verbs unchanged) on top of a transport
//! that expects packets to be lost and reordered: many UDP paths per pair of
//! devices, selective acknowledgement per path, one congestion controller.
//!
//! ```text
//!                 applications (libibverbs)      kernel clients
//!                          |                          |
//!                   drivers/infiniband/core  ---------+
//!                          |
//!   rdma      ops tables, objects, pinned memory, mapped queues
//!   verbs     PD MR CQ QP SRQ: state rules, rings, matching       process context
//!   datapath  Conn: lock, timer; engine <-> packets, memory       softirq
//!   engine    streams, connection, paths: the protocol, no I/O    softirq
//!   net       UDP tunnel sockets, packets, routes, notifiers      softirq
//!                          |
//!                   kernel network stack
//! ```
//!
//! Allowed imports (an arrow is "may import"): `engine -> (core)`, `sync ->
//! ffi`, `net -> ffi sync`, `rdma -> ffi sync`, `abi -> (core)`, `verbs -> rdma
//! sync abi engine`, `datapath -> verbs net engine sync`, `ctl -> verbs
//! datapath engine`, and this file -> all. Unsafe code lives in `ffi`, `sync`,
//! `net` and `rdma` only.

#![crate_name = "metaroce"]
#![allow(dead_code)]

pub mod ffi;
pub mod net;
pub mod sync;

use kernel::prelude::*;

module! {
    type: Metaroce,
    name: "metaroce",
    authors: ["metaroce developers"],
    description: "RDMA over lossy Ethernet",
    license: "GPL",
    alias: ["rdma-link-metaroce"],
}

struct Metaroce {}

impl kernel::Module for Metaroce {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {})
    }
}
