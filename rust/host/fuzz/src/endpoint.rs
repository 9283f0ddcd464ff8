// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! One endpoint and a peer that sends anything: bytes as they come, or packets that are nearly right. The
//! embedder refuses, drops and faults now and then.
//!
//! Checked all the time: requests complete once each, in posting order, and are flushed after an error; nothing is
//! placed outside of its target or read outside of the datagram or the request; a receive completes
//! once; an atomic is executed once; no callback for a QP that has failed; what is sent can be parsed and
//! has its agreed length; a deadline lies ahead whenever packets are in flight; who does not know the
//! tag changes nothing.

use crate::Input;
use metaroce_engine::engine::{
    api::*,
    path::WINDOW,
    seq::Msn,
    wire::{self, Common, Data, Kind, Nak, NakReason, Op, Operands, Packet},
    Connection, Instant, Span, Stream, StreamId, StreamTable,
};
use metaroce_model::Heap;
use std::collections::{HashSet, VecDeque};

/// QPs of the endpoint; the peer's have numbers from 0x100 on.
const QPS: usize = 4;
const PEER_QPN: u32 = 0x100;

#[derive(Debug)]
struct Target {
    id: u64,
    /// `None`: a matched receive.
    access: Option<RemoteAccess>,
    len: u32,
}

#[derive(Default)]
struct Qp {
    sq: VecDeque<Request>,
    pulled: VecDeque<Request>,
    /// No more callbacks but for responses already begun.
    failed: bool,
    /// A request has failed: the others are flushed.
    flushing: bool,
    raised: bool,
}

#[derive(Default)]
struct FuzzHost {
    qps: Vec<Qp>,
    /// Length of the datagram under reception; 0 outside.
    current: u32,
    next_target: u64,
    /// Receives matched and not completed, atomics not executed.
    open: HashSet<u64>,
    /// How the next of these calls end.
    refuse: VecDeque<Refusal>,
    outcome: VecDeque<TxOutcome>,
    out: Vec<(Common, Packet)>,
    /// Callbacks that concern streams.
    calls: u64,
    max_datagram: u32,
    planes: u8,
    ports: u8,
}

impl FuzzHost {
    fn live(&mut self, qp: u32) -> &mut Qp {
        self.calls += 1;
        let q = &mut self.qps[qp as usize];
        assert!(!q.failed, "callback for a QP that has failed");
        q
    }

    fn target(
        &mut self,
        access: Option<RemoteAccess>,
        len: u32,
        once: bool,
    ) -> Result<Target, Refusal> {
        if let Some(refusal) = self.refuse.pop_front() {
            return Err(refusal);
        }
        self.next_target += 1;
        let id = self.next_target;
        if once {
            self.open.insert(id);
        }
        Ok(Target { id, access, len })
    }

    fn payload(&mut self, data: Payload) -> Result<(), Refusal> {
        let end = u64::from(data.offset) + u64::from(data.len);
        assert!(data.len > 0 && end <= u64::from(self.current));
        self.refuse.pop_front().map_or(Ok(()), Err)
    }
}

impl Host for FuzzHost {
    type Qp = u32;
    type Target = Target;

    fn pull_request(&mut self, qp: &u32) -> Option<Request> {
        let q = self.live(*qp);
        let req = q.sq.pop_front()?;
        q.pulled.push_back(req);
        Some(req)
    }

    fn execute_local(&mut self, qp: &u32, wqe: WqeId) -> WcStatus {
        let q = self.live(*qp);
        let at = q.pulled.iter().position(|r| r.wqe == wqe);
        let at = at.expect("executed a request that is not in flight");
        let req = &mut q.pulled[at];
        assert_eq!(req.opcode, Opcode::Local);
        assert_eq!(
            req.local,
            WcStatus::Success,
            "executed twice, or after its error"
        );
        assert!(!req.fence || at == 0, "executed before its fence");
        // So that a second call is noticed.
        req.local = WcStatus::MwBindErr;
        WcStatus::Success
    }

