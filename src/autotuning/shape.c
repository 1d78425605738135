/* shape.c - one cut with one schedule: its timeline, its memory, what each stage of ZeRO makes of
 * it. */
#include "autotuning/search.h"

#include <string.h>

enum { KEPT = SHOALI_SEARCH_KEPT, STEADY = 3 };

/* ---- one layout ----------------------------------------------------------------------------- */

static double above(double a, double b)
{
    return a > b ? a - b : 0;
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

/* Two methods may cut at the same layers. */
static bool is_kept(const struct shoali_search *search, const shoal_layout *layout)
{
    for (int32_t i = 0; i < search->kept_count; i++) {
        const shoal_layout *same = &search->kept[i].layout;
        if (same->tensor == layout->tensor && same->pipeline == layout->pipeline &&
            same->chunks == layout->chunks && same->stage == layout->stage &&
            same->schedule == layout->schedule && same->recompute == layout->recompute &&
            same->sequence_parallel == layout->sequence_parallel &&
            same->micro_batch == layout->micro_batch && same->step_s == layout->step_s &&
            same->memory_bytes == layout->memory_bytes)
            return true;
    }
    return false;
}

static void keep(struct shoali_search *search, const struct shoali_candidate *candidate)
{
    const shoal_layout *layout = &candidate->layout;
    int32_t at = search->kept_count;
    if (is_kept(search, layout))
        return;
    while (at > 0 && search->kept[at - 1].layout.step_s > layout->step_s)
        at--;
    if (at >= KEPT)
        return;
    const int32_t moved = (search->kept_count < KEPT ? search->kept_count : KEPT - 1) - at;
    memmove(&search->kept[at + 1], &search->kept[at], (size_t)moved * sizeof search->kept[0]);
    search->kept[at] = *candidate;
    search->kept_count += search->kept_count < KEPT;
}

/* Beyond this a layout is of no interest. */
static double worst_kept(const struct shoali_search *search)
{
    return search->kept_count == KEPT ? search->kept[KEPT - 1].layout.step_s : -1;
}

static int64_t activations(const struct shoali_shape *shape, int32_t stage)
{
    int64_t most = 0;
    for (int32_t k = stage; k < shape->stages.count; k += shape->pipeline.stages) {
        const int64_t bytes = shoali_virtual_stages_slot_bytes(
            shape->costs, &shape->stages, k, shape->pipeline.schedule == SHOALI_ZB_H1);
        most = bytes > most ? bytes : most;
    }
    return most * shoali_virtual_stages_in_flight(&shape->pipeline, stage);
}

static void count_state(const struct shoali_shape *shape, int32_t stage, struct shoali_state *state)
{
    state->parameters = state->largest_layer = 0;
    for (int32_t k = stage; k < shape->stages.count; k += shape->pipeline.stages)
        for (int32_t l = shape->stages.begin[k]; l < shape->stages.begin[k + 1]; l++) {
            const struct shoali_layer_cost *layer = &shape->costs->layer[l];
            int64_t own = layer->parameters;
            if (shape->pipeline.stages > 1 && stage > 0)
                own += layer->tied_parameters;
            state->parameters += own;
            state->largest_layer = own > state->largest_layer ? own : state->largest_layer;
        }
}

/* Weights of two uses that lie in two stages: their gradients meet once a step, when nothing else
 * runs. */
static double tied_s(const struct shoali_shape *shape)
{
    const struct shoali_costs *costs = shape->costs;
    const bool far = shape->speeds.pipeline.hosts > 1;
    const struct shoali_network_place two = {2, far ? 1 : 2, far ? 2 : 1};
    double tied = 0;
    for (int32_t l = 0; l < costs->layer_count; l++)
        tied += (double)costs->layer[l].tied_parameters;
    return shape->pipeline.stages > 1 && tied > 0
               ? shoali_network_best(&shape->speeds.network, &two, SHOALI_ALL_REDUCE,
                                     tied * costs->gradient_bytes)
               : 0;
}

static double backward_of(const struct shoali_shape *shape, int32_t stage)
{
    double sum = 0;
    for (int32_t k = stage; k < shape->stages.count; k += shape->pipeline.stages)
        sum += shape->stages.backward_input[k] + shape->stages.backward_weight[k];
    return sum;
}

/* Memory and time of the rank of one pipeline stage; the layout has those of the worst. */
static void add_stage(const struct shoali_shape *shape, int32_t stage,
                      struct shoali_candidate *candidate)
{
    shoal_layout *layout = &candidate->layout;
    struct shoali_state state = {
        .data = shape->data, .stage = layout->stage, .micro_batches = layout->accumulation};
    struct shoali_state_time time;
    double tensor_exposed = 0, tensor_hidden = 0;
    count_state(shape, stage, &state);
    const double bytes =
        shoali_state_bytes(shape->costs, &state) + (double)activations(shape, stage);
    if (bytes > (double)layout->memory_bytes) {
        layout->memory_bytes = (int64_t)bytes;
        candidate->worst = stage;
    }
    shoali_state_messages(shape->costs, &state, &shape->speeds, &time);
    const double backward = backward_of(shape, stage), times = (double)layout->accumulation;
    double exposed = time.gathers + time.last_backward + time.backwards + time.all;
    const double all = exposed;
    if (shape->costs->overlaps) {
        /* of one pass: before the first layer's weights have come and after the last gradient is
         * made there is nothing to compute */
        const double edge =
            state.parameters > 0 ? (double)state.largest_layer / (double)state.parameters : 0;
        exposed = time.gathers +
                  longer(above(time.last_backward, backward), edge * time.last_backward) +
                  longer(above(time.backwards, times * backward), edge * time.backwards / times) +
                  longer(above(time.all, shape->ideal), edge * time.all / times);
    }
    exposed += shape->tied;
    for (int32_t k = stage; k < shape->stages.count; k += shape->pipeline.stages) {
        tensor_exposed += times * shape->stages.exposed[k];
        tensor_hidden += times * shape->stages.hidden[k];
    }
    const double update = shoali_state_update(shape->costs, &state, &shape->speeds);
    const double step = shape->makespan + exposed + update;
    if (step < layout->step_s)
        return;
    layout->step_s = step;
    layout->update_s = update;
    layout->exposed_s = exposed + tensor_exposed;
    layout->hidden_s = all + shape->tied - exposed + tensor_hidden;
    layout->compute_s = shape->ideal - tensor_exposed;
}

void shoali_search_note_smallest(struct shoali_search *search,
                                 const struct shoali_candidate *candidate)
{
    const int64_t now = search->smallest.layout.memory_bytes;
    if (now == 0 || candidate->layout.memory_bytes < now)
        search->smallest = *candidate;
}

static void try_stage(struct shoali_search *search, const struct shoali_shape *shape, int32_t stage)
{
    shoal_plan_verdict verdict;
    struct shoali_candidate candidate = {
        .layout = {
            .tensor = shape->costs->tensor,
            .pipeline = shape->pipeline.stages,
            .chunks = shape->pipeline.chunks,
            .data = shape->data,
            .stage = stage,
            .schedule = shape->pipeline.stages > 1
                            ? shoali_pipeline_schedule_name(shape->pipeline.schedule)
                            : NULL,
            .recompute = shape->cost_args.recompute,
            .partition = shape->pipeline.stages > 1 ? shape->partition : NULL,
            .micro_batch_group = shape->group,
            .sequence_parallel = shape->cost_args.sequence_parallel,
            .micro_batch = shape->cost_args.micro_batch,
            .accumulation = shape->pipeline.micro_batches,
            .bubble = above(shape->makespan / shape->ideal, 1),
        }};
    shoal_layout *layout = &candidate.layout;
    for (int32_t s = 0; s < shape->pipeline.stages; s++)
        add_stage(shape, s, &candidate);
    const double tokens =
        (double)search->train_batch * (double)search->settings.engine.model->tokens_per_sample;
    layout->tokens_per_second = tokens / layout->step_s;
    const shoal_plan plan = {.world_size = search->settings.plan.world_size,
                             .device_bytes = layout->memory_bytes};
    shoal_plan_check(&plan, &search->limit, &verdict);
    if (verdict.missing_bytes <= (int64_t)(search->slack * (double)layout->memory_bytes))
        keep(search, &candidate);
    else
        shoali_search_note_smallest(search, &candidate);
}

/* ---- timelines ------------------------------------------------------------------------------ */

static shoal_status makespan_of(struct shoali_search *search, const struct shoali_shape *shape,
                                int32_t micro_batches, double *makespan)
{
    shoal_status status;
    struct shoali_orders orders;
    struct shoali_timeline timeline;
    struct shoali_pipeline_args args = shape->pipeline;
    args.micro_batches = micro_batches;
    SHOAL_TRY(status, shoali_orders_make(&args, &search->scratch, &orders), done);
    SHOAL_TRY(status,
              shoali_timeline_make(&orders, &shape->stages.durations, &search->scratch, &timeline),
              done);
    *makespan = timeline.makespan;
done:
    return status;
}

/* Of many micro-batches: once a pipeline is full, each further group takes as long as the one
 * before. */
static shoal_status find_makespan(struct shoali_search *search, struct shoali_shape *shape)
{
    shoal_status status;
    const int32_t group = shape->pipeline.group, all = shape->pipeline.micro_batches;
    const int32_t steady = STEADY * group;
    double shorter, longer;
    if (all <= steady + group || all % group != 0) {
        SHOAL_TRY(status, makespan_of(search, shape, all, &shape->makespan), done);
        goto done;
    }
    SHOAL_TRY(status, makespan_of(search, shape, steady, &shorter), done);
    SHOAL_TRY(status, makespan_of(search, shape, steady + group, &longer), done);
    shape->makespan = longer + (double)(all - steady - group) / group * (longer - shorter);
done:
    return status;
}

static void find_ideal(struct shoali_shape *shape)
{
    shape->tied = tied_s(shape);
    shape->ideal = 0;
    for (int32_t s = 0; s < shape->pipeline.stages; s++) {
        double sum = backward_of(shape, s);
        for (int32_t k = s; k < shape->stages.count; k += shape->pipeline.stages)
            sum += shape->stages.forward[k];
        sum *= shape->pipeline.micro_batches;
        shape->ideal = sum > shape->ideal ? sum : shape->ideal;
    }
}

/* *begin NULL: such a cut cannot be made. */
static shoal_status find_cut(struct shoali_search *search, const struct shoali_shape *shape,
                             int32_t **begin)
{
    struct shoali_search_partition *cut = search->cut;
    while (cut && (cut->stages != shape->pipeline.stages || cut->chunks != shape->pipeline.chunks ||
                   cut->partition != shape->partition))
        cut = cut->next;
    if (!cut) {
        cut = shoali_arena_alloc(&search->arena, sizeof *cut);
        if (!cut)
            return SHOAL_ENOMEM;
        *cut = (struct shoali_search_partition){.next = search->cut,
                                                .stages = shape->pipeline.stages,
                                                .chunks = shape->pipeline.chunks,
                                                .partition = shape->partition};
        const shoal_status status = shoali_virtual_stages_partition(
            &(struct shoali_virtual_stages_args){
                .costs = shape->costs, .pipeline = &shape->pipeline, .settings = &search->settings},
            &search->arena, &cut->begin);
        if (status == SHOAL_ENOMEM)
            return status;
        cut->begin = status < 0 ? NULL : cut->begin;
        search->cut = cut;
        shoali_error_clear();
    }
    *begin = cut->begin;
    return SHOAL_OK;
}

shoal_status shoali_search_one(struct shoali_search *search, struct shoali_shape *shape,
                               int32_t stage)
{
    shoal_status status;
    const struct shoali_virtual_stages_args args = {.costs = shape->costs,
                                                    .pipeline = &shape->pipeline,
                                                    .speeds = &shape->speeds,
                                                    .settings = &search->settings};
    SHOAL_TRY(status, shoali_virtual_stages_make(&args, &search->scratch, &shape->stages), done);
    find_ideal(shape);
    SHOAL_TRY(status, find_makespan(search, shape), done);
    try_stage(search, shape, stage);
done:
    return status;
}

/* Stages of ZeRO where there is something to divide. */
shoal_status shoali_search_shape(struct shoali_search *search, struct shoali_shape *shape)
{
    shoal_status status;
    struct shoali_virtual_stages_args args = {.costs = shape->costs,
                                              .pipeline = &shape->pipeline,
                                              .speeds = &shape->speeds,
                                              .settings = &search->settings};
    shoali_arena_reset(&search->scratch);
    SHOAL_TRY(status, find_cut(search, shape, &args.begin), done);
    if (!args.begin)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_virtual_stages_make(&args, &search->scratch, &shape->stages), done);
    find_ideal(shape);
    const double worst = worst_kept(search);
    if (worst >= 0 && shape->ideal > worst)
        return SHOAL_OK;
    SHOAL_TRY(status, find_makespan(search, shape), done);
    for (int32_t stage = 0; stage <= (shape->data > 1 ? 3 : 0); stage++)
        try_stage(search, shape, stage);
done:
    return status;
}
