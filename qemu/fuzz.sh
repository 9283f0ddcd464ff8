#!/bin/bash
# 'make fuzz MINUTES=n': runs the fuzz targets under libFuzzer, one after the other, at low
# priority. Inputs that cover something new are kept between runs; one that breaks a rule ends the
# run and is left under $OUT/fuzz. Needs no nightly compiler: the coverage counters are put in by an LLVM pass.
# Usage: qemu/fuzz.sh MINUTES [TARGET...]
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

minutes=${1:-3}
shift || true
[[ $minutes =~ ^[0-9]+$ ]] || die "MINUTES must be a number, not '$minutes'."
targets=("$@")
((${#targets[@]})) || targets=(parser endpoint pair)
host=$(rustc -vV 2>/dev/null | sed -n 's/^host: //p')
[[ -n $host ]] || die "make fuzz needs a Rust compiler on this machine."

flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on"
say "building the targets: ${targets[*]}"
# With --target the flags do not reach build scripts.
RUSTFLAGS=$flags CARGO_TARGET_DIR=$BUILD/cargo-fuzz cargo build --quiet --release --target "$host" \
	--manifest-path "$TREE/rust/host/Cargo.toml" -p metaroce-fuzz --bins --features libfuzzer
mkdir -p "$OUT/fuzz"
each=$((minutes * 60 / ${#targets[@]}))
for target in "${targets[@]}"; do
	corpus=$BUILD/fuzz-corpus/$target
	mkdir -p "$corpus"
	seeds=("$corpus")
	[[ ! -d $TREE/rust/host/fuzz/regressions/$target ]] || seeds+=("$TREE/rust/host/fuzz/regressions/$target")
	say "fuzzing $target for $each s (log: $OUT/fuzz/$target.log)"
	rc=0
	nice -n 19 "$BUILD/cargo-fuzz/$host/release/$target" -max_total_time="$each" -max_len=4096 -timeout=60 \
		-rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$OUT/fuzz/$target-" \
		"${seeds[@]}" >"$OUT/fuzz/$target.log" 2>&1 || rc=$?
	grep -E 'number_of_executed_units|new_units_added' "$OUT/fuzz/$target.log" || true
	grep -E 'cov: ' "$OUT/fuzz/$target.log" | tail -n 1 || true
	((rc == 0)) || {
		grep -E 'panicked|Test unit written' -A 1 "$OUT/fuzz/$target.log" | head -n 10
		die "$target broke a rule; run it again with: qemu/cargo.sh run -p metaroce-fuzz --example replay -- $target FILE"
	}
done
