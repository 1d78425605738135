#include "launcher/launcher.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const launchers[] = {"pdsh",  "openmpi", "mvapich", "slurm",
                                        "mpich", "impi",    NULL};
static const char *const log_levels[] = {"debug", "info", "warning", "error", "critical", NULL};
static const char default_hostfile[] = "/job/hostfile";

#define AT(member) offsetof(struct shoali_launch_options, member)
static const struct shoali_option rows[] = {
    {.key = "hostfile",
     .alias = "H",
     .type = SHOALI_STRING,
     .offset = AT(hostfile),
     .default_text = default_hostfile,
     .help = "Hosts and their slots, one \"NAME slots=N\" per line; one rank is started per slot. "
             "Only this machine (localhost, its name or an address of it) can be used yet. A file "
             "that does not exist means this machine alone."},
    {.key = "include",
     .alias = "i",
     .type = SHOALI_STRING,
     .offset = AT(include),
     .default_text = "",
     .help = "Slots to use: localhost:0,2, or localhost for all. One rank is started per slot. "
             "Without a hostfile a slot is a core."},
    {.key = "exclude",
     .alias = "e",
     .type = SHOALI_STRING,
     .offset = AT(exclude),
     .default_text = "",
     .help = "Slots not to use, written as for --include; not with --include."},
    {.key = "num_nodes",
     .type = SHOALI_INT,
     .offset = AT(num_nodes),
     .default_number = -1,
     .min = -1,
     .max = 1e6,
     .help = "Use only the first N hosts of the hostfile (-1: all); more than 1 are not supported "
             "yet."},
    {.key = "num_gpus",
     .alias = "num_accelerators",
     .type = SHOALI_INT,
     .offset = AT(num_gpus),
     .default_number = -1,
     .min = -1,
     .max = 4096,
     .help = "Number of ranks. Without it (or -1): the slots that --include, --exclude or the "
             "hostfile leave; without those 1."},
    {.key = "min_elastic_nodes",
     .type = SHOALI_INT,
     .offset = AT(min_elastic_nodes),
     .default_number = -1,
     .state = SHOALI_PENDING,
     .help = "Least number of hosts of an elastic job."},
    {.key = "max_elastic_nodes",
     .type = SHOALI_INT,
     .offset = AT(max_elastic_nodes),
     .default_number = -1,
     .state = SHOALI_PENDING,
     .help = "Most hosts of an elastic job."},
    {.key = "master_port",
     .type = SHOALI_INT,
     .offset = AT(master_port),
     .default_number = -1,
     .min = 0,
     .max = 65535,
     .help = "Port where the ranks meet. Without it: MASTER_PORT; without both, or with 0: a free "
             "one."},
    {.key = "master_addr",
     .type = SHOALI_STRING,
     .offset = AT(master_addr),
     .default_text = "",
     .help = "Address where the ranks meet (MASTER_ADDR); empty: 127.0.0.1."},
    {.key = "node_rank",
     .type = SHOALI_INT,
     .offset = AT(node_rank),
     .default_number = -1,
     .state = SHOALI_PENDING,
     .help = "Number of this host, with --no_ssh."},
    {.key = "launcher",
     .type = SHOALI_ENUM,
     .offset = AT(launcher),
     .choices = launchers,
     .state = SHOALI_PENDING,
     .help = "Program that starts ranks on other machines."},
    {.key = "launcher_args",
     .type = SHOALI_STRING,
     .offset = AT(launcher_args),
     .default_text = "",
     .state = SHOALI_PENDING,
     .help = "Flags for that program."},
    {.key = "module",
     .type = SHOALI_BOOL,
     .offset = AT(module),
     .state = SHOALI_NOEFFECT,
     .help =
         "Programs are started as they stand: write the interpreter yourself (python3 -m NAME)."},
    {.key = "no_python",
     .type = SHOALI_BOOL,
     .offset = AT(no_python),
     .state = SHOALI_NOEFFECT,
     .help = "Programs are always started as they stand, without an interpreter."},
    {.key = "no_local_rank",
     .type = SHOALI_BOOL,
     .offset = AT(no_local_rank),
     .help =
         "Do not append --local_rank=N to the program's arguments (the number is in LOCAL_RANK, "
         "too)."},
    {.key = "no_ssh",
     .type = SHOALI_BOOL,
     .offset = AT(no_ssh),
     .state = SHOALI_PENDING,
     .help = "Every host runs the command by hand."},
    {.key = "no_ssh_check",
     .type = SHOALI_BOOL,
     .offset = AT(no_ssh_check),
     .state = SHOALI_NOEFFECT,
     .help = "Only this machine is used, so there is nothing to check."},
    {.key = "force_multi",
     .type = SHOALI_BOOL,
     .offset = AT(force_multi),
     .state = SHOALI_PENDING,
     .help = "Start as if there were several machines."},
    {.key = "grace_period",
     .type = SHOALI_INT,
     .offset = AT(grace_period),
     .min = 0,
     .max = 86400,
     .unit = "seconds",
     .help = "Time that ranks have to save and end when a signal (SIGTERM, SIGINT, SIGHUP) stops "
             "the job; the job ends with 0 when all of them did so with 0. With 0 they have 0.3 s "
             "and the job ends with 128 + the signal. A second signal ends all at once."},
    {.key = "save_pid",
     .type = SHOALI_BOOL,
     .offset = AT(save_pid),
     .help =
         "Keep the launcher's pid in the file $TMPDIR/PID.deepspeed (without TMPDIR: /tmp) while "
         "the job runs."},
    {.key = "enable_each_rank_log",
     .type = SHOALI_STRING,
     .offset = AT(rank_log_folder),
     .default_text = "None",
     .help = "Folder where each rank writes a log of its own (TIME_rankN.log) instead of to the "
             "launcher's output."},
    {.key = "autotuning",
     .type = SHOALI_STRING,
     .offset = AT(autotuning),
     .default_text = "",
     .state = SHOALI_PENDING,
     .help = "Search for a good configuration: tune or run."},
    {.key = "elastic_training",
     .type = SHOALI_BOOL,
     .offset = AT(elastic_training),
     .state = SHOALI_PENDING,
     .help = "Restart the job when hosts come and go."},
    {.key = "bind_cores_to_rank",
     .type = SHOALI_BOOL,
     .offset = AT(bind_cores),
     .help = "Give every rank its own cores and set OMP_NUM_THREADS to their number."},
    {.key = "bind_core_list",
     .type = SHOALI_STRING,
     .offset = AT(core_list),
     .default_text = "",
     .help = "Cores to share among the ranks, such as 0-7,16-23; implies --bind_cores_to_rank."},
    {.key = "ssh_port",
     .type = SHOALI_INT,
     .offset = AT(ssh_port),
     .state = SHOALI_PENDING,
     .help = "Port of ssh on the other machines."},
    {.key = "venv_script",
     .type = SHOALI_STRING,
     .offset = AT(venv_script),
     .default_text = "",
     .state = SHOALI_PENDING,
     .help = "Script sourced on the other machines before the start."},
    {.key = "log_level",
     .type = SHOALI_ENUM,
     .offset = AT(log_level),
     .default_number = 1,
     .choices = log_levels,
     .help = "How much the launcher itself says; what the ranks say is theirs."},
    {.key = "quiet",
     .alias = "q",
     .type = SHOALI_BOOL,
     .offset = AT(quiet),
     .help = "Same as --log_level error."},
    {.key = "help",
     .alias = "h",
     .type = SHOALI_BOOL,
     .offset = AT(help),
     .help = "Show this text."},
};

