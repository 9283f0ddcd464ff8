// SPDX-License-Identifier: GPL-2.0

//! Work requests and completions of kernel clients.

use super::{Ah, Driver, QpHandle};
use crate::ffi::bindings as ffi;

/// An element of a gather or scatter list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address, in terms of the region's `iova`.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The region.
    pub lkey: u32,
}

/// # Safety
///
/// `list` must have `num` elements that stay valid for `'a`.
unsafe fn sges<'a>(list: *const ffi::ib_sge, num: kernel::ffi::c_int) -> &'a [ffi::ib_sge] {
    match usize::try_from(num) {
        // SAFETY: Valid by contract.
        Ok(n) if n > 0 && !list.is_null() => unsafe { core::slice::from_raw_parts(list, n) },
        _ => &[],
    }
}

fn to_sge(raw: &ffi::ib_sge) -> Sge {
    Sge {
        addr: raw.addr,
        length: raw.length,
        lkey: raw.lkey,
    }
}

/// A send request.
pub struct SendWr<'a> {
    raw: &'a ffi::ib_send_wr,
}

impl<'a> SendWr<'a> {
    pub(super) fn new(raw: &'a ffi::ib_send_wr) -> Self {
        Self { raw }
    }

    /// What the client wants back in the completion.
    pub fn wr_id(&self) -> u64 {
        // SAFETY: The union's two views are both a word.
        unsafe { self.raw.__bindgen_anon_1.wr_id }
    }

    /// `enum ib_wr_opcode`; those that user space has too have the same numbers there.
    pub fn opcode(&self) -> u32 {
        self.raw.opcode as u32
    }

    /// `enum ib_send_flags`, which are those of user space.
    pub fn flags(&self) -> u32 {
        self.raw.send_flags as u32
    }

    /// Gather list.
    pub fn sges(&self) -> impl ExactSizeIterator<Item = Sge> + 'a {
        // SAFETY: The client's list is valid as long as its request.
        let list = unsafe { sges::<'a>(self.raw.sg_list, self.raw.num_sge) };
        list.iter().map(to_sge)
    }

    /// Immediate data in network byte order, or the key to invalidate.
    pub fn ex(&self) -> u32 {
        // SAFETY: The union's two views are both a word.
        unsafe { self.raw.ex.invalidate_rkey }
    }

    /// Remote address and key of a read, write or atomic.
    pub fn rdma(&self) -> Option<(u64, u32)> {
        match self.raw.opcode {
            ffi::IB_WR_RDMA_WRITE | ffi::IB_WR_RDMA_WRITE_WITH_IMM | ffi::IB_WR_RDMA_READ => {
                // SAFETY: With these opcodes the request is embedded in a `struct ib_rdma_wr`.
                let wr = unsafe { &*core::ptr::from_ref(self.raw).cast::<ffi::ib_rdma_wr>() };
                Some((wr.remote_addr, wr.rkey))
            }
            _ => self.atomic().map(|wr| (wr.remote_addr, wr.rkey)),
        }
    }

    fn atomic(&self) -> Option<&ffi::ib_atomic_wr> {
        match self.raw.opcode {
            // SAFETY: With these opcodes the request is embedded in a `struct ib_atomic_wr`.
            ffi::IB_WR_ATOMIC_CMP_AND_SWP | ffi::IB_WR_ATOMIC_FETCH_AND_ADD => {
                Some(unsafe { &*core::ptr::from_ref(self.raw).cast::<ffi::ib_atomic_wr>() })
            }
            _ => None,
        }
    }

    /// Operands of an atomic: what to compare with or to add, and what to swap in.
    pub fn atomic_operands(&self) -> Option<(u64, u64)> {
        self.atomic().map(|wr| (wr.compare_add, wr.swap))
    }

    /// Address handle, QP number and Q_Key of a datagram.
    ///
    /// # Safety
    ///
    /// The request was posted on a datagram queue pair of a device of driver `D`.
    pub(super) unsafe fn ud<D: Driver>(&self) -> Option<(&Ah<D>, u32, u32)> {
        // SAFETY: Sends of datagram queue pairs are embedded in a `struct ib_ud_wr`.
        let wr = unsafe { &*core::ptr::from_ref(self.raw).cast::<ffi::ib_ud_wr>() };
        if wr.ah.is_null() {
            return None;
        }
        // SAFETY: The client keeps the handle until the request is complete.
        Some((
            unsafe { Ah::from_raw(wr.ah) },
            wr.remote_qpn,
            wr.remote_qkey,
        ))
    }

    /// Copies inline data, whose list has kernel addresses, to `to`; returns its length. `None` if it is
    /// longer.
    pub fn copy_inline(&self, to: &mut [u8]) -> Option<usize> {
        let mut used: usize = 0;
        for sge in self.sges() {
            let len = sge.length as usize;
            let room = to.get_mut(used..used.checked_add(len)?)?;
            // SAFETY: The client vouches for the range, and `room` is as long.
            unsafe {
                ffi::mroce_memcpy(room.as_mut_ptr().cast(), sge.addr as usize as *const _, len)
            };
            used = used.checked_add(len)?;
        }
        Some(used)
    }
}

/// A receive.
pub struct RecvWr<'a> {
    raw: &'a ffi::ib_recv_wr,
}

impl<'a> RecvWr<'a> {
    pub(super) fn new(raw: &'a ffi::ib_recv_wr) -> Self {
        Self { raw }
    }

    /// What the client wants back in the completion.
    pub fn wr_id(&self) -> u64 {
        // SAFETY: The union's two views are both a word.
        unsafe { self.raw.__bindgen_anon_1.wr_id }
    }

