// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * metaroce provider: the ibv_wr_* way of posting.
 *
 * wr_start takes the send queue's lock and keeps it until wr_complete or wr_abort. Each
 * opcode call opens the next slot; the setters that follow fill it. The first error sticks
 * and makes wr_complete publish nothing.
 */
#include <config.h>

#include <string.h>

#include "metaroce.h"

static struct mroce_qp *from_ex(struct ibv_qp_ex *qp_ex)
{
	return mroce_container(qp_ex, struct mroce_qp, vqp.qp_ex);
}

static void wr_start(struct ibv_qp_ex *qp_ex)
{
	struct mroce_qp *qp = from_ex(qp_ex);

	pthread_spin_lock(&qp->sq.lock);
	qp->wr_index = qp->sq.index;
	qp->wr = NULL;
	qp->wr_err = 0;
}

static int wr_complete(struct ibv_qp_ex *qp_ex)
{
	struct mroce_qp *qp = from_ex(qp_ex);
	enum ibv_qp_state state = qp_ex->qp_base.state;
	int ret = qp->wr_err;

	if (!ret && (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR))
		ret = EINVAL;
	if (ret || qp->wr_index == qp->sq.index) {
		pthread_spin_unlock(&qp->sq.lock);
		return ret;
	}
	qp->sq.index = qp->wr_index;
	mroce_store(&qp->sq.hdr->producer, qp->sq.index);
	pthread_spin_unlock(&qp->sq.lock);
	(void)mroce_doorbell(qp);
	return 0;
}

static void wr_abort(struct ibv_qp_ex *qp_ex)
{
	pthread_spin_unlock(&from_ex(qp_ex)->sq.lock);
}

/* Opens the next slot; NULL once an error has stuck. */
static struct metaroce_send_wqe *open_slot(struct ibv_qp_ex *qp_ex, uint32_t opcode)
{
	struct mroce_qp *qp = from_ex(qp_ex);

	qp->wr = NULL;
	if (!qp->wr_err && mroce_ring_full(&qp->sq, qp->wr_index))
		qp->wr_err = ENOMEM;
	if (qp->wr_err)
		return NULL;

