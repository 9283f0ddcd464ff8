#!/bin/bash
# timeout: 300
# perftest's tools between two namespaces, small counts.
. "$(dirname "$0")/lib.sh"
need_driver
topo_pair 9000 || { say "the topology could not be made"; exit 1; }

check "ib_write_bw, 64 KiB" perftest ib_write_bw -s 65536 -n 300
check "ib_read_bw, 64 KiB" perftest ib_read_bw -s 65536 -n 300
check "ib_send_bw, 64 KiB" perftest ib_send_bw -s 65536 -n 300
check "ib_write_bw, both ways, 4 QPs" perftest ib_write_bw -b -q 4 -s 16384 -n 200
check "ib_send_bw, 2 bytes" perftest ib_send_bw -s 2 -n 1000
check "ib_send_lat, 2 bytes" perftest ib_send_lat -s 2 -n 500
check "ib_write_lat, 4096 bytes" perftest ib_write_lat -s 4096 -n 200
check "ib_read_lat, 4096 bytes" perftest ib_read_lat -s 4096 -n 200
check "ib_atomic_bw, fetch and add" perftest ib_atomic_bw -A FETCH_AND_ADD -n 500
finish
