/* stages.c - layers to stages: durations, memory, what the arguments say of a pipeline. */
#include "autotuning/autotuning.h"

#include "pipeline_parallel/partition.h"

#include <string.h>

/* ---- speeds --------------------------------------------------------------------------------- */

shoal_status shoali_speeds_of(const shoal_plan_rates *rates, const shoal_mesh *mesh,
                              struct shoali_speeds *speeds)
{
    const int32_t node = rates->ranks_per_node;
    *speeds = (struct shoali_speeds){.flops = rates->flops, .memory = rates->memory_bytes};
    shoali_network_place_of(mesh, SHOAL_AXIS_TP, node, &speeds->tensor);
    shoali_network_place_of(mesh, SHOAL_AXIS_PP, node, &speeds->pipeline);
    shoali_network_place_of(mesh, SHOAL_AXIS_DP, node, &speeds->data);
    return shoali_network_of(rates, &speeds->network);
}

static double take(double amount, double speed)
{
    return speed > 0 ? amount / speed : 0;
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

/* ---- durations ------------------------------------------------------------------------------ */

/* A micro-batch on one layer. */
struct duration {
    double forward, backward, weight; /* weight: of backward */
    double exposed, hidden;
};

static struct duration duration_of(const struct shoali_costs *costs,
                                   const struct shoali_layer_cost *layer,
                                   const struct shoali_speeds *speeds, bool beside)
{
    const double backward = layer->flops_backward + layer->flops_replay;
    const double replayed =
        layer->flops_forward > 0 ? layer->flops_replay / layer->flops_forward : 0;
    if (!speeds)
        return (struct duration){
            .forward = layer->flops_forward, .backward = backward, .weight = layer->flops_weight};
    const double gradients =
        2 * costs->gradient_bytes * (double)(layer->parameters + layer->tied_parameters);
    struct duration duration = {
        .forward = take(layer->flops_forward, speeds->flops) + take(layer->bytes, speeds->memory),
        .backward = take(backward, speeds->flops) +
                    take((2 + replayed) * layer->bytes + gradients, speeds->memory),
        .weight = take(layer->flops_weight, speeds->flops) + take(gradients, speeds->memory)};
    const double there =
        shoali_network_sent_time(&speeds->network, &speeds->tensor, &layer->tensor_forward);
    const double back =
        shoali_network_sent_time(&speeds->network, &speeds->tensor, &layer->tensor_backward);
    /* Input gradients of the matrices cut by columns, about half of them, travel beside their
     * weight gradients. */
    const double room = beside ? duration.weight / 2 : 0;
    duration.hidden = back < room ? back : room;
    duration.exposed = there + back - duration.hidden;
    duration.forward += there;
    duration.backward += back - duration.hidden;
    return duration;
}

static void add_layers(const struct shoali_virtual_stages_args *args,
                       struct shoali_virtual_stages *stages, int32_t k)
{
    const bool beside =
        shoali_config_tensor_overlap(&args->settings->config, &args->settings->engine);
    stages->forward[k] = stages->backward_input[k] = stages->backward_weight[k] = 0;
    stages->exposed[k] = stages->hidden[k] = 0;
    for (int32_t l = stages->begin[k]; l < stages->begin[k + 1]; l++) {
        const struct duration one =
            duration_of(args->costs, &args->costs->layer[l], args->speeds,
                        beside && !args->settings->engine.sequence_parallel);
        stages->forward[k] += one.forward;
        stages->backward_weight[k] += one.weight;
        stages->backward_input[k] += one.backward - one.weight;
        stages->exposed[k] += one.exposed;
        stages->hidden[k] += one.hidden;
    }
}

/* ---- cuts ----------------------------------------------------------------------------------- */

shoal_status shoali_virtual_stages_partition(const struct shoali_virtual_stages_args *args,
                                             struct shoali_arena *arena, int32_t **begin)
{
    shoal_status status;
    const struct shoali_costs *costs = args->costs;
    const shoal_engine_args *engine = &args->settings->engine;
    const char *method;
    struct shoali_partition_layer *layers =
        shoali_arena_alloc(arena, (size_t)costs->layer_count * sizeof *layers);
    const size_t count = (size_t)(args->pipeline->stages * args->pipeline->chunks) + 1;
    *begin = shoali_arena_alloc(arena, count * sizeof **begin);
    if (!layers || !*begin)
        return SHOAL_ENOMEM;
    struct shoali_partition_args how = {.stages = args->pipeline->stages,
                                        .chunks = args->pipeline->chunks,
                                        .layers = layers,
                                        .layer_count = costs->layer_count,
                                        .first = engine->first_stage_layers,
                                        .last = engine->last_stage_layers,
                                        .embedding = engine->account_for_embedding,
                                        .loss = engine->account_for_loss};
    SHOAL_TRY(status, shoali_config_partition(&args->settings->config, engine, &method), done);
    SHOAL_TRY(status, shoali_partition_parse(method, &how.method, &how.text), done);
    for (int32_t l = 0; l < costs->layer_count; l++)
        layers[l] = (struct shoali_partition_layer){costs->layer[l].type,
                                                    how.method == SHOALI_PARTITION_FLOPS
                                                        ? costs->layer[l].flops_forward
                                                        : costs->layer[l].weight};
    SHOAL_TRY(status, shoali_partition_make(&how, *begin), done);
done:
    return status;
}

/* ---- stages --------------------------------------------------------------------------------- */

static double most_transferred(const struct shoali_costs *costs,
                               const struct shoali_virtual_stages *stages)
{
    double most = 0;
    for (int32_t k = 1; k < stages->count; k++)
        if (stages->begin[k] > 0)
            most = longer(most, (double)costs->layer[stages->begin[k] - 1].boundary_bytes);
    return most;
}

shoal_status shoali_virtual_stages_make(const struct shoali_virtual_stages_args *args,
                                        struct shoali_arena *arena,
                                        struct shoali_virtual_stages *stages)
{
    shoal_status status = SHOAL_OK;
    const int32_t count = args->pipeline->stages * args->pipeline->chunks;
    const size_t room = (size_t)count * sizeof(double);
    *stages = (struct shoali_virtual_stages){.count = count, .begin = args->begin};
    double **const lists[] = {&stages->forward, &stages->backward_input, &stages->backward_weight,
                              &stages->exposed, &stages->hidden};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        *lists[i] = shoali_arena_alloc(arena, room);
        if (!*lists[i])
            return SHOAL_ENOMEM;
    }
    if (!args->begin)
        SHOAL_TRY(status, shoali_virtual_stages_partition(args, arena, &stages->begin), done);
    for (int32_t k = 0; k < count; k++)
        add_layers(args, stages, k);
    stages->durations = (struct shoali_durations){
        .forward = stages->forward,
        .backward_input = stages->backward_input,
        .backward_weight = stages->backward_weight,
        .beside = shoali_config_overlap_p2p(&args->settings->config, &args->settings->engine,
                                            args->pipeline->chunks)};
    if (args->speeds)
        stages->durations.transfer =
            shoali_network_best(&args->speeds->network, &args->speeds->pipeline, SHOALI_SEND,
                                most_transferred(args->costs, stages));
done:
    return status;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* While weight gradients are deferred, a layer has what it keeps, and then what it leaves. */
static int64_t deferred_slot_bytes(const struct shoali_costs *costs,
                                   const struct shoali_virtual_stages *stages,
                                   int32_t virtual_stage, int64_t inputs)
{
    int64_t kept = inputs, work = 0;
    for (int32_t l = stages->begin[virtual_stage]; l < stages->begin[virtual_stage + 1]; l++) {
        kept += larger(costs->layer[l].kept_bytes, costs->layer[l].deferred_bytes);
        work = larger(work, costs->layer[l].deferred_work_bytes);
    }
    return kept + work;
}

int64_t shoali_virtual_stages_slot_bytes(const struct shoali_costs *costs,
                                         const struct shoali_virtual_stages *stages,
                                         int32_t virtual_stage, bool deferred)
{
    const int32_t first = stages->begin[virtual_stage];
    const int64_t inputs = first > 0 ? costs->layer[first - 1].boundary_bytes : costs->inputs_bytes;
    int64_t most = 0, kept = inputs;
    for (int32_t l = first; l < stages->begin[virtual_stage + 1]; l++) {
        kept += costs->layer[l].kept_bytes;
        most = larger(most, kept + costs->layer[l].work_bytes);
    }
    return deferred ? larger(most, deferred_slot_bytes(costs, stages, virtual_stage, inputs))
                    : most;
}

int32_t shoali_virtual_stages_in_flight(const struct shoali_pipeline_args *pipeline, int32_t stage)
{
    const int32_t all = pipeline->micro_batches * pipeline->chunks;
    const int32_t behind = pipeline->stages - stage - 1;
    int32_t count = behind + 1;
    if (pipeline->schedule == SHOALI_GPIPE)
        count = all;
    else if (pipeline->schedule == SHOALI_ZB_H1)
        count = pipeline->stages;
    else if (pipeline->chunks > 1)
        count = 2 * behind + (pipeline->chunks - 1) * pipeline->group + 1;
    return count < all ? count : all;
}

shoal_status shoali_virtual_stages_pipeline(const struct shoali_settings *settings,
                                            int64_t micro_batches,
                                            struct shoali_pipeline_args *pipeline)
{
    shoal_status status;
    const shoal_engine_args *engine = &settings->engine;
    struct shoali_pipeline_args args = {.schedule = engine->virtual_stages > 1 ? SHOALI_INTERLEAVED
                                                                               : SHOALI_1F1B,
                                        .stages = settings->plan.pipeline,
                                        .chunks = engine->virtual_stages,
                                        .micro_batches = (int32_t)micro_batches,
                                        .group = engine->micro_batch_group,
                                        .training = true};
    if (micro_batches > INT32_MAX / 8)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "a pipeline of %lld micro-batches per step is too long: give at most %d",
                          (long long)micro_batches, INT32_MAX / 8);
    if (engine->pipeline_schedule)
        SHOAL_TRY(status, shoali_pipeline_schedule_find(engine->pipeline_schedule, &args.schedule),
                  done);
    SHOAL_TRY(status, shoali_pipeline_complete(&args, pipeline), done);
done:
    return status;
}
