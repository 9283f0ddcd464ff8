#!/usr/bin/env python3
"""Boots the test guest and runs tests in it, one after the other.

Results come over a virtio-serial port of their own; the console is only
logged. After each test its part of the kernel log is searched for reports of
trouble. A guest that dies before it said that it is up is booted again; one
that dies or hangs later costs the running test, and a fresh guest goes on
with the rest. Use qemu/run.sh, which packs the payload first.
"""

import argparse
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TROUBLE = re.compile(
    r"BUG:|WARNING:|Oops|KASAN|KCSAN|UBSAN|general protection fault"
    r"|unable to handle|Call Trace:|Kernel panic|panicked at"
    r"|possible circular locking|possible recursive locking"
    r"|inconsistent lock state|suspicious RCU usage|lock held when returning"
    r"|rcu: INFO:|detected stall|blocked for more than|refcount_t:"
    r"|memory leak|unregister_netdevice: waiting|soft lockup|hard LOCKUP"
    r"|scheduling while atomic|sleeping function called"
    r"|list_(add|del) corruption|Bad page state|bad: scheduling"
    r"|WARN_ON|refcount underflow"
)
BOOT_TRIES = 3  # the first and two more


class GuestGone(Exception):
    """The guest died or no longer answers."""


class Guest:
    """One QEMU process and the control channel to its init."""

    def __init__(self, args, number):
        self.args = args
        self.number = number
        self.console = os.path.join(args.out, f"console-{number}.log")
        self.tmp = tempfile.mkdtemp(prefix="metaroce-")
        self.buffer = b""
        self.conn = None
        self.qemu = None
        self.console_mark = 0

    def boot(self):
        """Starts QEMU and waits until the guest says that it is up."""
        args = self.args
        path = os.path.join(self.tmp, "control")
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen(1)
        cmdline = (
            "console=ttyS0 quiet loglevel=4 log_buf_len=4M panic=-1 oops=panic "
            "net.ifnames=0 watchdog_thresh=30 mitigations=off apparmor=0 audit=0 nokaslr "
            "random.trust_cpu=on no_timer_check tsc=nowatchdog " + args.append
        )
        cmd = ["qemu-system-x86_64", "-nodefaults", "-no-user-config",
               "-no-reboot", "-display", "none", "-cpu", "max",
               "-m", args.memory]
        if args.icount:
            cmd += ["-accel", "tcg", "-smp", "1",
                    "-icount", "shift=0,sleep=off,align=off"]
        else:
            cmd += ["-accel", "tcg,thread=multi", "-smp", str(args.smp)]
        cmd += ["-kernel", f"{args.cache}/vmlinuz",
                "-initrd", f"{args.cache}/initramfs",
                "-append", cmdline,
                "-drive", f"if=none,id=root,format=raw,snapshot=on,file={args.cache}/guest.img",
                "-device", "virtio-blk-pci,drive=root",
                "-drive", f"if=none,id=payload,format=raw,readonly=on,file={args.payload}",
                "-device", "virtio-blk-pci,drive=payload",
                "-device", "virtio-serial-pci",
                "-chardev", f"socket,id=control,path={path}",
                "-device", "virtserialport,chardev=control,name=metaroce.control",
                "-fsdev", f"local,id=out,path={args.out},security_model=none",
                "-device", "virtio-9p-pci,fsdev=out,mount_tag=out",
                "-device", "virtio-rng-pci"]
        cmd += args.qemu_arg
        if args.shell:
            cmd += ["-chardev", "stdio,id=console,signal=off",
                    "-serial", "chardev:console"]
        else:
            cmd += ["-serial", f"file:{self.console}"]
        self.qemu = subprocess.Popen(
            cmd, env=dict(os.environ, TMPDIR=self.tmp),
            stdin=None if args.shell else subprocess.DEVNULL,
            stderr=open(os.path.join(args.out, f"qemu-{self.number}.log"), "wb"))
        deadline = time.monotonic() + args.boot_timeout
        server.settimeout(10)
        try:
            self.conn, _ = server.accept()
        except OSError as err:
            raise GuestGone("QEMU did not start") from err
        finally:
            server.close()
        line = self.read_line(deadline)
        if not line.startswith("up "):
            raise GuestGone(f"unexpected first message: {line}")

    def read_line(self, deadline, tick=None):
        """Next line from the guest; GuestGone when it ends or is late."""
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise GuestGone("the guest no longer answers")
            ready, _, _ = select.select([self.conn], [], [], min(left, 1.0))
            if tick:
                tick()
            if ready:
                data = self.conn.recv(4096)
                if not data:
                    raise GuestGone("the guest died")
                self.buffer += data
            elif self.qemu.poll() is not None:
                raise GuestGone("the guest died")
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode(errors="replace").strip()

    def command(self, text):
        try:
            self.conn.sendall(text.encode() + b"\n")
        except OSError as err:
            raise GuestGone("the guest died") from err

    def console_tail(self):
        """What the console said since the last call."""
        try:
            with open(self.console, "rb") as file:
                file.seek(self.console_mark)
                data = file.read()
        except OSError:
            return ""
        self.console_mark += len(data)
        return data.decode(errors="replace")

    def stop(self, graceful=True):
        if self.qemu and self.qemu.poll() is None:
            if graceful and self.conn:
                try:
                    self.command("poweroff")
                    self.qemu.wait(10)
                except (GuestGone, subprocess.TimeoutExpired):
                    pass
            if self.qemu.poll() is None:
                self.qemu.kill()
                self.qemu.wait()
        if self.conn:
            self.conn.close()
        shutil.rmtree(self.tmp, ignore_errors=True)


