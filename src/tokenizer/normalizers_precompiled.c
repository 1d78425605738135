/* Normalizers that SentencePiece compiled: a map of strings, as a double array of bytes.
 *
 * The map is bytes of the file: 4 of length, the double array of 32-bit units, and the texts that
 * its values point into, each ended by a NUL. Every step is checked against the array's size.
 *
 *   Precompiled    as `tokenizers` applies it: per grapheme, else per character, and of the
 *                  strings that begin there the shortest
 *   SentencePiece  as SentencePiece does: from left to right the longest; with its treatment of
 *                  spaces, and strings of the user's that pass unchanged
 */
#include "tokenizer/pipeline.h"

#include <jansson.h>
#include <string.h>
#include <utf8proc.h>

struct charsmap {
    const unsigned char *unit; /* 4 bytes each, little endian */
    uint32_t unit_count;
    const char *text;
    size_t text_bytes;
};

static uint32_t load(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static shoal_status create_charsmap(const struct shoali_spec *spec, struct charsmap *map)
{
    shoal_status status;
    const char *text, *data;
    size_t bytes;
    SHOAL_TRY(status, shoali_spec_optional(spec, "precompiled_charsmap", &text), done);
    *map = (struct charsmap){0};
    if (!text || !*text)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_spec_base64(spec, text, &data, &bytes), done);
    const uint32_t size = bytes >= 4 ? load((const unsigned char *)data) : 0;
    if (bytes < 4 || size % 4 != 0 || size > bytes - 4)
        return shoali_spec_fail(spec, "`precompiled_charsmap` is truncated or damaged");
    map->unit = (const unsigned char *)data + 4;
    map->unit_count = size / 4;
    map->text = data + 4 + size;
    map->text_bytes = bytes - 4 - size;
    if (map->text_bytes > 0 && map->text[map->text_bytes - 1] != '\0')
        return shoali_spec_fail(spec, "`precompiled_charsmap` does not end with a NUL");
done:
    return status;
}

static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* What a string that the text begins with becomes: NULL none. `longest`, else the shortest. */
static const char *find(const struct charsmap *map, const char *text, size_t bytes, bool longest,
                        size_t *length)
{
    const char *found = NULL;
    if (map->unit_count == 0)
        return NULL;
    uint32_t at = offset_of(load(map->unit));
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)text[i];
        at ^= byte;
        if (byte == 0 || at >= map->unit_count)
            break;
        const uint32_t unit = load(map->unit + 4 * (size_t)at);
        if ((unit & (1u << 31 | 0xff)) != byte)
            break;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1))
            continue;
        const uint32_t value =
            at < map->unit_count ? load(map->unit + 4 * (size_t)at) & 0x7fffffff : UINT32_MAX;
        if (value >= map->text_bytes)
            break;
        found = map->text + value;
        *length = i + 1;
        if (!longest)
            break;
    }
    return found;
}

/* ---- Precompiled ---- */

static shoal_status create_precompiled(const struct shoali_spec *spec, void **state)
{
    *state = shoali_arena_alloc(spec->arena, sizeof(struct charsmap));
    return *state ? create_charsmap(spec, *state) : SHOAL_ENOMEM;
}

static size_t grapheme(const char *text, size_t bytes)
{
    utf8proc_int32_t state = 0;
    uint32_t before, c;
    size_t at = (size_t)shoali_next(text, &before);
    while (at < bytes) {
        const size_t length = (size_t)shoali_next(text + at, &c);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)c, &state))
            break;
        before = c;
        at += length;
    }
    return at;
}

static void put(struct shoali_normal *out, const char *becomes, size_t at)
{
    if (at == 0 && !*becomes)
        out->starts = false;
    shoali_str_append_bytes(&out->text, becomes, strlen(becomes));
}

static shoal_status apply_precompiled(const void *state, struct shoali_run *run, const char *text,
                                      size_t bytes, struct shoali_normal *out)
{
    const struct charsmap *map = state;
    size_t end = 0, length;
    (void)run;
    for (size_t at = 0; at < bytes; at = end) {
        end = at + grapheme(text + at, bytes - at);
        const char *becomes = end - at < 6 ? find(map, text + at, end - at, false, &length) : NULL;
        if (becomes) {
            put(out, becomes, at);
            continue;
        }
        for (size_t i = at, next; i < end; i = next) {
            next = i + (size_t)shoali_length(text[i]);
            becomes = find(map, text + i, next - i, false, &length);
            if (becomes)
                put(out, becomes, i);
            else
                shoali_str_append_bytes(&out->text, text + i, next - i);
        }
    }
    return SHOAL_OK;
}

