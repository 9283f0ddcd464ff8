# SPDX-License-Identifier: GPL-2.0
"""Tables, goals and a picture from the records of qemu/lossbench.py."""
import statistics

DRIVERS = ["metaroce", "rxe", "siw", "tcp"]
COLOURS = {"metaroce": "#0b6e4f", "rxe": "#c8553d", "siw": "#5c6f9e", "tcp": "#9a8c3c"}
# Goals by share of the lossless figure, in per cent.
KEPT = {0.1: 99.0, 1: 96.0, 10: 82.0}


class Data:
    """Records by case and driver; a figure is the median of the seeds, a fault that of any seed."""

    def __init__(self, records):
        self.by = {}
        for rec in records:
            self.by.setdefault((rec["case"], rec["driver"]), []).append(rec)

    def cases(self, start):
        return list(dict.fromkeys(case for case, _ in self.by if case.startswith(start)))

    def all(self, case, driver="metaroce"):
        return self.by.get((case, driver), [])

    def good(self, case, driver="metaroce"):
        return [rec for rec in self.all(case, driver) if "failed" not in rec]

    def value(self, case, driver="metaroce", field="mbit"):
        found = [rec[field] for rec in self.good(case, driver) if field in rec]
        return statistics.median(found) if found else None

    def worst(self, case, field, driver="metaroce", pick=max):
        found = [rec[field] for rec in self.good(case, driver) if field in rec]
        return pick(found) if found else None


def number(value, digits=0):
    return "" if value is None else f"{value:.{digits}f}"


def ratio(value, base):
    return None if value is None or not base else value / base


def table(title, columns, rows):
    widths = [max(len(str(row[i])) for row in [columns] + rows) for i in range(len(columns))]
    lines = [f"### {title}", ""]
    for row in [columns, ["-" * w for w in widths]] + rows:
        lines.append("| " + " | ".join(str(cell).ljust(w) for cell, w in zip(row, widths)) + " |")
    return lines + [""]


def goal(goals, text, value, met, shown):
    """One goal. Without a value it was not measured, which is neither met nor missed."""
    goals.append((text, None if value is None else bool(met), "not measured" if value is None else shown))


def no_errors(data, cases, goals, text):
    records = [rec for case in cases for rec in data.all(case)]
    bad = [f"{r['case']} seed {r['seed']}: {r.get('failed') or r.get('error') or 'wrong data'}" for r in records
           if "failed" in r or r["errors"] or r["bad_words"] or r["unfinished"]]
    goal(goals, text, records or None, not bad, "; ".join(bad[:3]) or f"none in {len(records)} runs")


def faults(rec):
    if "failed" in rec:
        return "no result"
    if rec["errors"]:
        return rec["error"] or "errors"
    return "wrong data" if rec["bad_words"] else ("unfinished" if rec["unfinished"] else "")


def cell(data, case, driver, digits=0):
    """A figure, with what went wrong."""
    bad = next((faults(rec) for rec in data.all(case, driver) if faults(rec)), "")
    return " ".join(filter(None, [number(data.value(case, driver), digits), f"({bad})" if bad else ""]))


def speeds(data, start):
    return list(dict.fromkeys(case.split("-")[1] for case in data.cases(start)))


def loss_part(data, out, goals):
    for speed in speeds(data, "loss-"):
        for op in ("write", "send", "read"):
            start = f"loss-{speed}-{op}-"
            cases = data.cases(start)
            if not cases:
                continue
            base = data.value(start + "0")
            rows = []
            for case in cases:
                pct = case[len(start):]
                kept = ratio(data.value(case), base)
                rows.append([f"{pct} %"] + [cell(data, case, d) for d in DRIVERS] +
                            ["" if kept is None else f"{100 * kept:.1f} %", number(data.value(case, field="rtx"))])
                if float(pct) in KEPT:
                    need = KEPT[float(pct)]
                    goal(goals, f"{op}, {speed}, {pct} % loss each way: at least {need:g} % kept", kept,
                         kept is not None and 100 * kept >= need, f"{100 * (kept or 0):.1f} %")
            busy = data.worst(start + "0", "link_busy", pick=min)
            goal(goals, f"{op}, {speed}, no loss: at least 97 % of what the link can carry", busy,
                 busy is not None and busy >= 0.97, f"{100 * (busy or 0):.1f} %, {number(base)} Mbit/s")
            out += table(f"{op}, 64 KiB, one path of {speed}bit/s, 100 us round trip: Mbit/s of payload",
                         ["loss each way"] + DRIVERS + ["metaroce kept", "sent again"], rows)
    no_errors(data, data.cases("loss-"), goals, "loss: no retry-exceeded or other error")


