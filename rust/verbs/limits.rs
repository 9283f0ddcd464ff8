// SPDX-License-Identifier: GPL-2.0

//! What the device promises. Each limit is enforced where the object is made; query_device reports
//! the same constants (IB specification 11.2.1.2).

/// Longest message in bytes (IB specification 9.4.1: 2^31).
pub(super) const MAX_MSG_SIZE: u32 = 1 << 31;
/// Queue pairs: half of the 24-bit number space, so that random numbers are found quickly.
pub(super) const MAX_QP: u32 = 1 << 20;
/// Work requests of a queue.
pub(super) const MAX_QP_WR: u32 = 1 << 14;
/// Scatter/gather elements of a work request.
pub(super) const MAX_SGE: u32 = 32;
/// Bytes of inline data.
pub(super) const MAX_INLINE: u32 = 512;
/// Completion queues.
pub(super) const MAX_CQ: u32 = 1 << 20;
/// Entries of a completion queue.
pub(super) const MAX_CQE: u32 = 1 << 20;
/// Memory regions.
pub(super) const MAX_MR: u32 = 1 << 20;
/// Bytes of a memory region.
pub(super) const MAX_MR_SIZE: u64 = 1 << 40;
/// Address handles.
pub(super) const MAX_AH: u32 = 1 << 20;
/// Memory windows.
pub(super) const MAX_MW: u32 = 1 << 20;
/// Protection domains.
pub(super) const MAX_PD: u32 = 1 << 20;
/// READs and atomics in flight, per QP and direction.
pub(super) const MAX_RD_ATOMIC: u8 = 64;
/// Shared receive queues.
pub(super) const MAX_SRQ: u32 = 1 << 20;
/// Receives of a shared receive queue.
pub(super) const MAX_SRQ_WR: u32 = 1 << 14;
/// Entries of the GID table.
pub(super) const GID_TABLE_LEN: i32 = 256;
/// Messages of a stream in flight; also the responder's window (see the engine's stream).
pub(super) const STREAM_WINDOW: u16 = 256;
/// What the device can do (`enum ib_device_cap_flags`): GUIDs are its own, a receiver that is not
/// ready says so, shared receive queues can be resized, memory windows of type 1 and 2B, FLUSH for global
/// visibility, ATOMIC WRITE.
pub(super) const CAP_FLAGS: u64 =
    1 << 11 | 1 << 12 | 1 << 13 | 1 << 17 | 1 << 24 | 1 << 38 | 1 << 40;
