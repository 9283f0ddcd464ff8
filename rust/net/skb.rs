// SPDX-License-Identifier: GPL-2.0

//! Packets: [`TxPacket`] under construction, [`RxPacket`] just received.

use super::sys;
use core::{
    mem::ManuallyDrop,
    ptr::NonNull,
    slice, //
};
use kernel::{
    bindings::sk_buff,
    error::to_result,
    ffi::{
        c_int,
        c_uint,
        c_void, //
    },
    prelude::*, //
};

/// A packet being built: linear, with room for the headers below ours; or a burst of datagrams
/// of one flow, which the stack or the device cuts apart.
///
/// # Invariants
///
/// The pointer is a valid skb of which this is the only owner.
pub struct TxPacket(NonNull<sk_buff>);

// SAFETY: a packet is not bound to a CPU or a task.
unsafe impl Send for TxPacket {}

impl TxPacket {
    /// Room for `len` bytes. Does not sleep; `None` when memory is short.
    pub fn alloc(len: u32) -> Option<Self> {
        // SAFETY: may be called in any context.
        let raw = unsafe { sys::mroce_skb_alloc(len) };
        // INVARIANT: a fresh skb has no other owner.
        NonNull::new(raw).map(Self)
    }

    /// Appends `len` bytes that `fill` must write completely (they hold stale
    /// kernel memory before). `None` if there is no room.
    pub fn append_with<T>(&mut self, len: u32, fill: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
        // SAFETY: valid by the type's invariant.
        let at = unsafe { sys::mroce_skb_put(self.0.as_ptr(), len) };
        let at = NonNull::new(at)?;
        // SAFETY: `skb_put()` has just given us these bytes of the linear
        // buffer, which nobody else refers to.
        let bytes = unsafe { slice::from_raw_parts_mut(at.as_ptr().cast::<u8>(), len as usize) };
        Some(fill(bytes))
    }

    /// Appends a copy of `bytes`. `None` if there is no room.
    pub fn append(&mut self, bytes: &[u8]) -> Option<()> {
        let len = u32::try_from(bytes.len()).ok()?;
        self.append_with(len, |room| {
            for (to, from) in room.iter_mut().zip(bytes) {
                *to = *from;
            }
        })
    }

    /// Adds a fragment of `len` bytes: payload, or another datagram of a burst. `fill` must write it completely or
    /// fail, and then it is taken back. `None`, and `fill` not called, if there is no room. BH disabled.
    /// All datagrams of a burst but the last one must be as long as the first.
    pub fn add_with<E>(
        &mut self,
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> core::result::Result<(), E>,
    ) -> Option<core::result::Result<(), E>> {
        let before = self.len();
        // SAFETY: valid by the type's invariant.
        let at = unsafe { sys::mroce_skb_add(self.0.as_ptr(), len) };
        let at = NonNull::new(at)?;
        // SAFETY: a fresh fragment of `len` bytes that only this packet refers to.
        let bytes = unsafe { slice::from_raw_parts_mut(at.as_ptr().cast::<u8>(), len as usize) };
        let filled = fill(bytes);
        if filled.is_err() {
            // SAFETY: valid by the type's invariant; the packet was that long before.
            unsafe { sys::mroce_skb_shorten(self.0.as_ptr(), before) };
        }
        Some(filled)
    }

    fn len(&self) -> u32 {
        // SAFETY: valid by the type's invariant.
        unsafe { sys::mroce_skb_len(self.0.as_ptr()) }
    }

    /// Says that the packet is a burst of `n` datagrams of `size` bytes, the last one perhaps
    /// shorter. Nothing may be added afterwards.
    pub fn set_burst(&mut self, size: u32, n: u32) {
        // SAFETY: valid by the type's invariant.
        unsafe { sys::mroce_skb_set_burst(self.0.as_ptr(), size, n) };
    }

    /// Gives the packet away.
    pub(super) fn into_raw(self) -> *mut sk_buff {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for TxPacket {
    fn drop(&mut self) {
        // SAFETY: the only owner by the type's invariant.
        unsafe { sys::mroce_skb_free(self.0.as_ptr()) };
    }
}

/// A received datagram; its bytes begin after the UDP header.
///
/// # Invariants
///
/// The pointer is a valid skb of which this is the only owner.
pub struct RxPacket(NonNull<sk_buff>);

// SAFETY: a packet is not bound to a CPU or a task.
unsafe impl Send for RxPacket {}

impl RxPacket {
    /// # Safety
    ///
    /// `skb` is valid, and its only owner gives it away.
    pub(super) unsafe fn from_raw(skb: NonNull<sk_buff>) -> Self {
        // INVARIANT: the caller's promise.
        Self(skb)
    }

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        // SAFETY: valid by the type's invariant.
        unsafe { sys::mroce_skb_len(self.0.as_ptr()) }
    }

    /// Copies the packet's first bytes, as many as there are and fit.
    pub fn read_start<'b>(&self, to: &'b mut [u8]) -> &'b [u8] {
        let n = usize::try_from(self.len()).unwrap_or(0).min(to.len());
        let Some(to) = to.get_mut(..n) else {
            return &[];
        };
        let Ok(len) = c_uint::try_from(n) else {
            return &[];
        };
        // SAFETY: valid by the type's invariant; `to` has `len` bytes.
        let ret = unsafe { sys::mroce_skb_read(self.0.as_ptr(), 0, to.as_mut_ptr().cast(), len) };
        if ret == 0 {
            to
        } else {
            &[]
        }
    }

    /// The 40 bytes that a datagram's receiver gets as its GRH (RoCEv2 annex A17.4.5.2): the IPv6
    /// header, or 20 zeros and the IPv4 header.
    pub fn grh(&self) -> [u8; 40] {
        let mut grh = [0u8; 40];
        // SAFETY: valid by the type's invariant, received by UDP and so with a complete IP header;
        // the helper writes 40 bytes.
        unsafe { sys::mroce_skb_grh(self.0.as_ptr(), grh.as_mut_ptr()) };
        grh
    }

    /// Calls `f` with the contiguous pieces of bytes `offset..offset + len` in
    /// order, until one returns an error. `EINVAL` if the packet is shorter.
    pub fn for_each_piece<F>(&self, offset: u32, len: u32, mut f: F) -> Result
    where
        F: FnMut(&[u8]) -> Result,
    {
        // SAFETY: the skb is valid by the type's invariant; `piece::<F>` gets
        // the closure it was instantiated for, which outlives the call.
        to_result(unsafe {
            sys::mroce_skb_walk(
                self.0.as_ptr(),
                offset,
                len,
                piece::<F>,
                (&raw mut f).cast(),
            )
        })
    }
}

/// # Safety
///
/// `ctx` points to an `F` not otherwise borrowed; `bytes` to `len` readable
/// bytes.
unsafe extern "C" fn piece<F>(ctx: *mut c_void, bytes: *const c_void, len: c_uint) -> c_int
where
    F: FnMut(&[u8]) -> Result,
{
    // SAFETY: by the function's contract.
    let f = unsafe { &mut *ctx.cast::<F>() };
    // SAFETY: by the function's contract.
    let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), len as usize) };
    match f(bytes) {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

impl Drop for RxPacket {
    fn drop(&mut self) {
        // SAFETY: the only owner by the type's invariant.
        unsafe { sys::mroce_skb_consume(self.0.as_ptr()) };
    }
}
