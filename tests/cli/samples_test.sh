#!/usr/bin/env bash
# A training that continues with another batch: the next samples are those behind the consumed ones, for each kind of data, on any
# number of ranks. Other data or --split than the checkpoint's are said, and refused by --strict-data; another tokenizer is refused.
# Usage: samples_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
cd "$folder" || exit 1

text() { # text SEED: lines of words
    awk -v seed="$1" 'BEGIN { srand(seed); for (i = 0; i < 400; i++) { line = ""
        for (w = 0; w < 12; w++) { word = ""; for (c = 0; c < 5; c++) word = word sprintf("%c", 97 + int(26 * rand())); line = line word " " }
        print line } }'
}
text 1 >text
text 2 >other
sed 's/.*/{"text": "&. And so on. The end."}/' text >lines.jsonl
expect 0 "$shoal" preprocess --input lines.jsonl --output-prefix files
sed 's/.*/{"text": "&"}/' other >other.jsonl
expect 0 "$shoal" preprocess --input other.jsonl --output-prefix more
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' . {a..z} '##'{a..z} >vocab.txt
expect 0 "$shoal" preprocess --input lines.jsonl --output-prefix sentences --split-sentences --tokenizer-type BertWordPieceLowerCase \
    --vocab-file vocab.txt

small="--num-layers 1 --hidden-size 16 --num-attention-heads 2 --threads 1 --hidden-dropout 0 --attention-dropout 0 --eval-iters 0"
gpt="$shoal pretrain gpt $small --seq-length 16"
bert="$shoal pretrain bert $small --seq-length 24"

# The learning rate is 0: a step's loss says which samples it had.
# run BATCH MICRO NAME COMMAND...: its losses are the lines of NAME.loss
run() {
    local batch=$1 micro=$2 name=$3
    shift 3
    cat >"$name.json" <<CONFIG
{"train_batch_size": $batch, "train_micro_batch_size_per_gpu": $micro, "reduction": "exact",
 "optimizer": {"type": "SGD", "params": {"lr": 0}}, "jsonl_monitor": {"enabled": true, "output_path": "$name", "job_name": "x"}}
CONFIG
    rm -rf "$name"
    expect 0 "$@" --deepspeed_config "$name.json"
    sed -n 's/.*"Train\/Samples\/train_loss": *\([^,}]*\).*/\1/p' "$name/x.jsonl" >"$name.loss"
}
# follows KIND COMMAND...: 40 samples in steps of 8, or of 2; then batches that divide 40 and others that do not
follows() {
    local kind=$1 batch micro
    shift
    rm -rf eight two
    run 8 2 first "$@" --train-iters 60 --exit-interval 5 --save eight
    run 2 2 pairs "$@" --train-iters 240 --exit-interval 23
    run 2 2 second "$@" --train-iters 240 --exit-interval 20 --save two
    run 2 2 resumed "$@" --train-iters 8 --load eight
    says "was trained with train_batch_size 8, this run uses 2: it continues after the 40 samples that were consumed"
    [ "$(sed -n '21,23p' pairs.loss)" = "$(cat resumed.loss)" ] || complain "$kind: a batch of 2 does not follow: $(cat resumed.loss)"
    [ "$(sort -u pairs.loss | wc -l)" -gt 20 ] || complain "$kind: the losses do not tell samples apart"
    while read -r batch micro; do
        run "$batch" "$micro" a "$@" --train-iters 7 --load eight
        run "$batch" "$micro" b "$@" --train-iters 22 --load two
        [ -s a.loss ] && cmp -s a.loss b.loss || complain "$kind: a batch of $batch: $(cat a.loss) after 8s, $(cat b.loss) after 2s"
    done <<<"4 2
16 4
6 3
6 1"
}
follows text $gpt --data-path text
# on two ranks, from the last checkpoints of these runs
run 4 2 a $gpt --data-path text --train-iters 8 --load eight
run 4 2 b "$shoal" run --master_port 0 --num_gpus 2 $gpt --data-path text --train-iters 8 --load eight
cmp -s a.loss b.loss || complain "two ranks: $(cat b.loss), one: $(cat a.loss)"
# a ramp counts the same samples: 4 more of a batch of 4, then 8
run 8 2 b $gpt --data-path text --train-iters 7 --load eight --step-batch-size-schedule 0:4 704:8
run 4 2 a $gpt --data-path text --train-iters 6 --load eight
[ "$(head -1 b.loss)" = "$(cat a.loss)" ] || complain "a schedule of batches does not follow: $(cat b.loss)"
follows "JSON lines" $gpt --data-path lines.jsonl
follows "random tokens" $gpt --mock-data --vocab-size 64
follows "data files" $gpt --data-path files_text_document
follows "cyclic data files" $gpt --data-path files_text_document --dataloader-type cyclic --split 2,98,0
follows "a blend" $gpt --data-path 0.3 files_text_document 0.7 more_text_document
follows "masked samples" $bert --data-path sentences_text_sentence
follows "random masked samples" $bert --mock-data --vocab-size 64

