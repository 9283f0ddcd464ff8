// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Lists of operations on a [`World`], and the judgement: every message exactly once, in order, with the right
//! bytes, and nothing left over.

use crate::{message, World};
use metaroce_engine::engine::{api::*, seq::Msn, Span};

/// One work request.
#[derive(Clone, Debug)]
pub struct Op {
    /// Which of the three QPs.
    pub qp: u8,
    /// From the second node to the first.
    pub back: bool,
    /// Which operation, modulo 10.
    pub kind: u8,
    /// Bytes of the message, below [`REGION`].
    pub len: u32,
    /// Fence.
    pub fence: bool,
    /// Time until the next operation.
    pub pause_us: u16,
    /// Post all receives that are owed first.
    pub post_recv: bool,
}

struct Posted {
    from: usize,
    qpn: u32,
    to: usize,
    remote: u32,
    req: Request,
}

/// A world with three QP pairs and what was asked of them.
pub struct Workload {
    /// The world.
    pub world: World,
    other: usize,
    posted: Vec<Posted>,
    owed: Vec<(usize, u32)>,
}

/// Bytes of memory that an operation has to itself at the target.
pub const REGION: u64 = 40_000;
/// Regions, and what lies behind them: what is only read, a counter for each QP, a word to compare.
const REGIONS: usize = 90;
const READ_VA: u64 = 91 * REGION;
const ADD_VA: u64 = 95 * REGION;
const SWAP_VA: u64 = 96 * REGION;
const FLUSH: Flush = Flush {
    global: true,
    persistent: false,
    whole: false,
};

impl Workload {
    /// Opens the connection and connects three QP pairs.
    pub fn new(mut world: World, loopback: bool) -> Self {
        let other = usize::from(!loopback);
        world.open(0);
        world.open(other);
        let attr = RequesterAttr {
            timeout: Span::from_millis(2_000),
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 3,
            first_msn: Msn::new(0),
        };
        for q in 0..3u32 {
            world.pair(10 + q, 20 + q, &attr);
        }
        Self {
            world,
            other,
            posted: Vec::new(),
            owed: Vec::new(),
        }
    }

    /// The second node, or the only one.
    pub fn other(&self) -> usize {
        self.other
    }

    /// Posts an operation, then lets time pass.
    pub fn post(&mut self, o: &Op) {
        let k = self.posted.len();
        let qp = u32::from(o.qp % 3);
        let (from, qpn, to, remote) = if o.back {
            (self.other, 20 + qp, 0, 10 + qp)
        } else {
            (0, 10 + qp, self.other, 20 + qp)
        };
        let wqe = k as u64;
        // Each operation has its own piece of memory at the target; READs read what nobody writes.
        let va = (k % REGIONS) as u64 * REGION;
        let (opcode, len, va) = match o.kind % 10 {
            0 => (Opcode::Send, o.len, 0),
            1 => (Opcode::SendImm, o.len, 0),
            2 => (Opcode::SendInv, o.len, 0),
            3 => (Opcode::Write, o.len, va),
            4 => (Opcode::WriteImm, o.len, va),
            5 => (Opcode::Read, o.len, READ_VA),
            6 => (Opcode::FetchAdd, 8, ADD_VA + 8 * u64::from(qpn)),
            7 => (Opcode::CmpSwap, 8, SWAP_VA),
            8 => (Opcode::AtomicWrite, 8, va),
            // What the operation before this one has written, or not.
            _ => {
                let va = (k.saturating_sub(1) % REGIONS) as u64 * REGION;
                (Opcode::Flush, o.len, va)
            }
        };
        let imm = match opcode {
            Opcode::Flush => FLUSH.to_wire(),
            _ => k as u32,
        };
        let req = Request {
            wqe: WqeId(wqe),
            opcode,
            len,
            imm,
            rkey: 0x1234,
            va,
            swap: if opcode == Opcode::AtomicWrite {
                wqe
            } else {
                1
            },
            compare: 77,
            fence: o.fence,
            ..Request::default()
        };
        self.posted.push(Posted {
            from,
            qpn,
            to,
            remote,
            req,
        });
        if opcode.consumes_receive() {
            self.owed.push((to, remote));
        }
        if o.post_recv {
            self.post_receives();
        }
        self.world.post(from, qpn, req, message(wqe, len as usize));
        let until = self.world.now + u64::from(o.pause_us) * 1000;
        if o.pause_us > 0 {
            while self.world.step(until) {}
        }
    }

    fn post_receives(&mut self) {
        for (n, q) in self.owed.drain(..) {
            self.world.post_recv(n, q, 1, REGION as usize);
        }
    }

