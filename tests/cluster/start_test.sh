#!/usr/bin/env bash
# What keeps a job of several hosts from starting is a sentence, soon, whatever launcher was asked for: an mpirun of another
# MPI, a launcher's daemon that a host does not have, a start that takes for ever.
# Usage: start_test.sh SHOAL
. "$(dirname "$0")/../cli/check.sh"
. "$(dirname "$0")/hosts.sh"
begin_hosts bash "$0" "$@"
. "$(dirname "$0")/job.sh"
begin_job "$1"
mkdir bin
# fake NAME TEXT: a program that prints it and ends with 0
fake() { printf '#!/bin/sh\nprintf "%%s\\n" "%s"\n' "$2" >"bin/$1" && chmod +x "bin/$1"; }
by() { # LAUNCHER FLAGS...
    local name=$1
    shift
    PATH=$folder/bin:$PATH timeout 90 "$shoal" run -H hosts --launcher "$name" --no_preflight "$@"
}
# ---- whose mpirun it is ----
while IFS='|' read -r version launcher other owner; do
    fake mpirun "$version"
    expect 2 by "$launcher" true
    says "--launcher $launcher: $folder/bin/mpirun belongs to $owner: give --launcher $other, or put the folder of "
done <<'TABLE'
mpirun (Open MPI) 4.1.4|mpich|openmpi|Open MPI
mpirun.openmpi (OpenRTE) 4.1.4|impi|openmpi|Open MPI
mpirun (Open MPI) 5.0.3|mvapich|openmpi|Open MPI
HYDRA build details:|openmpi|mpich|MPICH
HYDRA build details:|impi|mpich|MPICH
Intel(R) MPI Library for Linux* OS, Version 2021.9|openmpi|impi|Intel MPI
Intel(R) MPI Library for Linux* OS, Version 2021.9|mpich|impi|Intel MPI
TABLE
# one that does not say, and one that says nothing
fake mpirun "some starter 1.0"
expect 0 by openmpi true
printf '#!/bin/sh\nexec sleep 100\n' >bin/mpirun
begin=$(now_ms)
expect 2 by mpich true
says "/bin/mpirun --version\` has not ended within 10 s"
took=$(($(now_ms) - begin))
echo "a silent mpirun: $took ms"
[ $took -lt 60000 ] || complain "a silent mpirun: $took ms"
rm bin/mpirun
# a pdsh without its ssh module: said where pdsh was asked for, else ssh it is
fake pdsh "rcmd modules: rsh,exec (default: rsh)"
expect 2 by pdsh true
says "has no module ssh (rcmd modules: rsh,exec (default: rsh)): install it (pdsh-rcmd-ssh), or give --launcher ssh"
PATH=$folder/bin:$PATH expect 0 "$shoal" run -H hosts --launcher_args "-F $folder/ssh_config" true
rm bin/pdsh

# ---- a start that takes for ever ----
touch mark
in_folder >before
# limited SECONDS SENTENCE WHERE FLAGS...: the limits are 3 s, and the slowest run on a busy machine took 4.0 s
limited() {
    local seconds=$1 sentence=$2 begin
    shift 2
    begin=$(now_ms)
    PROGRAM="./train.sh" start "$@"
    await_job "$begin" 90
    [ "$code" = 1 ] || complain "$*: ended with $code, not 1: $(shown)"
    [ $took -lt $((seconds * 1000)) ] || complain "$*: took $took ms"
    grep -qF -- "$sentence" out || complain "$*: no \"$sentence\" in $(shown)"
    left=$(gone 60) || complain "$*: left $left"
    echo "$1: $took ms: $(grep -F '[shoal run]' out | tail -n 1)"
}
# pdsh's check before the start reads the script first
printf 'case $(hostname) in worker-1) [ ! -e "%s" ] || exec sleep 1000; touch "%s" ;; esac\n' "$folder/read" "$folder/read" >venv
for where in ssh pdsh; do
    rm -f read
    [ $where = pdsh ] || touch read
    limited 25 "host worker-1 has started no rank within 3 s: its ssh, a shell's start-up files, " $where --no_ssh_check --start_timeout 3 --venv_script "$folder/venv"
done
# a host that refuses connections: in a start without checks ssh's complaint ends the job, and names the host. One that does
# not answer: the limit. The slowest run took 3.5 s.
flags+=(--no_preflight)
for where in ssh openmpi mpich; do
    [ -z "$(cannot $where none)" ] || continue
    stop_sshd 1
    limited 25 "host worker-1 cannot be reached (ssh: connect to host worker-1 port 22: Connection refused" $where
    start_sshd 1 && await_sshd 1
    cut_host 1
    case $where in openmpi) sentence="no host has started a rank" ;; *) sentence="host worker-1 has started no rank" ;; esac
    limited 25 "$sentence within 3 s: " $where --start_timeout 3
    mend_host 1
    await_sshd 1
done
unset "flags[-1]"
# a daemon of the launcher that hangs, or is not there, on the second host alone
hide() { # COMMANDS...: in a copy of the folder of programs that sshd of worker-1 sees
    stop_sshd 1
    start_sshd 1 "mkdir -p /tmp/layer && mount -t tmpfs none /tmp/layer && mkdir /tmp/layer/up /tmp/layer/work &&
        mount -t overlay overlay -o lowerdir=/usr/bin,upperdir=/tmp/layer/up,workdir=/tmp/layer/work /usr/bin && $1"
    await_sshd 1
}
if [ -z "$(cannot mpich none)" ]; then
    hide "rm /usr/bin/hydra_pmi_proxy" || skip "this machine makes no overlay"
    limited 25 "host worker-1 cannot start mpich's hydra_pmi_proxy: install the same MPI at the same path" mpich
    hide "printf '#!/bin/sh\nexec sleep 1000\n' >/usr/bin/proxy.new && chmod +x /usr/bin/proxy.new && mv /usr/bin/proxy.new /usr/bin/hydra_pmi_proxy"
    limited 25 "host worker-1 has started no rank within 3 s: mpirun waits for its hydra_pmi_proxy" mpich --start_timeout 3
fi
if [ -z "$(cannot openmpi none)" ]; then
    hide "printf '#!/bin/sh\nexec sleep 1000\n' >/usr/bin/orted.new && chmod +x /usr/bin/orted.new && mv /usr/bin/orted.new /usr/bin/orted"
    limited 25 "no host has started a rank within 3 s: mpirun waits for its daemon" openmpi --start_timeout 3
fi
stop_sshd 1 && start_sshd 1 && await_sshd 1
# ranks whose output goes to files: their launchers are heard all the same
for where in openmpi mpich; do
    [ -z "$(cannot $where none)" ] || continue
    rm -rf logs
    STEPS=40 start $where --enable_each_rank_log logs --start_timeout 5
    await_job "$(now_ms)"
    [ "$code" = 0 ] || complain "$where with logs: $code: $(shown)"
    grep -q "step 40/40" logs/*_rank0.log || complain "$where: no log of rank 0: $(ls logs)"
    ! grep -q $'\x1e' logs/* || complain "$where: the log has lines that are for the launcher"
    rm -rf logs
    HURT=error start $where --enable_each_rank_log logs
    await_job "$(now_ms)"
    grep -q "rank 3 (worker-1, pid [0-9]*) exited with code 1" out || complain "$where with logs: no failure report: $(shown)"
done
left=$(gone 60) || complain "the end left $left"
finish