# ---- trained for longer: validation keeps its samples, data files end with no error and no repetition ----
rm -rf eight
validated="$gpt --data-path files_text_document --split 60,2,38 --eval-iters 2"
run 8 2 first $validated --train-iters 5 --save eight
loss=$(grep "validation loss" <<<"$output" | tail -1 | grep -o "lm loss value.*")
[ -n "$loss" ] || complain "no validation: $output"
run 8 2 longer $validated --train-iters 500 --load eight --eval-interval 400 --exit-interval 400
says "$loss"

# ---- what an order of data files is made of: it is kept to its end, or another one begins, and a line says which ----
never() { # TEXT: the last output does not have it
    case $output in *"$1"*) complain "\"$1\" stands in: $output" ;; esac
}
pieces() { # pieces NAME FIRST COUNT: losses of steps FIRST to FIRST + COUNT - 1 of a run
    tail -n +"$2" "$1.loss" | head -n "$3"
}
# continues NAME STEPS COMMAND...: the run goes on from `begun`, after 5 steps of 8, with the samples that `whole` had next
continues() {
    local name=$1 steps=$2
    shift 2
    run 8 2 resumed "$@" --load begun
    [ "$(pieces whole 6 "$steps")" = "$(pieces resumed 1 "$steps")" ] || complain "$name: other samples: $(cat resumed.loss)"
}
begin() { # begin COMMAND...: `whole`, and its first five steps as the checkpoint `begun`
    rm -rf begun
    run 8 2 whole "$@" --train-iters 12
    run 8 2 first "$@" --train-iters 12 --exit-interval 5 --save begun
}
files="$gpt --data-path files_text_document --split 20,80,0"
kept="keep the order that the checkpoint in begun"
begin $files
continues "the same iterations" 7 $files --train-iters 12 --strict-data
never "$kept"
never "are not those"
continues "more iterations" 7 $files --train-iters 120
says "the training samples of data files $kept made for 96; this run needs more, so it goes on behind its end"
continues "fewer iterations" 3 $files --train-iters 8
never "$kept"
# the checkpoint of a longer run is continued without a word
run 8 2 longer $files --train-iters 120 --load begun --exit-interval 10 --save begun.longer
run 8 2 longer $files --train-iters 120 --load begun.longer --exit-interval 15
never "$kept"
continues "another seed" 7 $files --train-iters 12 --seed 7
says "--seed 7 (not 1234): the samples of data files $kept began" "trained with seed 1234, this run uses 7"
[ "$(grep -c "$kept" <<<"$output")" = 1 ] || complain "more than one line: $output"
run 8 2 seven $files --train-iters 120 --seed 7 --load begun --exit-interval 10 --save seven
cp longer.loss twelve.loss
run 8 2 longer $files --train-iters 120 --load seven --seed 1234 --exit-interval 15 # the order is still of the first seed
never "--seed"
[ "$(cat longer.loss)" = "$(cat twelve.loss)" ] || complain "a seed that was given once counts: $(cat longer.loss)"
run 8 2 resumed "$shoal" run --master_port 0 --num_gpus 2 $files --train-iters 12 --seed 7 --load begun
[ "$(pieces whole 6 7)" = "$(cat resumed.loss)" ] || complain "two ranks: other samples: $(cat resumed.loss)"
[ "$(grep -c "$kept" <<<"$output")" = 1 ] || complain "not one line of two ranks: $output"
continues "validation" 7 $files --train-iters 12 --eval-iters 3 --eval-interval 4
# others begin another order
begins() { # begins WORDS COMMAND...
    local words=$1
    shift
    run 8 2 resumed "$@" --load begun
    says "the samples are not those of the checkpoint in begun: $words: another order of them begins"
    [ "$(grep -c "are not those" <<<"$output")" = 1 ] || complain "more than one line: $output"
    expect 2 "$@" --load begun --strict-data --deepspeed_config first.json
    says "--strict-data: the samples are not those of the checkpoint in begun: $words"
}
begins "--seq-length 8 (not 16)" $files --train-iters 12 --seq-length 8
begins '--dataloader-type "cyclic" (not "single")' $files --train-iters 12 --dataloader-type cyclic
begins "--eod-mask-loss true (not none)" $files --train-iters 12 --eod-mask-loss --eod-id 0
blend="$gpt --data-path 0.3 files_text_document 0.7 more_text_document"
begin $blend
continues "a blend" 7 $blend --train-iters 12 --strict-data
continues "a blend for longer" 7 $blend --train-iters 120
continues "another surplus" 7 $blend --train-iters 12 --mid-level-dataset-surplus 0.5
says "--mid-level-dataset-surplus 0.5 (not 0.005): the samples of data files $kept began"
for other in "0.6 files_text_document 0.4 more_text_document" "files_text_document more_text_document" \
    "0.7 more_text_document 0.3 files_text_document"; do
    run 8 2 line $gpt --data-path $other --train-iters 12 --load begun
    says "the data are not those of the checkpoint in begun (files, weights, --split or tokenizer differ)"
    never "$kept"
