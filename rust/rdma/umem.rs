// SPDX-License-Identifier: GPL-2.0

//! Pinned memory of a process.
//!
//! C header: [`include/rdma/ib_umem.h`](srctree/include/rdma/ib_umem.h)

use super::{Device, Driver};
use crate::{ffi::bindings as ffi, sync::PageSlice};
use core::ptr::NonNull;
use kernel::{error::from_err_ptr, page::PAGE_SIZE, prelude::*};

/// A range of a process' memory, pinned, addressed by offsets from its start.
///
/// Created and dropped in process context only; drop unpins. The bytes may be accessed in any
/// context. The process can write them at any time.
///
/// # Invariants
///
/// `pages` are all pages of `umem`, pinned until it is released; the range starts `first` bytes
/// into the first page and is `len` bytes long, all of which lie in `pages`.
pub struct UmemPages {
    umem: NonNull<ffi::ib_umem>,
    pages: KVVec<NonNull<ffi::page>>,
    first: usize,
    len: usize,
}

// SAFETY: Pages are only accessed by raw copies, and releasing them is not bound to the thread.
unsafe impl Send for UmemPages {}
// SAFETY: As above; all fields are constant.
unsafe impl Sync for UmemPages {}

impl UmemPages {
    /// Pins `[addr, addr + len)` of the calling process; writable if `access` (see
    /// [`access`](super::access)) needs that.
    pub fn get<D: Driver>(dev: &Device<D>, addr: u64, len: u64, access: u32) -> Result<Self> {
        let addr = usize::try_from(addr)?;
        let len = usize::try_from(len)?;
        if len == 0 {
            return Err(EINVAL);
        }
        let first = addr % PAGE_SIZE;
        let count = first
            .checked_add(len)
            .and_then(|n| n.checked_add(PAGE_SIZE - 1))
            .ok_or(EOVERFLOW)?
            / PAGE_SIZE;
        // Before pinning, so that an absurd length fails early. The array is unused until filled.
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL)?;

        // SAFETY: The device is alive; the core checks the range and the rights.
        let umem = from_err_ptr(unsafe {
            ffi::mroce_umem_get_va(dev.as_raw(), addr, len, access as kernel::ffi::c_int)
        })?;
        let umem = NonNull::new(umem).ok_or(EINVAL)?;

        let spare = pages.spare_capacity_mut();
        // SAFETY: `umem` is alive, and the helper fills at most `spare.len()` pointers, which have
        // the same layout as `NonNull`.
        let filled =
            unsafe { ffi::mroce_umem_fill_pages(umem.as_ptr(), spare.as_mut_ptr().cast(), count) };
        if filled != count {
            // SAFETY: We own `umem`, and nothing points into it yet.
            unsafe { ffi::ib_umem_release(umem.as_ptr()) };
            return Err(EINVAL);
        }
        // SAFETY: The helper initialised `count` elements, none of them null: they are pages of a
        // scatter list.
        unsafe { pages.inc_len(count) };
        // INVARIANT: `count` pages cover `first + len` bytes.
        Ok(Self {
            umem,
            pages,
            first,
            len,
        })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never; an empty range cannot be pinned.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The parts of pages that make up `[offset, offset + len)`; `None` if that is not inside.
    pub fn segments(&self, offset: usize, len: usize) -> Option<Segments<'_>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        Some(Segments {
            pages: Some(&self.pages),
            at: self.first.checked_add(offset)?,
            left: len,
        })
    }
}

impl Drop for UmemPages {
    fn drop(&mut self) {
        // SAFETY: We own `umem`; the type invariant ends here, so no page is used any more.
        unsafe { ffi::ib_umem_release(self.umem.as_ptr()) };
    }
}

/// What a memory region consists of.
pub enum Pages {
    /// Pinned memory of a process.
    User(UmemPages),
    /// All memory of the kernel; an offset is the address (`ib_uses_virt_dma()`). Who names a range
    /// keeps its pages.
    Kernel,
}

impl Pages {
    /// The parts of pages that make up `[offset, offset + len)`; `None` if that is not inside. Those of
    /// kernel memory end early where no page is.
    pub fn segments(&self, offset: usize, len: usize) -> Option<Segments<'_>> {
        match self {
            Self::User(pages) => pages.segments(offset, len),
            Self::Kernel => {
                offset.checked_add(len)?;
                Some(Segments {
                    pages: None,
                    at: offset,
                    left: len,
                })
            }
        }
    }
}

/// Iterator over the parts of pages of a range.
///
/// # Invariants
///
/// `[at, at + left)` lies in `pages`, counted from the start of the first page; without `pages` it is a
/// range of kernel addresses.
#[derive(Clone)]
pub struct Segments<'a> {
    pages: Option<&'a [NonNull<ffi::page>]>,
    at: usize,
    left: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = PageSlice<'a>;

    #[inline]
    fn next(&mut self) -> Option<PageSlice<'a>> {
        if self.left == 0 {
            return None;
        }
        let page = match self.pages {
            Some(pages) => *pages.get(self.at / PAGE_SIZE)?,
            // SAFETY: The helper checks the address.
            None => NonNull::new(unsafe { ffi::mroce_virt_to_page(self.at as u64) })?,
        };
        let offset = self.at % PAGE_SIZE;
        let len = self.left.min(PAGE_SIZE - offset);
        self.at = self.at.wrapping_add(len);
        self.left -= len;
        // SAFETY: The page is pinned as long as the `UmemPages` lives, which `'a` borrows, or is the
        // kernel client's, who keeps it while its request or region is in use; `offset + len <=
        // PAGE_SIZE`.
        Some(unsafe { PageSlice::new(page, offset as u32, len as u32) })
    }
}
