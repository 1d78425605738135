/* The command lines of each --launcher. DeepSpeed: launcher/multinode_runner.py. */
#include "launcher/cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const log_levels[] = {"debug", "info", "warning", "error", "critical"};

const char *shoali_launcher_name_of(enum shoali_remote_launcher launcher)
{
    static const char *const names[SHOALI_LAUNCHER_COUNT] = {
        [SHOALI_BY_PDSH] = "pdsh",       [SHOALI_BY_OPENMPI] = "openmpi",
        [SHOALI_BY_MVAPICH] = "mvapich", [SHOALI_BY_SLURM] = "slurm",
        [SHOALI_BY_MPICH] = "mpich",     [SHOALI_BY_IMPI] = "impi",
        [SHOALI_BY_SSH] = "ssh"};
    return names[launcher];
}

/* ---- what a host is to do ------------------------------------------------------------------- */
/* Flags that mean the same on every host, and the program. */
static void add_common(const struct shoali_front *front, struct shoali_text_list *out)
{
    const struct shoali_launch_options *options = front->options;
    const shoal_launch_args *args = front->args;
    if (args->no_local_rank)
        shoali_text_list_add(out, "--no_local_rank");
    if (args->save_pid && (front->launcher == SHOALI_BY_SSH || front->launcher == SHOALI_BY_PDSH))
        shoali_text_list_add(out, "--save_pid");
    if (args->rank_log_folder)
        shoali_text_list_add(out, "--enable_each_rank_log=%s", args->rank_log_folder);
    if (args->core_list)
        shoali_text_list_add(out, "--bind_core_list=%s", args->core_list);
    else if (args->bind_cores)
        shoali_text_list_add(out, "--bind_cores_to_rank");
    /* A host would else choose one itself. */
    if (args->grace_period || shoali_program_saves_at_exit(args->program))
        shoali_text_list_add(out, "--grace_period=%d", (int)args->grace_period);
    if (options->silent_rank_timeout != SHOALI_SILENT_RANK_S)
        shoali_text_list_add(out, "--silent_rank_timeout=%lld",
                             (long long)options->silent_rank_timeout);
    if (options->host_timeout != SHOALI_HOST_TIMEOUT_S)
        shoali_text_list_add(out, "--host_timeout=%lld", (long long)options->host_timeout);
    if (options->no_python)
        shoali_text_list_add(out, "--no_python");
    if (options->quiet || options->log_level != 1 ||
        shoali_config_given(&shoali_launch_section, options, "log_level"))
        shoali_text_list_add(out, "--log_level=%s",
                             options->quiet ? "error" : log_levels[options->log_level]);
    for (const char *const *word = args->program; *word; word++)
        shoali_text_list_add(out, "%s", *word);
}

static void add_meeting(const struct shoali_front *front, struct shoali_text_list *out)
{
    if (front->master_addr)
        shoali_text_list_add(out, "--master_addr=%s", front->master_addr);
    shoali_text_list_add(out, "--master_port=%d", (int)front->master_port);
}

static void add_node(const struct shoali_front *front, const char *node_rank, const char *secret,
                     struct shoali_text_list *out)
{
    const char *world = shoali_world_print(&front->world, front->arena);
    out->failed = out->failed || !world;
    shoali_text_list_add(out, "%s", front->self);
    shoali_text_list_add(out, "run");
    shoali_text_list_add(out, "--world_info=%s", world ? world : "");
    shoali_text_list_add(out, "--node_rank=%s", node_rank);
    add_meeting(front, out);
    shoali_text_list_add(out, "--job_id=%s", front->job_id);
    shoali_text_list_add(out, "--secret_from=%s", secret);
    add_common(front, out);
}

static void add_rank(const struct shoali_front *front, struct shoali_text_list *out)
{
    shoali_text_list_add(out, "%s", front->self);
    shoali_text_list_add(out, "run");
    shoali_text_list_add(out, "--rank_of=%s", shoali_launcher_name_of(front->launcher));
    if (front->world.file || front->world.named || front->launcher != SHOALI_BY_SLURM) {
        const char *world = shoali_world_print(&front->world, front->arena);
        out->failed = out->failed || !world;
        shoali_text_list_add(out, "--world_info=%s", world ? world : "");
    }
    add_meeting(front, out);
    add_common(front, out);
}

