// SPDX-License-Identifier: GPL-2.0

//! What `verbs` asks of the datapath.

use super::{
    conn::Conn,
    counters,
    datagram::Sender,
    port::{
        Port,
        Toward, //
    },
    Datapath,
    SHARED, //
};
use crate::{
    engine::{
        RequesterAttr,
        Stream,
        StreamAttr,
        StreamId,
        StreamTable, //
    },
    net::{
        addr::IpAddr,
        netdev, //
    },
    sync::{
        pr_warn_limited,
        NetDev, //
    },
    verbs::{
        dev::Device,
        qp::Qp,
        AddressVector,
        CounterName,
        Transport, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The DSCP bits of an IPv6 traffic class or IPv4 TOS byte (RFC 2474).
const DSCP_MASK: u8 = 0xfc;

/// What the datapath hangs on a QP.
pub enum Link {
    /// A connected QP is a stream of a connection.
    Stream(StreamLink),
    /// A datagram QP.
    Datagrams(Sender),
}

/// A stream.
#[derive(Clone)]
pub struct StreamLink {
    conn: Arc<Conn>,
    id: StreamId,
}

impl StreamLink {
    /// Which stream of the connection it is.
    pub(super) fn id(&self) -> StreamId {
        self.id
    }
}

/// The stream of a QP, taken out from under its lock.
pub(super) fn link(qp: &Qp) -> Option<StreamLink> {
    qp.link(|link| match link {
        Some(Link::Stream(stream)) => Some(stream.clone()),
        _ => None,
    })
}

/// Finds or makes the connection and adds the QP's stream to it.
fn attach(dev: &Arc<Device>, qp: &Arc<Qp>, to: &Toward, attr: &StreamAttr) -> Result {
    let shared = SHARED.get().ok_or(ENODEV)?;
    if to.local.is_v4() != to.remote.is_v4() {
        return Err(EAFNOSUPPORT);
    }
    let mut stream = Some(Stream::new(qp.clone(), attr)?);
    dev.port().with_conn(&shared, to, |conn| loop {
        let wanted = stream.take().ok_or(EINVAL)?;
        let done = conn.with(|live, _| {
            live.engine
                .attach(wanted)
                .map_err(|back| (back, live.engine.stream_capacity()))
        });
        match done.ok_or(ENOTCONN)? {
            Ok(id) => {
                qp.set_link(Link::Stream(StreamLink {
                    conn: conn.clone(),
                    id,
                }));
                return Ok(());
            }
            Err((back, capacity)) => {
                stream = Some(back);
                let bigger = StreamTable::new(capacity.saturating_mul(2).max(1))?;
                let old = conn.with(|live, _| live.engine.grow_streams(bigger));
                drop(old);
            }
        }
    })
}

/// What an error of [`attach`] means.
fn reason(e: Error) -> &'static str {
    match e {
        e if e == EMSGSIZE => "the MTU of the interface or route is too small",
        e if e == EAFNOSUPPORT => "one is IPv4 and the other IPv6, or IPv6 is disabled",
        e if e == ENETUNREACH || e == EHOSTUNREACH => "there is no route by this interface",
        e if e == EACCES => "the route is prohibited",
        e if e == ENOMEM => "there is no memory left",
        e if e == ENODEV || e == ENOTCONN || e == ENONET => "the device is going away",
        _ => "the route cannot be used",
    }
}

impl Transport for Datapath {
    type Link = Link;
    type Port = Port;

    fn open(netdev: &NetDev, _guid: [u8; 8]) -> Result<Arc<Port>> {
        let shared = SHARED.get().ok_or(ENODEV)?;
        Port::open(&shared, netdev)
    }

    fn close(port: &Arc<Port>) {
        if let Some(shared) = SHARED.get() {
            port.close(&shared);
        }
    }

    const COUNTERS: &'static [CounterName] = &counters::NAMES;

    fn read_counters(port: &Port, set: &mut dyn FnMut(usize, u64)) {
        if let Some(shared) = SHARED.get() {
            counters::read(&shared, port, set);
        }
    }

    fn attach(dev: &Arc<Device>, qp: &Arc<Qp>, av: &AddressVector, attr: &StreamAttr) -> Result {
        let to = Toward {
            local: IpAddr(av.sgid),
            remote: IpAddr(av.dgid),
            ifindex: av.netdev.ifindex(),
            tos: av.traffic_class & DSCP_MASK,
            dev_mtu: av.netdev.mtu(),
        };
        attach(dev, qp, &to, attr).inspect_err(|e| {
            pr_warn_limited!(
                "QP {:#x} cannot be connected from {} ({}) to {}: {} ({:?})\n",
                qp.qpn(),
                to.local,
                netdev::name(&av.netdev),
                to.remote,
                reason(*e),
                e
            );
        })
    }

    fn attach_datagram(dev: &Arc<Device>, qp: &Arc<Qp>) -> Result {
        let shared = SHARED.get().ok_or(ENODEV)?;
        qp.set_link(Link::Datagrams(Sender::new(&shared, dev.port())?));
        Ok(())
    }

    fn add_address(dev: &Arc<Device>, gid: [u8; 16], index: u16, netdev: &NetDev) -> Result {
        let shared = SHARED.get().ok_or(ENODEV)?;
        shared.add_address(dev, gid, index, netdev)
    }

    fn del_address(dev: &Arc<Device>, gid: [u8; 16], index: u16) {
        if let Some(shared) = SHARED.get() {
            shared.del_address(dev, gid, index);
        }
    }

    fn start_requester(qp: &Arc<Qp>, attr: &RequesterAttr) -> Result {
        let link = link(qp).ok_or(ENOTCONN)?;
        link.conn
            .with(|live, now| {
                live.engine
                    .start_requester(now, link.id, attr, &mut live.host);
            })
            .ok_or(ENOTCONN)
    }

    fn set_responses(qp: &Arc<Qp>, responses: u8) {
        if let Some(link) = link(qp) {
            link.conn
                .with(|live, _| live.engine.set_responses(link.id, responses));
        }
    }

    fn detach(qp: &Arc<Qp>) {
        // A datagram QP only has to give its link back.
        let Some(Link::Stream(link)) = qp.take_link() else {
            return;
        };
        let stream = link.conn.with(|live, _| live.engine.detach(link.id));
        drop(stream);
        if let Some(shared) = SHARED.get() {
            qp.device().port().stream_left(&shared, &link.conn);
        }
    }

    fn fail(qp: &Arc<Qp>) {
        if let Some(link) = link(qp) {
            link.conn
                .with(|live, _| live.engine.fail(link.id, &mut live.host));
        }
    }

    fn kick(qp: &Arc<Qp>) {
        if qp.is_datagram() {
            // The lock is let go between rounds.
            while qp.link(|link| match link {
                Some(Link::Datagrams(sender)) => sender.send(qp),
                _ => false,
            }) {}
            return;
        }
        if let Some(link) = link(qp) {
            link.conn
                .with(|live, now| live.engine.kick(now, link.id, &mut live.host));
        }
    }
}
