/* Normalizers that look at characters: normal forms, case, accents, BERT's and NMT's. */
#include "tokenizer/pipeline.h"

#include <string.h>

static shoal_status apply_nfc(const void *state, struct shoali_run *run, const char *text,
                              size_t bytes, struct shoali_normal *out)
{
    (void)state;
    return shoali_normal_form(SHOALI_NFC, run->pipeline->classes, text, bytes, &out->text);
}

static shoal_status apply_nfd(const void *state, struct shoali_run *run, const char *text,
                              size_t bytes, struct shoali_normal *out)
{
    (void)state;
    return shoali_normal_form(SHOALI_NFD, run->pipeline->classes, text, bytes, &out->text);
}

static shoal_status apply_nfkc(const void *state, struct shoali_run *run, const char *text,
                               size_t bytes, struct shoali_normal *out)
{
    (void)state;
    return shoali_normal_form(SHOALI_NFKC, run->pipeline->classes, text, bytes, &out->text);
}

static shoal_status apply_nfkd(const void *state, struct shoali_run *run, const char *text,
                               size_t bytes, struct shoali_normal *out)
{
    (void)state;
    return shoali_normal_form(SHOALI_NFKD, run->pipeline->classes, text, bytes, &out->text);
}

static void lower(const char *text, size_t bytes, struct shoali_str *out)
{
    for (size_t at = 0; at < bytes;) {
        const size_t ascii = shoali_ascii_prefix(text + at, bytes - at);
        shoali_str_append_bytes(out, text + at, ascii);
        for (size_t i = out->length - ascii; !out->failed && i < out->length; i++)
            out->text[i] = (char)(out->text[i] >= 'A' && out->text[i] <= 'Z' ? out->text[i] | 0x20
                                                                             : out->text[i]);
        at += ascii;
        while (at < bytes && (unsigned char)text[at] >= 0x80) {
            uint32_t c;
            at += (size_t)shoali_next(text + at, &c);
            shoali_append_lower(c, out);
        }
    }
}

static shoal_status apply_lowercase(const void *state, struct shoali_run *run, const char *text,
                                    size_t bytes, struct shoali_normal *out)
{
    (void)state;
    (void)run;
    lower(text, bytes, &out->text);
    return SHOAL_OK;
}

/* Drops the characters of a class that has no ASCII. */
static void filter(const struct shoali_classes *classes, unsigned drop, const char *text,
                   size_t bytes, struct shoali_normal *out)
{
    size_t copied = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        at += shoali_ascii_prefix(text + at, bytes - at);
        if (at == bytes)
            break;
        const size_t length = (size_t)shoali_next(text + at, &c);
        if (classes->of[c] & drop) {
            shoali_str_append_bytes(&out->text, text + copied, at - copied);
            copied = at + length;
            out->starts = out->starts && at > 0;
        }
        at += length;
    }
    shoali_str_append_bytes(&out->text, text + copied, bytes - copied);
}

static shoal_status apply_strip_accents(const void *state, struct shoali_run *run, const char *text,
                                        size_t bytes, struct shoali_normal *out)
{
    (void)state;
    filter(run->pipeline->classes, SHOALI_MARK, text, bytes, out);
    return SHOAL_OK;
}

/* ---- BERT ---- */

struct bert {
    bool clean_text, handle_chinese_chars, strip_accents, lowercase;
};

static shoal_status create_bert(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct bert *bert = shoali_arena_alloc(spec->arena, sizeof *bert);
    *state = bert;
    if (!bert)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_spec_bool(spec, "clean_text", true, &bert->clean_text), done);
    SHOAL_TRY(status,
              shoali_spec_bool(spec, "handle_chinese_chars", true, &bert->handle_chinese_chars),
              done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "lowercase", true, &bert->lowercase), done);
    /* null: as lower case */
    SHOAL_TRY(status,
              shoali_spec_bool(spec, "strip_accents", bert->lowercase, &bert->strip_accents), done);
