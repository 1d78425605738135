#!/usr/bin/env bash
# `shoal pretrain` as processes: the same bits for any number of ranks and device, continuing, mistakes in
# one sentence each, ranks that die, nothing left behind.  Usage: pretrain_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
export SHOAL_SIM_BYTES=268435456
cd "$folder" || exit 1
before=$(left_segments)

for i in $(seq 200); do
    echo "line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))"
done >text
cat >ds.json <<'CONFIG'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "reduction": "exact",
 "steps_per_print": 1000000, "gradient_clipping": 1.0,
 "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
CONFIG
shape="--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1"
data="--data-path text --tokenizer-type char --eval-iters 2"
gpt="$shoal pretrain gpt $shape"
train="$gpt $data --deepspeed_config ds.json"
ranks() { echo "$shoal run --master_port 0 --num_gpus $1"; }
final_loss() { grep "on validation set" <<<"$output" | tail -1; }
# same_weights DIR: its tensors are those of one/
same_weights() {
    local file
    for file in one/global_step8/*.safetensors; do
        cmp -s "$file" "$1/global_step8/${file##*/}" || complain "$1: ${file##*/} differs from one rank's"
    done
}

# ---- one rank, many ranks, another device, continuing ----
expect 0 sh -c 'echo $$ >lone && exec "$@"' - $train --train-iters 8 --save one
[ -z "$(ls -d "/dev/shm/shoal-$(id -u)/shoal-$(cat lone)."* 2>/dev/null)" ] || complain "a lone process left its status page"
says "step 8/8" "saved step 8" "lm loss value"
loss=$(final_loss)
[ -n "$loss" ] || complain "no final loss: $output"
[ -f one/global_step8/manifest.json ] || complain "no manifest in $(ls -R one)"
for n in 2 4; do
    expect 0 $(ranks $n) $train --train-iters 8 --save "cpu$n"
    [ "$(final_loss)" = "$loss" ] || complain "$n ranks: $(final_loss), one rank: $loss"
    same_weights "cpu$n"
done
for mode in late thread; do
    expect 0 env SHOAL_ACCELERATOR=sim SHOAL_SIM_STREAMS=$mode $(ranks 2) $train --train-iters 8 --save "sim$mode"
    [ "$(final_loss)" = "$loss" ] || complain "sim $mode: $(final_loss), one rank: $loss"
    same_weights "sim$mode"
done
expect 0 $(ranks 2) $train --train-iters 5 --save parts
expect 0 $(ranks 4) $train --train-iters 8 --load parts --save parts
says "step 8/8"
[ "$(final_loss)" = "$loss" ] || complain "continued: $(final_loss), one rank: $loss"
same_weights parts
# tiles that are emulated: other bits than vectors have, and the same for any number of ranks; the manifest names the kernels
sed 's/"reduction"/"bf16": {"enabled": true}, "reduction"/' ds.json >bf16.json
tiles="$gpt $data --deepspeed_config bf16.json --train-iters 2"
if SHOAL_OPS=cpu-amx-emulated "$shoal" report >/dev/null 2>&1; then
    expect 0 env SHOAL_OPS=cpu-amx-emulated $tiles --save amx1
    emulated=$(final_loss)
    grep -q '"kernels": *"cpu-amx-emulated"' amx1/global_step2/manifest.json || complain "the manifest does not name its kernels"
    expect 0 env SHOAL_OPS=cpu-amx-emulated $(ranks 2) $tiles
    [ "$(final_loss)" = "$emulated" ] || complain "emulated tiles, 2 ranks: $(final_loss), one rank: $emulated"
fi
# ranks on machines that choose differently
expect 1 $(ranks 2) bash -c "export SHOAL_OPS; [ \$RANK = 1 ] && SHOAL_OPS=ref; exec $train --train-iters 1"
says "different kernels" "set SHOAL_OPS to one that all machines have"
# ranks that are started with other values end before the first step: each item, with both values
for other in "--seed 5|--seed (rank 0: 1234, rank 1: 5)" "--train-iters 2|--train-iters (rank 0: 1, rank 1: 2)" \
    "--hidden-dropout 0.3|--hidden-dropout (rank 0: 0.1, rank 1: 0.3)" "--save other|--save (rank 0: not given, rank 1: given)"; do
    expect 2 $(ranks 2) bash -c "[ \$RANK = 1 ] && more='${other%%|*}'; exec $train --train-iters 1 \$more"
    says "the ranks disagree on ${other#*|}"
    [ ! -e other ] || complain "ranks that disagree left a folder"
