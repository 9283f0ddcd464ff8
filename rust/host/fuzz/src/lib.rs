// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Fuzz targets. Each takes any bytes and panics when a rule is broken.
//!
//! The bytes are read as a list of instructions by [`Input`]; once they are used up, it yields
//! zeros, which everywhere stand for the ordinary case. So a short input is a short history,
//! and a fuzzer finds its way from ordinary traffic to strange traffic step by step.
//!
//! `make fuzz MINUTES=n` runs them under libFuzzer; `cargo test` runs the inputs in `regressions/`, and
//! some thousands that follow from fixed seeds.

mod endpoint;
mod input;
mod pair;
mod parser;

pub use endpoint::endpoint;
pub use input::Input;
pub use pair::pair;
pub use parser::parser;

/// A target.
pub type Target = fn(&[u8]);

/// All of them, by name.
pub const TARGETS: [(&str, Target); 3] =
    [("parser", parser), ("endpoint", endpoint), ("pair", pair)];
