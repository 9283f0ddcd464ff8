// SPDX-License-Identifier: GPL-2.0

//! The device: limits, port state, tables.

use super::{
    ah::{AhObject, AhTable},
    cq::CqObject,
    key, limits,
    mr::{Mr, MrObject},
    mw::{Mw, MwObject},
    pd::{PdObject, UcontextObject},
    qp::Qp,
    qp_modify::QpObject,
    srq::SrqObject,
    Transport,
};
use crate::{
    abi,
    rdma::{
        self, access, port_cap, DeviceAttr, Mtu, NewDevice, PhysState, PortAttr, PortImmutable,
        PortState,
    },
    sync::{Delayed, DelayedCall, KeyTable, NetDev, Slot},
    BoundTransport,
};
use kernel::{
    new_mutex,
    prelude::*,
    str::CStr,
    sync::{aref::ARef, Arc, Mutex},
};

type Port = <BoundTransport as Transport>::Port;

/// A device as its objects hold it.
#[pin_data]
pub struct Device {
    guid: [u8; 8],
    /// Its going away unregisters the device, which gives the reference back.
    netdev: ARef<NetDev>,
    port: Arc<Port>,
    /// By index, see [`super::key`].
    #[pin]
    pub(super) mrs: KeyTable<Mr>,
    /// By index, see [`super::key`].
    #[pin]
    pub(super) mws: KeyTable<Mw>,
    /// By number.
    #[pin]
    pub(super) qps: KeyTable<Qp>,
    #[pin]
    pub(super) ahs: AhTable,
}

impl Device {
    /// The transport's part.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// The network device.
    pub fn netdev(&self) -> &NetDev {
        &self.netdev
    }

    /// Moves every QP to the error state, so that applications see their work requests flushed.
    /// Process context.
    fn fail_all(&self) {
        for qp in self.all_qps() {
            qp.enter_error();
        }
    }

    /// Moves the QPs whose completion queue has overrun to the error state. Process context.
    fn fail_overrun(&self) {
        for qp in self.all_qps() {
            qp.fail_overrun();
        }
    }

    /// All QPs, for what takes locks that must not nest in the table's. A QP for which there is no
    /// memory is left out.
    fn all_qps(&self) -> KVec<Arc<Qp>> {
        let mut qps = KVec::new();
        self.qps.for_each(|_, qp| {
            let _ = qps.push(qp.clone(), GFP_ATOMIC);
        });
        qps
    }

    /// A QP by its number. Any context.
    pub fn qp(&self, qpn: u32) -> Option<Arc<Qp>> {
        self.qps.get(qpn)
    }

    /// A region by its key. Any context.
    pub(super) fn mr(&self, key: u32) -> Option<Arc<Mr>> {
        if key::names_window(key) {
            return None;
        }
        self.mrs.get(key::index(key)).filter(|mr| mr.key() == key)
    }

    /// The window that a key, bound or not, is one of. Any context.
    pub(super) fn mw(&self, key: u32) -> Option<Arc<Mw>> {
        if !key::names_window(key) {
            return None;
        }
        self.mws.get(key::index(key))
    }
}

/// All devices of the module.
#[pin_data]
pub struct Devices {
    #[pin]
    list: Mutex<KVec<Arc<Device>>>,
    failer: Delayed<Failer>,
}

/// Fails QPs whose completions were lost. In process context, as the loss may be noticed under any lock.
struct Failer;

impl DelayedCall for Failer {
    fn run() -> Option<u32> {
        let devices = DEVICES.get()?;
        for dev in devices.list.lock().iter() {
            dev.fail_overrun();
        }
        None
    }
}

/// Set while the module is loaded.
pub static DEVICES: Slot<Devices> = Slot::new();

impl Devices {
    /// None yet.
    pub fn new() -> Result<Arc<Self>> {
        let failer = Delayed::new()?;
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new(), "metaroce devices"),
                failer,
            }),
            GFP_KERNEL,
        )
    }

    /// Moves the QPs whose completion queue has overrun to the error state, soon. Any context.
    pub(super) fn fail_later(&self) {
        self.failer.queue(0);
    }

    /// Stops what may be queued; part of unloading. Process context.
    pub fn shutdown(&self) {
        self.failer.shutdown();
    }

    /// Moves every QP of every device to the error state. Process context.
    pub fn fail_all(&self) {
        for dev in self.list.lock().iter() {
            dev.fail_all();
        }
    }
}

