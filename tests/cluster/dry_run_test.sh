#!/usr/bin/env bash
# What `shoal run --dry-run` prints for each launcher, word by word; and what users do wrong.
# Usage: dry_run_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
shoal=$(readlink -f "$1")
cd "$folder" || exit 1
folder=$PWD
mkdir home
printf '# four and two\nworker-0 slots=4\nworker-1 slots=2\n' >hosts
printf 'worker-0 slots=2\nworker-1 slots=2\n' >even

# clean FLAGS...: in an environment of which nothing is exported but what the test sets
clean() { env -i PATH="$PATH" HOME="$folder/home" "${set[@]}" "$shoal" run "$@"; }
# prints FLAGS... <<TEXT: exactly this, with the names of this build, folder and job replaced
prints() {
    local wanted got
    wanted=$(cat)
    got=$(clean --dry-run --master_port 29500 "$@" 2>&1 </dev/null |
        sed -e "s|$shoal|SHOAL|g" -e "s|$folder|FOLDER|g" -e 's/[0-9]*\.0\.[0-9a-f]\{8\}/JOB/g')
    [ "$got" = "$wanted" ] || complain "$* prints
$got
instead of
$wanted"
}

set=()
prints -H hosts --launcher ssh ./train.sh --lr 1e-3 "it's" <<'TEXT'
# on standard input of each: the job's secret
ssh -oBatchMode=yes -oConnectTimeout=10 -oServerAliveInterval=5 -T worker-0 'cd FOLDER && exec SHOAL run --world_info=worker-0:0,1,2,3@worker-1:0,1 --node_rank=0 --master_addr=worker-0 --master_port=29500 --job_id=JOB --secret_from=stdin ./train.sh --lr 1e-3 '\''it'\'''\\''\'''\''s'\'''
ssh -oBatchMode=yes -oConnectTimeout=10 -oServerAliveInterval=5 -T worker-1 'cd FOLDER && exec SHOAL run --world_info=worker-0:0,1,2,3@worker-1:0,1 --node_rank=1 --master_addr=worker-0 --master_port=29500 --job_id=JOB --secret_from=stdin ./train.sh --lr 1e-3 '\''it'\'''\\''\'''\''s'\'''
TEXT
# the user's flags of ssh come before ours, flags of the job go to every host
prints -H hosts --launcher ssh --launcher_args '-i "my key" -4' --ssh_port 2222 --include worker-1:1 --master_addr 10.0.0.7 \
    --venv_script env/activate --no_local_rank --save_pid --enable_each_rank_log logs --bind_core_list 0-3 \
    --grace_period 60 --quiet train <<'TEXT'
