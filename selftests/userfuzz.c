// SPDX-License-Identifier: GPL-2.0
/*
 * userfuzz: a hostile process. It may only harm itself.
 *
 *   userfuzz verbs DEVICE GID SEED SECONDS
 *     Random sequences of verbs through the write() and ioctl() interfaces of uverbs: right and wrong
 *     handles, lying sizes, numbers at the edges; by several threads that share one descriptor, so
 *     that everything races with everything; mmap, munmap, fork, and sudden ends.
 *   userfuzz rings DEVICE GID SEED SECONDS
 *     Queue pairs that talk to each other through libibverbs, while a second
 *     thread scribbles over all rings that the process has mapped.
 *
 * Each round is a child of its own, killed at a random moment. Prints what it did.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#define THREADS 3
#define COMMANDS 64
#define BUFFER (64 * 1024)

/* What the rounds did, shared with the children. */
struct figures {
	uint64_t done[COMMANDS]; /* verbs that succeeded, by write() command */
	uint64_t refused[COMMANDS];
	uint64_t ioctls_done, ioctls_refused;
	uint64_t mapped, map_refused;
	uint64_t scribbles, posts, completions, errors;
	uint64_t rounds, killed, crashed, forks;
};

static struct figures *figures;
static const char *device;
static union ibv_gid gid;
static int gid_index;
static int fd = -1;
static uint8_t *memory;
static bool stop;

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define READ(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE(x, value) __atomic_store_n(&(x), value, __ATOMIC_RELAXED)
#define COUNT(what) __atomic_add_fetch(&figures->what, 1, __ATOMIC_RELAXED)

struct rng {
	uint64_t state;
};

static uint64_t next(struct rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint32_t below(struct rng *r, uint32_t n)
{
	return n ? next(r) % n : 0;
}

static bool once_in(struct rng *r, uint32_t n)
{
	return below(r, n) == 0;
}

/* A number as found at edges, or any. */
static uint32_t wild(struct rng *r)
{
	static const uint32_t edges[] = {
		0, 1, 2, 3, 63, 64, 255, 256, 511, 512, 513, 16383, 16384, 16385, 65535, 65536,
		1 << 20, (1 << 20) + 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff,
	};

	return once_in(r, 3) ? next(r) : edges[below(r, ARRAY_SIZE(edges))];
}

/* A small number mostly, sometimes a wild one. */
static uint32_t size(struct rng *r, uint32_t usual)
{
	return once_in(r, 10) ? wild(r) : 1 + below(r, usual);
}

/* Handles of uverbs are small numbers, shared by all kinds of objects. */
static uint32_t handle(struct rng *r)
{
	return once_in(r, 30) ? wild(r) : below(r, 24);
}

static uint64_t address(struct rng *r)
{
	switch (below(r, 12)) {
	case 0:
		return next(r);
	case 1:
		return UINT64_MAX - below(r, 8192);
	case 2:
		return 0;
	default:
		return (uintptr_t)memory + below(r, BUFFER);
	}
}

/* One command through write(): header, command, bytes for the driver. */
static int command(struct rng *r, unsigned int number, void *cmd, size_t len)
{
	uint64_t words[192] = {0};
	struct ib_uverbs_cmd_hdr *hdr = (void *)words;
	uint8_t response[1024];
	size_t in = sizeof(*hdr) + len + 8 * below(r, 5);
	ssize_t rc;

	memcpy(hdr + 1, cmd, len);
	hdr->command = number;
	hdr->in_words = in / 4;
	hdr->out_words = sizeof(response) / 4;
	/* The response's address is the first field of most commands. */
	if (number != IB_USER_VERBS_CMD_DEALLOC_PD && number != IB_USER_VERBS_CMD_DEREG_MR &&
	    number != IB_USER_VERBS_CMD_DEALLOC_MW && number != IB_USER_VERBS_CMD_DESTROY_AH)
		*(uint64_t *)(hdr + 1) = (uintptr_t)response;
	if (once_in(r, 25))
		hdr->in_words = once_in(r, 2) ? wild(r) : below(r, 64);
	if (once_in(r, 25))
		hdr->out_words = once_in(r, 2) ? wild(r) : below(r, 64);
	if (once_in(r, 40))
		*(uint64_t *)(hdr + 1) = address(r);
	if (once_in(r, 40))
		in = below(r, sizeof(words));
	rc = write(fd, words, in);
	if (rc >= 0)
		COUNT(done[number % COMMANDS]);
	else
		COUNT(refused[number % COMMANDS]);
	return rc < 0 ? -errno : 0;
}

static void create_qp(struct rng *r)
{
	static const uint8_t types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct ib_uverbs_create_qp cmd = {
		.pd_handle = handle(r), .send_cq_handle = handle(r), .recv_cq_handle = handle(r),
		.srq_handle = handle(r), .max_send_wr = size(r, 64), .max_recv_wr = size(r, 64),
		.max_send_sge = size(r, 4), .max_recv_sge = size(r, 4),
		.max_inline_data = once_in(r, 3) ? wild(r) : 0, .sq_sig_all = below(r, 2),
		.qp_type = once_in(r, 20) ? wild(r) : types[below(r, 4)], .is_srq = once_in(r, 5),
	};

	command(r, IB_USER_VERBS_CMD_CREATE_QP, &cmd, offsetof(struct ib_uverbs_create_qp, driver_data));
}

static void modify_qp(struct rng *r)
{
	static const uint32_t masks[] = {
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC,
		IBV_QP_STATE,
	};
	static const uint8_t states[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR };
	uint32_t which = below(r, 4);
	struct ib_uverbs_modify_qp cmd = {
		.qp_handle = handle(r), .attr_mask = masks[which], .qp_state = states[which], .port_num = 1,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = below(r, 64) + 2, .min_rnr_timer = 1, .timeout = 10,
		.retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4, .max_dest_rd_atomic = 4,
		.qp_access_flags = 15,
		.dest = { .is_global = 1, .port_num = 1, .sgid_index = gid_index, .hop_limit = 64 },
	};

	memcpy(cmd.dest.dgid, gid.raw, sizeof(gid.raw));
	if (which == 3)
		cmd.qp_state = below(r, 8);
	if (once_in(r, 8)) {
		uint8_t *bytes = (uint8_t *)&cmd;

		bytes[below(r, offsetof(struct ib_uverbs_modify_qp, driver_data))] = next(r);
	}
	/* This one has no response. */
	command(r, IB_USER_VERBS_CMD_MODIFY_QP, &cmd, offsetof(struct ib_uverbs_modify_qp, driver_data));
}

/* A whole queue pair, connected to some other one: so that there is something to race with. */
static void good_qp(struct rng *r)
{
	struct ib_uverbs_create_cq cq = { .cqe = 1 + below(r, 64), .comp_channel = -1 };
	struct ib_uverbs_alloc_pd pd = {};

	command(r, IB_USER_VERBS_CMD_ALLOC_PD, &pd, offsetof(struct ib_uverbs_alloc_pd, driver_data));
	command(r, IB_USER_VERBS_CMD_CREATE_CQ, &cq, offsetof(struct ib_uverbs_create_cq, driver_data));
	create_qp(r);
	for (int i = 0; i < 8; i++)
		modify_qp(r);
}

static void post(struct rng *r, bool send)
{
	struct {
		struct ib_uverbs_post_send cmd;
		struct ib_uverbs_send_wr wr[4];
		struct ib_uverbs_sge sge[8];
	} p = {
		.cmd = { .qp_handle = handle(r), .wr_count = below(r, 4), .sge_count = below(r, 8),
			 .wqe_size = sizeof(struct ib_uverbs_send_wr) },
	};

	for (int i = 0; i < 4; i++) {
		p.wr[i].opcode = once_in(r, 4) ? wild(r) : below(r, 16);
		p.wr[i].num_sge = once_in(r, 8) ? wild(r) : below(r, 3);
		p.wr[i].send_flags = below(r, 32);
	}
	for (int i = 0; i < 8; i++)
		p.sge[i] = (struct ib_uverbs_sge){ address(r), size(r, 4096), wild(r) };
	if (once_in(r, 20))
		p.cmd.wr_count = wild(r);
	if (once_in(r, 20))
		p.cmd.wqe_size = wild(r);
	if (once_in(r, 20))
		p.cmd.sge_count = wild(r);
	command(r, send ? IB_USER_VERBS_CMD_POST_SEND : IB_USER_VERBS_CMD_POST_RECV, &p, sizeof(p));
}

/* Any bytes as any command, a handle now and then. */
static void any_command(struct rng *r)
{
	uint32_t words[24];
	unsigned int number = below(r, 48);

	for (size_t i = 0; i < sizeof(words) / 4; i++)
		words[i] = once_in(r, 3) ? wild(r) : handle(r);
	if (number == IB_USER_VERBS_CMD_GET_CONTEXT)
		return;
	command(r, number, words, below(r, sizeof(words)) & ~3u);
}

static void registration(struct rng *r)
{
	struct ib_uverbs_reg_mr cmd = {
		.start = address(r), .length = once_in(r, 6) ? next(r) : size(r, 8192),
		.pd_handle = handle(r), .access_flags = once_in(r, 6) ? wild(r) : below(r, 32),
	};

	cmd.hca_va = once_in(r, 4) ? next(r) : cmd.start;
	command(r, IB_USER_VERBS_CMD_REG_MR, &cmd, offsetof(struct ib_uverbs_reg_mr, driver_data));
}

static void destroy(struct rng *r)
{
	static const uint8_t with_response[] = {
		IB_USER_VERBS_CMD_DESTROY_CQ, IB_USER_VERBS_CMD_DESTROY_QP, IB_USER_VERBS_CMD_DESTROY_SRQ,
	};
	static const uint8_t without[] = {
		IB_USER_VERBS_CMD_DEALLOC_PD, IB_USER_VERBS_CMD_DEREG_MR, IB_USER_VERBS_CMD_DEALLOC_MW,
		IB_USER_VERBS_CMD_DESTROY_AH,
	};
	struct ib_uverbs_destroy_cq cmd = { .cq_handle = handle(r) };
	uint32_t plain = handle(r);

	if (once_in(r, 2))
		command(r, with_response[below(r, 3)], &cmd, sizeof(cmd));
	else
		command(r, without[below(r, 4)], &plain, sizeof(plain));
}

static void any_ioctl(struct rng *r)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[16];
	} p = {};
	uint8_t data[512];
	int n = below(r, 16);

	for (size_t i = 0; i < sizeof(data); i += 4)
		*(uint32_t *)(data + i) = once_in(r, 3) ? wild(r) : handle(r);
	p.hdr.length = sizeof(p.hdr) + n * sizeof(p.attrs[0]);
	p.hdr.object_id = once_in(r, 10) ? next(r) : below(r, 20);
	p.hdr.method_id = once_in(r, 10) ? next(r) : below(r, 8);
	p.hdr.num_attrs = once_in(r, 20) ? wild(r) : (uint32_t)n;
	p.hdr.driver_id = once_in(r, 3) ? wild(r) : 0x4d524f43;
	for (int i = 0; i < n; i++) {
		struct ib_uverbs_attr *a = &p.attrs[i];
		static const uint16_t lengths[] = { 0, 1, 2, 4, 8, 12, 16, 32, 64, 65535 };

		/* Ascending, as sensible callers have them. */
		a->attr_id = once_in(r, 12) ? (uint16_t)next(r) : i;
		if (once_in(r, 6))
			a->attr_id |= 1 << UVERBS_ID_NS_SHIFT;
		a->len = lengths[below(r, 10)];
		a->flags = once_in(r, 3) ? next(r) : UVERBS_ATTR_F_MANDATORY;
		a->data = once_in(r, 3) ? handle(r) : once_in(r, 4) ? address(r) : (uintptr_t)data;
	}
	if (ioctl(fd, RDMA_VERBS_IOCTL, &p) == 0)
		COUNT(ioctls_done);
	else
		COUNT(ioctls_refused);
}

