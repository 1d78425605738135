/* foreign - files and checkpoints of other programs: torch, pickle, numpy, DeepSpeed.
 * Level L9, above engine. An outer part: SHOAL_WITH_FOREIGN. Its rows stand in the tables of
 * formats/formats.h and engine/foreign_checkpoint.h.
 *
 *   zip.c             the directory of a zip archive, zip64 too; members that are stored as they
 *                     are
 *   pickle.h, .c      a pickle (protocols 2 to 5) as values: pickle_value.c makes and reads them,
 *                     pickle_call.c knows what calls mean, pickle_tensors.c names the tensors
 *   torch.c           torch.save's files: archives and the form before PyTorch 1.6
 *   npy.c             numpy's .npy, and the members of .npz
 *   torch_write.h     archives of torch.save, written; pickling.c: their pickles
 *   deepspeed/        DeepSpeed's checkpoints: read, loaded into an engine, their weights as those
 *                     of a folder, written
 *
 * Nothing that a file says is executed. A pickle is a program for a machine that imports and calls
 * what it names; ours knows a short list of calls that make tensors and plain values, does these
 * itself, and keeps every other call as an opaque value that remembers its name and arguments. So a
 * hostile file can be refused or look odd, and no more.
 */
#ifndef SHOALI_FOREIGN_H
#define SHOALI_FOREIGN_H

#include "foreign/pickle.h"

extern const struct shoali_tensor_format shoali_format_zip, shoali_format_pickle, shoali_format_npy;

/* ---- archives (zip.c) ----------------------------------------------------------------------- */

struct shoali_zip_entry {
    const char *name;
    int64_t header, bytes; /* of the member's own header; of its content */
    uint16_t method;       /* 0: as it is */
};
struct shoali_zip {
    const struct shoali_input *input;
    struct shoali_zip_entry *entry; /* in the archive's order */
    const struct shoali_zip_entry **sorted;
    int32_t count;
};
/* Reads the directory. */
SHOAL_CHECKED shoal_status shoali_zip_open(const struct shoali_input *input,
                                           struct shoali_arena *arena, struct shoali_zip *zip);
/* NULL: none. */
const struct shoali_zip_entry *shoali_zip_find(const struct shoali_zip *zip, const char *name);
/* The first byte of a member's content, all of which lies in the file. SHOAL_EINVAL: it is
 * compressed, or its header disagrees with the directory. */
SHOAL_CHECKED shoal_status shoali_zip_locate(const struct shoali_zip *zip,
                                             const struct shoali_zip_entry *entry, int64_t *at);

/* ---- tensors of a view ---------------------------------------------------------------------- */

/* pickle_tensors.c: those in the view's root, whose storages have their places. */
SHOAL_CHECKED shoal_status shoali_pickle_list_tensors(struct shoali_tensor_file *file);

/* Text in which what a terminal would obey, and what is no text, is spelled out. */
enum { SHOALI_PRINTABLE_BYTES = 1000 };
struct shoali_printable {
    char text[SHOALI_PRINTABLE_BYTES + 64];
    size_t length;
};
/* Nothing where it is full. */
void shoali_printable_append(struct shoali_printable *name, const char *text, int64_t bytes);

/* npy.c: whether a member of an archive is an array; all arrays of an archive. */
bool shoali_npz_has(const struct shoali_zip_entry *entry);
SHOAL_CHECKED shoal_status shoali_npz_open(struct shoali_tensor_file *file,
                                           const struct shoali_zip *zip);

#endif
