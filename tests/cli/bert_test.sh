#!/usr/bin/env bash
# BERT from outside: sentences of compressed JSON lines, training on them, the same on any number of ranks and after an
# interruption, validation, plans; mistakes in one sentence each.  Usage: bert_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE XDG_CACHE_HOME
cd "$folder" || exit 1

# Texts whose sentences count on: what is hidden can be known from what is beside it.
awk 'BEGIN {
    for (d = 0; d < 400; d++) {
        printf "{\"text\": \""
        for (s = 0; s < 3 + d % 6; s++) {
            for (w = 0; w < 4 + (d + s) % 5; w++) printf "%s%s", w ? " " : s ? "Number" : "The", w ? "word" (d * 3 + s * 7 + w) % 40 : ""
            printf ". "
        }
        print "\"}"
    }
}' </dev/null >corpus.jsonl
{
    printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n.\nnumber\nthe\nword\n'
    for i in $(seq 0 9); do printf '##%s\n' "$i"; done
} >vocab.txt
gzip -k corpus.jsonl
cat >ds.json <<'CONFIG'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "reduction": "exact", "steps_per_print": 1000000,
 "optimizer": {"type": "AdamW", "params": {"lr": 0.003}}}
CONFIG
bert="$shoal pretrain bert --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --threads 1
    --deepspeed_config ds.json --eval-iters 2 --log-interval 1000"
final_loss() { grep "on validation set" <<<"$output" | tail -1; }
# refused TEXT... -- COMMAND...: one line, exit code 2, with the texts
refused() {
    local texts=()
    while [ "$1" != -- ]; do texts+=("$1") && shift; done
    shift
    expect 2 "$@"
    says "${texts[@]}"
    [ "$(grep -c . <<<"$output")" = 1 ] || complain "more than one line: $output"
}

# ---- sentences ----
tokenizer="--tokenizer-type BertWordPieceLowerCase --vocab-file vocab.txt"
expect 0 "$shoal" preprocess --input corpus.jsonl --output-prefix plain --split-sentences $tokenizer
says "400 documents" "data files: plain_text_sentence.bin, .idx"
if "$shoal" preprocess --input corpus.jsonl.gz --output-prefix c --split-sentences $tokenizer >/dev/null 2>gz.err; then
    cmp c_text_sentence.bin plain_text_sentence.bin && cmp c_text_sentence.idx plain_text_sentence.idx ||
        complain "compressed lines give other files"
else
    grep -q "this build has no zlib" gz.err || complain "compressed lines: $(cat gz.err)"
    for suffix in bin idx tokens.json; do mv plain_text_sentence.$suffix c_text_sentence.$suffix; done
fi
expect 0 "$shoal" preprocess --input corpus.jsonl --output-prefix whole $tokenizer
rm vocab.txt # the files say what is needed

# ---- training: one rank, several, interrupted ----
data="--data-path c_text_sentence --split 8,1,1 --data-cache-path maps --short-seq-prob 0.2"
expect 0 $bert $data --train-iters 120 --save one
says "tokens of 19 kinds" "step 120/120" "lm + sop loss value"
loss=$(final_loss)
[ -n "$loss" ] || complain "no final loss: $output"
ls maps | grep -q 'BERTMaskedWordPieceDataset-train-sample_index.npy$' || complain "no maps in $(ls maps)"
for n in 2 4; do
    expect 0 "$shoal" run --master_port 0 --num_gpus $n $bert $data --train-iters 120 --save "ranks$n"
    [ "$(final_loss)" = "$loss" ] || complain "$n ranks: $(final_loss), one: $loss"
    for file in one/global_step120/*.safetensors; do
        cmp -s "$file" "ranks$n/global_step120/${file##*/}" || complain "$n ranks: ${file##*/} differs"
    done
done
# the stage in the middle has blocks alone, which read the samples, too
expect 0 "$shoal" run --master_port 0 --num_gpus 3 $bert $data --train-iters 120 --save stages --partition-method uniform \
    --pipeline-model-parallel-size 3
[ "$(final_loss)" = "$loss" ] || complain "3 stages: $(final_loss), one rank: $loss"
for file in one/global_step120/*.safetensors; do
    cmp -s "$file" "stages/global_step120/${file##*/}" || complain "3 stages: ${file##*/} differs"
done
expect 0 $bert $data --train-iters 120 --exit-interval 45 --save part
expect 0 "$shoal" run --master_port 0 --num_gpus 2 $bert $data --train-iters 120 --load part --save part
[ "$(final_loss)" = "$loss" ] || complain "interrupted: $(final_loss), at once: $loss"
for name in bert.embeddings.word_embeddings.weight bert.encoder.layer.1.attention.self.query.weight \
    cls.predictions.bias cls.seq_relationship.weight; do
    grep -aq "\"$name\"" one/global_step120/model*.safetensors || complain "no $name in the checkpoint"
done
# it learns: guessing is ln 19 + ln 2 = 3.6
value=$(sed 's/.*loss value: \([0-9.]*E[+-][0-9]*\).*/\1/' <<<"$loss" | tr E e)
awk -v v="$value" 'BEGIN { exit !(v < 3.0) }' || complain "it has learnt nothing: $loss"

# ---- other forms ----
expect 0 $bert $data --train-iters 3 --bert-no-binary-head --full-validation --openai-gelu
says "step 3/3" "lm loss value"
expect 0 $bert $data --train-iters 3 --bert-pre-norm --mask-prob 0.3 --recompute-granularity full
says "norms before" "step 3/3"
expect 0 $bert --mock-data --vocab-size 50 --train-iters 3
says "tokens of 50 kinds" "step 3/3" "memory: planned"
expect 0 "$shoal" plan bert-base --deepspeed_config ds.json --world-size 2 --memory-limit 64GiB
says "activations" "weights"

# ---- mistakes ----
refused "--mask-prob is for masked samples" "gpt" -- "$shoal" pretrain gpt --num-layers 1 --hidden-size 8 \
    --num-attention-heads 1 --seq-length 8 --deepspeed_config ds.json --train-iters 1 --mock-data --mask-prob 0.2
refused "--mask-prob is 0" -- $bert $data --train-iters 1 --mask-prob 0
refused "preprocess --split-sentences" -- $bert --data-path corpus.jsonl --train-iters 1
refused "none of its" "--split-sentences" -- $bert --data-path whole_text_document --train-iters 1
refused "--seq-length: must be from 5" -- $bert $data --train-iters 1 --seq-length 4
refused "writes no text, because it predicts masked words" -- "$shoal" generate --load one --prompt the
refused "--keep-newlines without --split-sentences" -- \
    "$shoal" preprocess --input corpus.jsonl --output-prefix x --keep-newlines
head -c 2000 corpus.jsonl.gz >short.gz
if ! grep -q "no zlib" gz.err; then
    refused "short.gz ends in the middle" -- "$shoal" preprocess --input short.gz --output-prefix x
fi
finish
