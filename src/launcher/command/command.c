/* `shoal run`: which kind of job a command line asks for. DeepSpeed: launcher/runner.py. */
#include "launcher/command/command.h"
#include "launcher/elastic/elastic.h"
#include "launcher/tuning/tuning.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEFAULT_PORT = 29500 };

/* What the launcher says while it runs; its sink stays the caller's. */
static shoal_log_level log_level(const struct shoali_launch_options *options)
{
    static const shoal_log_level levels[] = {SHOAL_LOG_DEBUG, SHOAL_LOG_INFO, SHOAL_LOG_WARNING,
                                             SHOAL_LOG_ERROR, SHOAL_LOG_ERROR};
    return options->quiet ? SHOAL_LOG_ERROR : levels[options->log_level];
}

/* The lines of processes.c come where --log_level info is given, not where it is the default. */
static void choose_processes_level(const struct shoali_launch_options *options,
                                   struct shoali_logger *logger)
{
    const bool asked = shoali_config_given(&shoali_launch_section, options, "log_level") &&
                       logger->level <= SHOAL_LOG_INFO;
    const int32_t last = logger->subsystem_count;
    if (!asked || last == (int32_t)(sizeof logger->subsystem / sizeof logger->subsystem[0]))
        return;
    snprintf(logger->subsystem[last], sizeof logger->subsystem[last], "%s", SHOALI_PROCESSES_LOG);
    logger->subsystem_level[last] = SHOAL_LOG_DEBUG;
    logger->subsystem_count++;
}

static shoal_status write_help(const struct shoali_flag_args *flags, char **help)
{
    struct shoali_str text = {0};
    if (!flags->help->group)
        shoali_str_append(
            &text,
            "usage: shoal run [flags] PROGRAM [ARGUMENTS]\n\n"
            "Starts PROGRAM as several ranks, on this machine or on the hosts of a hostfile. Waits "
            "for all\nranks, and ends all of them when one fails.\n\n");
    shoal_status status = shoali_flags_help(flags, &text);
    if (status == SHOAL_OK && text.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the help text");
    if (status < 0)
        shoali_str_fini(&text);
    *help = text.text;
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

/* launch.py restarts the ranks of a world, too; here the agent on one host does so for all. */
static shoal_status run_elastic_node(const struct shoali_launch_options *options,
                                     shoal_launch_args *args, struct shoali_arena *arena,
                                     int *exit_code)
{
    shoal_status status;
    struct shoali_world world = {0};
    struct shoali_launch_options own = *options;
    SHOAL_TRY(status, shoali_world_parse(options->world_info, arena, &world), done);
    if (world.nodes > 1) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--world_info with --elastic_training names %d hosts: start `shoal run "
                            "--elastic_training -H HOSTFILE` on one host, which restarts the ranks "
                            "of all",
                            (int)world.nodes);
        goto done;
    }
    own.world_info = "";
    own.num_gpus = args->ranks = world.ranks;
    SHOAL_TRY(status, shoali_agent_run(&own, args, exit_code), done);
done:
    return status;
}

static shoal_status dispatch(const struct shoali_launch_options *options, shoal_launch_args *args,
                             struct shoali_arena *arena, int *exit_code, char **text)
{
    shoal_status status;
    struct shoali_world world = {0};
    if (*options->tell)
        return shoali_signal_pipe_send(options);
    if (options->report)
        return shoali_report(options, args->program, text);
    if (shoali_config_given(&shoali_launch_section, options, "rank_of"))
        return shoali_mpi_rank_run(options, args, arena, exit_code);
    if (*options->world_info && options->elastic_training)
        return run_elastic_node(options, args, arena, exit_code);
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
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "--dry-run shows the commands for other hosts, and this job "
                                     "runs on this machine only: add --force_multi to see them");
    else
        SHOAL_TRY(status, shoal_launch(args, exit_code), done);
done:
    return status;
}

/* A file of Python here, which DeepSpeed's launcher starts by python. */
static bool is_python(const struct shoali_launch_options *options,
                      const struct shoali_strings *words)
{
    struct stat info;
    const char *name = words->count ? words->value[0] : "";
    const size_t length = strlen(name);
    return !options->no_python && length > 3 && strcmp(name + length - 3, ".py") == 0 &&
           stat(name, &info) == 0 && S_ISREG(info.st_mode);
}

