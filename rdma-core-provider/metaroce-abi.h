/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause) */
/*
 * metaroce user/kernel ABI, version 1.
 *
 * The one description of what the provider library and the kernel module share. The
 * provider includes it; rust/abi.rs mirrors it and the asserts at the end of both files
 * pin every size and offset.
 *
 * A queue (SQ, RQ, SRQ, CQ) is one mapping: a struct metaroce_ring header, then
 * "entries" slots of "stride" bytes; entries is a power of two. Indices run freely
 * modulo 2^32; the slot of index i is i & (entries - 1). The queue is empty when
 * producer == consumer and full when producer - consumer == entries.
 *
 * Each index word has one writer, which stores it with release order; the other side
 * loads it with acquire order. For SQ, RQ and SRQ user space produces; a work queue
 * slot becomes free when its work request completes. For a CQ the kernel produces.
 * The kernel keeps its own copy of both indices and treats everything it reads from
 * here as hostile; user space that scribbles over a ring damages its own queue only.
 */
#ifndef METAROCE_ABI_H
#define METAROCE_ABI_H

#include <linux/types.h>

#define METAROCE_ABI_VERSION 1

/* "MROC": the value both sides put into their driver id; no upstream driver uses it. */
#define METAROCE_DRIVER_ID 0x4d524f43

/*
 * Bytes in front of the first slot; also the alignment that slots may rely on. Each
 * word sits on its own cache line so that the two sides do not write to a shared one.
 */
#define METAROCE_RING_HEADER 256

/* Bits of struct metaroce_ring.kernel_flags. */
enum {
	/*
	 * The consumer of a work queue sleeps: user space rings the doorbell after it has
	 * published new entries. When the bit is clear the engine is busy with the queue
	 * and looks at producer again before it sets the bit. Receive rings have it set
	 * only while the QP is in the error state, where new entries must be flushed.
	 */
	METAROCE_RING_NEED_WAKEUP = 1U << 0,
};

struct metaroce_ring {
	__u32 producer;
	__u8 pad0[60];
	__u32 consumer;
	__u8 pad1[60];
	__u32 kernel_flags; /* written by the kernel */
	__u8 pad2[60];
	__u32 user_flags; /* written by user space; reserved for arming a CQ, 0 */
	__u8 pad3[60];
};

/* Where a queue is found: offset and length for mmap() on the command descriptor. */
struct metaroce_ring_info {
	__aligned_u64 offset;
	__u32 length; /* bytes of the whole mapping, a multiple of the page size */
	__u32 entries;
	__u32 stride; /* bytes from slot to slot, a multiple of 16 */
	__u32 reserved;
};

/* Bits of struct metaroce_alloc_ucontext_resp.features. */
enum {
	/* kernel_flags of send rings is maintained: doorbells may be left out. */
	METAROCE_FEATURE_NEED_WAKEUP = 1U << 0,
};

struct metaroce_alloc_ucontext_resp {
	__u32 abi_version;
	__u32 features;
	__u32 max_inline; /* largest inline message any QP may ask for, in bytes */
	__u32 reserved;
};

/* Response of create_cq and of resize_cq. */
struct metaroce_create_cq_resp {
	struct metaroce_ring_info ring;
	__u32 cq_id;
	__u32 reserved;
};

struct metaroce_create_qp_resp {
	struct metaroce_ring_info sq;
	struct metaroce_ring_info rq; /* all zero if the QP uses an SRQ */
	__u32 max_inline; /* bytes granted to this QP */
	__u32 max_send_sge;
	__u32 max_recv_sge;
	__u32 reserved;
};

struct metaroce_create_srq_resp {
	struct metaroce_ring_info ring;
	__u32 srq_num;
	__u32 max_sge;
};

struct metaroce_create_ah_resp {
	__u32 ah_num;
	__u32 reserved;
};

/* Request of modify_srq when the ring may be replaced: address of a metaroce_ring_info. */
struct metaroce_modify_srq_cmd {
	__aligned_u64 ring_info_addr;
};

/* Same layout and meaning as a verbs scatter/gather element. */
struct metaroce_sge {
	__aligned_u64 addr;
	__u32 length;
	__u32 lkey;
};

/* Work request opcodes: the numbers of enum ib_uverbs_wr_opcode. */
enum {
	METAROCE_WR_RDMA_WRITE = 0,
	METAROCE_WR_RDMA_WRITE_WITH_IMM = 1,
	METAROCE_WR_SEND = 2,
	METAROCE_WR_SEND_WITH_IMM = 3,
	METAROCE_WR_RDMA_READ = 4,
	METAROCE_WR_ATOMIC_CMP_AND_SWP = 5,
	METAROCE_WR_ATOMIC_FETCH_AND_ADD = 6,
	METAROCE_WR_LOCAL_INV = 7,
	METAROCE_WR_BIND_MW = 8,
	METAROCE_WR_SEND_WITH_INV = 9,
	METAROCE_WR_FLUSH = 14,
	METAROCE_WR_ATOMIC_WRITE = 15,
};