def parse_ktap(text):
    """Cases of one test's output: list of (ok, description, directive)."""
    cases, plan, skip_all = [], None, None
    for line in text.splitlines():
        match = re.match(r"1\.\.(\d+)\s*(?:#\s*SKIP\s*(.*))?$", line)
        if match:
            plan = int(match.group(1))
            if plan == 0:
                skip_all = match.group(2) or "skipped"
            continue
        match = re.match(r"(ok|not ok)\s+\d+\s*-?\s*([^#]*?)\s*(?:#\s*(.*))?$", line)
        if match:
            cases.append((match.group(1) == "ok", match.group(2),
                          (match.group(3) or "").strip()))
    return cases, plan, skip_all


class Run:
    """All tests of one call, with their results."""

    def __init__(self, args):
        self.args = args
        self.guest = None
        self.guests = 0
        self.results = []

    def fresh_guest(self):
        for attempt in range(1, BOOT_TRIES + 1):
            self.guests += 1
            guest = Guest(self.args, self.guests)
            start = time.monotonic()
            try:
                guest.boot()
                if not self.args.quiet:
                    print(f"# guest {self.guests} is up after "
                          f"{time.monotonic() - start:.1f}s", flush=True)
                self.guest = guest
                guest.console_tail()
                return
            except GuestGone as err:
                guest.stop(graceful=False)
                print(f"# guest {self.guests} was not up after {time.monotonic() - start:.0f}s "
                      f"({err}; boot {attempt} of {BOOT_TRIES}; console: {guest.console})", flush=True)
        sys.exit("error: The guest did not come up in "
                 f"{BOOT_TRIES} boots; the console is in {self.args.out}.")

    def expected(self, name):
        """Kernel-log lines that a test declares as part of its work."""
        path = os.path.join(self.args.tree, "selftests", name + ".sh")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return [re.compile(m) for m in
                    re.findall(r"^# expect-kernel-log: (.*)$", file.read(), re.M)]

    def scan(self, name, text):
        expected = self.expected(name)
        return [line for line in text.splitlines()
                if TROUBLE.search(line) and not any(e.search(line) for e in expected)]

    def read(self, name, file):
        try:
            with open(os.path.join(self.args.out, "tests", name, file),
                      encoding="utf-8", errors="replace") as handle:
                return handle.read()
        except OSError:
            return ""

    def limit(self, name):
        path = os.path.join(self.args.tree, "selftests", name + ".sh")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                match = re.search(r"^# timeout: (\d+)", file.read(), re.M)
            if match:
                return int(int(match.group(1)) * self.args.timeout_scale)
        return int(self.args.timeout * self.args.timeout_scale)

    def one(self, verb, name):
        if self.guest is None:
            self.fresh_guest()
        limit = self.limit(name)
        start = last = time.monotonic()
        shutil.rmtree(os.path.join(self.args.out, "tests", name), ignore_errors=True)
        reason = None
        shown = 0

        def tick():
            nonlocal last, shown
            if verb == "exec":
                text = self.read(name, "output.log")
                if "\n" in text[shown:]:
                    end = text.rindex("\n") + 1
                    sys.stdout.write(text[shown:end])
                    sys.stdout.flush()
                    shown = end
            elif time.monotonic() - last > 15:
                last = time.monotonic()
                print(f"#   {name}: running for {last - start:.0f}s", flush=True)

        rc = 1
        try:
            self.guest.command(f"{verb} {name} {limit}")
            deadline = time.monotonic() + limit + 60
            while True:
                fields = self.guest.read_line(deadline, tick).split()
                if fields and fields[0] == "end":
                    break
            values = dict(f.split("=", 1) for f in fields[1:])
            rc = int(values["rc"])
            if values["why"] == "timeout":
                reason = f"not finished after {limit}s"
        except GuestGone as err:
            reason = f"{err} during the test"
            self.guest.stop(graceful=False)
        kernel = self.read(name, "kernel.log")
        if reason and "guest" in reason:
            kernel += self.guest.console_tail()
            self.guest = None
        tick()
        return self.judge(name, verb, rc, reason, kernel, time.monotonic() - start)

    def judge(self, name, verb, rc, reason, kernel, seconds):
        text = self.read(name, "output.log")
        cases, plan, skip_all = parse_ktap(text)
        if verb == "exec":
            cases, plan = [], 0
            if rc != 0 and not reason:
                reason = f"exit status {rc}"
        elif skip_all is not None and not cases:
            cases = [(True, name, f"SKIP {skip_all}")]
        elif not reason and plan is None:
            reason = f"stopped with status {rc} before it was complete"
        elif not reason and plan != len(cases):
            reason = f"planned {plan} cases but reported {len(cases)}"
        elif not reason and rc not in (0, 4) and all(c[0] for c in cases):
            reason = f"exit status {rc}"
        trouble = self.scan(name, kernel)
        extra = []
        if reason:
            extra.append((False, f"ran to its end: {reason}", ""))
        if trouble:
            extra.append((False, f"kernel log: {trouble[0].strip()[:120]}", ""))
        cases += extra
        result = {
            "name": name, "seconds": round(seconds, 1), "reason": reason,
            "kernel_log": trouble[:20],
            "cases": [{"ok": ok, "name": what, "directive": directive}
                      for ok, what, directive in cases],
        }
        result["passed"] = sum(1 for ok, _, d in cases if ok and not d.upper().startswith("SKIP"))
        result["skipped"] = sum(1 for ok, _, d in cases if ok and d.upper().startswith("SKIP"))
        result["failed"] = sum(1 for ok, _, d in cases
                               if not ok and not re.match(r"XFAIL|TODO", d, re.I))
        self.results.append(result)
        return result

    def report(self):
        """KTAP and JSON of everything that ran."""
        with open(os.path.join(self.args.out, "results.json"), "w", encoding="utf-8") as file:
            json.dump(self.results, file, indent=1)
        with open(os.path.join(self.args.out, "results.tap"), "w", encoding="utf-8") as file:
            file.write(f"TAP version 13\n1..{len(self.results)}\n")
            for number, result in enumerate(self.results, 1):
                file.write(f"# {result['name']}\n    KTAP version 1\n    1..{len(result['cases'])}\n")
                for count, case in enumerate(result["cases"], 1):
                    directive = f" # {case['directive']}" if case["directive"] else ""
                    file.write(f"    {'ok' if case['ok'] else 'not ok'} {count} {case['name']}{directive}\n")
                state = "not ok" if result["failed"] else "ok"
                skip = " # SKIP" if not result["passed"] and not result["failed"] else ""
                file.write(f"{state} {number} {result['name']}{skip}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", required=True)
    parser.add_argument("--tree", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--payload", required=True)
    parser.add_argument("--exec", action="append", default=[], help="a payload script to run with its output shown")
    parser.add_argument("--shell", action="store_true")
    parser.add_argument("--smp", type=int, default=2)
    parser.add_argument("--memory", default="2G")
    parser.add_argument("--icount", action="store_true", help="guest time counted in instructions, one CPU")
    parser.add_argument("--qemu-arg", action="append", default=[], help="one more argument for QEMU")
    parser.add_argument("--append", default="", help="more for the kernel's command line")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for a test that names none")
    parser.add_argument("--timeout-scale", type=float, default=1.0)
    parser.add_argument("--boot-timeout", type=int, default=180)
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("tests", nargs="*")
    args = parser.parse_args()
    args.out = os.path.abspath(args.out)
    os.makedirs(os.path.join(args.out, "tests"), exist_ok=True)

    run = Run(args)
    try:
        if args.shell:
            run.fresh_guest()
            run.guest.command("shell")
            run.guest.read_line(time.monotonic() + 86400)
            return 0
        for name in args.exec:
            result = run.one("exec", name)
            for case in result["cases"]:
                if not case["ok"]:
                    print(f"not ok {name}: {case['name']}")
        for name in args.tests:
            result = run.one("run", name)
            state = "FAIL" if result["failed"] else "ok" if result["passed"] else "skip"
            print(f"{state:4} {name}: {result['passed']} passed, {result['failed']} failed, "
                  f"{result['skipped']} skipped in {result['seconds']:.0f}s", flush=True)
            for case in result["cases"]:
                if not case["ok"]:
                    print(f"       not ok: {case['name']} {case['directive']}", flush=True)
                elif case["directive"].upper().startswith("SKIP"):
                    print(f"       {case['directive']}: {case['name']}", flush=True)
            if result["failed"]:
                print(f"       logs: {os.path.join(args.out, 'tests', name)}", flush=True)
    finally:
        if run.guest:
            run.guest.stop()
        run.report()
    return 1 if any(r["failed"] for r in run.results) else 0


def on_signal(number, _frame):
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGHUP, on_signal)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
