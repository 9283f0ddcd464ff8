// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The event loop: hosts with the real engine, or with the RoCEv2 model, on a [`Fabric`].

use crate::host::{allocated, Datagram, End, Heap, Qp};
use crate::net::{Fabric, FabricSpec, Hops};
use crate::roce::{self, RoceQp};
use metaroce_engine::engine::seq::Msn;
use metaroce_engine::engine::{
    hints, Config, Connection, Instant, LocalParams, RequesterAttr, RxMeta, Span, Stream,
    StreamAttr, StreamId, StreamTable,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Microsecond, millisecond and second in nanoseconds.
pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

/// One end of a connection.
pub struct Endpoint {
    pub conn: Connection<Heap, End>,
    pub end: End,
    pub host: usize,
    pub peer: usize,
    streams: Vec<StreamId>,
    member: hints::Member,
    heard: bool,
    burst: bool,
    timer_at: u64,
}

enum Body {
    Engine {
        to: u32,
        plane: u8,
        datagram: Datagram,
    },
    Roce {
        qp: u32,
        kind: roce::Kind,
    },
}

struct Packet {
    hops: Hops,
    bytes: u32,
    ect: bool,
    ce: bool,
    body: Body,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(u32),
    Burst(u32),
    Timer(u32),
    Nic(u32),
    RoceTimer(u32),
    Control(u32),
}

/// What happens at a given moment of a run.
#[derive(Clone, Copy, Debug)]
pub enum Control {
    /// The fabric of a plane fails or comes back; with `carrier` hosts see it at once.
    Plane {
        plane: usize,
        up: bool,
        carrier: bool,
    },
    /// A flow begins.
    Start(usize),
}

/// What hosts do on receiving messages.
#[derive(Clone, Copy, Debug, Default)]
pub enum Reaction {
    #[default]
    None,
    /// Ring: on receiving a message from the left, post one to the right, so many in all.
    Ring { steps: u64 },
}

/// A one-way sequence of equal messages.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub src: usize,
    /// Endpoint and QP number at the source (engine), or QP (RoCEv2).
    at: usize,
    qp: usize,
    pub received: u64,
    pub last_receive: u64,
    /// Longest time between two messages, see [`Sim::reset_gaps`].
    longest: u64,
    messages: u64,
}

/// Knobs of the hosts.
#[derive(Clone, Copy, Debug)]
pub struct HostSpec {
    pub paths: u8,
    pub payload: u16,
    pub initial_window: u16,
    /// Received packets of one connection are handled together so often.
    pub coalesce: u64,
    /// Receiver grants.
    pub grants: bool,
    /// Messages in flight per QP.
    pub window: u16,
}

impl Default for HostSpec {
    fn default() -> Self {
        Self {
            paths: 8,
            payload: 4096,
            initial_window: 32,
            coalesce: 2 * US,
            grants: true,
            window: 16,
        }
    }
}

/// A simulation.
pub struct Sim {
    pub now: u64,
    serial: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub fabric: Fabric,
    packets: Vec<Packet>,
    free: Vec<u32>,
    pub hosts: HostSpec,
    pub ends: Vec<Endpoint>,
    pairs: HashMap<(usize, usize), usize>,
    receivers: Vec<hints::Receiver>,
    pub flows: Vec<Flow>,
    flow_at: HashMap<(usize, usize), usize>,
    controls: Vec<Control>,
    pub reaction: Reaction,
    pub roce: Vec<RoceQp>,
    pub roce_on: bool,
    nic_at: Vec<u64>,
    nic_turn: Vec<usize>,
    by_host: Vec<Vec<usize>>,
    pub packets_delivered: u64,
    /// Unfinished flows of finite length.
    pub unfinished: usize,
    seed: u64,
}

fn scramble(a: u64) -> u64 {
    let z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (z >> 31)
}

