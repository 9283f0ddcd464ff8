#!/bin/bash
# Speed of metaroce beside rxe, siw and TCP, in one boot of the stock kernel.
# Usage: qemu/bench.sh        (docs/testing.md explains what is measured)
# Variables: QUICK=1 (few cases, one round), BASE=FILE (an earlier bench.json,
# to show what changed), BENCH_MODE=icount (guest time counted in instructions,
# repeatable) or multi (multi-threaded emulation: only ratios mean something,
# and they are noisy), and those at the head of qemu/bench-guest.sh.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mode=${BENCH_MODE:-icount}
case $mode in
icount) run_args=(--icount) ;;
multi) run_args=() ;;
*) die "BENCH_MODE is '$mode'; it can be icount or multi." ;;
esac
base=()
if [[ -n ${BASE:-} ]]; then
	[[ -f $BASE ]] || die "BASE=$BASE does not exist; it names the bench.json of an earlier run."
	# Read now: this run may write a file of the same name.
	cp "$BASE" "$(mkdir -p "$OUT" && echo "$OUT")/bench-base.json"
	base=(--base "$OUT/bench-base.json")
fi
if [[ -n ${QUICK:-} ]]; then
	: "${BENCH_REPS:=1}" "${BENCH_MTUS:=1500}" "${BENCH_OFFLOADS:=off}"
	: "${BENCH_CASES:=write-64k rate-64 lat-send-2}"
fi
: "${BENCH_REPS:=3}" "${BENCH_MTUS:=1500 9000}" "${BENCH_OFFLOADS:=off on}"
: "${BENCH_CASES:=write-4k write-64k write-1m send-4k send-64k send-1m read-4k read-64k read-1m rate-64 rate-64-q8 lat-send-2 lat-send-4k}"

step_siw() { "$QEMU_DIR/build.sh" siw; }
build_steps
step siw always step_siw "building siw for comparison"

settings=
for name in REPS MTUS OFFLOADS CASES DRIVERS PARAMS SCALE LIMIT; do
	var=BENCH_$name
	[[ -z ${!var:-} ]] || settings+=" $var=$(printf '%q' "${!var}")"
done
rc=0
METAROCE_MORE_MODULES=$BUILD/siw/siw.ko METAROCE_ENV=${settings# } \
	"$QEMU_DIR/run.sh" "${run_args[@]}" --timeout "${BENCH_TIMEOUT:-14400}" \
	--script "$QEMU_DIR/bench-guest.sh" || rc=$?
python3 "$QEMU_DIR/bench.py" "${base[@]}" --json "$OUT/bench.json" --table "$OUT/bench.md" \
	"$OUT/tests/bench-guest.sh/samples.jsonl"
exit "$rc"
