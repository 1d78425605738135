/* shoal elastic -c FILE [-w WORLD] */
#include "tool.h"

#include "base/config_table.h"
#include "shoal/elasticity.h"

#include "base/str.h"

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
     .help = "the ds_config.json whose section elasticity is meant"},
    {.key = "world-size",
     .alias = "w",
     .type = SHOALI_INT,
     .offset = offsetof(struct elastic_options, world_size),
     .min = 0,
     .max = 1e9,
     .unit = "ranks",
     .help = "the ranks of a job, for which the micro-batch is shown, too; 0: none"},
};
static const struct shoali_section section = {
    .name = "elastic",
    .help = "flags",
    .rows = rows,
    .row_count = (int32_t)(sizeof(rows) / sizeof(rows[0])),
    .struct_bytes = sizeof(struct elastic_options),
    .given_offset = offsetof(struct elastic_options, given),
};

static int show_help(const struct shoali_flag_args *flags)
{
    struct shoali_str text = {0};
    shoali_str_append(&text, "usage: shoal elastic -c FILE [-w WORLD]\n\n"
                             "Shows what the section elasticity of a configuration comes to: the "
                             "batch, the numbers of ranks\nthat can divide it, and how they do. "
                             "DeepSpeed's ds_elastic.\n\n");
    shoali_flags_help(flags, &text);
    fputs(shoali_str_get(&text), stdout);
    shoali_str_fini(&text);
    return tool_flush();
}

int tool_elastic(int argc, char **argv)
{
    shoal_status status;
    char *text = NULL;
    struct elastic_options options;
    struct shoali_arena arena;
    const struct shoali_flags table = {&section, &options};
    const struct shoali_flag_args flags = {
        .command = "shoal elastic", .tables = &table, .table_count = 1};
    if (tool_wants_help(argc, argv))
        return show_help(&flags);
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_config_defaults(&section, &options, &arena), done);
    SHOAL_TRY(status, shoali_flags_parse(&flags, argc, argv, &arena, NULL), done);
    SHOAL_TRY(status, shoal_elasticity_describe(options.config, options.world_size, &text), done);
done:
    shoali_arena_fini(&arena);
    return status < 0 ? tool_fail(status) : tool_print(text);
}
