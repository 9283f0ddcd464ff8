// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The network: links, queues, losses and routes. Times are in nanoseconds unless they say otherwise.
//!
//! A port is a first-in first-out queue in front of a link. As its rate is constant, the moment a packet
//! leaves is known when it is queued, so that a hop costs one event and no list.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Bytes around a UDP payload on the wire: UDP, IPv4, Ethernet, preamble and gap.
pub const OVERHEAD: u32 = 8 + 20 + 18 + 20;

/// How packets get lost on the last link to a host (both directions of a connection).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Never.
    None,
    /// Each packet with this probability.
    Random(f64),
    /// Gilbert-Elliott in time: all packets are lost in the bad state.
    Burst {
        /// Mean length of good times.
        good: f64,
        /// Mean length of bad times.
        bad: f64,
    },
}

/// What a fabric looks like: `planes` equal leaf-spine networks.
#[derive(Clone, Debug)]
pub struct FabricSpec {
    pub hosts: usize,
    pub planes: usize,
    pub hosts_per_leaf: usize,
    pub spines: usize,
    /// Of every link, but see [`Self::spine_gbps`].
    pub gbps: u64,
    /// Of the links between leaves and spines, in Gbit/s, if they are slower.
    pub spine_gbps: Option<u64>,
    /// Of every link.
    pub delay: u64,
    /// Additional delay through spine `i % len`, each way.
    pub spine_delay: Vec<u64>,
    /// Bytes a switch port can hold.
    pub buffer: u64,
    /// Marking begins here, rises to `mark_p` at `mark_max` and is certain beyond.
    pub mark_min: u64,
    pub mark_max: u64,
    pub mark_p: f64,
    /// Priority flow control, idealised: a sender stops while a queue on its route is a quarter full; nobody
    /// else is stopped and nothing is dropped for want of buffer.
    pub lossless: bool,
    pub loss: Loss,
}