done
sed 's/"gradient_clipping": 1.0/"gradient_clipping": 0.25/' ds.json >1.json
cp ds.json 0.json
expect 2 $(ranks 2) bash -c "exec ${train/--deepspeed_config ds.json/} --deepspeed_config \$RANK.json --train-iters 1"
says "the ranks disagree on gradient_clipping (rank 0: 1, rank 1: 0.25)"
# ... but threads, logging and paths are their own
expect 0 $(ranks 2) bash -c "[ \$RANK = 1 ] && more='--threads 2 --log-interval 7'; exec $train --train-iters 1 \$more"
# the head in tiles: its own bits on any number of ranks, the weights of any checkpoint, and a checkpoint that generates
fused="$train --make-vocab-size-divisible-by 1100 --cross-entropy-loss-fusion"
expect 0 $fused --train-iters 4 --save fused1
tiles=$(final_loss)
expect 0 $(ranks 2) $fused --train-iters 4 --save fused2
[ "$(final_loss)" = "$tiles" ] || complain "fused, 2 ranks: $(final_loss), one rank: $tiles"
expect 0 "$shoal" generate --load fused1 --prompt line --num-tokens 4
expect 0 $train --make-vocab-size-divisible-by 1100 --train-iters 4 --load fused1 # only evaluated
value() { sed 's/.*value: *\([0-9.E+-]*\).*/\1/' <<<"$1"; }
awk -v a="$(value "$tiles")" -v b="$(value "$(final_loss)")" 'BEGIN { exit !(a > 1 && b > 1 && (a - b) ^ 2 < 1e-8) }' ||
    complain "unfused from a fused checkpoint: $(final_loss), fused: $tiles"
# the tokens are where the user wants them, whatever rank makes them, and the same; elsewhere nothing is left
expect 0 $(ranks 4) $train --train-iters 8 --data-cache-path cache/here
says "tokens: cache/here/text-char-"
[ "$(final_loss)" = "$loss" ] || complain "tokens in cache/here: $(final_loss), beside the text: $loss"
[ "$(ls -A cache/here | wc -l)" = 1 ] || complain "more than tokens: $(ls -A cache/here)"
ls .shoal-cache/text-char-*.shoal-tokens >/dev/null || complain "no tokens beside the text: $(ls -A)"
planned=$(grep -o 'memory: planned [^,]*' <<<"$output")
[ "${planned#memory: planned }" = "$(sed -n 's/.*memory: planned.*used \([^,]*\),.*/\1/p' <<<"$output")" ] ||
    complain "planned is not used: $output"
