#!/usr/bin/env bash
# Programs that were compiled with other headers run with today's libshoal.so (docs/COMPATIBILITY.md):
#   what it exports is cmake/exports.map, and that is what the headers declare;
#   the headers still promise all that those of released versions (tests/abi/v*) promised;
#   a program compiled with those runs, and one compiled with newer ones runs or gets a sentence.
# Each check is also shown a change that it must find.
# Usage: abi_test.sh SOURCE LIBSHOAL.so      CC and CFLAGS are the compiler and its flags (sanitizers)
. "$1/tests/cli/check.sh"
source=$1
library=$2
cc=${CC:-cc}
read -ra cflags <<<"${CFLAGS:-}"
here=$source/tests/abi

# ---- exports ----------------------------------------------------------------------------------

# Functions of a version script, as "name@@VERSION" in the order of names.
map_exports() {
    awk '/^[A-Z]+_[0-9.]+ \{/ { version = $1 }
         /local:/ { version = "" }
         version != "" && /^ +shoal_[a-z0-9_]+;/ { sub(/;/, ""); print $1 "@@" version }' "$1" | LC_ALL=C sort
}
library_exports() { nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort; }
declared() {
    "$here/surface" "$1" --prototypes | grep -oE 'shoal_[a-z0-9_]+ ?\(' | tr -d ' (' | LC_ALL=C sort -u
}
# differences WHAT FILE FILE: lines of one side only
differences() { diff "$2" "$3" | grep '^[<>]' | sed "s|^<|$1: gone:|; s|^>|$1: new:|"; }
compare_exports() { # HEADERS MAP
    declared "$1" >"$folder/declared"
    map_exports "$2" | sed 's/@@.*//' >"$folder/listed"
    differences "declared, but not in cmake/exports.map" "$folder/listed" "$folder/declared"
}

check_exports() {
    map_exports "$source/cmake/exports.map" >"$folder/map"
    library_exports "$library" >"$folder/exported"
    output=$(differences "$library" "$folder/map" "$folder/exported")
    [ -z "$output" ] || complain "the library does not export what cmake/exports.map lists: $output"
    output=$(compare_exports "$source/include" "$source/cmake/exports.map")
    [ -z "$output" ] || complain "$output: add new ones to the newest version there; take none out"
    soname=$(readelf -d "$library" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
    [ "$soname" = libshoal.so.0 ] || complain "the soname is $soname"
    # it would notice
    sed '/ shoal_engine_step;/d' "$source/cmake/exports.map" >"$folder/short.map"
    [ -n "$(compare_exports "$source/include" "$folder/short.map")" ] || complain "a function that is in no list is not noticed"
}

# ---- layouts ----------------------------------------------------------------------------------

surface() { # HEADERS NAME: writes $folder/NAME.surface
    "$here/surface" "$1" >"$folder/$2.c" && "$cc" -std=c11 -I"$1" "$folder/$2.c" -o "$folder/$2" &&
        "$folder/$2" >"$folder/$2.surface" || complain "the headers of $1 do not compile"
}
# What a program compiled with the old headers would not find in the new ones. OLD NEW: surfaces
broken() {
    awk 'NR == FNR { if ($1 == "struct") { kind[$2] = $3; bytes[$2] = $4 }
                     if ($1 == "member") { offset[$2] = $3; size[$2] = $4 }
                     if ($1 == "value") value[$2] = $3
                     next }
         { struct = $2; sub(/\..*/, "", struct) }
         $1 == "struct" { seen[$2] = 1 }
         $1 == "struct" && ($2 in kind) && $3 != kind[$2] { print $2 " was " kind[$2] " and is " $3 }
         $1 == "struct" && kind[$2] == "final" && $4 != bytes[$2] { print $2 " has " $4 " bytes instead of " bytes[$2] }
         $1 == "struct" && kind[$2] == "grows" && $4 < bytes[$2] { print $2 " lost " bytes[$2] - $4 " bytes" }
         $1 == "member" { seen[$2] = 1; reserved = struct ".reserved" }
         $1 == "member" && ($2 in offset) && $2 != reserved && ($3 != offset[$2] || $4 != size[$2]) {
             print $2 " is at byte " $3 " with " $4 " bytes; it was at " offset[$2] " with " size[$2] }
         $1 == "member" && !($2 in offset) && kind[struct] == "grows" && $3 < bytes[struct] {
             print $2 " lies within the " bytes[struct] " bytes that old programs have, which do not set it" }
         $1 == "member" && !($2 in offset) && kind[struct] == "final" && !((reserved in offset) && $3 >= offset[reserved]) {
             print $2 " is new in a struct that is final" }
         $1 == "value" { seen[$2] = 1 }
         $1 == "value" && ($2 in value) && value[$2] != $3 { print $2 " is " $3 " instead of " value[$2] }
         $1 == "within" { print $2 " grows, and " $4 " has one: give it to the call beside" }
         END { for (name in kind) if (!(name in seen)) print name " is gone"
               for (name in offset) if (!(name in seen) && name !~ /\.reserved$/) print name " is gone"
               for (name in value) if (!(name in seen)) print name " is gone" }' "$1" "$2"
}
# Functions of the old headers, declared again beside the new ones: a change of type does not compile.
check_prototypes() { # OLD NEW
    { echo '#include <shoal/shoal.h>' && "$here/surface" "$1" --prototypes; } >"$folder/prototypes.c"
    "$cc" -std=c11 -I"$2" -fsyntax-only "$folder/prototypes.c" 2>&1 | grep -m1 'error:'
    declared "$1" >"$folder/old"
    declared "$2" >"$folder/new"
    LC_ALL=C comm -23 "$folder/old" "$folder/new" | sed 's/$/ is gone/'
}