done:
    return status;
}

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
           (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
           (c >= 0x2f800 && c <= 0x2fa1f);
}

static void put_between_spaces(const char *text, size_t bytes, struct shoali_str *out)
{
    shoali_str_append_bytes(out, " ", 1);
    shoali_str_append_bytes(out, text, bytes);
    shoali_str_append_bytes(out, " ", 1);
}

/* Control characters away, spaces to one kind, spaces around Chinese characters. */
static void clean(const struct bert *bert, const struct shoali_classes *classes, const char *text,
                  size_t bytes, struct shoali_normal *out)
{
    size_t copied = 0; /* what is behind it and before `at` stays as it is */
    for (size_t at = 0, length; at < bytes; at += length) {
        uint32_t c;
        length = (size_t)shoali_next(text + at, &c);
        const bool line = c == '\t' || c == '\n' || c == '\r';
        const bool drop = bert->clean_text &&
                          (c == 0 || c == 0xfffd || (!line && (classes->of[c] & SHOALI_OTHER)));
        const bool space = bert->clean_text && c != ' ' && (classes->of[c] & SHOALI_SPACE);
        const bool chinese = bert->handle_chinese_chars && is_chinese(c);
        if (!drop && !space && !chinese)
            continue;
        shoali_str_append_bytes(&out->text, text + copied, at - copied);
        copied = at + length;
        if (drop)
            out->starts = out->starts && at > 0;
        else if (space)
            shoali_str_append_bytes(&out->text, " ", 1);
        else
            put_between_spaces(text + at, length, &out->text);
    }
    shoali_str_append_bytes(&out->text, text + copied, bytes - copied);
}

static shoal_status apply_bert(const void *state, struct shoali_run *run, const char *text,
                               size_t bytes, struct shoali_normal *out)
{
    shoal_status status = SHOAL_OK;
    const struct bert *bert = state;
    struct shoali_str *work = &run->scratch->work;
    clean(bert, run->pipeline->classes, text, bytes, out);
    if (bert->strip_accents) {
        work->length = 0;
        SHOAL_TRY(status,
                  shoali_normal_form(SHOALI_NFD, run->pipeline->classes, shoali_str_get(&out->text),
                                     out->text.length, work),
                  done);
        out->text.length = 0;
        filter(run->pipeline->classes, SHOALI_NONSPACING, shoali_str_get(work), work->length, out);
    }
    if (bert->lowercase) {
        work->length = 0;
        lower(shoali_str_get(&out->text), out->text.length, work);
        out->text.length = 0;
        shoali_str_append_bytes(&out->text, shoali_str_get(work), work->length);
    }
    if (work->failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a normalized text");
done:
    return status;
}

/* ---- NMT ---- */

static bool nmt_drops(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
           c == 0x9f;
}

static bool nmt_is_space(uint32_t c)
{
    return c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
           (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xfeff || c == 0xfffd;
}

static shoal_status apply_nmt(const void *state, struct shoali_run *run, const char *text,
                              size_t bytes, struct shoali_normal *out)
{
    (void)state;
    (void)run;
    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        const size_t length = (size_t)shoali_next(text + at, &c);
        if (nmt_drops(c))
            out->starts = out->starts && at > 0;
        else if (nmt_is_space(c))
            shoali_str_append_bytes(&out->text, " ", 1);
        else
            shoali_str_append_bytes(&out->text, text + at, length);
        at += length;
    }
    return SHOAL_OK;
}

const struct shoali_normalizer_kind shoali_normalizers_unicode[] = {
    {.type = "NFC", .apply = apply_nfc},
    {.type = "NFD", .apply = apply_nfd},
    {.type = "NFKC", .apply = apply_nfkc},
    {.type = "NFKD", .apply = apply_nfkd},
    {.type = "Lowercase", .apply = apply_lowercase},
    {.type = "StripAccents", .apply = apply_strip_accents},
    {.type = "BertNormalizer", .create = create_bert, .apply = apply_bert},
    {.type = "Nmt", .apply = apply_nmt},
    {.type = NULL},
};
