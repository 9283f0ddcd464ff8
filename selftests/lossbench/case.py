#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs one case of the loss benchmark inside a guest.

Usage: case.py CASE.json RESULT.json

Topology, in network namespaces, to the right and back alike:

    s1..sN  --  left  --p1--  w1  --p1--  right  --  r
                      --pM--  wM  --pM--

Senders s1..sN have a link of their own to `left`; `left` and `right` choose one
of `paths` ways by a hash over addresses and UDP ports. A way begins with a port
of limited rate (tbf) with its queue (tail drop, or marking); loss, delay, jitter
and reordering (netem) come a hop later, in w1..wM. So what is lost or reordered
has been paid for: it used the rate and a place in the queue. Nothing is
offloaded, so the fabric sees packets of wire size (the result has the largest
mean); neighbours are fixed, so nothing but the traffic is lost.

A case (defaults in DEFAULTS) is measured by `flow`, or by iperf3 for TCP. The
result holds what they said, what the fabric counted, and the device's state.
Without METAROCE_FLOW and METAROCE_KO in the environment these are
/payload/bin/flow and /payload/metaroce.ko. With CASE_CLEAN=1 everything is taken
away in the end, so that the next case can follow in the same guest.
"""
import glob
import json
import os
import subprocess
import sys
import time

FLOW = os.environ.get("METAROCE_FLOW", "/payload/bin/flow")
MODULE = os.environ.get("METAROCE_KO", "/payload/metaroce.ko")
DEFAULTS = {
    "driver": "metaroce",       # metaroce, rxe, siw or tcp
    "seed": 1,                  # of netem
    "senders": 1,
    "paths": 1,
    "rate_mbit": 1000,          # of each path, 0: not limited
    "delay_us": 50,             # one way; a list gives one value for each path
    "jitter_us": 0,
    "loss_pct": 0,              # each way
    "reorder_pct": 0,
    "burst_us": 0,              # what tbf may let go at once, for machines whose timers are not exact
    "queue": {"kind": "pfifo", "packets": 1000},
    "mtu": 1500,
    "op": "write",
    "size": 65536,
    "depth": 16,
    "qps": 1,                   # of each sender
    "warm_ms": 200,
    "ms": 1000,
    "bin_ms": 10,
    "timeout": 14,
    "retry": 7,
    "drain_ms": 10000,
    "cc": "cubic",              # congestion control of TCP sockets
    "cut": None,                # {"at_ms": 400, "restore_ms": 1200}: the busiest path turns into a black hole
    "samples_ms": [],           # when to copy the devices' connection tables
    "capture": False,           # count UDP source ports at the receiver
    "module_args": [],
}


def sh(*args, check=True, data=None):
    done = subprocess.run(args, input=data, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(args)}: status {done.returncode}: {done.stdout.strip()}")
    return done.stdout


def ip(*args):
    return sh("ip", *args)


def on(ns, *args, **more):
    return sh("ip", "netns", "exec", ns, *args, **more)


def write_sys(ns, **values):
    for name, value in values.items():
        on(ns, "sh", "-c", f"echo {value} >/proc/sys/{name.replace('__', '/')}")


class Case:
    def __init__(self, case):
        unknown = set(case) - set(DEFAULTS) - {"name", "group", "goals"}
        if unknown:
            raise RuntimeError(f"unknown settings: {', '.join(sorted(unknown))}")
        self.__dict__.update(DEFAULTS)
        self.__dict__.update(case)
        self.hosts = [f"s{i}" for i in range(1, self.senders + 1)] + ["r"]
        self.events = []

    # ---- topology

    def address(self, ns):
        return "10.2.0.1" if ns == "r" else f"10.1.{ns[1:]}.1"

    def delay(self, path):
        return self.delay_us[path - 1] if isinstance(self.delay_us, list) else self.delay_us

    def build(self):
        wires = [f"w{k}" for k in range(1, self.paths + 1)]
        for ns in self.hosts + ["left", "right"] + wires:
            ip("netns", "add", ns)
        for ns in ["left", "right"] + wires:
            write_sys(ns, net__ipv4__ip_forward=1, net__ipv4__fib_multipath_hash_policy=1)
        mac = 0

        def link(ns1, dev1, addr1, ns2, dev2, addr2):
            nonlocal mac
            mac += 2
            macs = [f"02:00:00:00:{(mac + i) >> 8:02x}:{(mac + i) & 255:02x}" for i in (0, 1)]
            ip("link", "add", dev1, "netns", ns1, "address", macs[0], "mtu", str(self.mtu), "type", "veth",
               "peer", "name", dev2, "netns", ns2, "address", macs[1], "mtu", str(self.mtu))
            for ns, dev, addr, peer, peer_mac in ((ns1, dev1, addr1, addr2, macs[1]),
                                                  (ns2, dev2, addr2, addr1, macs[0])):
                ip("-n", ns, "addr", "add", f"{addr}/24", "dev", dev)
                on(ns, "ethtool", "-K", dev, "tso", "off", "gso", "off", "gro", "off", "tx", "off",
                   "tx-udp-segmentation", "off", check=False)
                ip("-n", ns, "link", "set", dev, "up")
                ip("-n", ns, "neigh", "replace", peer, "lladdr", peer_mac, "dev", dev, "nud", "permanent")

        for i, ns in enumerate(self.hosts[:-1], 1):
            link(ns, "eth0", self.address(ns), "left", f"h{i}", f"10.1.{i}.2")
            ip("-n", ns, "route", "add", "default", "via", f"10.1.{i}.2")
        link("r", "eth0", "10.2.0.1", "right", "h0", "10.2.0.2")
        ip("-n", "r", "route", "add", "default", "via", "10.2.0.2")
        there, back = [], []
        for k in range(1, self.paths + 1):
            link("left", f"p{k}", f"10.3.{k}.1", f"w{k}", "left", f"10.3.{k}.2")
            link("right", f"p{k}", f"10.4.{k}.1", f"w{k}", "right", f"10.4.{k}.2")
            there += ["nexthop", "via", f"10.3.{k}.2", "dev", f"p{k}"]
            back += ["nexthop", "via", f"10.4.{k}.2", "dev", f"p{k}"]
            ip("-n", f"w{k}", "route", "add", "10.2.0.0/24", "via", f"10.4.{k}.1")
            ip("-n", f"w{k}", "route", "add", "10.1.0.0/16", "via", f"10.3.{k}.1")
        ip("-n", "left", "route", "add", "10.2.0.0/24", *there)
        ip("-n", "right", "route", "add", "10.1.0.0/16", *back)
        for ns in self.hosts:
            ip("-n", ns, "link", "set", "lo", "up")
        for ns in self.hosts:
            write_sys(ns, net__ipv4__tcp_congestion_control=self.cc,
                      net__ipv4__tcp_ecn=1 if self.cc == "dctcp" else 2,
                      net__ipv4__tcp_wmem="'4096 1048576 33554432'", net__ipv4__tcp_rmem="'4096 1048576 33554432'")

    def netem(self, path, direction, loss=None):
        loss = self.loss_pct if loss is None else loss
        words = ["netem", "limit", "1000000", "delay", f"{self.delay(path)}us"]
        if self.jitter_us:
            words.append(f"{self.jitter_us}us")
        if loss:
            words += ["loss", f"{loss}%"]
        if self.reorder_pct:
            words += ["reorder", f"{self.reorder_pct}%"]
        return words + ["seed", str(self.seed * 1000 + path * 2 + direction)]

    def shape(self):
        kind = self.queue["kind"]
        queue = [kind] + [str(word) for word in self.queue.get("args", [])]
        if kind == "pfifo":
            queue += ["limit", str(self.queue["packets"])]
        for direction, (near, far) in enumerate((("left", "right"), ("right", "left"))):
            for k in range(1, self.paths + 1):
                on(f"w{k}", "tc", "qdisc", "replace", "dev", far, "root", "handle", "1:", *self.netem(k, direction))
                if not self.rate_mbit:
                    continue
                dev = ["dev", f"p{k}"]
                on(near, "tc", "qdisc", "replace", *dev, "root", "handle", "2:", "tbf", "rate",
                   f"{self.rate_mbit}mbit", "burst", str(max(self.mtu + 100, int(self.rate_mbit * self.burst_us / 8))),
                   "limit", "100000000")
                on(near, "tc", "qdisc", "add", *dev, "parent", "2:1", "handle", "3:", *queue)

    def set_loss(self, path, loss):
        for direction, far in enumerate(("right", "left")):
            on(f"w{path}", "tc", "qdisc", "change", "dev", far, "root", "handle", "1:",
               *self.netem(path, direction, loss))

    def fabric(self):
        """Counters of the ways, in both directions: packets and bytes that came through, packets that netem lost,
        and those that the queue of the port dropped or marked."""
        result = {}
        for name, near, far in (("data", "left", "right"), ("acks", "right", "left")):
            result[name] = []
            for k in range(1, self.paths + 1):
                row = {"packets": 0, "bytes": 0, "lost": 0, "queue_drops": 0, "marked": 0, "backlog": 0}
                for q in json.loads(on(f"w{k}", "tc", "-s", "-j", "qdisc", "show", "dev", far)):
                    if q["kind"] == "netem":
                        row["lost"] += q["drops"]
                        row["packets"], row["bytes"] = q["packets"], q["bytes"]
                for q in json.loads(on(near, "tc", "-s", "-j", "qdisc", "show", "dev", f"p{k}")):
                    if q["kind"] not in ("tbf", "noqueue"):
                        row["queue_drops"] += q["drops"]
                        row["marked"] += q.get("ecn_mark", 0)
                        row["marked"] += q.get("ce_mark", 0)
                        row["backlog"] = q["qlen"]
                result[name].append(row)
        return result

    # ---- devices

    def add_devices(self):
        if self.driver == "tcp":
            return
        if self.driver == "metaroce":
            sh("insmod", MODULE, *self.module_args)
        else:
            sh("modprobe", {"rxe": "rdma_rxe"}.get(self.driver, self.driver), check=False)
        for ns in self.hosts:
            on(ns, "rdma", "link", "add", f"d{ns}", "type", self.driver, "netdev", "eth0")
        for ns in self.hosts:
            if self.driver != "siw":
                self.gid(ns)

    def gid(self, ns):
        octets = [int(part) for part in self.address(ns).split(".")]
        want = "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x" % tuple(octets)
        top = f"/sys/class/infiniband/d{ns}/ports/1"
        for _ in range(500):
            for i in range(64):
                try:
                    with open(f"{top}/gids/{i}") as gid, open(f"{top}/gid_attrs/types/{i}") as kind:
                        if gid.read().strip() == want and kind.read().strip() == "RoCE v2":
                            return i
                except OSError:
                    continue
            time.sleep(0.01)
        raise RuntimeError(f"the device of {ns} has no GID for {self.address(ns)}")

    def connections(self):
        result = {}
        for path in sorted(glob.glob("/sys/kernel/debug/metaroce/*/connections")):
            with open(path) as f:
                result[path.split("/")[-2]] = f.read().splitlines()
        return result

    def counters(self):
        result = {}
        for ns in self.hosts if self.driver in ("metaroce", "rxe", "siw") else []:
            row = {}
            for path in glob.glob(f"/sys/class/infiniband/d{ns}/ports/1/hw_counters/*"):
                try:
                    with open(path) as f:
                        row[os.path.basename(path)] = int(f.read())
                except (OSError, ValueError):
                    pass
            result[ns] = {name: value for name, value in sorted(row.items()) if value and name != "lifespan"}
        return result

    # ---- traffic

    def run(self):
        log = {}
        cut_path = 1
        procs = []
        at_ns = time.monotonic_ns() + 500_000_000
        if self.driver == "tcp":
            for i, ns in enumerate(self.hosts[:-1], 1):
                subprocess.Popen(["ip", "netns", "exec", "r", "iperf3", "-s", "-1", "-p", str(5200 + i)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.2)
            for i, ns in enumerate(self.hosts[:-1], 1):
                procs.append(subprocess.Popen(
                    ["ip", "netns", "exec", ns, "iperf3", "-c", self.address("r"), "-p", str(5200 + i), "-J",
                     "-i", "0.1", "-l", "64K", "-O", str(self.warm_ms / 1000), "-t", str(self.ms / 1000)],
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            at_ns = time.monotonic_ns()
        else:
            for i, ns in enumerate(self.hosts[:-1], 1):
                common = [FLOW, "--socket", f"/tmp/flow{i}", "--op", self.op, "--size", str(self.size),
                          "--depth", str(self.depth), "--qps", str(self.qps), "--warm-ms", str(self.warm_ms),
                          "--ms", str(self.ms), "--bin-ms", str(self.bin_ms), "--timeout", str(self.timeout),
                          "--retry", str(self.retry), "--drain-ms", str(self.drain_ms), "--at-ns", str(at_ns)]
                for side, where in (("r", ["--server"]), (ns, [])):
                    if self.driver == "siw":
                        where = where + ["--cm", self.address("r"), "--port", str(18515 + i)]
                    else:
                        where = where + ["--device", f"d{side}", "--gid", str(self.gid(side))]
                    proc = subprocess.Popen(["ip", "netns", "exec", side] + common + where,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    procs.append(proc)
        # netem's losses start when the queue pairs are connected: what is
        # measured is the traffic, not the exchange of the tools.
        what = [(self.warm_ms + self.ms - 5, "end", None)]
        for ms in self.samples_ms:
            what.append((ms, "sample", None))
        if self.cut:
            what.append((self.warm_ms + self.cut["at_ms"], "cut", 100))
            if self.cut.get("restore_ms"):
                what.append((self.warm_ms + self.cut["restore_ms"], "restore", None))
        what.append((self.warm_ms, "measured", None))
        log["samples"] = {}
        for ms, event, arg in sorted(what, key=lambda item: item[0]):
            wait = (at_ns + ms * 1_000_000 - time.monotonic_ns()) / 1e9
            if wait > 0:
                time.sleep(wait)
            self.events.append([event, (time.monotonic_ns() - at_ns) / 1e6])
            if event in ("cut", "restore"):
                if event == "cut":
                    rows = self.fabric()["data"]
                    cut_path = 1 + max(range(len(rows)), key=lambda k: rows[k]["bytes"])
                    log["cut_path"] = cut_path
                self.set_loss(cut_path, arg)
            elif event == "measured":
                log["fabric_before"] = self.fabric()
            elif event == "end":
                log["fabric"] = self.fabric()
            if event != "measured":
                log["samples"][f"{event} {ms}"] = self.connections()
        log["flows"] = []
        for i, proc in enumerate(procs):
            out, err = proc.communicate()
            server = self.driver != "tcp" and i % 2 == 0
            if server:
                if proc.returncode:
                    log.setdefault("server_errors", []).append(err.strip())
                continue
            try:
                log["flows"].append(json.loads(out))
            except ValueError:
                log["flows"].append({"failed": (err or out).strip()[-500:]})
        log["events"] = self.events
        log["counters"] = self.counters()
        return log


    def clean(self):
        """Takes devices, namespaces and the module away; what cannot be is an error."""
        for ns in self.hosts if self.driver != "tcp" else []:
            on(ns, "rdma", "link", "delete", f"d{ns}")
        for ns in self.hosts + ["left", "right"] + [f"w{k}" for k in range(1, self.paths + 1)]:
            ip("netns", "delete", ns)
        if self.driver == "metaroce":
            for _ in range(100):
                if not subprocess.run(["rmmod", "metaroce"], stderr=subprocess.DEVNULL).returncode:
                    return
                time.sleep(0.1)
            raise RuntimeError("the module stays in use")


def main():
    with open(sys.argv[1]) as f:
        case = Case(json.load(f))
    start = time.monotonic()
    capture = None
    case.build()
    case.add_devices()
    # One exchange over unimpaired links, so that routes are known.
    for ns in case.hosts[:-1]:
        on(ns, "ping", "-c", "1", "-W", "2", case.address("r"))
    case.shape()
    if case.capture:
        capture = subprocess.Popen(["ip", "netns", "exec", "r", "tcpdump", "-i", "eth0", "-nn", "-q", "-s", "64", "-w",
                                    "/tmp/capture.pcap", "udp"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.2)
    result = case.run()
    if capture:
        capture.terminate()
        capture.wait()
        text = sh("tcpdump", "-nn", "-q", "-r", "/tmp/capture.pcap", "dst", "host", case.address("r"), check=False)
        ports = {}
        for line in text.splitlines():
            words = line.split()
            if len(words) > 2 and words[1] == "IP":
                ports[words[2]] = ports.get(words[2], 0) + 1
        result["source_ports"] = ports
    result["guest_seconds"] = time.monotonic() - start
    with open(sys.argv[2], "w") as f:
        json.dump(result, f, indent=1)
    if os.environ.get("CASE_CLEAN"):
        case.clean()


main()
