// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Random failures in the middle of random traffic: whatever happens, a send queue completes in posting
//! order, once each, as successes, one error and flushes; a receive queue gets a prefix of what was sent.

use metaroce_engine::engine::{api::*, seq::Msn, Span};
use metaroce_model::*;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u32),
    Write(u32),
    Read(u32),
    Add,
    BadWrite,
    BadRead,
    TooLong,
    Local,
    BadLocal,
    Pause(u16),
    PostRecv,
    Fail,
    FailPeer,
    DetachPeer,
    RebootPeer,
    FaultAt(u8),
    FaultRemote,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..20_000u32).prop_map(Step::Send),
        3 => (0..20_000u32).prop_map(Step::Write),
        3 => (0..20_000u32).prop_map(Step::Read),
        2 => Just(Step::Add),
        1 => Just(Step::Local),
        4 => (0..2000u16).prop_map(Step::Pause),
        4 => Just(Step::PostRecv),
        1 => prop_oneof![
            Just(Step::BadWrite),
            Just(Step::BadRead),
            Just(Step::TooLong),
            Just(Step::BadLocal),
            Just(Step::Fail),
            Just(Step::FailPeer),
            Just(Step::DetachPeer),
            Just(Step::RebootPeer),
            any::<u8>().prop_map(Step::FaultAt),
            Just(Step::FaultRemote),
        ],
    ]
}

