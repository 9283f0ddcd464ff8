// SPDX-License-Identifier: GPL-2.0

//! What `rdma statistic` shows for a port.
//!
//! Names are those of rdma_rxe (drivers/infiniband/sw/rxe/rxe_hw_counters.c) where the meaning is
//! the same. Figures of a connection live with it while it exists and are added to its port's
//! when it ends, both under the port's lock, so nothing ever counts backwards.

use super::{
    conn::Conn,
    port::Port,
    shared::Shared, //
};
use crate::verbs::CounterName;

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
    CounterName::new(c"rcvd_datagrams"),
    CounterName::new(c"rx_wrong_qkey_dropped"),
    CounterName::new(c"rx_datagrams_dropped"),
];
const N: usize = 21;

/// Figures of a connection: datagrams received, duplicates, retransmissions, probes, NAKs sent and
/// received, datagrams ignored, malformed ones.
pub(super) type ConnFigures = [u64; 8];

/// The figures of a connection now. Any context but hardirq; takes the connection's lock.
fn figures_of(conn: &Conn) -> ConnFigures {
    let c = &conn.counters;
    let kinds = [
        &c.accepted,
        &c.duplicate,
        &c.refused,
        &c.feedback,
        &c.control,
    ];
    let received = kinds
        .into_iter()
        .fold(0, |sum: u64, kind| sum.wrapping_add(kind.get()));
    let (mut retransmitted, mut probes, mut naks) = (0u64, 0u64, 0u64);
    conn.for_each_path(|path, _| {
        retransmitted = retransmitted
            .wrapping_add(path.stats.retransmitted)
            .wrapping_add(path.stats.timeouts);
        probes = probes.wrapping_add(path.stats.probes);
        naks = naks.wrapping_add(path.stats.refused);
    });
    [
        received,
        c.duplicate.get(),
        retransmitted,
        probes,
        c.refused.get(),
        naks,
        c.ignored.get(),
        c.malformed.get(),
    ]
}

/// Adds the figures of a connection to `sum`.
pub(super) fn add(sum: &mut ConnFigures, conn: &Conn) {
    for (sum, figure) in sum.iter_mut().zip(figures_of(conn)) {
        *sum = sum.wrapping_add(figure);
    }
}

/// Reports the counters of a port. Process context. What reached no connection is counted for the
/// whole module, since no device can be named: every port shows it.
pub(super) fn read(shared: &Shared, port: &Port, set: &mut dyn FnMut(usize, u64)) {
    let [received, duplicate, retransmitted, probes, naks_sent, naks_received, ignored, malformed] =
        port.conn_figures();
    let c = &port.counters;
    let strays = &shared.strays;
    let values: [u64; N] = [
        c.sent.get(),
        received,
        duplicate,
        retransmitted,
        probes,
        naks_sent,
        naks_received,
        c.send_faults.get(),
        c.send_dropped.get(),
        c.established.get(),
        c.peer_restarts.get(),
        c.silences.get(),
        c.path_moves.get(),
        ignored,
        malformed,
        strays.malformed.get(),
        strays.unknown.get(),
        strays.resets.get(),
        c.datagrams_received.get(),
        c.wrong_qkey.get(),
        c.datagrams_dropped.get(),
    ];
    for (index, value) in values.into_iter().enumerate() {
        set(index, value);
    }
}
