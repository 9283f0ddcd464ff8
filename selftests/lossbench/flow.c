// SPDX-License-Identifier: GPL-2.0
/*
 * flow: one flow of RDMA traffic between two processes, measured at the sender.
 *
 * Works on any verbs device with RC queue pairs: WRITE, SEND or READ of a fixed
 * size at a fixed depth, every byte checked, all waiting done in the kernel
 * (nothing polls, so it can run in a kernel whose time is virtual). The two
 * processes find each other through a Unix socket, which no network
 * impairment touches. The client prints one JSON object:
 *
 *   bytes, completions, longest_gap_us: inside the measured interval
 *   bin_ms, bins: bytes completed in each interval since the start
 *   errors, first_error, first_error_ms: completions with error
 *   unfinished: work requests without completion when the drain limit is over
 *   bad_words: 64-bit words that are not what was sent
 *   at_ns: start of the traffic, CLOCK_MONOTONIC
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define MAX_QPS 1024
#define NSEC_PER_MSEC UINT64_C(1000000)

enum op { OP_WRITE, OP_SEND, OP_READ };

struct options {
	const char *device;
	const char *socket;
	const char *address;
	unsigned int port;
	unsigned int gid;
	unsigned int qps;
	unsigned int size;
	unsigned int depth;
	unsigned int warm_ms;
	unsigned int ms;
	unsigned int drain_ms;
	unsigned int bin_ms;
	unsigned int timeout;
	unsigned int retry;
	uint64_t at_ns;
	enum op op;
	bool server;
	bool cm;
};

/* What each side tells the other before the traffic. */
struct hello {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t rkey;
	uint32_t qpn[MAX_QPS];
};

/* What the client tells the server after it, and gets back. */
struct goodbye {
	uint64_t posted[MAX_QPS];
	uint64_t bad_words;
	uint64_t missing;
};

struct flow {
	struct options opt;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint64_t *memory;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *ids[MAX_QPS];
	struct ibv_qp *qp[MAX_QPS];
	uint64_t count[MAX_QPS];
	struct hello local;
	struct hello remote;
	int sock;
	unsigned int cq_events;
};

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("flow: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static size_t words(const struct flow *f)
{
	return f->opt.size / sizeof(uint64_t);
}

static uint64_t *slot(const struct flow *f, unsigned int q, uint64_t message)
{
	return f->memory + ((size_t)q * f->opt.depth + message % f->opt.depth) * words(f);
}

static uint64_t word(unsigned int q, uint64_t message, size_t i)
{
	return (message + 1) * 0x9e3779b97f4a7c15ull + (q + 1) * 0xc2b2ae3d27d4eb4full +
	       i * 0xff51afd7ed558ccdull;
}

static void fill(struct flow *f, unsigned int q, uint64_t message)
{
	uint64_t *p = slot(f, q, message);
	size_t i;

	for (i = 0; i < words(f); i++)
		p[i] = word(q, message, i);
}

static uint64_t check(const struct flow *f, unsigned int q, uint64_t message)
{
	const uint64_t *p = slot(f, q, message);
	uint64_t bad = 0;
	size_t i;

	for (i = 0; i < words(f); i++)
		bad += p[i] != word(q, message, i);
	return bad;
}

static void send_all(int sock, const void *data, size_t len)
{
	if (send(sock, data, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("the other side is gone: %s", strerror(errno));
}

static void recv_all(int sock, void *data, size_t len)
{
	ssize_t n = recv(sock, data, len, MSG_WAITALL);

	if (n != (ssize_t)len)
		die("the other side is gone: %s", n < 0 ? strerror(errno) : "closed");
}

static int rendezvous(const struct options *opt)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), peer;
	unsigned int tries;

	if (fd < 0 || strlen(opt->socket) >= sizeof(sa.sun_path))
		die("no meeting point at %s", opt->socket);
	memcpy(sa.sun_path, opt->socket, strlen(opt->socket) + 1);
	if (opt->server) {
		unlink(opt->socket);
		if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || listen(fd, 1))
			die("cannot listen at %s: %s", opt->socket, strerror(errno));
		peer = accept(fd, NULL, NULL);
		close(fd);
		if (peer < 0)
			die("no peer at %s: %s", opt->socket, strerror(errno));
		return peer;
	}
	for (tries = 0; connect(fd, (struct sockaddr *)&sa, sizeof(sa)); tries++) {
		if (tries == 1000)
			die("no server at %s: %s", opt->socket, strerror(errno));
		usleep(10000);
	}
	return fd;
}

