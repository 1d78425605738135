/* operands.c - the arrays of a kernel's call, on the host or in several sets on a device.
 *
 * A set is all arrays of a call, one behind the other. All sets are more than a few caches hold, so
 * a call that takes the set of some calls before finds nothing of it in the cache. A kernel's
 * description says where its block has addresses: those are moved from the first set to another. */
#include "benchmark/benchmark.h"
#include "ops/kernel.h"

#include <stdlib.h>
#include <string.h>

enum { CACHES = 4, MOST_SETS = 64 };
#define ALIGN_BYTES ((size_t)256)

/* In host memory, to be freed. */
static shoal_status fill(const struct shoali_bench_array *array, void **memory)
{
    const size_t bytes = (size_t)array->count * shoal_dtype_bytes(array->dtype);
    const bool is_float =
        array->dtype == SHOAL_F32 || array->dtype == SHOAL_BF16 || array->dtype == SHOAL_F16;
    shoal_status status;
    SHOAL_TRY(status,
              is_float ? shoali_bench_numbers(array->count, array->dtype, memory)
                       : shoali_bench_numbers((int64_t)(bytes / 4), SHOAL_F32, memory),
              done);
    if (array->from != NULL)
        memcpy(*memory, array->from, bytes);
    else if (array->zeros)
        memset(*memory, 0, bytes);
done:
    return status;
}

static size_t padded_bytes(const struct shoali_bench_array *array)
{
    const size_t bytes = (size_t)array->count * shoal_dtype_bytes(array->dtype);
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* touched_bytes: of a set, by a call. */
static int32_t choose_sets(const struct shoali_bench *bench, size_t set_bytes, size_t touched_bytes)
{
    int64_t total, available;
    const size_t wanted = CACHES * (size_t)bench->facts.cache_bytes / touched_bytes + 1;
    int32_t sets = wanted < MOST_SETS ? (int32_t)wanted : MOST_SETS;
    shoali_device_memory(bench->device, &total, &available);
    sets = sets > 2 ? sets : 2;
    while (sets > 1 && (double)sets * (double)set_bytes > 0.5 * (double)available)
        sets--;
    return sets;
}

/* Fills the first set, and the others from that. */
static shoal_status upload(struct shoali_operands *operands,
                           const struct shoali_bench_array *arrays, int32_t count)
{
    struct shoali_device_stream *stream = operands->bench->exec.stream;
    shoal_status status = SHOAL_OK;
    char *at = operands->base;
    for (int32_t i = 0; i < count; i++) {
        SHOAL_TRY(status, fill(&arrays[i], &operands->host[0]), done);
        SHOAL_TRY(status,
                  shoali_upload(stream, at, operands->host[0],
                                (size_t)arrays[i].count * shoal_dtype_bytes(arrays[i].dtype)),
                  done);
        memcpy(arrays[i].at, &at, sizeof at);
        at += padded_bytes(&arrays[i]);
        free(operands->host[0]);
        operands->host[0] = NULL;
    }
    for (int32_t s = 1; s < operands->sets; s++)
        SHOAL_TRY(status,
                  shoali_copy(stream, operands->base + (size_t)s * operands->set_bytes,
                              operands->base, operands->set_bytes, SHOALI_DEVICE_TO_DEVICE),
                  done);
    SHOAL_TRY(status, shoali_stream_synchronize(stream), done);
done:
    return status;
}

shoal_status shoali_operands_create(const struct shoali_bench *bench,
                                    const struct shoali_bench_array *arrays, int32_t count,
                                    size_t touched_bytes, struct shoali_operands *operands)
{
    shoal_status status = SHOAL_OK;
    void *base;
    SHOAL_ASSERT(count <= SHOALI_BENCH_ARRAYS);
    operands->bench = bench;
    for (int32_t i = 0; i < count && bench->device == NULL; i++) {
        SHOAL_TRY(status, fill(&arrays[i], &operands->host[i]), done);
        memcpy(arrays[i].at, &operands->host[i], sizeof(void *));
    }
    if (bench->device == NULL)
        goto done;
    for (int32_t i = 0; i < count; i++) {
        SHOAL_TRY(status, shoali_bench_check_count(arrays[i].count), done);
        operands->set_bytes += padded_bytes(&arrays[i]);
    }
    operands->sets = choose_sets(bench, operands->set_bytes,
                                 touched_bytes > 0 ? touched_bytes : operands->set_bytes);
    SHOAL_TRY(
        status,
        shoali_device_alloc(bench->device, (size_t)operands->sets * operands->set_bytes, &base),
        done);
    operands->base = base;
    SHOAL_TRY(status, upload(operands, arrays, count), done);
done:
    return status;
}

void shoali_operands_destroy(struct shoali_operands *operands)
{
    for (int32_t i = 0; i < SHOALI_BENCH_ARRAYS; i++)
        free(operands->host[i]);
    if (operands->base != NULL)
        shoali_device_free(operands->bench->device, operands->base);
    *operands = (struct shoali_operands){0};
}

shoal_status shoali_operands_launch(struct shoali_operands *operands,
                                    const struct shoali_kernel *kernel, const void *args)
{
    _Alignas(16) unsigned char moved[SHOALI_KERNEL_MAX_ARGS];
    const struct shoali_kernel_type *type = &kernel->type;
    const size_t by = (size_t)operands->next * operands->set_bytes;
    SHOAL_ASSERT(type->args_bytes <= sizeof moved && type->array_offset == 0);
    memcpy(moved, args, type->args_bytes);
    for (const struct shoali_kernel_pointer *at = type->pointers; at->name != NULL; at++) {
        char *address = shoali_kernel_pointer_value(at, args);
        if (address == NULL)
            continue;
        address += by;
        memcpy(moved + at->offset, &address, sizeof address);
    }
    operands->next = (operands->next + 1) % operands->sets;
    return shoali_kernel_launch(&operands->bench->exec, kernel, moved);
}