const struct shoali_section shoali_launch_section = {
    .name = "run",
    .help = "flags",
    .rows = rows,
    .row_count = (int32_t)(sizeof(rows) / sizeof(rows[0])),
    .struct_bytes = sizeof(struct shoali_launch_options),
    .given_offset = offsetof(struct shoali_launch_options, given),
};

/* A text flag that was not given, or is DeepSpeed's word for nothing. */
static const char *text_or_null(const char *text)
{
    return text && *text && strcmp(text, "None") != 0 ? text : NULL;
}

/* A file that is not there means this machine alone, as in DeepSpeed; one that cannot be read does
 * not. */
static const char *find_hostfile(const struct shoali_launch_options *options)
{
    const char *path = options->hostfile;
    if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
        return path;
    if (shoali_config_given(&shoali_launch_section, options, "hostfile"))
        SHOALI_WARN("launcher", "hostfile %s: %s; using this machine alone", path, strerror(errno));
    return NULL;
}

shoal_status shoali_launch_resolve(const struct shoali_launch_options *options,
                                   shoal_launch_args *args)
{
    shoal_status status = SHOAL_OK;
    bool filtered = *options->include || *options->exclude;
    if (filtered && (options->num_nodes >= 0 || options->num_gpus >= 0)) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--include and --exclude already say how many ranks there are: do not "
                            "give --num_gpus or --num_nodes with them");
        goto done;
    }
    if (options->num_gpus == 0 || options->num_nodes == 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "--%s 0 starts nothing: give at least 1",
                            options->num_gpus == 0 ? "num_gpus" : "num_nodes");
        goto done;
    }
    args->hostfile = find_hostfile(options);
    args->num_nodes = options->num_nodes > 0 ? (int32_t)options->num_nodes : 0;
    args->ranks = options->num_gpus > 0 ? (int32_t)options->num_gpus : 0;
    args->include = text_or_null(options->include);
    args->exclude = text_or_null(options->exclude);
    args->master_addr = text_or_null(options->master_addr);
    if (options->master_port >= 0)
        args->master_port = options->master_port ? (int32_t)options->master_port : SHOAL_ANY_PORT;
    args->rank_log_folder = text_or_null(options->rank_log_folder);
    args->core_list = text_or_null(options->core_list);
    args->bind_cores = options->bind_cores || args->core_list;
    args->no_local_rank = options->no_local_rank;
    args->save_pid = options->save_pid;
    args->grace_period = (int32_t)options->grace_period;
done:
    return status;
}
