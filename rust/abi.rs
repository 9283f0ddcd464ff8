// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

//! User/kernel ABI, version 1: mirror of `rdma-core-provider/metaroce-abi.h`.
//!
//! The header owns every layout and says what each field means; the constant asserts at the end of
//! both files pin the same sizes and offsets, so that a change of one alone does not compile. No
//! logic lives here. Whatever is read from a ring is hostile: these types accept any bit pattern
//! and `verbs::ring` validates the values.
#![deny(unsafe_code)]
#![allow(dead_code, reason = "the mirror is complete, users come with features")]

use core::mem::{offset_of, size_of};

use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version that both sides must agree on (`uverbs_abi_ver`).
pub const ABI_VERSION: u32 = 1;
/// `"MROC"`, the value of `ib_device_ops.driver_id` and of the provider's match table.
pub const DRIVER_ID: u32 = 0x4d52_4f43;

/// Bytes in front of slot 0 of every ring.
pub const RING_HEADER: usize = 256;
/// Offset of the `producer` word.
pub const RING_PRODUCER: usize = 0;
/// Offset of the `consumer` word.
pub const RING_CONSUMER: usize = 64;
/// Offset of the word that the kernel writes, see [`RING_NEED_WAKEUP`].
pub const RING_KERNEL_FLAGS: usize = 128;
/// Offset of the word that user space writes; reserved.
pub const RING_USER_FLAGS: usize = 192;
/// Bit of `kernel_flags`: user space must ring the doorbell after publishing entries.
pub const RING_NEED_WAKEUP: u32 = 1 << 0;

/// Bit of [`AllocUcontextResp::features`]: `kernel_flags` of send rings is maintained.
pub const FEATURE_NEED_WAKEUP: u32 = 1 << 0;

/// Where user space finds a queue: arguments of `mmap()` and geometry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RingInfo {
    /// Offset for `mmap()`, in bytes.
    pub offset: u64,
    /// Length of the mapping, in bytes.
    pub length: u32,
    /// Number of slots, a power of two.
    pub entries: u32,
    /// Bytes from slot to slot.
    pub stride: u32,
    /// Zero.
    pub reserved: u32,
}

/// Response of `alloc_ucontext`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AllocUcontextResp {
    /// [`ABI_VERSION`].
    pub abi_version: u32,
    /// `FEATURE_*` bits.
    pub features: u32,
    /// Largest inline message of any QP, in bytes.
    pub max_inline: u32,
    /// Zero.
    pub reserved: u32,
}

/// Response of `create_cq` and `resize_cq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CreateCqResp {
    /// The completion ring.
    pub ring: RingInfo,
    /// Number of the CQ in debug output.
    pub cq_id: u32,
    /// Zero.
    pub reserved: u32,
}

/// Response of `create_qp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CreateQpResp {
    /// The send ring.
    pub sq: RingInfo,
    /// The receive ring; zero if the QP uses an SRQ.
    pub rq: RingInfo,
    /// Inline bytes granted.
    pub max_inline: u32,
    /// Send SGEs granted.
    pub max_send_sge: u32,
    /// Receive SGEs granted.
    pub max_recv_sge: u32,
    /// Zero.
    pub reserved: u32,
}

/// Response of `create_srq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CreateSrqResp {
    /// The receive ring.
    pub ring: RingInfo,
    /// SRQ number.
    pub srq_num: u32,
    /// SGEs granted.
    pub max_sge: u32,
}

/// Response of `create_ah`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CreateAhResp {
    /// Number that UD send WQEs name.
    pub ah_num: u32,
    /// Zero.
    pub reserved: u32,
}

/// Request of `modify_srq`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ModifySrqCmd {
    /// User address of a [`RingInfo`] to fill when the ring was replaced.
    pub ring_info_addr: u64,
}

/// One scatter/gather element.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Sge {
    /// Virtual address inside the memory region's address space.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// Work request opcodes, the numbers of `enum ib_uverbs_wr_opcode`.
pub mod wr {
    /// RDMA WRITE.
    pub const RDMA_WRITE: u32 = 0;
    /// RDMA WRITE with immediate.
    pub const RDMA_WRITE_WITH_IMM: u32 = 1;
    /// SEND.
    pub const SEND: u32 = 2;
    /// SEND with immediate.
    pub const SEND_WITH_IMM: u32 = 3;
    /// RDMA READ.
    pub const RDMA_READ: u32 = 4;
    /// Compare and swap.
    pub const ATOMIC_CMP_AND_SWP: u32 = 5;
    /// Fetch and add.
    pub const ATOMIC_FETCH_AND_ADD: u32 = 6;
    /// Local invalidate.
    pub const LOCAL_INV: u32 = 7;
    /// Bind a memory window.
    pub const BIND_MW: u32 = 8;
    /// SEND with invalidate.
    pub const SEND_WITH_INV: u32 = 9;
    /// Flush to a placement.
    pub const FLUSH: u32 = 14;
    /// Atomic write of 8 bytes.
    pub const ATOMIC_WRITE: u32 = 15;
}

/// `send_flags` bits.
pub mod send_flags {
    /// Wait for earlier READs and atomics.
    pub const FENCE: u32 = 1 << 0;
    /// Report a successful completion.
    pub const SIGNALED: u32 = 1 << 1;
    /// Raise a solicited event at the receiver.
    pub const SOLICITED: u32 = 1 << 2;
    /// The message follows in the WQE.
    pub const INLINE: u32 = 1 << 3;
    /// Every bit that means something.
    pub const ALL: u32 = FENCE | SIGNALED | SOLICITED | INLINE;
}

