#!/usr/bin/env bash
# The files of a run's numbers: TensorBoard's are read back by its own package where python3 has it, and a disk that is full costs
# one line, not the training.
# Usage: monitor_test.sh SHOAL
. "$(dirname "$0")/check.sh"
shoal=$1
unset KMP_AFFINITY SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR RANK WORLD_SIZE
cd "$folder" || exit 1
printf 'some words to learn, %s\n' {1..200} >text

gpt="$shoal pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --threads 1 --seq-length 16 --eval-iters 0 --data-path text"
cat >run.json <<'CONFIG'
{"train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}, "wall_clock_breakdown": true,
 "comet": {"api_key": "not for others"}, "tensorboard": {"enabled": true, "output_path": "events", "job_name": "run"},
 "csv_monitor": {"enabled": true, "output_path": "csv", "job_name": "run"},
 "jsonl_monitor": {"enabled": true, "output_path": "lines", "job_name": "run"}}
CONFIG

expect 0 $gpt --deepspeed_config run.json --train-iters 5
files=(events/run/events.out.tfevents.*)
[ ${#files[@]} = 1 ] || complain "event files: ${files[*]}"
grep -aq 'not for others' "${files[0]}" && complain "the key of an account is in ${files[0]}"
[ "$(wc -l <csv/run/Train_Samples_lr.csv) $(wc -l <lines/run.jsonl)" = "6 5" ] || complain "lines of CSV and JSON: $(wc -l csv/run/*lr.csv lines/*)"

# TensorBoard reads what the lines of JSON say.
if python3 -c 'import tensorboard' 2>/dev/null; then
    python3 - events/run lines/run.jsonl <<'PYTHON' || complain "TensorBoard reads something else"
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
for line in map(json.loads, open(sys.argv[2])):
    samples = line.pop("samples")
    line.pop("step")
    for name, value in line.items():
        read = [scalar.value for scalar in events.Scalars(name) if scalar.step == samples]
        assert len(read) == 1 and abs(read[0] - value) <= 1e-6 * abs(value), (name, samples, value, read)
text = events.Tensors("configuration")[0].tensor_proto.string_val[0].decode()
assert "train_batch_size" in text, text
assert sorted(events.Tags()["tensors"]) == ["configuration"], events.Tags()
PYTHON
else
    echo "python3 has no package tensorboard: its reader did not run"
fi

# Megatron's flags and names.
expect 0 $gpt --lr 0.001 --micro-batch-size 2 --train-iters 6 --tensorboard-dir board --tensorboard-log-interval 2 --log-batch-size-to-tensorboard \
    --no-log-loss-scale-to-tensorboard --log-validation-ppl-to-tensorboard --log_world_size_to_tensorboard --log-timers-to-tensorboard \
    --log-memory-to-tensorboard --eval-iters 1 --eval-interval 4
board=(board/events.out.tfevents.*)
[ ${#board[@]} = 1 ] || complain "event files: ${board[*]}"
for name in learning-rate batch-size "lm loss" grad-norm world-size iteration-time mem-max-allocated-bytes "lm loss validation ppl"; do
    grep -aq "$name" "${board[0]}" || complain "$name is not in ${board[0]}"
done
if python3 -c 'import tensorboard' 2>/dev/null; then
    python3 - board <<'PYTHON' || complain "TensorBoard reads something else of Megatron's names"
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
twice = ["learning-rate", "batch-size", "lm loss", "grad-norm"]
validation = ["lm loss validation", "lm loss validation ppl"]
names = twice + validation + ["world-size", "iteration-time", "mem-max-allocated-bytes"]
names += [name + " vs samples" for name in twice + validation]
assert sorted(events.Tags()["scalars"]) == sorted(names), events.Tags()
for name in twice:
    assert [s.step for s in events.Scalars(name)] == [2, 4, 6], name
    assert [s.step for s in events.Scalars(name + " vs samples")] == [4, 8, 12], name
assert [s.step for s in events.Scalars("lm loss validation")] == [4, 6]
PYTHON
fi
expect 2 $gpt --lr 0.001 --train-iters 1 --tensorboard-dir /proc/none
says "--tensorboard-dir: /proc/none: cannot create the folder"

# A limit of 2 KiB for each file, as a disk that is full: all other numbers stay whole, and the run ends as without it.
rm -rf events csv lines
expect 0 bash -c "ulimit -f 2; exec $gpt --deepspeed_config run.json --train-iters 60 --log-interval 1"
says "cannot write the monitor file" "training goes on without these numbers" "step 60/60"
[ "$(grep -c 'training goes on' <<<"$output")" = 1 ] || complain "said more than once: $output"
[ "$(tail -c 1 lines/run.jsonl)" = "" ] || complain "a part of a line was left"

# A folder that cannot be is a mistake.
sed 's/"events"/"\/proc\/none"/' run.json >wrong.json
expect 2 $gpt --deepspeed_config wrong.json --train-iters 1
says "tensorboard.output_path: /proc/none"
finish
