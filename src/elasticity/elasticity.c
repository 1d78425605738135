#include "elasticity/elasticity.h"

#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO_MAX = 32, BASES_MAX = MICRO_MAX + 1 };

/* Each has more divisors than any smaller number (not all of those numbers are here). */
static const int64_t composite[] = {1,      2,      4,      6,      12,     24,     36,     48,
                                    60,     120,    180,    240,    360,    720,    840,    1260,
                                    1680,   2520,   5040,   7560,   10080,  15120,  20160,  25200,
                                    27720,  45360,  50400,  55440,  83160,  110880, 166320, 221760,
                                    277200, 332640, 498960, 554400, 665280, 720720};

/* ---- the section ---------------------------------------------------------------------------- */
#define NO_MAX ((double)INFINITY)
#define ROW(member_, type_, default_, help_, ...)                                                 \
    {                                                                                             \
        .key = #member_, .type = SHOALI_##type_,                                                  \
        .offset = offsetof(struct shoali_elasticity_config, member_), .default_number = default_, \
        .help = help_, __VA_ARGS__                                                                \
    }
static const struct shoali_option rows[] = {
    ROW(enabled, BOOL, 0,
        "Choose a batch that many numbers of ranks can divide, instead of train_batch_size.", ),
    ROW(max_train_batch_size, INT, 2000, "Largest global batch; must be given.", .min = 1,
        .max = 1e12),
    ROW(micro_batch_sizes, INTS, 0, "Micro-batch sizes to choose from; must be given.",
        .default_text = "2,4,6"),
    ROW(min_gpus, INT, 1, "Least number of ranks.", .min = 1, .max = 1e6),
    ROW(max_gpus, INT, 10000, "Largest number of ranks.", .min = 1, .max = 1e6),
    ROW(min_time, INT, 0, "A hint for schedulers; nothing reads it.", .state = SHOALI_NOEFFECT),
    ROW(num_gpus_per_node, INT, 1, "Ranks per machine; version 0.2 uses whole machines.", .min = 1,
        .max = 1e6),
    ROW(model_parallel_size, INT, 1,
        "Ranks that share one model (tensor and pipeline parallel); above 1 only with version 0.2.",
        .min = 1, .max = 1e6),
    ROW(prefer_larger_batch, BOOL, 1, "Of equal choices take the larger batch.", ),
    ROW(ignore_non_elastic_batch_info, BOOL, 0,
        "Ignore batch sizes given outside this section; without it they are an error.", ),
    ROW(version, FLOAT, SHOALI_ELASTICITY_V2,
        "Version of the rule: 0.1 counts ranks, 0.2 whole machines.", .min = 0.1, .max = 0.2),
};

static bool is_v2(const struct shoali_elasticity_config *config)
{
    return config->version == SHOALI_ELASTICITY_V2;
}

static bool given(const struct shoali_elasticity_config *config, const char *key)
{
    return shoali_config_given(&shoali_elasticity_section, config, key);
}

static shoal_status validate_micro(const struct shoali_elasticity_config *config)
{
    const struct shoali_ints *micro = &config->micro_batch_sizes;
    if (micro->count < 1 || micro->count > MICRO_MAX)
        return SHOAL_FAIL(SHOAL_ECONFIG, "micro_batch_sizes has %d entries: give 1 to %d",
                          (int)micro->count, MICRO_MAX);
    for (int32_t i = 0; i < micro->count; i++) {
        if (micro->value[i] < 1)
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              "micro_batch_sizes has %lld: micro-batches have 1 sample and more",
                              (long long)micro->value[i]);
        if (micro->value[i] > config->max_train_batch_size)
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              "micro_batch_sizes has %lld, more than max_train_batch_size (%lld)",
                              (long long)micro->value[i], (long long)config->max_train_batch_size);
    }
    return SHOAL_OK;
}

/* What DeepSpeed's ElasticityConfig refuses. */
static shoal_status validate_keys(const struct shoali_elasticity_config *config)
{
    static const char *const required[] = {"max_train_batch_size", "micro_batch_sizes"};
    for (int i = 0; i < 2; i++)
        if (!given(config, required[i]))
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              "%s is missing, and elasticity, which is enabled, needs it: %s",
                              required[i],
                              i ? "give a list such as [2, 4, 6]"
                                : "give the largest batch that the training may have");
    if (config->version != SHOALI_ELASTICITY_V1 && !is_v2(config))
        return SHOAL_FAIL(SHOAL_ECONFIG, "version %g does not exist: give 0.1 or 0.2",
                          config->version);
    if (config->min_gpus > config->max_gpus)
        return SHOAL_FAIL(SHOAL_ECONFIG, "min_gpus %lld is more than max_gpus %lld",
                          (long long)config->min_gpus, (long long)config->max_gpus);
    if (config->model_parallel_size > 1 && !is_v2(config))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "model_parallel_size is %lld, which version 0.1 does not know: give "
                          "\"version\": 0.2",
                          (long long)config->model_parallel_size);
    if (is_v2(config) && config->num_gpus_per_node % config->model_parallel_size != 0)
        return SHOAL_FAIL(
            SHOAL_ECONFIG, "num_gpus_per_node %lld is not a multiple of model_parallel_size %lld",
            (long long)config->num_gpus_per_node, (long long)config->model_parallel_size);
    return validate_micro(config);
}

