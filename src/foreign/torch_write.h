/* torch_write - archives as torch.save makes them, written in one pass.
 *
 *   shoali_torch_writer_open      PATH, with what the pickle says
 *   shoali_torch_writer_begin     the next storage, in the order in which the pickle names them
 *   shoali_torch_writer_put       its bytes
 *   shoali_torch_writer_finish    the directory; on disk
 *
 * The pickle is built first, by the functions of shoali_pickling: plain values, and tensors that
 * are only described. It uses protocol 2 and calls nothing that torch.load(weights_only=True)
 * refuses. Members of the archive are stored as they are, with sizes of 64 bits, and their data
 * begins at multiples of 64 bytes, so that torch.load(mmap=True) can map them.
 */
#ifndef SHOALI_TORCH_WRITE_H
#define SHOALI_TORCH_WRITE_H

#include "formats/formats.h"

/* ---- the pickle ---- */

/* Zero-initialise; `failed` of text sticks when memory ran out. One value after the other; items of
 * a dict are key, value, shoali_pickling_item. */
struct shoali_pickling {
    struct shoali_str text;
    int64_t storages; /* so far */
};
void shoali_pickling_begin(struct shoali_pickling *pickling);
void shoali_pickling_end(struct shoali_pickling *pickling);
void shoali_pickling_fini(struct shoali_pickling *pickling);
void shoali_pickling_none(struct shoali_pickling *pickling);
void shoali_pickling_bool(struct shoali_pickling *pickling, bool truth);
void shoali_pickling_int(struct shoali_pickling *pickling, int64_t number);
void shoali_pickling_real(struct shoali_pickling *pickling, double number);
void shoali_pickling_text(struct shoali_pickling *pickling, const char *text);
void shoali_pickling_dict(struct shoali_pickling *pickling); /* empty */
void shoali_pickling_list(struct shoali_pickling *pickling); /* empty */
/* Puts the two values above a dict into it. */
void shoali_pickling_item(struct shoali_pickling *pickling);
/* Puts the value above a list into it. */
void shoali_pickling_append(struct shoali_pickling *pickling);
/* torch.Size. */
void shoali_pickling_size(struct shoali_pickling *pickling, const shoal_shape *shape);
/* A tensor of a storage of its own, the next one. SHOAL_F32, SHOAL_BF16, SHOAL_F16. */
void shoali_pickling_tensor(struct shoali_pickling *pickling, shoal_dtype dtype,
                            const shoal_shape *shape);
/* KEY and a plain value, as an item. */
void shoali_pickling_int_item(struct shoali_pickling *pickling, const char *key, int64_t number);
void shoali_pickling_text_item(struct shoali_pickling *pickling, const char *key, const char *text);

/* ---- the archive ---- */

struct shoali_torch_member {
    char name[40];
    int64_t header, bytes;
    uint32_t crc;
};
struct shoali_torch_writer {
    char *path; /* owned */
    int descriptor;
    int64_t at;
    struct shoali_torch_member *member; /* owned */
    int64_t count, capacity;
    int64_t left, storages; /* bytes of the open member; storages begun */
    char *buffer;           /* owned */
    int64_t filled;
};
/* `close` in any case. */
SHOAL_CHECKED shoal_status shoali_torch_writer_open(struct shoali_torch_writer *writer,
                                                    const char *path,
                                                    const struct shoali_pickling *pickling);
SHOAL_CHECKED shoal_status shoali_torch_writer_begin(struct shoali_torch_writer *writer,
                                                     int64_t bytes);
SHOAL_CHECKED shoal_status shoali_torch_writer_put(struct shoali_torch_writer *writer,
                                                   const void *data, int64_t bytes);
SHOAL_CHECKED shoal_status shoali_torch_writer_finish(struct shoali_torch_writer *writer);
void shoali_torch_writer_close(struct shoali_torch_writer *writer);

#endif
