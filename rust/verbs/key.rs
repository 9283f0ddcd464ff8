// SPDX-License-Identifier: GPL-2.0

//! Keys of memory regions and windows.
//!
//! ```text
//!   31     30                                        8 7           0
//!  +------+-------------------------------------------+-------------+
//!  |window| index: random, names the object            | variant     |
//!  +------+-------------------------------------------+-------------+
//! ```
//!
//! The device chooses the index, which lasts as long as the object. The variant is the consumer's
//! part of a window's key (IB specification 10.6.3.3): each binding takes another one, so that an
//! old key is recognised. lkey and rkey of a region are the same.

use crate::sync::random_u32;

/// Bits of the index.
pub(super) const INDEX_MASK: u32 = !(WINDOW | VARIANT_MASK);
const WINDOW: u32 = 1 << 31;
const VARIANT_MASK: u32 = 0xff;

/// The index in a key.
pub(super) fn index(key: u32) -> u32 {
    key & INDEX_MASK
}

/// Whether a key is one of a window, not of a region.
pub(super) fn names_window(key: u32) -> bool {
    key & WINDOW != 0
}

/// A key for a new region.
pub(super) fn of_region(index: u32) -> u32 {
    index | random_u32() & VARIANT_MASK
}

/// A key for a new window.
pub(super) fn of_window(index: u32) -> u32 {
    WINDOW | index | random_u32() & VARIANT_MASK
}

/// `key` with the variant of `other`.
pub(super) fn with_variant(key: u32, other: u32) -> u32 {
    key & !VARIANT_MASK | other & VARIANT_MASK
}
