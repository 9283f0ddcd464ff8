// SPDX-License-Identifier: GPL-2.0

//! Datagrams of UD and GSI queue pairs: no connection, no engine, one packet each.

use super::{
    host::{
        copy_out,
        gather, //
    },
    port::{
        Port,
        PortCounters,
        Sockets, //
    },
    shared::Shared,
    transport::Link, //
};
use crate::{
    engine::{
        wire::{
            Datagram,
            DATAGRAM_LEN, //
        },
        Payload,
        Refusal, //
    },
    net::{
        addr::{
            Flow,
            IpAddr, //
        },
        netdev,
        skb::{
            RxPacket,
            TxPacket, //
        },
        socket::{
            Family,
            RxInfo, //
        },
    },
    sync::{
        pr_warn_limited,
        NetDev, //
    },
    verbs::{
        datagram::{
            Incoming,
            Outgoing,
            Received, //
        },
        dev::Device,
        qp::Qp, //
    },
};
use core::cmp::Ordering;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::Arc, //
};

/// The DSCP bits of an IPv6 traffic class or IPv4 TOS byte (RFC 2474).
const DSCP_MASK: u8 = 0xfc;

/// What a datagram QP sends with.
pub struct Sender {
    sockets: Arc<Sockets>,
    counters: Arc<PortCounters>,
    dport: u16,
}

impl Sender {
    pub(super) fn new(shared: &Shared, port: &Port) -> Result<Self> {
        Ok(Self {
            sockets: port.sockets()?,
            counters: port.counters.clone(),
            dport: shared.settings.port,
        })
    }

    /// Sends what is posted, a round of it; returns whether there may be more. Under the link's lock.
    pub(super) fn send(&self, qp: &Qp) -> bool {
        qp.send_datagrams(|out| self.send_one(out))
    }

    fn send_one(&self, out: &Outgoing<'_>) -> Result<(), Refusal> {
        let len = out.len.saturating_add(DATAGRAM_LEN as u32);
        let Some(mut packet) = TxPacket::alloc(len) else {
            self.counters.send_dropped.inc();
            return Ok(());
        };
        let filled = packet.append_with(len, |room| {
            let (head, rest) = room
                .split_first_chunk_mut::<DATAGRAM_LEN>()
                .ok_or(Refusal::Operation)?;
            *head = out.header.emit();
            gather(rest, |f| out.segments(f))
        });
        match filled {
            Some(Ok(())) => (),
            Some(Err(refusal)) => {
                self.counters.send_faults.inc();
                return Err(refusal);
            }
            None => {
                self.counters.send_dropped.inc();
                return Ok(());
            }
        }
        let (src, dst) = (IpAddr(out.sgid()), IpAddr(out.dgid()));
        let flow = Flow {
            src,
            dst,
            oif: if src == dst { 0 } else { out.ifindex() },
            dport: self.dport,
            tos: out.traffic_class() & DSCP_MASK,
        };
        let family = if dst.is_v4() { Family::V4 } else { Family::V6 };
        let sources = self.sockets.sources(family).unwrap_or(&[]);
        // One route for a pair of QPs, so that datagrams between them are not reordered.
        let pair = (out.header.src_qpn ^ out.header.dst_qpn) as usize;
        let sent = pair
            .checked_rem(sources.len())
            .and_then(|slot| sources.get(slot))
            .is_some_and(|socket| socket.transmit_once(&flow, packet).is_ok());
        if sent {
            self.counters.sent.inc();
        } else {
            self.counters.send_dropped.inc();
        }
        Ok(())
    }
}

/// A GID of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    net_cookie: u64,
    address: IpAddr,
    /// The device's network interface, then the GID's index.
    owner: (u32, u16),
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.net_cookie
            .cmp(&other.net_cookie)
            .then_with(|| self.address.0.cmp(&other.address.0))
            .then_with(|| self.owner.cmp(&other.owner))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Whom a GID leads to.
struct Owner {
    dev: Arc<Device>,
    /// The GID's network interface: the device's, or one on top of it.
    ifindex: u32,
}

/// Which device a received datagram is for: by its destination address.
#[derive(Default)]
pub(super) struct Addresses(RBTree<Key, Owner>);

