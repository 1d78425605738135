/* No memory is taken after the first step: the linker sends every call of the library's code to
 * these counters (CMakeLists.txt). */
#include "engine/test_gpt.h"

#include <stdatomic.h>

static struct gpt_seat seats[GPT_RANKS_MAX];
static _Atomic int64_t taken; /* calls, of all ranks */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
int __real_posix_memalign(void **memory, size_t align, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t align, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset);

void *__wrap_malloc(size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return __real_calloc(count, bytes);
}
void *__wrap_realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return __real_realloc(memory, bytes);
}
void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return __real_aligned_alloc(align, bytes);
}
int __wrap_posix_memalign(void **memory, size_t align, size_t bytes)
{
    atomic_fetch_add(&taken, 1);
    return __real_posix_memalign(memory, align, bytes);
}
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset)
{
    atomic_fetch_add(&taken, 1);
    return __real_mmap(at, bytes, access, flags, file, offset);
}

static bool step_and_count(struct gpt_seat *seat)
{
    int64_t counted = 0;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(atomic_load(&taken) > 0); /* the counters are linked in */
    for (int32_t step = 0; step < 6; step++) {
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
        if (seat->group)
            EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
        if (step == 0)
            counted = atomic_load(&taken);
        if (seat->group) /* no rank goes on before all have read it */
            EXPECT(shoal_barrier(seat->group) == SHOAL_OK);
        if (atomic_load(&taken) != counted)
            fprintf(stderr, "step %d: %lld calls more\n", (int)step,
                    (long long)(atomic_load(&taken) - counted));
        EXPECT(atomic_load(&taken) == counted);
    }
    return true;
}

static void test_steps_take_no_memory(void **state)
{
    static const char *const options[] = {
        NULL,
        "\"bf16\":{\"enabled\":true},\"packed_weights\":false",
        "\"fp16\":{\"enabled\":true},\"gradient_clipping\":1.0",
        "\"reduction\":\"exact\"",
        "\"zero_optimization\":{\"stage\":1}",
        "\"zero_optimization\":{\"stage\":2}",
        "\"zero_optimization\":{\"stage\":3}",
        "\"zero_optimization\":{\"stage\":2,\"overlap_comm\":false}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        for (int32_t ranks = 1; ranks <= 3; ranks++)
            gpt_run_ranks((struct gpt_run){.options = options[i],
                                           .ranks = ranks,
                                           .threads = ranks == 1 ? 2 : 1,
                                           .recompute = i % 3 == 1 ? "full" : NULL,
                                           .dropout = 0.1,
                                           .accelerator = "cpu", /* sim's queues are its own */
                                           .run = step_and_count},
                          seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_take_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
