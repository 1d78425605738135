#!/usr/bin/env python3
"""Compares loading of weights: a Hugging Face folder of about 1 GB, read by Shoal and by Python's safetensors and transformers, with and
without the file in the page cache. Prints a Markdown table; medians of ROUNDS processes each, in seconds.
Usage: load.py SHOAL [--gigabytes 1] [--rounds 5] [--folder DIR]   (DIR: where the folder is made; default: a temporary one)

Shoal's time is that of a whole process, `shoal generate --num-tokens 0`, which opens the model for generation and ends. Python has two
times: the call alone, without the start of the interpreter and imports, and the whole process. `read` is the time in which one thread
reads the file into memory: a lower bound for a loader that copies. The rows without page cache drop the file from the cache before each
round (posix_fadvise), so they measure the drive."""
import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("shoal")
parser.add_argument("--gigabytes", type=float, default=1)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--folder")
args = parser.parse_args()
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1", CUDA_VISIBLE_DEVICES="")
here = tempfile.mkdtemp(dir=args.folder)
model = os.path.join(here, "model")
weights = os.path.join(model, "model.safetensors")

MAKE = """
import sys, torch, transformers
config = transformers.GPT2Config(n_embd=1024, n_head=16, n_layer=int(sys.argv[2]), vocab_size=5000, n_positions=1024)
transformers.GPT2LMHeadModel(config).save_pretrained(sys.argv[1], max_shard_size="100GB")
"""
CALLS = {
    "read": ("pass", "data = bytearray(os.path.getsize(path)); open(path, 'rb', buffering=0).readinto(data)"),
    "safetensors": ("import safetensors.torch", "safetensors.torch.load_file(path)"),
    "transformers": ("import transformers", "transformers.AutoModelForCausalLM.from_pretrained(os.path.dirname(path), dtype='auto')"),
}


def prepare(cold):
    with open(weights, "rb") as file:
        if cold:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            while file.read(1 << 24):
                pass


def timed(words, cold):
    """Whole process, and the last number that it prints."""
    prepare(cold)
    begin = time.perf_counter()
    out = subprocess.run(words, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
    return time.perf_counter() - begin, out.split()[-1] if out.split() else ""


def show(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def python(name, cold):
    imports, call = CALLS[name]
    program = f"import os, sys, time\n{imports}\npath = sys.argv[1]\nbegin = time.perf_counter()\n{call}\nprint(time.perf_counter() - begin)"
    rounds = [timed([sys.executable, "-c", program, weights], cold) for _ in range(args.rounds)]
    return [float(inner) for _, inner in rounds], [whole for whole, _ in rounds]


try:
    subprocess.run([sys.executable, "-c", MAKE, model, str(max(1, round(args.gigabytes * 1e9 / 4 / 12.6e6)))], check=True)
    os.sync()
    print(f"{os.path.getsize(weights) / 1e9:.2f} GB, fp32\n\n| | in the page cache, s | dropped from it, s |\n|---|---|---|")
    ours = [os.path.abspath(args.shoal), "generate", "--load", model, "--prompt-tokens", "1", "--num-tokens", "0"]
    print("| Shoal, process |", " | ".join(show([timed(ours, cold)[0] for _ in range(args.rounds)]) for cold in (False, True)), "|")
    for name in CALLS:
        warm, cold = python(name, False), python(name, True)
        print(f"| {name}, call | {show(warm[0])} | {show(cold[0])} |")
        if name != "read":
            print(f"| {name}, process | {show(warm[1])} | {show(cold[1])} |")
finally:
    shutil.rmtree(here)
