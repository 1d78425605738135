/* preprocess.h - JSON lines, compressed or not, to Megatron's data files.
 *
 * Each record gives a document of tokens for each key. Several threads encode, the result is
 * written in the order of the input: the files have the same bytes for any number of threads, and
 * after any number of interruptions.
 *
 * The files of the key "text" are PREFIX_text_document.bin and .idx (indexed.h), and
 * PREFIX_text_document.tokens.json, which says which tokenizer made them. While they are made they
 * end in .tmp, and PREFIX.preprocess says how far the input was read: the same call goes on from
 * there when the one before was killed. Inputs that changed meanwhile are read from the beginning.
 */
#ifndef SHOAL_PREPROCESS_H
#define SHOAL_PREPROCESS_H

#include "shoal/data.h"
#include "shoal/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What this call has done so far; text_bytes counts the input. */
typedef void (*shoal_preprocess_progress)(void *user, int64_t documents, int64_t text_bytes,
                                          double seconds);

typedef struct shoal_preprocess_args {
    const char *const *inputs; /* files (NAME.gz: compressed) or patterns ("part-*.jsonl"), "-":
                                  standard input */
    int32_t input_count;
    const char *output_prefix;
    const char *const *json_keys; /* none: "text" */
    int32_t json_key_count;
    const shoal_tokenizer *use_tokenizer; /* borrowed for the call; NULL: made by name */
    const char *tokenizer; /* NULL: "byte"; "char" learns from the texts in a pass before */
    int32_t workers;       /* threads that encode; 0: as many as cores */
    bool append_eod;       /* documents that have tokens end with eod_token */
    bool eod_given;        /* else the tokenizer's own */
    int32_t eod_token;
    int64_t log_interval;               /* documents between two calls of `progress`; 0: 1000 */
    shoal_preprocess_progress progress; /* NULL: none; called by the calling thread */
    void *user;
    /* A sequence is a sentence, and the files are PREFIX_text_sentence.bin and so on; keep_newlines:
     * the space behind a sentence belongs to it (Megatron --split-sentences, --keep-newlines). */
    bool split_sentences, keep_newlines;
} shoal_preprocess_args;

typedef struct shoal_preprocess_info {
    int64_t documents;  /* records */
    int64_t tokens;     /* of all keys */
    int64_t text_bytes; /* input that was read, that of the calls before included */
    int64_t resumed_documents, resumed_bytes; /* of the calls before */
    double seconds;                           /* of this call */
} shoal_preprocess_info;

/* Not collective; blocking. SHOAL_EINVAL: a record that is none ("FILE:LINE: ..."), or arguments;
 * SHOAL_EIO: no space, after which the same call goes on; SHOAL_EEXIST: another process is making
 * the same files. info may be NULL. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_preprocess(const shoal_preprocess_args *args,
                                                         shoal_preprocess_info *info);

/* ---- structs that grow ----------------------------------------------------------------------- */
/* The function behind the inline one above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_preprocess_sized(const shoal_preprocess_args *args,
                                                            size_t args_size,
                                                            shoal_preprocess_info *info,
                                                            size_t info_size);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_preprocess(const shoal_preprocess_args *args,
                                                         shoal_preprocess_info *info)
{
    return shoal_preprocess_sized(args, sizeof *args, info, info ? sizeof *info : 0);
}

#ifdef __cplusplus
}
#endif
#endif
