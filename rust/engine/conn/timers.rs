// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Time: probes, pauses and time-outs of streams.

use super::super::api::{ConnEvent, Host, Store};
use super::super::path::Due;
use super::super::time::{Instant, Span};
use super::routes::{Why, EXPLORE};
use super::Connection;

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
                self.search_on(now, id, host);
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
        if due == Due::Resend {
            if let Some(psn) = path.tx.resend() {
                self.send_slot(now, id, psn, host);
            }
        }
        self.send_probe(now, id, tries, None, host);
        if tries > 0 && !self.judge_candidates(now, u8::try_from(id).unwrap_or(0), host) {
            // A single time-out is often a lost packet only.
            let count = if tries == 1 { 1 } else { EXPLORE };
            self.try_routes(now, id, count, Why::Repair, host);
        }
        if now.since(heard) > SILENCE && !self.silent {
            self.silent = true;
            self.notify(ConnEvent::Silent, host);
        }
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
