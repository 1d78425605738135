/* Kernels of tokens: embeddings, rotary positions, dropout. */
#include "ops/cuda/kernels/random.h"

#define MATHX_BODY DEVICE
#include "base/mathx_trig.h"

DEVICE int64_t run_at(const struct cuda_dropout_args *args, int64_t i)
{
    uint64_t at = 0;
    if (args->run_dims < 2)
        return i;
    for (int32_t d = args->run_dims - 1; d >= 0; d--) {
        const int64_t before = i / args->run_count[d];
        at += (uint64_t)(i - before * args->run_count[d]) * (uint64_t)args->run_stride[d];
        i = before;
    }
    return (int64_t)(at & (uint64_t)INT64_MAX);
}

KERNEL(dropout, struct cuda_dropout_args, 256)
{
    for (int64_t i = FIRST; i < args->count; i += STEP) {
        const uint64_t index = (uint64_t)args->first_element + (uint64_t)run_at(args, i);
        float v = 0;
        if (dense_keeps(&args->random, index, args->threshold))
            v = load_as(args->x, i, args->dtype) * args->scale;
        if (args->residual != 0)
            v = load_as(args->residual, i, args->dtype) + v;
        put_as(args->y, i, v, args->accumulate, args->dtype);
    }
}

/* ---- rotary positions: one thread for a pair, or for an element that is copied ---- */

DEVICE void turn_pair(const struct cuda_rotary_args *args, int64_t head, int64_t i,
                      int64_t position)
{
    const int64_t first = head + (args->interleaved ? 2 * i : i);
    const int64_t second = first + (args->interleaved ? 1 : args->rotary_size / 2);
    const float angle = (float)position * args->inverse_frequency[i];
    const float c = (float)trig_body((double)angle, 1);
    const float s = (float)trig_body(args->inverse ? -(double)angle : (double)angle, 0);
    const float a = load_as(args->x, first, args->dtype), b = load_as(args->x, second, args->dtype);
    put_as(args->y, first, v1_fma(a, c, -(b * s)), args->accumulate, args->dtype);
    put_as(args->y, second, v1_fma(b, c, a * s), args->accumulate, args->dtype);
}

KERNEL(rotary, struct cuda_rotary_args, 256)
{
    const int64_t pairs = args->rotary_size / 2;
    for (int64_t row = BLOCK; row < args->rows; row += BLOCKS) {
        const int64_t begin = row * args->columns;
        const int64_t position = args->first_position + row % args->length;
        for (int64_t c = THREAD; c < args->columns; c += THREADS) {
            if (c < args->heads * args->head_size && c % args->head_size < args->rotary_size)
                continue;
            put_as(args->y, begin + c, load_as(args->x, begin + c, args->dtype), args->accumulate,
                   args->dtype);
        }
        for (int64_t p = THREAD; p < args->heads * pairs; p += THREADS)
            turn_pair(args, begin + p / pairs * args->head_size, p % pairs, position);
    }
}

/* ---- embeddings ---- */

KERNEL(embedding, struct cuda_embedding_args, 256)
{
    for (int64_t r = BLOCK; r < args->rows; r += BLOCKS) {
        const int64_t id = (int64_t)args->ids[r] - args->first_row;
        const int good = id >= 0 && id < args->table_rows;
        const int other = !good && args->ids[r] >= 0 && args->ids[r] < args->whole_rows;
        const int64_t position = r % args->period + args->first_position;
        if (!good && !other && THREAD == 0)
            atomic_max_i64(args->bad_id, r + 1);
        for (int64_t c = THREAD; c < args->columns; c += THREADS) {
            float v = good ? load_as(args->table, id * args->columns + c, args->dtype) : 0.0f;
            if (other)
                v = -0.0f;
            if (good && args->positions != 0)
                v += load_as(args->positions, position * args->columns + c, args->dtype);
            store_as(args->out, r * args->columns + c, v, args->dtype);
        }
    }
}

/* A block has TABLE_ROWS rows of the table, and looks through all ids for them: in chunks, whose
 * hits it lists in their order. A thread has the same columns of all of them. */
enum { TABLE_ROWS = CUDA_TABLE_ROWS, ID_CHUNK = 256, ID_WARPS = ID_CHUNK / WARP };
struct embedding_shared {
    int32_t hit[ID_CHUNK]; /* rows of the chunk */
    int32_t count[ID_WARPS];
};
SAME(sizeof(struct embedding_shared), CUDA_EMBEDDING_SHARED);

/* How many of the warps before this one, and of its own lanes before this one, have a hit. */
DEVICE int32_t list_hits(struct embedding_shared *s, int hit)
{
    const uint32_t lanes = lanes_where(hit);
    const int warp = THREAD / WARP, lane = THREAD % WARP;
    int32_t before = 0, all = 0, bits = 0;
    for (uint32_t rest = lanes & ((1u << lane) - 1u); rest != 0; rest &= rest - 1)
        before++;
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1)
        bits++;
    if (lane == 0)
        s->count[warp] = bits;
    block_barrier();
    for (int w = 0; w < ID_WARPS; w++) {
        if (w < warp)
            before += s->count[w];
        all += s->count[w];
    }
    if (hit)
        s->hit[before] = THREAD;
    block_barrier();
    return all;
}

KERNEL(embedding_backward_table, struct cuda_embedding_backward_args, 256)
{
    SHARED(struct embedding_shared, s);
    const int64_t first = args->first_row + BLOCK * TABLE_ROWS;
    for (int64_t begin = 0; begin < args->rows; begin += ID_CHUNK) {
        const int64_t r = begin + THREAD;
        const int64_t id = r < args->rows ? (int64_t)args->ids[r] : -1;
        const int hit =
            id >= first && id < first + TABLE_ROWS && id < args->first_row + args->table_rows;
        const int32_t hits = list_hits(s, hit);
        for (int32_t h = 0; h < hits; h++) {
            const int64_t row = begin + s->hit[h];
            float *to = args->dtable + (args->ids[row] - args->first_row) * args->columns;
            for (int64_t c = THREAD; c < args->columns; c += THREADS)
                to[c] += load_as(args->dout, row * args->columns + c, args->dtype);
        }
        block_barrier();
    }
}

/* A thread has one element of the table of positions. */
KERNEL(embedding_backward_positions, struct cuda_embedding_backward_args, 256)
{
    const int64_t positions = args->period < args->rows ? args->period : args->rows;
    for (int64_t i = FIRST; i < positions * args->columns; i += STEP) {
        const int64_t position = i / args->columns, c = i - position * args->columns;
        float *to = args->dpositions + (position + args->first_position) * args->columns + c;
        float sum = *to;
        for (int64_t r = position; r < args->rows; r += args->period) {
            const int64_t id = (int64_t)args->ids[r] - args->first_row;
            if (id >= 0 && id < args->table_rows)
                sum += load_as(args->dout, r * args->columns + c, args->dtype);
        }
        *to = sum;
    }
}