    fn complete_request(&mut self, qp: &u32, wqe: WqeId, status: WcStatus, len: u32) {
        self.calls += 1;
        let q = &mut self.qps[*qp as usize];
        let req = q.pulled.pop_front().expect("completed but not pulled");
        assert_eq!(req.wqe, wqe, "out of order");
        if q.flushing || q.failed {
            assert_eq!(status, WcStatus::WrFlushErr);
        } else if status == WcStatus::Success {
            assert_eq!(len, req.len);
        }
        q.flushing |= status != WcStatus::Success;
    }

    fn place_response(
        &mut self,
        qp: &u32,
        wqe: WqeId,
        offset: u32,
        data: Payload,
    ) -> Result<(), Refusal> {
        let q = self.live(*qp);
        let req = q.pulled.iter().find(|r| r.wqe == wqe);
        let req = req.expect("response to a request that is over");
        assert_eq!(req.opcode, Opcode::Read);
        assert!(u64::from(offset) + u64::from(data.len) <= u64::from(req.len));
        self.payload(data)
    }

    fn place_atomic(&mut self, qp: &u32, wqe: WqeId, _: u64) -> Result<(), Refusal> {
        let q = self.live(*qp);
        let req = q.pulled.iter().find(|r| r.wqe == wqe);
        let req = req.expect("response to a request that is over");
        assert!(matches!(req.opcode, Opcode::CmpSwap | Opcode::FetchAdd));
        Ok(())
    }

    fn match_recv(&mut self, qp: &u32, _: u32, total_len: u32) -> Result<Target, Refusal> {
        self.live(*qp);
        self.target(None, total_len, true)
    }

    fn match_invalidate(&mut self, qp: &u32, _: u32) -> Result<(), Refusal> {
        self.live(*qp);
        self.refuse.pop_front().map_or(Ok(()), Err)
    }

    fn match_remote(
        &mut self,
        qp: &u32,
        access: RemoteAccess,
        _: u32,
        va: u64,
        len: u32,
    ) -> Result<Target, Refusal> {
        self.live(*qp);
        let once = match access {
            RemoteAccess::Atomic | RemoteAccess::AtomicWrite => {
                assert!(len == 8 && va % 8 == 0);
                true
            }
            RemoteAccess::Flush(_) => true,
            RemoteAccess::Write | RemoteAccess::Read => false,
        };
        self.target(Some(access), len, once)
    }

    fn place(&mut self, qp: &u32, t: &Target, at: u32, data: Payload) -> Result<(), Refusal> {
        self.live(*qp);
        assert!(matches!(t.access, None | Some(RemoteAccess::Write)));
        assert!(u64::from(at) + u64::from(data.len) <= u64::from(t.len));
        self.payload(data)
    }

    fn atomic(&mut self, qp: &u32, t: &Target, op: AtomicOp) -> Result<u64, Refusal> {
        self.live(*qp);
        let access = match op {
            AtomicOp::Write { .. } => RemoteAccess::AtomicWrite,
            _ => RemoteAccess::Atomic,
        };
        assert_eq!(t.access, Some(access));
        assert!(self.open.remove(&t.id), "executed twice");
        self.refuse.pop_front().map_or(Ok(7), Err)
    }

    fn flush(&mut self, qp: &u32, t: &Target, how: Flush) -> Result<(), Refusal> {
        self.live(*qp);
        assert_eq!(t.access, Some(RemoteAccess::Flush(how)));
        assert!(self.open.remove(&t.id), "executed twice");
        self.refuse.pop_front().map_or(Ok(()), Err)
    }

    fn complete_recv(&mut self, qp: &u32, t: Target, done: RecvDone) {
        self.live(*qp);
        assert!(self.open.remove(&t.id), "received twice");
        if done.opcode != Opcode::WriteImm {
            assert_eq!(done.len, t.len);
        }
        assert!(done.opcode.consumes_receive());
    }

    fn stream_error(&mut self, qp: &u32, _: StreamError) {
        let q = self.live(*qp);
        assert!(!q.raised, "two errors for one stream");
        assert!(q.pulled.is_empty(), "error raised before the flush");
        q.raised = true;
        q.failed = true;
    }

