// SPDX-License-Identifier: GPL-2.0

//! Abstractions for RDMA device drivers.
//!
//! A driver implements [`Driver`] and, for each kind of object, the trait of that object
//! ([`PdOps`], [`CqOps`], [`QpOps`], ...). The operations table is built from these at compile
//! time; an operation that the driver does not define is absent from it, so that the core answers
//! `EOPNOTSUPP` or hides the feature.
//!
//! # Life of an object
//!
//! The core allocates a zeroed object whose size the driver states, calls the driver's create, and
//! later its destroy, then frees the memory. Here:
//!
//! 1. The create callback lends a `New*` view (device, parent objects, [`Handle`]) to the driver's
//!    `create`, which returns its own part by value; that is moved into the object. Keep it small:
//!    an `Arc` to the real thing, and what only process context may drop (mappings, pinned memory).
//! 2. Later callbacks get both: `&self` (the driver's part) and the typed object.
//! 3. The destroy callback calls the driver's `destroy`, then closes the object's [`Handle`] and
//!    waits for its users, then drops the driver's part. All in process context.
//!
//! Memory regions differ: the driver allocates them, so the seam does.
//!
//! An `Arc` made in 1 may live longer than the C object (a timer or a packet may hold it). What it
//! needs of the C object, raising events and completions, goes through a [`Handle`], which turns
//! into a no-op at 3.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

mod ah;
mod attr;
mod cq;
mod device;
mod event;
mod gid;
mod handle;
mod link;
mod mmap;
mod mr;
mod mw;
mod object;
mod ops;
mod pd;
mod qp;
mod qp_attr;
mod srq;
mod stats;
mod ucontext;
mod udata;
mod umem;
mod wr;

pub use ah::{Ah, AhOps, NewAh};
pub use attr::{port_cap, AtomicCap, DeviceAttr, LinkLayer, Mtu, PhysState, PortAttr, PortState};
pub use cq::{Cq, CqInitAttr, CqOps, NewCq, Notify};
pub use device::{Device, DeviceRef, Driver, NewDevice, PortImmutable};
pub use event::{CqEvent, PortEvent, QpEvent, SrqEvent};
pub use gid::{AhAttr, AhValues, ChangingGid, Gid, GidAttr, GidType};
pub use handle::{CqHandle, DeviceHandle, Handle, QpHandle, SrqHandle};
pub use link::{LinkRegistration, LinkType};
pub use mmap::{MmapEntry, UserRing};
pub use mr::{access, Mr, MrOps, MrRequest};
pub use mw::{Mw, MwOps, MwType, NewMw};
pub use object::Unsupported;
pub use pd::{NewPd, Pd, PdOps};
pub use qp::{NewQp, Qp, QpCap, QpInitAttr, QpOps, QpType};
pub use qp_attr::{modify_is_ok, QpAttr, QpAttrOut, QpMask, QpState};
pub use srq::{NewSrq, Srq, SrqAttr, SrqMask, SrqOps};
pub use stats::{StatDesc, StatValues};
pub use ucontext::{NewUcontext, Ucontext, UcontextOps};
pub use udata::Udata;
pub use umem::{Pages, Segments, UmemPages};
pub use wr::{Network, RecvWr, SendWr, Sge, Wc, WcArray, WcStatus};