impl FabricSpec {
    /// Two leaves, 100 Gbit/s, 1 us per link, 2 MB per port.
    pub fn new(hosts: usize) -> Self {
        Self {
            hosts,
            planes: 1,
            hosts_per_leaf: hosts.div_ceil(2).max(1),
            spines: 8,
            gbps: 100,
            spine_gbps: None,
            delay: 1_000,
            spine_delay: vec![0],
            buffer: 2 << 20,
            mark_min: 100 << 10,
            mark_max: 400 << 10,
            mark_p: 0.2,
            lossless: false,
            loss: Loss::None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Port {
    delay: u64,
    /// Picoseconds per byte.
    ps_per_byte: u64,
    /// When the last queued packet has left, in picoseconds.
    busy_ps: u64,
    up: bool,
    host: bool,
    lossy: bool,
    bad: bool,
    /// When the state changes next (burst loss).
    change_at: u64,
    /// Bytes that have left.
    bytes: u64,
}

/// Route of a packet: ports to pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hops {
    ports: [u32; 4],
    len: u8,
    at: u8,
}

impl Hops {
    /// Whether the packet is at its destination.
    pub fn is_done(&self) -> bool {
        self.at >= self.len
    }
}

/// What happened to packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetStats {
    pub forwarded: u64,
    pub dropped_full: u64,
    pub dropped_loss: u64,
    pub dropped_down: u64,
    pub marked: u64,
    /// Largest backlog of a switch port in bytes.
    pub max_queue: u64,
}

/// The network itself.
pub struct Fabric {
    pub spec: FabricSpec,
    ports: Vec<Port>,
    leaves: usize,
    per_plane: usize,
    rng: Pcg64Mcg,
    salt: u64,
    pub stats: NetStats,
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Fabric {
    pub fn new(spec: FabricSpec, seed: u64) -> Self {
        let leaves = spec.hosts.div_ceil(spec.hosts_per_leaf);
        let per_plane = 2 * spec.hosts + 2 * leaves * spec.spines;
        let mut ports = Vec::with_capacity(per_plane * spec.planes);
        for _ in 0..spec.planes {
            for i in 0..per_plane {
                // Order: host up, host down, leaf to spine, spine to leaf.
                let fabric = i.checked_sub(2 * spec.hosts);
                let extra = fabric.map_or(0, |f| {
                    spec.spine_delay[(f % spec.spines) % spec.spine_delay.len()]
                });
                let rate = fabric.and(spec.spine_gbps).unwrap_or(spec.gbps);
                ports.push(Port {
                    delay: spec.delay + extra / 2,
                    ps_per_byte: 8_000 / rate,
                    busy_ps: 0,
                    up: true,
                    host: i < spec.hosts,
                    lossy: i >= spec.hosts && i < 2 * spec.hosts,
                    bad: true,
                    change_at: 0,
                    bytes: 0,
                });
            }
        }
        let rng = Pcg64Mcg::seed_from_u64(seed);
        Self {
            spec,
            ports,
            leaves,
            per_plane,
            rng,
            salt: mix(seed),
            stats: NetStats::default(),
        }
    }

    /// The route that ECMP gives to a flow.
    pub fn route(&self, src: usize, dst: usize, plane: usize, sport: u16) -> Hops {
        let s = &self.spec;
        let base = plane * self.per_plane;
        let (a, b) = (src / s.hosts_per_leaf, dst / s.hosts_per_leaf);
        let (up, down) = (base + src, base + s.hosts + dst);
        if a == b {
            return Hops {
                ports: [up as u32, down as u32, 0, 0],
                len: 2,
                at: 0,
            };
        }
        let key = (src as u64) << 40 | (dst as u64) << 16 | u64::from(sport);
        let spine =
            (mix(key.wrapping_add(mix(self.salt ^ plane as u64))) % s.spines as u64) as usize;
        let fabric = base + 2 * s.hosts;
        let l2s = fabric + a * s.spines + spine;
        let s2l = fabric + (self.leaves + b) * s.spines + spine;
        Hops {
            ports: [up as u32, l2s as u32, s2l as u32, down as u32],
            len: 4,
            at: 0,
        }
    }

    /// Takes a whole plane down or up; what is under way on it is lost.
    pub fn set_plane(&mut self, plane: usize, up: bool) {
        for port in &mut self.ports[plane * self.per_plane..(plane + 1) * self.per_plane] {
            port.up = up;
        }
    }

    /// Ports from the leaves to one spine of a plane.
    fn to_spine(&self, plane: usize, spine: usize) -> impl Iterator<Item = usize> {
        let s = &self.spec;
        let first = plane * self.per_plane + 2 * s.hosts + spine;
        (first..).step_by(s.spines).take(self.leaves)
    }

    /// Takes a spine with all its links down or up; nobody is told.
    pub fn set_spine(&mut self, plane: usize, spine: usize, up: bool) {
        let back = self.leaves * self.spec.spines;
        for port in self.to_spine(plane, spine) {
            self.ports[port].up = up;
            self.ports[port + back].up = up;
        }
    }

    /// Bytes that each spine of a plane has been sent.
    pub fn spine_bytes(&self, plane: usize) -> Vec<u64> {
        (0..self.spec.spines)
            .map(|s| self.to_spine(plane, s).map(|p| self.ports[p].bytes).sum())
            .collect()
    }

    /// When the uplink of a host is idle again.
    pub fn uplink_free(&self, host: usize, plane: usize) -> u64 {
        self.ports[plane * self.per_plane + host].busy_ps / 1000
    }

    /// How long idealised priority flow control holds back a packet of this route.
    pub fn pause(&self, now: u64, hops: &Hops) -> u64 {
        if !self.spec.lossless {
            return 0;
        }
        let limit = self.spec.buffer / 4;
        let over = |p: &u32| {
            let port = &self.ports[*p as usize];
            port.busy_ps
                .saturating_sub(now * 1000)
                .saturating_sub(limit * port.ps_per_byte)
                / 1000
        };
        hops.ports[1..hops.len as usize]
            .iter()
            .map(over)
            .max()
            .unwrap_or(0)
    }

    /// Whether the link a packet has just crossed still exists.
    pub fn survives(&mut self, hops: &Hops) -> bool {
        let ok = hops.at == 0 || self.ports[hops.ports[hops.at as usize - 1] as usize].up;
        self.stats.dropped_down += u64::from(!ok);
        ok
    }

    /// Queues a packet at the next port of its route: when it arrives behind that link, or `None` if it
    /// is lost. `ce` is `None` for packets that cannot be marked.
    pub fn forward(
        &mut self,
        now: u64,
        hops: &mut Hops,
        bytes: u32,
        ce: Option<&mut bool>,
    ) -> Option<u64> {
        let s = &self.spec;
        let port = &mut self.ports[hops.ports[hops.at as usize] as usize];
        hops.at += 1;
        if !port.up {
            self.stats.dropped_down += 1;
            return None;
        }
        let now_ps = now * 1000;
        let bytes = bytes + OVERHEAD;
        let backlog = port.busy_ps.saturating_sub(now_ps) / port.ps_per_byte;
        if !port.host {
            if !s.lossless && backlog + u64::from(bytes) > s.buffer {
                self.stats.dropped_full += 1;
                return None;
            }
            self.stats.max_queue = self.stats.max_queue.max(backlog);
        }
        if let Some(ce) = ce {
            if backlog > s.mark_max
                || (backlog > s.mark_min && {
                    let share =
                        (backlog - s.mark_min) as f64 / (s.mark_max - s.mark_min).max(1) as f64;
                    self.rng.random::<f64>() < share * s.mark_p
                })
            {
                *ce = true;
                self.stats.marked += 1;
            }
        }
        port.bytes += u64::from(bytes);
        port.busy_ps = port.busy_ps.max(now_ps) + u64::from(bytes) * port.ps_per_byte;
        if port.lossy {
            let lost = match s.loss {
                Loss::None => false,
                Loss::Random(p) => self.rng.random::<f64>() < p,
                Loss::Burst { good, bad } => {
                    while now >= port.change_at {
                        port.bad = !port.bad;
                        let mean = if port.bad { bad } else { good };
                        let length = -(1.0 - self.rng.random::<f64>()).ln() * mean;
                        port.change_at += 1 + length as u64;
                    }
                    port.bad
                }
            };
            if lost {
                self.stats.dropped_loss += 1;
                return None;
            }
        }
        self.stats.forwarded += 1;
        Some(port.busy_ps.div_ceil(1000) + port.delay)
    }
}
