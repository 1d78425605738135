/* comm_data.c - one call of a collective, and whether its data are right. */
#include "benchmark/comm.h"

#include <string.h>

void shoali_bench_message_init(const struct shoali_bench_rank *self, int64_t bytes,
                               struct shoali_bench_message *message)
{
    const int64_t element = (int64_t)shoal_dtype_bytes(self->args->dtype);
    const bool whole =
        self->op->kind == SHOALI_BENCH_ALL_REDUCE || self->op->kind == SHOALI_BENCH_BROADCAST;
    const int64_t blocks = whole ? 1 : self->ranks;
    message->count = bytes / element / blocks;
    if (message->count < 1)
        message->count = 1;
    message->bytes = message->count * element * blocks;
}

/* All-gather's own block lies where it belongs. */
static void *own_block(const struct shoali_bench_rank *self,
                       const struct shoali_bench_message *message)
{
    const size_t bytes = (size_t)message->count * shoal_dtype_bytes(self->args->dtype);
    return (char *)self->out + (size_t)self->rank * bytes;
}

shoal_status shoali_bench_collect(const struct shoali_bench_rank *self,
                                  const struct shoali_bench_message *message)
{
    const shoal_dtype dtype = self->args->dtype;
    const int64_t count = message->count;
    switch (self->op->kind) {
    case SHOALI_BENCH_ALL_REDUCE:
        return shoal_all_reduce(self->group, self->in, self->in, count, dtype, SHOAL_SUM, NULL);
    case SHOALI_BENCH_REDUCE_SCATTER:
        return shoal_reduce_scatter(self->group, self->in, self->out, count, dtype, SHOAL_SUM,
                                    NULL);
    case SHOALI_BENCH_ALL_GATHER:
        return shoal_all_gather(self->group, own_block(self, message), self->out, count, dtype,
                                NULL);
    case SHOALI_BENCH_BROADCAST:
        return shoal_broadcast(self->group, self->in, count, dtype, 0, NULL);
    default:
        return shoal_all_to_all(self->group, self->in, self->out, count, dtype, NULL);
    }
}

/* 0 or 1, so that sums of up to 256 ranks are exact in every type. */
static float element_of(int32_t rank, int64_t index)
{
    const uint64_t mixed =
        ((uint64_t)index * 0x9E3779B97F4A7C15u) ^ ((uint64_t)rank * 0xC2B2AE3D27D4EB4Fu);
    return (float)(mixed >> 37 & 1);
}

static void store(void *array, shoal_dtype dtype, int64_t index, float value)
{
    if (dtype == SHOAL_F32) {
        ((float *)array)[index] = value;
        return;
    }
    ((uint16_t *)array)[index] =
        dtype == SHOAL_BF16 ? shoali_f32_to_bf16(value) : shoali_f32_to_f16(value);
}

static float load(const void *array, shoal_dtype dtype, int64_t index)
{
    if (dtype == SHOAL_F32)
        return ((const float *)array)[index];
    const uint16_t half = ((const uint16_t *)array)[index];
    return dtype == SHOAL_BF16 ? shoali_bf16_to_f32(half) : shoali_f16_to_f32(half);
}

/* The index-th element of this rank's result. */
static float expected(const struct shoali_bench_rank *self, int64_t count, int64_t index)
{
    float sum = 0;
    switch (self->op->kind) {
    case SHOALI_BENCH_ALL_REDUCE:
        for (int32_t rank = 0; rank < self->ranks; rank++)
            sum += element_of(rank, index);
        return sum;
    case SHOALI_BENCH_REDUCE_SCATTER:
        for (int32_t rank = 0; rank < self->ranks; rank++)
            sum += element_of(rank, self->rank * count + index);
        return sum;
    case SHOALI_BENCH_ALL_GATHER:
        return element_of((int32_t)(index / count), index % count);
    case SHOALI_BENCH_BROADCAST:
        return element_of(0, index);
    default:
        return element_of((int32_t)(index / count), self->rank * count + index % count);
    }
}

static shoal_status compare(const struct shoali_bench_rank *self,
                            const struct shoali_bench_message *message)
{
    const shoal_dtype dtype = self->args->dtype;
    const enum shoali_bench_collective kind = self->op->kind;
    const bool in_place = kind == SHOALI_BENCH_ALL_REDUCE || kind == SHOALI_BENCH_BROADCAST;
    const void *result = in_place ? self->in : self->out;
    const int64_t elements = kind == SHOALI_BENCH_REDUCE_SCATTER
                                 ? message->count
                                 : message->bytes / (int64_t)shoal_dtype_bytes(dtype);
    for (int64_t i = 0; i < elements; i++) {
        const float found = load(result, dtype, i), wanted = expected(self, message->count, i);
        if (found != wanted)
            return SHOAL_FAIL(SHOAL_ECORRUPT,
                              "bench comm: %s of %lld bytes, rank %d, element %lld: found %g, "
                              "expected %g",
                              self->op->name, (long long)message->bytes, (int)self->rank,
                              (long long)i, (double)found, (double)wanted);
    }
    return SHOAL_OK;
}

shoal_status shoali_bench_check(const struct shoali_bench_rank *self,
                                const struct shoali_bench_message *message)
{
    const shoal_dtype dtype = self->args->dtype;
    const int64_t elements = message->bytes / (int64_t)shoal_dtype_bytes(dtype);
    shoal_status status;
    memset(self->out, 0, (size_t)message->bytes);
    for (int64_t i = 0; i < elements; i++)
        store(self->in, dtype, i, element_of(self->rank, i));
    if (self->op->kind == SHOALI_BENCH_ALL_GATHER)
        for (int64_t i = 0; i < message->count; i++)
            store(own_block(self, message), dtype, i, element_of(self->rank, i));
    SHOAL_TRY(status, shoal_barrier(self->group), done);
    if (self->ranks <= 256) {
        SHOAL_TRY(status, shoali_bench_collect(self, message), done);
        SHOAL_TRY(status, compare(self, message), done);
        SHOAL_TRY(status, shoal_barrier(self->group), done);
    }
    memset(self->in, 0, (size_t)message->bytes);
    memset(self->out, 0, (size_t)message->bytes);
done:
    return status;
}