expect 2 $train --train-iters 1 --data-cache-path text/below
says "--data-cache-path" "text"
# what decays: all of it by the configuration, matrices by Megatron's flag, and the configuration's rule where both speak
sed 's/"lr": 0.01/"lr": 0.01, "weight_decay": 0.1/' ds.json >decay.json
expect 0 $gpt $data --deepspeed_config decay.json --train-iters 1
says "weight decay 0.1: 28 tensors, " "; every tensor decays"
expect 0 $gpt $data --deepspeed_config decay.json --weight-decay 0.1 --train-iters 1
says "; every tensor decays"
expect 0 $train --weight-decay 0.1 --train-iters 1
says "weight decay 0.1: 10 tensors, " "18 tensors, 896 parameters do not decay (1-D)"
line=$(grep "weight decay" <<<"$output")
expect 0 $(ranks 2) $train --weight-decay 0.1 --train-iters 1
[ "$(grep "weight decay" <<<"$output")" = "$line" ] || complain "two ranks: $output"
expect 0 $train --train-iters 1
says "weight decay: none"
sed 's/"params"/"no_decay": ["*.biass"], "params"/' decay.json >bias.json
expect 2 $gpt $data --deepspeed_config bias.json --train-iters 1
says "bias.json:3: optimizer.no_decay: \"*.biass\" matches no parameter"
# leaving early at a step, and going on from the checkpoint of a step
expect 0 $(ranks 2) $train --train-iters 8 --save early --exit-interval 3
says "saved step 3"
[ -z "$(final_loss)" ] || complain "left early, but evaluated: $output"
expect 0 $train --train-iters 8 --load early --save early --save-interval 5
expect 0 $train --train-iters 8 --load early --ckpt-step 5
[ "$(final_loss)" = "$loss" ] || complain "continued from step 5: $(final_loss), one rank: $loss"
# the seed of the configuration is that of the flag
sed 's/{/{"seed": 77, /; 1q' ds.json >seed.json && sed 1d ds.json >>seed.json
expect 0 $gpt $data --deepspeed_config seed.json --train-iters 3
seeded=$(final_loss)
expect 0 $train --train-iters 3 --seed 77
[ "$(final_loss)" = "$seeded" ] || complain "--seed 77: $(final_loss), the key: $seeded"
expect 0 $train --train-iters 3
[ "$(final_loss)" != "$seeded" ] || complain "the key seed changes nothing"
expect 0 $train --train-iters 8 --load parts # nothing left to do
[ "$(final_loss)" = "$loss" ] || complain "only evaluated: $(final_loss), one rank: $loss"
# Another number of steps is another loss: the comparison can fail
expect 0 $train --train-iters 7
[ "$(final_loss)" != "$loss" ] || complain "7 steps have the loss of 8"

# ---- generating from it ----
expect 0 "$shoal" generate --load one --prompt "line 1" --num-tokens 40 --top-k 1 --threads 1
says "line 1"
text=$output
[ "${#text}" -ge 40 ] || complain "too short: $text"
expect 0 "$shoal" generate --load parts --prompt "line 1" --num-tokens 40 --top-k 1 --threads 1
[ "$output" = "$text" ] || complain "the same weights wrote another text: $output"
expect 2 "$shoal" generate --load nowhere
says "nowhere"
expect 0 "$shoal" generate --load one/global_step8 --prompt "line 1" --num-tokens 40 --top-k 1 --threads 1
[ "$output" = "$text" ] || complain "the checkpoint by its own folder wrote another text: $output"
"$shoal" generate --load one --prompt "line" --num-tokens 0 >/dev/full 2>said && complain "a full disk was not said"
grep -q "cannot write to standard output" said || complain "into a full disk: $(cat said)"
# in another precision, from a checkpoint that has no loss scale
expect 0 $train --train-iters 9 --load one --fp16
says "step 9/9" "scale 65536"
expect 2 "$shoal" generate --load one --prompt "~"
says "U+007E"
expect 2 "$shoal" generate --load one --prompt "line" --temperature -1
says "--temperature"

