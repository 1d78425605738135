/* embedding - gathers rows of a table; backward scatters them, threads splitting columns so that a
 * row's sum is in order. */
#include "ops/cpu/range.h"

/* The largest bad row wins, whichever thread saw it: what one thread alone would leave. */
static void report_bad(int64_t *bad_id, int64_t row)
{
    int64_t seen = __atomic_load_n(bad_id, __ATOMIC_RELAXED);
    while (seen < row && !__atomic_compare_exchange_n(bad_id, &seen, row, true, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED))
        continue;
}

static void embedding_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_embedding_args *args = block;
    const int64_t columns = args->columns;
    for (int64_t r = begin; r < end; r++) {
        const int64_t id = args->ids[r] - args->first_row;
        const bool good = id >= 0 && id < args->table_rows;
        const bool other = !good && args->ids[r] >= 0 && args->ids[r] < args->whole_rows;
        if (!good && !other)
            report_bad(args->bad_id, r + 1);
        const bool add = good && args->positions;
        const int64_t position = add ? r % args->period + args->first_position : 0;
        for (int64_t c = 0; c < columns; c += 16) {
            const int64_t lanes = SHOALI_MIN(16, columns - c);
            v16 v = good ? lanes_load(args->table, id * columns + c, lanes, args->dtype)
                         : v16_set1(other ? -0.0f : 0.0f);
            if (add)
                v = v16_add(
                    v, lanes_load(args->positions, position * columns + c, lanes, args->dtype));
            lanes_store(args->out, r * columns + c, lanes, v, args->dtype);
        }
    }
}

void SHOALI_CPU_SYMBOL(embedding)(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_embedding_args *embedding = args;
    range_run(context->threads, embedding_range, embedding, embedding->rows, 1,
              embedding->columns * 12);
}

static void zero_table_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_embedding_backward_args *args = block;
    memset(args->dtable + begin * args->columns, 0,
           (size_t)((end - begin) * args->columns) * sizeof(float));
}

static void zero_positions_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_embedding_backward_args *args = block;
    memset(args->dpositions + begin * args->columns, 0,
           (size_t)((end - begin) * args->columns) * sizeof(float));
}

#define WIDE 128 /* columns of a piece: each goes through all rows */

SHOALI_INLINE void add_row(float *sums, int64_t at, int64_t lanes, v16 d)
{
    lanes_store(sums, at, lanes, v16_add(lanes_load(sums, at, lanes, SHOAL_F32), d), SHOAL_F32);
}

static void embedding_backward_range(const void *block, int64_t begin, int64_t end)
{
    const struct shoali_embedding_backward_args *args = block;
    const int64_t columns = args->columns;
    for (int64_t r = 0; r < args->rows; r++) {
        const int64_t id = args->ids[r] - args->first_row;
        const int64_t position = args->dpositions ? r % args->period + args->first_position : 0;
        if (id < 0 || id >= args->table_rows)
            continue;
        for (int64_t c = begin; c < end; c += 16) {
            const int64_t lanes = SHOALI_MIN(16, end - c);
            const v16 d = lanes_load(args->dout, r * columns + c, lanes, args->dtype);
            if (args->dtable)
                add_row(args->dtable, id * columns + c, lanes, d);
            if (args->dpositions)
                add_row(args->dpositions, position * columns + c, lanes, d);
        }
    }
}

void SHOALI_CPU_SYMBOL(embedding_backward)(const void *args,
                                           const struct shoali_kernel_context *context)
{
    const struct shoali_embedding_backward_args *back = args;
    if (back->dtable && !back->accumulate_table)
        range_run(context->threads, zero_table_range, back, back->table_rows, 1, back->columns * 4);
    if (back->dpositions && !back->accumulate_positions)
        range_run(context->threads, zero_positions_range, back, back->position_rows, 1,
                  back->columns * 4);
    range_run_wide(context->threads, embedding_backward_range, back, back->columns, 16, WIDE,
                   back->rows * 12);
}
