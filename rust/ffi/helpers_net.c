// SPDX-License-Identifier: GPL-2.0
/*
 * UDP tunnel sockets, packets, routes and deferred calls for rust/net.
 *
 * Lifetime of a socket against its network namespace: a kernel socket does not
 * hold its namespace, so it must be gone before the namespace is. All sockets
 * are on one list; the pernet exit callback releases those of the dying
 * namespace and leaves the struct mroce_sock, which then sends nothing, to its
 * owners. Receive and transmit look at mroce_sock.sk under RCU.
 */
#include <linux/hrtimer.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/udp.h>
#include <linux/workqueue.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <net/addrconf.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/udp_tunnel.h>

#include "helpers_net.h"

struct mroce_sock {
	struct sock __rcu	*sk;	/* NULL once the namespace is gone */
	struct list_head	node;	/* in mroce_socks */
	struct net		*net;	/* compared only; may dangle */
	mroce_rx_fn		rx;	/* NULL: received datagrams are dropped */
	unsigned int		refs;	/* under mroce_sock_lock */
	u16			port;	/* host order */
	bool			shared;	/* fixed port, found again by open */
	bool			v6;
	struct rcu_head		rcu;
};

/* Protects mroce_socks and every refs; process context only. */
static DEFINE_MUTEX(mroce_sock_lock);
static LIST_HEAD(mroce_socks);

static mroce_netdev_fn mroce_netdev_event_fn;

/* ---- receive ---- */

/* udp_queue_rcv_one_skb() calls this in softirq, skb->data at the UDP header. */
static int mroce_encap_rcv(struct sock *sk, struct sk_buff *skb)
{
	struct mroce_sock *s = rcu_dereference_sk_user_data(sk);
	struct mroce_rx_info info = {};
	const struct udphdr *uh;

	if (!s || !s->rx || !pskb_may_pull(skb, sizeof(struct udphdr))) {
		kfree_skb(skb);
		return 0;
	}
	uh = udp_hdr(skb);
	info.sport = ntohs(uh->source);
	if (skb->protocol == htons(ETH_P_IPV6)) {
		const struct ipv6hdr *ip6 = ipv6_hdr(skb);

		memcpy(info.src, &ip6->saddr, 16);
		memcpy(info.dst, &ip6->daddr, 16);
		info.ecn = ipv6_get_dsfield(ip6) & INET_ECN_MASK;
		info.v6 = 1;
	} else {
		const struct iphdr *ip = ip_hdr(skb);

		ipv6_addr_set_v4mapped(ip->saddr, (struct in6_addr *)info.src);
		ipv6_addr_set_v4mapped(ip->daddr, (struct in6_addr *)info.dst);
		info.ecn = ip->tos & INET_ECN_MASK;
	}
	info.ifindex = skb->skb_iif;
	info.vlan = is_vlan_dev(skb->dev) ? vlan_dev_vlan_id(skb->dev) : 0xffff;
	info.net_cookie = sock_net(sk)->net_cookie;
	__skb_pull(skb, sizeof(struct udphdr));
	info.len = skb->len;
	s->rx(skb, s, &info);	/* takes the skb */
	return 0;
}

/* ---- sockets ---- */

static struct sock *mroce_sk_create(struct net *net, bool v6, u16 port,
				    struct mroce_sock *s)
{
	struct udp_port_cfg cfg = {};
	struct udp_tunnel_sock_cfg tunnel = {};
	struct socket *sock;
	int err;

	cfg.family = v6 ? AF_INET6 : AF_INET;
	cfg.local_udp_port = htons(port);
	cfg.use_udp_checksums = 1;
	if (v6) {
		cfg.use_udp6_tx_checksums = 1;
		cfg.use_udp6_rx_checksums = 1;
		cfg.ipv6_v6only = 1;
	}
	err = udp_sock_create(net, &cfg, &sock);
	if (err < 0)
		return ERR_PTR(err);
	sock->sk->sk_allocation = GFP_ATOMIC;
	s->port = ntohs(inet_sk(sock->sk)->inet_sport);
	tunnel.sk_user_data = s;
	tunnel.encap_type = 1;
	tunnel.encap_rcv = mroce_encap_rcv;
	setup_udp_tunnel_sock(net, sock->sk, &tunnel);
	return sock->sk;
}

