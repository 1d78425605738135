#!/usr/bin/env bash
# Sentences that a user reads in trouble, and what `shoal run` gives a program.  Usage: messages_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY
run="$shoal run --master_port 0"
# lacks TEXT...: none stands in the last output
lacks() {
    local text
    for text in "$@"; do
        case $output in
        *"$text"*) complain "\"$text\" is in: $output" ;;
        esac
    done
}

# --local_rank=N stands directly behind the program
cat >"$folder/program" <<'PROGRAM'
#!/bin/sh
echo "got $*"
PROGRAM
chmod +x "$folder/program"
expect 0 $run "$folder/program" train --depth 3
says "got --local_rank=0 train --depth 3"
expect 0 $run sh "$folder/program" train --depth 3
says "got --local_rank=0 train --depth 3"
expect 0 $run env A=b "$folder/program" train
says "got train --local_rank=0"
expect 0 $run --no_local_rank "$folder/program" train
says "got train"
expect 0 $run "$shoal" report
expect 0 $run "$shoal" --version

# A program that refuses it
printf '#!/bin/sh\necho "unknown option $1" >&2\nexit 2\n' >"$folder/program"
expect 2 $run "$folder/program" train
says "exited with code 2" "what to do: see its output; if it does not know the argument --local_rank=N" \
    "--no_local_rank"
expect 2 $run --no_local_rank "$folder/program" train
lacks "no_local_rank" "exited with"
expect 2 $run "$shoal" pretrain no-such-model
lacks "no_local_rank"

