#!/usr/bin/env python3
"""Tables from the samples of qemu/bench-guest.sh: medians, and what changed."""

import argparse
import json
import statistics

COLUMNS = ("metaroce", "rxe", "siw", "tcp")
UNITS = {"mbs": "MiB/s", "kmsgs": "k/s", "p50": "us p50", "p99": "us p99", "p999": "us p99.9"}


def medians(path):
    """{case/MTU/offloads/unit: {driver: median}} of a file of samples."""
    values = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            sample = json.loads(line)
            if sample["case"].startswith("rate"):
                figures = {"kmsgs": sample["mmsgs"] * 1000}
            else:
                figures = {u: sample[u] for u in UNITS if u in sample}
            for unit, value in figures.items():
                key = f"{sample['case']}|{sample['mtu']}|{sample['offloads']}|{unit}"
                values.setdefault(key, {}).setdefault(sample["driver"], []).append(value)
    return {key: {d: statistics.median(v) for d, v in by.items()} for key, by in values.items()}


def table(new, old):
    """Markdown; with the figures of an earlier run, ours of then and the change."""
    head = ["case", "MTU", "offloads", "unit", *COLUMNS, "to rxe", "to siw"]
    if old:
        head += ["before", "change"]
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for key, by in new.items():
        case, mtu, offloads, unit = key.split("|")
        row = [case, mtu, offloads, UNITS[unit]]
        row += [f"{by[d]:.1f}" if d in by else "" for d in COLUMNS]
        ours = by.get("metaroce")
        row += [f"{ours / by[d]:.2f}" if ours is not None and by.get(d) else "" for d in ("rxe", "siw")]
        if old:
            before = old.get(key, {}).get("metaroce")
            known = before and ours is not None
            row += [f"{before:.1f}", f"{(ours / before - 1) * 100:+.1f} %"] if known else ["", ""]
        yield "| " + " | ".join(row) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", help="JSON of an earlier run")
    parser.add_argument("--json", required=True, help="where the medians go")
    parser.add_argument("--table", required=True, help="where the Markdown table goes")
    parser.add_argument("samples")
    args = parser.parse_args()
    old = None
    if args.base:
        with open(args.base, encoding="utf-8") as file:
            old = json.load(file)
    new = medians(args.samples)
    with open(args.json, "w", encoding="utf-8") as file:
        json.dump(new, file, indent=1)
    text = "\n".join(table(new, old)) + "\n"
    with open(args.table, "w", encoding="utf-8") as file:
        file.write(text)
    print(text, end="")


if __name__ == "__main__":
    main()
