/* Buffers: which chunk is where, reads, checks, writes. */
#include "swap_tensor/swap_internal.h"

#include <string.h>

/* ---- memory --------------------------------------------------------------------------------- */

shoal_status shoali_swap_make_buffers(struct shoali_swap *swap)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_swap_args *args = &swap->args;
    const size_t count = (size_t)args->buffer_count;
    for (int32_t c = args->resident_count; c < args->chunk_count; c++) {
        const size_t bytes = (size_t)(shoali_swap_stride(swap, c) * args->row_count);
        swap->block_bytes = bytes > swap->block_bytes ? bytes : swap->block_bytes;
    }
    swap->buffer = shoali_calloc(count, sizeof *swap->buffer, "buffers of a swap store");
    swap->block = shoali_calloc(count, sizeof *swap->block, "buffers of a swap store");
    if (!swap->buffer || !swap->block)
        return SHOAL_ENOMEM;
    for (int32_t b = 0; b < args->buffer_count; b++)
        swap->buffer[b].chunk = -1;
    for (int32_t b = 0; b < args->buffer_count; b++) {
        SHOAL_TRY(status,
                  shoali_swap_alloc(swap, swap->block_bytes + SHOALI_IO_ALIGN, &swap->block[b]),
                  done);
        const uintptr_t rest = (uintptr_t)swap->block[b] % SHOALI_IO_ALIGN;
        swap->buffer[b].memory = (char *)swap->block[b] + (rest ? SHOALI_IO_ALIGN - rest : 0);
        SHOAL_TRY(status, shoali_event_create(args->device, &swap->buffer[b].copied), done);
    }
done:
    return status;
}

/* ---- requests ------------------------------------------------------------------------------- */

static char *row_memory(const struct shoali_swap *swap, const struct shoali_swap_buffer *buffer,
                        int32_t row)
{
    return buffer->memory + shoali_swap_stride(swap, buffer->chunk) * row;
}

static int64_t entry(const struct shoali_swap *swap, int32_t chunk, int32_t row)
{
    return (int64_t)chunk * swap->args.row_count + row;
}

static bool busy(const struct shoali_swap *swap, const struct shoali_swap_buffer *buffer)
{
    for (int32_t r = 0; r < swap->args.row_count; r++)
        if (buffer->request[r])
            return true;
    return false;
}

static shoal_status post(struct shoali_swap *swap, struct shoali_swap_buffer *buffer, int32_t row,
                         enum shoali_io_kind kind)
{
    const int64_t stride = shoali_swap_stride(swap, buffer->chunk);
    const bool reads = kind == SHOALI_IO_READ;
    *(reads ? &swap->counters.read_bytes : &swap->counters.written_bytes) += stride;
    ++*(reads ? &swap->counters.read_count : &swap->counters.written_count);
    return shoali_io_post(swap->file, kind, swap->offset[buffer->chunk] + stride * row,
                          row_memory(swap, buffer, row), (size_t)stride, &buffer->request[row]);
}

/* Nothing that does not verify reaches the caller. */
static shoal_status verify(struct shoali_swap *swap, struct shoali_swap_buffer *buffer, int32_t row)
{
    const int64_t index = entry(swap, buffer->chunk, row);
    const uint64_t found = shoali_hash64(row_memory(swap, buffer, row),
                                         (size_t)shoali_swap_chunk_bytes(swap, buffer->chunk));
    if (found == swap->hash[index]) {
        buffer->valid |= SHOALI_SWAP_ROW(row);
        return SHOAL_OK;
    }
    return SHOAL_FAIL(
        SHOAL_ECORRUPT,
        "swap file %s: chunk %d of %d, `%s`, bytes %lld to %lld: what was read is not "
        "what was written (hash %016llx, expected %016llx); the drive or its memory "
        "is faulty: resume from a checkpoint, with nvme_path on another drive",
        shoali_io_path(swap->file), (int)buffer->chunk, (int)swap->args.chunk_count,
        swap->args.row_name[row],
        (long long)(swap->offset[buffer->chunk] + shoali_swap_stride(swap, buffer->chunk) * row),
        (long long)(swap->offset[buffer->chunk] +
                    shoali_swap_stride(swap, buffer->chunk) * (row + 1) - 1),
        (unsigned long long)found, (unsigned long long)swap->hash[index]);
}

