/* shoal report --world N ...: which ranks work together. */
#include "report_mesh.h"

#include "base/str.h"
#include "flags/flags.h"
#include "flags/mesh.h"
#include "tool.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { LINE = 100, NAME = 20, WORLD_MAX = 65536 };

struct mesh_options {
    int64_t world_size;
    const char *deepspeed_config;
    struct mesh_flags mesh;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct mesh_options, key, type, member, __VA_ARGS__)
static const struct shoali_option rows[] = {
    OPTION("world-size", INT, world_size, .alias = "world", .flags = SHOALI_OPTION_REQUIRED,
           .min = 1, .max = WORLD_MAX, .help = "number of ranks of the job"),
    OPTION("deepspeed_config", STRING, deepspeed_config, .alias = "deepspeed-config",
           .help = "JSON configuration, for its parallel sizes and exact reduction"),
};
static const struct shoali_section section = {.name = "report",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct mesh_options),
                                              .given_offset = offsetof(struct mesh_options, given)};

/* ---- groups as text ------------------------------------------------------------------------- */

/* What is printed, line by line. */
struct listing {
    struct shoali_str text;
    size_t column;
};

static void begin_row(struct listing *out, const char *name)
{
    shoali_str_append(&out->text, "%-*s", NAME, name);
    out->column = NAME;
}

static void put_word(struct listing *out, const char *word)
{
    const size_t bytes = strlen(word);
    if (out->column + bytes + 1 > LINE && out->column > NAME) {
        shoali_str_append(&out->text, "\n%-*s", NAME, "");
        out->column = NAME;
    }
    shoali_str_append(&out->text, " %s", word);
    out->column += bytes + 1;
}

/* "[0 2 4 6]"; neighbours of four and more as "[0-7]". */
static void put_group(struct listing *out, const int32_t *ranks, int32_t count)
{
    struct shoali_str word = {0};
    for (int32_t i = 0; i < count;) {
        int32_t last = i;
        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1)
            last++;
        if (last - i < 3)
            last = i;
        shoali_str_append(&word, i ? " %d" : "[%d", ranks[i]);
        if (last > i)
            shoali_str_append(&word, "-%d", ranks[last]);
        i = last + 1;
    }
    shoali_str_append(&word, "]");
    put_word(out, shoali_str_get(&word));
    shoali_str_fini(&word);
}

/* ---- the table ------------------------------------------------------------------------------ */

/* The sets of axes that Megatron makes groups of. */
static const shoal_axes sets[] = {
    SHOAL_AXIS_TP,
    SHOAL_AXIS_CP,
    SHOAL_AXIS_DP,
    SHOAL_AXIS_DP | SHOAL_AXIS_CP,
    SHOAL_AXIS_PP,
    SHOAL_AXIS_TP | SHOAL_AXIS_PP,
    SHOAL_AXIS_TP | SHOAL_AXIS_CP,
    SHOAL_AXIS_TP | SHOAL_AXIS_DP,
    SHOAL_AXIS_TP | SHOAL_AXIS_DP | SHOAL_AXIS_CP,
    SHOAL_AXIS_EXPERT | SHOAL_AXIS_TP,
    SHOAL_AXIS_EXPERT | SHOAL_AXIS_EP,
    SHOAL_AXIS_EXPERT | SHOAL_AXIS_TP | SHOAL_AXIS_EP,
    SHOAL_AXIS_EXPERT | SHOAL_AXIS_TP | SHOAL_AXIS_EP | SHOAL_AXIS_PP,
    SHOAL_AXIS_EXPERT | SHOAL_AXIS_DP,
};
enum { SETS = sizeof sets / sizeof sets[0], AXES = 5 };
static const char *const axis_names[AXES] = {"tp", "cp", "ep", "dp", "pp"};

/* Without the axes of one rank, which change no group; of experts nothing when there are none. */
static shoal_axes essence(const shoal_mesh *mesh, const struct mesh_options *options,
                          shoal_axes axes)
{
    const shoal_axes expert = axes & SHOAL_AXIS_EXPERT;
    shoal_axes left = 0;
    if (expert && options->mesh.expert == 1)
        return 0;
    for (int i = 0; i < AXES; i++)
        if ((axes & 1u << i) && shoal_mesh_size(mesh, expert | 1u << i) > 1)
            left |= 1u << i;
    return left ? left | expert : 0;
}

/* "expert ep+pp". */
static const char *name_of(shoal_axes axes, char *text, size_t bytes)
{
    const char *between = "";
    size_t at = (size_t)snprintf(text, bytes, "%s", axes & SHOAL_AXIS_EXPERT ? "expert " : "");
    for (int i = 0; i < AXES; i++)
        if (axes & 1u << i) {
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", between, axis_names[i]);
            between = "+";
        }
    return text;
}

static bool is_first(const shoal_mesh *mesh, shoal_axes axes, int32_t rank)
{
    return shoal_mesh_coordinate(mesh, axes, rank) == 0;
}

static void list_groups(const shoal_mesh *mesh, shoal_axes axes, int32_t *ranks,
                        struct listing *out)
{
    char name[NAME + 1];
    const int32_t size = shoal_mesh_size(mesh, axes);
    begin_row(out, name_of(axes, name, sizeof name));
    for (int32_t rank = 0; rank < shoal_mesh_ranks(mesh); rank++) {
        if (!is_first(mesh, axes, rank))
            continue;
        for (int32_t i = 0; i < size; i++)
            ranks[i] = shoal_mesh_member(mesh, axes, rank, i);
        put_group(out, ranks, size);
    }
    shoali_str_append(&out->text, "\n");
}

