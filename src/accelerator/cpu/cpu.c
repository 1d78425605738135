/* cpu.c - the processor as a device: memory is the process's, work runs at once on the caller.
 *
 * Streams and events carry nothing but a timed event its time: when a call returns, its work is
 * done. The total is the memory
 * of the machine, of the control group, or SHOAL_CPU_BYTES; going over it is an error here instead
 * of a kill by the kernel later. Blocks of 2 MiB and more are mapped, aligned to huge pages.
 */
#include "accelerator/device.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define ALIGN_BYTES ((size_t)64)
#define BLOCK_MAGIC 0x53484f414c435055u

struct cpu_event {
    struct shoali_event base;
    int64_t ns;
};

struct cpu_device {
    struct shoali_device base;
    int64_t limit_bytes;
};

/* Lies directly before every block. */
struct cpu_block {
    _Alignas(64) uint64_t magic;
    size_t bytes;  /* as asked for */
    void *mapping; /* start of the mapping, NULL: malloc'ed at the header */
    size_t map_bytes;
};

static bool cpu_probe(void)
{
    return true;
}

static int32_t cpu_device_count(void)
{
    return 1;
}

static shoal_status cpu_device_create(int32_t index, struct shoali_pool *pool,
                                      struct shoali_device **device)
{
    shoal_status status;
    struct cpu_device *cpu = NULL;
    int64_t limit, available;
    SHOAL_TRY(status, shoali_device_check_index(&shoali_accelerator_cpu, index), done);
    shoali_host_memory(&limit, &available);
    const char *text = getenv("SHOAL_CPU_BYTES");
    if (text != NULL && text[0] != '\0' && (!shoali_parse_i64(text, &limit) || limit < 1)) {
        status = SHOAL_FAIL(SHOAL_ECONFIG, "SHOAL_CPU_BYTES='%s' is not a positive number of bytes",
                            text);
        goto done;
    }
    cpu = shoali_calloc(1, sizeof *cpu, "a cpu device");
    if (cpu == NULL) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    shoali_device_init(&cpu->base, &shoali_accelerator_cpu, pool);
    cpu->limit_bytes = limit;
    *device = &cpu->base;
done:
    return status;
}

static void cpu_device_destroy(struct shoali_device *device)
{
    shoali_device_fini(device);
    shoali_free(device);
}

/* A mapping whose block starts at a multiple of 2 MiB and has one page before it for the header;
 * the kernel can then back the whole block by huge pages. */
static struct cpu_block *map_block(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t body = (bytes + page - 1) / page * page;
    const size_t room = body + page + HUGE_BYTES;
    char *start = mmap(NULL, room, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    const uintptr_t first = (uintptr_t)start + page;
    char *block = start + page + (HUGE_BYTES - first % HUGE_BYTES) % HUGE_BYTES;
    char *head = block - page, *tail = block + body, *end = start + room;
    if (head > start)
        (void)munmap(start, (size_t)(head - start));
    if (end > tail)
        (void)munmap(tail, (size_t)(end - tail));
    (void)madvise(block, body, MADV_HUGEPAGE); /* advice: works without */
    struct cpu_block *header = (struct cpu_block *)(void *)block - 1;
    header->mapping = head;
    header->map_bytes = body + page;
    return header;
}

static struct cpu_block *small_block(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, ALIGN_BYTES, sizeof(struct cpu_block) + bytes) != 0)
        return NULL;
    struct cpu_block *header = memory;
    header->mapping = NULL;
    header->map_bytes = 0;
    return header;
}

static int64_t left_bytes(struct cpu_device *cpu)
{
    return cpu->limit_bytes - atomic_load(&cpu->base.allocated_bytes);
}

static shoal_status allocate(struct cpu_device *cpu, size_t bytes, const char *what, void **address)
{
    struct cpu_block *header = NULL;
    const int64_t free_bytes = left_bytes(cpu), left = free_bytes > 0 ? free_bytes : 0;
    if (free_bytes >= 0 && bytes <= (uint64_t)left)
        header = bytes >= HUGE_BYTES ? map_block(bytes) : small_block(bytes);
    if (header == NULL) {
        char asked[32], available[32], total[32];
        return SHOAL_FAIL(
            SHOAL_ENOMEM,
            "cpu: no memory for %zu bytes (%s) of %s memory; %lld bytes (%s) of %s are available: "
            "use more ranks, a higher ZeRO stage or a smaller micro-batch",
            bytes, shoali_format_bytes((double)bytes, asked), what, (long long)left,
            shoali_format_bytes((double)left, available),
            shoali_format_bytes((double)cpu->limit_bytes, total));
    }
    header->magic = BLOCK_MAGIC;
    header->bytes = bytes;
    *address = header + 1;
    return SHOAL_OK;
}

/* Returns the number of bytes that were asked for. */
static size_t release(void *address)
{
    struct cpu_block *header = (struct cpu_block *)address - 1;
    SHOAL_ASSERT(header->magic == BLOCK_MAGIC); /* else freed twice, or not from here */
    const size_t bytes = header->bytes;
    header->magic = 0;
    if (header->mapping != NULL)
        (void)munmap(header->mapping, header->map_bytes);
    else
        free(header);
    return bytes;
}

static shoal_status cpu_alloc(struct shoali_device *device, size_t bytes, void **address)
{
    shoal_status status;
    SHOAL_TRY(status, allocate((struct cpu_device *)device, bytes, "device", address), done);
    shoali_device_count_alloc(device, bytes);
done:
    return status;
}