# notices WHAT HEADER EDIT WORD: with the edit of the header (sed -E) an old program would break, and
# that is said with the word
notices() {
    local changed=$folder/changed
    rm -rf "$changed"
    cp -r "$source/include" "$changed"
    sed -E -i "$3" "$changed/shoal/$2"
    if cmp -s "$changed/shoal/$2" "$source/include/shoal/$2"; then
        complain "the edit \"$3\" of $2 changes nothing"
        return
    fi
    surface "$changed" changed_surface
    output=$(broken "$folder/now.surface" "$folder/changed_surface.surface" && check_prototypes "$source/include" "$changed")
    says "$4"
}
check_layouts() {
    local old
    surface "$source/include" now
    for old in "$here"/v*/; do
        surface "$old" old
        output=$(broken "$folder/old.surface" "$folder/now.surface" && check_prototypes "$old" "$source/include")
        [ -z "$output" ] || complain "programs compiled with $(basename "$old") break: $output (its headers are made anew by \
tests/abi/freeze, but only until that version is released)"
    done
    notices "a member in the middle" engine.h 's/(    uint64_t seed;)/    int64_t more; \1/' "shoal_engine_args.seed is at byte"
    notices "a member in the padding" engine.h 's/(    bool override_existing_checkpoint;)/\1 int32_t more;/' "shoal_engine_args.more lies within"
    notices "another type" engine.h 's/int64_t step; /int32_t step; /' "shoal_step_info.step is at byte"
    notices "a member gone" data.h 's/    uint64_t seed; .*of the mock tokens.*//' "shoal_dataset_args.seed is gone"
    notices "a final struct that grew" autograd.h 's/(    const void \*config;)/\1 int64_t more;/' "shoal_layer_spec.more is new"
    notices "another value" tensor.h 's/SHOAL_U8 = 6/SHOAL_U8 = 9/' "SHOAL_U8 is 9 instead of 6"
    notices "another parameter" engine.h 's/(shoal_engine_set_param\(shoal_engine \*engine), /\1, int32_t more, /' "shoal_engine_set_param"
    notices "a struct within another" plan.h 's/(    double compute_s;)/shoal_plan_verdict verdict; \1/' "shoal_plan_verdict grows, and shoal_plan_time has one"
    # and what is allowed is not complained about
    rm -rf "$folder/grown"
    cp -r "$source/include" "$folder/grown"
    grow "$folder/grown"
    sed -i 's/    void (\*reserved\[6\])(void);/    void (*more)(void), (*reserved[5])(void);/' "$folder/grown/shoal/autograd.h"
    surface "$folder/grown" larger
    grep -q 'shoal_layer_type.more' "$folder/larger.surface" || complain "a reserved member was not taken"
    output=$(broken "$folder/now.surface" "$folder/larger.surface" && check_prototypes "$source/include" "$folder/grown")
    [ -z "$output" ] || complain "members at the end, and of reserved ones, are no break: $output"
}

# ---- programs ---------------------------------------------------------------------------------

growing() { awk '$1 == "struct" && $3 == "grows" { print $2 }' "$folder/now.surface"; }
# Two more members at the end of each struct that grows.
grow() {
    local name
    for name in $(growing); do
        sed -i "s/^} $name;/    int64_t future[2];\n} $name;/" "$1"/shoal/*.h
    done
}
build() { # HEADERS PROGRAM FLAG...
    local headers=$1 program=$2
    shift 2
    "$cc" -std=c11 -Wall -Wextra -Werror "${cflags[@]}" "$@" -I"$headers" "$here/program.c" -o "$program" "$library" \
        -Wl,-rpath,"$(dirname "$library")" || complain "program.c does not compile with $headers"
}
run() { mkdir -p "$folder/run" && rm -rf "$folder/run/"* && expect "$1" "${@:2:1}" "$folder/run" "${@:3}"; }

check_programs() {
    local old name
    for old in "$here"/v*/; do
        build "$old" "$folder/program"
        run 0 "$folder/program"
        says "passed with libshoal"
    done
    rm -rf "$folder/future"
    cp -r "$source/include" "$folder/future"
    grow "$folder/future"
    build "$folder/future" "$folder/program" -DFUTURE
    run 0 "$folder/program"
    says "passed with libshoal"
    # Each struct that a program fills in and the library refuses; the others are only read for what is known.
    for name in $(grep -oE 'ASK\(shoal_[a-z_]+' "$here/program.c" | sed 's/ASK(//' | sort -u); do
        run 1 "$folder/program" "$name"
        says "this program sets a member of $name" "does not know"
    done
    # All structs of arguments are among them.
    for name in $(growing | grep -E '_(args|spec|config)$'); do
        grep -q "ASK($name," "$here/program.c" || complain "program.c has no ASK($name, ...)"
    done
    # A program with another idea of a struct does not get through.
    rm -rf "$folder/wrong"
    cp -r "$source/include" "$folder/wrong"
    sed -i 's/^    double loss, grad_norm, lr, loss_scale;/    double grad_norm, lr, loss_scale, loss;/' "$folder/wrong/shoal/engine.h"
    build "$folder/wrong" "$folder/program"
    run 1 "$folder/program"
}

check_exports
check_layouts
check_programs
finish