done
masked="$bert --data-path sentences_text_sentence"
begin $masked
continues "masked samples" 7 $masked --train-iters 12 --strict-data
continues "masked samples and another seed" 7 $masked --train-iters 12 --seed 7
begins "--short-seq-prob 0.5 (not 0.1)" $masked --train-iters 12 --short-seq-prob 0.5
begins "--mask-prob 0.3 (not 0.15)" $masked --train-iters 12 --mask-prob 0.3
# batches that grew
rm -rf begun
run 8 2 first $gpt --data-path text --rampup-batch-size 4 4 80 --train-iters 30 --exit-interval 5 --save begun
run 8 2 resumed $gpt --data-path text --rampup-batch-size 4 4 80 --train-iters 6 --load begun
never "other batches"
run 8 2 resumed $gpt --data-path text --train-iters 6 --load begun
says "the checkpoint in begun was trained with --rampup-batch-size 4 4 80, this run has one batch size: its steps have other batches"
run 8 2 resumed $gpt --data-path text --step-batch-size-schedule 0:4 704:8 --train-iters 6 --load begun --save begun
says "with --rampup-batch-size 4 4 80, this run has --step-batch-size-schedule 0:4 704:8: its steps have other batches"
run 8 2 resumed $gpt --data-path text --step-batch-size-schedule 0:4 704:8 --train-iters 7 --load begun
never "other batches"

# ---- other data ----
rm -rf eight
run 8 2 first $gpt --data-path text --train-iters 5 --save eight
run 8 2 same $gpt --data-path text --train-iters 6 --load eight --strict-data
run 8 2 line $gpt --data-path other --train-iters 6 --load eight
says "the data are not those of the checkpoint in eight"
[ "$(grep -c "the data are not" <<<"$output")" = 1 ] || complain "more than one line: $output"
run 8 2 line $gpt --data-path other --train-iters 1 --load eight --finetune
case $output in *"the data are not"*) complain "--finetune is of other data: $output" ;; esac
refuses() {
    local words=$1
    shift
    expect 2 "$@" --load eight --strict-data --deepspeed_config first.json --train-iters 6
    [ "$(grep -c . <<<"$output")" = 1 ] || complain "more than one sentence: $output"
    says "$words"
}
refuses "--strict-data: the data are not those of the checkpoint in eight" $gpt --data-path other
refuses "--strict-data: the data are not those of the checkpoint in eight" $gpt --data-path text --split 80,20
refuses "--tokenizer-type char is another tokenizer than that of the checkpoint in eight (byte)" $gpt --data-path text \
    --tokenizer-type char
expect 2 $gpt --data-path text --deepspeed_config first.json --train-iters 6 --strict-data
says "--strict-data without --load"
finish
