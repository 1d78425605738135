/* losses.c - queues the kernels of losses. */
#include "ops/cuda/launch.h"

static struct shoali_cuda_grid row_grid(const struct shoali_kernel_context *context, int64_t rows)
{
    return (struct shoali_cuda_grid){.blocks = shoali_cuda_row_blocks(context, rows),
                                     .threads = 256};
}

void shoali_cuda_cross_entropy(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_cross_entropy_args *given = args;
    const struct cuda_cross_entropy_args own = {.logits = given->logits,
                                                .targets = given->targets,
                                                .loss = given->loss,
                                                .lse = given->lse,
                                                .rows = given->rows,
                                                .columns = given->columns,
                                                .stride = given->stride,
                                                .target = (float)given->labels.target,
                                                .others = (float)given->labels.others,
                                                .dtype = (int32_t)given->dtype};
    shoali_cuda_queue(context, CUDA_cross_entropy, &own, row_grid(context, own.rows));
}

void shoali_cuda_cross_entropy_tile(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_cross_entropy_tile_args *given = args;
    const struct cuda_cross_entropy_tile_args own = {.logits = given->logits,
                                                     .targets = given->targets,
                                                     .largest = given->largest,
                                                     .loss = given->loss,
                                                     .lse = given->lse,
                                                     .rows = given->rows,
                                                     .columns = given->columns,
                                                     .stride = given->stride,
                                                     .first = given->first,
                                                     .vocabulary = given->vocabulary,
                                                     .target = (float)given->labels.target,
                                                     .others = (float)given->labels.others,
                                                     .dtype = (int32_t)given->dtype};
    shoali_cuda_queue(context, CUDA_cross_entropy_tile, &own, row_grid(context, own.rows));
}

static float wanted_of(const struct shoali_label_probabilities *labels)
{
    return labels->others > 0 ? (float)labels->target : 1.0f;
}

/* A warp has a row. */
static void queue_backward(const struct shoali_kernel_context *context,
                           const struct cuda_cross_entropy_backward_args *own)
{
    const int64_t room = 16 * (int64_t)shoali_cuda_multiprocessors(context);
    const int64_t blocks = (own->rows + 7) / 8;
    shoali_cuda_queue(
        context, CUDA_cross_entropy_backward, own,
        (struct shoali_cuda_grid){.blocks = blocks < room ? blocks : room, .threads = 256});
}

void shoali_cuda_cross_entropy_backward(const void *args,
                                        const struct shoali_kernel_context *context)
{
    const struct shoali_cross_entropy_backward_args *given = args;
    queue_backward(context,
                   &(struct cuda_cross_entropy_backward_args){.logits = given->logits,
                                                              .targets = given->targets,
                                                              .lse = given->lse,
                                                              .dloss = given->dloss,
                                                              .count = given->count,
                                                              .dlogits = given->dlogits,
                                                              .rows = given->rows,
                                                              .columns = given->columns,
                                                              .stride = given->stride,
                                                              .stride_out = given->stride,
                                                              .wanted = wanted_of(&given->labels),
                                                              .others = (float)given->labels.others,
                                                              .dtype = (int32_t)given->dtype,
                                                              .dtype_out = (int32_t)given->dtype});
}

void shoali_cuda_cross_entropy_tile_backward(const void *args,
                                             const struct shoali_kernel_context *context)
{
    const struct shoali_cross_entropy_tile_backward_args *given = args;
    queue_backward(context, &(struct cuda_cross_entropy_backward_args){
                                .logits = given->logits,
                                .targets = given->targets,
                                .lse = given->lse,
                                .dloss = given->dloss,
                                .count = given->count,
                                .dlogits = given->dlogits,
                                .rows = given->rows,
                                .columns = given->columns,
                                .stride = given->stride,
                                .stride_out = given->stride_out,
                                .first = given->first,
                                .wanted = wanted_of(&given->labels),
                                .others = (float)given->labels.others,
                                .dtype = (int32_t)given->dtype,
                                .dtype_out = (int32_t)given->dtype_out});
}

void shoali_cuda_loss_mean(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_loss_mean_args *given = args;
    const struct cuda_loss_mean_args own = {.loss = given->loss,
                                            .targets = given->targets,
                                            .mean = given->mean,
                                            .count = given->count,
                                            .rows = given->rows};
    shoali_cuda_queue(context, CUDA_loss_mean, &own,
                      (struct shoali_cuda_grid){.blocks = 1, .threads = 32});
}