    /// Scatter list.
    pub fn sges(&self) -> impl ExactSizeIterator<Item = Sge> + 'a {
        // SAFETY: The client's list is valid as long as its request.
        let list = unsafe { sges::<'a>(self.raw.sg_list, self.raw.num_sge) };
        list.iter().map(to_sge)
    }
}

/// Status of a completion (`enum ib_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named as in the specification, 11.6.2.
pub enum WcStatus {
    Success,
    LocLenErr,
    LocQpOpErr,
    LocProtErr,
    WrFlushErr,
    MwBindErr,
    BadRespErr,
    LocAccessErr,
    RemInvReqErr,
    RemAccessErr,
    RemOpErr,
    RetryExcErr,
    RnrRetryExcErr,
    RemAbortErr,
    FatalErr,
    GeneralErr,
}

impl WcStatus {
    /// Its number in C and in user space.
    pub fn as_raw(self) -> u32 {
        match self {
            Self::Success => ffi::IB_WC_SUCCESS,
            Self::LocLenErr => ffi::IB_WC_LOC_LEN_ERR,
            Self::LocQpOpErr => ffi::IB_WC_LOC_QP_OP_ERR,
            Self::LocProtErr => ffi::IB_WC_LOC_PROT_ERR,
            Self::MwBindErr => ffi::IB_WC_MW_BIND_ERR,
            Self::WrFlushErr => ffi::IB_WC_WR_FLUSH_ERR,
            Self::BadRespErr => ffi::IB_WC_BAD_RESP_ERR,
            Self::LocAccessErr => ffi::IB_WC_LOC_ACCESS_ERR,
            Self::RemInvReqErr => ffi::IB_WC_REM_INV_REQ_ERR,
            Self::RemAccessErr => ffi::IB_WC_REM_ACCESS_ERR,
            Self::RemOpErr => ffi::IB_WC_REM_OP_ERR,
            Self::RetryExcErr => ffi::IB_WC_RETRY_EXC_ERR,
            Self::RnrRetryExcErr => ffi::IB_WC_RNR_RETRY_EXC_ERR,
            Self::RemAbortErr => ffi::IB_WC_REM_ABORT_ERR,
            Self::FatalErr => ffi::IB_WC_FATAL_ERR,
            Self::GeneralErr => ffi::IB_WC_GENERAL_ERR,
        }
    }
}

/// By what a datagram came (`enum rdma_network_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// A completion for a kernel client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wc {
    /// The request's.
    pub wr_id: u64,
    /// `enum ib_wc_status`.
    pub status: u32,
    /// `enum ib_wc_opcode`.
    pub opcode: u32,
    /// Bytes of a receive or read.
    pub byte_len: u32,
    /// Immediate data, network byte order.
    pub imm_data: Option<u32>,
    /// Key that the peer has invalidated.
    pub invalidated: Option<u32>,
    /// The sender's queue pair, for datagrams.
    pub src_qp: u32,
    /// A datagram's GRH is in front of the data, from this kind of network.
    pub network: Option<Network>,
    /// VLAN of a datagram.
    pub vlan: Option<u16>,
}

/// The array of a poll.
pub struct WcArray<'a> {
    slots: &'a mut [core::mem::MaybeUninit<ffi::ib_wc>],
    used: usize,
}

impl<'a> WcArray<'a> {
    /// # Safety
    ///
    /// `wcs` must be valid for writes of `num` entries for `'a`.
    pub(super) unsafe fn from_raw(wcs: *mut ffi::ib_wc, num: kernel::ffi::c_int) -> Self {
        let slots = match usize::try_from(num) {
            // SAFETY: Valid for writes by contract.
            Ok(n) if n > 0 => unsafe { core::slice::from_raw_parts_mut(wcs.cast(), n) },
            _ => &mut [],
        };
        Self { slots, used: 0 }
    }

    /// Entries still free.
    pub fn room(&self) -> usize {
        self.slots.len().saturating_sub(self.used)
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Adds a completion of the queue pair `qp`; `false` if there is no room.
    pub fn push(&mut self, qp: &QpHandle, wc: &Wc) -> bool {
        let Some(slot) = self.slots.get_mut(self.used) else {
            return false;
        };
        let mut raw: ffi::ib_wc = pin_init::zeroed();
        raw.__bindgen_anon_1.wr_id = wc.wr_id;
        raw.status = wc.status;
        raw.opcode = wc.opcode;
        raw.byte_len = wc.byte_len;
        raw.qp = qp.raw();
        raw.src_qp = wc.src_qp;
        raw.port_num = 1;
        let mut flags = 0;
        if let Some(imm) = wc.imm_data {
            raw.ex.imm_data = imm;
            flags |= ffi::IB_WC_WITH_IMM;
        }
        if let Some(key) = wc.invalidated {
            raw.ex.invalidate_rkey = key;
            flags |= ffi::IB_WC_WITH_INVALIDATE;
        }
        if let Some(network) = wc.network {
            raw.network_hdr_type = match network {
                Network::Ipv4 => ffi::RDMA_NETWORK_IPV4,
                Network::Ipv6 => ffi::RDMA_NETWORK_IPV6,
            } as u8;
            flags |= ffi::IB_WC_GRH | ffi::IB_WC_WITH_NETWORK_HDR_TYPE;
        }
        if let Some(vlan) = wc.vlan {
            raw.vlan_id = vlan;
            flags |= ffi::IB_WC_WITH_VLAN;
        }
        raw.wc_flags = flags as kernel::ffi::c_int;
        slot.write(raw);
        self.used += 1;
        true
    }
}
