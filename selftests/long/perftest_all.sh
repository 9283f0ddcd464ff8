#!/bin/bash
# timeout: 1500
# All of perftest's RDMA tools between two namespaces: one and eight queue
# pairs, both directions, all sizes, the connection manager, inline data,
# completion events (WRITE has none in these tools), a shared receive queue,
# UD. Both exit statuses and every line of results are checked. 'make perftest'
# runs it. The tools post by ibv_wr_*() only on devices that they know by their
# vendor; for that see flush.sh and 'make pyverbs'.
. "$(dirname "$0")/../lib.sh"
need_driver
modprobe rdma_ucm || skip_all "the module rdma_ucm cannot be loaded"
topo_pair 9000 || { say "the topology could not be made"; exit 1; }
TOOL_LIMIT=100

# The lines of results: size, iterations, figures.
lines() { grep -E '^ *[0-9]+ +[0-9]+ +[0-9.]+' "$1"; }
# figures FILE SIZES: so many sizes, each with a message rate or an average latency
# above zero (column 5 of a bandwidth, whose own columns may round to 0, and 6 of
# a latency).
figures() {
	lines "$1" | awk -v want="$2" '
		{ avg = NF > 6 ? $6 : $5; if (avg + 0 <= 0 || $2 + 0 <= 0 || $1 + 0 <= last + 0) bad = 1; last = $1; n++ }
		END { if (n != want || bad) { print n + 0 " good lines of results instead of " want; exit 1 } }'
}
# tool SIZES TOOL ARGS...: over IPv4.
tool() {
	local sizes=$1 rc=0
	shift
	perftest "$@" >"$TMP/tool.log" 2>&1 || rc=$?
	cat "$TMP/tool.log"
	((rc == 0)) && figures "$TMP/tool.log" "$sizes"
}
cm_listens() { on_a rdma resource show cm_id 2>/dev/null | grep -q "state LISTEN.*:$1 "; }
# The same through the connection manager.
tool_cm() {
	local sizes=$1 rc=0 srv_rc=0 pid
	shift
	PORT=$((PORT + 1))
	on_a timeout -k 5 "$TOOL_LIMIT" "$@" -F -R -p "$PORT" >"$TMP/server.log" 2>&1 &
	pid=$!
	wait_for 20 cm_listens "$PORT" || { echo "the server does not listen"; kill "$pid"; return 1; }
	on_b timeout -k 5 "$TOOL_LIMIT" "$@" -F -R -p "$PORT" "$IP_A" >"$TMP/tool.log" 2>&1 || rc=$?
	((rc == 0)) || kill "$pid" 2>/dev/null
	wait "$pid" || srv_rc=$?
	cat "$TMP/tool.log"
	((rc == 0 && srv_rc == 0)) || { echo "client: status $rc, server: status $srv_rc"; cat "$TMP/server.log"; return 1; }
	figures "$TMP/tool.log" "$sizes"
}

# -a: 2 bytes to 8 MiB. Atomics have 8 bytes, always.
for op in write read send; do
	check "ib_${op}_bw, all sizes" tool 23 "ib_${op}_bw" -a -n 5
	check "ib_${op}_lat, all sizes" tool 23 "ib_${op}_lat" -a -n 5
	check "ib_${op}_bw, 8 QPs" tool 1 "ib_${op}_bw" -q 8 -s 65536 -n 40
	check "ib_${op}_bw, both directions" tool 1 "ib_${op}_bw" -b -s 65536 -n 100
	check "ib_${op}_bw, both directions, 8 QPs" tool 1 "ib_${op}_bw" -b -q 8 -s 16384 -n 40
	[[ $op == write ]] || check "ib_${op}_bw -e" tool 1 "ib_${op}_bw" -e -s 65536 -n 100
	check "ib_${op}_bw -R" tool_cm 1 "ib_${op}_bw" -s 65536 -n 100
	check "ib_${op}_bw -R, 8 QPs" tool_cm 1 "ib_${op}_bw" -q 8 -s 16384 -n 40
	check "ib_${op}_lat -R" tool_cm 1 "ib_${op}_lat" -s 64 -n 100
	[[ $op != read ]] || continue
	check "ib_${op}_bw, inline" tool 1 "ib_${op}_bw" -I 64 -s 64 -n 500
	check "ib_${op}_lat, inline" tool 1 "ib_${op}_lat" -I 64 -s 64 -n 100
	check "ib_${op}_bw over UC" tool 1 "ib_${op}_bw" -c UC -s 65536 -n 100
done
for op in FETCH_AND_ADD CMP_AND_SWAP; do
	check "ib_atomic_bw, $op" tool 1 ib_atomic_bw -A "$op" -n 200
	check "ib_atomic_lat, $op" tool 1 ib_atomic_lat -A "$op" -n 100
	check "ib_atomic_bw, $op, 8 QPs" tool 1 ib_atomic_bw -A "$op" -q 8 -n 40
	check "ib_atomic_bw, $op, both directions" tool 1 ib_atomic_bw -A "$op" -b -n 200
	check "ib_atomic_bw -R, $op" tool_cm 1 ib_atomic_bw -A "$op" -n 200
done
check "ib_read_lat -e" tool 1 ib_read_lat -e -s 64 -n 100
check "ib_send_lat -e" tool 1 ib_send_lat -e -s 64 -n 100
check "ib_atomic_lat -e" tool 1 ib_atomic_lat -e -n 100
check "ib_send_bw --use-srq" tool 1 ib_send_bw --use-srq -s 16384 -n 100
check "ib_send_bw --use-srq, 8 QPs" tool 1 ib_send_bw --use-srq -q 8 -s 16384 -n 40
check "ib_send_lat --use-srq" tool 1 ib_send_lat --use-srq -s 64 -n 100
# Up to the port's MTU of 4096 bytes.
check "ib_send_bw over UD, all sizes" tool 12 ib_send_bw -c UD -a -n 50
check "ib_send_lat over UD, all sizes" tool 12 ib_send_lat -c UD -a -n 50
check "ib_send_lat over UD, inline" tool 1 ib_send_lat -c UD -I 64 -s 64 -n 100
finish
