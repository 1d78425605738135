/* str - the few string tools the project needs. */
#ifndef SHOALI_STR_H
#define SHOALI_STR_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Growing text. Zero-initialise; `failed` sticks when memory ran out. */
struct shoali_str {
    char *text; /* NUL-terminated; "" semantic when NULL: use shoali_str_get */
    size_t length, capacity;
    bool failed;
};
void shoali_str_append(struct shoali_str *str, const char *format, ...) SHOAL_PRINTF(2, 3);
void shoali_str_append_bytes(struct shoali_str *str, const char *bytes, size_t count);
const char *shoali_str_get(const struct shoali_str *str);
void shoali_str_fini(struct shoali_str *str);

/* A word as a POSIX shell, and fish, read it back; '...' only where it is needed. */
void shoali_shell_quote(struct shoali_str *out, const char *word);

/* The candidate with the smallest edit distance to `word` (transpositions count one; '-' and '_',
 * and upper and lower case, are equal), or NULL when none is near (distance > max(2, length/3), or
 * more than half of the longer word). */
const char *shoali_nearest(const char *word, const char *const *candidates, size_t count);

/* Parse the whole text; false when it is not exactly one number. Integers accept "1e9" and "5_000"
 * forms when integral. */
bool shoali_parse_i64(const char *text, int64_t *value);
bool shoali_parse_f64(const char *text, double *value);
/* An amount of memory of at least one byte: "4096", "80GiB", "80G", "1.5 TB". K, M, G, T and P,
 * also with i or iB, are powers of 1024; with B alone, of 1000. Fractions of a byte are dropped. */
bool shoali_parse_bytes(const char *text, int64_t *bytes);
/* "true/false/1/0/yes/no/on/off", any case. */
bool shoali_parse_bool(const char *text, bool *value);

/* Decodes one UTF-8 code point (shortest form, no surrogates); returns its length, 0 when invalid.
 */
int shoali_utf8_decode(const char *text, size_t bytes, uint32_t *code_point);
/* Returns the length. */
int shoali_utf8_encode(uint32_t code_point, char out[4]);
/* Offset of the first byte that is not valid UTF-8, `bytes` when all is. */
size_t shoali_utf8_check(const char *text, size_t bytes);

/* Bytes of the byte order mark that a text begins with, as some editors write it: 3 or 0. */
size_t shoali_bom_bytes(const char *text, size_t bytes);
/* The first line of `text` without a byte order mark and without white space at its ends; cut in
 * place. */
char *shoali_strip_line(char *text);

/* "1.5 GiB" style text in a caller's buffer of at least 32 bytes; returns `buffer`. */
const char *shoali_format_bytes(double bytes, char *buffer);

/* "124,318,464". */
void shoali_str_append_count(struct shoali_str *str, int64_t count);
/* A count for people: "174.60 billion", "124.44 million", "24.1 thousand", "931"; in a caller's
 * buffer of at least 32 bytes; returns `buffer`. */
const char *shoali_format_count(double count, char *buffer);

/* Files: the fault points "read_file" and "write_file" make the next call fail with SHOAL_EIO.
 * Reads a whole file. *data is owned by the caller (free()), NUL-terminated past *bytes.
 * SHOAL_ENOENT when it does not exist, and only then; SHOAL_EINVAL when it is a pointer of git-lfs;
 * else as shoali_path_status. All name the path. */
SHOAL_CHECKED shoal_status shoali_read_file(const char *path, char **data, size_t *bytes);
/* Whether DIR/NAME is a plain file. */
bool shoali_has_file(const char *dir, const char *name);
/* The first line of a small file as shoali_strip_line gives it, cut to `bytes`; "": there is none.
 * Does not wait for a pipe. A signal handler may call it. */
void shoali_first_line(const char *path, char *line, size_t bytes);
/* pread of everything; false with errno, 0 for bytes that are not there. */
bool shoali_pread(int descriptor, void *to, size_t bytes, int64_t at);
/* The same of a text, which has no NUL byte (it would end there for who reads it as a string) and
 * is not UTF-16: SHOAL_EINVAL. */
SHOAL_CHECKED shoal_status shoali_read_text(const char *path, char **text, size_t *bytes);
/* Writes PATH.tmp, fsyncs, renames onto PATH, fsyncs the folder: all or nothing. */
SHOAL_CHECKED shoal_status shoali_write_file_atomic(const char *path, const void *data,
                                                    size_t bytes);
/* What an errno of a path is: SHOAL_ENOENT; SHOAL_EINVAL where the user must name another path or
 * change its permissions; SHOAL_EIO where the system fails. */
shoal_status shoali_path_status(int error);
/* A write beyond the limit of a file's size (ulimit -f) raises SIGXFSZ, which ends a process:
 * between these calls those of the calling thread fail with EFBIG instead. `end` takes what `begin`
 * gave, and leaves errno as it is. */
bool shoali_file_limit_begin(void);
void shoali_file_limit_end(bool begun);
/* mkdir -p. */
SHOAL_CHECKED shoal_status shoali_make_dirs(const char *path);

#endif
