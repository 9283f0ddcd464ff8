// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! A peer that shakes hands properly and then lies: it knows connection id, tag, QP numbers, keys and
//! sequences, as a hostile host has them, or one that sees the traffic and answers in its peer's name.
//!
//! The victim is a process that has QPs connected to this address. It writes into a file what a peer would be told,
//! and replaces the file when it has made its QPs anew:
//!
//! ```text
//! qp NUMBER PEER-NUMBER RQ-PSN
//! mr RKEY ADDRESS LENGTH
//! ```

use crate::{
    forge::{Asked, Class, Forger, Qp, Region, Seen, Sending},
    Options, Progress, ROUND,
};
use metaroce_engine::engine::wire::{self, Handshake, Packet, MAX_HEADER};
use std::{
    fs,
    net::{SocketAddr, UdpSocket},
    time::SystemTime,
};

/// Paths that it offers.
const PATHS: u8 = 8;
/// Requests of the victim that are remembered.
const ASKED: usize = 32;

struct Peer<'a> {
    forger: Forger,
    socket: UdpSocket,
    to: SocketAddr,
    own: Handshake,
    progress: &'a mut Progress,
    /// Datagrams received, of these handshakes.
    heard: u64,
    established: u64,
    accepted: u64,
    /// Acknowledges nothing for now.
    mute: bool,
}

impl Peer<'_> {
    fn send(&mut self, class: Class, bytes: &[u8]) {
        self.progress.send(&self.socket, self.to, class, bytes);
    }

    /// What the victim says.
    fn receive(&mut self) {
        let mut buf = [0u8; 2048];
        while let Ok((n, from)) = self.socket.recv_from(&mut buf) {
            if from.ip() != self.to.ip() {
                continue;
            }
            self.heard += 1;
            let bytes = &buf[..n];
            let head = &bytes[..n.min(MAX_HEADER)];
            let Ok((common, packet)) = wire::parse(head, n as u32) else {
                continue;
            };
            let path = usize::from(common.path);
            match packet {
                Packet::Init(hs) => self.on_init(hs),
                Packet::InitAck(hs) if hs.nonce == self.own.nonce => self.on_init(hs),
                Packet::Ack(_) => {
                    self.accepted += 1;
                    if let Some(s) = self.forger.known.sending.get_mut(path) {
                        s.acknowledged(common.seq);
                    }
                }
                Packet::Nak(_) => {
                    let fill = self.forger.void(common.path, common.seq);
                    if let Some(s) = self.forger.known.sending.get_mut(path) {
                        s.replace(common.seq, &fill);
                    }
                    self.send(Class::Void, &fill);
                }
                Packet::Data(data) => {
                    // Sometimes it says nothing, so that requests wait.
                    if let Some(seen) = self.forger.known.seen.get_mut(path) {
                        seen.add(common.seq);
                    }
                    if !self.mute {
                        let ack = self.forger.honest_ack(common.path);
                        self.send(Class::Ack, &ack);
                    }
                    if data.op.expects_response() {
                        let asked = &mut self.forger.known.asked;
                        if asked.len() >= ASKED {
                            asked.remove(0);
                        }
                        asked.push(Asked {
                            from: data.src_qpn,
                            to: data.dst_qpn,
                            rid: data.operands.rid,
                            total: data.total,
                        });
                    }
                }
                Packet::Void => {
                    if let Some(seen) = self.forger.known.seen.get_mut(path) {
                        seen.add(common.seq);
                    }
                }
                Packet::Probe => {
                    let ack = self.forger.honest_ack(common.path);
                    self.send(Class::Ack, &ack);
                }
                _ => {}
            }
        }
    }

    /// The victim has asked, or answered: what it says of itself holds from now on.
    fn on_init(&mut self, hs: Handshake) {
        let known = &mut self.forger.known;
        if (hs.conn_id, hs.tag) != (known.conn_id, known.tag) {
            (known.conn_id, known.tag) = (hs.conn_id, hs.tag);
            known.sending = vec![Sending::default(); usize::from(PATHS.min(hs.paths))];
            known.seen = vec![Seen::default(); known.sending.len()];
            known.asked.clear();
            self.established += 1;
        }
        known.handshake = Some(hs);
        let own = self.own;
        let answer = self.forger.handshake(Some(hs.nonce), &own, true);
        self.send(Class::InitAck, &answer);
    }

    /// Reads what the victim has written.
    fn read_victim(&mut self, text: &str) {
        let known = &mut self.forger.known;
        known.qps.clear();
        known.regions.clear();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |i: usize| {
                words
                    .get(i)
                    .and_then(|w| w.parse::<u64>().ok())
                    .unwrap_or(0)
            };
            match words.first() {
                Some(&"qp") => known.qps.push(Qp {
                    qpn: number(1) as u32,
                    peer: number(2) as u32,
                    msn: number(3) as u32,
                    ..Qp::default()
                }),
                Some(&"mr") => known.regions.push(Region {
                    rkey: number(1) as u32,
                    va: number(2),
                    len: number(3) as u32,
                }),
                _ => {}
            }
        }
    }
}

