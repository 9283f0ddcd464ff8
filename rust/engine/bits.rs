// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! A set of 256 ring positions.

/// 256 bits, addressed by `sequence % 256`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits256 {
    words: [u64; 4],
}

#[inline]
fn place(pos: u32) -> (usize, u64) {
    (((pos >> 6) & 3) as usize, 1u64.wrapping_shl(pos & 63))
}

impl Bits256 {
    /// The empty set.
    pub const EMPTY: Self = Self { words: [0; 4] };

    /// The words, lowest positions first.
    #[inline]
    pub const fn words(&self) -> [u64; 4] {
        self.words
    }

    /// Whether position `pos % 256` is in the set.
    #[inline]
    pub fn get(&self, pos: u32) -> bool {
        let (word, bit) = place(pos);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Adds a position; tells whether it was absent.
    #[inline]
    pub fn set(&mut self, pos: u32) -> bool {
        let (word, bit) = place(pos);
        match self.words.get_mut(word) {
            Some(w) => {
                let absent = *w & bit == 0;
                *w |= bit;
                absent
            }
            None => false,
        }
    }

    /// Removes a position; tells whether it was present.
    #[inline]
    pub fn clear(&mut self, pos: u32) -> bool {
        let (word, bit) = place(pos);
        match self.words.get_mut(word) {
            Some(w) => {
                let present = *w & bit != 0;
                *w &= !bit;
                present
            }
            None => false,
        }
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Members in both sets.
    #[inline]
    #[must_use]
    pub fn and(&self, other: &[u64; 4]) -> Self {
        let [a, b, c, d] = self.words;
        let [e, f, g, h] = *other;
        Self {
            words: [a & e, b & f, c & g, d & h],
        }
    }

    /// Members of `self` that are not in `other`.
    #[inline]
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let [a, b, c, d] = other.words;
        self.and(&[!a, !b, !c, !d])
    }

    /// Removes and returns the lowest position.
    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        let mut base = 0u32;
        for w in &mut self.words {
            if *w != 0 {
                let bit = w.trailing_zeros();
                *w &= w.wrapping_sub(1);
                return Some(base.wrapping_add(bit));
            }
            base = base.wrapping_add(64);
        }
        None
    }

    /// How many positions from `start % 256` on, cyclically, until the first member.
    pub fn first_from(&self, start: u32) -> Option<u32> {
        let start = start & 255;
        for step in 0..5u32 {
            let word = (start >> 6).wrapping_add(step) & 3;
            let mut w = self.words.get(word as usize).copied().unwrap_or(0);
            if step == 0 {
                w &= u64::MAX.wrapping_shl(start & 63);
            }
            if w != 0 {
                let pos = word.wrapping_mul(64).wrapping_add(w.trailing_zeros());
                return Some(pos.wrapping_sub(start) & 255);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_from_is_cyclic() {
        let mut b = Bits256::EMPTY;
        assert_eq!(b.first_from(7), None);
        assert!(b.set(5));
        assert!(!b.set(5));
        assert_eq!(b.first_from(5), Some(0));
        assert_eq!(b.first_from(6), Some(255));
        assert_eq!(b.first_from(250), Some(11));
        b.set(200);
        assert_eq!(b.first_from(6), Some(194));
        assert_eq!(b.pop(), Some(5));
        assert_eq!(b.pop(), Some(200));
        assert!(b.is_empty());
    }
}
