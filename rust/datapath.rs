// SPDX-License-Identifier: GPL-2.0

//! Between the engine and the machine: connections with their lock and timer,
//! packets in and out, payload to and from pinned memory.
//!
//! ```text
//!   doorbell (process)          UDP receive (softirq)        soft hrtimer
//!        |                            |                           |
//!        |                    rx: peek, find Conn                 |
//!        v                            v                           v
//!   +--------------------- Conn.lock (BH spinlock) ----------------------+
//!   |  engine::Connection  <---- calls ---->  Host: verbs::Qp, skb, Route |
//!   +--------------------------------------------------------------------+
//! ```
//!
//! Everything a connection does happens under its lock, transmission too, so
//! that the packets of a path leave in sequence order. Nothing recurses: what
//! the stack delivers to this machine arrives from its own softirq later.
//!
//! After a burst of received packets the connection is called once more to
//! acknowledge and to send: at once when a short packet ends a message, else
//! after some packets or from a BH work item ([`conn::Conn`]).
//!
//! Locks, outermost first: `Port.state` (mutex) -> `Conn.live` -> the locks of
//! `verbs`. The tables of [`shared::Shared`] are leaves.

pub mod conn;
mod counters;
pub mod datagram;
mod host;
pub mod port;
mod rx;
pub mod shared;
mod store;
pub mod transport;

pub use shared::{
    Settings,
    Shared,
    SHARED, //
};

/// The datapath as `verbs` sees it: implements [`crate::verbs::Transport`].
pub struct Datapath;
