// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Routes that swallow large packets without a word.

use metaroce_engine::engine::api::*;
use metaroce_model::*;

/// A route that lets packets of `mtu` bytes with IPv6 and UDP headers through.
fn passes(mtu: usize) -> usize {
    mtu - 48
}

fn world(seed: u64, net: Net) -> World {
    let mut w = World::new(seed, net, false, Config::default());
    w.open(0);
    w.open(1);
    w.pair(11, 22, &requester(500, 7));
    w
}

/// Sends `n` messages of `len` bytes each and checks them; the time it took in ms.
fn send(w: &mut World, n: usize, len: usize) -> u64 {
    let (done, received) = (w.qp(0, 11).done.len(), w.qp(1, 22).received.len());
    let start = w.now;
    w.post_recv(1, 22, n, len);
    for k in 0..n {
        w.send(0, 11, (done + k) as u64, len);
    }
    assert!(
        w.run(20_000, |w| w.qp(0, 11).done.len() == done + n
            && w.qp(1, 22).received.len() == received + n),
        "{} of {n} done",
        w.qp(0, 11).done.len() - done
    );
    for k in done..done + n {
        assert_eq!(w.qp(0, 11).done[k].1, WcStatus::Success);
        let (_, data) = &w.qp(1, 22).received[k];
        assert!(*data == message(k as u64, len), "message {k}");
    }
    (w.now - start) / 1_000_000
}

/// Payload of the paths that have been in use.
fn payloads(w: &World) -> Vec<u32> {
    let used = |p: &metaroce_engine::engine::PathInfo| p.stats.sent > 0;
    w.nodes[0]
        .conn
        .paths()
        .filter(used)
        .map(|p| p.payload)
        .collect()
}

/// Asserts that all of these paths send `want` bytes per packet.
fn expect_payload(w: &World, want: u32) {
    let found = payloads(w);
    assert!(found.iter().all(|p| *p == want), "{found:?}, not {want}");
}

#[test]
fn every_route_is_narrow() {
    for (mtu, want) in [(1491, 1304), (1420, 1304), (1280, 1164), (600, 460)] {
        for (seed, loss_ppm) in [(1, 0), (2, 10_000), (3, 100_000)] {
            let mut w = world(
                seed,
                Net {
                    narrow: vec![(255, passes(mtu))],
                    loss_ppm,
                    ..Net::default()
                },
            );
            let took = send(&mut w, 200, 9000);
            let limit = if loss_ppm == 0 { 60 } else { 600 };
            assert!(took < limit, "MTU {mtu}, loss {loss_ppm} ppm: {took} ms");
            if loss_ppm == 0 {
                expect_payload(&w, want);
                // From now on it costs nothing.
                let before = w.retransmissions(0);
                assert!(send(&mut w, 200, 9000) < 10);
                assert_eq!(w.retransmissions(0), before);
            }
        }
    }
}

#[test]
fn one_route_is_narrow() {
    let mut w = world(
        4,
        Net {
            narrow: vec![(3, passes(1400))],
            ..Net::default()
        },
    );
    send(&mut w, 500, 20_000);
    for p in w.nodes[0].conn.paths() {
        let want = if p.route.port_slot == 3 { 1164 } else { 1400 };
        assert_eq!(p.payload, want, "port {}", p.route.port_slot);
    }
}

#[test]
fn reads_over_narrow_routes() {
    for seed in 0..5 {
        let mut w = world(
            seed,
            Net {
                narrow: vec![(255, passes(1280))],
                loss_ppm: 20_000 * seed as u32,
                ..Net::default()
            },
        );
        w.nodes[1].host.memory = message(9, 4 << 20);
        let len = 200_000;
        for k in 0..20u64 {
            let req = Request {
                wqe: WqeId(k),
                opcode: Opcode::Read,
                len,
                rkey: 0x1234,
                va: k * 1000,
                ..Request::default()
            };
            w.post(0, 11, req, Vec::new());
        }
        assert!(w.run(20_000, |w| w.qp(0, 11).done.len() == 20));
        for k in 0..20u64 {
            assert_eq!(w.qp(0, 11).done[k as usize].1, WcStatus::Success);
            let at = k as usize * 1000;
            let want = w.nodes[1].host.memory[at..at + len as usize].to_vec();
            assert!(w.qp(0, 11).results[&k] == want, "seed {seed}, READ {k}");
        }
    }
}

/// While data flows a route becomes narrow, and wide again a minute later.
#[test]
fn narrow_for_a_while() {
    let mut w = world(6, Net::default());
    send(&mut w, 200, 9000);
    expect_payload(&w, 1400);
    w.net.narrow = vec![(255, passes(1280))];
    assert!(send(&mut w, 200, 9000) < 100);
    expect_payload(&w, 1164);
    w.net.narrow.clear();
    w.run(10_000, |_| false);
    assert_eq!(w.nodes[0].conn.next_deadline(), None);
    w.now += 61_000_000_000;
    for _ in 0..10 {
        send(&mut w, 100, 9000);
    }
    expect_payload(&w, 1400);
}

#[test]
fn loss_is_not_taken_for_a_narrow_route() {
    for seed in 0..10 {
        let mut w = world(
            seed,
            Net {
                loss_ppm: 100_000,
                ..Net::default()
            },
        );
        for _ in 0..10 {
            send(&mut w, 100, 9000);
        }
        expect_payload(&w, 1400);
    }
}

/// Small messages find nothing, as they need nothing.
#[test]
fn small_messages_search_for_nothing() {
    let mut w = world(
        7,
        Net {
            narrow: vec![(255, passes(700))],
            ..Net::default()
        },
    );
    send(&mut w, 200, 400);
    assert_eq!(w.retransmissions(0), 0);
    expect_payload(&w, 1400);
}
