// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * metaroce provider: device, context, PD, memory registration, address handles.
 */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "metaroce.h"

static const struct verbs_match_ent match_table[] = {
	VERBS_DRIVER_ID(METAROCE_DRIVER_ID),
	{},
};

int mroce_ring_remap(struct mroce_ring *ring, int cmd_fd, const struct metaroce_ring_info *info)
{
	uint64_t need;
	void *map;

	if (!info->entries || (info->entries & (info->entries - 1)) || !info->stride)
		return EPROTO;
	need = METAROCE_RING_HEADER + (uint64_t)info->entries * info->stride;
	if (info->length < need)
		return EPROTO;

	map = mmap(NULL, info->length, PROT_READ | PROT_WRITE, MAP_SHARED, cmd_fd, info->offset);
	if (map == MAP_FAILED)
		return errno;

	/* A child of fork() must not keep a parent's ring alive or write into it. */
	if (ibv_dontfork_range(map, info->length)) {
		munmap(map, info->length);
		return ENOMEM;
	}

	ring->hdr = map;
	ring->slots = (uint8_t *)map + METAROCE_RING_HEADER;
	ring->length = info->length;
	ring->entries = info->entries;
	ring->stride = info->stride;
	return 0;
}

int mroce_ring_map(struct mroce_ring *ring, int cmd_fd, const struct metaroce_ring_info *info)
{
	int ret = mroce_ring_remap(ring, cmd_fd, info);

	if (ret)
		return ret;
	ring->index = 0;
	pthread_spin_init(&ring->lock, PTHREAD_PROCESS_PRIVATE);
	return 0;
}

void mroce_ring_unmap(struct mroce_ring *ring)
{
	if (!ring->hdr)
		return;
	ibv_dofork_range(ring->hdr, ring->length);
	munmap(ring->hdr, ring->length);
	ring->hdr = NULL;
}

static int query_device(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	uint64_t fw;
	int ret;

	ret = ibv_cmd_query_device_any(context, input, attr, attr_size, &resp, &resp_size);
	if (ret)
		return ret;

	fw = resp.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver), "%u.%u.%u",
		 (unsigned int)(fw >> 32 & 0xffff), (unsigned int)(fw >> 16 & 0xffff),
		 (unsigned int)(fw & 0xffff));
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return ibv_cmd_query_port(context, port, attr, &cmd, sizeof(cmd));
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
	struct ib_uverbs_alloc_pd_resp resp;
	struct ibv_alloc_pd cmd;
	struct ibv_pd *pd;

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	if (ibv_cmd_alloc_pd(context, pd, &cmd, sizeof(cmd), &resp, sizeof(resp))) {
		free(pd);
		return NULL;
	}
	return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	int ret = ibv_cmd_dealloc_pd(pd);

	if (!ret)
		free(pd);
	return ret;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va,
			     int access)
{
	struct ib_uverbs_reg_mr_resp resp;
	struct ibv_reg_mr cmd;
	struct verbs_mr *vmr;

	vmr = calloc(1, sizeof(*vmr));
	if (!vmr)
		return NULL;
	if (ibv_cmd_reg_mr(pd, addr, length, hca_va, access, vmr, &cmd, sizeof(cmd), &resp,
			   sizeof(resp))) {
		free(vmr);
		return NULL;
	}
	return &vmr->ibv_mr;
}

static int dereg_mr(struct verbs_mr *vmr)
{
	int ret = ibv_cmd_dereg_mr(vmr);

	if (!ret)
		free(vmr);
	return ret;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ib_uverbs_alloc_mw_resp resp = {};
	struct ibv_alloc_mw cmd = {};
	struct ibv_mw *mw;

	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;
	if (ibv_cmd_alloc_mw(pd, type, mw, &cmd, sizeof(cmd), &resp, sizeof(resp))) {
		free(mw);
		return NULL;
	}
	return mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	int ret = ibv_cmd_dealloc_mw(mw);

	if (!ret)
		free(mw);
	return ret;
}

/* Type 1 windows: posting the bind on the QP is the library's business. */
static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad_wr;
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
	};
	int ret;

	if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)
		return EINVAL;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = bind->bind_info;

	ret = mroce_post_send(qp, &wr, &bad_wr);
	if (!ret)
		mw->rkey = wr.bind_mw.rkey;
	return ret;
}

