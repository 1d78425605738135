/* cuda_profile.c - SHOAL_CUDA_PROFILE=1: how long each kernel takes, printed when the device ends.
 *
 * The stream is idle before and behind each kernel, so a launch's own time, some microseconds, is
 * in it, and nothing overlaps: the sum is more than a step takes. */
#include "accelerator/cuda/cuda_device.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KERNELS = 64 };
struct times {
    const char *name;
    int64_t count, total_ns;
};
static struct {
    pthread_mutex_t lock;
    struct times kernel[MAX_KERNELS];
    int32_t count;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool shoali_cuda_profiles(void)
{
    const char *text = getenv("SHOAL_CUDA_PROFILE");
    return text != NULL && strcmp(text, "1") == 0;
}

void shoali_cuda_profile_add(const char *name, int64_t ns)
{
    int32_t i = 0;
    pthread_mutex_lock(&state.lock);
    while (i < state.count && strcmp(state.kernel[i].name, name) != 0)
        i++;
    if (i < MAX_KERNELS) {
        state.kernel[i].name = name;
        state.kernel[i].count++;
        state.kernel[i].total_ns += ns;
        state.count = i < state.count ? state.count : i + 1;
    }
    pthread_mutex_unlock(&state.lock);
}

static int by_total(const void *a, const void *b)
{
    const int64_t x = ((const struct times *)a)->total_ns, y = ((const struct times *)b)->total_ns;
    return (x < y) - (x > y);
}

void shoali_cuda_profile_print(void)
{
    int64_t all = 0;
    pthread_mutex_lock(&state.lock);
    qsort(state.kernel, (size_t)state.count, sizeof state.kernel[0], by_total);
    for (int32_t i = 0; i < state.count; i++)
        all += state.kernel[i].total_ns;
    for (int32_t i = 0; i < state.count; i++)
        SHOALI_INFO("cuda", "%-32s %6lld calls %10.3f ms %5.1f %%", state.kernel[i].name,
                    (long long)state.kernel[i].count, (double)state.kernel[i].total_ns * 1e-6,
                    100 * (double)state.kernel[i].total_ns / (double)(all > 0 ? all : 1));
    state.count = 0;
    memset(state.kernel, 0, sizeof state.kernel);
    pthread_mutex_unlock(&state.lock);
}
