// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! One path: a sequence space with its window, in both directions.
//!
//! Sending side: a ring of 256 slots. A packet stays in its slot, under its sequence number, until it is
//! acknowledged; each transmission takes the next [`TxOrder`]. A route is first-in first-out, so
//! when a transmission is known to have arrived, all packets whose latest transmission was
//! earlier and that are not acknowledged are lost and are sent again at once. How many later
//! transmissions must have arrived (`tolerance`) is 0 and grows while duplicates show that
//! the route does reorder.
//!
//! Receiving side: a cumulative number and a bitmap of the 256 from there on.

use super::api::{Route, Store};
use super::bits::Bits256;
use super::cc::{Controller, News, Shared};
use super::conn::StreamId;
use super::mtu::Mtu;
use super::rtt::Rtt;
use super::seq::{Psn, TxOrder};
use super::time::{Instant, Span};
use super::wire::Ack;

/// Sequence numbers in flight at most.
pub const WINDOW: u32 = 256;
/// Reordering tolerance at most, in packets.
const MAX_TOLERANCE: u32 = 64;
/// Probes are never further apart than this ...
const MAX_PTO: Span = Span::from_millis(100);
/// ... nor, while the path has never answered, than this.
const MAX_FIRST_PTO: Span = Span::from_millis(20);
/// Probes whose transmission is remembered.
const PROBES: usize = 8;

/// What a slot's packet carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Nothing: fills a sequence number.
    #[default]
    Void,
    /// A piece of a request.
    Request,
    /// A piece of a response.
    Response,
}

/// A packet in flight: everything needed to build it again.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxSlot {
    /// What it carries.
    pub content: Content,
    /// Transmissions so far, modulo 256.
    pub tx_count: u8,
    /// Attempt of the message.
    pub attempt: u8,
    /// Stream it belongs to.
    pub stream: StreamId,
    /// Request index or response slot.
    pub index: u32,
    /// First byte of the message.
    pub offset: u32,
    /// Bytes of payload.
    pub len: u32,
    /// Bytes of the datagram.
    pub bytes: u32,
    /// When it was last sent.
    pub sent_at: Instant,
    /// Its latest transmission.
    pub order: TxOrder,
}

/// Counters of a path.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathStats {
    /// Packets sent for the first time.
    pub sent: u64,
    /// Packets sent again because of a gap.
    pub retransmitted: u64,
    /// Packets sent again because nothing was heard.
    pub timeouts: u64,
    /// Probes without content.
    pub probes: u64,
    /// NAKs received.
    pub refused: u64,
    /// Changes of route.
    pub moves: u32,
}

/// What an acknowledgement answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// A packet.
    Packet,
    /// A PROBE over the path's route.
    Probe,
    /// A PROBE over another route: says nothing of the path's own.
    Candidate,
}

/// What to send, besides a PROBE, when a probe time-out has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing: the answer may merely be late.
    Probe,
    /// The oldest packet.
    Resend,
}

/// One transmission of a PROBE.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeSent {
    serial: u32,
    order: TxOrder,
    at: Instant,
}

/// Sending half.
pub struct TxPath<S: Store> {
    /// `None` only between `new` and `allocate`.
    slots: Option<S::Buf<TxSlot>>,
    una: Psn,
    next: Psn,
    pending: Bits256,
    lost: Bits256,
    inflight: u32,
    order: TxOrder,
    arrived: TxOrder,
    epoch_base: TxOrder,
    epoch: u8,
    tolerance: u32,
    gap_repairs: u32,
    peer_received: u32,
    peer_ce: u32,
    peer_dups: u32,
    limited: bool,
    pto_at: Option<Instant>,
    backoff: u8,
    probe_since: Instant,
    probe_serial: u32,
    probes_sent: [ProbeSent; PROBES],
    excused: bool,
    /// Round-trip estimator.
    pub rtt: Rtt,
    /// Window.
    pub cc: Controller,
    /// How large its packets may be.
    pub mtu: Mtu,
    /// Where its packets leave.
    pub route: Route,
    /// When it last moved to another route.
    pub moved_at: Instant,
    /// Counters.
    pub stats: PathStats,
}

