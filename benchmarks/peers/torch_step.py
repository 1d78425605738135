"""The training step of `shoal bench step` in PyTorch: random weights and tokens, AdamW, clipping at 1.

Usage: torch_step.py MODEL DTYPE MICRO_BATCH SEQ_LENGTH THREADS STEPS    MODEL: gpt2-124m or tiny, DTYPE: fp32 or bf16 (autocast)
Prints the median time of a step, least and greatest, in ms. Two steps go before, to warm up.
"""
import math
import statistics
import sys
import time

import torch
from torch import nn

SHAPES = {"gpt2-124m": (12, 768, 12, 50257), "tiny": (4, 128, 4, 65)}


class Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x, mask):
        batch, length, hidden = x.shape
        parts = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(2, 3)) / math.sqrt(q.shape[3]) + mask
        x = x + self.proj((scores.softmax(3) @ v).transpose(1, 2).reshape(batch, length, hidden))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, vocabulary, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.02)

    def forward(self, inputs, labels):
        x = self.tokens(inputs) + self.places.weight
        for layer in self.layers:
            x = layer(x, self.mask)
        logits = self.norm(x) @ self.tokens.weight.t()
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def main():
    model_name, dtype, batch, length, threads, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    vocabulary = SHAPES[model_name][3]
    model = Gpt(*SHAPES[model_name], length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    times = []
    for _ in range(steps + 2):
        inputs, labels = torch.randint(0, vocabulary, (2, batch, length))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(inputs, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(1e3 * (time.perf_counter() - begin))
    times = times[2:]
    print(f"{statistics.median(times):.1f} {min(times):.1f} {max(times):.1f}")


if __name__ == "__main__":
    main()
