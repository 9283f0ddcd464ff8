#!/bin/bash
# timeout: 300
# Hostile datagrams of every kind, from where an attacker may be, while a
# verified transfer goes on:
#   a stranger with 65,536 addresses; one who sends in the peer's name and knows nothing of the
#   connection; one who sees the traffic and sends it again; a peer that shakes hands and then lies.
# NETFUZZ_SECONDS, NETFUZZ_COUNT (datagrams, at least) and NETFUZZ_SEED change what is sent.
. "$(dirname "$0")/lib.sh"
[[ $DRIVER == metaroce ]] || skip_all "the sender speaks metaroce's protocol"
SENDER=$HERE/../tools/metaroce-netfuzz
[[ -x $SENDER ]] || skip_all "the sender is not built: qemu/build.sh netfuzz"
need_driver
seconds=${NETFUZZ_SECONDS:-5} count=${NETFUZZ_COUNT:-0}
seed=${NETFUZZ_SEED:-$((RANDOM * 32768 + RANDOM))}
say "seed $seed, $seconds s, at least $count datagrams"
TOOL_LIMIT=$((seconds * 20 + 200))

topo_pair 1500 || { say "the topology could not be made"; exit 1; }
# The attacker C behind B, which routes: all that it sends arrives at A's only interface.
C=mr$ID-c
IP_C=10.79.0.2
new_netns "$C"
ip link add eth1 netns "$B" type veth peer name eth0 netns "$C"
on_b ip addr add 10.79.0.1/24 dev eth1
on "$C" ip addr add "$IP_C/24" dev eth0
on_b ip link set eth1 up
on "$C" ip link set eth0 up
on_b sysctl -qw net.ipv4.ip_forward=1
on "$C" ip route add default via 10.79.0.1
on "$C" ip route add local 10.80.0.0/16 dev lo
on_b ip route add 10.80.0.0/16 via "$IP_C"
on_a ip route add default via "$IP_B"
wait_for 5 on "$C" ping -c 1 -W 1 "$IP_A"

memory_is_bounded() { after=$(kernel_memory) && ((after < before_memory + 8192)); }
connections() { grep -c '^conn ' "/sys/kernel/debug/metaroce/$DEV_A/connections"; }
# Sum of the counters of datagrams that came in: for a connection, or dropped.
counted() {
	on_a rdma statistic show link "$DEV_A/1" |
		grep -oE '(rcvd_pkts|rcvd_datagrams|rx_(malformed|unknown_connection|wrong_qkey|datagrams)_dropped) [0-9]+' |
		awk '{ sum += $2 } END { print sum + 0 }'
}

stop=$TMP/stop
start_victim() {
	local gid
	gid=$(wait_gid "$DEV_A" "$IP_A") || return 1
	on_a timeout -k 5 "$TOOL_LIMIT" python3 "$HERE/netfuzz_victim.py" --device "$DEV_A" --gid "$gid" \
		--peer "$(gid_of_address "$IP_C")" --file "$TMP/victim" --stop "$stop" --seed "$seed" >"$TMP/victim.log" 2>&1 &
	VICTIM=$!
	wait_for 60 grep -q ready "$TMP/victim.log" || { cat "$TMP/victim.log"; return 1; }
}
# hostile NAME NETNS MODE ARGS...: one sender, in the background
declare -A HOSTILE=()
hostile() {
	local name=$1 ns=$2
	shift 2
	on "$ns" timeout -k 5 "$TOOL_LIMIT" "$SENDER" "$@" --to "$IP_A" --port "$UDP_PORT" --seconds "$seconds" \
		--count "$((count / 4))" --seed "$((seed + ${#HOSTILE[@]}))" >"$OUTDIR/$name.log" 2>&1 &
	HOSTILE[$name]=$!
}
# Traffic as B's neighbour sees it, anew every second.
watch_traffic() {
	while [[ ! -e $stop ]]; do
		on_a timeout 5 tcpdump -i eth0 -n -w "$TMP/seen.new" -c 400 \
			"udp dst port $UDP_PORT and src $IP_B and dst $IP_A" >/dev/null 2>&1
		mv "$TMP/seen.new" "$TMP/seen.pcap" 2>/dev/null
		sleep 1
	done
}
senders_end() {
	local name rc=0
	for name in "${!HOSTILE[@]}"; do
		wait "${HOSTILE[$name]}" || { echo "$name ended with status $?"; rc=1; }
		tail -n 3 "$OUTDIR/$name.log"
	done
	return "$rc"
}

check "a connection works before" pingpong "$IP_A" "$IP_B" -s 4097 -n 100
before_memory=$(kernel_memory)
before_counted=$(counted)
steady_begin --seed "$seed" || ktap_test_fail "verified traffic begins"
check "a process is connected to the hostile peer" start_victim
watch_traffic &
WATCH=$!
hostile stranger "$C" blind --sources 10.80
hostile spoofer "$B" blind
hostile observer "$B" replay --capture "$TMP/seen.pcap"
hostile liar "$C" peer --victim "$TMP/victim"
check "the hostile senders run to their end" senders_end
for name in "${!HOSTILE[@]}"; do say "$name"; show "$OUTDIR/$name.log"; done
connections_seen=$(connections)
touch "$stop"
wait "$WATCH" 2>/dev/null
victim_ends() { local rc=0; wait "$VICTIM" || rc=$?; return "$rc"; }
check "the hostile peer's victim ends, with memory intact" victim_ends
show "$TMP/victim.log"
steady_end
check "a connection works afterwards" pingpong "$IP_A" "$IP_B" -s 4097 -n 100

sent=$(cat "$OUTDIR"/{stranger,spoofer,observer,liar}.log | awk '/^sent in all:/ { sum += $4 } END { print sum + 0 }')
all_counted() {
	local now
	now=$(counted)
	on_a rdma statistic show link "$DEV_A/1"
	echo "sent $sent, counted $((now - before_counted))"
	((sent >= count && now - before_counted >= sent / 2))
}
check "what was sent is counted" all_counted
only_two() { echo "$connections_seen connections"; ((connections_seen <= 2)); }
check "strangers have made no connection" only_two
# ib_mad tells of these without limit.
no_bad_mads() {
	local n
	n=$(dmesg | awk '/metaroce-guest: begin netfuzz/ { n = 0 } /MAD received/ { n++ } END { print n + 0 }')
	echo "$n lines"
	((n == 0))
}
check "what is no management datagram does not reach ib_mad" no_bad_mads
memory() {
	wait_for 30 memory_is_bounded
	echo "kernel memory before: $before_memory KiB, after: $after KiB"
	memory_is_bounded
}
check "kernel memory is bounded" memory
say "figures: $sent hostile datagrams, kernel memory $before_memory KiB before, $after KiB after"
finish