/* Waits for a buffer's requests. After an error the buffer holds nothing. */
static shoal_status settle(struct shoali_swap *swap, struct shoali_swap_buffer *buffer)
{
    shoal_status status = SHOAL_OK;
    const int64_t begin = shoali_now_ns();
    const bool waited = busy(swap, buffer);
    for (int32_t r = 0; r < swap->args.row_count; r++) {
        if (!buffer->request[r])
            continue;
        shoal_status one = shoali_io_wait(buffer->request[r]);
        buffer->request[r] = NULL;
        if (one == SHOAL_OK && !buffer->writing && status == SHOAL_OK)
            one = verify(swap, buffer, r);
        status = status < 0 ? status : one;
    }
    if (waited)
        swap->counters.wait_ns += shoali_now_ns() - begin;
    buffer->writing = false;
    if (status < 0) {
        buffer->chunk = -1;
        buffer->valid = buffer->dirty = 0;
    }
    return status;
}

static shoal_status wait_for_copies(struct shoali_swap_buffer *buffer)
{
    const bool copying = buffer->copying;
    buffer->copying = false;
    return copying ? shoali_event_synchronize(buffer->copied) : SHOAL_OK;
}

shoal_status shoali_swap_write_back(struct shoali_swap *swap, struct shoali_swap_buffer *buffer)
{
    shoal_status status;
    if (!buffer->dirty)
        return SHOAL_OK;
    SHOAL_TRY(status, settle(swap, buffer), done);
    buffer->writing = true;
    for (int32_t r = 0; r < swap->args.row_count; r++) {
        if (!(buffer->dirty & SHOALI_SWAP_ROW(r)))
            continue;
        const int64_t index = entry(swap, buffer->chunk, r);
        swap->hash[index] = shoali_hash64(row_memory(swap, buffer, r),
                                          (size_t)shoali_swap_chunk_bytes(swap, buffer->chunk));
        swap->written[index] = true;
        SHOAL_TRY(status, post(swap, buffer, r, SHOALI_IO_WRITE), done);
    }
    buffer->dirty = 0;
done:
    return status;
}

static shoal_status start_reads(struct shoali_swap *swap, struct shoali_swap_buffer *buffer,
                                uint32_t rows)
{
    shoal_status status = SHOAL_OK;
    for (int32_t r = 0; r < swap->args.row_count; r++) {
        if (!(rows & ~buffer->valid & SHOALI_SWAP_ROW(r)))
            continue;
        if (swap->written[entry(swap, buffer->chunk, r)]) {
            SHOAL_TRY(status, post(swap, buffer, r, SHOALI_IO_READ), done);
            continue;
        }
        memset(row_memory(swap, buffer, r), 0, (size_t)shoali_swap_stride(swap, buffer->chunk));
        buffer->valid |= SHOALI_SWAP_ROW(r);
    }
done:
    return status;
}

/* ---- which chunk is where ------------------------------------------------------------------- */

static struct shoali_swap_buffer *find(struct shoali_swap *swap, int32_t chunk)
{
    for (int32_t b = 0; b < swap->args.buffer_count; b++)
        if (swap->buffer[b].chunk == chunk)
            return &swap->buffer[b];
    return NULL;
}

/* How much would be lost: nothing < an old chunk < one being written < one that was asked for. */
static int cost(const struct shoali_swap *swap, const struct shoali_swap_buffer *buffer)
{
    if (buffer->wanted)
        return 3;
    if (buffer->dirty || busy(swap, buffer))
        return 2;
    return buffer->chunk >= 0;
}

static struct shoali_swap_buffer *cheapest(struct shoali_swap *swap, int at_most)
{
    struct shoali_swap_buffer *best = NULL;
    for (int32_t b = 0; b < swap->args.buffer_count; b++) {
        struct shoali_swap_buffer *buffer = &swap->buffer[b];
        if (buffer->held || cost(swap, buffer) > at_most)
            continue;
        if (!best || cost(swap, buffer) < cost(swap, best) ||
            (cost(swap, buffer) == cost(swap, best) && buffer->used < best->used))
            best = buffer;
    }
    return best;
}

/* Empties a buffer and gives it to a chunk. */
static shoal_status assign(struct shoali_swap *swap, struct shoali_swap_buffer *buffer,
                           int32_t chunk)
{
    shoal_status status;
    if (swap->open == buffer)
        swap->open = NULL;
    SHOAL_TRY(status, shoali_swap_write_back(swap, buffer), done);
    SHOAL_TRY(status, settle(swap, buffer), done);
    SHOAL_TRY(status, wait_for_copies(buffer), done);
    buffer->wanted = false;
    buffer->chunk = chunk;
    buffer->valid = 0;
done:
    return status;
}

shoal_status shoali_swap_prefetch(struct shoali_swap *swap, int32_t chunk, uint32_t rows)
{
    shoal_status status = SHOAL_OK;
    if (chunk < swap->args.resident_count || swap->args.meta || find(swap, chunk))
        return SHOAL_OK;
    struct shoali_swap_buffer *buffer = cheapest(swap, 2);
    if (!buffer)
        return SHOAL_OK;
    SHOAL_TRY(status, assign(swap, buffer, chunk), done);
    buffer->used = ++swap->clock;
    buffer->wanted = true;
    SHOAL_TRY(status, start_reads(swap, buffer, rows), done);
done:
    return status;
}

