/* samples.c - samples of a figure, results, memory to measure on. */
#include "benchmark/benchmark.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

double shoali_seconds(void)
{
    return (double)shoali_now_ns() * 1e-9;
}

void shoali_samples_add(struct shoali_samples *samples, double value)
{
    SHOAL_ASSERT(samples->count < SHOALI_SAMPLES_MAX);
    samples->value[samples->count++] = value;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double shoali_samples_median(const struct shoali_samples *samples)
{
    struct shoali_samples sorted = *samples;
    const int32_t middle = sorted.count / 2;
    if (sorted.count == 0)
        return 0;
    qsort(sorted.value, (size_t)sorted.count, sizeof sorted.value[0], compare);
    return sorted.count % 2 ? sorted.value[middle]
                            : 0.5 * (sorted.value[middle - 1] + sorted.value[middle]);
}

static double find_min(const struct shoali_samples *samples)
{
    double least = samples->count ? samples->value[0] : 0;
    for (int32_t i = 1; i < samples->count; i++)
        least = samples->value[i] < least ? samples->value[i] : least;
    return least;
}

static double find_max(const struct shoali_samples *samples)
{
    double most = samples->count ? samples->value[0] : 0;
    for (int32_t i = 1; i < samples->count; i++)
        most = samples->value[i] > most ? samples->value[i] : most;
    return most;
}

shoal_status shoali_bench_run_init(const shoali_bench_run *given, shoali_bench_run *run)
{
    *run = *given;
    if (run->repeats == 0)
        run->repeats = 5;
    if (run->seconds == 0)
        run->seconds = 0.5;
    if (run->repeats < 1 || run->repeats > SHOALI_SAMPLES_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench: --repeats is %d: give 1 to %d", (int)run->repeats,
                          (int)SHOALI_SAMPLES_MAX);
    if (!(run->seconds > 0) || run->seconds > 1e6)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "bench: --seconds is %g: give more than 0 and at most "
                          "1000000",
                          run->seconds);
    if (run->threads < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "bench: %d threads", (int)run->threads);
    return SHOAL_OK;
}

/* Times shrink towards their limit, speeds grow. */
static double ratio_of(const char *unit, double figure, double limit)
{
    const bool is_time = strcmp(unit, "us") == 0 || strcmp(unit, "ms") == 0;
    if (!(limit > 0) || !(figure > 0))
        return 0;
    return is_time ? limit / figure : figure / limit;
}

shoal_status shoali_bench_emit(const shoali_bench_run *run, shoali_bench_result *result,
                               const struct shoali_samples *figure,
                               const struct shoali_samples *limit)
{
    result->median = shoali_samples_median(figure);
    result->min = find_min(figure);
    result->max = find_max(figure);
    result->repeats = figure->count;
    if (limit) {
        result->limit = shoali_samples_median(limit);
        result->ratio = ratio_of(result->unit, result->median, result->limit);
    }
    return run->sink(run->user, result);
}

shoal_status shoali_bench_check_count(int64_t count)
{
    if (count >= 1 && count <= (int64_t)1 << 48)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "bench: a set of %lld numbers exceeds any memory: give a smaller size",
                      (long long)count);
}

shoal_status shoali_bench_numbers(int64_t count, shoal_dtype dtype, void **memory)
{
    const shoal_status status = shoali_bench_check_count(count);
    if (status < 0)
        return status;
    size_t bytes = ((size_t)count * shoal_dtype_bytes(dtype) + 127) / 64 * 64;
    const size_t align = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 64;
    uint32_t state = 1;
    bytes = (bytes + align - 1) / align * align;
    char *made = aligned_alloc(align, bytes);
    if (!made)
        return SHOAL_FAIL(SHOAL_ENOMEM, "bench: cannot allocate %lld numbers", (long long)count);
    if (align == HUGE_PAGE_BYTES)
        (void)madvise(made, bytes, MADV_HUGEPAGE);
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        const float value = (float)(int32_t)(state >> 8) / 16777216.0f - 0.5f;
        const uint16_t half =
            dtype == SHOAL_BF16 ? shoali_f32_to_bf16(value) : shoali_f32_to_f16(value);
        if (dtype == SHOAL_F32)
            memcpy(made + 4 * i, &value, 4);
        else
            memcpy(made + 2 * i, &half, 2);
    }
    *memory = made;
    return SHOAL_OK;
}
