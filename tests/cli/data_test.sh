#!/usr/bin/env bash
# Megatron's data files from outside: shoal preprocess makes them, shoal pretrain trains on them and on JSON lines, the same
# on any number of ranks; mistakes in one sentence each.  Usage: data_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE XDG_CACHE_HOME
cd "$folder" || exit 1

for i in $(seq 300); do
    echo "{\"id\": $i, \"text\": \"line $i: the quick brown fox jumps over the lazy dog $((i * 7919 % 1000))\", \"title\": \"t$i\"}"
done >a.jsonl
sed 's/quick/slow/' a.jsonl >b.jsonl
cat >ds.json <<'CONFIG'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "reduction": "exact", "steps_per_print": 1000000,
 "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}
CONFIG
gpt="$shoal pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --threads 1
    --deepspeed_config ds.json --train-iters 6 --eval-iters 2"
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

# ---- preprocess ----
expect 0 "$shoal" preprocess --input a.jsonl --output-prefix a --log-interval 100
says "Processed 300 documents" "300 documents" "data files: a_text_document.bin, .idx"
expect 0 "$shoal" preprocess --input b.jsonl --output-prefix b --json-keys text title --workers 3
says "data files: b_text_document.bin, .idx" "data files: b_title_document.bin, .idx"
expect 0 "$shoal" preprocess --input '[ab].jsonl' --output-prefix ab --partitions 2 --keep-sequential-samples
expect 0 "$shoal" preprocess --merge a_text_document b_text_document --output-prefix merged
says "600 documents" "uint16"
cmp ab_text_document.bin merged.bin && cmp ab_text_document.idx merged.idx || complain "merged is not made at once"
output=$("$shoal" preprocess --input - --output-prefix pipe <a.jsonl 2>&1) || complain "standard input: $output"
cmp a_text_document.idx pipe_text_document.idx || complain "standard input gives other files"
{ printf '\xef\xbb\xbf' && cat a.jsonl; } >bom.jsonl
expect 0 "$shoal" preprocess --input bom.jsonl --output-prefix bom
cmp a_text_document.bin bom_text_document.bin || complain "a byte order mark changes the data"
expect 0 "$shoal" preprocess --input a.jsonl --output-prefix eod --append-eod --eod-id 0
says "data files"
[ "$(stat -c %s eod_text_document.bin)" = $(($(stat -c %s a_text_document.bin) + 600)) ] || complain "300 ends are missing"

# ---- tokenizers that are read from files ----
sed 's/.*"text": "\(.*\)", "title.*/\1/' a.jsonl >a.txt
expect 0 "$shoal" tokenizer train a.txt --vocab-size 400 --output bpe.json
bpe="--tokenizer-type HuggingFaceTokenizer --tokenizer-model bpe.json"
expect 0 "$shoal" preprocess --input a.jsonl --output-prefix bpe --append-eod $bpe
count=$("$shoal" tokenizer encode bpe.json a.txt --lines | wc -w)
says "300 documents, $((count + 300)) tokens"
grep -q '"vocab_size": 400, "eod": 0' bpe_text_document.tokens.json || complain "bpe.json's end of a document is not kept"
# the first document in 16 bits, and 0 <|endoftext|> behind it
ids=$("$shoal" tokenizer encode bpe.json a.txt --lines | head -1)
[ "$(od -An -v -tu2 -w2 -N $((2 * $(wc -w <<<"$ids") + 2)) bpe_text_document.bin | xargs)" = "$ids 0" ] ||
    complain "the first document is not \"$ids 0\""
mv bpe.json gone.json
expect 0 $gpt --data-path bpe_text_document --eod-mask-loss --save bpe
says "tokens of 400 kinds" "step 6/6"
expect 0 "$shoal" generate --load bpe --prompt "line" --num-tokens 4
says "line"
text=$output
expect 0 "$shoal" generate --load bpe --prompt "line" --num-tokens 4
[ "$output" = "$text" ] && [ "${#text}" -gt 4 ] || complain "generate goes on with nothing, or with other tokens: $text; $output"
refused "--vocab-size" -- "$shoal" preprocess --input a.jsonl --output-prefix x --tokenizer-type NullTokenizer
refused "Foo" "HuggingFaceTokenizer" -- "$shoal" preprocess --input a.jsonl --output-prefix x --tokenizer-type Foo
refused "bpe.json" "No such file" -- "$shoal" preprocess --input a.jsonl --output-prefix x $bpe
refused "reads no files" -- "$shoal" preprocess --input a.jsonl --output-prefix x --merge-file y

