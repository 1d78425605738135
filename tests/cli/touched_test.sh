#!/usr/bin/env bash
# .ci/touched finds the base of a change and the folders it touches, in a small tree of its own; every test has its folder as a label.
# Usage: touched_test.sh ROOT BUILD
. "$(dirname "$0")/check.sh"
touched=$1/.ci/touched build=$2
unset CI_BASE
export SHOAL_TREE=$folder GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
command -v git >/dev/null || { echo "skipped: git is not installed" && exit 77; }
cd "$folder" || exit 1
mkdir -p src/{base,ops,comm,zero} include/shoal docs tools .ci
for file in src/{base,comm,zero}/a.c docs/a.md tools/a.c include/shoal/status.h; do : >$file; done
echo '#include "shoal/status.h"' >include/shoal/tensor.h
echo '#include "shoal/tensor.h"' >src/ops/a.h
printf '%s\n' 'base: ' 'ops: base' 'comm: ops base' 'zero: comm base' 'program: base ops comm zero' 'cli: program' >deps
git init -q -b main && echo deps >.git/info/exclude && git add -A && git commit -q -m first || exit 1

# touches TEXT FOLDER...: the last change touches these folders; the tree is as before after it
touches() {
    local what=$1
    shift
    expect 0 "$touched" deps
    [ "$(echo $output)" = "$*" ] || complain "$what touches \"$(echo $output)\", not \"$*\""
    git checkout -q . && git clean -q -f -d
}
touches "a clone of main" all
expect 1 "$touched" --base
CI_BASE=nowhere expect 2 "$touched" deps
says "CI_BASE=nowhere is no commit here"
expect 2 "$touched" no-deps
says "run cmake first"

export CI_BASE=HEAD
echo more >>docs/a.md && touches "a page"
echo more >>src/comm/a.c && touches comm cli comm program zero
echo more >>src/zero/new.c && touches "a new file" cli program zero
echo more >>include/shoal/status.h && touches "a header that a header includes" cli comm ops program zero
echo more >>tools/a.c && touches tools cli program
echo more >Makefile && touches "the Makefile" all
mkdir new && echo more >new/a.c && touches "an unknown folder" all
unset CI_BASE

# the merge base with main, committed or not
git checkout -q -b side && echo more >>src/zero/a.c && git commit -q -a -m second || exit 1
touches "a branch" cli program zero
echo more >>tools/a.c
expect 0 "$touched" --files
[ "$(echo $output)" = "src/zero/a.c tools/a.c" ] || complain "changed files are \"$output\""
git checkout -q .
# the commit that passed everything, on main itself
git checkout -q main && git merge -q side && mkdir -p .ci && git rev-parse HEAD~1 >.ci/nightly-passed && git add -A && git commit -q -m third || exit 1
touches "a clone of main with a base" cli program zero
echo 0123456789012345678901234567890123456789 >.ci/nightly-passed
touches "a base of another history" all

# ---- labels ----
count=0
while read -r name labels; do
    count=$((count + 1))
    case " $labels " in *" ${name%%.*} "*) ;; *) complain "the test $name has not the label ${name%%.*}, but \"$labels\"" ;; esac
done < <(ctest --test-dir "$build" --show-only=json-v1 | tr -d ' \n' | sed 's/{"backtrace"/\n/g' |
    sed -nE 's/.*"name":"([^"]*)","properties":\[(.*)/\1 \2/p' |
    awk '{ name = $1; labels = ""; if (match($0, /"LABELS","value":\[[^]]*\]/)) { labels = substr($0, RSTART + 18, RLENGTH - 19); gsub(/[",]/, " ", labels) }
           print name, labels }')
[ $count -gt 100 ] || complain "only $count tests have labels"
finish