def order_part(data, out, goals):
    for speed in speeds(data, "order-"):
        base = data.value(f"loss-{speed}-write-0")
        rows = []
        for case in data.cases(f"order-{speed}-"):
            kind, value = case.split("-")[2:]
            what = f"{value} % reordered" if kind == "reorder" else f"{value} us jitter"
            kept = ratio(data.value(case), base)
            rows.append([what] + [cell(data, case, d) for d in DRIVERS] +
                        ["" if kept is None else f"{100 * kept:.1f} %", number(data.value(case, field="rtx"))])
            goal(goals, f"{what}, {speed}: at least 90 % of the undisturbed figure", kept,
                 kept is not None and kept >= 0.9, f"{100 * (kept or 0):.1f} %")
        out += table(f"Reordering and jitter, write, 64 KiB, one path of {speed}bit/s: Mbit/s of payload",
                     ["path"] + DRIVERS + ["metaroce kept", "sent again"], rows)
    no_errors(data, data.cases("order-"), goals, "reordering and jitter: no error")


def paths_part(data, out, goals):
    for kind, what in (("ecmp", "paths chosen by ECMP"), ("planes", "planes")):
        for speed in speeds(data, f"{kind}-"):
            one = data.value(f"{kind}-{speed}-1")
            rows = []
            for case in data.cases(f"{kind}-{speed}-"):
                n = int(case.split("-")[2])
                times = ratio(data.value(case), one)
                ports = data.worst(case, "busy_ports", pick=min)
                spread = data.worst(case, "spread", pick=max)
                rows.append([n] + [cell(data, case, d) for d in DRIVERS] +
                            [number(times, 2), number(ports), "" if spread is None else f"{100 * spread:.1f} %"])
                if n in (4, 8):
                    need = {4: 3.7, 8: 7.2}[n]
                    goal(goals, f"{n} {what} of {speed}: at least {need} times one", times,
                         times is not None and times >= need, f"{number(times, 2)} times")
                if n > 1 and ports is not None:
                    goal(goals, f"{n} {what} of {speed}: as many source ports on the wire", ports, ports >= n, f"{ports}")
                if n > 1 and kind == "planes":
                    goal(goals, f"{n} planes of {speed}: bytes within 5 % of each other", spread,
                         spread is not None and spread <= 0.05, f"{100 * (spread or 0):.1f} %")
            out += table(f"One QP over {what}, each of {speed}bit/s: Mbit/s of payload",
                         [what.split()[0]] + DRIVERS + ["times one", "source ports", "spread of bytes"], rows)
            no_errors(data, data.cases(f"{kind}-{speed}-"), goals, f"{what} of {speed}: no error")


def cut_part(data, out, goals):
    cases = data.cases("cut-")
    rows = []
    for case in cases:
        for driver in DRIVERS:
            if data.all(case, driver):
                got = [data.value(case, driver, f) for f in ("mbit_before", "mbit_cut", "mbit_restored")]
                gap = data.worst(case, "gap_ms", driver) if driver != "tcp" else None
                bad = next((faults(r) for r in data.all(case, driver) if faults(r)), "")
                rows.append([case, driver] + [number(v) for v in got] + [number(gap, 1), bad])
        if not data.all(case):
            continue
        before = data.value(case, field="mbit_before")
        # What one way carries; the case itself says how many there are.
        kind, speed = case.split("-")[1], case.split("-")[2]
        paths = int("".join(filter(str.isdigit, kind)))
        one = data.value(f"{'planes' if kind.startswith('planes') else 'ecmp'}-{speed}-1") or ratio(before, paths)
        rest = ratio(data.value(case, field="mbit_cut"), (paths - 1) * one if one else None)
        full = ratio(data.value(case, field="mbit_restored"), before)
        gap = data.worst(case, "gap_ms")
        goal(goals, f"{case}: longest gap under 20 ms", gap, gap is not None and gap < 20, f"{number(gap, 1)} ms")
        goal(goals, f"{case}: at least 95 % of the remaining capacity", rest, rest is not None and rest >= 0.95,
             f"{100 * (rest or 0):.1f} %")
        goal(goals, f"{case}: a second after the repair the rate is that of before", full,
             full is not None and full >= 0.97, f"{100 * (full or 0):.1f} %")
    if rows:
        out += table("The busiest of four ways turns into a black hole and comes back: Mbit/s of payload",
                     ["case", "driver", "before", "while cut", "1 s after repair", "longest gap ms", "errors"], rows)
        no_errors(data, cases, goals, "cut: no completion with error")


