// SPDX-License-Identifier: GPL-2.0

//! Raw kernel interfaces that the `kernel` crate does not offer.
//!
//! [`bindings`] is generated at build time from `bindings.h`. Its types for structures that
//! `kernel::bindings` knows too (`spinlock`, `page`, `net_device`, ...) describe the same C types;
//! only pointers to them cross between the two, by `cast()`.
//!
//! Only `sync`, `net`, `rdma` and `trace` may import this module.

/// Output of bindgen; see `bindgen.args` for what is in it.
#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]
#[cfg_attr(CONFIG_RUSTC_HAS_UNNECESSARY_TRANSMUTES, allow(unnecessary_transmutes))]
pub mod bindings {
    use pin_init::{MaybeZeroable, Zeroable};

    // bindgen leaves these out on purpose: `--blocklist-type` in the kernel's parameters.
    type __kernel_size_t = usize;
    type __kernel_ssize_t = isize;
    type __kernel_ptrdiff_t = isize;

    // SAFETY: `__BindgenBitfieldUnit<Storage>` is a newtype around `Storage`.
    unsafe impl<Storage> Zeroable for __BindgenBitfieldUnit<Storage> where Storage: Zeroable {}

    include!(concat!(
        env!("METAROCE_OBJ"),
        "/rust/ffi/bindings_generated.rs"
    ));
}
