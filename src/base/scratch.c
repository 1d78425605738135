/* The pthread key exists for its destructor alone; the thread-local pair is what calls read. */
#include "base/scratch.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define MOST_BYTES ((size_t)1 << 39) /* beyond any machine's memory; sanitizers end at twice that */

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;
static _Thread_local void *thread_memory;
static _Thread_local size_t thread_bytes, most_asked;

static void make_key(void)
{
    key_made = pthread_key_create(&key, free) == 0;
}

static size_t align_of(size_t bytes)
{
    return bytes >= HUGE_PAGE ? HUGE_PAGE : 4096;
}

size_t shoali_scratch_rounded(size_t bytes)
{
    const size_t align = align_of(bytes);
    return (bytes + align - 1) / align * align;
}

void *shoali_scratch(size_t bytes)
{
    most_asked = bytes > most_asked ? bytes : most_asked;
    if (bytes <= thread_bytes)
        return thread_memory;
    if (bytes > MOST_BYTES)
        return NULL;
    pthread_once(&key_once, make_key);
    if (!key_made)
        return NULL;
    const size_t align = align_of(bytes), rounded = shoali_scratch_rounded(bytes);
    void *memory = aligned_alloc(align, rounded);
    if (!memory)
        return NULL;
    if (align == HUGE_PAGE) /* advice only: a refusal costs speed, nothing else */
        (void)madvise(memory, rounded, MADV_HUGEPAGE);
    if (pthread_setspecific(key, memory) != 0) {
        free(memory);
        return NULL;
    }
    free(thread_memory);
    thread_memory = memory;
    thread_bytes = rounded;
    return memory;
}

size_t shoali_scratch_asked(void)
{
    return most_asked;
}

void shoali_scratch_forget_asked(void)
{
    most_asked = 0;
}