def incast_part(data, out, goals):
    rows = []
    cases = data.cases("incast-")
    base = data.value("loss-1g-write-0") or data.value("loss-50m-write-0")
    for case in cases:
        for driver in DRIVERS:
            if not data.all(case, driver):
                continue
            gap = data.worst(case, "gap_ms", driver) if driver != "tcp" else None
            rows.append([case[len("incast-"):], driver, cell(data, case, driver),
                         number(data.worst(case, "jain", driver, min), 4), number(gap, 1),
                         number(data.value(case, driver, "data_queue_drops")),
                         number(data.value(case, driver, "data_marked"))])
        if not data.all(case):
            continue
        marks = any(word in case for word in ("codel", "step"))
        jain, gap = data.worst(case, "jain", pick=min), data.worst(case, "gap_ms")
        need = 0.99 if marks else 0.97
        share = ratio(data.value(case), base)
        goal(goals, f"{case}: Jain index at least {need}", jain, jain is not None and jain >= need, number(jain, 4))
        goal(goals, f"{case}: at least 95 % of the link", share, share is not None and share >= 0.95,
             f"{100 * (share or 0):.1f} %")
        goal(goals, f"{case}: no gap of 20 ms", gap, gap is not None and gap < 20, f"{number(gap, 1)} ms")
    if rows:
        out += table("Incast of 8 senders to one port",
                     ["queue", "driver", "Mbit/s in all", "Jain", "longest gap ms", "drops", "marks"], rows)
        no_errors(data, cases, goals, "incast: no error")


def other_part(data, out, goals):
    for case in data.cases("delay-"):
        again = data.worst(case, "rtx")
        lost = data.worst(case, "data_queue_drops")
        goal(goals, f"{case} of 0.1, 1, 10 and 50 ms, no loss: nothing is sent again", again, again == 0 and not lost,
             f"{number(again)} sent again, {number(lost)} dropped, {number(data.value(case))} Mbit/s")
    rows = [[case[4:]] + [cell(data, case, d) for d in DRIVERS[:3]] + [number(data.value(case, field="connections"))]
            for case in data.cases("qps-")]
    if rows:
        out += table("Queue pairs between two hosts, four ways: Mbit/s of payload",
                     ["queue pairs"] + DRIVERS[:3] + ["metaroce connections"], rows)
        few, many = data.value("qps-8"), data.value("qps-256")
        both = ratio(many, few)
        goal(goals, "256 queue pairs are not below 8", both, both is not None and both >= 0.98,
             f"{number(many)} and {number(few)} Mbit/s")
        conns = data.worst("qps-256", "connections")
        goal(goals, "256 queue pairs use one connection in each direction's device", conns, conns == 2, number(conns))
        no_errors(data, data.cases("qps-"), goals, "queue pairs: no error")


# ---- picture

class Svg:
    def __init__(self, width, height):
        self.items = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                      f'font-family="sans-serif" font-size="12"><rect width="{width}" height="{height}" fill="white"/>']

    def text(self, x, y, text, anchor="middle", **more):
        extra = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in more.items())
        self.items.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{text}</text>')

    def line(self, points, colour, width=1.0, dots=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.items.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        if dots:
            self.items += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]

    def panel(self, left, top, width, height, title, labels, series, y_max, y_label, y_format="{:g}"):
        """Lines over equally spaced labels. series: driver -> a value or None for each label."""
        self.text(left + width / 2, top - 10, title, font_weight="bold")
        for i in range(5):
            y = top + height * (1 - i / 4)
            self.line([(left, y), (left + width, y)], "#dddddd" if i else "#444444")
            self.text(left - 6, y + 4, y_format.format(y_max * i / 4), "end")
        self.text(left - 44, top + height / 2, y_label, transform=f"rotate(-90 {left - 44:.1f} {top + height / 2:.1f})")
        at = [left + width * (i + 0.5) / len(labels) for i in range(len(labels))]
        for x, label in zip(at, labels):
            if label:
                self.text(x, top + height + 16, label)
        for driver, values in series.items():
            points = [(x, top + height * (1 - min(v, y_max) / y_max)) for x, v in zip(at, values) if v is not None]
            if points:
                self.line(points, COLOURS[driver], 2.0, len(labels) < 20)

    def done(self):
        return "\n".join(self.items + ["</svg>", ""])


