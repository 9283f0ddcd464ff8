#!/bin/bash
# timeout: 900
# Devices, interfaces and namespaces vanish under traffic, and applications
# are killed with packets under way: nothing hangs, nothing leaks.
. "$(dirname "$0")/lib.sh"
need_driver

SERVER="" CLIENT=""
traffic() {
	local ga gb
	ga=$(wait_gid "$DEV_A" "$IP_A") && gb=$(wait_gid "$DEV_B" "$IP_B") || return 1
	PORT=$((PORT + 1))
	on_a timeout -k 5 60 ib_write_bw -F -d "$DEV_A" -x "$ga" -p "$PORT" -D 40 -s 65536 >"$TMP/server.log" 2>&1 &
	SERVER=$!
	wait_for 20 listens "$A" "$PORT" || return 1
	on_b timeout -k 5 60 ib_write_bw -F -d "$DEV_B" -x "$gb" -p "$PORT" -D 40 -s 65536 "$IP_A" >"$TMP/client.log" 2>&1 &
	CLIENT=$!
	local before
	before=$(link_packets "$B" eth0)
	moving() { (($(link_packets "$B" eth0) > before + 2000)); }
	wait_for 20 moving || { echo "no traffic"; cat "$TMP/client.log"; return 1; }
}
ended() { ! kill -0 "$1" 2>/dev/null; }
client_ends_with_error() {
	local rc=0
	wait_for 30 ended "$CLIENT" || { echo "the client goes on"; cat "$TMP/client.log"; return 1; }
	wait "$CLIENT" || rc=$?
	cat "$TMP/client.log"
	echo "the client ended with status $rc"
	((rc != 0))
}
stop_tools() {
	kill "$SERVER" "$CLIENT" 2>/dev/null
	for job in $(ip netns pids "$A" 2>/dev/null) $(ip netns pids "$B" 2>/dev/null); do kill "$job" 2>/dev/null; done
	wait "$SERVER" "$CLIENT" 2>/dev/null
	return 0
}
# under_traffic WHAT COMMAND...: the command under traffic; then all is gone.
under_traffic() {
	local what=$1
	shift
	topo_pair 1500 || { ktap_test_fail "$what: topology"; cleanup; return; }
	if ! traffic >"$TMP/traffic.log" 2>&1; then
		show "$TMP/traffic.log"
		ktap_test_fail "$what: traffic runs"
		stop_tools
		cleanup
		return
	fi
	check "$what: is done within its time" timeout 30 "$@"
	check "$what: the application ends with an error" client_ends_with_error
	stop_tools
	cleanup
	check "$what: nothing is left" nothing_left
}

under_traffic "rdma link delete of the client" rdma link delete "$DEV_B"
under_traffic "ip link del" ip netns exec "$B" ip link del eth0
under_traffic "rdma link delete of the server" rdma link delete "$DEV_A"

if [[ $DRIVER == metaroce ]]; then
	under_traffic "unloading" modprobe -r "$MODULE"
fi

# What the application itself sees: see vanish.py.
told() {
	local pid rc=0 gid
	topo_pair 1500 || return 1
	gid=$(wait_gid "$DEV_B" "$IP_B") || return 1
	on_b timeout -k 5 90 python3 "$HERE/vanish.py" --device "$DEV_B" --gid "$gid" >"$TMP/vanish.log" 2>&1 &
	pid=$!
	if wait_for 30 grep -q ready "$TMP/vanish.log"; then
		timeout 30 "$@" || { rc=$?; echo "status $rc: $*"; }
	else
		echo "the application did not start"
		rc=1
	fi
	wait "$pid" || { rc=$?; echo "the application ended with status $rc"; }
	cat "$TMP/vanish.log"
	return "$rc"
}
if [[ $DRIVER == metaroce ]]; then
	check "rdma link delete: all is flushed, the application is told" told rdma link delete "$DEV_B"
	cleanup
	check "ip link del: all is flushed, the application is told" told ip netns exec "$B" ip link del eth0
	cleanup
	check "unloading: all is flushed, the application is told" told modprobe -r "$MODULE"
	cleanup
	check "told: nothing is left" nothing_left
fi

# A namespace lives as long as processes in it do: the interface is moved out
# by force only when the last one is gone.
netns_del() {
	topo_pair 1500 && traffic || return 1
	ip netns pids "$B" >"$TMP/pids"
	ip netns del "$B"
	while read -r pid; do kill -KILL "$pid" 2>/dev/null; done <"$TMP/pids"
	wait "$CLIENT" 2>/dev/null
	if [[ $DRIVER == metaroce ]]; then
		wait_for 20 device_gone "$DEV_B" || { echo "the device is still there"; rdma link; return 1; }
	fi
}
check "namespace deleted under traffic" netns_del
stop_tools
cleanup
check "namespace deleted under traffic: nothing is left" nothing_left

killed() {
	topo_pair 1500 || return 1
	impair "$A" eth0 delay 500ms
	impair "$B" eth0 delay 500ms
	local ga gb pid
	ga=$(wait_gid "$DEV_A" "$IP_A") && gb=$(wait_gid "$DEV_B" "$IP_B") || return 1
	PORT=$((PORT + 1))
	on_a ib_write_bw -F -d "$DEV_A" -x "$ga" -p "$PORT" -D 40 -s 65536 >"$TMP/server.log" 2>&1 &
	SERVER=$!
	wait_for 20 listens "$A" "$PORT" || return 1
	on_b ib_write_bw -F -d "$DEV_B" -x "$gb" -p "$PORT" -D 40 -s 65536 "$IP_A" >"$TMP/client.log" 2>&1 &
	CLIENT=$!
	local before
	before=$(link_packets "$B" eth0)
	moving() { (($(link_packets "$B" eth0) > before + 60)); }
	wait_for 30 moving || { echo "no traffic"; cat "$TMP/client.log"; return 1; }
	local begin=${EPOCHREALTIME/./}
	kill -KILL "$CLIENT" "$SERVER"
	for pid in $(ip netns pids "$B") $(ip netns pids "$A"); do kill -KILL "$pid" 2>/dev/null; done
	wait_for 10 ns_pids_gone "$B" || { echo "the client cannot be killed"; return 1; }
	wait_for 10 ns_pids_gone "$A" || { echo "the server cannot be killed"; return 1; }
	echo "gone after $(((${EPOCHREALTIME/./} - begin) / 1000)) ms"
}
check "killed with packets in a long queue" killed
stop_tools
cleanup
check "killed with packets in a long queue: nothing is left" nothing_left

churn() {
	local i
	for ((i = 1; i <= 20; i++)); do
		topo_pair 1500 || { echo "round $i: topology"; return 1; }
		cleanup
	done
}
check "20 topologies made and removed" churn
finish
