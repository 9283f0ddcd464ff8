// SPDX-License-Identifier: GPL-2.0

//! Unreliable datagrams: what UD and GSI queue pairs do differently.
//!
//! The data path calls both directions under the lock of the QP's link, so that each is serial and
//! ends when the QP is detached.

use super::{
    ah::Address,
    dev::Device,
    qp::{Qp, Segment, Target},
};
use crate::{
    abi,
    engine::{
        wire::{Datagram, DATAGRAM_LEN},
        Opcode, Refusal, Request, StreamError, WcStatus, WqeId,
    },
    rdma::{Mtu, QpState, QpType},
    sync::PageSlice,
};
use kernel::{
    prelude::*,
    sync::{atomic::ordering::Relaxed, Arc},
};

/// Bytes in front of a datagram's payload in the receive buffer.
pub(crate) const GRH_LEN: u32 = 40;
/// Q_Key of the GSI (IB specification 9.4.1.1 and 16.1.1, `IB_QP1_QKEY`).
const GSI_QKEY: u32 = 0x8001_0000;
/// A request with this bit in its Q_Key is sent with the QP's own (IB specification 10.2.5).
const OWN_QKEY: u32 = 1 << 31;
/// Requests sent before the lock is let go.
const ROUND: usize = 64;
/// Bytes of the longest headers below the payload: IPv6, UDP, ours.
const HEADERS: u32 = 40 + 8 + DATAGRAM_LEN as u32;

impl Device {
    /// The MTU that the port reports: the most that a datagram carries.
    pub(super) fn payload_mtu(&self) -> Mtu {
        Mtu::fitting(self.netdev().mtu().saturating_sub(HEADERS))
    }
}

/// A datagram to be sent.
pub struct Outgoing<'a> {
    qp: &'a Qp,
    wqe: WqeId,
    address: Arc<Address>,
    /// The packet's header.
    pub header: Datagram,
    /// Bytes of payload.
    pub len: u32,
}

impl Outgoing<'_> {
    /// Source address, 16 bytes in network order (IPv4 mapped).
    pub fn sgid(&self) -> [u8; 16] {
        self.address.sgid
    }

    /// Destination address.
    pub fn dgid(&self) -> [u8; 16] {
        self.address.values.dgid.0
    }

    /// Interface of the source address.
    pub fn ifindex(&self) -> u32 {
        self.address.ifindex
    }

    /// DSCP and ECN bits.
    pub fn traffic_class(&self) -> u8 {
        self.address.values.traffic_class
    }

    /// Lends the payload, in order.
    pub fn segments(
        &self,
        f: &mut dyn FnMut(Segment<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.qp.send_segments(self.wqe, 0, self.len, f)
    }
}

/// A datagram that was received.
pub struct Incoming {
    /// The packet's header.
    pub header: Datagram,
    /// Bytes of payload.
    pub len: u32,
    /// Whether these may be a management datagram ([`Datagram::has_mad`]).
    pub mad: bool,
    /// What goes in front of it.
    pub grh: [u8; GRH_LEN as usize],
    /// Whether it came over IPv4.
    pub v4: bool,
    /// The VLAN it came in by.
    pub vlan: Option<u16>,
}

/// What became of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A receive was completed with it.
    Delivered,
    /// It had another Q_Key than the QP.
    WrongQkey,
    /// The QP is of another kind or not ready, or no receive that is large enough is posted.
    Dropped,
}

impl Qp {
    /// Whether messages are datagrams, and nothing is connected.
    pub fn is_datagram(&self) -> bool {
        matches!(self.qp_type(), QpType::Ud | QpType::Gsi)
    }

