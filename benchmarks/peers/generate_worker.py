#!/usr/bin/env python3
"""Generation by random GPT-2 124M weights: a prompt, and tokens after it. A worker of `run` (worker.py).
Usage: generate_worker.py transformers|llama.cpp"""
import os
import sys
import time

import worker

answers = worker.take_output()
TOKENS = 8
state = {}


def timed(call):
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)


def make_transformers(dtype, prompt, threads, folder):
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval().to(torch.bfloat16 if dtype == "bf16" else torch.float32)
    tokens = torch.randint(0, 50257, (1, prompt))

    def sample():
        with torch.inference_mode():
            cache = transformers.DynamicCache()
            first = timed(lambda: model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1))
            return first, min(timed(lambda: model(tokens[:, :1], past_key_values=cache, use_cache=True)) for _ in range(TOKENS))

    state["sample"] = sample
    sample()


def write_gguf(path, dtype):
    """The file of a random GPT-2 124M, with no tokenizer."""
    import gguf
    import numpy

    layers, hidden, heads, vocabulary = worker.SHAPES["gpt2-124m"]
    random = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(vocabulary)
    writer.add_context_length(1024)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(4 * hidden)
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_layer_norm_eps(1e-5)

    def add(name, *shape):
        numbers = random.standard_normal(shape, dtype=numpy.float32) * numpy.float32(0.02)
        if dtype == "bf16" and len(shape) > 1 and "position" not in name:
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, numbers)

    add("token_embd.weight", vocabulary, hidden)
    add("position_embd.weight", 1024, hidden)
    for part in ("weight", "bias"):
        add(f"output_norm.{part}", hidden)
    for i in range(layers):
        for name, rows, columns in (("attn_qkv", 3 * hidden, hidden), ("attn_output", hidden, hidden), ("ffn_up", 4 * hidden, hidden),
                                    ("ffn_down", hidden, 4 * hidden)):
            add(f"blk.{i}.{name}.weight", rows, columns)
            add(f"blk.{i}.{name}.bias", rows)
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{i}.{name}.weight", hidden)
            add(f"blk.{i}.{name}.bias", hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_llama(dtype, prompt, threads, folder):
    import llama_cpp

    path = os.path.join(folder, f"{dtype}.gguf")
    write_gguf(path, dtype)
    model = llama_cpp.Llama(path, n_ctx=256, n_batch=prompt, n_ubatch=prompt, n_threads=threads, n_threads_batch=threads, verbose=False)
    os.unlink(path)
    tokens = list(range(prompt))

    def sample():
        model.reset()
        return timed(lambda: model.eval(tokens)), min(timed(lambda: model.eval([1])) for _ in range(TOKENS))

    state["sample"] = sample
    sample()


make = {"transformers": make_transformers, "llama.cpp": make_llama}[sys.argv[1]]
worker.serve({"make": make, "sample": lambda: state["sample"]()}, answers)
