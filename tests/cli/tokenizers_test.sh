#!/usr/bin/env bash
# The tokenizers of data files, checkpoint, folder and flags must be one: another one is refused with both names, and nothing is
# written. Files of transformers next to a vocabulary go with it into a checkpoint.  Usage: tokenizers_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
python3 -c "" 2>/dev/null || { echo "skipped: there is no python3, which makes the test's tokenizers" && exit 77; }
here=$(cd "$(dirname "$0")" && pwd)
cd "$folder" || exit 1
seq 3000 >digits.txt
for i in $(seq 400); do echo "the cat sat on the mat and then the dog ran to the cat $i"; done >words.txt
expect 0 "$shoal" tokenizer train digits.txt --output a.json --vocab-size 290
expect 0 "$shoal" tokenizer train words.txt --output b.json --vocab-size 290
python3 - <<'P' || exit 1
import json
a = json.load(open("a.json"))
merges = dict(a, model=dict(a["model"], merges=a["model"]["merges"][::-1]))
json.dump(merges, open("merges.json", "w"))
more = dict(a, added_tokens=a["added_tokens"] + [dict(a["added_tokens"][0], id=290, content="<more>")])
json.dump(more, open("more.json", "w"))
json.dump(a, open("same.json", "w"), indent=3)
with open("lines.jsonl", "w") as f:
    for line in open("words.txt"):
        f.write(json.dumps({"text": line}) + "\n")
P
model() { echo "--tokenizer-type HuggingFaceTokenizer --tokenizer-model $1"; }
for name in a b merges more; do
    expect 0 "$shoal" preprocess --input lines.jsonl --output-prefix "$name" $(model $name.json)
    expect 0 "$shoal" preprocess --input lines.jsonl --output-prefix "byte"
done
cp a_text_document.bin bare.bin
cp a_text_document.idx bare.idx
echo '{"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}' >ds.json
all="--threads 1 --eval-iters 0 --data-cache-path . --deepspeed_config ds.json"
shape="--num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16"
gpt="$shoal pretrain gpt $shape $all --train-iters 1"
data() { echo "--split 100,0,0 --data-path ${1}_text_document"; }
refused() { # WORDS COMMAND...
    local words=$1
    shift
    expect 2 "$@" --save refused
    says "$words"
    [ "$(grep -c . <<<"$output")" = 1 ] || complain "more than one sentence: $output"
    [ ! -e refused ] || complain "$*: a refused run has written"
}

# ---- data files and flags ----
expect 0 $gpt $(data a) $(model a.json) --save s
expect 0 $gpt $(data b)
refused "b_text_document was made with another tokenizer than that of --tokenizer-model a.json (token 2" $gpt $(data b) $(model a.json)
refused "(the tokens are the same, merges or other rules are not)" $gpt $(data merges) $(model a.json)
refused "another tokenizer than that of --tokenizer-type byte (\`BPE\` and \`byte\`)" $gpt $(data b) --tokenizer-type byte
refused "another tokenizer than that of --tokenizer-type char (BPE)" $gpt $(data b) --tokenizer-type char
refused "another tokenizer than that of --tokenizer-model a.json (\`byte\` and \`BPE\`)" $gpt $(data byte) $(model a.json)
expect 0 $gpt $(data a) $(model same.json)
expect 0 $gpt $(data a) $(model more.json)
expect 0 $gpt $(data more) $(model a.json)
expect 0 $gpt $(data b) $(model a.json) --allow-other-tokenizer
refused "were made with different tokenizers" $gpt --train-data-path a_text_document --valid-data-path b_text_document
refused "b_text_document was made with another tokenizer" $gpt --train-data-path bare --valid-data-path b_text_document $(model a.json)
expect 2 "$shoal" run --master_port 0 --num_gpus 2 $gpt $(data b) $(model a.json) --save refused
says "b_text_document was made with another tokenizer"
[ ! -e refused ] || complain "two ranks: a refused run has written"

