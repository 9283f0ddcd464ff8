// SPDX-License-Identifier: GPL-2.0

//! Memory shared with a process: the rings of queues.

use super::{Driver, Ucontext};
use crate::ffi::bindings as ffi;
use core::ptr::NonNull;
use kernel::{
    error::to_result,
    page::{page_align, PAGE_SIZE},
    prelude::*,
    sync::{
        atomic::{atomic_load, atomic_store, ordering},
        Arc,
    },
};

/// Zeroed pages of kernel memory that a process can map ([`MmapEntry`]).
///
/// The process may change any byte at any time: every access is checked against the length, reads
/// its bytes once, and says nothing about what a second read would find. May be dropped in softirq
/// context.
///
/// # Invariants
///
/// `base` is `len` bytes of `vmalloc_user()` memory, `len` a multiple of the page size.
pub struct UserRing {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: All accesses are atomic, or raw copies by a C function.
unsafe impl Send for UserRing {}
// SAFETY: As above.
unsafe impl Sync for UserRing {}

impl UserRing {
    /// Allocates at least `len` bytes. Process context.
    pub fn new(len: usize) -> Result<Arc<Self>> {
        let len = page_align(len).filter(|len| *len != 0).ok_or(EINVAL)?;
        // SAFETY: No preconditions.
        let base = unsafe { ffi::mroce_vmalloc_user(len) };
        let base = NonNull::new(base.cast()).ok_or(ENOMEM)?;
        // INVARIANT: Just allocated; freed by drop, also if the next line fails.
        Ok(Arc::new(Self { base, len }, GFP_KERNEL)?)
    }

    /// Size in bytes, a multiple of the page size.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn range(&self, offset: usize, len: usize) -> Option<*mut u8> {
        (offset.checked_add(len)? <= self.len).then(|| self.base.as_ptr().wrapping_add(offset))
    }

    #[inline]
    fn word(&self, offset: usize) -> Option<*mut u32> {
        (offset % 4 == 0).then_some(())?;
        Some(self.range(offset, 4)?.cast())
    }

    /// Reads a word, without ordering. `None` if misaligned or outside.
    #[inline]
    pub fn read_u32(&self, offset: usize) -> Option<u32> {
        let at = self.word(offset)?;
        // SAFETY: `word` checked address and alignment; other accesses of words are atomic too.
        Some(unsafe { atomic_load(at, ordering::Relaxed) })
    }

    /// Reads a word; later reads see what was written before its value was released.
    #[inline]
    pub fn read_u32_acquire(&self, offset: usize) -> Option<u32> {
        let at = self.word(offset)?;
        // SAFETY: As in `read_u32`.
        Some(unsafe { atomic_load(at, ordering::Acquire) })
    }

    /// Writes a word, without ordering. `None` if misaligned or outside.
    #[inline]
    pub fn write_u32(&self, offset: usize, value: u32) -> Option<()> {
        let at = self.word(offset)?;
        // SAFETY: As in `read_u32`.
        unsafe { atomic_store(at, value, ordering::Relaxed) };
        Some(())
    }

    /// Writes a word after everything that was written before.
    #[inline]
    pub fn write_u32_release(&self, offset: usize, value: u32) -> Option<()> {
        let at = self.word(offset)?;
        // SAFETY: As in `read_u32`.
        unsafe { atomic_store(at, value, ordering::Release) };
        Some(())
    }

    /// A full memory barrier: for "set a flag, then look again" protocols with the process.
    #[inline]
    pub fn full_barrier(&self) {
        kernel::sync::barrier::smp_mb(kernel::sync::atomic::ordering::Full);
    }

    /// Copies `to.len()` bytes out. `None`, and nothing copied, if not all are inside.
    #[inline]
    pub fn read_bytes(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        let at = self.range(offset, to.len())?;
        // SAFETY: Both ranges are valid. The copy is a C function: a process that writes meanwhile
        // makes the copy inconsistent, which whoever reads it has to check anyway.
        unsafe { ffi::mroce_memcpy(to.as_mut_ptr().cast(), at.cast(), to.len()) };
        Some(())
    }

    /// Copies `from` in. `None`, and nothing copied, if it does not fit.
    #[inline]
    pub fn write_bytes(&self, offset: usize, from: &[u8]) -> Option<()> {
        let at = self.range(offset, from.len())?;
        // SAFETY: As in `read_bytes`.
        unsafe { ffi::mroce_memcpy(at.cast(), from.as_ptr().cast(), from.len()) };
        Some(())
    }
}

impl Drop for UserRing {
    fn drop(&mut self) {
        // SAFETY: Our allocation; mappings hold their own page references. In interrupt context
        // `vfree()` defers the work by itself.
        unsafe { ffi::vfree(self.base.as_ptr().cast()) };
    }
}

