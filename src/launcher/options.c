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
     .help = "List of hosts. A missing file means this machine alone; several machines are not "
             "supported yet."},
    {.key = "include",
     .alias = "i",
     .type = SHOALI_STRING,
     .offset = AT(include),
     .default_text = "",
     .help = "Slots to use: localhost:0,2, or localhost for all. A slot is a core of this machine, "
             "and one rank is started per slot."},
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
     .help = "Number of hosts; more than 1 is not supported yet."},
    {.key = "num_gpus",
     .alias = "num_accelerators",
     .type = SHOALI_INT,
     .offset = AT(num_gpus),
     .default_number = -1,
     .min = -1,
     .max = 4096,
     .help = "Number of ranks. Without it, --include and --exclude: 1."},
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
     .default_number = SHOALI_DEFAULT_PORT,
     .min = 0,
     .max = 65535,
     .help = "Port where the ranks meet (MASTER_PORT); 0 takes a free one."},
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
     .help = "Programs are started directly: write the interpreter and its flags yourself "
             "(python3 -m NAME)."},
    {.key = "no_python",
     .type = SHOALI_BOOL,
     .offset = AT(no_python),
     .state = SHOALI_NOEFFECT,
     .help = "Programs are always started directly, without an interpreter."},
    {.key = "no_local_rank",
     .type = SHOALI_BOOL,
     .offset = AT(no_local_rank),
     .help = "Do not append --local_rank=N to the program's arguments."},
    {.key = "no_ssh",
     .type = SHOALI_BOOL,
     .offset = AT(no_ssh),
     .state = SHOALI_PENDING,
     .help = "Every host runs the command by hand."},
    {.key = "no_ssh_check",
     .type = SHOALI_BOOL,
     .offset = AT(no_ssh_check),
     .state = SHOALI_NOEFFECT,
     .help = "There is no ssh check: only this machine is used."},
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
     .help = "What a signal (SIGTERM, Ctrl-C) leaves the ranks to save and end; 0: 0.3 s. A second "
             "signal does not wait."},
    {.key = "save_pid",
     .type = SHOALI_BOOL,
     .offset = AT(save_pid),
     .help = "Write the launcher's pid to TMPDIR/PID.deepspeed while the job runs."},
    {.key = "enable_each_rank_log",
     .type = SHOALI_STRING,
     .offset = AT(rank_log_folder),
     .default_text = "None",
     .help = "Folder for one log per rank (TIME_rankN.log) instead of the launcher's output."},
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
     .help = "What the launcher itself says."},
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

static shoal_status check_hostfile(const struct shoali_launch_options *options)
{
    const char *path = options->hostfile;
    bool given = shoali_config_given(&shoali_launch_section, options, "hostfile");
    if (access(path, F_OK) == 0)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "hostfile %s exists, but jobs on several machines are not supported yet: "
                          "remove it, or name a file that does not exist with --hostfile, to use "
                          "this machine alone",
                          path);
    if (given)
        SHOALI_WARN("launcher", "hostfile %s: %s; using this machine alone", path, strerror(errno));
    return SHOAL_OK;
}

shoal_status shoali_launch_resolve(const struct shoali_launch_options *options,
                                   shoal_launch_args *args)
{
    shoal_status status;
    SHOAL_TRY(status, check_hostfile(options), done);
    if (options->num_nodes > 1) {
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                            "--num_nodes %lld: jobs on several machines are not supported yet; "
                            "leave it out to use this machine alone",
                            (long long)options->num_nodes);
        goto done;
    }
    bool filtered = *options->include || *options->exclude;
    if (filtered && (options->num_nodes >= 0 || options->num_gpus >= 0)) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--include and --exclude already say how many ranks there are: do not "
                            "give --num_gpus or --num_nodes with them");
        goto done;
    }
    if (options->num_gpus == 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "--num_gpus 0 starts nothing: give at least 1");
        goto done;
    }
    args->ranks = options->num_gpus > 0 ? (int32_t)options->num_gpus : 0;
    args->include = text_or_null(options->include);
    args->exclude = text_or_null(options->exclude);
    args->master_addr = text_or_null(options->master_addr);
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
