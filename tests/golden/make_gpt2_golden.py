#!/usr/bin/env python3
"""Makes gpt2_*.txt and gpt2_*.grad: what PyTorch computes for a small GPT-2, in fp64.

    python3 tests/golden/make_gpt2_golden.py [folder]

Weights and tokens are formulas (mix() below, repeated in tests/parity/gpt2_parity_test.c), so only
results are stored: gpt2_NAME.txt has one line "lr norm loss" per AdamW step, gpt2_NAME.grad the
gradients of step 0 as little-endian fp32, parameter after parameter in the model's order.
"""
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, T, VOCAB, BATCH, STEPS = 2, 32, 4, 16, 61, 8, 20
MIN_LR, MAX_LR, WARMUP, TOTAL = 1e-4, 3e-3, 4, 24
MASK = (1 << 64) - 1


def mix(x):
    x &= MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(stream, index):
    """In [-1, 1), a multiple of 2^-23."""
    return (mix(stream * 1000003 + index + 1) >> 40) / 2.0**23 - 1.0


def batch(step):
    """Tokens that follow a rule three times out of four; every ninth target does not count."""
    rows = []
    for b in range(BATCH):
        row = [mix(step * 7919 + b * 104729 + 17) % VOCAB]
        for t in range(T):
            draw = mix(step * 7919 + b * 104729 + t * 31 + 1000)
            row.append(draw // 4 % VOCAB if draw % 4 == 0 else (row[-1] * 5 + 3) % VOCAB)
        rows.append(row)
    ids = torch.tensor(rows)
    targets = ids[:, 1:].clone()
    for i in range(0, BATCH * T, 9):
        targets[i // T, i % T] = -1
    return ids[:, :-1], targets


def shapes(untied):
    list_ = [("transformer.wte.weight", (VOCAB, HIDDEN)), ("transformer.wpe.weight", (T, HIDDEN))]
    for i in range(LAYERS):
        block = [("ln_1", (HIDDEN,)), ("attn.c_attn", (HIDDEN, 3 * HIDDEN)),
                 ("attn.c_proj", (HIDDEN, HIDDEN)), ("ln_2", (HIDDEN,)),
                 ("mlp.c_fc", (HIDDEN, 4 * HIDDEN)), ("mlp.c_proj", (4 * HIDDEN, HIDDEN))]
        for name, shape in block:
            list_ += [(f"transformer.h.{i}.{name}.weight", shape),
                      (f"transformer.h.{i}.{name}.bias", shape[-1:])]
    list_ += [("transformer.ln_f.weight", (HIDDEN,)), ("transformer.ln_f.bias", (HIDDEN,))]
    return list_ + ([("lm_head.weight", (VOCAB, HIDDEN))] if untied else [])


def initial(untied):
    weights = {}
    for stream, (name, shape) in enumerate(shapes(untied)):
        count = math.prod(shape)
        centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
        values = [np.float32(centre + 0.125 * uniform(stream, i)) for i in range(count)]
        tensor = torch.tensor(np.array(values, dtype=np.float64)).reshape(shape)
        weights[name] = tensor.requires_grad_()
    return weights


def loss_of(w, tokens, targets, tanh, untied):
    def norm(x, name):
        return F.layer_norm(x, (HIDDEN,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def heads(x):
        return x.view(BATCH, T, HEADS, HIDDEN // HEADS).transpose(1, 2)

    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"]
    hidden_from = torch.ones(T, T, dtype=torch.bool).triu(1)
    for i in range(LAYERS):
        at = f"transformer.h.{i}."
        q, k, v = map(heads, linear(norm(x, at + "ln_1"), at + "attn.c_attn").split(HIDDEN, 2))
        scores = q @ k.transpose(2, 3) / math.sqrt(HIDDEN // HEADS)
        scores = scores.masked_fill(hidden_from, -math.inf)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, T, HIDDEN)
        x = x + linear(y, at + "attn.c_proj")
        y = F.gelu(linear(norm(x, at + "ln_2"), at + "mlp.c_fc"),
                   approximate="tanh" if tanh else "none")
        x = x + linear(y, at + "mlp.c_proj")
    table = w["lm_head.weight" if untied else "transformer.wte.weight"]
    logits = norm(x, "transformer.ln_f") @ table.T
    return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1), ignore_index=-1)


def learning_rate(step):
    """DeepSpeed's WarmupDecayLR, linear, before update number `step`."""
    i = step - 1
    if i < 0:
        return MIN_LR
    gamma = i / WARMUP if i < WARMUP else max(0.0, (TOTAL - i) / max(1.0, TOTAL - WARMUP))
    return MIN_LR + (MAX_LR - MIN_LR) * gamma


def make(folder, name, tanh, untied):
    weights = initial(untied)
    matrices = [w for w in weights.values() if w.dim() > 1]
    others = [w for w in weights.values() if w.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=1.0, betas=(0.9, 0.95), eps=1e-8)
    lines = []
    for step in range(STEPS):
        tokens, targets = batch(step)
        optimizer.zero_grad()
        loss = loss_of(weights, tokens, targets, tanh, untied)
        loss.backward()
        if step == 0:
            grads = np.concatenate([w.grad.numpy().ravel() for w in weights.values()])
            grads.astype("<f4").tofile(os.path.join(folder, f"gpt2_{name}.grad"))
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        lines.append(f"{learning_rate(step):.17g} {float(norm):.17g} {float(loss):.17g}\n")
    with open(os.path.join(folder, f"gpt2_{name}.txt"), "w") as out:
        out.writelines(lines)
    print(name, "loss", lines[0].split()[2], "->", lines[-1].split()[2])


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    make(folder, "erf_tied", tanh=False, untied=False)
    make(folder, "tanh_untied", tanh=True, untied=True)


main()
