#!/bin/bash
# Runs in the stock guest: each case of the loss benchmark that the payload
# brings, one after the other. Called by qemu/lossbench.py --stock.
LIB_PLAIN=1
. /payload/selftests/lib.sh

rc=0
modprobe siw && modprobe rdma_rxe && modprobe metaroce && modprobe -r metaroce || exit 1
export METAROCE_FLOW=/payload/extra/flow CASE_CLEAN=1
METAROCE_KO=$(modinfo -n metaroce)
export METAROCE_KO
for case in /payload/extra/cases/*.json; do
	dir=$OUTDIR/$(basename "$case" .json)
	mkdir -p "$dir"
	mark="lossbench: $(basename "$dir")"
	echo "$mark" >/dev/kmsg
	if timeout -k 5 "${CASE_LIMIT:-120}" python3 /payload/selftests/lossbench/case.py "$case" "$dir/result.json" \
		>"$dir/case.log" 2>&1; then
		: >"$dir/cleaned"
	else
		echo "${mark#lossbench: }: status $?: $(tail -n 1 "$dir/case.log")"
		# What it left would be in the way of the next.
		for ns in $(ip -j netns | jq -r '.[].name'); do
			for pid in $(ip netns pids "$ns"); do kill -KILL "$pid"; done
		done
		for dev in $(rdma -j link | jq -r '.[].ifname'); do rdma link delete "$dev"; done
		for ns in $(ip -j netns | jq -r '.[].name'); do ip netns delete "$ns"; done
		wait_for 10 module_unloads || rc=1
	fi
	dmesg | awk -v mark="$mark" 'index($0, mark) { on = 1 } on' >"$dir/kernel.log"
	echo "# ${mark#lossbench: }: done"
done
exit "$rc"
