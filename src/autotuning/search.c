/* search.c - all layouts by arithmetic, the best of them by plans.
 *
 * The order of the loops is that of what costs to find out: a mesh, a run without memory of one
 * layer of each kind, a cut with its timeline, ZeRO's formulas. A layout whose longest stage alone
 * takes longer than the last of those that are kept has no timeline made. */
#include "autotuning/autotuning.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CHOICES_MAX = 64, MICRO_MAX = 64, KEPT = 64, STEADY = 3 };
/* Formulas err: first a plan decides about layouts that need a little too much by them. When no plan
 * of the fastest fits, those that leave more room are looked at. */
static const double slack[] = {0.05, -0.15, -0.4};
enum { PASSES = sizeof slack / sizeof slack[0] };

/* What one run without memory said; `known` false: it cannot be trained so. */
struct costs_entry {
    struct costs_entry *next;
    struct shoali_costs_args args;
    struct shoali_costs costs;
    bool known;
};
/* A cut depends on the model alone. */
struct cut_entry {
    struct cut_entry *next;
    int32_t stages, chunks;
    const char *partition; /* NULL: as given */
    int32_t *begin;        /* NULL: it cannot be made */
};
struct search {
    struct shoali_settings settings;
    shoal_plan_rates rates;
    shoal_plan_limit limit;
    struct shoali_arena arena, scratch; /* scratch: of one layout */
    int64_t train_batch;
    double slack;              /* part of its memory that a layout may lack by formulas */
    struct costs_entry *entry; /* the last that was made */
    struct cut_entry *cut;
    shoal_layout kept[KEPT]; /* fastest first */
    int32_t kept_count;
    shoal_layout smallest;             /* needs least, of those that do not fit */
    const struct costs_entry *refused; /* the last that cannot be trained */
};

/* ---- choices -------------------------------------------------------------------------------- */

/* Divisors of a number, rising; all of them or only `fixed`. */
static int32_t divisors(int64_t number, int64_t fixed, int64_t most, int64_t list[CHOICES_MAX])
{
    int32_t count = 0;
    for (int64_t d = 1; d <= number && d <= most && count < CHOICES_MAX; d++)
        if (number % d == 0 && (fixed <= 0 || d == fixed))
            list[count++] = d;
    return count;
}

/* As config_batch would have it: the configuration's, else a micro-batch on each rank. */
static shoal_status find_batch(struct search *search)
{
    const struct shoali_ds_config *config = &search->settings.config;
    shoal_status status;
    struct shoali_batch_sizes sizes;
    search->train_batch = config->train_batch_size;
    if (search->train_batch > 0)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_batch_triad(config, search->settings.plan.world_size, &sizes), done);
    search->train_batch = sizes.train;
done:
    return status;
}

/* ---- costs ---------------------------------------------------------------------------------- */

static bool same_args(const struct shoali_costs_args *a, const struct shoali_costs_args *b)
{
    const char *left = a->recompute ? a->recompute : "", *right = b->recompute ? b->recompute : "";
    return a->tensor == b->tensor && a->micro_batch == b->micro_batch &&
           a->sequence_parallel == b->sequence_parallel && strcmp(left, right) == 0;
}

/* *costs NULL: such a layout cannot be trained; errors are of other kinds. */
static shoal_status find_costs(struct search *search, const struct shoali_costs_args *args,
                               const struct shoali_costs **costs)
{
    struct costs_entry *entry = search->entry;
    while (entry && !same_args(&entry->args, args))
        entry = entry->next;
    if (!entry) {
        entry = shoali_arena_alloc(&search->arena, sizeof *entry);
        if (!entry)
            return SHOAL_ENOMEM;
        *entry = (struct costs_entry){.next = search->entry, .args = *args};
        const shoal_status status =
            shoali_costs_make(&search->settings, args, &search->arena, &entry->costs);
        if (status == SHOAL_ENOMEM)
            return status;
        entry->known = status >= 0;
        search->entry = entry;
        search->refused = entry->known ? search->refused : entry;
        shoali_error_clear();
    }
    *costs = entry->known ? &entry->costs : NULL;
    return SHOAL_OK;
}

