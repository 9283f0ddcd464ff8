// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Random lists of operations over random networks: every message exactly once, in order, with the right
//! bytes, and nothing left over.

use metaroce_engine::engine::{api::*, seq::Msn, Span};
use metaroce_model::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Op {
    qp: u8,
    back: bool,
    kind: u8,
    len: u32,
    fence: bool,
    pause_us: u16,
    post_recv: bool,
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![Just(0u32), 1..100u32, 1300..1500u32, 1..40_000u32];
    (
        0..3u8,
        any::<bool>(),
        0..8u8,
        len,
        0..8u8,
        0..300u16,
        any::<bool>(),
    )
        .prop_map(|(qp, back, kind, len, fence, pause, post_recv)| Op {
            qp,
            back,
            kind,
            len,
            fence: fence == 0,
            pause_us: if pause > 200 { pause } else { 0 },
            post_recv,
        })
}

fn net() -> impl Strategy<Value = Net> {
    (
        0..200_000u64,
        0..100_000u64,
        0..300u64,
        prop_oneof![Just(0u32), 0..150_000u32],
        prop_oneof![Just(0u32), 0..100_000u32],
        prop_oneof![Just(0u32), 0..300_000u32],
        1..1_000_000u64,
        prop_oneof![Just(vec![]), Just(vec![2u8]), Just(vec![0u8, 5, 7])],
    )
        .prop_map(
            |(base, step, cost, loss, dup, reorder, reorder_ns, black)| Net {
                base,
                step,
                milli_ns_per_byte: cost,
                loss_ppm: loss,
                dup_ppm: dup,
                reorder_ppm: reorder,
                reorder_ns,
                garbage_ppm: dup / 2,
                black,
            },
        )
}

const REGION: u64 = 40_000;

