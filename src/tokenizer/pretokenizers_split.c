/* Pre-tokenizers that split by a pattern: Split, ByteLevel. */
#include "tokenizer/pipeline.h"
#include "tokenizer/splitters.h"

#include <string.h>

struct split {
    const struct shoali_regex *pattern;
    shoali_split_fn fast; /* the same pattern by hand; NULL none */
    int behavior;
    bool invert;
};

static shoal_status create_split(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct split *split = shoali_arena_alloc(spec->arena, sizeof *split);
    *state = split;
    if (!split)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_pipeline_pattern(spec, "pattern", &split->pattern), done);
    SHOAL_TRY(status, shoali_spec_choice(spec, "behavior", shoali_behaviors, -1, &split->behavior),
              done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "invert", false, &split->invert), done);
    /* These patterns match everything, so that each match is a word. */
    const bool isolated =
        split->behavior == SHOALI_ISOLATED || (split->behavior == SHOALI_REMOVED && split->invert);
    if (isolated)
        split->fast = shoali_splitter_of(shoali_regex_pattern(split->pattern));
done:
    return status;
}

static shoal_status apply_pattern(const struct split *split, struct shoali_run *run, int32_t level,
                                  const struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    struct shoali_splitter splitter = {.run = run,
                                       .piece = piece,
                                       .level = level,
                                       .behavior = (enum shoali_behavior)split->behavior};
    struct shoali_matches matches = {0};
    size_t done_to = 0, begin, end;
    for (;;) {
        SHOAL_TRY(status,
                  shoali_regex_next(split->pattern, run->scratch->matcher, piece->text,
                                    piece->bytes, &matches, &begin, &end),
                  done);
        if (status == SHOAL_END)
            break;
        if (done_to < begin)
            SHOAL_TRY(status, shoali_splitter_add(&splitter, done_to, begin, split->invert), done);
        SHOAL_TRY(status, shoali_splitter_add(&splitter, begin, end, !split->invert), done);
        done_to = end;
    }
    if (done_to < piece->bytes)
        SHOAL_TRY(status, shoali_splitter_add(&splitter, done_to, piece->bytes, split->invert),
                  done);
    SHOAL_TRY(status, shoali_splitter_end(&splitter), done);
done:
    return status;
}

/* ByteLevel that neither splits nor adds: words pass it as they are where the model takes bytes. */
static bool is_plain_byte_level(const struct shoali_pretokenizer *stage);

static shoal_status apply_fast(shoali_split_fn fast, struct shoali_run *run, int32_t level,
                               const struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_classes *classes = run->pipeline->classes;
    const bool last = level + 1 == run->pipeline->pretokenizer_count ||
                      (run->pipeline->raw && level + 2 == run->pipeline->pretokenizer_count &&
                       is_plain_byte_level(&run->pipeline->pretokenizer[level + 1]));
    for (size_t at = 0, end; at < piece->bytes; at = end) {
        end = fast(classes, piece->text, piece->bytes, at);
        const struct shoali_piece part = {
            .text = piece->text + at, .bytes = end - at, .starts = piece->starts && at == 0};
        SHOAL_TRY(status,
                  last ? shoali_encode_word(run, part.text, part.bytes)
                       : shoali_emit(run, level + 1, &part),
                  done);
    }
done:
    return status;
}

static shoal_status apply_split(const void *state, struct shoali_run *run, int32_t level,
                                const struct shoali_piece *piece)
{
    const struct split *split = state;
    return split->fast ? apply_fast(split->fast, run, level, piece)
                       : apply_pattern(split, run, level, piece);
}

/* ---- ByteLevel ---- */

struct byte_level {
    bool add_prefix_space, use_regex;
    struct split split;
};

static shoal_status create_byte_level(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct byte_level *made = shoali_arena_alloc(spec->arena, sizeof *made);
    bool trim; /* of offsets, which are not kept here */
    *state = made;
    if (!made)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_spec_bool(spec, "add_prefix_space", true, &made->add_prefix_space),
              done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "use_regex", true, &made->use_regex), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "trim_offsets", true, &trim), done);
    made->split.behavior = SHOALI_ISOLATED;
    if (made->use_regex)
        made->split.fast = shoali_splitter_of(SHOALI_PATTERN_GPT2);
done:
    return status;
}

static bool is_plain_byte_level(const struct shoali_pretokenizer *stage)
{
    const struct byte_level *state = stage->state;
    return stage->kind && strcmp(stage->kind->type, "ByteLevel") == 0 && !state->add_prefix_space &&
           !state->use_regex;
}

/* Splits, and writes the words' bytes as characters where the model does not take bytes. */
static shoal_status apply_byte_level(const void *opaque, struct shoali_run *run, int32_t level,
                                     const struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    const struct byte_level *state = opaque;
    const bool write = !(run->pipeline->raw && level + 1 == run->pipeline->pretokenizer_count);
    struct shoali_str *prefixed = &run->scratch->level[level];
    struct shoali_str *written = &run->scratch->bytes[level];
    struct shoali_piece whole = *piece;
    if (state->add_prefix_space && *piece->text != ' ') {
        prefixed->length = 0;
        shoali_str_append(prefixed, " ");
        shoali_str_append_bytes(prefixed, piece->text, piece->bytes);
        whole.text = shoali_str_get(prefixed);
        whole.bytes = prefixed->length;
    }
    if (!write && state->use_regex)
        return apply_fast(state->split.fast, run, level, &whole);
    for (size_t at = 0, end; at < whole.bytes; at = end) {
        end = state->use_regex
                  ? state->split.fast(run->pipeline->classes, whole.text, whole.bytes, at)
                  : whole.bytes;
        struct shoali_piece part = {
            .text = whole.text + at, .bytes = end - at, .starts = whole.starts && at == 0};
        if (write) {
            written->length = 0;
            shoali_append_byte_chars(part.text, part.bytes, written);
            part.text = shoali_str_get(written);
            part.bytes = written->length;
        }
        SHOAL_TRY(status, shoali_emit(run, level + 1, &part), done);
    }
    if (prefixed->failed || written->failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the words of a text");
done:
    return status;
}

const struct shoali_pretokenizer_kind shoali_pretokenizers_split[] = {
    {.type = "Split", .create = create_split, .apply = apply_split},
    {.type = "ByteLevel", .create = create_byte_level, .apply = apply_byte_level},
    {.type = NULL},
};
