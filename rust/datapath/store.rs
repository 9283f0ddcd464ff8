// SPDX-License-Identifier: GPL-2.0

//! Memory for the engine's windows.

use crate::engine;
use kernel::prelude::*;

/// The engine's buffers as kernel vectors. They are made in process context.
pub(super) enum KernelStore {}

impl engine::Store for KernelStore {
    type Buf<T> = KVVec<T>;
    type Error = Error;

    fn buf<T>(len: usize, mut fill: impl FnMut(usize) -> T) -> Result<KVVec<T>> {
        let mut buf = KVVec::with_capacity(len, GFP_KERNEL)?;
        for i in 0..len {
            buf.push(fill(i), GFP_KERNEL)?;
        }
        Ok(buf)
    }
}