impl Sim {
    pub fn new(spec: FabricSpec, hosts: HostSpec, seed: u64) -> Self {
        // The grant's unit is KiB per millisecond. What counts is payload with headers, not gaps.
        let share = u64::from(hosts.payload) * 1000
            / u64::from(u32::from(hosts.payload) + 68 + crate::net::OVERHEAD);
        let capacity = spec.gbps * 125_000_000 / 1024 / 1000 * share / 1000;
        let rtt = Span::from_nanos(8 * spec.delay + 20 * US);
        let n = spec.hosts;
        let receiver = hints::Receiver::new((capacity * spec.planes as u64) as u32, rtt);
        Self {
            now: 0,
            serial: 0,
            events: BinaryHeap::new(),
            receivers: vec![receiver; n],
            fabric: Fabric::new(spec, seed),
            packets: Vec::new(),
            free: Vec::new(),
            hosts,
            ends: Vec::new(),
            pairs: HashMap::new(),
            flows: Vec::new(),
            flow_at: HashMap::new(),
            controls: Vec::new(),
            reaction: Reaction::None,
            roce: Vec::new(),
            roce_on: false,
            nic_at: vec![u64::MAX; n],
            nic_turn: vec![0; n],
            by_host: vec![Vec::new(); n],
            packets_delivered: 0,
            unfinished: 0,
            seed,
        }
    }

    fn at(&mut self, when: u64, event: Event) {
        self.serial += 1;
        self.events
            .push(Reverse((when.max(self.now), self.serial, event)));
    }

    /// Schedules `control`.
    pub fn control(&mut self, when: u64, control: Control) {
        self.controls.push(control);
        self.at(when, Event::Control(self.controls.len() as u32 - 1));
    }

    fn instant(&self) -> Instant {
        // The engine takes 0 for "never".
        Instant::from_nanos(self.now + 1_000_000)
    }

    /// The endpoint of `a` towards `b`; makes the connection when there is none.
    fn endpoint(&mut self, a: usize, b: usize) -> usize {
        if let Some(&at) = self.pairs.get(&(a, b)) {
            return at;
        }
        let first = self.ends.len();
        let planes = self.fabric.spec.planes;
        let config = Config {
            paths: self.hosts.paths,
            planes: planes as u8,
            ports_per_plane: 64,
            max_payload: self.hosts.payload,
            initial_window: self.hosts.initial_window,
        };
        for (i, (host, other)) in [(a, b), (b, a)].into_iter().enumerate() {
            let id = first + i;
            let local = LocalParams {
                conn_id: id as u32 + 1,
                epoch: 1 + host as u64,
                seed: scramble(self.seed ^ ((id as u64) << 20)),
            };
            let Ok(table) = StreamTable::new(2);
            let Ok(conn) = Connection::new(&config, local, table);
            self.ends.push(Endpoint {
                conn,
                end: End::default(),
                host,
                peer: first + (1 - i),
                streams: Vec::new(),
                member: hints::Member::default(),
                heard: false,
                burst: false,
                timer_at: u64::MAX,
            });
            self.pairs.insert((host, other), id);
        }
        for id in [first, first + 1] {
            let now = self.instant();
            let e = &mut self.ends[id];
            e.conn.open(now, &mut e.end);
            self.after_engine(id);
        }
        first
    }

    fn add_qp(&mut self, at: usize, msg_len: u32, to_send: u64) -> usize {
        let qp = self.ends[at].end.qps.len();
        let now = self.instant();
        let window = self.hosts.window;
        for (end, to_send) in [(at, to_send), (self.ends[at].peer, 0)] {
            let e = &mut self.ends[end];
            e.end.qps.push(Qp {
                msg_len,
                to_send,
                ..Qp::default()
            });
            let attr = StreamAttr {
                local_qpn: qp as u32 + 1,
                remote_qpn: qp as u32 + 1,
                first_msn: Msn::new(0),
                window,
                responses: 1,
            };
            let Ok(mut stream) = Stream::new(qp as u32, &attr);
            loop {
                match e.conn.attach(stream) {
                    Ok(id) => {
                        e.streams.push(id);
                        break;
                    }
                    Err(back) => {
                        let Ok(bigger) = StreamTable::new(2 * e.conn.stream_capacity());
                        e.conn.grow_streams(bigger);
                        stream = back;
                    }
                }
            }
            let attr = RequesterAttr {
                timeout: Span::from_millis(500),
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: 1,
                first_msn: Msn::new(0),
            };
            e.conn
                .start_requester(now, e.streams[qp], &attr, &mut e.end);
            self.after_engine(end);
        }
        qp
    }

