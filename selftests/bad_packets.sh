#!/bin/bash
# timeout: 240
# Hostile datagrams from a third host: counted and dropped, and established
# connections go on.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }
((UDP_PORT != 0)) || skip_all "$DRIVER uses no UDP port"

# A third host C beside B, at A's switch: a second interface of A.
C=mr$ID-c
new_netns "$C"
ip link add eth1 netns "$A" type veth peer name eth0 netns "$C"
on_a ip addr add 10.79.0.1/24 dev eth1
on "$C" ip addr add 10.79.0.2/24 dev eth0
on_a ip link set eth1 up
on "$C" ip link set eth0 up
on "$C" ip route add default via 10.79.0.1
wait_for 5 on "$C" ping -c 1 -W 1 "$IP_A"

capture() {
	on_a tcpdump -i eth0 -n -U -w "$OUTDIR/traffic.pcap" -c 400 "udp port $UDP_PORT" >"$TMP/tcpdump.log" 2>&1 &
	local pid=$!
	wait_for 10 grep -q listening "$TMP/tcpdump.log" || { cat "$TMP/tcpdump.log"; return 1; }
	pingpong "$IP_A" "$IP_B" -s 4097 -n 100 || return 1
	kill "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	[[ -s $OUTDIR/traffic.pcap ]]
}
hostile() {
	on "$C" python3 "$HERE/bad_packets.py" --address "$IP_A" --port "$UDP_PORT" --seed "$1" \
		--count "$2" --capture "$OUTDIR/traffic.pcap"
}
from_peer() {
	# The same from the peer's own address, as a spoofer on its network would.
	on_b python3 "$HERE/bad_packets.py" --address "$IP_A" --port "$UDP_PORT" --seed "$1" \
		--count "$2" --capture "$OUTDIR/traffic.pcap"
}
during_traffic() {
	local sender
	hostile 3 4000 >"$TMP/hostile.log" 2>&1 &
	sender=$!
	pingpong "$IP_A" "$IP_B" -s 4097 -n 1000 || return 1
	wait "$sender"
	cat "$TMP/hostile.log"
}
# Sum of the counters of dropped packets that the device shows.
drop_counters() {
	on_a rdma statistic show link "$DEV_A/1" |
		grep -oE '[a-z_0-9]*(drop|bad|invalid|malformed|unknown|foreign|short|stray)[a-z_0-9]* [0-9]+' |
		awk '{ sum += $2 } END { print sum + 0 }'
}
counters() {
	[[ $DRIVER == metaroce ]] || { echo "only metaroce counts what it drops"; return 4; }
	local before after
	before=$(drop_counters)
	hostile 4 500 || return 1
	after=$(drop_counters)
	on_a rdma statistic show link "$DEV_A/1"
	echo "dropped before: $before, after: $after"
	((after >= before + 500))
}

check "real traffic, captured for samples" capture
check "datagrams from a third host" hostile 1 4000
check "datagrams from the peer's address" from_peer 2 4000
check "a connection works afterwards" pingpong "$IP_A" "$IP_B" -s 4097 -n 100
check "a connection works meanwhile" during_traffic
check "what is dropped is counted" counters
finish
