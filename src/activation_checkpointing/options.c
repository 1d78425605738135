/* The words that recompute is configured with. */
#include "activation_checkpointing/activation_checkpointing.h"

#include "base/log.h"

#include <string.h>

static int64_t ceil_divide(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static shoal_status check_full(const struct shoali_recompute_args *args)
{
    const bool block = args->method && strcmp(args->method, "block") == 0;
    if (args->modules && args->modules[0])
        return SHOAL_FAIL(SHOAL_EINVAL, "--recompute-modules goes with --recompute-granularity "
                                        "selective, not with full");
    if (args->method && !block && strcmp(args->method, "uniform") != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--recompute-method is \"%s\"; give uniform or block",
                          args->method);
    if (block && args->num_layers < 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--recompute-method block needs --recompute-num-layers, the number of "
                          "layers that run again");
    if (block && args->number_checkpoints > 0)
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "activation_checkpointing.number_checkpoints is a number of chunks, which "
            "--recompute-method block does not have: leave it out, or give uniform");
    return SHOAL_OK;
}

static shoal_status read_full(struct shoali_recompute *recompute,
                              const struct shoali_recompute_args *args)
{
    shoal_status status;
    SHOAL_TRY(status, check_full(args), done);
    const bool block = args->method && strcmp(args->method, "block") == 0;
    const int32_t layers = args->layer_count > 2 ? args->layer_count - 2 : 0;
    int64_t chunk = block || args->num_layers == 0 ? 1 : args->num_layers;
    if (args->number_checkpoints > 0 && layers > 0) {
        const int64_t wanted = ceil_divide(layers, args->number_checkpoints);
        if (args->num_layers > 0 && args->num_layers != wanted)
            return SHOAL_FAIL(SHOAL_ECONFIG,
                              "activation_checkpointing.number_checkpoints %lld makes chunks of "
                              "%lld of the %d layers, but --recompute-num-layers is %lld: give one "
                              "of them",
                              (long long)args->number_checkpoints, (long long)wanted, (int)layers,
                              (long long)args->num_layers);
        chunk = wanted;
    }
    recompute->granularity = SHOALI_RECOMPUTE_FULL;
    recompute->first_layer = 1;
    recompute->end_layer = 1 + layers;
    recompute->block_layers =
        block ? (int32_t)(args->num_layers < layers ? args->num_layers : layers) : 0;
    recompute->chunk_layers = chunk < layers ? (int32_t)chunk : layers;
done:
    return status;
}

static shoal_status read_selective(struct shoali_recompute *recompute,
                                   const struct shoali_recompute_args *args)
{
    if (args->method || args->num_layers)
        return SHOAL_FAIL(SHOAL_EINVAL, "--recompute-method and --recompute-num-layers go with "
                                        "--recompute-granularity full, not with selective");
    if (args->number_checkpoints > 0)
        return SHOAL_FAIL(SHOAL_ECONFIG, "activation_checkpointing.number_checkpoints goes with "
                                         "--recompute-granularity full, not with selective");
    for (int32_t i = 0; args->modules && args->modules[i]; i++) {
        if (strcmp(args->modules[i], "core_attn") == 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "--recompute-modules core_attn has nothing to save here: attention "
                              "never stores its score matrix; give attn, mlp or both");
        if (strcmp(args->modules[i], "attn") != 0 && strcmp(args->modules[i], "mlp") != 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "--recompute-modules has \"%s\"; give attn, mlp or both",
                              args->modules[i]);
        recompute->module_count++;
    }
    if (!recompute->module_count)
        return SHOAL_FAIL(SHOAL_EINVAL, "--recompute-granularity selective needs "
                                        "--recompute-modules: attn, mlp or both");
    recompute->granularity = SHOALI_RECOMPUTE_SELECTIVE;
    recompute->modules = args->modules;
    return SHOAL_OK;
}

/* A key that asks for what does not happen: published configurations have such. */
static void warn_idle_keys(const struct shoali_recompute_args *args)
{
    const char *key = args->cpu_checkpointing                ? "cpu_checkpointing"
                      : args->contiguous_memory_optimization ? "contiguous_memory_optimization"
                      : args->synchronize                    ? "synchronize_checkpoint_boundary"
                      : args->profile                        ? "profile"
                                                             : NULL;
    if (key)
        SHOALI_WARN_FIRST(
            "config",
            "activation_checkpointing.%s has no effect: nothing is recomputed without "
            "number_checkpoints or --recompute-granularity",
            key);
}

static shoal_status read_granularity(struct shoali_recompute *recompute,
                                     const struct shoali_recompute_args *args)
{
    if (!args->granularity && (args->method || args->num_layers || args->modules))
        return SHOAL_FAIL(SHOAL_EINVAL, "recompute options without --recompute-granularity: give "
                                        "full or selective");
    if (!args->granularity && args->number_checkpoints == 0) {
        warn_idle_keys(args);
        return SHOAL_OK;
    }
    if (!args->granularity || strcmp(args->granularity, "full") == 0)
        return read_full(recompute, args);
    if (strcmp(args->granularity, "selective") == 0)
        return read_selective(recompute, args);
    return SHOAL_FAIL(SHOAL_EINVAL, "--recompute-granularity is \"%s\"; give full or selective",
                      args->granularity);
}

shoal_status shoali_recompute_init(struct shoali_recompute *recompute,
                                   const struct shoali_recompute_args *args)
{
    shoal_status status;
    *recompute = (struct shoali_recompute){.timed_scope = -1};
    SHOAL_TRY(status, read_granularity(recompute, args), done);
    if (!args->granularity && args->number_checkpoints == 0)
        goto done;
    recompute->cpu = args->cpu_checkpointing;
    recompute->contiguous = args->contiguous_memory_optimization;
    recompute->synchronize = args->synchronize;
    recompute->profile = args->profile;
done:
    return status;
}
