/* driver.c - stands in for the functions of NVIDIA's driver that Shoal calls.
 *
 * One lock guards everything. Work runs with the lock held, on the thread that waits or asks. An
 * event is a pair (stream, number of the last work before it): complete when the stream has
 * completed that number.
 */
#include "accelerator/cuda/driver.h"
#include "emulator.h"
#include "emulator_checks.h"
#include "emulator_queue.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define API __attribute__((visibility("default")))
/* The declarations that the product calls by. */
#define DECLARE(member, symbol, parameters) API unsigned symbol parameters;
SHOALI_CUDA_FUNCTIONS(DECLARE)
#undef DECLARE

#define CACHE_BYTES (1 << 16)          /* little, so that a few arrays are more */
#define RANGE_BYTES ((size_t)16 << 30) /* of addresses */
#define ALIGN_BYTES ((size_t)256)
#define MAX_BLOCKS 65536
#define QUEUE_BOUND 1024
#define POISON_BYTES ((size_t)1 << 19)
#define MOST_SHARED (163 * 1024) /* bytes of a block with capability 8.0 */

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = SHOALI_CUDA_OUT_OF_MEMORY,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = SHOALI_CUDA_NOT_READY
};
static const struct {
    unsigned code;
    const char *name, *text;
    bool sticky; /* the context is dead from then on */
} codes[] = {
    {0, "CUDA_SUCCESS", "no error", false},
    {1, "CUDA_ERROR_INVALID_VALUE", "an argument is wrong", false},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "there is no memory left", false},
    {34, "CUDA_ERROR_STUB_LIBRARY", "the library is a stub", false},
    {100, "CUDA_ERROR_NO_DEVICE", "there is no device", false},
    {101, "CUDA_ERROR_INVALID_DEVICE", "there is no such device", false},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "the thread has no context", false},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the image has nothing for this device", false},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "memory is damaged", true},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the image is newer than the driver", false},
    {400, "CUDA_ERROR_INVALID_HANDLE", "a handle is wrong", false},
    {500, "CUDA_ERROR_NOT_FOUND", "there is no such name", false},
    {600, "CUDA_ERROR_NOT_READY", "the work is not over", false},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel used a wrong address", true},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "a launch asks for too much", false},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran too long", true},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel has a wrong instruction", true},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel used a misaligned address", true},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed", true},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "this system cannot do that", false},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "two drivers are installed", false},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "the driver is too old", false},
};
enum { CODES = sizeof codes / sizeof codes[0] };

enum kind { COPY, FILL, LAUNCH, CALL, WAIT_EVENT, WAIT_VALUE, CLOCK };
/* When a stream came to a timed event: of the event, and of the work that reads the clock. */
struct clock {
    int users;
    double ms;
};
struct item {
    struct item *next;
    enum kind kind;
    void *to;
    const void *from;
    size_t bytes;
    int byte;
    uint64_t wait_stream, wait_number;
    const volatile uint32_t *word;
    uint32_t value;
    struct emulator_launch launch;
    void (*run)(const void *argument); /* CALL */
    struct clock *clock;
    _Alignas(16) unsigned char args[];
};
struct CUstream_st {
    struct CUstream_st *next;
    uint64_t id, queued, completed;
    struct item *head, *tail;
};
struct CUevent_st {
    uint64_t stream, number; /* 0: never recorded */
    bool timed;
    struct clock *clock; /* of a timed event that was recorded */
};
struct CUctx_st {
    int retained;
};
struct CUkern_st {
    const struct emulator_kernel *kernel;
    unsigned shared_bytes; /* of a block, at most */
    bool loaded;
};
struct block {
    size_t at, bytes; /* at: of the range, or 0 */
    char *pinned;     /* NULL: of the device */
};

