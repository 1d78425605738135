/* search.c - all layouts by arithmetic, the best of them by plans.
 *
 * The order of the loops is that of what costs to find out: a mesh, a run without memory of one
 * layer of each kind, a cut with its timeline, ZeRO's formulas. A layout whose longest stage alone
 * takes longer than the last of those that are kept has no timeline made. */
#include "autotuning/search.h"

#include "base/plain.h"

#include <stdlib.h>
#include <string.h>

enum { CHOICES_MAX = 64, MICRO_MAX = 64 };
/* Formulas err: first a plan decides about layouts that need a little too much by them. When no
 * plan of the fastest fits, those that leave more room are looked at. */
static const double slack[] = {0.05, -0.15, -0.4};
enum { PASSES = sizeof slack / sizeof slack[0] };

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
static shoal_status find_batch(struct shoali_search *search)
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
static shoal_status find_costs(struct shoali_search *search, const struct shoali_costs_args *args,
                               const struct shoali_costs **costs)
{
    struct shoali_search_costs *entry = search->entry;
    while (entry && !same_args(&entry->args, args))
        entry = entry->next;
    if (!entry) {
        entry = shoali_arena_alloc(&search->arena, sizeof *entry);
        if (!entry)
            return SHOAL_ENOMEM;
        *entry = (struct shoali_search_costs){.next = search->entry, .args = *args};
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

/* ---- loops ---------------------------------------------------------------------------------- */

/* By the method that is given, else by each that suits any model. */
static shoal_status try_cuts(struct shoali_search *search, struct shoali_shape *shape)
{
    static const char *const methods[] = {"flops", "parameters", "uniform"};
    shoal_status status;
    shoal_engine_args *engine = &search->settings.engine;
    const char *key = search->settings.config.pipeline.partition;
    const bool given = engine->partition_method || (key && shoali_strcasecmp(key, "best") != 0);
    shape->partition = NULL;
    if (given || shape->pipeline.stages == 1)
        return shoali_search_shape(search, shape);
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        engine->partition_method = shape->partition = methods[m];
        status = shoali_search_shape(search, shape);
        engine->partition_method = NULL;
        SHOAL_TRY(status, status, done);
    }
    status = SHOAL_OK;
done:
    return status;
}

/* Micro-batches of a chunk in turn: as given, else as many as stages, else the least that
 * divides. */
static int32_t find_group(const struct shoali_search *search, int32_t chunks, int64_t micro_batches)
{
    const int64_t p = search->settings.plan.pipeline;
    int64_t group = search->settings.engine.micro_batch_group;
    if (group > 0 || chunks == 1 || micro_batches % p == 0)
        return (int32_t)group;
    for (group = p; group < micro_batches && micro_batches % group != 0;)
        group++;
    return (int32_t)group;
}

static shoal_status try_schedule(struct shoali_search *search, struct shoali_shape *shape,
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

static shoal_status try_schedules(struct shoali_search *search, struct shoali_shape *shape,
                                  int64_t micro_batches)
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
static shoal_status try_micro(struct shoali_search *search, struct shoali_shape *shape,
                              int64_t micro)
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

static shoal_status try_mesh(struct shoali_search *search, int64_t tensor, int64_t pipeline)
{
    shoal_status status;
    shoal_mesh *mesh = NULL;
    struct shoali_shape shape = {0};
    int64_t micro[CHOICES_MAX];
    search->settings.plan.tensor = (int32_t)tensor;
    search->settings.plan.pipeline = (int32_t)pipeline;
    SHOAL_TRY(status, shoali_plan_mesh(&search->settings.plan, NULL, &mesh), done);
    shape.data = shoal_mesh_size(mesh, SHOAL_AXIS_DP);
    SHOAL_TRY(status, shoali_speeds_of(&search->rates, mesh, &shape.speeds), done);
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

static shoal_status try_all(struct shoali_search *search)
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
static int64_t verify(const struct shoali_search *search, struct shoali_candidate *candidate)
{
    shoal_layout *layout = &candidate->layout;
    shoal_plan_verdict verdict;
    const int64_t guessed = layout->memory_bytes;
    const shoal_plan plan = {.world_size = search->settings.plan.world_size,
                             .device_bytes = guessed};
    if (shoali_verify(&search->settings, &search->limit, candidate->worst, layout, &verdict) < 0) {
        layout->memory_bytes = guessed;
        layout->planned = false;
        shoali_error_clear();
        shoal_plan_check(&plan, &search->limit, &verdict);
    }
    return verdict.missing_bytes;
}

/* Plans the fastest until as many as asked for are known to fit. */
static int32_t choose(struct shoali_search *search, shoal_layout *layouts, int32_t capacity)
{
    int32_t count = 0;
    for (int32_t i = 0; i < search->kept_count && count < capacity; i++) {
        struct shoali_candidate candidate = search->kept[i];
        if (verify(search, &candidate) > 0) {
            shoali_search_note_smallest(search, &candidate);
            continue;
        }
        layouts[count++] = candidate.layout;
    }
    return count;
}

/* Nothing could be tried: the last refusal, said again, else that nothing divides. */
static shoal_status say_why(struct shoali_search *search)
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

static shoal_status find(struct shoali_search *search, shoal_layout *layouts, int32_t capacity,
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
    if (search->smallest.layout.memory_bytes == 0) {
        status = say_why(search);
        goto done;
    }
    (void)verify(search, &search->smallest);
    layouts[(*count)++] = search->smallest.layout;
    status = SHOAL_END;
done:
    return status;
}

shoal_status shoal_layout_search(const shoal_engine_args *engine, const shoal_plan_args *given_plan,
                                 const shoal_plan_rates *rates, const shoal_plan_limit *limit,
                                 shoal_layout *layouts, int32_t capacity, int32_t *count)
{
    shoal_status status;
    const shoal_plan_args plan = given_plan ? *given_plan : (shoal_plan_args){0};
    struct shoali_search *search = shoali_calloc(1, sizeof *search, "a search");
    *count = 0;
    if (!search)
        return SHOAL_ENOMEM;
    shoali_arena_init(&search->arena);
    shoali_arena_init(&search->scratch);
    if (capacity < 1) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "a search needs room for at least one layout");
        goto done;
    }
    search->rates = *rates;
    search->limit = *limit;
    SHOAL_TRY(status, shoali_settings_init(&search->settings, engine, &plan), done);
    SHOAL_TRY(status, find(search, layouts, capacity, count), done);
done:
    shoali_settings_fini(&search->settings);
    shoali_arena_fini(&search->scratch);
    shoali_arena_fini(&search->arena);
    shoali_free(search);
    return status;
}
