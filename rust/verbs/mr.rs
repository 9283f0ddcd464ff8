// SPDX-License-Identifier: GPL-2.0

//! Memory regions: keys, rights, bounds.

use super::{
    dev::{device_of, Device},
    key, limits, Driver,
};
use crate::{
    engine::{Refusal, RemoteAccess},
    rdma::{self, access, MrRequest, Pages, UmemPages},
    sync::{Gated, PageSlice},
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            ordering::{Full, Relaxed},
            Atomic,
        },
        Arc,
    },
};

/// Rights of a region or a QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    /// Receives and answers may be written into it.
    pub local_write: bool,
    /// RDMA WRITE.
    pub remote_write: bool,
    /// RDMA READ.
    pub remote_read: bool,
    /// Atomics.
    pub remote_atomic: bool,
    /// FLUSH for global visibility.
    pub flush_global: bool,
    /// FLUSH for persistence. Only a QP can have it.
    pub flush_persistent: bool,
}

impl Access {
    /// From [`access`] bits.
    pub(super) fn from_bits(bits: u32) -> Self {
        Self {
            local_write: bits & access::LOCAL_WRITE != 0,
            remote_write: bits & access::REMOTE_WRITE != 0,
            remote_read: bits & access::REMOTE_READ != 0,
            remote_atomic: bits & access::REMOTE_ATOMIC != 0,
            flush_global: bits & access::FLUSH_GLOBAL != 0,
            flush_persistent: bits & access::FLUSH_PERSISTENT != 0,
        }
    }

    /// Whether a remote operation of this kind is allowed.
    pub(super) fn allows(self, what: RemoteAccess) -> bool {
        match what {
            // IB specification A19.4.4 for atomic writes.
            RemoteAccess::Write | RemoteAccess::AtomicWrite => self.remote_write,
            RemoteAccess::Read => self.remote_read,
            RemoteAccess::Atomic => self.remote_atomic,
            RemoteAccess::Flush(how) => {
                (!how.global || self.flush_global) && (!how.persistent || self.flush_persistent)
            }
        }
    }
}

/// A registered range of a process' memory.
///
/// Packets and pending work requests may hold it longer than it is registered; the pages are
/// entered for each copy and let go at deregistration.
#[pin_data]
pub struct Mr {
    key: u32,
    pd: u32,
    access: Access,
    /// Windows may be bound to it.
    may_bind: bool,
    iova: u64,
    length: u64,
    /// Number of windows bound to it, or [`CLOSED`].
    windows: Atomic<u32>,
    /// `None` inside: a region of length 0.
    #[pin]
    pages: Gated<Option<Pages>>,
}