static void map(struct rng *r)
{
	/* Offsets of mappings are small numbers of pages. */
	off_t offset = once_in(r, 10) ? (off_t)(next(r) & ~4095ull) : (off_t)below(r, 256) * 4096;
	size_t length = once_in(r, 10) ? wild(r) : 4096 * (1 + below(r, 8));
	int prot = once_in(r, 6) ? below(r, 8) : PROT_READ | PROT_WRITE;
	uint8_t *p = mmap(NULL, length, prot, once_in(r, 8) ? MAP_PRIVATE : MAP_SHARED, fd, offset);

	if (p == MAP_FAILED) {
		COUNT(map_refused);
		return;
	}
	COUNT(mapped);
	if ((prot & PROT_WRITE) && !once_in(r, 4)) {
		for (int i = 0; i < 64; i++) {
			uint32_t *word = (uint32_t *)(p + (below(r, length) & ~3u));

			WRITE(*word, once_in(r, 2) ? below(r, 64) : wild(r));
		}
	}
	if (!once_in(r, 3))
		munmap(p, once_in(r, 5) ? 4096 : length);
}

static void *verbs_thread(void *arg)
{
	struct rng *r = arg;

	while (!READ(stop)) {
		switch (below(r, 16)) {
		case 0:
			good_qp(r);
			break;
		case 1: {
			struct ib_uverbs_create_cq cmd = { .cqe = size(r, 64), .comp_channel = -1,
							   .comp_vector = once_in(r, 9) ? wild(r) : 0 };

			command(r, IB_USER_VERBS_CMD_CREATE_CQ, &cmd,
				offsetof(struct ib_uverbs_create_cq, driver_data));
			break;
		}
		case 2: {
			struct ib_uverbs_create_srq cmd = { .pd_handle = handle(r), .max_wr = size(r, 64),
							    .max_sge = size(r, 4), .srq_limit = wild(r) };

			command(r, IB_USER_VERBS_CMD_CREATE_SRQ, &cmd,
				offsetof(struct ib_uverbs_create_srq, driver_data));
			break;
		}
		case 3: {
			struct ib_uverbs_resize_cq cmd = { .cq_handle = handle(r), .cqe = size(r, 256) };

			command(r, IB_USER_VERBS_CMD_RESIZE_CQ, &cmd,
				offsetof(struct ib_uverbs_resize_cq, driver_data));
			break;
		}
		case 4:
			create_qp(r);
			break;
		case 5:
		case 6:
			modify_qp(r);
			break;
		case 7:
		case 8:
			registration(r);
			break;
		case 9:
		case 10:
			destroy(r);
			break;
		case 11:
			post(r, once_in(r, 2));
			break;
		case 12:
			any_command(r);
			break;
		case 13:
			any_ioctl(r);
			break;
		default:
			map(r);
			break;
		}
		if (once_in(r, 4000) && fork() == 0) {
			/* A child that has the same descriptor and mappings. */
			COUNT(forks);
			destroy(r);
			map(r);
			_exit(0);
		}
	}
	return NULL;
}

