#!/usr/bin/env bash
# Training on an emulated GPU: on one rank, two ranks that share it and two stages of a pipeline, in fp32 with the bits of a CPU; and what
# a user is told where no GPU works.
# Usage: gpu_test.sh SHOAL EMULATOR
. "$(dirname "$0")/check.sh"
shoal=$(realpath "$1") emulator=$(realpath "$2")
forget_job
cd "$folder" || exit 1
cat >config.json <<'CONFIG'
{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "steps_per_print": 1000, "reduction": "exact",
 "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "zero_optimization": {"stage": 2}}
CONFIG
flags=(pretrain gpt --deepspeed_config config.json --mock-data --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 24
    --train-iters 3 --eval-iters 0 --threads 1)

SHOAL_OPS=ref "$shoal" "${flags[@]}" --save cpu >out 2>&1 || complain "cpu: $(cat out)"
export SHOAL_ACCELERATOR=cuda SHOAL_CUDA_DRIVER=$emulator
"$shoal" "${flags[@]}" --save one >out 2>&1 || complain "one rank: $(cat out)"
grep -q "accelerator cuda has no kernels of its own for: " out || complain "nothing says which kernels run on the host: $(cat out)"
grep -q "calls of kernels that ran on the host: random_fill " out || complain "nothing counts the calls on the host: $(cat out)"
planned=$(sed -n 's/^memory: planned \(.*\), used \(.*\), peak.*/\1=\2/p' out)
[ -n "$planned" ] && [ "${planned%=*}" = "${planned#*=}" ] || complain "the plan's memory is not what was used: $planned"
"$shoal" run --num_gpus 2 "$shoal" "${flags[@]}" --save two >out 2>&1 || complain "two ranks: $(cat out)"
"$shoal" run --num_gpus 2 "$shoal" "${flags[@]}" --pipeline-model-parallel-size 2 --save stages >out 2>&1 || complain "two stages: $(cat out)"
for other in one two stages; do
    "$shoal" diff cpu $other >out 2>&1 && grep -q "^equal: every bit of every tensor" out || complain "cpu and $other: $(tail -n 2 out)"
done
"$shoal" report >out || complain "report"
grep -q "cuda  *found: emulator, capability 9.0, 4.0 GiB; the driver has CUDA 12.0" out || complain "the report does not know the GPU"
grep -q "SHOAL_ACCELERATOR=cuda chooses it" out || complain "the report does not say how the GPU is chosen"
grep -q "cuda  *found, comes first; cuBLASLt 13.1.0" out || complain "the report does not know the library of products"

# BERT, with dropout and masked samples.
SHOAL_ACCELERATOR=cpu SHOAL_OPS=ref "$shoal" pretrain bert "${flags[@]:2}" --save cpubert >out 2>&1 || complain "cpu, BERT: $(cat out)"
"$shoal" pretrain bert "${flags[@]:2}" --save onebert >out 2>&1 || complain "BERT: $(cat out)"
"$shoal" diff cpubert onebert >out 2>&1 && grep -q "^equal: every bit of every tensor" out || complain "cpu and cuda, BERT: $(tail -n 2 out)"

# bf16: products by cuBLASLt, whose workspace the plan has, with sums as integers through it. Unlike libraries stop the job.
sed -i 's/"steps_per_print"/"bf16": {"enabled": true}, &/' config.json
SHOAL_ACCELERATOR=cpu SHOAL_OPS=ref "$shoal" "${flags[@]}" --save cpu16 >out 2>&1 || complain "cpu, bf16: $(cat out)"
"$shoal" "${flags[@]}" --save one16 >out 2>&1 || complain "bf16: $(cat out)"
planned=$(sed -n 's/^memory: planned \(.*\), used \(.*\), peak.*/\1=\2/p' out)
[ "${planned%=*}" = "${planned#*=}" ] && grep -q "planned 3[23]\.[0-9] MiB" out || complain "the plan has no workspace: $planned"
"$shoal" diff cpu16 one16 >out 2>&1 && grep -q "^equal: every bit of every tensor" out || complain "cpu and cuda, bf16: $(tail -n 2 out)"
code=0
# shellcheck disable=SC2016
"$shoal" run --no_local_rank --num_gpus 2 sh -c 'SHOAL_EMULATOR_BLAS=$((130100 + LOCAL_RANK)) exec "$@"' sh "$shoal" "${flags[@]}" >out 2>&1 || code=$?
[ $code -ne 0 ] && grep -q "different kernels (rank [01]: cuda, cuBLASLt 13.1.[01], choices [0-9a-f]*" out || complain "unlike libraries: $code, $(cat out)"
# refused CODE TEXT: with the environment as it is
refused() {
    local code=0
    "$shoal" "${flags[@]}" >out 2>&1 || code=$?
    [ $code -eq "$1" ] && grep -qF -- "$2" out || complain "ended with $code, not $1, or without \"$2\": $(cat out)"
}
# No other kernel steps in for a call of the library that failed: it has other bits.
for call in cublasLtCreate cublasLtMatmulDescCreate cublasLtMatmulDescSetAttribute:7 cublasLtMatrixLayoutCreate:40 \
    cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceSetAttribute:3 cublasLtMatmulAlgoGetHeuristic cublasLtMatmul:30; do
    SHOAL_EMULATOR_FAIL=$call=13 refused 1 "cuBLASLt gave status 13 for a product of "
done
sed -i 's/"bf16": {"enabled": true}, //' config.json

# Products and attention by tensor cores: other bits than a CPU's, and the same ones on one rank, two ranks and two stages.
sed 's/"reduction"/"bf16": {"enabled": true}, "reduction"/' config.json >short.json
short=("${flags[@]}" --deepspeed_config short.json --hidden-size 128 --seq-length 70 --train-iters 2)
"$shoal" "${short[@]}" --save short.one >out 2>&1 || complain "bf16, one rank: $(cat out)"
"$shoal" run --num_gpus 2 "$shoal" "${short[@]}" --save short.two >out 2>&1 || complain "bf16, two ranks: $(cat out)"
"$shoal" run --num_gpus 2 "$shoal" "${short[@]}" --pipeline-model-parallel-size 2 --save short.stages >out 2>&1 ||
    complain "bf16, two stages: $(cat out)"
for other in two stages; do
    "$shoal" diff short.one short.$other >out 2>&1 && grep -q "^equal: every bit of every tensor" out ||
        complain "bf16, one rank and $other: $(tail -n 2 out)"
done

SHOAL_EMULATOR_CAPABILITY=75 refused 2 "has capability 7.5 and 8.0 is the least"
SHOAL_EMULATOR_FAIL=cuLibraryLoadData=222 refused 2 "accelerator cuda has no kernels: the GPU's driver: cuLibraryLoadData gave CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"
SHOAL_EMULATOR_FAIL=cuLaunchKernelEx:20=719 refused 1 "CUDA_ERROR_LAUNCH_FAILED (719): a kernel failed"
SHOAL_EMULATOR_FAIL=cuStreamWaitValue32_v2=700 refused 1 "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
code=0
SHOAL_EMULATOR_BYTES=800000 "$shoal" "${flags[@]}" --ignore-plan >out 2>&1 || code=$?
[ $code -eq 1 ] && grep -q "the plan counts [0-9.]* KiB of the device's memory and .* of the host's: .*cuda: no memory for [0-9]* bytes" out ||
    complain "out of memory, $code: $(cat out)"
CUDA_VISIBLE_DEVICES='' refused 2 "the driver shows no GPU"
SHOAL_CUDA_DRIVER=/nowhere/libcuda.so refused 2 "SHOAL_CUDA_DRIVER=/nowhere/libcuda.so: "
SHOAL_CUDA_BYTES=few refused 2 "SHOAL_CUDA_BYTES='few' is not a number of bytes"
SHOAL_CUDA_BYTES=100000 refused 2 "the plan does not fit: this rank needs "
SHOAL_ACCELERATOR=cudda refused 2 "did you mean 'cuda'"
finish