impl<S: Store> TxPath<S> {
    /// An idle path, still without its ring: see [`Self::allocate`].
    pub fn new(route: Route, cc: Controller) -> Self {
        Self {
            slots: None,
            una: Psn::new(0),
            next: Psn::new(0),
            pending: Bits256::EMPTY,
            lost: Bits256::EMPTY,
            inflight: 0,
            order: TxOrder::new(1),
            arrived: TxOrder::new(0),
            epoch_base: TxOrder::new(0),
            epoch: 0,
            tolerance: 0,
            gap_repairs: 0,
            peer_received: 0,
            peer_ce: 0,
            peer_dups: 0,
            limited: false,
            pto_at: None,
            backoff: 0,
            probe_since: Instant::default(),
            probe_serial: 0,
            probes_sent: [ProbeSent::default(); PROBES],
            excused: false,
            rtt: Rtt::default(),
            cc,
            mtu: Mtu::default(),
            route,
            moved_at: Instant::default(),
            stats: PathStats::default(),
        }
    }

    /// Allocates the ring.
    pub fn allocate(&mut self) -> Result<(), S::Error> {
        self.slots = Some(S::buf(WINDOW as usize, |_| TxSlot::default())?);
        Ok(())
    }

    /// Begins anew with an empty sequence space: the peer's end is a new one.
    pub fn reset(&mut self, cc: Controller, mtu: Mtu) {
        self.una = Psn::new(0);
        self.next = Psn::new(0);
        self.pending = Bits256::EMPTY;
        self.lost = Bits256::EMPTY;
        self.inflight = 0;
        self.arrived = self.order;
        self.epoch_base = self.order;
        self.peer_received = 0;
        self.peer_ce = 0;
        self.peer_dups = 0;
        self.gap_repairs = 0;
        self.tolerance = 0;
        self.limited = false;
        self.pto_at = None;
        self.backoff = 0;
        self.excused = false;
        self.cc = cc;
        self.mtu = mtu;
    }

    /// Oldest sequence not acknowledged.
    pub fn una(&self) -> Psn {
        self.una
    }

    /// Next sequence to be used.
    pub fn next_seq(&self) -> Psn {
        self.next
    }

    /// Bytes in flight.
    pub fn inflight(&self) -> u32 {
        self.inflight
    }

    /// Reordering tolerance in packets.
    pub fn tolerance(&self) -> u32 {
        self.tolerance
    }

    /// Low bit of the route epoch.
    pub fn epoch_bit(&self) -> u8 {
        self.epoch & 1
    }

    /// Probes unanswered in a row.
    pub fn unanswered(&self) -> u8 {
        self.backoff
    }

    /// When the first of the unanswered probes was due.
    pub fn probing_since(&self) -> Instant {
        self.probe_since
    }

    /// Whether anything waits for an acknowledgement.
    pub fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// When to probe.
    pub fn deadline(&self) -> Option<Instant> {
        Instant::earliest(self.pto_at, self.mtu.deadline())
    }

    /// Whether a new packet of `bytes` may be sent now.
    #[inline]
    pub fn has_room(&mut self, bytes: u32) -> bool {
        if self.next.distance(self.una) >= WINDOW || !self.lost.is_empty() {
            self.limited = true;
            return false;
        }
        let room = self.inflight == 0 || self.inflight.saturating_add(bytes) <= self.cc.window();
        self.limited |= !room;
        room
    }

    /// Puts a packet into the next slot. To be followed by [`Self::on_transmit`].
    #[inline]
    pub fn push(&mut self, slot: TxSlot) -> Psn {
        let psn = self.next;
        if let Some(place) = self.slot_mut(psn) {
            *place = TxSlot {
                tx_count: 0,
                ..slot
            };
        }
        self.next = psn.next();
        self.pending.set(psn.get());
        self.stats.sent = self.stats.sent.wrapping_add(1);
        psn
    }

    /// The slot of a sequence in flight.
    #[inline]
    pub fn slot(&self, psn: Psn) -> Option<&TxSlot> {
        self.slots.as_ref()?.get((psn.get() & 255) as usize)
    }

    /// The slot of a sequence in flight.
    #[inline]
    pub fn slot_mut(&mut self, psn: Psn) -> Option<&mut TxSlot> {
        self.slots.as_mut()?.get_mut((psn.get() & 255) as usize)
    }