    fn transmit(&mut self, p: &Transmit<'_, u32, Target>) -> TxOutcome {
        assert!(p.route.plane < self.planes && p.route.port_slot < self.ports && p.path < 64);
        match &p.payload {
            PayloadSource::None => {}
            PayloadSource::Padding(_) => {
                let kind = wire::peek(p.header).map(|x| x.kind);
                assert_eq!(kind, Ok(wire::Kind::Probe), "padded");
            }
            PayloadSource::Request {
                qp,
                wqe,
                offset,
                len,
            } => {
                let q = &self.qps[**qp as usize];
                let req = q.pulled.iter().find(|r| r.wqe == *wqe);
                let req = req.expect("reads a request that is over");
                assert!(!req.opcode.expects_response());
                assert!(u64::from(*offset) + u64::from(*len) <= u64::from(req.len));
            }
            PayloadSource::Remote {
                target,
                offset,
                len,
                ..
            } => {
                assert_eq!(target.access, Some(RemoteAccess::Read));
                assert!(u64::from(*offset) + u64::from(*len) <= u64::from(target.len));
            }
        }
        let len = p.header.len() as u32 + p.payload.len();
        let (common, packet) = wire::parse(p.header, len).expect("sent what cannot be parsed");
        if let Packet::Data(d) = &packet {
            assert_eq!(d.header_len as usize, p.header.len());
        }
        assert!(len <= self.max_datagram, "longer than agreed");
        assert_eq!(
            p.ect,
            matches!(packet, Packet::Data(_) | Packet::Void | Packet::Probe)
        );
        if self.out.len() < 256 {
            self.out.push((common, packet));
        }
        let outcome = self.outcome.pop_front().unwrap_or(TxOutcome::Sent);
        if outcome == TxOutcome::Fault && p.payload.is_empty() {
            return TxOutcome::Sent;
        }
        outcome
    }

    fn event(&mut self, _: ConnEvent) {}
}

struct World {
    now: u64,
    conn: Connection<Heap, FuzzHost>,
    host: FuzzHost,
    streams: [Option<StreamId>; QPS],
    /// What the peer knows.
    tag: u32,
    nonce: u64,
    established: bool,
    /// What the peer sends next: sequence by path, message number by QP.
    seq: [u32; 64],
    msn: [u32; QPS],
    wqes: u64,
    window: u16,
}

const LOCAL_ID: u32 = 0x1001;
const PEER_ID: u32 = 0x2002;
const PEER_TAG: u32 = 0xfeed_f00d;

impl World {
    fn new(x: &mut Input<'_>) -> Self {
        let shape = x.u16();
        let config = Config {
            paths: [4, 1, 8, 64][usize::from(shape & 3)],
            planes: [1, 2, 4, 8][usize::from(shape >> 2 & 3)],
            ports_per_plane: [32, 1, 3, 255][usize::from(shape >> 4 & 3)],
            max_payload: [1400, 64, 4096, 65_400][usize::from(shape >> 6 & 3)],
            initial_window: [32, 2, 256, 8][usize::from(shape >> 8 & 3)],
        };
        let local = LocalParams {
            conn_id: LOCAL_ID,
            epoch: 77,
            seed: u64::from(shape),
        };
        let Ok(table) = StreamTable::new(1);
        let Ok(conn) = Connection::new(&config, local, table);
        Self {
            // Close to a wrap of 32-bit microseconds and nanoseconds, for what it is worth.
            now: (1 << 42) - 1_000_000,
            conn,
            host: FuzzHost {
                qps: (0..QPS).map(|_| Qp::default()).collect(),
                max_datagram: u32::from(config.max_payload) + wire::MAX_DATA_HEADER as u32,
                planes: config.planes,
                ports: config.ports_per_plane,
                ..FuzzHost::default()
            },
            streams: [None; QPS],
            tag: 0,
            nonce: 0,
            established: false,
            seq: [0; 64],
            msn: [0; QPS],
            wqes: 0,
            window: [16, 4, 64, 256][usize::from(shape >> 10 & 3)],
        }
    }

    fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn open(&mut self) {
        let now = self.instant();
        self.conn.open(now, &mut self.host);
        self.learn();
    }

    /// Takes from the endpoint's packets what a peer learns from them.
    fn learn(&mut self) {
        for (_, packet) in &self.host.out {
            if let Packet::Init(hs) = packet {
                self.tag = hs.tag;
                self.nonce = hs.nonce;
            }
        }
    }

