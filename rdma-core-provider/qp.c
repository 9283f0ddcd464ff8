// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * metaroce provider: queue pairs, ibv_post_send and ibv_post_recv.
 */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "metaroce.h"

_Static_assert(sizeof(struct mroce_create_qp_resp) ==
		       sizeof(struct ib_uverbs_create_qp_resp) +
			       sizeof(struct metaroce_create_qp_resp),
	       "create_qp response has padding");
_Static_assert(sizeof(struct mroce_create_qp_ex_resp) ==
		       sizeof(struct ib_uverbs_ex_create_qp_resp) +
			       sizeof(struct metaroce_create_qp_resp),
	       "create_qp_ex response has padding");
_Static_assert(sizeof(struct metaroce_sge) == sizeof(struct ibv_sge), "sge layouts differ");

static int map_rings(struct mroce_qp *qp, int cmd_fd, const struct metaroce_create_qp_resp *resp)
{
	int ret;

	ret = mroce_ring_map(&qp->sq, cmd_fd, &resp->sq);
	if (ret)
		return ret;
	if (resp->rq.length) {
		ret = mroce_ring_map(&qp->rq, cmd_fd, &resp->rq);
		if (ret) {
			mroce_ring_unmap(&qp->sq);
			return ret;
		}
	}
	qp->max_inline = resp->max_inline;
	qp->max_send_sge = resp->max_send_sge;
	qp->max_recv_sge = resp->max_recv_sge;
	return 0;
}

struct ibv_qp *mroce_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct mroce_create_qp_resp resp = {};
	struct ibv_create_qp cmd = {};
	struct mroce_qp *qp;
	int ret;

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->sq_sig_all = attr->sq_sig_all;

	ret = ibv_cmd_create_qp(pd, &qp->vqp.qp, attr, &cmd, sizeof(cmd), &resp.ibv_resp,
				sizeof(resp));
	if (ret)
		goto err_free;

	ret = map_rings(qp, pd->context->cmd_fd, &resp.drv);
	if (ret)
		goto err_destroy;
	attr->cap.max_inline_data = qp->max_inline;
	return &qp->vqp.qp;

err_destroy:
	ibv_cmd_destroy_qp(&qp->vqp.qp);
err_free:
	free(qp);
	errno = ret;
	return NULL;
}

#define SUPPORTED_QP_MASK                                                                          \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS)

struct ibv_qp *mroce_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct mroce_create_qp_ex_resp resp = {};
	struct ibv_create_qp_ex cmd = {};
	struct mroce_qp *qp;
	int ret;

	if ((attr->comp_mask & ~(uint32_t)SUPPORTED_QP_MASK) ||
	    ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags)) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->sq_sig_all = attr->sq_sig_all;

	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		ret = mroce_set_wr_ops(qp, attr);
		if (ret)
			goto err_free;
	}

	ret = ibv_cmd_create_qp_ex2(context, &qp->vqp, attr, &cmd, sizeof(cmd), &resp.ibv_resp,
				    sizeof(resp));
	if (ret)
		goto err_free;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		qp->vqp.comp_mask |= VERBS_QP_EX;

	ret = map_rings(qp, context->cmd_fd, &resp.drv);
	if (ret)
		goto err_destroy;
	attr->cap.max_inline_data = qp->max_inline;
	return &qp->vqp.qp;

err_destroy:
	ibv_cmd_destroy_qp(&qp->vqp.qp);
err_free:
	free(qp);
	errno = ret;
	return NULL;
}

int mroce_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask)
{
	struct mroce_qp *qp = to_mqp(ibqp);
	struct ibv_modify_qp cmd = {};
	bool reset = (attr_mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET;
	int ret;

	if (!reset)
		return ibv_cmd_modify_qp(ibqp, attr, attr_mask, &cmd, sizeof(cmd));

	/* The kernel empties both rings and starts again at index 0. */
	pthread_spin_lock(&qp->sq.lock);
	if (qp->rq.hdr)
		pthread_spin_lock(&qp->rq.lock);
	ret = ibv_cmd_modify_qp(ibqp, attr, attr_mask, &cmd, sizeof(cmd));
	if (!ret) {
		qp->sq.index = 0;
		qp->rq.index = 0;
	}
	if (qp->rq.hdr)
		pthread_spin_unlock(&qp->rq.lock);
	pthread_spin_unlock(&qp->sq.lock);
	return ret;
}

int mroce_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask,
		   struct ibv_qp_init_attr *init_attr)
{
	struct ibv_query_qp cmd = {};

