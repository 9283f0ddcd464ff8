#!/usr/bin/env python3
"""Instructions by function from the files of qemu/profile-plugin.c and the guest's kallsyms."""

import argparse
import bisect
import os
import re


def plain(symbol):
    """The path of a Rust symbol (v0 mangling) without crate and arguments; C names as they are."""
    if not symbol.startswith("_R"):
        return symbol
    parts, at = [], 2
    while at < len(symbol):
        match = re.compile(r"(\d+)_?").match(symbol, at)
        if not match:
            at += 1
            continue
        length, at = int(match.group(1)), match.end()
        name = symbol[at:at + length]
        if len(name) == length and re.fullmatch(r"[A-Za-z_]\w*", name):
            parts.append(name)
            at += length
    return "::".join(parts[-3:]) or symbol


def symbols(path):
    """Sorted addresses, and (module, name) of each."""
    found = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            fields = line.split()
            if fields[1].lower() in "tw":
                module = fields[3].strip("[]") if len(fields) > 3 else "kernel"
                found.append((int(fields[0], 16), module, fields[2]))
    found.sort()
    return [f[0] for f in found], [f[1:] for f in found]


def report(path, addresses, names, top, messages):
    """Prints one profile: by module, then by function."""
    functions, modules = {}, {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            vaddr, count = line.split()
            at = int(vaddr, 16)
            i = bisect.bisect_right(addresses, at) - 1
            key = names[i] if at and i >= 0 else ("user", "(user space)")
            functions[key] = functions.get(key, 0) + int(count)
    for (module, _), count in functions.items():
        modules[module] = modules.get(module, 0) + count
    everything = sum(functions.values())
    total = everything - modules.pop("user", 0) or 1
    functions.pop(("user", "(user space)"), None)
    per = f", {total / messages:.0f} a message" if messages else ""
    print(f"\n## {os.path.basename(path)}: {total} instructions of the kernel{per}; {everything - total} in user space\n")
    print(", ".join(f"{m} {100 * c / total:.1f} %" for m, c in sorted(modules.items(), key=lambda x: -x[1])[:8]))
    print("\n| % | instructions | module | function |\n|---|---|---|---|")
    for (module, name), count in sorted(functions.items(), key=lambda x: -x[1])[:top]:
        print(f"| {100 * count / total:.1f} | {count / messages if messages else count:.0f} | {module} | {plain(name)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--top", type=int, default=60)
    parser.add_argument("--kallsyms", required=True)
    parser.add_argument("profiles", nargs="+")
    args = parser.parse_args()
    addresses, names = symbols(args.kallsyms)
    for path in args.profiles:
        match = re.search(r"\.n(\d+)$", path)
        report(path, addresses, names, args.top, int(match.group(1)) if match else 0)


if __name__ == "__main__":
    main()