static struct {
    pthread_mutex_t lock;
    struct CUctx_st context;
    struct CUstream_st *streams;
    uint64_t last_stream;
    char *range;
    struct block block[MAX_BLOCKS];
    int blocks;
    size_t used, capacity, touched;
    uint64_t generation; /* blocks that were freed */
    unsigned dead;       /* the sticky error */
    uint64_t random;
    bool initialised;
    char fail[128]; /* the setting that `fail_skip` belongs to */
    int fail_skip;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local struct CUctx_st *current;

/* ---- errors ---- */

static bool is_sticky(unsigned code)
{
    for (int i = 0; i < CODES; i++)
        if (codes[i].code == code)
            return codes[i].sticky;
    return false;
}

/* What SHOAL_EMULATOR_FAIL says of this call. */
static unsigned injected(const char *function)
{
    const char *text = getenv("SHOAL_EMULATOR_FAIL");
    if (text == NULL || text[0] == '\0')
        return OK;
    if (strcmp(text, state.fail) != 0) {
        snprintf(state.fail, sizeof state.fail, "%s", text);
        const char *skip = strchr(text, ':');
        state.fail_skip = skip != NULL ? atoi(skip + 1) : 0;
    }
    const size_t length = strcspn(text, ":=");
    const char *code = strchr(text, '=');
    if (code == NULL || strlen(function) != length || strncmp(text, function, length) != 0 ||
        state.fail_skip-- != 0)
        return OK;
    const unsigned wanted = (unsigned)atoi(code + 1);
    if (is_sticky(wanted))
        state.dead = wanted;
    return wanted;
}

unsigned emulator_fail(const char *function)
{
    pthread_mutex_lock(&state.lock);
    const unsigned code = injected(function);
    pthread_mutex_unlock(&state.lock);
    return code;
}

/* What SHOAL_EMULATOR_SLOW says of this call. */
static void be_slow(const char *function)
{
    const char *slow = getenv("SHOAL_EMULATOR_SLOW");
    if (slow != NULL && strcmp(slow, function) == 0)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Begins a function, with the lock held until its end. */
#define BEGIN(needs_context)            \
    be_slow(__func__);                  \
    pthread_mutex_lock(&state.lock);    \
    unsigned code = injected(__func__); \
    if (code == OK && (needs_context))  \
    code = current == NULL ? INVALID_CONTEXT : state.dead
#define END                            \
    pthread_mutex_unlock(&state.lock); \
    return code

/* With the lock held: lets others run. */
static void nap(void)
{
    pthread_mutex_unlock(&state.lock);
    sched_yield();
    nanosleep(&(struct timespec){0, 20000}, NULL);
    pthread_mutex_lock(&state.lock);
}

/* ---- running work ---- */

static struct CUstream_st *find_stream(uint64_t id)
{
    struct CUstream_st *stream = state.streams;
    while (stream != NULL && stream->id != id)
        stream = stream->next;
    return stream;
}
static bool is_over(uint64_t id, uint64_t number)
{
    const struct CUstream_st *stream = find_stream(id);
    return stream == NULL || stream->completed >= number;
}
/* ThreadSanitizer does not watch this library. Where it watches the program, it is told of the
 * wait, which orders what the host's thread wrote before the word. */
void __tsan_acquire(void *address) __attribute__((weak));

static bool is_ready(const struct item *item)
{
    if (item->kind == WAIT_EVENT)
        return is_over(item->wait_stream, item->wait_number);
    if (item->kind != WAIT_VALUE)
        return true;
    if ((int32_t)(__atomic_load_n(item->word, __ATOMIC_ACQUIRE) - item->value) < 0)
        return false;
    if (__tsan_acquire != NULL)
        __tsan_acquire((void *)(uintptr_t)item->word);
    return true;
}

static void open_memory(int protection)
{
    if (state.touched > 0 && mprotect(state.range, state.touched, protection) != 0)
        abort();
}

static void drop_clock(struct clock *clock)
{
    if (clock != NULL && --clock->users == 0)
        free(clock);
}

static void run_item(struct item *item)
{
    struct timespec now;
    if (item->kind == CLOCK) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        item->clock->ms = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
        return;
    }
    open_memory(PROT_READ | PROT_WRITE);
    if (item->kind == COPY)
        memcpy(item->to, item->from, item->bytes);
    else if (item->kind == FILL)
        memset(item->to, item->byte, item->bytes);
    else if (item->kind == LAUNCH)
        emulator_run(&item->launch);
    else if (item->kind == CALL)
        item->run(item->args);
    open_memory(PROT_NONE);
}

/* Runs the head, if it is ready. After a sticky error nothing runs. */
static bool step(struct CUstream_st *stream)
{
    struct item *item = stream->head;
    if (item == NULL || !is_ready(item))
        return false;
    if (state.dead == OK)
        run_item(item);
    stream->head = item->next;
    if (stream->head == NULL)
        stream->tail = NULL;
    stream->completed++;
    drop_clock(item->clock);
    free(item);
    return true;
}

/* As little as needed; false: a wait for the host holds it up. */
static bool run_to(struct CUstream_st *stream, uint64_t number)
{
    while (stream != NULL && stream->completed < number) {
        const struct item *item = stream->head;
        if (item->kind == WAIT_EVENT && !is_ready(item) &&
            !run_to(find_stream(item->wait_stream), item->wait_number))
            return false;
        if (!step(stream))
            return false;
    }
    return true;
}

static bool at_random(void)
{
    const char *mode = getenv("SHOAL_EMULATOR_STREAMS");
    return mode != NULL && strcmp(mode, "random") == 0;
}
static uint64_t draw(uint64_t below)
{
    state.random = state.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state.random >> 33) % below;
}
static void run_some(void)
{
    for (uint64_t steps = draw(4); steps > 0; steps--)
        for (struct CUstream_st *s = state.streams; s != NULL; s = s->next)
            if (draw(2) == 0)
                (void)step(s);
}