    fn attach(&mut self, qp: usize) {
        if self.streams[qp].is_some() {
            return;
        }
        let attr = StreamAttr {
            local_qpn: qp as u32,
            remote_qpn: PEER_QPN + qp as u32,
            first_msn: Msn::new(u32::MAX - 1),
            window: self.window,
            responses: 2,
        };
        self.host.qps[qp] = Qp::default();
        self.msn[qp] = u32::MAX - 1;
        let Ok(mut stream) = Stream::new(qp as u32, &attr);
        loop {
            match self.conn.attach(stream) {
                Ok(id) => {
                    self.streams[qp] = Some(id);
                    return;
                }
                Err(back) => {
                    stream = back;
                    let Ok(bigger) = StreamTable::new(self.conn.stream_capacity() * 2);
                    assert!(self.conn.grow_streams(bigger).is_empty());
                }
            }
        }
    }

    fn detach(&mut self, qp: usize) {
        let Some(id) = self.streams[qp].take() else {
            return;
        };
        // As the verbs layer does: to the error state first.
        self.fail(qp, id);
        assert!(self.conn.detach(id).is_some());
        assert!(self.conn.detach(id).is_none());
    }

    fn fail(&mut self, qp: usize, id: StreamId) {
        self.host.qps[qp].flushing = true;
        self.conn.fail(id, &mut self.host);
        let q = &mut self.host.qps[qp];
        q.failed = true;
        assert!(q.pulled.is_empty(), "requests left behind");
        q.sq.clear();
    }

    /// Hands over a datagram whose bytes beyond `head` do not matter.
    fn receive(&mut self, head: &[u8], len: u32, ce: bool) {
        let now = self.instant();
        let head = &head[..head.len().min(wire::MAX_HEADER)];
        let meta = RxMeta {
            len,
            ce,
            plane: (len & 7) as u8,
        };
        let known = match wire::peek(head) {
            Ok(p) => p.dst_conn_id == LOCAL_ID && p.tag == self.tag,
            Err(_) => false,
        };
        let kind = wire::peek(head).map(|p| p.kind);
        let (calls, sent) = (self.host.calls, self.host.out.len());
        self.host.current = len;
        let handled = self.conn.handle_datagram(now, &meta, head, &mut self.host);
        self.host.current = 0;
        if !known {
            assert_eq!(calls, self.host.calls, "a stranger reached a stream");
            let answers = self.host.out.len() - sent;
            let most = match kind {
                // The answer, and a question of our own if that is due.
                Ok(Kind::Init) => 2,
                Ok(Kind::Reset) => 1,
                _ => 0,
            };
            assert!(answers <= most, "a stranger is answered");
            assert!(!matches!(handled, Handled::Accepted | Handled::Feedback));
        }
        self.learn();
    }

    fn handshake(&self, x: &mut Input<'_>) -> wire::Handshake {
        wire::Handshake {
            nonce: self.nonce ^ u64::from(x.near()),
            epoch: u64::from(x.near()),
            conn_id: PEER_ID.wrapping_add(x.near()).max(1),
            tag: PEER_TAG.wrapping_add(x.near()),
            features: x.near(),
            paths: [255, 1, 2, 64][usize::from(x.below(4))],
            planes: 1,
            max_payload: [65_535, 64, 1400, 100][usize::from(x.below(4))],
            window: [256, 1, 16, 65_535][usize::from(x.below(4))],
        }
    }

    fn common(&self, x: &mut Input<'_>, kind: Kind) -> Common {
        let shape = x.u8();
        Common {
            kind,
            flags: shape >> 6,
            path: if shape & 7 == 7 { x.u8() } else { shape & 3 },
            tx_count: 1,
            conn_id: LOCAL_ID ^ u32::from(shape & 0x38 == 0x38),
            tag: self.tag ^ u32::from(shape & 0x38 == 0x30),
            seq: 0,
        }
    }

