/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * metaroce provider: objects and the user side of a ring.
 *
 * Locking: each queue has one pthread spinlock, held while entries are written or read.
 * No call takes two of them, except modify_qp to RESET (SQ, then RQ).
 */
#ifndef METAROCE_H
#define METAROCE_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/driver.h>
#include <infiniband/kern-abi.h>
#include <infiniband/verbs.h>

#include "metaroce-abi.h"

/*
 * User side of one mapped queue. Entries and stride come from the create response and
 * are never read back from shared memory.
 */
struct mroce_ring {
	struct metaroce_ring *hdr;
	uint8_t *slots;
	size_t length;
	uint32_t entries;
	uint32_t stride;
	/* Own index: producer of a work queue, consumer of a CQ. Guarded by lock. */
	uint32_t index;
	pthread_spinlock_t lock;
};

struct mroce_context {
	struct verbs_context ibv_ctx;
	uint32_t features;
	uint32_t max_inline;
};

struct mroce_device {
	struct verbs_device ibv_dev;
	int abi_version;
};

struct mroce_cq {
	struct verbs_cq vcq; /* first: libibverbs hands out its address */
	struct mroce_ring ring;
	/* Entry under the ibv_cq_ex cursor, valid between start_poll and end_poll. */
	const struct metaroce_cqe *current;
};

struct mroce_srq {
	struct verbs_srq vsrq;
	struct mroce_ring ring;
	uint32_t max_sge;
	uint32_t srq_num;
};

struct mroce_qp {
	struct verbs_qp vqp;
	struct mroce_ring sq;
	struct mroce_ring rq; /* hdr is NULL if the QP uses an SRQ */
	uint32_t max_inline;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	bool sq_sig_all;
	/* ibv_wr_* builder state, valid between wr_start and wr_complete, under sq.lock. */
	uint32_t wr_index;
	struct metaroce_send_wqe *wr;
	int wr_err;
};

struct mroce_ah {
	struct ibv_ah ibv_ah;
	uint32_t ah_num;
};

/*
 * What the write ABI hands back: the core's response, ours right behind it. The asserts in
 * qp.c and cq.c check that no padding slips in between.
 */
struct mroce_get_context_resp {
	struct ib_uverbs_get_context_resp ibv_resp;
	struct metaroce_alloc_ucontext_resp drv;
};

struct mroce_create_cq_resp {
	struct ib_uverbs_create_cq_resp ibv_resp;
	struct metaroce_create_cq_resp drv;
};

struct mroce_create_cq_ex_resp {
	struct ib_uverbs_ex_create_cq_resp ibv_resp;
	struct metaroce_create_cq_resp drv;
};

struct mroce_create_qp_resp {
	struct ib_uverbs_create_qp_resp ibv_resp;
	struct metaroce_create_qp_resp drv;
};

struct mroce_create_qp_ex_resp {
	struct ib_uverbs_ex_create_qp_resp ibv_resp;
	struct metaroce_create_qp_resp drv;
};

struct mroce_create_srq_resp {
	struct ib_uverbs_create_srq_resp ibv_resp;
	struct metaroce_create_srq_resp drv;
};

struct mroce_create_ah_resp {
	struct ib_uverbs_create_ah_resp ibv_resp;
	struct metaroce_create_ah_resp drv;
};

#define mroce_container(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

static inline struct mroce_context *to_mctx(struct ibv_context *ctx)
{
	return mroce_container(ctx, struct mroce_context, ibv_ctx.context);
}

static inline struct mroce_cq *to_mcq(struct ibv_cq *cq)
{
	return mroce_container(cq, struct mroce_cq, vcq.cq);
}

static inline struct mroce_qp *to_mqp(struct ibv_qp *qp)
{
	return mroce_container(qp, struct mroce_qp, vqp.qp);
}

static inline struct mroce_srq *to_msrq(struct ibv_srq *srq)
{
	return mroce_container(srq, struct mroce_srq, vsrq.srq);
}

static inline struct mroce_ah *to_mah(struct ibv_ah *ah)
{
	return mroce_container(ah, struct mroce_ah, ibv_ah);
}

/* Maps a queue that the kernel has just created. Returns 0 or an errno value. */
int mroce_ring_map(struct mroce_ring *ring, int cmd_fd, const struct metaroce_ring_info *info);
/* The same for a ring that takes the place of another: the lock is already there. */
int mroce_ring_remap(struct mroce_ring *ring, int cmd_fd, const struct metaroce_ring_info *info);
void mroce_ring_unmap(struct mroce_ring *ring);

static inline void *mroce_ring_slot(const struct mroce_ring *ring, uint32_t index)
{
	return ring->slots + (size_t)(index & (ring->entries - 1)) * ring->stride;
}

static inline uint32_t mroce_load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void mroce_store(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* For work queues: no slot is free at index. */
static inline bool mroce_ring_full(const struct mroce_ring *ring, uint32_t index)
{
	return index - mroce_load(&ring->hdr->consumer) >= ring->entries;
}

/* Tells the kernel about new entries of the send queue, if it is not looking anyway. */
int mroce_doorbell(struct mroce_qp *qp);

int mroce_post_recv_ring(struct mroce_ring *ring, uint32_t max_sge, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad_wr);

struct ibv_cq *mroce_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel, int comp_vector);
struct ibv_cq_ex *mroce_create_cq_ex(struct ibv_context *context,
				     struct ibv_cq_init_attr_ex *attr);
int mroce_resize_cq(struct ibv_cq *ibcq, int cqe);
int mroce_destroy_cq(struct ibv_cq *ibcq);
int mroce_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc);

struct ibv_qp *mroce_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *mroce_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int mroce_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask);
int mroce_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask,
		   struct ibv_qp_init_attr *init_attr);
int mroce_destroy_qp(struct ibv_qp *ibqp);
int mroce_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int mroce_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* Fills the ibv_wr_* entry points; returns 0 or EOPNOTSUPP for an operation we lack. */
int mroce_set_wr_ops(struct mroce_qp *qp, const struct ibv_qp_init_attr_ex *attr);

struct ibv_srq *mroce_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int mroce_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int attr_mask);
int mroce_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr);
int mroce_destroy_srq(struct ibv_srq *ibsrq);
int mroce_get_srq_num(struct ibv_srq *ibsrq, uint32_t *srq_num);
int mroce_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr);

#endif /* METAROCE_H */
