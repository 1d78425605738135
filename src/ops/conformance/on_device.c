/* on_device.c - a kernel of a table for a device's memory, on the host's arrays of a case.
 *
 * What the kernel's description says it may touch is copied to the device, with the guards behind
 * it, and all of it back: then the frame sees writes to inputs and behind ends as on the host.
 */
#include "ops/conformance/conformance.h"

struct range {
    char *begin;
    size_t bytes;
    void *device;
};
struct ranges {
    struct range range[SHOALI_KERNEL_MAX_POINTERS]; /* by address, without overlaps */
    int count;
};

/* One device for each memory, for as long as the program runs. */
static struct shoali_device_stream *stream_for(const char *memory)
{
    static struct shoali_device_stream *streams[4];
    static const char *names[4];
    struct shoali_device *device;
    const struct shoali_accelerator *accelerator;
    int i = 0;
    while (names[i] != NULL && strcmp(names[i], memory) != 0)
        i++;
    if (names[i] != NULL)
        return streams[i];
    accelerator = strcmp(memory, "sim") == 0 ? &shoali_accelerator_sim_closed : NULL;
    if (accelerator == NULL)
        assert_int_equal(shoali_accelerator_select(memory, &accelerator), SHOAL_OK);
    assert_int_equal(shoali_device_create(accelerator, 0, NULL, &device), SHOAL_OK);
    assert_int_equal(shoali_stream_create(device, &streams[i]), SHOAL_OK);
    names[i] = memory;
    return streams[i];
}

static void add(struct ranges *ranges, char *begin, size_t bytes)
{
    int i = ranges->count++;
    for (; i > 0 && ranges->range[i - 1].begin > begin; i--)
        ranges->range[i] = ranges->range[i - 1];
    ranges->range[i] = (struct range){begin, bytes, NULL};
}

static void join(struct ranges *ranges)
{
    int kept = 0;
    for (int i = 1; i < ranges->count; i++) {
        struct range *last = &ranges->range[kept];
        const struct range next = ranges->range[i];
        if (next.begin >= last->begin + last->bytes) {
            ranges->range[++kept] = next;
            continue;
        }
        const size_t bytes = (size_t)(next.begin - last->begin) + next.bytes;
        last->bytes = bytes > last->bytes ? bytes : last->bytes;
    }
    ranges->count = ranges->count > 0 ? kept + 1 : 0;
}

static void list_ranges(const struct shoali_kernel *kernel, const void *args, struct ranges *ranges)
{
    for (const struct shoali_kernel_pointer *at = kernel->type.pointers; at->name != NULL; at++) {
        char *begin = shoali_kernel_pointer_value(at, args);
        const size_t bytes = shoali_kernel_pointer_bytes(at, args);
        if (begin != NULL && bytes > 0)
            add(ranges, begin, bytes + GUARD_BYTES);
    }
    join(ranges);
}

static void translate(const struct shoali_kernel *kernel, const struct ranges *ranges, void *args)
{
    for (const struct shoali_kernel_pointer *at = kernel->type.pointers; at->name != NULL; at++) {
        const char *value = shoali_kernel_pointer_value(at, args);
        for (int i = 0; i < ranges->count; i++) {
            const struct range *range = &ranges->range[i];
            if (value < range->begin || value >= range->begin + range->bytes)
                continue;
            const char *moved =
                (const char *)range->device + (uintptr_t)range->begin % 64 + (value - range->begin);
            memcpy((char *)args + at->offset, &moved, sizeof moved);
        }
    }
}

static void copy(struct shoali_device_stream *stream, const struct range *range,
                 enum shoali_copy_kind kind)
{
    char *device = (char *)range->device + (uintptr_t)range->begin % 64;
    const bool in = kind == SHOALI_HOST_TO_DEVICE;
    if (shoali_copy(stream, in ? device : range->begin, in ? range->begin : device, range->bytes,
                    kind) != SHOAL_OK)
        fail_msg("copying: %s", shoal_error_message());
}

void run_on_device(const struct trial *trial, const void *given)
{
    const struct shoali_kernel *kernel = trial->entry->kernel;
    struct shoali_device_stream *stream = stream_for(trial->table->memory);
    struct shoali_device *device = shoali_stream_device(stream);
    _Alignas(16) unsigned char args[SHOALI_KERNEL_MAX_ARGS];
    struct ranges ranges = {.count = 0};
    memcpy(args, given, kernel->type.args_bytes);
    list_ranges(kernel, args, &ranges);
    for (int i = 0; i < ranges.count; i++) {
        assert_int_equal(
            shoali_device_alloc(device, ranges.range[i].bytes + 64, &ranges.range[i].device),
            SHOAL_OK);
        copy(stream, &ranges.range[i], SHOALI_HOST_TO_DEVICE);
    }
    translate(kernel, &ranges, args);
    if (shoali_launch(stream, &kernel->type, trial->entry->fn, args) != SHOAL_OK)
        fail_msg("%s: %s", kernel->type.name, shoal_error_message());
    for (int i = 0; i < ranges.count; i++)
        copy(stream, &ranges.range[i], SHOALI_DEVICE_TO_HOST);
    if (shoali_stream_synchronize(stream) != SHOAL_OK)
        fail_msg("%s: %s", kernel->type.name, shoal_error_message());
    for (int i = 0; i < ranges.count; i++)
        shoali_device_free(device, ranges.range[i].device);
}
