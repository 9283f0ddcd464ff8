// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! The experiments. Each builds its network, runs it and judges the result.

use crate::net::{FabricSpec, Loss};
use crate::report::{Line, Report, Table};
use crate::sim::{state_bytes, Control, HostSpec, Reaction, Sim, MS, US};

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn pct(x: f64) -> String {
    format!("{:.2} %", 100.0 * x)
}

fn gbps(bytes: u64, ns: u64) -> f64 {
    bytes as f64 * 8.0 / ns as f64
}

/// Jain's index of fairness.
fn jain(x: &[f64]) -> f64 {
    let (sum, squares) = x.iter().fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
    if squares == 0.0 {
        0.0
    } else {
        sum * sum / (x.len() as f64 * squares)
    }
}

/// Prints the paths of all connections if the environment has SIM_VERBOSE.
fn verbose(sim: &Sim, what: &str) {
    if std::env::var_os("SIM_VERBOSE").is_some() {
        eprintln!("{what}");
        for (i, end) in sim.ends.iter().enumerate() {
            for path in end.conn.paths() {
                eprintln!("  {i} {path:?}");
            }
        }
    }
}

/// Which transport, on which kind of network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Engine,
    Roce { lossless: bool },
}

fn build(kind: Kind, mut spec: FabricSpec, hosts: HostSpec, seed: u64) -> Sim {
    let roce = matches!(kind, Kind::Roce { .. });
    spec.lossless |= kind == Kind::Roce { lossless: true };
    let mut sim = Sim::new(spec, hosts, seed);
    sim.roce_on = roce;
    sim
}

/// Goodput of one bulk flow in Gbit/s after a warm-up, and packets sent again and for the first time.
fn bulk(kind: Kind, loss: Loss, seed: u64) -> (f64, u64, u64) {
    let mut spec = FabricSpec::new(4);
    spec.loss = loss;
    let hosts = HostSpec {
        window: 64,
        ..HostSpec::default()
    };
    let mut sim = build(kind, spec, hosts, seed);
    let flow = sim.flow(0, 3, 1 << 20, u64::MAX, Some(MS));
    sim.run(5 * MS);
    let before = sim.placed(flow);
    sim.run(35 * MS);
    let (again, _, sent) = sim.repairs();
    (gbps(sim.placed(flow) - before, 30 * MS), again, sent)
}

/// Bulk throughput under random and burst loss.
pub fn loss(report: &mut Report, seed: u64) -> Result {
    let mut table = Table::new(
        "loss",
        "Bulk throughput under loss (one flow, 100 Gbit/s, share of the lossless throughput)",
        &[
            "loss",
            "metaroce",
            "kept",
            "bound 1-p",
            "sent again",
            "RoCEv2 model",
            "kept",
        ],
    );
    let base = bulk(Kind::Engine, Loss::None, seed).0;
    let roce = Kind::Roce { lossless: true };
    let roce_base = bulk(roce, Loss::None, seed).0;
    let mut lines = [
        ("metaroce", Vec::new()),
        ("RoCEv2 model", Vec::new()),
        ("bound 1-p", Vec::new()),
    ];
    for (name, loss, p, goal) in [
        ("none", Loss::None, 0.0, None),
        ("random 0.1 %", Loss::Random(0.001), 0.001, Some(0.995)),
        ("random 1 %", Loss::Random(0.01), 0.01, Some(0.97)),
        ("random 2 %", Loss::Random(0.02), 0.02, None),
        ("random 5 %", Loss::Random(0.05), 0.05, None),
        ("random 10 %", Loss::Random(0.1), 0.1, Some(0.85)),
        (
            "bursts of 4 us, 1 %",
            Loss::Burst {
                good: 396_000.0,
                bad: 4_000.0,
            },
            0.01,
            None,
        ),
        (
            "bursts of 20 us, 5 %",
            Loss::Burst {
                good: 380_000.0,
                bad: 20_000.0,
            },
            0.05,
            None,
        ),
    ] {
        let (rate, again, sent) = bulk(Kind::Engine, loss, seed);
        let (other, _, _) = bulk(roce, loss, seed);
        let kept = rate / base;
        table.row([
            name.into(),
            format!("{rate:.2}"),
            pct(kept),
            pct(1.0 - p),
            format!("{} of {}", again, sent),
            format!("{other:.2}"),
            pct(other / roce_base),
        ]);
        if !matches!(loss, Loss::Burst { .. }) {
            for (line, y) in lines.iter_mut().zip([kept, other / roce_base, 1.0 - p]) {
                line.1.push((100.0 * p, 100.0 * y));
            }
        }
        if let Some(goal) = goal {
            table.goal(
                format!("at least {} kept at {name}: {}", pct(goal), pct(kept)),
                kept >= goal,
            );
        }
    }
    table
        .notes
        .push("Gbit/s of payload. Loss falls on data and acknowledgements alike.".into());
    let lines = lines.map(|(name, points)| Line {
        name: name.into(),
        points,
    });
    report.plot(
        "loss",
        "Throughput kept under random loss",
        ("loss in %", "% kept"),
        100.0,
        &lines,
    )?;
    report.add(table);
    Ok(())
}

