/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What bindgen reads: the kernel headers that rust/bindings/bindings_helper.h
 * does not cover. Which names come out is decided by bindgen.args.
 */
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/siphash.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_types.h>

#include "helpers_rdma.h"
