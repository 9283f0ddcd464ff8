// SPDX-License-Identifier: GPL-2.0

//! Scatter/gather lists, checked and tied to their memory regions.

use super::{dev::Device, mr::Mr, ring::Ring};
use crate::{abi, engine::Refusal, sync::PageSlice};
use kernel::{prelude::*, sync::Arc};

/// One element: `len` bytes from `offset` of a region.
///
/// Holds the region's shell, not its pages: those are entered per copy, so a region may be
/// deregistered while work requests that name it are pending, and these then fail.
#[derive(Default)]
pub(super) struct BoundSge {
    mr: Option<Arc<Mr>>,
    /// Bytes from the start of the region.
    offset: u64,
    len: u32,
}

impl BoundSge {
    /// Checks an element against the region its key names. `None` is a protection error: no such
    /// key, another protection domain, outside the region, or `write` without that right
    /// (IB specification 10.6.6.3). An empty element names no memory and is not checked.
    pub(super) fn bind(dev: &Device, pd: u32, sge: &abi::Sge, write: bool) -> Option<Self> {
        if sge.length == 0 {
            return Some(Self::default());
        }
        let mr = dev.mr(sge.lkey)?;
        if mr.pd() != pd || (write && !mr.access().local_write) {
            return None;
        }
        let offset = mr.offset_of(sge.addr, sge.length.into())?;
        Some(Self {
            mr: Some(mr),
            offset,
            len: sge.length,
        })
    }
}

/// Why a list in a ring cannot be used.
pub(super) enum ListError {
    /// It does not lie in its slot.
    Malformed,
    /// [`BoundSge::bind`] refused an element.
    Protection,
}

/// Reads the elements from `offset` of slot `index`, one for each of `list`, and binds them. Each is
/// copied once. Returns the number of bytes they describe.
pub(super) fn load(
    dev: &Device,
    pd: u32,
    ring: &Ring,
    index: u32,
    mut offset: usize,
    list: &mut [BoundSge],
    write: bool,
) -> Result<u64, ListError> {
    let mut total: u64 = 0;
    for bound in list {
        let sge: abi::Sge = ring.read(index, offset).ok_or(ListError::Malformed)?;
        *bound = BoundSge::bind(dev, pd, &sge, write).ok_or(ListError::Protection)?;
        total = total.saturating_add(u64::from(sge.length));
        offset = offset.saturating_add(core::mem::size_of::<abi::Sge>());
    }
    Ok(total)
}

/// Lends the parts of pages behind bytes `offset..offset + len` of the message that `list`
/// describes, in order. Any context.
pub(super) fn walk(
    list: &[BoundSge],
    offset: u32,
    len: u32,
    f: &mut dyn FnMut(PageSlice<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut skip = u64::from(offset);
    let mut left = u64::from(len);
    for sge in list {
        if left == 0 {
            break;
        }
        let size = u64::from(sge.len);
        if skip >= size {
            skip = skip.saturating_sub(size);
            continue;
        }
        let take = size.saturating_sub(skip).min(left);
        let mr = sge.mr.as_ref().ok_or(Refusal::Operation)?;
        mr.segments(sge.offset.saturating_add(skip), take, f)?;
        left = left.saturating_sub(take);
        skip = 0;
    }
    if left == 0 {
        Ok(())
    } else {
        Err(Refusal::Operation)
    }
}
