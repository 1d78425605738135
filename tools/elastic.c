/* shoal elastic -c FILE [-w WORLD] */
#include "flags/flags.h"
#include "tool.h"

#include "base/config_table.h"
#include "shoal/elasticity.h"

#include <stdio.h>

struct elastic_options {
    const char *config;
    int64_t world_size;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
static const struct shoali_option rows[] = {
    {.key = "config",
     .alias = "c",
     .type = SHOALI_STRING,
     .offset = offsetof(struct elastic_options, config),
     .flags = SHOALI_OPTION_REQUIRED,
     .help = "JSON configuration with a section elasticity"},
    {.key = "world-size",
     .alias = "w",
     .type = SHOALI_INT,
     .offset = offsetof(struct elastic_options, world_size),
     .min = 0,
     .max = 1e9,
     .unit = "ranks",
     .help = "number of ranks of a job, whose micro-batch is shown too; 0: none"},
};
static const struct shoali_section section = {
    .name = "elastic",
    .help = "flags",
    .rows = rows,
    .row_count = (int32_t)(sizeof(rows) / sizeof(rows[0])),
    .struct_bytes = sizeof(struct elastic_options),
    .given_offset = offsetof(struct elastic_options, given),
};

static const char usage[] =
    "usage: shoal elastic -c FILE [-w WORLD]\n\n"
    "Shows the batch that the section elasticity of a configuration chooses, the numbers of ranks\n"
    "that can share it, and the micro-batch of each number. It is DeepSpeed's ds_elastic.\n\n";

int tool_elastic(int argc, char **argv)
{
    shoal_status status;
    char *text = NULL;
    struct elastic_options options;
    struct shoali_arena arena;
    const struct shoali_flags table = {&section, &options};
    struct shoali_help help = {0};
    const struct shoali_flag_args flags = {
        .command = "shoal elastic", .tables = &table, .table_count = 1, .help = &help};
    shoali_arena_init(&arena);
    if (tool_wants_help(argc, argv, &help)) {
        status = tool_print_flags(usage, &flags);
        goto done;
    }
    SHOAL_TRY(status, shoali_config_defaults(&section, &options, &arena), done);
    SHOAL_TRY(status, shoali_flags_parse(&flags, argc, argv, &arena, NULL), done);
    SHOAL_TRY(status, shoal_elasticity_describe(options.config, options.world_size, &text), done);
done:
    shoali_arena_fini(&arena);
    return status < 0 ? tool_fail(status) : text ? tool_print(text) : tool_flush();
}
