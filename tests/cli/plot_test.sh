#!/usr/bin/env bash
# `shoal plot` and `shoal report RUN`: pictures and pages of two runs that were trained here are well-formed and refer to nothing
# outside; a mistake is one sentence, exit code 2, and no file.
# Usage: plot_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$(realpath "$1")
forget_job
cd "$folder" || exit 1
printf 'some words to learn, %s\n' {1..200} >text

# train NAME: a run with its lines, log and checkpoints in the folder NAME
train() {
    printf '{"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
             "jsonl_monitor": {"enabled": true, "output_path": "%s", "job_name": "numbers"}}' "$1" >config.json
    expect 0 "$shoal" pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --threads 1 --seq-length 16 \
        --eval-iters 0 --data-path text --deepspeed_config config.json --train-iters 20 --save "$1" --save-interval 10
    printf '%s\n' "$output" >"$1/run.log"
}
train one
train 'two & <2>'

# well_formed FILE COUNT TEXT...: FILE is XML, or a page whose elements are closed, with COUNT pictures, with each TEXT, and
# without a script or an address
well_formed() {
    local file=$1
    [ -s "$file" ] || { complain "$file was not written" && return; }
    python3 -c 'pass' 2>/dev/null || return 0
    python3 - "$@" <<'PYTHON' || complain "$file is not well-formed"
import sys, re
from html.parser import HTMLParser
import xml.etree.ElementTree as tree
file, count, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
text = open(file, encoding="utf-8").read()
words, pictures, names = [], 0, []
class Reader(HTMLParser):
    open_now = []
    def handle_starttag(self, tag, attributes):
        names.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open_now.append(tag)
    def handle_startendtag(self, tag, attributes):
        names.append((tag, dict(attributes)))
    def handle_endtag(self, tag):
        assert self.open_now.pop() == tag, (tag, self.open_now)
    def handle_data(self, data):
        words.append(data)
reader = Reader()
reader.feed(text)
reader.close()
assert reader.open_now == [], reader.open_now
parts = [text] if file.endswith(".svg") else re.findall(r"<svg.*?</svg>", text, re.S)
assert len(parts) == count, len(parts)
for part in parts:
    root = tree.fromstring(part)
    assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
    width, height = map(float, root.get("viewBox").split()[2:])
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        for x, y in re.findall(r"[ML](\S+?) ([\d.-]+)", path.get("d")):
            assert 0 <= float(x) <= width and 0 <= float(y) <= height, path.get("d")
for tag, attributes in names:
    assert tag not in ("script", "link", "img", "iframe"), tag
    assert not {"src", "href", "onload", "onclick"} & set(attributes), attributes
shown = "".join(words)
for word in wanted:
    assert word in shown, word
PYTHON
}

expect 0 "$shoal" plot one 'two & <2>/numbers.jsonl' -o picture.svg
[ -z "$output" ] || complain "plot says: $output"
well_formed picture.svg 1 train_loss one 'two & <2>/numbers.jsonl' step 20
[ "$(grep -c 'stroke-width' picture.svg)" = 4 ] || complain "not two curves with two lines of the legend"
expect 0 "$shoal" plot one 'two & <2>' --y lr --y=Train/Samples/grad_norm --smooth 0.5 --x tokens --title 'A & <B>' --output p2.svg
well_formed p2.svg 1 'A & <B>' tokens Train/Samples/lr Train/Samples/grad_norm 600
expect 0 "$shoal" plot one --x time -o time.svg
well_formed time.svg 1 'training time (s)'

expect 0 "$shoal" report one -o page.html --smooth 0.9
[ -z "$output" ] || complain "report says: $output"
well_formed page.html 7 'Run one' '1 to 20' global_step10 global_step20 'UTC' hidden-size 'planned' '1 rank' adamw
expect 0 "$shoal" report 'two & <2>' -o p2.html --lines one/numbers.jsonl
well_formed p2.html 7 'Run two & <2>'
{
    echo '[shoal run] rank 1 (pid 5) was killed by signal 9 (Killed); stopping the other 1'
    echo '[shoal run]   what to do: continue from the last checkpoint with --load'
} >>one/run.log
expect 0 "$shoal" report one -o page.html
well_formed page.html 7 'Failure report' 'what to do: continue'
mv one/numbers.jsonl numbers.jsonl
expect 0 "$shoal" report one -o page.html
well_formed page.html 0 'There are no curves' global_step20
expect 0 "$shoal" report numbers.jsonl -o page.html
well_formed page.html 7 '1 to 20'

# A last line that a stop cut is ignored; any other broken line is not.
printf '{"step":21,"Train/Samples/tra' >>numbers.jsonl
expect 0 "$shoal" plot numbers.jsonl -o picture.svg
printf '\n{"step":22}\n' >>numbers.jsonl

# refused "SENTENCE'S PARTS" WORD...: exit code 2, one sentence, and no file
refused() {
    local part parts=$1
    shift
    expect 2 "$shoal" "$@"
    while IFS= read -r part; do says "$part"; done < <(tr '|' '\n' <<<"$parts")
    [ "$(wc -l <<<"$output")" = 1 ] || complain "not one line: $output"
    [ -z "$(find . -name 'no*.*' ! -name numbers.jsonl)" ] || complain "left: $(find . -name 'no*.*')"
}
refused 'numbers.jsonl:21: the line is not JSON: column|remove the line' plot numbers.jsonl -o no.svg
refused 'none does not exist: give' plot none -o no.svg
refused 'none does not exist: give' report none -o no.html
refused 'one has no lines of numbers|jsonl_monitor' plot one -o no.svg
refused 'has no scalar "train_los"; nearest is "train_loss"' plot 'two & <2>' -o no.svg --y train_los
refused 'has no scalar "x": give one of train_loss, lr' plot 'two & <2>' -o no.svg --y x
refused 'text:1: the line is not JSON|give a file that jsonl_monitor writes' plot text -o no.svg
refused 'SVG is the only format' plot 'two & <2>' -o no.png
refused 'give -o FILE.html' report 'two & <2>' -o no.txt
refused 'give -o FILE.html' report 'two & <2>'
refused 'give -o FILE.svg' plot 'two & <2>'
refused 'give a run' plot -o no.svg
refused '-o none/no.svg: cannot write|name a file' plot 'two & <2>' -o none/no.svg
refused '-o none/no.html: cannot write|name a file' report 'two & <2>' -o none/no.html
refused '--smooth needs a number from 0 to below 1, not "1"' plot 'two & <2>' -o no.svg --smooth 1
refused '--x is step, tokens or time, not "epoch"' plot 'two & <2>' -o no.svg --x epoch
refused 'give --seq-length N' plot 'two & <2>/numbers.jsonl' -o no.svg --x tokens
refused 'unknown flag "--follow"' plot 'two & <2>' -o no.svg --follow

# A disk that is full, by a limit of 2 KiB for each file: what was there stays.
echo old >kept.svg
expect 2 bash -c "ulimit -f 2; exec $shoal plot 'two & <2>' -o kept.svg --y lr --y grad_norm"
says "kept.svg: cannot write" "has room"
[ "$(cat kept.svg)" = old ] || complain "a full disk changed kept.svg"
[ ! -e kept.svg.tmp ] || complain "kept.svg.tmp was left"

# Without a run it is the report of the machine, or of a folder.
expect 0 "$shoal" report
says "compiler"
expect 0 "$shoal" report --load one
says "global_step20"
finish
