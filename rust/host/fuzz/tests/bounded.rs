// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The fuzz targets without a fuzzer: inputs that once broke a rule, and some that follow from fixed seeds.

use metaroce_fuzz::{Target, TARGETS};
use metaroce_model::Rng;
use std::path::Path;

fn target(name: &str) -> Target {
    TARGETS.iter().find(|t| t.0 == name).unwrap().1
}

/// Runs `rounds` inputs; every byte is zero, any, or one of few, so that all kinds of histories come up.
fn run(name: &str, rounds: u64) {
    let target = target(name);
    for seed in 0..rounds {
        let mut rng = Rng(seed);
        let len = rng.below(if seed % 16 == 0 { 2000 } else { 300 });
        let zeros = rng.below(90) as u32 * 10_000;
        let data: Vec<u8> = (0..len)
            .map(|_| {
                if rng.chance(zeros) {
                    0
                } else {
                    rng.draw() as u8
                }
            })
            .collect();
        let broken = std::panic::catch_unwind(|| target(&data)).is_err();
        assert!(!broken, "{name}: input {seed} breaks a rule: {data:?}");
    }
}

#[test]
fn parser() {
    run("parser", 100_000);
}

#[test]
fn endpoint() {
    run("endpoint", 4_000);
}

#[test]
fn pair() {
    run("pair", 1_000);
}

/// Inputs found by a fuzzer, under `regressions/TARGET/`.
#[test]
fn regressions() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut files = 0;
    for (name, target) in TARGETS {
        let Ok(list) = std::fs::read_dir(dir.join(name)) else {
            continue;
        };
        for file in list {
            let file = file.unwrap().path();
            println!("{}", file.display());
            target(&std::fs::read(&file).unwrap());
            files += 1;
        }
    }
    println!("{files} inputs");
}