    /// Books a transmission of `psn`; returns its transmission count. To be called *before* the header is built.
    #[inline]
    pub fn on_transmit(&mut self, now: Instant, psn: Psn, bytes: u32) -> u8 {
        let order = self.order;
        self.order = order.next();
        let mut count = 0;
        if let Some(slot) = self.slot_mut(psn) {
            slot.order = order;
            slot.sent_at = now;
            slot.bytes = bytes;
            slot.tx_count = slot.tx_count.wrapping_add(1);
            count = slot.tx_count;
        }
        self.inflight = self.inflight.saturating_add(bytes);
        self.arm(now);
        count
    }

    fn arm(&mut self, now: Instant) {
        // Doubled every second time: at high loss several single probes in a row get lost.
        let most = if self.rtt.is_proven() {
            MAX_PTO
        } else {
            MAX_FIRST_PTO
        };
        let wait = self
            .rtt
            .probe_timeout()
            .backed_off(self.backoff.saturating_sub(1) / 2, most);
        self.pto_at = Some(now.after(wait));
    }

    /// The next lost packet that the window lets go; the caller sends it.
    #[inline]
    pub fn next_lost(&mut self) -> Option<Psn> {
        if self.lost.is_empty() {
            return None;
        }
        if self.inflight > 0 && self.inflight >= self.cc.window() {
            self.limited = true;
            return None;
        }
        let psn = self.una.plus(self.lost.first_from(self.una.get())?);
        self.lost.clear(psn.get());
        Some(psn)
    }

    /// Declares `psn` in need of another transmission.
    fn mark_lost(&mut self, psn: Psn) {
        if self.pending.get(psn.get()) && self.lost.set(psn.get()) {
            let bytes = self.slot(psn).map_or(0, |s| s.bytes);
            self.inflight = self.inflight.saturating_sub(bytes);
        }
    }

    fn settle(&mut self, pos: u32) -> Option<TxSlot> {
        if !self.pending.clear(pos) {
            return None;
        }
        let slot = self.slot(Psn::new(pos)).copied()?;
        if !self.lost.clear(pos) {
            self.inflight = self.inflight.saturating_sub(slot.bytes);
        }
        Some(slot)
    }

    /// The transmission of a PROBE that has arrived, if it is remembered.
    fn note_probe(&mut self, now: Instant, serial: u32, delay: Span) -> bool {
        let Some(sent) = self.probes_sent.get(serial as usize % PROBES).copied() else {
            return false;
        };
        if serial == 0 || sent.serial != serial {
            return false;
        }
        self.note_transmission(now, sent.at, sent.order, delay);
        true
    }

    /// Position of a transmission that has arrived, if it can be told.
    fn note_arrival(&mut self, now: Instant, seq: Psn, tx: u8, delay: Span) -> bool {
        if seq.distance(self.una) >= self.next.distance(self.una) || !self.pending.get(seq.get()) {
            return false;
        }
        let Some(slot) = self.slot(seq).copied() else {
            return false;
        };
        if slot.tx_count != tx {
            return false;
        }
        self.note_transmission(now, slot.sent_at, slot.order, delay);
        true
    }

    /// A transmission has arrived; its answer waited for `delay` at the peer.
    fn note_transmission(&mut self, now: Instant, at: Instant, order: TxOrder, delay: Span) {
        if order.precedes(self.epoch_base) {
            return; // Over an earlier route.
        }
        let rtt = now.since(at).as_nanos().saturating_sub(delay.as_nanos());
        self.rtt.sample(now, Span::from_nanos(rtt));
        if self.arrived.precedes(order) {
            self.arrived = order;
        }
    }

