/* The decision per scope, and the words it is configured with. */
#include "activation_checkpointing/activation_checkpointing.h"

#include <string.h>

static bool chosen(const struct shoali_recompute *recompute, const struct shoali_scope *scope)
{
    if (recompute->granularity == SHOALI_RECOMPUTE_FULL) {
        if (!scope->layer || scope->layer->index < 1 ||
            scope->layer->index > recompute->layer_count - 2)
            return false;
        return recompute->num_layers == 0 || scope->layer->index <= recompute->num_layers;
    }
    for (int32_t i = 0; i < recompute->module_count; i++)
        if (!scope->layer && strcmp(scope->name, recompute->modules[i]) == 0)
            return true;
    return false;
}

static shoal_status mark(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)tape;
    scope->recompute = chosen(user, scope);
    return SHOAL_OK;
}

struct shoali_observer shoali_recompute_observer(struct shoali_recompute *recompute)
{
    return (struct shoali_observer){.user = recompute, .forward_begin = mark};
}

static shoal_status read_full(struct shoali_recompute *recompute,
                              const struct shoali_recompute_args *args)
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
    if (!block && args->num_layers > 1)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "--recompute-method uniform with chunks of %lld layers is not supported "
                          "yet; each layer is a chunk of its own (--recompute-num-layers 1)",
                          (long long)args->num_layers);
    recompute->granularity = SHOALI_RECOMPUTE_FULL;
    recompute->num_layers = block ? args->num_layers : 0;
    return SHOAL_OK;
}

static shoal_status read_selective(struct shoali_recompute *recompute,
                                   const struct shoali_recompute_args *args)
{
    if (args->method || args->num_layers)
        return SHOAL_FAIL(SHOAL_EINVAL, "--recompute-method and --recompute-num-layers go with "
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

shoal_status shoali_recompute_init(struct shoali_recompute *recompute,
                                   const struct shoali_recompute_args *args)
{
    *recompute = (struct shoali_recompute){.layer_count = args->layer_count};
    if (!args->granularity && (args->method || args->num_layers || args->modules))
        return SHOAL_FAIL(SHOAL_EINVAL, "recompute options without --recompute-granularity: give "
                                        "full or selective");
    if (!args->granularity)
        return SHOAL_OK;
    if (strcmp(args->granularity, "full") == 0)
        return read_full(recompute, args);
    if (strcmp(args->granularity, "selective") == 0)
        return read_selective(recompute, args);
    return SHOAL_FAIL(SHOAL_EINVAL, "--recompute-granularity is \"%s\"; give full or selective",
                      args->granularity);
}
