/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Inline functions and macros of the kernel that rust/sync and rust/rdma need,
 * as functions that Rust can call. One line each; no logic beyond the call.
 */
#ifndef MROCE_HELPERS_RDMA_H
#define MROCE_HELPERS_RDMA_H

#include <linux/mm_types.h>
#include <linux/netdevice.h>
#include <linux/siphash.h>
#include <linux/spinlock.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

/* locks */
void mroce_spin_lock_bh_init(spinlock_t *lock, const char *name,
			     struct lock_class_key *key);
void mroce_spin_lock_bh(spinlock_t *lock);
void mroce_spin_unlock_bh(spinlock_t *lock);
int mroce_spin_trylock_bh(spinlock_t *lock);
void mroce_spin_assert_held(spinlock_t *lock);
void mroce_local_bh_disable(void);
void mroce_local_bh_enable(void);

/* numbers, time, logging */
u64 mroce_siphash(const void *data, size_t len, const siphash_key_t *key);
u64 mroce_ktime_get_ns(void);
bool mroce_ratelimit_ok(void);

/* pages */
void *mroce_kmap_local(struct page *page);
void mroce_kunmap_local(void *addr);
void mroce_get_page(struct page *page);
void mroce_put_page(struct page *page);
void mroce_memcpy(void *to, const void *from, size_t len);
u64 mroce_atomic64_cmpxchg(void *at, u64 old, u64 val);
u64 mroce_atomic64_fetch_add(void *at, u64 add);
void mroce_atomic64_store(void *at, u64 val);

/* net devices, as far as the RDMA core hands them out */
void mroce_nd_hold(struct net_device *dev);
void mroce_nd_put(struct net_device *dev);
struct net *mroce_nd_net(const struct net_device *dev);
bool mroce_nd_is_up(const struct net_device *dev);
bool mroce_nd_carrier_ok(const struct net_device *dev);
unsigned int mroce_nd_mtu(const struct net_device *dev);
int mroce_nd_ifindex(const struct net_device *dev);
bool mroce_nd_is_vlan(const struct net_device *dev);
u16 mroce_nd_vlan_id(const struct net_device *dev);
const char *mroce_nd_name(const struct net_device *dev);
void mroce_nd_eui64(const struct net_device *dev, u8 *eui);

/* RDMA core */
const char *mroce_ib_device_name(const struct ib_device *dev);
struct net_device *mroce_gid_attr_ndev_hold(const struct ib_gid_attr *attr);
struct net_device *mroce_gid_attr_ndev_changing(const struct ib_gid_attr *attr);
size_t mroce_umem_fill_pages(struct ib_umem *umem, struct page **pages,
			     size_t n);
struct ib_umem *mroce_umem_get_va(struct ib_device *device, unsigned long addr,
				  size_t size, int access);
int mroce_udata_in_empty(struct ib_udata *udata);
int mroce_respond_empty_udata(struct ib_udata *udata);
struct ib_ucontext *mroce_udata_ucontext(struct ib_udata *udata);
struct ib_udata *mroce_attrs_udata(struct uverbs_attr_bundle *attrs);
struct rdma_hw_stats *mroce_hw_stats_alloc(const struct rdma_stat_desc *descs,
					   int n);
void mroce_hw_stats_set(struct rdma_hw_stats *stats, int index, u64 value);
unsigned long mroce_vma_pgoff(const struct vm_area_struct *vma);
void mroce_vma_no_fork(struct vm_area_struct *vma);
int mroce_port_state(struct net_device *dev);
void *mroce_vmalloc_user(size_t len);
struct page *mroce_virt_to_page(u64 addr);

/* A work item of the bottom-half workqueue. */
struct mroce_bh_work;
struct mroce_bh_work *mroce_bh_work_alloc(void (*fn)(void *ctx), void *ctx);
void mroce_bh_work_raise(struct mroce_bh_work *w);
void mroce_bh_work_stop(struct mroce_bh_work *w);
void *mroce_bh_work_free(struct mroce_bh_work *w);

#endif
