#!/bin/bash
# timeout: 300
# Hostile processes beside one with a verified transfer, on the same device:
# random verbs by several threads, and a thread that scribbles over mapped
# rings. Only they suffer; nothing of theirs stays. See userfuzz.c.
# USERFUZZ_SECONDS and USERFUZZ_SEED change what is tried.
. "$(dirname "$0")/lib.sh"
[[ $DRIVER == metaroce ]] || skip_all "the rings that are scribbled over are metaroce's"
FUZZ=$HERE/../tools/userfuzz
[[ -x $FUZZ ]] || skip_all "userfuzz is not built: qemu/build.sh userfuzz"
need_driver
seconds=${USERFUZZ_SECONDS:-6}
seed=${USERFUZZ_SEED:-$((RANDOM * 32768 + RANDOM))}
say "seed $seed, $seconds s of each"
TOOL_LIMIT=$((seconds * 10 + 200))
topo_pair 1500 || { say "the topology could not be made"; exit 1; }
GID_A=$(wait_gid "$DEV_A" "$IP_A") || { say "no GID"; exit 1; }

resources() { on_a rdma resource show "$DEV_A" | sed 's/^[0-9]*: //'; }
connections() { grep -c '^conn ' "/sys/kernel/debug/metaroce/$DEV_A/connections"; }
fuzz() { on_a timeout -k 5 "$TOOL_LIMIT" "$FUZZ" "$1" "$DEV_A" "$GID_A" "$2" "$seconds"; }
nothing_of_theirs() { [[ $(resources) == "$before" ]]; }
baseline() {
	wait_for 30 nothing_of_theirs
	echo "before: $before"
	echo "after:  $(resources)"
	nothing_of_theirs
}
lingering_gone() { [[ $(connections) == 0 ]]; }
memory_is_bounded() { memory=$(kernel_memory) && ((memory < before_memory + 8192)); }
bounded() {
	wait_for 30 lingering_gone || { echo "$(connections) connections stay"; return 1; }
	wait_for 30 memory_is_bounded
	echo "kernel memory before: $before_memory KiB, after: $memory KiB"
	memory_is_bounded
}
show_result() { sed 's/^/#   /' "$OUTDIR"/"$1"_*.log; }

# The first round fills caches that stay.
check "rings are scribbled over, without other traffic" fuzz rings "$seed"
wait_for 20 lingering_gone
before_memory=$(kernel_memory)
steady_begin --seed "$seed" --limit 120 || ktap_test_fail "verified traffic begins"
before=$(resources)
check "rings are scribbled over" fuzz rings "$((seed + 1))"
show_result rings
check "verbs at random by several threads" fuzz verbs "$((seed + 2))"
show_result verbs
check "nothing of the hostile processes stays" baseline
steady_end
check "a connection works afterwards" pingpong "$IP_A" "$IP_B" -s 4097 -n 100
check "kernel memory and connections are back" bounded
finish