def picture(records):
    """The picture of the README; None when there is too little to show."""
    data = Data(records)
    panels = []
    for speed in speeds(data, "loss-"):
        cases = data.cases(f"loss-{speed}-write-")
        if len(cases) > 1:
            top = max(data.value(c, d) or 0 for c in cases for d in DRIVERS)
            panels.append((f"write over {speed}bit/s, loss each way", [c.rsplit("-", 1)[1] + " %" for c in cases],
                           {d: [data.value(c, d) for c in cases] for d in DRIVERS}, top, "Mbit/s"))
        cases = data.cases(f"order-{speed}-")
        if len(cases) > 1:
            top = max(data.value(c, d) or 0 for c in cases for d in DRIVERS)
            names = [c.split("-")[3] + (" %" if c.split("-")[2] == "reorder" else " us") for c in cases]
            panels.append((f"reordering (%), jitter (us), {speed}bit/s", names,
                           {d: [data.value(c, d) for c in cases] for d in DRIVERS}, top, "Mbit/s"))
    for kind in ("ecmp", "planes"):
        for speed in speeds(data, f"{kind}-"):
            cases = data.cases(f"{kind}-{speed}-")
            if len(cases) > 1:
                top = max(data.value(c, d) or 0 for c in cases for d in DRIVERS)
                panels.append((f"one QP over {kind if kind == 'planes' else 'ECMP paths'} of {speed}bit/s",
                               [c.rsplit("-", 1)[1] for c in cases],
                               {d: [data.value(c, d) for c in cases] for d in DRIVERS}, top, "Mbit/s"))
    for case in data.cases("cut-")[:1]:
        series = {}
        for driver in ("metaroce", "rxe", "siw"):
            recs = [r for r in data.good(case, driver) if r.get("bins")]
            if recs:
                bins, ms = recs[0]["bins"], recs[0]["bin_ms"]
                group = 5
                series[driver] = [sum(bins[i:i + group]) * 8 / (ms * group) / 1e3
                                  for i in range(0, len(bins) - group + 1, group)]
        if series:
            length = max(len(v) for v in series.values())
            labels = ["" if i % 20 else f"{i * 0.05:g} s" for i in range(length)]
            panels.append((f"{case}: busiest way cut at 1 s, back at 2 s", labels, series,
                           max(max(v) for v in series.values()), "Mbit/s"))
    if not panels:
        return None
    per_row, width, height = 2, 330, 180
    rows = -(-len(panels) // per_row)
    svg = Svg(per_row * (width + 90) + 20, rows * (height + 75) + 40)
    for i, driver in enumerate(DRIVERS):
        svg.line([(80 + i * 120, 18), (105 + i * 120, 18)], COLOURS[driver], 3)
        svg.text(110 + i * 120, 22, driver, "start")
    for i, (title, labels, series, top, unit) in enumerate(panels):
        step = 10 ** max(0, len(str(int(top))) - 1)
        top = -(-int(top * 1.02) // step) * step if step > 1 else max(1, int(top) + 1)
        svg.panel(80 + (i % per_row) * (width + 90), 65 + (i // per_row) * (height + 75), width, height, title, labels,
                  series, top, unit)
    return svg.done()


def report(records, command, place):
    """Markdown with all tables and goals, and how many goals were missed."""
    data = Data(records)
    out, goals = [], []
    for part in (loss_part, order_part, paths_part, cut_part, incast_part, other_part):
        part(data, out, goals)
    seeds = sorted({rec["seed"] for rec in records})
    head = ["## Lossy and multipath networks", "",
            f"Made by `{command}`, {place}; median of seeds {', '.join(map(str, seeds))}.", ""]
    lines = []
    for text, met, shown in goals:
        lines.append(f"* {'met' if met else '**not met**' if met is False else 'not measured'}: {text}: {shown}")
    missed = sum(1 for _, met, _ in goals if met is False)
    unknown = sum(1 for _, met, _ in goals if met is None)
    summary = f"{len(goals) - missed - unknown} goals met, {missed} not met, {unknown} not measured"
    return "\n".join(head + out + ["### Goals", "", f"{summary}.", ""] + lines + [""]), missed, summary
