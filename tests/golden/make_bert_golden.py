#!/usr/bin/env python3
"""Makes bert_*.txt and bert_*.grad: what transformers computes for a small BERT, in fp64.

    python3 tests/golden/make_bert_golden.py [folder]

post is BertForPreTraining, pre MegatronBertForPreTraining, single BertForMaskedLM. Weights and
batches are formulas (mix() below, repeated in tests/parity/bert_parity_test.c), so only results are
stored: bert_NAME.txt has one line "norm loss" per AdamW step, behind one line "NAME COUNT" for each
parameter in the order of Shoal's model, and "steps 0"; bert_NAME.grad the gradients of step 0 in that order, as
little-endian fp32.
"""
import math
import os
import sys

import numpy as np
import torch
from transformers import (BertConfig, BertForMaskedLM, BertForPreTraining, MegatronBertConfig,
                          MegatronBertForPreTraining)

LAYERS, HIDDEN, HEADS, FFN, T, POSITIONS, VOCAB, BATCH, STEPS = 2, 24, 3, 40, 16, 20, 61, 4, 12
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
    """Samples of 9 to 16 tokens; a third of these is to be learnt, and what is padding is not seen."""
    ids, types, targets, seen, order = [], [], [], [], []
    for b in range(BATCH):
        base = step * 7919 + b * 104729
        count, cut = 9 + mix(base + 5) % 8, 3 + mix(base + 6) % 5
        draws = [mix(base + t * 31 + 1000) for t in range(T)]
        ids.append([d % VOCAB for d in draws])
        types.append([int(cut <= t < count) for t in range(T)])
        targets.append([d // 64 % VOCAB if d // 4096 % 3 == 0 and t < count else -100
                        for t, d in enumerate(draws)])
        seen.append([int(t < count) for t in range(T)])
        order.append(mix(base + 7) % 2)
    return [torch.tensor(x) for x in (ids, types, targets, seen, order)]


def names(pre, pairs):
    """Of all parameters, in the order of src/transformer/bert.c."""
    def both(*list_):
        return [f"{name}.{kind}" for name in list_ for kind in ("weight", "bias")]

    found = [f"bert.embeddings.{table}_embeddings.weight" for table in ("word", "position", "token_type")]
    found += [] if pre else both("bert.embeddings.LayerNorm")
    for i in range(LAYERS):
        at = f"bert.encoder.layer.{i}."
        found += both(*[at + x for x in (
            "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
            "attention.ln" if pre else "attention.output.LayerNorm", "intermediate.dense", "output.dense",
            "ln" if pre else "output.LayerNorm")])
    found += both("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm")
    found += ["cls.predictions.bias"]
    found += both("bert.pooler.dense", "cls.seq_relationship") if pairs else []
    return found + (both("bert.encoder.ln") if pre else [])


def make(folder, name, config_class, model_class, activation, pre, pairs):
    config = config_class(
        vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=FFN, max_position_embeddings=POSITIONS, hidden_act=activation,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager",
        pad_token_id=None)  # with one, that row of the table would get no gradient
    model = model_class(config).double()
    weights = dict(model.named_parameters())
    order = names(pre, pairs)
    assert sorted(order) == sorted(weights), sorted(set(order) ^ set(weights))
    with torch.no_grad():
        for stream, at in enumerate(order):
            centre = 1.0 if at.endswith(("LayerNorm.weight", "ln.weight")) else 0.0
            values = [np.float32(centre + 0.125 * uniform(stream, i)) for i in range(weights[at].numel())]
            weights[at].copy_(torch.tensor(np.array(values, np.float64)).reshape(weights[at].shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    lines = [f"{at} {weights[at].numel()}\n" for at in order] + ["steps 0\n"]
    for step in range(STEPS):
        ids, types, targets, seen, swapped = batch(step)
        optimizer.zero_grad()
        more = {"next_sentence_label": swapped} if pairs else {}
        loss = model(input_ids=ids, token_type_ids=types, attention_mask=seen, labels=targets, **more).loss
        loss.backward()
        if step == 0:
            grads = np.concatenate([weights[at].grad.numpy().ravel() for at in order])
            grads.astype("<f4").tofile(os.path.join(folder, f"bert_{name}.grad"))
        norm = math.sqrt(sum((w.grad**2).sum().item() for w in weights.values()))
        optimizer.step()
        lines.append(f"{norm:.17g} {loss.item():.17g}\n")
    with open(os.path.join(folder, f"bert_{name}.txt"), "w") as out:
        out.writelines(lines)
    print(name, "loss", lines[len(order) + 1].split()[1], "->", lines[-1].split()[1])


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    make(folder, "post", BertConfig, BertForPreTraining, "gelu", False, True)
    make(folder, "pre", MegatronBertConfig, MegatronBertForPreTraining, "gelu", True, True)
    make(folder, "single", BertConfig, BertForMaskedLM, "gelu_new", False, False)


main()
