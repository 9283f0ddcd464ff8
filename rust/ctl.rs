// SPDX-License-Identifier: GPL-2.0

//! What an administrator sees beyond the verbs: debugfs.

pub mod debugfs;
