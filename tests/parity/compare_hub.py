#!/usr/bin/env python3
"""Folders of the Hugging Face Hub, with the real packages: what Shoal reads of theirs, and what they read of Shoal's.
Usage: compare_hub.py SHOAL [NAME...]. Exit 77: the packages are not there.

Random models of many sizes are made with `transformers`; logits of a text and 200 greedy tokens are compared, in fp32 within
1e-4 of the largest logit, in 16 bits within their rounding. Then Shoal trains each for some steps, and
`AutoModelForCausalLM.from_pretrained` opens the checkpoint as it is."""
import json, os, random, shutil, subprocess, sys, tempfile
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1", CUDA_VISIBLE_DEVICES="")
try:
    import numpy, safetensors.torch, torch, transformers
except ImportError as missing:
    print(f"skipped: the Python packages torch, transformers, safetensors and numpy are not all there ({missing})")
    sys.exit(77)
torch.set_num_threads(1)
shoal = os.path.abspath(sys.argv[1])
wanted = sys.argv[2:]
seed = int(os.environ.get("SHOAL_TEST_SEED") or random.randrange(1 << 30))
print(f"SHOAL_TEST_SEED={seed}")
torch.manual_seed(seed)
failures = 0


def complain(text):
    global failures
    failures += 1
    print("FAILED: " + text)


