#!/bin/bash
# The main job, shown in the guest: two hosts joined by a network with four
# links, a device in each, the usual tools between them and from a device to
# itself, and the paths that the packets took.
LIB_PLAIN=1
. /payload/selftests/lib.sh

fail() { echo "demo: $*"; exit 1; }
head_line() { printf '\n== %s\n' "$*"; }

modprobe "$MODULE" || fail "the module $MODULE cannot be loaded"
head_line "two hosts A and B, a switch at each, four links between the switches"
topo_fabric 4 1500 >"$TMP/topo.log" 2>&1 || { cat "$TMP/topo.log"; fail "the network could not be made"; }
on_a rdma link show | grep "mr$ID"

head_line "ibv_devinfo on A"
on_a ibv_devinfo -d "$DEV_A" || fail "ibv_devinfo failed"

tool() {
	local what=$1
	shift
	head_line "$what"
	if ! "$@" >"$TMP/tool.log" 2>&1; then
		cat "$TMP/tool.log"
		fail "$what failed"
	fi
	grep -vE '^ *(local|remote) address|^-+$|^ *(Mtu|Link type|GID index|Max inline|rdma_cm|Data ex|CQ Mod|GID:|Outstand reads|TX depth|RX depth|PCIe|Dual-port|Connection type|Using|Number of qps|Transport|ibv_wr|WARNING: BW|Lock-free|Device)' "$TMP/tool.log" | grep -v '^ *$'
}
to_self() {
	local name=$1 flag=$2 gid
	shift 2
	gid=$(wait_gid "$DEV_A" "$IP_A") || return 1
	SERVER_ARGS=(-d "$DEV_A" "$flag" "$gid")
	CLIENT_ARGS=("${SERVER_ARGS[@]}")
	client_server "$A" "$A" "$IP_A" "$name" "$@"
}

tool "ibv_rc_pingpong -c, B to A, 500 messages of 4 KiB, data checked" pingpong "$IP_A" "$IP_B" -s 4096 -n 500
tool "ibv_rc_pingpong -c over IPv6" pingpong "$IP6_A" "$IP6_B" -s 4096 -n 200
tool "ibv_rc_pingpong -c, A to itself" to_self ibv_rc_pingpong -g -c -s 4096 -n 200

# One write run is captured at B to show its source ports.
pcap=$OUTDIR/demo.pcap
on_b tcpdump -i eth0 -n -s 64 -B 65536 -w "$pcap" udp >"$TMP/tcpdump.log" 2>&1 &
tcpdump=$!
wait_for 10 grep -q listening "$TMP/tcpdump.log" || fail "tcpdump does not start"
declare -a before
for i in 1 2 3 4; do before[i]=$(link_packets "$FABRIC2" "p$i"); done

# The device's own table of paths, while the connection exists.
table=/sys/kernel/debug/metaroce/$DEV_B/connections
(
	seen=
	while :; do
		if [[ -r $table ]]; then
			now=$(cat "$table" 2>/dev/null)
			[[ -z $now ]] || { seen=$now; printf '%s\n' "$seen" >"$TMP/connections.new" && mv "$TMP/connections.new" "$TMP/connections"; }
		fi
		sleep 0.1
	done
) &
watcher=$!
tool "ib_write_bw, 64 KiB, B to A" perftest ib_write_bw -s 65536 -n 200
kill "$watcher" 2>/dev/null
for i in 1 2 3 4; do before[i]=$(($(link_packets "$FABRIC2" "p$i") - before[i])); done
kill "$tcpdump"
wait "$tcpdump" 2>/dev/null

if [[ $DRIVER == metaroce ]]; then
	head_line "paths as the device shows them ($table)"
	if [[ -s $TMP/connections ]]; then
		cat "$TMP/connections"
	else
		fail "the device showed no connection"
	fi
fi
head_line "packets from B by UDP source port, counted from a capture"
tcpdump -r "$pcap" -n "src host $IP_B and udp dst port $UDP_PORT" 2>/dev/null |
	awk '{ n = split($3, part, "."); count[part[n]]++ } END { for (p in count) print p, count[p] }' |
	sort -n >"$TMP/ports"
printf '%-18s%s\n' "source port" packets
awk '{ printf "%-18s%s\n", $1, $2 }' "$TMP/ports"
head_line "packets from B on each of the four links"
for i in 1 2 3 4; do printf 'link %s            %s\n' "$i" "${before[i]}"; done
if [[ $DRIVER == metaroce ]]; then
	(($(wc -l <"$TMP/ports") > 1)) || fail "one source port only"
fi

tool "ib_read_bw, 64 KiB, B from A" perftest ib_read_bw -s 65536 -n 100
tool "ib_send_lat, 64 bytes" perftest ib_send_lat -s 64 -n 300
tool "ib_write_bw, A to itself" to_self ib_write_bw -x -F -s 65536 -n 100

cleanup
nothing_left >"$TMP/left.log" 2>&1 || { cat "$TMP/left.log"; fail "something is left behind"; }
trap - EXIT
exit 0