static void wait_for(uint64_t stream, uint64_t number)
{
    while (!is_over(stream, number))
        if (!run_to(find_stream(stream), number))
            nap();
}
/* All streams, from the first one again after each wait: the list may have changed. */
static void drain(void)
{
    struct CUstream_st *stream = state.streams;
    while (stream != NULL) {
        if (stream->head == NULL) {
            stream = stream->next;
            continue;
        }
        wait_for(stream->id, stream->queued);
        stream = state.streams;
    }
}

static unsigned enqueue(struct CUstream_st *stream, struct item *item)
{
    if (stream == NULL || find_stream(stream->id) != stream) {
        free(item);
        return INVALID_HANDLE;
    }
    while (stream->queued - stream->completed >= QUEUE_BOUND)
        if (!step(stream) && !run_to(stream, stream->completed + 1))
            nap();
    if (stream->tail != NULL)
        stream->tail->next = item;
    else
        stream->head = item;
    stream->tail = item;
    stream->queued++;
    if (at_random())
        run_some();
    return OK;
}

static struct item *new_item(enum kind kind, size_t args_bytes)
{
    struct item *item = calloc(1, sizeof *item + args_bytes);
    if (item == NULL)
        abort();
    item->kind = kind;
    return item;
}

/* ---- the driver, devices, contexts ---- */

/* SHOALI_CUDA_EMULATOR_MARK */
API extern const int emulator_of_shoal;
const int emulator_of_shoal = 1;