static void open_device(struct flow *f)
{
	int n, i;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), f->opt.device))
			f->ctx = ibv_open_device(list[i]);
	if (!f->ctx)
		die("the device %s cannot be opened", f->opt.device);
}

static void make_resources(struct flow *f)
{
	size_t bytes = (size_t)f->opt.qps * f->opt.depth * f->opt.size;
	unsigned int q, i;

	f->pd = ibv_alloc_pd(f->ctx);
	f->channel = ibv_create_comp_channel(f->ctx);
	if (!f->pd || !f->channel)
		die("no protection domain or completion channel: %s", strerror(errno));
	f->cq = ibv_create_cq(f->ctx, (int)(f->opt.qps * f->opt.depth + 1), NULL, f->channel, 0);
	if (!f->cq)
		die("no completion queue: %s", strerror(errno));
	if (posix_memalign((void **)&f->memory, 4096, bytes))
		die("no memory");
	memset(f->memory, 0, bytes);
	f->mr = ibv_reg_mr(f->pd, f->memory, bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!f->mr)
		die("no memory region: %s", strerror(errno));
	/* A READ fetches what lies in the server's slots all the time. */
	if (f->opt.server && f->opt.op == OP_READ)
		for (q = 0; q < f->opt.qps; q++)
			for (i = 0; i < f->opt.depth; i++)
				fill(f, q, i);
	f->local.addr = (uintptr_t)f->memory;
	f->local.rkey = f->mr->rkey;
}

