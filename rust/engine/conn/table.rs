// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The streams of a connection: slots with generations, a hash index by local QP number, the list of
//! streams that may have something to send, and the deadlines of those that wait.

use super::super::api::{Host, Store};
use super::super::stream::Stream;
use super::super::time::{Instant, Span};
use super::deadlines::Deadlines;

/// A stream is not looked at again for so long.
const LEAST_WAIT: Span = Span::from_micros(10);

/// Names a stream of a connection; a name never comes to mean another stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

struct Slot<S: Store, H: Host> {
    generation: u32,
    stream: Option<Stream<S, H>>,
}

/// Streams of a connection.
pub struct StreamTable<S: Store, H: Host> {
    slots: S::Buf<Slot<S, H>>,
    /// Slot + 1 by hash of the QP number, open addressing; 0 is empty.
    index: S::Buf<u32>,
    count: u32,
    /// Where to look for a free slot.
    hint: u32,
    /// Active list.
    head: Option<u32>,
    tail: Option<u32>,
    deadlines: Deadlines<S>,
}

impl<S: Store, H: Host> StreamTable<S, H> {
    /// An empty table for `capacity` streams. Allocates.
    pub fn new(capacity: usize) -> Result<Self, S::Error> {
        let capacity = capacity.clamp(1, 1 << 24);
        let hashed = capacity
            .saturating_mul(2)
            .checked_next_power_of_two()
            .unwrap_or(1);
        Ok(Self {
            slots: S::buf(capacity, |_| Slot {
                generation: 1,
                stream: None,
            })?,
            index: S::buf(hashed, |_| 0)?,
            count: 0,
            hint: 0,
            head: None,
            tail: None,
            deadlines: Deadlines::new(capacity)?,
        })
    }

