/* replace.c - matches of a pattern become a text: a normalizer, and a decoder. */
#include "tokenizer/pipeline.h"

struct replace {
    const struct shoali_regex *pattern;
    const char *content;
};

shoal_status shoali_replace_create(const struct shoali_spec *spec, void **state)
{
    shoal_status status;
    struct replace *made = shoali_arena_alloc(spec->arena, sizeof *made);
    *state = made;
    if (!made)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_pipeline_pattern(spec, "pattern", &made->pattern), done);
    SHOAL_TRY(status, shoali_spec_text(spec, "content", NULL, &made->content), done);
done:
    return status;
}

shoal_status shoali_replace_apply(const void *state, struct shoali_matcher *matcher,
                                  const char *text, size_t bytes, struct shoali_str *out,
                                  bool *beheaded)
{
    shoal_status status = SHOAL_OK;
    const struct replace *replace = state;
    struct shoali_matches matches = {0};
    size_t copied = 0, begin, end;
    *beheaded = false;
    for (;;) {
        SHOAL_TRY(status,
                  shoali_regex_next(replace->pattern, matcher, text, bytes, &matches, &begin, &end),
                  done);
        if (status == SHOAL_END)
            break;
        shoali_str_append_bytes(out, text + copied, begin - copied);
        shoali_str_append(out, "%s", replace->content);
        *beheaded = *beheaded || (begin == 0 && end > 0 && !*replace->content);
        copied = end;
    }
    shoali_str_append_bytes(out, text + copied, bytes - copied);
    status = SHOAL_OK;
done:
    return status;
}
