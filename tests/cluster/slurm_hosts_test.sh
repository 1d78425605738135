#!/usr/bin/env bash
# Slurm with three hosts: a slurmctld, and a slurmd in the network of each (hosts.sh, slurm.sh). srun, salloc, sbatch and
# `shoal run --launcher slurm` train on 2 x 2 ranks to the bits of one rank; a host that is gone is a verdict; the elastic
# agent restarts steps on the nodes that are left, with the bytes of an undisturbed run.
# Usage: [SHOAL_TEST_FULL=1] [SHOAL_TEST_SEED=N] slurm_hosts_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/slurm.sh"
. "$(dirname "$0")/elastic.sh"
need_slurm
begin_hosts bash "$0" "$@"
shoal=$(readlink -f "$1")
for variable in $(compgen -e | grep -E '^(SHOAL_|SLURM|MASTER_|PMI)' | grep -vE '^SHOAL_(HOSTS_INSIDE|TEST_)'); do unset "$variable"; done
unset RANK WORLD_SIZE LOCAL_RANK DEEPSPEED_ELASTICITY_CONFIG
cd "$folder" || exit 1
folder=$PWD
start_hosts 3
# a node that is down for good is not one that is back in a moment
SLURMD_TIMEOUT=60 start_slurm 3
begin_training
# no process of a training of this folder is left
gone() {
    local tries left
    for tries in $(seq 1200); do
        left=$(grep -lzx -- "$2" /proc/[0-9]*/cmdline 2>/dev/null)
        [ -z "$left" ] && return
        sleep 0.05
    done
    complain "$1 left $left"
}
cat >show.sh <<'SCRIPT'
#!/bin/sh
echo "<$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE $CROSS_RANK/$CROSS_SIZE $(hostname) $MASTER_ADDR>"
SCRIPT
chmod +x show.sh
by_slurm=("$shoal" run --launcher slurm)

# ---- who is which rank ----
# in an allocation without a hostfile: its nodes, with the tasks that it has on each
expect 0 salloc -Q -N 2 --ntasks-per-node=2 "${by_slurm[@]}" ./show.sh
says "<0/4 0/2 0/2 worker-0 worker-0>" "<1/4 1/2 0/2 worker-0 " "<2/4 0/2 1/2 worker-1 worker-0>" "<3/4 1/2 1/2 worker-1 "
# a hostfile counts in its own order, with as many ranks as each host has slots, inside of an allocation and without one
printf 'worker-2 slots=1\nworker-0 slots=2\n' >hosts
for around in "salloc -Q -N 3 --ntasks-per-node=2" ""; do
    expect 0 $around "${by_slurm[@]}" -H hosts ./show.sh
    says "<0/3 0/1 0/2 worker-2 worker-2>" "<1/3 0/2 1/2 worker-0 worker-2>" "<2/3 1/2 1/2 worker-0 worker-2>"
done
expect 2 salloc -Q -N 2 "${by_slurm[@]}" --num_nodes 3 true
says "--num_nodes 3: the allocation has the nodes SLURM_JOB_NODELIST=worker-[0-1]"

# ---- the bits of one rank ----
[ -e "$(dirname "$(dirname "$shoal")")/lib/libshoal_ucx.so" ] || skip "this build has no UCX"
expect 0 $(training alone)
# UCX needs nothing of Slurm
export SHOAL_COMM=ucx
expect 0 "${by_slurm[@]}" --num_nodes 2 --num_gpus 2 $(training launched)
same alone launched
expect 0 salloc -Q -N 2 --ntasks-per-node=2 "${by_slurm[@]}" $(training allocated)
same alone allocated
cat >job.sh <<SCRIPT
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2 --output=batch.out
${by_slurm[*]} $(training batch)
SCRIPT
expect 0 sbatch --wait job.sh
same alone batch
# as many ranks on each node as it has slots
printf 'worker-2 slots=1\nworker-0 slots=2\nworker-1 slots=1\n' >uneven
expect 0 "${by_slurm[@]}" -H uneven $(training uneven_nodes)
same alone uneven_nodes
"${by_slurm[@]}" -H uneven $(training uneven_kill 1000000) >out 2>&1 </dev/null &
job=$!
for tries in $(seq 1200); do grep -q "^step " out && break; sleep 0.05; done
begin=$(now_ms)
kill -9 $(grep -lzx RANK=3 $(grep -lzx uneven_kill /proc/[0-9]*/cmdline | sed 's|cmdline|environ|') | cut -d/ -f3)
code=0
wait $job || code=$?
[ $code -eq 137 ] && grep -q "rank 3 (worker-1, pid [0-9]*) was killed by signal 9" out || complain "a rank on uneven nodes: $code: $(tail -n 5 out)"
within 10 "$begin" "a killed rank on uneven nodes"
gone "a killed rank on uneven nodes" uneven_kill
await_nodes
unset SHOAL_COMM
# srun itself, over the network: with Open MPI's plug-in and PMIx, with MPICH's and PMI-2, where both are there
for by in openmpi:pmix mpich:pmi2; do
    if [ ! -e "$(dirname "$(dirname "$shoal")")/lib/libshoal_mpi_${by%:*}.so" ] || ! srun --mpi=list 2>&1 | grep -q "${by#*:}"; then
        echo "no plug-in for ${by%:*}, or Slurm has no ${by#*:}: not tested"
        continue
    fi
    SHOAL_MPI=${by%:*} expect 0 srun --mpi="${by#*:}" -N 2 -n 4 --ntasks-per-node=2 $(training "direct_${by%:*}")
    says "ranks: 4 of " "connected by"
    grep -m1 "ranks: 4 of " <<<"$output"
    same alone "direct_${by%:*}"