/*
 * Opens a tunnel socket in the namespace of @dev. Port 0 asks for a private
 * socket with a port of the kernel's choice; any other port is shared by all
 * that ask for it. Returns an ERR_PTR on failure. May sleep.
 */
struct mroce_sock *mroce_sock_open(struct net_device *dev, int v6, u16 port,
				   mroce_rx_fn rx)
{
	struct net *net = dev_net(dev);
	struct mroce_sock *s;
	struct sock *sk;

	if (v6 && !ipv6_mod_enabled())
		return ERR_PTR(-EAFNOSUPPORT);

	mutex_lock(&mroce_sock_lock);
	if (port) {
		list_for_each_entry(s, &mroce_socks, node) {
			if (s->shared && s->net == net && s->v6 == !!v6 &&
			    s->port == port && rcu_access_pointer(s->sk)) {
				s->refs++;
				goto out;
			}
		}
	}
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s) {
		s = ERR_PTR(-ENOMEM);
		goto out;
	}
	s->net = net;
	s->v6 = !!v6;
	s->rx = rx;
	s->refs = 1;
	s->shared = port != 0;
	sk = mroce_sk_create(net, v6, port, s);
	if (IS_ERR(sk)) {
		kfree(s);
		s = ERR_CAST(sk);
		goto out;
	}
	rcu_assign_pointer(s->sk, sk);
	list_add(&s->node, &mroce_socks);
out:
	mutex_unlock(&mroce_sock_lock);
	return s;
}

/* Caller holds mroce_sock_lock. */
static void mroce_sk_release(struct mroce_sock *s)
{
	struct sock *sk = rcu_replace_pointer(s->sk, NULL,
					lockdep_is_held(&mroce_sock_lock));

	if (sk) {
		list_del(&s->node);
		udp_tunnel_sock_release(sk);
	}
}

/*
 * Gives one reference back. A receive callback may run on for a moment; see
 * mroce_net_exit(). May sleep.
 */
void mroce_sock_put(struct mroce_sock *s)
{
	mutex_lock(&mroce_sock_lock);
	if (--s->refs == 0) {
		mroce_sk_release(s);
		kfree_rcu(s, rcu);
	}
	mutex_unlock(&mroce_sock_lock);
}

u16 mroce_sock_port(const struct mroce_sock *s)
{
	return s->port;
}

static void __net_exit mroce_pernet_exit(struct net *net)
{
	struct mroce_sock *s, *next;

	mutex_lock(&mroce_sock_lock);
	list_for_each_entry_safe(s, next, &mroce_socks, node)
		if (s->net == net)
			mroce_sk_release(s);
	mutex_unlock(&mroce_sock_lock);
}

static struct pernet_operations mroce_pernet_ops = {
	.exit = mroce_pernet_exit,
};

/* ---- memory of packets ---- */

/*
 * Memory for the payload of packets, used again once no packet refers to it. A
 * fresh page would be cleared each time (CONFIG_INIT_ON_ALLOC_DEFAULT_ON), for
 * bytes that are overwritten at once. What is stale here was sent before.
 */
#define MROCE_PAGES		8
#define MROCE_PAGE_ORDER	get_order(32768)

struct mroce_pages {
	struct page	*ring[MROCE_PAGES];	/* one reference each */
	unsigned int	at;			/* the one being cut up */
	unsigned int	used;			/* bytes of it */
};

/* Bottom halves are disabled while a CPU's is used. */
static DEFINE_PER_CPU(struct mroce_pages, mroce_pages);

static struct page *mroce_page_alloc(unsigned int len)
{
	gfp_t gfp = GFP_ATOMIC | __GFP_NOWARN | __GFP_COMP;
	struct page *page = alloc_pages(gfp | __GFP_NORETRY, MROCE_PAGE_ORDER);

	return page ? page : alloc_pages(gfp, get_order(len));
}

/* @len bytes; the caller owns a reference to the page returned. BH disabled. */
static struct page *mroce_page_cut(unsigned int len, unsigned int *offset)
{
	struct mroce_pages *p = this_cpu_ptr(&mroce_pages);
	struct page **page = &p->ring[p->at];

