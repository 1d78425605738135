/* Decoders: strings of tokens to text, stage by stage. */
#include "tokenizer/pipeline.h"

#include <stdlib.h>
#include <string.h>

/* ---- parts ---- */

/* Ends a part whose text was appended to parts->text. */
static void close_part(struct shoali_parts *parts)
{
    if (parts->count == parts->capacity) {
        const int64_t capacity = parts->capacity ? 2 * parts->capacity : 64;
        size_t *end =
            shoali_fault("alloc") ? NULL : realloc(parts->end, (size_t)capacity * sizeof *end);
        if (!end) {
            parts->failed = true;
            return;
        }
        parts->end = end;
        parts->capacity = capacity;
    }
    parts->end[parts->count++] = parts->text.length;
}

void shoali_parts_add(struct shoali_parts *parts, const char *text, size_t bytes)
{
    shoali_str_append_bytes(&parts->text, text, bytes);
    close_part(parts);
}

void shoali_parts_fini(struct shoali_parts *parts)
{
    shoali_str_fini(&parts->text);
    free(parts->end);
    *parts = (struct shoali_parts){0};
}

/* ---- ByteLevel, ByteFallback, Fuse ---- */

static shoal_status apply_byte_level(const void *state, const struct shoali_pipeline *pipeline,
                                     const struct shoali_parts *in, struct shoali_parts *out)
{
    (void)state;
    (void)pipeline;
    for (int64_t i = 0; i < in->count; i++) {
        size_t bytes, count;
        const char *text = shoali_part(in, i, &bytes);
        /* room for what a token at most becomes */
        const size_t before = out->text.length;
        shoali_str_append_bytes(&out->text, text, bytes);
        if (!out->text.failed && bytes > 0 &&
            shoali_byte_chars_bytes(text, bytes, out->text.text + before, &count))
            out->text.length = before + count;
        else if (!out->text.failed && bytes > 0)
            memcpy(out->text.text + before, text, bytes);
    }
    close_part(out);
    return SHOAL_OK;
}

/* <0x41> -> 65; -1: another string. */
static int byte_of(const char *text, size_t bytes)
{
    static const char digits[] = "0123456789ABCDEF", small[] = "0123456789abcdef";
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || !text[3] || !text[4])
        return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        const char *digit = strchr(digits, text[i]);
        const char *other = strchr(small, text[i]);
        if (!digit && !other)
            return -1;
        value = 16 * value + (int)(digit ? digit - digits : other - small);
    }
    return value;
}

static shoal_status apply_byte_fallback(const void *state, const struct shoali_pipeline *pipeline,
                                        const struct shoali_parts *in, struct shoali_parts *out)
{
    (void)state;
    (void)pipeline;
    bool in_bytes = false;
    for (int64_t i = 0; i < in->count; i++) {
        size_t bytes;
        const char *text = shoali_part(in, i, &bytes);
        const int byte = byte_of(text, bytes);
        if (in_bytes && byte < 0)
            close_part(out);
        in_bytes = byte >= 0;
        if (in_bytes)
            shoali_str_append_bytes(&out->text, &(char){(char)byte}, 1);
        else
            shoali_parts_add(out, text, bytes);
    }
    if (in_bytes)
        close_part(out);
    return SHOAL_OK;
}

static shoal_status apply_fuse(const void *state, const struct shoali_pipeline *pipeline,
                               const struct shoali_parts *in, struct shoali_parts *out)
{
    (void)state;
    (void)pipeline;
    shoali_parts_add(out, shoali_str_get(&in->text), in->text.length);
    return SHOAL_OK;
}

/* ---- Metaspace ---- */

struct metaspace {
    uint32_t space;
    bool drop_first; /* in the first token */
};

static shoal_status create_metaspace(const struct shoali_spec *spec, void **state)
{
    static const char *const schemes[] = {"always", "first", "never", NULL};
    shoal_status status;
    struct metaspace *made = shoali_arena_alloc(spec->arena, sizeof *made);
    bool prefix, split;
    int scheme;
    *state = made;
    if (!made)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_spec_char(spec, "replacement", NULL, &made->space), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "add_prefix_space", true, &prefix), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "split", true, &split), done);
    SHOAL_TRY(status, shoali_spec_choice(spec, "prepend_scheme", schemes, prefix ? 0 : 2, &scheme),
              done);
    made->drop_first = scheme != 2;
done:
    return status;
}