/* The uverbs device file of the RDMA device. */
static void device_file(char *path, size_t len)
{
	char dir[PATH_MAX];
	struct dirent *entry;
	DIR *d;

	snprintf(dir, sizeof(dir), "/sys/class/infiniband/%s/device/infiniband_verbs", device);
	d = opendir(dir);
	if (!d) {
		/* A device without a parent: found by its name. */
		d = opendir("/sys/class/infiniband_verbs");
		while (d && (entry = readdir(d))) {
			char file[PATH_MAX], name[64] = "";
			FILE *f;

			if (strncmp(entry->d_name, "uverbs", 6))
				continue;
			snprintf(file, sizeof(file), "/sys/class/infiniband_verbs/%s/ibdev", entry->d_name);
			f = fopen(file, "r");
			if (f && fscanf(f, "%63s", name) == 1 && !strcmp(name, device))
				snprintf(path, len, "/dev/infiniband/%.32s", entry->d_name);
			if (f)
				fclose(f);
		}
	} else {
		while ((entry = readdir(d)))
			if (!strncmp(entry->d_name, "uverbs", 6))
				snprintf(path, len, "/dev/infiniband/%.32s", entry->d_name);
	}
	if (d)
		closedir(d);
}

static void verbs_round(struct rng *r)
{
	struct ib_uverbs_get_context cmd = {};
	struct rlimit locked = { 8 << 20, 8 << 20 };
	struct rng seeds[THREADS];
	pthread_t thread[THREADS];
	char path[64] = "";

	device_file(path, sizeof(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		fprintf(stderr, "%s (%s): %s\n", device, path, strerror(errno));
		_exit(3);
	}
	if (once_in(r, 2))
		setrlimit(RLIMIT_MEMLOCK, &locked);
	/* Sometimes there is no context at all. */
	if (!once_in(r, 20))
		command(r, IB_USER_VERBS_CMD_GET_CONTEXT, &cmd,
			offsetof(struct ib_uverbs_get_context, driver_data));
	for (int i = 0; i < THREADS; i++) {
		seeds[i].state = next(r);
		pthread_create(&thread[i], NULL, verbs_thread, &seeds[i]);
	}
	usleep(50000 + below(r, 700000));
	if (once_in(r, 2)) {
		/* Closed while the others use it. */
		close(fd);
		usleep(20000);
	}
	WRITE(stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	_exit(0);
}

#define RING_QPS 4

static struct {
	uint8_t *base;
	size_t len;
} rings[64];
static int ring_count;

static void find_rings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512];

	while (maps && fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "uverbs") || ring_count == 64)
			continue;
		if (sscanf(line, "%lx-%lx", &from, &to) == 2) {
			rings[ring_count].base = (void *)from;
			rings[ring_count++].len = to - from;
		}
	}
	if (maps)
		fclose(maps);
}

