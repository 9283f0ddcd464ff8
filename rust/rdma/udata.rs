// SPDX-License-Identifier: GPL-2.0

//! The driver's own part of a user-space command and of its answer.
//!
//! C header: [`include/rdma/uverbs_ioctl.h`](srctree/include/rdma/uverbs_ioctl.h)

use crate::ffi::bindings as ffi;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{error::to_result, prelude::*};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Driver, Ucontext};

/// Input and output buffers of a command from user space. Process context only.
///
/// A callback without user space behind it (kernel client) gets `None` in its place. Whoever gets
/// one either reads and answers, or says [`no_io`](Self::no_io): input that this kernel does not
/// know is an error, output that it does not fill is zeroed.
pub struct Udata<'a> {
    raw: NonNull<ffi::ib_udata>,
    _call: PhantomData<&'a ()>,
}

impl<'a> Udata<'a> {
    /// # Safety
    ///
    /// `raw` must be null or valid for `'a`, as an argument of a callback is during the call.
    pub(super) unsafe fn from_raw(raw: *mut ffi::ib_udata) -> Option<Self> {
        NonNull::new(raw).map(|raw| Self {
            raw,
            _call: PhantomData,
        })
    }

    /// Number of input bytes.
    pub fn in_len(&self) -> usize {
        // SAFETY: Valid for `'a`.
        unsafe { self.raw.as_ref().inlen }
    }

    /// Size of the answer's buffer.
    pub fn out_len(&self) -> usize {
        // SAFETY: Valid for `'a`.
        unsafe { self.raw.as_ref().outlen }
    }

    /// Copies the input to `to`, of which user space must supply at least `min` bytes. Missing
    /// bytes become zero; surplus input must be zero (else `EOPNOTSUPP`).
    pub fn validate_in_bytes(&self, to: &mut [u8], min: usize) -> Result {
        // SAFETY: `raw` is valid for `'a`, and `to` for writes of its length.
        to_result(unsafe {
            ffi::_ib_copy_validate_udata_in(
                self.raw.as_ptr(),
                to.as_mut_ptr().cast(),
                to.len(),
                min,
            )
        })
    }

    /// Copies the input to a `T`, all of which must be there; see
    /// [`validate_in_bytes`](Self::validate_in_bytes).
    pub fn validate_in<T: FromBytes + IntoBytes>(&self) -> Result<T> {
        let mut value = T::new_zeroed();
        let size = core::mem::size_of::<T>();
        self.validate_in_bytes(value.as_mut_bytes(), size)?;
        Ok(value)
    }

    /// Answers with `bytes`: cut to what user space wants, or padded with zeros.
    pub fn respond_bytes(&self, bytes: &[u8]) -> Result {
        // SAFETY: `raw` is valid for `'a`, and `bytes` for reads of its length.
        to_result(unsafe {
            ffi::_ib_respond_udata(self.raw.as_ptr(), bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// Answers with a structure; see [`respond_bytes`](Self::respond_bytes).
    pub fn respond<T: IntoBytes + Immutable>(&self, value: &T) -> Result {
        self.respond_bytes(value.as_bytes())
    }

    /// There is no driver-specific input and output in this command.
    pub fn no_io(&self) -> Result {
        // SAFETY: `raw` is valid for `'a`.
        to_result(unsafe { ffi::mroce_udata_in_empty(self.raw.as_ptr()) })?;
        // SAFETY: As above.
        to_result(unsafe { ffi::mroce_respond_empty_udata(self.raw.as_ptr()) })
    }

    /// The process' context that issued the command.
    pub fn ucontext<D: Driver>(&self, _dev: &super::Device<D>) -> Option<&'a Ucontext<D>> {
        // SAFETY: Callbacks with udata run inside a uverbs command, whose bundle contains it.
        let ucontext = unsafe { ffi::mroce_udata_ucontext(self.raw.as_ptr()) };
        if ucontext.is_null() {
            return None;
        }
        // SAFETY: The context was created before any command could use it, and outlives it. Its
        // device is the one this command is for, hence of driver `D`.
        Some(unsafe { Ucontext::from_raw(ucontext) })
    }
}
