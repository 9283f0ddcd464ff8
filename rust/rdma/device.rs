// SPDX-License-Identifier: GPL-2.0

//! Devices.

use super::{
    AhOps, ChangingGid, CqOps, DeviceAttr, DeviceHandle, Handle, LinkLayer, MrOps, MwOps, PdOps,
    PortAttr, QpOps, SrqOps, StatDesc, StatValues, UcontextOps,
};
use crate::{ffi::bindings as ffi, sync::NetDev};
use core::{marker::PhantomData, mem::MaybeUninit, ptr::NonNull};
use kernel::{
    build_error,
    error::{to_result, VTABLE_DEFAULT_ERROR},
    prelude::*,
    str::CStr,
    sync::{aref::ARef, Arc},
    types::Opaque,
};

/// What never changes while a port is registered (`struct ib_port_immutable`).
#[derive(Clone, Copy, Debug)]
pub struct PortImmutable {
    /// Entries of the partition key table.
    pub pkey_tbl_len: i32,
    /// Entries of the GID table.
    pub gid_tbl_len: i32,
    /// Largest management datagram in bytes; 0 if there are none.
    pub max_mad_size: u32,
    /// Whether the port has the connection manager's management interface (GSI queue pair).
    pub has_mad: bool,
}

impl PortImmutable {
    pub(super) fn store(&self, raw: &mut ffi::ib_port_immutable) {
        raw.pkey_tbl_len = self.pkey_tbl_len;
        raw.gid_tbl_len = self.gid_tbl_len;
        raw.max_mad_size = self.max_mad_size;
        // RoCEv2: GIDs from IP addresses, UDP encapsulation. Without management datagrams all that
        // is left is the protocol, for which the core makes the GID table.
        raw.core_cap_flags = if self.has_mad {
            ffi::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP
        } else {
            ffi::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP
        };
    }
}

