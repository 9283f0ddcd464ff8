// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use super::{object::core_object, Driver, Udata};
use kernel::prelude::*;

core_object! {
    /// A protection domain (`struct ib_pd`).
    Pd, NewPd, ib_pd, Pd
}

/// Operations on protection domains. Process context.
#[vtable]
pub trait PdOps<D: Driver>: Sized + Send + Sync {
    /// Creates one; `udata` is `None` for a kernel client.
    fn alloc(pd: &NewPd<'_, D>, udata: Option<Udata<'_>>) -> Result<Self>;

    /// About to be dropped.
    fn dealloc(&self, _pd: &Pd<D>) {}
}
