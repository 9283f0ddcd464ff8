#!/bin/bash
# Runs in the guest: measures metaroce, rxe, siw and TCP over one topology, in
# turn, and writes one line of JSON per measurement to $OUTDIR/samples.jsonl.
# Called by qemu/bench.sh; the settings come from the environment:
#   BENCH_REPS      how often everything is measured
#   BENCH_DRIVERS   metaroce rxe siw tcp
#   BENCH_MTUS      1500 9000
#   BENCH_OFFLOADS  off on
#   BENCH_CASES     names of cases, see measure()
#   BENCH_PARAMS    parameters of the module metaroce
LIB_PLAIN=1
. /payload/selftests/lib.sh

REPS=${BENCH_REPS:-3}
read -r -a DRIVERS <<<"${BENCH_DRIVERS:-metaroce rxe siw tcp}"
read -r -a MTUS <<<"${BENCH_MTUS:-1500 9000}"
read -r -a OFFLOADS <<<"${BENCH_OFFLOADS:-off on}"
read -r -a CASES <<<"${BENCH_CASES:-write-64k}"
read -r -a PARAMS <<<"${BENCH_PARAMS:-}"
SAMPLES=$OUTDIR/samples.jsonl
: >"$SAMPLES"
failed=0

# offloads on|off: segmentation and receive offloads of all links; the checksum stays with the device.
offloads() {
	local pair
	for pair in "$A eth0" "$B eth0" "$FABRIC1 ra" "$FABRIC1 rb"; do
		# shellcheck disable=SC2086
		ip netns exec ${pair% *} ethtool -K ${pair#* } gso "$1" tso "$1" gro "$1" \
			tx-udp-segmentation "$1" >/dev/null
	done
}

# use DRIVER: its device in both namespaces, that of the last one gone.
current=
use() {
	[[ $current != "$1" ]] || return 0
	local dev
	for dev in "${DEVICES[@]}"; do rdma link delete "$dev" >/dev/null 2>&1; done
	DEVICES=() current=$1
	[[ $1 != tcp ]] || return 0
	DRIVER=$1
	DEV_A=$1-a DEV_B=$1-b
	add_device "$A" "$DEV_A" eth0 && add_device "$B" "$DEV_B" eth0
}

# tool NAME ARGS...: perftest between B (client) and A (server), the client's table.
tool() {
	local name=$1 ga=0 gb=0 opts=(-F) cm=()
	shift
	# Two processes that poll would share the one CPU in turns of milliseconds: those that
	# receive messages sleep until there is an event. The tool offers that for SEND only.
	[[ $name != ib_send_* ]] || opts+=(-e)
	if [[ $DRIVER == siw ]]; then
		# Connections of iWARP need its connection manager.
		cm=(-R)
	else
		ga=$(wait_gid "$DEV_A" "$IP_A") && gb=$(wait_gid "$DEV_B" "$IP_B") || return 1
	fi
	SERVER_ARGS=(-d "$DEV_A" -x "$ga") CLIENT_ARGS=(-d "$DEV_B" -x "$gb")
	# Bound to an address: else the other namespace's device would be asked to listen too.
	[[ $DRIVER != siw ]] || SERVER_ARGS=(-d "$DEV_A" --bind_source_ip "$IP_A") \
		CLIENT_ARGS=(-d "$DEV_B" --bind_source_ip "$IP_B")
	TOOL_LIMIT=${BENCH_LIMIT:-120} client_server "$A" "$B" "$IP_A" "$name" "${opts[@]}" "${cm[@]}" "$@"
}

# taken FILE: the host has seen FILE. Idle time is nothing to a guest under -icount: look, do not sleep.
taken() {
	local n
	for ((n = 0; n < 1000000; n++)); do
		[[ -e $1 ]] || return 0
	done
	return 1
}

# profiled CASE MESSAGES COMMAND: counts instructions meanwhile when BENCH_PROFILE is
# set; qemu/profile-plugin.c takes the files away when it has seen them, perhaps before the
# shell that creates one has opened it.
profiled() {
	local file=$OUTDIR/profile.$driver.$1.$mtu.$off.n$2 rc=0
	shift 2
	[[ -n ${BENCH_PROFILE:-} ]] || { "$@"; return; }
	{ : >"$OUTDIR/profile.start"; } 2>"$TMP/touch.log"
	taken "$OUTDIR/profile.start" || return 1
	"$@" || rc=$?
	{ : >"$file.stop"; } 2>"$TMP/touch.log"
	taken "$file.stop" || return 1
	return "$rc"
}

# row: the last line of numbers.
row() { awk '$1 ~ /^[0-9]+$/ && NF >= 4 { line = $0 } END { print line }'; }

# sample CASE VALUE-PAIRS...: "name":value, ...
sample() {
	local case=$1
	shift
	printf '{"case":"%s","driver":"%s","mtu":%s,"offloads":"%s",%s}\n' "$case" "$driver" "$mtu" "$off" "$*" >>"$SAMPLES"
}

bandwidth() { # CASE OPERATION SIZE ITERATIONS ARGS...
	local case=$1 op=$2 size=$3 iters=$4 line
	shift 4
	line=$(profiled "$case" "$iters" tool "ib_${op}_bw" -s "$size" -n "$iters" "$@" 2>&1 | tee "$TMP/tool.log" | row)
	# bytes iterations peak average Mmsg/s
	read -r _ _ _ avg rate _ <<<"$line"
	[[ -n ${rate:-} ]] || return 1
	sample "$case" "\"mbs\":$avg,\"mmsgs\":$rate"
}

latency() { # CASE OPERATION SIZE ITERATIONS ARGS...
	local case=$1 op=$2 size=$3 iters=$4 line
	shift 4
	line=$(profiled "$case" "$iters" tool "ib_${op}_lat" -s "$size" -n "$iters" "$@" 2>&1 | tee "$TMP/tool.log" | row)
	# bytes iterations min max typical average stdev 99% 99.9%
	read -r _ _ _ _ typ _ _ p99 p999 _ <<<"$line"
	[[ -n ${p999:-} ]] || return 1
	sample "$case" "\"p50\":$typ,\"p99\":$p99,\"p999\":$p999"
}

tcp_bandwidth() { # CASE SIZE BYTES
	local bps pid
	on_a iperf3 -s -1 -p 5201 >"$TMP/iperf.log" 2>&1 &
	pid=$!
	wait_for 20 listens "$A" 5201 || return 1
	on_b iperf3 -c "$IP_A" -p 5201 -l "$2" -n "$3" -J >"$TMP/tool.log" 2>&1
	bps=$(jq '.end.sum_received.bits_per_second / 8388608' "$TMP/tool.log")
	wait "$pid"
	[[ -n $bps && $bps != null ]] || return 1
	sample "$1" "\"mbs\":$bps"
}

measure() { # CASE
	local n=${BENCH_SCALE:-1}
	if [[ $driver == tcp ]]; then
		case $1 in
		write-4k) tcp_bandwidth "$1" 4096 $((24 * n))M ;;
		write-64k) tcp_bandwidth "$1" 65536 $((48 * n))M ;;
		write-1m) tcp_bandwidth "$1" 1M $((48 * n))M ;;
		esac
		return
	fi
	case $1 in
	write-4k | send-4k | read-4k) bandwidth "$1" "${1%-*}" 4096 $((3000 * n)) ;;
	write-64k | send-64k | read-64k) bandwidth "$1" "${1%-*}" 65536 $((400 * n)) ;;
	write-1m | send-1m | read-1m) bandwidth "$1" "${1%-*}" 1048576 $((30 * n)) -t 16 ;;
	write-64k-q16) bandwidth "$1" write 65536 $((40 * n)) -q 16 -t 16 ;;
	rate-64) bandwidth "$1" write 64 $((10000 * n)) ;;
	rate-64-q8) bandwidth "$1" write 64 $((2000 * n)) -q 8 ;;
	lat-send-2) latency "$1" send 2 $((1000 * n)) ;;
	lat-send-4k) latency "$1" send 4096 $((1000 * n)) ;;
	*) echo "there is no case '$1'"; return 1 ;;
	esac
}

modprobe metaroce "${PARAMS[@]}" && modprobe rdma_rxe && modprobe siw || exit 1
for mtu in "${MTUS[@]}"; do
	topo_routed "$mtu" || { echo "the topology could not be made"; exit 1; }
	for off in "${OFFLOADS[@]}"; do
		offloads "$off"
		for ((rep = 1; rep <= REPS; rep++)); do
			for driver in "${DRIVERS[@]}"; do
				use "$driver" || { echo "no device of $driver"; exit 1; }
				for case in "${CASES[@]}"; do
					if ! measure "$case"; then
						echo "no result: $case, $driver, MTU $mtu, offloads $off"
						tail -n 20 "$TMP/tool.log"
						failed=1
					fi
				done
			done
			echo "# MTU $mtu, offloads $off: round $rep of $REPS done"
		done
	done
	use tcp
	cleanup
done
[[ -z ${BENCH_PROFILE:-} ]] || cat /proc/kallsyms >"$OUTDIR/kallsyms"
exit "$failed"
