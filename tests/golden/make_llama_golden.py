#!/usr/bin/env python3
"""Makes llama_*.safetensors: what Hugging Face's transformers computes for small decoders.

    python3 tests/golden/make_llama_golden.py [folder [model...]]

Weights and tokens are formulas (mix() below, repeated in tests/parity/llama_parity_test.c), so only
results are stored: "loss", "logits" of the first sample, and of each parameter's gradient every
ceil(n / 256)-th element as "grad.NAME" and its norm as "norm.NAME". The models run in fp64, but
transformers computes norms and positions in fp32 all the same.
"""
import os
import sys

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

LAYERS, VOCAB, T, BATCH = 2, 97, 12, 2
MASK = (1 << 64) - 1
BASE = dict(num_hidden_layers=LAYERS, vocab_size=VOCAB, hidden_size=15, intermediate_size=22, head_dim=8,
            max_position_embeddings=32, attention_dropout=0.0, use_cache=False, bos_token_id=None,
            eos_token_id=None, pad_token_id=None)


def rope(theta, **scaling):
    return dict(rope_type=scaling.pop("rope_type", "default"), rope_theta=theta, **scaling)


ABSENT = object()  # a key of BASE that a configuration does not have
# The heads together are as wide as the hidden state.
SQUARE = dict(hidden_size=16, num_attention_heads=2)


def file_name(model_type, name):
    """The output matrix of GPT-NeoX has another name in files."""
    return name.replace("lm_head", "embed_out") if model_type is transformers.GPTNeoXForCausalLM else name


# Sizes, and what is special, also stand in the table of llama_parity_test.c.
MODELS = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig, dict(
        num_attention_heads=5, num_key_value_heads=1, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=rope(5000.0, rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=16))),
    "linear": (transformers.LlamaForCausalLM, transformers.LlamaConfig, dict(
        num_attention_heads=3, num_key_value_heads=3, rms_norm_eps=1e-5, tie_word_embeddings=False,
        attention_bias=True, mlp_bias=True, rope_parameters=rope(10000.0, rope_type="linear", factor=2.5))),
    "mistral": (transformers.MistralForCausalLM, transformers.MistralConfig, dict(
        num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-5, tie_word_embeddings=False,
        sliding_window=5, rope_parameters=rope(10000.0))),
    "qwen2": (transformers.Qwen2ForCausalLM, transformers.Qwen2Config, dict(
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters=rope(1e6))),
    "qwen3": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config, dict(
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters=rope(1e6))),
    "gemma": (transformers.GemmaForCausalLM, transformers.GemmaConfig, dict(
        num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-6, tie_word_embeddings=True,
        hidden_act="gelu_pytorch_tanh", rope_parameters=rope(10000.0))),
    "nemotron": (transformers.NemotronForCausalLM, transformers.NemotronConfig, dict(
        num_attention_heads=4, num_key_value_heads=2, norm_eps=1e-5, tie_word_embeddings=False,
        hidden_act="relu2", rope_parameters=rope(10000.0, partial_rotary_factor=0.5))),
    "phi": (transformers.PhiForCausalLM, transformers.PhiConfig, dict(
        SQUARE, layer_norm_eps=1e-5, rope_parameters=rope(10000.0, partial_rotary_factor=0.5))),
    "phi3": (transformers.Phi3ForCausalLM, transformers.Phi3Config, dict(
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, sliding_window=5, rope_parameters=rope(10000.0))),
    "olmo": (transformers.OlmoForCausalLM, transformers.OlmoConfig, dict(
        SQUARE, tie_word_embeddings=False, rope_parameters=rope(10000.0))),
    "olmo2": (transformers.Olmo2ForCausalLM, transformers.Olmo2Config, dict(
        SQUARE, rms_norm_eps=1e-5, num_key_value_heads=1, tie_word_embeddings=False, rope_parameters=rope(10000.0))),
    "granite": (transformers.GraniteForCausalLM, transformers.GraniteConfig, dict(
        num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-5, tie_word_embeddings=True, embedding_multiplier=3.0,
        attention_multiplier=0.2, residual_multiplier=0.25, logits_scaling=2.0, rope_parameters=rope(10000.0))),
    "smollm3": (transformers.SmolLM3ForCausalLM, transformers.SmolLM3Config, dict(
        num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-5, tie_word_embeddings=False, no_rope_layer_interval=2,
        rope_parameters=rope(10000.0))),
    "cohere": (transformers.CohereForCausalLM, transformers.CohereConfig, dict(
        num_attention_heads=4, num_key_value_heads=2, layer_norm_eps=1e-5, logit_scale=0.25, rope_parameters=rope(10000.0))),
    "falcon": (transformers.FalconForCausalLM, transformers.FalconConfig, dict(
        hidden_size=32, head_dim=ABSENT, num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True, ffn_hidden_size=22,
        rope_parameters=rope(10000.0))),
    "gpt_neox": (transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig, dict(
        SQUARE, layer_norm_eps=1e-5, rope_parameters=rope(10000.0, partial_rotary_factor=0.5))),
    "gptj": (transformers.GPTJForCausalLM, transformers.GPTJConfig, dict(
        hidden_size=ABSENT, num_hidden_layers=ABSENT, max_position_embeddings=ABSENT, n_embd=16, n_head=2, n_layer=LAYERS, n_inner=22, rotary_dim=4, n_positions=32)),
    "opt": (transformers.OPTForCausalLM, transformers.OPTConfig, dict(
        SQUARE, word_embed_proj_dim=16, ffn_dim=22, dropout=0.0, layerdrop=0.0)),
}


