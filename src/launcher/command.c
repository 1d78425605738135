/* `shoal run`: which kind of job a command line asks for. DeepSpeed: launcher/runner.py. */
#include "launcher/elastic.h"
#include "launcher/tuning.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_PORT = 29500 };

/* What the launcher says while it runs; its sink stays the caller's. */
static shoal_log_level log_level(const struct shoali_launch_options *options)
{
    static const shoal_log_level levels[] = {SHOAL_LOG_DEBUG, SHOAL_LOG_INFO, SHOAL_LOG_WARNING,
                                             SHOAL_LOG_ERROR, SHOAL_LOG_ERROR};
    return options->quiet ? SHOAL_LOG_ERROR : levels[options->log_level];
}

static shoal_status write_help(const struct shoali_flag_args *flags, char **help)
{
    struct shoali_str text = {0};
    shoali_str_append(
        &text, "usage: shoal run [flags] PROGRAM [ARGUMENTS]\n\n"
               "Starts PROGRAM on several ranks, of this machine or of the hosts of a hostfile, "
               "waits for all\nof them, and ends all when one fails.\n\n");
    shoali_flags_help(flags, &text);
    *help = text.failed ? NULL : text.text;
    return text.failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the help text") : SHOAL_OK;
}

shoal_status shoali_world_find(const struct shoali_launch_options *options,
                               const shoal_launch_args *args, struct shoali_arena *arena,
                               struct shoali_world *world)
{
    shoal_status status;
    struct shoali_hosts hosts;
    const bool filtered = args->include || args->exclude;
    if (options->launcher == SHOALI_BY_SLURM && !args->hostfile)
        return shoali_slurm_world(args, arena, world);
    SHOAL_TRY(status, shoali_hosts_read(args->hostfile, arena, &hosts), done);
    SHOAL_TRY(status, shoali_slots_select(args->include, args->exclude, &hosts), done);
    /* Without a word about them, ranks are not as many as this machine has cores. */
    const int32_t ranks = args->ranks || filtered || args->hostfile ? args->ranks : 1;
    SHOAL_TRY(status, shoali_world_make(&hosts, args->num_nodes, ranks, arena, world), done);
done:
    return status;
}

/* A node of a job that another `shoal run`, or the user on each host, has started. */
static shoal_status run_node(const struct shoali_launch_options *options, shoal_launch_args *args,
                             struct shoali_world *world, struct shoali_arena *arena, int *exit_code)
{
    shoal_status status = SHOAL_OK;
    struct shoali_launch_options own = *options;
    if (*options->world_info)
        SHOAL_TRY(status, shoali_world_parse(options->world_info, arena, world), done);
    if (own.node_rank < 0 && *options->world_info && world->nodes == 1)
        own.node_rank = 0;
    if (own.node_rank < 0) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "%s: give this host its number with --node_rank, from 0 to %d in the "
                       "order of the hosts",
                       *options->world_info ? "--world_info" : "--no_ssh", (int)world->nodes - 1);
        goto done;
    }
    if (args->master_port <= 0)
        args->master_port = shoali_environment_number("MASTER_PORT")
                                ? shoali_environment_number("MASTER_PORT")
                                : DEFAULT_PORT;
    if (!args->master_addr)
        args->master_addr = world->nodes > 1 ? world->node[0].name : "127.0.0.1";
    SHOAL_TRY(status, shoali_node_run(&own, args, world, arena, exit_code), done);
done:
    return status;
}

static shoal_status dispatch(const struct shoali_launch_options *options, shoal_launch_args *args,
                             struct shoali_arena *arena, int *exit_code, char **text)
{
    shoal_status status;
    struct shoali_world world = {0};
    if (options->report)
        return shoali_report(options, args->program, text);
    if (shoali_config_given(&shoali_launch_section, options, "rank_of"))
        return shoali_mpi_rank_run(options, args, arena, exit_code);
    if (*options->world_info)
        return run_node(options, args, &world, arena, exit_code);
    if (options->elastic_training && !options->dry_run)
        return shoali_agent_run(options, args, exit_code);
    SHOAL_TRY(status, shoali_world_find(options, args, arena, &world), done);
    if (shoali_front_needed(options, &world))
        SHOAL_TRY(status, shoali_front_run(options, args, &world, NULL, arena, text, exit_code),
                  done);
    else if (options->no_ssh)
        SHOAL_TRY(status, run_node(options, args, &world, arena, exit_code), done);
    else if (options->dry_run)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--dry-run shows the commands for other hosts, and this job is of this "
                            "machine alone: add --force_multi to see them all the same");
    else
        SHOAL_TRY(status, shoal_launch(args, exit_code), done);