# ---- data files that do not say theirs ----
bare="--split 100,0,0 --data-path bare"
expect 0 $gpt $bare $(model a.json)
says "data files: bare has no .tokens.json: nothing says that its tokens are those of --tokenizer-model a.json"
[ "$(grep -c "nothing says" <<<"$output")" = 1 ] || complain "more than one line: $output"
expect 0 $gpt $(data b) --tokenizer-type NullTokenizer --vocab-size 300
says "a NullTokenizer is on one side"
expect 0 $gpt $(data a) $(model a.json)
case $output in *"nothing says"*) complain "a line about nothing: $output" ;; esac

# ---- a checkpoint ----
go="$shoal pretrain $all --load s --train-iters 2"
expect 0 $go $(data a)
expect 0 $go $bare
says "nothing says that its tokens are those of the checkpoint in s"
expect 0 $go $(data a) $(model same.json)
refused "b_text_document was made with another tokenizer than that of the checkpoint in s" $go $(data b)
refused "b_text_document was made with another tokenizer than that of the checkpoint in s" $go $(data b) --finetune
for finetune in "" --finetune; do
    refused "--tokenizer-model b.json is another tokenizer than that of the checkpoint in s (token 2" $go $(data a) $(model b.json) $finetune
    refused "--tokenizer-model merges.json is another tokenizer" $go --data-path digits.txt $(model merges.json) $finetune
    refused "--tokenizer-model more.json is another tokenizer than that of the checkpoint in s (290 tokens and 291)" $go $(data a) \
        $(model more.json) $finetune
    refused "--tokenizer-type byte is another tokenizer than that of the checkpoint in s" $go --data-path digits.txt --tokenizer-type byte $finetune
    refused "--tokenizer-type char is another tokenizer" $go --data-path digits.txt --tokenizer-type char $finetune
    refused "name the type of the files" $go --data-path digits.txt --tokenizer-model b.json $finetune
done
refused "b_text_document was made with another tokenizer" $go --train-data-path bare --valid-data-path b_text_document
expect 2 "$shoal" plan --load s --deepspeed_config ds.json --world-size 1 $(data b)
says "b_text_document was made with another tokenizer than that of the checkpoint in s"
expect 0 $go $(data b) $(model b.json) --finetune --allow-other-tokenizer --save changed
cmp -s changed/global_step2/tokenizer.json b.json || complain "the saved tokenizer is not the one that was used"
expect 0 "$shoal" pretrain $all --load changed --train-iters 3 $(data b)
refused "than that of the checkpoint in changed" "$shoal" pretrain $all --load changed --train-iters 3 $(data a)

# ---- the files of a checkpoint ----
cp -r s mixed
cp b.json mixed/global_step1/tokenizer.json
mixed="mixed/global_step1: the tokenizer's files are of another tokenizer than the one that the checkpoint was trained with (token 2"
refused "$mixed" "$shoal" pretrain $all --load mixed --train-iters 2 $(data a)
expect 2 "$shoal" convert mixed mixed.hub
says "$mixed"
[ ! -e mixed.hub ] || complain "a refused conversion has written"
expect 0 "$shoal" pretrain $all --load mixed --train-iters 2 $(data a) --allow-other-tokenizer
printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nThe\ncat\n' >vocab.txt
for type in BertWordPieceCase BertWordPieceLowerCase; do
    expect 0 $gpt --data-path words.txt --tokenizer-type $type --vocab-file vocab.txt --save $type
    expect 0 "$shoal" pretrain $all --load $type --train-iters 2 --data-path words.txt
    [ $type = BertWordPieceCase ] && want=6 || want=5
    printf The >text
    [ "$("$shoal" tokenizer encode $type/global_step1 text)" = $want ] || complain "$type: the checkpoint's files have another case"
done

