#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
#
# Lists references from the engine to core::panicking, built as in the kernel: optimised, with
# overflow checks, panic=abort. Fails when there are more than the number allowed.
#
# Usage: panic-gate.sh [ALLOWED]

set -eu
allowed=${1:-0}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Generic code is only checked where it is instantiated: with fixed buffers and a host that refuses.
cat >"$work/gate.rs" <<EOF
#![no_std]
#[path = "$here/../engine/mod.rs"]
pub mod engine;
include!("$here/gate/instance.rs");
EOF
rustc --edition 2021 --crate-type staticlib --crate-name gate -C opt-level=2 \
	-C overflow-checks=on -C debug-assertions=off -C panic=abort -C codegen-units=1 \
	-C symbol-mangling-version=v0 --emit=obj="$work/gate.o" "$work/gate.rs" 2>"$work/log" ||
	{ cat "$work/log"; exit 2; }
# Whose relocations name panic functions.
objdump -dr --no-show-raw-insn -C "$work/gate.o" |
	awk '/^[0-9a-f]+ <.*>:$/ { fn = $0; sub(/^[0-9a-f]+ /, "", fn) }
	     /R_.*(panicking|panic_|unwrap_failed|expect_failed|slice_.*fail|len_mismatch)/ {
		sub(/^.*R_[A-Z0-9_]+[ \t]+/, ""); print fn " -> " $0 }' |
	grep -v '^<gate::panic' | sort >"$work/found" || true
n=$(wc -l <"$work/found")
cat "$work/found"
echo "panic references: $n (allowed $allowed)"
[ "$n" -le "$allowed" ]