/* The words of the program, behind Python's where they are a module or a script of it. */
static shoal_status make_program(const struct shoali_launch_options *options,
                                 const struct shoali_strings *words, struct shoali_arena *arena,
                                 const char *const **program)
{
    static const char *const python[] = {"python3", "-u", "-m"};
    const bool module = options->module && words->count;
    const size_t before = module ? 3 : is_python(options, words) ? 2 : 0;
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

/* Tunes; what is to be started after that replaces the program's words, which are none for
 * "tune". */
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

/* Is the program's first word the number that DeepSpeed's launch.py takes behind --save_pid? */
static bool is_pid_name(int argc, char *const *argv, const struct shoali_strings *rest,
                        int64_t *name)
{
    const int at = argc - rest->count;
    return rest->count > 0 && at > 1 &&
           (strcmp(argv[at - 1], "--save_pid") == 0 || strcmp(argv[at - 1], "--save-pid") == 0) &&
           shoali_parse_i64(rest->value[0], name) && *name >= 0;
}

/* The flags, with such a number left out. */
static shoal_status parse(const struct shoali_flag_args *flags, int argc, char *const *argv,
                          struct shoali_arena *arena, struct shoali_strings *rest)
{
    struct shoali_launch_options *options = flags->tables[0].config;
    shoal_status status = SHOAL_OK;
    int64_t name = 0;
    SHOAL_TRY(status, shoali_config_defaults(&shoali_launch_section, options, arena), done);
    SHOAL_TRY(status, shoali_flags_parse(flags, argc, argv, arena, rest), done);
    if (status == SHOAL_END || !is_pid_name(argc, argv, rest, &name))
        goto done;
    char **words = shoali_arena_alloc(arena, (size_t)argc * sizeof words[0]);
    const int at = argc - rest->count;
    if (!words)
        return SHOAL_ENOMEM;
    memcpy(words, argv, (size_t)at * sizeof words[0]);
    memcpy(words + at, argv + at + 1, (size_t)(argc - at - 1) * sizeof words[0]);
    *options = (struct shoali_launch_options){0};
    SHOAL_TRY(status, shoali_config_defaults(&shoali_launch_section, options, arena), done);
    SHOAL_TRY(status, shoali_flags_parse(flags, argc - 1, words, arena, rest), done);
    options->pid_name = name;
    if (status != SHOAL_END && !*options->world_info)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--save_pid %lld: the flag takes a number only with --world_info, as "
                            "DeepSpeed's launch.py does: leave the number out",
                            (long long)name);
    options->save_pid = name > 0; /* 0 is launch.py's word for no file */
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
    static const char *const groups[] = {"hosts", "start",   "elastic",    "failures",
                                         "cores", "logging", "autotuning", NULL};
    struct shoali_help asked = {0};
    const struct shoali_flag_args flags = {.command = "shoal run",
                                           .tables = &table,
                                           .table_count = 1,
                                           .stop_at_word = true,
                                           .groups = groups,
                                           .help = &asked};
    struct shoali_context *context = shoali_context_get();
    struct shoali_logger *old_logger = context->logger, logger;
    shoal_launch_args args = {0};

    *exit_code = 0;
    *help = NULL;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, parse(&flags, argc, argv, &arena, &rest), done);
    if (status == SHOAL_END) {
        SHOAL_TRY(status, write_help(&flags, help), done);
        goto done;
    }
    SHOAL_TRY(status, shoali_logger_init(&logger, "info"), done);
    if (old_logger)
        logger = *old_logger;
    logger.level = log_level(&options);
    choose_processes_level(&options, &logger);
    context->logger = &logger;
    SHOAL_TRY(status, shoali_launch_resolve(&options, &args), done);
    if (*options.autotuning) {
        SHOAL_TRY(status, tune(&options, &args, argc, argv, &rest, &arena, exit_code), done);
        if (rest.count == 0)
            goto done;
    }
    SHOAL_TRY(status, make_program(&options, &rest, &arena, &args.program), done);
    args.grace_period = shoali_grace_choose(&options, args.program);
    SHOAL_TRY(status, dispatch(&options, &args, &arena, exit_code, help), done);
done:
    context->logger = old_logger;
    shoali_arena_fini(&arena);
    return status;
}
