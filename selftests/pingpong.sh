#!/bin/bash
# timeout: 500
# ibv_rc_pingpong with data check between two namespaces: sizes around the
# packet borders, IPv4 and IPv6, small and large MTU.
. "$(dirname "$0")/lib.sh"
need_driver

sizes=(0 1 33 1023 1024 1025 4097 65537)
# The tool registers a region of the message's size; others refuse an empty one.
[[ $DRIVER == metaroce ]] || sizes=("${sizes[@]:1}")

for mtu in 1500 9000; do
	topo_pair "$mtu" || { say "the topology could not be made"; exit 1; }
	path_mtu=1024
	((mtu == 1500)) || path_mtu=4096
	for size in "${sizes[@]}"; do
		check "IPv4, MTU $mtu, $size bytes" pingpong "$IP_A" "$IP_B" -m "$path_mtu" -s "$size" -n 100
	done
	check "IPv6, MTU $mtu, 1 byte" pingpong "$IP6_A" "$IP6_B" -m "$path_mtu" -s 1 -n 100
	check "IPv6, MTU $mtu, 65537 bytes" pingpong "$IP6_A" "$IP6_B" -m "$path_mtu" -s 65537 -n 50
	check "IPv4, MTU $mtu, 16 MiB" pingpong "$IP_A" "$IP_B" -m "$path_mtu" -s 16777216 -n 2 -r 4
	check "IPv4, MTU $mtu, completion events" pingpong "$IP_A" "$IP_B" -m "$path_mtu" -s 4097 -n 100 -e
	cleanup
done
finish