/// Paths with very different delays and no loss: nothing may be sent again.
pub fn skew(report: &mut Report, seed: u64) -> Result {
    let mut table = Table::new(
        "skew",
        "Paths whose delays differ, no loss",
        &[
            "one-way delays",
            "Gbit/s",
            "sent again",
            "probes",
            "packets",
        ],
    );
    for (name, far) in [
        ("equal", 0),
        ("up to 10 fold", 36 * US),
        ("up to 100 fold", 396 * US),
    ] {
        let mut spec = FabricSpec::new(4);
        spec.buffer = 64 << 20;
        spec.spine_delay = (0..8).map(|i| far * i / 7).collect();
        let mut sim = build(Kind::Engine, spec, HostSpec::default(), seed);
        let flow = sim.flow(0, 3, 1 << 20, u64::MAX, Some(MS));
        sim.run(30 * MS);
        let (again, probes, sent) = sim.repairs();
        table.row([
            name.into(),
            format!("{:.2}", gbps(sim.placed(flow), 29 * MS)),
            again.to_string(),
            probes.to_string(),
            sent.to_string(),
        ]);
        table.goal(
            format!("no retransmission with delays {name}: {again}"),
            again == 0,
        );
    }
    report.add(table);
    Ok(())
}

/// Bytes of state.
pub fn state(report: &mut Report, _seed: u64) -> Result {
    let mut table = Table::new("state", "Bytes of engine state", &["what", "bytes"]);
    for paths in [4, 8, 16] {
        let hosts = HostSpec {
            paths,
            ..HostSpec::default()
        };
        let (fixed, buffers, _) = state_bytes(hosts, 64);
        table.row([
            format!("connection, {paths} paths: fixed part"),
            fixed.to_string(),
        ]);
        table.row([
            format!("connection, {paths} paths: windows of its paths"),
            buffers.to_string(),
        ]);
    }
    for window in [16, 64, 256] {
        let (_, _, qp) = state_bytes(HostSpec::default(), window);
        table.row([
            format!("QP, {window} messages in flight, 16 READs"),
            qp.to_string(),
        ]);
    }
    report.add(table);
    Ok(())
}

