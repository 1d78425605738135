#!/usr/bin/env bash
# --help, --help-all and --help GROUP: the short help is short, the full help has each flag of the tables once, in groups that can
# be shown one by one.
# Usage: help_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1
root=$2

# The flags of a help text, one a line
flags() { grep -oE '^  --[^ ,]+' | sed -E 's/^  --(\[no-\])?//'; }
groups() { sed -n 's/^\([a-z]*\):$/\1/p'; }
# narrow WORDS: no line of the last output is over 100 columns
narrow() {
    local wide
    wide=$(awk 'length($0) > 100' <<<"$output")
    [ -z "$wide" ] || complain "$*: lines over 100 columns: $wide"
}

# check_help "COMMAND WORDS": whatever the number of flags
check_help() {
    local full short all once group part=
    # shellcheck disable=SC2206
    local command=($1)
    expect 0 "$shoal" "${command[@]}" --help-all
    full=$output
    narrow "$1 --help-all"
    once=$(flags <<<"$full" | sort | uniq -d)
    [ -z "$once" ] || complain "$1 --help-all: more than once: $once"
    expect 0 "$shoal" "${command[@]}" --help
    short=$output
    narrow "$1 --help"
    [ "$(wc -l <<<"$short")" -le 80 ] || complain "$1 --help has $(wc -l <<<"$short") lines"
    expect 0 "$shoal" "${command[@]}" -h
    [ "$output" = "$short" ] || complain "$1: -h is not --help"
    all=$(flags <<<"$full" | sort)
    [ -z "$(comm -13 <(echo "$all") <(flags <<<"$short" | sort))" ] || complain "$1 --help has flags that --help-all lacks"
    for group in $(groups <<<"$full"); do
        expect 0 "$shoal" "${command[@]}" --help "$group"
        narrow "$1 --help $group"
        [ "$(groups <<<"$output")" = "$group" ] || complain "$1 --help $group shows: $output"
        grep -q '^usage' <<<"$output" && complain "$1 --help $group shows the usage"
        part=$part$(flags <<<"$output")$'\n'
    done
    [ "$(sed '/^$/d' <<<"$part" | sort)" = "$all" ] || complain "$1: the groups together are not --help-all"
    expect 2 "$shoal" "${command[@]}" --help no-such-group
    for group in $(groups <<<"$full"); do
        says "$group"
    done
    says "no such group"
}
for command in pretrain "pretrain llama" "pretrain bert" "pretrain gpt2-124m" plan "plan llama" run generate preprocess convert elastic \
    "bench gemm" "bench step" "bench step --model llama" "bench start" "bench generate" "bench comm" "bench io" "tune io"; do
    check_help "$command"
done

# Few flags: one help. Many: the short one says how to see the rest.
for command in generate preprocess convert elastic "bench gemm" tokenizer plot report checkpoint diff inspect top bench tune "tune comm" help; do
    # shellcheck disable=SC2086
    expect 0 "$shoal" $command --help
    narrow "$command --help"
    # shellcheck disable=SC2086
    [ "$output" = "$("$shoal" $command --help-all)" ] || complain "$command: --help is not --help-all"
done
for command in pretrain plan run "bench step"; do
    # shellcheck disable=SC2086
    expect 0 "$shoal" $command --help
    says "--help-all shows all" "--help GROUP"
    # shellcheck disable=SC2086
    for group in $("$shoal" $command --help-all | groups); do
        tail -3 <<<"$output" | grep -qw "$group" || complain "$command --help does not name the group $group"
    done
done

# pretrain: 25 flags, with defaults; each flag of the tables' source is in the full help
expect 0 "$shoal" pretrain --help
says "at the end (default 0)" "default 100" "default 1234" "required"
[ "$(flags <<<"$output" | wc -l)" = 25 ] || complain "pretrain --help has $(flags <<<"$output" | wc -l) flags"
[ "$(groups <<<"$output" | head -3 | paste -sd' ')" = "model data tokenizer" ] || complain "groups of pretrain --help: $(groups <<<"$output")"
# of_tables FILE...: the keys of rows that are written out, but for the hidden ones
of_tables() {
    perl -0777 -ne 'while (/\{\s*\.key = "([^"]+)"(.*?)\},?\n/gs) { print "$1\n" unless $2 =~ /OPTION_HIDDEN/ }' "$@"
    perl -0777 -ne 'while (/^    (?:SHARED_)?OPTION\(\s*"([^"]+)"(.*?)\),\n/gms) { print "$1\n" unless $2 =~ /OPTION_HIDDEN/ }' "$@"
    perl -0777 -ne 'while (/^    (?:COMMON_SIZE|SIZE|COUNT|SWITCH|TEXT)\(\s*"([^"]+)"/gm) { print "$1\n" }' "$@"
}
same_flags() { # COMMAND FILE...
    local command=$1 missing
    shift
    missing=$(comm -13 <("$shoal" "$command" --help-all | flags | sort) <(of_tables "$@" | sort))
    [ "$(of_tables "$@" | wc -l)" -gt 30 ] || complain "no tables in $*"
    [ -z "$missing" ] || complain "$command --help-all lacks: $missing"
}
same_flags pretrain "$root"/tools/{pretrain/options,pretrain/data,flags/mesh,flags/tokenizer}.c
same_flags plan "$root"/tools/{plan/options,pretrain/options,pretrain/data,flags/mesh,flags/tokenizer}.c
same_flags run "$root/src/launcher/command/options.c"

# A group may stand behind =, and a flag behind --help is no group
expect 0 "$shoal" pretrain --help=logging
[ "$(flags <<<"$output" | head -n 4 | paste -sd' ')" = "log-interval log-format log-throughput tensorboard-dir" ] || complain "--help=logging: $output"
expect 0 "$shoal" pretrain --help --log-interval 3
says "usage: "
expect 2 "$shoal" pretrain --help checkpiont
says "shoal pretrain gpt: --help checkpiont: there is no such group of flags; groups are: model, data, tokenizer"
finish