static void *scribbler(void *arg)
{
	struct rng *r = arg;

	while (!READ(stop)) {
		int which = below(r, ring_count);
		uint32_t *words = (void *)rings[which].base;
		uint32_t at;

		switch (below(r, 4)) {
		case 0: /* index words */
			at = below(r, 4) * 16;
			WRITE(words[at], once_in(r, 2) ? READ(words[at]) + below(r, 80) : wild(r));
			break;
		case 1: /* the slots in front */
			WRITE(words[64 + below(r, 256)], once_in(r, 2) ? below(r, 20) : wild(r));
			break;
		default:
			at = below(r, rings[which].len / 4);
			WRITE(words[at], once_in(r, 2) ? below(r, 70000) : wild(r));
			break;
		}
		COUNT(scribbles);
		if (once_in(r, 64))
			usleep(below(r, 200));
	}
	return NULL;
}

static bool to_rts(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 15 };

	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return false;
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 64 } },
	};
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return false;
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 7, .rnr_retry = 7,
				  .max_rd_atomic = 16 };
	return !ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static struct ibv_context *open_device(void)
{
	struct ibv_context *ctx = NULL;
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device))
			ctx = ibv_open_device(list[i]);
	return ctx;
}

static void rings_round(struct rng *r)
{
	struct ibv_context *ctx = open_device();
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_mr *mr = pd ? ibv_reg_mr(pd, memory, BUFFER, 15) : NULL;
	struct ibv_cq *cq = mr ? ibv_create_cq(ctx, 256, NULL, NULL, 0) : NULL;
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 3, .max_recv_sge = 2,
			 .max_inline_data = 64 },
	};
	struct ibv_qp *qp[RING_QPS];
	struct rng other = { next(r) };
	struct timespec begin, now;
	pthread_t thread;
	uint32_t ms;

	if (!cq) {
		fprintf(stderr, "%s: no context, PD, MR or CQ: %s\n", device, strerror(errno));
		_exit(3);
	}
	for (int i = 0; i < RING_QPS; i++) {
		qp[i] = ibv_create_qp(pd, &init);
		if (!qp[i])
			_exit(3);
	}
	for (int i = 0; i < RING_QPS; i++)
		if (!to_rts(qp[i], qp[i ^ 1]->qp_num))
			_exit(3);
	find_rings();
	if (!ring_count)
		_exit(3);
	pthread_create(&thread, NULL, scribbler, &other);
	ms = 100 + below(r, 900);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		struct ibv_qp *q = qp[below(r, RING_QPS)];
		struct ibv_sge sge = { (uintptr_t)memory + below(r, BUFFER / 2), 1 + below(r, 8192), mr->lkey };
		struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
		struct ibv_send_wr send = {
			.sg_list = &sge, .num_sge = 1, .opcode = below(r, 7),
			.wr.rdma = { (uintptr_t)memory + below(r, BUFFER / 2), mr->rkey },
		}, *bad_send;
		struct ibv_wc wc[16];
		int n;

		ibv_post_recv(q, &recv, &bad_recv);
		if (send.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
			sge.length = 8;
			send.wr.atomic.remote_addr = (uintptr_t)memory + (below(r, BUFFER / 2) & ~7u);
			send.wr.atomic.rkey = mr->rkey;
		}
		if (!ibv_post_send(q, &send, &bad_send))
			COUNT(posts);
		n = ibv_poll_cq(cq, 16, wc);
		for (int i = 0; i < n; i++) {
			if (wc[i].status)
				COUNT(errors);
			else
				COUNT(completions);
		}
		if (once_in(r, 300)) {
			/* Begin anew what has failed. */
			for (int i = 0; i < RING_QPS; i++) {
				struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

				ibv_modify_qp(qp[i], &a, IBV_QP_STATE);
				to_rts(qp[i], qp[i ^ 1]->qp_num);
			}
		}
		if (once_in(r, 3000))
			ibv_destroy_qp(qp[below(r, RING_QPS)]), _exit(0);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
	_exit(0);
}