    /// A packet of the peer's, more or less right.
    fn packet(&mut self, x: &mut Input<'_>) {
        let mut buf = [0u8; wire::MAX_HEADER];
        let shape = x.u8();
        let mut extra = 0;
        let n = match shape & 15 {
            0..=7 => {
                let mut c = self.common(x, Kind::Data);
                self.sequence(x, &mut c);
                let (data, payload) = self.data(x, shape & 7 == 7);
                extra = payload;
                data.emit(c, &mut buf)
            }
            8 => {
                let mut c = self.common(x, Kind::Void);
                self.sequence(x, &mut c);
                c.emit_alone(&mut buf)
            }
            9..=11 => {
                let mut c = self.common(x, Kind::Ack);
                let ack = self.ack(x, &mut c);
                ack.emit(c, &mut buf)
            }
            12 | 13 => {
                let mut c = self.common(x, Kind::Nak);
                let at = self.path(c.path);
                c.seq =
                    at.0.wrapping_add(u32::from(x.u8()) % at.1.wrapping_sub(at.0).max(1));
                c.tx_count = 1 + (x.u8() >> 6);
                let reason = NakReason::from_wire(1 + x.below(6)).unwrap_or(NakReason::Rnr);
                Nak {
                    reason,
                    timer: x.u8() & 31,
                }
                .emit(c, &mut buf)
            }
            14 => {
                let init = x.u8() & 1 != 0;
                let mut c = self.common(x, if init { Kind::Init } else { Kind::InitAck });
                c.tx_count = x.u8();
                self.handshake(x).emit(c, &mut buf)
            }
            _ => {
                let mut c = self.common(x, Kind::Reset);
                c.conn_id = PEER_ID;
                c.tag = PEER_TAG.wrapping_add(x.near());
                c.emit_alone(&mut buf)
            }
        };
        self.receive(&buf[..n], n as u32 + extra, shape & 0x80 != 0);
        if shape & 0x40 != 0 {
            self.receive(&buf[..n], n as u32 + extra, false);
        }
    }

    fn sequence(&mut self, x: &mut Input<'_>, c: &mut Common) {
        let delta = x.near();
        let next = &mut self.seq[usize::from(c.path & 63)];
        c.seq = next.wrapping_add(delta);
        if delta <= 1 {
            *next = c.seq.wrapping_add(1);
        }
        c.tx_count = 1 + (x.u8() >> 5);
    }

    /// Oldest and next sequence of a path of the endpoint's.
    fn path(&self, id: u8) -> (u32, u32) {
        let info = self.conn.paths().nth(usize::from(id));
        info.map_or((0, 0), |p| (p.una, p.next_seq))
    }

    fn ack(&mut self, x: &mut Input<'_>, c: &mut Common) -> wire::Ack {
        let (una, next) = self.path(c.path);
        let span = next.wrapping_sub(una);
        let shape = x.u8();
        c.seq = match shape & 3 {
            0 => next,
            1 => una.wrapping_add(u32::from(x.u8()) % span.max(1)),
            2 => una,
            _ => una.wrapping_add(x.near()),
        };
        let mut sack = [0u64; 4];
        if shape & 4 != 0 {
            // Some that are in flight, by their place in the ring.
            let mut bits = x.u32();
            for i in 0..32u32 {
                if bits & 1 != 0 {
                    let s = c.seq.wrapping_add(1 + i * (1 + (span >> 5)));
                    sack[(s >> 6 & 3) as usize] |= 1 << (s & 63);
                }
                bits >>= 1;
            }
        }
        if shape & 8 != 0 {
            for word in &mut sack {
                *word |= x.u64();
            }
        }
        wire::Ack {
            echo_seq: una.wrapping_add(u32::from(x.u8()) % span.max(1)),
            echo_tx: 1 + (x.u8() >> 5),
            delay_us: u16::from(x.u8()) << (shape >> 4 & 7),
            received: x.near(),
            ce: x.near(),
            dups: x.near(),
            grant: if shape & 0x80 != 0 { x.near() } else { 0 },
            sack,
        }
    }