# ---- mistakes: exit code 2 and one sentence, of whichever rank ----
# refused RANKS SENTENCE_PART COMMAND...
refused() {
    local n=$1 part=$2 command
    shift 2
    for command in "" "$(ranks "$n")"; do
        [ -n "$command" ] || [ "$n" = 2 ] || continue
        expect 2 $command "$@"
        says "$part"
        local sentences
        sentences=$(grep -c "^shoal" <<<"$output")
        [ "$sentences" = 1 ] || complain "$sentences sentences instead of one: $output"
    done
}
: >empty
printf 'too short' >short
mkdir hollow
refused 2 "missing.txt" $gpt --deepspeed_config ds.json --train-iters 2 --data-path missing.txt
refused 2 "empty" $gpt --deepspeed_config ds.json --train-iters 2 --data-path empty
refused 2 "hollow" $gpt --deepspeed_config ds.json --train-iters 2 --data-path hollow
refused 2 "9 tokens" $gpt --deepspeed_config ds.json --train-iters 2 --data-path short --split 1,0
refused 2 "no training data" $gpt --deepspeed_config ds.json --train-iters 2
refused 2 "absent.json" $gpt $data --train-iters 2 --deepspeed_config absent.json
# with CONFIG: writes it to bad.json
with() { printf '%s\n' "$1" >bad.json; }
bad="$gpt $data --train-iters 2 --deepspeed_config bad.json"
adam='"optimizer": {"type": "AdamW"}'
with "{\"train_batch_sise\": 8, $adam}"
refused 2 "train_batch_size" $bad
with "{\"train_batch_size\": 8"
refused 2 "bad.json" $bad
with "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 3, $adam}"
refused 2 "train_batch_size 8 is not a multiple of" $bad
with "{\"train_batch_size\": 2, $adam}"
refused 4 "train_batch_size 2" $bad
with '{"train_batch_size": 8}'
refused 2 "optimizer" $bad
with '{"train_batch_size": 8, "optimizer": {"type": "AdamV"}}'
refused 2 "AdamV" $bad
refused 2 "not divisible by --num-attention-heads 4" $train --train-iters 2 --hidden-size 30
refused 2 "100000" $train --train-iters 2 --seq-length 100000
refused 2 "--lr is 0.5" $train --train-iters 2 --lr 0.5
expect 2 env SHOAL_COMM=mpl $train --train-iters 1
says 'unknown backend "mpl" (SHOAL_COMM)'
refused 2 "--seed is 5" $gpt $data --deepspeed_config seed.json --train-iters 2 --seed 5
refused 2 "--swiglu does not belong here; the model llama has it: shoal pretrain llama" ${train/ gpt / bert } --train-iters 2 --swiglu
refused 2 "--num-experts is not supported, see docs/FEATURES.md" $train --train-iters 2 --num-experts 4
refused 2 "--initial-loss-scale 3 is no power of two" $train --train-iters 2 --fp16 --initial-loss-scale 3
refused 2 "there is no checkpoint" $train --train-iters 2 --load hollow --exit-on-missing-checkpoint
refused 2 "global_step4" $train --train-iters 9 --load early --ckpt-step 4
refused 2 "nearest flag is --num-layers" $train --train-iters 2 --num-layer 3
refused 2 "global_step77" $train --train-iters 9 --load one --load-tag global_step77
refused 2 "bpe" $train --train-iters 2 --tokenizer-type bpe
refused 2 "--num-layers 1: the checkpoint one/global_step8 has 2" $train --train-iters 9 --load one --num-layers 1
touch file
refused 2 "file/below" $train --train-iters 2 --save file/below
says "--save"
case $output in *"step 1/"*) complain "trained before it looked at --save: $output" ;; esac
same_weights one # nothing above has touched it
[ "$(cat one/latest)" = global_step8 ] || complain "one/latest is $(cat one/latest)"

# what all ranks see is said once
with "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1e30}}}"
expect 1 $(ranks 2) $gpt $data --deepspeed_config bad.json --train-iters 9
[ "$(grep -c "^shoal: three steps in a row were skipped" <<<"$output")" = 1 ] || complain "not said once: $output"

# ---- the surroundings ----
# A port that is taken. Bash cannot listen; python3 can.
if python3 -c '' 2>/dev/null; then
    python3 -c '
import socket, time
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
print(s.getsockname()[1], flush=True)
time.sleep(60)' >port &
    listener=$!
    for _ in $(seq 1200); do [ -s port ] && break; sleep 0.05; done
    code=0
    output=$("$shoal" run --master_port "$(cat port)" --num_gpus 2 $train --train-iters 2 2>&1) || code=$?
    [ "$code" -ne 0 ] || complain "a taken port went unnoticed: $output"
    says "$(cat port)"
    kill "$listener"
    wait "$listener" 2>/dev/null
fi
# A /dev/shm too small for the segments: memory comes from elsewhere, the bits are the same.
if unshare -m mount -t tmpfs -o size=64k tmpfs /dev/shm 2>/dev/null; then
    expect 0 unshare -m bash -c "mount -t tmpfs -o size=64k tmpfs /dev/shm &&
        $(ranks 2) $train --train-iters 8 && ls -A /dev/shm/shoal-*"
    [ "$(final_loss)" = "$loss" ] || complain "in a small /dev/shm: $(final_loss), else $loss"
    case $output in *$'\nshoal-'*) complain "left in the small /dev/shm: $output" ;; esac
fi

