#!/usr/bin/env bash
# What the headers declare, what cmake/exports.map lists and what the shared library exports is the same; its soname is
# libshoal.so.MAJOR.MINOR (docs/COMPATIBILITY.md). Each check is also shown a change that it must find.
# Usage: abi_test.sh SOURCE LIBSHOAL.so VERSION      CC is the compiler
. "$1/tests/cli/check.sh"
source=$1
library=$2
version=$3

# The functions of the headers of a folder: of their own lines those that are exported, in one line without attributes.
declared() {
    "${CC:-cc}" -std=c11 -E -I"$1" "$1/shoal/shoal.h" | awk -v folder="$1/" '
        /^# [0-9]+ "/ { split($0, part, "\""); own = index(part[2], folder) == 1; next }
        own { printf "%s ", $0 }' | sed -E 's/__attribute__ ?\(\(visibility\("default"\)\)\)/\n@/g' | grep '^@' |
        sed -E 's/;.*//; s/__attribute__ ?\(\([^()]*(\([^()]*\))?\)\)//g' | grep -oE 'shoal_[a-z0-9_]+ ?\(' | tr -d ' (' | LC_ALL=C sort -u
}
# Functions of a version script, as "name@@VERSION".
listed() {
    awk '/^[A-Z]+_[0-9.]+ \{/ { version = $1 }
         /local:/ { version = "" }
         version != "" && /^ +shoal_[a-z0-9_]+;/ { sub(/;/, ""); print $1 "@@" version }' "$1" | LC_ALL=C sort
}
exported() { nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort; }
# differences TEXT FILE FILE: lines of one side only
differences() { diff "$2" "$3" | grep '^[<>]' | sed "s|^<|$1: missing:|; s|^>|$1: too many:|"; }
compare() { # MAP
    listed "$1" >"$folder/listed"
    exported "$library" >"$folder/exported"
    differences "exports of the library" "$folder/listed" "$folder/exported"
    sed 's/@@.*//' "$folder/listed" >"$folder/names"
    declared "$source/include" >"$folder/declared"
    differences "declared in include/shoal" "$folder/names" "$folder/declared"
}

output=$(compare "$source/cmake/exports.map")
[ -z "$output" ] || complain "cmake/exports.map: $output"
[ "$(wc -l <"$folder/declared")" -gt 200 ] || complain "only $(wc -l <"$folder/declared") functions were found in the headers"
sed '/ shoal_engine_step;/d' "$source/cmake/exports.map" >"$folder/short.map"
output=$(compare "$folder/short.map")
says "exports of the library: too many: shoal_engine_step" "declared in include/shoal: too many: shoal_engine_step"
soname=$(readelf -d "$library" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
[ "$soname" = "libshoal.so.${version%.*}" ] || complain "the soname is $soname, the version $version"
finish
