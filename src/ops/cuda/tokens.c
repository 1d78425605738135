/* tokens.c - queues the kernels of embeddings, rotary positions and dropout. */
#include "ops/cuda/launch.h"

#include <string.h>

_Static_assert(CUDA_RUN_DIMS == SHOALI_BLOCK_MAX_DIMS, "runs of as many dimensions");
_Static_assert((int)CUDA_ROTARY_PAIRS == (int)SHOALI_ROTARY_PAIRS, "as many frequencies");

static struct shoali_cuda_grid row_grid(const struct shoali_kernel_context *context, int64_t rows)
{
    const int64_t room = 16 * (int64_t)shoali_cuda_multiprocessors(context);
    return (struct shoali_cuda_grid){.blocks = rows < room ? rows : room, .threads = 256};
}

void shoali_cuda_dropout(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_dropout_args *given = args;
    struct cuda_dropout_args own = {.x = given->x,
                                    .residual = given->residual,
                                    .y = given->y,
                                    .count = given->count,
                                    .first_element = given->first_element,
                                    .threshold = shoali_dropout_threshold(given->probability),
                                    .scale = (float)(1.0 / (1.0 - (double)given->probability)),
                                    .run_dims = given->runs.ndim,
                                    .accumulate = given->accumulate,
                                    .dtype = (int32_t)given->dtype};
    memcpy(own.run_count, given->runs.count, sizeof own.run_count);
    memcpy(own.run_stride, given->runs.stride, sizeof own.run_stride);
    memcpy(&own.random, &given->random, sizeof own.random);
    shoali_cuda_queue_flat(context, CUDA_dropout, &own, own.count);
}

void shoali_cuda_rotary(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_rotary_args *given = args;
    struct cuda_rotary_args own = {.x = given->x,
                                   .y = given->y,
                                   .rows = given->batch * given->length,
                                   .length = given->length,
                                   .columns = given->columns,
                                   .heads = given->heads,
                                   .head_size = given->head_size,
                                   .rotary_size = given->rotary_size,
                                   .first_position = given->first_position,
                                   .interleaved = given->interleaved,
                                   .inverse = given->inverse,
                                   .accumulate = given->accumulate,
                                   .dtype = (int32_t)given->dtype};
    memcpy(own.inverse_frequency, given->inverse_frequency, sizeof own.inverse_frequency);
    shoali_cuda_queue(context, CUDA_rotary, &own, row_grid(context, own.rows));
}

void shoali_cuda_embedding(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_embedding_args *given = args;
    const struct cuda_embedding_args own = {.ids = given->ids,
                                            .table = given->table,
                                            .positions = given->positions,
                                            .out = given->out,
                                            .bad_id = given->bad_id,
                                            .rows = given->rows,
                                            .columns = given->columns,
                                            .table_rows = given->table_rows,
                                            .period = given->period > 0 ? given->period : 1,
                                            .first_position = given->first_position,
                                            .first_row = given->first_row,
                                            .whole_rows = given->whole_rows,
                                            .dtype = (int32_t)given->dtype};
    shoali_cuda_queue(context, CUDA_embedding, &own, row_grid(context, own.rows));
}

static size_t bytes_of(int64_t rows, int64_t columns)
{
    return (size_t)(rows * columns) * sizeof(float);
}

void shoali_cuda_embedding_backward(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_embedding_backward_args *given = args;
    const struct cuda_embedding_backward_args own = {.ids = given->ids,
                                                     .dout = given->dout,
                                                     .dtable = given->dtable,
                                                     .dpositions = given->dpositions,
                                                     .rows = given->rows,
                                                     .columns = given->columns,
                                                     .table_rows = given->table_rows,
                                                     .period =
                                                         given->period > 0 ? given->period : 1,
                                                     .first_position = given->first_position,
                                                     .first_row = given->first_row,
                                                     .dtype = (int32_t)given->dtype};
    if (own.dtable != NULL && !given->accumulate_table)
        shoali_cuda_clear(context, own.dtable, bytes_of(own.table_rows, own.columns));
    if (own.dpositions != NULL && !given->accumulate_positions)
        shoali_cuda_clear(context, own.dpositions, bytes_of(given->position_rows, own.columns));
    if (own.dtable != NULL && own.table_rows > 0)
        shoali_cuda_queue(context, CUDA_embedding_backward_table, &own,
                          (struct shoali_cuda_grid){
                              .blocks = (own.table_rows + CUDA_TABLE_ROWS - 1) / CUDA_TABLE_ROWS,
                              .threads = 256,
                              .shared_bytes = CUDA_EMBEDDING_SHARED});
    if (own.dpositions != NULL && own.rows > 0)
        shoali_cuda_queue_flat(context, CUDA_embedding_backward_positions, &own,
                               (own.period < own.rows ? own.period : own.rows) * own.columns);
}
