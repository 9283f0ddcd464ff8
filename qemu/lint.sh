#!/bin/bash
# 'make lint': shell, Python, C and Rust checks. Goes through all of them and
# fails at the end when one did.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$TREE"

[[ -x $BUILDROOT/bin/bash ]] || die "There is no build chroot yet; run 'make setup' first."
bad=()
check() {
	local what=$1
	shift
	say "lint: $what"
	"$@" || bad+=("$what")
}
mapfile -t scripts < <(git ls-files '*.sh' .ci/run)
mapfile -t python < <(git ls-files '*.py')
mapfile -t c_files < <(git ls-files '*.c' '*.h')
mapfile -t rust < <(git ls-files '*.rs')
compile_python() {
	local file
	for file; do python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$file" || return 1; done
}
check shellcheck in_buildroot shellcheck "${scripts[@]}"
check python compile_python "${python[@]}"
if ((${#c_files[@]})); then
	check checkpatch in_buildroot perl "$KSRC/scripts/checkpatch.pl" --no-tree --terse --no-summary --show-types \
		--ignore SPDX_LICENSE_TAG,FILE_PATH_CHANGES,USE_NEGATIVE_ERRNO -f "${c_files[@]}"
fi
if ((${#rust[@]})); then
	check rustfmt in_buildroot rustfmt --check -l --color never --edition 2021 --config-path "$KSRC/.rustfmt.toml" "${rust[@]}"
fi
if [[ -f rust/host/Cargo.toml ]] && cargo clippy --version >/dev/null 2>&1; then
	CARGO_TARGET_DIR=$BUILD/cargo check clippy cargo clippy --quiet \
		--manifest-path rust/host/Cargo.toml --workspace -- -D warnings
fi
((${#bad[@]} == 0)) || die "These checks failed: ${bad[*]}."
say "lint: all clean"