	qp->wr = mroce_ring_slot(&qp->sq, qp->wr_index);
	memset(qp->wr, 0, sizeof(*qp->wr));
	qp->wr->wr_id = qp_ex->wr_id;
	qp->wr->opcode = opcode;
	qp->wr->send_flags = qp_ex->wr_flags &
			     (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
	qp->wr_index++;
	return qp->wr;
}

static struct metaroce_send_wqe *open_rdma(struct ibv_qp_ex *qp_ex, uint32_t opcode, uint32_t rkey,
					   uint64_t remote_addr)
{
	struct metaroce_send_wqe *wqe = open_slot(qp_ex, opcode);

	if (wqe) {
		wqe->rkey = rkey;
		wqe->remote_addr = remote_addr;
	}
	return wqe;
}

static void wr_send(struct ibv_qp_ex *qp_ex)
{
	open_slot(qp_ex, METAROCE_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp_ex, __be32 imm_data)
{
	struct metaroce_send_wqe *wqe = open_slot(qp_ex, METAROCE_WR_SEND_WITH_IMM);

	if (wqe)
		wqe->imm_data = (uint32_t)imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *qp_ex, uint32_t invalidate_rkey)
{
	struct metaroce_send_wqe *wqe = open_slot(qp_ex, METAROCE_WR_SEND_WITH_INV);

	if (wqe)
		wqe->imm_data = invalidate_rkey;
}

static void wr_rdma_write(struct ibv_qp_ex *qp_ex, uint32_t rkey, uint64_t remote_addr)
{
	open_rdma(qp_ex, METAROCE_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp_ex, uint32_t rkey, uint64_t remote_addr,
			      __be32 imm_data)
{
	struct metaroce_send_wqe *wqe =
		open_rdma(qp_ex, METAROCE_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr);

	if (wqe)
		wqe->imm_data = (uint32_t)imm_data;
}

static void wr_rdma_read(struct ibv_qp_ex *qp_ex, uint32_t rkey, uint64_t remote_addr)
{
	open_rdma(qp_ex, METAROCE_WR_RDMA_READ, rkey, remote_addr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp_ex, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	struct metaroce_send_wqe *wqe =
		open_rdma(qp_ex, METAROCE_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr);

	if (wqe) {
		wqe->atomic.compare_add = compare;
		wqe->atomic.swap = swap;
	}
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp_ex, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	struct metaroce_send_wqe *wqe =
		open_rdma(qp_ex, METAROCE_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr);

	if (wqe)
		wqe->atomic.compare_add = add;
}

static void wr_atomic_write(struct ibv_qp_ex *qp_ex, uint32_t rkey, uint64_t remote_addr,
			    const void *atomic_wr)
{
	struct metaroce_send_wqe *wqe =
		open_rdma(qp_ex, METAROCE_WR_ATOMIC_WRITE, rkey, remote_addr);

	if (wqe) {
		wqe->send_flags |= METAROCE_SEND_INLINE;
		wqe->inline_length = sizeof(wqe->atomic.compare_add);
		memcpy(&wqe->atomic.compare_add, atomic_wr, sizeof(wqe->atomic.compare_add));
	}
}

static void wr_flush(struct ibv_qp_ex *qp_ex, uint32_t rkey, uint64_t remote_addr, size_t len,
		     uint8_t type, uint8_t level)
{
	struct metaroce_send_wqe *wqe = open_rdma(qp_ex, METAROCE_WR_FLUSH, rkey, remote_addr);

	if (wqe) {
		wqe->flush.length = len;
		wqe->flush.type = type;
		wqe->flush.level = level;
	}
}

static void wr_local_inv(struct ibv_qp_ex *qp_ex, uint32_t invalidate_rkey)
{
	struct metaroce_send_wqe *wqe = open_slot(qp_ex, METAROCE_WR_LOCAL_INV);

	if (wqe)
		wqe->imm_data = invalidate_rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *qp_ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct metaroce_send_wqe *wqe = open_rdma(qp_ex, METAROCE_WR_BIND_MW, rkey, info->addr);

	if (wqe) {
		wqe->mw.length = info->length;
		wqe->mw.mr_lkey = info->mr ? info->mr->lkey : 0;
		wqe->mw.mw_rkey = mw->rkey;
		wqe->mw_access = info->mw_access_flags;
	}
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp_ex, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct metaroce_send_wqe *wqe = from_ex(qp_ex)->wr;

	if (!wqe)
		return;
	wqe->ud.ah_num = to_mah(ah)->ah_num;
	wqe->ud.remote_qpn = remote_qpn;
	wqe->ud.remote_qkey = remote_qkey;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp_ex, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct mroce_qp *qp = from_ex(qp_ex);

	if (!qp->wr)
		return;
	if (num_sge > qp->max_send_sge) {
		qp->wr_err = ENOMEM;
		return;
	}
	memcpy(qp->wr + 1, sg_list, num_sge * sizeof(*sg_list));
	qp->wr->num_sge = num_sge;
}

static void wr_set_sge(struct ibv_qp_ex *qp_ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	/* One element of length 0 stands for an empty message. */
	wr_set_sge_list(qp_ex, length ? 1 : 0, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qp_ex, size_t num_buf,
				    const struct ibv_data_buf *buf_list)
{
	struct mroce_qp *qp = from_ex(qp_ex);
	uint8_t *to;
	size_t total = 0;
	size_t i;

	if (!qp->wr)
		return;
	to = (uint8_t *)(qp->wr + 1);
	for (i = 0; i < num_buf; i++) {
		if (buf_list[i].length > qp->max_inline - total) {
			qp->wr_err = ENOMEM;
			return;
		}
		memcpy(to + total, buf_list[i].addr, buf_list[i].length);
		total += buf_list[i].length;
	}
	qp->wr->send_flags |= METAROCE_SEND_INLINE;
	qp->wr->inline_length = total;
	qp->wr->num_sge = 0;
}

static void wr_set_inline_data(struct ibv_qp_ex *qp_ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(qp_ex, 1, &buf);
}

#define RC_OPS                                                                                     \
	(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV |       \
	 IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |                          \
	 IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |                            \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |                          \
	 IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE)
#define UC_OPS                                                                                     \
	(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV |       \
	 IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |                          \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW)
#define UD_OPS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)

int mroce_set_wr_ops(struct mroce_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_ex *ex = &qp->vqp.qp_ex;
	uint64_t ops = attr->send_ops_flags;
	uint64_t supported;

	switch (attr->qp_type) {
	case IBV_QPT_RC:
		supported = RC_OPS;
		break;
	case IBV_QPT_UC:
		supported = UC_OPS;
		break;
	case IBV_QPT_UD:
		supported = UD_OPS;
		break;
	default:
		return EOPNOTSUPP;
	}
	if (ops & ~supported)
		return EOPNOTSUPP;

	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_ud_addr = wr_set_ud_addr;

	if (ops & IBV_QP_EX_WITH_SEND)
		ex->wr_send = wr_send;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_IMM)
		ex->wr_send_imm = wr_send_imm;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_INV)
		ex->wr_send_inv = wr_send_inv;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE)
		ex->wr_rdma_write = wr_rdma_write;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
		ex->wr_rdma_write_imm = wr_rdma_write_imm;
	if (ops & IBV_QP_EX_WITH_RDMA_READ)
		ex->wr_rdma_read = wr_rdma_read;
	if (ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
		ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	if (ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
		ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	if (ops & IBV_QP_EX_WITH_ATOMIC_WRITE)
		ex->wr_atomic_write = wr_atomic_write;
	if (ops & IBV_QP_EX_WITH_FLUSH)
		ex->wr_flush = wr_flush;
	if (ops & IBV_QP_EX_WITH_LOCAL_INV)
		ex->wr_local_inv = wr_local_inv;
	if (ops & IBV_QP_EX_WITH_BIND_MW)
		ex->wr_bind_mw = wr_bind_mw;
	return 0;
}
