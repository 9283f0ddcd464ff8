// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Discrete-event simulation of networks around the real protocol engine.
//!
//! The same source that runs in the kernel module decides about every packet here; the network, the
//! clock and the applications are simulated. A run depends on its seed only.

mod host;
mod net;
mod report;
mod roce;
mod scenarios;
mod sim;

use clap::Parser;
use std::path::PathBuf;
use std::time::Instant;

/// Simulates the transport on lossy networks and compares it with a model of RoCEv2.
#[derive(Parser)]
struct Args {
    /// Experiments to run: all, or some of loss, skew, incast, shallow, ecmp, planes, cut, collectives, state.
    #[arg(default_value = "all")]
    experiments: Vec<String>,
    /// Directory for tables and plots.
    #[arg(long, default_value = "out/sim")]
    out: PathBuf,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

type Experiment = fn(&mut report::Report, u64) -> Result<(), Box<dyn std::error::Error>>;

const EXPERIMENTS: &[(&str, Experiment)] = &[
    ("loss", scenarios::loss),
    ("skew", scenarios::skew),
    ("incast", scenarios::incast),
    ("shallow", scenarios::shallow),
    ("ecmp", scenarios::ecmp),
    ("planes", scenarios::planes),
    ("cut", scenarios::cut),
    ("collectives", scenarios::collectives),
    ("state", scenarios::state),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let mut report = report::Report::new(&args.out)?;
    for wanted in &args.experiments {
        if wanted != "all" && !EXPERIMENTS.iter().any(|(name, _)| name == wanted) {
            return Err(format!("error: There is no experiment {wanted}.").into());
        }
    }
    for (name, run) in EXPERIMENTS {
        if args.experiments.iter().any(|w| w == "all" || w == name) {
            let began = Instant::now();
            run(&mut report, args.seed)?;
            eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
        }
    }
    report.finish()?;
    Ok(())
}