    fn data(&mut self, x: &mut Input<'_>, odd: bool) -> (Data, u32) {
        let qp = usize::from(x.below(QPS as u8));
        let op = Op::ALL[usize::from(x.u8()) % Op::ALL.len()];
        let delta = x.near();
        let mut total = match op {
            Op::CmpSwap | Op::FetchAdd | Op::AtomicWrite => 8,
            _ => x.size(),
        };
        let pulled = self.host.qps[qp].pulled.front();
        let mut msn = self.msn[qp].wrapping_add(delta);
        if op.is_response() {
            // Requests are named by their number at the requester, from 0.
            let first = pulled.map_or(0, |r| r.wqe.0 as u32 & 0xffff);
            msn = first.wrapping_add(delta);
            if let (Some(r), false) = (pulled, odd) {
                total = r.len;
            }
        } else if delta <= 1 && x.u8() & 1 == 0 {
            self.msn[qp] = msn.wrapping_add(1);
        }
        let mut payload = 0;
        let mut offset = 0;
        if op.has_payload() {
            payload = total.min(1000);
            if odd || total > 1000 {
                offset = x.size() % total.max(1);
                payload = x.size() % 1500;
                if !odd {
                    payload = payload.clamp(1, total - offset);
                }
            }
        }
        let data = Data {
            op,
            dst_qpn: qp as u32,
            src_qpn: PEER_QPN + qp as u32 + u32::from(odd && x.u8() == 255),
            attempt: if odd { x.u8() } else { 0 },
            msn,
            total,
            offset,
            solicited: odd,
            operands: Operands {
                ssn: x.near(),
                imm: u32::from(x.u8()),
                rkey: 1,
                va: u64::from(x.u8()) << 3 | u64::from(odd),
                compare: 7,
                swap: 1,
                rid: msn,
            },
            header_len: 0,
            payload_len: 0,
        };
        (data, payload)
    }

    fn post(&mut self, x: &mut Input<'_>) {
        let qp = usize::from(x.below(QPS as u8));
        let Some(id) = self.streams[qp] else { return };
        let kinds = [
            Opcode::Send,
            Opcode::Write,
            Opcode::Read,
            Opcode::FetchAdd,
            Opcode::SendImm,
            Opcode::WriteImm,
            Opcode::CmpSwap,
            Opcode::SendInv,
            Opcode::Local,
            Opcode::AtomicWrite,
            Opcode::Flush,
        ];
        let shape = x.u8();
        for _ in 0..=shape >> 6 {
            let opcode = kinds[usize::from(shape & 63) % kinds.len()];
            let atomic = matches!(
                opcode,
                Opcode::CmpSwap | Opcode::FetchAdd | Opcode::AtomicWrite
            );
            let req = Request {
                // The low half tells the number at the requester: how responses name it.
                wqe: WqeId(self.wqes),
                opcode,
                len: if atomic { 8 } else { x.size().min(1 << 31) },
                fence: shape & 32 != 0,
                imm: if opcode == Opcode::Flush { 1 } else { 0 },
                local: if x.u8() > 240 {
                    WcStatus::MwBindErr
                } else {
                    WcStatus::Success
                },
                ..Request::default()
            };
            self.wqes += 1;
            self.host.qps[qp].sq.push_back(req);
        }
        let now = self.instant();
        self.conn.kick(now, id, &mut self.host);
    }

    fn start(&mut self, x: &mut Input<'_>) {
        let qp = usize::from(x.below(QPS as u8));
        let Some(id) = self.streams[qp] else { return };
        let shape = x.u8();
        let attr = RequesterAttr {
            timeout: Span::from_millis(u64::from(shape >> 4) * 10),
            retry_cnt: shape & 7,
            rnr_retry: 7 - (shape >> 2 & 7),
            max_rd_atomic: 1 + (shape & 3),
            first_msn: Msn::new(5),
        };
        let now = self.instant();
        self.conn.start_requester(now, id, &attr, &mut self.host);
    }

    fn timeout(&mut self) {
        let Some(at) = self.conn.next_deadline() else {
            return;
        };
        self.now = self.now.max(at.as_nanos());
        let now = self.instant();
        self.conn.handle_timeout(now, &mut self.host);
        let next = self.conn.next_deadline();
        assert!(next.is_none_or(|at| at > now), "the timer spins");
        self.learn();
    }