API unsigned cuInit(unsigned flags)
{
    BEGIN(false);
    (void)flags;
    state.initialised = code == OK;
    END;
}
API unsigned cuDriverGetVersion(int *version)
{
    BEGIN(false);
    *version = 12000;
    END;
}
static unsigned describe(unsigned code, const char **text, bool name)
{
    for (int i = 0; i < CODES; i++)
        if (codes[i].code == code) {
            *text = name ? codes[i].name : codes[i].text;
            return OK;
        }
    *text = NULL;
    return INVALID_VALUE;
}
API unsigned cuGetErrorName(unsigned code, const char **name)
{
    return describe(code, name, true);
}
API unsigned cuGetErrorString(unsigned code, const char **text)
{
    return describe(code, text, false);
}
static int device_count(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible != NULL && (visible[0] == '\0' || visible[0] == '-') ? 0 : 1;
}
API unsigned cuDeviceGetCount(int *count)
{
    BEGIN(false);
    *count = device_count();
    END;
}
API unsigned cuDeviceGet(int *device, int index)
{
    BEGIN(false);
    *device = index;
    if (code == OK && (index < 0 || index >= device_count()))
        code = INVALID_DEVICE;
    END;
}
API unsigned cuDeviceGetName(char *name, int bytes, int device)
{
    BEGIN(false);
    (void)device;
    snprintf(name, (size_t)bytes, "emulator");
    END;
}
static int capability(void)
{
    const char *text = getenv("SHOAL_EMULATOR_CAPABILITY");
    return text != NULL && text[0] != '\0' ? atoi(text) : 90;
}
API unsigned cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    BEGIN(false);
    (void)device;
    if (attribute == SHOALI_CUDA_MULTIPROCESSORS)
        *value = 2;
    else if (attribute == SHOALI_CUDA_L2_BYTES)
        *value = CACHE_BYTES;
    else if (attribute == SHOALI_CUDA_CAPABILITY_MAJOR)
        *value = capability() / 10;
    else if (attribute == SHOALI_CUDA_CAPABILITY_MINOR)
        *value = capability() % 10;
    else if (code == OK)
        code = INVALID_VALUE;
    END;
}
static size_t capacity(void)
{
    const char *text = getenv("SHOAL_EMULATOR_BYTES");
    return text != NULL && text[0] != '\0' ? (size_t)atoll(text) : (size_t)4 << 30;
}
API unsigned cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    BEGIN(false);
    (void)device;
    *bytes = capacity();
    END;
}
API unsigned cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device)
{
    BEGIN(false);
    (void)device;
    if (code == OK && state.range == NULL) {
        void *range =
            mmap(NULL, RANGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        state.range = range == MAP_FAILED ? NULL : range;
        state.capacity = capacity();
        code = state.range == NULL ? OUT_OF_MEMORY : OK;
    }
    state.context.retained += code == OK;
    *context = &state.context;
    END;
}
API unsigned cuDevicePrimaryCtxRelease_v2(int device)
{
    BEGIN(false);
    (void)device;
    state.context.retained -= code == OK;
    if (state.context.retained == 0 && emulator_check_end)
        emulator_check_end();
    END;
}
API unsigned cuCtxSetCurrent(struct CUctx_st *context)
{
    BEGIN(false);
    if (code == OK)
        current = context;
    END;
}
API unsigned cuCtxSynchronize(void)
{
    BEGIN(true);
    if (code == OK)
        drain();
    END;
}

/* ---- memory ---- */

API unsigned cuMemGetInfo_v2(size_t *available, size_t *total)
{
    BEGIN(true);
    *total = state.capacity;
    *available = state.capacity - state.used;
    END;
}

/* The first gap of the range; blocks of the device come first in the list, by address. */
static int find_gap(size_t bytes, size_t *at)
{
    int i = 0;
    *at = ALIGN_BYTES;
    while (i < state.blocks && state.block[i].pinned == NULL) {
        if (state.block[i].at - *at >= bytes && state.block[i].at >= *at)
            return i;
        *at = (state.block[i].at + state.block[i].bytes + 2 * ALIGN_BYTES) / ALIGN_BYTES *
              ALIGN_BYTES;
        i++;
    }
    return i;
}
static void insert(int i, struct block block)
{
    if (state.blocks == MAX_BLOCKS)
        abort();
    memmove(&state.block[i + 1], &state.block[i],
            (size_t)(state.blocks - i) * sizeof state.block[0]);
    state.block[i] = block;
    state.blocks++;
}
/* What is read before it is written is NaN. Of large blocks the ends alone: opening and closing
 * memory costs time for each page that was touched. */
static void spoil(char *memory, size_t bytes)
{
    const size_t end = bytes < POISON_BYTES ? bytes : POISON_BYTES;
    memset(memory, 0xff, end);
    memset(memory + bytes - end, 0xff, end);
}
API unsigned cuMemAlloc_v2(unsigned long long *address, size_t bytes)
{
    BEGIN(true);
    size_t at;
    if (code == OK && (bytes == 0 || bytes > state.capacity - state.used))
        code = bytes == 0 ? INVALID_VALUE : OUT_OF_MEMORY;
    if (code == OK) {
        const int i = find_gap(bytes + ALIGN_BYTES, &at);
        if (at + bytes > RANGE_BYTES)
            abort();
        insert(i, (struct block){.at = at, .bytes = bytes});
        state.used += bytes;
        if (state.touched < at + bytes)
            state.touched = (at + bytes + 4095) / 4096 * 4096;
        open_memory(PROT_READ | PROT_WRITE);
        spoil(state.range + at, bytes);
        open_memory(PROT_NONE);
        *address = (uintptr_t)(state.range + at);
    }
    END;
}
static unsigned remove_block(const char *device, const char *pinned)
{
    for (int i = 0; i < state.blocks; i++) {
        struct block *block = &state.block[i];
        if (pinned != NULL ? block->pinned != pinned
                           : block->pinned != NULL || state.range + block->at != device)
            continue;
        if (pinned == NULL)
            state.used -= block->bytes;
        free(block->pinned);
        state.generation++;
        memmove(block, block + 1, (size_t)(state.blocks - i - 1) * sizeof *block);
        state.blocks--;
        return OK;
    }
    return INVALID_VALUE;
}
/* Freeing waits for all streams, as on a GPU. */
API unsigned cuMemFree_v2(unsigned long long address)
{
    BEGIN(true);
    if (code == OK) {
        drain();
        code = remove_block((const char *)(uintptr_t)address, NULL);
    }
    END;
}
API unsigned cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    BEGIN(true);
    (void)flags;
    if (code == OK && bytes == 0)
        code = INVALID_VALUE;
    if (code == OK && posix_memalign(memory, 4096, bytes) != 0)
        code = OUT_OF_MEMORY;
    if (code == OK) {
        memset(*memory, 0xff, bytes);
        insert(state.blocks, (struct block){.bytes = bytes, .pinned = *memory});
    }
    END;
}
API unsigned cuMemFreeHost(void *memory)
{
    BEGIN(true);
    if (code == OK) {
        drain();
        code = remove_block(NULL, memory);
    }
    END;
}
static bool is_pinned(const void *memory, size_t bytes)
{
    for (int i = 0; i < state.blocks; i++)
        if (state.block[i].pinned != NULL && (const char *)memory >= state.block[i].pinned &&
            (const char *)memory + bytes <= state.block[i].pinned + state.block[i].bytes)
            return true;
    return false;
}
static bool is_device(const void *memory, size_t bytes)
{
    for (int i = 0; i < state.blocks; i++) {
        const char *begin = state.range + state.block[i].at;
        if (state.block[i].pinned == NULL && (const char *)memory >= begin &&
            (const char *)memory + bytes <= begin + state.block[i].bytes)
            return true;
    }
    return false;
}

