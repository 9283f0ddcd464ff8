// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! How long a transfer takes where the network's delays are uneven or change. The network has no bottleneck: what limits is
//! the window alone, so whatever shrinks it without reason shows as time.

use metaroce_engine::engine::api::*;
use metaroce_model::{message, requester, Net, World};

const SIZE: usize = 65_536;

/// ms of simulated time for `n` requests of 64 KiB, 64 at a time.
fn transfer(w: &mut World, opcode: Opcode, first: u64, n: u64) -> u64 {
    let begin = w.now;
    let data = message(1, SIZE);
    let mut posted = 0;
    let done = w.run(60_000, |w| {
        while posted < n && w.qp(0, 10).done.len() as u64 + 64 > first + posted {
            let req = Request {
                wqe: WqeId(first + posted),
                opcode,
                len: SIZE as u32,
                rkey: 0x1234,
                ..Request::default()
            };
            w.post(0, 10, req, data.clone());
            posted += 1;
        }
        w.qp(0, 10).done.len() as u64 >= first + n
    });
    assert!(done, "does not finish");
    let bad = w.qp(0, 10).done.iter().find(|d| d.1 != WcStatus::Success);
    assert_eq!(bad, None);
    (w.now - begin) / 1_000_000
}

fn connected(seed: u64, net: Net) -> World {
    let config = Config {
        paths: 8,
        max_payload: 1400,
        ..Config::default()
    };
    let mut w = World::new(seed, net, false, config);
    w.open(0);
    w.open(1);
    w.pair(10, 20, &requester(2000, 7));
    w
}

/// While the delay rule believes in a way that is no longer as short, the windows stay at their least.
#[test]
fn way_becomes_longer() {
    let near = Net {
        base: 100_000,
        // 10 Gbit/s for each route.
        milli_ns_per_byte: 800,
        ..Net::default()
    };
    let far = Net {
        base: 2_000_000,
        ..near.clone()
    };
    let mut w = connected(1, near);
    transfer(&mut w, Opcode::Write, 0, 200);
    w.net = far;
    let ms = transfer(&mut w, Opcode::Write, 200, 1000);
    assert!(ms < 2_000, "{ms} ms");
}
