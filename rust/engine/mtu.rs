// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! How large packets a path's route lets through.
//!
//! A route may swallow packets above some size without a word (a path-MTU black hole): the small ones, acknowledgements
//! and PROBEs among them, pass, so that nothing looks broken but that large packets never arrive. A packet sent
//! [`SUSPECT_AFTER`] times in vain starts a *search*: PROBEs padded to each of the sizes in question go out
//! in up to [`ROUNDS`] rounds. The largest that is answered is what the path sends from then on; when the full size
//! is, it was a false alarm and costs nothing else. So a size is used only when it has been seen to pass. A path with less
//! than the full size searches again every [`RAISE`], and after each change of route.
//!
//! Searching with padded probes, confirming a size before use, and stepping up again by a timer are those of RFC 8899
//! (5.1 and 5.2; its PMTU_RAISE_TIMER is ten times as long, but our probes cost no data).
//!
//! ```text
//!            sent in vain 4 times, or a neighbour has shrunk,
//!            or smaller than agreed for 60 s, or on a new route
//!   +------+ --------------------------------------------> +-----------+
//!   | rest |                                               | searching | --+ round over: all sizes once more
//!   +------+ <-------------------------------------------- +-----------+ <-+
//!            full size answered: limit <- full
//!            third round over: limit <- largest answered, if any
//! ```

use super::time::{Instant, Span};

/// Transmissions of one packet after which its size is suspected.
pub const SUSPECT_AFTER: u8 = 4;
/// The smallest payload searched for: packets of 576 bytes in IPv4, which every host must take (RFC 791, 3.1).
/// Packets with no more are beyond suspicion.
pub const LEAST: u16 = 460;
/// Payloads tried below the agreed one, for MTUs of half and a quarter of jumbo frames, FDDI and less, PPPoE,
/// WireGuard and similar tunnels, the least of IPv6 (RFC 8200, 5), and of IPv4; with IPv6 and UDP headers and the
/// longest of ours.
const STEPS: [u16; 7] = [8192, 4096, 1900, 1376, 1304, 1164, LEAST];
/// Probes of each size at most.
const ROUNDS: usize = 3;
/// Pause after a search before the next suspicion is followed.
const REST: Span = Span::from_millis(100);
/// After so long with less than the full size, more is tried.
const RAISE: Span = Span::from_millis(60_000);

/// A search under way.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// Number of the first PROBE of each round begun.
    first: [u32; ROUNDS],
    rounds: usize,
    /// When the present round is over.
    over_at: Instant,
    /// The largest size answered; 0: none.
    best: u16,
}

/// Payload per packet on one path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mtu {
    /// What the two ends have agreed on.
    full: u16,
    /// What the route lets through, as far as is known.
    limit: u16,
    search: Option<Search>,
    /// No suspicion is followed before.
    rest_until: Instant,
    /// When to try more than `limit`, if that is less than `full`.
    raise_at: Instant,
}

impl Mtu {
    /// With `full` bytes of payload agreed on.
    pub fn new(full: u16) -> Self {
        Self {
            full,
            limit: full,
            ..Self::default()
        }
    }

    /// Bytes of payload in a packet at most.
    #[inline]
    pub fn limit(&self) -> u32 {
        u32::from(self.limit)
    }

    /// Whether a packet with `len` bytes of payload that has been sent `times` times calls for a search.
    #[inline]
    pub fn suspects(&self, now: Instant, len: u32, times: u8) -> bool {
        times >= SUSPECT_AFTER && len > u32::from(LEAST) && self.may_search(now)
    }

    /// Whether larger packets are worth a try.
    #[inline]
    pub fn wants_more(&self, now: Instant) -> bool {
        self.limit < self.full && now >= self.raise_at && self.may_search(now)
    }

    /// Whether a search can begin.
    pub fn may_search(&self, now: Instant) -> bool {
        self.search.is_none() && now >= self.rest_until && self.full > LEAST
    }

    /// The sizes a search asks for, the largest first. One PROBE with the next number is sent for each.
    pub fn sizes(&self) -> impl Iterator<Item = u16> {
        sizes(self.full)
    }

    /// Books a round of PROBEs, the first of which has the number `first`; answers are awaited until `over_at`.
    pub fn on_round(&mut self, first: u32, over_at: Instant) {
        let search = self.search.get_or_insert(Search {
            first: [0; ROUNDS],
            rounds: 0,
            over_at,
            best: 0,
        });
        search.over_at = over_at;
        if let Some(place) = search.first.get_mut(search.rounds) {
            *place = first;
            search.rounds = search.rounds.saturating_add(1);
        }
    }

    /// When the present round is over.
    pub fn deadline(&self) -> Option<Instant> {
        self.search.map(|s| s.over_at)
    }

    /// Whether another round is to be sent now. When the last one is over, the search ends: then the new limit, if
    /// it is another one.
    pub fn on_time(&mut self, now: Instant) -> (bool, Option<u16>) {
        let Some(search) = self.search.filter(|s| s.over_at <= now) else {
            return (false, None);
        };
        if search.rounds < ROUNDS {
            return (true, None);
        }
        let best = if search.best == 0 {
            self.limit
        } else {
            search.best
        };
        (false, self.end(now, best))
    }