fn check(seed: u64, net: Net, ops: Vec<Op>, loopback: bool, paths: u8) {
    let config = Config {
        paths,
        ..Config::default()
    };
    let mut w = World::new(seed, net, loopback, config);
    let other = usize::from(!loopback);
    w.open(0);
    w.open(other);
    let attr = RequesterAttr {
        timeout: Span::from_millis(2_000),
        retry_cnt: 7,
        rnr_retry: 7,
        max_rd_atomic: 3,
        first_msn: Msn::new(0),
    };
    for q in 0..3u32 {
        w.pair(10 + q, 20 + q, &attr);
    }
    let end = |o: &Op| {
        if o.back {
            (other, 20 + u32::from(o.qp), 0, 10 + u32::from(o.qp))
        } else {
            (0, 10 + u32::from(o.qp), other, 20 + u32::from(o.qp))
        }
    };
    // (from node, qpn, to node, remote qpn, request)
    let mut posted: Vec<(usize, u32, usize, u32, Request)> = Vec::new();
    let mut owed: Vec<(usize, u32)> = Vec::new();
    for (k, o) in ops.iter().enumerate() {
        let (from, qpn, to, remote) = end(o);
        let wqe = k as u64;
        // Each operation has its own piece of memory at the target; READs read what nobody writes.
        let va = (k as u64 % 90) * REGION;
        let read_va = 91 * REGION;
        let (opcode, len, va) = match o.kind {
            0 => (Opcode::Send, o.len, 0),
            1 => (Opcode::SendImm, o.len, 0),
            2 => (Opcode::SendInv, o.len, 0),
            3 => (Opcode::Write, o.len, va),
            4 => (Opcode::WriteImm, o.len, va),
            5 => (Opcode::Read, o.len, read_va),
            6 => (Opcode::FetchAdd, 8, 95 * REGION + 8 * u64::from(qpn)),
            _ => (Opcode::CmpSwap, 8, 96 * REGION),
        };
        let req = Request {
            wqe: WqeId(wqe),
            opcode,
            len,
            imm: k as u32,
            rkey: 0x1234,
            va,
            swap: 1,
            compare: 77,
            fence: o.fence,
            ..Request::default()
        };
        posted.push((from, qpn, to, remote, req));
        if opcode.consumes_receive() {
            owed.push((to, remote));
        }
        if o.post_recv {
            for (n, q) in owed.drain(..) {
                w.post_recv(n, q, 1, REGION as usize);
            }
        }
        w.post(from, qpn, req, message(wqe, len as usize));
        if o.pause_us > 0 {
            let until = w.now + u64::from(o.pause_us) * 1000;
            while w.step(until) {}
        }
    }
    for (n, q) in owed.drain(..) {
        w.post_recv(n, q, 1, REGION as usize);
    }
    let total = posted.len();
    let receives = posted
        .iter()
        .filter(|p| p.4.opcode.consumes_receive())
        .count();
    let all = |w: &mut World| {
        let done: usize = w
            .nodes
            .iter()
            .flat_map(|n| n.host.qps.values())
            .map(|q| q.done.len())
            .sum();
        let got: usize = w
            .nodes
            .iter()
            .flat_map(|n| n.host.qps.values())
            .map(|q| q.received.len())
            .sum();
        done == total && got == receives
    };
    assert!(w.run(60_000, all), "does not finish");
    // Nothing happens twice later on.
    w.run(500, |_| false);
    assert!(all(&mut w));
    for node in 0..=other {
        let qpns: Vec<u32> = w.nodes[node].host.qps.keys().copied().collect();
        for qpn in qpns {
            let mine: Vec<_> = posted
                .iter()
                .filter(|p| p.0 == node && p.1 == qpn)
                .collect();
            let q = w.qp(node, qpn);
            assert!(q.errors.is_empty() && q.pulled.is_empty());
            let done: Vec<_> = q.done.clone();
            let want: Vec<_> = mine
                .iter()
                .map(|p| (p.4.wqe.0, WcStatus::Success, p.4.len))
                .collect();
            assert_eq!(done, want);
            let mut adds = 0u64;
            for p in &mine {
                let r = &p.4;
                match r.opcode {
                    Opcode::Write | Opcode::WriteImm => {
                        let later = posted.iter().any(|x| {
                            x.2 == p.2
                                && x.4.va == r.va
                                && x.4.wqe.0 > r.wqe.0
                                && matches!(x.4.opcode, Opcode::Write | Opcode::WriteImm)
                        });
                        if !later && ops.len() <= 90 {
                            let m = &w.nodes[p.2].host.memory[r.va as usize..];
                            assert!(m[..r.len as usize] == message(r.wqe.0, r.len as usize));
                        }
                    }
                    Opcode::FetchAdd => {
                        let got = w.qp(node, qpn).results[&r.wqe.0].clone();
                        assert_eq!(got, adds.to_ne_bytes().to_vec());
                        adds += 1;
                    }
                    Opcode::Read if r.len > 0 => {
                        assert_eq!(w.qp(node, qpn).results[&r.wqe.0], vec![0; r.len as usize]);
                    }
                    _ => {}
                }
            }
            let theirs: Vec<_> = posted
                .iter()
                .filter(|p| p.2 == node && p.3 == qpn && p.4.opcode.consumes_receive())
                .collect();
            let q = w.qp(node, qpn);
            assert_eq!(q.received.len(), theirs.len());
            for (i, (p, (done, data))) in theirs.iter().zip(&q.received).enumerate() {
                assert_eq!(done.ssn as usize, i);
                assert_eq!((done.opcode, done.len), (p.4.opcode, p.4.len));
                let imm = if p.4.opcode == Opcode::Send {
                    0
                } else {
                    p.4.imm
                };
                assert_eq!(done.imm, imm);
                if p.4.opcode != Opcode::WriteImm {
                    assert!(*data == message(p.4.wqe.0, p.4.len as usize));
                }
            }
        }
    }
    for n in &w.nodes {
        for p in n.conn.paths() {
            assert_eq!(p.inflight, 0, "bytes left in flight");
            assert_eq!(p.una, p.next_seq);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 300, ..ProptestConfig::default() })]
    #[test]
    fn everything_exactly_once(
        seed in any::<u64>(),
        net in net(),
        ops in prop::collection::vec(op(), 1..90),
        loopback in any::<bool>(),
        paths in 1..9u8,
    ) {
        check(seed, net, ops, loopback, paths);
    }
}
