// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Random choices that follow from a seed (SplitMix64).

/// A source of choices.
pub struct Rng(u64);

impl Rng {
    /// The choices of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number.
    pub fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        (self.u64() >> 56) as u8
    }

    /// A number below `n` (0 if `n` is 0).
    pub fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.u32()) * u64::from(n)) >> 32) as u32
    }

    /// True once in `n` times; never if `n` is 0.
    pub fn once_in(&mut self, n: u32) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// One of these, if there is any.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len() as u32) as usize)
    }

    /// A number as found at the edges of counters, lengths and signs, or near `truth`, or any.
    pub fn wild(&mut self, truth: u32) -> u32 {
        const EDGES: [u32; 12] = [
            0,
            1,
            2,
            255,
            256,
            257,
            0xffff,
            0x10000,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_fffe,
            0xffff_ffff,
        ];
        match self.below(4) {
            0 => *self.pick(&EDGES).unwrap_or(&0),
            1 => truth.wrapping_add(self.below(600)).wrapping_sub(300),
            2 => truth ^ (1 << self.below(32)),
            _ => self.u32(),
        }
    }

    /// The same for addresses.
    pub fn wild64(&mut self, truth: u64) -> u64 {
        match self.below(5) {
            0 => u64::from(self.below(9)),
            1 => u64::MAX - u64::from(self.below(9000)),
            2 => truth
                .wrapping_add(u64::from(self.below(0x20000)))
                .wrapping_sub(0x10000),
            3 => truth ^ (1 << self.below(64)),
            _ => self.u64(),
        }
    }

    /// Any bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.u8()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_choices_again() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for n in 1..2000 {
            assert_eq!(a.wild(n), b.wild(n));
            assert!(a.below(n) < n);
            b.below(n);
        }
        assert_eq!(a.below(0), 0);
        assert!(!a.once_in(0));
    }
}
