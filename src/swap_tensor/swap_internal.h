/* swap_internal - the object behind swap_tensor.h.
 *
 *   swap.c         creation, resident rows, copies of elements
 *   swap_buffer.c  buffers: which chunk is where, reads, checks, writes
 *   swap_file.c    the file and its place in the file system
 */
#ifndef SHOALI_SWAP_INTERNAL_H
#define SHOALI_SWAP_INTERNAL_H

#include "swap_tensor/swap_tensor.h"

struct shoali_swap_buffer {
    char *memory;   /* aligned to SHOALI_IO_ALIGN; rows stride(chunk) apart */
    int32_t chunk;  /* -1: none */
    uint32_t valid; /* rows whose content is the chunk's */
    uint32_t dirty; /* rows that are newer than the file */
    bool held, wanted, writing, copying;
    uint64_t used; /* time of the last use, for choosing what to drop */
    struct shoali_io_request *request[SHOALI_SWAP_MAX_ROWS];
    struct shoali_event *copied; /* passes when the stream no longer reads the buffer */
};

struct shoali_swap {
    struct shoali_swap_args args;
    int64_t *cut;    /* [chunk_count + 1], elements */
    int64_t *offset; /* [chunk_count + 1], bytes in the file; resident ones take none */
    char *resident[SHOALI_SWAP_MAX_ROWS];

    struct shoali_io *io; /* NULL: everything is resident */
    struct shoali_io_file *file;
    uint64_t *hash; /* [chunk_count * row_count] */
    bool *written;  /* [chunk_count * row_count] false: zeros that were never written */

    struct shoali_swap_buffer *buffer;
    void **block; /* [buffer_count] as allocated */
    size_t block_bytes;
    struct shoali_swap_buffer *open; /* the last one that shoali_swap_write changed */
    uint64_t clock;
    struct shoali_swap_counters counters;
};

static inline int64_t shoali_swap_chunk_bytes(const struct shoali_swap *swap, int32_t chunk)
{
    return (swap->cut[chunk + 1] - swap->cut[chunk]) * (int64_t)swap->args.item_bytes;
}
/* Bytes from one row of a chunk to the next, in the file and in a buffer. */
static inline int64_t shoali_swap_stride(const struct shoali_swap *swap, int32_t chunk)
{
    return (shoali_swap_chunk_bytes(swap, chunk) + SHOALI_IO_ALIGN - 1) / SHOALI_IO_ALIGN *
           SHOALI_IO_ALIGN;
}

/* ---- swap.c ---- */
/* Pinned or plain host memory, as the store was told. */
SHOAL_CHECKED shoal_status shoali_swap_alloc(struct shoali_swap *swap, size_t bytes, void **memory);
void shoali_swap_free(struct shoali_swap *swap, void *memory);

/* ---- swap_file.c ---- */
/* Makes the file of `bytes`, and its folder. */
SHOAL_CHECKED shoal_status shoali_swap_open_file(struct shoali_swap *swap, int64_t bytes);

/* ---- swap_buffer.c ---- */
SHOAL_CHECKED shoal_status shoali_swap_make_buffers(struct shoali_swap *swap);
void shoali_swap_free_buffers(struct shoali_swap *swap);
/* Starts writing what is dirty. */
SHOAL_CHECKED shoal_status shoali_swap_write_back(struct shoali_swap *swap,
                                                  struct shoali_swap_buffer *buffer);

#endif
