/* text_kind - is a file with NUL bytes a text?
 *
 * A file without NUL bytes is text. One NUL among millions of characters is no reason to leave the
 * others out, so a file with NUL bytes is counted as a whole:
 *
 *   control    bytes below 32 that no text has; white space, backspace and escape are not among
 *              them. NUL is counted by itself
 *   text       valid UTF-8 with few control bytes and some byte that is not NUL; or any encoding
 *              with few control bytes, NUL included. Few: one of SHOALI_CONTROL_SHARE
 *   wide       every second byte is NUL: UTF-16 without a byte order mark
 *   binary     all others: images, archives, programs, arrays
 */
#ifndef SHOALI_TEXT_KIND_H
#define SHOALI_TEXT_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHOALI_CONTROL_SHARE = 32 };

enum shoali_text_kind { SHOALI_KIND_TEXT, SHOALI_KIND_WIDE, SHOALI_KIND_BINARY };

/* Zero-initialise. */
struct shoali_text_counts {
    int64_t bytes, nul, nul_even, control;
    int64_t first_nul; /* offset; where nul > 0 */
    bool other;        /* some piece is not UTF-8 */
};
/* Counts the next piece; it ends with a whole UTF-8 sequence. */
void shoali_text_count(struct shoali_text_counts *counts, const char *piece, size_t bytes);
enum shoali_text_kind shoali_text_kind_of(const struct shoali_text_counts *counts);

#endif
