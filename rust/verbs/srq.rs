// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.
//!
//! A message takes the oldest entry when its first packet arrives; the stream remembers it for the
//! rest. So the entry leaves the ring at once, whole, and its slot is free again; what was taken is
//! noted with the QP, which completes or flushes it.

use super::{
    dev::Device,
    limits,
    recv_queue::{load_recv, Mismatch},
    ring::Ring,
    sge::{walk, BoundSge},
    Driver,
};
use crate::{
    abi,
    engine::Refusal,
    new_spinlock_bh,
    rdma::{self, MmapEntry, SrqAttr, SrqEvent, SrqHandle, SrqMask},
    sync::{PageSlice, SpinLockBh},
};
use core::mem::size_of;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{ordering::Relaxed, Atomic},
        Arc, Mutex,
    },
    uaccess::{UserPtr, UserSlice},
};
use zerocopy::IntoBytes;

/// A receive taken from the queue.
pub struct SharedRecv {
    pub(super) ssn: u32,
    pub(super) wr_id: u64,
    list: KVec<BoundSge>,
}

impl SharedRecv {
    /// Lends the memory of bytes `offset..offset + len`.
    pub(super) fn scatter(
        &self,
        offset: u32,
        len: u32,
        f: &mut dyn FnMut(PageSlice<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        walk(&self.list, offset, len, f)
    }
}

struct Inner {
    /// `None` once the queue is destroyed.
    ring: Option<Ring>,
    consumer: u32,
    /// 0: no event wanted.
    limit: u32,
}

/// A shared receive queue as its QPs hold it.
#[pin_data]
pub(super) struct Srq {
    handle: Arc<SrqHandle>,
    pd: u32,
    max_sge: u32,
    #[pin]
    inner: SpinLockBh<Inner>,
}

impl Srq {
    /// Takes the oldest receive for message `ssn`, which puts `need` bytes into it. Softirq. An
    /// error other than [`Mismatch::NotPosted`] has used up the receive whose cookie it carries.
    pub(super) fn take(
        &self,
        dev: &Device,
        ssn: u32,
        need: u32,
    ) -> Result<SharedRecv, (u64, Mismatch)> {
        let nothing = (0, Mismatch::NotPosted);
        // The list is made first: without memory the receive stays for a later try.
        let mut list =
            KVec::with_capacity(self.max_sge as usize, GFP_ATOMIC).map_err(|_| nothing)?;
        for _ in 0..self.max_sge {
            list.push_within_capacity(BoundSge::default())
                .map_err(|_| nothing)?;
        }
        let mut inner = self.inner.lock();
        let index = inner.consumer;
        let limit = inner.limit;
        let ring = inner.ring.as_ref().ok_or(nothing)?;
        let posted = ring.producer().wrapping_sub(index);
        if posted == 0 {
            return Err(nothing);
        }
        let loaded = load_recv(dev, self.pd, ring, index, &mut list);
        ring.set_consumer(index.wrapping_add(1));
        inner.consumer = index.wrapping_add(1);
        // IB specification 10.2.9.1: the limit fires once, then is disarmed.
        let fire = limit != 0 && posted.saturating_sub(1) < limit;
        if fire {
            inner.limit = 0;
        }
        drop(inner);
        if fire {
            self.handle.event(SrqEvent::LimitReached);
        }
        let (wr_id, num_sge, len) = loaded?;
        if u64::from(need) > len {
            return Err((wr_id, Mismatch::TooLong));
        }
        list.truncate(num_sge as usize);
        Ok(SharedRecv { ssn, wr_id, list })
    }
}

/// The core's shared receive queue.
pub struct SrqObject {
    inner: Arc<Srq>,
    map: Pin<KBox<Mutex<Option<MmapEntry>>>>,
}

impl SrqObject {
    /// The queue itself.
    pub(super) fn inner(&self) -> &Arc<Srq> {
        &self.inner
    }
}

/// Numbers SRQs.
static NEXT_ID: Atomic<u32> = Atomic::new(1);

fn new_ring(want: u32, max_sge: u32) -> Result<Ring> {
    let sges = (max_sge as usize).saturating_mul(size_of::<abi::Sge>());
    Ring::new(want, size_of::<abi::RecvWqe>().saturating_add(sges))
}

#[vtable]
impl rdma::SrqOps<Driver> for SrqObject {
    fn create(
        srq: &rdma::NewSrq<'_, Driver>,
        attr: &mut SrqAttr,
        udata: Option<rdma::Udata<'_>>,
    ) -> Result<Self> {
        let udata = udata.ok_or(EOPNOTSUPP)?;
        if !srq.is_basic() {
            return Err(EOPNOTSUPP);
        }
        if attr.max_wr == 0 || attr.max_wr > limits::MAX_SRQ_WR || attr.max_sge > limits::MAX_SGE {
            return Err(EINVAL);
        }
        let max_sge = attr.max_sge.max(1);
        let ucontext = udata.ucontext(srq.device()).ok_or(EINVAL)?;
        let ring = new_ring(attr.max_wr, max_sge)?;
        let map = MmapEntry::new(ucontext, ring.mem().clone())?;
        let resp = abi::CreateSrqResp {
            ring: ring.info(map.offset())?,
            srq_num: NEXT_ID.fetch_add(1, Relaxed),
            max_sge,
        };
        attr.max_wr = ring.entries();
        attr.max_sge = max_sge;
        let limit = attr.limit;
        let inner = Arc::pin_init(
            pin_init!(Srq {
                handle: srq.handle().clone(),
                pd: srq.pd().data().id(),
                max_sge,
                inner <- new_spinlock_bh!(
                    Inner {
                        ring: Some(ring),
                        consumer: 0,
                        limit,
                    },
                    "metaroce srq"
                ),
            }),
            GFP_KERNEL,
        )?;
        let map = KBox::pin_init(new_mutex!(Some(map), "metaroce srq map"), GFP_KERNEL)?;
        udata.respond(&resp)?;
        Ok(Self { inner, map })
    }

