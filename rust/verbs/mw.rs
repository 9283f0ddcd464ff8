// SPDX-License-Identifier: GPL-2.0

//! Memory windows: parts of regions that peers may access under a key of their own, which costs no
//! system call to give and to take away (IB specification 10.6.7).
//!
//! A window of type 1 belongs to a protection domain and is rebound over and over; one of type 2
//! (2B of the specification) belongs, while it is bound, to the QP that bound it and must be
//! invalidated before it is bound again.

use super::{
    dev::{device_of, Device},
    key,
    mr::{Access, Mr},
    Driver,
};
use crate::{
    abi,
    engine::{Refusal, RemoteAccess},
    new_spinlock_bh,
    rdma::{self, access, MwType},
    sync::{PageSlice, SpinLockBh},
};
use kernel::{prelude::*, sync::Arc};

/// A region that a window is bound to: counts as such.
struct BoundMr(Arc<Mr>);

impl BoundMr {
    fn new(mr: Arc<Mr>) -> Option<Self> {
        mr.add_window().then(|| Self(mr))
    }
}

impl Drop for BoundMr {
    fn drop(&mut self) {
        self.0.remove_window();
    }
}

struct Binding {
    mr: BoundMr,
    access: Access,
    /// The QP it belongs to, for type 2.
    qp: Option<u64>,
    /// How peers name its first byte.
    base: u64,
    length: u64,
    /// Of its first byte, from the start of the region.
    start: u64,
}

struct State {
    key: u32,
    binding: Option<Binding>,
    /// Counts changes of the binding: what was resolved before one is void.
    generation: u64,
}

impl State {
    /// Changes the binding; the old one is to be dropped without the lock.
    #[must_use]
    fn rebind(&mut self, binding: Option<Binding>) -> Option<Binding> {
        self.generation = self.generation.wrapping_add(1);
        core::mem::replace(&mut self.binding, binding)
    }

    /// Whether `key` is its key now, and the QP may use it.
    fn is_valid(&self, qp: u64, key: u32) -> bool {
        let ours = |b: &Binding| b.qp.is_none_or(|id| id == qp);
        self.key == key && self.binding.as_ref().is_some_and(ours)
    }
}

/// A memory window.
#[pin_data]
pub struct Mw {
    index: u32,
    pd: u32,
    kind: MwType,
    /// Held during each copy, so that nobody accesses memory any more when a binding has changed.
    #[pin]
    state: SpinLockBh<State>,
}

/// A checked range of a window.
pub struct Resolved {
    generation: u64,
    /// From the start of the region.
    offset: u64,
}

/// A request to bind a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BindWr {
    addr: u64,
    length: u64,
    mr_lkey: u32,
    mw_rkey: u32,
    new_key: u32,
    access: u32,
}

impl BindWr {
    pub(super) fn from_wqe(wqe: &abi::SendWqe) -> Self {
        let [a, b, c, d, e, f, g, h] = wqe.operand1.to_ne_bytes();
        Self {
            addr: wqe.remote_addr,
            length: wqe.operand0,
            mr_lkey: u32::from_ne_bytes([a, b, c, d]),
            mw_rkey: u32::from_ne_bytes([e, f, g, h]),
            new_key: wqe.rkey,
            access: wqe.mw_access,
        }
    }
}

/// What a window can be asked to grant. It grants nothing to this side, which has the region for
/// that, but consumers ask for it all the same.
const KNOWN_ACCESS: u32 = access::LOCAL_WRITE
    | access::REMOTE_WRITE
    | access::REMOTE_READ
    | access::REMOTE_ATOMIC
    | access::ZERO_BASED;

