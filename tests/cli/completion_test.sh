#!/usr/bin/env bash
# Completion offers the subcommands, flags and choices of --help-all, all of them and no others: in bash, and in zsh where it is.
# Usage: completion_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$(realpath "$1")
root=$2
expect 0 "$root/scripts/completions" "$shoal" "$folder/share"
[ -z "$output" ] || complain "scripts/completions says: $output"
# shellcheck disable=SC1091
. "$folder/share/bash-completion/completions/shoal"
[ "$(complete -p shoal)" = "complete -F _shoal shoal" ] || complain "bash completes shoal by: $(complete -p shoal)"

# Completes the last of the words as bash does, which takes = for a word of its own. Sets $offered, a word a line.
complete_words() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    COMPREPLY=()
    _shoal
    offered=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort -u)
}
# offers WANTED WORD...: the words that start so, with spaces between
offers() {
    local wanted=$1
    shift
    complete_words "$@"
    [ "$(paste -sd' ' <<<"$offered")" = "$wanted" ] || complain "bash: $* offers \"$(paste -sd' ' <<<"$offered")\", not \"$wanted\""
}
# The flags of a help text; --[no-]x is two.
flags_of() {
    "$shoal" "$@" --help-all | grep -oE '^  -[^ ]+(, -[^ ]+)*' | tr -d ' ' | tr , '\n' |
        sed 's/^\(--\)\[no-\]\(.*\)/\1\2\n\1no-\2/' | cat - <(printf '%s\n' --help --help-all) | LC_ALL=C sort -u
}
names=$("$shoal" help | sed -n 's/^  \([a-z]*\) .*/\1/p')
[ "$(wc -w <<<"$names")" -ge 8 ] || complain "no list of subcommands: $names"
complete_words shoal ''
[ "$offered" = "$(printf '%s\n' $names --help --version | LC_ALL=C sort)" ] || complain "subcommands: $offered"

# every flag of every subcommand and subject, and no other
same_flags() { # WORD...
    complete_words shoal "$@" -
    [ "$offered" = "$(flags_of "$@")" ] || complain "bash: flags of $*: $(diff <(echo "$offered") <(flags_of "$@"))"
}
for name in $names; do
    case $name in
    help) ;;
    bench | tune)
        same_flags "$name"
        for subject in $("$shoal" "$name" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do same_flags "$name" "$subject"; done
        ;;
    *) same_flags "$name" ;;
    esac
done
# a model adds its own
for model in llama bert gemma-2b; do
    complete_words shoal pretrain "$model" -
    lacking=$(comm -13 <(echo "$offered") <(flags_of pretrain "$model"))
    [ -z "$lacking" ] || complain "bash: pretrain $model lacks $lacking"
done
# begin_with FLAG SUBCOMMAND...: the flags of the help text that begin so, with spaces between
begin_with() {
    local begin=$1
    shift
    flags_of "$@" | grep -- "^$begin" | paste -sd' '
}
launchers=$("$shoal" run --help-all | grep -oE '\(pdsh\|[a-z|]+' | tr -d '(' | tr '|' '\n' | LC_ALL=C sort | paste -sd' ')
[ "$(wc -w <<<"$launchers")" -gt 3 ] || complain "no list of launchers: $launchers"
launchers_m=$(tr ' ' '\n' <<<"$launchers" | grep ^m | paste -sd' ')
models=$("$shoal" pretrain ? 2>&1 | sed 's/.*there are: //; s/,//g')
complete_words shoal plan ''
[ "$offered" = "$(tr ' ' '\n' <<<"$models" | LC_ALL=C sort)" ] || complain "models: $offered"

cd "$folder" || exit 1
mkdir tests && touch tokens.bin 'my words'
offers "$(begin_with --hostf run)" shoal run --hostf
offers "prune" shoal checkpoint p
offers "$(begin_with --rot pretrain llama)" shoal pretrain llama --rot
offers "$(begin_with --rot pretrain gpt)" shoal pretrain gpt --rot
offers "$launchers_m" shoal run --launcher m
offers "$launchers_m" shoal run --launcher = m
offers "$launchers" shoal run --launcher =
offers "" shoal run --num_gpus ''
offers "tests tokens.bin" shoal pretrain gpt --data-path t
offers "tests tokens.bin" shoal pretrain gpt --data-path tests t
offers "$(begin_with --see pretrain gpt)" shoal pretrain gpt --data-path tests --see
offers "my words" shoal inspect my
offers "$(begin_with --train-it pretrain gpt)" shoal run --num_gpus 2 -H hosts build/bin/shoal pretrain gpt --train-it
offers "tests tokens.bin" shoal run --num_gpus = 2 ./program t
offers "config" shoal help conf
offers "" shoal pretrian --

# zsh in a terminal of its own, as a user types
if ! command -v zsh >/dev/null; then
    echo "skipped: zsh is not installed, so its completion is not tested"
    finish
    exit
fi
wanted=("$(printf '%s\n' $names | LC_ALL=C sort | paste -sd' ')" "$(begin_with --hostf run)" "$launchers_m" "$launchers_m" "prune"
    "$(begin_with --block-s bench io)" "$(begin_with --rot pretrain llama)" "$(begin_with --rot pretrain gpt)"
    "$(begin_with --train-it pretrain gpt)" "tests tokens.bin" "tokens.bin" "config")
lines=("shoal " "shoal run --hostf" "shoal run --launcher m" "shoal run --launcher=m" "shoal checkpoint p"
    "shoal bench io --block-s" "shoal pretrain llama --rot" "shoal pretrain gpt --rot"
    "shoal run --num_gpus 2 shoal pretrain gpt --train-it" "shoal pretrain gpt --data-path t" "shoal inspect to" "shoal help conf")
expect 0 zsh -f "$root/tests/cli/completion.zsh" "$folder/share/zsh/site-functions" "${lines[@]}"
for i in "${!lines[@]}"; do
    grep -qFx -- "${lines[i]}:${wanted[i]}" <<<"$output" || complain "zsh: \"${lines[i]}\" does not offer \"${wanted[i]}\": $output"
done
finish