void shoali_remote_command(const struct shoali_front *front, bool shell,
                           const struct shoali_text_list *inner, struct shoali_text_list *out)
{
    const char *script = front->options->venv_script;
    struct shoali_str line = {0};
    if (!shell) {
        shoali_text_list_add_all(out, inner);
        return;
    }
    if (script && *script) {
        shoali_str_append(&line, ". ");
        shoali_shell_quote(&line, script);
        shoali_str_append(&line, " && ");
    }
    shoali_str_append(&line, "cd ");
    shoali_shell_quote(&line, front->folder);
    shoali_str_append(&line, " && exec ");
    shoali_text_list_print(inner, &line);
    out->failed = out->failed || line.failed;
    shoali_text_list_add(out, "%s", shoali_str_get(&line));
    shoali_str_fini(&line);
}

static shoal_status add_launcher_args(const struct shoali_front *front,
                                      struct shoali_text_list *words)
{
    return shoali_text_list_split(words, front->options->launcher_args, "--launcher_args");
}

/* ---- ssh and pdsh --------------------------------------------------------------------------- */
shoal_status shoali_ssh_command(const struct shoali_front *front, const struct shoali_node *node,
                                struct shoali_text_list *words)
{
    shoal_status status = SHOAL_OK;
    if (node->here && front->launcher == SHOALI_BY_SSH)
        return SHOAL_OK;
    shoali_text_list_add(words, "ssh");
    /* ssh takes the first of two options: the user's own come first. */
    if (front->launcher == SHOALI_BY_SSH)
        SHOAL_TRY(status, add_launcher_args(front, words), done);
    else if (front->launcher == SHOALI_BY_PDSH && getenv("PDSH_SSH_ARGS_APPEND"))
        SHOAL_TRY(
            status,
            shoali_text_list_split(words, getenv("PDSH_SSH_ARGS_APPEND"), "PDSH_SSH_ARGS_APPEND"),
            done);
    if (front->options->ssh_port)
        shoali_text_list_add(words, "-p%lld", (long long)front->options->ssh_port);
    shoali_text_list_add(words, "-oBatchMode=yes");
    shoali_text_list_add(words, "-oConnectTimeout=10");
    shoali_text_list_add(words, "-oServerAliveInterval=5");
    shoali_text_list_add(words, "-T");
    shoali_text_list_add(words, "%s", shoali_node_login(node));
done:
    return status;
}

static shoal_status make_ssh(struct shoali_front *front)
{
    shoal_status status = SHOAL_OK;
    front->commands = front->world.nodes;
    for (int32_t i = 0; i < front->world.nodes; i++) {
        const struct shoali_node *node = &front->world.node[i];
        struct shoali_command *command = &front->command[i];
        struct shoali_text_list inner = {.arena = front->arena};
        char number[16];
        snprintf(number, sizeof(number), "%d", (int)i);
        command->host = node->name;
        command->lifeline = true;
        SHOAL_TRY(status, shoali_ssh_command(front, node, &command->words), done);
        add_node(front, number, "stdin", &inner);
        shoali_remote_command(front, command->words.count > 0 || *front->options->venv_script,
                              &inner, &command->words);
    }
done:
    return status;
}

/* pdsh puts the host's number for %n, and reads %% as one %. */
static void escape_percent(const char *text, struct shoali_str *out)
{
    for (; *text; text++)
        shoali_str_append(out, *text == '%' ? "%%%%" : "%c", *text);
}

