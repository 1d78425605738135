/* inspect - what is inside of files, for people and programs. Level L10; the interface is
 * shoal/inspect.h.
 *
 * A file or folder becomes one JSON value (the description), and that becomes text:
 *
 *   inspect.c      the call: description, then text
 *   files.c        files: of tensors, of data, tokenizers; what a file is
 *   folders.c      folders: checkpoints of ours, of DeepSpeed, of the Hub, or just files
 *   values.c       values of a pickle as JSON
 *   statistics.c   numbers of a tensor, in pieces
 *   text.c         the description as lines
 *
 *   {"path", "kind", "facts": {WORD: value}, "files": [
 *      {"name", "kind", "bytes", "facts",
 *       "tensors": [{"name", "dtype", "shape", "bytes", "offset", "statistics"}],
 *       "values", "imports"}]}
 *
 * A member that says nothing is left out. `imports` are the names that a program which unpickles
 * would have imported. Lists of more than 64 plain values and texts of more than 300 bytes are cut,
 * and the cut is said; tensors never are.
 */
#ifndef SHOALI_INSPECT_H
#define SHOALI_INSPECT_H

#include "base/base.h"
#include "foreign/pickle.h"
#include "shoal/inspect.h"

struct json_t;

struct shoali_inspect {
    const char *pattern; /* of tensors' names; NULL: all */
    bool statistics;
};

/* All functions that give a description: *out is owned (json_decref). */

/* One plain file; `name` is what the description calls it. */
SHOAL_CHECKED shoal_status shoali_inspect_file(const struct shoali_inspect *inspect,
                                               const char *path, const char *name,
                                               struct json_t **out);
SHOAL_CHECKED shoal_status shoali_inspect_folder(const struct shoali_inspect *inspect,
                                                 const char *path, struct json_t **out);
/* PREFIX.bin with PREFIX.idx. */
SHOAL_CHECKED shoal_status shoali_inspect_indexed(const char *prefix, const char *name,
                                                  struct json_t **out);
bool shoali_inspect_ends_with(const char *text, const char *end);

SHOAL_CHECKED shoal_status shoali_inspect_values(const struct shoali_value *root,
                                                 struct json_t **out);
/* Text that may hold any bytes, as JSON; at most 300 of them. */
struct json_t *shoali_inspect_text(const char *text, int64_t bytes);
SHOAL_CHECKED shoal_status shoali_inspect_statistics(struct shoali_tensor_file *file,
                                                     const struct shoali_file_tensor *tensor,
                                                     struct json_t **out);

/* Lines of a description. */
SHOAL_CHECKED shoal_status shoali_inspect_print(const struct json_t *description,
                                                struct shoali_str *out);

#endif
