#!/bin/bash
# timeout: 400
# Loads and unloads the module 100 times, alone and with a device.
. "$(dirname "$0")/lib.sh"
need_driver

loads() {
	local i
	for ((i = 1; i <= $1; i++)); do
		modprobe "$MODULE" || { echo "load $i failed"; return 1; }
		modprobe -r "$MODULE" || { echo "unload $i failed"; return 1; }
	done
}
with_device() {
	local i
	ip link add "d$ID" type dummy || return 1
	ip link set "d$ID" up
	for ((i = 1; i <= $1; i++)); do
		modprobe "$MODULE" &&
			rdma link add "mr${ID}l" type "$DRIVER" netdev "d$ID" &&
			rdma link delete "mr${ID}l" &&
			wait_for 10 modprobe -r "$MODULE" || { echo "round $i failed"; return 1; }
	done
	ip link del "d$ID"
}
check "100 loads and unloads" loads 100
check "20 rounds with a device" with_device 20
ip link del "d$ID" 2>/dev/null
finish