# on standard input of each: the job's secret
ssh -i 'my key' -4 -p2222 -oBatchMode=yes -oConnectTimeout=10 -oServerAliveInterval=5 -T worker-1 '. env/activate && cd FOLDER && exec SHOAL run --world_info=worker-1:1 --node_rank=0 --master_addr=10.0.0.7 --master_port=29500 --job_id=JOB --secret_from=stdin --no_local_rank --save_pid --enable_each_rank_log=logs --bind_core_list=0-3 --grace_period=60 --log_level=error train'
TEXT
# a host that is this machine needs no ssh
prints --force_multi --launcher ssh --num_gpus 2 train <<'TEXT'
# on standard input of each: the job's secret
SHOAL run --world_info=localhost:0,1 --node_rank=0 --master_addr=127.0.0.1 --master_port=29500 --job_id=JOB --secret_from=stdin train
TEXT
prints --force_multi --launcher ssh --module package.train --lr 1e-3 <<'TEXT'
# on standard input of each: the job's secret, PYTHONPATH
SHOAL run --world_info=localhost:0 --node_rank=0 --master_addr=127.0.0.1 --master_port=29500 --job_id=JOB --secret_from=stdin python3 -u -m package.train --lr 1e-3
TEXT
prints -H hosts --launcher pdsh --num_gpus 1 --ssh_port 2222 --launcher_args=-N train '100%' <<'TEXT'
# left on each host by the pre-flight: the job's secret
PDSH_RCMD_TYPE=ssh PDSH_SSH_ARGS_APPEND='-p2222 -oBatchMode=yes -oConnectTimeout=10 -oServerAliveInterval=5' pdsh -S -f1024 -w worker-0,worker-1 -N 'cd FOLDER && exec SHOAL run --world_info=worker-0:0@worker-1:0 --node_rank=%n --master_addr=worker-0 --master_port=29500 --job_id=JOB --secret_from=deposit train 100%%'
TEXT
prints -H hosts --launcher openmpi --exclude worker-0:0 --launcher_args '--mca btl_tcp_if_include eth1' train -x <<'TEXT'
# in its environment, too: SHOAL_SECRET
SHOAL_JOB_ID=JOB mpirun -n 5 --host worker-0:3,worker-1:2 --map-by slot --bind-to none --mca btl '^openib' --mca btl_tcp_if_include eth1 -x SHOAL_JOB_ID -x SHOAL_SECRET -wdir FOLDER SHOAL run --rank_of=openmpi --world_info=worker-0:1,2,3@worker-1:0,1 --master_addr=worker-0 --master_port=29500 train -x
TEXT
prints -H hosts --launcher MPICH train <<'TEXT'
# in its environment, too: SHOAL_SECRET
SHOAL_JOB_ID=JOB mpirun -n 6 -hosts worker-0:4,worker-1:2 -genvlist SHOAL_JOB_ID,SHOAL_SECRET -wdir FOLDER SHOAL run --rank_of=mpich --world_info=worker-0:0,1,2,3@worker-1:0,1 --master_addr=worker-0 --master_port=29500 train
TEXT
prints -H hosts --launcher mvapich --num_nodes 1 train <<'TEXT'
# in its environment, too: SHOAL_SECRET
MV2_SMP_USE_CMA=0 MV2_DEBUG_SHOW_BACKTRACE=1 MV2_SUPPORT_DL=1 MV2_ENABLE_AFFINITY=0 MV2_INTER_ALLGATHER_TUNING=5 SHOAL_JOB_ID=JOB mpirun -np 4 -hosts worker-0:4 -genvlist MV2_SMP_USE_CMA,MV2_DEBUG_SHOW_BACKTRACE,MV2_SUPPORT_DL,MV2_ENABLE_AFFINITY,MV2_INTER_ALLGATHER_TUNING,SHOAL_JOB_ID,SHOAL_SECRET -wdir FOLDER SHOAL run --rank_of=mvapich --world_info=worker-0:0,1,2,3 --master_addr=worker-0 --master_port=29500 train
TEXT
prints -H hosts --launcher impi --num_gpus 1 train <<'TEXT'
# in its environment, too: SHOAL_SECRET
I_MPI_PIN=0 SHOAL_JOB_ID=JOB mpirun -genvlist I_MPI_PIN,SHOAL_JOB_ID,SHOAL_SECRET -host worker-0 -n 1 -wdir FOLDER -env RANK 0 -env LOCAL_RANK 0 SHOAL run --rank_of=impi --world_info=worker-0:0@worker-1:0 --master_addr=worker-0 --master_port=29500 train : -host worker-1 -n 1 -wdir FOLDER -env RANK 1 -env LOCAL_RANK 0 SHOAL run --rank_of=impi --world_info=worker-0:0@worker-1:0 --master_addr=worker-0 --master_port=29500 train
TEXT
prints -H even --launcher slurm --launcher_args '--comment="a b"' train <<'TEXT'
# in its environment, too: SHOAL_SECRET
SHOAL_JOB_ID=JOB srun -n 4 --nodes=2 --distribution=arbitrary --nodelist=worker-0,worker-0,worker-1,worker-1 --kill-on-bad-exit=1 '--comment=a b' --chdir=FOLDER --export=ALL SHOAL run --rank_of=slurm --world_info=worker-0:0,1@worker-1:0,1 --master_addr=worker-0 --master_port=29500 train
TEXT
prints --launcher slurm --num_nodes 3 --num_gpus 2 train <<'TEXT'
# in its environment, too: SHOAL_SECRET
SHOAL_JOB_ID=JOB srun -n 6 --nodes=3 --ntasks-per-node=2 --kill-on-bad-exit=1 --chdir=FOLDER --export=ALL SHOAL run --rank_of=slurm --master_port=29500 train
TEXT

# uneven hosts, in the order of the file; nodes of an allocation, with its tasks
prints -H hosts --launcher slurm --exclude worker-0:1 --save_pid train <<'TEXT'
# in its environment, too: SHOAL_SECRET
SHOAL_JOB_ID=JOB srun -n 5 --nodes=2 --distribution=arbitrary --nodelist=worker-0,worker-0,worker-0,worker-1,worker-1 --kill-on-bad-exit=1 --chdir=FOLDER --export=ALL SHOAL run --rank_of=slurm --world_info=worker-0:0,2,3@worker-1:0,1 --master_addr=worker-0 --master_port=29500 train
TEXT
set=(SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n[08-10] SLURM_NNODES=3 SLURM_NTASKS=6 "SLURM_TASKS_PER_NODE=2(x3)")
prints --launcher slurm train <<'TEXT'
# in its environment, too: SHOAL_SECRET
SHOAL_JOB_ID=JOB srun -n 6 --nodes=3 --ntasks-per-node=2 --distribution=block --nodelist=n08,n09,n10 --kill-on-bad-exit=1 --chdir=FOLDER --export=ALL SHOAL run --rank_of=slurm --world_info=n08:0,1@n09:0,1@n10:0,1 --master_port=29500 train
TEXT
set=()

