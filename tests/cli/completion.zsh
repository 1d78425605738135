#!/usr/bin/env zsh
# What an interactive zsh offers after LINE and a tab, for each LINE: "LINE:words that it offers, sorted".
# Usage: zsh -f completion.zsh FOLDER_OF_FUNCTIONS LINE...
# A terminal of its own runs a zsh whose compadd writes what it is given to a file; a second key says that the tab is done.
zmodload zsh/zpty zsh/datetime || exit 1
site=$1
shift
hits=$(mktemp)
trap 'zpty -d inner 2>/dev/null; rm -f $hits' EXIT
zpty inner zsh -f -i
# read by the inner shell, whose prompt is of no interest
setup=$(mktemp)
cat >$setup <<END
fpath=(${(q)site} \$fpath)
autoload -Uz compinit && compinit -D -u
zstyle ':completion:*' completer _complete
compadd() {
    local -a found
    if [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "\$@"; return; fi
    builtin compadd -A found "\$@"
    print -rl -- \$found >>${(q)hits}
    builtin compadd "\$@"
}
finished() { print -r -- '=end=' >>${(q)hits}; BUFFER= }
zle -N finished
bindkey '^I' list-choices
bindkey '^X^E' finished
finished_now() { print -r -- '=end=' >>${(q)hits} }
finished_now
END
zpty -w inner "source $setup"

await() { # until the inner shell has written =end=
    local until=$((EPOCHREALTIME + 30)) output
    while ! grep -qx '=end=' $hits; do
        (( EPOCHREALTIME < until )) || { print -u2 "zsh does not answer"; exit 1 }
        zpty -r -t inner output
        sleep 0.02
    done
}
await
rm -f $setup
for line in "$@"; do
    : >$hits
    zpty -w -n inner "$line"$'\t\x18\x05'
    await
    print -r -- "$line:$(grep -vx '=end=' $hits | grep . | LC_ALL=C sort -u | paste -sd' ')"
done