static shoal_status load(struct shoali_swap *swap, int32_t chunk, uint32_t rows,
                         struct shoali_swap_buffer **found)
{
    shoal_status status;
    struct shoali_swap_buffer *buffer = find(swap, chunk);
    if (!buffer) {
        buffer = cheapest(swap, 3);
        if (!buffer)
            return SHOAL_FAIL(SHOAL_EINTERNAL, "all %d buffers of the swap store `%s` are held",
                              (int)swap->args.buffer_count, swap->args.label);
        SHOAL_TRY(status, assign(swap, buffer, chunk), done);
    }
    SHOAL_TRY(status, settle(swap, buffer), done);
    SHOAL_TRY(status, start_reads(swap, buffer, rows), done);
    SHOAL_TRY(status, settle(swap, buffer), done);
    *found = buffer;
done:
    return status;
}

shoal_status shoali_swap_get(struct shoali_swap *swap, int32_t chunk, uint32_t rows,
                             void *address[SHOALI_SWAP_MAX_ROWS])
{
    shoal_status status = SHOAL_OK;
    struct shoali_swap_buffer *buffer = NULL;
    if (chunk < swap->args.resident_count) {
        for (int32_t r = 0; r < swap->args.row_count; r++)
            address[r] = swap->resident[r] + (size_t)swap->cut[chunk] * swap->args.item_bytes;
        return SHOAL_OK;
    }
    if (swap->args.meta) {
        for (int32_t r = 0; r < swap->args.row_count; r++)
            address[r] = swap->buffer[0].memory + shoali_swap_stride(swap, chunk) * r;
        return SHOAL_OK;
    }
    SHOAL_TRY(status, load(swap, chunk, rows, &buffer), done);
    SHOAL_TRY(status, wait_for_copies(buffer), done);
    buffer->wanted = false;
    buffer->held = true;
    buffer->used = ++swap->clock;
    for (int32_t r = 0; r < swap->args.row_count; r++)
        address[r] = row_memory(swap, buffer, r);
done:
    return status;
}

shoal_status shoali_swap_put(struct shoali_swap *swap, int32_t chunk, uint32_t dirty,
                             struct shoali_device_stream *stream)
{
    shoal_status status = SHOAL_OK;
    if (chunk < swap->args.resident_count || swap->args.meta)
        return SHOAL_OK;
    struct shoali_swap_buffer *buffer = find(swap, chunk);
    SHOAL_ASSERT(buffer && buffer->held);
    buffer->held = false;
    if (stream) {
        SHOAL_TRY(status, shoali_event_record(buffer->copied, stream), done);
        buffer->copying = true;
    }
    if (!dirty)
        return SHOAL_OK;
    buffer->dirty |= dirty;
    SHOAL_TRY(status, shoali_swap_write_back(swap, buffer), done);
    if (!swap->args.write_behind)
        SHOAL_TRY(status, settle(swap, buffer), done);
done:
    return status;
}

shoal_status shoali_swap_poll(struct shoali_swap *swap)
{
    shoal_status status = SHOAL_OK;
    bool complete;
    for (int32_t b = 0; swap->io && b < swap->args.buffer_count; b++)
        for (int32_t r = 0; r < swap->args.row_count; r++)
            if (swap->buffer[b].request[r])
                SHOAL_TRY(status, shoali_io_test(swap->buffer[b].request[r], &complete), done);
done:
    return status;
}

shoal_status shoali_swap_flush(struct shoali_swap *swap)
{
    shoal_status status = SHOAL_OK;
    swap->open = NULL;
    for (int32_t b = 0; swap->io && b < swap->args.buffer_count; b++) {
        SHOAL_TRY(status, shoali_swap_write_back(swap, &swap->buffer[b]), done);
        SHOAL_TRY(status, settle(swap, &swap->buffer[b]), done);
    }
done:
    return status;
}

void shoali_swap_free_buffers(struct shoali_swap *swap)
{
    for (int32_t b = 0; swap->buffer && swap->block && b < swap->args.buffer_count; b++) {
        struct shoali_swap_buffer *buffer = &swap->buffer[b];
        buffer->writing = true; /* nobody will read it: no checks */
        (void)settle(swap, buffer);
        (void)wait_for_copies(buffer);
        if (buffer->copied)
            shoali_event_destroy(buffer->copied);
        shoali_swap_free(swap, swap->block[b]);
    }
    shoali_free(swap->buffer);
    shoali_free(swap->block);
}
