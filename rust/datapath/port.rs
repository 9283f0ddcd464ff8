// SPDX-License-Identifier: GPL-2.0

//! The datapath's part of a device: its sockets and its connections.

use super::{
    conn::{
        Conn,
        Engine, //
    },
    counters::{
        self,
        ConnFigures, //
    },
    host::ConnHost,
    rx::Rx,
    shared::{
        PeerKey,
        Shared, //
    },
};
use crate::{
    engine::{
        hints::{
            Member,
            Receiver, //
        },
        wire::MAX_DATA_HEADER,
        Config,
        Instant,
        LocalParams,
        Span,
        StreamTable, //
    },
    net::{
        addr::{
            Flow,
            IpAddr, //
        },
        netdev,
        socket::{
            Family,
            Socket, //
        },
    },
    new_spinlock_bh,
    sync::{
        random_u64,
        Counter,
        NetDev,
        SpinLockBh, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
};

/// Source ports, if there are not more paths: with eight links that ECMP chooses by hash, each then has a
/// port that leads to it (all but once in 600 times), and a path can leave a bad route.
const SOURCE_PORTS: u8 = 64;
/// Streams a new connection has room for; the table grows.
const FIRST_STREAMS: usize = 4;
/// Bytes of an IPv4 header without options, and of an IPv6 header.
const IPV4_HEADER: u32 = 20;
const IPV6_HEADER: u32 = 40;
const UDP_HEADER: u32 = 8;
/// A connection counts as an active sender for about one round trip.
const HINT_PERIOD: Span = Span::from_micros(100);
/// The least payload worth a packet; a smaller MTU is refused.
const MIN_PAYLOAD: u32 = 256;

/// Packets and events of a device.
#[derive(Default)]
pub struct PortCounters {
    /// Packets handed to the network.
    pub sent: Counter,
    /// Packets lost before they reached the network (memory, no route).
    pub send_dropped: Counter,
    /// Packets not sent because local memory could not be read.
    pub send_faults: Counter,
    /// Handshakes completed.
    pub established: Counter,
    /// Peers that turned out to have been restarted.
    pub peer_restarts: Counter,
    /// Paths that changed their route.
    pub path_moves: Counter,
    /// Times nothing was heard from a peer for long.
    pub silences: Counter,
    /// Datagrams delivered to a QP.
    pub datagrams_received: Counter,
    /// Datagrams with another Q_Key than the QP's.
    pub wrong_qkey: Counter,
    /// Datagrams for which there was no QP that is ready, or no receive large enough.
    pub datagrams_dropped: Counter,
}

/// Counts the senders of a device and says what each may send.
#[pin_data]
pub(super) struct Hints {
    #[pin]
    receiver: SpinLockBh<Receiver>,
}

impl Hints {
    /// For a link of `mbits` Mbit/s, if that is known.
    fn new(mbits: Option<u32>) -> Result<Arc<Self>> {
        // 1 Mbit/s = 125000 / 1024 / 1000 KiB per ms. 0 stands for no limit.
        let kib_per_ms = u64::from(mbits.unwrap_or(0)).saturating_mul(125) / 1024;
        let capacity = u32::try_from(kib_per_ms).unwrap_or(u32::MAX);
        let receiver = Receiver::new(capacity, HINT_PERIOD);
        Arc::pin_init(
            pin_init!(Self {
                receiver <- new_spinlock_bh!(receiver, "metaroce hints"),
            }),
            GFP_KERNEL,
        )
    }

    /// The grant for a connection that has just received something.
    pub(super) fn grant(&self, now: Instant, member: &mut Member) -> u32 {
        self.receiver.lock().on_burst(now, member)
    }
}

/// The sockets of one family.
struct FamilySockets {
    /// Shared with the other devices of the namespace.
    _listener: Socket,
    sources: KVec<Socket>,
}

impl FamilySockets {
    fn open(dev: &NetDev, family: Family, port: u16, n: u8) -> Result<Self> {
        let listener = Socket::listen::<Rx>(dev, family, port)?;
        let mut sources = KVec::with_capacity(usize::from(n), GFP_KERNEL)?;
        for _ in 0..n {
            sources.push(Socket::source(dev, family)?, GFP_KERNEL)?;
        }
        Ok(Self {
            _listener: listener,
            sources,
        })
    }
}

/// The sockets of a device. The last reference must be dropped in process
/// context: only [`Port`] and the living connections hold any.
pub(super) struct Sockets {
    v4: FamilySockets,
    /// Absent where IPv6 is disabled.
    v6: Option<FamilySockets>,
    /// Keeps the namespace until the cached routes are gone: those of IPv6 use
    /// memory of the namespace.
    _dev: ARef<NetDev>,
}

impl Sockets {
    fn open(dev: &NetDev, port: u16, n: u8) -> Result<Self> {
        let v4 = FamilySockets::open(dev, Family::V4, port, n)?;
        let v6 = match FamilySockets::open(dev, Family::V6, port, n) {
            Ok(sockets) => Some(sockets),
            Err(e) if e == EAFNOSUPPORT => None,
            Err(e) => return Err(e),
        };
        Ok(Self {
            v4,
            v6,
            _dev: dev.into(),
        })
    }

    /// The source sockets of a family, by slot.
    pub(super) fn sources(&self, family: Family) -> Option<&[Socket]> {
        match family {
            Family::V4 => Some(&self.v4.sources),
            Family::V6 => self.v6.as_ref().map(|s| &*s.sources),
        }
    }
}

/// Where a connection is to lead.
pub(super) struct Toward {
    /// Source address.
    pub(super) local: IpAddr,
    /// Destination address.
    pub(super) remote: IpAddr,
    /// Interface of the source address: the device's, or one on top of it (a VLAN).
    pub(super) ifindex: u32,
    /// DSCP bits of the IP header.
    pub(super) tos: u8,
    /// MTU of that interface in bytes.
    pub(super) dev_mtu: u32,
}

struct PortState {
    /// `None` once the port is closed.
    sockets: Option<Arc<Sockets>>,
    conns: KVec<Arc<Conn>>,
    /// Of the connections that have ended.
    ended: ConnFigures,
    /// Dropped when the port is closed.
    kept: Option<KBox<dyn Send>>,
}

/// The datapath's part of a device.
#[pin_data]
pub struct Port {
    net_cookie: u64,
    ifindex: u32,
    /// Drawn when the device came up: how a peer notices a restart.
    epoch: u64,
    source_ports: u8,
    /// What was sent, and what happened.
    pub counters: Arc<PortCounters>,
    hints: Arc<Hints>,
    /// Serialises creation, use and end of the connections in process context.
    #[pin]
    state: Mutex<PortState>,
}

impl Port {
    /// Opens the sockets for a device on `dev`. May sleep.
    pub(super) fn open(shared: &Shared, dev: &NetDev) -> Result<Arc<Self>> {
        let source_ports = shared.settings.paths.max(SOURCE_PORTS);
        let sockets = Sockets::open(dev, shared.settings.port, source_ports)?;
        let sockets = Arc::new(sockets, GFP_KERNEL)?;
        let counters = Arc::new(PortCounters::default(), GFP_KERNEL)?;
        let hints = Hints::new(netdev::speed(dev))?;
        let port = Arc::pin_init(
            pin_init!(Self {
                net_cookie: netdev::net_cookie(dev),
                ifindex: dev.ifindex(),
                epoch: random_u64(),
                source_ports,
                counters,
                hints,
                state <- new_mutex!(
                    PortState {
                        sockets: Some(sockets),
                        conns: KVec::new(),
                        ended: ConnFigures::default(),
                        kept: None,
                    },
                    "metaroce port"
                ),
            }),
            GFP_KERNEL,
        )?;
        shared.add_port(port.clone())?;
        Ok(port)
    }

    /// Ends all connections and closes the sockets. Harmless when repeated.
    pub(super) fn close(&self, shared: &Shared) {
        shared.remove_port(self);
        let (sockets, conns, kept) = {
            let mut state = self.state.lock();
            (
                state.sockets.take(),
                core::mem::take(&mut state.conns),
                state.kept.take(),
            )
        };
        drop(kept);
        for conn in conns {
            // Its figures go with it: nobody can ask for them any more.
            shared.remove(&conn);
            conn.close();
        }
        drop(sockets);
    }

    /// Namespace ([`netdev::net_cookie`]) and interface.
    pub(super) fn place(&self) -> (u64, u32) {
        (self.net_cookie, self.ifindex)
    }

    /// The sockets, to be given back in process context. `ENODEV` once the port is closed.
    pub(super) fn sockets(&self) -> Result<Arc<Sockets>> {
        self.state.lock().sockets.clone().ok_or(ENODEV)
    }

    /// Keeps `object` until the port is closed: it may refer to the port.
    pub fn keep(&self, object: KBox<dyn Send>) {
        let mut state = self.state.lock();
        let old = if state.sockets.is_some() {
            state.kept.replace(object)
        } else {
            Some(object)
        };
        drop(state);
        drop(old);
    }

    /// Whether the device can be reached at `address`, which `netdev` is said to have: its own
    /// interface, or one on top of it. `EXDEV` if that is in another namespace, `EAFNOSUPPORT` without
    /// IPv6, `EADDRNOTAVAIL` if it does not have the address, as the core lists a link-local one for each
    /// interface.
    pub(super) fn check_address(&self, address: &IpAddr, netdev: &NetDev) -> Result {
        if netdev::net_cookie(netdev) != self.net_cookie {
            return Err(EXDEV);
        }
        if address.is_v4() {
            return Ok(());
        }
        if self.sockets()?.sources(Family::V6).is_none() {
            return Err(EAFNOSUPPORT);
        }
        if !netdev::has_v6(netdev, address) {
            return Err(EADDRNOTAVAIL);
        }
        Ok(())
    }

    /// Runs `f` on the connection to a peer, which is made if there is none.
    /// The connection does not go away while `f` runs; process context.
    pub(super) fn with_conn<R>(
        &self,
        shared: &Shared,
        to: &Toward,
        f: impl FnOnce(&Arc<Conn>) -> Result<R>,
    ) -> Result<R> {
        let key = PeerKey::new(self.net_cookie, to.local, to.remote, to.ifindex);
        let mut state = self.state.lock();
        let sockets = state.sockets.clone().ok_or(ENODEV)?;
        let found = state.conns.iter().find(|c| *c.key() == key).cloned();
        let conn = match found {
            Some(conn) => conn,
            None => {
                state.conns.reserve(1, GFP_KERNEL)?;
                let conn = self.connect(shared, sockets, key, to)?;
                if state.conns.push(conn.clone(), GFP_KERNEL).is_err() {
                    shared.remove(&conn);
                    conn.close();
                    return Err(ENOMEM);
                }
                conn
            }
        };
        conn.set_idle(false);
        let result = f(&conn);
        if conn.summary().is_none_or(|(_, streams)| streams == 0) {
            conn.set_idle(true);
            shared.reap_later();
        }
        result
    }

    /// After a stream has left `conn`.
    pub(super) fn stream_left(&self, shared: &Shared, conn: &Conn) {
        let _state = self.state.lock();
        if conn.summary().is_some_and(|(_, streams)| streams == 0) {
            conn.set_idle(true);
            shared.reap_later();
        }
    }

    fn connect(
        &self,
        shared: &Shared,
        sockets: Arc<Sockets>,
        key: PeerKey,
        to: &Toward,
    ) -> Result<Arc<Conn>> {
        let oif = if key.remote == key.local {
            0
        } else {
            to.ifindex
        };
        let flow = Flow {
            src: key.local,
            dst: key.remote,
            oif,
            dport: shared.settings.port,
            tos: to.tos,
        };
        let mut host = ConnHost::new(
            sockets,
            flow,
            self.counters.clone(),
            shared.settings.tx_bursts,
        )?;
        let ip_header = if key.remote.is_v4() {
            IPV4_HEADER
        } else {
            IPV6_HEADER
        };
        let max_payload = host
            .mtu()?
            .min(to.dev_mtu)
            .saturating_sub(ip_header)
            .saturating_sub(UDP_HEADER)
            .saturating_sub(MAX_DATA_HEADER as u32);
        if max_payload < MIN_PAYLOAD {
            return Err(EMSGSIZE);
        }
        let config = Config {
            paths: shared.settings.paths,
            planes: 1,
            ports_per_plane: self.source_ports,
            max_payload: u16::try_from(max_payload).unwrap_or(u16::MAX),
            ..Config::default()
        };
        let (id, conn) = shared
            .conns
            .insert_random(u32::MAX, GFP_KERNEL, |id| Conn::new(id, key))?;
        let start = || {
            let local = LocalParams {
                conn_id: id,
                epoch: self.epoch,
                seed: random_u64(),
            };
            let engine = Engine::new(&config, local, StreamTable::new(FIRST_STREAMS)?)?;
            shared.insert_peer(key, conn.clone())?;
            conn.start(engine, host, self.hints.clone(), shared.settings.ack_delay)
        };
        if let Err(e) = start() {
            shared.remove(&conn);
            conn.close();
            return Err(e);
        }
        Ok(conn)
    }

    /// Closes connections that have been idle for long; returns whether others
    /// are idle but have to wait. Process context.
    pub(super) fn reap(&self, shared: &Shared, now_ns: u64) -> bool {
        let mut state = self.state.lock();
        let mut again = false;
        while let Some(i) = state
            .conns
            .iter()
            .position(|c| c.idle(now_ns) == Some(true))
        {
            let Ok(conn) = state.conns.remove(i) else {
                break;
            };
            shared.remove(&conn);
            counters::add(&mut state.ended, &conn);
            conn.close();
        }
        for conn in state.conns.iter() {
            again |= conn.idle(now_ns).is_some();
        }
        again
    }

    /// Figures of all connections, living and ended. Process context.
    pub(super) fn conn_figures(&self) -> ConnFigures {
        let state = self.state.lock();
        let mut sum = state.ended;
        for conn in state.conns.iter() {
            counters::add(&mut sum, conn);
        }
        sum
    }

    /// Calls `f` with each connection. Process context.
    pub fn for_each_conn(&self, mut f: impl FnMut(&Conn)) {
        for conn in self.state.lock().conns.iter() {
            f(conn);
        }
    }
}
