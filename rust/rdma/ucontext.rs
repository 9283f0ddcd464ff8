// SPDX-License-Identifier: GPL-2.0

//! A process' use of a device.

use super::{object::core_object, Driver, Udata};
use kernel::prelude::*;

core_object! {
    /// An open device file (`struct ib_ucontext`).
    Ucontext, NewUcontext, ib_ucontext, Ucontext
}

/// Operations on user contexts. Process context.
#[vtable]
pub trait UcontextOps<D: Driver>: Sized + Send + Sync {
    /// A process opened the device.
    fn alloc(cx: &NewUcontext<'_, D>, udata: Udata<'_>) -> Result<Self>;

    /// All objects of the context are gone; it is about to be dropped.
    fn dealloc(&self, _cx: &Ucontext<D>) {}
}
