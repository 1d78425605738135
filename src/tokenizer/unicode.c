#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Planes 4 to 13 are empty; of plane 14 only tags and variation selectors are assigned; 15 and 16
 * are private but for their last two places. */
enum {
    ASSIGNED_END = 0x40000,
    SPECIAL_BEGIN = 0xe0000,
    SPECIAL_END = 0xe1000,
    PRIVATE_BEGIN = 0xf0000,
    PRIVATE_END = 0x110000
};

static bool is_punctuation(uint32_t c, utf8proc_category_t category)
{
    const bool ascii = c < 0x80 && c > ' ' && c != 0x7f && !(c >= '0' && c <= '9') &&
                       !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    return ascii || (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO);
}

/* Alphabetic without being a letter, a mark or a letter number: circled, squared letters. */
static bool is_enclosed_letter(uint32_t c)
{
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

/* Syllables, which are decomposed by arithmetic. */
static bool is_hangul(uint32_t c)
{
    return c >= 0xac00 && c <= 0xd7a3;
}

static uint16_t classify(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    const bool mark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
    const bool number = category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    const bool word = letter || mark || category == UTF8PROC_CATEGORY_ND ||
                      category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC ||
                      c == 0x200c || c == 0x200d || is_enclosed_letter(c);
    const utf8proc_property_t *property = utf8proc_get_property((utf8proc_int32_t)c);
    const bool decomposes =
        property->combining_class != 0 || property->decomp_seqindex != UINT16_MAX;
    const bool other = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                       category == UTF8PROC_CATEGORY_CO;
    return (uint16_t)((letter ? SHOALI_LETTER : 0) | (number ? SHOALI_NUMBER : 0) |
                      (shoali_is_space(c) ? SHOALI_SPACE : 0) | (word ? SHOALI_WORD : 0) |
                      (is_punctuation(c, category) ? SHOALI_PUNCTUATION : 0) |
                      (decomposes || mark ? SHOALI_NFC_UNSAFE : 0) |
                      (decomposes || is_hangul(c) ? SHOALI_NFD_UNSAFE : 0) |
                      (mark ? SHOALI_MARK : 0) | (other ? SHOALI_OTHER : 0) |
                      (category == UTF8PROC_CATEGORY_MN ? SHOALI_NONSPACING : 0) |
                      (c == '\r' || c == '\n' ? SHOALI_LINE : 0));
}

/* What stands behind the first place of a canonical decomposition may join what is before it;
 * what composes again from its own decomposition is normal by itself. */
static void mark_compositions(struct shoali_classes *classes)
{
    utf8proc_int32_t parts[16];
    for (uint32_t c = 0xa0; c < ASSIGNED_END; c++) {
        if (!(classes->of[c] & SHOALI_NFC_UNSAFE))
            continue;
        int last = 0;
        const utf8proc_ssize_t count = utf8proc_decompose_char(
            (utf8proc_int32_t)c, parts, 16, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &last);
        for (utf8proc_ssize_t i = 1; i < count && i < 16; i++)
            classes->of[parts[i]] |= SHOALI_NFC_UNSAFE;
        utf8proc_int32_t again[16];
        memcpy(again, parts, sizeof again);
        if (count < 2 || count > 16 || utf8proc_get_property((utf8proc_int32_t)c)->combining_class)
            continue;
        if (utf8proc_normalize_utf32(again, count, UTF8PROC_COMPOSE | UTF8PROC_STABLE) == 1 &&
            again[0] == (utf8proc_int32_t)c)
            classes->of[c] &= (uint16_t)~SHOALI_NFC_UNSAFE;
    }
    /* Vowels and final consonants of Hangul syllables, which are composed by arithmetic. */
    for (uint32_t c = 0x1160; c < 0x1200; c++)
        classes->of[c] |= SHOALI_NFC_UNSAFE;
}

shoal_status shoali_classes_create(struct shoali_classes **classes)
{
    *classes = shoali_calloc(1, sizeof **classes, "classes of characters");
    if (!*classes)
        return SHOAL_ENOMEM;
    for (uint32_t c = 0; c < SPECIAL_END; c += c == ASSIGNED_END - 1 ? SPECIAL_BEGIN - c : 1)
        (*classes)->of[c] = classify(c);
    for (uint32_t c = PRIVATE_BEGIN; c < PRIVATE_END; c++)
        (*classes)->of[c] = (c & 0xfffe) == 0xfffe ? 0 : SHOALI_OTHER;
    mark_compositions(*classes);
    return SHOAL_OK;
}

void shoali_append_code_point(uint32_t c, struct shoali_str *out)
{
    char bytes[4];
    const int length = shoali_utf8_encode(c, bytes);
    shoali_str_append_bytes(out, bytes, (size_t)length);
}

void shoali_append_lower(uint32_t c, struct shoali_str *out)
{
    if (c == 0x130) { /* the one letter that becomes two by itself */
        shoali_str_append_bytes(out, "i\xcc\x87", 3);
        return;
    }
    shoali_append_code_point((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), out);
}

static shoal_status map(const char *text, size_t bytes, utf8proc_option_t options,
                        struct shoali_str *out)
{
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t length =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)bytes, &made, options);
    if (length < 0)
        return SHOAL_FAIL(length == UTF8PROC_ERROR_NOMEM ? SHOAL_ENOMEM : SHOAL_EINTERNAL,
                          "cannot normalize a text: %s", utf8proc_errmsg(length));
    shoali_str_append_bytes(out, (const char *)made, (size_t)length);
    free(made);
    return SHOAL_OK;
}