    /// Runs until everything is done, and a while longer; then judges.
    pub fn finish(mut self) {
        self.post_receives();
        let total = self.posted.len();
        let receives = self
            .posted
            .iter()
            .filter(|p| p.req.opcode.consumes_receive())
            .count();
        let all = |w: &mut World| {
            let qps = || w.nodes.iter().flat_map(|n| n.host.qps.values());
            let done: usize = qps().map(|q| q.done.len()).sum();
            let got: usize = qps().map(|q| q.received.len()).sum();
            done == total && got == receives
        };
        assert!(self.world.run(60_000, all), "does not finish");
        // Nothing happens twice later on.
        self.world.run(500, |_| false);
        assert!(all(&mut self.world));
        for node in 0..=self.other {
            let qpns: Vec<u32> = self.world.nodes[node].host.qps.keys().copied().collect();
            for qpn in qpns {
                self.judge_requests(node, qpn);
                self.judge_receives(node, qpn);
            }
        }
        for n in &self.world.nodes {
            for p in n.conn.paths() {
                assert_eq!(p.inflight, 0, "bytes left in flight");
                assert_eq!(p.una, p.next_seq);
            }
        }
    }

    fn judge_requests(&mut self, node: usize, qpn: u32) {
        let Self { world, posted, .. } = self;
        let mine: Vec<&Posted> = posted
            .iter()
            .filter(|p| p.from == node && p.qpn == qpn)
            .collect();
        let q = world.qp(node, qpn);
        assert!(q.errors.is_empty() && q.pulled.is_empty());
        let want: Vec<_> = mine
            .iter()
            .map(|p| (p.req.wqe.0, WcStatus::Success, p.req.len))
            .collect();
        assert_eq!(q.done, want);
        self.judge_flushes(node, qpn);
        let Self { world, posted, .. } = self;
        let mine = posted.iter().filter(|p| p.from == node && p.qpn == qpn);
        let mut adds = 0u64;
        for p in mine {
            let r = &p.req;
            match r.opcode {
                Opcode::Write | Opcode::WriteImm => {
                    let m = &world.nodes[p.to].host.memory[r.va as usize..];
                    if posted.len() <= REGIONS {
                        assert!(m[..r.len as usize] == message(r.wqe.0, r.len as usize));
                    }
                }
                Opcode::AtomicWrite if posted.len() <= REGIONS => {
                    let m = &world.nodes[p.to].host.memory[r.va as usize..];
                    assert_eq!(m[..8], r.swap.to_be_bytes());
                }
                Opcode::FetchAdd => {
                    let got = &world.qp(node, qpn).results[&r.wqe.0];
                    assert_eq!(*got, adds.to_ne_bytes());
                    adds += 1;
                }
                Opcode::Read if r.len > 0 => {
                    assert_eq!(
                        world.qp(node, qpn).results[&r.wqe.0],
                        vec![0; r.len as usize]
                    );
                }
                _ => {}
            }
        }
    }

    /// Each FLUSH finds what the QP's earlier requests have written.
    fn judge_flushes(&self, node: usize, qpn: u32) {
        let mine = |p: &&Posted| p.from == node && p.qpn == qpn;
        let mut flushed = 0;
        for p in self.posted.iter().filter(mine) {
            if p.req.opcode != Opcode::Flush {
                continue;
            }
            let (how, found) = &self.world.nodes[p.to].host.qps[&p.remote].flushed[flushed];
            assert_eq!((*how, found.len()), (FLUSH, p.req.len as usize));
            flushed += 1;
            let before = p.req.wqe.0.checked_sub(1).map(|k| &self.posted[k as usize]);
            let Some(before) = before.filter(mine) else {
                continue;
            };
            let n = before.req.len.min(p.req.len) as usize;
            if matches!(before.req.opcode, Opcode::Write | Opcode::WriteImm) {
                let whole = message(before.req.wqe.0, before.req.len as usize);
                assert!(found[..n] == whole[..n], "flushed before it was written");
            }
        }
        let qpn = self.posted.iter().find(mine).map(|p| (p.to, p.remote));
        if let Some((to, remote)) = qpn {
            let all = &self.world.nodes[to].host.qps[&remote].flushed;
            assert_eq!(all.len(), flushed, "flushed twice");
        }
    }

    fn judge_receives(&mut self, node: usize, qpn: u32) {
        let theirs: Vec<&Posted> = self
            .posted
            .iter()
            .filter(|p| p.to == node && p.remote == qpn && p.req.opcode.consumes_receive())
            .collect();
        let q = self.world.qp(node, qpn);
        assert_eq!(q.received.len(), theirs.len());
        for (i, (p, (done, data))) in theirs.iter().zip(&q.received).enumerate() {
            assert_eq!(done.ssn as usize, i);
            assert_eq!((done.opcode, done.len), (p.req.opcode, p.req.len));
            let imm = if p.req.opcode == Opcode::Send {
                0
            } else {
                p.req.imm
            };
            assert_eq!(done.imm, imm);
            if p.req.opcode != Opcode::WriteImm {
                assert!(*data == message(p.req.wqe.0, p.req.len as usize));
            }
        }
    }
}
