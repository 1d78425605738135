#!/usr/bin/env python3
"""Lets DeepSpeed itself go on from what `shoal convert --to deepspeed-universal` wrote, and PyTorch read every file of it.
Usage: compare_deepspeed.py SHOAL GOLDEN   (the folder tests/golden). Exit 77: the packages are not there.

Shoal loads a checkpoint of DeepSpeed, saves it as its own and writes that as a universal one; DeepSpeed loads it with stage 1 on two ranks
and does the five steps that it did when the golden file was made: their losses must agree within 1e-5. With stage 3 DeepSpeed gives all
groups the first one's values and one common count of steps, from its own universal checkpoints as well: there one group is compared,
with what DeepSpeed does from its own."""
import glob, json, os, subprocess, sys, tarfile, tempfile
try:
    import deepspeed, torch, transformers
except ImportError as missing:
    print(f"skipped: the Python packages torch, transformers and deepspeed are not all there ({missing})")
    sys.exit(77)

shoal, golden = sys.argv[1], sys.argv[2]
sys.path.insert(0, golden)
import make_deepspeed_golden as made

if "RANK" in os.environ:
    stage = int(sys.argv[4])
    engine = made.make_engine(stage, "fp32", one_group=stage == 3, checkpoint={"load_universal": True})
    path, _ = engine.load_checkpoint(sys.argv[3])
    assert path is not None and engine.global_steps == made.STEPS
    made.finish(engine, sys.argv[5])

work = tempfile.TemporaryDirectory()
os.chdir(work.name)
with tarfile.open(os.path.join(golden, "deepspeed.tar.xz")) as archive:
    archive.extractall(".", filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(".")
with open("ds.json", "w") as file:
    file.write(json.dumps(dict(made.config(2, "fp32"), optimizer={"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95]}})))
with open("text", "w") as file:
    file.write(" ".join(str(i * 7919 % 30) for i in range(400)))
subprocess.run([shoal, "pretrain", "gpt", "--num-layers", "1", "--hidden-size", "8", "--num-attention-heads", "2", "--seq-length", "8",
                "--make-vocab-size-divisible-by", "1", "--threads", "1", "--eval-iters", "1", "--data-path", "text", "--tokenizer-type",
                "NullTokenizer", "--vocab-size", "31", "--deepspeed_config", "ds.json", "--load", "fp32_2", "--save", "own", "--train-iters",
                "3"], check=True)
subprocess.run([shoal, "convert", "own", "out", "--to", "deepspeed-universal"], check=True)
files = glob.glob("out/**/*.pt", recursive=True)
assert len(files) == 3 + 16 * 4, files
for name in files:
    torch.load(name, weights_only=True)
    torch.load(name, weights_only=True, mmap=True)
want = torch.load("universal_2/global_step3_universal/zero/transformer.wte.weight/exp_avg.pt", weights_only=True)["param"]
got = torch.load("out/global_step3_universal/zero/transformer.wte.weight/exp_avg.pt", weights_only=True)["param"]
assert torch.equal(want, got)
failed = 0
for stage, source, losses in ((1, "out", "own.1"), (3, "out", "own.3"), (3, "universal_3", "theirs.3")):
    if not made.start_ranks([sys.executable, os.path.abspath(__file__), shoal, golden, source, str(stage), losses]):
        sys.exit(f"DeepSpeed failed with stage {stage}, from {source}")
for stage, wanted in ((1, "fp32_2/losses.txt"), (3, "theirs.3")):
    pairs = [(float(a), float(b)) for a, b in zip(open(f"own.{stage}"), open(wanted))]
    print("stage", stage, pairs)
    failed |= len(pairs) != made.MORE or any(abs(a - b) > 1e-5 for a, b in pairs)
sys.exit(failed)