# ---- training: one rank, several, JSON lines ----
data="--data-path 0.7 a_text_document 0.3 b_text_document --split 8,1,1 --data-cache-path maps"
expect 0 $gpt $data --save one
says "tokens of 256 kinds" "step 6/6"
loss=$(final_loss)
[ -n "$loss" ] || complain "no final loss: $output"
for n in 2 4; do
    expect 0 "$shoal" run --master_port 0 --num_gpus $n $gpt $data --save "ranks$n"
    [ "$(final_loss)" = "$loss" ] || complain "$n ranks: $(final_loss), one: $loss"
    for file in one/global_step6/*.safetensors; do
        cmp -s "$file" "ranks$n/global_step6/${file##*/}" || complain "$n ranks: ${file##*/} differs"
    done
done
ls maps | grep -q 'GPTDataset-train-shuffle_index.npy$' || complain "no maps in $(ls maps)"
ls maps | grep -q 'tmp$\|lock$' && complain "left behind: $(ls maps)"
bytes=$("$shoal" generate --load one --prompt "line" --num-tokens 4 2>/dev/null | wc -c)
[ "$bytes" = 9 ] || complain "4 byte tokens behind \"line\" are $((bytes - 5))"
echo "0.7 a_text_document
0.3 b_text_document" >words
expect 0 $gpt --data-args-path words --split 8,1,1 --data-cache-path maps
[ "$(final_loss)" = "$loss" ] || complain "--data-args-path: $(final_loss), --data-path: $loss"
splits="--train-data-path a_text_document --valid-data-path b_text_document"
expect 0 $gpt $splits --eval-interval 3
each=$(final_loss)
echo '{"train": ["a_text_document"], "valid": ["b_text_document"], "test": null}' >splits.json
expect 0 $gpt --per-split-data-args-path splits.json --eval-interval 3
[ "$(final_loss)" = "$each" ] || complain "--per-split-data-args-path: $(final_loss), flags: $each"
# each flag changes the loss, the same on two ranks; threads that build the maps change nothing
losses=
for flags in "" --eod-mask-loss "--dataloader-type cyclic" "--eod-mask-loss --dataloader-type cyclic"; do
    expect 0 $gpt --data-path eod_text_document $flags --num-dataset-builder-threads 4
    loss=$(final_loss)
    [ -n "$loss" ] || complain "no final loss with $flags: $output"
    expect 0 "$shoal" run --master_port 0 --num_gpus 2 $gpt --data-path eod_text_document $flags
    [ "$(final_loss)" = "$loss" ] || complain "$flags: $(final_loss) with two ranks, $loss with one"
    losses+=$loss$'\n'
done
[ "$(sort -u <<<"$losses" | grep -c .)" = 4 ] || complain "a flag has no effect: $losses"
# all of the validation set: more than two batches of it, and --eval-iters has no say
expect 0 $gpt --data-path eod_text_document --split 1,1
some=$(final_loss)
expect 0 $gpt --data-path eod_text_document --split 1,1 --full-validation
loss=$(final_loss)
[ "$loss" != "$some" ] || complain "--full-validation takes --eval-iters batches: $some"
expect 0 $gpt --data-path eod_text_document --split 1,1 --full-validation --eval-iters 5
[ "$(final_loss)" = "$loss" ] || complain "--full-validation: $(final_loss) with other --eval-iters, not $loss"
expect 0 $gpt --data-path a.jsonl --json-keys title
says "tokens: .shoal-cache/a.jsonl-byte-"
expect 0 "$shoal" plan gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --deepspeed_config ds.json \
    --data-path a_text_document

# ---- mistakes ----
head -n 2 a.jsonl >bad.jsonl && echo '{"txt": "x"}' >>bad.jsonl
make="$shoal preprocess --output-prefix x"
refused "--input must be given" -- $make
refused "bad.jsonl:3: there is no key \`text\`; nearest is \`txt\`" -- $make --input bad.jsonl
refused "cannot read the input none.jsonl" -- $make --input none.jsonl
refused "--partitions 4" "--keep-sequential-samples" -- $make --input a.jsonl --partitions 4
refused "exclude each other" -- $make --input a.jsonl --merge a_text_document
refused "--eod-id" -- $make --input a.jsonl --append-eod
refused "no/where" -- "$shoal" preprocess --output-prefix no/where --input a.jsonl
refused "--output-prefix must be given" -- "$shoal" preprocess --input a.jsonl
[ -z "$(ls | grep '^x')" ] || complain "left behind: $(ls)"
refused "give the prefix a_text_document" -- $gpt --data-path a_text_document.bin
refused "bad.jsonl:3:" -- $gpt --data-path bad.jsonl
refused "is text, but other data paths" -- $gpt --data-path a_text_document a.jsonl
refused "--data-path and --train-data-path" -- $gpt --data-path a_text_document $splits
refused "leave it out" -- $gpt $splits --split 1
refused "--vocab-size 100 is less than the 256" -- $gpt --data-path pipe_text_document --tokenizer-type byte --vocab-size 100
mv pipe_text_document.tokens.json kept
refused "give --vocab-size N" -- $gpt --data-path pipe_text_document
expect 2 $gpt --data-path pipe_text_document --vocab-size 100
says "pipe_text_document.bin: token" "is outside the vocabulary of 100"
expect 0 $gpt --data-path pipe_text_document --vocab-size 130
says "tokens of 130 kinds"
refused "--eod-mask-loss" "--eod-id" -- $gpt --data-path pipe_text_document --vocab-size 130 --eod-mask-loss
head -c 1000 a_text_document.idx >cut.idx && cp a_text_document.bin cut.bin
refused "cut.idx: damaged at byte 18" -- $gpt --data-path cut --vocab-size 256
refused "--eod-id is for data files" -- $gpt --data-path a.jsonl --eod-id 3
refused "--dataloader-type cyclic is for data files" -- $gpt --mock-data --dataloader-type cyclic
refused "external" "single" -- $gpt --data-path a_text_document --dataloader-type external
refused "--reset-position-ids is not supported, see docs/DATA.md" -- $gpt --data-path a_text_document --reset-position-ids
echo '{"train": 1}' >wrong.json
refused "wrong.json must be" -- $gpt --per-split-data-args-path wrong.json

# ---- folders: links, hidden entries, files of other kinds ----
mkdir -p store folder/.git folder/sub
sed -n 1,100p a.txt >store/a.txt
sed -n 101,200p a.txt >store/b.txt
cp -r store copies
ln -s ../store/a.txt folder/a.txt
ln -s ../../store/b.txt folder/sub/b.txt
expect 0 $gpt --data-path copies
tokens=$(grep '^data: ' <<<"$output")
cp a.txt folder/.git/config
ln -s nowhere folder/c.txt
ln -s .. folder/sub/up
expect 0 $gpt --data-path folder
says "$tokens" "folder/c.txt: skipped: the link leads nowhere" "folder/sub/up: skipped: it leads back to folder" \
    "data files: 2 read (2 .txt); 3 skipped (1 hidden, 1 link to nothing, 1 link back to a folder above)"
expect 0 $gpt --data-path folder --data-files-report
says "data file: folder/a.txt: read as text" "data file: folder/.git: skipped, hidden" "data file: folder/c.txt: skipped, link to nothing"
printf 'a,b\n1,2\n' >folder/table.csv
cp a.txt folder/README
expect 0 $gpt --data-path folder
says "4 read (2 .txt, 1 without an ending, 1 .csv)"
head -5 a.jsonl >folder/records
refused "folder/records holds JSON lines" "*.jsonl" "--data-text" -- $gpt --data-path folder/records
expect 0 $gpt --data-path folder --data-text
says "2 without an ending"
rm folder/records
echo '{"key": 1}' >folder/settings.json
refused "folder/settings.json" "--data-text" -- $gpt --data-path folder/settings.json
refused "a.jsonl is JSON" "--data-text" -- "$shoal" tokenizer train a.jsonl --vocab-size 300 --output no.json
[ ! -e no.json ] || complain "a refused tokenizer was written"
expect 0 "$shoal" tokenizer train a.jsonl --vocab-size 300 --output braces.json --data-text

finish
