// SPDX-License-Identifier: GPL-2.0

//! What `rdma statistic` shows for a port.
//!
//! Names are those of rdma_rxe (drivers/infiniband/sw/rxe/rxe_hw_counters.c) where the meaning is
//! the same. Figures of a connection live with it while it exists and are added to its port's
//! when it ends, so nothing ever counts backwards.

use super::{
    conn::Conn,
    port::Port,
    shared::Shared, //
};
use crate::{
    sync::Counter,
    verbs::CounterName, //
};

/// The names, in the order in which [`read`] reports.
pub(super) static NAMES: [CounterName; N] = [
    CounterName::new(c"sent_pkts"),
    CounterName::new(c"rcvd_pkts"),
    CounterName::new(c"duplicate_request"),
    CounterName::new(c"retransmitted_pkts"),
    CounterName::new(c"probe_timeouts"),
    CounterName::new(c"send_naks"),
    CounterName::new(c"rcvd_naks"),
    CounterName::new(c"send_err"),
    CounterName::new(c"send_dropped"),
    CounterName::new(c"connections_established"),
    CounterName::new(c"peer_restarts"),
    CounterName::new(c"peer_silences"),
    CounterName::new(c"path_moves"),
    CounterName::new(c"rx_wrong_tag_dropped"),
    CounterName::new(c"rx_bad_packet_dropped"),
    CounterName::new(c"rx_malformed_dropped"),
    CounterName::new(c"rx_unknown_connection_dropped"),
    CounterName::new(c"resets_sent"),
];
const N: usize = 18;

/// Figures of connections, living or ended.
#[derive(Default)]
pub(super) struct ConnTotals {
    received: Counter,
    duplicate: Counter,
    retransmitted: Counter,
    probes: Counter,
    naks_sent: Counter,
    naks_received: Counter,
    ignored: Counter,
    malformed: Counter,
}

impl ConnTotals {
    /// Adds the figures of a connection. Not in hardirq; takes the connection's lock.
    pub(super) fn absorb(&self, conn: &Conn) {
        let c = &conn.counters;
        let data = c
            .accepted
            .get()
            .wrapping_add(c.duplicate.get())
            .wrapping_add(c.refused.get());
        let others = c.feedback.get().wrapping_add(c.control.get());
        self.received.add(data.wrapping_add(others));
        self.duplicate.add(c.duplicate.get());
        self.naks_sent.add(c.refused.get());
        self.ignored.add(c.ignored.get());
        self.malformed.add(c.malformed.get());
        conn.for_each_path(|path, _| {
            self.retransmitted.add(u64::from(path.stats.retransmitted));
            self.probes.add(u64::from(path.stats.probes));
            self.naks_received.add(u64::from(path.stats.refused));
        });
    }

    fn add_to(&self, other: &Self) {
        other.received.add(self.received.get());
        other.duplicate.add(self.duplicate.get());
        other.retransmitted.add(self.retransmitted.get());
        other.probes.add(self.probes.get());
        other.naks_sent.add(self.naks_sent.get());
        other.naks_received.add(self.naks_received.get());
        other.ignored.add(self.ignored.get());
        other.malformed.add(self.malformed.get());
    }
}

/// Reports the counters of a port. Process context. What reached no connection is counted for the
/// whole module, since no device can be named: every port shows it.
pub(super) fn read(shared: &Shared, port: &Port, set: &mut dyn FnMut(usize, u64)) {
    let sum = ConnTotals::default();
    port.ended.add_to(&sum);
    port.for_each_conn(|conn| sum.absorb(conn));
    let c = &port.counters;
    let strays = &shared.strays;
    let values: [&Counter; N] = [
        &c.sent,
        &sum.received,
        &sum.duplicate,
        &sum.retransmitted,
        &sum.probes,
        &sum.naks_sent,
        &sum.naks_received,
        &c.send_faults,
        &c.send_dropped,
        &c.established,
        &c.peer_restarts,
        &c.silences,
        &c.path_moves,
        &sum.ignored,
        &sum.malformed,
        &strays.malformed,
        &strays.unknown,
        &strays.resets,
    ];
    for (index, value) in values.iter().enumerate() {
        set(index, value.get());
    }
}
