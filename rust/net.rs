// SPDX-License-Identifier: GPL-2.0

//! The lower edge: UDP tunnel sockets, packets, routes, network devices, and
//! the softirq and process-context callbacks that drive the datapath.
//!
//! Everything here is a safe wrapper of the C functions in
//! `rust/ffi/helpers_net.c`; the protocol, RDMA and the connection are unknown
//! to it. May import only `ffi` and `sync`.
//!
//! | module       | holds                                                    |
//! |--------------|----------------------------------------------------------|
//! | [`addr`]     | addresses and the per-packet [`addr::Flow`]               |
//! | [`netdev`]   | device events, module set-up, what `sync::NetDev` lacks   |
//! | [`socket`]   | bound tunnel sockets and the receive callback             |
//! | [`skb`]      | packets under construction and packets just received      |
//! | [`route`]    | cached routes and transmission                            |
//! | [`deferred`] | soft timer, BH work, delayed work                         |

pub mod addr;
pub mod deferred;
pub mod netdev;
pub mod route;
pub mod skb;
pub mod socket;
mod sys;