/// Many senders, one receiver.
pub fn incast(report: &mut Report, seed: u64) -> Result {
    let mut table = Table::new(
        "incast",
        "Incast: N senders, one receiver, 100 Gbit/s",
        &[
            "senders",
            "transport",
            "Gbit/s",
            "Jain",
            "worst share",
            "settled after us",
            "timeouts",
            "drops",
            "max queue KiB",
        ],
    );
    let mut lines = Vec::new();
    for senders in [8usize, 64, 512] {
        for kind in [
            Kind::Engine,
            Kind::Roce { lossless: true },
            Kind::Roce { lossless: false },
        ] {
            if senders > 64 && kind == (Kind::Roce { lossless: false }) {
                continue; // Nothing but drops and time-outs, at great expense.
            }
            let mut spec = FabricSpec::new(senders + 1);
            spec.hosts_per_leaf = 64.min(spec.hosts.div_ceil(2));
            spec.spines = 16;
            spec.buffer = 16 << 20;
            let hosts = HostSpec {
                payload: 1408,
                ..HostSpec::default()
            };
            let mut sim = build(kind, spec, hosts, seed);
            let start = MS;
            for s in 0..senders {
                sim.flow(s + 1, 0, 1 << 20, u64::MAX, Some(start));
            }
            // Long enough for about 32 packets of each sender.
            let step = senders as u64 * 4 * US;
            let mut last: Vec<u64> = vec![0; senders];
            let mut settled = None;
            let mut points = Vec::new();
            let end = start + (20 * step).max(3 * MS);
            let mut t = start;
            let half = start + (end - start) / 2;
            let mut at_half = vec![0; senders];
            while t < end {
                t += step;
                sim.run(t);
                let now: Vec<u64> = (0..senders).map(|f| sim.placed(f)).collect();
                let rates: Vec<f64> = now.iter().zip(&last).map(|(a, b)| (a - b) as f64).collect();
                let j = jain(&rates);
                if j >= 0.99 {
                    settled = settled.or(Some(t));
                } else {
                    settled = None;
                }
                points.push(((t - start) as f64 / 1e6, j));
                if t <= half {
                    at_half.clone_from(&now);
                }
                last = now;
            }
            let rates: Vec<f64> = last
                .iter()
                .zip(&at_half)
                .map(|(a, b)| (a - b) as f64)
                .collect();
            let sum: f64 = rates.iter().sum();
            let fair = sum / senders as f64;
            let worst = rates
                .iter()
                .map(|r| (r / fair - 1.0).abs())
                .fold(0.0, f64::max);
            let j = jain(&rates);
            let (_, timeouts, _) = sim.repairs();
            let name = match kind {
                Kind::Engine => "metaroce",
                Kind::Roce { lossless: true } => "RoCEv2, PFC",
                Kind::Roce { lossless: false } => "RoCEv2, lossy",
            };
            let after = settled.map(|s| (s - start) as f64 / 1e3);
            table.row([
                senders.to_string(),
                name.into(),
                format!("{:.2}", gbps(sum as u64, end - half)),
                format!("{j:.4}"),
                pct(worst),
                after.map_or("never".into(), |a| format!("{a:.0}")),
                timeouts.to_string(),
                sim.fabric.stats.dropped_full.to_string(),
                (sim.fabric.stats.max_queue >> 10).to_string(),
            ]);
            if kind == Kind::Engine {
                table.goal(
                    format!("{senders} senders: Jain at least 0.99: {j:.4}"),
                    j >= 0.99,
                );
                table.goal(
                    format!(
                        "{senders} senders: all within 10 % of the fair share: {}",
                        pct(worst)
                    ),
                    worst <= 0.1,
                );
                table.goal(
                    format!("{senders} senders: no timeout: {timeouts}"),
                    timeouts == 0,
                );
                lines.push(Line {
                    name: format!("metaroce, {senders} senders"),
                    points,
                });
            }
            eprintln!(
                "incast {senders} {name}: {} packets, {:?}",
                sim.packets_delivered, sim.fabric.stats
            );
        }
    }
    report.plot(
        "incast",
        "Incast: Jain's index over time",
        ("ms", "Jain"),
        1.0,
        &lines,
    )?;
    report.add(table);
    Ok(())
}

/// Incast through a shallow queue, without the receiver's grants: what the senders' control is worth where
/// the receiver does not know how narrow the way is.
pub fn shallow(report: &mut Report, seed: u64) -> Result {
    const SENDERS: usize = 8;
    const FRAME: u64 = 1514;
    let (warm, end) = (500 * MS, 1500 * MS);
    let mut table = Table::new(
        "shallow",
        "Incast of 8 senders over 1 Gbit/s with short queues, no grants",
        &[
            "queue",
            "Mbit/s",
            "Jain",
            "longest gap ms",
            "sent again",
            "probes",
            "packets",
            "errors",
        ],
    );
    for (name, packets, marks, fair) in [
        ("drop-tail, 30 packets", 30, false, 0.97),
        ("drop-tail, 100 packets", 100, false, 0.97),
        ("drop-tail, 10,000 packets", 10_000, false, 0.97),
        ("marks from 15 packets on, 1,000", 1000, true, 0.99),
    ] {
        let mut spec = FabricSpec::new(SENDERS + 1);
        spec.hosts_per_leaf = SENDERS + 1;
        spec.gbps = 1;
        spec.delay = 20 * US;
        spec.buffer = packets * FRAME;
        (spec.mark_min, spec.mark_max) = if marks {
            (15 * FRAME, 15 * FRAME + 1)
        } else {
            (u64::MAX, u64::MAX)
        };
        let hosts = HostSpec {
            payload: 1408,
            grants: false,
            ..HostSpec::default()
        };
        let mut sim = build(Kind::Engine, spec, hosts, seed);
        for s in 0..SENDERS {
            sim.flow(s + 1, 0, 64 << 10, u64::MAX, Some(MS));
        }
        sim.run(warm);
        sim.reset_gaps();
        let before: Vec<u64> = (0..SENDERS).map(|f| sim.placed(f)).collect();
        sim.run(end);
        let rates: Vec<f64> = (0..SENDERS)
            .map(|f| (sim.placed(f) - before[f]) as f64)
            .collect();
        let rate = gbps(rates.iter().sum::<f64>() as u64, end - warm) * 1e3;
        let (j, gap) = (jain(&rates), sim.longest_gap() as f64 / 1e6);
        let (again, probes, sent) = sim.repairs();
        verbose(&sim, &format!("{name}: {rates:?}"));
        table.row([
            name.into(),
            format!("{rate:.0}"),
            format!("{j:.4}"),
            format!("{gap:.1}"),
            again.to_string(),
            probes.to_string(),
            sent.to_string(),
            sim.errors().to_string(),
        ]);
        // Of what payload can be: 1408 of 1408 + 36 + 4 + 66 bytes.
        let share = rate / (1000.0 * 1408.0 / 1514.0);
        table.goal(format!("{name}: Jain at least {fair}: {j:.4}"), j >= fair);
        table.goal(
            format!("{name}: at least 95 % of the link: {}", pct(share)),
            share >= 0.95,
        );
        table.goal(format!("{name}: no gap of 20 ms: {gap:.1} ms"), gap < 20.0);
        table.goal(format!("{name}: no error"), sim.errors() == 0);
    }
    report.add(table);
    Ok(())
}

