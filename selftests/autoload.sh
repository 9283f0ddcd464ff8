#!/bin/bash
# 'rdma link add' alone loads the module by its alias.
. "$(dirname "$0")/lib.sh"
need_driver

unloaded() { wait_for 10 module_unloads && [[ ! -e /sys/module/$MODULE ]]; }
loaded() { [[ -e /sys/module/$MODULE ]]; }
has_alias() { modprobe -c | grep -q "^alias rdma[-_]link[-_]$DRIVER "; }

check "the module unloads" unloaded
check "the alias rdma-link-$DRIVER is known" has_alias
check "the topology with two devices comes up" topo_pair 1500
check "the module is loaded" loaded
check "a first message passes" pingpong "$IP_A" "$IP_B" -s 64 -n 10
finish