    /// Handles an acknowledgement up to `cum`; hands each newly acknowledged slot to `acked`. False if
    /// the acknowledgement makes no sense.
    pub fn on_ack(
        &mut self,
        now: Instant,
        cum: Psn,
        ack: &Ack,
        answers: Answers,
        shared: &Shared,
        mut acked: impl FnMut(&TxSlot),
    ) -> bool {
        let span = self.next.distance(self.una);
        let stale = cum.precedes(self.una);
        if !stale && cum.distance(self.una) > span {
            return false;
        }
        let delay = Span::from_micros(u64::from(ack.delay_us));
        let mut probed = false;
        match answers {
            Answers::Packet => {
                self.note_arrival(now, Psn::new(ack.echo_seq), ack.echo_tx, delay);
            }
            Answers::Probe => probed = self.note_probe(now, ack.echo_seq, delay),
            Answers::Candidate => {}
        }
        if stale {
            return true;
        }
        let (mut bytes, mut largest) = (0u32, 0u32);
        while self.una != cum {
            if let Some(slot) = self.settle(self.una.get()) {
                bytes = bytes.saturating_add(slot.bytes);
                largest = largest.max(slot.len);
                acked(&slot);
            }
            self.una = self.una.next();
        }
        let mut news = self.pending.and(&ack.sack);
        let holes = !news.is_empty() || ack.sack.iter().any(|w| *w != 0);
        while let Some(pos) = news.pop() {
            if let Some(slot) = self.settle(pos) {
                bytes = bytes.saturating_add(slot.bytes);
                largest = largest.max(slot.len);
                acked(&slot);
            }
        }
        self.mtu.on_passed(now, largest);
        // An honest peer never says so, but all from here on may have been acknowledged one by one.
        while self.una != self.next && !self.pending.get(self.una.get()) {
            self.una = self.una.next();
        }
        let received = ack.received.wrapping_sub(self.peer_received);
        let ce = ack.ce.wrapping_sub(self.peer_ce);
        let dups = ack.dups.wrapping_sub(self.peer_dups);
        // Acknowledgements may overtake each other; counts only go forward.
        let forward = received < 0x8000_0000;
        if forward {
            self.peer_received = ack.received;
            self.peer_ce = ack.ce;
            self.peer_dups = ack.dups;
            if dups > 0 && dups < 0x8000_0000 && self.gap_repairs > 0 {
                self.tolerance = self
                    .tolerance
                    .saturating_mul(2)
                    .saturating_add(1)
                    .min(MAX_TOLERANCE);
                self.gap_repairs = 0;
            } else if self.gap_repairs > 16 {
                self.tolerance /= 2;
                self.gap_repairs = 0;
            }
        }
        if bytes > 0 || probed || (forward && received > 0) {
            self.backoff = 0;
            self.excused = false;
        }
        if holes || probed || ack.echo_tx != 1 {
            self.find_losses(now, probed, shared);
        }
        let (received, ce, dups) = if forward {
            (received, ce, dups)
        } else {
            (0, 0, 0)
        };
        let news = News {
            bytes,
            una: self.una,
            next: self.next,
            received,
            ce,
            dups,
            limited: self.limited,
        };
        self.cc.on_ack(&news, &self.rtt, shared);
        self.limited = false;
        self.rearm_after_progress(now);
        true
    }

    fn rearm_after_progress(&mut self, now: Instant) {
        if self.pending.is_empty() {
            self.pto_at = None;
        } else {
            self.arm(now);
        }
    }

    /// Declares lost what was sent before something that has arrived. A PROBE left so late that
    /// reordering is no explanation, and it also tells of packets sent over an earlier route.
    fn find_losses(&mut self, now: Instant, probed: bool, shared: &Shared) {
        let mut rest = self.pending.without(&self.lost);
        let mut lost = 0u32;
        let tolerance = if probed { 0 } else { self.tolerance };
        let patience = self.rtt.patience();
        while let Some(pos) = rest.pop() {
            let Some(slot) = self.slot(Psn::new(pos)) else {
                continue;
            };
            let order = slot.order;
            let overdue = probed && now.since(slot.sent_at) >= patience;
            let overtaken = order.precedes(self.arrived)
                && !order.precedes(self.epoch_base)
                && self.arrived.distance(order) > tolerance;
            if overtaken || overdue {
                let back = pos.wrapping_sub(self.una.get()) & 255;
                self.mark_lost(self.una.plus(back));
                self.gap_repairs = self.gap_repairs.saturating_add(1);
                self.stats.retransmitted = self.stats.retransmitted.wrapping_add(1);
                lost = lost.saturating_add(1);
            }
        }
        if lost > 0 {
            self.cc.on_loss(lost, self.rtt.has_risen(shared.min_rtt));
        }
    }

    /// Handles a refusal of `psn`: its slot turns VOID and is sent again as such. Returns what it was.
    pub fn on_nak(&mut self, now: Instant, psn: Psn, tx: u8, shared: &Shared) -> Option<TxSlot> {
        if psn.distance(self.una) >= self.next.distance(self.una) || !self.pending.get(psn.get()) {
            return None;
        }
        self.note_arrival(now, psn, tx, Span::ZERO);
        self.backoff = 0;
        let slot = self.slot_mut(psn)?;
        let old = *slot;
        slot.content = Content::Void;
        slot.len = 0;
        self.stats.refused = self.stats.refused.wrapping_add(1);
        self.mark_lost(psn);
        self.find_losses(now, false, shared);
        self.arm(now);
        Some(old)
    }

