#!/bin/bash
# 'make test': set-up, engine tests, builds, and all selftests in a guest.
# The last line is "N passed, N failed, N skipped".
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_root "makes a chroot and mounts"
passed=0 failed=0 skipped=0
trap 'printf "%s passed, %s failed, %s skipped\n" "$passed" "$((failed + 1))" "$skipped"' EXIT
mkdir -p "$OUT"
"$QEMU_DIR/setup.sh"

say "checks of the set-up (log: $OUT/setup-checks.log)"
rc=0
"$QEMU_DIR/setup-checks.sh" >"$OUT/setup-checks.log" 2>&1 || rc=$?
passed=$(grep -c '^ok ' "$OUT/setup-checks.log" || true)
failed=$(grep -c '^not ok ' "$OUT/setup-checks.log" || true)
say "checks of the set-up: $passed passed, $failed failed"
if ((rc != 0)); then
	((failed > 0)) || failed=1
	grep -A 12 '^not ok' "$OUT/setup-checks.log" || tail -n 5 "$OUT/setup-checks.log"
fi

if [[ -f $TREE/rust/host/Cargo.toml ]]; then
	say "engine tests (log: $OUT/engine-test.log)"
	rc=0
	"$QEMU_DIR/engine-test.sh" >"$OUT/engine-test.log" 2>&1 || rc=$?
	before=$passed bad_before=$failed
	while read -r ok bad ignored; do
		passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + ignored))
	done < <(sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored.*/\1 \2 \3/p' "$OUT/engine-test.log")
	say "engine tests: $((passed - before)) passed, $((failed - bad_before)) failed"
	if ((rc != 0)); then
		((failed > bad_before)) || failed=$((failed + 1))
		grep -E '^error|FAILED|panicked' "$OUT/engine-test.log" | head -n 20 || true
	fi
fi

build_steps

rm -rf "$OUT/results.json"
rc=0
"$TREE/selftests/run.sh" "$@" || rc=$?
if [[ -f $OUT/results.json ]]; then
	read -r ok bad skip < <(python3 - "$OUT/results.json" <<'SUM'
import json
import sys
results = json.load(open(sys.argv[1], encoding="utf-8"))
print(*(sum(r[k] for r in results) for k in ("passed", "failed", "skipped")))
SUM
	)
	passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
fi
((rc == 0 || failed > 0)) || failed=1

trap - EXIT
printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
((failed == 0 && passed > 0))