/// One QP over links that ECMP chooses by hash; the busiest is cut, unannounced, and repaired.
pub fn ecmp(report: &mut Report, seed: u64) -> Result {
    const SEEDS: u64 = 8;
    const RATE: u64 = 1;
    let (warm, down, up, end) = (400 * MS, 800 * MS, 1300 * MS, 2600 * MS);
    let mut table = Table::new(
        "ecmp",
        "One QP over links of 1 Gbit/s chosen by ECMP; the busiest is cut at 0.8 s and repaired at 1.3 s",
        &[
            "links",
            "worst of 8 seeds: links' worth",
            "mean",
            "least to most used",
            "longest gap ms, all seeds",
            "worst share of the rest",
            "worst, repaired: links' worth",
            "moves",
            "errors",
        ],
    );
    for (links, goal) in [(2usize, 1.85), (4, 3.7), (8, 7.2)] {
        let unit = RATE as f64 * 4096.0 / f64::from(4096 + 40 + crate::net::OVERHEAD);
        let (mut worth, mut rest, mut repaired) = (Vec::new(), Vec::new(), Vec::new());
        let (mut gaps, mut even) = (Vec::new(), f64::MAX);
        let (mut moves, mut errors) = (0, 0);
        for s in 0..SEEDS {
            let mut spec = FabricSpec::new(2);
            spec.hosts_per_leaf = 1;
            spec.spines = links;
            spec.gbps = 100;
            spec.spine_gbps = Some(RATE);
            spec.delay = 12 * US;
            spec.buffer = 4 << 20;
            (spec.mark_min, spec.mark_max) = (u64::MAX, u64::MAX);
            let hosts = HostSpec {
                grants: false,
                ..HostSpec::default()
            };
            let mut sim = build(Kind::Engine, spec, hosts, seed + 1000 * s);
            let flow = sim.flow(0, 1, 64 << 10, u64::MAX, Some(MS));
            let rate = |sim: &Sim, since: u64, ns: u64| gbps(sim.placed(flow) - since, ns) / unit;
            sim.run(warm);
            let placed = sim.placed(flow);
            let before = sim.fabric.spine_bytes(0);
            sim.run(down);
            worth.push(rate(&sim, placed, down - warm));
            let used: Vec<u64> = sim
                .fabric
                .spine_bytes(0)
                .iter()
                .zip(&before)
                .map(|(a, b)| a - b)
                .collect();
            let (least, most) = (
                used.iter().min().unwrap_or(&0),
                used.iter().max().unwrap_or(&1),
            );
            even = even.min(*least as f64 / (*most).max(1) as f64);
            let spine = used.iter().position(|u| u == most).unwrap_or(0);
            sim.fabric.set_spine(0, spine, false);
            sim.reset_gaps();
            sim.run(down + 100 * MS);
            let placed = sim.placed(flow);
            sim.run(up);
            rest.push(rate(&sim, placed, up - down - 100 * MS) / (links - 1) as f64);
            gaps.push(sim.longest_gap() as f64 / 1e6);
            sim.fabric.set_spine(0, spine, true);
            sim.run(up + 1000 * MS);
            let placed = sim.placed(flow);
            sim.run(end);
            repaired.push(rate(&sim, placed, end - up - 1000 * MS));
            moves += sim.ends.iter().map(|e| e.end.moves).sum::<u64>();
            errors += sim.errors();
            verbose(&sim, &format!("{links} links, seed {s}: {used:?}"));
        }
        let least = |v: &[f64]| v.iter().copied().fold(f64::MAX, f64::min);
        let most = gaps.iter().copied().fold(0.0, f64::max);
        table.row([
            links.to_string(),
            format!("{:.2}", least(&worth)),
            format!("{:.2}", worth.iter().sum::<f64>() / SEEDS as f64),
            pct(even),
            gaps.iter()
                .map(|g| format!("{g:.0}"))
                .collect::<Vec<_>>()
                .join(" "),
            pct(least(&rest)),
            format!("{:.2}", least(&repaired)),
            moves.to_string(),
            errors.to_string(),
        ]);
        table.goal(
            format!(
                "{links} links: at least {goal} links' worth: {:.2}",
                least(&worth)
            ),
            least(&worth) >= goal,
        );
        table.goal(
            format!("{links} links: no gap of 20 ms: {most:.1} ms"),
            most < 20.0,
        );
        table.goal(
            format!(
                "{links} links: at least 95 % of the remaining capacity: {}",
                pct(least(&rest))
            ),
            least(&rest) >= 0.95,
        );
        table.goal(
            format!(
                "{links} links: all again within a second: {:.2} links' worth",
                least(&repaired)
            ),
            least(&repaired) >= goal,
        );
        table.goal(format!("{links} links: no error"), errors == 0);
    }
    report.add(table);
    Ok(())
}

