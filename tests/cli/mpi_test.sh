#!/usr/bin/env bash
# Training started by mpirun: connected by shm and by MPI, with the bits of other backends; a rank that fails; mistakes;
# and the examples of programs of MPI.
# Usage: mpi_test.sh SHOAL SOURCE openmpi|mpich "PLUGINS BUILT" LIBSHOAL.so
. "$(dirname "$0")/check.sh"
unset SHOAL_COMM SHOAL_LOG SHOAL_OPS SHOAL_ACCELERATOR DS_ACCELERATOR SHOAL_FAULT SHOAL_MPI MASTER_PORT
shoal=$1 source=$2 mpi=$3 plugins=$4 library=$5
run="$source/tests/mpi/run"
[ -z "$SANITIZE" ] || { echo "skipped: an MPI has memory of its own that sanitizers do not understand" && exit 77; }
"$run" "$mpi" 1 "$plugins" true || exit 77
ranks() { "$run" "$mpi" "$1" "$plugins" "${@:2}"; }
[ "$mpi" = openmpi ] && title="Open MPI" || title=MPICH
cd "$folder" || exit 1
head -c 20000 "$source/docs/TUTORIAL.md" >text.txt
for reduction in exact fast; do
    cat >"$reduction.json" <<JSON
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
 "reduction": "$reduction", "zero_optimization": {"stage": 2}, "seed": 3}
JSON
done
train() { # REDUCTION SAVE
    echo "$shoal" pretrain gpt --deepspeed_config "$1.json" --data-path text.txt --num-layers 2 --hidden-size 64 \
        --num-attention-heads 4 --seq-length 32 --train-iters 4 --save "$2"
}
same() { # DIR DIR
    local name
    for name in "$1"/global_step4/*.safetensors; do
        cmp "$name" "$2/global_step4/${name##*/}" || complain "$1 and $2 differ"
    done
}

# by shm, because all ranks are here; by MPI when asked, and then by its messages alone when that is asked, too
expect 0 ranks 4 $(train exact by_shm)
says "ranks: 4 of mpirun of $title, connected by shm"
SHOAL_COMM=mpi expect 0 ranks 4 $(train exact by_both)
says "ranks: 4 of mpirun of $title, connected by hierarchical"
SHOAL_COMM=mpi SHOAL_HIERARCHICAL=0 expect 0 ranks 4 $(train exact by_mpi)
says "ranks: 4 of mpirun of $title, connected by mpi"
SHOAL_COMM=mpi SHOAL_HIERARCHICAL=0 expect 0 ranks 2 $(train exact by_two)
expect 0 $(train exact alone)
same by_shm by_both
same by_shm by_mpi
same by_shm by_two
same by_shm alone
# sums in rank order: those of fp32, too
expect 0 ranks 4 $(train fast fast_shm)
SHOAL_COMM=mpi SHOAL_HIERARCHICAL=0 expect 0 ranks 4 $(train fast fast_mpi)
same fast_shm fast_mpi
cmp -s by_shm/global_step4/model-00001-of-00001.safetensors fast_shm/global_step4/model-00001-of-00001.safetensors &&
    complain "exact and fast have the same weights: the comparison above sees nothing"

# a rank that fails takes the others along, with a sentence
SHOAL_COMM=mpi SHOAL_FAULT=comm.post:20@1 expect 1 ranks 4 $(train exact failed)
says "fault point comm.post: made to fail by SHOAL_FAULT"

# mistakes
SHOAL_COMM=mpi SHOAL_MPI=lam expect 2 ranks 2 $(train exact wrong)
says 'SHOAL_MPI="lam" is unknown: use openmpi or mpich'
SHOAL_COMM=mpi expect 2 "$shoal" run --num_gpus 2 --master_port 0 $(train exact wrong)
says "backend mpi needs ranks that mpirun or srun has started"
expect 2 ranks 2 sh -c 'WORLD_SIZE=3 exec "$@"' sh $(train exact wrong)
says "WORLD_SIZE is 3 and mpirun of $title has started 2 ranks"
expect 0 ranks 1 "$shoal" report
says "rank 0 of 1, started by mpirun of $title, connected by self" "$title"

# a program without its plug-ins
mkdir -p bare/bin && cp "$shoal" bare/bin/shoal
SHOAL_COMM=mpi expect 2 ranks 1 env RANK=0 WORLD_SIZE=2 $(train exact wrong | sed "s|^$shoal|$folder/bare/bin/shoal|")
says "the plug-in for $title does not load (libshoal_mpi_$mpi.so: " "Debian: lib$mpi-dev"
expect 0 bare/bin/shoal report
says "no plug-in loads (it is built where libopenmpi-dev or libmpich-dev"

# programs of MPI
if command -v "mpicc.$mpi" >/dev/null; then
    expect 0 "mpicc.$mpi" -std=c11 -Wall -Wextra -Werror -I "$source/include" "$source/examples/mpi/main.c" -o example \
        "$library" -Wl,-rpath,"$(dirname "$library")"
    for count in 1 2 4; do
        expect 0 ranks $count ./example
        echo "$output" >"example_$count"
        says "loss 0.00"
    done
    cmp example_1 example_4 || complain "the example's loss depends on the number of ranks"
    # MPI without threads: the program's own may train, a second one beside it is told
    build() { expect 0 "mpicc.$mpi" -I "$source/include" "$1.c" -o "$1" "$library" -Wl,-rpath,"$(dirname "$library")"; }
    sed 's/MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);/MPI_Init(\&argc, \&argv);/' \
        "$source/examples/mpi/main.c" >single.c
    sed 's/\\"stage\\": 2/\\"stage\\": 2, \\"overlap_comm\\": true/' single.c >overlap.c
    build single
    expect 0 ranks 2 ./single
    build overlap
    expect 0 ranks 2 ./overlap # the second thread stays in this machine's memory
    for _ in 1 2 3; do # MPICH's mpirun, told to abort, ends one time in forty before it has passed on what ranks have said
        SHOAL_HIERARCHICAL=0 expect 1 ranks 2 ./overlap
        [ -z "$output" ] || break
    done
    says "this program started $title without threads, and a second one of its threads uses the group"
fi
if command -v "mpif90.$mpi" >/dev/null && command -v gfortran >/dev/null; then
    expect 0 "mpif90.$mpi" -std=f2018 -Wall -Wextra -J "$folder" "$source/examples/fortran/shoal.f90" \
        "$source/examples/mpi/main.f90" -o fortran_example "$library" -Wl,-rpath,"$(dirname "$library")"
    expect 0 ranks 2 ./fortran_example
    says "step 60  loss ."
fi
finish
