#!/usr/bin/env python3
"""Reads the logs of rdma-core's tests and makes a table, one column per driver.

A log is what `unittest -v` wrote: a line with the test's name, perhaps a line
with its description, then "... ok" or another verdict, with whatever the test
prints in between. A test that is listed but has no verdict counts as failed.
The first driver must pass every test that --required names; a test behind
"todo" there is an aim, which is counted but may still fail.
"""

import argparse
import os
import re
import sys

NAME = re.compile(r"^(test\w+|setUpClass|setUpModule) \((tests\.[\w.]+)\)")
VERDICT = re.compile(r"(?:^|\.\.\. ?|\s)(ok|FAIL|ERROR|expected failure|unexpected success"
                     r"|skipped (?:'.*'|\".*\"))$")


def full_name(method, where):
    """The name that --list-tests prints, for Python before and after 3.11."""
    return where if where.endswith("." + method) else f"{where}.{method}"


def parse(text):
    """Verdict of each test: {name: (verdict, reason)}."""
    found, name, summary = {}, None, False
    for line in text.splitlines():
        line = line.rstrip()
        if line.startswith("======"):
            summary = True  # details of failures follow, which name the tests again
        if summary:
            continue
        match = NAME.match(line)
        if match:
            name = full_name(match.group(1), match.group(2))
            found.setdefault(name, ("fail", "no verdict"))
            if line == match.group(0):
                continue  # the verdict stands behind the description
        verdict = VERDICT.search(line) if name else None
        if not verdict:
            continue
        word = verdict.group(1)
        if word == "ok":
            found[name] = ("pass", "")
        elif word.startswith("skipped"):
            found[name] = ("skip", word[len("skipped "):].strip("'\""))
        else:
            found[name] = ("fail", word)
        name = None
    return found


def why_failed(text, name):
    """The last line of the traceback of a failed test."""
    method = name.rsplit(".", 1)[1]
    block = re.search(r"^(?:FAIL|ERROR): %s \(.*?\n-{20,}\n(.*?)(?=^={20,}|^-{20,}|\Z)" % re.escape(method),
                      text, re.S | re.M)
    lines = [ln for ln in (block.group(1).splitlines() if block else []) if ln and not ln.startswith(" ")]
    return lines[-1].strip() if lines else ""


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def results(logs, driver):
    """Verdicts of one driver over all modules that ran."""
    directory = os.path.join(logs, driver)
    listed = [ln.strip() for ln in read(os.path.join(directory, "list")).splitlines()
              if ln.startswith("tests.")]
    verdicts = {}
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    for file in names:
        if not file.endswith(".log"):
            continue
        text = read(os.path.join(directory, file))
        scope = file[:-len(".log")]
        here = parse(text)
        for name in listed:
            if name == scope or name.startswith(scope + "."):
                verdicts[name] = here.get(name, ("fail", "did not run"))
        for name, (verdict, reason) in here.items():
            if verdict == "fail":
                verdicts[name] = (verdict, why_failed(text, name) or reason)
    return verdicts


def show(value):
    verdict, reason = value
    return verdict if not reason else f"{verdict}: {reason}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--required", help="file with one test name a line")
    parser.add_argument("drivers", nargs="+")
    args = parser.parse_args()

    columns = {driver: results(args.logs, driver) for driver in args.drivers}
    tests = sorted(set().union(*columns.values()))
    first = args.drivers[0]
    nothing = ("fail", "did not run")
    out = []
    for test in tests:
        values = [columns[d].get(test, nothing) for d in args.drivers]
        out.append(f"{test[len('tests.'):]}\n" + "".join(
            f"    {driver:9} {show(value)}\n" for driver, value in zip(args.drivers, values)))
    for driver in args.drivers:
        count = {v: 0 for v in ("pass", "skip", "fail")}
        for test in tests:
            count[columns[driver].get(test, nothing)[0]] += 1
        out.append(f"{driver}: {len(tests)} tests: {count['pass']} passed, {count['skip']} skipped, "
                   f"{count['fail']} failed\n")
    bad = []
    if args.required:
        lines = [ln.split("#")[0].split() for ln in read(args.required).splitlines()]
        wanted = [words[0] for words in lines if len(words) == 1]
        aims = [words[1] for words in lines if len(words) == 2 and words[0] == "todo"]
        if not wanted or len(wanted) + len(aims) != sum(map(bool, lines)):
            sys.exit(f"error: {args.required} names no tests, or has lines that cannot be understood.")
        for test in wanted:
            value = columns[first].get(test, nothing)
            if value[0] != "pass":
                bad.append(f"{test}: {show(value)}")
        done = [test for test in aims if columns[first].get(test, nothing)[0] == "pass"]
        out.append(f"required on {first}: {len(wanted) - len(bad)} of {len(wanted)} pass\n")
        out.append(f"aims on {first}: {len(done)} of {len(aims)} pass\n")
        out += [f"not passed though required: {line}\n" for line in bad]
        out += [f"passes, could be required: {test}\n" for test in done]
    else:
        bad = [t for t in tests if columns[first].get(t, nothing)[0] == "fail"]
    with open(args.table, "w", encoding="utf-8") as file:
        file.writelines(out)
    # On the terminal: only what is not the same good news everywhere.
    for test, text in zip(tests, out):
        if any(columns[d].get(test, nothing)[0] != "pass" for d in args.drivers):
            sys.stdout.write(text)
    sys.stdout.writelines(out[len(tests):])
    return 1 if bad or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
