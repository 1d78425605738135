/* data - text files, sampling. Level L5, knows base and tokenizer; the interface
 * is shoal/data.h.
 *
 *   files.c        finds the text files of a dataset, and says whether they have changed
 *   text.c         reads them as a stream; the scan that comes before encoding
 *   text_jsonl.c   ... and the texts of JSON lines (jsonl.h), which may be compressed (gzip.h)
 *   token_source.h where tokens come from: a table of functions
 *   token_mock.c   random tokens
 *   token_file.h   the token cache: the file (token_read.c), its making (token_build.c), its place
 *                  and the waiting for others (token_cache.c)
 *   dataset.c      split, unigram entropy, fingerprint
 *   indexed/       Megatron's data files and the order of their samples (indexed.h)
 *   preprocess/    JSON lines to such files (preprocess.h)
 *   cache_place.h  where cached files are kept, and the lock under which they are made
 *   masked.h       samples of masked tokens; of random ones: masked_mock.c
 *   loader.c       the pure function (seed, step, micro) -> samples
 *   prefetch.c     a thread and a bounded ring in front of that function
 *
 * This header is for these files alone.
 */
#ifndef SHOALI_DATA_H
#define SHOALI_DATA_H

#include "base/base.h"
#include "shoal/data.h"
#include "tokenizer/tokenizer.h"

/* files.c */
struct shoali_file {
    const char *path; /* arena */
    const char *name; /* below the path that was given; "" when it is that path */
    int64_t bytes, modified_ns, changed_ns;
    uint64_t inode;
    bool readable, compressed;
    const struct shoali_json_keys
        *records; /* JSON lines, and the keys of their texts; NULL: text */
};
struct shoali_json_keys {
    const char *const *key; /* borrowed */
    int32_t count;
};
struct shoali_files {
    struct shoali_arena arena;
    struct shoali_file *file;
    int32_t count;
    int64_t bytes;
    const char *first_path; /* as given; borrowed */
    uint64_t given;         /* hash of the given paths, made absolute, and of the keys */
    struct shoali_json_keys keys;
};
/* All regular files of the arguments' paths, in order; `files` stays where it is. SHOAL_EINVAL: a
 * path that is none. */
SHOAL_CHECKED shoal_status shoali_files_find(const struct shoal_dataset_args *args,
                                             struct shoali_files *files);
void shoali_files_fini(struct shoali_files *files);
/* Differs as soon as a file was written, replaced, added, removed or became readable. */
uint64_t shoali_files_state(const struct shoali_files *files);

/* pread of everything; false with errno, 0 for bytes that are not there. */
bool shoali_pread(int descriptor, void *to, size_t bytes, int64_t at);

/* text.c: one file, piece by piece. The text of JSON lines is that of their keys, joined by newlines
 * within a record and between records (text_jsonl.c); it is never longer than these are, whose file
 * may be compressed (gzip.h). */
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
    bool *keep;    /* of each file; empty ones are not kept, and not skipped */
    uint8_t *seen; /* a bit per code point, joining newlines included; NULL: not asked for */
    int32_t kept, skipped;
    int64_t bytes; /* of kept files and the newlines between them */
};
/* SHOAL_EINVAL: none is kept; not UTF-8 where code points are asked for. */
SHOAL_CHECKED shoal_status shoali_scan_init(struct shoali_scan *scan,
                                            const struct shoali_files *files, bool learns,
                                            int beat);
void shoali_scan_fini(struct shoali_scan *scan);

/* dataset.c: NULL for text and mock data. */
struct shoali_indexed_data;
const struct shoali_indexed_data *shoali_dataset_indexed(const struct shoal_dataset *dataset);

/* loader.c: the pure function, used by the caller and by the prefetch thread. */
#define SHOALI_ARRAYS_MAX 5
struct shoali_samples;
struct shoali_masked;
struct shoali_loader_order {
    struct shoal_loader_args args;
    struct shoali_samples *samples; /* of data files; else NULL. Borrowed by the prefetcher */
    struct shoali_masked *masked; /* NULL: samples of the next token. Borrowed by the prefetcher */
    int32_t array_count;
    const char *name[SHOALI_ARRAYS_MAX];
    int64_t numbers[SHOALI_ARRAYS_MAX]; /* of a sample */
};
shoal_status shoali_loader_make(const struct shoali_loader_order *order, int64_t step,
                                int64_t micro, int32_t *const *arrays);
/* Numbers of all arrays of a micro-batch. */
int64_t shoali_loader_numbers(const struct shoali_loader_order *order);

/* prefetch.c */
struct shoali_prefetch;
SHOAL_CHECKED shoal_status shoali_prefetch_create(const struct shoali_loader_order *loader,
                                                  const struct shoal_prefetch_args *args,
                                                  struct shoali_prefetch **prefetch);
void shoali_prefetch_destroy(struct shoali_prefetch *prefetch);
int64_t shoali_prefetch_bytes(int64_t batch_bytes, int32_t depth);
/* SHOAL_END: not on the list, or already passed; the caller makes it itself. */
SHOAL_CHECKED shoal_status shoali_prefetch_get(struct shoali_prefetch *prefetch, int64_t step,
                                               int64_t micro, int32_t *const *arrays);

#endif
