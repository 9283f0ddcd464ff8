// SPDX-License-Identifier: GPL-2.0

//! The operations table: from the core's calls to the driver's traits.
//!
//! Every callback has the same shape: make the typed references, call the trait, turn the result
//! into what C wants. They rest on what the core promises:
//!
//! - The arguments are valid during the call, and objects belong to a device with this table, so
//!   their types are those of driver `D`.
//! - Create gets a zeroed object of the size in the table, that nobody else sees. Other callbacks
//!   get objects whose create succeeded. Destroy is the last, once.
//! - Parents (device, domain, completion queues) outlive their children.

use super::{
    mmap, wr::WcArray, Ah, AhAttr, AhOps, ChangingGid, Cq, CqInitAttr, CqOps, Device, Driver, Gid,
    LinkLayer, Mr, MrOps, MrRequest, Mw, MwOps, Notify, Pd, PdOps, Qp, QpAttr, QpAttrOut,
    QpInitAttr, QpMask, QpOps, RecvWr, SendWr, Srq, SrqAttr, SrqMask, SrqOps, StatDesc, StatValues,
    Ucontext, UcontextOps, Udata,
};
use crate::ffi::bindings as ffi;
use core::{marker::PhantomData, mem::size_of};
use kernel::{error::from_result, ffi::c_int, ffi::c_void, prelude::*, ModuleMetadata};

/// The callbacks of driver `D`.
pub(super) struct Adapter<D: Driver>(PhantomData<D>);

/// Makes the C result of a callback that has no value.
#[inline]
fn ret(f: impl FnOnce() -> Result) -> c_int {
    from_result(|| f().map(|()| 0))
}

/// For commands that have no driver-specific part, of which destroy ones are retried on error.
///
/// # Safety
///
/// `udata` must be null or valid during the call.
unsafe fn no_io(udata: *mut ffi::ib_udata) -> Result {
    // SAFETY: Valid by contract.
    match unsafe { Udata::from_raw(udata) } {
        Some(udata) => udata.no_io(),
        None => Ok(()),
    }
}

/// `Some($f)` if the driver defines the operation.
macro_rules! op {
    ($has:expr, $f:expr) => {
        if $has {
            Some($f)
        } else {
            None
        }
    };
}

