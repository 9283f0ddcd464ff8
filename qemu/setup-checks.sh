#!/bin/bash
# Checks what the set-up says and does when something is missing: no root, no
# tool, no mirror, no room, no prepared kernel, a step that fails, a step that is
# interrupted. Runs on the host, in KTAP form, without network; the set-up must
# have run, because some cases need its tools on this machine.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_root "covers /etc/apt with an empty directory in a mount namespace"
if [[ -z ${SETUP_CHECKS_NS:-} ]]; then
	SETUP_CHECKS_NS=1 exec unshare --mount --propagation private "${BASH_SOURCE[0]}" "$@"
fi
work=$(mktemp -d /tmp/metaroce-setup-checks.XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
unset METAROCE_MIRROR METAROCE_NO_SETUP METAROCE_MOUNTS KDIR KVER DESTDIR LIBDIR

# The tree where anybody may read it, with results of its own.
tree=$work/tree
mkdir "$tree" "$work/home"
tar -C "$TREE" --exclude=./out --exclude=./.git -cf - . | tar -C "$tree" --no-same-owner -xf -
chmod -R go+rX "$tree"
chown 65534:65534 "$work/home"

number=0 bad=0
# expect WHAT RC TEXT...: the last run ended with RC (or 'fail': any but 0), and said every TEXT.
expect() {
	local what=$1 rc=$2 text verdict=ok
	shift 2
	number=$((number + 1))
	if [[ $rc == fail ]]; then ((got != 0)) || verdict="not ok"; else ((got == rc)) || verdict="not ok"; fi
	for text; do grep -qF -- "$text" "$work/said" || verdict="not ok"; done
	printf '%s %d %s\n' "$verdict" "$number" "$what"
	if [[ $verdict != ok ]]; then
		bad=$((bad + 1))
		printf '# expected status %s and:\n' "$rc"
		printf '#   %s\n' "$@"
		printf '# got status %s and:\n' "$got"
		sed 's/^/#   /' "$work/said"
	fi
}
run() {
	got=0
	timeout 60 "$@" >"$work/said" 2>&1 </dev/null || got=$?
}
as_nobody() {
	run setpriv --reuid=65534 --regid=65534 --clear-groups env -i PATH="$PATH" HOME="$work/home" "$@"
}
# with_path DIR COMMAND...: as root with an empty cache, programs from DIR only.
fresh=$work/cache
with_path() {
	local dir=$1
	shift
	rm -rf "$fresh"
	run env -i PATH="$dir" HOME="$work/home" METAROCE_CACHE="$fresh" "$@"
}
# path_without NAME...: a directory with links to all programs but these.
path_without() {
	local dir name IFS=:
	dir=$(mktemp -d "$work/path.XXXXXX")
	for name in $PATH; do
		[[ ! -d $name ]] || find "$name" -maxdepth 1 ! -type d -exec ln -sf -t "$dir" -- {} +
	done
	for name; do rm -f "$dir/$name"; done
	printf '%s\n' "$dir"
}

echo "TAP version 13"

echo "# without root"
for goal in demo test setup lossbench; do
	as_nobody make -C "$tree" "$goal"
	expect "make $goal without root" fail "must run as root"
done
as_nobody make -C "$tree" install
expect "make install without root names root, and DESTDIR" fail "must run as root" "DESTDIR=DIR"
as_nobody make -C "$tree" install DESTDIR="$work/home/dest"
expect "make install DESTDIR=DIR before a build" fail "run 'make modules' first"
for goal in modules provider shell lint "selftest T=pingpong" pyverbs bench; do
	# shellcheck disable=SC2086
	as_nobody make -C "$tree" $goal
	expect "make $goal before the set-up" fail "run 'make setup' first"
done
as_nobody make -C "$tree" selftest
expect "make selftest without a name" fail "T=pingpong"
as_nobody make -C "$tree" selftest T=nonsense
expect "make selftest with a wrong name lists the tests" fail "no selftest 'nonsense'" "pingpong"
as_nobody make -C "$tree"
expect "make without a goal helps" 0 "demo" "test"

echo "# without a tool"
bare=$(path_without apt-get mmdebstrap)
with_path "$bare" "$tree/qemu/setup.sh"
expect "a missing tool is named with its package" 1 "command 'mmdebstrap' is missing" "install the package 'mmdebstrap'"
bare=$(path_without apt-get qemu-system-x86_64)
with_path "$bare" "$tree/qemu/setup.sh"
expect "the package may have another name" 1 "'qemu-system-x86_64' is missing" "'qemu-system-x86'"
bare=$(path_without apt-get mmdebstrap)
printf '#!/bin/sh\necho "E: Unable to locate package mmdebstrap"\nexit 100\n' >"$bare/apt-get"
chmod +x "$bare/apt-get"
with_path "$bare" "$tree/qemu/setup.sh"
expect "a package that cannot be installed" 1 "'mmdebstrap' could not be installed" "$fresh/logs/host-mmdebstrap.log"
run cat "$fresh/logs/host-mmdebstrap.log"
expect "its log says why" 0 "Unable to locate package"
printf '#!/bin/sh\nexit 0\n' >"$bare/apt-get"
with_path "$bare" "$tree/qemu/setup.sh"
expect "a package that does not bring the tool" 1 "installed but 'mmdebstrap' is still missing"

echo "# without a mirror, keys, room"
mount -t tmpfs none /etc/apt
with_path "$PATH" "$tree/qemu/setup.sh"
expect "no mirror in this machine's configuration" 1 "METAROCE_MIRROR=URL"
umount /etc/apt
mount -t tmpfs none /usr/share/keyrings
with_path "$PATH" METAROCE_MIRROR=file:///nowhere/debian "$tree/qemu/setup.sh"
expect "no archive keys" 1 "install the package 'debian-archive-keyring'"
umount /usr/share/keyrings
with_path "$PATH" METAROCE_MIRROR=file:///nowhere/debian "$tree/qemu/setup.sh"
expect "a mirror that is not there: the step and its log" 1 "The step 'buildroot' failed" "$fresh/logs/buildroot.log" "nowhere/debian"
mkdir "$work/small"
mount -t tmpfs -o size=64m none "$work/small"
run env -i PATH="$PATH" HOME="$work/home" METAROCE_CACHE="$work/small/cache" "$tree/qemu/setup.sh"
expect "a disk that is too small" 1 "GiB free" "METAROCE_CACHE=DIR"
umount "$work/small"

echo "# a kernel tree of one's own"
kdir=$work/kdir
mkdir "$kdir"
with_path "$PATH" KDIR="$kdir" "$tree/qemu/build.sh" module
expect "a kernel tree that is not prepared" 1 "not a prepared kernel tree"
touch "$kdir/Module.symvers" "$kdir/.config"
with_path "$PATH" KDIR="$kdir" "$tree/qemu/build.sh" module
expect "a kernel without Rust" 1 "without CONFIG_RUST"
echo CONFIG_RUST=y >"$kdir/.config"
with_path "$PATH" KDIR="$kdir" "$tree/qemu/build.sh" module
expect "a kernel tree without the Rust crates" 1 "make modules_prepare"

echo "# steps"
cat >"$work/steps.sh" <<STEPS
. "$tree/qemu/common.sh"
STEP_OF=2
one() { echo ran >>"$work/one"; }
two() {
	echo working
	case \$(cat "$work/mode") in
	fail) echo "the disk is on fire"; return 3 ;;
	hang) sleep 987654 ;;
	esac
}
step one "\${ONE:-1}" one "first"
step two 1 two "second"
STEPS
rm -rf "$fresh"
steps() { run env -i PATH="$PATH" HOME="$work/home" METAROCE_CACHE="$fresh" "$@" bash "$work/steps.sh"; }
echo fail >"$work/mode"
steps
expect "a step that fails: its name, its log, its last words" 1 "[2/2] two" "The step 'two' failed with status 3" \
	"$fresh/logs/two.log" "the disk is on fire"
echo hang >"$work/mode"
env -i PATH="$PATH" HOME="$work/home" METAROCE_CACHE="$fresh" bash "$work/steps.sh" >"$work/said" 2>&1 </dev/null &
pid=$!
for ((try = 0; try < 300; try++)); do
	if pgrep -f '^sleep 987654$' >/dev/null; then break; fi
	sleep 0.1
done
kill -TERM "$pid"
got=0
wait "$pid" || got=$?
expect "an interrupted step ends" 130 "[2/2] two"
got=0
pgrep -f '^sleep 987654$' >"$work/said" || got=$?
expect "and with it all that it started" 1
echo pass >"$work/mode"
steps
expect "the next run resumes at the step that was interrupted" 0 "one: up to date" "two: done"
got=0
wc -l <"$work/one" >"$work/said"
expect "the first step ran once" 0 "1"
steps ONE=2
expect "a step runs again when what it depends on has changed" 0 "one: done" "two: up to date"
steps ONE=2
expect "nothing runs when nothing has changed" 0 "one: up to date" "two: up to date"

printf '1..%d\n' "$number"
((bad == 0))