static shoal_status validate(void *value)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_elasticity_config *config = value;
    struct shoali_elastic_sizes sizes;
    struct shoali_arena arena;
    if (!config->enabled)
        return SHOAL_OK;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, validate_keys(config), done);
    SHOAL_TRY(status, shoali_elastic_find(config, 0, false, &arena, &sizes), done);
done:
    shoali_arena_fini(&arena);
    return status;
}

const struct shoali_section shoali_elasticity_section = {
    .name = "elasticity",
    .help = "One batch for many numbers of ranks. `shoal elastic` shows what it comes to.",
    .rows = rows,
    .row_count = (int32_t)(sizeof(rows) / sizeof(rows[0])),
    .struct_bytes = sizeof(struct shoali_elasticity_config),
    .given_offset = offsetof(struct shoali_elasticity_config, given),
    .validate = validate,
};

/* ---- arithmetic ----------------------------------------------------------------------------- */
/* What is chosen from: in version 0.2 of nodes. */
struct limits {
    const struct shoali_ints *micro;
    int64_t batch, least, most; /* largest batch, counts */
    int64_t only;               /* the one micro-batch that may be used; 0: any */
};

static bool divides(const struct limits *limits, int64_t batch, int64_t count)
{
    for (int32_t i = 0; i < limits->micro->count; i++) {
        const int64_t micro = limits->micro->value[i];
        if ((limits->only == 0 || micro == limits->only) && batch % micro == 0 &&
            batch / micro % count == 0)
            return true;
    }
    return false;
}

static int64_t last_count(const struct limits *limits, int64_t batch)
{
    int64_t least = batch;
    for (int32_t i = 0; i < limits->micro->count; i++)
        least = limits->micro->value[i] < least ? limits->micro->value[i] : least;
    return batch / least < limits->most ? batch / least : limits->most;
}

/* Writes the valid counts to `out` (NULL: not); returns how many there are. */
static int32_t valid_counts(const struct limits *limits, int64_t batch, int64_t *out)
{
    int32_t found = 0;
    const int64_t last = last_count(limits, batch);
    for (int64_t count = limits->least; count <= last; count++)
        if (divides(limits, batch, count)) {
            if (out)
                out[found] = count;
            found++;
        }
    return found;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Micro-batches and their least common multiple, those that are within the limit. */
static int32_t make_bases(const struct limits *limits, int64_t bases[BASES_MAX])
{
    int32_t count = 0;
    int64_t common = 1;
    for (int32_t i = 0; i < limits->micro->count; i++) {
        const int64_t micro = limits->micro->value[i];
        if (micro <= limits->batch)
            bases[count++] = micro;
        if (common > 0 && !shoali_mul(common / gcd(common, micro), micro, &common))
            common = 0; /* far beyond every limit */
    }
    if (common > 0 && common <= limits->batch)
        bases[count++] = common;
    return count;
}

static int64_t candidate_of(int64_t base, int64_t limit)
{
    int64_t factor = 1;
    for (size_t i = 0; i < sizeof(composite) / sizeof(composite[0]); i++)
        if (composite[i] <= limit / base)
            factor = composite[i];
    return base * factor;
}

/* Version 0.1. *batch 0: no candidate has a valid count. */
static void choose_batch(const struct limits *limits, bool larger, int64_t *batch)
{
    int64_t bases[BASES_MAX];
    int32_t most = 0;
    const int32_t count = make_bases(limits, bases);
    *batch = 0;
    for (int32_t i = 0; i < count; i++) {
        const int64_t candidate = candidate_of(bases[i], limits->batch);
        const int32_t valid = valid_counts(limits, candidate, NULL);
        if (valid > most ||
            (valid == most && valid > 0 && (larger ? candidate > *batch : candidate < *batch))) {
            most = valid;
            *batch = candidate;
        }
    }
}

static shoal_status keep_counts(const struct limits *limits, int64_t batch, int64_t factor,
                                struct shoali_arena *arena, struct shoali_elastic_sizes *sizes)
{
    sizes->counts.count = valid_counts(limits, batch, NULL);
    sizes->counts.value =
        shoali_arena_alloc(arena, ((size_t)sizes->counts.count + 1) * sizeof(int64_t));
    if (!sizes->counts.value)
        return SHOAL_ENOMEM;
    valid_counts(limits, batch, sizes->counts.value);
    for (int32_t i = 0; i < sizes->counts.count; i++)
        sizes->counts.value[i] *= factor;
    return SHOAL_OK;
}

static bool is_valid(const struct shoali_elastic_sizes *sizes, int64_t count)
{
    for (int32_t i = 0; i < sizes->counts.count; i++)
        if (sizes->counts.value[i] == count)
            return true;
    return false;
}

static shoal_status not_valid(const struct shoali_elastic_sizes *sizes, int64_t count, bool exact)
{
    struct shoali_str list = {0};
    for (int32_t i = 0; i < sizes->counts.count; i++)
        shoali_str_append(&list, "%s%lld", i ? ", " : "", (long long)sizes->counts.value[i]);
    const shoal_status status =
        SHOAL_FAIL(SHOAL_ECONFIG,
                   "elasticity: %lld data-parallel ranks cannot divide the batch of %lld%s: start "
                   "one of these numbers: %s",
                   (long long)count, (long long)sizes->batch,
                   exact ? " into the micro-batches of the other counts, as \"reduction\": "
                           "\"exact\" needs"
                         : "",
                   shoali_str_get(&list));
    shoali_str_fini(&list);
    return status;
}

/* Version 0.2: the batch of a count that is not among the valid ones. */
static shoal_status make_own_batch(const struct shoali_elasticity_config *config, int64_t count,
                                   struct shoali_arena *arena, struct shoali_elastic_sizes *sizes)
{
    const struct shoali_ints *micro = &config->micro_batch_sizes;
    int64_t best = 0;
    for (int32_t i = 0; i < micro->count; i++) {
        int64_t at_once;
        if (!shoali_mul(micro->value[i], count, &at_once) || at_once > config->max_train_batch_size)
            continue;
        const int64_t batch = config->max_train_batch_size / at_once * at_once;
        const bool better = config->prefer_larger_batch ? batch > best : batch < best;
        best = best == 0 || better ? batch : best;
    }
    if (best == 0)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "elasticity: %lld data-parallel ranks are more than a batch of at most "
                          "%lld (max_train_batch_size) has micro-batches",
                          (long long)count, (long long)config->max_train_batch_size);
    sizes->batch = best;
    sizes->own_batch = true;
    sizes->counts.value = shoali_arena_alloc(arena, sizeof(int64_t));
    if (!sizes->counts.value)
        return SHOAL_ENOMEM;
    sizes->counts.value[0] = count;
    sizes->counts.count = 1;
    return SHOAL_OK;
}