impl<D: Driver> Adapter<D> {
    /// The table. What is not named, and what the driver does not define, is absent.
    pub(super) const OPS: ffi::ib_device_ops = ffi::ib_device_ops {
        owner: <D::OwnerModule as ModuleMetadata>::THIS_MODULE
            .as_ptr()
            .cast(),
        driver_id: D::DRIVER_ID,
        uverbs_abi_ver: D::ABI_VERSION,
        // Bit 0, uverbs_no_driver_id_binding, is for drivers older than the provider binding.
        // Bit 1, uverbs_robust_udata: `Udata` is checked and answered everywhere.
        _bitfield_1: ffi::__BindgenBitfieldUnit::new([0b10]),

        // Device and port
        query_device: Some(Self::query_device),
        query_port: Some(Self::query_port),
        query_pkey: Some(Self::query_pkey),
        get_port_immutable: Some(Self::get_port_immutable),
        get_link_layer: Some(Self::get_link_layer),
        add_gid: op!(D::HAS_ADD_GID, Self::add_gid),
        del_gid: op!(D::HAS_DEL_GID, Self::del_gid),
        enable_driver: op!(D::HAS_ENABLED, Self::enable_driver),
        dealloc_driver: Some(Self::dealloc_driver),
        alloc_hw_port_stats: op!(D::HAS_READ_PORT_STATS, Self::alloc_hw_port_stats),
        get_hw_stats: op!(D::HAS_READ_PORT_STATS, Self::get_hw_stats),
        // The core knows the network device from registration.
        get_netdev: None,
        // Only for InfiniBand and iWARP ports; on RoCE the core makes the table.
        query_gid: None,
        // No management interface below the queue pairs.
        process_mad: None,
        modify_device: None,
        modify_port: None,
        // New sysfs attributes are not allowed any more.
        device_group: core::ptr::null(),
        port_groups: core::ptr::null_mut(),

        // Contexts and mappings
        alloc_ucontext: Some(Self::alloc_ucontext),
        dealloc_ucontext: Some(Self::dealloc_ucontext),
        // Present: the device may go while processes have it open.
        disassociate_ucontext: Some(Self::disassociate_ucontext),
        mmap: Some(mmap::mmap),
        mmap_free: Some(mmap::mmap_free),

        // Domains
        alloc_pd: Some(Self::alloc_pd),
        dealloc_pd: Some(Self::dealloc_pd),

        // Address handles
        create_ah: op!(D::Ah::HAS_CREATE, Self::create_ah),
        create_user_ah: op!(D::Ah::HAS_CREATE, Self::create_ah),
        query_ah: op!(D::Ah::HAS_QUERY, Self::query_ah),
        destroy_ah: op!(D::Ah::HAS_CREATE, Self::destroy_ah),
        modify_ah: None,

        // Completion queues
        create_cq: op!(D::Cq::HAS_POLL, Self::create_cq),
        create_user_cq: Some(Self::create_user_cq),
        destroy_cq: Some(Self::destroy_cq),
        resize_user_cq: op!(D::Cq::HAS_RESIZE, Self::resize_user_cq),
        req_notify_cq: op!(D::Cq::HAS_REQ_NOTIFY, Self::req_notify_cq),
        poll_cq: op!(D::Cq::HAS_POLL, Self::poll_cq),

        // Queue pairs
        create_qp: Some(Self::create_qp),
        modify_qp: Some(Self::modify_qp),
        query_qp: Some(Self::query_qp),
        destroy_qp: Some(Self::destroy_qp),
        post_send: op!(D::Qp::HAS_DOORBELL || D::Qp::HAS_POST_SEND, Self::post_send),
        post_recv: op!(D::Qp::HAS_POST_RECV, Self::post_recv),
        attach_mcast: op!(D::Qp::HAS_ATTACH_MCAST, Self::attach_mcast),
        detach_mcast: op!(D::Qp::HAS_DETACH_MCAST, Self::detach_mcast),

        // Shared receive queues
        create_srq: op!(D::Srq::HAS_CREATE, Self::create_srq),
        modify_srq: op!(D::Srq::HAS_MODIFY, Self::modify_srq),
        query_srq: op!(D::Srq::HAS_QUERY, Self::query_srq),
        destroy_srq: op!(D::Srq::HAS_CREATE, Self::destroy_srq),
        post_srq_recv: op!(D::Srq::HAS_POST_RECV, Self::post_srq_recv),

        // Memory
        get_dma_mr: op!(D::Mr::HAS_GET_DMA, Self::get_dma_mr),
        reg_user_mr: Some(Self::reg_user_mr),
        dereg_mr: Some(Self::dereg_mr),
        reg_user_mr_dmabuf: None,
        rereg_user_mr: None,
        alloc_mr: None,
        map_mr_sg: None,
        advise_mr: None,
        alloc_mw: op!(D::Mw::HAS_ALLOC, Self::alloc_mw),
        dealloc_mw: op!(D::Mw::HAS_ALLOC, Self::dealloc_mw),

        size_ib_ucontext: size_of::<Ucontext<D>>(),
        size_ib_pd: size_of::<Pd<D>>(),
        size_ib_ah: size_of::<Ah<D>>(),
        size_ib_cq: size_of::<Cq<D>>(),
        size_ib_qp: size_of::<Qp<D>>(),
        size_ib_mw: size_of::<Mw<D>>(),
        size_ib_srq: size_of::<Srq<D>>(),
        ..pin_init::zeroed()
    };

    // ---- device and port