/// Thousands of connections over more and more planes.
pub fn planes(report: &mut Report, seed: u64) -> Result {
    const HOSTS: usize = 90;
    let mut table = Table::new(
        "planes",
        "4,005 connections (all pairs of 90 hosts) over planes of 10 Gbit/s",
        &[
            "planes",
            "Gbit/s in all",
            "per plane and host",
            "of linear",
            "sent again",
            "probes",
        ],
    );
    let mut one = 0.0;
    let mut points = Vec::new();
    for planes in [1usize, 2, 4, 8] {
        let mut spec = FabricSpec::new(HOSTS);
        spec.planes = planes;
        spec.gbps = 10;
        spec.hosts_per_leaf = 15;
        spec.spines = 15;
        spec.buffer = 4 << 20;
        let hosts = HostSpec {
            payload: 4096,
            initial_window: 2,
            window: 4,
            coalesce: 5 * US,
            ..HostSpec::default()
        };
        let mut sim = build(Kind::Engine, spec, hosts, seed);
        for a in 0..HOSTS {
            for b in a + 1..HOSTS {
                sim.flow(a, b, 1 << 18, u64::MAX, Some(MS));
                sim.flow(b, a, 1 << 18, u64::MAX, Some(MS));
            }
        }
        sim.run(3 * MS);
        let before = sim.placed_all();
        sim.run(5 * MS);
        let rate = gbps(sim.placed_all() - before, 2 * MS);
        let each = rate / (HOSTS * planes) as f64;
        if planes == 1 {
            one = rate;
        }
        let linear = rate / (one * planes as f64);
        let (again, probes, _) = sim.repairs();
        table.row([
            planes.to_string(),
            format!("{rate:.1}"),
            format!("{each:.2}"),
            pct(linear),
            again.to_string(),
            probes.to_string(),
        ]);
        points.push((planes as f64, rate));
        if planes > 1 {
            table.goal(
                format!("{planes} planes: at least 97 % of linear: {}", pct(linear)),
                linear >= 0.97,
            );
        }
        eprintln!(
            "planes {planes}: {} packets, {:?}",
            sim.packets_delivered, sim.fabric.stats
        );
    }
    let linear = points.iter().map(|p| (p.0, one * p.0)).collect();
    let lines = [
        Line {
            name: "metaroce".into(),
            points,
        },
        Line {
            name: "linear".into(),
            points: linear,
        },
    ];
    report.plot(
        "planes",
        "4,005 connections over planes",
        ("planes", "Gbit/s"),
        0.0,
        &lines,
    )?;
    report.add(table);
    Ok(())
}