/* For the checks, while work runs. Most accesses are of the block of the one before. */
bool emulator_is_allocated(const void *address, size_t bytes)
{
    static struct block last;
    static uint64_t generation;
    const char *at = address;
    if (generation != state.generation)
        last = (struct block){0};
    generation = state.generation;
    const char *begin = last.pinned != NULL ? last.pinned : state.range + last.at;
    if (last.bytes > 0 && at >= begin && at + bytes <= begin + last.bytes)
        return true;
    for (int i = 0; i < state.blocks; i++) {
        begin =
            state.block[i].pinned != NULL ? state.block[i].pinned : state.range + state.block[i].at;
        if (at >= begin && at + bytes <= begin + state.block[i].bytes) {
            last = state.block[i];
            return true;
        }
    }
    return false;
}

/* As the driver does for pageable memory: nobody else gets the lock meanwhile. */
static void wait_with_lock(struct CUstream_st *stream, uint64_t number)
{
    while (!run_to(stream, number))
        sched_yield();
}

/* Of pageable memory the call returns when the copy is over. */
static unsigned copy(unsigned code, struct CUstream_st *stream, void *to, const void *from,
                     size_t bytes, bool to_device, bool from_device)
{
    const void *host = to_device ? from : to;
    if (code != OK)
        return code;
    if ((to_device && !is_device(to, bytes)) || (from_device && !is_device(from, bytes)) ||
        (!(to_device && from_device) && is_device(host, 1)))
        return INVALID_VALUE;
    struct item *item = new_item(COPY, 0);
    item->to = to;
    item->from = from;
    item->bytes = bytes;
    code = enqueue(stream, item);
    if (code == OK && !(to_device && from_device) && !is_pinned(host, bytes))
        wait_with_lock(stream, stream->queued);
    return code;
}
API unsigned cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes,
                                  struct CUstream_st *stream)
{
    BEGIN(true);
    code = copy(code, stream, (void *)(uintptr_t)to, from, bytes, true, false);
    END;
}
API unsigned cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes,
                                  struct CUstream_st *stream)
{
    BEGIN(true);
    code = copy(code, stream, to, (const void *)(uintptr_t)from, bytes, false, true);
    END;
}
API unsigned cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes,
                                  struct CUstream_st *stream)
{
    BEGIN(true);
    code =
        copy(code, stream, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, true, true);
    END;
}
API unsigned cuMemsetD8Async(unsigned long long to, unsigned char byte, size_t bytes,
                             struct CUstream_st *stream)
{
    BEGIN(true);
    if (code == OK && !is_device((void *)(uintptr_t)to, bytes))
        code = INVALID_VALUE;
    if (code == OK) {
        struct item *item = new_item(FILL, 0);
        item->to = (void *)(uintptr_t)to;
        item->byte = byte;
        item->bytes = bytes;
        code = enqueue(stream, item);
    }
    END;
}

