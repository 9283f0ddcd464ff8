# shellcheck shell=bash
# Shared by the scripts of this directory: paths, messages, step runner.

set -euo pipefail

QEMU_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TREE=$(dirname "$QEMU_DIR")
CACHE=${METAROCE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/metaroce}
OUT=${METAROCE_OUT:-$TREE/out}
BUILD=${METAROCE_BUILD:-$CACHE/build}
BUILDROOT=$CACHE/buildroot
KSRC=$CACHE/linux
export METAROCE_CACHE=$CACHE
unset MAKEFLAGS MFLAGS MAKELEVEL
export LC_ALL=C.UTF-8

# shellcheck source=qemu/versions.sh
. "$QEMU_DIR/versions.sh"

say() { printf '%s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# need_root WHY: ends the script, with the reason, when it does not run as root.
need_root() {
	[[ $(id -u) -eq 0 ]] ||
		die "This must run as root, because it $1; run it with sudo."
}

# need_tool COMMAND PACKAGE: installs the package when the command is missing.
need_tool() {
	local cmd=$1 pkg=$2
	command -v "$cmd" >/dev/null 2>&1 && return 0
	if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null 2>&1; then
		die "The command '$cmd' is missing; install the package '$pkg' and run this again."
	fi
	mkdir -p "$CACHE/logs"
	say "installing the package '$pkg' on this machine (it brings '$cmd')"
	{
		DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$pkg" ||
			{ apt-get update && DEBIAN_FRONTEND=noninteractive \
				apt-get install -y --no-install-recommends "$pkg"; }
	} >"$CACHE/logs/host-$pkg.log" 2>&1 ||
		die "The package '$pkg' could not be installed; the log is $CACHE/logs/host-$pkg.log."
	command -v "$cmd" >/dev/null 2>&1 ||
		die "The package '$pkg' is installed but '$cmd' is still missing."
}

# hash_of STRING...: a short hash over its arguments.
hash_of() { printf '%s\n' "$@" | sha256sum | cut -c1-16; }
# hash_files FILE...: a short hash over names and contents.
hash_files() { cat -- "$@" | sha256sum | cut -c1-16; }

STEP_NO=0
STEP_OF=${STEP_OF:-0}

# step NAME HASH FUNCTION "what it does": runs FUNCTION unless the stamp of
# NAME already holds HASH. HASH "always" runs it every time.
step() {
	local name=$1 hash=$2 func=$3 what=$4
	local log=$CACHE/logs/$name.log stamp=$CACHE/stamps/$name
	local start=$SECONDS pid rc=0 total="" beat=0
	STEP_NO=$((STEP_NO + 1))
	[[ $STEP_OF -eq 0 ]] || total="/$STEP_OF"
	mkdir -p "$CACHE/logs" "$CACHE/stamps"
	if [[ $hash != always && -f $stamp && $(<"$stamp") == "$hash" ]]; then
		printf '[%s%s] %s: up to date\n' "$STEP_NO" "$total" "$name"
		return 0
	fi
	printf '[%s%s] %s: %s\n' "$STEP_NO" "$total" "$name" "$what"
	rm -f "$stamp"
	# A process group of its own, so that an interruption ends all of it.
	set -m
	( set -euo pipefail; trap - EXIT INT TERM; "$func" ) >"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	# shellcheck disable=SC2064
	trap "kill -TERM -- -$pid 2>/dev/null || true; wait $pid 2>/dev/null || true; exit 130" INT TERM
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.2
		beat=$((beat + 1))
		if ((beat % 50 == 0)); then
			printf '        %s: %ss, at: %s\n' "$name" "$((SECONDS - start))" \
				"$(tail -n 1 "$log" 2>/dev/null | tr -d '\r' | cut -c1-90)"
		fi
	done
	wait "$pid" || rc=$?
	trap - INT TERM
	if ((rc != 0)); then
		printf -- '---- last lines of %s\n' "$log" >&2
		tail -n 30 "$log" >&2 || true
		printf -- '----\n' >&2
		die "The step '$name' failed with status $rc; its log is $log."
	fi
	[[ $hash == always ]] || { printf '%s\n' "$hash" >"$stamp.new" && mv "$stamp.new" "$stamp"; }
	printf '[%s%s] %s: done in %ss\n' "$STEP_NO" "$total" "$name" "$((SECONDS - start))"
}

# The kernel version that setup.sh chose.
kver() {
	[[ -s $CACHE/kver ]] || die "No kernel is set up yet; run 'make setup' first."
	cat "$CACHE/kver"
}

in_buildroot() { "$QEMU_DIR/buildroot.sh" "$@"; }

step_module() { "$QEMU_DIR/build.sh" module; }
step_provider() { "$QEMU_DIR/build.sh" provider; }
step_hostile() { "$QEMU_DIR/build.sh" netfuzz && "$QEMU_DIR/build.sh" userfuzz; }
# Module, provider and the hostile programs as steps; nothing when another driver is tested.
build_steps() {
	[[ ${DRIVER:-metaroce} == metaroce ]] || return 0
	step module always step_module "building the kernel module"
	step provider always step_provider "building the provider"
	step hostile always step_hostile "building the hostile sender and process"
}
