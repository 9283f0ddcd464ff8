// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Routes of the paths: make before break.
//!
//! A path never moves to a route of which nothing is known. A *candidate*, another source port drawn at random and,
//! if there are several, another plane, is sent a PROBE; the answer tells that the route works, and its
//! round-trip time. Candidates are tried
//!
//! * when a path's own probes are not answered: once two are outstanding and a candidate has answered, the path
//!   moves there, and all that was in flight over the old route is taken to be lost;
//! * now and then while a path has a queue, because ECMP may have put several paths on one link and none on
//!   another: the path moves when the candidate's answer came clearly sooner.
//! * when a path is away from its home plane: see [`super::rejoin`].

use super::super::api::{ConnEvent, Host, PayloadSource, Route, Store, Transmit};
use super::super::path::Answers;
use super::super::rtt::MIN_WINDOW;
use super::super::time::{Instant, Span};
use super::super::wire::{Common, Kind, COMMON_LEN, FLAG_CANDIDATE};
use super::{initial_route, Connection, Path};

/// So many unanswered probes move a path as soon as another route has answered.
const MOVE_AFTER: u8 = 2;
/// Candidates remembered.
const CANDIDATES: usize = 8;
/// Candidates tried at once: while exploring ...
pub(super) const EXPLORE: u8 = 4;
/// ... in rounds not closer than this ...
const EXPLORE_MIN: Span = Span::from_millis(1);
/// ... which become rarer, up to this, while nothing is found.
const EXPLORE_MAX: Span = Span::from_millis(128);
/// So long a delay must stay with the smallest windows to be taken for the length of the way.
const RELEARN: Span = Span::from_millis(10);
/// A path that has moved is left where it is for so long.
const SETTLE: Span = Span::from_millis(20);
/// A route is better only if it is so much faster.
const GAIN: Span = Span::from_micros(100);

/// Why a route is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Why {
    /// The path's own does not answer.
    #[default]
    Repair,
    /// There may be a better one.
    Explore,
    /// It leads to the path's home plane.
    Home,
}

/// A route that is being tried.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    path: u8,
    why: Why,
    /// Number of its PROBE; 0: none.
    serial: u32,
    at: Instant,
    route: Route,
    /// Its round-trip time, once answered.
    rtt: Option<Span>,
}

/// The routes that are being tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidates {
    list: [Candidate; CANDIDATES],
    /// The next round of exploration, and the pause before the one after it.
    explore_at: Instant,
    pause: Span,
    /// The next round while all paths get the same.
    seldom_at: Instant,
}

impl Candidates {
    /// The place for a new one: the oldest.
    fn oldest(&mut self) -> Option<&mut Candidate> {
        self.list.iter_mut().min_by_key(|c| c.at)
    }

    /// The best that has been answered for a path.
    fn best(&self, path: u8, why: Why) -> Option<(Route, Span)> {
        self.list
            .iter()
            .filter(|c| c.serial != 0 && c.path == path && c.why == why)
            .filter_map(|c| Some((c.route, c.rtt?)))
            .min_by_key(|c| c.1)
    }

    /// Forgets those of a path.
    fn clear(&mut self, path: u8) {
        for c in self.list.iter_mut().filter(|c| c.path == path) {
            *c = Candidate::default();
        }
    }
}

/// Sends the PROBE with this header, which its path has counted already; `payload` is padding, if anything.
pub(super) fn transmit_probe<H: Host>(
    common: Common,
    route: Route,
    payload: PayloadSource<'_, H::Qp, H::Target>,
    host: &mut H,
) {
    let mut buf = [0u8; COMMON_LEN];
    let n = common.emit_alone(&mut buf);
    host.transmit(&Transmit {
        header: buf.get(..n).unwrap_or(&[]),
        payload,
        route,
        path: common.path,
        ect: true,
    });
}

impl<S: Store, H: Host> Connection<S, H> {
    /// Sends a PROBE of a path after `tries` that should have been answered; over another `route` than the path's own as
    /// a candidate. It is marked as data is, so that queues treat it alike and its place in the order holds.
    pub(super) fn send_probe(
        &mut self,
        now: Instant,
        id: usize,
        tries: u8,
        other: Option<Route>,
        host: &mut H,
    ) -> u32 {
        let Some(path) = self.paths.get_mut(id) else {
            return 0;
        };
        let (serial, route, flags) = match other {
            None => (path.tx.probe(now), path.tx.route, 0),
            Some(route) => (path.tx.candidate(), route, FLAG_CANDIDATE),
        };
        let common = Common {
            tx_count: tries,
            flags,
            ..self.common(Kind::Probe, u8::try_from(id).unwrap_or(0), serial)
        };
        transmit_probe(common, route, PayloadSource::None, host);
        serial
    }

