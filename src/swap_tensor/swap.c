/* Creation, resident rows, copies of elements. */
#include "swap_tensor/swap_internal.h"

#include <stdlib.h>
#include <string.h>

shoal_status shoali_swap_alloc(struct shoali_swap *swap, size_t bytes, void **memory)
{
    shoal_status status;
    SHOAL_TRY(status,
              swap->args.pin ? shoali_device_host_alloc(swap->args.device, bytes, memory)
                             : shoali_device_alloc(swap->args.host, bytes, memory),
              done);
    swap->counters.host_bytes += (int64_t)bytes;
    if (!swap->args.meta)
        memset(*memory, 0, bytes);
done:
    return status;
}

void shoali_swap_free(struct shoali_swap *swap, void *memory)
{
    if (!memory)
        return;
    if (swap->args.pin)
        shoali_device_host_free(swap->args.device, memory);
    else
        shoali_device_free(swap->args.host, memory);
}

static shoal_status make_tables(struct shoali_swap *swap)
{
    const size_t chunks = (size_t)swap->args.chunk_count;
    const size_t entries = chunks * (size_t)swap->args.row_count + 1;
    swap->cut = shoali_calloc(chunks + 1, sizeof *swap->cut, "chunks of a swap store");
    swap->offset = shoali_calloc(chunks + 1, sizeof *swap->offset, "chunks of a swap store");
    swap->hash = shoali_calloc(entries, sizeof *swap->hash, "hashes of a swap store");
    swap->written = shoali_calloc(entries, sizeof *swap->written, "hashes of a swap store");
    if (!swap->cut || !swap->offset || !swap->hash || !swap->written)
        return SHOAL_ENOMEM;
    memcpy(swap->cut, swap->args.cut, (chunks + 1) * sizeof *swap->cut);
    for (int32_t c = 0; c < swap->args.chunk_count; c++)
        swap->offset[c + 1] =
            swap->offset[c] + (c < swap->args.resident_count
                                   ? 0
                                   : shoali_swap_stride(swap, c) * swap->args.row_count);
    return SHOAL_OK;
}

shoal_status shoali_swap_create(const struct shoali_swap_args *args, struct shoali_swap **swap_out)
{
    shoal_status status = SHOAL_ENOMEM;
    SHOAL_ASSERT(args->row_count > 0 && args->row_count <= SHOALI_SWAP_MAX_ROWS);
    SHOAL_ASSERT(args->resident_count == args->chunk_count || args->buffer_count > 0);
    struct shoali_swap *swap = shoali_calloc(1, sizeof *swap, "a swap store");
    if (!swap)
        goto done;
    swap->args = *args;
    SHOAL_TRY(status, make_tables(swap), done);
    const int64_t bytes = swap->offset[args->chunk_count];
    const size_t resident = (size_t)swap->cut[args->resident_count] * args->item_bytes;
    for (int32_t r = 0; r < args->row_count && resident > 0; r++)
        SHOAL_TRY(status, shoali_swap_alloc(swap, resident, (void **)&swap->resident[r]), done);
    if (bytes > 0) {
        SHOAL_TRY(status, shoali_swap_make_buffers(swap), done);
        swap->counters.file_bytes = bytes;
    }
    if (bytes > 0 && !args->meta) {
        SHOAL_TRY(status, shoali_io_create(&args->io, &swap->io), done);
        SHOAL_TRY(status, shoali_swap_open_file(swap, bytes), done);
    }
done:
    if (status < 0) {
        shoali_swap_destroy(swap);
        swap = NULL;
    }
    *swap_out = swap;
    return status;
}

void shoali_swap_destroy(struct shoali_swap *swap)
{
    if (!swap)
        return;
    shoali_swap_free_buffers(swap);
    shoali_io_close(swap->file);
    shoali_io_destroy(swap->io);
    for (int32_t r = 0; r < swap->args.row_count; r++)
        shoali_swap_free(swap, swap->resident[r]);
    shoali_free(swap->cut);
    shoali_free(swap->offset);
    shoali_free(swap->hash);
    shoali_free(swap->written);
    shoali_free(swap);
}

/* The chunk that holds an element. */
static int32_t chunk_of(const struct shoali_swap *swap, int64_t element)
{
    int32_t low = 0;
    for (int32_t high = swap->args.chunk_count; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        if (swap->cut[middle + 1] <= element)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- elements ------------------------------------------------------------------------------- */

/* How many of `count` elements from `first` on lie in its chunk. */
static int64_t run_in_chunk(const struct shoali_swap *swap, int32_t chunk, int64_t first,
                            int64_t count)
{
    const int64_t left = swap->cut[chunk + 1] - first;
    return left < count ? left : count;
}

shoal_status shoali_swap_read(struct shoali_swap *swap, int32_t row, int64_t first, int64_t count,
                              void *out)
{
    shoal_status status = SHOAL_OK;
    const size_t item = swap->args.item_bytes;
    int64_t run = 0;
    for (int64_t at = first; at < first + count && !swap->args.meta; at += run) {
        void *address[SHOALI_SWAP_MAX_ROWS];
        const int32_t chunk = chunk_of(swap, at);
        run = run_in_chunk(swap, chunk, at, first + count - at);
        SHOAL_TRY(status, shoali_swap_get(swap, chunk, SHOALI_SWAP_ROW(row), address), done);
        memcpy((char *)out + (size_t)(at - first) * item,
               (char *)address[row] + (size_t)(at - swap->cut[chunk]) * item, (size_t)run * item);
        SHOAL_TRY(status, shoali_swap_put(swap, chunk, 0, NULL), done);
    }
done:
    return status;
}

static shoal_status write_run(struct shoali_swap *swap, int32_t row, int32_t chunk, int64_t at,
                              const void *in, size_t bytes)
{
    shoal_status status;
    void *address[SHOALI_SWAP_MAX_ROWS];
    if (swap->open && swap->open->chunk != chunk) {
        struct shoali_swap_buffer *done_with = swap->open;
        swap->open = NULL;
        SHOAL_TRY(status, shoali_swap_write_back(swap, done_with), done);
    }
    SHOAL_TRY(status, shoali_swap_get(swap, chunk, SHOALI_SWAP_ROW(row), address), done);
    memcpy((char *)address[row] + (size_t)(at - swap->cut[chunk]) * swap->args.item_bytes, in,
           bytes);
    for (int32_t b = 0; b < swap->args.buffer_count && chunk >= swap->args.resident_count; b++)
        if (swap->buffer[b].chunk == chunk)
            swap->open = &swap->buffer[b];
    if (swap->open)
        swap->open->dirty |= SHOALI_SWAP_ROW(row);
    SHOAL_TRY(status, shoali_swap_put(swap, chunk, 0, NULL), done);
done:
    return status;
}

shoal_status shoali_swap_write(struct shoali_swap *swap, int32_t row, int64_t first, int64_t count,
                               const void *in)
{
    shoal_status status = SHOAL_OK;
    const size_t item = swap->args.item_bytes;
    int64_t run = 0;
    for (int64_t at = first; at < first + count && !swap->args.meta; at += run) {
        const int32_t chunk = chunk_of(swap, at);
        run = run_in_chunk(swap, chunk, at, first + count - at);
        SHOAL_TRY(status,
                  write_run(swap, row, chunk, at, (const char *)in + (size_t)(at - first) * item,
                            (size_t)run * item),
                  done);
    }
done:
    return status;
}

void shoali_swap_get_counters(const struct shoali_swap *swap, struct shoali_swap_counters *counters)
{
    *counters = swap->counters;
}
