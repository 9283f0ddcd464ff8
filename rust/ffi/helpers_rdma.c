// SPDX-License-Identifier: GPL-2.0
#include <linux/if_vlan.h>
#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/ratelimit.h>
#include <linux/rtnetlink.h>
#include <linux/scatterlist.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <rdma/ib_cache.h>

#include "helpers_rdma.h"

void mroce_spin_lock_bh_init(spinlock_t *lock, const char *name,
			     struct lock_class_key *key)
{
#ifdef CONFIG_DEBUG_SPINLOCK
#ifdef CONFIG_PREEMPT_RT
	__spin_lock_init(lock, name, key, false);
#else
	__raw_spin_lock_init(spinlock_check(lock), name, key, LD_WAIT_CONFIG);
#endif
#else
	spin_lock_init(lock);
#endif
}

void mroce_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void mroce_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

int mroce_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

void mroce_spin_assert_held(spinlock_t *lock)
{
	lockdep_assert_held(lock);
}

void mroce_local_bh_disable(void)
{
	local_bh_disable();
}

void mroce_local_bh_enable(void)
{
	local_bh_enable();
}

u64 mroce_siphash(const void *data, size_t len, const siphash_key_t *key)
{
	return siphash(data, len, key);
}

u64 mroce_ktime_get_ns(void)
{
	return ktime_get_ns();
}

bool mroce_ratelimit_ok(void)
{
	static DEFINE_RATELIMIT_STATE(limit, DEFAULT_RATELIMIT_INTERVAL,
				      DEFAULT_RATELIMIT_BURST);

	return __ratelimit(&limit);
}

void *mroce_kmap_local(struct page *page)
{
	return kmap_local_page(page);
}

void mroce_kunmap_local(void *addr)
{
	kunmap_local(addr);
}

void mroce_get_page(struct page *page)
{
	get_page(page);
}

void mroce_put_page(struct page *page)
{
	put_page(page);
}

void mroce_memcpy(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
}

u64 mroce_atomic64_cmpxchg(void *at, u64 old, u64 val)
{
	return cmpxchg64((u64 *)at, old, val);
}

u64 mroce_atomic64_fetch_add(void *at, u64 add)
{
	return atomic64_fetch_add(add, (atomic64_t *)at);
}

void mroce_atomic64_store(void *at, u64 val)
{
	/* Whoever sees the value sees what earlier messages have written. */
	smp_store_release((u64 *)at, val);
}

void mroce_nd_hold(struct net_device *dev)
{
	dev_hold(dev);
}

void mroce_nd_put(struct net_device *dev)
{
	dev_put(dev);
}

struct net *mroce_nd_net(const struct net_device *dev)
{
	return dev_net(dev);
}

bool mroce_nd_is_up(const struct net_device *dev)
{
	return netif_running(dev);
}

bool mroce_nd_carrier_ok(const struct net_device *dev)
{
	return netif_carrier_ok(dev);
}

unsigned int mroce_nd_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

int mroce_nd_ifindex(const struct net_device *dev)
{
	return dev->ifindex;
}

