/* text_data - text files as tokens: the row of text in the table of data/data.h, and that of
 * tokenizers. Level L6, above data and tokenizer. An outer part: SHOAL_WITH_TOKENIZER.
 *
 *   files.h        the text files of a dataset: which there are, and whether they have changed
 *   text.c         reads them as a stream; the scan that comes before encoding
 *   text_kind.h    is a file with NUL bytes a text?
 *   text_jsonl.c   ... and the texts of JSON lines (jsonl.h), which may be compressed (gzip.h)
 *   token_file.h   the token cache: the file (token_read.c), its making (token_build.c), its place
 *                  and the waiting for others (token_cache.c)
 *   source.c       the row of text
 *   tokenizers.c   the row of tokenizers: the given one against that of data files
 */
#ifndef SHOALI_TEXT_DATA_H
#define SHOALI_TEXT_DATA_H

#include "data/data.h"
#include "text_data/files.h"
#include "tokenizer/tokenizer.h"

/* text.c: one file, piece by piece. The text of JSON lines is that of their keys, joined by
 * newlines within a record and between records (text_jsonl.c); it is never longer than these are,
 * whose file may be compressed (gzip.h). */
struct shoali_text_records;
#define SHOALI_TEXT_BYTES ((size_t)1 << 20)
struct shoali_text {
    const struct shoali_file *file;
    int descriptor;
    char *piece; /* owned, SHOALI_TEXT_BYTES */
    size_t have; /* bytes in it */
    bool end;    /* nothing follows them */
    int beat;    /* a file whose time is set as long as the reading goes on; -1 none */
    struct shoali_text_records *records; /* owned; NULL until JSON lines are read */
    struct shoali_gzip *gzip;            /* owned; NULL: the file is not compressed */
};
/* Reads on in JSON lines, up to a full piece or the end. SHOAL_EINVAL: FILE:LINE: what is wrong. */
SHOAL_CHECKED shoal_status shoali_text_next_records(struct shoali_text *text);
void shoali_text_begin_records(struct shoali_text *text);
void shoali_text_end_records(struct shoali_text *text);
/* Reads up to `room` bytes of the open file; 0: its end. */
SHOAL_CHECKED shoal_status shoali_text_read(struct shoali_text *text, char *to, size_t room,
                                            size_t *count);
SHOAL_CHECKED shoal_status shoali_text_init(struct shoali_text *text, int beat);
void shoali_text_fini(struct shoali_text *text);
/* SHOAL_END: it may not be read (skip it). SHOAL_EIO, also when the file has changed since
 * shoali_files_find; so does the last shoali_text_next. */
SHOAL_CHECKED shoal_status shoali_text_begin(struct shoali_text *text,
                                             const struct shoali_file *file);
/* Drops the first `used` bytes and reads on. */
SHOAL_CHECKED shoal_status shoali_text_next(struct shoali_text *text, size_t used);
/* Bytes of the piece that are whole UTF-8 sequences, if it is UTF-8: all of it at the end. */
size_t shoali_text_whole(const struct shoali_text *text);

/* Looks through all files: which ones are text, and the code points in them. */
struct shoali_scan {
    unsigned char *verdict; /* of each file: enum shoali_verdict_of_file */
    uint8_t *seen; /* a bit per code point, joining newlines included; NULL: not asked for */
    int32_t kept, skipped;
    int64_t bytes; /* of kept files and the newlines between them */
};
/* SHOAL_EINVAL: none is kept; JSON under another name; not UTF-8 where code points are asked
 * for. */
SHOAL_CHECKED shoal_status shoali_scan_init(struct shoali_scan *scan,
                                            const struct shoali_files *files, bool learns,
                                            int beat);
void shoali_scan_fini(struct shoali_scan *scan);

#endif
