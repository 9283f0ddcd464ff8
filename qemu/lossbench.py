#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Loss benchmark in virtual time: chooses cases, runs each in a user-mode
kernel of its own, prints one line for each and writes JSON.

Called by qemu/lossbench.sh, which builds what it needs. A case runs on a fresh
kernel whose time and entropy are fixed by the seed, so a result repeats
closely. `--list` shows the cases, `--case PATTERN` chooses some of them, and
`--set NAME=VALUE` changes one setting (see selftests/lossbench/case.py).
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

DRIVERS = ["metaroce", "rxe", "siw", "tcp"]
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
    if case["driver"] == "metaroce":
        rows = path_lines(raw["samples"])
        for name in ("rtx", "probes", "nak", "moves"):
            rec[name] = sum(row.get(name, 0) for row in rows)
        rec["dup"] = sum(row.get("dup", 0) for row in rows)
    if raw.get("source_ports"):
        rec["source_ports"] = len(raw["source_ports"])
    rec["events"] = raw["events"]
    return rec


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
        record = {"case": case["name"], "group": case["group"], "driver": case["driver"], "seed": seed,
                  "settings": case["settings"], "host_seconds": round(time.monotonic() - start, 1)}
        try:
            with open(os.path.join(out, "result.json"), encoding="utf-8") as f:
                raw = json.load(f)
            record.update(summarise({**case, **settings}, raw))
            if case["settings"].get("loss_pct") and not (record["data_lost"] and record["acks_lost"]):
                record["failed"] = "the fabric lost nothing in one direction"
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
        shutil.rmtree(uml_dir, ignore_errors=True)
        return record

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
        ap.add_argument(f"--{name}", required=True, help=argparse.SUPPRESS)
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

    chosen = []
    for case in cases():
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
    runner = Runner(args)
    records = []
    seeds = args.seed or list(range(1, args.seeds + 1))
    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    try:
        futures = [pool.submit(runner.run, case, seed) for case in chosen for seed in seeds]
        for future in concurrent.futures.as_completed(futures):
            rec = future.result()
            records.append(rec)
            print(line_of(rec), flush=True)
    except KeyboardInterrupt:
        pool.shutdown(wait=False, cancel_futures=True)
        runner.end_all()
        return 130
    order = {case["name"]: i for i, case in enumerate(cases())}
    records.sort(key=lambda r: (order[r["case"]], DRIVERS.index(r["driver"]), r["seed"]))
    with open(os.path.join(args.out, "results.json"), "w", encoding="utf-8") as f:
        json.dump(records, f, indent=1)
    print(f"results: {args.out}/results.json; what each guest said: {args.out}/runs/")
    return 1 if any("failed" in r or "log" in r for r in records) else 0


sys.exit(main())
