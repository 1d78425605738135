/* unicode - classes of code points and normal forms, from utf8proc. */
#ifndef SHOALI_TOKENIZER_UNICODE_H
#define SHOALI_TOKENIZER_UNICODE_H

#include "base/base.h"

/* Bits of a code point. */
enum {
    SHOALI_LETTER = 1, /* \p{L} */
    SHOALI_NUMBER = 2, /* \p{N} */
    SHOALI_SPACE = 4,  /* White_Space */
    SHOALI_WORD = 8,   /* \w of Rust: Alphabetic, marks, decimal numbers, connectors, joiners */
    SHOALI_PUNCTUATION = 16, /* \p{P}, and ASCII's symbols */
    SHOALI_NFC_UNSAFE = 32,  /* may change under NFC by itself or together with what is before it */
    SHOALI_LINE = 64,        /* \r and \n */
    SHOALI_NFD_UNSAFE = 128, /* has a decomposition or moves among marks: no NFD, no NFKD */
    SHOALI_MARK = 256,       /* \p{M} */
    SHOALI_NONSPACING = 512, /* \p{Mn} */
    SHOALI_OTHER = 1024      /* \p{Cc}, \p{Cf}, \p{Co} */
};
struct shoali_classes {
    uint16_t of[0x110000];
};
/* About 2.2 MB. Owned; shoali_free. */
SHOAL_CHECKED shoal_status shoali_classes_create(struct shoali_classes **classes);

/* White_Space. */
static inline bool shoali_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}
/* Appends the lower-case form. */
void shoali_append_lower(uint32_t c, struct shoali_str *out);

enum shoali_normal_form { SHOALI_NFC, SHOALI_NFD, SHOALI_NFKC, SHOALI_NFKD };
/* Appends the normal form of valid UTF-8. `classes` let it pass over what is normal already. */
SHOAL_CHECKED shoal_status shoali_normal_form(enum shoali_normal_form form,
                                              const struct shoali_classes *classes,
                                              const char *text, size_t bytes,
                                              struct shoali_str *out);

/* One code point of text known to be UTF-8; returns its length. */
static inline int shoali_next(const char *text, uint32_t *c)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        *c = at[0];
        return 1;
    }
    if (at[0] < 0xe0) {
        *c = (uint32_t)(at[0] & 0x1f) << 6 | (at[1] & 0x3f);
        return 2;
    }
    if (at[0] < 0xf0) {
        *c = (uint32_t)(at[0] & 0x0f) << 12 | (uint32_t)(at[1] & 0x3f) << 6 | (at[2] & 0x3f);
        return 3;
    }
    *c = (uint32_t)(at[0] & 0x07) << 18 | (uint32_t)(at[1] & 0x3f) << 12 |
         (uint32_t)(at[2] & 0x3f) << 6 | (at[3] & 0x3f);
    return 4;
}
/* Length of the code point that begins with this byte. */
static inline int shoali_length(char lead)
{
    const unsigned char byte = (unsigned char)lead;
    return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
/* Bytes at the beginning of the text that are ASCII. */
size_t shoali_ascii_prefix(const char *text, size_t bytes);
/* Bytes at the beginning of the text that are UTF-8. */
size_t shoali_utf8_prefix(const char *text, size_t bytes);
void shoali_append_code_point(uint32_t c, struct shoali_str *out);

#endif