    /// Turns the first packet that is larger than the route lets through into a VOID that is still to be sent. Returns what
    /// it was.
    pub fn cut(&mut self) -> Option<TxSlot> {
        let most = self.mtu.limit();
        let mut rest = self.pending;
        while let Some(pos) = rest.pop() {
            let back = pos.wrapping_sub(self.una.get()) & 255;
            let psn = self.una.plus(back);
            let slot = self.slot(psn).copied()?;
            if slot.len > most {
                self.void(psn);
                return Some(slot);
            }
        }
        None
    }

    /// Turns the packet just pushed into a VOID that is still to be sent.
    pub fn void(&mut self, psn: Psn) {
        if let Some(slot) = self.slot_mut(psn) {
            slot.content = Content::Void;
            slot.len = 0;
        }
        self.mark_lost(psn);
    }

    /// The packet in `psn` has lost its meaning (its stream is gone) and went out as VOID.
    pub fn forget(&mut self, psn: Psn) {
        if let Some(slot) = self.slot_mut(psn) {
            slot.content = Content::Void;
            slot.len = 0;
        }
    }

    /// The packet in `psn` could not be built and must be sent again.
    pub fn again(&mut self, psn: Psn) {
        self.mark_lost(psn);
    }

    /// Whether packets wait to be sent again.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether the probe time-out has come, and what to send then; books it. To be followed by
    /// [`Self::resend`], if that is due, and [`Self::probe`].
    pub fn on_timeout(&mut self, now: Instant) -> Option<Due> {
        let at = self.pto_at.filter(|at| *at <= now)?;
        if self.pending.is_empty() {
            self.pto_at = None;
            return None;
        }
        if now.since(at) >= self.rtt.probe_timeout() && !self.excused {
            // So late: this machine, or its virtual CPU, stood still, and the answer may be waiting.
            self.excused = true;
            self.arm(now);
            return None;
        }
        if self.backoff == 0 {
            self.probe_since = now;
        }
        self.backoff = self.backoff.saturating_add(1);
        if self.backoff == 1 || !self.is_overdue(now) {
            return Some(Due::Probe);
        }
        if self.backoff == 3 {
            self.cc.on_silence();
        }
        Some(Due::Resend)
    }

    /// Whether the silence is longer than a first answer may take.
    fn is_overdue(&self, now: Instant) -> bool {
        self.rtt.is_proven() || now.since(self.probe_since) >= self.rtt.patience()
    }

    /// Probes that should have been answered.
    pub fn overdue(&self, now: Instant) -> u8 {
        if self.is_overdue(now) {
            self.backoff
        } else {
            0
        }
    }

    /// Books a PROBE; its number. The caller sends it.
    pub fn probe(&mut self, now: Instant) -> u32 {
        let order = self.order;
        self.order = order.next();
        self.probe_serial = self.probe_serial.wrapping_add(1).max(1);
        if let Some(place) = self
            .probes_sent
            .get_mut(self.probe_serial as usize % PROBES)
        {
            *place = ProbeSent {
                serial: self.probe_serial,
                order,
                at: now,
            };
        }
        self.stats.probes = self.stats.probes.wrapping_add(1);
        self.arm(now);
        self.probe_serial
    }

    /// Books a PROBE over another route; its number. The caller sends it.
    pub fn candidate(&mut self) -> u32 {
        self.probe_serial = self.probe_serial.wrapping_add(1).max(1);
        self.stats.probes = self.stats.probes.wrapping_add(1);
        self.probe_serial
    }

    /// The packet to send again after silence: the oldest. The caller sends it.
    pub fn resend(&mut self) -> Option<Psn> {
        let psn = self.una.plus(self.pending.first_from(self.una.get())?);
        self.mark_lost(psn);
        self.lost.clear(psn.get());
        self.stats.timeouts = self.stats.timeouts.wrapping_add(1);
        Some(psn)
    }