    /// Streams it can hold.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Streams it holds.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn bucket(&self, qpn: u32) -> usize {
        let mask = self.index.len().wrapping_sub(1);
        let h = qpn.wrapping_mul(0x9e37_79b1);
        (h ^ (h >> 15)) as usize & mask
    }

    fn index_insert(&mut self, qpn: u32, slot: u32) {
        let mask = self.index.len().wrapping_sub(1);
        let mut at = self.bucket(qpn);
        for _ in 0..self.index.len() {
            if let Some(e) = self.index.get_mut(at) {
                if *e == 0 {
                    *e = slot.wrapping_add(1);
                    return;
                }
            }
            at = at.wrapping_add(1) & mask;
        }
    }

    fn index_remove(&mut self, qpn: u32, slot: u32) {
        let mask = self.index.len().wrapping_sub(1);
        let mut at = self.bucket(qpn);
        for _ in 0..self.index.len() {
            match self.index.get_mut(at) {
                Some(e) if *e == slot.wrapping_add(1) => {
                    *e = 0;
                    break;
                }
                Some(0) | None => return,
                Some(_) => at = at.wrapping_add(1) & mask,
            }
        }
        // Put back what follows in the same run.
        loop {
            at = at.wrapping_add(1) & mask;
            let Some(e) = self.index.get_mut(at) else {
                return;
            };
            let moved = core::mem::take(e);
            if moved == 0 {
                return;
            }
            let moved = moved.wrapping_sub(1);
            let qpn = self
                .slots
                .get(moved as usize)
                .and_then(|s| s.stream.as_ref());
            if let Some(qpn) = qpn.map(|s| s.local_qpn) {
                self.index_insert(qpn, moved);
            }
        }
    }

    /// Puts a stream in; gives it back when the table is full.
    #[allow(
        clippy::result_large_err,
        reason = "the caller gets its stream back, nothing is allocated"
    )]
    pub(crate) fn insert(&mut self, stream: Stream<S, H>) -> Result<StreamId, Stream<S, H>> {
        let n = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let mut at = self.hint;
        for _ in 0..n {
            at = at.checked_rem(n).unwrap_or(0);
            if let Some(slot) = self.slots.get_mut(at as usize) {
                if slot.stream.is_none() {
                    let qpn = stream.local_qpn;
                    slot.stream = Some(stream);
                    let id = StreamId {
                        slot: at,
                        generation: slot.generation,
                    };
                    self.hint = at.wrapping_add(1);
                    self.count = self.count.wrapping_add(1);
                    self.index_insert(qpn, at);
                    return Ok(id);
                }
            }
            at = at.wrapping_add(1);
        }
        Err(stream)
    }

    /// Takes a stream out.
    pub(crate) fn remove(&mut self, id: StreamId) -> Option<Stream<S, H>> {
        self.get(id)?;
        self.unlink(id.slot);
        self.deadlines.remove(id.slot);
        let slot = self.slots.get_mut(id.slot as usize)?;
        let mut stream = slot.stream.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        stream.active = false;
        stream.watched = false;
        stream.next_active = None;
        self.hint = id.slot;
        self.count = self.count.wrapping_sub(1);
        self.index_remove(stream.local_qpn, id.slot);
        Some(stream)
    }

    /// The stream of that name.
    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream<S, H>> {
        let slot = self.slots.get(id.slot as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        slot.stream.as_ref()
    }

    /// The stream of that name.
    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream<S, H>> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        slot.stream.as_mut()
    }

    /// The stream of a QP pair.
    pub(crate) fn find(&self, local_qpn: u32, remote_qpn: u32) -> Option<StreamId> {
        let mask = self.index.len().wrapping_sub(1);
        let mut at = self.bucket(local_qpn);
        for _ in 0..self.index.len() {
            let e = self.index.get(at).copied().unwrap_or(0);
            if e == 0 {
                return None;
            }
            let slot = e.wrapping_sub(1);
            if let Some(s) = self.slots.get(slot as usize) {
                let hit = s
                    .stream
                    .as_ref()
                    .is_some_and(|s| s.local_qpn == local_qpn && s.remote_qpn == remote_qpn);
                if hit {
                    return Some(StreamId {
                        slot,
                        generation: s.generation,
                    });
                }
            }
            at = at.wrapping_add(1) & mask;
        }
        None
    }

    /// The stream in a slot, with its name.
    pub(crate) fn at(&mut self, slot: u32) -> Option<(StreamId, &mut Stream<S, H>)> {
        let s = self.slots.get_mut(slot as usize)?;
        let id = StreamId {
            slot,
            generation: s.generation,
        };
        s.stream.as_mut().map(|stream| (id, stream))
    }

    /// Appends a stream to the active list, unless it is there.
    #[inline]
    pub(crate) fn activate(&mut self, id: StreamId) {
        match self.get_mut(id) {
            Some(stream) if !stream.active => {
                stream.active = true;
                stream.next_active = None;
            }
            _ => return,
        }
        match self.tail {
            Some(tail) => {
                if let Some((_, t)) = self.at(tail) {
                    t.next_active = Some(id.slot);
                }
            }
            None => self.head = Some(id.slot),
        }
        self.tail = Some(id.slot);
    }

    /// First stream of the active list.
    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        self.head
    }

    /// Takes the first stream off the active list.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<StreamId> {
        let slot = self.head?;
        let (id, next) = match self.at(slot) {
            Some((id, s)) => {
                s.active = false;
                (Some(id), s.next_active.take())
            }
            None => (None, None),
        };
        self.head = next;
        if next.is_none() {
            self.tail = None;
        }
        id
    }

    /// Sees to it that a stream is looked at ([`Self::pop_due`]) at `at` or before, but not at once: a
    /// deadline that was not served must not be served for ever.
    pub(crate) fn watch(&mut self, now: Instant, id: StreamId, at: Option<Instant>) {
        let Some(at) = at else { return };
        let at = at.max(now.after(LEAST_WAIT));
        if let Some(stream) = self.get_mut(id) {
            stream.watched = true;
            self.deadlines.bring_forward(id.slot, at);
        }
    }

    /// When a stream is to be looked at next.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// A stream that is to be looked at now; it is no longer watched.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<StreamId> {
        let slot = self.deadlines.pop(now)?;
        let (id, stream) = self.at(slot)?;
        stream.watched = false;
        Some(id)
    }

    fn unlink(&mut self, slot: u32) {
        let active = self.at(slot).is_some_and(|(_, s)| s.active);
        if !active {
            return;
        }
        let next = self.at(slot).and_then(|(_, s)| s.next_active);
        if self.head == Some(slot) {
            self.pop_front();
            return;
        }
        let mut at = self.head;
        while let Some(i) = at {
            let Some((_, s)) = self.at(i) else { return };
            if s.next_active == Some(slot) {
                s.next_active = next;
                if self.tail == Some(slot) {
                    self.tail = Some(i);
                }
                return;
            }
            at = s.next_active;
        }
    }

    /// Moves all streams of `self` into the larger, empty `to`, keeping their names.
    pub(crate) fn move_into(&mut self, to: &mut Self) {
        for (old, new) in self.slots.iter_mut().zip(to.slots.iter_mut()) {
            new.generation = old.generation;
            new.stream = old.stream.take();
        }
        to.count = core::mem::take(&mut self.count);
        to.head = self.head.take();
        to.tail = self.tail.take();
        self.deadlines.move_into(&mut to.deadlines);
        to.hint = u32::try_from(self.slots.len()).unwrap_or(0);
        for e in self.index.iter_mut() {
            *e = 0;
        }
        for i in 0..to.slots.len() {
            let Ok(slot) = u32::try_from(i) else { break };
            if let Some(qpn) = to.at(slot).map(|(_, s)| s.local_qpn) {
                to.index_insert(qpn, slot);
            }
        }
    }
}