/* The first and the last stage share the token table. */
static void list_embeddings(const shoal_mesh *mesh, struct listing *out)
{
    int32_t ranks[2];
    begin_row(out, "tied embeddings");
    for (int32_t rank = 0; rank < shoal_mesh_ranks(mesh); rank++)
        if (is_first(mesh, SHOAL_AXIS_PP, rank))
            put_group(out, ranks, shoal_mesh_embedding_ranks(mesh, true, rank, ranks));
    shoali_str_append(&out->text, "\npositions           ");
    out->column = NAME;
    for (int32_t rank = 0; rank < shoal_mesh_ranks(mesh); rank++)
        if (is_first(mesh, SHOAL_AXIS_PP, rank)) {
            ranks[0] = shoal_mesh_position_embedding_rank(mesh, rank);
            put_group(out, ranks, 1);
        }
    shoali_str_append(&out->text, "\n");
}

/* ---- exact sums ----------------------------------------------------------------------------- */

/* Pieces along one axis, and how many of them a rank along tp has. */
static shoal_status list_splits(const char *name, int64_t splits, int64_t ranks,
                                struct listing *out)
{
    if (splits < 1 || splits % ranks != 0)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "exact_splits.%s is %lld and there are %lld tensor-parallel ranks: "
                          "give a multiple of %lld",
                          name, (long long)splits, (long long)ranks, (long long)ranks);
    shoali_str_append(&out->text, "exact_splits.%-8s %lld: %lld on each rank along tp\n", name,
                      (long long)splits, (long long)(splits / ranks));
    return SHOAL_OK;
}

/* What the configuration says of sums that ranks along tp share. */
static shoal_status list_exact(const struct mesh_options *options, struct listing *out)
{
    shoal_status status = SHOAL_OK;
    struct shoali_json *document = NULL;
    if (!options->deepspeed_config)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_json_load_config(options->deepspeed_config, &document), done);
    const json_t *root = shoali_json_root(document);
    const char *reduction = json_string_value(json_object_get(root, "reduction"));
    const json_t *splits = json_object_get(root, "exact_splits");
    const json_t *tensor = json_object_get(splits, "tensor");
    const json_t *sequence = json_object_get(splits, "sequence");
    if (!reduction || strcmp(reduction, "exact") != 0)
        goto done;
    SHOAL_TRY(status,
              shoali_json_locate(document, "exact_splits",
                                 list_splits("tensor", tensor ? json_integer_value(tensor) : 1,
                                             options->mesh.tensor, out)),
              done);
    if (sequence)
        shoali_str_append(&out->text, "exact_splits.sequence %lld\n",
                          (long long)json_integer_value(sequence));
    shoali_str_append(&out->text, "\n");
done:
    shoali_json_close(document);
    return status;
}

static shoal_status list(const struct mesh_options *options, struct listing *out)
{
    shoal_status status;
    char line[128];
    shoal_mesh *mesh = NULL;
    int32_t *ranks = shoali_calloc((size_t)options->world_size, sizeof *ranks, "ranks of a mesh");
    if (!ranks)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, mesh_flags_open(&options->mesh, NULL, (int32_t)options->world_size, 0, &mesh),
              done);
    shoali_str_append(&out->text, "%s\n\n", shoal_mesh_describe(mesh, line, sizeof line));
    SHOAL_TRY(status, list_exact(options, out), done);
    for (int i = 0; i < SETS; i++) {
        const shoal_axes axes = essence(mesh, options, sets[i]);
        bool known = axes == 0;
        for (int before = 0; before < i && !known; before++)
            known = essence(mesh, options, sets[before]) == axes;
        if (!known)
            list_groups(mesh, axes, ranks, out);
    }
    if (options->mesh.pipeline > 1)
        list_embeddings(mesh, out);
done:
    shoal_mesh_destroy(mesh);
    shoali_free(ranks);
    return status;
}

int report_mesh(int argc, char **argv)
{
    shoal_status status;
    struct mesh_options options;
    struct shoali_arena arena;
    struct listing out = {.text = {0}};
    const struct shoali_flags tables[] = {{&section, &options},
                                          {&mesh_sizes_section, &options.mesh}};
    const struct shoali_flag_args args = {
        .command = "shoal report", .tables = tables, .table_count = 2};
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_config_defaults(&section, &options, &arena), done);
    SHOAL_TRY(status, shoali_config_defaults(&mesh_sizes_section, &options.mesh, &arena), done);
    SHOAL_TRY(status, shoali_flags_parse(&args, argc, argv, &arena, NULL), done);
    SHOAL_TRY(status, mesh_flags_take_config(&options.mesh, options.deepspeed_config, &arena),
              done);
    SHOAL_TRY(status, list(&options, &out), done);
    fputs(shoali_str_get(&out.text), stdout);
done:;
    const int code = status < 0 ? tool_fail(status) : tool_flush();
    shoali_str_fini(&out.text);
    shoali_arena_fini(&arena);
    return code;
}

shoal_status report_mesh_help(const char *usage, struct shoali_help *help)
{
    struct mesh_options options = {0};
    const struct shoali_flags tables[] = {{&section, &options},
                                          {&mesh_sizes_section, &options.mesh}};
    return tool_print_flags(
        usage, &(struct shoali_flag_args){
                   .command = "shoal report", .tables = tables, .table_count = 2, .help = help});
}
