// SPDX-License-Identifier: GPL-2.0

//! Counters of a port (`rdma statistic`, sysfs `hw_counters`).

use crate::ffi::bindings as ffi;
use core::ptr::NonNull;
use kernel::{prelude::*, str::CStr};

/// Name of a counter.
#[repr(transparent)]
pub struct StatDesc(ffi::rdma_stat_desc);

// SAFETY: Only holds a pointer to a constant string.
unsafe impl Sync for StatDesc {}

impl StatDesc {
    /// A counter that user space sees under `name`.
    pub const fn new(name: &'static CStr) -> Self {
        Self(ffi::rdma_stat_desc {
            name: name.to_bytes_with_nul().as_ptr().cast(),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }

    pub(super) fn alloc(descs: &'static [Self]) -> *mut ffi::rdma_hw_stats {
        let Ok(n) = kernel::ffi::c_int::try_from(descs.len()) else {
            return core::ptr::null_mut();
        };
        // SAFETY: `StatDesc` is transparent over the C type, and the array lives for ever.
        unsafe { ffi::mroce_hw_stats_alloc(descs.as_ptr().cast(), n) }
    }
}

/// Where a driver puts the values, in the order of its descriptions.
pub struct StatValues<'a> {
    raw: NonNull<ffi::rdma_hw_stats>,
    count: kernel::ffi::c_int,
    _call: core::marker::PhantomData<&'a ()>,
}

impl StatValues<'_> {
    /// # Safety
    ///
    /// `raw` must be valid and locked by the caller for `'a`.
    pub(super) unsafe fn from_raw(raw: *mut ffi::rdma_hw_stats) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or(EINVAL)?;
        // SAFETY: Valid by contract; the field is constant.
        let count = unsafe { (*raw.as_ptr()).num_counters };
        Ok(Self {
            raw,
            count,
            _call: core::marker::PhantomData,
        })
    }

    pub(super) fn count(&self) -> kernel::ffi::c_int {
        self.count
    }

    /// Sets one value; an index outside is ignored.
    pub fn set(&mut self, index: usize, value: u64) {
        let Ok(index) = kernel::ffi::c_int::try_from(index) else {
            return;
        };
        // SAFETY: Valid for `'a`; the helper checks the index.
        unsafe { ffi::mroce_hw_stats_set(self.raw.as_ptr(), index, value) };
    }
}
