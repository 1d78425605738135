/* Added tokens: strings that are found before anything else happens to the text. */
#include "tokenizer/pipeline.h"

#include <jansson.h>
#include <string.h>

static shoal_status read_token(const struct shoali_spec *spec, struct shoali_added_token *token)
{
    shoal_status status;
    int64_t id;
    SHOAL_TRY(status, shoali_spec_text(spec, "content", NULL, &token->text), done);
    SHOAL_TRY(status, shoali_spec_int(spec, "id", -1, 0, SHOALI_ID_MAX, &id), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "special", false, &token->special), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "single_word", false, &token->single_word), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "lstrip", false, &token->lstrip), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "rstrip", false, &token->rstrip), done);
    SHOAL_TRY(status, shoali_spec_bool(spec, "normalized", !token->special, &token->normalized),
              done);
    if (!*token->text)
        return shoali_spec_fail(spec, "`content` is empty");
    token->id = (int32_t)id;
done:
    return status;
}

/* What a token looks like in normalized text. */
static shoal_status normalize_token(struct shoali_pipeline *pipeline,
                                    struct shoali_added_token *token)
{
    shoal_status status;
    struct shoali_run run = {.pipeline = pipeline};
    token->normal = token->text;
    if (!token->normalized || pipeline->normalizer_count == 0)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_scratch_take(pipeline, &run.scratch), done);
    struct shoali_normal *normal = run.scratch->normal;
    normal[0].text.length = 0;
    normal[0].starts = true;
    shoali_str_append(&normal[0].text, "%s", token->text);
    SHOAL_TRY(status, shoali_normalize(&run, &normal[0], &normal[1]), done);
    token->normal = shoali_arena_strdup(&pipeline->arena, shoali_str_get(&normal[0].text));
    status = token->normal ? SHOAL_OK : SHOAL_ENOMEM;
done:
    shoali_scratch_give(pipeline, run.scratch);
    return status;
}

static shoal_status add(const struct shoali_spec *spec, struct shoali_added_token *token,
                        int32_t index)
{
    shoal_status status;
    struct shoali_pipeline *pipeline = spec->pipeline;
    struct shoali_added *added = &pipeline->added;
    /* The model's own number goes before that of the list, as everywhere. */
    added->count = 0;
    const int32_t own = shoali_pipeline_id(pipeline, token->text);
    added->count = index;
    if (own >= 0)
        token->id = own;
    SHOAL_TRY(status, normalize_token(pipeline, token), done);
    SHOAL_TRY(status, shoali_pipeline_name(pipeline, token->id, token->text, strlen(token->text)),
              done);
    pipeline->flags[token->id] |=
        (uint8_t)(SHOALI_TOKEN_ADDED | (token->special ? SHOALI_TOKEN_SPECIAL : 0));
    if (!*token->normal)
        return SHOAL_OK;
    SHOAL_TRY(status,
              shoali_trie_add(&added->trie[token->normalized], token->normal, strlen(token->normal),
                              index),
              done);
    added->begins[token->normalized][(unsigned char)*token->normal] = true;
    added->any[token->normalized] = true;
done:
    return status;
}

shoal_status shoali_added_create(const struct shoali_spec *spec)
{
    shoal_status status;
    struct shoali_added *added = &spec->pipeline->added;
    if (!json_is_array(spec->json))
        return shoali_spec_fail(spec, "a list is expected here");
    const size_t count = shoali_spec_count(spec);
    added->token = shoali_arena_alloc(spec->arena, (count + 1) * sizeof *added->token);
    if (!added->token)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_trie_init(&added->trie[0]), done);
    SHOAL_TRY(status, shoali_trie_init(&added->trie[1]), done);
    for (size_t i = 0; i < count; i++) {
        struct shoali_spec element;
        SHOAL_TRY(status, shoali_spec_element(spec, i, &element), done);
        SHOAL_TRY(status, read_token(&element, &added->token[i]), done);
        SHOAL_TRY(status, add(&element, &added->token[i], (int32_t)i), done);
        added->count = (int32_t)i + 1;
    }
done:
    return status;
}

/* ---- finding ---- */

static bool is_class(const struct shoali_pipeline *pipeline, const char *at, int bits)
{
    uint32_t c;
    shoali_next(at, &c);
    /* The joiners are words for the format's own \w, but not here. */
    return c != 0x200c && c != 0x200d && (pipeline->classes->of[c] & bits);
}

static const char *last_character(const char *text, size_t end)
{
    do
        end--;
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80);
    return text + end;
}

static bool stands_alone(const struct shoali_pipeline *pipeline, const char *text, size_t bytes,
                         size_t begin, size_t end)
{
    return (begin == 0 || !is_class(pipeline, last_character(text, begin), SHOALI_WORD)) &&
           (end == bytes || !is_class(pipeline, text + end, SHOALI_WORD));
}

bool shoali_added_find(const struct shoali_pipeline *pipeline, bool normalized, const char *text,
                       size_t bytes, size_t from, size_t *at, size_t *begin, size_t *end,
                       int32_t *id)
{
    const struct shoali_added *added = &pipeline->added;
    if (!added->any[normalized])
        return false;
    const bool *begins = added->begins[normalized];
    for (size_t i = *at; i < bytes; i++) {
        size_t length = 0;
        if (!begins[(unsigned char)text[i]])
            continue;
        const int32_t index =
            shoali_trie_longest(&added->trie[normalized], text + i, bytes - i, &length);
        if (index < 0)
            continue;
        const struct shoali_added_token *token = &added->token[index];
        *at = i + length;
        if (token->single_word && !stands_alone(pipeline, text, bytes, i, *at)) {
            i = *at - 1;
            continue;
        }
        *begin = i;
        *end = *at;
        while (token->lstrip && *begin > from &&
               is_class(pipeline, last_character(text, *begin), SHOALI_SPACE))
            *begin = (size_t)(last_character(text, *begin) - text);
        while (token->rstrip && *end < bytes && is_class(pipeline, text + *end, SHOALI_SPACE))
            *end += (size_t)shoali_length(text[*end]);
        *id = token->id;
        return true;
    }
    *at = bytes;
    return false;
}
