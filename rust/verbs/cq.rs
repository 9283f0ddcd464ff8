// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::{limits, ring::Ring, Driver};
use crate::{
    abi::{self, wc_flags},
    new_spinlock_bh,
    rdma::{self, CqEvent, CqHandle, CqInitAttr, MmapEntry, Notify},
    sync::SpinLockBh,
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{ordering::Relaxed, Atomic},
        Arc, Mutex,
    },
};

/// Which completion wakes the owner next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

struct Inner {
    /// `None` once the queue is destroyed.
    ring: Option<Ring>,
    producer: u32,
    armed: Armed,
    overrun: bool,
}

/// A completion queue, as the QPs that report to it hold it.
#[pin_data]
pub(super) struct Cq {
    handle: Arc<CqHandle>,
    #[pin]
    inner: SpinLockBh<Inner>,
}

/// What is to be done about an added completion once no queue lock is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "the owner of the queue waits for it"]
pub(super) struct Wake {
    completed: bool,
    overrun: bool,
}

impl Wake {
    /// Both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            completed: self.completed || other.completed,
            overrun: self.overrun || other.overrun,
        }
    }
}

impl Cq {
    fn new(handle: Arc<CqHandle>, ring: Ring) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                handle,
                inner <- new_spinlock_bh!(
                    Inner {
                        ring: Some(ring),
                        producer: 0,
                        armed: Armed::No,
                        overrun: false,
                    },
                    "metaroce cq"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a completion. Any context. Errors count as solicited (IB specification 11.4.2.2).
    ///
    /// A full queue loses it and is in error for good (IB specification 11.6.3.1).
    pub(super) fn push(&self, cqe: &abi::Cqe, solicited: bool) -> Wake {
        let mut inner = self.inner.lock();
        let producer = inner.producer;
        let Some(ring) = inner.ring.as_ref() else {
            return Wake::default();
        };
        if producer.wrapping_sub(ring.consumer()) >= ring.entries() {
            let first = !inner.overrun;
            inner.overrun = true;
            return Wake {
                completed: false,
                overrun: first,
            };
        }
        let mut cqe = *cqe;
        cqe.wc_flags &= !wc_flags::KERNEL_ONLY;
        cqe.reserved0 = [0; 2];
        ring.write(producer, 0, &cqe);
        ring.set_producer(producer.wrapping_add(1));
        inner.producer = producer.wrapping_add(1);
        let completed = match inner.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => solicited || cqe.status != 0,
        };
        if completed {
            inner.armed = Armed::No;
        }
        Wake {
            completed,
            overrun: false,
        }
    }

    /// Tells the owner. Any context, no queue lock held.
    pub(super) fn wake(&self, wake: Wake) {
        if wake.completed {
            self.handle.completed();
        }
        if wake.overrun {
            self.handle.event(CqEvent::Error);
        }
    }

    /// Replaces the ring; what was not polled moves along.
    fn replace_ring(&self, ring: Ring) -> Result {
        let mut inner = self.inner.lock();
        let old = inner.ring.as_ref().ok_or(EINVAL)?;
        ring.take_over(old, old.consumer(), inner.producer)?;
        let old = inner.ring.replace(ring);
        drop(inner);
        drop(old);
        Ok(())
    }

    /// Arms the queue; returns whether completions are waiting.
    fn arm(&self, notify: Notify) -> bool {
        let mut inner = self.inner.lock();
        // Asking for all completions is not weakened by asking for solicited ones later.
        if !notify.solicited_only {
            inner.armed = Armed::Any;
        } else if inner.armed == Armed::No {
            inner.armed = Armed::Solicited;
        }
        let producer = inner.producer;
        inner
            .ring
            .as_ref()
            .is_some_and(|ring| ring.consumer() != producer)
    }
}

/// The core's completion queue.
pub struct CqObject {
    inner: Arc<Cq>,
    /// Dropped here, in process context; the ring's memory goes with the last user.
    map: Pin<KBox<Mutex<MmapEntry>>>,
}

impl CqObject {
    /// The queue itself.
    pub(super) fn inner(&self) -> &Arc<Cq> {
        &self.inner
    }
}

/// Numbers CQs for debug output.
static NEXT_ID: Atomic<u32> = Atomic::new(1);

#[vtable]
impl rdma::CqOps<Driver> for CqObject {
    fn create(
        cq: &rdma::NewCq<'_, Driver>,
        attr: &CqInitAttr,
        udata: Option<rdma::Udata<'_>>,
    ) -> Result<Self> {
        let udata = udata.ok_or(EOPNOTSUPP)?;
        if attr.flags != 0 {
            return Err(EOPNOTSUPP);
        }
        if attr.cqe == 0 || attr.cqe > limits::MAX_CQE {
            return Err(EINVAL);
        }
        let ucontext = udata.ucontext(cq.device()).ok_or(EINVAL)?;
        let ring = Ring::new(attr.cqe, core::mem::size_of::<abi::Cqe>())?;
        let map = MmapEntry::new(ucontext, ring.mem().clone())?;
        let resp = abi::CreateCqResp {
            ring: ring.info(map.offset())?,
            cq_id: NEXT_ID.fetch_add(1, Relaxed),
            reserved: 0,
        };
        cq.set_cqe(ring.entries());
        let inner = Cq::new(cq.handle().clone(), ring)?;
        let map = KBox::pin_init(new_mutex!(map, "metaroce cq map"), GFP_KERNEL)?;
        udata.respond(&resp)?;
        Ok(Self { inner, map })
    }

    fn destroy(&self, _cq: &rdma::Cq<Driver>) {
        let ring = self.inner.inner.lock().ring.take();
        drop(ring);
    }

    fn resize(&self, cq: &rdma::Cq<Driver>, cqe: u32, udata: rdma::Udata<'_>) -> Result<u32> {
        if cqe == 0 || cqe > limits::MAX_CQE {
            return Err(EINVAL);
        }
        let ucontext = udata.ucontext(cq.device()).ok_or(EINVAL)?;
        let mut kept = self.map.lock();
        let ring = Ring::new(cqe, core::mem::size_of::<abi::Cqe>())?;
        let map = MmapEntry::new(ucontext, ring.mem().clone())?;
        let entries = ring.entries();
        let resp = abi::CreateCqResp {
            ring: ring.info(map.offset())?,
            ..abi::CreateCqResp::default()
        };
        self.inner.replace_ring(ring)?;
        *kept = map;
        udata.respond(&resp)?;
        Ok(entries)
    }

    fn req_notify(&self, _cq: &rdma::Cq<Driver>, notify: Notify) -> Result<bool> {
        Ok(self.inner.arm(notify) && notify.report_missed)
    }
}