# A configuration from a pipe is read once, and every rank has it
for i in $(seq 300); do echo "the quick brown fox $i jumps"; done >"$folder/text"
cat >"$folder/c.json" <<'CONFIG'
{ "train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "optimizer": { "type": "AdamW", "params": { "lr": 1e-3 } } }
CONFIG
gpt="gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16"
train="$shoal pretrain $gpt --data-path $folder/text --train-iters 2"
mkfifo "$folder/pipe"
expect 0 $train --deepspeed_config "$folder/c.json"
wanted=$(grep 'iteration 2' <<<"$output")
expect 0 $train --deepspeed_config <(cat "$folder/c.json")
says "$wanted"
cat "$folder/c.json" >"$folder/pipe" &
expect 0 $run --num_gpus 2 $train "--deepspeed-config=$folder/pipe"
says "$wanted"
expect 0 $run --num_gpus 2 $train --deepspeed_config <(cat "$folder/c.json")
says "$wanted"
for command in "plan $gpt --vocab-size 64 --world-size 1" "bench step --model tiny --repeats 1 --seconds 0.01" "report --world 2"; do
    expect 0 "$shoal" $command --deepspeed_config <(cat "$folder/c.json")
done
expect 0 $run --hostfile <(echo localhost slots=2) sh -c 'test $WORLD_SIZE = 2'
expect 2 "$shoal" plan $gpt --world-size 1 --deepspeed_config <(echo '{"train_batch_size": 8,')
says "/dev/fd/" ":2: not valid JSON"
printf 'one slots=1\ntwo slots=1\n' >"$folder/hosts"
expect 2 "$shoal" run -H "$folder/hosts" $train --deepspeed_config <(cat "$folder/c.json")
says "is a pipe of this process, which other hosts cannot read: write the configuration to a file"

# A byte order mark begins a text of Windows and is no part of it
mark=$(printf '\357\273\277')
printf '%slocalhost slots=2\n' "$mark" >"$folder/hosts"
expect 0 $run --hostfile "$folder/hosts" sh -c 'test $WORLD_SIZE = 2'
printf '%sMARKED=here\n' "$mark" >"$folder/.deepspeed_env"
printf '%sone slots=1\ntwo slots=1\n' "$mark" >"$folder/hosts"
expect 0 env HOME="$folder" "$shoal" run --dry-run --launcher pdsh -H "$folder/hosts" true
says ", MARKED" "-w one,two "
for i in $(seq 100); do echo "{\"text\": \"the quick brown fox $i\"}"; done >"$folder/lines.jsonl"
lines="$shoal pretrain $gpt --train-iters 2 --deepspeed_config $folder/c.json"
expect 0 $lines --data-path "$folder/lines.jsonl"
wanted=$(grep 'iteration 2' <<<"$output")
{ printf %s "$mark" && cat "$folder/lines.jsonl"; } >"$folder/marked.jsonl"
expect 0 $lines --data-path "$folder/marked.jsonl"
says "$wanted"
printf '%s%s\n' "$mark" "$folder/lines.jsonl" >"$folder/words"
expect 0 $lines --data-args-path "$folder/words"
says "$wanted"

# Names that are not known
expect 2 "$shoal" pretrane gpt
says 'there is no subcommand "pretrane"; nearest is "pretrain"'
expect 2 "$shoal" frobnicate
says 'there is no subcommand "frobnicate"; there are: run, pretrain, '
expect 2 "$shoal" pretrain lama
says 'there is no model "lama"; nearest is llama'

# Keys: what a section has; where two contradicting ones stand
expect 2 "$shoal" plan $gpt --vocab-size 64 --world-size 1 --deepspeed_config <(echo '{"train_batch_size": 8, "bf16": {"zzqx": 1}}')
says "bf16.zzqx: unknown key; the keys of this section are enabled"
printf '{ "train_batch_size": 8,\n"fp16": { "enabled": true },\n\n"bf16": { "enabled": true } }\n' >"$folder/both.json"
expect 2 $train --deepspeed_config "$folder/both.json"
says "fp16 and bf16 are both enabled: enable one of them (lines 2 and 4)"

# A folder that is there and holds no manifest
expect 0 $train --deepspeed_config "$folder/c.json" --save "$folder/saved"
rm "$folder/saved/global_step2/manifest.json"
expect 2 $train --deepspeed_config "$folder/c.json" --load "$folder/saved"
says "latest names global_step2, which has no manifest.json"
lacks "does not exist"
expect 2 "$shoal" checkpoint show "$folder/saved" --load-tag global_step2
says "global_step2 has no manifest.json"
expect 2 "$shoal" checkpoint verify "$folder/saved" --load-tag global_step2
says "global_step2 has no manifest.json"
expect 0 "$shoal" checkpoint list "$folder/saved"
lacks "does not exist"

# Communication plug-ins stand in the report once
expect 0 "$shoal" report
[ "$(grep -cE '^ *ucx ' <<<"$output")" = 1 ] || complain "ucx in the report: $(grep ucx <<<"$output")"

# Memory of the program that became this one is not this one's
expect 0 bash -c 'eat=$(head -c 100000000 /dev/zero | tr "\0" a); exec "$@"' bash $train --deepspeed_config "$folder/c.json"
says "peak RSS"
peak=$(grep -oE 'peak RSS [0-9.]+ [KM]iB' <<<"$output" | cut -d' ' -f3 | cut -d. -f1)
[ -n "$SANITIZE" ] || [ "$peak" -lt 64 ] || complain "peak RSS counts what was before exec: $(grep 'peak RSS' <<<"$output")"

# A rank that dies is in one step, whoever says so: with two collectives a step, in the first and in the second one
for skip in 20 21; do
    SHOAL_FAULT=comm.post:$skip@1=kill expect 137 $run --num_gpus 2 $train --deepspeed_config "$folder/c.json" --train-iters 50
    [ "$(grep -oE '(is gone.* of|where:) step [0-9]+' <<<"$output" | grep -oE '[0-9]+$' | sort | uniq -c | awk '{ print $1 }')" = 2 ] ||
        complain "one fault has two step numbers: $output"
done

# Each flag of pretrain is described once
tools=$(dirname "$0")/../../tools
twice=$(comm -12 <(grep -oE '(LATER|KNOWN)\("[a-z0-9-]+"' "$tools/pretrain/known.c" | cut -d'"' -f2 | sort -u) \
    <(grep -ohE '(OPTION\(|\.key = )"[a-z0-9-]+"' "$tools"/pretrain/options.c "$tools"/flags/mesh.c | cut -d'"' -f2 | sort -u))
[ -z "$twice" ] || complain "flags that pretrain/known.c and the options describe: $twice"

finish
