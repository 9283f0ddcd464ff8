#!/bin/bash
# timeout: 180
# Hosts at two switches with four links between them, chosen by flow hash:
# one connection uses several of them.
. "$(dirname "$0")/lib.sh"
need_driver
topo_fabric 4 1500 || { say "the topology could not be made"; exit 1; }

# Which link a source port takes is up to the hash, so a link may be missed.
spread() {
	[[ $DRIVER == metaroce ]] || { echo "$DRIVER uses one source port per connection"; return 4; }
	local i run used most=0 before now
	for run in 1 2; do
		before=() used=0
		for i in 1 2 3 4; do before[i]=$(link_packets "$FABRIC2" "p$i"); done
		perftest ib_write_bw -s 65536 -n 200 || return 1
		for i in 1 2 3 4; do
			now=$(($(link_packets "$FABRIC2" "p$i") - before[i]))
			echo "connection $run, link $i: $now packets"
			((now < 200)) || used=$((used + 1))
		done
		((used <= most)) || most=$used
	done
	((most >= 2))
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
check "a connection uses several links" spread
check "links of different delay" uneven
check "one link is a black hole" black_hole
finish
