// SPDX-License-Identifier: GPL-2.0

//! What the engine asks for, done: work requests, memory, packets.

use super::port::{
    PortCounters,
    Sockets, //
};
use crate::{
    engine::{
        AtomicOp,
        ConnEvent,
        Flush,
        Host,
        Payload,
        PayloadSource,
        RecvDone,
        Refusal,
        RemoteAccess,
        Request,
        StreamError,
        Transmit,
        TxOutcome,
        WcStatus,
        WqeId, //
    },
    net::{
        addr::Flow,
        route::Route,
        skb::{
            RxPacket,
            TxPacket, //
        },
        socket::Family,
    },
    sync::{
        pr_warn_limited,
        PageSlice, //
    },
    verbs::qp::{
        Qp,
        Segment,
        Target, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// ECT(0) in the IP header's two ECN bits (RFC 3168 section 5).
const ECT_0: u8 = 0b10;
/// Payload of so many bytes goes to a fragment.
const FRAGMENT: u32 = 512;

/// The embedder's side of one connection; guarded by the connection's lock.
pub(super) struct ConnHost {
    /// The datagram being handled, for the payload ranges the engine names.
    pub(super) packet: Option<RxPacket>,
    /// QPs whose receive side failed: their streams are to be failed as soon as
    /// the engine has returned.
    pub(super) failed: KVec<Arc<Qp>>,
    /// The device's source sockets.
    sockets: Arc<Sockets>,
    /// One route per source socket.
    routes: KVec<Route>,
    /// Addresses; `tos` without the ECN bits.
    flow: Flow,
    family: Family,
    counters: Arc<PortCounters>,
    /// Whether datagrams of one path leave as a burst.
    bursts: bool,
    /// Not yet handed to the network.
    pending: Option<Pending>,
}

/// A packet that may grow into a burst.
struct Pending {
    packet: TxPacket,
    slot: usize,
    ect: bool,
    /// Bytes of its first datagram.
    size: u32,
    /// Datagrams in it.
    count: u32,
    /// The last datagram was shorter.
    closed: bool,
}

/// Copies a range of a datagram to segments: `segments` is given a consumer of page slices.
pub(super) fn copy_out(
    packet: &RxPacket,
    data: Payload,
    segments: impl FnOnce(&mut dyn FnMut(PageSlice<'_>) -> Result<(), Refusal>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut at = data.offset;
    let end = data
        .offset
        .checked_add(data.len)
        .ok_or(Refusal::InvalidRequest)?;
    segments(&mut |slice| {
        let len = u32::try_from(slice.len()).map_err(|_| Refusal::Operation)?;
        // Segments must not ask for more than the packet's range.
        let next = at.checked_add(len).ok_or(Refusal::Operation)?;
        if next > end {
            return Err(Refusal::Operation);
        }
        let mut done = 0usize;
        packet
            .for_each_piece(at, len, |piece| {
                let to = slice.sub(done, piece.len()).ok_or(EFAULT)?;
                to.write(piece);
                done = done.saturating_add(piece.len());
                Ok(())
            })
            .map_err(|_| Refusal::Operation)?;
        at = next;
        Ok(())
    })?;
    if at == end {
        Ok(())
    } else {
        Err(Refusal::Operation)
    }
}

/// Whether a datagram can be part of a burst: those without payload are too short, padded ones too rare.
fn is_data(packet: &Transmit<'_, Arc<Qp>, Target>) -> bool {
    !matches!(
        packet.payload,
        PayloadSource::None | PayloadSource::Padding(_)
    )
}

/// Fills `room` completely from segments, or fails.
pub(super) fn gather(
    room: &mut [u8],
    segments: impl FnOnce(&mut dyn FnMut(Segment<'_>) -> Result<(), Refusal>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut rest = room;
    segments(&mut |segment| {
        let n = match &segment {
            Segment::Page(slice) => slice.len(),
            Segment::Inline(bytes) => bytes.len(),
        };
        let all = core::mem::take(&mut rest);
        let (now, later) = all.split_at_mut_checked(n).ok_or(Refusal::Operation)?;
        match segment {
            Segment::Page(slice) => {
                if slice.read(now) != n {
                    return Err(Refusal::Operation);
                }
            }
            Segment::Inline(bytes) => now.copy_from_slice(bytes),
        }
        rest = later;
        Ok(())
    })?;
    // What is not filled would leave the machine as stale kernel memory.
    if rest.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Operation)
    }
}

impl ConnHost {
    /// For a connection that sends as `flow` says. May sleep.
    pub(super) fn new(
        sockets: Arc<Sockets>,
        flow: Flow,
        counters: Arc<PortCounters>,
        bursts: bool,
    ) -> Result<Self> {
        let family = if flow.dst.is_v4() {
            Family::V4
        } else {
            Family::V6
        };
        let n = sockets.sources(family).ok_or(EAFNOSUPPORT)?.len();
        let mut routes = KVec::with_capacity(n, GFP_KERNEL)?;
        for _ in 0..n {
            routes.push(Route::new()?, GFP_KERNEL)?;
        }
        Ok(Self {
            packet: None,
            failed: KVec::new(),
            sockets,
            routes,
            flow,
            family,
            counters,
            bursts,
            pending: None,
        })
    }

    /// Largest IP packet of the first route, in bytes.
    pub(super) fn mtu(&mut self) -> Result<u32> {
        let sources = self.sockets.sources(self.family).ok_or(EAFNOSUPPORT)?;
        let socket = sources.first().ok_or(EAFNOSUPPORT)?;
        let route = self.routes.first_mut().ok_or(EAFNOSUPPORT)?;
        route.mtu(socket, &self.flow)
    }

    /// The UDP source port of a slot, for display.
    pub(super) fn source_port(&self, slot: u8) -> u16 {
        self.sockets
            .sources(self.family)
            .and_then(|s| s.get(usize::from(slot)))
            .map_or(0, |s| s.port())
    }

    /// Copies a range of the datagram at hand to segments.
    fn copy_out(
        &self,
        data: Payload,
        segments: impl FnOnce(
            &mut dyn FnMut(PageSlice<'_>) -> Result<(), Refusal>,
        ) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let packet = self.packet.as_ref().ok_or(Refusal::Operation)?;
        copy_out(packet, data, segments)
    }

    /// Writes header and payload of a datagram into `room`, which has their length.
    fn fill(
        packet: &Transmit<'_, Arc<Qp>, Target>,
        room: &mut [u8],
    ) -> core::result::Result<(), TxOutcome> {
        let (head, rest) = room
            .split_at_mut_checked(packet.header.len())
            .ok_or(TxOutcome::Dropped)?;
        head.copy_from_slice(packet.header);
        Self::fill_payload(packet, rest)
    }

    /// Writes the payload of a datagram into `room`, which has its length.
    fn fill_payload(
        packet: &Transmit<'_, Arc<Qp>, Target>,
        room: &mut [u8],
    ) -> core::result::Result<(), TxOutcome> {
        match packet.payload {
            PayloadSource::None => Ok(()),
            PayloadSource::Padding(_) => {
                room.fill(0);
                Ok(())
            }
            PayloadSource::Request {
                qp,
                wqe,
                offset,
                len,
            } => gather(room, |f| qp.send_segments(wqe, offset, len, f)),
            PayloadSource::Remote {
                qp,
                target,
                offset,
                len,
            } => gather(room, |f| {
                qp.target_segments(target, offset, len, |slice| f(Segment::Page(slice)))
            }),
        }
        .map_err(|_| TxOutcome::Fault)
    }

    /// A packet with one datagram. Long payload goes to a fragment, whose memory need not be
    /// cleared; short payload lies behind the header.
    fn datagram(
        packet: &Transmit<'_, Arc<Qp>, Target>,
        len: u32,
    ) -> core::result::Result<TxPacket, TxOutcome> {
        let payload = packet.payload.len();
        if payload >= FRAGMENT {
            let mut skb = TxPacket::alloc(len.saturating_sub(payload)).ok_or(TxOutcome::Dropped)?;
            skb.append(packet.header).ok_or(TxOutcome::Dropped)?;
            if let Some(filled) = skb.add_with(payload, |room| Self::fill_payload(packet, room)) {
                return filled.map(|()| skb);
            }
        }
        let mut skb = TxPacket::alloc(len).ok_or(TxOutcome::Dropped)?;
        skb.append_with(len, |room| Self::fill(packet, room))
            .ok_or(TxOutcome::Dropped)??;
        Ok(skb)
    }

    fn queue(
        &mut self,
        packet: &Transmit<'_, Arc<Qp>, Target>,
    ) -> core::result::Result<(), TxOutcome> {
        let header_len = u32::try_from(packet.header.len()).map_err(|_| TxOutcome::Dropped)?;
        let len = header_len
            .checked_add(packet.payload.len())
            .ok_or(TxOutcome::Dropped)?;
        let slot = usize::from(packet.route.port_slot);
        if let Some(mut burst) = self.pending.take() {
            let fits = burst.slot == slot
                && burst.ect == packet.ect
                && !burst.closed
                && len <= burst.size
                && is_data(packet);
            if fits {
                match burst.packet.add_with(len, |room| Self::fill(packet, room)) {
                    Some(Ok(())) => {
                        burst.count = burst.count.saturating_add(1);
                        burst.closed = len < burst.size;
                        self.pending = Some(burst);
                        return Ok(());
                    }
                    Some(Err(outcome)) => {
                        self.pending = Some(burst);
                        return Err(outcome);
                    }
                    None => (),
                }
            }
            self.pending = Some(burst);
            self.flush();
        }
        self.pending = Some(Pending {
            packet: Self::datagram(packet, len)?,
            slot,
            ect: packet.ect,
            size: len,
            count: 1,
            closed: !self.bursts || !is_data(packet),
        });
        Ok(())
    }

    /// Hands over what is pending. To be called after each call of the engine.
    pub(super) fn flush(&mut self) {
        let Some(mut burst) = self.pending.take() else {
            return;
        };
        if burst.count > 1 {
            burst.packet.set_burst(burst.size, burst.count);
        }
        let mut flow = self.flow;
        if burst.ect {
            flow.tos |= ECT_0;
        }
        let socket = self
            .sockets
            .sources(self.family)
            .and_then(|s| s.get(burst.slot));
        let sent = match (socket, self.routes.get_mut(burst.slot)) {
            (Some(socket), Some(route)) => route.transmit(socket, &flow, burst.packet).is_ok(),
            _ => false,
        };
        let counter = if sent {
            &self.counters.sent
        } else {
            &self.counters.send_dropped
        };
        counter.add(u64::from(burst.count));
    }
}

impl Host for ConnHost {
    type Qp = Arc<Qp>;
    type Target = Target;

    fn pull_request(&mut self, qp: &Arc<Qp>) -> Option<Request> {
        qp.pull_request()
    }

    fn execute_local(&mut self, qp: &Arc<Qp>, wqe: WqeId) -> WcStatus {
        qp.execute_local(wqe)
    }

    fn complete_request(&mut self, qp: &Arc<Qp>, wqe: WqeId, status: WcStatus, byte_len: u32) {
        qp.complete_request(wqe, status, byte_len);
    }

    fn place_response(
        &mut self,
        qp: &Arc<Qp>,
        wqe: WqeId,
        offset: u32,
        data: Payload,
    ) -> Result<(), Refusal> {
        self.copy_out(data, |f| qp.response_segments(wqe, offset, data.len, f))
    }

    fn place_atomic(&mut self, qp: &Arc<Qp>, wqe: WqeId, original: u64) -> Result<(), Refusal> {
        let bytes = original.to_ne_bytes();
        let mut rest: &[u8] = &bytes;
        qp.response_segments(wqe, 0, 8, |slice| {
            let n = slice.write(rest);
            rest = rest.get(n..).unwrap_or(&[]);
            Ok(())
        })
    }

    fn match_recv(&mut self, qp: &Arc<Qp>, ssn: u32, total_len: u32) -> Result<Target, Refusal> {
        qp.match_recv(ssn, total_len)
    }

    fn match_invalidate(&mut self, qp: &Arc<Qp>, rkey: u32) -> Result<(), Refusal> {
        qp.match_invalidate(rkey)
    }

    fn match_remote(
        &mut self,
        qp: &Arc<Qp>,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<Target, Refusal> {
        qp.match_remote(access, rkey, va, len)
    }

    fn place(
        &mut self,
        qp: &Arc<Qp>,
        target: &Target,
        offset: u32,
        data: Payload,
    ) -> Result<(), Refusal> {
        if matches!(target, Target::Lost { .. }) {
            return Ok(());
        }
        self.copy_out(data, |f| qp.target_segments(target, offset, data.len, f))
    }

    fn atomic(&mut self, qp: &Arc<Qp>, target: &Target, op: AtomicOp) -> Result<u64, Refusal> {
        qp.atomic(target, op)
    }

    fn flush(&mut self, qp: &Arc<Qp>, target: &Target, how: Flush) -> Result<(), Refusal> {
        qp.flush_target(target, how)
    }

    fn complete_recv(&mut self, qp: &Arc<Qp>, target: Target, done: RecvDone) {
        qp.complete_recv(target, done);
    }

    fn stream_error(&mut self, qp: &Arc<Qp>, error: StreamError) {
        qp.stream_error(error);
        if !matches!(error, StreamError::Requester(_)) {
            // Without memory the requests in flight end by their own timeout.
            let _ = self.failed.push(qp.clone(), GFP_ATOMIC);
        }
    }

    fn transmit(&mut self, packet: &Transmit<'_, Arc<Qp>, Target>) -> TxOutcome {
        match self.queue(packet) {
            // Counted when it leaves.
            Ok(()) => TxOutcome::Sent,
            Err(outcome) => {
                match outcome {
                    TxOutcome::Fault => self.counters.send_faults.inc(),
                    _ => self.counters.send_dropped.inc(),
                }
                outcome
            }
        }
    }

    fn event(&mut self, event: ConnEvent) {
        match event {
            ConnEvent::Established => self.counters.established.inc(),
            ConnEvent::PeerRestarted => {
                self.counters.peer_restarts.inc();
                pr_warn_limited!("peer {} was restarted\n", self.flow.dst);
            }
            ConnEvent::PathMoved { .. } => self.counters.path_moves.inc(),
            ConnEvent::PathPayload { path, bytes } => pr_warn_limited!(
                "path {path} to {}: {bytes} bytes per packet get through\n",
                self.flow.dst
            ),
            ConnEvent::Silent => self.counters.silences.inc(),
        }
    }
}