/// A driver of RoCEv2 devices on top of Ethernet ones.
///
/// Callbacks run in process context unless said otherwise. All callbacks of a device are over
/// before its [`Data`](Self::Data) is dropped.
#[vtable]
pub trait Driver: Sized + Send + Sync + 'static {
    /// `ib_device_ops.driver_id`, by which user space finds the provider library.
    const DRIVER_ID: u32;
    /// Version of the driver's part of commands.
    const ABI_VERSION: u32;
    /// Node description, at most 63 bytes.
    const NODE_DESC: &'static CStr;
    /// Counters of each port, read by [`read_port_stats`](Self::read_port_stats).
    const PORT_STATS: &'static [StatDesc] = &[];

    /// Per-device data.
    type Data: Send + Sync;
    /// Per-process data.
    type Ucontext: UcontextOps<Self>;
    /// Protection domains.
    type Pd: PdOps<Self>;
    /// Completion queues.
    type Cq: CqOps<Self>;
    /// Queue pairs.
    type Qp: QpOps<Self>;
    /// Memory regions.
    type Mr: MrOps<Self>;
    /// Memory windows, or [`Unsupported`](super::Unsupported).
    type Mw: MwOps<Self>;
    /// Shared receive queues, or [`Unsupported`](super::Unsupported).
    type Srq: SrqOps<Self>;
    /// Address handles, or [`Unsupported`](super::Unsupported).
    type Ah: AhOps<Self>;

    /// Limits and capabilities. Also called during registration.
    fn query_device(dev: &Device<Self>) -> Result<DeviceAttr>;

    /// State of a port.
    fn query_port(dev: &Device<Self>, port: u32) -> Result<PortAttr>;

    /// Fixed facts of a port. Called during registration.
    fn port_immutable(dev: &Device<Self>, port: u32) -> Result<PortImmutable>;

    /// A partition key.
    fn query_pkey(dev: &Device<Self>, port: u32, index: u16) -> Result<u16>;

    /// Link layer of a port.
    fn link_layer(_dev: &Device<Self>, _port: u32) -> LinkLayer {
        LinkLayer::Ethernet
    }

    /// A GID is about to be added to a port's table, which an error prevents.
    fn add_gid(_dev: &Device<Self>, _gid: &ChangingGid<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// A GID is about to leave a port's table.
    fn del_gid(_dev: &Device<Self>, _gid: &ChangingGid<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The device is registered; clients follow.
    fn enabled(_dev: &Device<Self>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// The device is about to be unregistered, at the wish of an administrator or because its
    /// network device goes away. Queue pairs should fail now: applications still see completions,
    /// which they no longer do once the core destroys their objects. Process context; may be called
    /// more than once.
    fn going_away(dev: &Device<Self>);

    /// Fills in the counters of a port.
    fn read_port_stats(_dev: &Device<Self>, _port: u32, _values: &mut StatValues<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// An RDMA device (`struct ib_device`) of driver `D`.
///
/// # Invariants
///
/// A shared reference exists only between the end of the `make` closure of
/// [`register`](Device::register) and `dealloc_driver`: `handle` and `data` are initialised. `ib`
/// is the first field, so a pointer to one is a pointer to the other.
#[repr(C)]
pub struct Device<D: Driver> {
    ib: Opaque<ffi::ib_device>,
    handle: MaybeUninit<Arc<DeviceHandle>>,
    data: MaybeUninit<D::Data>,
}

// SAFETY: The C object is reference counted and locked by the core; the rest is `Send`.
unsafe impl<D: Driver> Send for Device<D> {}
// SAFETY: As above.
unsafe impl<D: Driver> Sync for Device<D> {}

impl<D: Driver> Device<D> {
    /// # Safety
    ///
    /// `ib` must be a device of driver `D` that meets the type invariant for all of `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(ib: *const ffi::ib_device) -> &'a Self {
        // SAFETY: `ib` is the first field of an initialised `Self`.
        unsafe { &*ib.cast::<Self>() }
    }

    /// The C object.
    #[inline]
    pub(super) fn as_raw(&self) -> *mut ffi::ib_device {
        self.ib.get()
    }

    /// What the core calls on a device when its link is deleted (`nldev_dellink()`); the operations
    /// that add links are registered apart, in [`super::LinkRegistration`].
    const LINK_OPS: ffi::rdma_link_ops = ffi::rdma_link_ops {
        dellink: Some(Self::dellink),
        ..pin_init::zeroed()
    };

    unsafe extern "C" fn dellink(ib: *mut ffi::ib_device) -> kernel::ffi::c_int {
        // SAFETY: The core passes a registered device whose operations are these, so it is one of
        // `D`, and holds a registration reference during the call.
        D::going_away(unsafe { Self::from_raw(ib) });
        0
    }

    /// Allocates a device on top of `netdev`, in its namespace, lets `make` create its data, and
    /// registers it. From the moment `make` has returned callbacks may come. Process context.
    ///
    /// `name` is the device's name, or a pattern with `%d`.
    pub fn register(
        name: &CStr,
        netdev: &NetDev,
        make: impl FnOnce(&NewDevice<'_, D>) -> Result<D::Data>,
    ) -> Result {
        let size = core::mem::size_of::<Self>();
        // SAFETY: Caller holds `netdev`, which is what keeps its namespace; no other preconditions.
        let ib = unsafe { ffi::_ib_alloc_device(size, netdev.net()) };
        let ib = NonNull::new(ib).ok_or(ENOMEM)?.as_ptr();
        match Self::setup(ib, name, netdev, make) {
            Ok(()) => Ok(()),
            Err(e) => {
                // SAFETY: Registration did not succeed, so the device is still ours. Calls
                // `dealloc_driver` if the operations are set, which is when `data` is initialised.
                unsafe { ffi::ib_dealloc_device(ib) };
                Err(e)
            }
        }
    }

    fn setup(
        ib: *mut ffi::ib_device,
        name: &CStr,
        netdev: &NetDev,
        make: impl FnOnce(&NewDevice<'_, D>) -> Result<D::Data>,
    ) -> Result {
        let this = ib.cast::<Self>();
        let eui = netdev.eui64();
        // SAFETY: The device is not visible to anybody else yet.
        let raw = unsafe { &mut *ib };
        for (to, from) in raw.node_desc.iter_mut().zip(D::NODE_DESC.to_bytes()) {
            *to = *from as _;
        }
        raw.node_type = ffi::RDMA_NODE_IB_CA as u8;
        raw.phys_port_cnt = 1;
        raw.num_comp_vectors = 1;
        raw.link_ops = &Self::LINK_OPS;
        raw.node_guid = u64::from_ne_bytes(eui);
        // Queue pairs and completion queues of user space can be rung by a command.
        if D::Qp::HAS_DOORBELL || D::Qp::HAS_POST_SEND {
            raw.uverbs_cmd_mask |= 1 << ffi::IB_USER_VERBS_CMD_POST_SEND;
        }
        if D::Cq::HAS_REQ_NOTIFY {
            raw.uverbs_cmd_mask |= 1 << ffi::IB_USER_VERBS_CMD_REQ_NOTIFY_CQ;
        }

        let handle = Handle::new(ib)?;
        let new = NewDevice {
            ib,
            handle: &handle,
            eui,
            _driver: PhantomData::<D>,
        };
        let data = match make(&new) {
            Ok(data) => data,
            Err(e) => {
                handle.close_and_wait();
                return Err(e);
            }
        };
        // SAFETY: The memory has the size of `Self`, and nobody else uses it yet.
        unsafe { (&raw mut (*this).handle).write(MaybeUninit::new(handle)) };
        // SAFETY: As above.
        unsafe { (&raw mut (*this).data).write(MaybeUninit::new(data)) };

        // From here on `ib_dealloc_device()` drops both, through the operations.
        // SAFETY: `ib` is a new device, and the table is constant.
        unsafe { ffi::ib_set_device_ops(ib, &super::ops::Adapter::<D>::OPS) };
        // SAFETY: Both devices are alive; port 1 exists.
        to_result(unsafe { ffi::ib_device_set_netdev(ib, netdev.as_ptr(), 1) })?;
        // SAFETY: The device is complete. A null DMA device means that work requests carry kernel
        // addresses, as for every software device.
        to_result(unsafe {
            ffi::ib_register_device(
                ib,
                name.to_bytes_with_nul().as_ptr().cast(),
                core::ptr::null_mut(),
            )
        })
    }

    /// The end of a device.
    ///
    /// # Safety
    ///
    /// Only for `dealloc_driver`.
    pub(super) unsafe fn fini(ib: *mut ffi::ib_device) {
        let this = ib.cast::<Self>();
        // SAFETY: Initialised before the operations were set; read out only here.
        let handle = unsafe { (*this).handle.assume_init_read() };
        handle.close_and_wait();
        // SAFETY: Initialised before the operations were set; dropped only here.
        unsafe { (*this).data.assume_init_drop() };
    }

    /// The device of driver `D` on top of `netdev`, if there is one. Any context.
    pub fn get_by_netdev(netdev: &NetDev) -> Option<DeviceRef<D>> {
        // SAFETY: `netdev` is alive. The core takes a registration reference for us.
        let ib = unsafe { ffi::ib_device_get_by_netdev(netdev.as_ptr(), D::DRIVER_ID) };
        // INVARIANT: Driver ids are unique to drivers, so the device is one of `D`.
        NonNull::new(ib).map(|ib| DeviceRef {
            dev: ib.cast::<Self>(),
        })
    }

    /// The driver's data.
    #[inline]
    pub fn data(&self) -> &D::Data {
        // SAFETY: Initialised by the type invariant.
        unsafe { self.data.assume_init_ref() }
    }

    /// What may outlive the device.
    pub fn handle(&self) -> &Arc<DeviceHandle> {
        // SAFETY: Initialised by the type invariant.
        unsafe { self.handle.assume_init_ref() }
    }

    /// Its name. May change by renaming while it is read; for messages only.
    pub fn name(&self) -> &CStr {
        // SAFETY: The device is alive by the type invariant.
        let name = unsafe { ffi::mroce_ib_device_name(self.as_raw()) };
        // SAFETY: A NUL-terminated string that lives as long as the device.
        unsafe { CStr::from_char_ptr(name.cast()) }
    }

    /// The network device of a port, unless it is going away.
    pub fn netdev(&self, port: u32) -> Option<ARef<NetDev>> {
        // SAFETY: The device is alive. The core takes a reference for us.
        let dev = unsafe { ffi::ib_device_get_netdev(self.as_raw(), port) };
        // SAFETY: As said.
        unsafe { NetDev::from_raw_owned(dev) }
    }

    /// Speed and width of a port as its network device reports them.
    pub fn eth_speed(&self, port: u32) -> Result<(u16, u8)> {
        let (mut speed, mut width) = (0, 0);
        // SAFETY: The device is alive; the outputs are valid. Process context.
        to_result(unsafe { ffi::ib_get_eth_speed(self.as_raw(), port, &mut speed, &mut width) })?;
        Ok((speed, width))
    }

    /// Unregisters all devices of the driver. Process context.
    pub fn unregister_all() {
        // SAFETY: No preconditions; our devices have `dealloc_driver`.
        unsafe { ffi::ib_unregister_driver(D::DRIVER_ID) };
    }
}

/// A device while its driver creates its data.
pub struct NewDevice<'a, D: Driver> {
    ib: *mut ffi::ib_device,
    handle: &'a Arc<DeviceHandle>,
    eui: [u8; 8],
    _driver: PhantomData<D>,
}

impl<D: Driver> NewDevice<'_, D> {
    /// What may outlive the device.
    pub fn handle(&self) -> &Arc<DeviceHandle> {
        self.handle
    }

    /// The node's GUID in network byte order, made from the network device's address.
    pub fn guid(&self) -> [u8; 8] {
        self.eui
    }

    /// Sets the number of completion vectors (1 by default).
    pub fn set_comp_vectors(&self, n: u16) {
        // SAFETY: The device is not visible to anybody else yet.
        unsafe { (*self.ib).num_comp_vectors = n.into() };
    }
}

/// Keeps a device registered. Unregistering waits for it, so keep it briefly.
///
/// # Invariants
///
/// We own a registration reference (`ib_device_try_get()`) of `dev`, a device of driver `D`.
pub struct DeviceRef<D: Driver> {
    dev: NonNull<Device<D>>,
}

impl<D: Driver> DeviceRef<D> {
    /// Unregisters the device and waits until it is gone. Process context.
    pub fn unregister(self) {
        let ib = self.dev.cast().as_ptr();
        core::mem::forget(self);
        // SAFETY: Hands over our registration reference.
        unsafe { ffi::ib_unregister_device_and_put(ib) };
    }

    /// Starts unregistering the device in a work item. Process context.
    pub fn unregister_queued(&self) {
        D::going_away(self);
        // SAFETY: The device is registered as long as we own a reference.
        unsafe { ffi::ib_unregister_device_queued(self.dev.cast().as_ptr()) };
    }
}

impl<D: Driver> core::ops::Deref for DeviceRef<D> {
    type Target = Device<D>;

    fn deref(&self) -> &Device<D> {
        // SAFETY: A registered device is initialised.
        unsafe { self.dev.as_ref() }
    }
}

impl<D: Driver> Drop for DeviceRef<D> {
    fn drop(&mut self) {
        // SAFETY: Gives up our registration reference.
        unsafe { ffi::ib_device_put(self.dev.cast().as_ptr()) };
    }
}