	len = SKB_DATA_ALIGN(len);
	if (!*page || p->used + len > page_size(*page)) {
		p->at = (p->at + 1) % MROCE_PAGES;
		p->used = 0;
		page = &p->ring[p->at];
		/* Still under way, or too small: left to its packets. */
		if (*page && (page_ref_count(*page) != 1 ||
			      len > page_size(*page))) {
			put_page(*page);
			*page = NULL;
		}
		if (!*page)
			*page = mroce_page_alloc(len);
		if (!*page)
			return NULL;
	}
	*offset = p->used;
	p->used += len;
	get_page(*page);
	return *page;
}

/* Nobody sends any more. */
static void mroce_pages_free(void)
{
	unsigned int cpu, i;

	for_each_possible_cpu(cpu) {
		struct mroce_pages *p = per_cpu_ptr(&mroce_pages, cpu);

		for (i = 0; i < MROCE_PAGES; i++)
			if (p->ring[i])
				put_page(p->ring[i]);
		memset(p, 0, sizeof(*p));
	}
}

/* ---- network devices ---- */

static int mroce_netdev_notify(struct notifier_block *nb, unsigned long event,
			       void *ptr)
{
	mroce_netdev_event_fn(netdev_notifier_info_to_dev(ptr), event);
	return NOTIFY_DONE;
}

static struct notifier_block mroce_netdev_nb = {
	.notifier_call = mroce_netdev_notify,
};

int mroce_net_init(mroce_netdev_fn fn)
{
	int err;

	mroce_netdev_event_fn = fn;
	err = register_pernet_subsys(&mroce_pernet_ops);
	if (err)
		return err;
	err = register_netdevice_notifier(&mroce_netdev_nb);
	if (err)
		unregister_pernet_subsys(&mroce_pernet_ops);
	return err;
}

/* After return no callback of this file runs or will run. */
void mroce_net_exit(void)
{
	unregister_netdevice_notifier(&mroce_netdev_nb);
	unregister_pernet_subsys(&mroce_pernet_ops);
	synchronize_net();
	rcu_barrier();
	mroce_pages_free();
}

u64 mroce_netdev_net_cookie(const struct net_device *dev)
{
	return dev_net(dev)->net_cookie;
}

/* Link speed in Mbit/s, 0 if the driver does not say. Caller holds no rtnl. */
u32 mroce_netdev_speed(struct net_device *dev)
{
	struct ethtool_link_ksettings ks = {};
	u32 speed = 0;

	rtnl_lock();
	if (dev->reg_state == NETREG_REGISTERED &&
	    !__ethtool_get_link_ksettings(dev, &ks) &&
	    ks.base.speed != (u32)SPEED_UNKNOWN)
		speed = ks.base.speed;
	rtnl_unlock();
	return speed;
}

/* Whether an IPv6 address is the device's own, if only tentatively. */
bool mroce_netdev_has_v6(const struct net_device *dev, const u8 *addr)
{
	struct in6_addr in6;

	if (!ipv6_mod_enabled())
		return false;
	memcpy(&in6, addr, sizeof(in6));
	return ipv6_chk_addr_and_flags(dev_net(dev), &in6, dev, false, 1, 0);
}

const char *mroce_netdev_name(const struct net_device *dev)
{
	return netdev_name(dev);
}

/* ---- packets ---- */

/* Bytes of a burst: with all headers it stays below the limit of an IP packet. */
#define MROCE_BURST_BYTES	64000

#define MROCE_HEADROOM	(MAX_HEADER + sizeof(struct ipv6hdr) + \
			 sizeof(struct udphdr))

/* A linear packet with room for @len bytes and for all lower headers. */
struct sk_buff *mroce_skb_alloc(unsigned int len)
{
	struct sk_buff *skb = alloc_skb(MROCE_HEADROOM + len,
					GFP_ATOMIC | __GFP_NOWARN);

	if (!skb)
		return NULL;
	skb_reserve(skb, MROCE_HEADROOM);
	skb_set_inner_network_header(skb, 0);
	return skb;
}

/* Space for @len more bytes, NULL if mroce_skb_alloc() was given fewer. */
void *mroce_skb_put(struct sk_buff *skb, unsigned int len)
{
	if (skb_tailroom(skb) < len)
		return NULL;
	return skb_put(skb, len);
}

