/* test_rig - a device, kernels, a slot and a tape for the tests of this folder; parameters made by
 * hand.
 *
 * The device is what SHOAL_ACCELERATOR names, so the same tests run on `sim`. Host code never
 * touches device addresses.
 */
#ifndef SHOALI_AUTOGRAD_TEST_RIG_H
#define SHOALI_AUTOGRAD_TEST_RIG_H

#include "autograd/tape/tape.h"
#include "base/test_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RIG_MAX_BUFFERS 256

struct rig {
    struct shoali_pool *pool;
    struct shoali_device *device;
    struct shoali_device_stream *stream;
    struct shoali_ops ops;
    struct shoali_exec exec;
    void *buffer[RIG_MAX_BUFFERS];
    int32_t buffer_count;
};

/* Fails the test with the error's sentence. */
static inline void rig_ok(shoal_status status)
{
    if (status < 0)
        fail_msg("%s: %s\n%s", shoal_status_name(status), shoal_error_message(),
                 shoal_error_trace());
}

static inline void rig_open(struct rig *rig, const char *ops)
{
    const struct shoali_accelerator *accelerator;
    memset(rig, 0, sizeof *rig);
    rig_ok(shoali_accelerator_select(NULL, &accelerator));
    rig_ok(shoali_pool_create(1, &rig->pool));
    rig_ok(shoali_device_create(accelerator, 0, rig->pool, &rig->device));
    rig_ok(shoali_stream_create(rig->device, &rig->stream));
    rig_ok(shoali_ops_select(ops, NULL, &rig->ops));
    rig->exec = (struct shoali_exec){.ops = &rig->ops, .stream = rig->stream};
}

static inline void rig_close(struct rig *rig)
{
    for (int32_t i = 0; i < rig->buffer_count; i++)
        shoali_device_free(rig->device, rig->buffer[i]);
    shoali_stream_destroy(rig->stream);
    shoali_device_destroy(rig->device);
    shoali_pool_destroy(rig->pool);
}

/* Zeroed device memory that lives until the rig is closed. */
static inline void *rig_alloc(struct rig *rig, size_t bytes)
{
    void *memory;
    assert_true(rig->buffer_count < RIG_MAX_BUFFERS);
    rig_ok(shoali_device_alloc(rig->device, bytes, &memory));
    rig_ok(shoali_fill(rig->stream, memory, 0, bytes));
    rig->buffer[rig->buffer_count++] = memory;
    return memory;
}

static inline void rig_free(struct rig *rig, void *memory)
{
    for (int32_t i = 0; i < rig->buffer_count; i++)
        if (rig->buffer[i] == memory) {
            rig->buffer[i] = rig->buffer[--rig->buffer_count];
            shoali_device_free(rig->device, memory);
            return;
        }
    fail_msg("not a buffer of the rig");
}

static inline void rig_write(struct rig *rig, void *to, const void *from, size_t bytes)
{
    rig_ok(shoali_upload(rig->stream, to, from, bytes));
}

static inline void rig_read(struct rig *rig, void *to, const void *from, size_t bytes)
{
    rig_ok(shoali_download(rig->stream, to, from, bytes));
}

/* Doubles as elements of a dtype, and back. */
static inline void rig_encode(shoal_dtype dtype, const double *from, void *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (dtype == SHOAL_F64)
            ((double *)to)[i] = from[i];
        else if (dtype == SHOAL_F32)
            ((float *)to)[i] = (float)from[i];
        else if (dtype == SHOAL_BF16)
            ((uint16_t *)to)[i] = shoali_f32_to_bf16((float)from[i]);
        else
            ((uint16_t *)to)[i] = shoali_f32_to_f16((float)from[i]);
    }
}

static inline void rig_decode(shoal_dtype dtype, const void *from, double *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (dtype == SHOAL_F64)
            to[i] = ((const double *)from)[i];
        else if (dtype == SHOAL_F32)
            to[i] = (double)((const float *)from)[i];
        else if (dtype == SHOAL_BF16)
            to[i] = (double)shoali_bf16_to_f32(((const uint16_t *)from)[i]);
        else
            to[i] = (double)shoali_f16_to_f32(((const uint16_t *)from)[i]);
    }
}

static inline void rig_write_values(struct rig *rig, shoal_dtype dtype, void *to,
                                    const double *values, int64_t count)
{
    void *raw = malloc((size_t)count * 8 + 8);
    rig_encode(dtype, values, raw, count);
    rig_write(rig, to, raw, (size_t)count * shoal_dtype_bytes(dtype));
    free(raw);
}

static inline void rig_read_values(struct rig *rig, shoal_dtype dtype, const void *from,
                                   double *values, int64_t count)
{
    void *raw = malloc((size_t)count * 8 + 8);
    rig_read(rig, raw, from, (size_t)count * shoal_dtype_bytes(dtype));
    rig_decode(dtype, raw, values, count);
    free(raw);
}

/* A parameter with memory and a sink that overwrites. */
static inline void rig_param(struct rig *rig, struct shoal_param *param, const char *name,
                             shoal_dtype dtype, shoal_shape shape)
{
    memset(param, 0, sizeof *param);
    param->name = name;
    param->shape = shape;
    param->count = shoal_shape_count(&shape);
    param->dtype = dtype;
    param->uses = 1;
    param->lr_mult = 1;
    param->data = rig_alloc(rig, (size_t)param->count * shoal_dtype_bytes(dtype));
    param->sink.dtype = dtype == SHOAL_F64 ? SHOAL_F64 : SHOAL_F32;
    param->sink.destination =
        rig_alloc(rig, (size_t)param->count * shoal_dtype_bytes(param->sink.dtype));
}

/* The seed of this run, printed: SHOAL_TEST_SEED repeats one. */
static inline uint64_t rig_seed(const char *test)
{
    const char *given = getenv("SHOAL_TEST_SEED");
    const uint64_t seed =
        given != NULL ? strtoull(given, NULL, 10) : (uint64_t)shoali_now_ns() & 0xFFFFFF;
    print_message("%s: SHOAL_TEST_SEED=%llu\n", test, (unsigned long long)seed);
    return seed;
}

/* Uniform in [low, high), at least 0.05 away from 0. */
static inline void rig_random(uint64_t seed, const char *what, double low, double high,
                              double *values, int64_t count)
{
    const struct shoali_stream stream = shoali_stream_make(seed, "test", what, 0);
    for (int64_t i = 0; i < count; i++) {
        const double u = (double)shoali_random_uniform(&stream, (uint64_t)i);
        values[i] = low + (high - low) * u;
        if (values[i] < 0.05 && values[i] > -0.05)
            values[i] += values[i] < 0 ? -0.1 : 0.1;
    }
}

static inline struct shoal_tape *rig_tape(const struct rig *rig, struct shoali_slot *slot,
                                          shoal_dtype dtype, const struct shoali_module *module,
                                          const struct shoali_observer *observers,
                                          int32_t observer_count)
{
    struct shoal_tape *tape;
    const struct shoali_tape_args args = {
        .exec = rig != NULL ? rig->exec : (struct shoali_exec){0},
        .module = module,
        .slot = slot,
        .dtype = dtype,
        .seed = 1234,
        .observers = observers,
        .observer_count = observer_count,
    };
    rig_ok(shoali_tape_create(&args, &tape));
    return tape;
}

#endif
