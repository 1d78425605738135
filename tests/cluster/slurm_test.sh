#!/usr/bin/env bash
# Ranks that Slurm starts: a slurmctld and a slurmd of the test's own (slurm.sh); srun and `shoal run --launcher slurm`
# train to the bits of one rank.
# Usage: slurm_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/slurm.sh"
begin_here "$@"

# ---- the bits of one rank ----
expect 0 $(training alone)
expect 0 srun -n 4 $(training direct)
says "ranks: 4 of srun, connected by shm"
same alone direct
run=("$shoal" run --launcher slurm --num_nodes 1 --num_gpus 4)
expect 0 "${run[@]}" $(training launched)
same alone launched
# in an allocation, whose numbers count
expect 0 salloc -Q -n 2 "$shoal" run --launcher slurm --num_gpus 2 \
    sh -c 'echo "<$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE $CROSS_RANK/$CROSS_SIZE ${#SHOAL_SECRET} $*>"' sh "it's  100%"
says "<0/2 0/2 0/1 64 --local_rank=0 it's  100%>" "<1/2 1/2 0/1 64 --local_rank=1 it's  100%>"
# a script for sbatch, as docs/CLUSTER.md has it
cat >job.sh <<SCRIPT
#!/bin/bash
#SBATCH --ntasks-per-node=4 --nodes=1 --output=batch.out
srun $(training batch)
SCRIPT
expect 0 sbatch --wait job.sh
same alone batch
finish