/// What the core's table of mappable ranges points to.
#[repr(C)]
struct Entry {
    ib: ffi::rdma_user_mmap_entry,
    ring: Arc<UserRing>,
}

/// Lets the process of a context map a [`UserRing`].
///
/// Created and dropped in process context, within the life of the context: keep it in the object's
/// own part, not behind an `Arc` that packets hold. After drop no new mapping is possible; existing
/// ones keep their pages.
///
/// # Invariants
///
/// `entry` is in the table of its context and owned by it; we hold the driver's reference.
pub struct MmapEntry {
    entry: NonNull<Entry>,
}

// SAFETY: The entry is reference counted and locked by the core.
unsafe impl Send for MmapEntry {}
// SAFETY: As above; the methods read constant fields.
unsafe impl Sync for MmapEntry {}

impl MmapEntry {
    /// Makes `ring` mappable by the process of `ucontext`.
    pub fn new<D: Driver>(ucontext: &Ucontext<D>, ring: Arc<UserRing>) -> Result<Self> {
        let len = ring.len();
        let entry = KBox::new(
            Entry {
                ib: pin_init::zeroed(),
                ring,
            },
            GFP_KERNEL,
        )?;
        let entry = KBox::into_raw(entry);
        // SAFETY: The context is alive; `entry` is ours and stays in place from now on.
        let inserted = to_result(unsafe {
            ffi::rdma_user_mmap_entry_insert(ucontext.as_raw(), entry.cast(), len)
        });
        if let Err(e) = inserted {
            // SAFETY: The core did not take it.
            drop(unsafe { KBox::from_raw(entry) });
            return Err(e);
        }
        // INVARIANT: Inserted; the core frees it through `free` when the last reference goes.
        Ok(Self {
            entry: NonNull::new(entry).ok_or(EINVAL)?,
        })
    }

    /// The offset to pass to `mmap()`.
    pub fn offset(&self) -> u64 {
        // SAFETY: The entry is alive by the type invariant, and its place does not change.
        let pgoff = unsafe { (*self.entry.as_ptr()).ib.start_pgoff };
        (pgoff as u64).wrapping_mul(PAGE_SIZE as u64)
    }

    /// The length to pass to `mmap()`; nothing else is accepted.
    pub fn len(&self) -> usize {
        // SAFETY: The entry is alive by the type invariant.
        unsafe { (*self.entry.as_ptr()).ring.len() }
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory.
    pub fn ring(&self) -> &Arc<UserRing> {
        // SAFETY: The entry is alive by the type invariant, and nobody changes the field.
        unsafe { &(*self.entry.as_ptr()).ring }
    }
}

impl Drop for MmapEntry {
    fn drop(&mut self) {
        // SAFETY: Gives up the driver's reference, once.
        unsafe { ffi::rdma_user_mmap_entry_remove(self.entry.as_ptr().cast()) };
    }
}

/// `ib_device_ops.mmap`: maps a whole [`UserRing`].
///
/// # Safety
///
/// Only for the core; `ucontext` and `vma` are valid during the call.
pub(super) unsafe extern "C" fn mmap(
    ucontext: *mut ffi::ib_ucontext,
    vma: *mut ffi::vm_area_struct,
) -> kernel::ffi::c_int {
    // SAFETY: Both are valid by contract. Checks that the mapping is shared and has the length.
    let entry = unsafe { ffi::rdma_user_mmap_entry_get(ucontext, vma) };
    let Some(entry) = NonNull::new(entry) else {
        return EINVAL.to_errno();
    };
    // SAFETY: All entries of our contexts are `Entry`s; we hold a reference.
    let base = unsafe { (*entry.as_ptr().cast::<Entry>()).ring.base };
    // A child must not inherit the rings: two processes would produce into one.
    // SAFETY: `vma` is being set up by this call.
    unsafe { ffi::mroce_vma_no_fork(vma) };
    // SAFETY: `base` is `vmalloc_user()` memory as long as the mapping.
    let ret = unsafe { ffi::remap_vmalloc_range(vma, base.as_ptr().cast(), 0) };
    // SAFETY: Our reference from above.
    unsafe { ffi::rdma_user_mmap_entry_put(entry.as_ptr()) };
    ret
}

/// `ib_device_ops.mmap_free`: the last reference to an entry is gone.
///
/// # Safety
///
/// Only for the core; `entry` comes from [`MmapEntry::new`].
pub(super) unsafe extern "C" fn mmap_free(entry: *mut ffi::rdma_user_mmap_entry) {
    // SAFETY: It was made from a box of this type, and the core has let it go.
    drop(unsafe { KBox::from_raw(entry.cast::<Entry>()) });
}
