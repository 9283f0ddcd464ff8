// SPDX-License-Identifier: GPL-2.0

//! Protection domains and user contexts.

use super::{limits, Driver};
use crate::{abi, rdma};
use kernel::{
    prelude::*,
    sync::atomic::{ordering::Relaxed, Atomic},
};

/// A protection domain: a number that regions and QPs must share.
pub struct PdObject {
    id: u32,
}

impl PdObject {
    /// Its number, unique among the live ones unless 2^32 are made meanwhile.
    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

static NEXT_ID: Atomic<u32> = Atomic::new(1);

#[vtable]
impl rdma::PdOps<Driver> for PdObject {
    fn alloc(_pd: &rdma::NewPd<'_, Driver>, udata: Option<rdma::Udata<'_>>) -> Result<Self> {
        if let Some(udata) = udata {
            udata.no_io()?;
        }
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
        })
    }
}

/// A process' context; it has no state of its own.
pub struct UcontextObject;

#[vtable]
impl rdma::UcontextOps<Driver> for UcontextObject {
    fn alloc(_cx: &rdma::NewUcontext<'_, Driver>, udata: rdma::Udata<'_>) -> Result<Self> {
        udata.respond(&abi::AllocUcontextResp {
            abi_version: abi::ABI_VERSION,
            features: abi::FEATURE_NEED_WAKEUP,
            max_inline: limits::MAX_INLINE,
            reserved: 0,
        })?;
        Ok(Self)
    }
}
