/* --draw and --search: a pipeline as a picture, the best layouts as a table. */
#include "plan/plan.h"
#include "tool.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- pictures ------------------------------------------------------------------------------- */

shoal_status plan_check_draw(const struct planning *planning)
{
    const char *path = planning->own.draw;
    const size_t bytes = path ? strlen(path) : 0;
    if (!path)
        return SHOAL_OK;
    if (bytes <= 4 || strcmp(path + bytes - 4, ".svg") != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: --draw \"%s\" is not an SVG file: give a name that ends in .svg",
                          planning->name, path);
    if (planning->own.search)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: --draw and --search exclude each other: search first, then draw "
                          "one of the layouts",
                          planning->name);
    if (planning->options.mesh.pipeline <= 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s: --draw needs a pipeline: give --pipeline-model-parallel-size of 2 "
                          "or more",
                          planning->name);
    return SHOAL_OK;
}

shoal_status plan_write_picture(const struct planning *planning)
{
    const char *path = planning->own.draw;
    if (!path)
        return SHOAL_OK;
    FILE *file = fopen(path, "w");
    const bool failed = !file || fputs(planning->column->svg, file) == EOF;
    const int why = errno;
    if ((file && fclose(file) != 0) || failed)
        return SHOAL_FAIL(SHOAL_EIO, "%s: --draw cannot write \"%s\": %s", planning->name, path,
                          strerror(failed ? why : errno));
    return SHOAL_OK;
}

shoal_status plan_draw(struct planning *planning, int32_t world, struct column *column)
{
    shoal_status status = SHOAL_OK;
    const shoal_plan_args args = plan_args_of(planning, world);
    if (args.pipeline <= 1)
        return SHOAL_OK;
    column->stage = shoali_calloc((size_t)args.pipeline, sizeof *column->stage, "stages");
    if (!column->stage)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status,
              shoal_layout_draw(&planning->setup.args, &args, &planning->rates, &column->pipeline,
                                column->stage, args.pipeline,
                                planning->own.draw ? &column->svg : NULL),
              done);
done:
    return status;
}

void plan_show_pipeline(const struct planning *planning, const struct column *column)
{
    const shoal_layout_pipeline *pipeline = &column->pipeline;
    char parameters[32], kept[32];
    if (!column->stage)
        return;
    const char *unit = pipeline->seconds ? "s" : "FLOPs";
    printf("\npipeline %s: %d stages", pipeline->schedule, (int)pipeline->stages);
    if (pipeline->chunks > 1)
        printf(" of %d chunks", (int)pipeline->chunks);
    printf(", %lld micro-batches\n", (long long)pipeline->micro_batches);
    printf("  %5s %7s %12s %12s %12s %9s %12s\n", "stage", "layers", "parameters", "forward",
           "backward", "in flight", "activations");
    for (int32_t s = 0; s < pipeline->stages; s++) {
        const shoal_layout_stage *stage = &column->stage[s];
        printf("  %5d %7d %12s %12.4g %12.4g %9d %12s\n", (int)s, (int)stage->layers,
               shoali_format_count((double)stage->parameters, parameters), stage->forward,
               stage->backward, (int)stage->in_flight,
               shoali_format_bytes((double)stage->activations_bytes, kept));
    }
    printf("bubble: %.2f %% of the time of the busiest stage (%.4g of %.4g %s); of equal stages "
           "%.2f %%\n",
           100 * pipeline->bubble, pipeline->step - pipeline->ideal, pipeline->ideal, unit,
           100 * pipeline->equal_bubble);
    if (planning->own.draw)
        printf("drawn: %s\n", planning->own.draw);
}

int plan_pipeline_json(const struct column *column, json_t *object)
{
    const shoal_layout_pipeline *pipeline = &column->pipeline;
    int failed = 0;
    if (!column->stage)
        return 0;
    json_t *list = json_array();
    failed |= json_object_set_new(object, "pipeline_schedule", json_string(pipeline->schedule));
    failed |= json_object_set_new(object, "virtual_stages", json_integer(pipeline->chunks));
    failed |= json_object_set_new(object, "bubble", json_real(pipeline->bubble));
    failed |= json_object_set_new(object, "equal_bubble", json_real(pipeline->equal_bubble));
    for (int32_t s = 0; s < pipeline->stages; s++) {
        const shoal_layout_stage *stage = &column->stage[s];
        json_t *entry = json_object();
        failed |= json_object_set_new(entry, "layers", json_integer(stage->layers));
        failed |= json_object_set_new(entry, "parameters", json_integer(stage->parameters));
        failed |= json_object_set_new(entry, "forward", json_real(stage->forward));
        failed |= json_object_set_new(entry, "backward", json_real(stage->backward));
        failed |= json_object_set_new(entry, "in_flight", json_integer(stage->in_flight));
        failed |= json_array_append_new(list, entry);
    }
    return failed | json_object_set_new(object, "stages", list);
}

