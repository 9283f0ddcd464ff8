#!/bin/bash
# Runs selftests in a guest: all of them, or those named.
# Usage: selftests/run.sh [options of qemu/run.py] [TEST...]
here=$(cd "$(dirname "$0")" && pwd)
tests=() options=()
for arg; do
	if [[ -f $here/$arg.sh ]]; then tests+=("$arg"); else options+=("$arg"); fi
done
if ((${#tests[@]} == 0)); then
	for file in "$here"/*.sh; do
		name=$(basename "$file" .sh)
		case $name in lib | run) ;; *) tests+=("$name") ;; esac
	done
fi
exec "$here/../qemu/run.sh" "${options[@]}" "${tests[@]}"