	return ibv_cmd_query_qp(ibqp, attr, attr_mask, init_attr, &cmd, sizeof(cmd));
}

int mroce_destroy_qp(struct ibv_qp *ibqp)
{
	struct mroce_qp *qp = to_mqp(ibqp);
	int ret;

	ret = ibv_cmd_destroy_qp(ibqp);
	if (ret)
		return ret;
	mroce_ring_unmap(&qp->sq);
	pthread_spin_destroy(&qp->sq.lock);
	if (qp->rq.hdr) {
		mroce_ring_unmap(&qp->rq);
		pthread_spin_destroy(&qp->rq.lock);
	}
	free(qp);
	return 0;
}

int mroce_doorbell(struct mroce_qp *qp)
{
	struct mroce_context *ctx = to_mctx(qp->vqp.qp.context);

	if (ctx->features & METAROCE_FEATURE_NEED_WAKEUP) {
		/* Orders our store of producer before this load; the kernel does the reverse. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (!(mroce_load(&qp->sq.hdr->kernel_flags) & METAROCE_RING_NEED_WAKEUP))
			return 0;
	}
	/* An empty list: the work requests are in the ring already. */
	return ibv_cmd_post_send(&qp->vqp.qp, NULL, NULL);
}

static int write_inline(struct mroce_qp *qp, struct metaroce_send_wqe *wqe,
			const struct ibv_send_wr *wr)
{
	uint8_t *to = (uint8_t *)(wqe + 1);
	uint64_t total = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		total += sge->length;
		if (total > qp->max_inline)
			return EINVAL;
		memcpy(to, (const void *)(uintptr_t)sge->addr, sge->length);
		to += sge->length;
	}
	wqe->num_sge = 0;
	wqe->inline_length = total;
	return 0;
}

static int write_opcode(struct mroce_qp *qp, struct metaroce_send_wqe *wqe,
			const struct ibv_send_wr *wr)
{
	if (qp->vqp.qp.qp_type == IBV_QPT_UD && wr->opcode != IBV_WR_SEND &&
	    wr->opcode != IBV_WR_SEND_WITH_IMM)
		return EINVAL;
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_INV:
		wqe->imm_data = wr->invalidate_rkey;
		return 0;
	case IBV_WR_SEND_WITH_IMM:
		wqe->imm_data = (uint32_t)wr->imm_data;
		/* fall through */
	case IBV_WR_SEND:
		if (qp->vqp.qp.qp_type == IBV_QPT_UD) {
			wqe->ud.ah_num = to_mah(wr->wr.ud.ah)->ah_num;
			wqe->ud.remote_qpn = wr->wr.ud.remote_qpn;
			wqe->ud.remote_qkey = wr->wr.ud.remote_qkey;
		}
		return 0;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		wqe->imm_data = (uint32_t)wr->imm_data;
		/* fall through */
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_WRITE:
		wqe->remote_addr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
		return 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wqe->remote_addr = wr->wr.atomic.remote_addr;
		wqe->rkey = wr->wr.atomic.rkey;
		wqe->atomic.compare_add = wr->wr.atomic.compare_add;
		wqe->atomic.swap = wr->wr.atomic.swap;
		return 0;
	case IBV_WR_LOCAL_INV:
		wqe->imm_data = wr->invalidate_rkey;
		return 0;
	case IBV_WR_BIND_MW:
		wqe->remote_addr = wr->bind_mw.bind_info.addr;
		wqe->rkey = wr->bind_mw.rkey;
		wqe->mw.length = wr->bind_mw.bind_info.length;
		wqe->mw.mr_lkey = wr->bind_mw.bind_info.mr ? wr->bind_mw.bind_info.mr->lkey : 0;
		wqe->mw.mw_rkey = wr->bind_mw.mw->rkey;
		wqe->mw_access = wr->bind_mw.bind_info.mw_access_flags;
		return 0;
	default:
		return EINVAL;
	}
}

