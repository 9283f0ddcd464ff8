// SPDX-License-Identifier: GPL-2.0

//! The verbs: protection domains, memory regions, completion queues, queue pairs.
//!
//! Rules of the InfiniBand specification live here: states, rights, bounds, what completes how and
//! in which order. How messages travel does not: a QP reaches the data path through [`Transport`],
//! and the data path reaches the QP through the methods in [`qp`] that are marked "softirq".
//!
//! # Locks
//!
//! `Qp::attrs` (mutex, process) -> the connection's lock (data path) or, of a datagram QP, its link's
//! -> `Qp::sq` | `Qp::rq` ->
//! `Cq::inner`; a window's lock and the tables of keys are leaves. Completion handlers and event handlers of the core are
//! called without any of the queue locks.
#![deny(unsafe_code)]

mod ah;
mod cq;
pub(crate) mod datagram;
pub(crate) mod dev;
mod key;
mod limits;
mod mr;
mod mw;
mod pd;
mod posters;
pub(crate) mod qp;
mod qp_modify;
mod recv_queue;
mod ring;
mod send_queue;
mod sge;
mod srq;
mod transport;

pub use dev::{newlink, Devices, Driver, DEVICES};
pub use transport::{AddressVector, CounterName, Transport};
