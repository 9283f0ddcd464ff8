// SPDX-License-Identifier: GPL-2.0

//! Queue pairs of kernel clients: what the provider library does for a process.
//!
//! The rings are the same, only nobody maps them. Clients post in any context, also with interrupts
//! off and with locks held that their completion handlers take: posting only fills the ring, and a
//! bottom-half work item rings the doorbell.

use super::{qp::Qp, ring::Ring, Driver};
use crate::{
    abi,
    rdma::{self, QpCap, QpState, RecvWr, SendWr, Sge},
    sync::{BhCall, BhWork},
};
use core::mem::size_of;
use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{Arc, SpinLockIrq},
};

impl BhCall for Qp {
    fn run(this: &Arc<Self>) {
        // In a state without doorbell the queue waits, or is empty.
        let _ = this.doorbell();
    }
}

/// A kernel client's side of a QP.
#[pin_data]
pub(super) struct Posters {
    sq: Ring,
    /// `None` with a shared receive queue.
    rq: Option<Ring>,
    cap: QpCap,
    work: BhWork<Qp>,
    /// The next slot of each ring.
    #[pin]
    send_index: SpinLockIrq<u32>,
    #[pin]
    recv_index: SpinLockIrq<u32>,
}

/// Writes a list behind the first `offset` bytes of a slot.
fn write_sges(ring: &Ring, index: u32, offset: usize, sges: impl Iterator<Item = Sge>) {
    for (n, sge) in sges.enumerate() {
        let at = offset.saturating_add(n.saturating_mul(size_of::<abi::Sge>()));
        let sge = abi::Sge {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        };
        ring.write(index, at, &sge);
    }
}

impl Posters {
    pub(super) fn new(
        qp: &Arc<Qp>,
        sq: Ring,
        rq: Option<Ring>,
        cap: QpCap,
    ) -> Result<Pin<KBox<Self>>> {
        let work = BhWork::new(qp.clone())?;
        KBox::pin_init(
            pin_init!(Self {
                sq,
                rq,
                cap,
                work,
                send_index <- new_spinlock_irq!(0, "metaroce post send"),
                recv_index <- new_spinlock_irq!(0, "metaroce post recv"),
            }),
            GFP_KERNEL,
        )
    }

    /// No doorbell rings any more. Process context.
    pub(super) fn stop(&self) {
        self.work.stop();
    }

    /// The kernel's side has emptied the rings (QP to RESET).
    pub(super) fn reset(&self) {
        *self.send_index.lock() = 0;
        *self.recv_index.lock() = 0;
    }

    /// Rings the doorbell, soon. Any context.
    pub(super) fn doorbell(&self) {
        if self.sq.wants_wakeup() {
            self.work.raise();
        }
    }

    /// Posts a send request. Any context.
    pub(super) fn send(&self, qp: &rdma::Qp<Driver>, state: QpState, wr: &SendWr<'_>) -> Result {
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(EINVAL);
        }
        let mut wqe = abi::SendWqe {
            wr_id: wr.wr_id(),
            opcode: wr.opcode(),
            send_flags: wr.flags() & abi::send_flags::ALL,
            imm_data: wr.ex(),
            ..abi::SendWqe::default()
        };
        // What only the kernel's requests can ask for is not in a process' ring.
        if wqe.opcode > abi::wr::ATOMIC_WRITE {
            return Err(EINVAL);
        }
        if let Some((addr, rkey)) = wr.rdma() {
            wqe.remote_addr = addr;
            wqe.rkey = rkey;
        }
        if let Some((first, second)) = wr.atomic_operands() {
            wqe.operand0 = first;
            wqe.operand1 = second;
        }
        if let Some((ah, qpn, qkey)) = qp.destination(wr) {
            wqe.operand0 = u64::from(ah.data().number()) | u64::from(qpn) << 32;
            wqe.operand1 = qkey.into();
        }
        let sges = wr.sges();
        let inline = wqe.send_flags & abi::send_flags::INLINE != 0;
        if !inline {
            wqe.num_sge = u32::try_from(sges.len())?;
            if wqe.num_sge > self.cap.max_send_sge {
                return Err(EINVAL);
            }
        }

        let mut index = self.send_index.lock();
        if (*index).wrapping_sub(self.sq.consumer()) >= self.sq.entries() {
            return Err(ENOMEM);
        }
        if inline {
            let mut bytes = [0u8; super::limits::MAX_INLINE as usize];
            let room = bytes
                .get_mut(..self.cap.max_inline_data as usize)
                .ok_or(EINVAL)?;
            let n = wr.copy_inline(room).ok_or(EINVAL)?;
            wqe.inline_length = u32::try_from(n)?;
            let bytes = room.get(..n).ok_or(EINVAL)?;
            self.sq
                .write_bytes(*index, size_of::<abi::SendWqe>(), bytes);
        } else {
            write_sges(&self.sq, *index, size_of::<abi::SendWqe>(), sges);
        }
        self.sq.write(*index, 0, &wqe);
        *index = (*index).wrapping_add(1);
        self.sq.set_producer(*index);
        Ok(())
    }

    /// Posts a receive. Any context.
    pub(super) fn recv(&self, state: QpState, wr: &RecvWr<'_>) -> Result {
        let ring = self.rq.as_ref().ok_or(EINVAL)?;
        if state == QpState::Reset {
            return Err(EINVAL);
        }
        let sges = wr.sges();
        let num_sge = u32::try_from(sges.len())?;
        if num_sge > self.cap.max_recv_sge {
            return Err(EINVAL);
        }
        let mut index = self.recv_index.lock();
        if (*index).wrapping_sub(ring.consumer()) >= ring.entries() {
            return Err(ENOMEM);
        }
        write_sges(ring, *index, size_of::<abi::RecvWqe>(), sges);
        ring.write(
            *index,
            0,
            &abi::RecvWqe {
                wr_id: wr.wr_id(),
                num_sge,
                reserved: 0,
            },
        );
        *index = (*index).wrapping_add(1);
        ring.set_producer(*index);
        drop(index);
        // Messages look for receives by themselves; a failed QP must be told to flush them.
        if ring.wants_wakeup() {
            self.work.raise();
        }
        Ok(())
    }
}
