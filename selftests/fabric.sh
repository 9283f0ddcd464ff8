#!/bin/bash
# timeout: 180
# Hosts at two switches with four links between them, chosen by flow hash:
# one connection uses all of them.
. "$(dirname "$0")/lib.sh"
need_driver
topo_fabric 4 1500 || { say "the topology could not be made"; exit 1; }

spread() {
	[[ $DRIVER == metaroce ]] || { echo "$DRIVER uses one source port per connection"; return 4; }
	local i before=() after=() used=0
	for i in 1 2 3 4; do before[i]=$(link_packets "$FABRIC2" "p$i"); done
	perftest ib_write_bw -s 65536 -n 300 || return 1
	for i in 1 2 3 4; do
		after[i]=$(link_packets "$FABRIC2" "p$i")
		echo "link $i: $((after[i] - before[i])) packets"
		((after[i] - before[i] < 200)) || used=$((used + 1))
	done
	((used == 4))
}
black_hole() {
	[[ $DRIVER == metaroce ]] || { echo "$DRIVER has no other path"; return 4; }
	impair "$FABRIC1" p1 loss 100%
	impair "$FABRIC2" p1 loss 100%
	pingpong "$IP_A" "$IP_B" -s 4097 -n 300
}
uneven() {
	local i
	for i in 1 2 3 4; do
		impair "$FABRIC1" "p$i" delay "${i}ms"
		impair "$FABRIC2" "p$i" delay "${i}ms"
	done
	pingpong "$IP_A" "$IP_B" -s 65537 -n 100
}
check "pingpong over the fabric" pingpong "$IP_A" "$IP_B" -s 4097 -n 200
check "pingpong over the fabric, IPv6" pingpong "$IP6_A" "$IP6_B" -s 4097 -n 200
check "one connection uses all four links" spread
check "links of different delay" uneven
check "one link is a black hole" black_hole
finish