/*
 * Space for @len bytes behind all others, in a fragment: payload, or another
 * datagram of a packet that is to be sent as a burst, see
 * mroce_skb_set_burst(). NULL if there is no room. BH disabled.
 */
void *mroce_skb_add(struct sk_buff *skb, unsigned int len)
{
	unsigned int nr = skb_shinfo(skb)->nr_frags;
	unsigned int offset;
	struct page *page;

	if (nr >= MAX_SKB_FRAGS || !len || len > PAGE_SIZE * 4 ||
	    skb->len + len > MROCE_BURST_BYTES)
		return NULL;
	page = mroce_page_cut(len, &offset);
	if (!page)
		return NULL;
	skb_add_rx_frag(skb, nr, page, offset, len, SKB_DATA_ALIGN(len));
	return page_address(page) + offset;
}

/* Takes the last datagram back: @len bytes remain. Frees a whole fragment, so it cannot fail. */
void mroce_skb_shorten(struct sk_buff *skb, unsigned int len)
{
	WARN_ON_ONCE(pskb_trim(skb, len));
}

/*
 * The packet holds @n datagrams of @size bytes each, the last one perhaps
 * shorter: the stack or the device cuts it (UDP segmentation offload).
 */
void mroce_skb_set_burst(struct sk_buff *skb, unsigned int size, unsigned int n)
{
	skb_shinfo(skb)->gso_size = size;
	skb_shinfo(skb)->gso_segs = n;
	skb_shinfo(skb)->gso_type = SKB_GSO_UDP_L4;
	/* The UDP header will come right before the data. */
	skb->ip_summed = CHECKSUM_PARTIAL;
	skb->csum_start = skb_headroom(skb) - sizeof(struct udphdr);
	skb->csum_offset = offsetof(struct udphdr, check);
}

void mroce_skb_free(struct sk_buff *skb)
{
	kfree_skb(skb);
}

unsigned int mroce_skb_len(const struct sk_buff *skb)
{
	return skb->len;
}

void mroce_skb_consume(struct sk_buff *skb)
{
	consume_skb(skb);
}

/* Copies bytes from @offset. Returns 0, or an errno if there are not so many. */
int mroce_skb_read(const struct sk_buff *skb, unsigned int offset, void *to,
		   unsigned int len)
{
	if (offset > INT_MAX || len > INT_MAX)
		return -EINVAL;
	return skb_copy_bits(skb, offset, to, len);
}

/*
 * The 40 bytes that stand for the GRH of a received datagram (RoCEv2 annex
 * A17.4.5.2): its IPv6 header, or 20 zeros and its IPv4 header. The lower
 * headers lie before skb->data, in the linear part.
 */
void mroce_skb_grh(const struct sk_buff *skb, u8 *to)
{
	if (skb->protocol == htons(ETH_P_IPV6)) {
		memcpy(to, ipv6_hdr(skb), 40);
	} else {
		memset(to, 0, 20);
		memcpy(to + 20, ip_hdr(skb), 20);
	}
}

/*
 * Calls @fn for each contiguous piece of the packet's bytes [@offset, @offset +
 * @len). Returns 0, what @fn returned if not 0, or -EINVAL when the packet is
 * shorter.
 */
int mroce_skb_walk(struct sk_buff *skb, unsigned int offset, unsigned int len,
		   int (*fn)(void *ctx, const void *bytes, unsigned int len),
		   void *ctx)
{
	struct skb_seq_state st;
	unsigned int done = 0;
	int err = 0;

	if (offset > skb->len || len > skb->len - offset)
		return -EINVAL;
	if (offset + len <= skb_headlen(skb))
		return len ? fn(ctx, skb->data + offset, len) : 0;
	skb_prepare_seq_read(skb, offset, offset + len, &st);
	while (done < len && !err) {
		const u8 *bytes;
		unsigned int n = skb_seq_read(done, &bytes, &st);

		if (!n) {
			err = -EINVAL;
			break;
		}
		n = min(n, len - done);
		err = fn(ctx, bytes, n);
		done += n;
	}
	skb_abort_seq_read(&st);
	return err;
}

/* ---- routes and transmission ---- */

