// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Time: probes, pauses of streams, time-outs, routes that no longer work.

use super::super::api::{ConnEvent, Host, Route, Store};
use super::super::time::{Instant, Span};
use super::Connection;

/// So many unanswered probes move a path, if others progress ...
const MOVE_AFTER: u8 = 2;
/// ... and every so many, if none does.
const MOVE_ALL_AFTER: u8 = 6;
/// Silence of the peer worth an event.
const SILENCE: Span = Span::from_millis(30_000);

impl<S: Store, H: Host> Connection<S, H> {
    /// When [`Self::handle_timeout`] is to be called.
    pub fn next_deadline(&self) -> Option<Instant> {
        let mut at = Instant::earliest(self.scan_at, self.hs.retry_at);
        if self.hs.established {
            for path in self.paths.iter().take(self.active_paths) {
                at = Instant::earliest(at, path.tx.deadline());
            }
        }
        at
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant, host: &mut H) {
        self.handshake_timeout(now, host);
        if self.hs.established {
            for id in 0..self.active_paths {
                self.probe(now, id, host);
            }
        }
        if self.scan_at.is_some_and(|at| at <= now) {
            self.scan(now, host);
        }
        self.pump(now, host);
    }

    fn probe(&mut self, now: Instant, id: usize, host: &mut H) {
        let heard = self.heard;
        let Some(path) = self.paths.get_mut(id) else { return };
        let Some(psn) = path.tx.on_timeout(now) else { return };
        let tries = path.tx.unanswered();
        let others = heard > path.tx.probing_since();
        let fails = tries > MOVE_AFTER && others && (tries - MOVE_AFTER) % 2 == 1;
        if fails || tries.checked_rem(MOVE_ALL_AFTER) == Some(0) {
            self.move_path(id, host);
        }
        self.resend(now, id, psn, host);
        if now.since(heard) > SILENCE && !self.silent {
            self.silent = true;
            self.notify(ConnEvent::Silent, host);
        }
    }

    /// Gives a path another source port, and every second time another plane.
    fn move_path(&mut self, id: usize, host: &mut H) {
        let config = self.config;
        let n = u8::try_from(self.active_paths).unwrap_or(1);
        let Some(path) = self.paths.get_mut(id) else { return };
        let old = path.tx.route;
        let ports = config.ports_per_plane;
        // Stepping by the number of paths avoids ports of other paths as long as there are enough.
        let mut step = n.checked_rem(ports).unwrap_or(0);
        if step == 0 {
            step = 1;
        }
        let port = u16::from(old.port_slot)
            .saturating_add(u16::from(step))
            .checked_rem(u16::from(ports))
            .unwrap_or(0);
        let plane = if path.tx.stats.moves % 2 == 1 {
            old.plane.wrapping_add(1).checked_rem(config.planes).unwrap_or(0)
        } else {
            old.plane
        };
        let route = Route { plane, port_slot: u8::try_from(port).unwrap_or(0) };
        path.tx.change_route(route, true);
        self.repair |= 1u64.wrapping_shl(u32::try_from(id).unwrap_or(0));
        let path = u8::try_from(id).unwrap_or(0);
        self.notify(ConnEvent::PathMoved { path, route }, host);
    }

    /// The carrier of a plane is gone: its paths move to the others at once.
    pub fn plane_down(&mut self, now: Instant, plane: u8, host: &mut H) {
        let planes = self.config.planes;
        if planes < 2 {
            return;
        }
        for id in 0..self.active_paths {
            let Some(path) = self.paths.get_mut(id) else { return };
            if path.tx.route.plane == plane {
                let mut route = path.tx.route;
                route.plane = plane.wrapping_add(1).checked_rem(planes).unwrap_or(0);
                path.tx.change_route(route, true);
                self.repair |= 1u64.wrapping_shl(u32::try_from(id).unwrap_or(0));
                let path = u8::try_from(id).unwrap_or(0);
                self.notify(ConnEvent::PathMoved { path, route }, host);
            }
        }
        self.pump(now, host);
    }

    /// Ends pauses and notices time-outs of all streams; determines when to look again.
    fn scan(&mut self, now: Instant, host: &mut H) {
        let heard = self.heard;
        let mut next = None;
        for slot in 0..u32::try_from(self.streams.capacity()).unwrap_or(0) {
            let Some((id, stream)) = self.streams.at(slot) else { continue };
            let error = stream.requester.on_time(now, heard, &stream.qp, host);
            stream.raise(error, host);
            next = Instant::earliest(next, stream.requester.deadline(heard));
            self.streams.activate(id);
        }
        // Never in the past: a deadline not served now would be served for ever.
        self.scan_at = next.map(|at| at.max(now.after(Span::from_micros(10))));
    }
}