static shoal_status apply_metaspace(const void *opaque, const struct shoali_pipeline *pipeline,
                                    const struct shoali_parts *in, struct shoali_parts *out)
{
    const struct metaspace *state = opaque;
    (void)pipeline;
    for (int64_t i = 0; i < in->count; i++) {
        size_t bytes;
        const char *text = shoali_part(in, i, &bytes);
        for (size_t at = 0; at < bytes;) {
            uint32_t c;
            const size_t length = (size_t)shoali_next(text + at, &c);
            if (c != state->space)
                shoali_str_append_bytes(&out->text, text + at, length);
            else if (i > 0 || !state->drop_first)
                shoali_str_append_bytes(&out->text, " ", 1);
            at += length;
        }
        close_part(out);
    }
    return SHOAL_OK;
}

/* ---- WordPiece ---- */

struct wordpiece {
    const char *prefix;
    bool cleanup;
};

static shoal_status create_wordpiece(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct wordpiece *made = shoali_arena_alloc(spec->arena, sizeof *made);
    *state = made;
    if (!made)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_spec_text(spec, "prefix", "##", &made->prefix), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "cleanup", true, &made->cleanup), done);
done:
    return status;
}

/* Replaces every `from` in the text behind `begin`. */
static void replace_all(struct shoali_str *text, size_t begin, const char *from, const char *to)
{
    const size_t from_bytes = strlen(from), to_bytes = strlen(to);
    size_t at = begin, kept = begin;
    while (at < text->length) {
        if (text->length - at >= from_bytes && memcmp(text->text + at, from, from_bytes) == 0) {
            memcpy(text->text + kept, to, to_bytes); /* not longer than what it replaces */
            kept += to_bytes;
            at += from_bytes;
        } else {
            text->text[kept++] = text->text[at++];
        }
    }
    text->length = kept;
}

