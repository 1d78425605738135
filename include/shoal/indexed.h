/* indexed.h - inspects, writes and merges Megatron's data files P.bin and P.idx.
 *
 * Terms
 *   sequence  a list of tokens
 *   document  one or more sequences
 *   prefix    P, which names the two files
 *
 * A dataset reads the files for training: data.h, with prefixes as paths. A writer makes the same
 * bytes as Megatron's builder. It writes P.bin.tmp, P.idx.tmp and two lists, P.lengths.tmp and
 * P.documents.tmp. At the end it renames the first two, so P is complete or does not exist. Its
 * memory does not grow with the data.
 */
#ifndef SHOAL_INDEXED_H
#define SHOAL_INDEXED_H

#include "shoal/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The contents of a pair of files. */
typedef struct shoal_indexed_info {
    const char *dtype; /* of a token: "uint16", ...; static */
    int32_t token_width;
    int64_t sequence_count, document_count, token_count;
    int32_t shortest, longest; /* sequence, in tokens; 0 without sequences */
    int64_t index_bytes, token_bytes;
} shoal_indexed_info;

/* Opens P.idx and P.bin, checks the whole index against the sizes of both files, and describes
 * them. Cost: a pass over P.idx. SHOAL_ENOENT: a file is missing. SHOAL_EINVAL: a file has another
 * format or is damaged; the error says which file and where. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_indexed_inspect(const char *prefix,
                                                           shoal_indexed_info *info);

typedef struct shoal_index_writer shoal_index_writer;

/* Begins to write P. Tokens take two bytes each if vocab_size is below 65500, else four. *writer is
 * owned by the caller. SHOAL_EIO, SHOAL_EINVAL: a file cannot be created. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_index_writer_create(const char *prefix,
                                                               int64_t vocab_size,
                                                               shoal_index_writer **writer);
/* Removes unfinished files and frees the writer. NULL is fine. */
SHOAL_API void shoal_index_writer_destroy(shoal_index_writer *writer);
/* Appends a sequence to the open document. SHOAL_EINVAL: a token does not fit. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_index_writer_add(shoal_index_writer *writer,
                                                            const int32_t *tokens, int64_t count);
/* Ends the document. A document without sequences is empty. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_index_writer_end_document(shoal_index_writer *writer);
/* Appends all documents of another pair of files, which has the same token type. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_index_writer_append(shoal_index_writer *writer,
                                                               const char *prefix);
/* Completes both files and renames them to their final names. After it the writer can only be
 * destroyed. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_index_writer_finish(shoal_index_writer *writer);
/* Writes all documents of `prefixes`, in order, to `prefix`. They have one token type. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_indexed_merge(const char *const *prefixes, int32_t count,
                                                         const char *prefix);

#ifdef __cplusplus
}
#endif
#endif