    unsafe extern "C" fn query_device(
        dev: *mut ffi::ib_device,
        attr: *mut ffi::ib_device_attr,
        udata: *mut ffi::ib_udata,
    ) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            unsafe { no_io(udata) }?;
            // SAFETY: Called with registered devices and during registration: `data` is set up.
            let got = D::query_device(unsafe { Device::<D>::from_raw(dev) })?;
            // SAFETY: Valid during the call.
            got.store(unsafe { &mut *attr });
            Ok(())
        })
    }

    unsafe extern "C" fn query_port(
        dev: *mut ffi::ib_device,
        port: u32,
        attr: *mut ffi::ib_port_attr,
    ) -> c_int {
        ret(|| {
            // SAFETY: See `query_device`.
            let got = D::query_port(unsafe { Device::<D>::from_raw(dev) }, port)?;
            // SAFETY: Valid during the call.
            got.store(unsafe { &mut *attr });
            Ok(())
        })
    }

    unsafe extern "C" fn query_pkey(
        dev: *mut ffi::ib_device,
        port: u32,
        index: u16,
        pkey: *mut u16,
    ) -> c_int {
        ret(|| {
            // SAFETY: See `query_device`.
            let got = D::query_pkey(unsafe { Device::<D>::from_raw(dev) }, port, index)?;
            // SAFETY: Valid during the call.
            unsafe { *pkey = got };
            Ok(())
        })
    }

    unsafe extern "C" fn get_port_immutable(
        dev: *mut ffi::ib_device,
        port: u32,
        immutable: *mut ffi::ib_port_immutable,
    ) -> c_int {
        ret(|| {
            // SAFETY: See `query_device`.
            let got = D::port_immutable(unsafe { Device::<D>::from_raw(dev) }, port)?;
            // SAFETY: Valid during the call.
            got.store(unsafe { &mut *immutable });
            Ok(())
        })
    }

    unsafe extern "C" fn get_link_layer(
        dev: *mut ffi::ib_device,
        port: u32,
    ) -> ffi::rdma_link_layer {
        // SAFETY: See `query_device`.
        match D::link_layer(unsafe { Device::<D>::from_raw(dev) }, port) {
            LinkLayer::Ethernet => ffi::IB_LINK_LAYER_ETHERNET,
            LinkLayer::InfiniBand => ffi::IB_LINK_LAYER_INFINIBAND,
        }
    }

    unsafe extern "C" fn add_gid(
        attr: *const ffi::ib_gid_attr,
        _context: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: Valid during the call.
        let dev = unsafe { (*attr).device };
        // SAFETY: The table belongs to a device whose data is set up.
        let dev = unsafe { Device::<D>::from_raw(dev) };
        // SAFETY: The entry does not change during the call.
        let gid = unsafe { ChangingGid::from_raw(attr) };
        ret(|| D::add_gid(dev, &gid))
    }

    unsafe extern "C" fn del_gid(
        attr: *const ffi::ib_gid_attr,
        _context: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: Valid during the call.
        let dev = unsafe { (*attr).device };
        // SAFETY: The table belongs to a device whose data is set up.
        let dev = unsafe { Device::<D>::from_raw(dev) };
        // SAFETY: The entry does not change during the call.
        let gid = unsafe { ChangingGid::from_raw(attr) };
        ret(|| D::del_gid(dev, &gid))
    }

    unsafe extern "C" fn enable_driver(dev: *mut ffi::ib_device) -> c_int {
        // SAFETY: Called during registration: `data` is set up.
        ret(|| D::enabled(unsafe { Device::<D>::from_raw(dev) }))
    }

    unsafe extern "C" fn dealloc_driver(dev: *mut ffi::ib_device) {
        // SAFETY: The last callback of a device.
        unsafe { Device::<D>::fini(dev) };
    }

    unsafe extern "C" fn alloc_hw_port_stats(
        _dev: *mut ffi::ib_device,
        _port: u32,
    ) -> *mut ffi::rdma_hw_stats {
        StatDesc::alloc(D::PORT_STATS)
    }

    unsafe extern "C" fn get_hw_stats(
        dev: *mut ffi::ib_device,
        stats: *mut ffi::rdma_hw_stats,
        port: u32,
        _index: c_int,
    ) -> c_int {
        from_result(|| {
            // The core asks for port 0 to get counters of the device, of which there are none.
            if port == 0 {
                return Err(EINVAL);
            }
            // SAFETY: The core holds the lock of the values during the call.
            let mut values = unsafe { StatValues::from_raw(stats) }?;
            // SAFETY: See `query_device`.
            D::read_port_stats(unsafe { Device::<D>::from_raw(dev) }, port, &mut values)?;
            Ok(values.count())
        })
    }

    // ---- contexts

    unsafe extern "C" fn alloc_ucontext(
        cx: *mut ffi::ib_ucontext,
        udata: *mut ffi::ib_udata,
    ) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            let udata = unsafe { Udata::from_raw(udata) }.ok_or(EINVAL)?;
            // SAFETY: A new object.
            unsafe { Ucontext::<D>::init(cx, |new| D::Ucontext::alloc(new, udata)) }
        })
    }

    unsafe extern "C" fn dealloc_ucontext(cx: *mut ffi::ib_ucontext) {
        // SAFETY: Alive until `fini`.
        let this = unsafe { Ucontext::<D>::from_raw(cx) };
        this.data().dealloc(this);
        // SAFETY: The last callback of the object.
        unsafe { Ucontext::<D>::fini(cx) };
    }

    unsafe extern "C" fn disassociate_ucontext(_cx: *mut ffi::ib_ucontext) {
        // Nothing of ours is mapped that would vanish with the device: rings are plain memory.
    }

    // ---- domains

    unsafe extern "C" fn alloc_pd(pd: *mut ffi::ib_pd, udata: *mut ffi::ib_udata) -> c_int {
        // SAFETY: Valid during the call.
        let udata = unsafe { Udata::from_raw(udata) };
        // SAFETY: A new object.
        ret(|| unsafe { Pd::<D>::init(pd, |new| D::Pd::alloc(new, udata)) })
    }

    unsafe extern "C" fn dealloc_pd(pd: *mut ffi::ib_pd, udata: *mut ffi::ib_udata) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            unsafe { no_io(udata) }?;
            // SAFETY: Alive until `fini`.
            let this = unsafe { Pd::<D>::from_raw(pd) };
            this.data().dealloc(this);
            // SAFETY: The last callback of the object, as it succeeds.
            unsafe { Pd::<D>::fini(pd) };
            Ok(())
        })
    }

    // ---- address handles

    unsafe extern "C" fn create_ah(
        ah: *mut ffi::ib_ah,
        init: *mut ffi::rdma_ah_init_attr,
        udata: *mut ffi::ib_udata,
    ) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            let udata = unsafe { Udata::from_raw(udata) };
            // SAFETY: Valid during the call.
            let init = unsafe { &*init };
            // SAFETY: Valid during the call.
            let attr = AhAttr::new(unsafe { &*init.ah_attr });
            let may_sleep = init.flags & ffi::RDMA_CREATE_AH_SLEEPABLE != 0;
            // SAFETY: A new object.
            unsafe { Ah::<D>::init(ah, |new| D::Ah::create(new, &attr, may_sleep, udata)) }
        })
    }

    unsafe extern "C" fn query_ah(ah: *mut ffi::ib_ah, attr: *mut ffi::rdma_ah_attr) -> c_int {
        ret(|| {
            // SAFETY: Alive.
            let this = unsafe { Ah::<D>::from_raw(ah) };
            let values = this.data().query(this)?;
            // SAFETY: Valid during the call.
            values.store(unsafe { &mut *attr });
            Ok(())
        })
    }

    unsafe extern "C" fn destroy_ah(ah: *mut ffi::ib_ah, _flags: u32) -> c_int {
        // SAFETY: The last callback of the object.
        unsafe { Ah::<D>::fini(ah) };
        0
    }

    // ---- completion queues

    unsafe extern "C" fn create_cq(
        cq: *mut ffi::ib_cq,
        attr: *const ffi::ib_cq_init_attr,
        _attrs: *mut ffi::uverbs_attr_bundle,
    ) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            let attr = unsafe { CqInitAttr::from_raw(attr) };
            // SAFETY: A new object.
            unsafe { Cq::<D>::init(cq, |new| D::Cq::create(new, &attr, None)) }
        })
    }

    unsafe extern "C" fn create_user_cq(
        cq: *mut ffi::ib_cq,
        attr: *const ffi::ib_cq_init_attr,
        attrs: *mut ffi::uverbs_attr_bundle,
    ) -> c_int {
        ret(|| {
            // SAFETY: User space's variant always comes with attributes.
            let udata = unsafe { ffi::mroce_attrs_udata(attrs) };
            // SAFETY: Valid during the call.
            let udata = unsafe { Udata::from_raw(udata) };
            // SAFETY: Valid during the call.
            let attr = unsafe { CqInitAttr::from_raw(attr) };
            // SAFETY: A new object.
            unsafe { Cq::<D>::init(cq, |new| D::Cq::create(new, &attr, udata)) }
        })
    }

    unsafe extern "C" fn destroy_cq(cq: *mut ffi::ib_cq, udata: *mut ffi::ib_udata) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            unsafe { no_io(udata) }?;
            // SAFETY: Alive until `fini`.
            let this = unsafe { Cq::<D>::from_raw(cq) };
            this.data().destroy(this);
            // SAFETY: The last callback of the object, as it succeeds.
            unsafe { Cq::<D>::fini(cq) };
            Ok(())
        })
    }

    unsafe extern "C" fn resize_user_cq(
        cq: *mut ffi::ib_cq,
        cqe: kernel::ffi::c_uint,
        udata: *mut ffi::ib_udata,
    ) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            let udata = unsafe { Udata::from_raw(udata) }.ok_or(EINVAL)?;
            // SAFETY: Alive.
            let this = unsafe { Cq::<D>::from_raw(cq) };
            let cqe = this.data().resize(this, cqe, udata)?;
            // SAFETY: Alive, and the core lets only one command at a time change it.
            unsafe { (*cq).cqe = c_int::try_from(cqe).unwrap_or(c_int::MAX) };
            Ok(())
        })
    }

    unsafe extern "C" fn req_notify_cq(
        cq: *mut ffi::ib_cq,
        flags: ffi::ib_cq_notify_flags,
    ) -> c_int {
        from_result(|| {
            // SAFETY: Alive.
            let this = unsafe { Cq::<D>::from_raw(cq) };
            let missed = this.data().req_notify(this, Notify::from_raw(flags))?;
            Ok(c_int::from(missed))
        })
    }

    unsafe extern "C" fn poll_cq(cq: *mut ffi::ib_cq, num: c_int, wcs: *mut ffi::ib_wc) -> c_int {
        from_result(|| {
            // SAFETY: Alive.
            let this = unsafe { Cq::<D>::from_raw(cq) };
            // SAFETY: The client lends room for `num` completions.
            let mut wcs = unsafe { WcArray::from_raw(wcs, num) };
            this.data().poll(this, &mut wcs)?;
            // At most `num`.
            Ok(wcs.used() as c_int)
        })
    }

    // ---- queue pairs

    unsafe extern "C" fn create_qp(
        qp: *mut ffi::ib_qp,
        attr: *mut ffi::ib_qp_init_attr,
        udata: *mut ffi::ib_udata,
    ) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            let udata = unsafe { Udata::from_raw(udata) };
            // SAFETY: Valid during the call.
            let mut attr = QpInitAttr::new(unsafe { &mut *attr });
            // SAFETY: A new object.
            unsafe { Qp::<D>::init(qp, |new| D::Qp::create(new, &mut attr, udata)) }
        })
    }

    unsafe extern "C" fn modify_qp(
        qp: *mut ffi::ib_qp,
        attr: *mut ffi::ib_qp_attr,
        mask: c_int,
        udata: *mut ffi::ib_udata,
    ) -> c_int {
        ret(|| {
            // SAFETY: Alive.
            let this = unsafe { Qp::<D>::from_raw(qp) };
            // SAFETY: Valid during the call.
            let udata = unsafe { Udata::from_raw(udata) };
            // SAFETY: Valid during the call.
            let attr = QpAttr::new(unsafe { &*attr }, QpMask::from_raw(mask));
            this.data().modify(this, &attr, udata)
        })
    }

    unsafe extern "C" fn query_qp(
        qp: *mut ffi::ib_qp,
        attr: *mut ffi::ib_qp_attr,
        mask: c_int,
        init: *mut ffi::ib_qp_init_attr,
    ) -> c_int {
        ret(|| {
            // SAFETY: Alive.
            let this = unsafe { Qp::<D>::from_raw(qp) };
            // SAFETY: Valid during the call.
            let attr = unsafe { &mut *attr };
            // SAFETY: Valid during the call, and another structure than `attr`.
            let init = unsafe { &mut *init };
            let mut out = QpAttrOut::new(attr, init);
            this.data().query(this, &mut out, QpMask::from_raw(mask))
        })
    }

    unsafe extern "C" fn destroy_qp(qp: *mut ffi::ib_qp, udata: *mut ffi::ib_udata) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            unsafe { no_io(udata) }?;
            // SAFETY: Alive until `fini`.
            let this = unsafe { Qp::<D>::from_raw(qp) };
            this.data().destroy(this);
            // SAFETY: The last callback of the object, as it succeeds.
            unsafe { Qp::<D>::fini(qp) };
            Ok(())
        })
    }

    unsafe extern "C" fn post_send(
        qp: *mut ffi::ib_qp,
        mut wr: *const ffi::ib_send_wr,
        bad: *mut *const ffi::ib_send_wr,
    ) -> c_int {
        ret(|| {
            // SAFETY: Alive.
            let this = unsafe { Qp::<D>::from_raw(qp) };
            let mut result = Ok(());
            // An empty list is how user space rings.
            let mut ring = wr.is_null();
            let from_user = ring;
            while !wr.is_null() {
                // SAFETY: The list is valid during the call.
                let raw = unsafe { &*wr };
                result = if this.is_user() || !D::Qp::HAS_POST_SEND {
                    // User space posts through its ring; a request in the command is a mistake.
                    Err(EINVAL)
                } else {
                    this.data().post_send(this, &SendWr::new(raw))
                };
                if result.is_err() {
                    // SAFETY: Valid during the call.
                    unsafe { *bad = wr };
                    break;
                }
                ring = true;
                wr = raw.next;
            }
            if ring && D::Qp::HAS_DOORBELL {
                let rung = this.data().doorbell(this);
                if from_user {
                    result = rung;
                }
                // What a kernel client has posted is posted: the queue pair's state takes care of
                // it, and there is no request to blame.
            }
            result
        })
    }

    unsafe extern "C" fn post_recv(
        qp: *mut ffi::ib_qp,
        mut wr: *const ffi::ib_recv_wr,
        bad: *mut *const ffi::ib_recv_wr,
    ) -> c_int {
        ret(|| {
            // SAFETY: Alive.
            let this = unsafe { Qp::<D>::from_raw(qp) };
            while !wr.is_null() {
                // SAFETY: The list is valid during the call.
                let raw = unsafe { &*wr };
                let result = if this.is_user() {
                    Err(EINVAL)
                } else {
                    this.data().post_recv(this, &RecvWr::new(raw))
                };
                if let Err(e) = result {
                    // SAFETY: Valid during the call.
                    unsafe { *bad = wr };
                    return Err(e);
                }
                wr = raw.next;
            }
            Ok(())
        })
    }

    unsafe extern "C" fn attach_mcast(
        qp: *mut ffi::ib_qp,
        gid: *mut ffi::ib_gid,
        lid: u16,
    ) -> c_int {
        ret(|| {
            // SAFETY: Alive.
            let this = unsafe { Qp::<D>::from_raw(qp) };
            // SAFETY: Valid during the call.
            let gid = Gid::from_raw(unsafe { &*gid });
            this.data().attach_mcast(this, gid, lid)
        })
    }

    unsafe extern "C" fn detach_mcast(
        qp: *mut ffi::ib_qp,
        gid: *mut ffi::ib_gid,
        lid: u16,
    ) -> c_int {
        ret(|| {
            // SAFETY: Alive.
            let this = unsafe { Qp::<D>::from_raw(qp) };
            // SAFETY: Valid during the call.
            let gid = Gid::from_raw(unsafe { &*gid });
            this.data().detach_mcast(this, gid, lid)
        })
    }

    // ---- shared receive queues

    unsafe extern "C" fn create_srq(
        srq: *mut ffi::ib_srq,
        init: *mut ffi::ib_srq_init_attr,
        udata: *mut ffi::ib_udata,
    ) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            let udata = unsafe { Udata::from_raw(udata) };
            // SAFETY: Valid during the call.
            let raw = unsafe { &mut (*init).attr };
            let mut attr = SrqAttr::from_raw(raw);
            // SAFETY: A new object.
            unsafe { Srq::<D>::init(srq, |new| D::Srq::create(new, &mut attr, udata)) }?;
            attr.store(raw);
            Ok(())
        })
    }

    unsafe extern "C" fn modify_srq(
        srq: *mut ffi::ib_srq,
        attr: *mut ffi::ib_srq_attr,
        mask: ffi::ib_srq_attr_mask,
        udata: *mut ffi::ib_udata,
    ) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            let udata = unsafe { Udata::from_raw(udata) };
            // SAFETY: Valid during the call.
            let attr = SrqAttr::from_raw(unsafe { &*attr });
            let mask = SrqMask {
                max_wr: mask & ffi::IB_SRQ_MAX_WR != 0,
                limit: mask & ffi::IB_SRQ_LIMIT != 0,
            };
            // SAFETY: Alive.
            let this = unsafe { Srq::<D>::from_raw(srq) };
            this.data().modify(this, &attr, mask, udata)
        })
    }

    unsafe extern "C" fn query_srq(srq: *mut ffi::ib_srq, attr: *mut ffi::ib_srq_attr) -> c_int {
        ret(|| {
            // SAFETY: Alive.
            let this = unsafe { Srq::<D>::from_raw(srq) };
            let got = this.data().query(this)?;
            // SAFETY: Valid during the call.
            got.store(unsafe { &mut *attr });
            Ok(())
        })
    }

    unsafe extern "C" fn destroy_srq(srq: *mut ffi::ib_srq, udata: *mut ffi::ib_udata) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            unsafe { no_io(udata) }?;
            // SAFETY: Alive until `fini`.
            let this = unsafe { Srq::<D>::from_raw(srq) };
            this.data().destroy(this);
            // SAFETY: The last callback of the object, as it succeeds.
            unsafe { Srq::<D>::fini(srq) };
            Ok(())
        })
    }

    unsafe extern "C" fn post_srq_recv(
        srq: *mut ffi::ib_srq,
        mut wr: *const ffi::ib_recv_wr,
        bad: *mut *const ffi::ib_recv_wr,
    ) -> c_int {
        ret(|| {
            // SAFETY: Alive.
            let this = unsafe { Srq::<D>::from_raw(srq) };
            while !wr.is_null() {
                // SAFETY: The list is valid during the call.
                let raw = unsafe { &*wr };
                if let Err(e) = this.data().post_recv(this, &RecvWr::new(raw)) {
                    // SAFETY: Valid during the call.
                    unsafe { *bad = wr };
                    return Err(e);
                }
                wr = raw.next;
            }
            Ok(())
        })
    }

    // ---- memory

    unsafe extern "C" fn get_dma_mr(pd: *mut ffi::ib_pd, access: c_int) -> *mut ffi::ib_mr {
        let make = || {
            // SAFETY: Alive.
            let pd = unsafe { Pd::<D>::from_raw(pd) };
            let drv = D::Mr::get_dma(pd, access as u32)?;
            Mr::<D>::new(pd, drv, 0, u64::MAX)
        };
        make().unwrap_or_else(|e: Error| e.to_ptr())
    }

    unsafe extern "C" fn reg_user_mr(
        pd: *mut ffi::ib_pd,
        start: u64,
        length: u64,
        iova: u64,
        access: c_int,
        dmah: *mut ffi::ib_dmah,
        udata: *mut ffi::ib_udata,
    ) -> *mut ffi::ib_mr {
        let make = || {
            // Placement hints for hardware.
            if !dmah.is_null() {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: Valid during the call.
            let udata = unsafe { Udata::from_raw(udata) }.ok_or(EINVAL)?;
            // SAFETY: Alive.
            let pd = unsafe { Pd::<D>::from_raw(pd) };
            let request = MrRequest {
                start,
                length,
                iova,
                access: access as u32,
            };
            let drv = D::Mr::reg_user(pd, &request, udata)?;
            Mr::<D>::new(pd, drv, iova, length)
        };
        make().unwrap_or_else(|e: Error| e.to_ptr())
    }

    unsafe extern "C" fn alloc_mw(mw: *mut ffi::ib_mw, udata: *mut ffi::ib_udata) -> c_int {
        // SAFETY: Valid during the call.
        let udata = unsafe { Udata::from_raw(udata) };
        // SAFETY: A new object.
        ret(|| unsafe { Mw::<D>::init(mw, |new| D::Mw::alloc(new, udata)) })
    }

    unsafe extern "C" fn dealloc_mw(mw: *mut ffi::ib_mw) -> c_int {
        // SAFETY: Alive until `fini`.
        let this = unsafe { Mw::<D>::from_raw(mw) };
        this.data().dealloc(this);
        // SAFETY: The last callback of the object.
        unsafe { Mw::<D>::fini(mw) };
        0
    }

    unsafe extern "C" fn dereg_mr(mr: *mut ffi::ib_mr, udata: *mut ffi::ib_udata) -> c_int {
        ret(|| {
            // SAFETY: Valid during the call.
            unsafe { no_io(udata) }?;
            // SAFETY: Alive until taken.
            let this = unsafe { Mr::<D>::from_raw(mr) };
            this.data().dereg(this)?;
            // SAFETY: The last callback of the object, as it succeeds.
            drop(unsafe { Mr::<D>::take(mr) });
            Ok(())
        })
    }
}