static struct ibv_ah *create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct mroce_create_ah_resp resp = {};
	struct mroce_ah *ah;

	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	if (ibv_cmd_create_ah(pd, &ah->ibv_ah, attr, &resp.ibv_resp, sizeof(resp))) {
		free(ah);
		return NULL;
	}
	ah->ah_num = resp.drv.ah_num;
	return &ah->ibv_ah;
}

static int destroy_ah(struct ibv_ah *ibah)
{
	int ret = ibv_cmd_destroy_ah(ibah);

	if (!ret)
		free(to_mah(ibah));
	return ret;
}

static void free_context(struct ibv_context *ibctx)
{
	struct mroce_context *ctx = to_mctx(ibctx);

	verbs_uninit_context(&ctx->ibv_ctx);
	free(ctx);
}

static const struct verbs_context_ops context_ops = {
	.alloc_mw = alloc_mw,
	.alloc_pd = alloc_pd,
	.attach_mcast = ibv_cmd_attach_mcast,
	.bind_mw = bind_mw,
	.create_ah = create_ah,
	.create_cq = mroce_create_cq,
	.create_cq_ex = mroce_create_cq_ex,
	.create_qp = mroce_create_qp,
	.create_qp_ex = mroce_create_qp_ex,
	.create_srq = mroce_create_srq,
	.dealloc_mw = dealloc_mw,
	.dealloc_pd = dealloc_pd,
	.dereg_mr = dereg_mr,
	.destroy_ah = destroy_ah,
	.destroy_cq = mroce_destroy_cq,
	.destroy_qp = mroce_destroy_qp,
	.destroy_srq = mroce_destroy_srq,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = free_context,
	.get_srq_num = mroce_get_srq_num,
	.modify_qp = mroce_modify_qp,
	.modify_srq = mroce_modify_srq,
	.poll_cq = mroce_poll_cq,
	.post_recv = mroce_post_recv,
	.post_send = mroce_post_send,
	.post_srq_recv = mroce_post_srq_recv,
	.query_device_ex = query_device,
	.query_port = query_port,
	.query_qp = mroce_query_qp,
	.query_srq = mroce_query_srq,
	.reg_mr = reg_mr,
	.req_notify_cq = ibv_cmd_req_notify_cq,
	.resize_cq = mroce_resize_cq,
};

static struct verbs_context *alloc_context(struct ibv_device *ibdev, int cmd_fd,
					   void *private_data)
{
	struct mroce_get_context_resp resp = {};
	struct ibv_get_context cmd = {};
	struct mroce_context *ctx;

	(void)private_data;

	ctx = verbs_init_and_alloc_context(ibdev, cmd_fd, ctx, ibv_ctx, METAROCE_DRIVER_ID);
	if (!ctx)
		return NULL;

	if (ibv_cmd_get_context(&ctx->ibv_ctx, &cmd, sizeof(cmd), &resp.ibv_resp, sizeof(resp)))
		goto err;
	if (resp.drv.abi_version != METAROCE_ABI_VERSION) {
		errno = EPROTO;
		goto err;
	}
	ctx->features = resp.drv.features;
	ctx->max_inline = resp.drv.max_inline;

	verbs_set_ops(&ctx->ibv_ctx, &context_ops);
	return &ctx->ibv_ctx;

err:
	verbs_uninit_context(&ctx->ibv_ctx);
	free(ctx);
	return NULL;
}

static struct verbs_device *device_alloc(struct verbs_sysfs_dev *sysfs_dev)
{
	struct mroce_device *dev;

	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return NULL;
	dev->abi_version = sysfs_dev->abi_ver;
	return &dev->ibv_dev;
}

static void uninit_device(struct verbs_device *verbs_dev)
{
	free(mroce_container(verbs_dev, struct mroce_device, ibv_dev));
}

static const struct verbs_device_ops device_ops = {
	.name = "metaroce",
	.match_min_abi_version = METAROCE_ABI_VERSION,
	.match_max_abi_version = METAROCE_ABI_VERSION,
	.match_table = match_table,
	.alloc_device = device_alloc,
	.uninit_device = uninit_device,
	.alloc_context = alloc_context,
};
PROVIDER_DRIVER(metaroce, device_ops);