/* The micro-batch that the most counts can have. */
static void choose_common(struct limits *limits, int64_t batch, struct shoali_elastic_sizes *sizes)
{
    int32_t most = 0;
    for (int32_t i = 0; i < limits->micro->count; i++) {
        struct limits one = *limits;
        one.only = limits->micro->value[i];
        const int32_t valid = valid_counts(&one, batch, NULL);
        if (valid > most || (valid == most && valid > 0 && one.only > sizes->common_micro)) {
            most = valid;
            sizes->common_micro = one.only;
        }
    }
    limits->only = sizes->common_micro;
}

shoal_status shoali_elastic_find(const struct shoali_elasticity_config *config, int64_t count,
                                 bool exact, struct shoali_arena *arena,
                                 struct shoali_elastic_sizes *sizes)
{
    shoal_status status;
    /* Counts of a node of version 0.2; 1: there are no nodes. */
    const int64_t factor =
        is_v2(config) ? config->num_gpus_per_node / config->model_parallel_size : 1;
    const int64_t per_node = is_v2(config) ? config->num_gpus_per_node : 1;
    struct limits limits = {.micro = &config->micro_batch_sizes,
                            .batch = config->max_train_batch_size / factor,
                            .least = config->min_gpus / per_node,
                            .most = config->max_gpus / per_node};
    int64_t batch;
    *sizes = (struct shoali_elastic_sizes){0};
    limits.least = limits.least ? limits.least : 1;
    limits.most = limits.most ? limits.most : INT64_C(1000000);
    choose_batch(&limits, config->prefer_larger_batch, &batch);
    if (batch == 0)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "elasticity: no batch of at most %lld can be divided by %lld to %lld "
                          "ranks in micro-batches of micro_batch_sizes: raise "
                          "max_train_batch_size, or change min_gpus and max_gpus",
                          (long long)config->max_train_batch_size, (long long)config->min_gpus,
                          (long long)config->max_gpus);
    if (exact)
        choose_common(&limits, batch, sizes);
    SHOAL_TRY(status, keep_counts(&limits, batch, factor, arena, sizes), done);
    sizes->batch = batch * factor;
    if (count == 0 || is_valid(sizes, count))
        goto done;
    if (exact || !is_v2(config))
        status = not_valid(sizes, count, exact);
    else
        status = make_own_batch(config, count, arena, sizes);
done:
    return status;
}

int64_t shoali_elastic_micro(const struct shoali_elasticity_config *config,
                             const struct shoali_elastic_sizes *sizes, int64_t count)
{
    int64_t best = sizes->common_micro;
    for (int32_t i = 0; i < config->micro_batch_sizes.count && !sizes->common_micro; i++) {
        const int64_t micro = config->micro_batch_sizes.value[i];
        if (micro > best && sizes->batch / count % micro == 0)
            best = micro;
    }
    return best;
}

int64_t shoali_elastic_largest(const struct shoali_elastic_sizes *sizes, int64_t limit)
{
    int64_t largest = 0;
    for (int32_t i = 0; i < sizes->counts.count; i++)
        if (sizes->counts.value[i] <= limit)
            largest = sizes->counts.value[i];
    return largest;
}