static struct ibv_qp_init_attr qp_init(struct flow *f)
{
	return (struct ibv_qp_init_attr){
		.send_cq = f->cq,
		.recv_cq = f->cq,
		.cap = {
			.max_send_wr = f->opt.depth,
			.max_recv_wr = f->opt.depth,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};
}

static unsigned int rd_atomic(struct flow *f)
{
	struct ibv_device_attr attr;
	unsigned int n = f->opt.depth < 16 ? f->opt.depth : 16;

	if (ibv_query_device(f->ctx, &attr))
		die("the device's attributes cannot be read");
	return (unsigned int)attr.max_qp_rd_atom < n ? (unsigned int)attr.max_qp_rd_atom : n;
}

static void make_qps(struct flow *f)
{
	unsigned int q;

	if (ibv_query_gid(f->ctx, 1, (int)f->opt.gid, &f->local.gid))
		die("there is no GID %u", f->opt.gid);
	for (q = 0; q < f->opt.qps; q++) {
		struct ibv_qp_init_attr init = qp_init(f);
		struct ibv_qp_attr attr = {
			.qp_state = IBV_QPS_INIT,
			.port_num = 1,
			.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		};

		f->qp[q] = ibv_create_qp(f->pd, &init);
		if (!f->qp[q])
			die("no queue pair: %s", strerror(errno));
		if (ibv_modify_qp(f->qp[q], &attr,
				  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
			die("a queue pair does not go to INIT: %s", strerror(errno));
		f->local.qpn[q] = f->qp[q]->qp_num;
	}
}

static void connect_qps(struct flow *f)
{
	struct ibv_port_attr port;
	unsigned int q, n = rd_atomic(f);

	if (ibv_query_port(f->ctx, 1, &port))
		die("the port's attributes cannot be read");
	for (q = 0; q < f->opt.qps; q++) {
		struct ibv_qp_attr attr = {
			.qp_state = IBV_QPS_RTR,
			.path_mtu = port.active_mtu,
			.dest_qp_num = f->remote.qpn[q],
			.max_dest_rd_atomic = (uint8_t)n,
			.min_rnr_timer = 12,
			.ah_attr = {
				.is_global = 1,
				.port_num = 1,
				.grh = {
					.dgid = f->remote.gid,
					.sgid_index = (uint8_t)f->opt.gid,
					.hop_limit = 64,
				},
			},
		};

		if (ibv_modify_qp(f->qp[q], &attr,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
			die("a queue pair does not go to RTR: %s", strerror(errno));
		attr.qp_state = IBV_QPS_RTS;
		attr.timeout = (uint8_t)f->opt.timeout;
		attr.retry_cnt = (uint8_t)f->opt.retry;
		attr.rnr_retry = 7;
		attr.max_rd_atomic = (uint8_t)n;
		if (ibv_modify_qp(f->qp[q], &attr,
				  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
			die("a queue pair does not go to RTS: %s", strerror(errno));
	}
}

static struct rdma_cm_event *await_event(struct flow *f, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(f->events, &event))
		die("no event of the connection manager: %s", strerror(errno));
	if (event->event != want)
		die("the connection manager says %s (%d) instead of %s", rdma_event_str(event->event),
		    event->status, rdma_event_str(want));
	return event;
}

static struct sockaddr_in cm_address(const struct flow *f)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons((uint16_t)f->opt.port) };

	if (inet_pton(AF_INET, f->opt.address, &sa.sin_addr) != 1)
		die("%s is not an IPv4 address", f->opt.address);
	return sa;
}

static void add_cm_qp(struct flow *f, unsigned int q, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;

	f->ids[q] = id;
	if (!f->ctx) {
		f->ctx = id->verbs;
		make_resources(f);
	}
	init = qp_init(f);
	if (rdma_create_qp(id, f->pd, &init))
		die("no queue pair: %s", strerror(errno));
	f->qp[q] = id->qp;
}

static void cm_listen(struct flow *f)
{
	struct sockaddr_in sa = cm_address(f);

	f->events = rdma_create_event_channel();
	if (!f->events || rdma_create_id(f->events, &f->listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(f->listener, (struct sockaddr *)&sa) || rdma_listen(f->listener, MAX_QPS))
		die("cannot listen at %s: %s", f->opt.address, strerror(errno));
}

static void cm_accept(struct flow *f)
{
	unsigned int q;

	for (q = 0; q < f->opt.qps; q++) {
		struct rdma_cm_event *event = await_event(f, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_conn_param param = { .rnr_retry_count = 7 };

		add_cm_qp(f, q, event->id);
		param.responder_resources = (uint8_t)rd_atomic(f);
		param.initiator_depth = (uint8_t)rd_atomic(f);
		rdma_ack_cm_event(event);
		if (rdma_accept(f->ids[q], &param))
			die("cannot accept: %s", strerror(errno));
		rdma_ack_cm_event(await_event(f, RDMA_CM_EVENT_ESTABLISHED));
	}
}

static void cm_connect(struct flow *f)
{
	struct sockaddr_in sa = cm_address(f);
	unsigned int q;

	f->events = rdma_create_event_channel();
	for (q = 0; q < f->opt.qps; q++) {
		struct rdma_conn_param param = {
			.retry_count = (uint8_t)f->opt.retry,
			.rnr_retry_count = 7,
		};
		struct rdma_cm_id *id;

		if (!f->events || rdma_create_id(f->events, &id, NULL, RDMA_PS_TCP) ||
		    rdma_resolve_addr(id, NULL, (struct sockaddr *)&sa, 5000))
			die("cannot resolve %s: %s", f->opt.address, strerror(errno));
		rdma_ack_cm_event(await_event(f, RDMA_CM_EVENT_ADDR_RESOLVED));
		if (rdma_resolve_route(id, 5000))
			die("no route: %s", strerror(errno));
		rdma_ack_cm_event(await_event(f, RDMA_CM_EVENT_ROUTE_RESOLVED));
		add_cm_qp(f, q, id);
		param.responder_resources = (uint8_t)rd_atomic(f);
		param.initiator_depth = (uint8_t)rd_atomic(f);
		if (rdma_connect(id, &param))
			die("cannot connect: %s", strerror(errno));
		rdma_ack_cm_event(await_event(f, RDMA_CM_EVENT_ESTABLISHED));
	}
}

static uint64_t wr_id(unsigned int q, uint64_t message)
{
	return (uint64_t)q << 48 | message;
}

static void post_receive(struct flow *f, unsigned int q, uint64_t message)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)slot(f, q, message),
		.length = f->opt.size,
		.lkey = f->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = wr_id(q, message), .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(f->qp[q], &wr, &bad))
		die("cannot post a receive");
}

static void post_request(struct flow *f, unsigned int q)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[OP_WRITE] = IBV_WR_RDMA_WRITE,
		[OP_SEND] = IBV_WR_SEND,
		[OP_READ] = IBV_WR_RDMA_READ,
	};
	uint64_t message = f->count[q]++;
	struct ibv_sge sge = {
		.addr = (uintptr_t)slot(f, q, message),
		.length = f->opt.size,
		.lkey = f->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id(q, message),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcodes[f->opt.op],
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = f->remote.addr + ((uintptr_t)sge.addr - (uintptr_t)f->memory),
			.rkey = f->remote.rkey,
		},
	}, *bad;

