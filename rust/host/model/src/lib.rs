// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! A small deterministic world for the engine: nodes with memory and queues, and a network that
//! delays, drops, duplicates and reorders. Everything follows from one seed.

mod workload;

pub use workload::{Op, Workload, REGION};

use metaroce_engine::engine::{
    api::*, seq::Msn, wire, Connection, Instant, Span, Stream, StreamId, StreamTable,
};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Buffers on the heap.
pub struct Heap;

impl Store for Heap {
    type Buf<T> = Vec<T>;
    type Error = std::convert::Infallible;
    fn buf<T>(len: usize, fill: impl FnMut(usize) -> T) -> Result<Vec<T>, Self::Error> {
        Ok((0..len).map(fill).collect())
    }
}

/// splitmix64.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            0
        } else {
            self.draw() % n
        }
    }
    /// True with probability `ppm` / 1000000.
    pub fn chance(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }
}

/// A byte that tells where it belongs.
pub fn pattern(seed: u64, i: usize) -> u8 {
    let x = seed
        .wrapping_mul(0x9e37_79b9)
        .wrapping_add(i as u64)
        .wrapping_mul(0x85eb_ca6b);
    (x >> 13) as u8
}

/// A message's bytes.
pub fn message(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| pattern(seed, i)).collect()
}

/// A key that local requests and SENDs with invalidate fail with.
pub const BAD_KEY: u32 = 0xbad;

/// Where received bytes go.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    Recv(usize),
    Memory { base: u64, len: u32 },
}

/// A posted receive.
#[derive(Debug, Default, Clone)]
pub struct Recv {
    pub data: Vec<u8>,
    pub used: bool,
}

/// A QP's queues and what became of them.
#[derive(Default)]
pub struct Qp {
    pub sq: VecDeque<(Request, Vec<u8>)>,
    pub pulled: HashMap<u64, (Request, Vec<u8>)>,
    pub rq: Vec<Recv>,
    pub done: Vec<(u64, WcStatus, u32)>,
    pub received: Vec<(RecvDone, Vec<u8>)>,
    pub results: HashMap<u64, Vec<u8>>,
    pub errors: Vec<StreamError>,
    pub not_ready: bool,
    pub placed_bytes: u64,
    /// FLUSHes executed, and what was in their range then.
    pub flushed: Vec<(Flush, Vec<u8>)>,
    /// Local requests executed, and how many requests were complete then.
    pub executed: Vec<(u64, usize)>,
}

/// The embedder.
pub struct TestHost {
    pub qps: HashMap<u32, Qp>,
    pub memory: Vec<u8>,
    pub rkey: u32,
    pub rnr_timer: u8,
    pub current: Vec<u8>,
    pub out: Vec<(Route, Vec<u8>, bool)>,
    pub events: Vec<ConnEvent>,
    pub fault_wqe: Option<u64>,
    pub fault_remote: bool,
    pub atomics: u64,
    pub transmits: u64,
}

impl Default for TestHost {
    fn default() -> Self {
        Self::new()
    }
}

impl TestHost {
    /// Without QPs, with 4 MiB of memory.
    pub fn new() -> Self {
        Self {
            qps: HashMap::new(),
            memory: vec![0; 4 << 20],
            rkey: 0x1234,
            rnr_timer: 1,
            current: Vec::new(),
            out: Vec::new(),
            events: Vec::new(),
            fault_wqe: None,
            fault_remote: false,
            atomics: 0,
            transmits: 0,
        }
    }
    fn qp(&mut self, qpn: &u32) -> &mut Qp {
        self.qps.get_mut(qpn).expect("callback for an unknown QP")
    }
}

impl Host for TestHost {
    type Qp = u32;
    type Target = Target;