/* ---- SentencePiece ---- */

struct sentencepiece {
    struct charsmap map;
    bool dummy_prefix, extra_spaces, escape, suffix;
    bool prefix_at_start; /* as LlamaTokenizer without `legacy`: once, and before no space */
    bool any_space;       /* as T5Tokenizer: each White_Space that the map leaves is a space */
};

static shoal_status create_sentencepiece(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct sentencepiece *made = shoali_arena_alloc(spec->arena, sizeof *made);
    bool remove;
    *state = made;
    if (!made)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, create_charsmap(spec, &made->map), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "add_dummy_prefix", true, &made->dummy_prefix), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "remove_extra_whitespaces", true, &remove), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "escape_whitespaces", true, &made->escape), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "treat_whitespace_as_suffix", false, &made->suffix),
              done);
    SHOAL_TRY(status,
              shoali_spec_bool(spec, "dummy_prefix_at_start", false, &made->prefix_at_start), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "any_space", false, &made->any_space), done);
    made->extra_spaces = !remove;
done:
    return status;
}

/* The next piece of text and what it becomes. */
static const char *step(const struct sentencepiece *state, const struct shoali_run *run,
                        const char *text, size_t bytes, size_t *used, size_t *length)
{
    const struct shoali_trie *user = run->pipeline->user;
    if (user && shoali_trie_longest(user, text, bytes, used) >= 0) {
        *length = *used;
        return text;
    }
    const char *becomes = find(&state->map, text, bytes, true, used);
    if (becomes) {
        *length = strlen(becomes);
        return becomes;
    }
    uint32_t c;
    *used = *length = (size_t)shoali_next(text, &c);
    if (!state->any_space || !shoali_is_space(c))
        return text;
    *length = 1;
    return " ";
}

/* Of a text from which the spaces at the beginning are taken, where they are. */
static bool wants_prefix(const struct sentencepiece *state, bool starts, const char *text,
                         size_t bytes)
{
    const bool space = *text == ' ' || (bytes >= 3 && memcmp(text, "\xe2\x96\x81", 3) == 0);
    return state->dummy_prefix && !state->suffix && (!state->prefix_at_start || (starts && !space));
}

static void put_space(const struct sentencepiece *state, struct shoali_str *out)
{
    const char *space = state->escape ? "\xe2\x96\x81" : " ";
    shoali_str_append_bytes(out, space, strlen(space));
}

/* Spaces at the end, which are written already. */
static void drop_last_spaces(const struct sentencepiece *state, struct shoali_str *out)
{
    const char *space = state->escape ? "\xe2\x96\x81" : " ";
    const size_t length = strlen(space);
    while (out->length >= length && memcmp(out->text + out->length - length, space, length) == 0)
        out->length -= length;
}

static shoal_status apply_sentencepiece(const void *opaque, struct shoali_run *run,
                                        const char *text, size_t bytes, struct shoali_normal *out)
{
    const struct sentencepiece *state = opaque;
    size_t at = 0, used, length;
    const char *becomes;
    while (!state->extra_spaces && at < bytes) { /* spaces at the beginning */
        becomes = step(state, run, text + at, bytes - at, &used, &length);
        if (length != 1 || *becomes != ' ')
            break;
        at += used;
    }
    if (at == bytes)
        return SHOAL_OK;
    if (wants_prefix(state, out->starts, text + at, bytes - at))
        put_space(state, &out->text);
    bool after_space = !state->extra_spaces;
    while (at < bytes) {
        becomes = step(state, run, text + at, bytes - at, &used, &length);
        size_t skip = 0;
        while (after_space && skip < length && becomes[skip] == ' ')
            skip++;
        for (size_t i = skip, word; i < length; i += word) {
            const char *space = memchr(becomes + i, ' ', length - i);
            word = space ? (size_t)(space - becomes) - i : length - i;
            shoali_str_append_bytes(&out->text, becomes + i, word);
            if (space) {
                put_space(state, &out->text);
                word++;
            }
        }
        if (length > skip)
            after_space = becomes[length - 1] == ' ';
        after_space = after_space && !state->extra_spaces;
        at += used;
    }
    if (!state->extra_spaces)
        drop_last_spaces(state, &out->text);
    if (state->dummy_prefix && state->suffix)
        put_space(state, &out->text);
    return SHOAL_OK;
}

const struct shoali_normalizer_kind shoali_normalizers_precompiled[] = {
    {.type = "Precompiled", .create = create_precompiled, .apply = apply_precompiled},
    {.type = "SentencePiece", .create = create_sentencepiece, .apply = apply_sentencepiece},
    {.type = NULL},
};