    fn op(&mut self, x: &mut Input<'_>) {
        match x.u8() {
            0..=111 => self.packet(x),
            112..=119 => {
                let len = usize::from(x.u8());
                let bytes = x.bytes(len).to_vec();
                let mut head = bytes;
                if head.len() >= 12 && x.u8() & 1 == 0 {
                    head[4..8].copy_from_slice(&LOCAL_ID.to_be_bytes());
                    head[8..12].copy_from_slice(&self.tag.to_be_bytes());
                }
                let mut len = head.len() as u32;
                if head.len() >= wire::MAX_HEADER {
                    len += x.size() & 0xffff;
                }
                self.receive(&head, len, false);
            }
            120..=151 => {
                let now = self.instant();
                self.conn.end_of_burst(now, &mut self.host);
            }
            152..=183 => self.post(x),
            184..=199 => self.timeout(),
            200..=207 => self.now += u64::from(x.u16()) * 1_000,
            208..=215 => self.start(x),
            216..=219 => {
                let qp = usize::from(x.below(QPS as u8));
                if let (Some(id), 0) = (self.streams[qp], x.u8() & 1) {
                    self.fail(qp, id);
                } else {
                    self.detach(qp);
                }
            }
            220..=227 => self.attach(usize::from(x.below(QPS as u8))),
            228..=239 => {
                let refusal = match x.below(6) {
                    0 => Refusal::Rnr { timer: x.u8() },
                    1 => Refusal::NotReady,
                    2 => Refusal::Length,
                    3 => Refusal::InvalidRequest,
                    4 => Refusal::Access,
                    _ => Refusal::Operation,
                };
                self.host.refuse.push_back(refusal);
            }
            240..=247 => {
                let outcome = [TxOutcome::Dropped, TxOutcome::Fault, TxOutcome::Sent];
                let shape = x.u8();
                for _ in 0..=shape >> 5 {
                    let at = usize::from(shape & 31) % 3;
                    self.host.outcome.push_back(outcome[at]);
                }
            }
            b @ 248..=251 => {
                let now = self.instant();
                let plane = x.u8() & 7;
                if b & 1 == 0 {
                    self.conn.plane_down(now, plane, &mut self.host);
                } else {
                    self.conn.plane_up(now, plane, &mut self.host);
                }
            }
            252 => self.conn.set_grant(x.near()),
            _ => {
                // The honest answer to a question, which gets things going.
                let hs = self.handshake(x);
                let mut buf = [0u8; wire::HANDSHAKE_LEN];
                let c = Common {
                    kind: Kind::InitAck,
                    flags: 0,
                    path: 0,
                    tx_count: 0,
                    conn_id: LOCAL_ID,
                    tag: self.tag,
                    seq: 0,
                };
                let n = hs.emit(c, &mut buf);
                self.receive(&buf[..n], n as u32, false);
            }
        }
    }

    fn check(&mut self) {
        let established = self.conn.is_established();
        if established != self.established {
            self.established = established;
            self.seq = [0; 64];
        }
        let mut busy = false;
        for p in self.conn.paths() {
            let span = p.next_seq.wrapping_sub(p.una);
            assert!(span <= WINDOW, "the window is exceeded");
            assert!(span > 0 || p.inflight == 0, "bytes left in flight");
            assert!(p.cwnd > 0);
            busy |= span > 0;
        }
        if busy && established {
            assert!(
                self.conn.next_deadline().is_some(),
                "nobody will probe: {:?}",
                self.conn.paths().collect::<Vec<_>>()
            );
        }
        self.host.out.clear();
        // Receives and atomics that will never end belong to streams: bounded by their windows.
        assert!(self.conn.stream_count() <= QPS);
    }
}

/// Two bytes for the configuration, then instructions.
pub fn endpoint(data: &[u8]) {
    let mut x = Input::new(data);
    let mut w = World::new(&mut x);
    w.attach(0);
    w.attach(1);
    w.open();
    w.op(&mut Input::new(&[255]));
    for qp in 0..2 {
        w.start(&mut Input::new(&[qp, 0x27]));
    }
    w.check();
    while !x.is_empty() {
        w.op(&mut x);
        w.check();
    }
    for _ in 0..32 {
        w.timeout();
        w.check();
    }
    for qp in 0..QPS {
        w.detach(qp);
    }
    let now = w.instant();
    w.conn.end_of_burst(now, &mut w.host);
    w.check();
}
