/* preprocess.h - tokenizes JSON lines, compressed or not, into Megatron's data files.
 *
 * Each record gives one document for each key. Several threads encode, and the result is written in
 * the order of the input. The files have the same bytes for any number of threads and of
 * interruptions.
 *
 * Files of the key "text"
 *   PREFIX_text_document.bin, .idx    tokens and index (indexed.h)
 *   PREFIX_text_document.tokens.json  which tokenizer made them
 *   ....tmp                           any of these while it is unfinished
 *   PREFIX.preprocess                 how far the input was read
 *
 * After an interruption the same call continues from there. Inputs that have changed are read from
 * the beginning.
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

/* Progress of this call. text_bytes counts the input. */
typedef void (*shoal_preprocess_progress)(void *user, int64_t documents, int64_t text_bytes,
                                          double seconds);

typedef struct shoal_preprocess_args {
    /* Files (NAME.gz: compressed), patterns ("part-*.jsonl") or "-" (standard input). */
    const char *const *inputs;
    int32_t input_count;
    const char *output_prefix;
    const char *const *json_keys; /* none: "text" */
    int32_t json_key_count;
    const shoal_tokenizer *use_tokenizer; /* borrowed for the call; NULL: made by name */
    /* NULL: "byte". "char" learns from the texts in an additional first pass. */
    const char *tokenizer;
    int32_t workers; /* threads that encode; 0: one per core */
    bool append_eod; /* documents with tokens end with eod_token */
    bool eod_given;  /* else the tokenizer's own token */
    int32_t eod_token;
    int64_t log_interval;               /* documents between two calls of `progress`; 0: 1000 */
    shoal_preprocess_progress progress; /* NULL: none; called by the calling thread */
    void *user;
    /* A sequence is a sentence, and the files are PREFIX_text_sentence.bin and so on.
     * keep_newlines: the space after a sentence belongs to it (Megatron --split-sentences,
     * --keep-newlines). */
    bool split_sentences, keep_newlines;
} shoal_preprocess_args;

typedef struct shoal_preprocess_info {
    int64_t documents;                        /* records */
    int64_t tokens;                           /* of all keys */
    int64_t text_bytes;                       /* input, that of interrupted calls included */
    int64_t resumed_documents, resumed_bytes; /* part of interrupted calls */
    double seconds;                           /* of this call */
} shoal_preprocess_info;

/* Tokenizes the inputs. Not collective; blocks. `info` may be NULL. SHOAL_EINVAL: a wrong record
 * ("FILE:LINE: ..."), or wrong arguments. SHOAL_EIO: no space; the same call continues later.
 * SHOAL_EEXIST: another process is making the same files. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_preprocess(const shoal_preprocess_args *args,
                                                      shoal_preprocess_info *info);

#ifdef __cplusplus
}
#endif
#endif