    /// Moves to another route. `rtt`: how long an answer took there, if known. `failed`: everything in flight is taken to
    /// be lost.
    pub fn change_route(&mut self, now: Instant, route: Route, rtt: Option<Span>, failed: bool) {
        self.route = route;
        self.cc.on_new_route(rtt.is_some() && !failed);
        if let Some(rtt) = rtt {
            self.rtt.restart(now, rtt, !failed);
        }
        self.moved_at = now;
        self.mtu.on_new_route(now);
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch_base = self.order;
        self.arrived = self.order.plus(u32::MAX);
        self.stats.moves = self.stats.moves.wrapping_add(1);
        if failed {
            let mut rest = self.pending.without(&self.lost);
            while let Some(pos) = rest.pop() {
                let back = pos.wrapping_sub(self.una.get()) & 255;
                self.mark_lost(self.una.plus(back));
            }
        }
    }
}

/// What the receiving half thinks of a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Not seen yet (or refused before).
    New,
    /// Accepted before.
    Duplicate,
    /// Outside of the window.
    Beyond,
}

/// Receiving half.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxPath {
    cum: Psn,
    bits: Bits256,
    received: u32,
    ce: u32,
    dups: u32,
    echo_seq: u32,
    echo_tx: u8,
    echo_probe: bool,
    echo_at: Instant,
    /// Whether a PROBE of the present row of unanswered ones has come in.
    probed: bool,
    unreported: u32,
    /// Plane of the packet that arrived last: acknowledgements go back over it.
    pub plane: u8,
}

impl RxPath {
    /// Books an arriving packet and classifies it.
    #[inline]
    pub fn on_arrival(&mut self, now: Instant, seq: Psn, tx: u8, ce: bool) -> Arrival {
        let ahead = seq.distance(self.cum);
        let kind = if ahead < WINDOW {
            if self.bits.get(seq.get()) {
                Arrival::Duplicate
            } else {
                Arrival::New
            }
        } else if seq.precedes(self.cum) {
            Arrival::Duplicate
        } else {
            return Arrival::Beyond;
        };
        self.received = self.received.wrapping_add(1);
        self.ce = self.ce.wrapping_add(u32::from(ce));
        self.dups = self
            .dups
            .wrapping_add(u32::from(kind == Arrival::Duplicate));
        self.echo_seq = seq.get();
        self.echo_tx = tx;
        self.echo_probe = false;
        self.echo_at = now;
        self.unreported = self.unreported.saturating_add(1);
        kind
    }

    /// Books an arriving PROBE; `candidate`: it came over a route that is only tried. Whether it tells that the answer
    /// to an earlier one of the same row did not get through.
    pub fn on_probe(&mut self, now: Instant, serial: u32, tries: u8, candidate: bool) -> bool {
        self.echo_seq = serial;
        self.echo_tx = tries;
        self.echo_probe = true;
        self.echo_at = now;
        if candidate {
            return false;
        }
        let missed = self.probed && tries >= 2;
        // The row goes on, but the next route deserves as many answers as this one.
        self.probed = !missed;
        missed
    }

    /// Whether the next report answers a PROBE.
    pub fn answers_probe(&self) -> bool {
        self.echo_probe
    }

    /// The packet has been placed.
    #[inline]
    pub fn accept(&mut self, seq: Psn) {
        self.bits.set(seq.get());
        while self.bits.clear(self.cum.get()) {
            self.cum = self.cum.next();
        }
    }

    /// Whether something before the last packet is missing.
    pub fn has_gaps(&self) -> bool {
        !self.bits.is_empty()
    }

    /// Packets since the last report.
    pub fn unreported(&self) -> u32 {
        self.unreported
    }

    /// Duplicates so far, modulo 2^32.
    pub fn dups(&self) -> u32 {
        self.dups
    }

    /// Packets so far, modulo 2^32.
    pub fn received(&self) -> u32 {
        self.received
    }

    /// Cumulative number and acknowledgement to send now.
    pub fn report(&mut self, now: Instant, grant: u32) -> (Psn, Ack) {
        self.unreported = 0;
        let delay = now.since(self.echo_at).as_micros();
        (
            self.cum,
            Ack {
                echo_seq: self.echo_seq,
                echo_tx: self.echo_tx,
                delay_us: u16::try_from(delay).unwrap_or(u16::MAX),
                received: self.received,
                ce: self.ce,
                dups: self.dups,
                grant,
                sack: self.bits.words(),
            },
        )
    }
}