    /// Tries `count` other routes for a path.
    pub(super) fn try_routes(
        &mut self,
        now: Instant,
        id: usize,
        count: u8,
        why: Why,
        host: &mut H,
    ) {
        for turn in 0..count {
            let old = self.route_of(id);
            let plane = match why {
                Why::Repair if turn == 0 => self.next_plane(id, old.plane),
                Why::Repair => self.any_other_plane(old.plane),
                Why::Explore => old.plane,
                Why::Home => initial_route(&self.config, id).plane,
            };
            let route = Route {
                plane,
                port_slot: self.other_port(old.port_slot),
            };
            // Answers to a second try do not rely on the peer's own route.
            let tries = if why == Why::Repair { MOVE_AFTER } else { 1 };
            let serial = self.send_probe(now, id, tries, Some(route), host);
            if let Some(place) = self.candidates.oldest() {
                *place = Candidate {
                    path: u8::try_from(id).unwrap_or(0),
                    why,
                    serial,
                    at: now,
                    route,
                    rtt: None,
                };
            }
        }
    }

    /// What the answer to the PROBE `serial` tells; notes the round-trip time of a candidate.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        path: u8,
        serial: u32,
        delay: Span,
    ) -> Answers {
        let mut list = self.candidates.list.iter_mut();
        let Some(c) = list.find(|c| c.serial == serial && c.path == path && serial != 0) else {
            return Answers::Probe;
        };
        let rtt = now.since(c.at).as_nanos().saturating_sub(delay.as_nanos());
        c.rtt = Some(Span::from_nanos(rtt));
        Answers::Candidate
    }

    /// Moves a path to the best of the routes tried, if there is reason to. Returns whether it did.
    pub(super) fn judge_candidates(&mut self, now: Instant, path_id: u8, host: &mut H) -> bool {
        let id = usize::from(path_id);
        let Some(path) = self.paths.get(id) else {
            return false;
        };
        if path.tx.unanswered() >= MOVE_AFTER {
            if let Some((route, rtt)) = self.candidates.best(path_id, Why::Repair) {
                self.set_route(now, id, route, Some(rtt), true, host);
                return true;
            }
        }
        if self.candidates.best(path_id, Why::Home).is_some() {
            self.candidates.clear(path_id);
            self.return_home(now, id, host);
            return true;
        }
        let Some((route, rtt)) = self.candidates.best(path_id, Why::Explore) else {
            return false;
        };
        let own = path.tx.rtt.smoothed().unwrap_or(Span::ZERO).as_nanos();
        let better = rtt.as_nanos() < own.saturating_sub(own / 4)
            && rtt.plus(GAIN).as_nanos() < own
            && path.tx.unanswered() == 0;
        if better {
            self.set_route(now, id, route, Some(rtt), false, host);
        }
        better
    }

    /// Looks for a better route for a path with a queue: the one that gets least, as it may share its link with others.
    pub(super) fn explore(&mut self, now: Instant, host: &mut H) {
        if now < self.candidates.explore_at || !self.hs.established {
            return;
        }
        let least = self.shared.min_rtt.as_nanos();
        let mut worst: Option<(u64, u64, usize)> = None;
        let (mut inflight, mut best) = (0u32, 0u64);
        for id in 0..self.active_paths {
            let Some(path) = self.paths.get(id).filter(|p| p.tx.is_busy()) else {
                continue;
            };
            inflight = inflight.saturating_add(path.tx.inflight());
        }
        let clear = least
            .saturating_add(least / 4)
            .saturating_add(GAIN.as_nanos());
        for id in 0..self.active_paths {
            let Some(path) = self.paths.get(id).filter(|p| p.tx.is_busy()) else {
                continue;
            };
            let rtt = path.tx.rtt.current(now).as_nanos();
            let rate = u64::from(path.tx.cc.window())
                .saturating_mul(1_000_000)
                .checked_div(rtt)
                .unwrap_or(u64::MAX);
            let settled = now.since(path.tx.moved_at) >= SETTLE;
            if path.tx.unanswered() > 0 || rtt <= clear || !settled {
                continue;
            }
            best = best.max(rate);
            if worst.is_none_or(|(w, ..)| rate < w) {
                worst = Some((rate, rtt, id));
            }
        }
        let pause = self.candidates.pause;
        let worth = inflight > self.max_payload.saturating_mul(u32::from(2 * EXPLORE));
        let Some((rate, rtt, id)) = worst.filter(|_| worth) else {
            self.candidates.explore_at = now.after(EXPLORE_MIN);
            return;
        };
        let next = Span::from_nanos(rtt.saturating_mul(2)).max(EXPLORE_MIN);
        if rate < best.saturating_sub(best / 4) {
            let pause = next.max(pause);
            self.candidates.explore_at = now.after(pause);
            self.candidates.pause = pause.times(2).min(EXPLORE_MAX);
        } else {
            // All get the same: each may have a link of its own, or all the same company.
            self.candidates.explore_at = now.after(next);
            self.candidates.pause = Span::ZERO;
            if now < self.candidates.seldom_at {
                return;
            }
            self.candidates.seldom_at = now.after(EXPLORE_MAX);
        }
        self.try_routes(now, id, EXPLORE, Why::Explore, host);
    }

    /// Uses fewer paths while the windows are so small that each would carry a packet or two only: with a short
    /// queue that many senders share, even the smallest windows of all paths are too much.
    pub(super) fn adapt_paths(&mut self, now: Instant) {
        let n = self.spray.used(self.active_paths);
        let mss = self.max_payload;
        let (mut window, mut min) = (0u32, Span::ZERO);
        for (id, path) in self.paths.iter().take(self.active_paths).enumerate() {
            if self.spray.uses(id, self.active_paths) {
                window = window.saturating_add(path.tx.cc.window());
            }
            let own = path.tx.rtt.min();
            if own > Span::ZERO && (min == Span::ZERO || own < min) {
                min = own;
            }
        }
        self.shared.paths = u32::try_from(n).unwrap_or(1);
        let known = self.shared.min_rtt;
        if known == Span::ZERO || min <= known || now.since(self.min_rtt_at) > MIN_WINDOW {
            self.shared.min_rtt = min;
            self.min_rtt_at = now;
        }
        self.shared.window = window.checked_div(mss).unwrap_or(0);
        self.relearn(now);
        let per_path = window
            .checked_div(mss.saturating_mul(u32::try_from(n).unwrap_or(1)))
            .unwrap_or(0);
        if per_path < 4 && n > 1 {
            self.spray.set_used(n.saturating_sub(1));
        } else if per_path >= 16 && n < self.active_paths {
            self.spray.set_used(n.saturating_add(1));
        }
    }

    /// When the delay stays although the windows have been at their least for [`RELEARN`], it is no queue of ours: the way
    /// has become longer, or what was taken for its length was an exception.
    fn relearn(&mut self, now: Instant) {
        let n = self.active_paths;
        let used = |(id, _): &(usize, &Path<S>)| self.spray.uses(*id, n);
        let paths = self.paths.iter().take(n).enumerate().filter(used);
        let standing = paths
            .filter(|(_, p)| p.tx.is_busy() && p.tx.rtt.is_proven())
            .map(|(_, p)| p.tx.rtt.standing())
            .min();
        let bound = self.shared.delay_bound(self.shared.min_rtt);
        let stuck = self.shared.at_least() && standing.is_some_and(|s| s > bound);
        if !stuck {
            self.stuck_since = None;
            return;
        }
        let since = *self.stuck_since.get_or_insert(now);
        let Some(standing) = standing else { return };
        if now.since(since) >= RELEARN.max(standing.times(4)) {
            self.stuck_since = None;
            self.shared.min_rtt = standing;
            self.min_rtt_at = now;
            for path in self.paths.iter_mut().take(n) {
                path.tx.rtt.relearn(now);
            }
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

    /// A plane drawn at random, not `plane` if there is another.
    fn any_other_plane(&mut self, plane: u8) -> u8 {
        self.draw_other(plane, self.config.planes)
    }

    /// A source port drawn at random. A fixed step could keep to the ports whose hash leads to the same link.
    fn other_port(&mut self, slot: u8) -> u8 {
        self.draw_other(slot, self.config.ports_per_plane)
    }

    /// A number below `n`, drawn at random, not `old` if there is another.
    fn draw_other(&mut self, old: u8, n: u8) -> u8 {
        let step = self
            .draw()
            .checked_rem(u64::from(n.saturating_sub(1)))
            .unwrap_or(0)
            .saturating_add(1);
        let other = u64::from(old)
            .saturating_add(step)
            .checked_rem(u64::from(n));
        u8::try_from(other.unwrap_or(0)).unwrap_or(0)
    }

    /// The route of this direction seems not to carry answers: another one, though nothing is known of it, as only what is sent
    /// as data is acknowledged.
    pub(super) fn move_path(&mut self, now: Instant, id: usize, host: &mut H) {
        let old = self.route_of(id);
        let route = Route {
            plane: self.next_plane(id, old.plane),
            port_slot: self.other_port(old.port_slot),
        };
        let failed = self
            .paths
            .get(id)
            .is_some_and(|path| path.tx.unanswered() > 0);
        self.set_route(now, id, route, None, failed, host);
    }

    /// Sends a path's packets over `route` from now on, where an answer took `rtt`; `failed`: what is in flight was
    /// lost with the old one.
    pub(super) fn set_route(
        &mut self,
        now: Instant,
        id: usize,
        route: Route,
        rtt: Option<Span>,
        failed: bool,
        host: &mut H,
    ) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        path.tx.change_route(now, route, rtt, failed);
        self.repair |= 1u64.wrapping_shl(u32::try_from(id).unwrap_or(0));
        let path = u8::try_from(id).unwrap_or(0);
        self.candidates.clear(path);
        self.candidates.pause = Span::ZERO;
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
                self.set_route(now, id, route, None, true, host);
            }
        }
        self.pump(now, host);
    }
}
