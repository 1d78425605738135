/* data - text files, tokenizers, sampling. Level L5, knows only base; the interface is
 * shoal/data.h.
 *
 *   text.c       finds and reads the files of a dataset into one text
 *   tokenizer.c  byte and char; JSON form
 *   utf8.c       code points
 *   dataset.c    token storage (1, 2 or 4 bytes each), split, unigram entropy, fingerprint
 *   loader.c     the pure function (seed, step, micro) -> samples
 *   prefetch.c   a thread and a bounded ring in front of that function
 *
 * This header is for these files alone.
 */
#ifndef SHOALI_DATA_H
#define SHOALI_DATA_H

#include "base/base.h"
#include "shoal/data.h"

/* text.c: all files of the paths, in order, joined by '\n'. */
struct shoali_text_file {
    const char *path; /* arena */
    size_t offset;    /* of its first byte in the text */
};
struct shoali_text {
    struct shoali_arena arena;
    struct shoali_str content;
    struct shoali_text_file *file;
    int32_t file_count;
};
SHOAL_CHECKED shoal_status shoali_text_read(const char *const *paths, int32_t path_count,
                                            struct shoali_text *text);
void shoali_text_fini(struct shoali_text *text);
/* The file that holds byte `offset`; *within is the offset inside it. */
const char *shoali_text_locate(const struct shoali_text *text, size_t offset, size_t *within);

/* tokenizer.c */
SHOAL_CHECKED shoal_status shoali_tokenizer_copy(const struct shoal_tokenizer *from,
                                                 struct shoal_tokenizer **to);
/* Decodes one UTF-8 code point (shortest form, no surrogates); returns its length, 0 when invalid.
 */
int shoali_utf8_decode(const char *text, size_t bytes, uint32_t *code_point);
/* Returns the length. */
int shoali_utf8_encode(uint32_t code_point, char out[4]);
/* Offset of the first byte that is not valid UTF-8, `bytes` when all is. */
size_t shoali_utf8_check(const char *text, size_t bytes);

/* loader.c: the pure function, used by the caller and by the prefetch thread. */
shoal_status shoali_loader_make(const struct shoal_loader_args *args, int64_t step, int64_t micro,
                                int32_t *tokens, int32_t *targets);

/* prefetch.c */
struct shoali_prefetch;
SHOAL_CHECKED shoal_status shoali_prefetch_create(const struct shoal_loader_args *loader,
                                                  const struct shoal_prefetch_args *args,
                                                  struct shoali_prefetch **prefetch);
void shoali_prefetch_destroy(struct shoali_prefetch *prefetch);
/* SHOAL_END: not on the list, or already passed; the caller makes it itself. */
SHOAL_CHECKED shoal_status shoali_prefetch_get(struct shoali_prefetch *prefetch, int64_t step,
                                               int64_t micro, int32_t *tokens, int32_t *targets);

#endif