/* ---- streams and events ---- */

API unsigned cuStreamCreate(struct CUstream_st **stream, unsigned flags)
{
    BEGIN(true);
    if (code == OK && flags != SHOALI_CUDA_STREAM_NON_BLOCKING)
        code = INVALID_VALUE;
    if (code == OK) {
        *stream = calloc(1, sizeof **stream);
        if (*stream == NULL)
            abort();
        (*stream)->id = ++state.last_stream;
        (*stream)->next = state.streams;
        state.streams = *stream;
    }
    END;
}
API unsigned cuStreamDestroy_v2(struct CUstream_st *stream)
{
    BEGIN(true);
    if (code == OK) {
        wait_for(stream->id, stream->queued);
        struct CUstream_st **link = &state.streams;
        while (*link != stream)
            link = &(*link)->next;
        *link = stream->next;
        free(stream);
    }
    END;
}
API unsigned cuStreamSynchronize(struct CUstream_st *stream)
{
    BEGIN(true);
    if (code == OK && stream == NULL)
        code = INVALID_HANDLE;
    if (code == OK) {
        wait_for(stream->id, stream->queued);
        code = state.dead;
    }
    END;
}
API unsigned cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags)
{
    BEGIN(true);
    (void)flags;
    if (code == OK && !is_over(event->stream, event->number)) {
        struct item *item = new_item(WAIT_EVENT, 0);
        item->wait_stream = event->stream;
        item->wait_number = event->number;
        code = enqueue(stream, item);
    }
    END;
}
API unsigned cuStreamWaitValue32_v2(struct CUstream_st *stream, unsigned long long word,
                                    uint32_t value, unsigned flags)
{
    BEGIN(true);
    if (code == OK && flags != SHOALI_CUDA_WAIT_GREATER_OR_EQUAL)
        code = INVALID_VALUE;
    if (code == OK) {
        struct item *item = new_item(WAIT_VALUE, 0);
        item->word = (const volatile uint32_t *)(uintptr_t)word;
        item->value = value;
        code = enqueue(stream, item);
    }
    END;
}
API unsigned cuEventCreate(struct CUevent_st **event, unsigned flags)
{
    BEGIN(true);
    *event = NULL;
    if (code == OK && (*event = calloc(1, sizeof **event)) == NULL)
        abort();
    if (code == OK)
        (*event)->timed = (flags & SHOALI_CUDA_EVENT_DISABLE_TIMING) == 0;
    END;
}
API unsigned cuEventDestroy_v2(struct CUevent_st *event)
{
    BEGIN(true);
    drop_clock(event->clock);
    free(event);
    END;
}
static unsigned queue_clock(struct CUevent_st *event, struct CUstream_st *stream)
{
    struct item *item = new_item(CLOCK, 0);
    struct clock *clock = calloc(1, sizeof *clock);
    if (clock == NULL)
        abort();
    drop_clock(event->clock);
    clock->users = 2;
    event->clock = item->clock = clock;
    return enqueue(stream, item);
}
API unsigned cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    BEGIN(true);
    if (code == OK && stream == NULL)
        code = INVALID_HANDLE;
    if (code == OK && event->timed)
        code = queue_clock(event, stream);
    if (code == OK) {
        event->stream = stream->id;
        event->number = stream->queued;
    }
    END;
}
API unsigned cuEventElapsedTime(float *ms, struct CUevent_st *begin, struct CUevent_st *end)
{
    BEGIN(true);
    if (code == OK && (begin->clock == NULL || end->clock == NULL))
        code = INVALID_HANDLE;
    if (code == OK &&
        (!is_over(begin->stream, begin->number) || !is_over(end->stream, end->number)))
        code = NOT_READY;
    if (code == OK)
        *ms = (float)(end->clock->ms - begin->clock->ms);
    END;
}
/* Asking makes the work go on, as time does on a GPU. */
API unsigned cuEventQuery(struct CUevent_st *event)
{
    BEGIN(true);
    if (code == OK) {
        (void)run_to(find_stream(event->stream), event->number);
        code = state.dead != OK                        ? state.dead
               : is_over(event->stream, event->number) ? OK
                                                       : NOT_READY;
    }
    END;
}
API unsigned cuEventSynchronize(struct CUevent_st *event)
{
    BEGIN(true);
    if (code == OK) {
        wait_for(event->stream, event->number);
        code = state.dead;
    }
    END;
}