    fn destroy(&self, _srq: &rdma::Srq<Driver>) {
        let ring = self.inner.inner.lock().ring.take();
        drop(ring);
    }

    fn modify(
        &self,
        srq: &rdma::Srq<Driver>,
        attr: &SrqAttr,
        mask: SrqMask,
        udata: Option<rdma::Udata<'_>>,
    ) -> Result {
        let udata = udata.ok_or(EOPNOTSUPP)?;
        let cmd: abi::ModifySrqCmd = udata.validate_in()?;
        if mask.max_wr {
            self.resize(srq, attr.max_wr, &udata, cmd.ring_info_addr)?;
        }
        if mask.limit {
            let mut inner = self.inner.inner.lock();
            let entries = inner.ring.as_ref().map_or(0, Ring::entries);
            if attr.limit > entries {
                return Err(EINVAL);
            }
            inner.limit = attr.limit;
        }
        Ok(())
    }

    fn query(&self, _srq: &rdma::Srq<Driver>) -> Result<SrqAttr> {
        let inner = self.inner.inner.lock();
        Ok(SrqAttr {
            max_wr: inner.ring.as_ref().map_or(0, Ring::entries),
            max_sge: self.inner.max_sge,
            limit: inner.limit,
        })
    }
}

impl SrqObject {
    /// Replaces the ring by another of at least `want` entries. The provider keeps its own threads
    /// from posting meanwhile.
    fn resize(
        &self,
        srq: &rdma::Srq<Driver>,
        want: u32,
        udata: &rdma::Udata<'_>,
        info_addr: u64,
    ) -> Result {
        if want == 0 || want > limits::MAX_SRQ_WR {
            return Err(EINVAL);
        }
        let ucontext = udata.ucontext(srq.device()).ok_or(EINVAL)?;
        let mut kept = self.map.lock();
        let ring = new_ring(want, self.inner.max_sge)?;
        let map = MmapEntry::new(ucontext, ring.mem().clone())?;
        let info = ring.info(map.offset())?;
        let addr = usize::try_from(info_addr)?;
        let mut to = UserSlice::new(UserPtr::from_addr(addr), size_of::<abi::RingInfo>()).writer();
        to.write_slice(info.as_bytes())?;

        let mut inner = self.inner.inner.lock();
        let old = inner.ring.as_ref().ok_or(EINVAL)?;
        ring.take_over(old, inner.consumer, old.producer())?;
        let old = inner.ring.replace(ring);
        drop(inner);
        drop(old);
        *kept = Some(map);
        Ok(())
    }
}

/// Receives that a QP has taken from its shared queue and not completed.
#[derive(Default)]
pub(super) struct Taken {
    /// In the order of taking.
    list: KVec<(u32, u64)>,
    /// A receive that could not be used, and why.
    pub(super) failed: Option<(u32, u64, Mismatch)>,
}

impl Taken {
    /// Makes room for one more. Softirq.
    pub(super) fn reserve(&mut self) -> Result {
        self.list.reserve(1, GFP_ATOMIC)?;
        Ok(())
    }

    /// Notes a receive; [`reserve`](Self::reserve) came before.
    pub(super) fn add(&mut self, ssn: u32, wr_id: u64) {
        let _ = self.list.push_within_capacity((ssn, wr_id));
    }

    /// Forgets a receive; `false` if it was flushed.
    pub(super) fn remove(&mut self, ssn: u32) -> bool {
        let found = self.list.iter().position(|(s, _)| *s == ssn);
        found.is_some_and(|at| self.list.remove(at).is_ok())
    }

    /// Takes one out to flush it.
    pub(super) fn pop(&mut self) -> Option<u64> {
        if self.list.is_empty() {
            return None;
        }
        self.list.remove(0).ok().map(|(_, wr_id)| wr_id)
    }
}
