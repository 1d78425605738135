#include "launcher/launcher.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const launchers[] = {"pdsh",  "openmpi", "mvapich", "slurm",
                                        "mpich", "impi",    "ssh",     NULL};
static const char *const secret_sources[] = {"environment", "stdin", "deposit", NULL};
static const char *const log_levels[] = {"debug", "info", "warning", "error", "critical", NULL};
static const char default_hostfile[] = "/job/hostfile";

#define AT(member) offsetof(struct shoali_launch_options, member)
static const struct shoali_option rows[] = {
    {.key = "hostfile",
     .alias = "H",
     .type = SHOALI_STRING,
     .offset = AT(hostfile),
     .default_text = default_hostfile,
     .help = "Hosts and their slots, one \"NAME slots=N\" per line; one rank is started per slot, "
             "host by host in the order of the file. A file that names this machine alone "
             "(localhost, its name or an address of it), or that does not exist, means a job of "
             "this machine."},
    {.key = "include",
     .alias = "i",
     .type = SHOALI_STRING,
     .offset = AT(include),
     .default_text = "",
     .help =
         "Slots to use: worker-0:0,2@worker-1, where a host alone means all its slots. One rank "
         "is started per slot. Without a hostfile the host is localhost, and a slot is a core."},
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
     .help = "Use only the first N hosts of the hostfile (-1: all)."},
    {.key = "num_gpus",
     .alias = "num_accelerators",
     .type = SHOALI_INT,
     .offset = AT(num_gpus),
     .default_number = -1,
     .min = -1,
     .max = 4096,
     .help = "Number of ranks of each host, whatever its slots. Without it (or -1): the slots that "
             "--include, --exclude or the hostfile leave; without those 1."},
    {.key = "elastic_training",
     .type = SHOALI_BOOL,
     .offset = AT(elastic_training),
     .help = "Restart the job when a rank or a host dies, on the hosts that are left, with as many "
             "ranks as the section elasticity of --deepspeed_config allows. The program continues "
             "from its newest checkpoint (shoal pretrain: --save DIR --load DIR)."},
    {.key = "min_elastic_nodes",
     .type = SHOALI_INT,
     .offset = AT(min_elastic_nodes),
     .default_number = -1,
     .min = -1,
     .max = 1e6,
     .help = "Least number of hosts of an elastic job (-1: 1)."},
    {.key = "max_elastic_nodes",
     .type = SHOALI_INT,
     .offset = AT(max_elastic_nodes),
     .default_number = -1,
     .min = -1,
     .max = 1e6,
     .help = "Most hosts of an elastic job; the others wait for one to fail (-1: all)."},
    {.key = "max_restarts",
     .type = SHOALI_INT,
     .offset = AT(max_restarts),
     .default_number = 100,
     .min = 0,
     .max = 1e9,
     .help = "Restarts of an elastic job after failures, before it is given up."},
    {.key = "restart_backoff",
     .type = SHOALI_INT,
     .offset = AT(restart_backoff),
     .default_number = 1,
     .min = 0,
     .max = 3600,
     .unit = "seconds",
     .help = "Time before an elastic job is restarted that has saved no checkpoint since the last "
             "restart; doubled each time, up to 60 s. One that has is restarted at once."},
    {.key = "master_port",
     .type = SHOALI_INT,
     .offset = AT(master_port),
     .default_number = -1,
     .min = 0,
     .max = 65535,
     .help = "Port where the ranks meet. Without it: MASTER_PORT; without both, or with 0: a free "
             "one of the first host (with --no_ssh: 29500)."},
    {.key = "master_addr",
     .type = SHOALI_STRING,
     .offset = AT(master_addr),
     .default_text = "",
     .help = "Address of the first host, where the ranks meet (MASTER_ADDR); empty: 127.0.0.1 on "
             "one machine, else the address by which the first host was reached."},
    {.key = "node_rank",
     .type = SHOALI_INT,
     .offset = AT(node_rank),
     .default_number = -1,
     .min = -1,
     .max = 1e6,
     .help = "With --no_ssh: number of this host, from 0 in the order of the hostfile."},
    {.key = "world_info",
     .type = SHOALI_STRING,
     .offset = AT(world_info),
     .default_text = "",
     .help =
         "For one host of a job that another program starts on each, with --node_rank: the hosts "
         "and slots of the job, as DeepSpeed's launcher encodes them, or as "
         "worker-0:0,1@worker-1:0. Without a hostfile and without ssh."},
    {.key = "launcher",
     .type = SHOALI_ENUM,
     .offset = AT(launcher),
     .choices = launchers,
     .help =
         "What starts ranks on several hosts: pdsh and ssh start `shoal run` on each, the others "
         "start every rank by mpirun or srun. Without pdsh in PATH the default is ssh. Slurm "
         "needs no hostfile: --num_nodes and --num_gpus, or the allocation around. A job of "
         "this machine needs none of them."},
    {.key = "launcher_args",
     .type = SHOALI_STRING,
     .offset = AT(launcher_args),
     .default_text = "",
     .help = "Flags for that program, split as a shell does."},
    {.key = "module",
     .type = SHOALI_BOOL,
     .offset = AT(module),
     .help = "The program is the name of a Python module: python3 -u -m NAME ARGUMENTS is started. "
             "Other programs are started as they stand; for a script write python3 before it."},
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
     .help = "The user runs the same command on every host, each with its own --node_rank; the "
             "hosts need one secret (SHOAL_SECRET_FILE)."},
    {.key = "no_ssh_check",
     .type = SHOALI_BOOL,
     .offset = AT(no_ssh_check),
     .help = "Same as --no_preflight."},
    {.key = "no_preflight",
     .type = SHOALI_BOOL,
     .offset = AT(no_preflight),
     .help = "Do not ask every host over ssh, before anything starts, whether it answers, has the "
             "same program and configuration, the right time, free shared memory and a free port."},
    {.key = "dry-run",
     .alias = "dry_run",
     .type = SHOALI_BOOL,
     .offset = AT(dry_run),
     .help = "Print the commands for the hosts instead of running them."},
    {.key = "force_multi",
     .type = SHOALI_BOOL,
     .offset = AT(force_multi),
     .help = "Start a job of this machine as if there were several, through --launcher."},
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
     .help = "tune: start the program for a few steps with one configuration after the other, as "
             "the section autotuning of its --deepspeed_config says, and write the fastest one to "
             "autotuning_results/ds_config_optimal.json; run: then start it with that."},
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
     .min = 0,
     .max = 65535,
     .help = "Port of ssh on the other hosts (0: what ssh is configured for)."},
    {.key = "venv_script",
     .type = SHOALI_STRING,
     .offset = AT(venv_script),
     .default_text = "",
     .help = "Script that the shell of every host reads before the start (ssh and pdsh)."},
    {.key = "silent_rank_timeout",
     .type = SHOALI_INT,
     .offset = AT(silent_rank_timeout),
     .default_number = SHOALI_SILENT_RANK_S,
     .min = 0,
     .max = 1e6,
     .help =
         "Whole seconds after which a rank that others wait for, and of which nothing has run "
         "meanwhile (stopped, or waiting for a dead disk), ends the job, and one that hangs in its "
         "handler of a fault; 0: never."},
    {.key = "host_timeout",
     .type = SHOALI_INT,
     .offset = AT(host_timeout),
     .default_number = SHOALI_HOST_TIMEOUT_S,
     .min = 0,
     .max = 1e6,
     .help = "Seconds without a word from a host after which it counts as lost, and without a word "
             "from this launcher after which a host ends its ranks; 0: never."},
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
    {.key = "job_id",
     .type = SHOALI_STRING,
     .offset = AT(job_id),
     .default_text = "",
     .flags = SHOALI_OPTION_HIDDEN,
     .help = "Name of the job, for a host of it."},
    {.key = "secret_from",
     .type = SHOALI_ENUM,
     .offset = AT(secret_from),
     .choices = secret_sources,
     .flags = SHOALI_OPTION_HIDDEN,
     .help = "Where a host of the job finds its secret."},
    {.key = "rank_of",
     .type = SHOALI_ENUM,
     .offset = AT(rank_of),
     .choices = launchers,
     .flags = SHOALI_OPTION_HIDDEN,
     .help = "Become the rank that this launcher says."},
    {.key = "report",
     .type = SHOALI_BOOL,
     .offset = AT(report),
     .flags = SHOALI_OPTION_HIDDEN,
     .help = "Print what the pre-flight asks a host for."},
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

