"""Parts of the comparison: a function each, in the order in which they run."""
import json
import os
import re
import sys
import time

import sides

DTYPES = ("fp32", "bf16")
HERE = os.path.dirname(os.path.abspath(__file__))


def threads_text(threads):
    return f"{threads} thread{'s' if threads > 1 else ''}"


def add_rows(bench, what, unit, taken, ours, figure=None):
    for name, side in taken.items():
        if name != "Shoal":
            bench.rows.add(what, unit, name, ours, side.result(figure))


# ---- training steps on one rank


def torch_step(bench, worker, title, **what):
    def make():
        version = bench.needs("torch")
        bench.say(f"PyTorch {version}{', compiled' if what['compiled'] else ''}: {title}")
        own = worker(what["compiled"])
        ms = own.do("make", name="model", **what)
        steps = 1 if bench.quick else max(1, int(500 / ms))
        return sides.Samples(lambda: own.do("sample", name="model", steps=steps))

    return bench.have(f"PyTorch{', compiled' if what['compiled'] else ''}, {title}", make)


def step(bench, worker, model, dtype, micro_batch, length, threads):
    title = f"step of {model}, {dtype}, {micro_batch}x{length} tokens, {threads_text(threads)}"
    what = {"model": model, "dtype": dtype, "micro_batch": micro_batch, "length": length, "threads": threads}
    peers = {"PyTorch": torch_step(bench, worker, title, compiled=False, **what),
             "PyTorch, compiled": torch_step(bench, worker, title, compiled=True, **what)}
    if any(peers.values()):
        seconds = "0.01" if bench.quick else str(bench.samples / 2)
        shoal = sides.Paced(bench, 1, "step", "--model", model, "--dtype", dtype, "--micro-batch", str(micro_batch), "--seq-length",
                            str(length), "--threads", str(threads), "--seconds", seconds)
        taken = bench.take_turns(title, {"Shoal": shoal, **peers})
        if taken:
            add_rows(bench, title, "ms", taken, shoal.times(0, lambda rate: 1e3 * micro_batch * length / rate))


def steps(bench, shapes):
    made = {}

    def worker(compiled):
        """A program of its own for each, so that one which passes the limit takes no other with it."""
        if compiled not in made or made[compiled].ended:
            made[compiled] = sides.Worker(bench, "torch_worker.py")
        return made[compiled]

    for model, micro_batch, length, threads in shapes:
        for dtype in DTYPES:
            step(bench, worker, model, dtype, micro_batch, length, min(threads, os.cpu_count()))
            for one in made.values():
                if not one.ended:
                    one.do("drop")


def large(bench):
    """One thread gets half of the micro-batch."""
    steps(bench, [("gpt2-124m", 1, 32, 2)] if bench.quick else [("gpt2-124m", 4, 256, 2), ("gpt2-124m", 2, 256, 1)])


def small(bench):
    steps(bench, [("tiny", 12, 64, 2), ("tiny", 12, 64, 1)])


# ---- two ranks


class Ranks:
    """Two processes of deepspeed_worker.py; commands go to the first."""

    def __init__(self, bench):
        port = str(20000 + os.getpid() % 20000)
        self.bench, self.rank = bench, []
        for rank in ("1", "0"):
            words = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                     "OMP_NUM_THREADS": "1"}
            self.rank.append(sides.Worker(bench, "deepspeed_worker.py", environment=words))

    def do(self, *words, **arguments):
        return self.rank[1].do(*words, **arguments)


def zero(bench):
    length, micro_batch = (32, 1) if bench.quick else (256, 1)
    ranks = bench.have("DeepSpeed", lambda: bench.needs("torch", "deepspeed") and Ranks(bench))
    config = os.path.join(bench.folder, "ds_config.json")

    def shoal():
        told = bench.figures("step", "--model", "gpt", "--num-layers", "8", "--hidden-size", "512", "--num-attention-heads", "8",
                             "--vocab-size", "10000", "--seq-length", str(length), "--deepspeed_config", config, "--threads", "1",
                             "--repeats", "1", "--seconds", "0.5", ranks=2)
        return told[0]["values"]["step"]["value"]

    for dtype in DTYPES if ranks else ():
        for stage in range(4):
            title = f"ZeRO {stage}: step of 31M parameters, {dtype}, 2x{length} tokens, 2 ranks"

            def make():
                ms = ranks.do("make", stage=stage, model="medium", dtype=dtype, micro_batch=micro_batch, length=length)
                return sides.Samples(lambda: ranks.do("sample", steps=max(1, int(500 / ms))))

            with open(config, "w") as file:
                json.dump({"train_micro_batch_size_per_gpu": micro_batch, "gradient_clipping": 1.0, "bf16": {"enabled": dtype == "bf16"},
                           "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": stage}}, file)
            taken = bench.take_turns(title, {"Shoal": sides.Samples(shoal), "DeepSpeed": bench.have(f"DeepSpeed, {title}", make)})
            if taken:
                add_rows(bench, title, "ms", taken, taken["Shoal"].result())
            ranks.do("drop")


