// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The protocol engine: connections, paths and streams without any I/O.
//!
//! Time and packets come in through the methods of [`Connection`]; datagrams, placements and
//! completions go out through the embedder's [`Host`]; the next deadline is asked for. The engine
//! takes no lock, reads no clock, allocates nothing after construction, uses no floating point and never
//! panics, whatever the bytes from the network. The same source is compiled into the kernel module and, under
//! cargo, for tests on the host: it may name `core` and `crate::engine` only.
//!
//! ```text
//!   Stream (one per RC QP)   requester: order, attempts, refusals | responder: matching, order
//!      |  deficit round robin
//!   Connection               handshake, spraying, deadlines
//!      |  one packet at a time
//!   Path (1..=64)            sequence space, SACK, loss repair, window, RTT
//! ```
//!
//! # Classes of methods
//!
//! * commands of the embedder: `open`, `attach`, `detach`, `start_requester`, `fail`, `kick`,
//!   `grow_streams`;
//! * input: `handle_datagram` for each datagram of a burst, then `end_of_burst` once;
//! * time: `next_deadline` after any of the others, `handle_timeout` when it has come. Calling it
//!   early, late or for nothing does no harm.
//!
//! # Contract
//!
//! All calls for one connection are serialised by the embedder (a lock with bottom halves off in the
//! kernel). Packets of one [`api::Route`] leave in the order of [`Host::transmit`]. An acknowledgement
//! always means "placed in the memory it is for".

#![deny(unsafe_code)]

pub mod api;
pub mod bits;
pub mod burst;
pub mod cc;
pub mod conn;
pub mod hints;
pub mod mtu;
pub mod path;
pub mod rtt;
pub mod seq;
pub mod spray;
pub mod stream;
pub mod time;
pub mod wire;

pub use api::{
    AtomicOp, Config, ConnEvent, Flush, Handled, Host, LocalParams, Opcode, Payload, PayloadSource,
    RecvDone, Refusal, RemoteAccess, Request, RequesterAttr, Route, RxMeta, Store, StreamAttr,
    StreamError, Transmit, TxOutcome, WcStatus, WqeId,
};
pub use conn::{Connection, PathInfo, StreamId, StreamTable};
pub use stream::Stream;
pub use time::{Instant, Span};
