/* launcher - starts and watches the processes of a job, on this machine and on others. Level L9.
 *
 * Rooms, in their order: a room includes those before it, and this header.
 *   watch/    what status pages of ranks say together, and the block of a failed job (watch.h)
 *   hosts/    which hosts and slots a job has, and who is which rank (hosts.h)
 *   run/      a job of this machine: start, supervise, clean up (run.h)
 *   cluster/  a job on several hosts: ssh, pdsh, MPI, Slurm (cluster.h)
 *   elastic/  an agent that restarts a job on the hosts that are left (elastic.h)
 *   tuning/   `shoal run --autotuning`: tries configurations of a command (tuning.h)
 *   command/  `shoal run`: its flags, and which room does what they ask for (command.h)
 *
 * Terms. A *slot* is the place of a rank on a host. A *node* is a host of a job. The *front* is the
 * `shoal run` that the user calls.
 *
 * Invariants. Everything that can be wrong is checked before the first fork. Nothing of a job
 * outlives it (run/run.h). A job's secret is never in an argument or in a line of output
 * (cluster/secret_message.c).
 */
#ifndef SHOALI_LAUNCHER_H
#define SHOALI_LAUNCHER_H

#include "base/config_table.h"
#include "shoal/launcher.h"

/* The flags of `shoal run` (command/options.c). */
struct shoali_launch_options {
    uint64_t given[SHOALI_GIVEN_WORDS];
    const char *hostfile, *include, *exclude, *master_addr, *rank_log_folder, *core_list;
    const char *launcher_args, *autotuning, *venv_script, *comment;
    int64_t num_nodes, num_gpus, min_elastic_nodes, max_elastic_nodes, master_port, node_rank;
    int64_t max_restarts, restart_backoff;
    int64_t pid_name; /* not a flag: the number behind --save_pid (command.c) */
    int64_t ssh_port, grace_period, silent_rank_timeout, host_timeout, start_timeout;
    int32_t launcher, log_level;
    bool module, no_python, no_local_rank, no_ssh, no_ssh_check, force_multi, save_pid;
    bool elastic_training, bind_cores, quiet, dry_run, no_preflight;
    /* what `shoal run` writes for itself on other hosts */
    const char *world_info, *job_id;
    const char *tell;
    int32_t secret_from, rank_of;
    bool report;
};
extern const struct shoali_section shoali_launch_section;

/* Seconds: of a rank without progress, of a host without a word; and so much later than the front a
 * host gives up, which can say more. */
enum {
    SHOALI_SILENT_RANK_S = 60,
    SHOALI_HOST_TIMEOUT_S = 4,
    SHOALI_FRONT_FIRST_S = 2,
    SHOALI_START_TIMEOUT_S = 30,
};

#endif
