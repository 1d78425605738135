#!/usr/bin/env bash
# Trains small models for a step on the emulator that checks accesses, and compares what kernels take of memory with their budgets
# (traffic.h), for fp32 and for bf16 by Shoal's own kernels.
# Usage: traffic_test.sh SHOAL EMULATOR [--update]     --update writes the budgets anew
shoal=$1 here=$(cd "$(dirname "$0")" && pwd)
export SHOAL_ACCELERATOR=cuda SHOAL_CUDA_DRIVER=$2 SHOAL_CUDA_BLAS=off SHOAL_CUDA_BYTES=1000000000
[ "${3:-}" = --update ] && export SHOAL_EMULATOR_BUDGETS_UPDATE=1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cp "$here/traffic.json" "$folder/f32.json" || exit 1
sed 's/"gradient_clipping"/"bf16": {"enabled": true}, &/' "$here/traffic.json" >"$folder/bf16.json"
failed=0
# trains BUDGETS TYPE MODEL...
trains() {
    SHOAL_EMULATOR_BUDGETS=$here/budgets.$1 "$shoal" pretrain "${@:3}" --deepspeed_config "$folder/$2.json" --mock-data --num-layers 1 \
        --hidden-size 64 --num-attention-heads 4 --seq-length 64 --train-iters 1 --eval-iters 0 --threads 1 >"$folder/out" 2>&1 &&
        return
    failed=1
    echo "FAILED: $1: $(grep emulator: "$folder/out" || cat "$folder/out")"
    echo "if that is wanted: $0 $shoal $SHOAL_CUDA_DRIVER --update"
}
trains gpt f32 gpt
trains llama bf16 llama
exit $failed