done:
    return status;
}

/* The words of the program, behind Python's where they are a module of it. */
static shoal_status make_program(const struct shoali_launch_options *options,
                                 const struct shoali_strings *words, struct shoali_arena *arena,
                                 const char *const **program)
{
    static const char *const python[] = {"python3", "-u", "-m"};
    const size_t before = options->module && words->count ? 3 : 0;
    const char **list =
        shoali_arena_alloc(arena, (before + (size_t)words->count + 1) * sizeof(const char *));
    if (!list)
        return SHOAL_ENOMEM;
    memcpy(list, python, before * sizeof(const char *));
    if (words->count)
        memcpy(list + before, words->value, (size_t)words->count * sizeof(const char *));
    *program = list;
    return SHOAL_OK;
}

/* Tunes; what is to be started after that replaces the program's words, which are none for "tune". */
static shoal_status tune(const struct shoali_launch_options *options, const shoal_launch_args *args,
                         int argc, char *const *argv, struct shoali_strings *rest,
                         struct shoali_arena *arena, int *exit_code)
{
    shoal_status status;
    const char *const *best = NULL;
    shoal_launch_args own = *args;
    struct shoali_strings flags = {.value = (const char **)(argc > 0 ? argv + 1 : argv),
                                   .count = argc > rest->count ? argc - rest->count - 1 : 0};
    const char **words = shoali_arena_alloc(arena, ((size_t)rest->count + 1) * sizeof(words[0]));
    if (!words)
        return SHOAL_ENOMEM;
    if (rest->count)
        memcpy(words, rest->value, (size_t)rest->count * sizeof(words[0]));
    words[rest->count] = NULL;
    own.program = words;
    SHOAL_TRY(status, shoali_tune(options, &own, &flags, arena, &best, exit_code), done);
    rest->count = 0;
    if (best && strcmp(options->autotuning, "run") == 0) {
        rest->value = (const char **)best;
        while (best[rest->count])
            rest->count++;
    }
done:
    return status;
}

shoal_status shoal_launch_command(int argc, char *const *argv, int *exit_code, char **help)
{
    shoal_status status;
    struct shoali_launch_options options = {0};
    struct shoali_arena arena;
    struct shoali_strings rest = {0};
    struct shoali_flags table = {&shoali_launch_section, &options};
    const struct shoali_flag_args flags = {
        .command = "shoal run", .tables = &table, .table_count = 1, .stop_at_word = true};
    struct shoali_context *context = shoali_context_get();
    struct shoali_logger *old_logger = context->logger, logger;
    shoal_launch_args args = {0};

    *exit_code = 0;
    *help = NULL;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_config_defaults(&shoali_launch_section, &options, &arena), done);
    SHOAL_TRY(status, shoali_flags_parse(&flags, argc, argv, &arena, &rest), done);
    if (options.help) {
        SHOAL_TRY(status, write_help(&flags, help), done);
        goto done;
    }
    SHOAL_TRY(status, shoali_logger_init(&logger, "info"), done);
    if (old_logger)
        logger = *old_logger;
    logger.level = log_level(&options);
    context->logger = &logger;
    SHOAL_TRY(status, shoali_launch_resolve(&options, &args), done);
    if (*options.autotuning) {
        SHOAL_TRY(status, tune(&options, &args, argc, argv, &rest, &arena, exit_code), done);
        if (rest.count == 0)
            goto done;
    }
    SHOAL_TRY(status, make_program(&options, &rest, &arena, &args.program), done);
    SHOAL_TRY(status, dispatch(&options, &args, &arena, exit_code, help), done);
done:
    context->logger = old_logger;
    shoali_arena_fini(&arena);
    return status;
}
