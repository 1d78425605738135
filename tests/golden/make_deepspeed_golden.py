#!/usr/bin/env python3
"""Makes deepspeed.tar.xz: checkpoints that DeepSpeed wrote after three steps of a small GPT-2, and what it computed then.

    python3 tests/golden/make_deepspeed_golden.py [CASE...]

Needs torch, transformers and deepspeed; two ranks (gloo) on the CPU. For each case a folder CASE with DeepSpeed's checkpoint as it
is (latest, global_step3/...), losses.txt (the global loss of the 5 steps that follow, one per line) and state.txt (per parameter:
name, then for master, exp_avg and exp_avg_sq the sum of all elements and of element i times (i mod 7 + 1), in fp64). Tokens are a
formula, repeated in tests/parity/deepspeed_parity_test.c. SHOAL_GOLDEN_WORK=FOLDER keeps the work there, and goes on with it.
"""
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

LAYERS, HIDDEN, HEADS, T, VOCAB, BATCH, STEPS, MORE = 1, 8, 2, 8, 31, 8, 3, 5
MASK = (1 << 64) - 1
CASES = {  # name: (stage, precision)
    "fp32_0": (0, "fp32"), "fp32_1": (1, "fp32"), "fp32_2": (2, "fp32"), "fp32_3": (3, "fp32"),
    "bf16_0": (0, "bf16"), "bf16_1": (1, "bf16"), "bf16_2": (2, "bf16"), "bf16_3": (3, "bf16"),
}
UNIVERSAL = {"universal_2": "fp32_2", "universal_3": "fp32_3"}


def mix(x):
    x &= MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def batch(step, rank, ranks):
    """Rows [rank * BATCH / ranks, ...) of the step's batch."""
    import torch
    rows = []
    for b in range(rank * BATCH // ranks, (rank + 1) * BATCH // ranks):
        row = [mix(step * 7919 + b * 104729 + 17) % VOCAB]
        for t in range(T):
            draw = mix(step * 7919 + b * 104729 + t * 31 + 1000)
            row.append(draw // 4 % VOCAB if draw % 4 == 0 else (row[-1] * 5 + 3) % VOCAB)
        rows.append(row)
    ids = torch.tensor(rows)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def config(stage, precision):
    result = {
        "train_batch_size": BATCH, "steps_per_print": 10**6, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 20},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 2e-2, "warmup_num_steps": 2,
                                                          "total_num_steps": 12, "warmup_type": "linear"}},
    }
    if precision != "fp32":
        result[precision] = {"enabled": True}
    return result


def make_engine(stage, precision, one_group=False, **more):
    """The model in an engine of DeepSpeed; one_group: all parameters decay."""
    import deepspeed
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    deepspeed.init_distributed("gloo")
    torch.manual_seed(11)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=T, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0,
                                       embd_pdrop=0, attn_pdrop=0, activation_function="gelu_new", initializer_range=0.2))
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}]
    if one_group:
        groups = [{"params": list(model.parameters()), "weight_decay": 0.1}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=dict(config(stage, precision), **more))
    return engine


def train_step(engine, number):
    """Returns the loss of the whole batch."""
    import torch
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ids, targets = batch(number, rank, ranks)
    logits = engine(input_ids=ids).logits.float()
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))
    engine.backward(loss)
    engine.step()
    total = loss.detach().clone().double()
    torch.distributed.all_reduce(total)
    return total.item() / ranks


def train(folder, stage, precision):
    """One rank of a case."""
    engine = make_engine(stage, precision)
    for number in range(STEPS):
        train_step(engine, number)
    engine.save_checkpoint(folder)
    finish(engine, os.path.join(folder, "losses.txt"))


def finish(engine, path):
    """The steps that follow, into a file."""
    import torch
    losses = [train_step(engine, number) for number in range(STEPS, STEPS + MORE)]
    if os.environ["RANK"] == "0":
        with open(path, "w") as file:
            file.writelines("%.9f\n" % loss for loss in losses)
    torch.distributed.barrier()
    os._exit(0)  # what DeepSpeed leaves behind may end a process that goes regularly with a signal


def start_ranks(command):
    """Whether two processes of a command ended well."""
    ranks = []
    for rank in range(2):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29617",
                   DS_ACCELERATOR="cpu")
        ranks.append(subprocess.Popen(command, env=env))
    return not any([process.wait() for process in ranks])


