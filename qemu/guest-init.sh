#!/bin/bash
# First program of the guest once its root is there. Loads what the tests
# need, installs the module and the provider from the payload, then takes
# commands from the host over a virtio-serial port of its own:
#   run NAME TIMEOUT    runs selftests/NAME.sh
#   exec NAME TIMEOUT   runs the payload's file exec/NAME
#   shell               a login shell on the console
#   poweroff
# and answers in lines of the form "event key=value ...".
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LC_ALL=C.UTF-8 TERM=${TERM:-linux}
payload=/payload
kver=$(uname -r)

mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /dev/pts /dev/shm /run/lock
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
ln -sf /proc/self/fd /dev/fd
ip link set lo up
hostname metaroce-guest
ulimit -l unlimited
ulimit -c 0

modprobe -a virtio_console 9pnet_virtio 9p
mkdir -p /out
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none out /out || echo "the out share could not be mounted"

# The payload's module directory replaces the index files of the stock one.
if [[ -d $payload/modules ]]; then
	cp -a "$payload/modules/." "/lib/modules/$kver/"
fi
if [[ -d $payload/provider ]]; then
	for dir in /usr/lib/*/libibverbs; do cp -a "$payload"/provider/*.so "$dir/"; done
	cp -a "$payload"/provider/*.driver /etc/libibverbs.d/
fi
echo 30 >/proc/sys/kernel/hung_task_timeout_secs 2>/dev/null
echo 0 >/proc/sys/kernel/hung_task_panic 2>/dev/null
echo 1 >/proc/sys/kernel/sysrq
echo 4 >/proc/sys/kernel/printk
[[ ! -f $payload/env ]] || . "$payload/env"

port=
for dir in /sys/class/virtio-ports/*; do
	[[ -e $dir/name && $(<"$dir/name") == metaroce.control ]] && port=/dev/$(basename "$dir")
done
if [[ -z $port ]]; then
	echo "the control port is missing"
	sleep 1
	busybox poweroff -f
fi
exec 3<>"$port"

# run_one NAME TIMEOUT COMMAND...
run_one() {
	local name=$1 limit=$2 pid timer rc=0 why=exit dir=/out/tests/$1 begin=$SECONDS
	shift 2
	mkdir -p "$dir"
	printf '<5>metaroce-guest: begin %s\n' "$name" >/dev/kmsg
	export OUTDIR=$dir
	setsid "$@" >"$dir/output.log" 2>&1 </dev/null 3>&- &
	pid=$!
	sleep "$limit" 3>&- &
	timer=$!
	wait -n "$pid" "$timer"
	rc=$?
	if kill -0 "$pid" 2>/dev/null && ! kill -0 "$timer" 2>/dev/null; then
		why=timeout
		echo w >/proc/sysrq-trigger
		ps -eo pid,ppid,stat,wchan:24,args >"$dir/processes.log"
		kill -TERM -- "-$pid"
		sleep 20 3>&- &
		timer=$!
		wait -n "$pid" "$timer"
		pkill -KILL -s "$pid"
	fi
	kill "$timer" 2>/dev/null
	pkill -KILL -s "$pid" 2>/dev/null
	dmesg | awk -v name="$name" '
		index($0, "metaroce-guest: begin " name) { on = 1; text = "" }
		on { text = text $0 "\n" }
		END { printf "%s", text }' >"$dir/kernel.log"
	printf 'end name=%s rc=%s why=%s seconds=%s\n' "$name" "$rc" "$why" "$((SECONDS - begin))" >&3
}

printf 'up kernel=%s\n' "$kver" >&3
while read -r cmd name limit <&3; do
	case $cmd in
	run) run_one "$name" "$limit" bash "$payload/selftests/$name.sh" ;;
	exec) run_one "$name" "$limit" bash "$payload/exec/$name" ;;
	shell)
		cd "$payload" || true
		echo 7 >/proc/sys/kernel/printk
		setsid -c bash -l </dev/console >/dev/console 2>&1 3>&-
		printf 'end name=shell rc=0 why=exit seconds=0\n' >&3
		;;
	poweroff) break ;;
	esac
done
sync
busybox poweroff -f