bool mroce_nd_is_vlan(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

u16 mroce_nd_vlan_id(const struct net_device *dev)
{
	return is_vlan_dev(dev) ? vlan_dev_vlan_id(dev) : 0xffff;
}

const char *mroce_nd_name(const struct net_device *dev)
{
	return netdev_name(dev);
}

void mroce_nd_eui64(const struct net_device *dev, u8 *eui)
{
	u8 mac[ETH_ALEN];

	/*
	 * A device without a hardware address (tunnels, loopback) gets a
	 * random one: the connection manager wants a unique GUID.
	 */
	if (dev->addr_len == ETH_ALEN && !is_zero_ether_addr(dev->dev_addr))
		ether_addr_copy(mac, dev->dev_addr);
	else
		eth_random_addr(mac);
	addrconf_addr_eui48(eui, mac);
}

const char *mroce_ib_device_name(const struct ib_device *dev)
{
	return dev_name(&dev->dev);
}

struct net_device *mroce_gid_attr_ndev_hold(const struct ib_gid_attr *attr)
{
	struct net_device *dev;

	rcu_read_lock();
	dev = rdma_read_gid_attr_ndev_rcu(attr);
	if (IS_ERR(dev))
		dev = NULL;
	dev_hold(dev);
	rcu_read_unlock();
	return dev;
}

/*
 * As mroce_gid_attr_ndev_hold(), for the callbacks that add and delete the
 * entry: it is not in the table yet, or no longer.
 */
struct net_device *mroce_gid_attr_ndev_changing(const struct ib_gid_attr *attr)
{
	struct net_device *dev;

	rcu_read_lock();
	dev = rcu_dereference(attr->ndev);
	dev_hold(dev);
	rcu_read_unlock();
	return dev;
}

size_t mroce_umem_fill_pages(struct ib_umem *umem, struct page **pages,
			     size_t n)
{
	struct sg_page_iter iter;
	size_t i = 0;

	for_each_sgtable_page(&umem->sgt_append.sgt, &iter, 0) {
		if (i == n)
			break;
		pages[i++] = sg_page_iter_page(&iter);
	}
	return i;
}

struct ib_umem *mroce_umem_get_va(struct ib_device *device, unsigned long addr,
				  size_t size, int access)
{
	return ib_umem_get_va(device, addr, size, access);
}

int mroce_udata_in_empty(struct ib_udata *udata)
{
	return ib_is_udata_in_empty(udata);
}

int mroce_respond_empty_udata(struct ib_udata *udata)
{
	return ib_respond_empty_udata(udata);
}

struct ib_ucontext *mroce_udata_ucontext(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}

struct ib_udata *mroce_attrs_udata(struct uverbs_attr_bundle *attrs)
{
	return &attrs->driver_udata;
}

struct rdma_hw_stats *mroce_hw_stats_alloc(const struct rdma_stat_desc *descs,
					   int n)
{
	return rdma_alloc_hw_stats_struct(descs, n,
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

void mroce_hw_stats_set(struct rdma_hw_stats *stats, int index, u64 value)
{
	if (index >= 0 && index < stats->num_counters)
		stats->value[index] = value;
}

unsigned long mroce_vma_pgoff(const struct vm_area_struct *vma)
{
	return vma->vm_pgoff;
}

void mroce_vma_no_fork(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_DONTCOPY);
}

int mroce_port_state(struct net_device *dev)
{
	return ib_get_curr_port_state(dev);
}

void *mroce_vmalloc_user(size_t len)
{
	return vmalloc_user(len);
}

/* The page of a kernel address; NULL if it is none of the linear mapping. */
struct page *mroce_virt_to_page(u64 addr)
{
	void *p = (void *)(uintptr_t)addr;

	return virt_addr_valid(p) ? virt_to_page(p) : NULL;
}

struct mroce_bh_work {
	struct work_struct	work;
	void			(*fn)(void *ctx);
	void			*ctx;
};

static void mroce_bh_work_fn(struct work_struct *work)
{
	struct mroce_bh_work *w = container_of(work, struct mroce_bh_work,
					       work);

	w->fn(w->ctx);
}

struct mroce_bh_work *mroce_bh_work_alloc(void (*fn)(void *ctx), void *ctx)
{
	struct mroce_bh_work *w = kzalloc(sizeof(*w), GFP_KERNEL);

	if (!w)
		return NULL;
	w->fn = fn;
	w->ctx = ctx;
	INIT_WORK(&w->work, mroce_bh_work_fn);
	return w;
}

void mroce_bh_work_raise(struct mroce_bh_work *w)
{
	queue_work(system_bh_wq, &w->work);
}

void mroce_bh_work_stop(struct mroce_bh_work *w)
{
	disable_work_sync(&w->work);
}

/* The work item is stopped. Returns its context. */
void *mroce_bh_work_free(struct mroce_bh_work *w)
{
	void *ctx = w->ctx;

	kfree(w);
	return ctx;
}
