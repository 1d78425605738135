/* embedding - descriptions of the table lookup and of its gradient. */
#include "ops/kernel.h"

/* Rows of the position table that are used: a position is counted within a period. */
static int64_t positions_used(int64_t rows, int64_t period)
{
    return rows < period ? rows : period;
}

static shoal_status check_period(const char *kernel, int64_t period, int64_t first_position)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_check_at_least(kernel, "period", period, 1), done);
    SHOAL_TRY(status, shoali_check_at_least(kernel, "first_position", first_position, 0), done);
done:
    return status;
}

static shoal_status check_embedding(const void *block)
{
    const struct shoali_embedding_args *args = block;
    if (args->positions == NULL)
        return SHOAL_OK;
    return check_period("embedding", args->period, args->first_position);
}

static bool looks_up(const struct shoali_embedding_args *args)
{
    return args->rows > 0 && args->columns > 0;
}

static int64_t embedding_rows(const void *block)
{
    const struct shoali_embedding_args *args = block;
    return args->columns > 0 ? args->rows : 0;
}

static int64_t embedding_table(const void *block)
{
    const struct shoali_embedding_args *args = block;
    return looks_up(args) ? args->table_rows * args->columns : 0;
}

static int64_t embedding_positions(const void *block)
{
    const struct shoali_embedding_args *args = block;
    return shoali_extent(args->first_position + positions_used(args->rows, args->period),
                         args->columns, args->columns);
}

static int64_t embedding_flag(const void *block)
{
    return looks_up(block) ? 1 : 0;
}

#define OF_DTYPE SHOALI_OF(embedding, dtype)
const struct shoali_kernel shoali_kernel_embedding = {
    .type = {.name = "embedding",
             .args_bytes = sizeof(struct shoali_embedding_args),
             .pointers = {SHOALI_IN(embedding, ids, SHOALI_ALWAYS(SHOAL_I32),
                                    SHOALI_COUNT_BY(embedding_rows)),
                          SHOALI_IN(embedding, table, OF_DTYPE, SHOALI_COUNT_BY(embedding_table)),
                          SHOALI_OPTIONAL_IN(embedding, positions, OF_DTYPE,
                                             SHOALI_COUNT_BY(embedding_positions)),
                          SHOALI_OUT(embedding, out, OF_DTYPE,
                                     SHOALI_COUNT2(embedding, rows, columns)),
                          SHOALI_INOUT(embedding, bad_id, SHOALI_ALWAYS(SHOAL_I64),
                                       SHOALI_COUNT_BY(embedding_flag))}},
    .dtypes = {SHOALI_DTYPE(embedding, dtype, SHOALI_DTYPE_FLOAT)},
    .products = {{{SHOALI_SIZE(embedding, rows), SHOALI_SIZE(embedding, columns)}},
                 {{SHOALI_SIZE(embedding, table_rows), SHOALI_SIZE(embedding, columns)}}},
    .check = check_embedding,
};
#undef OF_DTYPE

shoal_status shoali_op_embedding(const struct shoali_exec *exec,
                                 const struct shoali_embedding_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_embedding, args);
}

/* ---- backward ---- */

/* A row's position is at most first_position + period - 1, or less when there are fewer rows. */
static shoal_status check_backward(const void *block)
{
    const struct shoali_embedding_backward_args *args = block;
    shoal_status status = SHOAL_OK;
    if (args->dpositions == NULL)
        goto done;
    SHOAL_TRY(status, check_period("embedding_backward", args->period, args->first_position), done);
    SHOAL_TRY(status,
              shoali_check_at_least("embedding_backward", "position_rows - first_position",
                                    args->position_rows - args->first_position,
                                    positions_used(args->rows, args->period)),
              done);
done:
    return status;
}

static int64_t backward_rows(const void *block)
{
    const struct shoali_embedding_backward_args *args = block;
    return args->columns > 0 ? args->rows : 0;
}

#define IDS SHOALI_ALWAYS(SHOAL_I32)
#define OF_DTYPE SHOALI_OF(embedding_backward, dtype)
#define OF_REAL SHOALI_REAL_OF(embedding_backward, dtype)
const struct shoali_kernel shoali_kernel_embedding_backward = {
    .type = {.name = "embedding_backward",
             .args_bytes = sizeof(struct shoali_embedding_backward_args),
             .pointers = {SHOALI_IN(embedding_backward, ids, IDS, SHOALI_COUNT_BY(backward_rows)),
                          SHOALI_IN(embedding_backward, dout, OF_DTYPE,
                                    SHOALI_COUNT2(embedding_backward, rows, columns)),
                          SHOALI_OPTIONAL_INOUT(
                              embedding_backward, dtable, OF_REAL,
                              SHOALI_COUNT2(embedding_backward, table_rows, columns)),
                          SHOALI_OPTIONAL_INOUT(
                              embedding_backward, dpositions, OF_REAL,
                              SHOALI_COUNT2(embedding_backward, position_rows, columns))}},
    .dtypes = {SHOALI_DTYPE(embedding_backward, dtype, SHOALI_DTYPE_FLOAT)},
    .products =
        {{{SHOALI_SIZE(embedding_backward, rows), SHOALI_SIZE(embedding_backward, columns)}},
         {{SHOALI_SIZE(embedding_backward, table_rows), SHOALI_SIZE(embedding_backward, columns)}},
         {{SHOALI_SIZE(embedding_backward, position_rows),
           SHOALI_SIZE(embedding_backward, columns)}}},
    .check = check_backward,
};

shoal_status shoali_op_embedding_backward(const struct shoali_exec *exec,
                                          const struct shoali_embedding_backward_args *args)
{
    return shoali_kernel_launch(exec, &shoali_kernel_embedding_backward, args);
}
