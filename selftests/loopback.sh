#!/bin/bash
# timeout: 180
# A device that talks to itself.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 1500 || { say "the topology could not be made"; exit 1; }

to_self() {
	local tool=$1 gid
	shift
	gid=$(wait_gid "$DEV_A" "$IP_A") || return 1
	SERVER_ARGS=(-d "$DEV_A" "${GID_FLAG:--x}" "$gid")
	CLIENT_ARGS=("${SERVER_ARGS[@]}")
	client_server "$A" "$A" "$IP_A" "$tool" "$@"
}

GID_FLAG=-g check "ibv_rc_pingpong, 65537 bytes" to_self ibv_rc_pingpong -c -s 65537 -n 100
GID_FLAG=-g check "ibv_rc_pingpong with completion events" to_self ibv_rc_pingpong -c -e -s 100 -n 200
check "ib_write_bw" to_self ib_write_bw -F -s 65536 -n 200
check "ib_read_bw" to_self ib_read_bw -F -s 65536 -n 200
check "ib_send_lat" to_self ib_send_lat -F -s 64 -n 200
finish
