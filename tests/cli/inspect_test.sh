#!/usr/bin/env bash
# `shoal inspect`: files of other programs, checkpoints, data files, tokenizers; mistakes in one sentence each.
# Usage: inspect_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1 golden=$2/tests/golden
cd "$folder" || exit 1
same() { # same FILE: the last output is this, byte for byte
    printf '%s\n' "$output" | diff -u "$1" - || complain "not what $1 says"
}

# ---- torch.save, pickles ----
cat >views <<'END'
views.pt: torch.save archive, 8 tensors, 71 elements, 2.3 KiB
  name        dtype  shape   size   min    max    mean       std  zeros  NaN  Inf
  plain       F32    [4, 6]  96 B     0  2.875  1.4375  0.865273      1    0    0
  transposed  F32    [6, 4]  96 B     0  2.875  1.4375  0.865273      1    0    0
  part        F32    [2, 3]  24 B     1      2     1.5  0.388641      0    0    0
  steps       F32    [2, 2]  16 B     0  1.875  0.9375  0.773082      1    0    0
  expanded    F32    [2, 3]  24 B     0   0.25   0.125  0.102062      2    0    0
  scalar      F32    []       4 B  -2.5   -2.5    -2.5         0      0    0    0
  empty       F32    [0, 5]   0 B     -      -       -         -      0    0    0
  row         F32    [1, 6]  24 B  2.25  2.875  2.5625  0.213478      0    0    0
  unpickling would import (nothing was imported):
    torch._utils._rebuild_tensor_v2
    torch.FloatStorage
    collections.OrderedDict
END
expect 0 "$shoal" inspect --statistics "$golden/torch/views.pt"
same views
cat >evil <<'END'
evil.pt: torch.save archive, 1 tensor, 2 elements, 1.6 KiB
  name    dtype  shape  size
  weight  F32    [2]     8 B
  values: dict
    weight: tensor F32 [2]
    payload: posix.system
      arguments: ["touch shoal-was-here"]
  unpickling would import (nothing was imported):
    torch._utils._rebuild_tensor_v2
    torch.FloatStorage
    collections.OrderedDict
    posix.system
END
expect 0 "$shoal" inspect "$golden/torch/evil.pt"
same evil
[ ! -e shoal-was-here ] || complain "the file's command was run"
expect 0 "$shoal" inspect "$golden/torch/nested.pt"
says 'name: "a\x1b[31mred"' "args: argparse.Namespace" "big: \"integer of 9 bytes\"" "flags: [True, False]" "dtype: torch.bfloat16"
expect 0 "$shoal" inspect "$golden/torch/every.safetensors" --tensor 'f[68]*'
says "every.safetensors: safetensors, 3 tensors, 18 elements" "f64" "f8_e4m3" "f8_e5m2"
expect 0 "$shoal" inspect --json --statistics "$golden/torch/array.npy"
says '{"name":"array.npy","kind":"numpy array","bytes":152,"tensors":[{"name":"array","dtype":"F32","shape":[2,3],"bytes":24,"offset":128,"statistics":{"min":0.0,"max":5.0,"mean":2.5,'
printf '\x93NUMPY\x01\0v\0%-117s\n\0\0\xc0\x7f\0\0\x80\x7f\0\0\x80\xff\0\0\x80?\0\0\0\0' \
    "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }" >odd.npy
expect 0 "$shoal" inspect --statistics odd.npy
says "0    1   0.5  0.5      1    1    2"

# ---- folders ----
for i in $(seq 300); do echo "line $i of the quick brown fox"; done >text
echo '{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}' >ds.json
expect 0 "$shoal" pretrain gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 16 --threads 1 --eval-iters 1 \
    --data-path text --deepspeed_config ds.json --train-iters 2 --save run
expect 0 "$shoal" inspect run
says "run/global_step2: checkpoint of Shoal" "step: 2" "model-00001-of-00001.safetensors: safetensors" "exp_avg_sq-00001" \
    "transformer.wte.weight"
expect 0 "$shoal" inspect run --tensor '*wpe*' --statistics
says "transformer.wpe.weight  F32    [16, 16]  1.0 KiB"
expect 0 "$shoal" inspect "$golden/indexed_sample"
says "indexed_sample: data files of Megatron" "documents:" "tokens:"
expect 0 "$shoal" inspect "$golden/indexed_sample.idx"
says "data files of Megatron"
expect 0 "$shoal" inspect "$golden/tokenizer_bpe.model"
says "tokenizer_bpe.model: tokenizer" "vocabulary:"

# ---- mistakes ----
expect 2 "$shoal" inspect
says "give a file or folder"
expect 2 "$shoal" inspect a b
says "give one file or folder"
expect 2 "$shoal" inspect run --tensor 'nosuch*'
says "run: no tensor has a name that matches \`nosuch*\`: leave --tensor out to see all names"
expect 2 "$shoal" inspect --tensor
says "--tensor needs a value"
expect 2 "$shoal" inspect --all x
says "unknown flag --all"
expect 2 "$shoal" inspect none.pt
says "none.pt: No such file"
head -c 1500 "$golden/torch/views.pt" >cut.pt
expect 2 "$shoal" inspect cut.pt
says "cut.pt: the archive has no directory at its end: it is truncated or damaged"
head -c 500 "$golden/torch/views_legacy.pt" >cut.pt
expect 2 "$shoal" inspect cut.pt
says "cut.pt, byte" "the pickle ends within an instruction: it is truncated or damaged"
head -c 1000 "$golden/torch/views_legacy.pt" >cut.pt
expect 2 "$shoal" inspect cut.pt
says "cut.pt, byte" "do not fit into the file"
head -c 900 "$golden/torch/every.safetensors" >cut.safetensors
expect 2 "$shoal" inspect cut.safetensors
says "cut.safetensors: the header's tensors do not fill"
expect 2 "$shoal" inspect text.pt
printf 'hello' >text.pt
expect 2 "$shoal" inspect text.pt
says "text.pt, byte 0: its beginning is of no known format"
expect 2 "$shoal" inspect "$golden/torch/packed.npz"
says "is compressed"
truncate -s -10 run/global_step2/exp_avg-00001-of-00001.safetensors
expect 2 "$shoal" inspect run
says "exp_avg-00001-of-00001.safetensors: the header's tensors do not fill"
finish