	if (f->opt.op != OP_READ)
		fill(f, q, message);
	if (ibv_post_send(f->qp[q], &wr, &bad))
		die("cannot post a work request");
}

/* Waits for a completion event, for data on the Unix socket or for `limit`. */
static bool wait_for(struct flow *f, uint64_t limit)
{
	struct pollfd fds[] = {
		{ .fd = f->channel->fd, .events = POLLIN },
		{ .fd = f->sock, .events = POLLIN },
	};
	uint64_t now = now_ns();
	struct timespec ts;
	struct ibv_cq *cq;
	void *context;

	if (now >= limit)
		return false;
	ts.tv_sec = (time_t)((limit - now) / 1000000000ull);
	ts.tv_nsec = (long)((limit - now) % 1000000000ull);
	if (ppoll(fds, 2, &ts, NULL) <= 0)
		return false;
	if (fds[0].revents) {
		if (ibv_get_cq_event(f->channel, &cq, &context))
			die("no completion event: %s", strerror(errno));
		f->cq_events++;
		if (ibv_req_notify_cq(f->cq, 0))
			die("no notification");
	}
	return !fds[1].revents;
}

static int poll_cq(struct flow *f, struct ibv_wc *wc, int max)
{
	int n = ibv_poll_cq(f->cq, max, wc);

	if (n < 0)
		die("the completion queue cannot be read");
	return n;
}

static void print_result(struct flow *f, const uint64_t *bins, unsigned int nbins, uint64_t completions,
			 uint64_t gap, uint64_t errors, const char *first, uint64_t first_ns,
			 uint64_t unfinished, const struct goodbye *bye, uint64_t bad_words)
{
	unsigned int i, from = f->opt.warm_ms / f->opt.bin_ms;
	uint64_t bytes = 0;

	for (i = from; i < nbins; i++)
		bytes += bins[i];
	printf("{\"bytes\": %" PRIu64 ", \"ms\": %u, \"completions\": %" PRIu64 ", \"longest_gap_us\": %" PRIu64
	       ", \"errors\": %" PRIu64 ", \"first_error\": \"%s\", \"first_error_ms\": %" PRIu64
	       ", \"unfinished\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"bad_words\": %" PRIu64
	       ", \"at_ns\": %" PRIu64 ", \"warm_ms\": %u, \"bin_ms\": %u, \"bins\": [",
	       bytes, f->opt.ms, completions, gap / 1000, errors, first, first_ns / NSEC_PER_MSEC, unfinished,
	       bye->missing, bye->bad_words + bad_words, f->opt.at_ns, f->opt.warm_ms, f->opt.bin_ms);
	for (i = 0; i < nbins; i++)
		printf("%s%" PRIu64, i ? ", " : "", bins[i]);
	puts("]}");
}

