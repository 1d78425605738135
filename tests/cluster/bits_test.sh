#!/usr/bin/env bash
# A GPT on 2 hosts x 2 ranks leaves, in exact mode, the bits of one rank: with ssh, Open MPI and MPICH, ZeRO 0 to 3.
# Without SHOAL_TEST_FULL each backend trains with two of the stages.
# Usage: bits_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
begin_hosts bash "$0" "$@"
. "$(dirname "$0")/job.sh"
begin_job "$1"
for stage in 0 1 2 3; do sed "s/\"stage\": 1/\"stage\": $stage/" config.json >stage$stage.json; done
gpt() { # STAGE FOLDER: the words of the training
    echo "$shoal pretrain gpt --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --threads 1
        --data-path text --tokenizer-type char --eval-iters 0 --train-iters 6 --deepspeed_config stage$1.json --save $2"
}
# shellcheck disable=SC2046
expect 0 $(gpt 0 one)
backends=("ssh 0" "ssh 3" "openmpi 1" "openmpi 2")
[ -z "${SHOAL_TEST_FULL:-}" ] || backends=("ssh "{0..3} "openmpi "{0..3} "mpich "{0..3} "pdsh "{0..3})
same=0
for line in "${backends[@]}"; do
    where=${line% *} stage=${line#* }
    why=$(cannot "$where" none)
    [ -z "$why" ] || { echo "$where: not tested: $why" && continue; }
    rm -rf many
    touch mark
    in_folder >before
    PROGRAM=$(gpt "$stage" many) start "$where"
    await_job "$(now_ms)" 60
    [ "$code" = 0 ] || complain "$where, stage $stage: ended with $code: $(shown)"
    count=0
    for file in one/global_step6/*.safetensors; do
        cmp -s "$file" "many/global_step6/${file##*/}" || complain "$where, stage $stage: ${file##*/} differs from that of one rank"
        count=$((count + 1))
    done
    [ $count -gt 0 ] || complain "one rank has saved nothing that could be compared"
    left=$(gone 10) || complain "$where, stage $stage left: $left"
    same=$((same + 1))
done
echo "$same trainings on two hosts"
finish
