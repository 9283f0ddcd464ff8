// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Random lists of operations over random networks: every message exactly once, in order, with the right
//! bytes, and nothing left over.

use metaroce_engine::engine::api::Config;
use metaroce_model::*;
use proptest::prelude::*;

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
        // Most routes let everything through.
        prop_oneof![
            2 => Just(vec![]),
            1 => (0..8u8, 560..1460usize).prop_map(|n| vec![n]),
            1 => (560..1460usize).prop_map(|most| vec![(255, most)]),
        ],
    )
        .prop_map(
            |(base, step, cost, loss, dup, reorder, reorder_ns, black, narrow)| Net {
                base,
                step,
                milli_ns_per_byte: cost,
                loss_ppm: loss,
                dup_ppm: dup,
                reorder_ppm: reorder,
                reorder_ns,
                garbage_ppm: dup / 2,
                black,
                narrow,
            },
        )
}

fn check(seed: u64, net: Net, ops: Vec<Op>, loopback: bool, paths: u8) {
    let config = Config {
        paths,
        ..Config::default()
    };
    let mut w = Workload::new(World::new(seed, net, loopback, config), loopback);
    for op in &ops {
        w.post(op);
    }
    w.finish();
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
