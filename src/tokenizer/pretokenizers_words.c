/* Pre-tokenizers that split by classes of characters: words, punctuation, digits, Metaspace. */
#include "tokenizer/pipeline.h"

#include <string.h>

/* What characters count as matches: each by itself, or, where `runs`, as one. */
struct by_class {
    int bits;        /* of shoali_classes */
    uint32_t single; /* or this one character; 0: none */
    int behavior;
    bool runs;
};

static shoal_status split_by_class(const struct by_class *by, struct shoali_run *run, int32_t level,
                                   const struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_classes *classes = run->pipeline->classes;
    struct shoali_splitter splitter = {
        .run = run, .piece = piece, .level = level, .behavior = (enum shoali_behavior)by->behavior};
    size_t begin = 0;
    bool in_match = false;
    for (size_t at = 0; at < piece->bytes;) {
        uint32_t c;
        const size_t length = (size_t)shoali_next(piece->text + at, &c);
        const bool match = by->single ? c == by->single : (classes->of[c] & by->bits) != 0;
        if (begin < at && (match != in_match || (match && !by->runs))) {
            SHOAL_TRY(status, shoali_splitter_add(&splitter, begin, at, in_match), done);
            begin = at;
        }
        in_match = match;
        at += length;
    }
    if (begin < piece->bytes)
        SHOAL_TRY(status, shoali_splitter_add(&splitter, begin, piece->bytes, in_match), done);
    SHOAL_TRY(status, shoali_splitter_end(&splitter), done);
done:
    return status;
}

static shoal_status apply_whitespace_split(const void *state, struct shoali_run *run, int32_t level,
                                           const struct shoali_piece *piece)
{
    static const struct by_class by = {.bits = SHOALI_SPACE, .behavior = SHOALI_REMOVED};
    (void)state;
    return split_by_class(&by, run, level, piece);
}

/* 0: white space, 1: \w, 2: anything else. */
static int kind_of(const struct shoali_classes *classes, const char *at, size_t *length)
{
    uint32_t c;
    *length = (size_t)shoali_next(at, &c);
    return classes->of[c] & SHOALI_WORD ? 1 : classes->of[c] & SHOALI_SPACE ? 0 : 2;
}

/* \w+|[^\w\s]+ */
static shoal_status apply_whitespace(const void *state, struct shoali_run *run, int32_t level,
                                     const struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    size_t length;
    (void)state;
    for (size_t at = 0, end; at < piece->bytes; at = end) {
        const int kind = kind_of(run->pipeline->classes, piece->text + at, &length);
        end = at + length;
        while (end < piece->bytes &&
               kind_of(run->pipeline->classes, piece->text + end, &length) == kind)
            end += length;
        const struct shoali_piece part = {
            .text = piece->text + at, .bytes = end - at, .starts = piece->starts && at == 0};
        if (kind != 0)
            SHOAL_TRY(status, shoali_emit(run, level + 1, &part), done);
    }
done:
    return status;
}

/* Spaces go; each punctuation character is a word. */
static shoal_status apply_bert(const void *state, struct shoali_run *run, int32_t level,
                               const struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_classes *classes = run->pipeline->classes;
    (void)state;
    for (size_t at = 0, end; at < piece->bytes; at = end) {
        uint32_t c;
        end = at + (size_t)shoali_next(piece->text + at, &c);
        if (classes->of[c] & SHOALI_SPACE)
            continue;
        bool goes_on = !(classes->of[c] & SHOALI_PUNCTUATION);
        while (goes_on && end < piece->bytes) {
            const size_t length = (size_t)shoali_next(piece->text + end, &c);
            goes_on = !(classes->of[c] & (SHOALI_SPACE | SHOALI_PUNCTUATION));
            end += goes_on ? length : 0;
        }
        const struct shoali_piece part = {
            .text = piece->text + at, .bytes = end - at, .starts = piece->starts && at == 0};
        SHOAL_TRY(status, shoali_emit(run, level + 1, &part), done);
    }
done:
    return status;
}

static shoal_status create_by(const struct shoali_spec *spec, const struct by_class *like,
                              struct by_class **by)
{
    *by = shoali_arena_alloc(spec->arena, sizeof **by);
    if (!*by)
        return SHOAL_ENOMEM;
    **by = *like;
    return SHOAL_OK;
}

static shoal_status create_punctuation(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct by_class *by = NULL;
    SHOAL_TRY(status, create_by(spec, &(struct by_class){.bits = SHOALI_PUNCTUATION}, &by), done);
    SHOAL_TRY(
        status,
        shoali_spec_choice(spec, "behavior", shoali_behaviors, SHOALI_ISOLATED, &by->behavior),
        done);
done:
    *state = by;
    return status;
}

static shoal_status create_digits(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct by_class *by = NULL;
    bool individual;
    SHOAL_TRY(status, create_by(spec, &(struct by_class){.bits = SHOALI_NUMBER}, &by), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "individual_digits", false, &individual), done);
    by->behavior = individual ? SHOALI_ISOLATED : SHOALI_CONTIGUOUS;
done:
    *state = by;
    return status;
}

static shoal_status create_delimiter(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct by_class *by = NULL;
    SHOAL_TRY(status, create_by(spec, &(struct by_class){.behavior = SHOALI_REMOVED}, &by), done);
    SHOAL_TRY(status, shoali_spec_char(spec, "delimiter", NULL, &by->single), done);
done:
    *state = by;
    return status;
}