/* ---- one layout ----------------------------------------------------------------------------- */

/* A cut of the layers with its timeline, for all stages of ZeRO alike. */
struct shape {
    const struct shoali_costs *costs;
    struct shoali_costs_args cost_args;
    const char *partition; /* NULL: as given */
    int32_t group;         /* 0: as many as stages */
    struct shoali_speeds speeds;
    struct shoali_pipeline_args pipeline;
    struct shoali_virtual_stages stages;
    int32_t data;
    double makespan, ideal, last_backward;
};

static double above(double a, double b)
{
    return a > b ? a - b : 0;
}

/* Two methods may cut at the same layers. */
static bool is_kept(const struct search *search, const shoal_layout *layout)
{
    for (int32_t i = 0; i < search->kept_count; i++) {
        const shoal_layout *same = &search->kept[i];
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

static void keep(struct search *search, const shoal_layout *layout)
{
    int32_t at = search->kept_count;
    if (is_kept(search, layout))
        return;
    while (at > 0 && search->kept[at - 1].step_s > layout->step_s)
        at--;
    if (at >= KEPT)
        return;
    const int32_t moved = (search->kept_count < KEPT ? search->kept_count : KEPT - 1) - at;
    memmove(&search->kept[at + 1], &search->kept[at], (size_t)moved * sizeof search->kept[0]);
    search->kept[at] = *layout;
    search->kept_count += search->kept_count < KEPT;
}

/* Beyond this a layout is of no interest. */
static double worst_kept(const struct search *search)
{
    return search->kept_count == KEPT ? search->kept[KEPT - 1].step_s : -1;
}

static int64_t activations(const struct shape *shape, int32_t stage)
{
    int64_t most = 0;
    for (int32_t k = stage; k < shape->stages.count; k += shape->pipeline.stages) {
        const int64_t bytes = shoali_virtual_stages_slot_bytes(
            shape->costs, &shape->stages, k, shape->pipeline.schedule == SHOALI_ZB_H1);
        most = bytes > most ? bytes : most;
    }
    return most * shoali_virtual_stages_in_flight(&shape->pipeline, stage);
}

static void count_state(const struct shape *shape, int32_t stage, struct shoali_state *state)
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

static double backward_of(const struct shape *shape, int32_t stage)
{
    double sum = 0;
    for (int32_t k = stage; k < shape->stages.count; k += shape->pipeline.stages)
        sum += shape->stages.backward_input[k] + shape->stages.backward_weight[k];
    return sum;
}

/* Memory and time of the rank of one pipeline stage; the layout has those of the worst. */
static void add_stage(const struct shape *shape, int32_t stage, shoal_layout *layout)
{
    struct shoali_state state = {
        .data = shape->data, .stage = layout->stage, .micro_batches = layout->accumulation};
    struct shoali_state_time time;
    double tensor_exposed = 0, tensor_hidden = 0;
    count_state(shape, stage, &state);
    const double bytes =
        shoali_state_bytes(shape->costs, &state) + (double)activations(shape, stage);
    if (bytes > (double)layout->memory_bytes)
        layout->memory_bytes = (int64_t)bytes;
    shoali_state_messages(shape->costs, &state, &shape->speeds, &time);
    const double backward = backward_of(shape, stage), times = (double)layout->accumulation;
    double exposed = time.gathers + time.last_backward + time.backwards + time.all;
    const double all = exposed;
    if (shape->costs->overlaps)
        exposed = time.gathers + above(time.last_backward, backward) +
                  above(time.backwards, times * backward) + above(time.all, shape->ideal);
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
    layout->hidden_s = all - exposed + tensor_hidden;
    layout->compute_s = shape->ideal - tensor_exposed;
}

static void note_smallest(struct search *search, const shoal_layout *layout)
{
    const shoal_layout *now = &search->smallest;
    if (now->memory_bytes == 0 || layout->memory_bytes < now->memory_bytes)
        search->smallest = *layout;
}

static void try_stage(struct search *search, const struct shape *shape, int32_t stage)
{
    shoal_plan_verdict verdict;
    shoal_layout layout = {
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
    };
    for (int32_t s = 0; s < shape->pipeline.stages; s++)
        add_stage(shape, s, &layout);
    const double tokens =
        (double)search->train_batch * (double)search->settings.engine.model->tokens_per_sample;
    layout.tokens_per_second = tokens / layout.step_s;
    const shoal_plan plan = {.world_size = search->settings.plan.world_size,
                             .device_bytes = layout.memory_bytes};
    shoal_plan_judge(&plan, &search->limit, &verdict);
    if (verdict.missing_bytes <= (int64_t)(search->slack * (double)layout.memory_bytes))
        keep(search, &layout);
    else
        note_smallest(search, &layout);
}

/* ---- timelines ------------------------------------------------------------------------------ */

static shoal_status makespan_of(struct search *search, const struct shape *shape,
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
static shoal_status find_makespan(struct search *search, struct shape *shape)
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

static void find_ideal(struct shape *shape)
{
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
static shoal_status find_cut(struct search *search, const struct shape *shape, int32_t **begin)
{
    struct cut_entry *cut = search->cut;
    while (cut && (cut->stages != shape->pipeline.stages || cut->chunks != shape->pipeline.chunks ||
                   cut->partition != shape->partition))
        cut = cut->next;
    if (!cut) {
        cut = shoali_arena_alloc(&search->arena, sizeof *cut);
        if (!cut)
            return SHOAL_ENOMEM;
        *cut = (struct cut_entry){.next = search->cut,
                                  .stages = shape->pipeline.stages,
                                  .chunks = shape->pipeline.chunks,
                                  .partition = shape->partition};
        const shoal_status status = shoali_virtual_stages_cut(
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

/* Stages of ZeRO where there is something to divide. */
static shoal_status try_shape(struct search *search, struct shape *shape)
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

/* ---- loops ---------------------------------------------------------------------------------- */

/* By the method that is given, else by each that suits any model. */
static shoal_status try_cuts(struct search *search, struct shape *shape)
{
    static const char *const methods[] = {"parameters", "uniform"};
    shoal_status status;
    shoal_engine_args *engine = &search->settings.engine;
    const char *key = search->settings.config.pipeline.partition;
    const bool given = engine->partition_method || (key && strcasecmp(key, "best") != 0);
    shape->partition = NULL;
    if (given || shape->pipeline.stages == 1)
        return try_shape(search, shape);
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        engine->partition_method = shape->partition = methods[m];
        status = try_shape(search, shape);
        engine->partition_method = NULL;
        SHOAL_TRY(status, status, done);
    }
    status = SHOAL_OK;
done:
    return status;
}

/* Micro-batches of a chunk in turn: as given, else as many as stages, else the least that divides. */
static int32_t find_group(const struct search *search, int32_t chunks, int64_t micro_batches)
{
    const int64_t p = search->settings.plan.pipeline;
    int64_t group = search->settings.engine.micro_batch_group;
    if (group > 0 || chunks == 1 || micro_batches % p == 0)
        return (int32_t)group;
    for (group = p; group < micro_batches && micro_batches % group != 0;)
        group++;
    return (int32_t)group;
}

static shoal_status try_schedule(struct search *search, struct shape *shape,
                                 enum shoali_pipeline_schedule schedule, int32_t chunks,
                                 int64_t micro_batches)
{
    const char *given = search->settings.engine.pipeline_schedule;
    shape->group = find_group(search, chunks, micro_batches);
    const struct shoali_pipeline_args args = {.schedule = schedule,
                                              .stages = search->settings.plan.pipeline,
                                              .chunks = chunks,
                                              .micro_batches = (int32_t)micro_batches,
                                              .group = shape->group,
                                              .training = true};
    if (given && strcmp(given, shoali_pipeline_schedule_name(schedule)) != 0)
        return SHOAL_OK;
    if (shoali_pipeline_complete(&args, &shape->pipeline) >= 0)
        return try_cuts(search, shape);
    shoali_error_clear();
    return SHOAL_OK;
}

static shoal_status try_schedules(struct search *search, struct shape *shape, int64_t micro_batches)
{
    shoal_status status;
    const int32_t p = search->settings.plan.pipeline, layers = shape->costs->layer_count;
    const int32_t given = search->settings.engine.virtual_stages;
    if (p == 1) {
        shape->group = 0;
        shape->pipeline = (struct shoali_pipeline_args){.schedule = SHOALI_1F1B,
                                                        .stages = 1,
                                                        .chunks = 1,
                                                        .micro_batches = (int32_t)micro_batches,
                                                        .group = 1,
                                                        .training = true};
        return try_cuts(search, shape);
    }
    if (given <= 1) {
        SHOAL_TRY(status, try_schedule(search, shape, SHOALI_1F1B, 1, micro_batches), done);
        SHOAL_TRY(status, try_schedule(search, shape, SHOALI_ZB_H1, 1, micro_batches), done);
    }
    for (int32_t v = 2; v * p <= layers; v++)
        if (given == v || (given == 0 && (v <= 4 || v % 2 == 0)))
            SHOAL_TRY(status, try_schedule(search, shape, SHOALI_INTERLEAVED, v, micro_batches),
                      done);
    status = SHOAL_OK;
done:
    return status;
}

/* All ways to compute the micro-batches of a mesh. */
static shoal_status try_micro(struct search *search, struct shape *shape, int64_t micro)
{
    static const char *const recompute[] = {NULL, "full"};
    shoal_status status = SHOAL_OK;
    const int64_t micro_batches = search->train_batch / shape->data / micro;
    const int32_t tensor = search->settings.plan.tensor;
    if (micro_batches > INT32_MAX / 8)
        return SHOAL_OK;
    for (int32_t r = 0; r < 2; r++)
        for (int32_t sequence = 0; sequence <= (tensor > 1); sequence++) {
            shape->cost_args = (struct shoali_costs_args){.tensor = tensor,
                                                          .micro_batch = micro,
                                                          .sequence_parallel = sequence,
                                                          .recompute = recompute[r]};
            search->settings.engine.sequence_parallel = sequence;
            SHOAL_TRY(status, find_costs(search, &shape->cost_args, &shape->costs), done);
            if (shape->costs)
                SHOAL_TRY(status, try_schedules(search, shape, micro_batches), done);
        }
done:
    return status;
}

static shoal_status try_mesh(struct search *search, int64_t tensor, int64_t pipeline)
{
    shoal_status status;
    shoal_mesh *mesh = NULL;
    struct shape shape = {0};
    int64_t micro[CHOICES_MAX];
    search->settings.plan.tensor = (int32_t)tensor;
    search->settings.plan.pipeline = (int32_t)pipeline;
    SHOAL_TRY(status, shoali_plan_mesh(&search->settings.plan, NULL, &mesh), done);
    shape.data = shoal_mesh_size(mesh, SHOAL_AXIS_DP);
    shoali_speeds_of(&search->rates, mesh, &shape.speeds);
    if (search->train_batch % shape.data != 0)
        goto done;
    const int32_t count = divisors(search->train_batch / shape.data, 0, MICRO_MAX, micro);
    for (int32_t m = 0; m < count; m++)
        if ((micro[m] & (micro[m] - 1)) == 0 || micro[m] == micro[count - 1])
            SHOAL_TRY(status, try_micro(search, &shape, micro[m]), done);
done:
    shoal_mesh_destroy(mesh);
    return status;
}

static shoal_status try_all(struct search *search)
{
    shoal_status status = SHOAL_OK;
    const shoal_plan_args given = search->settings.plan;
    int64_t tensor[CHOICES_MAX], pipeline[CHOICES_MAX];
    const int64_t node = search->rates.ranks_per_node;
    const int64_t most = node > 0 && node < given.world_size ? node : given.world_size;
    const int32_t tensors =
        divisors(given.world_size, given.tensor, given.tensor > 0 ? given.tensor : most, tensor);
    for (int32_t t = 0; t < tensors; t++) {
        const int32_t stages = divisors(given.world_size / tensor[t], given.pipeline,
                                        search->settings.engine.model->layer_count, pipeline);
        for (int32_t p = 0; p < stages; p++)
            SHOAL_TRY(status, try_mesh(search, tensor[t], pipeline[p]), done);
    }
done:
    search->settings.plan = given;
    return status;
}

/* ---- the answer ----------------------------------------------------------------------------- */

/* Bytes that are missing, by a plan; what cannot be planned stays as the formulas have it. */
static int64_t verify(const struct search *search, shoal_layout *layout)
{
    shoal_plan_verdict verdict;
    const int64_t guessed = layout->memory_bytes;
    const shoal_plan plan = {.world_size = search->settings.plan.world_size,
                             .device_bytes = guessed};
    if (shoali_verify(&search->settings, &search->limit, layout, &verdict) < 0) {
        layout->memory_bytes = guessed;
        layout->planned = false;
        shoali_error_clear();
        shoal_plan_judge(&plan, &search->limit, &verdict);
    }
    return verdict.missing_bytes;
}

/* Plans the fastest until as many as asked for are known to fit. */
static int32_t choose(struct search *search, shoal_layout *layouts, int32_t capacity)
{
    int32_t count = 0;
    for (int32_t i = 0; i < search->kept_count && count < capacity; i++) {
        shoal_layout layout = search->kept[i];
        if (verify(search, &layout) > 0) {
            note_smallest(search, &layout);
            continue;
        }
        layouts[count++] = layout;
    }
    return count;
}

/* Nothing could be tried: the last refusal, said again, else that nothing divides. */
static shoal_status say_why(struct search *search)
{
    struct shoali_costs costs;
    if (search->refused)
        return shoali_costs_make(&search->settings, &search->refused->args, &search->arena, &costs);
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "no layout of %d ranks divides a global batch of %lld samples and %d layers: "
                      "change one of them",
                      (int)search->settings.plan.world_size, (long long)search->train_batch,
                      (int)search->settings.engine.model->layer_count);
}

static shoal_status find(struct search *search, shoal_layout *layouts, int32_t capacity,
                         int32_t *count)
{
    shoal_status status;
    if (search->settings.plan.world_size < 1)
        search->settings.plan.world_size = 1;
    SHOAL_TRY(status, find_batch(search), done);
    for (int pass = 0; pass < PASSES && *count == 0; pass++) {
        search->slack = slack[pass];
        search->kept_count = 0;
        SHOAL_TRY(status, try_all(search), done);
        *count = choose(search, layouts, capacity);
    }
    if (*count > 0)
        goto done;
    if (search->smallest.memory_bytes == 0) {
        status = say_why(search);
        goto done;
    }
    (void)verify(search, &search->smallest);
    layouts[(*count)++] = search->smallest;
    status = SHOAL_END;
done:
    return status;
}

shoal_status shoal_layout_search_sized(const shoal_engine_args *given_engine, size_t engine_size,
                                       const shoal_plan_args *given_plan, size_t plan_size,
                                       const shoal_plan_rates *rates, size_t rates_size,
                                       const shoal_plan_limit *limit, size_t limit_size,
                                       shoal_layout *layouts, int32_t capacity, int32_t *count)
{
    shoal_status status;
    shoal_engine_args engine;
    shoal_plan_args plan;
    struct search *search = shoali_calloc(1, sizeof *search, "a search");
    *count = 0;
    if (!search)
        return SHOAL_ENOMEM;
    shoali_arena_init(&search->arena);
    shoali_arena_init(&search->scratch);
    if (capacity < 1) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "a search needs room for at least one layout");
        goto done;
    }
    SHOAL_TRY(status, shoali_engine_read_args(given_engine, engine_size, &engine), done);
    SHOAL_TRY(status, shoali_plan_read_args(given_plan, plan_size, &plan), done);
    shoali_sized_copy(&search->rates, sizeof search->rates, rates, rates_size);
    shoali_sized_copy(&search->limit, sizeof search->limit, limit, limit_size);
    SHOAL_TRY(status, shoali_settings_init(&search->settings, &engine, &plan), done);
    SHOAL_TRY(status, find(search, layouts, capacity, count), done);
done:
    shoali_settings_fini(&search->settings);
    shoali_arena_fini(&search->scratch);
    shoali_arena_fini(&search->arena);
    shoali_free(search);
    return status;
}
