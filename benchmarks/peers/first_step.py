#!/usr/bin/env python3
"""Starts and trains the small GPT for one step. Prints the monotonic clock at its end, in ns.
Usage: first_step.py torch; or deepspeed --num_gpus 2 first_step.py deepspeed"""
import sys
import time

import torch

import worker

gpt = worker.make_gpt("tiny", 64)
tokens = torch.randint(0, 65, (2, 12, 64))
if "deepspeed" in sys.argv:
    import deepspeed

    config = {"train_micro_batch_size_per_gpu": 12, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    engine = deepspeed.initialize(model=gpt, model_parameters=gpt.parameters(), config=config)[0]
    engine.backward(engine(tokens[0], tokens[1]))
    engine.step()
else:
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-4)
    gpt(tokens[0], tokens[1]).backward()
    optimizer.step()
sys.stdout.write(f"first step: {time.monotonic_ns()}\n")  # one write: ranks share a pipe