/* A fresh mapping is of zeros; the system clears each page when it is first written. */
static shoal_status cpu_alloc_zeroed(struct shoali_device *device, size_t bytes, void **address)
{
    shoal_status status;
    SHOAL_TRY(status, cpu_alloc(device, bytes, address), done);
    if (((const struct cpu_block *)*address - 1)->mapping == NULL)
        memset(*address, 0, bytes);
done:
    return status;
}

static void cpu_free(struct shoali_device *device, void *address)
{
    shoali_device_count_free(device, release(address));
}

static shoal_status cpu_host_alloc(struct shoali_device *device, size_t bytes, void **memory)
{
    shoal_status status;
    SHOAL_TRY(status, allocate((struct cpu_device *)device, bytes, "pinned host", memory), done);
    shoali_device_count_host(device, (int64_t)bytes);
done:
    return status;
}

static void cpu_host_free(struct shoali_device *device, void *memory)
{
    shoali_device_count_host(device, -(int64_t)release(memory));
}

static shoal_status cpu_stream_create(struct shoali_device *device,
                                      struct shoali_device_stream **stream)
{
    *stream = shoali_calloc(1, sizeof **stream, "a cpu stream");
    if (*stream == NULL)
        return SHOAL_ENOMEM;
    (*stream)->device = device;
    return SHOAL_OK;
}

static void cpu_stream_destroy(struct shoali_device_stream *stream)
{
    shoali_free(stream);
}

static shoal_status cpu_stream_synchronize(struct shoali_device_stream *stream)
{
    (void)stream;
    return SHOAL_OK;
}

static shoal_status cpu_event_create(struct shoali_device *device, bool timed,
                                     struct shoali_event **event)
{
    struct cpu_event *made = shoali_calloc(1, sizeof *made, "a cpu event");
    (void)timed;
    if (made == NULL)
        return SHOAL_ENOMEM;
    made->base.device = device;
    *event = &made->base;
    return SHOAL_OK;
}

static void cpu_event_destroy(struct shoali_event *event)
{
    shoali_free(event);
}

static shoal_status cpu_event_record(struct shoali_event *event,
                                     struct shoali_device_stream *stream)
{
    (void)stream;
    if (event->timed)
        ((struct cpu_event *)event)->ns = shoali_now_ns();
    return SHOAL_OK;
}

static shoal_status cpu_event_elapsed(struct shoali_event *begin, struct shoali_event *end,
                                      int64_t *ns)
{
    *ns = ((const struct cpu_event *)end)->ns - ((const struct cpu_event *)begin)->ns;
    return SHOAL_OK;
}

static shoal_status cpu_event_synchronize(struct shoali_event *event)
{
    (void)event;
    return SHOAL_OK;
}

static shoal_status cpu_stream_wait_event(struct shoali_device_stream *stream,
                                          struct shoali_event *event)
{
    (void)stream;
    (void)event;
    return SHOAL_OK;
}

static shoal_status cpu_launch(struct shoali_device_stream *stream,
                               const struct shoali_kernel_type *type, shoali_kernel_fn fn,
                               const void *args)
{
    (void)type;
    shoali_device_run_kernel(stream, fn, args);
    return SHOAL_OK;
}

static shoal_status cpu_copy(struct shoali_device_stream *stream, void *to, const void *from,
                             size_t bytes, enum shoali_copy_kind kind)
{
    (void)stream;
    (void)kind;
    memcpy(to, from, bytes);
    return SHOAL_OK;
}

static shoal_status cpu_fill(struct shoali_device_stream *stream, void *to, uint8_t byte,
                             size_t bytes)
{
    (void)stream;
    memset(to, byte, bytes);
    return SHOAL_OK;
}

static shoal_status cpu_launch_host(struct shoali_device_stream *stream,
                                    const struct shoali_host_task *task)
{
    void *at[SHOALI_TASK_MAX_BUFFERS];
    shoal_status status;
    (void)stream;
    for (int32_t i = 0; i < SHOALI_TASK_MAX_BUFFERS; i++)
        at[i] = task->buffer[i].address;
    do {
        status = task->poll(task->user, at, true);
    } while (status == SHOAL_IN_PROGRESS);
    return status;
}

static void cpu_memory(struct shoali_device *device, int64_t *total_bytes, int64_t *available_bytes)
{
    struct cpu_device *cpu = (struct cpu_device *)device;
    int64_t machine_total, machine_available;
    shoali_host_memory(&machine_total, &machine_available);
    const int64_t left = left_bytes(cpu);
    *total_bytes = cpu->limit_bytes;
    *available_bytes = left < machine_available ? left : machine_available;
}

const struct shoali_accelerator shoali_accelerator_cpu = {
    .abi = SHOALI_ACCELERATOR_ABI,
    .bytes = sizeof(struct shoali_accelerator),
    .name = "cpu",
    .probe = cpu_probe,
    .host_accessible = true,
    .exportable = true,
    .host_kernels = true,
    .device_count = cpu_device_count,
    .device_create = cpu_device_create,
    .device_destroy = cpu_device_destroy,
    .alloc = cpu_alloc,
    .alloc_zeroed = cpu_alloc_zeroed,
    .free = cpu_free,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_host_free,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_synchronize = cpu_stream_synchronize,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .event_synchronize = cpu_event_synchronize,
    .event_elapsed = cpu_event_elapsed,
    .stream_wait_event = cpu_stream_wait_event,
    .launch = cpu_launch,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .launch_host = cpu_launch_host,
    .memory = cpu_memory,
    .counters = shoali_device_read_counters,
};