# ---- death ----
# A rank killed in the middle: 137 and one line; the checkpoints until then are whole.
cat >rank.sh <<'RANK'
echo $$ >"pid.$RANK"
exec "$@"
RANK
# Waits until the file exists
wait_for() {
    for _ in $(seq 1200); do
        [ -e "$1" ] && return
        sleep 0.05
    done
    complain "$1 did not come: $(cat out)"
}
$(ranks 4) --no_local_rank bash rank.sh $train --train-iters 100000000 --save killed --save-interval 20 >out 2>&1 </dev/null &
job=$!
wait_for killed/latest
killed=$(cat pid.2)
kill -9 "$killed"
code=0
wait "$job" || code=$?
output=$(cat out)
[ "$code" -eq 137 ] || complain "a killed rank ended with $code: $output"
says "rank 2 (pid $killed) was killed by signal 9"
# the launcher's block, and at most one line of a rank that missed the other
[ "$(grep -c "^shoal: \|^\[shoal\]" out)" -le 1 ] || complain "more than one rank says it: $output"
[ "$(grep -c "^\[shoal run\] rank" out)" = 1 ] || complain "more than one verdict: $output"
for rank in 0 1 3; do
    kill -0 "$(cat pid.$rank)" 2>/dev/null && complain "rank $rank is still there"
done
step=$(sed 's/global_step//' killed/latest)
expect 0 $(ranks 2) $train --train-iters $((step + 1)) --load killed
says "step $((step + 1))/"

# SIGTERM with --exit-signal-handler: the step is finished, saved, exit code 0
rm -f pid.*
bash rank.sh $train --train-iters 100000000 --save stopped --exit-signal-handler --log-interval 1 >out 2>&1 </dev/null &
job=$!
for _ in $(seq 1200); do grep -q "step 3" out && break; sleep 0.05; done
kill -TERM "$job"
code=0
wait "$job" || code=$?
[ "$code" -eq 0 ] || complain "SIGTERM ended with $code: $(cat out)"
[ -f stopped/latest ] || complain "nothing saved after SIGTERM: $(cat out)"

# A mistake makes no folder, and nothing begins anew in place of what was meant
expect 2 $gpt --deepspeed_config ds.json --train-iters 1 --data-path nowhere --save unmade
[ ! -e unmade ] || complain "a folder for a run that did not begin"
expect 2 $train --train-iters 1 --load text
says "text is not a folder"
expect 2 $train --train-iters 1 --load one/global_step8
says "is itself a checkpoint"
expect 2 $train --train-iters 1 --load-tag global_step8
says "--load-tag without --load"
expect 2 $train --train-iters 1 --finetune
says "--finetune without --load"
expect 2 $train --train-iters 1 --norm-epsilon -1
says "--norm-epsilon" "from 0"
expect 2 $train --train-iters 1 --save ""
says "--save is empty"
expect 2 $train --train-iters 1 --load ""
says "--load is empty"
expect 2 $gpt $data --train-iters 1 --deepspeed_config ""
says "--deepspeed_config is empty"
expect 0 $train --train-iters 1 --save-interval 1
says "--save-interval has no effect without --save"
expect 2 $train --train-iters 1 --max-position-embeddings 9223372036854775807
says "--max-position-embeddings: must be from 0 to 16777216"
expect 2 $train --train-iters 1 --ffn-hidden-size 9223372036854775807
says "--ffn-hidden-size: must be from 0 to 16777216"
expect 2 env WORLD_SIZE=2 $train --train-iters 1
says "WORLD_SIZE is 2 but RANK is not set" "shoal run"
wrong() { # CONFIGURATION TEXT...
    echo "$1" >wrong.json
    expect 2 $gpt $data --deepspeed_config wrong.json --train-iters 1
    shift
    says "$@"
}
adam='"optimizer": { "type": "AdamW" }'
for key in train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps; do
    wrong "{ \"$key\": 9223372036854775807, $adam }" "wrong.json:1: $key: must be from 1 to 1000000000000"
done
wrong "{ \"train_micro_batch_size_per_gpu\": 1, $adam, \"scheduler\": { \"params\": {} } }" \
    "scheduler.params without scheduler.type"
for monitor in csv_monitor jsonl_monitor; do
    wrong "{ \"train_micro_batch_size_per_gpu\": 1, $adam,
        \"$monitor\": { \"enabled\": true, \"output_path\": \"/proc/none\" } }" "$monitor.output_path: /proc/none"
done

nothing_left "$before"
finish