static shoal_status make_pdsh(struct shoali_front *front)
{
    static const char number[] = "NODE-RANK-HERE";
    shoal_status status;
    struct shoali_text_list *words = &front->command[0].words;
    struct shoali_text_list inner = {.arena = front->arena}, line = {.arena = front->arena};
    struct shoali_str text = {0}, hosts = {0}, ssh = {0};
    const char *before = getenv("PDSH_SSH_ARGS_APPEND");
    for (int32_t i = 0; i < front->world.nodes; i++)
        shoali_str_append(&hosts, "%s%s", i ? "," : "", shoali_node_login(&front->world.node[i]));
    shoali_str_append(&ssh, "PDSH_SSH_ARGS_APPEND=%s%s", before ? before : "",
                      before && *before ? " " : "");
    if (front->options->ssh_port)
        shoali_str_append(&ssh, "-p%lld ", (long long)front->options->ssh_port);
    shoali_str_append(&ssh, "-oBatchMode=yes -oConnectTimeout=10 -oServerAliveInterval=5");
    shoali_text_list_add(&front->assignments, "PDSH_RCMD_TYPE=ssh");
    shoali_text_list_add(&front->assignments, "%s", shoali_str_get(&ssh));
    shoali_text_list_add(words, "pdsh");
    shoali_text_list_add(words, "-S");
    shoali_text_list_add(words, "-f1024");
    shoali_text_list_add(words, "-w");
    shoali_text_list_add(words, "%s", shoali_str_get(&hosts));
    SHOAL_TRY(status, add_launcher_args(front, words), done);
    add_node(front, number, "deposit", &inner);
    shoali_remote_command(front, true, &inner, &line);
    if (line.failed) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    char *at = strstr(line.value[0], number);
    *at = '\0';
    escape_percent(line.value[0], &text);
    shoali_str_append(&text, "%%n");
    escape_percent(at + sizeof(number) - 1, &text);
    shoali_text_list_add(words, "%s", shoali_str_get(&text));
    words->failed = words->failed || text.failed || hosts.failed || ssh.failed;
done:
    shoali_str_fini(&text);
    shoali_str_fini(&hosts);
    shoali_str_fini(&ssh);
    return status;
}

/* ---- MPI launchers and Slurm ---------------------------------------------------------------- */
/* The message's variables and the secret stand in the launcher's own environment. */
static void assign_letter(struct shoali_front *front)
{
    shoali_text_list_add_all(&front->assignments, &front->message.variables);
    shoali_text_list_add(&front->assignments, "SHOAL_JOB_ID=%s", front->job_id);
}

/* NAME,NAME of what the ranks are to get. */
static void add_names(const struct shoali_front *front, struct shoali_str *out)
{
    for (int32_t i = 0; i < front->assignments.count; i++) {
        const char *entry = shoali_text_list_at(&front->assignments, i);
        shoali_str_append(out, "%.*s,", (int)strcspn(entry, "="), entry);
    }
    shoali_str_append(out, "SHOAL_SECRET");
}

/* "h1:2,h2:1" */
static void add_hosts(const struct shoali_front *front, const char *flag,
                      struct shoali_text_list *words)
{
    struct shoali_str hosts = {0};
    for (int32_t i = 0; i < front->world.nodes; i++)
        shoali_str_append(&hosts, "%s%s:%d", i ? "," : "", front->world.node[i].name,
                          (int)front->world.node[i].slots.count);
    shoali_text_list_add(words, "%s", flag);
    shoali_text_list_add(words, "%s", shoali_str_get(&hosts));
    words->failed = words->failed || hosts.failed;
    shoali_str_fini(&hosts);
}