static shoal_status apply_by(const void *state, struct shoali_run *run, int32_t level,
                             const struct shoali_piece *piece)
{
    return split_by_class(state, run, level, piece);
}

/* ---- FixedLength ---- */

static shoal_status create_fixed_length(const struct shoali_spec *spec, void **state)
{
    int64_t *length = shoali_arena_alloc(spec->arena, sizeof *length);
    *state = length;
    return length ? shoali_spec_int(spec, "length", 5, 1, INT32_MAX, length) : SHOAL_ENOMEM;
}

static shoal_status apply_fixed_length(const void *state, struct shoali_run *run, int32_t level,
                                       const struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    const int64_t *length = state;
    for (size_t at = 0, end; at < piece->bytes; at = end) {
        end = at;
        for (int64_t i = 0; i < *length && end < piece->bytes; i++)
            end += (size_t)shoali_length(piece->text[end]);
        const struct shoali_piece part = {
            .text = piece->text + at, .bytes = end - at, .starts = piece->starts && at == 0};
        SHOAL_TRY(status, shoali_emit(run, level + 1, &part), done);
    }
done:
    return status;
}

/* ---- Metaspace ---- */

enum { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };
static const char *const schemes[] = {"always", "first", "never", NULL};

struct metaspace {
    struct by_class by;
    char space[8];
    int scheme;
    bool split;
};

static shoal_status create_metaspace(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct metaspace *made = shoali_arena_alloc(spec->arena, sizeof *made);
    bool prefix; /* as older files say it */
    *state = made;
    if (!made)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_spec_char(spec, "replacement", NULL, &made->by.single), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "add_prefix_space", true, &prefix), done);
    SHOAL_TRY(status,
              shoali_spec_choice(spec, "prepend_scheme", schemes,
                                 prefix ? PREPEND_ALWAYS : PREPEND_NEVER, &made->scheme),
              done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "split", true, &made->split), done);
    made->by.behavior = SHOALI_MERGED_WITH_NEXT;
    shoali_utf8_encode(made->by.single, made->space);
done:
    return status;
}

static shoal_status apply_metaspace(const void *opaque, struct shoali_run *run, int32_t level,
                                    const struct shoali_piece *piece)
{
    const struct metaspace *state = opaque;
    struct shoali_str *out = &run->scratch->level[level];
    const size_t length = strlen(state->space);
    const bool has = *piece->text == ' ' ||
                     (piece->bytes >= length && memcmp(piece->text, state->space, length) == 0);
    const bool prepend = !has && (state->scheme == PREPEND_ALWAYS ||
                                  (state->scheme == PREPEND_FIRST && piece->starts));
    out->length = 0;
    if (prepend)
        shoali_str_append_bytes(out, state->space, length);
    for (size_t at = 0, end; at < piece->bytes; at = end + 1) {
        const char *space = memchr(piece->text + at, ' ', piece->bytes - at);
        end = space ? (size_t)(space - piece->text) : piece->bytes;
        shoali_str_append_bytes(out, piece->text + at, end - at);
        if (space)
            shoali_str_append_bytes(out, state->space, length);
    }
    if (out->failed)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the words of a text");
    const struct shoali_piece whole = {
        .text = shoali_str_get(out), .bytes = out->length, .starts = piece->starts};
    return state->split ? split_by_class(&state->by, run, level, &whole)
                        : shoali_emit(run, level + 1, &whole);
}

/* ---- SentencePiece ---- */

/* A word begins at the first of its spaces, which are written as U+2581. */
static shoal_status apply_sentencepiece(const void *state, struct shoali_run *run, int32_t level,
                                        const struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    const char *end = piece->text + piece->bytes;
    (void)state;
    for (const char *at = piece->text, *next; at < end; at = next) {
        next = at;
        while (end - next >= 3 && memcmp(next, "\xe2\x96\x81", 3) == 0)
            next += 3;
        do {
            next = next < end ? memchr(next, '\xe2', (size_t)(end - next)) : end;
            next = next ? next : end;
            if (next == end || (end - next >= 3 && memcmp(next, "\xe2\x96\x81", 3) == 0))
                break;
            next++;
        } while (true);
        const struct shoali_piece part = {
            .text = at, .bytes = (size_t)(next - at), .starts = piece->starts && at == piece->text};
        SHOAL_TRY(status, shoali_emit(run, level + 1, &part), done);
    }
done:
    return status;
}

const struct shoali_pretokenizer_kind shoali_pretokenizers_words[] = {
    {.type = "WhitespaceSplit", .apply = apply_whitespace_split},
    {.type = "Whitespace", .apply = apply_whitespace},
    {.type = "BertPreTokenizer", .apply = apply_bert},
    {.type = "Punctuation", .create = create_punctuation, .apply = apply_by},
    {.type = "Digits", .create = create_digits, .apply = apply_by},
    {.type = "CharDelimiterSplit", .create = create_delimiter, .apply = apply_by},
    {.type = "FixedLength", .create = create_fixed_length, .apply = apply_fixed_length},
    {.type = "SentencePiece", .apply = apply_sentencepiece},
    {.type = "Metaspace", .create = create_metaspace, .apply = apply_metaspace},
    {.type = NULL},
};