/// Completion opcodes, the numbers of `enum ibv_wc_opcode`.
pub mod wc_opcode {
    /// SEND.
    pub const SEND: u32 = 0;
    /// RDMA WRITE.
    pub const RDMA_WRITE: u32 = 1;
    /// RDMA READ.
    pub const RDMA_READ: u32 = 2;
    /// Compare and swap.
    pub const COMP_SWAP: u32 = 3;
    /// Fetch and add.
    pub const FETCH_ADD: u32 = 4;
    /// Window bound.
    pub const BIND_MW: u32 = 5;
    /// Key invalidated.
    pub const LOCAL_INV: u32 = 6;
    /// Flush.
    pub const FLUSH: u32 = 8;
    /// Atomic write.
    pub const ATOMIC_WRITE: u32 = 9;
    /// Receive.
    pub const RECV: u32 = 128;
    /// Receive consumed by an RDMA WRITE with immediate.
    pub const RECV_RDMA_WITH_IMM: u32 = 129;
}

/// `wc_flags` bits, the numbers of `enum ibv_wc_flags`.
pub mod wc_flags {
    /// A GRH precedes the message.
    pub const GRH: u32 = 1 << 0;
    /// `imm_data` is an immediate.
    pub const WITH_IMM: u32 = 1 << 1;
    /// `imm_data` is an invalidated rkey.
    pub const WITH_INV: u32 = 1 << 3;
    /// Inside the kernel only: the datagram came over IPv4.
    pub const KERNEL_IPV4: u32 = 1 << 28;
    /// Inside the kernel only: the datagram came over IPv6.
    pub const KERNEL_IPV6: u32 = 1 << 29;
    /// Inside the kernel only: `reserved0` is the number of the VLAN that the datagram came by.
    pub const KERNEL_VLAN: u32 = 1 << 30;
    /// What a process does not get to see.
    pub const KERNEL_ONLY: u32 = KERNEL_IPV4 | KERNEL_IPV6 | KERNEL_VLAN;
    /// Kernel to provider only: the message was solicited.
    pub const SOLICITED: u32 = 1 << 31;
}

/// First 64 bytes of a send queue slot. SGEs or inline bytes follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SendWqe {
    /// The application's cookie.
    pub wr_id: u64,
    /// [`wr`] opcode.
    pub opcode: u32,
    /// [`send_flags`] bits.
    pub send_flags: u32,
    /// Immediate in network order, or rkey to invalidate.
    pub imm_data: u32,
    /// Elements that follow (0 with inline data).
    pub num_sge: u32,
    /// Remote virtual address; for BIND_MW the window's start.
    pub remote_addr: u64,
    /// Remote key; for BIND_MW the window's new key.
    pub rkey: u32,
    /// Bytes that follow, with [`send_flags::INLINE`].
    pub inline_length: u32,
    /// First 8 bytes of the union: `compare_add`, or `ah_num` and `remote_qpn`, or a length.
    pub operand0: u64,
    /// Next 8 bytes of the union: `swap`, or `remote_qkey`, or two keys.
    pub operand1: u64,
    /// Access flags of BIND_MW.
    pub mw_access: u32,
    /// Ignored.
    pub reserved: u32,
}

/// First 16 bytes of a receive queue slot. SGEs follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RecvWqe {
    /// The application's cookie.
    pub wr_id: u64,
    /// Elements that follow.
    pub num_sge: u32,
    /// Ignored.
    pub reserved: u32,
}

/// One completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Cqe {
    /// Cookie of the work request.
    pub wr_id: u64,
    /// `enum ib_wc_status`.
    pub status: u32,
    /// [`wc_opcode`].
    pub opcode: u32,
    /// Detail of an error, for people.
    pub vendor_err: u32,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate in network order, or the invalidated rkey.
    pub imm_data: u32,
    /// Local QP number.
    pub qp_num: u32,
    /// Remote QP number.
    pub src_qp: u32,
    /// [`wc_flags`] bits.
    pub wc_flags: u32,
    /// P_Key index.
    pub pkey_index: u16,
    /// Source LID, always 0 here.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Always 0 here.
    pub dlid_path_bits: u8,
    /// Zero.
    pub reserved0: [u8; 2],
    /// Reserved for a time stamp in ns.
    pub timestamp: u64,
    /// Zero.
    pub reserved1: u64,
}

const _: () = {
    assert!(size_of::<RingInfo>() == 24);
    assert!(size_of::<AllocUcontextResp>() == 16);
    assert!(size_of::<CreateCqResp>() == 32);
    assert!(size_of::<CreateQpResp>() == 64);
    assert!(size_of::<CreateSrqResp>() == 32);
    assert!(size_of::<Sge>() == 16);
    assert!(size_of::<SendWqe>() == 64);
    assert!(offset_of!(SendWqe, operand0) == 40);
    assert!(offset_of!(SendWqe, mw_access) == 56);
    assert!(size_of::<RecvWqe>() == 16);
    assert!(size_of::<Cqe>() == 64);
    assert!(offset_of!(Cqe, timestamp) == 48);
};
