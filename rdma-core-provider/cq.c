// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * metaroce provider: completion queues.
 */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "metaroce.h"

_Static_assert(sizeof(struct mroce_create_cq_resp) ==
		       sizeof(struct ib_uverbs_create_cq_resp) +
			       sizeof(struct metaroce_create_cq_resp),
	       "create_cq response has padding");
_Static_assert(sizeof(struct mroce_create_cq_ex_resp) ==
		       sizeof(struct ib_uverbs_ex_create_cq_resp) +
			       sizeof(struct metaroce_create_cq_resp),
	       "create_cq_ex response has padding");

/* What a cq_ex may ask for. No timestamps: the kernel does not take any yet. */
#define SUPPORTED_WC_FLAGS                                                                         \
	(IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |                    \
	 IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL |                         \
	 IBV_WC_EX_WITH_DLID_PATH_BITS)

/* The completion at the own index, or NULL. The CQ's lock is held. */
static const struct metaroce_cqe *peek(struct mroce_cq *cq)
{
	struct mroce_ring *ring = &cq->ring;

	if (mroce_load(&ring->hdr->producer) == ring->index)
		return NULL;
	return mroce_ring_slot(ring, ring->index);
}

static void copy_cqe(struct ibv_wc *wc, const struct metaroce_cqe *cqe)
{
	wc->wr_id = cqe->wr_id;
	wc->status = cqe->status;
	wc->opcode = cqe->opcode;
	wc->vendor_err = cqe->vendor_err;
	wc->byte_len = cqe->byte_len;
	wc->imm_data = (__be32)cqe->imm_data; /* shares its storage with invalidated_rkey */
	wc->qp_num = cqe->qp_num;
	wc->src_qp = cqe->src_qp;
	wc->wc_flags = cqe->wc_flags & ~METAROCE_WC_FLAG_SOLICITED;
	wc->pkey_index = cqe->pkey_index;
	wc->slid = cqe->slid;
	wc->sl = cqe->sl;
	wc->dlid_path_bits = cqe->dlid_path_bits;
}

int mroce_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct mroce_cq *cq = to_mcq(ibcq);
	const struct metaroce_cqe *cqe;
	int n = 0;

	pthread_spin_lock(&cq->ring.lock);
	while (n < num_entries) {
		cqe = peek(cq);
		if (!cqe)
			break;
		copy_cqe(&wc[n++], cqe);
		cq->ring.index++;
	}
	if (n)
		mroce_store(&cq->ring.hdr->consumer, cq->ring.index);
	pthread_spin_unlock(&cq->ring.lock);
	return n;
}

static int advance_cursor(struct mroce_cq *cq)
{
	cq->current = peek(cq);
	if (!cq->current)
		return ENOENT;
	cq->vcq.cq_ex.status = cq->current->status;
	cq->vcq.cq_ex.wr_id = cq->current->wr_id;
	return 0;
}

static struct mroce_cq *from_ex(struct ibv_cq_ex *cq_ex)
{
	return mroce_container(cq_ex, struct mroce_cq, vcq.cq_ex);
}

static int start_poll(struct ibv_cq_ex *cq_ex, struct ibv_poll_cq_attr *attr)
{
	struct mroce_cq *cq = from_ex(cq_ex);
	int ret;

	if (attr->comp_mask)
		return EINVAL;

	pthread_spin_lock(&cq->ring.lock);
	ret = advance_cursor(cq);
	if (ret)
		pthread_spin_unlock(&cq->ring.lock);
	return ret;
}

/* After ENOENT the caller still calls end_poll, which finds nothing left to consume. */
static int next_poll(struct ibv_cq_ex *cq_ex)
{
	struct mroce_cq *cq = from_ex(cq_ex);

	if (cq->current)
		cq->ring.index++;
	return advance_cursor(cq);
}