/* Copies stretches of safe characters; what is unsafe is composed together with the safe character
 * before it, which it may join. */
static shoal_status compose(const struct shoali_classes *classes, const char *text, size_t bytes,
                            struct shoali_str *out)
{
    shoal_status status = SHOAL_OK;
    size_t copied = 0, before = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        size_t next = at + (size_t)shoali_next(text + at, &c);
        if (!(classes->of[c] & SHOALI_NFC_UNSAFE)) {
            before = at;
            at = next;
            continue;
        }
        while (next < bytes) {
            const size_t length = (size_t)shoali_next(text + next, &c);
            if (!(classes->of[c] & SHOALI_NFC_UNSAFE))
                break;
            next += length;
        }
        shoali_str_append_bytes(out, text + copied, before - copied);
        SHOAL_TRY(status,
                  map(text + before, next - before, UTF8PROC_COMPOSE | UTF8PROC_STABLE, out), done);
        copied = before = at = next;
    }
    shoali_str_append_bytes(out, text + copied, bytes - copied);
done:
    return status;
}

size_t shoali_ascii_prefix(const char *text, size_t bytes)
{
    size_t at = 0;
    uint64_t word;
    while (at + sizeof word <= bytes) {
        memcpy(&word, text + at, sizeof word);
        if (word & UINT64_C(0x8080808080808080))
            break;
        at += sizeof word;
    }
    while (at < bytes && (unsigned char)text[at] < 0x80)
        at++;
    return at;
}

/* Copies what has no decomposition; the rest is decomposed in stretches, which nothing around them
 * changes. */
static shoal_status decompose(const struct shoali_classes *classes, utf8proc_option_t options,
                              const char *text, size_t bytes, struct shoali_str *out)
{
    shoal_status status = SHOAL_OK;
    size_t copied = 0;
    for (size_t at = 0, end; at < bytes; at = end) {
        uint32_t c;
        at += shoali_ascii_prefix(text + at, bytes - at);
        for (end = at; end < bytes; end += (size_t)shoali_length(text[end])) {
            shoali_next(text + end, &c);
            if (!(classes->of[c] & SHOALI_NFD_UNSAFE))
                break;
        }
        if (end > at) {
            shoali_str_append_bytes(out, text + copied, at - copied);
            SHOAL_TRY(status, map(text + at, end - at, options, out), done);
            copied = end;
        } else if (end < bytes) {
            end += (size_t)shoali_length(text[end]);
        }
    }
    shoali_str_append_bytes(out, text + copied, bytes - copied);
done:
    return status;
}

/* ASCII is normal, and nothing but the last character before a stretch of other characters can join
 * one of those. */
static shoal_status compose_by_stretches(utf8proc_option_t options, const char *text, size_t bytes,
                                         struct shoali_str *out)
{
    shoal_status status = SHOAL_OK;
    for (size_t at = 0, end; at < bytes; at = end) {
        const size_t ascii = shoali_ascii_prefix(text + at, bytes - at);
        const size_t kept = at + ascii < bytes && ascii > 0 ? ascii - 1 : ascii;
        shoali_str_append_bytes(out, text + at, kept);
        at += kept;
        end = at + (ascii - kept);
        while (end < bytes && (unsigned char)text[end] >= 0x80)
            end++;
        if (end > at)
            SHOAL_TRY(status, map(text + at, end - at, options, out), done);
    }
done:
    return status;
}

shoal_status shoali_normal_form(enum shoali_normal_form form, const struct shoali_classes *classes,
                                const char *text, size_t bytes, struct shoali_str *out)
{
    static const utf8proc_option_t options[] = {
        [SHOALI_NFC] = UTF8PROC_COMPOSE | UTF8PROC_STABLE,
        [SHOALI_NFD] = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE,
        [SHOALI_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_STABLE | UTF8PROC_COMPAT,
        [SHOALI_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | UTF8PROC_COMPAT,
    };
    if (form == SHOALI_NFC)
        return compose(classes, text, bytes, out);
    if (form == SHOALI_NFKC)
        return compose_by_stretches(options[form], text, bytes, out);
    return decompose(classes, options[form], text, bytes, out);
}

size_t shoali_utf8_prefix(const char *text, size_t bytes)
{
    size_t at = 0;
    uint32_t c;
    for (;;) {
        at += shoali_ascii_prefix(text + at, bytes - at);
        while (at < bytes && (unsigned char)text[at] >= 0x80) {
            const int length = shoali_utf8_decode(text + at, bytes - at, &c);
            if (length == 0)
                return at;
            at += (size_t)length;
        }
        if (at == bytes)
            return at;
    }
}
