/* swap_tensor - flat shards outside the device: in host memory, or in a file with a few buffers.
 * Level L5.
 *
 * WORDS
 *   store     `row_count` arrays of equally many elements: masters and optimizer states, or
 *             weights.
 *   chunk     a run of elements of all rows: what is moved at once. Chunks follow each other
 *             without gaps.
 *   resident  the first resident_count chunks stay in host memory; the others live in the file.
 *   buffer    host memory for one chunk of all rows that lives in the file. A chunk stays in its
 *             buffer until another one needs it, so that what is used twice in a row is read
 *             once.
 *
 * USE  prefetch starts a read; get waits for it and gives one address per row; the caller reads and
 * writes there; put says which rows changed and gives the buffer back. All addresses are the
 * host's. One chunk may be held at a time per buffer; a store with one buffer holds one chunk.
 *
 * FILE  In folder `path`, chunk after chunk, each row of a chunk padded to SHOALI_IO_ALIGN. Its
 * space is reserved when the store is made: a full disk is an error then, not in the middle of a
 * step. It has no name, so that a killed rank leaves nothing behind; messages call it
 * shoal_rank<rank>_<label>.swp. Rows that were never written are zero and are not read.
 *
 * CHECKS  The xxh3 hash of each row of each chunk is kept in memory and compared after each read,
 * before the caller sees the data: SHOAL_ECORRUPT names file, chunk and row. Errors of a write that
 * was left behind come back from the next call that needs its buffer, or from flush.
 *
 * THREADS  A store belongs to one thread at a time.
 *
 * Same thing in DeepSpeed: AsyncPartitionedParameterSwapper, PipelinedOptimizerSwapper.
 */
#ifndef SHOALI_SWAP_TENSOR_H
#define SHOALI_SWAP_TENSOR_H

#include "accelerator/accelerator.h"
#include "io/io.h"

#define SHOALI_SWAP_MAX_ROWS 8

struct shoali_swap;

struct shoali_swap_args {
    struct shoali_device *device; /* data is copied to and from it; pinned memory is its own */
    struct shoali_device *host;   /* a cpu device, for memory that is not pinned */
    bool pin;
    bool meta;         /* a plan: memory and file are counted, nothing is moved */
    const char *label; /* of the folder and in messages: "optimizer" */
    int32_t rank;
    int32_t row_count;
    const char *const *row_name; /* borrowed for the store's life */
    size_t item_bytes;
    int32_t chunk_count, resident_count;
    const int64_t *cut; /* [chunk_count + 1], copied: chunk c is elements [cut[c], cut[c+1]) */
    /* For chunks that are not resident: */
    const char *path; /* an existing folder, or one whose parent exists */
    int32_t buffer_count;
    bool write_behind; /* put does not wait for its write */
    struct shoali_io_args io;
};
/* Makes the folder if only that is missing, and looks whether files can be made there.
 * SHOAL_EINVAL: not a folder to write to. */
SHOAL_CHECKED shoal_status shoali_swap_check_folder(const char *path);
/* Reserves memory and file space; all elements are zero. */
SHOAL_CHECKED shoal_status shoali_swap_create(const struct shoali_swap_args *args,
                                              struct shoali_swap **swap);
/* Waits for what is under way and frees everything. NULL is fine. */
void shoali_swap_destroy(struct shoali_swap *swap);

/* `rows` is a set of bits, row 0 the lowest. */
#define SHOALI_SWAP_ROW(row) (1u << (row))

/* Starts reading rows of a chunk into a buffer that nobody waits for; does nothing when there is
 * none or when the chunk is in memory. */
SHOAL_CHECKED shoal_status shoali_swap_prefetch(struct shoali_swap *swap, int32_t chunk,
                                                uint32_t rows);
/* Waits for rows of a chunk and holds it. address[r] is of row r for every row of the set. */
SHOAL_CHECKED shoal_status shoali_swap_get(struct shoali_swap *swap, int32_t chunk, uint32_t rows,
                                           void *address[SHOALI_SWAP_MAX_ROWS]);
/* Gives a held chunk back and writes the rows of `dirty`. `stream`: work that still reads the
 * addresses was posted there; NULL: none. */
SHOAL_CHECKED shoal_status shoali_swap_put(struct shoali_swap *swap, int32_t chunk, uint32_t dirty,
                                           struct shoali_device_stream *stream);
/* Lets reads and writes under way go on; call it now and then during a long computation. */
SHOAL_CHECKED shoal_status shoali_swap_poll(struct shoali_swap *swap);
/* Waits until everything is in the file. */
SHOAL_CHECKED shoal_status shoali_swap_flush(struct shoali_swap *swap);

/* Copy elements of one row from and to ordinary memory. Writes that follow each other in a chunk
 * become one. */
SHOAL_CHECKED shoal_status shoali_swap_read(struct shoali_swap *swap, int32_t row, int64_t first,
                                            int64_t count, void *out);
SHOAL_CHECKED shoal_status shoali_swap_write(struct shoali_swap *swap, int32_t row, int64_t first,
                                             int64_t count, const void *in);

/* host_bytes: resident rows and buffers; file_bytes: the file's size; the others since creation. */
struct shoali_swap_counters {
    int64_t host_bytes, file_bytes, read_bytes, written_bytes, read_count, written_count;
    int64_t wait_ns; /* the caller stood still */
};
void shoali_swap_get_counters(const struct shoali_swap *swap,
                              struct shoali_swap_counters *counters);

#endif