# ---- a folder of the Hub ----
expect 0 "$shoal" convert s hub
hub="$shoal pretrain $all --load hub --finetune --train-iters 1"
expect 0 $hub $(data a)
expect 0 $hub $(data a) $(model same.json)
refused "b_text_document was made with another tokenizer than that of --load hub" $hub $(data b)
refused "--tokenizer-model b.json is another tokenizer than that of --load hub" $hub $(data b) $(model b.json)
refused "--tokenizer-type byte is another tokenizer than that of --load hub" $hub --data-path digits.txt --tokenizer-type byte
expect 0 $hub $(data b) $(model b.json) --allow-other-tokenizer --save swapped
cmp -s swapped/global_step1/tokenizer.json b.json || complain "the saved tokenizer is not that of the flags"

# ---- files next to a vocabulary ----
mkdir slow
python3 - <<'P' || exit 1
import json
model = json.load(open("a.json"))["model"]
json.dump(model["vocab"], open("slow/vocab.json", "w"))
open("slow/merges.txt", "w").write("".join((m if isinstance(m, str) else " ".join(m)) + "\n" for m in model["merges"]))
json.dump({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|im_end|>"}, open("slow/tokenizer_config.json", "w"))
json.dump({"<|im_end|>": 290}, open("slow/added_tokens.json", "w"))
P
printf '12<|im_end|>' >text
for path in slow slow/vocab.json; do
    [ "$("$shoal" tokenizer encode $path text | tr ' ' '\n' | tail -1)" = 290 ] || complain "$path: <|im_end|> is not 290"
    expect 0 $gpt --data-path digits.txt $(model $path) --save "kept/$path"
    for file in vocab.json merges.txt tokenizer_config.json added_tokens.json; do
        cmp -s slow/$file "kept/$path/global_step1/$file" || complain "$path: $file was not copied"
    done
    expect 0 "$shoal" pretrain $all --load "kept/$path" --train-iters 2 --data-path digits.txt $(model slow)
done
expect 0 "$shoal" preprocess --input lines.jsonl --output-prefix slow --append-eod $(model slow)
[ "$(od -An -v -tu2 slow_text_document.bin | tr -s ' \n' '\n\n' | tail -1)" = 290 ] || complain "a document does not end with eos_token"
expect 0 $gpt $(data slow) $(model slow)
# without flags the tokenizer comes from the data files, goes into each checkpoint and each folder made of it, and is compared there
for name in a slow; do
    expect 0 $gpt $(data $name) --save "of_data/$name"
    expect 0 "$shoal" convert "of_data/$name" "of_data/$name.hub"
    expect 0 "$shoal" tokenizer encode "of_data/$name.hub" words.txt
    ids=$output
    expect 0 "$shoal" tokenizer encode "$([ $name = a ] && echo a.json || echo slow)" words.txt
    [ "$ids" = "$output" ] || complain "$name: the folder has another tokenizer"
    ! grep -q '"eod"' "of_data/$name.hub/tokenizer.json" || complain "$name: tokenizer.json has a key that others do not know"
    expect 0 "$shoal" pretrain --load "of_data/$name.hub" --finetune --seq-length 16 $all --train-iters 1 $(data $name)
done
refused "b_text_document was made with another tokenizer than that of --load of_data/a.hub" \
    "$shoal" pretrain --load of_data/a.hub --finetune --seq-length 16 $all --train-iters 1 $(data b)
pieces=$here/../golden/tokenizer_unigram.model
expect 0 "$shoal" preprocess --input lines.jsonl --output-prefix pieces --tokenizer-type SentencePieceTokenizer --tokenizer-model "$pieces"
expect 0 $gpt $(data pieces) --save of_data/pieces
says "checkpoints will have no tokenizer for transformers"
sed -i 's/GPT2Tokenizer/CLIPTokenizer/' slow/tokenizer_config.json
expect 2 "$shoal" tokenizer encode slow text
says "slow/tokenizer_config.json: tokenizer_class: the rules of CLIPTokenizer for vocab.json"
finish