    /// A flow of `messages` messages of `msg_len` bytes (`u64::MAX`: endless), all posted at `start`
    /// (`None`: none of them, see [`Reaction`]).
    pub fn flow(
        &mut self,
        src: usize,
        dst: usize,
        msg_len: u32,
        messages: u64,
        start: Option<u64>,
    ) -> usize {
        let id = self.flows.len();
        let (at, qp) = if self.roce_on {
            let sport = scramble(self.seed ^ id as u64) as u16;
            self.roce.push(RoceQp::new(
                src,
                dst,
                sport,
                msg_len,
                self.hosts.payload,
                &self.fabric.spec,
            ));
            self.by_host[src].push(id);
            (id, 0)
        } else {
            let at = self.endpoint(src, dst);
            (at, self.add_qp(at, msg_len, 0))
        };
        self.flows.push(Flow {
            src,
            at,
            qp,
            received: 0,
            last_receive: 0,
            longest: 0,
            messages,
        });
        if !self.roce_on {
            self.flow_at.insert((self.ends[at].peer, qp), id);
        }
        self.unfinished += usize::from(messages != u64::MAX);
        if let Some(start) = start {
            self.control(start, Control::Start(id));
        }
        id
    }

    /// Posts messages of a flow.
    fn post(&mut self, flow: usize, messages: u64) {
        let f = self.flows[flow];
        if self.roce_on {
            self.roce[f.at].post(messages);
            self.wake_nic(f.src, self.now);
        } else {
            let now = self.instant();
            let e = &mut self.ends[f.at];
            let q = &mut e.end.qps[f.qp];
            q.to_send = q.to_send.saturating_add(messages);
            e.conn.kick(now, e.streams[f.qp], &mut e.end);
            self.after_engine(f.at);
        }
    }

    /// Payload bytes of a flow that are in their place.
    pub fn placed(&self, flow: usize) -> u64 {
        let f = &self.flows[flow];
        if self.roce_on {
            self.roce[f.at].placed
        } else {
            self.ends[self.ends[f.at].peer].end.qps[f.qp].placed
        }
    }

    /// From now on [`Self::longest_gap`] is measured anew.
    pub fn reset_gaps(&mut self) {
        for f in &mut self.flows {
            f.longest = 0;
            f.last_receive = f.last_receive.max(self.now);
        }
    }

    /// Longest time without a received message of any flow.
    pub fn longest_gap(&self) -> u64 {
        let gap = |f: &Flow| f.longest.max(self.now - f.last_receive);
        self.flows.iter().map(gap).max().unwrap_or(0)
    }

    /// Sum of [`Self::placed`].
    pub fn placed_all(&self) -> u64 {
        (0..self.flows.len()).map(|f| self.placed(f)).sum()
    }

    /// Packets sent again, probes sent and packets sent for the first time, of all engine paths.
    pub fn repairs(&self) -> (u64, u64, u64) {
        let mut sum = (0, 0, 0);
        for path in self.ends.iter().flat_map(|e| e.conn.paths()) {
            sum.0 += path.stats.retransmitted + path.stats.timeouts;
            sum.1 += path.stats.probes;
            sum.2 += path.stats.sent;
        }
        if self.roce_on {
            for q in &self.roce {
                sum.0 += q.resent;
                sum.1 += q.timeouts;
                sum.2 += q.sent;
            }
        }
        sum
    }

    /// Errors that applications saw.
    pub fn errors(&self) -> u64 {
        self.ends
            .iter()
            .flat_map(|e| &e.end.qps)
            .map(|q| u64::from(q.errors))
            .sum()
    }