impl Addresses {
    /// The device that has `address`; if several have it (a link-local one), that on the interface by
    /// which the datagram came, else any.
    fn find(&self, net_cookie: u64, address: IpAddr, ifindex: u32) -> Option<Arc<Device>> {
        let mut owner = (0, 0);
        let mut any = None;
        loop {
            let key = Key {
                net_cookie,
                address,
                owner,
            };
            let Some(cursor) = self.0.cursor_lower_bound(&key) else {
                break;
            };
            let (key, found) = cursor.current();
            if key.net_cookie != net_cookie || key.address != address {
                break;
            }
            if found.ifindex == ifindex {
                return Some(found.dev.clone());
            }
            any.get_or_insert_with(|| found.dev.clone());
            owner = match key.owner {
                (at, u16::MAX) => (at.saturating_add(1), 0),
                (at, index) => (at, index.saturating_add(1)),
            };
        }
        any
    }
}

impl Shared {
    /// Datagrams to `gid`, an address of `netdev`, are for `dev`. Process context.
    pub(super) fn add_address(
        &self,
        dev: &Arc<Device>,
        gid: [u8; 16],
        index: u16,
        netdev: &NetDev,
    ) -> Result {
        dev.port()
            .check_address(&IpAddr(gid), netdev)
            .inspect_err(|e| {
                pr_warn_limited!(
                    "{} of {} is not listed as a GID: {}\n",
                    IpAddr(gid),
                    netdev::name(netdev),
                    unlisted(*e)
                );
            })?;
        let key = key_of(dev, gid, index);
        let owner = Owner {
            dev: dev.clone(),
            ifindex: netdev.ifindex(),
        };
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let old = self.addresses.lock().0.insert(node.into_node(key, owner));
        drop(old);
        Ok(())
    }

    /// No longer.
    pub(super) fn del_address(&self, dev: &Arc<Device>, gid: [u8; 16], index: u16) {
        let gone = self
            .addresses
            .lock()
            .0
            .remove_node(&key_of(dev, gid, index));
        drop(gone);
    }

    /// One datagram. Softirq.
    pub(super) fn receive_datagram(&self, packet: &RxPacket, info: &RxInfo, head: &[u8]) {
        let header = match Datagram::parse(head) {
            Ok(header) => header,
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
        let dev = self
            .addresses
            .lock()
            .find(info.net_cookie, info.dst, info.ifindex);
        let Some(dev) = dev else {
            self.strays.unknown.inc();
            return;
        };
        let datagram = Incoming {
            header,
            len: info.len.saturating_sub(DATAGRAM_LEN as u32),
            mad: Datagram::has_mad(head, info.len),
            grh: packet.grh(),
            v4: info.dst.is_v4(),
            vlan: info.vlan,
        };
        let counters = &dev.port().counters;
        match dev
            .qp(header.dst_qpn)
            .map(|qp| deliver(&qp, packet, &datagram))
        {
            Some(Received::Delivered) => counters.datagrams_received.inc(),
            Some(Received::WrongQkey) => {
                counters.wrong_qkey.inc();
                pr_warn_limited!(
                    "datagram from {} for QP {:#x} has a wrong Q_Key\n",
                    info.src,
                    header.dst_qpn
                );
            }
            Some(Received::Dropped) | None => counters.datagrams_dropped.inc(),
        }
    }
}

/// What [`Port::check_address`] meant.
fn unlisted(e: Error) -> &'static str {
    match e {
        e if e == EAFNOSUPPORT => "IPv6 is disabled",
        e if e == EADDRNOTAVAIL => "the interface does not have this address",
        e if e == EXDEV => "the interface is in another network namespace than the device",
        _ => "the device is going away",
    }
}

fn key_of(dev: &Device, gid: [u8; 16], index: u16) -> Key {
    let (net_cookie, ifindex) = dev.port().place();
    Key {
        net_cookie,
        address: IpAddr(gid),
        owner: (ifindex, index),
    }
}

fn deliver(qp: &Qp, packet: &RxPacket, datagram: &Incoming) -> Received {
    let payload = Payload {
        offset: DATAGRAM_LEN as u32,
        len: datagram.len,
    };
    qp.link(|link| match link {
        Some(Link::Datagrams(_)) => qp.receive_datagram(datagram, |f| copy_out(packet, payload, f)),
        _ => Received::Dropped,
    })
}
