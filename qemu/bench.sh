#!/bin/bash
# Speed of metaroce beside rxe, siw and TCP, in one boot of the stock kernel.
# Usage: qemu/bench.sh        (docs/testing.md explains what is measured)
# Variables: QUICK=1 (few cases, one round), BASE=FILE (an earlier bench.json,
# to show what changed), BENCH_MODE=icount (guest time counted in instructions,
# repeatable) or multi (multi-threaded emulation: only ratios mean something,
# and they are noisy), PROFILE=1 (also instructions by function, bench-profile.md;
# the larger BENCH_SCALE, the less of it is the start of the tools), and those at the head of qemu/bench-guest.sh.
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

step_plugin() {
	mkdir -p "$BUILD"
	in_buildroot gcc -shared -fPIC -O2 -Wall -Wextra -fvisibility=hidden \
		-o "$BUILD/profile-plugin.so" "$QEMU_DIR/profile-plugin.c"
}
results=$OUT/tests/bench-guest.sh
BENCH_PROFILE=${PROFILE:-}
if [[ -n $BENCH_PROFILE ]]; then
	step plugin always step_plugin "building the plugin that counts instructions"
	run_args+=(--qemu-arg=-plugin --qemu-arg="file=$BUILD/profile-plugin.so,dir=$results")
fi

settings=
for name in REPS MTUS OFFLOADS CASES DRIVERS PARAMS SCALE LIMIT PROFILE; do
	var=BENCH_$name
	[[ -z ${!var:-} ]] || settings+=" $var=$(printf '%q' "${!var}")"
done
rc=0
METAROCE_MORE_MODULES=$BUILD/siw/siw.ko METAROCE_ENV=${settings# } \
	"$QEMU_DIR/run.sh" "${run_args[@]}" --timeout "${BENCH_TIMEOUT:-14400}" \
	--script "$QEMU_DIR/bench-guest.sh" || rc=$?
python3 "$QEMU_DIR/bench.py" "${base[@]}" --json "$OUT/bench.json" --table "$OUT/bench.md" \
	"$results/samples.jsonl"
if [[ -n $BENCH_PROFILE ]]; then
	python3 "$QEMU_DIR/profile.py" --kallsyms "$results/kallsyms" "$results"/profile.*.n* \
		>"$OUT/bench-profile.md"
	say "instructions by function: $OUT/bench-profile.md"
fi
exit "$rc"