    /// The PROBE `number` was answered. Whether it belongs to a search, and the new limit, if that is another one.
    pub fn on_answer(&mut self, now: Instant, number: u32) -> (bool, Option<u16>) {
        let Some(search) = self.search.as_mut() else {
            return (false, None);
        };
        let full = self.full;
        let begun = search.first.iter().take(search.rounds);
        let size = begun
            .filter_map(|first| sizes(full).nth(number.wrapping_sub(*first) as usize))
            .max();
        let Some(size) = size else {
            return (false, None);
        };
        search.best = search.best.max(size);
        if size < full {
            return (true, None);
        }
        (true, self.end(now, full))
    }

    /// A packet with `len` bytes of payload has arrived. During a search that is as good as an answer.
    #[inline]
    pub fn on_passed(&mut self, now: Instant, len: u32) {
        let Some(search) = self.search.as_mut() else {
            return;
        };
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        search.best = search.best.max(len.min(self.limit));
        if len >= self.full && self.limit == self.full {
            self.end(now, self.full);
        }
    }

    /// Ends the search. The limit, if it has changed.
    fn end(&mut self, now: Instant, limit: u16) -> Option<u16> {
        self.search = None;
        self.rest_until = now.after(REST);
        self.raise_at = now.after(RAISE);
        let changed = limit != self.limit;
        self.limit = limit;
        changed.then_some(limit)
    }

    /// The path has another route: what it lets through is to be found out.
    pub fn on_new_route(&mut self, now: Instant) {
        self.search = None;
        self.raise_at = now;
    }
}

fn sizes(full: u16) -> impl Iterator<Item = u16> {
    core::iter::once(full).chain(STEPS.into_iter().filter(move |s| *s < full))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(1_000_000 * ms)
    }

    /// Runs a search over a route that lets `passes` through; `lost`: whether a probe is lost all the same.
    fn search(
        mtu: &mut Mtu,
        from: u64,
        passes: u16,
        mut lost: impl FnMut() -> bool,
    ) -> Option<u16> {
        let mut number = 1000 * from as u32 + 1;
        for round in 0..=ROUNDS as u64 {
            let now = at(from + round);
            if round > 0 {
                let (again, limit) = mtu.on_time(now);
                if !again {
                    return limit;
                }
            }
            let first = number;
            let sizes: Vec<u16> = mtu.sizes().collect();
            mtu.on_round(first, at(from + round + 1));
            for size in sizes {
                if size <= passes && !lost() {
                    let (ours, limit) = mtu.on_answer(now, number);
                    assert!(ours);
                    if mtu.search.is_none() {
                        return limit;
                    }
                }
                number += 1;
            }
        }
        panic!("does not end");
    }

    #[test]
    fn steps_down_and_up() {
        for (full, passes, want) in [
            (1400, 1399, 1376),
            (1400, 1164, 1164),
            (1400, 1163, 460),
            (1384, 1376, 1376),
            (8900, 1404, 1376),
            (8900, 8899, 8192),
            (60_000, 5000, 4096),
        ] {
            let mut mtu = Mtu::new(full);
            assert!(!mtu.suspects(at(1), 1400, SUSPECT_AFTER - 1));
            assert!(!mtu.suspects(at(1), LEAST.into(), 100));
            assert!(mtu.suspects(at(1), 1400, SUSPECT_AFTER));
            assert_eq!(search(&mut mtu, 1, passes, || false), Some(want));
            assert_eq!(mtu.limit(), u32::from(want));
            assert!(!mtu.wants_more(at(1000)) && mtu.wants_more(at(70_000)));
            assert_eq!(search(&mut mtu, 70_000, passes, || false), None);
            assert!(!mtu.wants_more(at(71_000)));
            mtu.on_new_route(at(71_000));
            assert!(mtu.wants_more(at(71_000)));
            assert_eq!(search(&mut mtu, 71_000, 65_535, || false), Some(full));
            assert!(!mtu.wants_more(at(999_000)));
        }
    }

    #[test]
    fn false_alarms_change_nothing() {
        let mut random = 1u32;
        for i in 0..1000 {
            let mut mtu = Mtu::new(1400);
            let lost = || {
                random = random.wrapping_mul(1664525).wrapping_add(1013904223);
                random >> 24 < 26 // One of ten.
            };
            // One in a thousand may take a step that is undone with the next search.
            if let Some(limit) = search(&mut mtu, 1 + i, 65_535, lost) {
                assert!(limit >= 1304, "{limit}");
            }
            assert!(!mtu.suspects(at(2 + i), 1400, 9), "rests");
            // Unless packets of that size arrive meanwhile.
            let mut busy = Mtu::new(1400);
            busy.on_round(1, at(2));
            busy.on_passed(at(1), 1200);
            assert_eq!((busy.on_time(at(2)), busy.limit()), ((true, None), 1400));
            busy.on_passed(at(1), 1400);
            assert_eq!((busy.deadline(), busy.limit()), (None, 1400));
        }
        let mut dead = Mtu::new(1400);
        assert_eq!(search(&mut dead, 1, 0, || false), None);
        assert_eq!(dead.limit(), 1400);
    }

    #[test]
    fn other_answers_are_not_ours() {
        let mut mtu = Mtu::new(1400);
        assert_eq!(mtu.on_answer(at(1), 7), (false, None));
        mtu.on_round(u32::MAX, at(2));
        for number in [u32::MAX - 1, 5, 100] {
            assert_eq!(mtu.on_answer(at(1), number), (false, None), "{number}");
        }
        assert_eq!(mtu.on_answer(at(1), 0), (true, None));
        assert_eq!(mtu.on_answer(at(1), u32::MAX), (true, None));
        assert_eq!(mtu.limit(), 1400);
        // Nothing to search for below the least.
        assert!(!Mtu::new(300).suspects(at(1), 1400, 9));
    }
}
