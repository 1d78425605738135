/* indexed.h - Megatron's data files: P.bin and P.idx, looked at, written and merged.
 *
 * A *sequence* is a list of tokens, a *document* one or more sequences, a *prefix* P names the two
 * files. Training from them is data.h's: a dataset whose paths are prefixes.
 *
 * A writer makes the bytes that Megatron's builder makes. It writes P.bin.tmp, P.idx.tmp and two
 * lists, P.lengths.tmp and P.documents.tmp, and renames the first two when it finishes, so that P
 * is whole or not there; its memory does not grow with the data.
 */
#ifndef SHOAL_INDEXED_H
#define SHOAL_INDEXED_H

#include "shoal/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a pair of files holds. */
typedef struct shoal_indexed_info {
    const char *dtype; /* of a token: "uint16", ...; static */
    int32_t token_width;
    int64_t sequence_count, document_count, token_count;
    int32_t shortest, longest; /* sequence, in tokens; 0 where there is none */
    int64_t index_bytes, token_bytes;
} shoal_indexed_info;

/* Opens P.idx and P.bin, checks all of the index against both files' sizes, and says what is in
 * them. Takes a pass over P.idx. SHOAL_ENOENT: a file is missing; SHOAL_EINVAL: a file is none of
 * this kind, or damaged: which one, and where. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_indexed_inspect(const char *prefix,
                                                              shoal_indexed_info *info);

typedef struct shoal_index_writer shoal_index_writer;

/* Begins to write P. Tokens take two bytes each when vocab_size is below 65500, else four.
 * *writer is owned. SHOAL_EIO, SHOAL_EINVAL: a file cannot be made there. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_index_writer_create(const char *prefix,
                                                               int64_t vocab_size,
                                                               shoal_index_writer **writer);
/* Removes what is not finished. NULL is fine. */
SHOAL_API void shoal_index_writer_destroy(shoal_index_writer *writer);
/* Appends a sequence to the document that is open. SHOAL_EINVAL: a token does not fit. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_index_writer_add(shoal_index_writer *writer,
                                                            const int32_t *tokens, int64_t count);
/* Ends the document; one without sequences is an empty document. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_index_writer_end_document(shoal_index_writer *writer);
/* Appends all documents of another pair of files, of the same token type. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_index_writer_append(shoal_index_writer *writer,
                                                               const char *prefix);
/* Completes both files and gives them their names. The writer can only be destroyed then. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_index_writer_finish(shoal_index_writer *writer);
/* Makes `prefix` of all documents of the others, in order; they must have one token type. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_indexed_merge(const char *const *prefixes, int32_t count,
                                                         const char *prefix);

/* ---- structs that grow ----------------------------------------------------------------------- */
/* The function behind the inline one above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_indexed_inspect_sized(const char *prefix,
                                                                 shoal_indexed_info *info,
                                                                 size_t info_size);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_indexed_inspect(const char *prefix,
                                                              shoal_indexed_info *info)
{
    return shoal_indexed_inspect_sized(prefix, info, sizeof *info);
}

#ifdef __cplusplus
}
#endif
#endif