static void run_client(struct flow *f)
{
	unsigned int nbins = (f->opt.warm_ms + f->opt.ms) / f->opt.bin_ms, q, i;
	uint64_t *bins = calloc(nbins + 1, sizeof(*bins)), begin, from, end, limit, last, now;
	uint64_t outstanding = 0, completions = 0, gap = 0, errors = 0, first_ns = 0, bad_words = 0;
	const char *first = "";
	static struct goodbye bye;
	struct ibv_wc wc[16];
	int n, k;

	if (!bins)
		die("no memory");
	if (ibv_req_notify_cq(f->cq, 0))
		die("no notification");
	now = now_ns();
	if (f->opt.at_ns > now) {
		struct timespec ts = { .tv_sec = (time_t)(f->opt.at_ns / 1000000000ull),
				       .tv_nsec = (long)(f->opt.at_ns % 1000000000ull) };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
	}
	f->opt.at_ns = begin = now_ns();
	from = begin + f->opt.warm_ms * NSEC_PER_MSEC;
	end = from + f->opt.ms * NSEC_PER_MSEC;
	limit = end + f->opt.drain_ms * NSEC_PER_MSEC;
	last = from;
	for (i = 0; i < f->opt.depth; i++)
		for (q = 0; q < f->opt.qps; q++, outstanding++)
			post_request(f, q);
	while (outstanding) {
		n = poll_cq(f, wc, 16);
		now = now_ns();
		if (!n) {
			if (now >= limit || (!wait_for(f, limit) && now_ns() >= limit))
				break;
			continue;
		}
		for (k = 0; k < n; k++) {
			q = (unsigned int)(wc[k].wr_id >> 48);
			outstanding--;
			if (wc[k].status != IBV_WC_SUCCESS) {
				if (!errors++) {
					first = ibv_wc_status_str(wc[k].status);
					first_ns = now - begin;
				}
				continue;
			}
			if (f->opt.op == OP_READ) {
				uint64_t message = wc[k].wr_id & 0xffffffffffffull;

				/* The server's slot still holds its first message. */
				const uint64_t *p = slot(f, q, message);
				size_t w;

				for (w = 0; w < words(f); w++)
					bad_words += p[w] != word(q, message % f->opt.depth, w);
				memset(slot(f, q, message), 0, f->opt.size);
			}
			if (now < end) {
				bins[(now - begin) / NSEC_PER_MSEC / f->opt.bin_ms] += f->opt.size;
				if (now >= from) {
					completions++;
					if (now - last > gap)
						gap = now - last;
					last = now;
				}
				if (!errors) {
					post_request(f, q);
					outstanding++;
				}
			}
		}
	}
	if (end - last > gap)
		gap = end - last;
	for (q = 0; q < f->opt.qps; q++)
		bye.posted[q] = errors ? 0 : f->count[q];
	send_all(f->sock, &bye, sizeof(bye));
	recv_all(f->sock, &bye, sizeof(bye));
	print_result(f, bins, nbins, completions, gap, errors, first, first_ns, outstanding, &bye, bad_words);
	free(bins);
}

static void serve(struct flow *f)
{
	static struct goodbye bye;
	struct ibv_wc wc[16];
	uint64_t limit, bad_words = 0, missing = 0, received[MAX_QPS] = { 0 }, m;
	unsigned int q;
	bool ended = false;
	int n, k;

	if (ibv_req_notify_cq(f->cq, 0))
		die("no notification");
	for (limit = UINT64_MAX;;) {
		while ((n = poll_cq(f, wc, 16)) > 0) {
			for (k = 0; k < n; k++) {
				if (wc[k].status != IBV_WC_SUCCESS || f->opt.op != OP_SEND)
					continue;
				q = (unsigned int)(wc[k].wr_id >> 48);
				bad_words += check(f, q, received[q]);
				post_receive(f, q, received[q]++ + f->opt.depth);
			}
		}
		if (ended) {
			missing = 0;
			for (q = 0; q < f->opt.qps; q++)
				if (f->opt.op == OP_SEND && bye.posted[q] > received[q])
					missing += bye.posted[q] - received[q];
			if (!missing || now_ns() >= limit)
				break;
		}
		if (!wait_for(f, ended ? limit : now_ns() + 3600000000000ull) && !ended) {
			recv_all(f->sock, &bye, sizeof(bye));
			ended = true;
			limit = now_ns() + f->opt.drain_ms * NSEC_PER_MSEC;
		}
	}
	if (f->opt.op == OP_WRITE) {
		for (q = 0; q < f->opt.qps; q++)
			for (m = bye.posted[q] > f->opt.depth ? bye.posted[q] - f->opt.depth : 0; m < bye.posted[q]; m++)
				bad_words += check(f, q, m);
	}
	bye.bad_words = bad_words;
	bye.missing = missing;
	send_all(f->sock, &bye, sizeof(bye));
}

static unsigned int number(const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 0);

	if (*end || n > UINT32_MAX)
		die("'%s' is not numeric", text);
	return (unsigned int)n;
}

