// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The size of packets, path by path: padded PROBEs that find out what the route lets through ([`Mtu`]), and what becomes
//! of packets that turn out to be too large.
//!
//! A packet keeps its path and sequence, and the receiver may have placed it although the answer is missing. So it is
//! not cut in two: it becomes a VOID, and the attempt at its message, or response, is over. The next attempt is
//! made of pieces that fit.
//!
//! [`Mtu`]: super::super::mtu::Mtu

use super::super::api::{ConnEvent, Host, PayloadSource, Store};
use super::super::path::Content;
use super::super::time::Instant;
use super::super::wire::{Common, Kind, COMMON_LEN, FLAG_CANDIDATE, MAX_DATA_HEADER};
use super::routes::transmit_probe;
use super::Connection;

/// What a padded PROBE lacks to be as long as the longest packet with the same payload.
const HEADERS: u32 = (MAX_DATA_HEADER - COMMON_LEN) as u32;

impl<S: Store, H: Host> Connection<S, H> {
    /// Sends one PROBE of each size, in a search that is under way or begins now. They take no place in the order of
    /// transmissions: that one is lost says nothing of others.
    pub(super) fn search(&mut self, now: Instant, id: usize, host: &mut H) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let over_at = now.after(path.tx.rtt.probe_timeout());
        let sizes = path.tx.mtu.sizes();
        let mut first = None;
        for size in sizes {
            let Some(path) = self.paths.get_mut(id) else {
                return;
            };
            let number = path.tx.candidate();
            first = first.or(Some(number));
            let route = path.tx.route;
            let padding = PayloadSource::Padding(u32::from(size).saturating_add(HEADERS));
            let common = Common {
                tx_count: 1,
                flags: FLAG_CANDIDATE,
                ..self.common(Kind::Probe, u8::try_from(id).unwrap_or(0), number)
            };
            transmit_probe(common, route, padding, host);
        }
        if let (Some(path), Some(first)) = (self.paths.get_mut(id), first) {
            path.tx.mtu.on_round(first, over_at);
        }
    }

    /// Sends what the search of a path needs next, or ends it.
    pub(super) fn search_on(&mut self, now: Instant, id: usize, host: &mut H) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let (again, limit) = path.tx.mtu.on_time(now);
        if again {
            self.search(now, id, host);
        }
        self.on_limit(now, id, limit, host);
    }

    /// A PROBE of a path was answered: whether it was one of a search.
    pub(super) fn on_size_answer(
        &mut self,
        now: Instant,
        id: usize,
        number: u32,
        host: &mut H,
    ) -> bool {
        let Some(path) = self.paths.get_mut(id) else {
            return false;
        };
        let (ours, limit) = path.tx.mtu.on_answer(now, number);
        self.on_limit(now, id, limit, host);
        ours
    }

    /// Tries larger packets on a path that has had to do with smaller ones, if it is time.
    pub(super) fn search_more(&mut self, now: Instant, id: usize, host: &mut H) {
        let wants = |p: &super::Path<S>| p.tx.mtu.wants_more(now) && p.tx.is_busy();
        if self.paths.get(id).is_some_and(wants) {
            self.search(now, id, host);
        }
    }

    /// A path's packets have another size from now on.
    fn on_limit(&mut self, now: Instant, id: usize, limit: Option<u16>, host: &mut H) {
        let Some(bytes) = limit else { return };
        let path = u8::try_from(id).unwrap_or(0);
        self.notify(ConnEvent::PathPayload { path, bytes }, host);
        let mut shrunk = false;
        while let Some(slot) = self.paths.get_mut(id).and_then(|p| p.tx.cut()) {
            shrunk = true;
            let Some(stream) = self.streams.get_mut(slot.stream) else {
                continue;
            };
            match slot.content {
                Content::Void => {}
                Content::Request => stream.requester.on_cut(slot.index, slot.attempt),
                Content::Response => stream.responder.on_cut(slot.index),
            }
            self.streams.activate(slot.stream);
        }
        if !shrunk {
            return;
        }
        self.repair |= 1u64.wrapping_shl(u32::from(path));
        // What was lost says nothing of congestion.
        if let Some(path) = self.paths.get_mut(id) {
            path.tx.cc.on_new_route(true);
        }
        // The others may lead over the same link: ask before they have lost as much.
        for other in 0..self.active_paths {
            let small = |p: &super::Path<S>| {
                p.tx.mtu.limit() <= u32::from(bytes) || !p.tx.mtu.may_search(now)
            };
            if other != id && !self.paths.get(other).is_none_or(small) {
                self.search(now, other, host);
            }
        }
    }
}
