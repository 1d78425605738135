#include "launcher/command/command.h"

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

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_launch_options, key, type, member, __VA_ARGS__)
static const struct shoali_option rows[] = {
    OPTION(
        "hostfile", STRING, hostfile, .group = "hosts", .flags = SHOALI_OPTION_COMMON, .alias = "H",
        .default_text = default_hostfile,
        .help =
            "Hosts and their slots, one \"NAME slots=N\" per line; one rank is started per slot, "
            "host by host in the order of the file. A file that names this machine alone "
            "(localhost, its name or an address of it), or that does not exist, means a job of "
            "this machine."),
    OPTION(
        "include", STRING, include, .group = "hosts", .flags = SHOALI_OPTION_COMMON, .alias = "i",
        .default_text = "",
        .help =
            "Slots to use: worker-0:0,2@worker-1, where a host alone means all its slots. One rank "
            "is started per slot. Without a hostfile the host is localhost, and a slot is a core."),
    OPTION("exclude", STRING, exclude, .group = "hosts", .flags = SHOALI_OPTION_COMMON,
           .alias = "e", .default_text = "",
           .help =
               "Slots not to use, in the syntax of --include, with which it cannot be combined."),
    OPTION("num_nodes", INT, num_nodes, .group = "hosts", .flags = SHOALI_OPTION_COMMON,
           .default_number = -1, .min = -1, .max = 1e6,
           .help = "Use only the first N hosts of the hostfile (-1: all)."),
    OPTION("num_gpus", INT, num_gpus, .group = "hosts", .flags = SHOALI_OPTION_COMMON,
           .alias = "num_accelerators", .default_number = -1, .min = -1, .max = 4096,
           .help =
               "Number of ranks of each host, whatever its slots. Without it (or -1): one per slot "
               "that --include, --exclude or the hostfile leave; without any of these 1."),
    OPTION(
        "elastic_training", BOOL, elastic_training, .group = "elastic",
        .flags = SHOALI_OPTION_COMMON, .alias = "enable_elastic_training",
        .help =
            "Restart the job on the remaining hosts when a rank or a host dies, with as many "
            "ranks as the section elasticity of --deepspeed_config allows. The program continues "
            "from its newest checkpoint (shoal pretrain: --save DIR --load DIR)."),
    OPTION("min_elastic_nodes", INT, min_elastic_nodes, .group = "elastic", .default_number = -1,
           .min = -1, .max = 1e6, .help = "Least number of hosts of an elastic job (-1: 1)."),
    OPTION("max_elastic_nodes", INT, max_elastic_nodes, .group = "elastic", .default_number = -1,
           .min = -1, .max = 1e6,
           .help = "Largest number of hosts of an elastic job; the others stand by (-1: all)."),
    OPTION(
        "max_restarts", INT, max_restarts, .group = "elastic", .default_number = 100, .min = 0,
        .max = 1e9,
        .help =
            "Number of restarts after failures of an elastic job; one more failure ends the job."),
    OPTION("restart_backoff", INT, restart_backoff, .group = "elastic", .default_number = 1,
           .min = 0, .max = 3600, .unit = "seconds",
           .help =
               "Wait before a restart when the job has saved no checkpoint since the last restart; "
               "doubled each time, up to 60 s. A job that has saved one is restarted at once."),
    OPTION(
        "master_port", INT, master_port, .group = "hosts", .flags = SHOALI_OPTION_COMMON,
        .default_number = -1, .min = 0, .max = 65535,
        .help =
            "Port where the ranks join. Without it: MASTER_PORT; without both, or with 0: a free "
            "one of the first host (with --no_ssh: 29500)."),
    OPTION("master_addr", STRING, master_addr, .group = "hosts", .default_text = "",
           .help =
               "Address of the first host, where the ranks join (MASTER_ADDR); empty: 127.0.0.1 on "
               "one machine, else the address by which the first host was reached."),
    OPTION("node_rank", INT, node_rank, .group = "start", .flags = SHOALI_OPTION_COMMON,
           .default_number = -1, .min = -1, .max = 1e6,
           .help = "With --no_ssh: number of this host, from 0 in the order of the hostfile."),
    OPTION(
        "world_info", STRING, world_info, .group = "start", .default_text = "",
        .help =
            "The hosts and slots of the job, when another program starts `shoal run` on each host "
            "with its --node_rank: as DeepSpeed's launcher encodes them, or as "
            "worker-0:0,1@worker-1:0. Needs neither hostfile nor ssh."),
    OPTION(
        "launcher", ENUM, launcher, .group = "start", .flags = SHOALI_OPTION_COMMON,
        .choices = launchers,
        .help =
            "Program that starts ranks on several hosts: pdsh and ssh start `shoal run` on each, "
            "the others start every rank by mpirun or srun. Without pdsh in PATH the default is "
            "ssh. Slurm needs no hostfile: --num_nodes and --num_gpus, or the surrounding "
            "allocation. A job of this machine needs no launcher."),
    OPTION("launcher_args", STRING, launcher_args, .group = "start", .default_text = "",
           .help = "Flags for that program, split as a shell does."),
    OPTION("module", BOOL, module, .group = "start",
           .help =
               "The program is the name of a Python module: start python3 -u -m NAME ARGUMENTS. "
               "Without the flag a file that ends in .py is started as python3 -u FILE ARGUMENTS, "
               "and any other program directly."),
    OPTION("no_python", BOOL, no_python, .group = "start",
           .help = "Start a file that ends in .py directly, too, without python3 before it."),
    OPTION("no_local_rank", BOOL, no_local_rank, .group = "start", .flags = SHOALI_OPTION_COMMON,
           .help =
               "Do not give the program --local_rank=N, which stands before its own arguments (the "
               "number is in LOCAL_RANK, too)."),
    OPTION("no_ssh", BOOL, no_ssh, .group = "start", .flags = SHOALI_OPTION_COMMON,
           .help =
               "The user runs the same command on every host, each with its own --node_rank; the "
               "hosts need one secret (SHOAL_SECRET_FILE)."),
    OPTION("no_ssh_check", BOOL, no_ssh_check, .group = "start",
           .help = "Same as --no_preflight (DeepSpeed's name)."),
    OPTION("no_preflight", BOOL, no_preflight, .group = "start",
           .help = "Skip the check over ssh that every host answers and has the same program and "
                   "configuration, the right time, free shared memory and a free port."),
    OPTION("dry-run", BOOL, dry_run, .group = "start", .flags = SHOALI_OPTION_COMMON,
           .alias = "dry_run", .help = "Print the commands for the hosts instead of running them."),
    OPTION(
        "force_multi", BOOL, force_multi, .group = "start",
        .help =
            "Start a job of this machine through --launcher, as if there were several machines."),
    OPTION(
        "grace_period", INT, grace_period, .group = "failures", .flags = SHOALI_OPTION_COMMON,
        .min = 0, .max = 86400, .unit = "seconds",
        .help =
            "Time that ranks have to save and exit when a signal (SIGTERM, SIGINT, SIGHUP) stops "
            "the job; the job ends with 0 when all of them exit with 0. With 0 they have 0.3 s "
            "and the job ends with 128 + the signal. A second signal ends all at once. Without "
            "the flag ranks of a program with --exit-signal-handler have 600 s."),
    OPTION("save_pid", BOOL, save_pid, .group = "logging",
           .help = "Keep the launcher's pid in the file $TMPDIR/PID.deepspeed (without TMPDIR: "
                   "/tmp) while "
                   "the job runs."),
    OPTION("enable_each_rank_log", STRING, rank_log_folder, .group = "logging",
           .flags = SHOALI_OPTION_COMMON, .default_text = "None",
           .help = "Folder where each rank writes its own log (TIME_rankN.log) instead of to the "
                   "launcher's output."),
    OPTION(
        "autotuning", STRING, autotuning, .group = "autotuning", .flags = SHOALI_OPTION_COMMON,
        .default_text = "",
        .help =
            "tune: run the program for a few steps with one configuration after the other, as the "
            "section autotuning of its --deepspeed_config says, and write the fastest one to "
            "autotuning_results/ds_config_optimal.json; run: then start the program with it."),
    OPTION("bind_cores_to_rank", BOOL, bind_cores, .group = "cores", .flags = SHOALI_OPTION_COMMON,
           .help = "Give every rank its own cores and set OMP_NUM_THREADS to their number."),
    OPTION("bind_core_list", STRING, core_list, .group = "cores", .default_text = "",
           .help =
               "Cores to share among the ranks, such as 0-7,16-23; implies --bind_cores_to_rank."),
    OPTION("ssh_port", INT, ssh_port, .group = "start", .min = 0, .max = 65535,
           .help = "Port of ssh on the other hosts (0: what ssh is configured for)."),
    OPTION("venv_script", STRING, venv_script, .group = "start", .default_text = "",
           .help = "Script that the shell of every host reads before the start (ssh and pdsh)."),
    OPTION(
        "silent_rank_timeout", INT, silent_rank_timeout, .group = "failures",
        .default_number = SHOALI_SILENT_RANK_S, .min = 0, .max = 1e6,
        .help =
            "Whole seconds after which the job ends because a rank that others wait for has not "
            "run (stopped, or waiting for a dead disk) or hangs in its signal handler; 0: never."),
    OPTION("host_timeout", INT, host_timeout, .group = "failures",
           .default_number = SHOALI_HOST_TIMEOUT_S, .min = 0, .max = 1e6,
           .help =
               "Seconds without a message from a host after which it counts as lost, and without a "
               "message from this launcher after which a host ends its ranks; 0: never."),
    OPTION(
        "start_timeout", INT, start_timeout, .group = "failures",
        .default_number = SHOALI_START_TIMEOUT_S, .min = 0, .max = 1e6,
        .help =
            "Seconds that the launcher's program (ssh, pdsh, mpirun, or srun in an allocation) has "
            "until every host starts its ranks; 0: for ever."),
    OPTION("log_level", ENUM, log_level, .group = "logging", .flags = SHOALI_OPTION_COMMON,
           .default_number = 1, .choices = log_levels,
           .help =
               "Log level of the launcher itself; the ranks' output is not affected. Given as "
               "info, it "
               "adds the lines of DeepSpeed's launcher: world info, ranks of hosts, processes."),
    OPTION("quiet", BOOL, quiet, .group = "logging", .flags = SHOALI_OPTION_COMMON, .alias = "q",
           .help = "Same as --log_level error."),
    OPTION("job_id", STRING, job_id, .default_text = "", .flags = SHOALI_OPTION_HIDDEN,
           .help = "Name of the job, for a host of it."),
    OPTION("secret_from", ENUM, secret_from, .choices = secret_sources,
           .flags = SHOALI_OPTION_HIDDEN, .help = "Where a host of the job finds its secret."),
    OPTION("rank_of", ENUM, rank_of, .choices = launchers, .flags = SHOALI_OPTION_HIDDEN,
           .help = "Become the rank that this launcher says."),
    OPTION("report", BOOL, report, .flags = SHOALI_OPTION_HIDDEN,
           .help = "Print what the pre-flight asks a host for."),
    OPTION("tell", STRING, tell, .default_text = "", .flags = SHOALI_OPTION_HIDDEN,
           .help = "Tell this host's launcher of the job of a signal."),
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
    if (args->master_addr && strchr(args->master_addr, '@')) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--master_addr %s: an address has no user: leave out the part before "
                            "and including the @",
                            args->master_addr);
        goto done;
    }
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
