// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Host wrapper of the protocol engine: the same source as in the kernel module.

#![cfg_attr(not(test), no_std)]

#[path = "../../../engine/mod.rs"]
pub mod engine;
