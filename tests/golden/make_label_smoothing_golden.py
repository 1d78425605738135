#!/usr/bin/env python3
"""Makes label_smoothing.txt: losses of smoothed labels and their gradients as PyTorch computes them, in fp64.

    python3 tests/golden/make_label_smoothing_golden.py [folder]

Shoal's share is Megatron-LM's: of K classes each but the target gets smoothing / (K - 1). F.cross_entropy gives
label_smoothing / K to all of them, the target too; so its label_smoothing is K / (K - 1) times as much (and may be
above 1: written out below where PyTorch refuses). x, the weight and targets are formulas, which
tests/parity/label_smoothing_test.c repeats. One block per case: "rows inner classes smoothing", the loss, dx.
"""
import os
import sys

import torch
import torch.nn.functional as F

MASK = (1 << 64) - 1
CASES = ((4, 3, 2, 0.1), (4, 3, 2, 0.7), (5, 4, 7, 0.1), (5, 4, 7, 0.9), (6, 8, 61, 0.25), (3, 4, 1030, 0.1), (3, 4, 2500, 0.0))


def mix(x):
    x &= MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(stream, index):
    return (mix(stream * 1000003 + index + 1) >> 40) / 2.0**23 - 1.0


def values(stream, rows, columns):
    flat = [2 * uniform(stream, i) for i in range(rows * columns)]
    return torch.tensor(flat, dtype=torch.float64).reshape(rows, columns)


def smoothed(logits, targets, classes, smoothing):
    share = smoothing * classes / (classes - 1)
    if share <= 1:
        return F.cross_entropy(logits, targets, ignore_index=-1, label_smoothing=share)
    counted = targets >= 0
    wanted = torch.full_like(logits, smoothing / (classes - 1))
    wanted[torch.arange(len(targets)), targets.clamp(min=0)] = 1 - smoothing
    return -(wanted * F.log_softmax(logits, -1)).sum(-1)[counted].mean()


folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "label_smoothing.txt"), "w") as file:
    for case, (rows, inner, classes, smoothing) in enumerate(CASES):
        x = values(2 * case, rows, inner).requires_grad_()
        weight = values(2 * case + 1, classes, inner)
        targets = torch.tensor([-1 if row == 2 else mix(case * 7919 + row) % classes for row in range(rows)])
        loss = smoothed(x @ weight.t(), targets, classes, smoothing)
        loss.backward()
        print(rows, inner, classes, repr(smoothing), file=file)
        print(" ".join("%.17g" % v for v in [loss.item()] + x.grad.flatten().tolist()), file=file)
