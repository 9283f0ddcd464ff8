#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Loss benchmark in virtual time: chooses cases, runs each in a user-mode
kernel of its own, prints one line for each and writes JSON.

Called by qemu/lossbench.sh, which builds what it needs. A case runs on a fresh
kernel whose time and entropy are fixed by the seed, so a result repeats
closely. `--list` shows the cases, `--case PATTERN` chooses some of them, and
`--set NAME=VALUE` changes one setting (see selftests/lossbench/case.py). Tables,
goals and the picture are made by lossbench_report.py; `--report FILE...` makes
them again from results.json of earlier runs.

`--stock` runs a short version, with slower links, in one boot of the stock
kernel under QEMU, whose time is counted in instructions.
"""
import argparse
import concurrent.futures
import copy
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import lossbench_report
from lossbench_report import DRIVERS

LOSSES = [0, 0.1, 1, 5, 10]
# What a kernel log must not hold.
BAD_LOG = re.compile(r"BUG:|WARNING:|Oops|Kernel panic|possible recursive locking|possible circular|"
                     r"rcu.*(stall|self-detected)|blocked for more than|unregister_netdevice: waiting|refcount_t:")
# UML's PCI bridge warns when it is told of no device; only the bus is needed.
KNOWN_LOG = re.compile(r"WARNING: arch/um/drivers/virtio_pcidev\.c")


def cases():
    """All cases, in the order of the report: (group, name, settings)."""
    out = []

    def add(group, name, drivers=None, quick=False, **settings):
        out.append({"group": group, "name": name, "drivers": drivers or DRIVERS, "quick": quick,
                    "settings": settings})

    for speed, rate, ms, warm in (("1g", 1000, 1000, 200), ("10g", 10000, 200, 100)):
        for op in ("write", "send", "read"):
            for loss in LOSSES:
                add(f"loss-{speed}-{op}", f"loss-{speed}-{op}-{loss:g}", quick=speed == "1g" and op == "write" and
                    loss in (0, 1, 10), drivers=None if op == "write" else ["metaroce", "rxe", "siw"],
                    rate_mbit=rate, op=op, loss_pct=loss, ms=ms, warm_ms=warm)
        for pct in (5, 25):
            add(f"order-{speed}", f"order-{speed}-reorder-{pct}", quick=speed == "1g" and pct == 25, rate_mbit=rate,
                reorder_pct=pct, ms=ms, warm_ms=warm)
        for us in (5, 20, 50):
            add(f"order-{speed}", f"order-{speed}-jitter-{us}", quick=speed == "1g" and us == 50, rate_mbit=rate,
                jitter_us=us, ms=ms, warm_ms=warm)
    for speed, rate, ms, warm in (("200m", 200, 1000, 300), ("1g", 1000, 400, 200)):
        for paths in (1, 2, 4, 8):
            add(f"ecmp-{speed}", f"ecmp-{speed}-{paths}", quick=speed == "200m" and paths == 4, rate_mbit=rate,
                paths=paths, ms=ms, warm_ms=warm, capture=speed == "200m")
    add("cut", "cut-ecmp4-200m", quick=True, rate_mbit=200, paths=4, ms=3500, warm_ms=500,
        cut={"at_ms": 500, "restore_ms": 1500})
    add("cut", "cut-ecmp4-1g", rate_mbit=1000, paths=4, ms=3000, warm_ms=500, cut={"at_ms": 500, "restore_ms": 1500})
    for name, queue in (
            ("droptail-30", {"kind": "pfifo", "packets": 30}),
            ("droptail-100", {"kind": "pfifo", "packets": 100}),
            ("deep", {"kind": "pfifo", "packets": 10000}),
            ("codel", {"kind": "codel", "args": ["limit", "1000", "ecn"]}),
            ("step", {"kind": "codel", "args": ["limit", "1000", "target", "1s", "interval", "1s", "ecn",
                                               "ce_threshold", "150us"]})):
        add("incast", f"incast-8-{name}", quick=name in ("droptail-30", "codel"), senders=8, queue=queue,
            ms=3000, warm_ms=500)
    add("delay", "delay-4-paths", drivers=["metaroce"], quick=True, paths=4, rate_mbit=1000,
        delay_us=[100, 1000, 10000, 50000], ms=3000, warm_ms=1000)
    for qps in (8, 256):
        add("qps", f"qps-{qps}", paths=4, rate_mbit=1000, qps=qps, depth=16 if qps == 8 else 2, ms=300, warm_ms=200,
            drivers=["metaroce", "rxe", "siw"])
    return out


def stock_cases():
    """The short version: links so slow that the guest's one emulated CPU is no limit."""
    out = []

    def add(group, name, drivers=None, **settings):
        settings = {"burst_us": 500, "delay_us": 500, "samples_ms": [], "bin_ms": 50, "ms": 3000, "warm_ms": 500,
                    **settings}
        out.append({"group": group, "name": name, "drivers": drivers or DRIVERS, "quick": True, "settings": settings})

    for loss in LOSSES:
        add("loss", f"loss-50m-write-{loss:g}", rate_mbit=50, loss_pct=loss)
    add("order", "order-50m-reorder-25", rate_mbit=50, reorder_pct=25)
    add("order", "order-50m-jitter-200", rate_mbit=50, jitter_us=200)
    for paths in (1, 4):
        add("ecmp", f"ecmp-10m-{paths}", rate_mbit=10, paths=paths, capture=True)
    add("cut", "cut-ecmp4-10m", rate_mbit=10, paths=4, ms=4500, cut={"at_ms": 500, "restore_ms": 2000})
    for name, queue in (("droptail-30", {"kind": "pfifo", "packets": 30}),
                        ("codel", {"kind": "codel", "args": ["limit", "1000", "ecn"]})):
        add("incast", f"incast-8-{name}", rate_mbit=50, senders=8, queue=queue)
    return out


