// SPDX-License-Identifier: GPL-2.0

//! What all devices of the module share: settings and the tables by which a
//! received packet finds its connection.

use super::{
    conn::Conn,
    datagram::Addresses,
    port::Port, //
};
use crate::{
    net::addr::IpAddr,
    new_spinlock_bh,
    sync::{
        ktime_now_ns,
        Counter,
        Delayed,
        DelayedCall,
        KeyTable,
        Slot,
        SpinLockBh, //
    },
};
use core::cmp::Ordering;
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc,
        Mutex, //
    },
};

/// Set while the module is loaded.
pub static SHARED: Slot<Shared> = Slot::new();

/// Module parameters, checked.
#[derive(Clone, Copy)]
pub struct Settings {
    /// UDP destination port of the protocol, not 0.
    pub port: u16,
    /// Paths of a new connection, 4..=64.
    pub paths: u8,
    /// Whether acknowledgements that the peer does not wait for are delayed.
    pub ack_delay: bool,
    /// Whether datagrams of one path leave as a burst.
    pub tx_bursts: bool,
}

/// Between which two addresses, in which namespace, a connection runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PeerKey {
    /// Namespace ([`crate::net::netdev::net_cookie`]).
    pub net_cookie: u64,
    /// Our address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// Interface of a link-local address, which means something only there (RFC 4007 section 6); else 0.
    pub scope: u32,
}

impl PeerKey {
    /// For the addresses of a connection by, or a datagram that came in by, an interface.
    pub fn new(net_cookie: u64, local: IpAddr, remote: IpAddr, ifindex: u32) -> Self {
        // What a host sends to itself comes in by the loopback interface.
        let scoped = local != remote && (local.is_link_local() || remote.is_link_local());
        Self {
            net_cookie,
            local,
            remote,
            scope: if scoped { ifindex } else { 0 },
        }
    }
}

impl Ord for PeerKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.net_cookie
            .cmp(&other.net_cookie)
            .then_with(|| self.remote.0.cmp(&other.remote.0))
            .then_with(|| self.local.0.cmp(&other.local.0))
            .then_with(|| self.scope.cmp(&other.scope))
    }
}

impl PartialOrd for PeerKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Datagrams that reached no connection. Counted for the module, because no
/// device can be named.
#[derive(Default)]
pub struct StrayCounters {
    /// Not a packet of this protocol.
    pub malformed: Counter,
    /// For a connection that does not exist.
    pub unknown: Counter,
    /// RESETs sent.
    pub resets: Counter,
}

/// At most this many RESETs are sent in a second, whoever provokes them.
const RESETS_PER_SECOND: u32 = 100;
const NS_PER_SECOND: u64 = 1_000_000_000;
/// How often idle connections are looked for.
const REAP_INTERVAL_MS: u32 = 1_000;

/// See the module's description.
#[pin_data]
pub struct Shared {
    /// Module parameters.
    pub settings: Settings,
    /// By our connection id.
    #[pin]
    pub conns: KeyTable<Conn>,
    /// By addresses, for handshakes.
    #[pin]
    peers: SpinLockBh<RBTree<PeerKey, Arc<Conn>>>,
    /// The devices by their GIDs, for datagrams.
    #[pin]
    pub(super) addresses: SpinLockBh<Addresses>,
    /// All ports, for the reaper and network device events.
    #[pin]
    ports: Mutex<KVec<Arc<Port>>>,
    /// Datagrams without a connection.
    pub strays: StrayCounters,
    reset_second: Atomic<u64>,
    reset_count: Atomic<u32>,
    reaper: Delayed<Reaper>,
}

impl Shared {
    /// Empty tables.
    pub fn new(settings: Settings) -> Result<Arc<Self>> {
        let reaper = Delayed::new()?;
        Arc::pin_init(
            pin_init!(Self {
                settings,
                conns <- KeyTable::new(c"metaroce conns"),
                peers <- new_spinlock_bh!(RBTree::new(), "metaroce peers"),
                addresses <- new_spinlock_bh!(Addresses::default(), "metaroce addresses"),
                ports <- new_mutex!(KVec::new(), "metaroce ports"),
                strays: StrayCounters::default(),
                reset_second: Atomic::new(0),
                reset_count: Atomic::new(0),
                reaper,
            }),
            GFP_KERNEL,
        )
    }

    /// Registers `conn` for handshakes. `EEXIST` if the key is taken.
    pub fn insert_peer(&self, key: PeerKey, conn: Arc<Conn>) -> Result {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut peers = self.peers.lock();
        if peers.get(&key).is_some() {
            return Err(EEXIST);
        }
        peers.insert(node.into_node(key, conn));
        Ok(())
    }

    /// The connection between two addresses.
    pub fn peer(&self, key: &PeerKey) -> Option<Arc<Conn>> {
        self.peers.lock().get(key).cloned()
    }

    /// Takes `conn` out of both tables.
    pub fn remove(&self, conn: &Conn) {
        let by_id = self.conns.remove(conn.id());
        let mut peers = self.peers.lock();
        // Only if the entry is this very connection's.
        let ours = peers.get(conn.key()).is_some_and(|c| c.id() == conn.id());
        let node = ours.then(|| peers.remove_node(conn.key())).flatten();
        drop(peers);
        drop(node);
        drop(by_id);
    }

    /// Whether one more RESET may be sent now.
    pub fn may_reset(&self) -> bool {
        let second = ktime_now_ns() / NS_PER_SECOND;
        if self.reset_second.load(Relaxed) != second {
            // Two CPUs may both start a second; the budget is only a budget.
            self.reset_second.store(second, Relaxed);
            self.reset_count.store(0, Relaxed);
        }
        self.reset_count.fetch_add(1, Relaxed) < RESETS_PER_SECOND
    }

    /// Adds a port.
    pub fn add_port(&self, port: Arc<Port>) -> Result {
        self.ports.lock().push(port, GFP_KERNEL)?;
        Ok(())
    }

    /// Removes a port.
    pub fn remove_port(&self, port: &Port) {
        self.ports
            .lock()
            .retain(|p| !core::ptr::eq::<Port>(&**p, port));
    }

    /// Looks for idle connections soon.
    pub fn reap_later(&self) {
        self.reaper.queue(REAP_INTERVAL_MS);
    }

    /// Stops the reaper; part of unloading.
    pub fn shutdown(&self) {
        self.reaper.shutdown();
    }
}

/// Closes connections that have had no stream for a while.
struct Reaper;

impl DelayedCall for Reaper {
    fn run() -> Option<u32> {
        let shared = SHARED.get()?;
        let now = ktime_now_ns();
        let mut again = false;
        for port in shared.ports.lock().iter() {
            again |= port.reap(&shared, now);
        }
        again.then_some(REAP_INTERVAL_MS)
    }
}