/// The core's device.
pub struct DeviceData {
    dev: Arc<Device>,
}

impl DeviceData {
    /// Brings the device on `netdev` up.
    pub fn new(new: &NewDevice<'_, Driver>, netdev: &NetDev) -> Result<Self> {
        let port = BoundTransport::open(netdev, new.guid())?;
        let for_device = port.clone();
        let dev = Arc::pin_init(
            pin_init!(Device {
                guid: new.guid(),
                netdev: netdev.into(),
                port: for_device,
                mrs <- KeyTable::new(c"metaroce mrs"),
                mws <- KeyTable::new(c"metaroce mws"),
                qps <- KeyTable::new(c"metaroce qps"),
                ahs <- AhTable::new(),
            }),
            GFP_KERNEL,
        );
        let this = match dev {
            Ok(dev) => Self { dev },
            Err(e) => {
                BoundTransport::close(&port);
                return Err(e.into());
            }
        };
        let devices = DEVICES.get().ok_or(ENODEV)?;
        devices.list.lock().push(this.dev.clone(), GFP_KERNEL)?;
        Ok(this)
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.dev
    }

    /// The transport's part.
    pub fn port(&self) -> &Arc<Port> {
        &self.dev.port
    }
}

impl Drop for DeviceData {
    fn drop(&mut self) {
        if let Some(devices) = DEVICES.get() {
            let ours = |dev: &Arc<Device>| Arc::ptr_eq(dev, &self.dev);
            devices.list.lock().retain(|dev| !ours(dev));
        }
        BoundTransport::close(&self.dev.port);
    }
}

/// Our part of a core device.
pub(crate) fn device_of(rdev: &rdma::Device<Driver>) -> &Arc<Device> {
    &rdev.data().dev
}

/// Adds a device called `name` on `netdev`. Process context.
pub fn newlink(name: &CStr, netdev: &NetDev) -> Result {
    if rdma::Device::<Driver>::get_by_netdev(netdev).is_some() {
        return Err(EEXIST);
    }
    rdma::Device::<Driver>::register(name, netdev, |new| DeviceData::new(new, netdev))
}

/// Bytes of a management datagram (`IB_MGMT_MAD_SIZE`).
const MAD_SIZE: u32 = 256;
/// The default partition, full member (IB specification 10.9.1.2); there is no other.
const DEFAULT_PKEY: u16 = 0xffff;

/// Our set of objects, for the seam to the core.
pub struct Driver;

#[vtable]
impl rdma::Driver for Driver {
    const DRIVER_ID: u32 = abi::DRIVER_ID;
    const ABI_VERSION: u32 = abi::ABI_VERSION;
    const NODE_DESC: &'static CStr = c"metaroce";

    const PORT_STATS: &'static [rdma::StatDesc] = BoundTransport::COUNTERS;

    type Data = DeviceData;
    type Ucontext = UcontextObject;
    type Pd = PdObject;
    type Cq = CqObject;
    type Qp = QpObject;
    type Mr = MrObject;
    type Mw = MwObject;
    type Srq = SrqObject;
    type Ah = AhObject;

