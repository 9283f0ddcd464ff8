// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Two endpoints, or one that talks to itself, with a hostile network between them: it loses, delays, repeats,
//! marks and replays datagrams and forges others, but does not know what would make a forgery
//! believable. Whatever it did: when it stops, everything arrives, once, in order, whole.

use crate::Input;
use metaroce_engine::engine::api::Config;
use metaroce_model::{Fate, Net, Op, Workload, World};

fn fate(x: &mut Input<'_>) -> Fate {
    match x.u8() {
        0..=119 => Fate::Deliver,
        120..=135 => Fate::Mark,
        136..=175 => Fate::Drop,
        176..=191 => Fate::Delay(u64::from(x.u8()) * 1_000),
        192..=199 => Fate::Delay(u64::from(x.u16()) * 1_000),
        200..=215 => Fate::Copy(u64::from(x.u8()) * 1_000),
        216..=223 => Fate::Copy(u64::from(x.u16()) * 1_000),
        224..=239 => Fate::Replay(x.u8()),
        _ => Fate::Forge {
            at: x.u8(),
            xor: x.u8(),
        },
    }
}

/// The first bytes say what the network and the devices are like, the others what happens.
pub fn pair(data: &[u8]) {
    let mut x = Input::new(data);
    let shape = x.u8();
    let loopback = shape & 3 == 3;
    let config = Config {
        paths: [8, 1, 2, 64][usize::from(shape >> 2 & 3)],
        planes: 1 + (shape >> 4 & 1),
        ports_per_plane: [32, 1, 3, 255][usize::from(shape >> 5 & 3)],
        max_payload: if shape & 0x80 == 0 { 1400 } else { 300 },
        ..Config::default()
    };
    let net = Net {
        base: u64::from(x.u8()) * 1_000 + 1,
        step: u64::from(x.u8()) * 100,
        milli_ns_per_byte: u64::from(x.u8()) * 4,
        ..Net::default()
    };
    let seed = u64::from(x.u8());
    let mut w = Workload::new(World::new(seed, net, loopback, config), loopback);
    let mut posted = 0;
    while !x.is_empty() && posted < 80 {
        let world = &mut w.world;
        match x.u8() {
            b @ 0..=127 => {
                let len = match x.u8() {
                    b @ 0..=199 => u32::from(b) * 8,
                    b => u32::from(b) * 150,
                };
                posted += 1;
                w.post(&Op {
                    qp: b & 3,
                    back: b & 4 != 0,
                    kind: b >> 3,
                    len: len.min(metaroce_model::REGION as u32 - 1),
                    fence: b & 0x40 != 0,
                    pause_us: 0,
                    post_recv: x.u8() & 1 == 0,
                });
            }
            b @ 128..=191 => {
                let until = world.now + u64::from(b & 63) * u64::from(x.u8()) * 1_000;
                for _ in 0..2_000 {
                    if !world.step(until) {
                        break;
                    }
                }
            }
            b @ 192..=247 => {
                for _ in 0..=b & 31 {
                    world.fates.push_back(fate(&mut x));
                }
            }
            b => {
                let now = world.instant();
                let i = usize::from(b & 1).min(world.nodes.len() - 1);
                let plane = b >> 1 & 1;
                let node = &mut world.nodes[i];
                if b & 4 == 0 {
                    node.conn.plane_down(now, plane, &mut node.host);
                } else {
                    node.conn.plane_up(now, plane, &mut node.host);
                }
                world.flush(i);
            }
        }
    }
    // The datagrams to come may still meet the fates that were laid up for them.
    w.finish();
}
