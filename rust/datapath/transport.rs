// SPDX-License-Identifier: GPL-2.0

//! What `verbs` asks of the datapath.

use super::{
    conn::Conn,
    counters,
    port::Port,
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
    net::addr::IpAddr,
    sync::NetDev,
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
#[derive(Clone)]
pub struct Link {
    conn: Arc<Conn>,
    id: StreamId,
}

impl Link {
    /// Which stream of the connection it is.
    pub(super) fn id(&self) -> StreamId {
        self.id
    }
}

/// The link of a QP, taken out from under its lock.
pub(super) fn link(qp: &Qp) -> Option<Link> {
    qp.link(|link| link.cloned())
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
        let shared = SHARED.get().ok_or(ENODEV)?;
        let (local, remote) = (IpAddr(av.sgid), IpAddr(av.dgid));
        if local.is_v4() != remote.is_v4() {
            return Err(EINVAL);
        }
        let mut stream = Some(Stream::new(qp.clone(), attr)?);
        let mtu = av.netdev.mtu();
        let tos = av.traffic_class & DSCP_MASK;
        dev.port()
            .with_conn(&shared, local, remote, tos, mtu, |conn| loop {
                let wanted = stream.take().ok_or(EINVAL)?;
                let done = conn.with(|live, _| {
                    live.engine
                        .attach(wanted)
                        .map_err(|back| (back, live.engine.stream_capacity()))
                });
                match done.ok_or(ENOTCONN)? {
                    Ok(id) => {
                        qp.set_link(Link {
                            conn: conn.clone(),
                            id,
                        });
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

    fn start_requester(qp: &Arc<Qp>, attr: &RequesterAttr) -> Result {
        let link = link(qp).ok_or(ENOTCONN)?;
        link.conn
            .with(|live, now| {
                live.engine
                    .start_requester(now, link.id, attr, &mut live.host);
            })
            .ok_or(ENOTCONN)
    }

    fn detach(qp: &Arc<Qp>) {
        let Some(link) = qp.take_link() else {
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
        if let Some(link) = link(qp) {
            link.conn
                .with(|live, now| live.engine.kick(now, link.id, &mut live.host));
        }
    }
}
