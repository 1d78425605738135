#!/usr/bin/env bash
# `shoal tokenizer`, and training on what it reads: a checkpoint that continues and generates without the tokenizer's
# files, mistakes in one sentence each.  Usage: tokenizer_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1 golden=$2/tests/golden
cd "$folder" || exit 1
for i in $(seq 300); do
    printf 'line %d: the quick brown fox, naïve привет 你好 %d\n' "$i" $((i * 7919 % 1000))
done >text

# ---- train, encode, decode, inspect ----
expect 0 "$shoal" tokenizer train text --vocab-size 400 --output tok.json --threads 3
says "tok.json: 400 tokens"
expect 0 "$shoal" tokenizer train text --vocab-size 400 --output one.json --threads 1
cmp -s tok.json one.json || complain "training depends on threads"
"$shoal" tokenizer encode tok.json text >ids || complain "encode failed"
"$shoal" tokenizer decode tok.json ids | cmp -s - text || complain "decode does not give the text back"
head -c 2000 /dev/urandom >bytes
"$shoal" tokenizer encode tok.json bytes | "$shoal" tokenizer decode tok.json | cmp -s - bytes ||
    complain "any bytes do not come back"
expect 0 "$shoal" tokenizer encode tok.json text --count
says "tokens of" "MB/s per core"
[ "$("$shoal" tokenizer encode tok.json text --lines | wc -l)" = 300 ] || complain "--lines: not a line per line"
expect 0 "$shoal" tokenizer inspect tok.json
says "model: BPE" "vocabulary: 400" "end of a document: 0 <|endoftext|>" "pre-tokenizer: ByteLevel"
for file in tokenizer_bpe.model tokenizer_unigram.model tokenizer_ranks.tiktoken; do
    expect 0 "$shoal" tokenizer encode "$golden/$file" text
done
expect 0 "$shoal" tokenizer inspect "$golden/tokenizer_bpe.model" --tokens
says "model: SentencePieceBPE" "<mask>"

# ---- mistakes ----
expect 2 "$shoal" tokenizer
expect 2 "$shoal" tokenizer melt x
says 'unknown command "melt"'
expect 2 "$shoal" tokenizer encode
says "give TOKENIZER"
expect 2 "$shoal" tokenizer encode none.json
says "none.json: No such file"
expect 2 "$shoal" tokenizer encode tok.json nothing
says "nothing: No such file"
echo '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}}' >bad.json
expect 2 "$shoal" tokenizer encode bad.json text
says 'bad.json: model.merges: element 0 is not "left right"'
expect 2 "$shoal" tokenizer train text --vocab-size 100 --output x.json
says "give --vocab-size from 257"
expect 2 "$shoal" tokenizer train text --vocab-size 300
says "--output must be given"
echo "1 x" >words
expect 2 "$shoal" tokenizer decode tok.json words
says "is not a token number"
echo "5000" >words
expect 2 "$shoal" tokenizer decode tok.json words
says "token 5000 at position 0 is outside the vocabulary of 400"

# ---- training ----
echo '{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}' >ds.json
gpt="$shoal pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --threads 1 --eval-iters 1
    --data-path text --deepspeed_config ds.json"
expect 0 $gpt --train-iters 2 --save run --tokenizer-type HuggingFaceTokenizer --tokenizer-model tok.json
mv tok.json gone.json
expect 0 $gpt --train-iters 3 --load run
says "step 3/3"
expect 0 "$shoal" generate --load run --prompt "the quick" --num-tokens 3
says "the quick"
expect 0 $gpt --train-iters 1 --tokenizer-type SentencePieceTokenizer --tokenizer-model "$golden/tokenizer_bpe.model"
seq -s ' ' 0 99 >text
expect 0 $gpt --train-iters 1 --tokenizer-type NullTokenizer --vocab-size 100
expect 2 $gpt --train-iters 1 --tokenizer-type NullTokenizer
says "give --vocab-size"
expect 2 $gpt --train-iters 1 --tokenizer-type GPT2BPETokenizer
says "needs --vocab-file and --merge-file"
expect 2 $gpt --train-iters 1 --tokenizer-type Words
says 'no tokenizer type `Words`'
expect 2 $gpt --train-iters 1 --tokenizer-type byte --tokenizer-model x
says "reads no files"
finish
