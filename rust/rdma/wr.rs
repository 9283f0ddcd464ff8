// SPDX-License-Identifier: GPL-2.0

//! Work requests and completions of kernel clients.

use super::QpHandle;
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

/// Opcode of a send request (`enum ib_wr_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrOpcode {
    /// Send.
    Send,
    /// Send with immediate data.
    SendImm,
    /// Write.
    Write,
    /// Write with immediate data.
    WriteImm,
    /// Read.
    Read,
    /// Compare and swap.
    CmpSwap,
    /// Fetch and add.
    FetchAdd,
    /// Anything else, by its number in C.
    Other(u32),
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

    /// Opcode.
    pub fn opcode(&self) -> WrOpcode {
        match self.raw.opcode {
            ffi::IB_WR_SEND => WrOpcode::Send,
            ffi::IB_WR_SEND_WITH_IMM => WrOpcode::SendImm,
            ffi::IB_WR_RDMA_WRITE => WrOpcode::Write,
            ffi::IB_WR_RDMA_WRITE_WITH_IMM => WrOpcode::WriteImm,
            ffi::IB_WR_RDMA_READ => WrOpcode::Read,
            ffi::IB_WR_ATOMIC_CMP_AND_SWP => WrOpcode::CmpSwap,
            ffi::IB_WR_ATOMIC_FETCH_AND_ADD => WrOpcode::FetchAdd,
            other => WrOpcode::Other(other as u32),
        }
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

    /// Remote address and key of a read or write.
    pub fn rdma(&self) -> Option<(u64, u32)> {
        match self.opcode() {
            WrOpcode::Write | WrOpcode::WriteImm | WrOpcode::Read => {
                // SAFETY: With these opcodes the request is embedded in a `struct ib_rdma_wr`.
                let wr = unsafe { &*core::ptr::from_ref(self.raw).cast::<ffi::ib_rdma_wr>() };
                Some((wr.remote_addr, wr.rkey))
            }
            _ => None,
        }
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

/// Opcode of a completion (`enum ib_wc_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named as in the specification, 11.4.2.1.
pub enum WcOpcode {
    Send,
    Write,
    Read,
    CompSwap,
    FetchAdd,
    Recv,
    RecvWriteImm,
}

impl WcOpcode {
    fn as_raw(self) -> ffi::ib_wc_opcode {
        match self {
            Self::Send => ffi::IB_WC_SEND,
            Self::Write => ffi::IB_WC_RDMA_WRITE,
            Self::Read => ffi::IB_WC_RDMA_READ,
            Self::CompSwap => ffi::IB_WC_COMP_SWAP,
            Self::FetchAdd => ffi::IB_WC_FETCH_ADD,
            Self::Recv => ffi::IB_WC_RECV,
            Self::RecvWriteImm => ffi::IB_WC_RECV_RDMA_WITH_IMM,
        }
    }
}

/// A completion for a kernel client.
#[derive(Clone, Copy, Debug)]
pub struct Wc {
    /// The request's.
    pub wr_id: u64,
    /// Status.
    pub status: WcStatus,
    /// What completed.
    pub opcode: WcOpcode,
    /// Bytes of a receive or read.
    pub byte_len: u32,
    /// Immediate data, network byte order.
    pub imm_data: Option<u32>,
    /// The sender's queue pair, for datagrams.
    pub src_qp: u32,
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
        raw.status = wc.status.as_raw();
        raw.opcode = wc.opcode.as_raw();
        raw.byte_len = wc.byte_len;
        raw.qp = qp.raw();
        raw.src_qp = wc.src_qp;
        if let Some(imm) = wc.imm_data {
            raw.ex.imm_data = imm;
            raw.wc_flags = ffi::IB_WC_WITH_IMM as kernel::ffi::c_int;
        }
        slot.write(raw);
        self.used += 1;
        true
    }
}