def state_of(folder, universal):
    """The sums of every tensor of the optimizer: of stage 0 as torch wrote them, else as DeepSpeed's own converter gives them."""
    import torch
    tag = os.path.join(folder, "global_step3")
    model = torch.load(os.path.join(tag, "mp_rank_00_model_states.pt"), weights_only=False) if universal is None else None
    if universal is not None:
        zero = os.path.join(universal, "zero")
        names = [name for name in sorted(os.listdir(zero)) if os.path.exists(os.path.join(zero, name, "exp_avg.pt"))]  # not the second name of tied weights
    else:
        names = [name for group in model["param_shapes"] for name in group] if model["param_shapes"] else None
        names = names or [name for name in model["module"] if name != "lm_head.weight"]
        names.sort(key=lambda name: model["module"][name].dim() == 1)  # as the groups of the optimizer
    with open(os.path.join(folder, "state.txt"), "w") as file:
        for i, name in enumerate(names):
            if universal is not None:
                tensors = [torch.load(os.path.join(zero, name, kind + ".pt"), weights_only=False) for kind in ("fp32", "exp_avg", "exp_avg_sq")]
                tensors = [tensor["param"] if isinstance(tensor, dict) else tensor for tensor in tensors]
            else:
                optimizer = model["optimizer"]
                masters = [tensor for group in optimizer.get("fp32_groups", []) for tensor in group]
                state = optimizer.get("optimizer_state_dict", optimizer)["state"][i]
                tensors = [masters[i] if masters else model["module"][name], state["exp_avg"], state["exp_avg_sq"]]
            sums = []
            for tensor in tensors:
                flat = tensor.double().flatten()
                sums += [flat.sum().item(), (flat * (torch.arange(len(flat)) % 7 + 1)).sum().item()]
            file.write(name + "".join(" %.12e" % x for x in sums) + "\n")


def run_case(name, folder):
    if not start_ranks([sys.executable, os.path.abspath(__file__), folder, str(CASES[name][0]), CASES[name][1]]):
        sys.exit(name + ": a rank failed")
    for script in ("zero_to_fp32.py", "zero_to_torch.py"):
        if os.path.exists(os.path.join(folder, script)):
            os.remove(os.path.join(folder, script))


def universal_of(name, work):
    """DeepSpeed's own conversion, as a case of its own or beside the cases."""
    kept = {source: case for case, source in UNIVERSAL.items()}.get(name)
    folder = os.path.join(work, kept or "unkept/" + name)
    os.makedirs(folder, exist_ok=True)
    out = os.path.join(folder, "global_step3_universal")
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", os.path.join(work, name, "global_step3"),
                    "--output_folder", out, "--inject_missing_state", "--num_extract_workers", "1", "--num_merge_workers", "1"],
                   check=True, env=dict(os.environ, DS_ACCELERATOR="cpu"))
    return kept, out


def main():
    if "RANK" in os.environ:
        return train(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    work = os.environ.get("SHOAL_GOLDEN_WORK") or tempfile.mkdtemp()
    for name in sys.argv[1:] or list(CASES):
        folder = os.path.join(work, name)
        if os.path.exists(os.path.join(folder, "state.txt")):
            continue
        os.makedirs(folder, exist_ok=True)
        run_case(name, folder)
        zero = any(file.endswith("optim_states.pt") for file in os.listdir(os.path.join(folder, "global_step3")))
        kept, universal = universal_of(name, work) if zero else (None, None)
        state_of(folder, universal)
        for file in ("losses.txt", "state.txt"):
            if kept:
                shutil.copy(os.path.join(folder, file), os.path.join(work, kept))
    shutil.rmtree(os.path.join(work, "unkept"), ignore_errors=True)
    out = os.path.join(os.path.dirname(os.path.abspath(__file__)), "deepspeed.tar.xz")
    with tarfile.open(out, "w:xz", preset=9) as archive:
        for name in sorted(os.listdir(work)):
            archive.add(os.path.join(work, name), name, filter=plain)
    if "SHOAL_GOLDEN_WORK" not in os.environ:
        shutil.rmtree(work)
    print(out, os.path.getsize(out), "bytes")


def plain(info):
    info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
    return info


if __name__ == "__main__":
    main()