# ---- which variables go along ----
printf 'FROM_HOME=1\nNCCL_DEBUG=home\n' >home/.deepspeed_env
printf '# ours\n\nFROM_HERE = a b, c\nUCX_TLS=tcp\n' >.shoal_env
set=(NCCL_DEBUG=INFO UCX_TLS=all SHOAL_LOG=info SHOAL_SECRET=0123456789abcdef SHOAL_JOB_ID=1 PRIVATE=x)
prints -H even --launcher openmpi train <<'TEXT'
# in its environment, too: SHOAL_SECRET
NCCL_DEBUG=home UCX_TLS=tcp SHOAL_LOG=info FROM_HOME=1 FROM_HERE='a b, c' SHOAL_JOB_ID=JOB mpirun -n 4 --host worker-0:2,worker-1:2 --map-by slot --bind-to none --mca btl '^openib' -x NCCL_DEBUG -x UCX_TLS -x SHOAL_LOG -x FROM_HOME -x FROM_HERE -x SHOAL_JOB_ID -x SHOAL_SECRET -wdir FOLDER SHOAL run --rank_of=openmpi --world_info=worker-0:0,1@worker-1:0,1 --master_addr=worker-0 --master_port=29500 train
TEXT
expect 0 clean --dry-run -H even --launcher ssh train
says "secret, NCCL_DEBUG, UCX_TLS, SHOAL_LOG, FROM_HOME, FROM_HERE"
case $output in *home*FROM*exec* | *0123456789abcdef* | *"a b, c"*) complain "values on a command line: $output" ;; esac
# Python programs find modules of the current folder; on Azure's AISC devices are each host's own
rm .shoal_env home/.deepspeed_env
set=(PYTHONPATH=/lib/a UCX_NET_DEVICES=mlx5_0 NCCL_IB_HCA=mlx5 UCX_TLS=tcp AISC_JOB_NAME=x)
prints -H even --launcher openmpi --num_nodes 1 python3 train.py <<'TEXT'
# in its environment, too: SHOAL_SECRET
PYTHONPATH=FOLDER:/lib/a UCX_TLS=tcp SHOAL_JOB_ID=JOB mpirun -n 2 --host worker-0:2 --map-by slot --bind-to none --mca btl '^openib' -x PYTHONPATH -x UCX_TLS -x SHOAL_JOB_ID -x SHOAL_SECRET -wdir FOLDER SHOAL run --rank_of=openmpi --world_info=worker-0:0,1 --master_addr=worker-0 --master_port=29500 python3 train.py
TEXT
echo 'NOT A VARIABLE' >.shoal_env
expect 2 clean --dry-run -H even train
says '.shoal_env:1: "NOT A VARIABLE" sets no variable: write lines such as NAME=value'
rm .shoal_env
set+=(DS_ENV_FILE="$folder/mine")
printf 'A=1\n1B=2\n' >mine
expect 2 clean --dry-run -H even train
says 'mine:2: "1B" is not the name of a variable'
set=()

# ---- mistakes ----
expect 2 clean --dry-run -H hosts --launcher ssh --launcher_args "-o 'x" train
says "--launcher_args \"-o 'x\": a quote or a backslash at its end is open"
expect 2 clean --dry-run -H hosts --num_nodes 3 train
says "--num_nodes 3: hostfile hosts names only 2"
expect 2 clean -H hosts --include worker-0 --num_gpus 2 train
says "do not give --num_gpus or --num_nodes with them"
expect 2 clean -H hosts --no_ssh train
says "--no_ssh: give this host its number with --node_rank, from 0 to 1"
expect 2 clean -H hosts --no_ssh --node_rank 2 train
says "--node_rank 2: the job has 2 hosts: give each its number, from 0 to 1"
expect 2 clean -H hosts --no_ssh --node_rank 1 train
says "need one secret" "SHOAL_SECRET_FILE"
expect 2 env PATH=/nowhere HOME="$folder/home" "$shoal" run -H hosts --launcher pdsh train
says "--launcher pdsh: pdsh is not in PATH: install it, or take another launcher"
expect 2 clean --launcher slurm --include worker-0 train
says "--launcher slurm: --include and --exclude choose among the hosts of a hostfile"
# the hostfile: text behind the digits is ignored; every mistake has its line
printf '# mine\n\n  worker-0\tslots=4  rack 7 \n' >blanks
expect 0 clean --dry-run -H blanks --launcher ssh train
says "--world_info=worker-0:0,1,2,3 "
printf '#\n\n' >nobody
expect 2 clean -H nobody train
says "hostfile nobody names no host: write lines such as localhost slots=2"
printf 'worker-0 slots=2\n\nworker-0 slots=2\n' >twice
expect 2 clean -H twice train
says "twice:3: host worker-0 stands in line 1 already"
expect 2 clean -H hosts --include worker-0:4 train
says "worker-0 has no slot 4: hosts:2 gives it slots 0 to 3"
expect 2 clean -H hosts --exclude worker-1:2 train
says "worker-1 has no slot 2: hosts:3 gives it slots 0 to 1"
expect 2 clean -H hosts --include worker-2 train
says 'host "worker-2" is not in the hostfile hosts'
expect 2 clean -H hosts --include worker-0 --exclude worker-1 train
says "--include and --exclude exclude each other: give one"
expect 2 clean -H hosts --launcher torch train
says '"pdsh", "openmpi"' 'got "torch"'
expect 2 clean -H hosts --dry-run --autotuning tune train
says "leave --dry-run out"
for filter in "--include worker-1@worker-0:2,0=worker-0:0,2@worker-1:0,1" "--exclude worker-0@worker-1:0=worker-1:1" \
    "--include worker-0:1@worker-0:0=worker-0:0,1"; do
    expect 0 clean --dry-run -H hosts --launcher ssh ${filter%=*} train
    says "--world_info=${filter#*=} "