    fn query_device(dev: &rdma::Device<Self>) -> Result<DeviceAttr> {
        let rd_atomic = u32::from(limits::MAX_RD_ATOMIC);
        Ok(DeviceAttr {
            fw_ver: 1 << 32,
            sys_image_guid: device_of(dev).guid,
            // A locally administered value: no vendor stands behind it.
            vendor_id: 0x00ff_ffff,
            hw_ver: 1,
            max_mr_size: limits::MAX_MR_SIZE,
            // Any power of two from 4 KiB: regions are lists of pages.
            page_size_cap: !0xfff,
            max_qp: limits::MAX_QP,
            max_qp_wr: limits::MAX_QP_WR,
            max_send_sge: limits::MAX_SGE,
            max_recv_sge: limits::MAX_SGE,
            max_sge_rd: limits::MAX_SGE,
            max_cq: limits::MAX_CQ,
            max_cqe: limits::MAX_CQE,
            max_mr: limits::MAX_MR,
            max_mw: limits::MAX_MW,
            max_pd: limits::MAX_PD,
            max_qp_rd_atom: rd_atomic,
            max_qp_init_rd_atom: rd_atomic,
            max_res_rd_atom: limits::MAX_QP.saturating_mul(rd_atomic),
            // Atomic with respect to the CPUs too: they are CPU instructions on the page.
            atomic_cap: rdma::AtomicCap::Global,
            device_cap_flags: limits::CAP_FLAGS,
            max_srq: limits::MAX_SRQ,
            max_srq_wr: limits::MAX_SRQ_WR,
            max_srq_sge: limits::MAX_SGE,
            max_pkeys: 1,
            max_ah: limits::MAX_AH,
            local_ca_ack_delay: 15,
            ..DeviceAttr::default()
        })
    }

    fn query_port(dev: &rdma::Device<Self>, port: u32) -> Result<PortAttr> {
        if port != 1 {
            return Err(EINVAL);
        }
        let netdev = dev.netdev(1);
        let mtu = netdev.as_ref().map_or(0, |nd| nd.mtu());
        let (state, phys_state) = match netdev.as_ref() {
            Some(nd) if nd.is_up() && nd.has_carrier() => (PortState::Active, PhysState::LinkUp),
            Some(nd) if nd.is_up() => (PortState::Down, PhysState::Polling),
            _ => (PortState::Down, PhysState::Disabled),
        };
        // Unknown speeds (virtual links) are not an error: one lane of the slowest kind.
        let (active_speed, active_width) = dev.eth_speed(1).unwrap_or((1, 1));
        Ok(PortAttr {
            state,
            phys_state,
            max_mtu: Some(Mtu::B4096),
            active_mtu: Some(device_of(dev).payload_mtu()),
            phys_mtu: mtu,
            gid_tbl_len: limits::GID_TABLE_LEN,
            pkey_tbl_len: 1,
            port_cap_flags: port_cap::CM,
            max_msg_sz: limits::MAX_MSG_SIZE,
            active_speed,
            active_width,
        })
    }

    fn port_immutable(_dev: &rdma::Device<Self>, _port: u32) -> Result<PortImmutable> {
        Ok(PortImmutable {
            pkey_tbl_len: 1,
            gid_tbl_len: limits::GID_TABLE_LEN,
            max_mad_size: MAD_SIZE,
            has_mad: true,
        })
    }

    fn going_away(dev: &rdma::Device<Self>) {
        device_of(dev).fail_all();
    }

    fn read_port_stats(
        dev: &rdma::Device<Self>,
        _port: u32,
        values: &mut rdma::StatValues<'_>,
    ) -> Result {
        BoundTransport::read_counters(device_of(dev).port(), &mut |index, value| {
            values.set(index, value);
        });
        Ok(())
    }

    fn add_gid(dev: &rdma::Device<Self>, gid: &rdma::ChangingGid<'_>) -> Result {
        let netdev = gid.netdev().ok_or(ENODEV)?;
        BoundTransport::add_address(device_of(dev), gid.gid().0, gid.index(), &netdev)
    }

    fn del_gid(dev: &rdma::Device<Self>, gid: &rdma::ChangingGid<'_>) -> Result {
        BoundTransport::del_address(device_of(dev), gid.gid().0, gid.index());
        Ok(())
    }

    fn query_pkey(_dev: &rdma::Device<Self>, port: u32, index: u16) -> Result<u16> {
        match (port, index) {
            (1, 0) => Ok(DEFAULT_PKEY),
            _ => Err(EINVAL),
        }
    }
}

/// Rights that a QP can be given. That to flush for persistence has no effect: no region grants it.
pub(super) const QP_ACCESS: u32 = access::LOCAL_WRITE
    | access::REMOTE_WRITE
    | access::REMOTE_READ
    | access::REMOTE_ATOMIC
    | access::MW_BIND
    | access::FLUSH_GLOBAL
    | access::FLUSH_PERSISTENT
    | access::OPTIONAL;