static void end_poll(struct ibv_cq_ex *cq_ex)
{
	struct mroce_cq *cq = from_ex(cq_ex);

	if (cq->current)
		cq->ring.index++;
	cq->current = NULL;
	mroce_store(&cq->ring.hdr->consumer, cq->ring.index);
	pthread_spin_unlock(&cq->ring.lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->current->opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->current->vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->current->byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *cq_ex)
{
	return (__be32)from_ex(cq_ex)->current->imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->current->qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->current->src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->current->wc_flags & ~METAROCE_WC_FLAG_SOLICITED;
}

static uint32_t read_slid(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->current->slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->current->sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq_ex)
{
	return from_ex(cq_ex)->current->dlid_path_bits;
}

struct ibv_cq *mroce_create_cq(struct ibv_context *context, int cqe,
			       struct ibv_comp_channel *channel, int comp_vector)
{
	struct mroce_create_cq_resp resp = {};
	struct ibv_create_cq cmd = {};
	struct mroce_cq *cq;
	int ret;

	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;

	ret = ibv_cmd_create_cq(context, cqe, channel, comp_vector, &cq->vcq.cq, &cmd,
				sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (ret)
		goto err_free;

	ret = mroce_ring_map(&cq->ring, context->cmd_fd, &resp.drv.ring);
	if (ret)
		goto err_destroy;
	return &cq->vcq.cq;

err_destroy:
	ibv_cmd_destroy_cq(&cq->vcq.cq);
err_free:
	free(cq);
	errno = ret;
	return NULL;
}

struct ibv_cq_ex *mroce_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct mroce_create_cq_ex_resp resp = {};
	struct ibv_create_cq_ex cmd = {};
	struct ibv_cq_ex *cq_ex;
	struct mroce_cq *cq;
	int ret;

	if (attr->wc_flags & ~(uint64_t)SUPPORTED_WC_FLAGS) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;

	ret = ibv_cmd_create_cq_ex(context, attr, &cq->vcq, &cmd, sizeof(cmd), &resp.ibv_resp,
				   sizeof(resp), 0);
	if (ret)
		goto err_free;

	ret = mroce_ring_map(&cq->ring, context->cmd_fd, &resp.drv.ring);
	if (ret)
		goto err_destroy;

	cq_ex = &cq->vcq.cq_ex;
	cq_ex->start_poll = start_poll;
	cq_ex->next_poll = next_poll;
	cq_ex->end_poll = end_poll;
	cq_ex->read_opcode = read_opcode;
	cq_ex->read_vendor_err = read_vendor_err;
	cq_ex->read_wc_flags = read_wc_flags;
	if (attr->wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		cq_ex->read_byte_len = read_byte_len;
	if (attr->wc_flags & IBV_WC_EX_WITH_IMM)
		cq_ex->read_imm_data = read_imm_data;
	if (attr->wc_flags & IBV_WC_EX_WITH_QP_NUM)
		cq_ex->read_qp_num = read_qp_num;
	if (attr->wc_flags & IBV_WC_EX_WITH_SRC_QP)
		cq_ex->read_src_qp = read_src_qp;
	if (attr->wc_flags & IBV_WC_EX_WITH_SLID)
		cq_ex->read_slid = read_slid;
	if (attr->wc_flags & IBV_WC_EX_WITH_SL)
		cq_ex->read_sl = read_sl;
	if (attr->wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		cq_ex->read_dlid_path_bits = read_dlid_path_bits;
	return cq_ex;

err_destroy:
	ibv_cmd_destroy_cq(&cq->vcq.cq);
err_free:
	free(cq);
	errno = ret;
	return NULL;
}

/*
 * The kernel moves the completions that have not been polled into a new ring under the
 * same indices, so the own index stays valid.
 */
int mroce_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct mroce_cq *cq = to_mcq(ibcq);
	struct {
		struct ib_uverbs_resize_cq_resp ibv_resp;
		struct metaroce_create_cq_resp drv;
	} resp = {};
	struct ibv_resize_cq cmd = {};
	struct mroce_ring old;
	int ret;

	pthread_spin_lock(&cq->ring.lock);
	ret = ibv_cmd_resize_cq(ibcq, cqe, &cmd, sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (ret)
		goto out;

	old = cq->ring;
	ret = mroce_ring_remap(&cq->ring, ibcq->context->cmd_fd, &resp.drv.ring);
	/* On failure the old mapping stays: nothing more arrives there, but polling is safe. */
	if (!ret)
		mroce_ring_unmap(&old);
out:
	pthread_spin_unlock(&cq->ring.lock);
	return ret;
}

int mroce_destroy_cq(struct ibv_cq *ibcq)
{
	struct mroce_cq *cq = to_mcq(ibcq);
	int ret;

	ret = ibv_cmd_destroy_cq(ibcq);
	if (ret)
		return ret;
	mroce_ring_unmap(&cq->ring);
	pthread_spin_destroy(&cq->ring.lock);
	free(cq);
	return 0;
}
