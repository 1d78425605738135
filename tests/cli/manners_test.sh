#!/usr/bin/env bash
# What a user sees besides numbers: output that nobody takes, exit codes, a terminal of any width.
# Usage: manners_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE COLUMNS
cd "$folder" || exit 1

cat >ds.json <<'CONFIG'
{"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "hashes": true}
CONFIG
shape="--num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 8 --threads 1 --deepspeed_config ds.json"
train="$shoal pretrain gpt $shape --mock-data --eval-iters 1"
seq 4000 >text
expect 0 "$shoal" pretrain gpt $shape --data-path text --eval-iters 1 --train-iters 2 --save one
says "model: 1 layer, " " thousand parameters"
run="$shoal run --master_port 0 --num_gpus 2"

# ---- output that nobody takes ----
# commands: what prints, with the exit code for output that is lost
lost() { # CODE COMMAND...
    local wanted=$1 code to
    shift
    for to in full closed ignored; do
        code=0
        case $to in
        full) "$@" >/dev/full 2>said </dev/null || code=$? ;;
        closed) "$@" >&- 2>said </dev/null || code=$? ;;
        # a pipe without reader; whoever ignores SIGPIPE gets an error instead of a signal
        ignored) code=$( (trap '' PIPE; { sleep 0.05; code=0; "$@" 2>said </dev/null || code=$?; echo $code >code; } | true); cat code) ;;
        esac
        if [ $to = ignored ]; then
            [ "$code" -eq 141 ] || complain "$* into a pipe without reader ended with $code: $(cat said)"
            grep -q "cannot write" said && complain "$* into a pipe without reader: $(cat said)"
        else
            [ "$code" -eq "$wanted" ] || complain "$* into $to ended with $code, not $wanted"
            [ "$(grep -c "cannot write to standard output" said)" -ge 1 ] || complain "$* into $to: $(cat said)"
        fi
    done
}
lost 1 "$shoal" help
lost 1 "$shoal" help config
lost 1 "$shoal" --version
lost 1 "$shoal" report
lost 1 "$shoal" plan gpt $shape --vocab-size 99
lost 1 "$shoal" plan gpt $shape --vocab-size 99 --json
lost 1 "$shoal" generate --load one --num-tokens 4
lost 2 "$shoal" diff one one # 1 would say that they differ
lost 1 "$shoal" bench gemm --m 8 --n 8 --k 8 --seconds 0.01
for command in run pretrain plan generate diff checkpoint bench tune report help; do
    lost 1 "$shoal" $command --help
done
# a training goes on without its lines, says so at once, and its exit code tells
for to in full closed; do
    code=0
    rm -rf kept
    if [ $to = full ]; then $train --train-iters 3 --save kept >/dev/full 2>said || code=$?
    else $train --train-iters 3 --save kept >&- 2>said || code=$?; fi
    [ "$code" -eq 1 ] || complain "pretrain into $to ended with $code"
    [ -f kept/global_step3/manifest.json ] || complain "pretrain into $to did not save: $(cat said)"
    [ "$(grep -c "the training goes on" said)" = 1 ] || complain "pretrain into $to: $(cat said)"
done
code=0
$run $train --train-iters 3 >/dev/full 2>said || code=$?
[ "$code" -eq 1 ] || complain "run pretrain into a full disk ended with $code: $(cat said)"
grep -q "why: cannot write to standard output: No space left on device" said || complain "no reason of a full disk: $(cat said)"
grep -q "what to do: make room on that disk" said || complain "no advice about a full disk: $(cat said)"
# head(1) has what it wanted: without a word, and with the code of SIGPIPE
for command in "$train" "$run $train"; do
    set -o pipefail
    code=0
    timeout 60 $command --train-iters 100000 --log-interval 1 2>said </dev/null | head -1 >first || code=$?
    set +o pipefail
    [ "$code" -eq 141 ] || complain "$command | head -1 ended with $code: $(cat said)"
    [ ! -s said ] || complain "$command | head -1 said: $(cat said)"
    [ -s first ] || complain "$command | head -1 printed nothing"
done

# ---- exit codes and flags ----
expect 3 "$shoal" plan gpt $shape --vocab-size 99 --memory-limit 1KiB
says "1 rank: does not fit"
expect 3 "$shoal" plan gpt $shape --vocab-size 99 --memory-limit 1KiB --json
says '"fits":false'
expect 0 "$shoal" plan gpt $shape --vocab-size 99 --memory-limit 1GiB
expect 0 "$shoal" plan --help
says "3 it does not"
expect 0 $train --vocab-size 1000 --train-iters 1
says "tokens of 1000 kinds"
expect 2 "$shoal" pretrain gpt $shape --data-path text --vocab-size 1000 --train-iters 1
says "--vocab-size is for --mock-data"
expect 0 "$shoal" generate --load one --prompt 12 --num-tokens 20 --temperature 0
greedy=$output
for seed in 1 2 3; do
    expect 0 "$shoal" generate --load one --prompt 12 --num-tokens 20 --temperature 0 --seed $seed
    [ "$output" = "$greedy" ] || complain "temperature 0 draws: \"$output\", \"$greedy\""
done
expect 0 "$shoal" generate --load one --prompt 12 --num-tokens 20 --top-k 1
[ "$output" = "$greedy" ] || complain "temperature 0 is not the likeliest token"
expect 2 "$shoal" generate --load one --temperature -1
says "--temperature"

# ---- windows ----
# window WIDTH TERM COMMAND: what a terminal of this width gets
window() {
    python3 - "$@" <<'PYTHON'
import fcntl, os, pty, struct, sys, termios
columns, term, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.environ["TERM"] = term
    os.execvp(command[0], command)
data = b""
try:
    while piece := os.read(fd, 65536):
        data += piece
except OSError:
    pass
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.stdout.write(data.decode().replace("\r\n", "\n"))
sys.exit(code)
PYTHON
}
if command -v python3 >/dev/null 2>&1; then
    for width in 20 40 80 200; do
        expect 0 window $width xterm $train --train-iters 30
        steps=$(tr '\r' '\n' <<<"$output" | grep '^step' | sed 's/\x1b\[K.*//')
        [ -n "$steps" ] || complain "no live line in $width columns: $output"
        [ "$(awk '{ if (length > most) most = length } END { print most }' <<<"$steps")" -lt "$width" ] ||
            complain "a live line of $width columns wraps: $steps"
        # the last step stands before the summary, once
        [ "$(grep -n 'step 30/30' <<<"$output" | tail -1 | cut -d: -f1)" -lt \
            "$(grep -n 'validation loss' <<<"$output" | cut -d: -f1)" ] || complain "the summary is above the last step: $output"
    done
    expect 0 window 40 dumb $train --train-iters 30
    [[ $output != *$'\x1b'* && $output != *$'\r'* ]] || complain "a dumb terminal got control sequences: $output"
    says "step 1/30" "step 30/30"
fi
# without a terminal: the first step and the last, also of a run that leaves early
expect 0 $train --train-iters 30 --exit-interval 13
says "step 1/30" "step 13/30"
finish