    fn store(&mut self, packet: Packet) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.packets[at as usize] = packet;
                at
            }
            None => {
                self.packets.push(packet);
                self.packets.len() as u32 - 1
            }
        }
    }

    /// Moves a packet over its next hop.
    fn hop(&mut self, mut packet: Packet) {
        let ce = if packet.ect {
            Some(&mut packet.ce)
        } else {
            None
        };
        if let Some(when) = self
            .fabric
            .forward(self.now, &mut packet.hops, packet.bytes, ce)
        {
            let at = self.store(packet);
            self.at(when, Event::Arrive(at));
        }
    }

    /// Sends what the engine has put out, and sets its timer.
    fn after_engine(&mut self, id: usize) {
        let mut out = std::mem::take(&mut self.ends[id].end.out);
        let (host, peer) = (self.ends[id].host, self.ends[id].peer);
        let dst = self.ends[peer].host;
        for datagram in out.drain(..) {
            let route = datagram.route;
            let salt = (id.min(peer) as u64) << 32
                | u64::from(route.plane) << 8
                | u64::from(route.port_slot);
            let sport = scramble(salt) as u16;
            let hops = self
                .fabric
                .route(host, dst, usize::from(route.plane), sport);
            let body = Body::Engine {
                to: peer as u32,
                plane: route.plane,
                datagram,
            };
            self.hop(Packet {
                hops,
                bytes: datagram.len,
                ect: datagram.ect,
                ce: false,
                body,
            });
        }
        self.ends[id].end.out = out;
        let e = &mut self.ends[id];
        if let Some(at) = e.conn.next_deadline() {
            let at = at.as_nanos().saturating_sub(1_000_000).max(self.now);
            if at < e.timer_at {
                e.timer_at = at;
                self.at(at, Event::Timer(id as u32));
            }
        }
        while let Some(qp) = self.ends[id].end.arrived.pop() {
            if let Some(&flow) = self.flow_at.get(&(id, qp as usize)) {
                self.received(flow);
            }
        }
    }

    /// A message of a flow has been received.
    fn received(&mut self, flow: usize) {
        let f = &mut self.flows[flow];
        f.received += 1;
        f.longest = f.longest.max(self.now - f.last_receive);
        f.last_receive = self.now;
        if f.received == f.messages {
            self.unfinished -= 1;
        }
        if let Reaction::Ring { steps } = self.reaction {
            // Flow i leads from host i to host i + 1; what has come over it is passed on.
            if f.received < steps {
                let next = (flow + 1) % self.flows.len();
                self.post(next, 1);
            }
        }
    }

    /// Runs until `until`, or until all finite flows are over.
    pub fn run(&mut self, until: u64) {
        let finite = self.unfinished > 0;
        while let Some(&Reverse((when, _, event))) = self.events.peek() {
            if when > until || (finite && self.unfinished == 0) {
                break;
            }
            self.events.pop();
            self.now = when;
            self.handle(event);
        }
        if !finite {
            self.now = until;
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive(at) => {
                let nothing = Body::Roce {
                    qp: 0,
                    kind: roce::Kind::Cnp,
                };
                let blank = Packet {
                    hops: Hops::default(),
                    bytes: 0,
                    ect: false,
                    ce: false,
                    body: nothing,
                };
                let packet = std::mem::replace(&mut self.packets[at as usize], blank);
                self.free.push(at);
                if !self.fabric.survives(&packet.hops) {
                } else if packet.hops.is_done() {
                    self.deliver(packet);
                } else {
                    self.hop(packet);
                }
            }
            Event::Burst(id) => self.end_burst(id as usize),
            Event::Timer(id) => {
                let now = self.instant();
                let e = &mut self.ends[id as usize];
                if e.timer_at != self.now {
                    return; // A later, superseded one.
                }
                e.timer_at = u64::MAX;
                if e.conn.next_deadline().is_some_and(|at| at <= now) {
                    e.conn.handle_timeout(now, &mut e.end);
                }
                self.after_engine(id as usize);
            }
            Event::Nic(host) => self.nic(host as usize),
            Event::RoceTimer(qp) => {
                let q = &mut self.roce[qp as usize];
                let again = q.on_timer(self.now);
                let src = q.src;
                if let Some(at) = again {
                    self.at(at, Event::RoceTimer(qp));
                }
                self.wake_nic(src, self.now);
            }
            Event::Control(at) => match self.controls[at as usize] {
                Control::Start(flow) => {
                    let messages = if matches!(self.reaction, Reaction::Ring { .. }) {
                        1
                    } else {
                        self.flows[flow].messages
                    };
                    self.post(flow, messages);
                }
                Control::Plane { plane, up, carrier } => {
                    self.fabric.set_plane(plane, up);
                    if carrier {
                        let now = self.instant();
                        for id in 0..self.ends.len() {
                            let e = &mut self.ends[id];
                            if up {
                                e.conn.plane_up(now, plane as u8, &mut e.end);
                            } else {
                                e.conn.plane_down(now, plane as u8, &mut e.end);
                            }
                            self.after_engine(id);
                        }
                    }
                }
            },
        }
    }

    fn deliver(&mut self, packet: Packet) {
        self.packets_delivered += 1;
        match packet.body {
            Body::Engine {
                to,
                plane,
                datagram,
            } => {
                let now = self.instant();
                let e = &mut self.ends[to as usize];
                let meta = RxMeta {
                    len: datagram.len,
                    ce: packet.ce,
                    plane,
                };
                let before = e.end.out.len();
                let head = &datagram.head[..usize::from(datagram.head_len)];
                e.conn.handle_datagram(now, &meta, head, &mut e.end);
                if datagram.ect {
                    e.heard = true;
                }
                if !e.burst {
                    e.burst = true;
                    let when = self.now + self.hosts.coalesce;
                    self.at(when, Event::Burst(to));
                }
                if self.ends[to as usize].end.out.len() != before
                    || !self.ends[to as usize].end.arrived.is_empty()
                {
                    self.after_engine(to as usize);
                }
            }
            Body::Roce { qp, kind } => {
                let q = &mut self.roce[qp as usize];
                let reply = q.on_packet(self.now, kind, packet.ce);
                let (src, dst, sport) = (q.src, q.dst, q.sport);
                let done = std::mem::take(&mut q.arrived);
                for kind in reply.into_iter().flatten() {
                    let hops = self.fabric.route(dst, src, 0, sport);
                    let body = Body::Roce { qp, kind };
                    self.hop(Packet {
                        hops,
                        bytes: roce::HEADER,
                        ect: false,
                        ce: false,
                        body,
                    });
                }
                for _ in 0..done {
                    self.received(qp as usize);
                }
                if !matches!(kind, roce::Kind::Data { .. }) {
                    self.wake_nic(src, self.now);
                }
            }
        }
    }

    fn end_burst(&mut self, id: usize) {
        let now = self.instant();
        let e = &mut self.ends[id];
        e.burst = false;
        if self.hosts.grants && std::mem::take(&mut e.heard) {
            e.conn
                .set_grant(self.receivers[e.host].on_burst(now, &mut e.member));
        }
        e.conn.end_of_burst(now, &mut e.end);
        self.after_engine(id);
    }

    fn wake_nic(&mut self, host: usize, when: u64) {
        let when = when.max(self.fabric.uplink_free(host, 0)).max(self.now);
        if when < self.nic_at[host] {
            self.nic_at[host] = when;
            self.at(when, Event::Nic(host as u32));
        }
    }

    /// The uplink of a RoCEv2 host is free: the next QP in turn sends one packet.
    fn nic(&mut self, host: usize) {
        if self.nic_at[host] != self.now {
            return;
        }
        self.nic_at[host] = u64::MAX;
        let n = self.by_host[host].len();
        let mut next = u64::MAX;
        for i in 0..n {
            let turn = (self.nic_turn[host] + i) % n;
            let qp = self.by_host[host][turn];
            let q = &mut self.roce[qp];
            let Some(ready) = q.ready_at() else { continue };
            if ready > self.now {
                next = next.min(ready);
                continue;
            }
            let hops = self.fabric.route(q.src, q.dst, 0, q.sport);
            let pause = self.fabric.pause(self.now, &hops);
            if pause > 0 {
                next = next.min(self.now + pause);
                continue;
            }
            let (kind, bytes) = q.send(self.now);
            let timer = q.arm(self.now);
            self.nic_turn[host] = (turn + 1) % n;
            let body = Body::Roce {
                qp: qp as u32,
                kind,
            };
            self.hop(Packet {
                hops,
                bytes,
                ect: true,
                ce: false,
                body,
            });
            if let Some(at) = timer {
                self.at(at, Event::RoceTimer(qp as u32));
            }
            self.wake_nic(host, self.now);
            return;
        }
        if next != u64::MAX {
            self.wake_nic(host, next);
        }
    }
}

/// Bytes of engine state: fixed part of a connection, its buffers, and one QP's.
pub fn state_bytes(hosts: HostSpec, window: u16) -> (usize, usize, usize) {
    let fixed = size_of::<Connection<Heap, End>>();
    let before = allocated();
    let config = Config {
        paths: hosts.paths,
        max_payload: hosts.payload,
        ..Config::default()
    };
    let Ok(table) = StreamTable::<Heap, End>::new(1);
    let table_bytes = allocated() - before;
    let local = LocalParams {
        conn_id: 1,
        epoch: 1,
        seed: 1,
    };
    let Ok(conn) = Connection::new(&config, local, table);
    let buffers = allocated() - before - table_bytes;
    drop(conn);
    let before = allocated();
    let attr = StreamAttr {
        local_qpn: 1,
        remote_qpn: 1,
        first_msn: Msn::new(0),
        window,
        responses: 16,
    };
    let Ok(stream) = Stream::<Heap, End>::new(0, &attr);
    drop(stream);
    (fixed, buffers, allocated() - before + table_bytes)
}
