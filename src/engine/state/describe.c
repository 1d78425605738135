/* The mesh as people read it: sizes, who has which layers, samples, and what the schedule loses. */
#include "base/str.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

static const char *type_of(const struct shoal_engine *engine, int32_t layer)
{
    const char *name = engine->module.layer[layer].type->name;
    return name ? name : "layer";
}

/* "gpt_embedding, gpt_block 0-2": neighbours of one type together, counted through the model. */
static void append_layers(const struct shoal_engine *engine, int32_t begin, int32_t end,
                          struct shoali_str *text)
{
    for (int32_t l = begin; l < end;) {
        const char *type = type_of(engine, l);
        int32_t next = l + 1, before = 0, all = 0;
        while (next < end && strcmp(type_of(engine, next), type) == 0)
            next++;
        for (int32_t i = 0; i < engine->module.layer_count; i++) {
            const bool same = strcmp(type_of(engine, i), type) == 0;
            before += same && i < l;
            all += same;
        }
        shoali_str_append(text, "%s%s", l > begin ? ", " : "", type);
        if (all > 1)
            shoali_str_append(text, " %d", (int)before);
        if (next - l > 1)
            shoali_str_append(text, "-%d", (int)(before + next - l - 1));
        l = next;
    }
    if (begin == end)
        shoali_str_append(text, "no layers");
}

/* Elements of the layers' parameters; a tied one counts wherever it is used. */
static double count_parameters(const struct shoal_engine *engine, int32_t begin, int32_t end)
{
    double count = 0;
    for (int32_t l = begin; l < end; l++)
        for (int32_t i = 0; i < engine->module.layer[l].param_count; i++)
            count += (double)shoal_param_count(engine->module.layer[l].param[i]);
    return count;
}

static void append_stage(const struct shoal_engine *engine, int32_t stage, struct shoali_str *text)
{
    char count[32];
    double parameters = 0;
    const int32_t *begin = engine->stages.begin;
    const int32_t stages = engine->stages.count, chunks = engine->stages.args.chunks;
    shoali_str_append(text, "stage %d: ", (int)stage);
    for (int32_t c = 0; c < chunks; c++) {
        const int32_t k = c * stages + stage;
        shoali_str_append(text, c > 0 ? " | " : "");
        append_layers(engine, begin[k], begin[k + 1], text);
        parameters += count_parameters(engine, begin[k], begin[k + 1]);
    }
    shoali_str_append(text, "; %s parameters\n", shoali_format_count(parameters, count));
}

/* Lost to waiting where all stages take as long. */
static shoal_status find_bubble(const struct shoal_engine *engine, double *bubble)
{
    shoal_status status;
    struct shoali_arena arena;
    struct shoali_orders orders;
    struct shoali_timeline timeline;
    const struct shoali_durations equal = {.beside = engine->stages.beside};
    struct shoali_pipeline_args args = engine->stages.args;
    args.micro_batches = (int32_t)engine->step.batch.accumulation;
    args.training = true;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_orders_make(&args, &arena, &orders), done);
    SHOAL_TRY(status, shoali_timeline_make(&orders, &equal, &arena, &timeline), done);
    *bubble = shoali_timeline_bubble(&timeline);
done:
    shoali_arena_fini(&arena);
    return status;
}

static shoal_status append_pipeline(const struct shoal_engine *engine, struct shoali_str *text)
{
    shoal_status status = SHOAL_OK;
    double bubble;
    const struct shoali_pipeline_args *args = &engine->stages.args;
    if (engine->stages.count == 1)
        return SHOAL_OK;
    shoali_str_append(text, "pipeline: %d stages", (int)engine->stages.count);
    if (args->chunks > 1)
        shoali_str_append(text, " of %d chunks", (int)args->chunks);
    shoali_str_append(text, ", %s", shoali_pipeline_schedule_name(args->schedule));
    if (!engine->inference) {
        SHOAL_TRY(status, find_bubble(engine, &bubble), done);
        shoali_str_append(text, ", bubble %.1f %% with %lld micro-batches and equal stages",
                          100 * bubble, (long long)engine->step.batch.accumulation);
    }
    shoali_str_append(text, "\n");
    for (int32_t stage = 0; stage < engine->stages.count; stage++)
        append_stage(engine, stage, text);
done:
    return status;
}

shoal_status shoal_engine_describe_mesh(const shoal_engine *engine, char **text)
{
    shoal_status status = SHOAL_OK;
    char line[128];
    struct shoali_str made = {0};
    *text = NULL;
    if (engine->place.data_ranks < engine->place.world)
        shoali_str_append(&made, "mesh: %s\n",
                          shoal_mesh_describe(engine->place.mesh, line, sizeof line));
    SHOAL_TRY(status, append_pipeline(engine, &made), done);
    *text = shoali_malloc(made.length + 1, "a description of the mesh");
    if (!*text || made.failed) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    memcpy(*text, shoali_str_get(&made), made.length + 1);
done:
    if (status < 0) {
        shoali_free(*text);
        *text = NULL;
    }
    shoali_str_fini(&made);
    return status;
}
