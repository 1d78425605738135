/* Normalizers that look at strings: Strip, Prepend, Replace, ByteLevel. */
#include "tokenizer/pipeline.h"

#include <string.h>

struct strip {
    bool left, right;
};

static shoal_status create_strip(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct strip *strip = shoali_arena_alloc(spec->arena, sizeof *strip);
    *state = strip;
    if (!strip)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_spec_bool(spec, "strip_left", true, &strip->left), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "strip_right", true, &strip->right), done);
done:
    return status;
}

static shoal_status apply_strip(const void *state, struct shoali_run *run, const char *text,
                                size_t bytes, struct shoali_normal *out)
{
    const struct strip *strip = state;
    const struct shoali_classes *classes = run->pipeline->classes;
    size_t begin = 0, end = bytes;
    uint32_t c;
    while (strip->left && begin < end) {
        const size_t length = (size_t)shoali_next(text + begin, &c);
        if (!(classes->of[c] & SHOALI_SPACE))
            break;
        begin += length;
    }
    while (strip->right && end > begin) {
        size_t last = end - 1;
        while (((unsigned char)text[last] & 0xc0) == 0x80)
            last--;
        shoali_next(text + last, &c);
        if (!(classes->of[c] & SHOALI_SPACE))
            break;
        end = last;
    }
    out->starts = out->starts && begin == 0;
    shoali_str_append_bytes(&out->text, text + begin, end - begin);
    return SHOAL_OK;
}

static shoal_status create_prepend(const struct shoali_spec *spec, void **state)
{
    return shoali_spec_text(spec, "prepend", NULL, (const char **)state);
}

static shoal_status apply_prepend(const void *state, struct shoali_run *run, const char *text,
                                  size_t bytes, struct shoali_normal *out)
{
    const char *prefix = state;
    (void)run;
    if (bytes > 0)
        shoali_str_append(&out->text, "%s", prefix);
    shoali_str_append_bytes(&out->text, text, bytes);
    return SHOAL_OK;
}

static shoal_status apply_replace(const void *state, struct shoali_run *run, const char *text,
                                  size_t bytes, struct shoali_normal *out)
{
    bool beheaded;
    const shoal_status status =
        shoali_replace_apply(state, run->scratch->matcher, text, bytes, &out->text, &beheaded);
    out->starts = out->starts && !beheaded;
    return status;
}

static shoal_status apply_byte_level(const void *state, struct shoali_run *run, const char *text,
                                     size_t bytes, struct shoali_normal *out)
{
    (void)state;
    (void)run;
    shoali_append_byte_chars(text, bytes, &out->text);
    return SHOAL_OK;
}

const struct shoali_normalizer_kind shoali_normalizers_text[] = {
    {.type = "Strip", .create = create_strip, .apply = apply_strip},
    {.type = "Prepend", .create = create_prepend, .apply = apply_prepend},
    {.type = "Replace", .create = shoali_replace_create, .apply = apply_replace},
    {.type = "ByteLevel", .apply = apply_byte_level},
    {.type = NULL},
};
