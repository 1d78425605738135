/* The weights of a DeepSpeed checkpoint as tensors: the row of the table of weight_source.h. */
#include "checkpoint/weight_source.h"
#include "foreign/deepspeed/deepspeed.h"

#include <string.h>

struct weights {
    struct shoali_deepspeed checkpoint;
    int32_t kind; /* fp32 weights */
};

static bool probe(const char *dir)
{
    return shoali_deepspeed_is(dir, NULL);
}

static shoal_status open_weights(const char *dir, void **opened)
{
    shoal_status status;
    struct weights *weights = shoali_calloc(1, sizeof *weights, "a checkpoint's weights");
    *opened = weights;
    if (!weights)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_deepspeed_open(dir, NULL, &weights->checkpoint), done);
    weights->kind = shoali_deepspeed_find_kind(&weights->checkpoint, "master");
    if (weights->kind < 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s has no weights", dir);
done:
    return status;
}

static void close_weights(void *opened)
{
    struct weights *weights = opened;
    if (!weights)
        return;
    shoali_deepspeed_close(&weights->checkpoint);
    shoali_free(weights);
}

static int32_t count(const void *opened)
{
    return ((const struct weights *)opened)->checkpoint.param_count;
}

static const char *get(const void *opened, int32_t index, shoal_shape *shape)
{
    const struct shoali_deepspeed_param *param =
        &((const struct weights *)opened)->checkpoint.param[index];
    *shape = param->shape;
    return param->name;
}

static shoal_status read_weights(void *opened, int32_t index, int64_t first, int64_t number,
                                 float *out)
{
    struct weights *weights = opened;
    return shoali_deepspeed_read(&weights->checkpoint, index, weights->kind, first, number, out);
}

const struct shoali_weight_source shoali_weights_deepspeed = {
    .name = "DeepSpeed",
    .probe = probe,
    .open = open_weights,
    .close = close_weights,
    .count = count,
    .get = get,
    .read = read_weights,
};