    fn pull_request(&mut self, qp: &u32) -> Option<Request> {
        let q = self.qp(qp);
        let (req, data) = q.sq.pop_front()?;
        q.pulled.insert(req.wqe.0, (req, data));
        Some(req)
    }
    fn execute_local(&mut self, qp: &u32, wqe: WqeId) -> WcStatus {
        let q = self.qp(qp);
        let req = q.pulled[&wqe.0].0;
        assert_eq!(req.opcode, Opcode::Local);
        assert!(q.executed.iter().all(|x| x.0 != wqe.0), "executed twice");
        q.executed.push((wqe.0, q.done.len()));
        if req.rkey == BAD_KEY {
            WcStatus::MwBindErr
        } else {
            WcStatus::Success
        }
    }
    fn complete_request(&mut self, qp: &u32, wqe: WqeId, status: WcStatus, len: u32) {
        let q = self.qp(qp);
        q.pulled
            .remove(&wqe.0)
            .expect("completed twice or never pulled");
        q.done.push((wqe.0, status, len));
    }
    fn place_response(
        &mut self,
        qp: &u32,
        wqe: WqeId,
        offset: u32,
        data: Payload,
    ) -> Result<(), Refusal> {
        let (o, n) = (data.offset as usize, data.len as usize);
        let bytes = self.current[o..o + n].to_vec();
        let q = self.qp(qp);
        let len = q.pulled[&wqe.0].0.len as usize;
        let r = q.results.entry(wqe.0).or_insert_with(|| vec![0; len]);
        r[offset as usize..offset as usize + n].copy_from_slice(&bytes);
        Ok(())
    }
    fn place_atomic(&mut self, qp: &u32, wqe: WqeId, original: u64) -> Result<(), Refusal> {
        let old = self
            .qp(qp)
            .results
            .insert(wqe.0, original.to_ne_bytes().to_vec());
        assert!(old.is_none(), "atomic result placed twice");
        Ok(())
    }
    fn match_recv(&mut self, qp: &u32, ssn: u32, total: u32) -> Result<Target, Refusal> {
        let timer = self.rnr_timer;
        let q = self.qp(qp);
        if q.not_ready {
            return Err(Refusal::NotReady);
        }
        let r = q.rq.get_mut(ssn as usize).ok_or(Refusal::Rnr { timer })?;
        if (total as usize) > r.data.len() {
            return Err(Refusal::Length);
        }
        assert!(!r.used, "receive matched twice");
        r.used = true;
        Ok(Target::Recv(ssn as usize))
    }
    fn match_invalidate(&mut self, _qp: &u32, rkey: u32) -> Result<(), Refusal> {
        match rkey {
            BAD_KEY => Err(Refusal::Access),
            _ => Ok(()),
        }
    }
    fn match_remote(
        &mut self,
        _qp: &u32,
        _access: RemoteAccess,
        rkey: u32,
        va: u64,
        len: u32,
    ) -> Result<Target, Refusal> {
        let end = va.checked_add(u64::from(len)).ok_or(Refusal::Access)?;
        if rkey != self.rkey || end > self.memory.len() as u64 {
            return Err(Refusal::Access);
        }
        Ok(Target::Memory { base: va, len })
    }
    fn place(&mut self, qp: &u32, target: &Target, at: u32, data: Payload) -> Result<(), Refusal> {
        let (o, n, at) = (data.offset as usize, data.len as usize, at as usize);
        let bytes = self.current[o..o + n].to_vec();
        match target {
            Target::Recv(i) => self.qp(qp).rq[*i].data[at..at + n].copy_from_slice(&bytes),
            Target::Memory { base, len } => {
                assert!(at + n <= *len as usize);
                let b = *base as usize + at;
                self.memory[b..b + n].copy_from_slice(&bytes);
            }
        }
        self.qp(qp).placed_bytes += n as u64;
        Ok(())
    }
    fn atomic(&mut self, _qp: &u32, target: &Target, op: AtomicOp) -> Result<u64, Refusal> {
        let Target::Memory { base, .. } = target else {
            panic!()
        };
        self.atomics += 1;
        let m = &mut self.memory[*base as usize..*base as usize + 8];
        let old = u64::from_ne_bytes(m.try_into().unwrap());
        let new = match op {
            AtomicOp::CmpSwap { compare, swap } => {
                if old == compare {
                    swap
                } else {
                    old
                }
            }
            AtomicOp::FetchAdd { add } => old.wrapping_add(add),
            AtomicOp::Write { value } => u64::from_ne_bytes(value.to_be_bytes()),
        };
        m.copy_from_slice(&new.to_ne_bytes());
        Ok(old)
    }
    fn flush(&mut self, qp: &u32, target: &Target, how: Flush) -> Result<(), Refusal> {
        let Target::Memory { base, len } = *target else {
            panic!()
        };
        let at = self.memory[base as usize..][..len as usize].to_vec();
        self.qp(qp).flushed.push((how, at));
        Ok(())
    }
    fn complete_recv(&mut self, qp: &u32, target: Target, done: RecvDone) {
        let Target::Recv(i) = target else { panic!() };
        assert_eq!(i, done.ssn as usize);
        let q = self.qp(qp);
        let data = if done.opcode == Opcode::WriteImm {
            Vec::new()
        } else {
            q.rq[i].data[..done.len as usize].to_vec()
        };
        q.received.push((done, data));
    }
    fn stream_error(&mut self, qp: &u32, error: StreamError) {
        let q = self.qp(qp);
        q.errors.push(error);
        for (req, _) in std::mem::take(&mut q.sq) {
            q.done.push((req.wqe.0, WcStatus::WrFlushErr, 0));
        }
    }
    fn transmit(&mut self, p: &Transmit<'_, u32, Target>) -> TxOutcome {
        let mut bytes = p.header.to_vec();
        match p.payload {
            PayloadSource::None => {}
            PayloadSource::Padding(len) => bytes.resize(bytes.len() + len as usize, 0),
            PayloadSource::Request {
                qp,
                wqe,
                offset,
                len,
            } => {
                if self.fault_wqe == Some(wqe.0) {
                    return TxOutcome::Fault;
                }
                let (o, n) = (offset as usize, len as usize);
                bytes.extend_from_slice(&self.qps[qp].pulled[&wqe.0].1[o..o + n]);
            }
            PayloadSource::Remote {
                target,
                offset,
                len,
                ..
            } => {
                if self.fault_remote {
                    return TxOutcome::Fault;
                }
                let Target::Memory { base, .. } = target else {
                    panic!()
                };
                let b = (*base + u64::from(offset)) as usize;
                bytes.extend_from_slice(&self.memory[b..b + len as usize]);
            }
        }
        self.transmits += 1;
        self.out.push((p.route, bytes, p.ect));
        TxOutcome::Sent
    }
    fn event(&mut self, event: ConnEvent) {
        self.events.push(event);
    }
}