    /// Sends posted requests through `send`, some of them; returns whether to call again. BH
    /// disabled, under the link's lock.
    ///
    /// `send` fails when the payload cannot be read. A packet that cannot be sent is lost like any
    /// other: the request succeeds.
    pub fn send_datagrams(
        &self,
        mut send: impl FnMut(&Outgoing<'_>) -> Result<(), Refusal>,
    ) -> bool {
        for _ in 0..ROUND {
            let Some(request) = self.pull_request() else {
                return false;
            };
            let status = match self.outgoing(&request) {
                Ok(Some(out)) => match send(&out) {
                    Ok(()) => WcStatus::Success,
                    Err(_) => WcStatus::LocProtErr,
                },
                Ok(None) => WcStatus::Success,
                Err(status) => status,
            };
            self.complete_request(request.wqe, status, request.len);
        }
        true
    }

    /// What to send for a request; `None` if it is too long for the port, which loses it silently
    /// (IB specification 10.8.2.1, C10-93.1.1).
    fn outgoing(&self, request: &Request) -> Result<Option<Outgoing<'_>>, WcStatus> {
        let imm = match request.opcode {
            Opcode::Send => None,
            Opcode::SendImm => Some(request.imm),
            Opcode::Local if request.local != WcStatus::Success => return Err(request.local),
            _ => return Err(WcStatus::LocQpOpErr),
        };
        let [first, second] = self.ud_operands(request.wqe);
        let (ah, dst_qpn) = (first as u32, (first >> 32) as u32 & 0xff_ffff);
        let qkey = match second as u32 {
            key if key & OWN_QKEY != 0 => self.qkey(),
            key => key,
        };
        let address = self.device().ahs.get(ah).ok_or(WcStatus::LocQpOpErr)?;
        if address.pd != self.pd() {
            return Err(WcStatus::LocQpOpErr);
        }
        if request.len > self.device().payload_mtu().bytes() {
            return Ok(None);
        }
        Ok(Some(Outgoing {
            qp: self,
            wqe: request.wqe,
            address,
            header: Datagram {
                dst_qpn,
                src_qpn: self.qpn(),
                qkey,
                solicited: request.solicited,
                imm,
            },
            len: request.len,
        }))
    }

    fn qkey(&self) -> u32 {
        match self.qp_type() {
            QpType::Gsi => GSI_QKEY,
            _ => self.qkey.load(Relaxed),
        }
    }

    /// Completes a receive with a datagram. `copy` gets where its payload goes, piece by piece, and must
    /// fill all of it. Softirq, under the link's lock.
    pub fn receive_datagram(
        &self,
        d: &Incoming,
        copy: impl FnOnce(
            &mut dyn FnMut(
                &mut dyn FnMut(PageSlice<'_>) -> Result<(), Refusal>,
            ) -> Result<(), Refusal>,
        ) -> Result<(), Refusal>,
    ) -> Received {
        let ready = matches!(
            self.state(),
            QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe
        );
        if !ready || !self.is_datagram() {
            return Received::Dropped;
        }
        // IB specification 9.6.1.1.3: before any receive is touched.
        if d.header.qkey != self.qkey() {
            return Received::WrongQkey;
        }
        if !d.mad && self.qp_type() == QpType::Gsi {
            return Received::Dropped;
        }
        let own = self.next_recv();
        // From a shared queue only one is taken at a time.
        let ssn = own.unwrap_or(0);
        let placed = self
            .match_recv(ssn, GRH_LEN.saturating_add(d.len))
            .and_then(|target| {
                let mut grh: &[u8] = &d.grh;
                self.target_segments(&target, 0, GRH_LEN, |slice| {
                    let n = slice.write(grh);
                    grh = grh.get(n..).unwrap_or(&[]);
                    Ok(())
                })?;
                copy(&mut |f| self.target_segments(&target, GRH_LEN, d.len, f))?;
                Ok(target)
            });
        match placed {
            Ok(target) => {
                self.complete_datagram(target, d);
                Received::Delivered
            }
            // None is posted.
            Err(Refusal::Rnr { .. } | Refusal::NotReady) => Received::Dropped,
            // The buffer is too small, and stays for another datagram.
            Err(Refusal::Length) if own.is_some() => Received::Dropped,
            Err(refusal) => {
                // IB specification 10.10.3: an error of a receive stops the QP.
                self.stream_error(StreamError::Responder {
                    refusal,
                    ssn: Some(ssn),
                });
                Received::Dropped
            }
        }
    }

    fn complete_datagram(&self, target: Target, d: &Incoming) {
        use abi::wc_flags;
        let mut flags = wc_flags::GRH;
        if d.header.imm.is_some() {
            flags |= wc_flags::WITH_IMM;
        }
        flags |= if d.v4 {
            wc_flags::KERNEL_IPV4
        } else {
            wc_flags::KERNEL_IPV6
        };
        let vlan = d.vlan.inspect(|_| flags |= wc_flags::KERNEL_VLAN);
        let cqe = abi::Cqe {
            opcode: abi::wc_opcode::RECV,
            byte_len: GRH_LEN.saturating_add(d.len),
            imm_data: d.header.imm.unwrap_or(0).to_be(),
            qp_num: self.qpn(),
            src_qp: d.header.src_qpn,
            wc_flags: flags,
            reserved0: vlan.unwrap_or(0).to_ne_bytes(),
            ..abi::Cqe::default()
        };
        self.finish_recv(target, cqe, d.header.solicited);
    }
}