static shoal_status check_elastic(const struct shoali_launch_options *options)
{
    static const char *const more[] = {"min_elastic_nodes", "max_elastic_nodes", "max_restarts",
                                       "restart_backoff"};
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]) && !options->elastic_training; i++)
        if (shoali_config_given(&shoali_launch_section, options, more[i]))
            return SHOAL_FAIL(SHOAL_EINVAL, "--%s is for jobs with --elastic_training: add it",
                              more[i]);
    if (options->min_elastic_nodes == 0 || options->max_elastic_nodes == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--%s_elastic_nodes 0: a job has at least 1 host",
                          options->min_elastic_nodes == 0 ? "min" : "max");
    if (options->max_elastic_nodes > 0 && options->min_elastic_nodes > options->max_elastic_nodes)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--min_elastic_nodes %lld is more than --max_elastic_nodes "
                          "%lld",
                          (long long)options->min_elastic_nodes,
                          (long long)options->max_elastic_nodes);
    if (options->elastic_training && options->no_ssh)
        return SHOAL_FAIL(SHOAL_EINVAL, "--elastic_training starts ranks on other hosts by itself: "
                                        "leave --no_ssh out");
    return SHOAL_OK;
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
    if (options->module && shoali_config_given(&shoali_launch_section, options, "no_python")) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "--module is a module of Python, and --no_python says that "
                                     "there is none: give one of them");
        goto done;
    }
    if (*options->autotuning && strcmp(options->autotuning, "tune") != 0 &&
        strcmp(options->autotuning, "run") != 0) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "--autotuning %s: give tune, to find the fastest configuration, or run, "
                       "to train with it, too",
                       options->autotuning);
        goto done;
    }
    SHOAL_TRY(status, check_elastic(options), done);
    args->hostfile = *options->world_info ? NULL : find_hostfile(options);
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
    args->silent_rank_timeout =
        options->silent_rank_timeout > 0 ? (int32_t)options->silent_rank_timeout : -1;
done:
    return status;
}