/// What the network does.
#[derive(Clone, Debug)]
pub struct Net {
    /// One-way delay of a route in ns: `base + step * port_slot`.
    pub base: u64,
    pub step: u64,
    /// ns per byte on a route, in 1/1000.
    pub milli_ns_per_byte: u64,
    pub loss_ppm: u32,
    pub dup_ppm: u32,
    /// Packets that take a random extra delay (reordering).
    pub reorder_ppm: u32,
    pub reorder_ns: u64,
    pub garbage_ppm: u32,
    /// Routes (port slots) that swallow everything.
    pub black: Vec<u8>,
    /// Routes that swallow longer datagrams than so many bytes, by port slot; 255: all others.
    pub narrow: Vec<(u8, usize)>,
}

/// What becomes of one datagram, where [`World::fates`] says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Deliver,
    /// It arrives with Congestion Experienced.
    Mark,
    /// It is lost.
    Drop,
    /// It arrives so many ns late.
    Delay(u64),
    /// It arrives, and a second time so many ns later.
    Copy(u64),
    /// It arrives, and so does once more the one sent so many datagrams ago.
    Replay(u8),
    /// It arrives, and so does a copy with this byte changed and a connection id or tag that is not right.
    Forge {
        /// Which byte.
        at: u8,
        /// What is done to it.
        xor: u8,
    },
}

/// Datagrams that can be replayed.
const HISTORY: usize = 256;

impl Default for Net {
    fn default() -> Self {
        Self {
            base: 20_000,
            step: 0,
            milli_ns_per_byte: 0,
            loss_ppm: 0,
            dup_ppm: 0,
            reorder_ppm: 0,
            reorder_ns: 0,
            garbage_ppm: 0,
            black: Vec::new(),
            narrow: Vec::new(),
        }
    }
}

impl Net {
    /// Whether a route swallows a datagram of `len` bytes.
    fn swallows(&self, route: Route, len: usize) -> bool {
        let slot = route.port_slot;
        let most = |of: u8| self.narrow.iter().find(|n| n.0 == of).map(|n| n.1);
        self.black.contains(&slot) || most(slot).or(most(255)).is_some_and(|most| len > most)
    }
}

/// One device.
pub struct Node {
    pub conn: Connection<Heap, TestHost>,
    pub host: TestHost,
    pub streams: HashMap<u32, StreamId>,
    pub alive: bool,
    /// When its receive burst ends at the latest, while the engine lets it wait.
    pub end_by: Option<u64>,
}