impl Mr {
    fn new(key: u32, pd: u32, request: &MrRequest, pages: Option<Pages>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                key,
                pd,
                access: Access::from_bits(request.access),
                may_bind: request.access & access::MW_BIND != 0,
                iova: request.iova,
                length: request.length,
                windows: Atomic::new(0),
                pages <- Gated::new(pages),
            }),
            GFP_KERNEL,
        )
    }

    /// lkey and rkey.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// Protection domain.
    pub(super) fn pd(&self) -> u32 {
        self.pd
    }

    /// Rights.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Whether it has not been deregistered. Only a hint while other threads may do that.
    pub(super) fn is_registered(&self) -> bool {
        !self.pages.is_revoked()
    }

    /// Whether windows may be bound to it.
    pub(super) fn may_bind(&self) -> bool {
        self.may_bind
    }

    /// Counts a window that is bound to it; `false` when the region is being deregistered.
    pub(super) fn add_window(&self) -> bool {
        let mut seen = self.windows.load(Relaxed);
        while seen < CLOSED - 1 {
            match self.windows.cmpxchg(seen, seen + 1, Full) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Undoes [`add_window`](Self::add_window).
    pub(super) fn remove_window(&self) {
        self.windows.fetch_sub(1, Full);
    }

    /// Refuses windows from now on; `false` when some are bound.
    fn close_to_windows(&self) -> bool {
        self.windows.cmpxchg(0, CLOSED, Full).is_ok()
    }

    /// Where `len` bytes at `va` lie in the region, if all of them do. Does not wrap: both sides
    /// of each comparison are differences of checked order.
    pub(super) fn offset_of(&self, va: u64, len: u64) -> Option<u64> {
        let offset = va.checked_sub(self.iova)?;
        let room = self.length.checked_sub(offset)?;
        (len <= room).then_some(offset)
    }

    /// Lends the parts of pages of `offset..offset + len`, in order. Any context. Fails once the
    /// region is being deregistered.
    pub(super) fn segments(
        &self,
        offset: u64,
        len: u64,
        f: &mut dyn FnMut(PageSlice<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let pages = self.pages.enter().ok_or(Refusal::Access)?;
        let pages = pages.as_ref().ok_or(Refusal::Access)?;
        let offset = usize::try_from(offset).map_err(|_| Refusal::Access)?;
        let len = usize::try_from(len).map_err(|_| Refusal::Access)?;
        let parts = pages.segments(offset, len).ok_or(Refusal::Access)?;
        let mut left = len;
        for part in parts {
            left = left.saturating_sub(part.len());
            f(part)?;
        }
        if left == 0 {
            Ok(())
        } else {
            // A kernel client named addresses where no page is.
            Err(Refusal::Access)
        }
    }
}

/// The core's memory region.
pub struct MrObject {
    dev: Arc<Device>,
    inner: Arc<Mr>,
}

/// Rights that can be asked for. Optional ones may be ignored by definition. No FLUSH for persistence:
/// that takes memory that survives a loss of power.
const KNOWN_ACCESS: u32 = access::LOCAL_WRITE
    | access::REMOTE_WRITE
    | access::REMOTE_READ
    | access::REMOTE_ATOMIC
    | access::MW_BIND
    | access::FLUSH_GLOBAL
    | access::OPTIONAL;

/// No window may be bound any more.
const CLOSED: u32 = u32::MAX;

/// Makes a region and gives it a key.
fn add(
    dev: &Device,
    pd: &rdma::Pd<Driver>,
    request: &MrRequest,
    pages: &mut Option<Pages>,
) -> Result<Arc<Mr>> {
    let made = dev
        .mrs
        .insert_random(key::INDEX_MASK, GFP_KERNEL, |index| {
            // A second draw happens only if another registration took the index in between.
            let key = key::of_region(index);
            Mr::new(key, pd.data().id(), request, pages.take())
        })?;
    Ok(made.1)
}

#[vtable]
impl rdma::MrOps<Driver> for MrObject {
    fn reg_user(
        pd: &rdma::Pd<Driver>,
        request: &MrRequest,
        udata: rdma::Udata<'_>,
    ) -> Result<Self> {
        udata.no_io()?;
        if request.access & !KNOWN_ACCESS != 0 {
            return Err(EOPNOTSUPP);
        }
        if request.length > limits::MAX_MR_SIZE
            || request.iova.checked_add(request.length).is_none()
        {
            return Err(EINVAL);
        }
        let rdev = pd.device();
        let dev = device_of(rdev);
        let mut pages = match request.length {
            0 => None,
            len => {
                let pages = UmemPages::get(rdev, request.start, len, request.access)?;
                Some(Pages::User(pages))
            }
        };
        let inner = add(dev, pd, request, &mut pages)?;
        if request.length != 0 && inner.pages.enter().map_or(true, |p| p.is_none()) {
            dev.mrs.remove(key::index(inner.key));
            return Err(EAGAIN);
        }
        Ok(Self {
            dev: dev.clone(),
            inner,
        })
    }

    fn get_dma(pd: &rdma::Pd<Driver>, access: u32) -> Result<Self> {
        if access & !KNOWN_ACCESS != 0 {
            return Err(EOPNOTSUPP);
        }
        let dev = device_of(pd.device());
        let all = MrRequest {
            start: 0,
            length: u64::MAX,
            iova: 0,
            access,
        };
        let inner = add(dev, pd, &all, &mut Some(Pages::Kernel))?;
        Ok(Self {
            dev: dev.clone(),
            inner,
        })
    }

    fn lkey(&self) -> u32 {
        self.inner.key
    }

    fn rkey(&self) -> u32 {
        self.inner.key
    }

    fn dereg(&self, _mr: &rdma::Mr<Driver>) -> Result {
        // IB specification 11.2.8.5: not while windows are bound to it.
        if !self.inner.close_to_windows() {
            return Err(EBUSY);
        }
        self.revoke();
        Ok(())
    }
}

impl MrObject {
    fn revoke(&self) {
        self.dev.mrs.remove(key::index(self.inner.key));
        self.inner.pages.revoke();
    }
}

impl Drop for MrObject {
    /// Also for a region that the core failed to take over.
    fn drop(&mut self) {
        self.revoke();
    }
}