/* ---- kernels ---- */

/* The text of a kernel makes the symbol emulated_NAME. The image is not read. */
API unsigned cuLibraryLoadData(struct CUlib_st **library, const void *image, unsigned *options,
                               void **values, unsigned count, unsigned *library_options,
                               void **library_values, unsigned library_count)
{
    Dl_info own;
    BEGIN(false);
    (void)image, (void)options, (void)values, (void)count;
    (void)library_options, (void)library_values, (void)library_count;
    if (code == OK && dladdr((void *)(uintptr_t)cuInit, &own) == 0)
        abort();
    if (code == OK)
        *library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (code == OK && *library == NULL)
        abort();
    END;
}
API unsigned cuLibraryGetKernel(struct CUkern_st **kernel, struct CUlib_st *library,
                                const char *name)
{
    char symbol[128];
    BEGIN(false);
    snprintf(symbol, sizeof symbol, "emulated_%s", name);
    const struct emulator_kernel *found =
        code == OK ? dlsym((void *)(uintptr_t)library, symbol) : NULL;
    if (code == OK && found == NULL)
        code = NOT_FOUND;
    if (code == OK) {
        *kernel = calloc(1, sizeof **kernel);
        if (*kernel == NULL)
            abort();
        const char *loading = getenv("CUDA_MODULE_LOADING");
        (*kernel)->kernel = found;
        (*kernel)->shared_bytes = 48 * 1024;
        (*kernel)->loaded = loading != NULL && strcmp(loading, "EAGER") == 0;
    }
    END;
}
API unsigned cuKernelSetAttribute(unsigned attribute, int value, struct CUkern_st *kernel,
                                  int device)
{
    BEGIN(false);
    (void)device;
    if (code == OK && (attribute != SHOALI_CUDA_DYNAMIC_SHARED || value > MOST_SHARED))
        code = INVALID_VALUE;
    if (code == OK)
        kernel->shared_bytes = (unsigned)value;
    END;
}
API unsigned cuLaunchKernelEx(const struct CUlaunchConfig_st *given, struct CUfunc_st *function,
                              void **arguments, void **extra)
{
    const struct shoali_cuda_launch_config *config = (const void *)given;
    struct CUkern_st *kernel = (struct CUkern_st *)function;
    BEGIN(true);
    (void)extra;
    const struct emulator_kernel *text = kernel->kernel;
    const unsigned threads = config->block[0] * config->block[1] * config->block[2];
    if (code == OK && (threads == 0 || threads > (unsigned)text->threads || config->grid[0] == 0 ||
                       config->grid[1] == 0 || config->grid[1] > 65535 ||
                       config->shared_bytes > kernel->shared_bytes))
        code = INVALID_VALUE;
    if (code == OK && !kernel->loaded) { /* a lazy driver waits for the device */
        drain();
        kernel->loaded = true;
    }
    if (code == OK) {
        struct item *item = new_item(LAUNCH, text->args_bytes);
        memcpy(item->args, arguments[0], text->args_bytes);
        item->launch = (struct emulator_launch){
            .kernel = text,
            .args = item->args,
            .grid = {config->grid[0], config->grid[1], config->grid[2]},
            .block = {config->block[0], config->block[1], config->block[2]},
            .shared_bytes = config->shared_bytes};
        code = enqueue(config->stream, item);
    }
    END;
}

unsigned emulator_queue(struct CUstream_st *stream, void (*run)(const void *argument),
                        const void *argument, size_t bytes)
{
    BEGIN(true);
    if (code == OK) {
        struct item *item = new_item(CALL, bytes);
        item->run = run;
        memcpy(item->args, argument, bytes);
        code = enqueue(stream, item);
    }
    END;
}
