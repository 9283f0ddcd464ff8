// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Time: probes, pauses of streams, time-outs, routes that no longer work.

use super::super::api::{ConnEvent, Host, PayloadSource, Route, Store, Transmit};
use super::super::path::Due;
use super::super::time::{Instant, Span};
use super::super::wire::{Kind, COMMON_LEN};
use super::Connection;

/// So many unanswered probes move a path, and each further one moves it again.
const MOVE_AFTER: u8 = 2;
/// A timer that is so late tells that this machine, or its virtual CPU, stood still.
const STALL: Span = Span::from_millis(20);
/// Silence of the peer worth an event.
const SILENCE: Span = Span::from_millis(30_000);

impl<S: Store, H: Host> Connection<S, H> {
    /// When [`Self::handle_timeout`] is to be called.
    pub fn next_deadline(&self) -> Option<Instant> {
        let mut at = Instant::earliest(self.streams.next_deadline(), self.hs.retry_at);
        if self.hs.established {
            for path in self.paths.iter().take(self.active_paths) {
                at = Instant::earliest(at, path.tx.deadline());
            }
        }
        at
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant, host: &mut H) {
        self.forgive_stall(now);
        self.handshake_timeout(now, host);
        if self.hs.established {
            for id in 0..self.active_paths {
                self.probe(now, id, host);
            }
        }
        self.look_at_streams(now, host);
        self.rejoin(now, host);
        self.pump(now, host);
    }

    /// When this machine did not run, it could not hear the peer either: such a time is not the
    /// peer's silence. What waits to be received is handled after the timer that is late.
    fn forgive_stall(&mut self, now: Instant) {
        let late = self.next_deadline().map_or(Span::ZERO, |at| now.since(at));
        if late >= STALL {
            self.heard = self.heard.after(late).min(now);
        }
    }

    fn probe(&mut self, now: Instant, id: usize, host: &mut H) {
        let heard = self.heard;
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let Some(due) = path.tx.on_timeout(now) else {
            return;
        };
        let tries = path.tx.overdue(now);
        if tries > MOVE_AFTER {
            // If others progress, the route is the cause and what it carried is lost. Else it may be the
            // peer that is silent: the answer over the new route will tell.
            let failed = heard > path.tx.probing_since();
            let route = self.next_route(id);
            self.set_route(now, id, route, failed, host);
        }
        match due {
            Due::Probe => self.send_probe(now, id, tries, host),
            Due::Resend => {
                if let Some(psn) = self.paths.get_mut(id).and_then(|path| path.tx.resend()) {
                    self.send_slot(now, id, psn, host);
                }
            }
        }
        if now.since(heard) > SILENCE && !self.silent {
            self.silent = true;
            self.notify(ConnEvent::Silent, host);
        }
    }

    /// Another plane for a path; the paths of one plane spread over all others.
    fn next_plane(&self, id: usize, plane: u8) -> u8 {
        let planes = self.config.planes;
        let turn = id.checked_div(usize::from(planes)).unwrap_or(0);
        let others = usize::from(planes.saturating_sub(1));
        let step = turn
            .checked_rem(others)
            .map_or(0, |n| u8::try_from(n).unwrap_or(0));
        let plane = u16::from(plane)
            .saturating_add(1)
            .saturating_add(u16::from(step));
        let plane = plane.checked_rem(u16::from(planes)).unwrap_or(0);
        u8::try_from(plane).unwrap_or(0)
    }

    /// Sends a PROBE of a path after `tries` that should have been answered. It is marked as data is, so that
    /// queues treat it alike and its place in the order holds.
    fn send_probe(&mut self, now: Instant, id: usize, tries: u8, host: &mut H) {
        let path_id = u8::try_from(id).unwrap_or(0);
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let serial = path.tx.probe(now);
        let route = path.tx.route;
        let mut common = self.common(Kind::Probe, path_id, serial);
        common.tx_count = tries;
        let mut buf = [0u8; COMMON_LEN];
        let n = common.emit_alone(&mut buf);
        host.transmit(&Transmit {
            header: buf.get(..n).unwrap_or(&[]),
            payload: PayloadSource::None,
            route,
            path: path_id,
            ect: true,
        });
    }

    /// The route of this direction seems not to work.
    pub(super) fn move_path(&mut self, now: Instant, id: usize, host: &mut H) {
        let route = self.next_route(id);
        let failed = self
            .paths
            .get(id)
            .is_some_and(|path| path.tx.unanswered() > 0);
        self.set_route(now, id, route, failed, host);
    }

    /// Another source port, drawn at random, and, if there are several, another plane for a path. A fixed step
    /// could keep to the ports whose hash leads to the same dead link.
    fn next_route(&mut self, id: usize) -> Route {
        let draw = self.draw();
        let old = self.route_of(id);
        let plane = self.next_plane(id, old.plane);
        let ports = u64::from(self.config.ports_per_plane);
        let step = draw
            .checked_rem(ports.saturating_sub(1))
            .unwrap_or(0)
            .saturating_add(1);
        let port = u64::from(old.port_slot)
            .saturating_add(step)
            .checked_rem(ports)
            .unwrap_or(0);
        Route {
            plane,
            port_slot: u8::try_from(port).unwrap_or(0),
        }
    }

    /// Sends a path's packets over `route` from now on; `failed`: what is in flight was lost with the
    /// old one.
    pub(super) fn set_route(
        &mut self,
        now: Instant,
        id: usize,
        route: Route,
        failed: bool,
        host: &mut H,
    ) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        path.tx.change_route(now, route, failed);
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
            let old = self.route_of(id);
            if old.plane == plane {
                let route = Route {
                    plane: self.next_plane(id, plane),
                    ..old
                };
                self.set_route(now, id, route, true, host);
            }
        }
        self.pump(now, host);
    }

    /// Ends pauses and notices time-outs of the streams whose time has come. Deadlines move away while a
    /// peer answers: this is noticed here, not with each packet.
    fn look_at_streams(&mut self, now: Instant, host: &mut H) {
        let heard = self.heard;
        while let Some(id) = self.streams.pop_due(now) {
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            let requester = &mut stream.requester;
            let (woken, error) = requester.on_time(now, heard, &stream.qp, host);
            stream.raise(error, host);
            let at = stream.requester.deadline(heard);
            self.streams.watch(now, id, at);
            if woken {
                self.streams.activate(id);
            }
        }
    }
}
