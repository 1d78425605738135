"""Shared code of the workers of `run`: a GPT as `shoal bench step` trains it, and the protocol with `run`.

A worker reads commands from standard input, a line of JSON each ({"do": NAME, argument: value, ...}), and answers each with a line:
{"value": ...} or {"error": TEXT}. Between commands it waits for the next one and uses no processor."""
import json
import os
import sys
import time
import traceback

# layers, hidden size, heads, vocabulary
SHAPES = {"gpt2-124m": (12, 768, 12, 50257), "tiny": (4, 128, 4, 65), "medium": (8, 512, 8, 10000)}


def take_output():
    """The file for answers. After this call, output of libraries goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def answer(commands, line):
    arguments = json.loads(line)
    try:
        return {"value": commands[arguments.pop("do")](**arguments)}
    except Exception as error:
        traceback.print_exc()
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:200]}


def serve(commands, answers):
    for line in sys.stdin:
        print(json.dumps(answer(commands, line)), file=answers, flush=True)


def make_gpt(model, length):
    """GPT-2's layers with random weights; attention by PyTorch's own kernel."""
    import torch
    from torch import nn

    layers, hidden, heads, vocabulary = SHAPES[model]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.fc1, self.fc2 = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def forward(self, x):
            parts = self.qkv(self.norm1(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
            x = x + self.proj(mixed.transpose(1, 2).flatten(2))
            return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm = nn.LayerNorm(hidden)
            for weight in self.parameters():
                if weight.dim() > 1:
                    nn.init.normal_(weight, std=0.02)

        def forward(self, inputs, labels):
            x = self.tokens(inputs) + self.places.weight
            for layer in self.layers:
                x = layer(x)
            logits = self.norm(x) @ self.tokens.weight.t()
            return nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    torch.manual_seed(1)
    return Gpt()


def milliseconds(call, times):
    """The mean time of one call, of `times`."""
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return 1e3 * (time.perf_counter() - begin) / times
