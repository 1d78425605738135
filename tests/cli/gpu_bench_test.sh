#!/usr/bin/env bash
# `shoal bench` of an emulated GPU: what it prints, as text and as JSON, and what it refuses.  Usage: gpu_bench_test.sh SHOAL EMULATOR
. "$(dirname "$0")/check.sh"
shoal=$(realpath "$1") emulator=$(realpath "$2")
forget_job
export SHOAL_CUDA_DRIVER=$emulator SHOAL_ACCELERATOR=cuda
quick="--repeats 2 --seconds 0.01 --threads 1"
device="accelerator cuda, device 0: emulator, capability 9.0, driver with CUDA 12.0; emulated: its times mean nothing"

# figures COUNT: the last output's first line is the device; COUNT figures follow, each with its limit, behind the two limits
figures() {
    [ "$(grep -v '^\[shoal\]' <<<"$output" | head -n 1)" = "$device" ] || complain "the first line is not the device: $output"
    local found
    says "the device's copy of " "the device's product "
    found=$(grep -cE '^[A-Za-z].* (GFLOP/s|GB/s|tokens/s|ms).* % of [0-9.e+]+ \((product|copy).*(\(emulated\)|emulated)' <<<"$output")
    [ "$found" -eq "$1" ] || complain "$found figures with limits, not $1: $output"
}

expect 0 "$shoal" bench gemm --m 64 --n 48 --k 32 $quick
figures 1
says "product NN 64x48x32" " of 2)" "(product)  time " " us, input " " sets, memory " "of the copy "
for dtype in bf16 fp16; do
    expect 0 "$shoal" bench gemm --m 64 --n 48 --k 32 --trans-a --dtype $dtype $quick
    figures 1
    says "product TN 64x48x32" "the device's product "
done
expect 0 "$shoal" bench attention --batch 1 --heads 2 --kv-heads 1 --seq-length 33 --head-size 64 --dtype bf16 $quick
figures 2
says "forward B1 H2/1 T33 D64" "backward B1 H2/1 T33 D64"
expect 0 "$shoal" bench adam --count 5000 $quick
figures 2
expect 0 "$shoal" bench stream --count 16384 $quick
figures 18
says "reduce_sources 2 to 2 " "random_fill " "runs on the host, with copies from and to the device: not timed" "norm 21x768" "cross entropy 2x8192" "gated silu" "rotary" "embedding gradient"
[ "$(grep -c ': not timed$' <<<"$output")" -eq 2 ] || complain "not two kernels of the host: $output"
model="--model tiny --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 8 --micro-batch 2"
expect 0 "$shoal" bench step $model --dtype bf16 $quick
figures 1
says "2x8 tokens, BF16, 1 rank of 1 thread" "(product / FLOPs per token)" "by the host's clock " "copy "
[[ $output != *"forward "* ]] || complain "the host's times of queueing are printed: $output"
expect 0 "$shoal" run --master_port 0 --num_gpus 2 "$shoal" bench step $model $quick
figures 1
says "4x8 tokens, F32, 2 ranks of 1 thread"
# ... by the flag, without the variable; and cpu by the flag
SHOAL_ACCELERATOR='' expect 0 "$shoal" bench adam --count 5000 --accelerator cuda $quick
figures 2
expect 0 "$shoal" bench adam --count 5000 --accelerator cpu $quick
says "(axpy)"
[[ $output != *emulat* ]] || complain "the cpu is taken for a GPU: $output"

# JSON: a line for the device, then one for each figure
expect 0 "$shoal" bench stream --count 16384 --json $quick
[ "$(head -n 1 <<<"$output")" = '{"accelerator": "cuda", "bench": "stream", "device": 0, "card": "emulator", "capability": "9.0", "driver": "CUDA 12.0", "emulated": true}' ] ||
    complain "the first line of JSON: $(head -n 1 <<<"$output")"
number='-?[0-9.]+(e[-+][0-9]+)?'
good=$(grep -cE "^\\{\"bench\": \"stream\", \"name\": \"[^\"]+\", \"unit\": \"GB/s\", \"median\": $number, \"min\": $number, \"max\": $number, \"repeats\": 2, \"limit_name\": \"copy\", \"limit\": $number, \"ratio\": $number, \"values\": \\{\"time\": \\{\"value\": $number, \"unit\": \"us\"\\}, \"input\": \\{\"value\": $number, \"unit\": \"sets\"\\}\\}, \"emulated\": true\\}\$" <<<"$output")
[ "$good" -eq 18 ] || complain "$good figures of JSON, not 18: $output"
[ "$(grep -c '"median": null, "untimed": "runs on the host' <<<"$output")" -eq 2 ] || complain "kernels of the host: $output"
[ "$(wc -l <<<"$output")" -eq 23 ] || complain "not 23 lines: $output"

# refused TEXT WORDS...: one sentence, exit code 2
refused() {
    local text=$1
    shift
    expect 2 "$shoal" bench "$@"
    says "$text"
    [ "$(wc -l <<<"$output")" -le 2 ] || complain "more than a sentence: $output"
}
refused "--device is 1, and accelerator cuda has 1: give a number from 0 to 0" gemm --device 1 $quick
refused "--dtype" gemm --dtype fp8 $quick
refused "unknown set \"huge\"" gemm --set huge $quick
refused "give --m, --n and --k" gemm --m 4 $quick
refused "exceeds any memory" gemm --m 1000000000 --n 1000000000 --k 1000000000
refused "no packed layout for F32: leave --prepacked out" gemm --m 64 --n 48 --k 32 --prepacked $quick
refused "is not divisible by --kv-heads 3" attention --batch 1 --heads 4 --kv-heads 3 --seq-length 8 --head-size 4 $quick
refused "bench stream: --count is 8191: give at least 8192" stream --count 8191 $quick
SHOAL_EMULATOR_CAPABILITY=75 refused "has capability 7.5 and 8.0 is the least" gemm $quick
CUDA_VISIBLE_DEVICES='' refused "the driver shows no GPU" attention $quick
SHOAL_CUDA_DRIVER=/nowhere/libcuda.so refused "SHOAL_CUDA_DRIVER=/nowhere/libcuda.so: " stream $quick
expect 1 env SHOAL_EMULATOR_FAIL=cuEventElapsedTime:4=700 "$shoal" bench gemm --m 64 --n 48 --k 32 $quick
says "CUDA_ERROR_ILLEGAL_ADDRESS"
finish
