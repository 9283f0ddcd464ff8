/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The C surface below rust/net: UDP tunnel sockets, packets, routes, network
 * devices, deferred calls. Every function takes opaque pointers and plain
 * integers, so that the Rust side needs no layout of a network structure.
 * rust/net/sys.rs declares the same functions; keep the two in step.
 */
#ifndef METAROCE_HELPERS_NET_H
#define METAROCE_HELPERS_NET_H

#include <linux/types.h>

struct net;
struct net_device;
struct sk_buff;

/* One bound tunnel socket; shared by reference where the port is fixed. */
struct mroce_sock;

/* A cached route of one (connection, source port). */
struct mroce_route;

/* A soft hrtimer and a BH work item with one context pointer. */
struct mroce_softirq;

/* A delayed work item (process context) with a context pointer. */
struct mroce_dwork;

/* What the UDP and IP headers of a received datagram said. */
struct mroce_rx_info {
	u8	src[16];	/* IPv4 addresses are v4-mapped */
	u8	dst[16];
	u64	net_cookie;
	u32	len;		/* bytes after the UDP header */
	u32	ifindex;
	u16	sport;		/* host order */
	u8	ecn;		/* the two ECN bits */
	u8	v6;
	u16 vlan;		/* 0xffff: none */
};

/* Addresses and the like of one packet to send. */
struct mroce_flow {
	u8	src[16];	/* IPv4 addresses are v4-mapped */
	u8	dst[16];
	u32	oif;		/* 0: any interface */
	u16	dport;		/* host order */
	u8	v6;
	u8	tos;		/* DSCP and ECN bits */
};

/* Takes @skb. */
typedef void (*mroce_rx_fn)(struct sk_buff *skb, struct mroce_sock *s,
			    const struct mroce_rx_info *info);
typedef void (*mroce_call_fn)(void *ctx);
/* Returns after how many milliseconds to call again, 0 for not at all. */
typedef unsigned int (*mroce_again_fn)(void *ctx);
typedef void (*mroce_netdev_fn)(struct net_device *dev, unsigned long event);

int mroce_net_init(mroce_netdev_fn fn);
void mroce_net_exit(void);

struct mroce_sock *mroce_sock_open(struct net_device *dev, int v6, u16 port,
				   mroce_rx_fn rx);
void mroce_sock_put(struct mroce_sock *s);
u16 mroce_sock_port(const struct mroce_sock *s);

struct sk_buff *mroce_skb_alloc(unsigned int len);
void *mroce_skb_put(struct sk_buff *skb, unsigned int len);
void *mroce_skb_add(struct sk_buff *skb, unsigned int len);
void mroce_skb_shorten(struct sk_buff *skb, unsigned int len);
void mroce_skb_set_burst(struct sk_buff *skb, unsigned int size,
			 unsigned int n);
void mroce_skb_free(struct sk_buff *skb);
unsigned int mroce_skb_len(const struct sk_buff *skb);
void mroce_skb_consume(struct sk_buff *skb);
int mroce_skb_read(const struct sk_buff *skb, unsigned int offset, void *to,
		   unsigned int len);
void mroce_skb_grh(const struct sk_buff *skb, u8 *to);
int mroce_skb_walk(struct sk_buff *skb, unsigned int offset, unsigned int len,
		   int (*fn)(void *ctx, const void *bytes, unsigned int len),
		   void *ctx);

struct mroce_route *mroce_route_alloc(void);
void mroce_route_free(struct mroce_route *r);
int mroce_route_mtu(struct mroce_route *r, struct mroce_sock *s,
		    const struct mroce_flow *f);
int mroce_xmit(struct mroce_route *r, struct mroce_sock *s,
	       const struct mroce_flow *f, struct sk_buff *skb);
int mroce_xmit_once(struct mroce_sock *s, const struct mroce_flow *f,
		    struct sk_buff *skb);

struct mroce_softirq *mroce_softirq_alloc(mroce_call_fn timer_fn,
					  mroce_call_fn work_fn, void *ctx);
void mroce_softirq_arm(struct mroce_softirq *t, u64 expires_ns);
void mroce_softirq_raise(struct mroce_softirq *t);
void mroce_softirq_shutdown(struct mroce_softirq *t);
void mroce_softirq_free(struct mroce_softirq *t);

struct mroce_dwork *mroce_dwork_alloc(mroce_again_fn fn, void *ctx);
void mroce_dwork_queue(struct mroce_dwork *d, unsigned int ms);
void mroce_dwork_shutdown(struct mroce_dwork *d);
void mroce_dwork_free(struct mroce_dwork *d);

u64 mroce_netdev_net_cookie(const struct net_device *dev);
u32 mroce_netdev_speed(struct net_device *dev);
bool mroce_netdev_has_v6(const struct net_device *dev, const u8 *addr);
const char *mroce_netdev_name(const struct net_device *dev);

#endif