/// Binds a window on behalf of a QP (IB specification 10.6.7.2), or says why not. Softirq.
pub(super) fn bind(dev: &Device, pd: u32, qp: u64, wr: &BindWr) -> Result<(), &'static str> {
    let mw = dev.mw(wr.mw_rkey).ok_or("no such window")?;
    if mw.pd != pd {
        return Err("the window is in another protection domain");
    }
    if wr.access & !KNOWN_ACCESS != 0 {
        return Err("a window cannot grant this access");
    }
    let zero_based = wr.access & access::ZERO_BASED != 0;
    if zero_based && mw.kind == MwType::Type1 {
        return Err("windows of type 1 are not zero based");
    }
    let binding = match wr.length {
        0 if mw.kind == MwType::Type2 => return Err("windows of type 2 are not empty"),
        0 => None,
        length => {
            let mr = dev.mr(wr.mr_lkey).ok_or("no such region")?;
            if mr.pd() != pd {
                return Err("the region is in another protection domain");
            }
            if !mr.may_bind() {
                return Err("the region does not allow windows");
            }
            let access = Access::from_bits(wr.access);
            if (access.remote_write || access.remote_atomic) && !mr.access().local_write {
                return Err("the region is not writable");
            }
            let start = mr
                .offset_of(wr.addr, length)
                .ok_or("not inside the region")?;
            Some(Binding {
                mr: BoundMr::new(mr).ok_or("the region is going away")?,
                access,
                qp: (mw.kind == MwType::Type2).then_some(qp),
                base: if zero_based { 0 } else { wr.addr },
                length,
                start,
            })
        }
    };
    let mut state = mw.state.lock();
    // A consumer need not write the key it chose for type 2 back into its `ibv_mw`.
    if mw.kind == MwType::Type1 && state.key != wr.mw_rkey {
        return Err("the window has another key");
    }
    if mw.kind == MwType::Type2 && state.binding.is_some() {
        return Err("the window is bound");
    }
    state.key = key::with_variant(state.key, wr.new_key);
    let old = state.rebind(binding);
    drop(state);
    drop(old);
    Ok(())
}

/// Invalidates a key on behalf of a QP or its peer (IB specification 10.6.5). Softirq.
pub(super) fn invalidate(dev: &Device, pd: u32, qp: u64, key: u32) -> Option<()> {
    let mw = dev.mw(key)?;
    if mw.pd != pd || mw.kind != MwType::Type2 {
        return None;
    }
    let mut state = mw.state.lock();
    if !state.is_valid(qp, key) {
        return None;
    }
    let old = state.rebind(None);
    drop(state);
    drop(old);
    Some(())
}

impl Mw {
    fn new(index: u32, key: u32, pd: u32, kind: MwType) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                index,
                pd,
                kind,
                state <- new_spinlock_bh!(
                    State {
                        key,
                        binding: None,
                        generation: 0,
                    },
                    "metaroce mw"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether a QP, or its peer, may invalidate `key`.
    pub(super) fn may_invalidate(&self, pd: u32, qp: u64, key: u32) -> bool {
        self.pd == pd && self.kind == MwType::Type2 && self.state.lock().is_valid(qp, key)
    }

    /// Checks a remote operation of a QP's peer. `None`: no such key, not for this QP, right
    /// missing, or out of bounds.
    pub(super) fn resolve(
        &self,
        pd: u32,
        qp: u64,
        what: RemoteAccess,
        key: u32,
        va: u64,
        len: u32,
    ) -> Option<Resolved> {
        let state = self.state.lock();
        if self.pd != pd || !state.is_valid(qp, key) {
            return None;
        }
        let binding = state.binding.as_ref()?;
        let at = va.checked_sub(binding.base)?;
        let room = binding.length.checked_sub(at)?;
        if !binding.access.allows(what) || u64::from(len) > room {
            return None;
        }
        Some(Resolved {
            generation: state.generation,
            offset: binding.start.checked_add(at)?,
        })
    }

    /// Lends the parts of pages of `offset..offset + len` of a resolved range, in order. Any
    /// context. Fails once the binding has changed.
    pub(super) fn segments(
        &self,
        range: &Resolved,
        offset: u32,
        len: u32,
        f: &mut dyn FnMut(PageSlice<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let state = self.state.lock();
        let binding = state.binding.as_ref().ok_or(Refusal::Access)?;
        if state.generation != range.generation {
            return Err(Refusal::Access);
        }
        let at = range.offset.saturating_add(offset.into());
        binding.mr.0.segments(at, len.into(), f)
    }

    /// Unbinds it, in whatever state.
    fn revoke(&self) {
        let old = self.state.lock().rebind(None);
        drop(old);
    }
}

/// The core's memory window.
pub struct MwObject {
    dev: Arc<Device>,
    inner: Arc<Mw>,
}

#[vtable]
impl rdma::MwOps<Driver> for MwObject {
    fn alloc(new: &rdma::NewMw<'_, Driver>, udata: Option<rdma::Udata<'_>>) -> Result<Self> {
        if let Some(udata) = udata {
            udata.no_io()?;
        }
        let dev = device_of(new.device());
        let (kind, pd) = (new.kind()?, new.pd().data().id());
        let (_, inner) = dev
            .mws
            .insert_random(key::INDEX_MASK, GFP_KERNEL, |index| {
                Mw::new(index, key::of_window(index), pd, kind)
            })?;
        new.set_rkey(inner.state.lock().key);
        Ok(Self {
            dev: dev.clone(),
            inner,
        })
    }

    fn dealloc(&self, _mw: &rdma::Mw<Driver>) {
        self.dev.mws.remove(self.inner.index);
        self.inner.revoke();
    }
}
