// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Bytes as a source of choices.

/// Reads choices from bytes; zeros when there are no more.
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    /// Whether all has been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                *first
            }
            None => 0,
        }
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from(self.u8()) << 8 | u16::from(self.u8())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    /// One of `n` things, from one byte.
    pub fn below(&mut self, n: u8) -> u8 {
        self.u8() % n.max(1)
    }

    /// A difference, usually none.
    pub fn near(&mut self) -> u32 {
        match self.u8() {
            b @ 0..=63 => u32::from(b & 1),
            b @ 64..=223 => i32::from(b as i8) as u32,
            _ => self.u32(),
        }
    }

    /// A size: often small, sometimes around the limits of a packet or a message.
    pub fn size(&mut self) -> u32 {
        match self.u8() {
            b @ 0..=127 => u32::from(b),
            b @ 128..=191 => u32::from(b & 63) * 700,
            b @ 192..=223 => u32::from(self.u16()) + u32::from(b & 31),
            b @ 224..=247 => 0x8000_0000u32.wrapping_sub(u32::from(b & 7)),
            _ => self.u32(),
        }
    }

    /// Up to `n` bytes as they are.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.rest.split_at(n.min(self.rest.len()));
        self.rest = rest;
        head
    }
}
