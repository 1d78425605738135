/* train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * data-parallel
 * ranks. */
#include "engine/config/config.h"

#include "base/log.h"

static const char *const train_key = "train_batch_size";
static const char *const micro_key = "train_micro_batch_size_per_gpu";
static const char *const accumulation_key = "gradient_accumulation_steps";

static shoal_status too_large(int64_t micro, int64_t accumulation, int64_t dp_world)
{
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "%s %lld * %s %lld * %lld data-parallel ranks does not fit in 64 bits",
                      micro_key, (long long)micro, accumulation_key, (long long)accumulation,
                      (long long)dp_world);
}

/* *part = train / (given * ranks), which must be whole and at least 1. given_key NULL: train over
 * the ranks alone. */
static shoal_status derive(int64_t train, const char *given_key, int64_t given, int64_t dp_world,
                           int64_t *part)
{
    int64_t at_once;
    if (!shoali_mul(given, dp_world, &at_once))
        return given_key == micro_key ? too_large(given, 1, dp_world)
                                      : too_large(1, given, dp_world);
    *part = train / at_once;
    if (train % at_once == 0)
        return SHOAL_OK;
    if (!given_key)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s %lld cannot be shared equally by %lld data-parallel ranks: make it a "
                          "multiple of %lld, such as %lld, or start another number of ranks",
                          train_key, (long long)train, (long long)dp_world, (long long)dp_world,
                          (long long)((*part + 1) * dp_world));
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "%s %lld is not a multiple of %lld, which is %s %lld * %lld data-parallel "
                      "ranks: make it one, such as %lld, or change %s",
                      train_key, (long long)train, (long long)at_once, given_key, (long long)given,
                      (long long)dp_world, (long long)((*part + 1) * at_once), given_key);
}

/* The batch that elasticity chose, whatever the keys say. */
static shoal_status elastic_sizes(const struct shoali_ds_config *config, int64_t dp_world,
                                  struct shoali_batch_sizes *sizes)
{
    shoal_status status;
    const struct shoali_elasticity_config *elasticity = &config->elasticity;
    const bool exact = config->reduction == SHOALI_REDUCTION_EXACT;
    struct shoali_elastic_sizes found;
    struct shoali_arena arena;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_elastic_check_scheduler(elasticity), done);
    SHOAL_TRY(status, shoali_elastic_find(elasticity, dp_world, exact, &arena, &found), done);
    if (found.own_batch)
        SHOALI_WARN("config",
                    "elasticity: %lld data-parallel ranks are not among those that have one batch "
                    "(shoal elastic lists them): this run's batch is %lld",
                    (long long)dp_world, (long long)found.batch);
    sizes->train = found.batch;
    sizes->micro = shoali_elastic_micro(elasticity, &found, dp_world);
    sizes->accumulation = found.batch / dp_world / sizes->micro;
done:
    shoali_arena_fini(&arena);
    return status;
}

shoal_status shoali_batch_triad(const struct shoali_ds_config *config, int64_t dp_world,
                                struct shoali_batch_sizes *sizes)
{
    shoal_status status = SHOAL_OK;
    int64_t train = config->train_batch_size, micro = config->train_micro_batch_size_per_gpu;
    int64_t accumulation = config->gradient_accumulation_steps, product;
    SHOAL_ASSERT(dp_world > 0);
    if (config->elasticity.enabled)
        return elastic_sizes(config, dp_world, sizes);
    if (!train && !micro) {
        micro = 1;
        SHOALI_INFO("config", "neither %s nor %s is given: %s is 1", train_key, micro_key,
                    micro_key);
    }
    if (!micro)
        SHOAL_TRY(status,
                  derive(train, accumulation ? accumulation_key : NULL,
                         accumulation ? accumulation : 1, dp_world, &micro),
                  done);
    if (!accumulation && train)
        SHOAL_TRY(status, derive(train, micro_key, micro, dp_world, &accumulation), done);
    if (!accumulation)
        accumulation = 1;
    if (!shoali_mul(micro, accumulation, &product) || !shoali_mul(product, dp_world, &product)) {
        status = too_large(micro, accumulation, dp_world);
        goto done;
    }
    if (!train)
        train = product;
    if (product != train) {
        status =
            SHOAL_FAIL(SHOAL_ECONFIG,
                       "%s %lld is not %s %lld * %s %lld * %lld data-parallel ranks (= %lld): "
                       "change one, or leave one out to have it derived",
                       train_key, (long long)train, micro_key, (long long)micro, accumulation_key,
                       (long long)accumulation, (long long)dp_world, (long long)product);
        goto done;
    }
    *sizes = (struct shoali_batch_sizes){train, micro, accumulation};
done:
    return status;
}