static shoal_status make_openmpi(struct shoali_front *front)
{
    shoal_status status;
    struct shoali_text_list *words = &front->command[0].words;
    assign_letter(front);
    front->command[0].words_in = true;
    shoali_text_list_add(words, "mpirun");
    shoali_text_list_add(words, "-n");
    shoali_text_list_add(words, "%d", (int)front->world.ranks);
    add_hosts(front, "--host", words);
    shoali_text_list_add(words, "--map-by");
    shoali_text_list_add(words, "slot");
    /* Open MPI's own binding leaves a rank one core, and with that one thread. */
    shoali_text_list_add(words, "--bind-to");
    shoali_text_list_add(words, "none");
    shoali_text_list_add(words, "--mca");
    shoali_text_list_add(words, "btl");
    shoali_text_list_add(words, "^openib");
    SHOAL_TRY(status, add_launcher_args(front, words), done);
    for (int32_t i = 0; i < front->assignments.count; i++) {
        const char *entry = shoali_text_list_at(&front->assignments, i);
        shoali_text_list_add(words, "-x");
        shoali_text_list_add(words, "%.*s", (int)strcspn(entry, "="), entry);
    }
    shoali_text_list_add(words, "-x");
    shoali_text_list_add(words, "SHOAL_SECRET");
    shoali_text_list_add(words, "-wdir");
    shoali_text_list_add(words, "%s", front->folder);
    add_rank(front, words);
done:
    return status;
}

/* MPICH's Hydra, which MVAPICH has, too. */
static shoal_status make_hydra(struct shoali_front *front)
{
    static const char *const mvapich[] = {"MV2_SMP_USE_CMA=0", "MV2_DEBUG_SHOW_BACKTRACE=1",
                                          "MV2_SUPPORT_DL=1", "MV2_ENABLE_AFFINITY=0",
                                          "MV2_INTER_ALLGATHER_TUNING=5"};
    shoal_status status;
    struct shoali_text_list *words = &front->command[0].words;
    struct shoali_str names = {0};
    if (front->launcher == SHOALI_BY_MVAPICH)
        for (size_t i = 0; i < sizeof(mvapich) / sizeof(mvapich[0]); i++)
            shoali_text_list_add(&front->assignments, "%s", mvapich[i]);
    assign_letter(front);
    add_names(front, &names);
    shoali_text_list_add(words, "mpirun");
    shoali_text_list_add(words, front->launcher == SHOALI_BY_MVAPICH ? "-np" : "-n");
    shoali_text_list_add(words, "%d", (int)front->world.ranks);
    add_hosts(front, "-hosts", words);
    SHOAL_TRY(status, add_launcher_args(front, words), done);
    shoali_text_list_add(words, "-genvlist");
    shoali_text_list_add(words, "%s", shoali_str_get(&names));
    shoali_text_list_add(words, "-wdir");
    shoali_text_list_add(words, "%s", front->folder);
    add_rank(front, words);
    words->failed = words->failed || names.failed;
done:
    shoali_str_fini(&names);
    return status;
}

/* An argument set per rank, each with its host, so that nodes may be uneven. */
static shoal_status make_impi(struct shoali_front *front)
{
    shoal_status status;
    struct shoali_text_list *words = &front->command[0].words;
    struct shoali_str names = {0};
    shoali_text_list_add(&front->assignments, "I_MPI_PIN=0"); /* the ranks have threads */
    assign_letter(front);
    add_names(front, &names);
    shoali_text_list_add(words, "mpirun");
    SHOAL_TRY(status, add_launcher_args(front, words), done);
    shoali_text_list_add(words, "-genvlist");
    shoali_text_list_add(words, "%s", shoali_str_get(&names));
    for (int32_t rank = 0; rank < front->world.ranks; rank++) {
        const struct shoali_node *node =
            &front->world.node[shoali_world_node_of(&front->world, rank)];
        if (rank > 0)
            shoali_text_list_add(words, ":");
        shoali_text_list_add(words, "-host");
        shoali_text_list_add(words, "%s", node->name);
        shoali_text_list_add(words, "-n");
        shoali_text_list_add(words, "1");
        shoali_text_list_add(words, "-wdir");
        shoali_text_list_add(words, "%s", front->folder);
        shoali_text_list_add(words, "-env");
        shoali_text_list_add(words, "RANK");
        shoali_text_list_add(words, "%d", (int)rank);
        shoali_text_list_add(words, "-env");
        shoali_text_list_add(words, "LOCAL_RANK");
        shoali_text_list_add(words, "%d", (int)(rank - node->first_rank));
        add_rank(front, words);
    }
    words->failed = words->failed || names.failed;
done:
    shoali_str_fini(&names);
    return status;
}

