// SPDX-License-Identifier: GPL-2.0

//! Parts of pinned pages.

use crate::ffi::bindings as ffi;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::types::NotThreadSafe;

/// A range of bytes in one pinned page.
///
/// User space, other CPUs and other packets may read and write the bytes at any time, so they are
/// only ever copied, never lent as a slice.
///
/// # Invariants
///
/// `page` is pinned for `'a`, and `offset + len <= PAGE_SIZE`.
#[derive(Clone, Copy)]
pub struct PageSlice<'a> {
    page: NonNull<ffi::page>,
    offset: u32,
    len: u32,
    _pin: PhantomData<&'a ()>,
}

// SAFETY: It only names memory whose accesses are all raw copies; see the type.
unsafe impl Send for PageSlice<'_> {}
// SAFETY: As above.
unsafe impl Sync for PageSlice<'_> {}

impl<'a> PageSlice<'a> {
    /// A range of `page`.
    ///
    /// # Safety
    ///
    /// The page must stay pinned (or otherwise referenced) for `'a`, and `offset + len` must not
    /// exceed `PAGE_SIZE`.
    #[inline]
    pub unsafe fn new(page: NonNull<ffi::page>, offset: u32, len: u32) -> Self {
        // INVARIANT: What the caller vouches for.
        Self {
            page,
            offset,
            len,
            _pin: PhantomData,
        }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offset of the first byte in its page.
    #[inline]
    pub fn page_offset(&self) -> usize {
        self.offset as usize
    }

    /// The C page, for attaching it to a packet; whoever keeps it beyond `'a` takes a reference
    /// with [`get_page`](Self::get_page).
    #[inline]
    pub fn page_ptr(&self) -> *mut ffi::page {
        self.page.as_ptr()
    }

    /// Takes a reference count on the page, for someone who drops it with `put_page()`.
    #[inline]
    pub fn get_page(&self) {
        // SAFETY: The page is pinned, so its count is not zero.
        unsafe { ffi::mroce_get_page(self.page.as_ptr()) }
    }

    /// The part `[at, at + len)` of the slice, if it lies inside.
    #[inline]
    pub fn sub(&self, at: usize, len: usize) -> Option<Self> {
        let end = at.checked_add(len)?;
        if end > self.len() {
            return None;
        }
        // INVARIANT: A part of a range that fits the page. `at` and `len` fit `u32` because they
        // are at most `self.len`.
        Some(Self {
            page: self.page,
            offset: self.offset + at as u32,
            len: len as u32,
            _pin: PhantomData,
        })
    }

    /// Makes the bytes addressable by this CPU. Any context; do not sleep while it lives.
    #[inline]
    pub fn map(&self) -> MappedSlice<'a> {
        // SAFETY: The page is alive by the type invariant; unmapped in `MappedSlice::drop`.
        let base = unsafe { ffi::mroce_kmap_local(self.page.as_ptr()) }.cast::<u8>();
        MappedSlice {
            base,
            offset: self.offset as usize,
            len: self.len as usize,
            _pin: PhantomData,
            _not_send: NotThreadSafe,
        }
    }

    /// Copies from the slice. Copies and returns as many bytes as both sides have.
    pub fn read(&self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.len());
        let map = self.map();
        // SAFETY: `map` covers at least `n` bytes, `to` as well. The copy is a C function, so that
        // concurrent writers of the page lead to torn data, not to undefined behaviour here.
        unsafe { ffi::mroce_memcpy(to.as_mut_ptr().cast(), map.as_ptr().cast(), n) };
        n
    }

    /// Copies into the slice. Copies and returns as many bytes as both sides have.
    pub fn write(&self, from: &[u8]) -> usize {
        let n = from.len().min(self.len());
        let map = self.map();
        // SAFETY: As in `read`.
        unsafe { ffi::mroce_memcpy(map.as_ptr().cast(), from.as_ptr().cast(), n) };
        n
    }

    /// Copies from another slice. Copies and returns as many bytes as both sides have.
    pub fn copy_from(&self, from: &PageSlice<'_>) -> usize {
        let n = from.len().min(self.len());
        let src = from.map();
        let dst = self.map();
        // SAFETY: Both mappings cover `n` bytes. Overlap gives undefined contents (as the RDMA
        // specification allows for overlapping buffers), never an access outside the two ranges.
        unsafe { ffi::mroce_memcpy(dst.as_ptr().cast(), src.as_ptr().cast(), n) };
        n
    }

    /// The address of the slice's first 8 bytes, if it has them and they are aligned.
    fn atomic_u64<R>(&self, op: impl FnOnce(*mut kernel::ffi::c_void) -> R) -> Option<R> {
        if self.len < 8 || self.offset % 8 != 0 {
            return None;
        }
        let map = self.map();
        Some(op(map.as_ptr().cast()))
    }

    /// Atomically replaces the first 8 bytes by `swap` if they are `compare`, and returns what was
    /// there before. `None` if the slice is shorter than 8 bytes or not aligned to 8.
    pub fn compare_swap(&self, compare: u64, swap: u64) -> Option<u64> {
        // SAFETY: `atomic_u64` passes a mapped, aligned address with 8 bytes behind it.
        self.atomic_u64(|at| unsafe { ffi::mroce_atomic64_cmpxchg(at, compare, swap) })
    }

    /// Atomically stores the first 8 bytes, after all earlier accesses. `false` if the slice is shorter
    /// than 8 bytes or not aligned to 8.
    pub fn store(&self, value: u64) -> bool {
        // SAFETY: `atomic_u64` passes a mapped, aligned address with 8 bytes behind it.
        self.atomic_u64(|at| unsafe { ffi::mroce_atomic64_store(at, value) })
            .is_some()
    }

    /// Atomically adds `add` (modulo 2^64) to the first 8 bytes, and returns what was there before.
    /// `None` if the slice is shorter than 8 bytes or not aligned to 8.
    pub fn fetch_add(&self, add: u64) -> Option<u64> {
        // SAFETY: `atomic_u64` passes a mapped, aligned address with 8 bytes behind it.
        self.atomic_u64(|at| unsafe { ffi::mroce_atomic64_fetch_add(at, add) })
    }
}

/// A [`PageSlice`] mapped into the kernel's address space. Unmapped when dropped; several must be
/// dropped in reverse order, as scopes do.
///
/// # Invariants
///
/// `base` is the mapping of a page that is pinned for `'a`; `offset + len` lies within it.
pub struct MappedSlice<'a> {
    base: *mut u8,
    offset: usize,
    len: usize,
    _pin: PhantomData<&'a ()>,
    _not_send: NotThreadSafe,
}

impl MappedSlice<'_> {
    /// First byte; [`len`](Self::len) bytes are accessible for as long as `self` lives.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.wrapping_add(self.offset)
    }

    /// Number of accessible bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for MappedSlice<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `base` came from `kmap_local`, on this thread (the type is not `Send`).
        unsafe { ffi::mroce_kunmap_local(self.base.cast()) }
    }
}