static shoal_status apply_wordpiece(const void *opaque, const struct shoali_pipeline *pipeline,
                                    const struct shoali_parts *in, struct shoali_parts *out)
{
    static const char *const tidy[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                          {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                          {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                          {" 've", "'ve"}, {" 're", "'re"}};
    const struct wordpiece *state = opaque;
    const size_t prefix_bytes = strlen(state->prefix);
    (void)pipeline;
    for (int64_t i = 0; i < in->count; i++) {
        size_t bytes;
        const char *text = shoali_part(in, i, &bytes);
        const size_t begin = out->text.length;
        const bool goes_on =
            bytes >= prefix_bytes && memcmp(text, state->prefix, prefix_bytes) == 0;
        if (i > 0 && goes_on) {
            text += prefix_bytes;
            bytes -= prefix_bytes;
        } else if (i > 0) {
            shoali_str_append_bytes(&out->text, " ", 1);
        }
        shoali_str_append_bytes(&out->text, text, bytes);
        for (size_t t = 0; state->cleanup && !out->text.failed && t < sizeof tidy / sizeof *tidy;
             t++)
            replace_all(&out->text, begin, tidy[t][0], tidy[t][1]);
        close_part(out);
    }
    return SHOAL_OK;
}

/* ---- Replace, Strip, BPEDecoder ---- */

static shoal_status apply_replace(const void *state, const struct shoali_pipeline *pipeline,
                                  const struct shoali_parts *in, struct shoali_parts *out)
{
    shoal_status status;
    struct shoali_scratch *scratch = NULL;
    bool beheaded;
    SHOAL_TRY(status, shoali_scratch_take(pipeline, &scratch), done);
    for (int64_t i = 0; i < in->count; i++) {
        size_t bytes;
        const char *text = shoali_part(in, i, &bytes);
        const size_t good = shoali_utf8_prefix(text, bytes);
        /* bytes of an earlier ByteFallback may be no text */
        if (good < bytes)
            shoali_str_append_bytes(&out->text, text, bytes);
        else
            SHOAL_TRY(
                status,
                shoali_replace_apply(state, scratch->matcher, text, bytes, &out->text, &beheaded),
                done);
        close_part(out);
    }
done:
    shoali_scratch_give(pipeline, scratch);
    return status;
}

struct strip {
    char content[8];
    int64_t start, stop;
};

static shoal_status create_strip(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    uint32_t c;
    struct strip *made = shoali_arena_alloc(spec->arena, sizeof *made);
    *state = made;
    if (!made)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_spec_char(spec, "content", NULL, &c), done);
    SHOAL_TRY(status, shoali_spec_int(spec, "start", -1, 0, INT32_MAX, &made->start), done);
    SHOAL_TRY(status, shoali_spec_int(spec, "stop", -1, 0, INT32_MAX, &made->stop), done);
    shoali_utf8_encode(c, made->content);
done:
    return status;
}

static shoal_status apply_strip(const void *state, const struct shoali_pipeline *pipeline,
                                const struct shoali_parts *in, struct shoali_parts *out)
{
    const struct strip *strip = state;
    const size_t length = strlen(strip->content);
    (void)pipeline;
    for (int64_t i = 0; i < in->count; i++) {
        size_t bytes;
        const char *text = shoali_part(in, i, &bytes);
        for (int64_t k = 0;
             k < strip->start && bytes >= length && memcmp(text, strip->content, length) == 0;
             k++) {
            text += length;
            bytes -= length;
        }
        for (int64_t k = 0; k < strip->stop && bytes >= length &&
                            memcmp(text + bytes - length, strip->content, length) == 0;
             k++)
            bytes -= length;
        shoali_parts_add(out, text, bytes);
    }
    return SHOAL_OK;
}

static shoal_status create_bpe(const struct shoali_spec *spec, void **state)
{
    return shoali_spec_text(spec, "suffix", "</w>", (const char **)state);
}

/* The suffix is a space, and nothing in the last token. */
static shoal_status apply_bpe(const void *state, const struct shoali_pipeline *pipeline,
                              const struct shoali_parts *in, struct shoali_parts *out)
{
    const char *suffix = state;
    const size_t length = strlen(suffix);
    (void)pipeline;
    for (int64_t i = 0; i < in->count; i++) {
        size_t bytes;
        const char *text = shoali_part(in, i, &bytes);
        for (size_t at = 0; at < bytes;) {
            const bool here =
                length > 0 && bytes - at >= length && memcmp(text + at, suffix, length) == 0;
            if (!here)
                shoali_str_append_bytes(&out->text, text + at, 1);
            else if (i + 1 < in->count)
                shoali_str_append_bytes(&out->text, " ", 1);
            at += here ? length : 1;
        }
        close_part(out);
    }
    return SHOAL_OK;
}

static const struct shoali_decoder_kind decoder_kinds[] = {
    {.type = "ByteLevel", .apply = apply_byte_level},
    {.type = "ByteFallback", .apply = apply_byte_fallback},
    {.type = "Fuse", .apply = apply_fuse},
    {.type = "Metaspace", .create = create_metaspace, .apply = apply_metaspace},
    {.type = "WordPiece", .create = create_wordpiece, .apply = apply_wordpiece},
    {.type = "Replace", .create = shoali_replace_create, .apply = apply_replace},
    {.type = "Strip", .create = create_strip, .apply = apply_strip},
    {.type = "BPEDecoder", .create = create_bpe, .apply = apply_bpe},
    {.type = NULL},
};

shoal_status shoali_decoders_create(const struct shoali_spec *spec, int depth)
{
    shoal_status status;
    const char *type;
    struct shoali_pipeline *pipeline = spec->pipeline;
    pipeline->has_decoder = true;
    SHOAL_TRY(status, shoali_spec_text(spec, "type", NULL, &type), done);
    if (strcmp(type, "Sequence") == 0 && depth < SHOALI_DEPTH_MAX) {
        struct shoali_spec list, element;
        SHOAL_TRY(status, shoali_spec_list(spec, "decoders", &list), done);
        for (size_t i = 0; i < shoali_spec_count(&list); i++) {
            SHOAL_TRY(status, shoali_spec_element(&list, i, &element), done);
            SHOAL_TRY(status, shoali_decoders_create(&element, depth + 1), done);
        }
        return SHOAL_OK;
    }
    const struct shoali_decoder_kind *kind = decoder_kinds;
    while (kind->type && strcmp(kind->type, type) != 0)
        kind++;
    if (!kind->type)
        return shoali_spec_fail(spec, "there is no decoder of type `%s` here", type);
    if (pipeline->decoder_count == SHOALI_STAGES_MAX)
        return shoali_spec_fail(spec, "more than %d decoders", SHOALI_STAGES_MAX);
    struct shoali_decoder *made = &pipeline->decoder[pipeline->decoder_count];
    if (kind->create)
        SHOAL_TRY(status, kind->create(spec, &made->state), done);
    made->kind = kind;
    pipeline->decoder_count++;
done:
    return status;
}