static void parse(struct options *opt, int argc, char **argv)
{
	static const struct option names[] = {
		{ "server", no_argument, NULL, 's' },	     { "device", required_argument, NULL, 'd' },
		{ "gid", required_argument, NULL, 'g' },     { "socket", required_argument, NULL, 'u' },
		{ "op", required_argument, NULL, 'o' },	     { "qps", required_argument, NULL, 'q' },
		{ "size", required_argument, NULL, 'S' },    { "depth", required_argument, NULL, 'D' },
		{ "warm-ms", required_argument, NULL, 'w' }, { "ms", required_argument, NULL, 't' },
		{ "bin-ms", required_argument, NULL, 'b' },  { "drain-ms", required_argument, NULL, 'x' },
		{ "timeout", required_argument, NULL, 'T' }, { "retry", required_argument, NULL, 'R' },
		{ "cm", required_argument, NULL, 'c' },	     { "port", required_argument, NULL, 'p' },
		{ "at-ns", required_argument, NULL, 'a' },   { NULL, 0, NULL, 0 },
	};
	int c;

	*opt = (struct options){
		.port = 18515, .qps = 1, .size = 65536, .depth = 16, .warm_ms = 200, .ms = 1000, .drain_ms = 10000,
		.bin_ms = 10, .timeout = 14, .retry = 7,
	};
	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (c) {
		case 's':
			opt->server = true;
			break;
		case 'd':
			opt->device = optarg;
			break;
		case 'g':
			opt->gid = number(optarg);
			break;
		case 'u':
			opt->socket = optarg;
			break;
		case 'q':
			opt->qps = number(optarg);
			break;
		case 'S':
			opt->size = number(optarg);
			break;
		case 'D':
			opt->depth = number(optarg);
			break;
		case 'w':
			opt->warm_ms = number(optarg);
			break;
		case 't':
			opt->ms = number(optarg);
			break;
		case 'b':
			opt->bin_ms = number(optarg);
			break;
		case 'x':
			opt->drain_ms = number(optarg);
			break;
		case 'T':
			opt->timeout = number(optarg);
			break;
		case 'R':
			opt->retry = number(optarg);
			break;
		case 'c':
			opt->cm = true;
			opt->address = optarg;
			break;
		case 'p':
			opt->port = number(optarg);
			break;
		case 'a':
			opt->at_ns = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			if (!strcmp(optarg, "write"))
				opt->op = OP_WRITE;
			else if (!strcmp(optarg, "send"))
				opt->op = OP_SEND;
			else if (!strcmp(optarg, "read"))
				opt->op = OP_READ;
			else
				die("--op is write, send or read");
			break;
		default:
			die("see the source for the options");
		}
	}
	if (!opt->socket || (!opt->cm && !opt->device))
		die("--socket and --device (or --cm ADDRESS) are needed");
	if (!opt->qps || opt->qps > MAX_QPS || !opt->depth || !opt->size || opt->size % 8 || !opt->bin_ms ||
	    opt->warm_ms % opt->bin_ms || opt->ms % opt->bin_ms)
		die("--qps, --depth, --size (a multiple of 8) or --bin-ms (a divisor of both times) is out of range");
}

int main(int argc, char **argv)
{
	static struct flow f;
	unsigned int q, i;
	char ready = 0;

	parse(&f.opt, argc, argv);
	if (!f.opt.cm) {
		open_device(&f);
		make_resources(&f);
		make_qps(&f);
		f.sock = rendezvous(&f.opt);
	} else if (f.opt.server) {
		cm_listen(&f);
		f.sock = rendezvous(&f.opt);
		cm_accept(&f);
	} else {
		f.sock = rendezvous(&f.opt);
		cm_connect(&f);
	}
	send_all(f.sock, &f.local, sizeof(f.local));
	recv_all(f.sock, &f.remote, sizeof(f.remote));
	if (!f.opt.cm)
		connect_qps(&f);
	if (f.opt.server && f.opt.op == OP_SEND)
		for (i = 0; i < f.opt.depth; i++)
			for (q = 0; q < f.opt.qps; q++)
				post_receive(&f, q, i);
	/* Both sides are ready to send and to receive before anything is sent. */
	send_all(f.sock, &ready, 1);
	recv_all(f.sock, &ready, 1);
	if (f.opt.server)
		serve(&f);
	else
		run_client(&f);
	if (f.cq_events)
		ibv_ack_cq_events(f.cq, f.cq_events);
	/* The process's end gives back the rest. */
	return 0;
}