impl Node {
    /// When it is to be called.
    fn deadline(&self) -> Option<u64> {
        let engine = self.conn.next_deadline().map(|d| d.as_nanos());
        engine.into_iter().chain(self.end_by).min()
    }
}

/// All of it.
pub struct World {
    pub now: u64,
    pub rng: Rng,
    pub net: Net,
    pub nodes: Vec<Node>,
    peers: Vec<usize>,
    wire: BTreeMap<(u64, u64), (usize, Vec<u8>, bool)>,
    serial: u64,
    /// What becomes of the next datagrams; after them the network is as [`Self::net`] says.
    pub fates: VecDeque<Fate>,
    history: VecDeque<(usize, Vec<u8>)>,
    /// When a route's last datagram leaves it: routes are FIFO.
    free_at: HashMap<(usize, Route), u64>,
    pub delivered: u64,
    pub config: Config,
    /// READs and atomics that streams attached from now on grant their peer.
    pub responses: u8,
}

pub fn requester(timeout_ms: u64, rnr_retry: u8) -> RequesterAttr {
    RequesterAttr {
        timeout: Span::from_millis(timeout_ms),
        retry_cnt: 7,
        rnr_retry,
        max_rd_atomic: 16,
        first_msn: Msn::new(0),
    }
}

impl World {
    /// Two devices, or one that talks to itself.
    pub fn new(seed: u64, net: Net, loopback: bool, config: Config) -> Self {
        let n = if loopback { 1 } else { 2 };
        let mut rng = Rng(seed);
        let nodes = (0..n)
            .map(|i| Self::node(&mut rng, i as u32 + 1, &config))
            .collect();
        Self {
            now: 1_000_000_000,
            rng,
            net,
            nodes,
            peers: if loopback { vec![0] } else { vec![1, 0] },
            wire: BTreeMap::new(),
            serial: 0,
            fates: VecDeque::new(),
            history: VecDeque::new(),
            free_at: HashMap::new(),
            delivered: 0,
            config,
            responses: 16,
        }
    }

    fn node(rng: &mut Rng, id: u32, config: &Config) -> Node {
        let local = LocalParams {
            conn_id: (rng.draw() as u32 & 0xffff_ff00) | id,
            epoch: rng.draw(),
            seed: rng.draw(),
        };
        Node {
            conn: Connection::new(config, local, StreamTable::new(2).unwrap()).unwrap(),
            host: TestHost::new(),
            streams: HashMap::new(),
            alive: true,
            end_by: None,
        }
    }

    /// The device crashes and comes back with nothing.
    pub fn reboot(&mut self, i: usize) {
        let config = self.config;
        self.nodes[i] = Self::node(&mut self.rng, i as u32 + 1, &config);
    }

    pub fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    pub fn open(&mut self, i: usize) {
        let now = self.instant();
        let n = &mut self.nodes[i];
        n.conn.open(now, &mut n.host);
        self.flush(i);
    }

    /// RTR.
    pub fn attach(&mut self, i: usize, qpn: u32, remote: u32) {
        let attr = StreamAttr {
            local_qpn: qpn,
            remote_qpn: remote,
            first_msn: Msn::new(0),
            window: 64,
            responses: self.responses,
        };
        let n = &mut self.nodes[i];
        n.host.qps.entry(qpn).or_default();
        let mut stream = Stream::new(qpn, &attr).unwrap();
        let id = loop {
            match n.conn.attach(stream) {
                Ok(id) => break id,
                Err(back) => {
                    stream = back;
                    let bigger = StreamTable::new(n.conn.stream_capacity() * 2).unwrap();
                    assert!(n.conn.grow_streams(bigger).is_empty());
                }
            }
        };
        n.streams.insert(qpn, id);
    }

    /// RTS.
    pub fn start(&mut self, i: usize, qpn: u32, attr: &RequesterAttr) {
        let now = self.instant();
        let n = &mut self.nodes[i];
        n.conn
            .start_requester(now, n.streams[&qpn], attr, &mut n.host);
        self.flush(i);
    }

    /// Attaches QPs `a` of node 0 and `b` of the other (or same) node to each other.
    pub fn pair(&mut self, a: u32, b: u32, attr: &RequesterAttr) {
        let other = self.peers[0];
        self.attach(0, a, b);
        self.attach(other, b, a);
        self.start(0, a, attr);
        self.start(other, b, attr);
    }