/// A plane dies in mid-run and comes back.
pub fn cut(report: &mut Report, seed: u64) -> Result {
    const HOSTS: usize = 4;
    const STEP: u64 = 20 * US;
    let (down, up) = (10 * MS, 30 * MS);
    let mut table = Table::new(
        "cut",
        "One of four planes is cut at 10 ms and repaired at 30 ms (4 hosts in a ring, 4 x 10 Gbit/s each)",
        &["how", "before", "95 % of the rest after ms", "lowest", "with 3 planes", "back after ms", "at the end", "errors"],
    );
    let mut lines = Vec::new();
    for (name, carrier, end) in [
        ("carrier lost", true, 60 * MS),
        ("silently", false, 330 * MS),
    ] {
        let mut spec = FabricSpec::new(HOSTS);
        spec.planes = 4;
        spec.gbps = 10;
        let hosts = HostSpec {
            window: 64,
            ..HostSpec::default()
        };
        let mut sim = build(Kind::Engine, spec, hosts, seed);
        for a in 0..HOSTS {
            sim.flow(a, (a + 1) % HOSTS, 1 << 20, u64::MAX, Some(MS));
        }
        sim.control(
            down,
            Control::Plane {
                plane: 1,
                up: false,
                carrier,
            },
        );
        sim.control(
            up,
            Control::Plane {
                plane: 1,
                up: true,
                carrier,
            },
        );
        let mut series: Vec<(u64, f64)> = Vec::new();
        let mut last = 0;
        let mut t = 0;
        let mut rtt = 0;
        while t < end {
            t += STEP;
            if t == down {
                rtt = sim
                    .ends
                    .iter()
                    .flat_map(|e| e.conn.paths())
                    .map(|p| p.srtt.as_micros())
                    .max()
                    .unwrap_or(0);
            }
            sim.run(t);
            let now = sim.placed_all();
            series.push((t, gbps(now - last, STEP) / HOSTS as f64));
            last = now;
        }
        let mean = |a: u64, b: u64| {
            let part: Vec<f64> = series
                .iter()
                .filter(|s| s.0 > a && s.0 <= b)
                .map(|s| s.1)
                .collect();
            part.iter().sum::<f64>() / part.len().max(1) as f64
        };
        let before = mean(5 * MS, down);
        let first = |a: u64, least: f64| {
            series
                .windows(5)
                .find(|w| w[0].0 > a && w.iter().map(|s| s.1).sum::<f64>() >= 5.0 * least)
                .map(|w| w[0].0 - a)
        };
        let recovered = first(down, 0.95 * 0.75 * before);
        let rejoined = first(up, 0.97 * before);
        let lowest = series
            .iter()
            .filter(|s| s.0 > down + STEP && s.0 <= up)
            .map(|s| s.1)
            .fold(f64::MAX, f64::min);
        let rest = mean(down + 10 * MS, up);
        let show = |t: Option<u64>| t.map_or("never".into(), |t| format!("{:.2}", t as f64 / 1e6));
        table.row([
            name.into(),
            format!("{before:.2}"),
            show(recovered),
            format!("{lowest:.2}"),
            format!("{rest:.2}"),
            show(rejoined),
            format!("{:.2}", mean(end - 10 * MS, end)),
            sim.errors().to_string(),
        ]);
        if carrier {
            let fast = recovered.is_some_and(|t| t <= 3 * rtt * US);
            table.goal(format!("{name}: 95 % of the remaining capacity within three round trips of {rtt} us: {} ms", show(recovered)), fast);
        }
        let share = rest / (0.75 * before);
        table.goal(
            format!(
                "{name}: at least 95 % of the remaining capacity: {}",
                pct(share)
            ),
            share >= 0.95,
        );
        table.goal(
            format!("{name}: no error seen by applications"),
            sim.errors() == 0,
        );
        table.goal(
            format!("{name}: back within a second: {} ms", show(rejoined)),
            rejoined.is_some(),
        );
        let points = series
            .iter()
            .filter(|s| s.0 <= 45 * MS)
            .map(|s| (s.0 as f64 / 1e6, s.1))
            .collect();
        lines.push(Line {
            name: name.into(),
            points,
        });
        eprintln!(
            "cut {name}: {} packets, {:?}",
            sim.packets_delivered, sim.fabric.stats
        );
    }
    table.notes.push(
        "Gbit/s of payload per host. A silent failure is detected by unanswered probes.".into(),
    );
    report.plot(
        "cut",
        "A plane is cut at 10 ms, repaired at 30 ms",
        ("ms", "Gbit/s per host"),
        40.0,
        &lines,
    )?;
    report.add(table);
    Ok(())
}

