/* test_tensor - one tensor on a device, and an optimizer's steps on it, cut into pieces that come
 * in any order: what zero does with several ranks. For tests only. */
#ifndef SHOALI_OPTIMIZER_TEST_TENSOR_H
#define SHOALI_OPTIMIZER_TEST_TENSOR_H

#include "base/test_cmocka.h"
#include "ops/limbs.h"
#include "optimizer/test_default.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_MAX = 4096, PIECES_MAX = 9 };

static inline void tensor_ok(shoal_status status)
{
    if (status < 0)
        fail_msg("%s", shoal_error_message());
}

struct subject {
    struct shoali_pool *pool;
    struct shoali_device *device;
    struct shoali_ops ops;
    struct shoali_exec exec;
    struct shoali_arena arena;
    struct shoali_optimizer optimizer;
    shoal_shape shape;
    struct shoali_optimizer_tensor tensor;
    float *param, *grad, *element[SHOALI_OPTIMIZER_MAX_STATES]; /* device */
    float *control, *factor; /* factor: one list behind the other */
    uint64_t *sum[SHOALI_OPTIMIZER_MAX_SUMS];
    float state[SHOALI_OPTIMIZER_MAX_STATES][TENSOR_MAX]; /* those that are not per element */
    float concluded[SHOALI_OPTIMIZER_MAX_FACTORS * TENSOR_MAX];
};

static inline int64_t subject_count(const struct subject *subject, enum shoali_state_kind kind)
{
    const shoal_shape shape = shoali_state_shape(kind, &subject->shape);
    return shoal_shape_count(&shape);
}

/* The first element of a list of factors. */
static inline int64_t subject_factor(const struct subject *subject, int32_t index)
{
    int64_t at = 0;
    for (int32_t i = 0; i < index; i++)
        at += subject_count(subject, subject->optimizer.type->factor[i]);
    return at;
}

/* `optimizer` is set and configured. */
static inline void subject_open(struct subject *subject, shoal_shape shape, const float *param)
{
    const struct shoali_accelerator *accelerator;
    const size_t bytes = (size_t)shoal_shape_count(&shape) * sizeof(float);
    const size_t most = TENSOR_MAX * sizeof(float);
    assert_true(bytes <= most);
    tensor_ok(shoali_pool_create(2, &subject->pool));
    tensor_ok(shoali_accelerator_select(NULL, &accelerator));
    tensor_ok(shoali_device_create(accelerator, 0, subject->pool, &subject->device));
    tensor_ok(shoali_stream_create(subject->device, &subject->exec.stream));
    tensor_ok(shoali_ops_select(NULL, NULL, &subject->ops));
    subject->exec.ops = &subject->ops;
    subject->shape = shape;
    shoali_optimizer_tensor_init(&subject->tensor, &shape);
    subject->tensor.lr_multiplier = subject->tensor.weight_decay_multiplier = 1;
    struct shoali_device_stream *stream = subject->exec.stream;
    tensor_ok(shoali_device_alloc(subject->device, most, (void **)&subject->param));
    tensor_ok(shoali_device_alloc(subject->device, most, (void **)&subject->grad));
    tensor_ok(shoali_device_alloc(subject->device, 64, (void **)&subject->control));
    for (int i = 0; i < SHOALI_OPTIMIZER_MAX_STATES; i++)
        tensor_ok(shoali_device_alloc_zeroed(stream, most, (void **)&subject->element[i]));
    tensor_ok(
        shoali_device_alloc_zeroed(stream, sizeof subject->concluded, (void **)&subject->factor));
    for (int i = 0; i < SHOALI_OPTIMIZER_MAX_SUMS; i++)
        tensor_ok(shoali_device_alloc_zeroed(stream, 6 * most, (void **)&subject->sum[i]));
    tensor_ok(shoali_upload(stream, subject->param, param, bytes));
    memset(subject->state, 0, sizeof subject->state);
}

static inline void subject_close(struct subject *subject)
{
    shoali_device_free(subject->device, subject->param);
    shoali_device_free(subject->device, subject->grad);
    shoali_device_free(subject->device, subject->control);
    for (int i = 0; i < SHOALI_OPTIMIZER_MAX_STATES; i++)
        shoali_device_free(subject->device, subject->element[i]);
    shoali_device_free(subject->device, subject->factor);
    for (int i = 0; i < SHOALI_OPTIMIZER_MAX_SUMS; i++)
        shoali_device_free(subject->device, subject->sum[i]);
    shoali_stream_destroy(subject->exec.stream);
    shoali_device_destroy(subject->device);
    shoali_pool_destroy(subject->pool);
}

