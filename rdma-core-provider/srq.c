// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * metaroce provider: shared receive queues.
 */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "metaroce.h"

struct ibv_srq *mroce_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct mroce_create_srq_resp resp = {};
	struct ibv_create_srq cmd = {};
	struct mroce_srq *srq;
	int ret;

	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;

	ret = ibv_cmd_create_srq(pd, &srq->vsrq.srq, attr, &cmd, sizeof(cmd), &resp.ibv_resp,
				 sizeof(resp));
	if (ret)
		goto err_free;
	ret = mroce_ring_map(&srq->ring, pd->context->cmd_fd, &resp.drv.ring);
	if (ret)
		goto err_destroy;
	srq->max_sge = resp.drv.max_sge;
	srq->srq_num = resp.drv.srq_num;
	return &srq->vsrq.srq;

err_destroy:
	ibv_cmd_destroy_srq(&srq->vsrq.srq);
err_free:
	free(srq);
	errno = ret;
	return NULL;
}

int mroce_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int attr_mask)
{
	struct mroce_srq *srq = to_msrq(ibsrq);
	struct metaroce_ring_info info = {};
	struct {
		struct ibv_modify_srq ibv_cmd;
		struct metaroce_modify_srq_cmd drv;
	} cmd = { .drv.ring_info_addr = (uintptr_t)&info };
	struct mroce_ring old;
	int ret;

	pthread_spin_lock(&srq->ring.lock);
	ret = ibv_cmd_modify_srq(ibsrq, attr, attr_mask, &cmd.ibv_cmd, sizeof(cmd));
	/* As with a CQ, a new ring keeps the indices of the old one. */
	if (!ret && info.length) {
		old = srq->ring;
		ret = mroce_ring_remap(&srq->ring, ibsrq->context->cmd_fd, &info);
		if (!ret)
			mroce_ring_unmap(&old);
	}
	pthread_spin_unlock(&srq->ring.lock);
	return ret;
}

int mroce_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd = {};

	return ibv_cmd_query_srq(ibsrq, attr, &cmd, sizeof(cmd));
}

int mroce_get_srq_num(struct ibv_srq *ibsrq, uint32_t *srq_num)
{
	*srq_num = to_msrq(ibsrq)->srq_num;
	return 0;
}

int mroce_destroy_srq(struct ibv_srq *ibsrq)
{
	struct mroce_srq *srq = to_msrq(ibsrq);
	int ret;

	ret = ibv_cmd_destroy_srq(ibsrq);
	if (ret)
		return ret;
	mroce_ring_unmap(&srq->ring);
	pthread_spin_destroy(&srq->ring.lock);
	free(srq);
	return 0;
}

int mroce_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct mroce_srq *srq = to_msrq(ibsrq);

	return mroce_post_recv_ring(&srq->ring, srq->max_sge, wr, bad_wr);
}
