// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! When the streams of a connection are to be looked at: a binary heap of slots, the earliest first.
//! Each operation costs the logarithm of the number of streams that wait; memory is that of the table.

use super::super::api::Store;
use super::super::time::Instant;

/// What a slot of the table waits for.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    at: Instant,
    /// Where it is in the heap, while it is.
    pos: Option<u32>,
}

/// Deadlines of slots.
pub(super) struct Deadlines<S: Store> {
    /// The first `len` are the heap.
    heap: S::Buf<u32>,
    len: u32,
    entries: S::Buf<Entry>,
}

impl<S: Store> Deadlines<S> {
    /// No deadlines, for slots below `capacity`. Allocates.
    pub(super) fn new(capacity: usize) -> Result<Self, S::Error> {
        Ok(Self {
            heap: S::buf(capacity, |_| 0)?,
            len: 0,
            entries: S::buf(capacity, |_| Entry::default())?,
        })
    }

    /// The earliest deadline.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        (self.len > 0).then(|| self.at(self.slot(0)))
    }

    /// Sees to it that the slot's deadline is no later than `at`.
    pub(super) fn bring_forward(&mut self, slot: u32, at: Instant) {
        let end = self.len;
        let Some(entry) = self.entries.get_mut(slot as usize) else {
            return;
        };
        let pos = match entry.pos {
            Some(_) if entry.at <= at => return,
            Some(pos) => pos,
            None => {
                self.len = end.wrapping_add(1);
                end
            }
        };
        entry.at = at;
        self.rise(pos, slot);
    }

    /// Takes out the slot with the earliest deadline, if that has come.
    pub(super) fn pop(&mut self, now: Instant) -> Option<u32> {
        if self.next()? > now {
            return None;
        }
        let slot = self.slot(0);
        self.remove(slot);
        Some(slot)
    }

    /// Takes a slot out.
    pub(super) fn remove(&mut self, slot: u32) {
        let entry = self.entries.get_mut(slot as usize);
        let Some(pos) = entry.and_then(|e| e.pos.take()) else {
            return;
        };
        self.len = self.len.wrapping_sub(1);
        let last = self.slot(self.len);
        if last != slot {
            // It belongs above or below the gap; which of the two, it finds out.
            self.rise(pos, last);
            let pos = self.entries.get(last as usize).and_then(|e| e.pos);
            self.sink(pos.unwrap_or(0), last);
        }
    }

    /// Moves all deadlines into an empty set with at least as many slots.
    pub(super) fn move_into(&mut self, to: &mut Self) {
        while self.len > 0 {
            let slot = self.slot(0);
            let at = self.at(slot);
            self.remove(slot);
            to.bring_forward(slot, at);
        }
    }

    fn slot(&self, pos: u32) -> u32 {
        self.heap.get(pos as usize).copied().unwrap_or(0)
    }

    fn at(&self, slot: u32) -> Instant {
        self.entries
            .get(slot as usize)
            .map_or(Instant::default(), |e| e.at)
    }

    fn put(&mut self, pos: u32, slot: u32) {
        if let Some(place) = self.heap.get_mut(pos as usize) {
            *place = slot;
        }
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            entry.pos = Some(pos);
        }
    }

    fn rise(&mut self, mut pos: u32, slot: u32) {
        let at = self.at(slot);
        while pos > 0 {
            let above = pos.wrapping_sub(1) / 2;
            let other = self.slot(above);
            if self.at(other) <= at {
                break;
            }
            self.put(pos, other);
            pos = above;
        }
        self.put(pos, slot);
    }

    fn sink(&mut self, mut pos: u32, slot: u32) {
        let at = self.at(slot);
        loop {
            // The table has at most 2^24 slots.
            let mut below = pos.wrapping_mul(2).wrapping_add(1);
            if below >= self.len {
                break;
            }
            let right = below.wrapping_add(1);
            if right < self.len && self.at(self.slot(right)) < self.at(self.slot(below)) {
                below = right;
            }
            let other = self.slot(below);
            if at <= self.at(other) {
                break;
            }
            self.put(pos, other);
            pos = below;
        }
        self.put(pos, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    struct Heap;

    impl Store for Heap {
        type Buf<T> = Vec<T>;
        type Error = std::convert::Infallible;
        fn buf<T>(len: usize, fill: impl FnMut(usize) -> T) -> Result<Vec<T>, Self::Error> {
            Ok((0..len).map(fill).collect())
        }
    }

    /// Random operations, compared with a plain map.
    #[test]
    fn like_a_map() {
        for seed in 1..50u64 {
            let mut random = seed;
            let mut draw = |n: u64| {
                random = random
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (random >> 33) % n
            };
            let slots = 1 + draw(40);
            let mut deadlines = Deadlines::<Heap>::new(slots as usize).unwrap();
            let mut model = BTreeMap::new();
            for step in 0..2000 {
                let slot = draw(slots) as u32;
                let at = draw(1000);
                match draw(8) {
                    0 => {
                        deadlines.remove(slot);
                        model.remove(&slot);
                    }
                    1 | 2 => match deadlines.pop(Instant::from_nanos(at)) {
                        Some(slot) => {
                            let due = model.remove(&slot).unwrap();
                            assert!(due <= at && model.values().all(|other| *other >= due));
                        }
                        None => assert!(model.values().all(|due| *due > at)),
                    },
                    3 => {
                        let mut larger = Deadlines::new(slots as usize + 3).unwrap();
                        deadlines.move_into(&mut larger);
                        assert_eq!(deadlines.next(), None);
                        deadlines = larger;
                    }
                    _ => {
                        deadlines.bring_forward(slot, Instant::from_nanos(at));
                        let due = model.entry(slot).or_insert(at);
                        *due = at.min(*due);
                    }
                }
                let next = model.values().min().map(|at| Instant::from_nanos(*at));
                assert_eq!(deadlines.next(), next, "seed {seed}, step {step}");
            }
        }
    }
}