def jain(values):
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def path_lines(samples, which="end", device=None):
    """The lines of `which` sample for each path, as dictionaries."""
    rows = []
    for key, devices in samples.items():
        if not key.startswith(which):
            continue
        for dev, lines in devices.items():
            if device and dev != device:
                continue
            for line in lines:
                words = line.split()
                if words[:1] == ["path"]:
                    row = {words[i]: int(words[i + 1]) for i in range(0, len(words) - 1, 2)
                           if re.fullmatch(r"-?\d+", words[i + 1])}
                    row["device"] = dev
                    rows.append(row)
    return rows


def mean(bins, bin_ms, begin_ms, end_ms):
    """Mbit/s between two times; None when they are not in `bins`."""
    first, last = int(begin_ms // bin_ms), int(end_ms // bin_ms)
    part = bins[first:last]
    return round(sum(part) * 8 / (len(part) * bin_ms) / 1e3, 2) if len(part) == last - first > 0 else None


def summarise(case, raw):
    """One flat record from what a guest reported."""
    tcp = case["driver"] == "tcp"
    rec = {"errors": 0, "error": "", "gap_ms": 0.0, "unfinished": 0, "bad_words": 0}
    rates, bins = [], []
    for flow in raw["flows"]:
        if "failed" in flow or "error" in flow:
            rec["errors"] += 1
            rec["error"] = flow.get("failed") or flow.get("error")
            rates.append(0.0)
            continue
        if tcp:
            parts = [i["sum"] for i in flow["intervals"] if not i["sum"].get("omitted")]
            seconds = sum(p["seconds"] for p in parts)
            rates.append(sum(p["bytes"] for p in parts) * 8 / seconds / 1e6 if seconds else 0.0)
            bins.append([p["bytes"] for p in parts])
            continue
        rates.append(flow["bytes"] * 8 / flow["ms"] / 1e3)
        bins.append(flow["bins"])
        rec["bin_ms"] = flow["bin_ms"]
        rec["gap_ms"] = max(rec["gap_ms"], flow["longest_gap_us"] / 1e3)
        rec["errors"] += flow["errors"]
        rec["error"] = rec["error"] or flow["first_error"]
        rec["unfinished"] += flow["unfinished"]
        rec["bad_words"] += flow["bad_words"] + flow["missing"]
    rec["mbit"] = round(sum(rates), 2)
    rec["shares"] = [round(r, 2) for r in rates]
    rec["jain"] = round(jain(rates), 4)
    rec["bins"] = [sum(col) for col in zip(*bins)] if bins else []
    for side in ("data", "acks"):
        now, before = raw["fabric"][side], raw["fabric_before"][side]
        for name in ("packets", "bytes", "lost", "queue_drops", "marked"):
            rec[f"{side}_{name}"] = sum(n[name] - b[name] for n, b in zip(now, before))
        rec[f"{side}_by_path"] = [n["bytes"] - b["bytes"] for n, b in zip(now, before)]
    times = {event: at for event, at in raw["events"]}
    # READ responses flow the other way.
    data = "acks" if case.get("op") == "read" else "data"
    if case.get("rate_mbit"):
        # From the last but one sample of the counters to the last.
        ms = times["end"] - times["measured"]
        rec["link_busy"] = round(rec[f"{data}_bytes"] * 8 / ms / 1e3 / case["rate_mbit"] / case.get("paths", 1), 4)
    if rec[f"{data}_packets"]:
        rec["packet_bytes"] = round(rec[f"{data}_bytes"] / rec[f"{data}_packets"], 1)
    by_path = rec[f"{data}_by_path"]
    if len(by_path) > 1 and sum(by_path):
        rec["spread"] = round((max(by_path) - min(by_path)) * len(by_path) / sum(by_path), 4)
    if case.get("cut") and rec["bins"] and "bin_ms" in rec:
        warm, cut = case["warm_ms"], case["cut"]
        end = warm + case["ms"]
        rec["mbit_before"] = mean(rec["bins"], rec["bin_ms"], warm, warm + cut["at_ms"])
        rec["mbit_cut"] = mean(rec["bins"], rec["bin_ms"], warm + cut["at_ms"], warm + cut["restore_ms"])
        rec["mbit_restored"] = mean(rec["bins"], rec["bin_ms"], warm + cut["restore_ms"] + 1000, end)
    if case["driver"] == "metaroce":
        rec["connections"] = sum(line.startswith("conn ") for key, devices in raw["samples"].items()
                                 if key.startswith("end") for lines in devices.values() for line in lines)
        rows = path_lines(raw["samples"])
        for name in ("rtx", "probes", "nak", "moves"):
            rec[name] = sum(row.get(name, 0) for row in rows)
        rec["dup"] = sum(row.get("dup", 0) for row in rows)
    if raw.get("source_ports"):
        rec["source_ports"] = len(raw["source_ports"])
        # Ports that carry traffic, not those of single probes.
        rec["busy_ports"] = sum(n * 100 > sum(raw["source_ports"].values()) for n in raw["source_ports"].values())
    rec["events"] = raw["events"]
    return rec


def judge(case, seed, out, seconds, timed_out):
    """The record of a case from what its guest left in `out`."""
    settings = {**case["settings"], "driver": case["driver"], "seed": seed, "name": case["name"]}
    record = {"case": case["name"], "group": case["group"], "driver": case["driver"], "seed": seed,
              "settings": case["settings"], "host_seconds": round(seconds, 1)}
    try:
        with open(os.path.join(out, "result.json"), encoding="utf-8") as f:
            raw = json.load(f)
        record.update(summarise({**case, **settings}, raw))
        if settings.get("loss_pct") and not (record["data_lost"] and record["acks_lost"]):
            record["failed"] = "the fabric lost nothing in one direction"
        if record.get("packet_bytes", 0) > settings.get("mtu", 1500) + 14:
            record["failed"] = "the fabric saw packets larger than the wire's"
        record["virtual_seconds"] = round(raw["guest_seconds"], 1)
    except (OSError, ValueError, KeyError) as error:
        record["failed"] = "no result within the limit" if timed_out else f"no result ({error}); see {out}"
    log = ""
    for file in ("kernel.log", "console.log"):
        try:
            with open(os.path.join(out, file), encoding="utf-8", errors="replace") as f:
                log += f.read()
        except OSError:
            pass
    bad = sorted({line.strip() for line in log.splitlines()
                  if BAD_LOG.search(line) and not KNOWN_LOG.search(line)})
    if bad:
        record["log"] = bad[:5]
    return record


class Runner:
    def __init__(self, args):
        self.args = args
        self.lock = threading.Lock()
        self.running = set()

    def run(self, case, seed):
        """Runs one case; returns its record, with `failed` when there is none."""
        args = self.args
        name = f"{case['name']}-{case['driver']}-{seed}"
        out = os.path.join(args.out, "runs", name)
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        settings = {**case["settings"], "driver": case["driver"], "seed": seed, "name": name}
        with open(os.path.join(out, "case.json"), "w", encoding="utf-8") as f:
            json.dump(settings, f, indent=1)
        uml_dir = tempfile.mkdtemp(prefix="uml")
        cmd = args.wrap.split() + [
            args.chroot, "env", f"METAROCE_SEED={seed}", f"LD_PRELOAD={args.payload}/uml-seed.so", "TMPDIR=/dev/shm",
            args.kernel, f"mem={args.memory}M", f"initrd={args.initramfs}", "time-travel=inf-cpu",
            "time-travel-start=1800000000000000000", "con=null", "con0=null,fd:1", "ssl=null", "panic=-1",
            f"uml_dir={uml_dir}", "seccomp=auto", "loglevel=4",
            f"metaroce.root={args.root}", f"metaroce.payload={args.payload}", f"metaroce.out={out}"]
        start = time.monotonic()
        with open(os.path.join(out, "console.log"), "wb") as console:
            proc = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT,
                                    start_new_session=True)
            with self.lock:
                self.running.add(proc)
            timed_out = False
            try:
                proc.wait(timeout=args.timeout)
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                self.end(proc)
        shutil.rmtree(uml_dir, ignore_errors=True)
        return judge(case, seed, out, time.monotonic() - start, timed_out)

    def end(self, proc):
        with self.lock:
            self.running.discard(proc)
        try:
            os.killpg(proc.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        proc.wait()

    def end_all(self):
        with self.lock:
            procs = list(self.running)
        for proc in procs:
            self.end(proc)


class StockRunner:
    """All cases in one boot of the stock kernel: qemu/lossbench-guest.sh runs one after the other."""

    def __init__(self, args):
        self.args = args

    def run_all(self, chosen, seeds, show):
        work = tempfile.mkdtemp(prefix="lossbench")
        try:
            os.makedirs(os.path.join(work, "cases"))
            runs = []
            for case in chosen:
                for seed in seeds:
                    name = f"{len(runs):03}-{case['name']}-{case['driver']}-{seed}"
                    settings = {**case["settings"], "driver": case["driver"], "seed": seed, "name": name}
                    with open(os.path.join(work, "cases", name + ".json"), "w", encoding="utf-8") as f:
                        json.dump(settings, f, indent=1)
                    runs.append((name, case, seed))
            shutil.copy(os.path.join(self.args.payload, "bin", "flow"), work)
            here = os.path.dirname(os.path.abspath(__file__))
            extra = ":".join(os.path.join(work, part) for part in ("cases", "flow"))
            subprocess.run([os.path.join(here, "run.sh"), "--icount", "--timeout", str(60 * len(runs) + 600), "--script",
                            os.path.join(here, "lossbench-guest.sh")], check=False,
                           env={**os.environ, "METAROCE_EXTRA": extra, "METAROCE_OUT": self.args.out})
            top = os.path.join(self.args.out, "tests", "lossbench-guest.sh")
            for name, case, seed in runs:
                out = os.path.join(top, name)
                rec = judge(case, seed, out, 0, False)
                if not os.path.exists(os.path.join(out, "cleaned")) and "failed" not in rec:
                    rec["failed"] = "devices, namespaces or the module could not be taken away"
                show(rec)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def line_of(rec):
    if "failed" in rec:
        return f"{rec['case']:28} {rec['driver']:8} seed {rec['seed']}: FAILED: {rec['failed']}"
    extra = ""
    if len(rec["shares"]) > 1:
        extra += f" jain {rec['jain']:.4f}"
    if "rtx" in rec:
        extra += f" rtx {rec['rtx']} probes {rec['probes']} dup {rec['dup']} moves {rec['moves']}"
    if rec["errors"]:
        extra += f" ERRORS {rec['errors']} ({rec['error']})"
    if rec["bad_words"] or rec["unfinished"]:
        extra += f" BAD {rec['bad_words']} UNFINISHED {rec['unfinished']}"
    if "log" in rec:
        extra += f" LOG {rec['log'][0][:80]}"
    return (f"{rec['case']:28} {rec['driver']:8} seed {rec['seed']}: {rec['mbit']:8.1f} Mbit/s gap {rec['gap_ms']:.1f} ms"
            f" lost {rec['data_lost']}+{rec['acks_lost']} of {rec['data_packets']} queue {rec['data_queue_drops']}"
            f" marked {rec['data_marked']}{extra} ({rec['host_seconds']:.0f} s)")


def parse_value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("chroot", "kernel", "initramfs", "root", "payload", "out"):
        ap.add_argument(f"--{name}", help=argparse.SUPPRESS)
    ap.add_argument("--stock", action="store_true", help="the short version on the stock kernel")
    ap.add_argument("--report", nargs="+", metavar="RESULTS.json", help="runs nothing, makes the report again; the "
                    "record of a later file replaces that of an earlier one")
    ap.add_argument("--command", default="make lossbench", help=argparse.SUPPRESS)
    ap.add_argument("--case", action="append", default=[], metavar="PATTERN", help="only cases whose name fits")
    ap.add_argument("--driver", action="append", default=[], choices=DRIVERS, help="only this transport")
    ap.add_argument("--seeds", type=int, default=1, help="seeds 1 to N for each case")
    ap.add_argument("--seed", type=int, action="append", default=[], help="this seed")
    ap.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="changes a setting of all cases")
    ap.add_argument("--quick", action="store_true", help="a few cases only")
    ap.add_argument("--jobs", type=int, default=os.cpu_count(), help="guests at once")
    ap.add_argument("--timeout", type=int, default=900, help="seconds of this machine's time for one case")
    ap.add_argument("--memory", type=int, default=768, help="MiB of each guest")
    ap.add_argument("--wrap", default=os.environ.get("METAROCE_WRAP", ""), help="command in front of each guest")
    ap.add_argument("--list", action="store_true", help="shows the cases and ends")
    args = ap.parse_args()

    if args.report:
        found = {}
        for name in args.report:
            with open(name, encoding="utf-8") as f:
                found.update({(r["case"], r["driver"], r["seed"]): r for r in json.load(f)})
        return finish(args, list(found.values()))
    every = stock_cases() if args.stock else cases()
    chosen = []
    for case in every:
        if args.case and not any(fnmatch.fnmatch(case["name"], p) for p in args.case):
            continue
        if args.quick and not args.case and not case["quick"]:
            continue
        for driver in case["drivers"]:
            if not args.driver or driver in args.driver:
                one = copy.deepcopy(case)
                one["driver"] = driver
                for setting in args.set:
                    key, _, value = setting.partition("=")
                    one["settings"][key] = parse_value(value)
                chosen.append(one)
    if args.list:
        for case in chosen:
            print(case["name"], case["driver"], json.dumps(case["settings"]))
        return 0
    if not chosen:
        print("error: no case has such a name; see --list", file=sys.stderr)
        return 2
    records = []
    seeds = args.seed or list(range(1, args.seeds + 1))

    def show(rec):
        records.append(rec)
        print(line_of(rec), flush=True)

    if args.stock:
        StockRunner(args).run_all(chosen, seeds, show)
        return finish(args, records)
    runner = Runner(args)
    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    try:
        futures = [pool.submit(runner.run, case, seed) for case in chosen for seed in seeds]
        for future in concurrent.futures.as_completed(futures):
            show(future.result())
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        runner.end_all()
        return 130
    return finish(args, records)


