/* blocks.c - requests become blocks, and outcomes of blocks become outcomes of requests. */
#include "io/backend.h"

#include <errno.h>

/* Fills a block from the first pending request, which leaves the list with its last block. */
static void cut(struct shoali_io *io, struct shoali_io_block *block)
{
    struct shoali_io_request *request = io->pending;
    const size_t at = request->cut, bulk_end = request->head + request->bulk;
    const size_t end = at < request->head ? request->head
                       : at < bulk_end    ? bulk_end
                                          : request->bytes;
    block->request = request;
    block->memory = request->memory + at;
    block->offset = request->offset + (int64_t)at;
    block->bytes = end - at < io->args.block_bytes ? end - at : io->args.block_bytes;
    block->direct = at >= request->head && at < bulk_end;
    block->fd = block->direct ? request->file->direct_fd : request->file->fd;
    block->asked = request->halve ? (block->bytes + 1) / 2 : block->bytes;
    request->halve = false;
    request->cut += block->bytes;
    request->in_flight++;
    if (request->cut == request->bytes) {
        io->pending = request->next_pending;
        if (!io->pending)
            io->pending_end = &io->pending;
    }
}

struct shoali_io_block *shoali_io_take(struct shoali_io *io)
{
    struct shoali_io_block *block = io->again;
    if (block) {
        io->again = block->next;
        return block;
    }
    if (!io->pending || !io->free_blocks || (!io->args.overlap_events && !io->batch_open))
        return NULL;
    block = io->free_blocks;
    io->free_blocks = block->next;
    cut(io, block);
    io->in_flight++;
    return block;
}

/* The rest of a failed request is not started. */
static void fail(struct shoali_io *io, const struct shoali_io_block *block, int error)
{
    struct shoali_io_request *request = block->request;
    if (!request->error) {
        request->error = error;
        request->error_offset = block->offset;
    }
    if (request->cut == request->bytes)
        return;
    request->cut = request->bytes;
    struct shoali_io_request **link = &io->pending;
    while (*link != request)
        link = &(*link)->next_pending;
    *link = request->next_pending;
    if (!*link)
        io->pending_end = link;
}

static void release(struct shoali_io *io, struct shoali_io_block *block)
{
    struct shoali_io_request *request = block->request;
    block->next = io->free_blocks;
    io->free_blocks = block;
    io->batch_open = --io->in_flight == 0;
    request->in_flight--;
}

static void go_on(struct shoali_io *io, struct shoali_io_block *block)
{
    block->asked = block->bytes;
    block->next = io->again;
    io->again = block;
}

static void make_buffered(struct shoali_io_block *block)
{
    block->direct = false;
    block->fd = block->request->file->fd;
}

void shoali_io_finish(struct shoali_io *io, struct shoali_io_block *block, int64_t result)
{
    const bool reads = block->request->kind == SHOALI_IO_READ;
    if (block->request->interrupt) {
        block->request->interrupt = false;
        result = -EINTR;
    }
    if (result == -EINTR || result == -EAGAIN) {
        go_on(io, block);
        return;
    }
    if (result == -EINVAL && block->direct) { /* a device with larger sectors than ours */
        make_buffered(block);
        go_on(io, block);
        return;
    }
    if (result <= 0) {
        fail(io, block, result < 0 ? (int)-result : reads ? SHOALI_IO_END_OF_FILE : ENOSPC);
        release(io, block);
        return;
    }
    block->memory += result;
    block->offset += result;
    block->bytes -= (size_t)result;
    if (block->bytes == 0) {
        release(io, block);
        return;
    }
    if (block->direct && block->offset % SHOALI_IO_ALIGN)
        make_buffered(block);
    go_on(io, block);
}