/// See the module's description.
pub fn run(options: &Options, to: SocketAddr, progress: &mut Progress) -> Result<(), String> {
    let file = options.text("victim")?;
    let any = if to.is_ipv4() { "0.0.0.0" } else { "[::]" };
    let socket = UdpSocket::bind(format!("{any}:{}", to.port()))
        .map_err(|e| format!("port {}: {e}", to.port()))?;
    socket
        .set_nonblocking(true)
        .map_err(|e| format!("socket: {e}"))?;
    let mut forger = Forger::new(options.number("seed", 1)?);
    let own = Handshake {
        nonce: forger.rng.u64(),
        epoch: forger.rng.u64(),
        conn_id: forger.rng.u32() | 1,
        tag: forger.rng.u32(),
        features: 0,
        paths: PATHS,
        planes: 1,
        max_payload: 1400,
        window: 256,
    };
    let mut peer = Peer {
        forger,
        socket,
        to,
        own,
        progress,
        heard: 0,
        established: 0,
        accepted: 0,
        mute: false,
    };
    let mut stamp = SystemTime::UNIX_EPOCH;
    let mut sweep = Vec::new().into_iter();
    let mut swept = false;
    while !peer.progress.over() {
        if let Ok(now) = fs::metadata(file).and_then(|m| m.modified()) {
            if now != stamp {
                stamp = now;
                if let Ok(text) = fs::read_to_string(file) {
                    peer.read_victim(&text);
                }
            }
        }
        peer.receive();
        if peer.forger.known.conn_id == 0 {
            let own = peer.own;
            let init = peer.forger.handshake(None, &own, true);
            peer.send(Class::Init, &init);
            std::thread::sleep(std::time::Duration::from_millis(5));
            continue;
        }
        // Sometimes nearly honest, so that messages get far; sometimes not at all.
        peer.forger.lies = [0, 400, 60, 12, 3][peer.forger.rng.below(5) as usize];
        peer.mute = peer.forger.lies != 0 && peer.forger.rng.once_in(8);
        if !swept {
            swept = true;
            sweep = peer.forger.sweep().into_iter();
        }
        if peer.forger.rng.once_in(150) {
            // As if it had been started again.
            peer.own.epoch = peer.forger.rng.u64();
            peer.own.tag = peer.forger.rng.u32();
            peer.own.nonce = peer.forger.rng.u64();
            let own = peer.own;
            let init = peer.forger.handshake(None, &own, true);
            peer.send(Class::Init, &init);
        }
        for n in 0..ROUND {
            let from_sweep = if n % 4 == 1 { sweep.next() } else { None };
            let (class, bytes) = from_sweep.unwrap_or_else(|| peer.forger.datagram());
            peer.send(class, &bytes);
            if n % 4 == 0 {
                peer.receive();
            }
        }
    }
    println!(
        "victim: {} datagrams heard, {} acknowledgements, {} handshakes",
        peer.heard, peer.accepted, peer.established
    );
    Ok(())
}