done
export SHOAL_COMM=ucx

# ---- how a job ends ----
: >out
# scancel of the whole allocation
"${by_slurm[@]}" --num_nodes 2 --num_gpus 2 $(training cancelled 1000000) >out 2>&1 </dev/null &
job=$!
for tries in $(seq 1200); do grep -q "^step " out && break; sleep 0.05; done
scancel "$(squeue -h -o %i)"
code=0
wait $job || code=$?
[ $code -eq 143 ] && grep -q "the job was cancelled by Slurm (scancel)" out || complain "scancel: $code: $(tail -n 5 out)"
gone scancel cancelled
# a host: its slurmd and all that it started are killed; its link is cut. The slowest run on a busy machine took 5.6 s.
for fault in kill link; do
    # a node may still be occupied with the end of its last job: it is waited for, lest another one is taken
    salloc -Q --no-kill -N 2 -w worker-0,worker-1 --ntasks-per-node=2 "${by_slurm[@]}" $(training $fault 1000000) >out 2>&1 </dev/null &
    job=$!
    for tries in $(seq 1200); do grep -q "^step " out && break; sleep 0.05; done
    if ! grep -q "^step " out; then
        complain "$fault: no training: $(tail -n 5 out; squeue -h -o '%i %T %r'; sinfo -N -h -o '%N %T')"
        scancel "$(squeue -h -o %i)"
        wait $job
        continue
    fi
    begin=$(now_ms)
    if [ $fault = kill ]; then kill_slurmd 1; else cut_host 1; fi
    code=0
    wait $job || code=$?
    [ $code -ne 0 ] || complain "$fault: the job ended with 0"
    within 30 "$begin" "a host that is gone ($fault)"
    # ranks that lose their connections to those of the host may be first to tell
    grep -qE "host worker-1 does not answer|why: .*rank [23] " out || complain "$fault: no verdict: $(tail -n 5 out)"
    grep -E "^\[shoal run\] (host|rank)" out | sed 's/^/  /'
    # nothing that a host without a network has started waits for it
    gone "$fault, before the node is back" $fault
    if [ $fault = kill ]; then start_slurmd 1; else mend_host 1; fi
    gone "$fault" $fault
    await_nodes || complain "$fault: the node does not come back: $(sinfo -N -h -o '%N %T' | tr '\n' ' ')"
done
# srun cannot start its step on a node that Slurm does not miss yet; the slowest run took 6.6 s
printf 'worker-0 slots=2\nworker-1 slots=2\n' >hosts
cut_host 1
begin=$(now_ms)
expect 1 "${by_slurm[@]}" -H hosts --no_local_rank sleep 60
within 35 "$begin" "a start on a host that is gone"
says "Slurm cannot start ranks on node worker-1 (Communication connection failure): see \`scontrol show node worker-1\`"
mend_host 1
await_nodes || complain "the node does not come back: $(sinfo -N -h -o '%N %T' | tr '\n' ' ')"

# ---- the elastic agent ----
: >out
expect 2 "${by_slurm[@]}" --elastic_training true --deepspeed_config config.json
says "start it in an allocation that outlives its nodes (salloc --no-kill, sbatch --no-kill)"
begin_elastic
steps=1200
undisturbed
salloc -Q --no-kill -N 3 --ntasks-per-node=2 "${by_slurm[@]}" --elastic_training --restart_backoff 0 $(train disturbed) >out 2>&1 </dev/null &
job=$!
gone_host=
for ((hits = 1; hits <= kills; hits++)); do
    await_ranks || break
    nap $hits
    if [ $((hits % 2)) = 1 ]; then
        kill_rank
    elif [ -z "$gone_host" ]; then
        gone_host=$((RANDOM % 3))
        echo "  worker-$gone_host goes"
        seen=$(starts)
        kill_slurmd $gone_host
    else
        come_back start_slurmd $gone_host
        gone_host=
    fi
done
ends_equal $job $((kills * 3 / 4))
finish
