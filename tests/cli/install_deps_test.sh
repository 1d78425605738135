#!/usr/bin/env bash
# scripts/install-deps for a user who may install nothing: the last line is one that works on that machine. tests/bare/run runs
# such a line; here machines are pretended by commands in front of PATH.
# Usage: install_deps_test.sh ROOT
. "$(dirname "$0")/check.sh"
root=$1
# A tree of its own: deps/ and build/ of the real one do not count.
mkdir -p "$folder/tree" "$folder/bin"
cp -r "$root/scripts" "$folder/tree"
for tool in bash env sed dirname cat grep make gcc; do ln -s "$(command -v $tool)" "$folder/bin"; done
fake() { printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$folder/bin/$1" && chmod +x "$folder/bin/$1"; }
fake id '[ "$1" = -u ] && echo 1000 || echo "user $GROUPS_OF_USER"'
groups=users
deps() { env -i PATH="$folder/bin" GROUPS_OF_USER="$groups" "$folder/tree/scripts/install-deps" "$@"; }
last_line() { [ "$(tail -n 1 <<<"$output")" = "$1" ] || complain "the last line is no \"$1\": $output"; }

# no apt-get: Debian's names
expect 1 deps
says "by Debian's names" "install what your system calls them"
last_line "  cmake ninja-build pkg-config libjansson-dev libxxhash-dev libsodium-dev libpcre2-dev libutf8proc-dev liburing-dev zlib1g-dev libhwloc-dev"
# apt-get, but no sudo
fake apt-get 'echo "apt-get was called: $*" >&2; exit 1'
expect 1 deps build
says "you are not root" "An administrator installs them by: apt-get install -y cmake ninja-build"
last_line "  scripts/install-deps --without-root build"
expect 1 deps test
says libcmocka-dev
last_line "  scripts/install-deps --without-root test"
# sudo, for those of its group
fake sudo 'exit 1'
expect 1 deps
last_line "  scripts/install-deps --without-root"
groups="users sudo"
expect 1 deps
says "scripts/install-deps --without-root"
last_line "  sudo apt-get install -y cmake ninja-build pkg-config libjansson-dev libxxhash-dev libsodium-dev libpcre2-dev libutf8proc-dev liburing-dev zlib1g-dev libhwloc-dev"
rm "$folder/bin/sudo"
# all but what the core does without
fake cmake :
fake ninja :
fake pkg-config 'case $2 in jansson | libxxhash | libsodium) exit 0 ;; *) exit 1 ;; esac'
expect 1 deps build
says "  scripts/install-deps --without-root build"
last_line "install-deps: Or build the library alone, which needs none of them: make PRESET=core"
expect 0 deps core
# without root and the network: apt-get's own words, and the end
fake dpkg 'echo amd64'
for tool in mkdir rm find xargs readlink; do ln -s "$(command -v $tool)" "$folder/bin"; done
expect 1 deps --without-root build
says "apt-get was called" "cannot read the lists of packages"
[ ! -e "$folder/tree/deps/env.mk" ] || complain "deps/env.mk was written"
# everything is there
fake pkg-config 'exit 0'
expect 0 deps --without-root build
[ -z "$output" ] || complain "nothing is missing, but: $output"
finish
