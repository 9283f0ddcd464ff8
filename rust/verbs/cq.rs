// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use super::{
    limits,
    ring::Ring,
    send_queue::{filled, product},
    Driver, DEVICES,
};
use crate::{
    abi::{self, wc_flags},
    rdma::{
        self, CqEvent, CqHandle, CqInitAttr, MmapEntry, Network, Notify, QpHandle, Wc, WcArray,
    },
};
use kernel::{
    new_mutex, new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{ordering::Relaxed, Atomic},
        Arc, Mutex, SpinLockIrq,
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
    /// A kernel client's queue: whose each completion is.
    owners: Option<KVVec<Option<Arc<QpHandle>>>>,
    producer: u32,
    armed: Armed,
    overrun: bool,
}

/// A completion queue, as the QPs that report to it hold it.
#[pin_data]
pub(super) struct Cq {
    handle: Arc<CqHandle>,
    /// Kernel clients poll and arm with interrupts off.
    #[pin]
    inner: SpinLockIrq<Inner>,
}

/// What is to be done about an added completion once no queue lock is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "the owner of the queue waits for it"]
pub(super) struct Wake {
    completed: bool,
    /// The queue has just overrun.
    overrun: bool,
    /// The completion was lost: its QP has to fail.
    lost: bool,
}

impl Wake {
    /// What is to be done after several completions.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            completed: self.completed || other.completed,
            overrun: self.overrun || other.overrun,
            lost: self.lost || other.lost,
        }
    }
}

impl Cq {
    fn new(
        handle: Arc<CqHandle>,
        ring: Ring,
        owners: Option<KVVec<Option<Arc<QpHandle>>>>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                handle,
                inner <- new_spinlock_irq!(
                    Inner {
                        ring: Some(ring),
                        owners,
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

    /// Adds a completion of the QP `owner`. Any context. Errors count as solicited (IB specification 11.4.2.2).
    ///
    /// A full queue loses it and is in error for good: it takes no more completions, and the QPs that
    /// report to it fail (IB specification 11.6.3.2).
    pub(super) fn push(&self, cqe: &abi::Cqe, solicited: bool, owner: &Arc<QpHandle>) -> Wake {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let producer = inner.producer;
        let Some(ring) = inner.ring.as_ref() else {
            return Wake::default();
        };
        if inner.overrun || producer.wrapping_sub(ring.consumer()) >= ring.entries() {
            let first = !inner.overrun;
            inner.overrun = true;
            return Wake {
                completed: false,
                overrun: first,
                lost: true,
            };
        }
        let mut cqe = *cqe;
        match &mut inner.owners {
            Some(owners) => {
                let at = (producer & ring.entries().wrapping_sub(1)) as usize;
                if let Some(slot) = owners.get_mut(at) {
                    *slot = Some(owner.clone());
                }
            }
            None => {
                cqe.wc_flags &= !wc_flags::KERNEL_ONLY;
                cqe.reserved0 = [0; 2];
            }
        }
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
            ..Wake::default()
        }
    }

    /// Moves completions out, for a kernel client; those of QPs that are gone vanish. Any context.
    fn poll(&self, wcs: &mut WcArray<'_>) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let (Some(ring), Some(owners)) = (&inner.ring, &mut inner.owners) else {
            return;
        };
        let mut index = ring.consumer();
        while index != inner.producer && wcs.room() != 0 {
            let at = (index & ring.entries().wrapping_sub(1)) as usize;
            let owner = owners.get_mut(at).and_then(Option::take);
            let cqe: Option<abi::Cqe> = ring.read(index, 0);
            if let (Some(owner), Some(cqe)) = (owner.filter(|qp| !qp.is_closed()), cqe) {
                wcs.push(&owner, &kernel_wc(&cqe));
            }
            index = index.wrapping_add(1);
        }
        ring.set_consumer(index);
    }

    /// Tells the owner. Any context, no queue lock held.
    pub(super) fn wake(&self, wake: Wake) {
        if wake.completed {
            self.handle.completed();
        }
        if wake.overrun {
            self.handle.event(CqEvent::Error);
        }
        if wake.lost {
            DEVICES.with(|devices| devices.fail_later());
        }
    }

    /// Whether a completion was lost. Any context.
    pub(super) fn is_overrun(&self) -> bool {
        self.inner.lock().overrun
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

/// A completion in a kernel client's terms.
fn kernel_wc(cqe: &abi::Cqe) -> Wc {
    let has = |flag| cqe.wc_flags & flag != 0;
    Wc {
        wr_id: cqe.wr_id,
        status: cqe.status,
        opcode: cqe.opcode,
        byte_len: cqe.byte_len,
        imm_data: has(wc_flags::WITH_IMM).then_some(cqe.imm_data),
        invalidated: has(wc_flags::WITH_INV).then_some(cqe.imm_data),
        src_qp: cqe.src_qp,
        network: if has(wc_flags::KERNEL_IPV4) {
            Some(Network::Ipv4)
        } else if has(wc_flags::KERNEL_IPV6) {
            Some(Network::Ipv6)
        } else {
            None
        },
        vlan: has(wc_flags::KERNEL_VLAN).then(|| u16::from_ne_bytes(cqe.reserved0)),
    }
}

/// The core's completion queue.
pub struct CqObject {
    inner: Arc<Cq>,
    /// Dropped here, in process context; the ring's memory goes with the last user. A kernel client's
    /// queue is not mapped.
    map: Pin<KBox<Mutex<Option<MmapEntry>>>>,
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
        if attr.flags != 0 {
            return Err(EOPNOTSUPP);
        }
        if attr.cqe == 0 || attr.cqe > limits::MAX_CQE {
            return Err(EINVAL);
        }
        let ring = Ring::new(attr.cqe, core::mem::size_of::<abi::Cqe>())?;
        let Some(udata) = udata else {
            cq.set_cqe(ring.entries());
            let owners = filled(product(ring.entries(), 1)?)?;
            return Ok(Self {
                inner: Cq::new(cq.handle().clone(), ring, Some(owners))?,
                map: KBox::pin_init(new_mutex!(None, "metaroce cq map"), GFP_KERNEL)?,
            });
        };
        let ucontext = udata.ucontext(cq.device()).ok_or(EINVAL)?;
        let map = MmapEntry::new(ucontext, ring.mem().clone())?;
        let resp = abi::CreateCqResp {
            ring: ring.info(map.offset())?,
            cq_id: NEXT_ID.fetch_add(1, Relaxed),
            reserved: 0,
        };
        cq.set_cqe(ring.entries());
        let inner = Cq::new(cq.handle().clone(), ring, None)?;
        let map = KBox::pin_init(new_mutex!(Some(map), "metaroce cq map"), GFP_KERNEL)?;
        udata.respond(&resp)?;
        Ok(Self { inner, map })
    }

    fn destroy(&self, _cq: &rdma::Cq<Driver>) {
        let mut inner = self.inner.inner.lock();
        let gone = (inner.ring.take(), inner.owners.take());
        drop(inner);
        drop(gone);
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
        *kept = Some(map);
        udata.respond(&resp)?;
        Ok(entries)
    }

    fn req_notify(&self, _cq: &rdma::Cq<Driver>, notify: Notify) -> Result<bool> {
        Ok(self.inner.arm(notify) && notify.report_missed)
    }

    fn poll(&self, _cq: &rdma::Cq<Driver>, wcs: &mut WcArray<'_>) -> Result {
        self.inner.poll(wcs);
        Ok(())
    }
}
