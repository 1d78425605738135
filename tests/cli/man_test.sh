#!/usr/bin/env bash
# The manual pages say what --help-all says, and are pages that man, groff and mandoc have nothing to say about.
# Usage: man_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1
root=$2
expect 0 "$root/scripts/man-pages" "$shoal" "$folder"
[ -z "$output" ] || complain "scripts/man-pages says: $output"
# The words of a page, as they were before they were escaped
text() { sed 's/\\-/-/g; s/\\(ha/^/g; s/\\(ti/~/g; s/\\(ga/`/g; s/\\e/\\/g; s/^\\&//' "$1"; }

pages=$("$shoal" help | sed -n 's/^  \([a-z]*\) .*/\1/p' | grep -vx help)
[ "$(wc -w <<<"$pages")" -ge 8 ] || complain "no list of subcommands: $pages"
for name in $pages; do
    page=$folder/man1/shoal-$name.1
    text "$page" >"$folder/text"
    help=$("$shoal" "$name" --help-all)
    case $name in
    bench | tune)
        for part in $(sed -n 's/^  \([a-z]*\) .*/\1/p' <<<"$help"); do
            help=$help$'\n'$("$shoal" "$name" "$part" --help-all)
            grep -qx "\.SS $part" "$folder/text" || complain "$page has no $part"
        done
        ;;
    esac
    # each flag with its line of meaning, each usage, each exit code
    flags=$(grep -o '^  -[^ ]* *[^ ]*' <<<"$help" | awk '{ print $1 }' | sort -u)
    [ -n "$flags" ] || complain "$name has no flags"
    while IFS= read -r flag; do
        grep -qF -- ".B $flag" "$folder/text" || complain "$page does not have $flag"
    done <<<"$flags"
    grep -qx '\.SH SYNOPSIS' "$page" && grep -qx '\.SH DESCRIPTION' "$page" || complain "$page lacks a section"
    [ "$(grep -c '^\.SH EXIT STATUS' "$page")" = "$(grep -c '^Exit codes: ' <<<"$help")" ] || complain "$page: exit codes"
    grep -qF "shoal\\-$name (1)" "$folder/man1/shoal.1" || complain "shoal.1 does not name shoal-$name"
done
keys=$("$shoal" help config | sed -n 's/^| `\([^`]*\)`.*/\1/p' | sort -u)
[ "$(wc -l <<<"$keys")" -gt 100 ] || complain "no list of keys: $keys"
text "$folder/man5/shoal-config.5" >"$folder/text"
while IFS= read -r key; do
    grep -qE "^\.B $key( or .*)?\$" "$folder/text" || complain "shoal-config.5 does not have $key"
done <<<"$keys"
for code in 0 1 2 3 141; do
    grep -qx "\.B $code" "$folder/man1/shoal.1" || complain "shoal.1 has no exit code $code"
done
for page in "$folder"/man?/*; do
    head -1 "$page" | grep -qE '^\.TH [A-Z-]+ [15] [0-9]{4}-[0-9]{2}-[0-9]{2} "shoal [0-9.]+" Shoal$' || complain "$(head -1 "$page")"
    if command -v mandoc >/dev/null; then
        expect 0 mandoc -Tlint -Wwarning "$page"
    fi
    if command -v groff >/dev/null; then
        expect 0 groff -man -Tascii -ww -z "$page"
        [ -z "$output" ] || complain "groff: $output"
    fi
done
# the same tree gives the same pages
expect 0 "$root/scripts/man-pages" "$shoal" "$folder/again"
for kind in man1 man5; do
    diff -r "$folder/$kind" "$folder/again/$kind" || complain "another time, other pages"
done
finish