done
printf 'worker-0 slots=2\nworker-1 slot=2\n' >wrong
expect 2 clean -H wrong train
says 'wrong:2: "worker-1 slot=2" is no host'
expect 2 clean --rank_of openmpi --world_info worker-0:0 --master_addr a --master_port 1 true
says "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE do not say which rank this is"
expect 2 clean --world_info worker-0 --node_rank 0 true
says "--world_info worker-0 is neither what"
# an MPI launcher whose order is not the hostfile's
expect 2 env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "$shoal" run --rank_of openmpi \
    --world_info worker-0:0,1 --master_addr a --master_port 1 true
says "let it fill one host after the other"
expect 2 env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$shoal" run --rank_of openmpi --world_info worker-0:0,1,2 true
says "openmpi started 2 ranks, and the job has 3"
expect 2 env -u SHOAL_SECRET OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$shoal" run --rank_of openmpi --world_info worker-0:0,1 true
says "did not reach rank 1"

# ---- what a rank of each gets ----
cat >show.sh <<'SCRIPT'
#!/bin/sh
echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE $CROSS_RANK/$CROSS_SIZE $MASTER_ADDR:$MASTER_PORT $CUDA_VISIBLE_DEVICES $*"
SCRIPT
chmod +x show.sh
known=(env -u SHOAL_COMM SHOAL_SECRET=0123456789abcdef SHOAL_JOB_ID=1.0.2)
world="--world_info worker-0:0,3@worker-1:1 --master_addr host --master_port 5"
expect 0 "${known[@]}" OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=0 "$shoal" run --rank_of openmpi $world ./show.sh a
says "2/3 0/1 1/2 host:5 1 --local_rank=0 a"
expect 0 "${known[@]}" PMI_RANK=1 PMI_SIZE=3 MPI_LOCALRANKID=1 "$shoal" run --rank_of mpich $world ./show.sh
says "1/3 1/2 0/2 host:5 0,3 --local_rank=1"
expect 0 "${known[@]}" PMIX_RANK=1 PMIX_SIZE=3 PALS_LOCAL_RANKID=1 "$shoal" run --rank_of mpich $world ./show.sh
says "1/3 1/2 0/2"
expect 0 "${known[@]}" MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=3 "$shoal" run --rank_of mvapich $world ./show.sh
says "0/3 0/2 0/2"
expect 0 "${known[@]}" PMI_RANK=2 PMI_SIZE=3 "$shoal" run --rank_of impi --no_local_rank $world ./show.sh
says "2/3 0/1 1/2 host:5 1 "
# ranks of several hosts choose their backend themselves, those of one are told shared memory
for hosts in a:0@b:0=none a:0,1=shm; do
    expect 0 "${known[@]}" OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "$shoal" run --rank_of openmpi --world_info ${hosts%=*} \
        --master_addr a --master_port 5 sh -c 'echo "<${SHOAL_COMM-none}>"'
    says "<${hosts#*=}>"
done
for list in "node[07-09,12]:node07" "a,b:a" "n[3,5]:n3" "single:single"; do
    expect 0 "${known[@]}" SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_LOCALID=1 SLURM_NODEID=2 SLURM_NNODES=3 \
        SLURM_STEP_NODELIST="${list%:*}" "$shoal" run --rank_of slurm --master_port 5 ./show.sh
    says "5/6 1/2 2/3 ${list#*:}:5 "
done
finish
