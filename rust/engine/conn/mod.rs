// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! A connection: one pair of devices, with its paths below and its streams above.

mod deadlines;
mod handshake;
mod payload;
mod rejoin;
mod routes;
mod rx;
mod table;
mod timers;
mod tx;

pub use table::{StreamId, StreamTable};

use super::api::{Config, ConnEvent, Host, LocalParams, RequesterAttr, Route, Store};
use super::cc::{Controller, Shared};
use super::mtu::Mtu;
use super::path::{PathStats, RxPath, TxPath, WINDOW};
use super::spray::Sprayer;
use super::stream::{Stream, STREAM_WINDOW};
use super::time::{Instant, Span};
use super::wire::{Common, Kind, MAX_DATA_HEADER};
use handshake::Handshaking;
use routes::Candidates;

/// Both halves of a path.
struct Path<S: Store> {
    tx: TxPath<S>,
    rx: RxPath,
}

/// What the peer said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Remote {
    conn_id: u32,
    tag: u32,
    epoch: u64,
}

/// A snapshot of a path, for people.
#[derive(Clone, Copy, Debug)]
pub struct PathInfo {
    /// Path id.
    pub id: u8,
    /// Where it leaves.
    pub route: Route,
    /// Next sequence to be sent.
    pub next_seq: u32,
    /// Oldest sequence not acknowledged.
    pub una: u32,
    /// Bytes in flight.
    pub inflight: u32,
    /// Window in bytes.
    pub cwnd: u32,
    /// Share of marked packets in 1/1024.
    pub ce_share: u32,
    /// Smoothed round-trip time; zero while unknown.
    pub srtt: Span,
    /// Smallest round-trip time.
    pub min_rtt: Span,
    /// Bytes of payload in a packet at most.
    pub payload: u32,
    /// Reordering tolerance in packets.
    pub tolerance: u32,
    /// Probes unanswered in a row.
    pub unanswered: u8,
    /// Packets received.
    pub received: u32,
    /// Of these, duplicates.
    pub dups: u32,
    /// Counters of the sending half.
    pub stats: PathStats,
}

/// One end of a connection.
pub struct Connection<S: Store, H: Host> {
    config: Config,
    local: LocalParams,
    local_tag: u32,
    remote: Remote,
    hs: Handshaking,
    paths: S::Buf<Path<S>>,
    /// Paths in use, by agreement.
    active_paths: usize,
    /// Payload bytes per datagram, by agreement.
    max_payload: u32,
    /// Messages in flight per stream the peer can track.
    peer_window: u32,
    streams: StreamTable<S, H>,
    spray: Sprayer,
    candidates: Candidates,
    shared: Shared,
    /// When its round-trip time was measured.
    min_rtt_at: Instant,
    /// Since when windows are at their least and the delay stays all the same.
    stuck_since: Option<Instant>,
    /// When home planes were asked last.
    rejoin_at: Instant,
    /// Paths that owe an acknowledgement.
    ack_due: u64,
    /// Paths with lost packets or VOIDs to be sent.
    repair: u64,
    /// Grant to give and grant received, KiB per ms; 0 = no limit.
    grant_out: u32,
    grant_in: u32,
    heard: Instant,
    silent: bool,
    /// Something has arrived since the last end of a burst that is to be answered at once.
    urgent: bool,
    random: u64,
}

impl<S: Store, H: Host> Connection<S, H> {
    /// A connection that has not sent anything yet. Allocates; process context.
    pub fn new(
        config: &Config,
        local: LocalParams,
        streams: StreamTable<S, H>,
    ) -> Result<Self, S::Error> {
        let mut config = *config;
        config.paths = config.paths.clamp(1, 64);
        config.planes = config.planes.max(1);
        config.ports_per_plane = config.ports_per_plane.max(1);
        config.max_payload = config.max_payload.max(64);
        config.initial_window = config.initial_window.clamp(2, 256);
        let cc = controller(&config, config.max_payload);
        let mut paths = S::buf(usize::from(config.paths), |i| Path {
            tx: TxPath::new(initial_route(&config, i), cc),
            rx: RxPath::default(),
        })?;
        for path in paths.iter_mut() {
            path.tx.allocate()?;
            path.tx.mtu = Mtu::new(config.max_payload);
        }
        let mut conn = Self {
            config,
            local,
            local_tag: 0,
            remote: Remote::default(),
            hs: Handshaking::default(),
            paths,
            active_paths: usize::from(config.paths),
            max_payload: u32::from(config.max_payload),
            peer_window: STREAM_WINDOW,
            streams,
            spray: Sprayer::default(),
            candidates: Candidates::default(),
            shared: Shared::default(),
            min_rtt_at: Instant::default(),
            stuck_since: None,
            rejoin_at: Instant::default(),
            ack_due: 0,
            repair: 0,
            grant_out: 0,
            grant_in: 0,
            heard: Instant::default(),
            silent: false,
            urgent: false,
            random: local.seed,
        };
        conn.local_tag = conn.draw() as u32;
        conn.spray = Sprayer::new(conn.draw());
        Ok(conn)
    }

    /// The next value derived from the secret seed (splitmix64).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Begins the handshake. Again: no effect.
    pub fn open(&mut self, now: Instant, host: &mut H) {
        if !self.hs.established && !self.hs.opening {
            self.hs.opening = true;
            self.start_init(now, host);
        }
    }

