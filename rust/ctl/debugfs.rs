// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/metaroce/DEVICE/connections`: one line for each
//! connection, one for each of its paths, for people and test scripts.
//!
//! ```text
//! conn 0x5c0ffee1 10.0.0.1 -> 10.0.0.2 established streams 1 accepted 512 ...
//!   path 0 plane 0 port 41233 tx 812 rtx 3 probes 0 rx 40 dup 0 cwnd 90000 ...
//! ```
//!
//! Failures of debugfs are silent by design; nothing else depends on it.

use crate::{
    datapath::{
        conn::Conn,
        port::Port, //
    },
    sync::Slot,
};
use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*,
    str::CStr,
    sync::Arc, //
};

/// The directory `metaroce`, while the module is loaded.
static ROOT: Slot<Dir> = Slot::new();

/// Makes the module's directory.
pub fn init() -> Result {
    ROOT.put(Arc::new(Dir::new(c"metaroce"), GFP_KERNEL)?)
}

/// Removes the module's directory; those of the devices are gone already.
pub fn exit() {
    drop(ROOT.take());
}

/// The files of one device.
struct View {
    _connections: Pin<KBox<File<Arc<Port>>>>,
    _dir: Dir,
}

/// Shows a device until its port is closed.
pub fn add(name: &CStr, port: &Arc<Port>) -> Result {
    let root = ROOT.get().ok_or(ENODEV)?;
    let dir = root.subdir(name);
    let connections = KBox::pin_init(
        dir.read_callback_file(c"connections", port.clone(), &|port: &Arc<Port>, f| {
            show(port, f)
        }),
        GFP_KERNEL,
    )?;
    let view = View {
        _connections: connections,
        _dir: dir,
    };
    port.keep(KBox::new(view, GFP_KERNEL)?);
    Ok(())
}

fn show(port: &Port, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut result = Ok(());
    port.for_each_conn(|conn| {
        if result.is_ok() {
            result = show_conn(conn, f);
        }
    });
    result
}

fn show_conn(conn: &Conn, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (established, streams) = conn.summary().unwrap_or((false, 0));
    let state = if established {
        "established"
    } else {
        "connecting"
    };
    let key = conn.key();
    let c = &conn.counters;
    writeln!(
        f,
        "conn {:#010x} {} -> {} {} streams {} accepted {} dup {} refused {} feedback {} control {} ignored {} malformed {}",
        conn.id(),
        key.local,
        key.remote,
        state,
        streams,
        c.accepted.get(),
        c.duplicate.get(),
        c.refused.get(),
        c.feedback.get(),
        c.control.get(),
        c.ignored.get(),
        c.malformed.get(),
    )?;
    let mut result = Ok(());
    conn.for_each_path(|p, udp_port| {
        if result.is_err() {
            return;
        }
        result = writeln!(
            f,
            "  path {} plane {} port {} tx {} rtx {} timeouts {} probes {} nak {} moves {} rx {} dup {} seq {} una {} inflight {} cwnd {} srtt_us {} min_rtt_us {} ce_1024 {} tolerance {} unanswered {}",
            p.id,
            p.route.plane,
            udp_port,
            p.stats.sent,
            p.stats.retransmitted,
            p.stats.timeouts,
            p.stats.probes,
            p.stats.refused,
            p.stats.moves,
            p.received,
            p.dups,
            p.next_seq,
            p.una,
            p.inflight,
            p.cwnd,
            p.srtt.as_micros(),
            p.min_rtt.as_micros(),
            p.ce_share,
            p.tolerance,
            p.unanswered,
        );
    });
    result
}