/* ---- search --------------------------------------------------------------------------------- */

shoal_status plan_search(struct planning *planning, int32_t world)
{
    shoal_status status;
    shoal_plan_limit limit;
    const struct plan_options *own = &planning->own;
    const struct mesh_flags *mesh = &planning->options.mesh;
    shoal_plan_args args = plan_args_of(planning, world);
    /* sizes that were not given are what is searched */
    if (args.tensor == 1 &&
        !shoali_config_given(&mesh_flags_section, mesh, "tensor-model-parallel-size"))
        args.tensor = 0;
    if (args.pipeline == 1 &&
        !shoali_config_given(&mesh_flags_section, mesh, "pipeline-model-parallel-size"))
        args.pipeline = 0;
    SHOAL_TRY(status, plan_find_rates(planning, world, true), done);
    SHOAL_TRY(status, plan_choose_limit(planning, world, &limit), done);
    planning->layout = shoali_calloc((size_t)own->results, sizeof *planning->layout, "layouts");
    if (!planning->layout) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    const int64_t begin = shoali_now_ns();
    SHOAL_TRY(status,
              shoal_layout_search(&planning->setup.args, &args, &planning->rates, &limit,
                                  planning->layout, (int32_t)own->results, &planning->layout_count),
              done);
    planning->search_s = (double)(shoali_now_ns() - begin) * 1e-9;
    planning->layout_fits = status == SHOAL_OK;
    status = SHOAL_OK;
done:
    return status < 0 ? shoali_error_prefix(status, "--world-size %d", (int)world) : status;
}

/* What a user gives to have it. */
static void write_flags(const shoal_layout *layout, char *text, size_t bytes)
{
    struct shoali_str out = {0};
    if (layout->tensor > 1)
        shoali_str_append(&out, " --tensor-model-parallel-size %d", (int)layout->tensor);
    if (layout->sequence_parallel)
        shoali_str_append(&out, " --sequence-parallel");
    if (layout->pipeline > 1)
        shoali_str_append(&out, " --pipeline-model-parallel-size %d --pipeline-schedule %s",
                          (int)layout->pipeline, layout->schedule);
    if (layout->chunks > 1)
        shoali_str_append(&out, " --num-virtual-stages-per-pipeline-rank %d", (int)layout->chunks);
    if (layout->micro_batch_group)
        shoali_str_append(&out, " --microbatch-group-size-per-virtual-pipeline-stage %d",
                          (int)layout->micro_batch_group);
    if (layout->partition)
        shoali_str_append(&out, " --partition-method %s", layout->partition);
    if (layout->recompute)
        shoali_str_append(&out, " --recompute-granularity %s", layout->recompute);
    shoali_str_append(&out, " --micro-batch-size %lld", (long long)layout->micro_batch);
    if (layout->data > 1)
        shoali_str_append(&out, ", zero_optimization.stage %d", (int)layout->stage);
    snprintf(text, bytes, "%s", shoali_str_get(&out) + 1);
    shoali_str_fini(&out);
}

static void show_layout(const shoal_layout *layout)
{
    char memory[32];
    printf("%4d %4d %3d %5d %4d %6lld %5lld %3s %9s %11s %12s%c %9.4g %9.4g %7.1f %9.3g %9.3g\n",
           (int)layout->tensor, (int)layout->pipeline, (int)layout->chunks, (int)layout->data,
           (int)layout->stage, (long long)layout->micro_batch, (long long)layout->accumulation,
           layout->sequence_parallel ? "yes" : "-", layout->recompute ? layout->recompute : "-",
           layout->schedule ? layout->schedule : "-",
           shoali_format_bytes((double)layout->memory_bytes, memory), layout->planned ? ' ' : '~',
           layout->step_s, layout->tokens_per_second, 100 * layout->bubble, layout->exposed_s,
           layout->hidden_s);
}