def mix(x):
    x &= MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(stream, index):
    """In [-1, 1), a multiple of 2^-23."""
    return (mix(stream * 1000003 + index + 1) >> 40) / 2.0**23 - 1.0


def stream(name):
    """FNV-1a, 32 bits."""
    value = 2166136261
    for byte in name.encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def values(name, count, plus_one):
    is_gamma = name.endswith("norm.weight")
    middle = 1.0 if is_gamma and not plus_one else 0.0
    return np.array([middle + 0.25 * uniform(stream(name), i) for i in range(count)], dtype=np.float64)


def batch():
    """Tokens and targets; every ninth target does not count."""
    ids = torch.tensor([[mix(b * 104729 + t * 31 + 1000) % VOCAB for t in range(T + 1)] for b in range(BATCH)])
    targets = ids[:, 1:].clone()
    for i in range(0, BATCH * T, 9):
        targets[i // T, i % T] = -100
    return ids[:, :-1], targets


def make(name, folder):
    model_type, config_type, special = MODELS[name]
    torch.manual_seed(0)
    given = {key: value for key, value in {**BASE, **special}.items() if value is not ABSENT}
    model = model_type(config_type(**given, attn_implementation="eager")).double()
    model.train()
    plus_one = name in ("gemma", "nemotron")
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            data = values(file_name(model_type, parameter_name), parameter.numel(), plus_one)
            parameter.copy_(torch.from_numpy(data).reshape(parameter.shape))
    tokens, targets = batch()
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1), ignore_index=-100)
    loss.backward()
    result = {"loss": np.array([loss.item()], dtype=np.float32), "logits": logits[0].detach().float().numpy()}
    for parameter_name, parameter in model.named_parameters():
        gradient = parameter.grad.reshape(-1)
        parameter_name = file_name(model_type, parameter_name)
        step = (gradient.numel() + 255) // 256
        result["grad." + parameter_name] = gradient[::step].float().numpy()
        result["norm." + parameter_name] = gradient.norm().reshape(1).float().numpy()
    path = os.path.join(folder, f"llama_{name}.safetensors")
    save_file(result, path)
    print(path, loss.item(), os.path.getsize(path), transformers.__version__)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for model_name in sys.argv[2:] or MODELS:
        make(model_name, sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__)))
