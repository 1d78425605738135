#!/usr/bin/env bash
# Runs the commands of README.md and of pages of docs/, each page in a folder of its own: word for word, but for the sizes of
# trainings, which are small here. A comment above a block says what the block is:
#   <!-- FILE -->          is written as a file
#   <!-- not run: WHY -->  is not run
#   <!-- slow -->          is not run under a sanitizer
#   <!-- printed -->       lines that the commands above it print; "..." stands for any others
# The tutorial has a test of its own. Usage: pages_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1
root=$2
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE SHOAL_FAULT MASTER_PORT
mkdir "$folder/bin"
ln -s "$shoal" "$folder/bin/shoal"
PATH=$folder/bin:$PATH
export OMP_NUM_THREADS=1

# A text, a hostfile of this machine and a published model, as the pages name them.
mkdir -p "$folder/things/texts" "$folder/things/build/bin"
ln -s "$shoal" "$folder/things/build/bin/shoal"
awk 'BEGIN { for (i = 0; i < 1500; i++) print "line " i % 97 " of a text that has " i % 13 " kinds of lines" }' \
    >"$folder/things/texts/story.txt"
echo "localhost slots=2" >"$folder/things/hosts"
(
    cd "$folder/things" || exit 1
    echo '{"train_batch_size": 1, "optimizer": {"type": "AdamW"}}' >seed.json
    shoal tokenizer train texts/story.txt --vocab-size 280 --output tokenizer.json &&
        shoal pretrain llama --deepspeed_config seed.json --data-path texts --num-layers 1 --hidden-size 32 \
            --num-attention-heads 2 --seq-length 16 --tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer.json \
            --train-iters 0 --eval-iters 0 --save seed && shoal convert seed Llama-3.2-1B &&
        rm -rf seed seed.json tokenizer.json texts/.shoal-cache
) >"$folder/things.log" 2>&1 || complain "what the pages need: $(cat "$folder/things.log")"

# NN.sh: commands; NN.want: lines that they print; NN.files/: what is written before
parts='
function part(end) { return sprintf("%s/%02d.%s", parts, n, end) }
/^<!-- not run: .* -->$/ { skipped = 1; next }
/^<!-- slow -->$/ { skipped = sanitize != ""; next }
/^<!-- printed -->$/ { printed = 1; next }
/^<!-- [^ ]+ -->$/ { name = $2; next }
/^```$/ && open { open = 0; close(file); next }
/^```sh$/ { unread = skipped }
/^```sh$/ && !skipped { n++; file = part("sh"); open = 1; next }
/^```$/ && printed { printed = 0; file = unread ? "/dev/null" : part("want"); open = 1; next }
/^```/ && name != "" {
    file = sprintf("%s/%02d.files/%s", parts, n + 1, name)
    system("mkdir -p \"$(dirname " file ")\"")
    name = ""
    open = 1
    next
}
/^```/ { skipped = 0; file = "/dev/null"; open = 1; next }
open { print >file }'
# Of trainings: thousands of steps become one each, and the model is small.
small() {
    if grep -q " pretrain " "$1"; then
        sed -i -E 's/--train-iters ([0-9]+)000\b/--train-iters \1/; s/--num-layers [0-9]+/--num-layers 2/
            s/--hidden-size [0-9]+/--hidden-size 32/; s/--seq-length [0-9]+/--seq-length 16/' "$1"
        ! grep -qE -- '--train-iters [0-9]{3}' "$1" || complain "a training of hundreds of steps: $(cat "$1")"
    fi
}
run_page() { # PAGE BLOCKS
    local page=$1 blocks=$2 name part line
    name=$(basename "$page" .md)
    mkdir "$folder/$name.parts"
    cp -r "$folder/things" "$folder/$name"
    awk -v parts="$folder/$name.parts" -v sanitize="${SANITIZE-}" "$parts" "$root/$page"
    [ "$(find "$folder/$name.parts" -name '*.sh' | wc -l)" = "$blocks" ] || complain "$page has not $blocks blocks of commands"
    cd "$folder/$name" || exit 1
    for part in "$folder/$name.parts"/*.sh; do
        part=${part%.sh}
        [ ! -d "$part.files" ] || cp -r "$part.files/." .
        small "$part.sh"
        bash -c 'make() { :; }; sudo() { :; }; git() { mkdir -p shoal; }; set -e; . "$1"' - "$part.sh" >"$part.got" 2>&1 </dev/null ||
            complain "$page: a block ends with $?: $(cat "$part.sh" "$part.got")"
        [ -e "$part.want" ] || continue
        tr -s ' \t' ' ' <"$part.got" >"$part.plain"
        tr -s ' \t' ' ' <"$part.want" | while IFS= read -r line; do
            [ "$line" = ... ] || grep -qxF -- "$line" "$part.plain" || echo "$line"
        done >"$part.missing"
        [ ! -s "$part.missing" ] || complain "$page: not printed: $(cat "$part.missing" "$part.got")"
    done
}
# The first block of README.md gets packages and a clone (tests/bare/run) and makes, a stage of CI.
run_page README.md 6
[ -s "$folder/README/checkpoints/global_step2/manifest.json" ] || complain "README: nothing pretrained"
[ -s "$folder/README/tuned/global_step1/tokenizer.json" ] || complain "README: nothing continued from the model's folder"
grep -q ", on 2 ranks" "$folder/README.parts/04.got" || complain "README: not on the slots of the hostfile"
cmp "$folder/README/checkpoints/global_step2/manifest.json" "$folder/README/cluster/global_step2/manifest.json" ||
    complain "README: the hosts of the file trained other weights"
grep -q "^4 ranks: fits" "$folder/README.parts/05.got" || complain "README: no plan: $(cat "$folder/README.parts/05.got")"
[ -s "$folder/README.parts/06.got" ] || complain "README: nothing generated"
run_page docs/TRAINING.md 1
run_page docs/PLAN.md $((${SANITIZE:+-1} + 3))
grep -q "</svg>" "$folder/PLAN/schedule.svg" || complain "PLAN.md: no picture"
run_page docs/CHECKPOINTS.md 2
for file in universal exported/config.json; do
    [ -e "$folder/CHECKPOINTS/$file" ] || complain "CHECKPOINTS.md: no $file"
done
run_page docs/REPRODUCIBILITY.md 1
for text in "first difference: step 1, gradient" "within rounding" "equal: every bit of 3 steps"; do
    grep -q "$text" "$folder/REPRODUCIBILITY.parts/01.got" ||
        complain "REPRODUCIBILITY.md: no \"$text\": $(cat "$folder/REPRODUCIBILITY.parts/01.got")"
done
finish