    /// Whether data can flow.
    pub fn is_established(&self) -> bool {
        self.hs.established
    }

    /// Local connection id.
    pub fn local_id(&self) -> u32 {
        self.local.conn_id
    }

    /// The peer's connection id and tag once established: what a RESET from it echoes.
    pub fn remote_id(&self) -> (u32, u32) {
        (self.remote.conn_id, self.remote.tag)
    }

    /// Streams the table can hold.
    pub fn stream_capacity(&self) -> usize {
        self.streams.capacity()
    }

    /// Streams attached.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Adds a stream; gives it back when the table is full (grow it, try again).
    #[allow(
        clippy::result_large_err,
        reason = "the caller gets its stream back, nothing is allocated"
    )]
    pub fn attach(&mut self, stream: Stream<S, H>) -> Result<StreamId, Stream<S, H>> {
        self.streams.insert(stream)
    }

    /// Exchanges the table for a larger one; returns the emptied old one (or `bigger` itself if it is
    /// not larger), to be dropped outside the lock.
    pub fn grow_streams(&mut self, mut bigger: StreamTable<S, H>) -> StreamTable<S, H> {
        if bigger.capacity() <= self.streams.capacity() || !bigger.is_empty() {
            return bigger;
        }
        self.streams.move_into(&mut bigger);
        core::mem::replace(&mut self.streams, bigger)
    }

    /// Takes a stream out: its packets in flight become VOID, nothing is completed. To be dropped
    /// outside the lock.
    pub fn detach(&mut self, id: StreamId) -> Option<Stream<S, H>> {
        self.streams.remove(id)
    }

    /// Lets a stream send (RTS). Again: changes the attributes.
    pub fn start_requester(
        &mut self,
        now: Instant,
        id: StreamId,
        attr: &RequesterAttr,
        host: &mut H,
    ) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.requester.start(attr);
        }
        self.kick(now, id, host);
    }

    /// Changes how many READs and atomics the peer may have outstanding on a stream.
    pub fn set_responses(&mut self, id: StreamId, responses: u8) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.responder.set_limit(responses);
        }
    }

    /// The QP went to the error state: flushes its pulled requests in order; no more callbacks for
    /// it except reading the memory of responses already begun.
    pub fn fail(&mut self, id: StreamId, host: &mut H) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.error_raised = true;
            stream.requester.flush(&stream.qp, host);
            stream.responder.close();
        }
    }

    /// The doorbell: there may be work in the send queue. Transmits what the windows allow.
    pub fn kick(&mut self, now: Instant, id: StreamId, host: &mut H) {
        let heard = self.heard;
        if let Some(stream) = self.streams.get_mut(id) {
            stream.requester.on_kick(now);
            let at = stream.requester.deadline(heard);
            self.streams.watch(now, id, at);
        }
        self.streams.activate(id);
        self.pump(now, host);
    }

    /// Sets the grant of this receiver: KiB per millisecond, 0 = no limit.
    pub fn set_grant(&mut self, kib_per_ms: u32) {
        self.grant_out = kib_per_ms;
    }

    /// Snapshots of the paths in use.
    pub fn paths(&self) -> impl Iterator<Item = PathInfo> + '_ {
        self.paths
            .iter()
            .take(self.active_paths)
            .enumerate()
            .map(|(i, p)| PathInfo {
                id: u8::try_from(i).unwrap_or(u8::MAX),
                route: p.tx.route,
                next_seq: p.tx.next_seq().get(),
                una: p.tx.una().get(),
                inflight: p.tx.inflight(),
                cwnd: p.tx.cc.window(),
                ce_share: p.tx.cc.alpha(),
                srtt: p.tx.rtt.smoothed().unwrap_or(Span::ZERO),
                min_rtt: p.tx.rtt.min(),
                payload: p.tx.mtu.limit(),
                tolerance: p.tx.tolerance(),
                unanswered: p.tx.unanswered(),
                received: p.rx.received(),
                dups: p.rx.dups(),
                stats: p.tx.stats,
            })
    }

    /// Common header of a packet to the peer.
    fn common(&self, kind: Kind, path: u8, seq: u32) -> Common {
        Common {
            kind,
            flags: 0,
            path,
            tx_count: 0,
            conn_id: self.remote.conn_id,
            tag: self.remote.tag,
            seq,
        }
    }

    fn route_of(&self, path: usize) -> Route {
        self.paths
            .get(path)
            .map_or(Route::default(), |p| p.tx.route)
    }

    fn notify(&mut self, event: ConnEvent, host: &mut H) {
        host.event(event);
    }
}

/// Paths are dealt over the planes first, then over the ports.
fn initial_route(config: &Config, path: usize) -> Route {
    let planes = usize::from(config.planes);
    let plane = path.checked_rem(planes).unwrap_or(0);
    let turn = path.checked_div(planes).unwrap_or(0);
    let port = turn
        .checked_rem(usize::from(config.ports_per_plane))
        .unwrap_or(0);
    Route {
        plane: u8::try_from(plane).unwrap_or(0),
        port_slot: u8::try_from(port).unwrap_or(0),
    }
}

fn controller(config: &Config, max_payload: u16) -> Controller {
    let mss = u32::from(max_payload).saturating_add(MAX_DATA_HEADER as u32);
    Controller::new(mss, u32::from(config.initial_window), WINDOW)
}
