/* The launcher of one host: a job of this machine whose ranks are some of a larger world. */
#include "launcher/cluster/cluster.h"

#include "base/clock.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Hosts whose users start them by hand agree on what they were all told. */
static void make_job_id(const struct shoali_world *world, const shoal_launch_args *args,
                        struct shoali_arena *arena, char *id, size_t bytes)
{
    const char *text = shoali_world_print(world, arena);
    const char *all = text ? shoali_arena_printf(arena, "%s %s %d", text, args->master_addr,
                                                 (int)args->master_port)
                           : NULL;
    snprintf(id, bytes, "0.0.%08x", all ? (unsigned)shoali_hash64(all, strlen(all)) : 0u);
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

static shoal_status take_letter(const struct shoali_launch_options *options,
                                const struct shoali_world *world, struct shoali_job *job,
                                struct shoali_secret_message *message)
{
    if (options->secret_from == SHOALI_FROM_ENVIRONMENT) {
        job->inherits_secret = world->nodes > 1;
        if (world->nodes == 1 || is_set("SHOAL_SECRET") || is_set("SHOAL_SECRET_FILE"))
            return SHOAL_OK;
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--no_ssh: hosts that are started by hand need one secret: write it with "
                          "`(umask 077; openssl rand -hex 32 > FILE)`, copy the file to all hosts "
                          "and set SHOAL_SECRET_FILE to it");
    }
    shoal_status status =
        options->secret_from == SHOALI_FROM_STDIN
            ? shoali_secret_message_read(STDIN_FILENO, &job->arena, message)
            : shoali_secret_message_take(options->job_id, (int32_t)options->node_rank, &job->arena,
                                         message);
    if (status < 0)
        return status;
    memcpy(job->secret, message->secret, sizeof(job->secret));
    job->reports = job->beats = true;
    job->variables = message->variables.value;
    shoali_lifeline_begin(job, STDIN_FILENO);
    if (options->secret_from == SHOALI_FROM_DEPOSIT)
        shoali_signal_pipe_begin(job);
    job->receives_nothing = options->secret_from != SHOALI_FROM_STDIN;
    if (!job->receives_nothing)
        job->lifeline_end_ns = shoali_deadline_ns(job->host_silence_ns);
    return SHOAL_OK;
}

int64_t shoali_host_silence_ns(const struct shoali_launch_options *options)
{
    /* The front, which can say more, is to find out first. */
    return options->host_timeout > 0
               ? (options->host_timeout + SHOALI_FRONT_FIRST_S) * INT64_C(1000000000)
               : INT64_C(-1);
}

shoal_status shoali_node_run(const struct shoali_launch_options *options,
                             const shoal_launch_args *args, const struct shoali_world *world,
                             struct shoali_arena *arena, int *exit_code)
{
    shoal_status status;
    struct shoali_job job = shoali_job_none;
    struct shoali_secret_message message = {0};
    int held = -1;
    shoali_arena_init(&job.arena);
    if (options->node_rank < 0 || options->node_rank >= world->nodes) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--node_rank %lld: the job has %d host%s: give each its number, from 0 "
                            "to %d in the order of the hostfile",
                            (long long)options->node_rank, (int)world->nodes,
                            world->nodes == 1 ? "" : "s", (int)world->nodes - 1);
        goto done;
    }
    const struct shoali_node *node = &world->node[options->node_rank];
    job.silence_ns = options->silent_rank_timeout * INT64_C(1000000000);
    job.host_silence_ns = shoali_host_silence_ns(options);
    job.args = args;
    job.host = node->name;
    job.node_rank = (int32_t)options->node_rank;
    job.nodes = world->nodes;
    job.ranks = node->slots.count;
    job.first_rank = node->first_rank;
    job.world_ranks = world->ranks;
    job.slots = node->slots;
    job.world = world;
    job.pid_name = options->pid_name;
    if (options->job_id && *options->job_id)
        snprintf(job.id, sizeof(job.id), "%s", options->job_id);
    else
        make_job_id(world, args, arena, job.id, sizeof(job.id));
    SHOAL_TRY(status, take_letter(options, world, &job, &message), done);
    held = shoali_job_hold(job.id);
    SHOAL_TRY(status, shoali_job_run(&job, exit_code), done);
done:
    shoali_signal_pipe_end(&job);
    shoali_job_let_go(held, job.id);
    memset(message.secret, 0, sizeof(message.secret));
    shoali_arena_fini(&job.arena);
    return status;
}
