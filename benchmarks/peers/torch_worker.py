#!/usr/bin/env python3
"""PyTorch: training steps, eager and compiled; a checkpoint of a model and its optimizer. A worker of `run` (worker.py)."""
import os
import time

import worker

answers = worker.take_output()
import torch

trainings = {}


def make(name, model, dtype, micro_batch, length, threads, compiled):
    """Random weights and tokens, AdamW, clipping at 1; bf16 is autocast, with fp32 weights. Runs one step."""
    torch.set_num_threads(threads)
    gpt = worker.make_gpt(model, length)
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-4, fused=True)
    if compiled:
        torch._dynamo.reset()
    forward = torch.compile(gpt) if compiled else gpt
    tokens = torch.randint(0, worker.SHAPES[model][3], (2, micro_batch, length))

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = forward(tokens[0], tokens[1])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    trainings[name] = step
    step()
    return worker.milliseconds(step, 1)


def sample(name, steps):
    return worker.milliseconds(trainings[name], steps)


def drop():
    trainings.clear()


state = {}


def make_state(megabytes):
    """fp32 tensors: weights and the two moments of AdamW."""
    count = megabytes * 1000000 // 12
    for name in ("model", "exp_avg", "exp_avg_sq"):
        state[name] = {str(i): torch.rand(count // 16) for i in range(16)}


def save(path):
    """Seconds until the data is on the drive."""
    begin = time.perf_counter()
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - begin


def load(path):
    """Seconds, with the file outside of the page cache, as in `shoal bench checkpoint`."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begin = time.perf_counter()
    loaded = torch.load(path)
    seconds = time.perf_counter() - begin
    if not torch.equal(loaded["model"]["0"], state["model"]["0"]):
        raise ValueError("another tensor came back")
    return seconds


worker.serve({"make": make, "sample": sample, "drop": drop, "make_state": make_state, "save": save, "load": load}, answers)