def finish(args, records):
    """Writes results, tables, goals and picture. A run without result or a bad kernel log fails; so does a missed goal, but
    with a status of its own."""
    order = {case["name"]: i for i, case in enumerate(cases() + stock_cases())}
    records.sort(key=lambda r: (order.get(r["case"], len(order)), DRIVERS.index(r["driver"]), r["seed"]))
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "results.json"), "w", encoding="utf-8") as f:
        json.dump(records, f, indent=1)
    place = ("the stock kernel under QEMU, time counted in instructions" if args.stock else
             "user-mode kernel in virtual time")
    text, missed, summary = lossbench_report.report(records, args.command, place)
    with open(os.path.join(args.out, "lossbench.md"), "w", encoding="utf-8") as f:
        f.write(text)
    drawing = lossbench_report.picture(records)
    if drawing:
        with open(os.path.join(args.out, "lossbench.svg"), "w", encoding="utf-8") as f:
            f.write(drawing)
    print("\n".join(line for line in text.splitlines() if line.startswith("* ")))
    print(f"{summary}; tables: {args.out}/lossbench.md, picture: {args.out}/lossbench.svg, "
          f"each run: {args.out}/results.json")
    # A peer that stops for good has no result: that is a finding, not a fault of ours.
    broken = [r for r in records if "log" in r or ("failed" in r and r["driver"] == "metaroce")]
    return 1 if broken or not any("failed" not in r for r in records) else 3 if missed else 0


sys.exit(main())