/* The owner serialises all calls on one route. */
struct mroce_route {
	struct dst_entry	*dst;
	u32			cookie;
};

struct mroce_route *mroce_route_alloc(void)
{
	return kzalloc(sizeof(struct mroce_route), GFP_KERNEL);
}

static void mroce_route_reset(struct mroce_route *r)
{
	dst_release(r->dst);
	r->dst = NULL;
}

void mroce_route_free(struct mroce_route *r)
{
	mroce_route_reset(r);
	kfree(r);
}

static __be32 mroce_v4(const u8 *addr)
{
	__be32 v4;

	memcpy(&v4, addr + 12, sizeof(v4));
	return v4;
}

/* Caller is in an RCU read section. Returns 0 or an errno; fills r->dst. */
static int mroce_route_lookup(struct mroce_route *r, struct sock *sk,
			      const struct mroce_flow *f)
{
	if (r->dst) {
		if (dst_check(r->dst, r->cookie))
			return 0;
		mroce_route_reset(r);
	}
	if (f->v6) {
		struct flowi6 fl = {
			.flowi6_oif = f->oif,
			.flowi6_proto = IPPROTO_UDP,
			.fl6_sport = inet_sk(sk)->inet_sport,
			.fl6_dport = htons(f->dport),
		};
		struct dst_entry *dst;

		memcpy(&fl.saddr, f->src, 16);
		memcpy(&fl.daddr, f->dst, 16);
		dst = ip6_dst_lookup_flow(sock_net(sk), sk, &fl, NULL);
		if (IS_ERR(dst))
			return PTR_ERR(dst);
		if (dst->error) {
			int err = dst->error;

			dst_release(dst);
			return err;
		}
		r->cookie = rt6_get_cookie(dst_rt6_info(dst));
		r->dst = dst;
	} else {
		struct flowi4 fl = {
			.flowi4_oif = f->oif,
			.flowi4_proto = IPPROTO_UDP,
			.saddr = mroce_v4(f->src),
			.daddr = mroce_v4(f->dst),
			.fl4_sport = inet_sk(sk)->inet_sport,
			.fl4_dport = htons(f->dport),
		};
		struct rtable *rt = ip_route_output_flow(sock_net(sk), &fl, sk);

		if (IS_ERR(rt))
			return PTR_ERR(rt);
		r->cookie = 0;
		r->dst = &rt->dst;
	}
	return 0;
}

/* The route's IP MTU in bytes, or an errno. */
int mroce_route_mtu(struct mroce_route *r, struct mroce_sock *s,
		    const struct mroce_flow *f)
{
	struct sock *sk;
	int ret;

	local_bh_disable();
	rcu_read_lock();
	sk = rcu_dereference(s->sk);
	ret = sk ? mroce_route_lookup(r, sk, f) : -ENONET;
	if (!ret)
		ret = min_t(u32, dst_mtu(r->dst), INT_MAX);
	rcu_read_unlock();
	local_bh_enable();
	return ret;
}

/*
 * Sends @skb, and consumes it whatever happens. Returns 0 when the packet went
 * to the IP layer, which may still drop it. BH disabled.
 */
int mroce_xmit(struct mroce_route *r, struct mroce_sock *s,
	       const struct mroce_flow *f, struct sk_buff *skb)
{
	struct sock *sk;
	int err;

	rcu_read_lock();
	sk = rcu_dereference(s->sk);
	err = sk ? mroce_route_lookup(r, sk, f) : -ENONET;
	if (err) {
		rcu_read_unlock();
		kfree_skb(skb);
		return err;
	}
	dst_hold(r->dst);
	/*
	 * When the MTU has shrunk below what the connection was made for, this
	 * host fragments: slow, but it goes on. Routers still may not.
	 */
	skb->ignore_df = 1;
	if (f->v6) {
		struct in6_addr src, dst;

		memcpy(&src, f->src, 16);
		memcpy(&dst, f->dst, 16);
		udp_tunnel6_xmit_skb(r->dst, sk, skb, NULL, &src, &dst, f->tos,
				     ip6_dst_hoplimit(r->dst), 0,
				     htons(s->port), htons(f->dport), false, 0);
	} else {
		udp_tunnel_xmit_skb(dst_rtable(r->dst), sk, skb,
				    mroce_v4(f->src), mroce_v4(f->dst), f->tos,
				    ip4_dst_hoplimit(r->dst), htons(IP_DF),
				    htons(s->port), htons(f->dport), false,
				    false, 0);
	}
	rcu_read_unlock();
	return 0;
}