static int write_send_wqe(struct mroce_qp *qp, struct metaroce_send_wqe *wqe,
			  const struct ibv_send_wr *wr)
{
	int ret;

	if (wr->num_sge < 0)
		return EINVAL;

	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = wr->wr_id;
	wqe->opcode = wr->opcode;
	wqe->send_flags = wr->send_flags &
			  (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);

	ret = write_opcode(qp, wqe, wr);
	if (ret)
		return ret;

	/* Inline makes sense only where the message leaves from here. */
	if (wr->send_flags & IBV_SEND_INLINE) {
		switch (wr->opcode) {
		case IBV_WR_SEND:
		case IBV_WR_SEND_WITH_IMM:
		case IBV_WR_SEND_WITH_INV:
		case IBV_WR_RDMA_WRITE:
		case IBV_WR_RDMA_WRITE_WITH_IMM:
			wqe->send_flags |= METAROCE_SEND_INLINE;
			return write_inline(qp, wqe, wr);
		default:
			return EINVAL;
		}
	}
	if ((uint32_t)wr->num_sge > qp->max_send_sge)
		return EINVAL;
	wqe->num_sge = wr->num_sge;
	memcpy(wqe + 1, wr->sg_list, (size_t)wr->num_sge * sizeof(struct ibv_sge));
	return 0;
}

int mroce_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct mroce_qp *qp = to_mqp(ibqp);
	uint32_t index;
	int ret = 0;

	/* IB spec 10.8.2: posting in RESET, INIT or RTR is an immediate error. */
	switch (ibqp->state) {
	case IBV_QPS_RESET:
	case IBV_QPS_INIT:
	case IBV_QPS_RTR:
		*bad_wr = wr;
		return EINVAL;
	default:
		break;
	}

	pthread_spin_lock(&qp->sq.lock);
	index = qp->sq.index;
	for (; wr; wr = wr->next) {
		if (mroce_ring_full(&qp->sq, index))
			ret = ENOMEM;
		else
			ret = write_send_wqe(qp, mroce_ring_slot(&qp->sq, index), wr);
		if (ret) {
			*bad_wr = wr;
			break;
		}
		index++;
	}
	if (index != qp->sq.index) {
		qp->sq.index = index;
		mroce_store(&qp->sq.hdr->producer, index);
		pthread_spin_unlock(&qp->sq.lock);
		/* The requests are posted for good; a doorbell fails only for a dying device. */
		(void)mroce_doorbell(qp);
	} else {
		pthread_spin_unlock(&qp->sq.lock);
	}
	return ret;
}

int mroce_post_recv_ring(struct mroce_ring *ring, uint32_t max_sge, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad_wr)
{
	struct metaroce_recv_wqe *wqe;
	int ret = 0;

	pthread_spin_lock(&ring->lock);
	for (; wr; wr = wr->next) {
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge)
			ret = EINVAL;
		else if (mroce_ring_full(ring, ring->index))
			ret = ENOMEM;
		if (ret) {
			*bad_wr = wr;
			break;
		}
		wqe = mroce_ring_slot(ring, ring->index);
		wqe->wr_id = wr->wr_id;
		wqe->num_sge = wr->num_sge;
		wqe->reserved = 0;
		memcpy(wqe + 1, wr->sg_list, (size_t)wr->num_sge * sizeof(struct ibv_sge));
		ring->index++;
	}
	mroce_store(&ring->hdr->producer, ring->index);
	pthread_spin_unlock(&ring->lock);
	return ret;
}

int mroce_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct mroce_qp *qp = to_mqp(ibqp);
	int ret;

	if (!qp->rq.hdr || ibqp->state == IBV_QPS_RESET) {
		*bad_wr = wr;
		return EINVAL;
	}
	ret = mroce_post_recv_ring(&qp->rq, qp->max_recv_sge, wr, bad_wr);
	/* Messages look for receives by themselves; a failed QP must be told to flush them. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (mroce_load(&qp->rq.hdr->kernel_flags) & METAROCE_RING_NEED_WAKEUP)
		(void)ibv_cmd_post_send(ibqp, NULL, NULL);
	return ret;
}
