// SPDX-License-Identifier: GPL-2.0

//! References to C objects that may be kept longer than the object lives.

use crate::{ffi::bindings as ffi, sync::Gate};
use core::ptr::NonNull;
use kernel::{prelude::*, sync::Arc};

use super::event::{CqEvent, PortEvent, QpEvent, SrqEvent};

/// Reaches a C object for as long as it exists, and does nothing afterwards.
///
/// All methods may be called in process and softirq context. The functions they call may take
/// locks of the core and of kernel clients, and those may poll or arm a completion queue: call them
/// without holding any lock that the driver's own callbacks take.
///
/// # Invariants
///
/// While the gate is open or has users inside, `ib` points to a live object.
#[pin_data]
pub struct Handle<C> {
    #[pin]
    gate: Gate,
    ib: NonNull<C>,
}

// SAFETY: The pointer is only used inside the gate, for calls that are safe in any thread.
unsafe impl<C> Send for Handle<C> {}
// SAFETY: As above.
unsafe impl<C> Sync for Handle<C> {}

/// Handle of a device.
pub type DeviceHandle = Handle<ffi::ib_device>;
/// Handle of a completion queue.
pub type CqHandle = Handle<ffi::ib_cq>;
/// Handle of a queue pair.
pub type QpHandle = Handle<ffi::ib_qp>;
/// Handle of a shared receive queue.
pub type SrqHandle = Handle<ffi::ib_srq>;

impl<C> Handle<C> {
    /// The caller closes the handle before it lets the object go.
    pub(super) fn new(ib: *mut C) -> Result<Arc<Self>> {
        let ib = NonNull::new(ib).ok_or(EINVAL)?;
        Arc::pin_init(
            // INVARIANT: `ib` is alive now, and closed before it is not.
            pin_init!(Self {
                gate <- Gate::new(),
                ib,
            }),
            GFP_KERNEL,
        )
    }

    /// Cuts the connection and waits for users in the middle of a call. Process context.
    pub(super) fn close_and_wait(&self) {
        self.gate.close_and_wait();
    }

    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(*mut C) -> R) -> Option<R> {
        let _inside = self.gate.enter()?;
        Some(f(self.ib.as_ptr()))
    }

    /// Whether the object is gone or going. Only a hint.
    pub fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// Whether this is the handle of the object at `ib`.
    pub(super) fn raw(&self) -> *mut C {
        self.ib.as_ptr()
    }
}

impl Handle<ffi::ib_cq> {
    /// Tells the queue's owner that completions are there (it had asked for it).
    pub fn completed(&self) {
        self.with(|cq| {
            // SAFETY: The queue is alive inside the gate; the field does not change after creation.
            let Some(handler) = (unsafe { (*cq).comp_handler }) else {
                return;
            };
            // SAFETY: As above.
            let context = unsafe { (*cq).cq_context };
            // SAFETY: The owner's handler wants exactly these arguments.
            unsafe { handler(cq, context) };
        });
    }

    /// Raises an asynchronous event.
    pub fn event(&self, event: CqEvent) {
        self.with(|cq| {
            // SAFETY: Alive inside the gate; the three fields do not change after creation.
            let device = unsafe { (*cq).device };
            // SAFETY: As above.
            let handler = unsafe { (*cq).event_handler };
            // SAFETY: As above.
            let context = unsafe { (*cq).cq_context };
            let Some(handler) = handler else { return };
            let mut ev = ffi::ib_event {
                device,
                element: ffi::ib_event__bindgen_ty_1 { cq },
                event: event.as_raw(),
            };
            // SAFETY: The owner's handler wants exactly these arguments.
            unsafe { handler(&mut ev, context) };
        });
    }
}

impl Handle<ffi::ib_qp> {
    /// Raises an asynchronous event.
    pub fn event(&self, event: QpEvent) {
        self.with(|qp| {
            // SAFETY: Alive inside the gate; the three fields do not change after creation.
            let device = unsafe { (*qp).device };
            // SAFETY: As above.
            let handler = unsafe { (*qp).event_handler };
            // SAFETY: As above.
            let context = unsafe { (*qp).qp_context };
            let Some(handler) = handler else { return };
            let mut ev = ffi::ib_event {
                device,
                element: ffi::ib_event__bindgen_ty_1 { qp },
                event: event.as_raw(),
            };
            // SAFETY: The owner's handler wants exactly these arguments.
            unsafe { handler(&mut ev, context) };
        });
    }
}

impl Handle<ffi::ib_srq> {
    /// Raises an asynchronous event.
    pub fn event(&self, event: SrqEvent) {
        self.with(|srq| {
            // SAFETY: Alive inside the gate; the three fields do not change after creation.
            let device = unsafe { (*srq).device };
            // SAFETY: As above.
            let handler = unsafe { (*srq).event_handler };
            // SAFETY: As above.
            let context = unsafe { (*srq).srq_context };
            let Some(handler) = handler else { return };
            let mut ev = ffi::ib_event {
                device,
                element: ffi::ib_event__bindgen_ty_1 { srq },
                event: event.as_raw(),
            };
            // SAFETY: The owner's handler wants exactly these arguments.
            unsafe { handler(&mut ev, context) };
        });
    }
}

impl Handle<ffi::ib_device> {
    /// Raises an asynchronous event of a port (port numbers start at 1).
    pub fn event(&self, event: PortEvent, port: u32) {
        self.with(|device| {
            let ev = ffi::ib_event {
                device,
                element: ffi::ib_event__bindgen_ty_1 { port_num: port },
                event: event.as_raw(),
            };
            // SAFETY: The device is alive inside the gate; the core copies the event.
            unsafe { ffi::ib_dispatch_event(&ev) };
        });
    }
}