/* All pieces, the last one first. */
static inline void subject_pass(struct subject *subject, const struct shoali_optimizer_now *now,
                                int32_t measure, int32_t pieces)
{
    const struct shoali_optimizer *optimizer = &subject->optimizer;
    for (int32_t i = pieces - 1; i >= 0; i--) {
        const int64_t count = subject->tensor.count;
        const int64_t first = count * i / pieces, end = count * (i + 1) / pieces;
        struct shoali_optimizer_segment segment = {.param = subject->param + first,
                                                   .grad = subject->grad + first,
                                                   .count = end - first,
                                                   .lr_multiplier = 1,
                                                   .weight_decay_multiplier = 1,
                                                   .tensor = &subject->tensor,
                                                   .first = first};
        for (int32_t s = 0; s < shoali_optimizer_element_states(optimizer); s++)
            segment.state[s] = subject->element[s] + first;
        for (int k = 0; k < SHOALI_OPTIMIZER_MAX_SUMS; k++)
            segment.sum[k] = subject->sum[k];
        for (int32_t k = 0; k < optimizer->type->factor_count; k++)
            segment.factor[k] = subject->factor + subject_factor(subject, k);
        tensor_ok(measure >= 0 ? shoali_optimizer_measure(optimizer, measure, now, &segment)
                               : shoali_optimizer_step(optimizer, now, &segment));
    }
}

static inline void subject_conclude(struct subject *subject, const struct shoali_optimizer_now *now,
                                    int32_t measure)
{
    static uint64_t limbs[3 * TENSOR_MAX];
    static double number[SHOALI_OPTIMIZER_MAX_SUMS][TENSOR_MAX];
    const struct shoali_optimizer_type *type = subject->optimizer.type;
    struct shoali_optimizer_tensor tensor = subject->tensor;
    for (int32_t k = 0; k < type->measures[measure].sum_count; k++) {
        const int64_t count = subject_count(subject, type->measures[measure].sum[k]);
        tensor_ok(shoali_download(subject->exec.stream, limbs, subject->sum[k],
                                  (size_t)(3 * count) * sizeof *limbs));
        for (int64_t i = 0; i < count; i++)
            number[k][i] = limbs_sum_of_terms(limbs + 3 * i);
        tensor.sum[k] = number[k];
    }
    for (int s = 0; s < SHOALI_OPTIMIZER_MAX_STATES; s++)
        tensor.state[s] = subject->state[s];
    for (int32_t k = 0; k < type->factor_count; k++)
        tensor.factor[k] = subject->concluded + subject_factor(subject, k);
    type->measures[measure].conclude(&subject->optimizer, now, &tensor);
    tensor_ok(shoali_upload(subject->exec.stream, subject->factor, subject->concluded,
                            sizeof subject->concluded));
}

/* One update with this gradient, which is `multiplier` times too small. */
static inline void subject_step(struct subject *subject, double lr, int64_t t, const float *grad,
                                float multiplier, int32_t pieces)
{
    const float control[3] = {1, multiplier, 0};
    const struct shoali_optimizer_now now = {.exec = &subject->exec,
                                             .control = subject->control,
                                             .lr = lr,
                                             .t = t,
                                             .multiplier = multiplier};
    struct shoali_device_stream *stream = subject->exec.stream;
    tensor_ok(shoali_upload(stream, subject->control, control, sizeof control));
    tensor_ok(
        shoali_upload(stream, subject->grad, grad, (size_t)subject->tensor.count * sizeof(float)));
    for (int32_t m = 0; m < subject->optimizer.type->measure_count; m++) {
        for (int k = 0; k < SHOALI_OPTIMIZER_MAX_SUMS; k++)
            tensor_ok(shoali_fill(stream, subject->sum[k], 0, 6 * TENSOR_MAX * sizeof(float)));
        subject_pass(subject, &now, m, pieces);
        subject_conclude(subject, &now, m);
    }
    subject_pass(subject, &now, -1, pieces);
}

static inline void subject_read(struct subject *subject, float *param)
{
    tensor_ok(shoali_download(subject->exec.stream, param, subject->param,
                              (size_t)subject->tensor.count * sizeof(float)));
}

/* Numbers of about unit variance, the same for a stream's number. */
static inline void tensor_values(float *x, int64_t count, uint64_t number, double scale)
{
    const struct shoali_stream stream = shoali_stream_make(77, "test", "tensor", number);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(scale * (double)shoali_random_normal(&stream, (uint64_t)i));
}

#endif