fn check(seed: u64, loss: u32, rnr_retry: u8, steps: Vec<Step>) {
    let net = Net {
        loss_ppm: loss,
        dup_ppm: loss,
        reorder_ppm: loss,
        reorder_ns: 200_000,
        step: 3000,
        ..Net::default()
    };
    let mut w = World::new(seed, net, false, Config::default());
    w.open(0);
    w.open(1);
    let attr = RequesterAttr {
        timeout: Span::from_millis(20),
        retry_cnt: 3,
        rnr_retry,
        max_rd_atomic: 2,
        first_msn: Msn::new(0),
    };
    w.pair(11, 22, &attr);
    // A stream beside it that must not notice anything (as long as the peer lives).
    w.pair(12, 23, &attr);
    w.post_recv(1, 23, 20, 3000);
    for k in 0..20 {
        w.send(0, 12, 1000 + k, 3000);
    }
    let mut rebooted = false;
    let mut attached = true;
    let mut wqe = 0u64;
    let mut sent = Vec::new();
    let mut posted = 0;
    for s in steps {
        let base = Request {
            wqe: WqeId(wqe),
            rkey: 0x1234,
            ..Request::default()
        };
        let req = match s {
            Step::Send(len) => Some(Request {
                opcode: Opcode::SendImm,
                len,
                ..base
            }),
            Step::TooLong => Some(Request {
                opcode: Opcode::SendImm,
                len: 30_000,
                ..base
            }),
            Step::Write(len) => Some(Request {
                opcode: Opcode::Write,
                len,
                ..base
            }),
            Step::BadWrite => Some(Request {
                opcode: Opcode::Write,
                len: 3000,
                rkey: 1,
                ..base
            }),
            Step::Read(len) => Some(Request {
                opcode: Opcode::Read,
                len,
                va: 100_000,
                ..base
            }),
            Step::BadRead => Some(Request {
                opcode: Opcode::Read,
                len: 9,
                va: 1 << 40,
                ..base
            }),
            Step::Add => Some(Request {
                opcode: Opcode::FetchAdd,
                len: 8,
                va: 200_000,
                swap: 1,
                ..base
            }),
            Step::Local => Some(Request {
                opcode: Opcode::Local,
                ..base
            }),
            Step::BadLocal => Some(Request {
                opcode: Opcode::Local,
                local: WcStatus::MwBindErr,
                ..base
            }),
            _ => None,
        };
        if let Some(req) = req {
            if req.opcode == Opcode::SendImm {
                sent.push((wqe, req.len));
            }
            if w.qp(0, 11).errors.is_empty() {
                w.post(
                    0,
                    11,
                    Request {
                        imm: wqe as u32,
                        ..req
                    },
                    message(wqe, req.len as usize),
                );
                wqe += 1;
            } else if req.opcode == Opcode::SendImm {
                sent.pop();
            }
        }
        let failed = !w.qp(0, 11).errors.is_empty();
        match s {
            Step::Pause(us) => {
                let until = w.now + u64::from(us) * 1000;
                while w.step(until) {}
            }
            Step::PostRecv if !rebooted => {
                w.post_recv(1, 22, 1, 20_000);
                posted += 1;
            }
            Step::Fail if !failed => {
                let id = w.nodes[0].streams[&11];
                let n = &mut w.nodes[0];
                n.conn.fail(id, &mut n.host);
                let q = w.qp(0, 11);
                for (req, _) in std::mem::take(&mut q.sq) {
                    q.done.push((req.wqe.0, WcStatus::WrFlushErr, 0));
                }
                // What is posted from here on is the embedder's.
                q.errors.push(StreamError::Requester(WcStatus::WrFlushErr));
            }
            Step::FailPeer if !rebooted && attached => {
                let id = w.nodes[1].streams[&22];
                let n = &mut w.nodes[1];
                n.conn.fail(id, &mut n.host);
            }
            Step::DetachPeer if !rebooted && attached => {
                let id = w.nodes[1].streams[&22];
                assert!(w.nodes[1].conn.detach(id).is_some());
                attached = false;
            }
            Step::RebootPeer if !rebooted => {
                rebooted = true;
                let got = std::mem::take(&mut w.qp(1, 22).received);
                w.reboot(1);
                w.open(1);
                w.nodes[1].host.qps.entry(22).or_default().received = got;
                w.nodes[1].host.qps.entry(23).or_default();
            }
            Step::FaultAt(k) => w.nodes[0].host.fault_wqe = Some(wqe + u64::from(k % 4)),
            Step::FaultRemote => w.nodes[1].host.fault_remote = true,
            _ => {}
        }
    }
    for _ in posted..sent.len() {
        if !rebooted {
            w.post_recv(1, 22, 1, 20_000);
        }
    }
    let total = wqe as usize;
    if !w.run(30_000, |w| w.qp(0, 11).done.len() >= total) {
        let q = w.qp(0, 11);
        panic!("{:?} of {total}, errors {:?}", q.done, q.errors);
    }
    w.run(300, |_| false);
    let q = w.qp(0, 11);
    assert_eq!(q.done.len(), total);
    assert!(q.pulled.is_empty());
    let mut errors = 0;
    let mut over = false;
    let mut succeeded = 0usize;
    for (k, d) in q.done.iter().enumerate() {
        assert_eq!(d.0, k as u64, "order");
        match d.1 {
            WcStatus::Success => {
                assert!(!over, "success after failure: {:?}", q.done);
                succeeded += 1;
            }
            WcStatus::WrFlushErr => over = true,
            _ => {
                assert!(!over, "second error: {:?}", q.done);
                errors += 1;
                over = true;
            }
        }
    }
    assert!(errors <= 1);
    let acked = sent.iter().filter(|s| (s.0 as usize) < succeeded).count();
    let got = &w.qp(1, 22).received;
    assert!(
        got.len() >= acked || rebooted || !attached,
        "{} received, {acked} acknowledged",
        got.len()
    );
    for (i, (done, data)) in got.iter().enumerate() {
        assert_eq!((u64::from(done.imm), done.len), sent[i]);
        assert!(*data == message(sent[i].0, sent[i].1 as usize));
    }
    if !rebooted {
        assert!(w.run(5000, |w| w.qp(0, 12).done.len() == 20));
        assert!(w.qp(0, 12).done.iter().all(|d| d.1 == WcStatus::Success));
        assert_eq!(w.qp(1, 23).received.len(), 20);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 500, ..ProptestConfig::default() })]
    #[test]
    fn fails_in_order(
        seed in any::<u64>(),
        loss in prop_oneof![Just(0u32), 0..80_000u32],
        rnr_retry in prop_oneof![Just(7u8), 0..7u8],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        check(seed, loss, rnr_retry, steps);
    }
}
