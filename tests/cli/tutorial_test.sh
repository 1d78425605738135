#!/usr/bin/env bash
# Runs docs/TUTORIAL.md: its commands word for word, in one shell, in a folder that gets its named blocks as files; what they
# print is compared with what the page shows. Speeds, sizes, times and addresses are left out; fractions may differ by a
# twentieth, for kernels round differently; below <!-- numbers differ --> all numbers may. Only `make` is the test's own: it
# installs what the build has made.
# Usage: tutorial_test.sh SHOAL ROOT LIBRARY             LIBRARY: libshoal.a of the same build
#        tutorial_test.sh SHOAL ROOT LIBRARY --update    writes what is printed into the page
. "$(dirname "$0")/check.sh"
shoal=$1
root=$2
library=$3
page=$root/docs/TUTORIAL.md
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE SHOAL_FAULT MASTER_PORT
for tool in cc pkg-config; do
    command -v $tool >/dev/null || { echo "skipped: needs $tool" && exit 77; }
done

# parts/NN.sh: commands; NN.want: what is printed; NN.loose: all numbers may differ; NN.files/: what is made before
mkdir "$folder/parts" "$folder/here"
awk -v parts="$folder/parts" '
function part(end) { return sprintf("%s/%02d.%s", parts, n, end) }
/^<!-- numbers differ -->$/ { printf "" >(part("loose")); next }
/^<!-- [^ ]+ -->$/ { name = $2; next }
/^```$/ && open { open = 0; close(file); next }
/^```sh$/ { n++; file = part("sh"); open = 1; next }
/^```$/ { file = part("want"); printf "" >file; open = 1; next }
/^```/ {
    if (name == "") {
        printf "TUTORIAL.md:%d: the block has no comment with a file name above it\n", NR
        exit 1
    }
    file = sprintf("%s/%02d.files/%s", parts, n + 1, name)
    system("mkdir -p \"$(dirname " file ")\"")
    name = ""
    open = 1
    next
}
open { print >file }' "$page" || complain "the page cannot be read"

# ---- run ----
make() {
    case $* in
    '') ;;
    "install PREFIX="*)
        local prefix=${2#PREFIX=} at=${SANITIZE:+-fsanitize=$SANITIZE}
        mkdir -p "$prefix"/{bin,lib/pkgconfig} && ln -s "$shoal" "$prefix/bin/shoal" || return
        printf '%s\n' 'Name: shoal' 'Version: 0' 'Description: of this build' "Cflags: -I$root/include $at" \
            "Libs: $library $at $(xargs pkg-config --libs <"${shoal%/bin/*}/requires") -lm -pthread" \
            >"$prefix/lib/pkgconfig/shoal.pc"
        ;;
    *) echo "the tutorial's test does not know: make $*" && return 1 ;;
    esac
}
for part in "$folder"/parts/*.sh; do
    part=${part%.sh}
    [ "$part" != "$folder/parts/01" ] || cd "$folder/here" || exit 1
    [ ! -d "$part.files" ] || cp -r "$part.files/." .
    # shellcheck disable=SC1090
    . "$part.sh" >"$part.got" 2>&1 </dev/null ||
        complain "a block ends with $?: $(cat "$part.sh" "$part.got")"
done

# ---- compare ----
compare='
function plain(line) {
    gsub(/[0-9.]+ ([KMGT]i)?B/, "SIZE", line)
    gsub(/[0-9.]+[kM]? tok\/s/, "SPEED", line)
    gsub(/ETA [0-9:]+/, "ETA", line)
    gsub(/"Train\/Samples\/(samples_per_second|device_bytes(_peak)?)":[0-9.]+/, "MACHINE", line)
    gsub(/ in [0-9.]+ s /, " in TIME ", line)
    gsub(/-[0-9a-f]+\.shoal-tokens/, "-HASH", line)
    gsub(/on port [0-9]+/, "on port N", line)
    gsub(/[ \t]+/, " ", line)
    sub(/ $/, "", line)
    return line
}
function words(line) { gsub(/[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?/, "#", line); return line }
function same(a, b,    x, y) {
    a = plain(a)
    b = plain(b)
    if (words(a) != words(b))
        return 0
    while (!loose && match(a, /[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?/)) {
        x = substr(a, RSTART, RLENGTH)
        a = substr(a, RSTART + RLENGTH)
        match(b, /[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?/)
        y = substr(b, RSTART, RLENGTH)
        b = substr(b, RSTART + RLENGTH)
        if (x ~ /\./ && y ~ /\./ ? (x - y) ^ 2 > (0.05 * x) ^ 2 : x != y)
            return 0
    }
    return 1
}
NR == FNR { want[++wanted] = $0; next }
/^\[shoal run\] warning: rank .* is slow: it reaches collectives / { next } # on a busy machine
{ got++; if (!same(want[got], $0)) { print "the page: " want[got]; print "printed:  " $0; failed = 1 } }
END { if (got < wanted) { print "not printed: " want[got + 1]; failed = 1 } exit failed }'
for part in "$folder"/parts/*.sh; do
    part=${part%.sh}
    [ -e "$part.want" ] || : >"$part.want"
    loose=0
    [ ! -e "$part.loose" ] || loose=1
    awk -v loose=$loose "$compare" "$part.want" "$part.got" >"$folder/difference" ||
        complain "below $(head -1 "$part.sh"): $(cat "$folder/difference")"
done
[ "${4:-}" != --update ] || awk -v parts="$folder/parts" '
/^```sh$/ { n++; inside = 1 }
/^```$/ && !inside {
    print
    while ((getline line <sprintf("%s/%02d.got", parts, n)) > 0)
        print line
    skipping = inside = 1
    next
}
/^```$/ && inside { inside = skipping = 0 }
/^```[a-z]/ { inside = 1 }
!skipping { print }' "$page" >"$folder/new" && { [ "${4:-}" != --update ] || cp "$folder/new" "$page"; }
finish