    pub fn qp(&mut self, i: usize, qpn: u32) -> &mut Qp {
        self.nodes[i].host.qp(&qpn)
    }

    pub fn post_recv(&mut self, i: usize, qpn: u32, n: usize, len: usize) {
        for _ in 0..n {
            self.qp(i, qpn).rq.push(Recv {
                data: vec![0; len],
                used: false,
            });
        }
    }

    pub fn post(&mut self, i: usize, qpn: u32, req: Request, data: Vec<u8>) {
        self.qp(i, qpn).sq.push_back((req, data));
        self.kick(i, qpn);
    }

    pub fn kick(&mut self, i: usize, qpn: u32) {
        let now = self.instant();
        let n = &mut self.nodes[i];
        n.conn.kick(now, n.streams[&qpn], &mut n.host);
        self.flush(i);
    }

    pub fn send(&mut self, i: usize, qpn: u32, wqe: u64, len: usize) {
        let req = Request {
            wqe: WqeId(wqe),
            opcode: Opcode::SendImm,
            len: len as u32,
            imm: wqe as u32,
            ..Request::default()
        };
        self.post(i, qpn, req, message(wqe, len));
    }

    /// Puts what a node has sent on the wire.
    pub fn flush(&mut self, i: usize) {
        let out = std::mem::take(&mut self.nodes[i].host.out);
        let to = self.peers[i];
        for (route, bytes, _) in out {
            if let Some(fate) = self.fates.pop_front() {
                self.meet(fate, i, to, route, bytes);
                continue;
            }
            if self.net.swallows(route, bytes.len()) || self.rng.chance(self.net.loss_ppm) {
                continue;
            }
            let copies = 1 + usize::from(self.rng.chance(self.net.dup_ppm));
            let cost = bytes.len() as u64 * self.net.milli_ns_per_byte / 1000;
            let free = self.free_at.entry((i, route)).or_insert(0);
            *free = (*free).max(self.now) + cost;
            let base = *free + self.net.base + self.net.step * u64::from(route.port_slot);
            for _ in 0..copies {
                let mut at = base;
                if self.rng.chance(self.net.reorder_ppm) {
                    at += self.rng.below(self.net.reorder_ns);
                }
                self.serial += 1;
                self.wire
                    .insert((at, self.serial), (to, bytes.clone(), false));
            }
            if self.rng.chance(self.net.garbage_ppm) {
                let mut bad = bytes.clone();
                for _ in 0..1 + self.rng.below(4) {
                    let k = self.rng.below(bad.len() as u64) as usize;
                    // The checksum protects real packets; here ids and tags stay wrong.
                    bad[k] = self.rng.draw() as u8;
                }
                if let (Some(t), Some(right)) = (bad.get_mut(8), bytes.get(8)) {
                    *t = right ^ 0x55;
                }
                if self.rng.chance(300_000) {
                    bad.truncate(self.rng.below(bad.len() as u64 + 1) as usize);
                }
                self.serial += 1;
                self.wire.insert((base, self.serial), (to, bad, false));
            }
        }
    }

    /// Puts one datagram on the wire as its fate demands.
    fn meet(&mut self, fate: Fate, from: usize, to: usize, route: Route, bytes: Vec<u8>) {
        let cost = bytes.len() as u64 * self.net.milli_ns_per_byte / 1000;
        let free = self.free_at.entry((from, route)).or_insert(0);
        *free = (*free).max(self.now) + cost;
        let base = *free + self.net.base + self.net.step * u64::from(route.port_slot);
        let mut put = |at: u64, to: usize, bytes: Vec<u8>, ce: bool| {
            self.serial += 1;
            self.wire.insert((at, self.serial), (to, bytes, ce));
        };
        match fate {
            Fate::Drop => {}
            Fate::Deliver => put(base, to, bytes.clone(), false),
            Fate::Mark => put(base, to, bytes.clone(), true),
            Fate::Delay(ns) => put(base + ns, to, bytes.clone(), false),
            Fate::Copy(ns) => {
                put(base, to, bytes.clone(), false);
                put(base + ns, to, bytes.clone(), false);
            }
            Fate::Replay(back) => {
                put(base, to, bytes.clone(), false);
                let at = self.history.len().checked_sub(usize::from(back) + 1);
                if let Some((to, old)) = at.and_then(|at| self.history.get(at)) {
                    put(base, *to, old.clone(), false);
                }
            }
            Fate::Forge { at, xor } => {
                put(base, to, bytes.clone(), false);
                let mut bad = bytes.clone();
                let n = bad.len();
                if let Some(byte) = bad.get_mut(usize::from(at) % n.max(1)) {
                    *byte ^= xor;
                }
                if let Some(byte) = bad.get_mut(if xor & 1 == 0 { 4 } else { 8 }) {
                    *byte ^= 0x55;
                }
                put(base, to, bad, false);
            }
        }
        self.history.push_back((to, bytes));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }

    /// Hands a datagram to a node.
    pub fn deliver(&mut self, to: usize, bytes: Vec<u8>) -> Handled {
        self.deliver_marked(to, bytes, false)
    }

    /// Hands a datagram to a node, with or without Congestion Experienced.
    pub fn deliver_marked(&mut self, to: usize, bytes: Vec<u8>, ce: bool) -> Handled {
        let now = self.instant();
        let n = &mut self.nodes[to];
        let meta = RxMeta {
            len: bytes.len() as u32,
            ce,
            plane: 0,
        };
        let head = bytes[..bytes.len().min(wire::MAX_HEADER)].to_vec();
        if !n.alive {
            return Handled::Ignored;
        }
        n.host.current = bytes;
        let local = n.conn.local_id();
        let peek = wire::peek(&head);
        if let Ok(p) = peek {
            if !matches!(p.kind, wire::Kind::Init | wire::Kind::Reset) && p.dst_conn_id != local {
                if let Some(reset) = wire::reset_for(&head) {
                    n.host.out.push((Route::default(), reset.to_vec(), false));
                }
                return Handled::Ignored;
            }
        }
        n.conn.handle_datagram(now, &meta, &head, &mut n.host)
    }

    /// One event; false when nothing is left or the next lies beyond `until`.
    pub fn step(&mut self, until: u64) -> bool {
        let wire_at = self.wire.keys().next().map(|k| k.0);
        let timer = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, n)| n.alive)
            .filter_map(|(i, n)| n.deadline().map(|d| (d, i)))
            .min();
        let at = match (wire_at, timer) {
            (Some(w), Some((t, _))) => w.min(t),
            (Some(w), None) => w,
            (None, Some((t, _))) => t,
            (None, None) => return false,
        };
        if at > until {
            self.now = until.max(self.now);
            return false;
        }
        self.now = self.now.max(at);
        if wire_at.is_some_and(|w| w <= self.now) {
            // A burst: all that is due for the same node.
            let (_, (to, first, ce)) = self.wire.pop_first().unwrap();
            self.deliver_marked(to, first, ce);
            self.delivered += 1;
            for _ in 0..63 {
                let due = self
                    .wire
                    .first_key_value()
                    .is_some_and(|(k, v)| k.0 <= self.now + 1000 && v.0 == to);
                if !due {
                    break;
                }
                let (_, (_, bytes, ce)) = self.wire.pop_first().unwrap();
                self.deliver_marked(to, bytes, ce);
                self.delivered += 1;
            }
            let now = self.instant();
            let n = &mut self.nodes[to];
            if n.alive && n.conn.may_wait() {
                let late = now.after(wire::ACK_DELAY).as_nanos();
                n.end_by = n.end_by.or(Some(late));
            } else if n.alive {
                n.end_by = None;
                n.conn.end_of_burst(now, &mut n.host);
            }
            self.flush(to);
        } else if let Some((_, i)) = timer {
            let now = self.instant();
            let n = &mut self.nodes[i];
            if n.end_by.is_some_and(|at| at <= now.as_nanos()) {
                n.end_by = None;
                n.conn.end_of_burst(now, &mut n.host);
            }
            n.conn.handle_timeout(now, &mut n.host);
            self.flush(i);
        }
        true
    }

    /// Runs until `done` or for at most `ms` of simulated time; tells whether `done` came.
    pub fn run(&mut self, ms: u64, mut done: impl FnMut(&mut World) -> bool) -> bool {
        let until = self.now + ms * 1_000_000;
        let mut steps = 0u64;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(until) {
                return done(self);
            }
            steps += 1;
            assert!(steps < 50_000_000, "the world does not come to rest");
        }
    }

    pub fn retransmissions(&self, i: usize) -> u64 {
        self.nodes[i]
            .conn
            .paths()
            .map(|p| p.stats.retransmitted + p.stats.timeouts)
            .sum()
    }
}
