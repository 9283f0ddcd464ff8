#!/bin/bash
# Refused attachments: a useful errno, and a line in the kernel log.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }

refused() {
	local want=$1 rc=0
	shift
	on_a rdma link add "$@" >"$TMP/err" 2>&1 || rc=$?
	cat "$TMP/err"
	((rc != 0)) || { echo "was accepted"; return 1; }
	grep -qiE "$want" "$TMP/err"
}
logged() {
	[[ $DRIVER == metaroce ]] || { echo "only metaroce promises a log line"; return 4; }
	dmesg | tail -n 40 | grep "metaroce" | grep -E "$1"
}
wrong_kind() {
	on_a ip link add t0 type dummy || return 1
	on_a ip link set t0 up
	on_a rdma link add "mr${ID}t" type "$DRIVER" netdev lo
	local rc=$?
	on_a rdma link delete "mr${ID}t" 2>/dev/null
	on_a ip link del t0
	echo "attaching to the loopback interface ended with status $rc"
	return 0
}
still_works() { pingpong "$IP_A" "$IP_B" -s 64 -n 10; }

check "no such network interface" refused "No such device|Invalid argument|does not exist" "mr${ID}x" type "$DRIVER" netdev nosuch0
check "interface already taken" refused "File exists|busy|already" "mr${ID}x" type "$DRIVER" netdev eth0
check "the refusal is in the kernel log" logged "eth0"
check "name already taken" refused "File exists|busy|already" "$DEV_A" type "$DRIVER" netdev eth0
check "unknown type" refused "Operation not supported|Invalid|No such|not supported" "mr${ID}x" type "nosuch$ID" netdev eth0
check "attaching to the loopback interface does no harm" wrong_kind
check "the device works afterwards" still_works
finish
