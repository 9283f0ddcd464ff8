// SPDX-License-Identifier: GPL-2.0

//! From a received datagram to its connection. Softirq.

use super::{
    shared::{
        PeerKey,
        Shared, //
    },
    SHARED,
};
use crate::{
    engine::{
        wire,
        wire::{
            Datagram,
            Kind,
            MAX_HEADER, //
        },
    },
    net::{
        addr::Flow,
        skb::{
            RxPacket,
            TxPacket, //
        },
        socket::{
            Listener,
            Receiver,
            RxInfo, //
        },
    },
    sync::pr_warn_limited,
};

/// The receiver of all listening sockets.
pub(super) struct Rx;

impl Receiver for Rx {
    fn receive(packet: RxPacket, info: &RxInfo, from: Listener<'_>) {
        SHARED.with(|shared| shared.receive(packet, info, from));
    }
}

impl Shared {
    fn receive(&self, packet: RxPacket, info: &RxInfo, from: Listener<'_>) {
        let mut start = [0u8; MAX_HEADER];
        let head = packet.read_start(&mut start);
        if Datagram::is_one(head) {
            self.receive_datagram(&packet, info, head);
            return;
        }
        let peek = match wire::peek(head) {
            Ok(peek) => peek,
            Err(why) => {
                self.strays.malformed.inc();
                pr_warn_limited!(
                    "malformed datagram from {} port {}, {} bytes: {:?}\n",
                    info.src,
                    info.sport,
                    info.len,
                    why
                );
                return;
            }
        };
        let key = PeerKey::new(info.net_cookie, info.dst, info.src, info.ifindex);
        // INIT does not know our id yet and RESET echoes the sender's own; the
        // addresses tell whom they concern.
        let conn = match peek.kind {
            Kind::Init | Kind::Reset => self.peer(&key),
            _ => self
                .conns
                .get(peek.dst_conn_id)
                .filter(|conn| *conn.key() == key),
        };
        match conn {
            Some(conn) => conn.receive(packet, info, head),
            None => self.reject(head, info, from),
        }
    }

    /// Answers a packet for a connection that does not exist, so that the peer
    /// of a restarted machine learns of it. The answer is no longer than the
    /// packet, never answers an answer, and is limited in rate.
    fn reject(&self, head: &[u8], info: &RxInfo, from: Listener<'_>) {
        self.strays.unknown.inc();
        let Some(reset) = wire::reset_for(head) else {
            return;
        };
        if !self.may_reset() {
            return;
        }
        let Some(mut packet) = TxPacket::alloc(wire::COMMON_LEN as u32) else {
            return;
        };
        if packet.append(&reset).is_none() {
            return;
        }
        let flow = Flow {
            src: info.dst,
            dst: info.src,
            oif: if info.src.is_link_local() {
                info.ifindex
            } else {
                0
            },
            dport: self.settings.port,
            tos: 0,
        };
        if from.transmit(&flow, packet).is_ok() {
            self.strays.resets.inc();
        }
    }
}