/* As mroce_xmit(), for a packet without a connection: no route is kept. */
int mroce_xmit_once(struct mroce_sock *s, const struct mroce_flow *f,
		    struct sk_buff *skb)
{
	struct mroce_route r = {};
	int err = mroce_xmit(&r, s, f, skb);

	mroce_route_reset(&r);
	return err;
}

/* ---- deferred calls ---- */

struct mroce_softirq {
	struct hrtimer		timer;
	struct work_struct	work;
	mroce_call_fn		timer_fn;
	mroce_call_fn		work_fn;
	void			*ctx;
};

static enum hrtimer_restart mroce_softirq_expired(struct hrtimer *timer)
{
	struct mroce_softirq *t = container_of(timer, struct mroce_softirq,
					       timer);

	t->timer_fn(t->ctx);
	return HRTIMER_NORESTART;
}

static void mroce_softirq_work(struct work_struct *work)
{
	struct mroce_softirq *t = container_of(work, struct mroce_softirq,
					       work);

	t->work_fn(t->ctx);
}

struct mroce_softirq *mroce_softirq_alloc(mroce_call_fn timer_fn,
					  mroce_call_fn work_fn, void *ctx)
{
	struct mroce_softirq *t = kzalloc(sizeof(*t), GFP_KERNEL);

	if (!t)
		return NULL;
	t->timer_fn = timer_fn;
	t->work_fn = work_fn;
	t->ctx = ctx;
	hrtimer_setup(&t->timer, mroce_softirq_expired, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS_SOFT);
	INIT_WORK(&t->work, mroce_softirq_work);
	return t;
}

/* (Re)starts the timer for the CLOCK_MONOTONIC time @expires_ns. */
void mroce_softirq_arm(struct mroce_softirq *t, u64 expires_ns)
{
	hrtimer_start(&t->timer, ns_to_ktime(min_t(u64, expires_ns, KTIME_MAX)),
		      HRTIMER_MODE_ABS_SOFT);
}

/* Asks for work_fn in a softirq, after the packets already being received. */
void mroce_softirq_raise(struct mroce_softirq *t)
{
	queue_work(system_bh_wq, &t->work);
}

/* The owner arms and raises no more. Afterwards no callback runs. May sleep. */
void mroce_softirq_shutdown(struct mroce_softirq *t)
{
	hrtimer_cancel(&t->timer);
	cancel_work_sync(&t->work);
	hrtimer_cancel(&t->timer);
}

void mroce_softirq_free(struct mroce_softirq *t)
{
	kfree(t);
}

struct mroce_dwork {
	struct delayed_work	dwork;
	mroce_again_fn		fn;
	void			*ctx;
};

static void mroce_dwork_work(struct work_struct *work)
{
	struct mroce_dwork *d = container_of(to_delayed_work(work),
					     struct mroce_dwork, dwork);

	unsigned int again = d->fn(d->ctx);

	if (again)
		mroce_dwork_queue(d, again);
}

struct mroce_dwork *mroce_dwork_alloc(mroce_again_fn fn, void *ctx)
{
	struct mroce_dwork *d = kzalloc(sizeof(*d), GFP_KERNEL);

	if (!d)
		return NULL;
	d->fn = fn;
	d->ctx = ctx;
	INIT_DELAYED_WORK(&d->dwork, mroce_dwork_work);
	return d;
}

/* Runs the function in process context @ms from now, unless it is queued. */
void mroce_dwork_queue(struct mroce_dwork *d, unsigned int ms)
{
	queue_delayed_work(system_dfl_wq, &d->dwork, msecs_to_jiffies(ms));
}

/* Afterwards the function does not run, even if queued again. May sleep. */
void mroce_dwork_shutdown(struct mroce_dwork *d)
{
	disable_delayed_work_sync(&d->dwork);
}

void mroce_dwork_free(struct mroce_dwork *d)
{
	kfree(d);
}