/// Collectives on 64 hosts, against the RoCEv2 model.
pub fn collectives(report: &mut Report, seed: u64) -> Result {
    const HOSTS: usize = 64;
    let mut table = Table::new(
        "collectives",
        "Collectives on 64 hosts, 100 Gbit/s, 8 leaves, 8 spines: completion in ms",
        &[
            "collective",
            "loss",
            "metaroce",
            "RoCEv2, PFC",
            "RoCEv2, lossy",
            "ideal",
        ],
    );
    let wire = f64::from(4096 + 68 + crate::net::OVERHEAD) / 4096.0 / 12.5;
    for collective in [
        "permutation 8 MiB",
        "all-to-all 64 KiB",
        "ring all-reduce 16 MiB",
    ] {
        for (name, loss) in [
            ("0", Loss::None),
            ("0.1 %", Loss::Random(0.001)),
            ("1 %", Loss::Random(0.01)),
        ] {
            let mut cells = Vec::new();
            let mut ideal = 0.0;
            for kind in [
                Kind::Engine,
                Kind::Roce { lossless: true },
                Kind::Roce { lossless: false },
            ] {
                let mut spec = FabricSpec::new(HOSTS);
                spec.hosts_per_leaf = 8;
                spec.loss = loss;
                let hosts = HostSpec {
                    initial_window: 8,
                    window: 4,
                    ..HostSpec::default()
                };
                let mut sim = build(kind, spec, hosts, seed);
                if collective.starts_with("perm") {
                    ideal = f64::from(8u32 << 20) * wire;
                    for a in 0..HOSTS {
                        sim.flow(a, (a + 24) % HOSTS, 8 << 20, 1, Some(MS));
                    }
                } else if collective.starts_with("all") {
                    ideal = 63.0 * f64::from(64u32 << 10) * wire;
                    for a in 0..HOSTS {
                        for b in 1..HOSTS {
                            sim.flow(a, (a + b) % HOSTS, 64 << 10, 1, Some(MS));
                        }
                    }
                } else {
                    let steps = 2 * (HOSTS as u64 - 1);
                    let chunk = (16u32 << 20) / HOSTS as u32;
                    ideal = steps as f64 * f64::from(chunk) * wire;
                    sim.reaction = Reaction::Ring { steps };
                    for a in 0..HOSTS {
                        sim.flow(a, (a + 1) % HOSTS, chunk, steps, Some(MS));
                    }
                }
                sim.run(400 * MS);
                let last = sim.flows.iter().map(|f| f.last_receive).max().unwrap_or(0);
                cells.push(if sim.unfinished > 0 {
                    "more than 400".into()
                } else {
                    format!("{:.3}", (last - MS) as f64 / 1e6)
                });
            }
            eprintln!("collectives {collective} {name}: {cells:?}");
            let mut row = vec![collective.to_string(), name.to_string()];
            row.append(&mut cells);
            row.push(format!("{:.3}", ideal / 1e6));
            table.row(row);
        }
    }
    report.add(table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(kind: Kind, loss: Loss) -> (u64, u64) {
        let mut spec = FabricSpec::new(4);
        spec.loss = loss;
        let mut sim = build(kind, spec, HostSpec::default(), 7);
        let flow = sim.flow(0, 3, 1 << 20, u64::MAX, Some(MS));
        sim.run(5 * MS);
        (sim.placed(flow), sim.repairs().0)
    }

    #[test]
    fn a_run_depends_on_its_seed_only() {
        let loss = Loss::Random(0.02);
        assert_eq!(short(Kind::Engine, loss), short(Kind::Engine, loss));
    }

    #[test]
    fn loss_costs_what_is_lost() {
        let (whole, again) = short(Kind::Engine, Loss::None);
        assert_eq!(again, 0);
        let (lossy, again) = short(Kind::Engine, Loss::Random(0.01));
        assert!(again > 0);
        assert!(lossy * 100 > whole * 96, "{lossy} of {whole}");
        let (roce, _) = short(Kind::Roce { lossless: true }, Loss::Random(0.01));
        assert!(roce < lossy);
    }
}
