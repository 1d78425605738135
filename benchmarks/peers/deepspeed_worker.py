#!/usr/bin/env python3
"""DeepSpeed's ZeRO on the ranks of the environment, and all_reduce by PyTorch's gloo. A worker of `run` (worker.py): rank 0
receives the commands and passes them on."""
import os
import sys
import time

import worker

answers = worker.take_output()
rank = int(os.environ["RANK"])
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[rank % len(cores)]})  # as its launcher's --bind_cores_to_rank
import torch
import torch.distributed as dist

training = {}


def make(stage, model, dtype, micro_batch, length):
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": dtype == "bf16"},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {"stage": stage},
        "steps_per_print": 1 << 30,
    }
    gpt = worker.make_gpt(model, length)
    training["engine"] = engine = deepspeed.initialize(model=gpt, model_parameters=gpt.parameters(), config=config)[0]
    tokens = torch.randint(0, worker.SHAPES[model][3], (2, micro_batch, length))

    def step():
        engine.backward(engine(tokens[0], tokens[1]))
        engine.step()

    training["step"] = step
    step()
    return sample(1)


def sample(steps):
    dist.barrier()
    return worker.milliseconds(training["step"], steps)


def drop():
    if "engine" in training:
        training["engine"].destroy()
    training.clear()


def all_reduce(bytes, repeats):
    """The median time of a call, in us."""
    data, times = torch.zeros(bytes // 4), []
    for _ in range(repeats):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(data)
        times.append(1e6 * (time.perf_counter() - begin))
    return sorted(times)[len(times) // 2]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    commands = {"make": make, "sample": sample, "drop": drop, "all_reduce": all_reduce}
    while True:
        line = [sys.stdin.readline() if rank == 0 else ""]
        dist.broadcast_object_list(line)
        if not line[0]:
            break
        told = worker.answer(commands, line[0])
        if rank == 0:
            print(worker.json.dumps(told), file=answers, flush=True)


main()