static int layout_json(const shoal_layout *layout, json_t *list)
{
    char flags[256];
    int failed = 0;
    json_t *entry = json_object();
    const struct {
        const char *key;
        json_t *value;
    } members[] = {
        {"tensor", json_integer(layout->tensor)},
        {"pipeline", json_integer(layout->pipeline)},
        {"virtual_stages", json_integer(layout->chunks)},
        {"data", json_integer(layout->data)},
        {"stage", json_integer(layout->stage)},
        {"micro_batch", json_integer(layout->micro_batch)},
        {"accumulation", json_integer(layout->accumulation)},
        {"sequence_parallel", json_boolean(layout->sequence_parallel)},
        {"recompute", layout->recompute ? json_string(layout->recompute) : json_null()},
        {"partition", layout->partition ? json_string(layout->partition) : json_null()},
        {"schedule", layout->schedule ? json_string(layout->schedule) : json_null()},
        {"device_bytes", json_integer(layout->memory_bytes)},
        {"planned", json_boolean(layout->planned)},
        {"step_s", json_real(layout->step_s)},
        {"tokens_per_second", json_real(layout->tokens_per_second)},
        {"bubble", json_real(layout->bubble)},
        {"compute_s", json_real(layout->compute_s)},
        {"exposed_s", json_real(layout->exposed_s)},
        {"hidden_s", json_real(layout->hidden_s)},
        {"update_s", json_real(layout->update_s)},
    };
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        failed |= json_object_set_new(entry, members[i].key, members[i].value);
    write_flags(layout, flags, sizeof flags);
    failed |= json_object_set_new(entry, "flags", json_string(flags));
    return failed | json_array_append_new(list, entry);
}

static shoal_status show_json(const struct planning *planning)
{
    shoal_status status;
    char *text = NULL;
    json_t *root = json_object(), *list = json_array();
    int failed = json_object_set_new(root, "layouts", list);
    failed |= json_object_set_new(root, "fits", json_boolean(planning->layout_fits));
    for (int32_t i = 0; i < planning->layout_count; i++)
        failed |= layout_json(&planning->layout[i], list);
    SHOAL_TRY(status, shoali_json_write(failed ? NULL : root, JSON_COMPACT, "the layouts", &text),
              done);
    printf("%s\n", text);
done:
    json_decref(root);
    free(text);
    return status;
}

static void show_rates(const struct planning *planning)
{
    const shoal_plan_rates *rates = &planning->rates;
    printf("rates of a rank%s: %.4g TFLOP/s, memory %.4g GB/s", planning->rates_from,
           rates->flops * 1e-12, rates->memory_bytes * 1e-9);
    if (rates->node_bytes > 0)
        printf(", %d ranks per node with %.4g GB/s", (int)rates->ranks_per_node,
               rates->node_bytes * 1e-9);
    if (rates->link_bytes > 0 && rates->links_per_node > 0)
        printf(", %d links of %.4g GB/s from node to node\n", (int)rates->links_per_node,
               rates->link_bytes * 1e-9);
    else
        printf(", network %.4g GB/s\n",
               (rates->link_bytes > 0 ? rates->link_bytes : rates->network_bytes) * 1e-9);
}

shoal_status plan_show_search(const struct planning *planning)
{
    char what[160], flags[256];
    bool guessed = false;
    if (planning->own.json)
        return show_json(planning);
    const shoal_layout *best = planning->layout;
    printf("model: %s\n",
           shoal_model_config_describe(planning->options.model.config, what, sizeof what));
    show_rates(planning);
    printf("\n%4s %4s %3s %5s %4s %6s %5s %3s %9s %11s %12s  %9s %9s %7s %9s %9s\n", "tp", "pp",
           "v", "dp", "ZeRO", "micro", "gas", "sp", "recompute", "schedule", "memory", "s/step",
           "tokens/s", "bubble%", "exposed s", "hidden s");
    for (int32_t i = 0; i < planning->layout_count; i++) {
        show_layout(&planning->layout[i]);
        guessed = guessed || !planning->layout[i].planned;
    }
    write_flags(best, flags, sizeof flags);
    printf("\n%s: %s\n", planning->layout_fits ? "fastest" : "no layout fits; the smallest is",
           flags);
    printf("memory of the rank that needs most%s; searched in %.1f s\n",
           guessed ? ", planned; with a ~ estimated by formulas" : ", planned", planning->search_s);
    return SHOAL_OK;
}
