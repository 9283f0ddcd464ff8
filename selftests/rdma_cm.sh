#!/bin/bash
# timeout: 600
# The connection manager: librdmacm's tools and perftest -R between two
# namespaces, over IPv4 and IPv6, without and with loss.
. "$(dirname "$0")/lib.sh"

need_driver
modprobe rdma_ucm || skip_all "the module rdma_ucm cannot be loaded"
topo_pair 1500 || { say "the topology could not be made"; exit 1; }

cm_listens() { on "$1" rdma resource show cm_id 2>/dev/null | grep -q "state LISTEN.*:$2 "; }

# cm_pair PORT SERVER-COMMAND... -- CLIENT-COMMAND...: server in A, client in B.
cm_pair() {
	local port=$1 server=() pid rc=0 srv_rc=0
	shift
	while [[ $1 != -- ]]; do server+=("$1"); shift; done
	shift
	on_a timeout -k 5 "$TOOL_LIMIT" "${server[@]}" >"$TMP/server.log" 2>&1 &
	pid=$!
	if ! wait_for 20 cm_listens "$A" "$port"; then
		echo "the server does not listen"
		rc=1
	else
		on_b timeout -k 5 "$TOOL_LIMIT" "$@" 2>&1 || rc=$?
	fi
	((rc == 0)) || kill "$pid" 2>/dev/null
	wait "$pid" || srv_rc=$?
	((rc == 0 && srv_rc == 0)) && return 0
	echo "client: status $rc, server: status $srv_rc; the server said:"
	cat "$TMP/server.log"
	return 1
}

next_port() { PORT=$((PORT + 1)); }

rping_pair() {
	next_port
	cm_pair "$PORT" rping -s -a "$1" -p "$PORT" -C 20 -v -S 1000 -- \
		rping -c -a "$1" -p "$PORT" -C 20 -v -V -S 1000
}
# 100 messages each way on each of 4 connections.
ucmatose_pair() {
	next_port
	cm_pair "$PORT" ucmatose -b "$1" -p "$PORT" -c 4 -C 100 -S 3000 -- \
		ucmatose -s "$1" -p "$PORT" -c 4 -C 100 -S 3000
}
# Datagrams are not sent again: only without loss.
udaddy_pair() { cm_pair 7174 udaddy -b "$1" -c 2 -C 50 -S 500 -- udaddy -s "$1" -c 2 -C 50 -S 500; }
# With data verification, sizes up to 64 KiB.
rstream_pair() {
	next_port
	cm_pair "$PORT" rstream -b "$1" -p "$PORT" -C 20 -S 65536 -T v -- \
		rstream -s "$1" -p "$PORT" -C 20 -S 65536 -T v
}
riostream_pair() {
	next_port
	cm_pair "$PORT" riostream -b "$1" -p "$PORT" -C 20 -S 65536 -T v -- \
		riostream -s "$1" -p "$PORT" -C 20 -S 65536 -T v
}
cmtime_pair() {
	next_port
	cm_pair "$PORT" cmtime -b "$1" -p "$PORT" -c 20 -- cmtime -s "$1" -p "$PORT" -c 20
}
perftest_cm() {
	local address=$1 tool=$2 six=()
	shift 2
	[[ $address != *:* ]] || six=(--ipv6-addr)
	next_port
	cm_pair "$PORT" "$tool" -R -F -p "$PORT" "${six[@]}" "$@" -- \
		"$tool" -R -F -p "$PORT" "${six[@]}" "$@" "$address"
}

round() {
	local how=$1 v4=$IP_A v6=$IP6_A address name
	for address in "$v4" "$v6"; do
		name="IPv4$how"
		[[ $address != *:* ]] || name="IPv6$how"
		check "rping over $name" rping_pair "$address"
		check "ucmatose over $name" ucmatose_pair "$address"
		check "rstream over $name" rstream_pair "$address"
		check "riostream over $name" riostream_pair "$address"
		# Its own TCP connection knows only IPv4.
		[[ $address == *:* ]] || check "cmtime over $name" cmtime_pair "$address"
		check "ib_write_bw -R over $name" perftest_cm "$address" ib_write_bw -s 65536 -n 200
		check "ib_send_lat -R over $name" perftest_cm "$address" ib_send_lat -s 64 -n 200
		[[ -n $how ]] || check "udaddy over $name" udaddy_pair "$address"
	done
}

round ""
impair "$A" eth0 loss 1% && impair "$B" eth0 loss 1%
round ", 1 % loss"
finish