static bool even(const struct shoali_world *world)
{
    for (int32_t i = 1; i < world->nodes; i++)
        if (world->node[i].slots.count != world->node[0].slots.count)
            return false;
    return true;
}

/* srun numbers ranks by its own order of nodes, equally many on each, unless every rank's node is
 * named. An argument has at most 128 KiB. */
static shoal_status add_slurm_nodes(const struct shoali_front *front,
                                    struct shoali_text_list *words)
{
    enum { LONGEST = 120000 };
    const struct shoali_world *world = &front->world;
    struct shoali_str list = {0};
    const bool each = world->file || !even(world);
    shoal_status status = SHOAL_OK;
    shoali_text_list_add(words, "--nodes=%d", (int)world->nodes);
    if (!each)
        shoali_text_list_add(words, "--ntasks-per-node=%d", (int)(world->ranks / world->nodes));
    if (!world->file && !world->named)
        return SHOAL_OK;
    for (int32_t i = 0; i < world->nodes; i++)
        for (int32_t k = 0; k < (each ? world->node[i].slots.count : 1); k++)
            shoali_str_append(&list, "%s%s", list.length ? "," : "", world->node[i].name);
    if (list.length > LONGEST) {
        status = SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                            "--launcher slurm: the names of the hosts of %d ranks are too long for "
                            "srun's command line: leave the hostfile out, and give --num_nodes and "
                            "--num_gpus",
                            (int)world->ranks);
        goto done;
    }
    shoali_text_list_add(words, "--distribution=%s", each ? "arbitrary" : "block");
    shoali_text_list_add(words, "--nodelist=%s", shoali_str_get(&list));
done:
    words->failed = words->failed || list.failed;
    shoali_str_fini(&list);
    return status;
}

static shoal_status make_slurm(struct shoali_front *front)
{
    shoal_status status;
    struct shoali_text_list *words = &front->command[0].words;
    assign_letter(front);
    front->command[0].words_in = true;
    shoali_text_list_add(words, "srun");
    shoali_text_list_add(words, "-n");
    shoali_text_list_add(words, "%d", (int)front->world.ranks);
    SHOAL_TRY(status, add_slurm_nodes(front, words), done);
    /* A rank's end with a failure is the job's, at once. */
    shoali_text_list_add(words, "--kill-on-bad-exit=1");
    /* What is left of a step on a node that is gone holds the others' cores until Slurm gives it
     * up. */
    if (front->overseer)
        shoali_text_list_add(words, "--overlap");
    SHOAL_TRY(status, add_launcher_args(front, words), done);
    shoali_text_list_add(words, "--chdir=%s", front->folder);
    shoali_text_list_add(words, "--export=ALL");
    add_rank(front, words);
done:
    return status;
}

shoal_status shoali_commands_make(struct shoali_front *front)
{
    static shoal_status (*const make[SHOALI_LAUNCHER_COUNT])(struct shoali_front * front) = {
        [SHOALI_BY_PDSH] = make_pdsh,     [SHOALI_BY_OPENMPI] = make_openmpi,
        [SHOALI_BY_MVAPICH] = make_hydra, [SHOALI_BY_SLURM] = make_slurm,
        [SHOALI_BY_MPICH] = make_hydra,   [SHOALI_BY_IMPI] = make_impi,
        [SHOALI_BY_SSH] = make_ssh};
    shoal_status status;
    bool failed;
    front->assignments = (struct shoali_text_list){.arena = front->arena};
    front->commands = 1;
    front->command =
        shoali_arena_alloc(front->arena, (size_t)front->world.nodes * sizeof(front->command[0]));
    if (!front->command)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < front->world.nodes; i++)
        front->command[i] = (struct shoali_command){.words.arena = front->arena};
    SHOAL_TRY(status, make[front->launcher](front), done);
    failed = front->assignments.failed;
    for (int32_t i = 0; i < front->commands; i++)
        failed = failed || front->command[i].words.failed;
    if (failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the commands for %d hosts",
                            (int)front->world.nodes);
done:
    return status;
}