/* Bits of struct metaroce_send_wqe.send_flags: the numbers of enum ib_uverbs_wr send flags. */
enum {
	METAROCE_SEND_FENCE = 1U << 0,
	METAROCE_SEND_SIGNALED = 1U << 1,
	METAROCE_SEND_SOLICITED = 1U << 2,
	METAROCE_SEND_INLINE = 1U << 3,
};

/*
 * One slot of a send queue. After these 64 bytes come either num_sge elements of
 * struct metaroce_sge, or, with METAROCE_SEND_INLINE, inline_length bytes of message
 * (num_sge is then 0).
 */
struct metaroce_send_wqe {
	__aligned_u64 wr_id;
	__u32 opcode;
	__u32 send_flags;
	__u32 imm_data; /* immediate in network order, or the rkey to invalidate in host order */
	__u32 num_sge;
	__aligned_u64 remote_addr;
	__u32 rkey;
	__u32 inline_length;
	union {
		struct {
			__aligned_u64 compare_add; /* of ATOMIC_WRITE with INLINE, the 8 bytes */
			__aligned_u64 swap;
		} atomic;
		struct {
			__u32 ah_num;
			__u32 remote_qpn;
			__u32 remote_qkey;
			__u32 pkey_index;
		} ud;
		struct {
			__aligned_u64 length;
			__u32 mr_lkey;
			__u32 mw_rkey; /* the window's present key; rkey above is the new one */
		} mw;
		struct {
			__aligned_u64 length;
			__u32 type;
			__u32 level;
		} flush;
	};
	__u32 mw_access;
	__u32 reserved;
};

/* One slot of a receive queue; num_sge elements of struct metaroce_sge follow. */
struct metaroce_recv_wqe {
	__aligned_u64 wr_id;
	__u32 num_sge;
	__u32 reserved;
};

/* Completion opcodes: the numbers of enum ibv_wc_opcode. */
enum {
	METAROCE_WC_SEND = 0,
	METAROCE_WC_RDMA_WRITE = 1,
	METAROCE_WC_RDMA_READ = 2,
	METAROCE_WC_COMP_SWAP = 3,
	METAROCE_WC_FETCH_ADD = 4,
	METAROCE_WC_BIND_MW = 5,
	METAROCE_WC_LOCAL_INV = 6,
	METAROCE_WC_FLUSH = 8,
	METAROCE_WC_ATOMIC_WRITE = 9,
	METAROCE_WC_RECV = 128,
	METAROCE_WC_RECV_RDMA_WITH_IMM = 129,
};

/* Bits of struct metaroce_cqe.wc_flags: the numbers of enum ibv_wc_flags. */
enum {
	METAROCE_WC_FLAG_GRH = 1U << 0,
	METAROCE_WC_FLAG_WITH_IMM = 1U << 1,
	METAROCE_WC_FLAG_WITH_INV = 1U << 3,
	/* Not handed to applications: the completion ends a solicited event's message. */
	METAROCE_WC_FLAG_SOLICITED = 1U << 31,
};

/* One slot of a completion queue. */
struct metaroce_cqe {
	__aligned_u64 wr_id;
	__u32 status; /* enum ib_wc_status */
	__u32 opcode;
	__u32 vendor_err;
	__u32 byte_len;
	__u32 imm_data; /* immediate in network order, or the invalidated rkey in host order */
	__u32 qp_num;
	__u32 src_qp;
	__u32 wc_flags;
	__u16 pkey_index;
	__u16 slid;
	__u8 sl;
	__u8 dlid_path_bits;
	__u8 reserved0[2];
	__aligned_u64 timestamp; /* ns, kernel monotonic clock; 0 if not taken */
	__aligned_u64 reserved1;
};

#ifndef METAROCE_ABI_NO_ASSERTS
_Static_assert(sizeof(struct metaroce_ring) == METAROCE_RING_HEADER, "ring header size");
_Static_assert(sizeof(struct metaroce_ring_info) == 24, "ring info size");
_Static_assert(sizeof(struct metaroce_alloc_ucontext_resp) == 16, "ucontext size");
_Static_assert(sizeof(struct metaroce_create_cq_resp) == 32, "create_cq size");
_Static_assert(sizeof(struct metaroce_create_qp_resp) == 64, "create_qp size");
_Static_assert(sizeof(struct metaroce_create_srq_resp) == 32, "create_srq size");
_Static_assert(sizeof(struct metaroce_sge) == 16, "sge size");
_Static_assert(sizeof(struct metaroce_send_wqe) == 64, "send wqe size");
_Static_assert(__builtin_offsetof(struct metaroce_send_wqe, atomic) == 40, "send wqe union");
_Static_assert(__builtin_offsetof(struct metaroce_send_wqe, mw_access) == 56, "send wqe tail");
_Static_assert(sizeof(struct metaroce_recv_wqe) == 16, "recv wqe size");
_Static_assert(sizeof(struct metaroce_cqe) == 64, "cqe size");
_Static_assert(__builtin_offsetof(struct metaroce_cqe, timestamp) == 48, "cqe timestamp");
#endif

#endif /* METAROCE_ABI_H */