static void print_figures(void)
{
	uint64_t done = 0, refused = 0;
	int kinds = 0;

	for (int i = 0; i < COMMANDS; i++) {
		done += figures->done[i];
		refused += figures->refused[i];
		kinds += figures->done[i] > 0;
	}
	printf("rounds: %lu, killed %lu, crashed by themselves %lu, forks %lu\n", figures->rounds,
	       figures->killed, figures->crashed, figures->forks);
	printf("commands: %lu done (%d kinds), %lu refused; ioctls: %lu done, %lu refused\n", done, kinds,
	       refused, figures->ioctls_done, figures->ioctls_refused);
	printf("mappings: %lu made, %lu refused\n", figures->mapped, figures->map_refused);
	printf("scribbles: %lu, posts %lu, completions %lu, errors %lu\n", figures->scribbles, figures->posts,
	       figures->completions, figures->errors);
	printf("hostile operations: %lu\n", done + refused + figures->ioctls_done + figures->ioctls_refused +
	       figures->mapped + figures->map_refused + figures->scribbles + figures->posts);
}

int main(int argc, char **argv)
{
	struct timespec begin, now;
	struct ibv_context *ctx;
	struct rng r;
	bool verbs;

	if (argc != 6 || (strcmp(argv[1], "verbs") && strcmp(argv[1], "rings"))) {
		fprintf(stderr, "usage: userfuzz verbs|rings DEVICE GID SEED SECONDS\n");
		return 2;
	}
	verbs = !strcmp(argv[1], "verbs");
	device = argv[2];
	gid_index = atoi(argv[3]);
	r.state = strtoull(argv[4], NULL, 0);
	ctx = open_device();
	if (!ctx || ibv_query_gid(ctx, 1, gid_index, &gid)) {
		fprintf(stderr, "%s: no such device, or no such GID\n", device);
		return 2;
	}
	ibv_close_device(ctx);
	figures = mmap(NULL, sizeof(*figures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memory = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (figures == MAP_FAILED || memory == MAP_FAILED)
		return 2;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		struct rng child = { next(&r) };
		bool kill_it = once_in(&r, 2);
		uint32_t after = 30000 + below(&r, 600000);
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			if (verbs)
				verbs_round(&child);
			else
				rings_round(&child);
		}
		if (pid < 0)
			return 2;
		figures->rounds++;
		if (kill_it) {
			usleep(after);
			kill(pid, SIGKILL);
		}
		waitpid(pid, &status, 0);
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
			figures->killed++;
		else if (WIFSIGNALED(status))
			figures->crashed++;
		else if (WEXITSTATUS(status) == 3)
			return 2;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begin.tv_sec < atoi(argv[5]));
	print_figures();
	return 0;
}