def run(*words, code=0):
    done = subprocess.run([shoal, *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != code:
        complain(f"{' '.join(map(str, words))} ended with {done.returncode}, not {code}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


# ---- models ----
T = transformers
gpt2 = dict(vocab_size=97, n_embd=24, n_layer=2, n_head=3, n_positions=256, bos_token_id=1, eos_token_id=2)
llama = dict(vocab_size=97, hidden_size=40, intermediate_size=72, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1,
             max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
three = {**llama, "num_attention_heads": 3, "num_key_value_heads": 3, "hidden_size": 42}
scaled = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
falcon = dict(vocab_size=97, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, max_position_embeddings=256, bos_token_id=1,
              eos_token_id=2, pad_token_id=0)
neox = dict(vocab_size=97, hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=72, max_position_embeddings=256,
            bos_token_id=1, eos_token_id=2, pad_token_id=0)
opt = dict(vocab_size=97, hidden_size=42, word_embed_proj_dim=42, num_hidden_layers=2, num_attention_heads=3, ffn_dim=72,
           max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
MODELS = {
    "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(**gpt2)),
    "gpt2_odd": lambda: T.GPT2LMHeadModel(T.GPT2Config(**{**gpt2, "n_embd": 39, "n_inner": 101, "activation_function": "gelu"})),
    "gpt2_untied": lambda: T.GPT2LMHeadModel(T.GPT2Config(**{**gpt2, "n_head": 1, "n_layer": 1, "tie_word_embeddings": False,
                                                          "layer_norm_epsilon": 1e-3})),
    "gpt2_relu": lambda: T.GPT2LMHeadModel(T.GPT2Config(**gpt2, activation_function="relu", scale_attn_by_inverse_layer_idx=True)),
    "llama2": lambda: T.LlamaForCausalLM(T.LlamaConfig(**three)),
    "llama3": lambda: T.LlamaForCausalLM(T.LlamaConfig(**llama, rope_parameters=scaled, tie_word_embeddings=True)),
    "llama_linear": lambda: T.LlamaForCausalLM(T.LlamaConfig(**llama, rope_parameters={"rope_type": "linear", "factor": 3.0,
                                                                                     "rope_theta": 1e4})),
    "llama_dynamic": lambda: T.LlamaForCausalLM(T.LlamaConfig(**llama, rope_parameters={"rope_type": "dynamic", "factor": 3.0,
                                                                                      "rope_theta": 1e4})),
    "llama_biased": lambda: T.LlamaForCausalLM(T.LlamaConfig(**llama, attention_bias=True, head_dim=16)),
    "llama_all_biased": lambda: T.LlamaForCausalLM(T.LlamaConfig(**llama, attention_bias=True, mlp_bias=True)),
    "llama_gelu": lambda: T.LlamaForCausalLM(T.LlamaConfig(**llama, hidden_act="gelu")),
    "llama_wide": lambda: T.LlamaForCausalLM(T.LlamaConfig(**{**llama, "vocab_size": 1031, "hidden_size": 320, "intermediate_size": 500,
                                                             "num_attention_heads": 10, "num_key_value_heads": 2})),
    "mistral": lambda: T.MistralForCausalLM(T.MistralConfig(**llama, sliding_window=16)),
    "mistral_open": lambda: T.MistralForCausalLM(T.MistralConfig(**three, sliding_window=None, head_dim=8)),
    "qwen2": lambda: T.Qwen2ForCausalLM(T.Qwen2Config(**llama)),
    "qwen2_window": lambda: T.Qwen2ForCausalLM(T.Qwen2Config(**three, use_sliding_window=True, sliding_window=8, max_window_layers=0)),
    "qwen3": lambda: T.Qwen3ForCausalLM(T.Qwen3Config(**llama, head_dim=16, tie_word_embeddings=True)),
    "qwen3_biased": lambda: T.Qwen3ForCausalLM(T.Qwen3Config(**three, head_dim=8, attention_bias=True)),
    "gemma": lambda: T.GemmaForCausalLM(T.GemmaConfig(**llama, head_dim=16)),
    "nemotron": lambda: T.NemotronForCausalLM(T.NemotronConfig(**llama, head_dim=16)),
    "nemotron_biased": lambda: T.NemotronForCausalLM(T.NemotronConfig(**three, head_dim=8, attention_bias=True, mlp_bias=True,
                                                                     hidden_act="gelu")),
    "phi": lambda: T.PhiForCausalLM(T.PhiConfig(**{**three, "hidden_size": 48})),
    "phi_grouped": lambda: T.PhiForCausalLM(T.PhiConfig(**{**llama, "hidden_size": 80})),
    "phi3": lambda: T.Phi3ForCausalLM(T.Phi3Config(**llama, sliding_window=16)),
    "phi3_part": lambda: T.Phi3ForCausalLM(T.Phi3Config(**{**three, "hidden_size": 48}, tie_word_embeddings=True,
                                                       rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                                        "partial_rotary_factor": 0.75})),
    "olmo": lambda: T.OlmoForCausalLM(T.OlmoConfig(**llama)),
    "olmo_tied": lambda: T.OlmoForCausalLM(T.OlmoConfig(**three, tie_word_embeddings=True, attention_bias=True)),
    "olmo2": lambda: T.Olmo2ForCausalLM(T.Olmo2Config(**llama)),
    "olmo2_all_heads": lambda: T.Olmo2ForCausalLM(T.Olmo2Config(**three)),
    "granite": lambda: T.GraniteForCausalLM(T.GraniteConfig(**llama, embedding_multiplier=6.0, attention_multiplier=0.2,
                                                           residual_multiplier=0.22, logits_scaling=3.0, tie_word_embeddings=True)),
    "granite_biased": lambda: T.GraniteForCausalLM(T.GraniteConfig(**three, attention_bias=True, mlp_bias=True)),
    "stablelm": lambda: T.StableLmForCausalLM(T.StableLmConfig(**{**llama, "hidden_size": 80})),
    "stablelm_parallel": lambda: T.StableLmForCausalLM(T.StableLmConfig(**{**three, "hidden_size": 48}, use_qkv_bias=True,
                                                                       use_parallel_residual=True)),
    "smollm3": lambda: T.SmolLM3ForCausalLM(T.SmolLM3Config(**{**llama, "num_hidden_layers": 4})),
    "smollm3_list": lambda: T.SmolLM3ForCausalLM(T.SmolLM3Config(**three, no_rope_layers=[1, 0], attention_bias=True, mlp_bias=True)),
    "cohere": lambda: T.CohereForCausalLM(T.CohereConfig(**llama)),
    "cohere_untied": lambda: T.CohereForCausalLM(T.CohereConfig(**three, logit_scale=0.3, attention_bias=True, tie_word_embeddings=False)),
    "falcon": lambda: T.FalconForCausalLM(T.FalconConfig(**falcon)),
    "falcon_new": lambda: T.FalconForCausalLM(T.FalconConfig(**falcon, new_decoder_architecture=True, num_kv_heads=2)),
    "falcon_one_norm": lambda: T.FalconForCausalLM(T.FalconConfig(**falcon, new_decoder_architecture=True, num_kv_heads=2,
                                                                 num_ln_in_parallel_attn=1, bias=True)),
    "falcon_serial": lambda: T.FalconForCausalLM(T.FalconConfig(**falcon, multi_query=False, parallel_attn=False, bias=True)),
    "gpt_neox": lambda: T.GPTNeoXForCausalLM(T.GPTNeoXConfig(**neox)),
    "gpt_neox_serial": lambda: T.GPTNeoXForCausalLM(T.GPTNeoXConfig(**neox, use_parallel_residual=False, rotary_pct=0.5,
                                                                   attention_bias=False, tie_word_embeddings=True)),
    "gptj": lambda: T.GPTJForCausalLM(T.GPTJConfig(**{**gpt2, "n_head": 2}, rotary_dim=4)),
    "opt": lambda: T.OPTForCausalLM(T.OPTConfig(**opt)),
    "opt_untied": lambda: T.OPTForCausalLM(T.OPTConfig(**opt, tie_word_embeddings=False, enable_bias=False, activation_function="gelu")),
    "starcoder2": lambda: T.Starcoder2ForCausalLM(T.Starcoder2Config(**llama)),
    "starcoder2_window": lambda: T.Starcoder2ForCausalLM(T.Starcoder2Config(**three, sliding_window=8, use_bias=False)),
    "gpt_bigcode": lambda: T.GPTBigCodeForCausalLM(T.GPTBigCodeConfig(**gpt2)),
    "gpt_bigcode_heads": lambda: T.GPTBigCodeForCausalLM(T.GPTBigCodeConfig(**gpt2, multi_query=False, n_inner=37)),
    "arcee": lambda: T.ArceeForCausalLM(T.ArceeConfig(**llama, head_dim=8, mlp_bias=True)),
    "helium": lambda: T.HeliumForCausalLM(T.HeliumConfig(**llama, head_dim=8)),
    "ernie4_5": lambda: T.Ernie4_5ForCausalLM(T.Ernie4_5Config(**llama, head_dim=8)),
    "ernie4_5_biased": lambda: T.Ernie4_5ForCausalLM(T.Ernie4_5Config(**three, head_dim=14, use_bias=True)),
    "gpt2_wide": lambda: T.GPT2LMHeadModel(T.GPT2Config(**{**gpt2, "vocab_size": 1031, "n_embd": 320, "n_head": 5, "n_layer": 3})),
}


def make(name):
    model = MODELS[name]().eval()
    with torch.no_grad():
        for key, value in model.named_parameters():
            value.normal_(0, 0.4 / value.shape[-1] ** 0.25 if value.dim() > 1 else 0.2)
            if "norm" in key or "ln_" in key and key.endswith("weight"):
                value.add_(1)
    model.generation_config.pad_token_id = 0
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


def greedy_of(model, tokens, count):
    """200 tokens one after the other, without a cache; and how far ahead the chosen one was, at least."""
    text, ahead = list(tokens), []
    for _ in range(count):
        row = logits_of(model, text)[-1]
        best = numpy.argsort(row)[-2:]
        ahead.append((row[best[1]] - row[best[0]]) / numpy.abs(row).max())
        text.append(int(best[1]))
    return text, ahead


def words(tokens):
    return ",".join(map(str, tokens))


def shoal_logits(folder, tokens, *flags):
    path = os.path.join(here, "logits.npy")
    run("generate", "--load", folder, "--prompt-tokens", words(tokens), "--num-tokens", 0, "--print-logits", path, "--threads", 1, *flags)
    return numpy.load(path)


def close(what, got, want, tolerance):
    error = numpy.abs(got - want).max() / numpy.abs(want).max() if got.shape == want.shape else float("nan")
    if not error <= tolerance:
        complain(f"{what}: off by {error:.2e} of the largest logit, {got.shape} and {want.shape}")


def same_text(what, got, want, ahead, prompt):
    """Equal up to a place where two tokens were nearly alike."""
    for i, (a, b) in enumerate(zip(got, want)):
        if a != b:
            if ahead[i - prompt] > 2e-4:
                complain(f"{what}: token {i} is {a}, not {b}")
            return
    if len(got) != len(want):
        complain(f"{what}: {len(got)} tokens, not {len(want)}")


def rename(folder, change, index=False, pickled=False):
    """The same weights under other names, as one file or as several, also as torch.save writes them."""
    name, end = ("pytorch_model", "bin") if pickled else ("model", "safetensors")
    save = torch.save if pickled else lambda t, path: safetensors.torch.save_file(t, path, metadata={"format": "pt"})
    tensors = {}
    for file in os.listdir(folder):
        if file.endswith(".safetensors"):
            tensors.update(safetensors.torch.load_file(os.path.join(folder, file)))
    tensors = change(tensors)
    for file in os.listdir(folder):
        if "safetensors" in file:
            os.remove(os.path.join(folder, file))
    if not index:
        save(tensors, os.path.join(folder, f"{name}.{end}"))
        return
    names = sorted(tensors)
    parts = [names[i::3] for i in range(3)]
    where = {}
    for i, part in enumerate(parts):
        file = f"{name}-{i + 1:05}-of-00003.{end}"
        save({key: tensors[key] for key in part}, os.path.join(folder, file))
        where.update({key: file for key in part})
    json.dump({"metadata": {"total_size": 1}, "weight_map": where}, open(os.path.join(folder, f"{name}.{end}.index.json"), "w"))


def variants(name, folder, model, tokens):
    """Spellings of one model: the logits stay."""
    want = logits_of(model, tokens)
    prefix = model.base_model_prefix + "."

    def check(what, change, index=False, tolerance=1e-4, pickled=False):
        other = folder + "." + what
        shutil.copytree(folder, other)
        rename(other, change, index, pickled)
        close(f"{name} {what}", shoal_logits(other, tokens, "--dtype", "fp32"), want, tolerance)
        shutil.rmtree(other)

    check("sharded", lambda t: t, index=True)
    check("bare", lambda t: {k.removeprefix(prefix): v for k, v in t.items()})
    check("wrapped", lambda t: {"module." + k: v for k, v in t.items()})
    check("buffers", lambda t: {**t, prefix + "h.0.attn.bias": torch.ones(1, 1, 8, 8, dtype=torch.bool), "h.0.attn.masked_bias":
                                torch.tensor(-1e4), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
                                "embeddings.position_ids": torch.arange(4)[None]})
    check("bf16", lambda t: {k: v.bfloat16() for k, v in t.items()}, tolerance=0.05)
    check("fp16", lambda t: {k: v.half() for k, v in t.items()}, tolerance=0.01)
    check("fp64", lambda t: {k: v.double() for k, v in t.items()})
    check("torch", lambda t: t, pickled=True)
    check("torch_sharded", lambda t: t, index=True, pickled=True)
    if model.config.tie_word_embeddings:
        embedding = {k: v for k, v in model.state_dict().items() if k == "lm_head.weight"}
        check("both", lambda t: {**t, **{k: v.clone() for k, v in embedding.items()}})


def compare(name):
    folder = os.path.join(here, name)
    model = make(name)
    model.save_pretrained(folder)
    vocab = model.config.vocab_size
    tokens = torch.randint(0, vocab, (37,)).tolist()
    close(name, shoal_logits(folder, tokens), logits_of(model, tokens), 1e-4)
    want, ahead = greedy_of(model, tokens[:7], 200)
    got = run("generate", "--load", folder, "--prompt-tokens", words(tokens[:7]), "--num-tokens", 200, "--top-k", 1, "--print-tokens",
              "--threads", 1, "--ignore-eos")
    same_text(name, [int(x) for x in got.split(",")], want, ahead, 7)
    variants(name, folder, model, tokens)
    low = make_low(model)
    # both round products and activations to 8 bits, at other places: 2^-8 once per layer and side
    close(name + " in bf16", shoal_logits(folder, tokens, "--dtype", "bf16"), logits_of(low, tokens), 0.06)
    train(name, folder, model, tokens)


def make_low(model):
    low = type(model)(model.config).eval()
    low.load_state_dict(model.state_dict())
    return low.bfloat16()


CONFIG = {"train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "steps_per_print": 1000000, "gradient_clipping": 1.0,
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}


def auto(path, **more):
    return T.AutoModelForCausalLM.from_pretrained(path, **more).eval()


def train(name, folder, model, tokens):
    """Nothing but loading and saving leaves the weights alone; some steps later both still compute the same."""
    config = os.path.join(here, "ds.json")
    for label, more, extra, flags in (("fp32", {}, [], []), ("bf16", {"bf16": {"enabled": True}}, [], []),
                                      ("padded", {}, ["--make-vocab-size-divisible-by", 64], []),
                                      ("stage 3", {"zero_optimization": {"stage": 3}}, [], ["run", "--master_port", 0, "--num_gpus", 2, shoal])):
        json.dump({**CONFIG, **more}, open(config, "w"))
        saved = os.path.join(here, "saved")
        shutil.rmtree(saved, ignore_errors=True)
        words_ = flags + ["pretrain", "--load", folder, "--finetune", "--deepspeed_config", config, "--mock-data", "--seq-length", 32,
                          "--eval-iters", 0, "--threads", 1, "--save", saved, *extra]
        run(*words_, "--train-iters", 0)
        same = auto(os.path.join(saved, "global_step0"), dtype=torch.float32)
        rows = model.get_input_embeddings().weight.shape[0]
        for (key, a), (_, b) in zip(same.state_dict().items(), model.state_dict().items()):
            b = b.bfloat16().float() if label == "bf16" else b
            if not torch.equal(a[:b.shape[0]], b) or a[b.shape[0]:].any():
                complain(f"{name} {label}: {key} changed by loading and saving")
        run(*words_, "--train-iters", 3)
        tag = os.path.join(saved, "global_step3")
        trained = auto(tag, dtype=torch.bfloat16 if label == "bf16" else torch.float32)
        want = logits_of(trained, tokens)[:, :rows]
        close(f"{name} trained, {label}", shoal_logits(saved, tokens), want, 0.06 if label == "bf16" else 1e-4)
        close(f"{name} trained, its folder, {label}", shoal_logits(tag, tokens), want, 0.06 if label == "bf16" else 1e-4)
        if numpy.allclose(want, logits_of(model, tokens), atol=1e-6):
            complain(f"{name} {label}: nothing was learnt")
        if label == "padded" and rows % 64:
            text = trained.generate(torch.tensor([tokens]), max_new_tokens=20, do_sample=False)[0].tolist()
            if max(text) >= rows or trained.config.vocab_size % 64:
                complain(f"{name}: padding was generated: {text}")


# ---- models without a next token: weights in, weights out, and some steps between ----
bert = dict(vocab_size=97, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, max_position_embeddings=64)
ENCODERS = {
    "bert": (lambda: T.BertForPreTraining(T.BertConfig(**bert)), T.AutoModelForPreTraining),
    "bert_masked": (lambda: T.BertForMaskedLM(T.BertConfig(**bert, hidden_act="gelu_new")), T.AutoModelForMaskedLM),
    "megatron_bert": (lambda: T.MegatronBertForPreTraining(T.MegatronBertConfig(**bert)), T.AutoModelForPreTraining),
}


def old_norms(tensors):
    return {k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in tensors.items()}


def encoder(name):
    build, opened_by = ENCODERS[name]
    model = build().eval()
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(0, 0.2)
    folder, saved = os.path.join(here, name), os.path.join(here, "saved")
    model.save_pretrained(folder)
    json.dump(CONFIG, open(os.path.join(here, "ds.json"), "w"))
    for what, change in (("as it is", None), ("old norms", old_norms), ("sharded", dict), ("decoder", lambda t: {
            **t, "cls.predictions.decoder.bias": t["cls.predictions.bias"].clone()})):
        if change:
            rename(folder, change, index=what == "sharded")
        for steps in 0, 2:
            shutil.rmtree(saved, ignore_errors=True)
            run("pretrain", "bert", "--load", folder, "--finetune", "--deepspeed_config", os.path.join(here, "ds.json"), "--mock-data",
                "--seq-length", 32, "--eval-iters", 0, "--threads", 1, "--train-iters", steps, "--save", saved)
            got = opened_by.from_pretrained(os.path.join(saved, f"global_step{steps}"), dtype=torch.float32)
            if type(got) is not type(model):
                complain(f"{name}: {type(got)} was opened")
            same = all(torch.equal(a, b) for a, b in zip(got.state_dict().values(), model.state_dict().values()))
            if same != (steps == 0):
                complain(f"{name} {what}: weights {'stayed' if same else 'changed'} in {steps} steps")
        if change:
            shutil.rmtree(folder)
            model.save_pretrained(folder)
    run("convert", folder, folder + ".out", "--dtype", "bf16")
    got = opened_by.from_pretrained(folder + ".out", dtype=torch.bfloat16)
    if not all(torch.equal(a, b.bfloat16()) for a, b in zip(got.state_dict().values(), model.state_dict().values())):
        complain(f"{name}: another model was converted")


with tempfile.TemporaryDirectory() as here:
    for each in wanted or [*MODELS, *ENCODERS]:
        (compare if each in MODELS else encoder)(each)
        shutil.rmtree(os.path.join(here, each))
print("all passed" if not failures else f"{failures} failed")
sys.exit(failures != 0)
