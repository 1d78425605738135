#!/usr/bin/env python3
"""Makes tests/golden/hub: small random models as `transformers` saves them, each a folder of the Hugging Face Hub, with the
logits of a text (logits.f32: rows of the vocabulary, fp32) and the text itself, continued by 200 greedy tokens (tokens.txt).
tests/parity/hub_parity_test.c reads them. Weights are rounded to 16 bits first, so that files are small and exact.
Needs torch, transformers, safetensors. Usage: make_hub_golden.py [NAME...]"""
import json, os, shutil, sys
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1", CUDA_VISIBLE_DEVICES="")
import safetensors.torch, torch, transformers as T
torch.set_num_threads(1)
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hub")
PROMPT, GREEDY, AHEAD = 9, 200, 2e-3
common = dict(vocab_size=97, bos_token_id=1, eos_token_id=2, pad_token_id=0)
gpt2 = dict(**common, n_embd=15, n_layer=2, n_head=3, n_positions=256)
llama = dict(**common, hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1,
             max_position_embeddings=256, rms_norm_eps=1e-5)


def bare(tensors):
    """As published files of GPT-2: no prefix, and buffers."""
    tensors = {name.removeprefix("transformer."): value for name, value in tensors.items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    return tensors


def internlm2(tensors):
    """The same weights as InternLM2 stores them, which transformers does not have: of each query group q, k and v."""
    names = {"model.embed_tokens": "model.tok_embeddings", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
             "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
             "mlp.down_proj": "feed_forward.w2", "lm_head": "output"}
    result = {}
    for name, value in tensors.items():
        if "q_proj" in name:
            parts = [tensors[name.replace("q_proj", p)].reshape(2, -1, value.shape[1]) for p in ("q_proj", "k_proj", "v_proj")]
            result[name.replace("self_attn.q_proj", "attention.wqkv")] = torch.cat(parts, 1).reshape(-1, value.shape[1]).contiguous()
        elif "k_proj" not in name and "v_proj" not in name:
            for old, new in names.items():
                name = name.replace(old, new)
            result[name] = value
    return result


same = dict
# name: (model, dtype of the file, number of files, change of names, changed keys of config.json; None: without the key)
MODELS = {
    "gpt2": (lambda: T.GPT2LMHeadModel(T.GPT2Config(**gpt2)), torch.float16, 1, bare, {}),
    "gpt2_untied": (lambda: T.GPT2LMHeadModel(T.GPT2Config(**{**gpt2, "n_inner": 37, "activation_function": "gelu",
                                                             "tie_word_embeddings": False, "n_head": 5})), torch.bfloat16, 3, same, {}),
    "llama": (lambda: T.LlamaForCausalLM(T.LlamaConfig(**llama, rope_parameters={
        "rope_type": "llama3", "rope_theta": 50000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32})), torch.bfloat16, 1, same, {}),
    "mistral": (lambda: T.MistralForCausalLM(T.MistralConfig(**{**llama, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
                                                               "sliding_window": 7})), torch.bfloat16, 1, same, {}),
    "qwen2": (lambda: T.Qwen2ForCausalLM(T.Qwen2Config(**{**llama, "tie_word_embeddings": True, "num_hidden_layers": 1})), torch.bfloat16, 1, same, {}),
    "qwen3": (lambda: T.Qwen3ForCausalLM(T.Qwen3Config(**llama, head_dim=8)), torch.bfloat16, 1, same, {}),
    "internlm2": (lambda: T.LlamaForCausalLM(T.LlamaConfig(**{**llama, "num_attention_heads": 6, "num_key_value_heads": 2,
                                                             "hidden_size": 48})), torch.bfloat16, 1, internlm2,
                  {"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"], "bias": False, "attn_implementation": "eager",
                   "attention_bias": None, "mlp_bias": None, "head_dim": None}),
    "gemma": (lambda: T.GemmaForCausalLM(T.GemmaConfig(**llama, head_dim=8)), torch.bfloat16, 1, same, {}),
}


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float()


def randomise(model, dtype):
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(0, 0.5 / value.shape[-1] ** 0.25 if value.dim() > 1 else 0.2)
            if ("norm" in name or "ln_" in name) and name.endswith("weight") and "Gemma" not in type(model).__name__:
                value.add_(1)
            value.copy_(value.to(dtype).float())


def make(name):
    """Of many seeds the first whose greedy text has no near tie, which another order of sums might decide otherwise."""
    build, dtype, files, change, extra = MODELS[name]
    for seed in range(1000):
        torch.manual_seed(seed)
        model = build().eval().float()
        randomise(model, dtype)
        text = torch.randint(3, 97, (PROMPT,)).tolist()
        ahead = 1.0
        while len(text) < PROMPT + GREEDY and ahead > AHEAD:
            row = logits_of(model, text)[-1]
            best = torch.topk(row, 2)
            ahead = ((best.values[0] - best.values[1]) / row.abs().max()).item()
            text.append(best.indices[0].item())
        if ahead > AHEAD and len(set(text)) > 12:
            return model, text, seed
    raise SystemExit(name + ": no seed gives a text without near ties")


def write(name):
    _, dtype, files, change, extra = MODELS[name]
    model, text, seed = make(name)
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    if extra:
        path = os.path.join(folder, "config.json")
        with open(path) as file:
            config = {**json.load(file), **extra}
        with open(path, "w") as file:
            json.dump({key: value for key, value in config.items() if value is not None}, file, indent=2)
    tensors = safetensors.torch.load_file(os.path.join(folder, "model.safetensors"))
    os.remove(os.path.join(folder, "model.safetensors"))
    tensors = change({key: value.to(dtype) for key, value in tensors.items()})
    parts = [sorted(tensors)[i::files] for i in range(files)]
    where = {}
    for i, part in enumerate(parts):
        file = "model.safetensors" if files == 1 else f"model-{i + 1:05}-of-{files:05}.safetensors"
        where.update({key: file for key in part})
        safetensors.torch.save_file({key: tensors[key] for key in part}, os.path.join(folder, file), metadata={"format": "pt"})
        os.chmod(os.path.join(folder, file), 0o644)
    if files > 1:
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as out:
            json.dump({"metadata": {}, "weight_map": where}, out, indent=1)
    with open(os.path.join(folder, "tokens.txt"), "w") as out:
        out.write(",".join(map(str, text)) + "\n")
    logits_of(model, text[:24]).numpy().astype("<f4").tofile(os.path.join(folder, "logits.f32"))
    print(f"{name}: seed {seed}, {sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))} bytes")


for each in sys.argv[1:] or MODELS:
    write(each)