def all_reduce(bench):
    def gloo():
        bench.needs("torch")
        return Ranks(bench)

    ranks = bench.have("gloo", gloo)
    mpis = bench.mpis()
    for count, repeats in ((1 << 10, 2000), (1 << 16, 1000), (1 << 24, 9) if bench.quick else (1 << 28, 3)):
        title = f"all_reduce of {count} bytes, 2 ranks"
        told = {"Shoal": sides.Samples(lambda: bench.figures("comm", "--op", "all_reduce", "--min-bytes", str(count), "--max-bytes",
                                                             str(count), "--repeats", "1", ranks=2)[0]["median"])}
        for name, (words, version) in mpis.items():
            told[f"{name} {version}"] = sides.Samples(lambda words=words: float(bench.once([*words, str(count), str(repeats)]).split()[0]))
        if ranks:
            told["PyTorch, gloo"] = sides.Samples(lambda: ranks.do("all_reduce", bytes=count, repeats=repeats))
        taken = bench.take_turns(title, told)
        if taken:
            add_rows(bench, title, "us", taken, taken["Shoal"].result())


# ---- start, checkpoint, generation


def first_step(bench, *words):
    """ms from starting the program to the end of its first step."""
    begin = time.monotonic_ns()
    told = bench.once([bench.python, *words], bench.environment)
    found = re.search(r"first step: (\d+)", told)
    if not found:
        raise sides.Failed(f"{words[0]} prints no first step: {told[-200:]!r}")
    return 1e-6 * (int(found[1]) - begin)


def start(bench):
    program = os.path.join(HERE, "first_step.py")
    launcher = ("-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--master_port", str(20000 + os.getpid() % 20000), program, "deepspeed")
    for ranks, name, packages, words in ((1, "PyTorch", ("torch",), (program, "torch")), (2, "DeepSpeed", ("torch", "deepspeed"), launcher)):
        title = f"start to end of first step, small model, {ranks} rank{'s' if ranks > 1 else ''}"

        def make():
            bench.needs(*packages)
            first_step(bench, *words)  # fills caches of compiled code and files
            return sides.Samples(lambda: first_step(bench, *words))

        shoal = sides.Samples(lambda: bench.figures("start", "--model", "tiny", "--micro-batch", "12", "--seq-length", "64", "--num_gpus",
                                                    str(ranks), "--repeats", "1")[1]["median"])
        taken = bench.take_turns(title, {"Shoal": shoal, name: bench.have(f"{name}, {title}", make)})
        if taken:
            add_rows(bench, title, "ms", taken, shoal.result())


def checkpoint(bench):
    megabytes = 30 if bench.quick else 300
    title = f"checkpoint of {megabytes} MB"

    def make():
        bench.needs("torch")
        worker = sides.Worker(bench, "torch_worker.py")
        worker.do("make_state", megabytes=megabytes)
        path = os.path.join(bench.folder, "state.pt")
        return sides.Samples(lambda: (worker.do("save", path=path), worker.do("load", path=path)))

    peer = bench.have("PyTorch, checkpoint", make)
    if not peer:
        return
    shoal = sides.Paced(bench, 2, "checkpoint", "--folder", bench.folder, "--size", str(megabytes * 1000000), "--seconds", "1000")
    taken = bench.take_turns(title, {"Shoal": shoal, "PyTorch": peer})
    for figure, what in enumerate(("save, on the drive", "load, from the drive") if taken else ()):
        add_rows(bench, f"{title}: {what}", "s", taken, shoal.times(figure, lambda rate: megabytes / 1e3 / rate), figure)


def generate(bench):
    prompt, threads = 128, min(2, os.cpu_count())

    def make(name, packages, dtype):
        def made():
            version = bench.needs(*packages)
            bench.say(f"{name} {version}: {dtype}")
            worker = sides.Worker(bench, "generate_worker.py", name)
            worker.do("make", dtype=dtype, prompt=prompt, threads=threads, folder=bench.folder)
            return sides.Samples(lambda: worker.do("sample"))

        return bench.have(f"{name}, {dtype}", made)

    for dtype in DTYPES:
        peers = {"transformers": make("transformers", ("torch", "transformers"), dtype),
                 "llama.cpp": make("llama.cpp", ("gguf", "llama_cpp_python"), dtype)}
        if any(peers.values()):
            title = f"generate, gpt2-124m, {dtype}, {threads_text(threads)}"
            shoal = sides.Paced(bench, 2, "generate", "--model", "gpt2-124m", "--dtype", dtype, "--prompt-length", str(prompt), "--threads",
                                str(threads), "--seconds", "2")
            taken = bench.take_turns(title, {"Shoal": shoal, **peers})
            if taken:
                add_rows(bench, f"{title}: prompt of {prompt} tokens", "ms", taken, shoal.times(0, lambda rate: 1e3 * prompt / rate), 0)
                add_rows(bench, f"{title}: a token after it", "ms", taken, shoal.times(1, lambda ms: ms), 1)
        bench.end()


def load(bench):
    """Prints its own table."""
    def measure():
        bench.needs("torch", "safetensors", "transformers")
        words = [bench.python, os.path.join(HERE, "load.py"), bench.shoal, "--rounds", str(bench.samples), "--folder", bench.folder]
        return bench.once(words + (["--gigabytes", "0.1"] if bench.quick else []), bench.environment)

    print(bench.have("loading weights", measure) or "", file=sys.stdout, flush=True)


PARTS = {"step": large, "small": small, "zero": zero, "all_reduce": all_reduce, "start": start, "checkpoint": checkpoint,
         "generate": generate, "load": load}
EXTRA = "load"
