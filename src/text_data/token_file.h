/* token_file - the file that holds the tokens of a text, and how it comes to be.
 *
 * Layout, in the byte order of the machine (another one's file is made again):
 *
 *   header       4096 bytes: struct shoali_token_header
 *   tokenizer    its JSON
 *   verdicts     a byte of each text file: read, empty, binary, not to be read (files.h)
 *   histogram    row r: how often each token occurs in the first (r + 1) * block_tokens tokens, 64
 *                bits each, and xxh3 of that. Entropies need two rows and less than two blocks of
 *                tokens instead of a pass
 *   tokens       1, 2 or 4 bytes each
 *
 * A file is named after what it was made from (paths and tokenizer) and is valid only while each
 * text file still has the size, inode and times of then. It is opened in O(text files): header,
 * tokenizer and size are verified with checksums, the tokens are not; a token outside the
 * vocabulary is still never returned, and a histogram row that is damaged is counted again. What
 * does not verify is made again.
 *
 * Making it. One process holds a lock (flock of FILE.lock, which dies with it), the others wait.
 * The text is read twice as a stream: once to tell text from other files and to learn the
 * vocabulary, once to encode; FILE.tmp is written, flushed, made read-only and renamed, so that
 * FILE is whole or not there at all, at whatever moment the power fails. Without locks (some
 * network file systems) temporary names differ and the last rename wins: they all hold the same.
 *
 * Trust: a file counts only when it is a plain file that this user or root owns and that nobody
 * else can write (mode 0400). Deleted while in use it lives on until the last reader closes it.
 * Truncated or written to by its owner while in use, readers get an error that names it, or other
 * tokens: a run that must exclude that has a cache folder of its own.
 */
#ifndef SHOALI_TOKEN_FILE_H
#define SHOALI_TOKEN_FILE_H

#include "data/cache_place.h"
#include "text_data/text_data.h"

#define SHOALI_TOKEN_FILE_SUFFIX ".shoal-tokens"
#define SHOALI_TOKEN_HEADER_BYTES 4096
#define SHOALI_TOKEN_VERSION 3u
#define SHOALI_TOKEN_BYTE_ORDER 0x01020304u

struct shoali_token_header {
    char magic[8]; /* "SHOALTOK" */
    uint32_t version, byte_order;
    uint64_t hash;    /* of this struct with 0 here */
    uint64_t made_of; /* paths and tokenizer asked for: shoali_token_request */
    uint64_t files;   /* state of the text files: shoali_files_state */
    uint64_t tokens;  /* xxh3 of all tokens */
    uint64_t json;    /* xxh3 of the tokenizer's JSON */
    int64_t file_bytes, json_at, json_bytes, rows_at, row_count, tokens_at, token_count,
        block_tokens;
    int32_t vocab_size, width, file_count, skipped_count;
    uint64_t verdicts; /* xxh3 of the verdicts */
    int64_t verdicts_at, verdict_count;
};

/* What a token file is made of, and where it is to be. */
struct shoali_token_request {
    const struct shoali_files *files;
    const char *tokenizer;                /* NULL: byte */
    const shoal_tokenizer *use_tokenizer; /* NULL: learn it */
    const char *path;                     /* FILE */
    uint64_t made_of;
    int beat; /* a file whose time says that the making goes on; -1 none */
};

/* token_build.c: writes `temporary` (exclusively), flushed and complete. */
SHOAL_CHECKED shoal_status shoali_token_build(const struct shoali_token_request *request,
                                              const char *temporary);

/* token_cache.c: opens what is valid, else makes it, in the folder given (NULL: the places of
 * shoal/data.h). *tokenizer is owned. */
struct shoali_token_opened {
    struct shoali_token_source *source;
    shoal_tokenizer *tokenizer;
    int32_t file_count;
    unsigned char *verdict; /* owned: of each file, enum shoali_verdict_of_file */
    char *report;           /* owned: shoali_files_report; of shoali_token_cache_open alone */
};
SHOAL_CHECKED shoal_status shoali_token_cache_open(const shoal_dataset_args *args,
                                                   struct shoali_token_opened *opened);
/* SHOAL_END: there is no valid one, and none was made. */
SHOAL_CHECKED shoal_status shoali_token_cache_find(const shoal_dataset_args *args,
                                                   struct shoali_token_opened *opened);
/* token_read.c: one file. SHOAL_END: it is absent, stale, damaged or not to be trusted. */
SHOAL_CHECKED shoal_status shoali_token_file_open(const struct shoali_token_request *request,
                                                  struct shoali_token_opened *opened);
/* Of an open source, its name left out. */
size_t shoali_token_file_host_bytes(void);
void shoali_token_opened_fini(struct shoali_token_opened *opened);

#endif
