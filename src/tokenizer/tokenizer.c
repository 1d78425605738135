/* The interface: one table of kinds, and what all of them share. */
#include "tokenizer/tokenizer.h"

#include "tokenizer/pipeline.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static shoal_status unknown_name(shoal_status code, const char *name)
{
    return SHOAL_FAIL(code,
                      "there is no tokenizer `%s` by name alone; use byte or char, or "
                      "load one from its files",
                      name);
}

shoal_status shoal_tokenizer_create(const char *name, const char *text, size_t bytes,
                                    shoal_tokenizer **tokenizer)
{
    *tokenizer = NULL;
    if (strcmp(name, "byte") == 0)
        return shoali_tokenizer_make_byte(tokenizer);
    if (strcmp(name, "char") == 0)
        return shoali_tokenizer_make_char(text, bytes, tokenizer);
    return unknown_name(SHOAL_EINVAL, name);
}

/* tokenizer.json has a model; what has none is a form of our own, or wrong. */
shoal_status shoal_tokenizer_from_json(const char *json, size_t bytes, shoal_tokenizer **tokenizer)
{
    json_t *root = NULL;
    *tokenizer = NULL;
    shoal_status status = shoali_json_read(json, bytes, &root, NULL);
    if (status == SHOAL_ENOMEM)
        return status;
    if (status >= 0 && json_object_get(root, "model"))
        status = shoali_pipeline_create("tokenizer", root, tokenizer);
    else
        status = shoali_tokenizer_plain(json, bytes, tokenizer);
    json_decref(root);
    return status;
}

shoal_status shoali_tokenizer_copy(const shoal_tokenizer *from, shoal_tokenizer **to)
{
    *to = (shoal_tokenizer *)from;
    atomic_fetch_add(&(*to)->references, 1);
    return SHOAL_OK;
}

void shoal_tokenizer_destroy(shoal_tokenizer *tokenizer)
{
    if (!tokenizer || atomic_fetch_sub(&tokenizer->references, 1) > 1)
        return;
    if (tokenizer->kind->destroy)
        tokenizer->kind->destroy(tokenizer);
    shoali_str_fini(&tokenizer->json);
    shoali_free(tokenizer->code_point);
    shoali_free(tokenizer);
}

const char *shoal_tokenizer_name(const shoal_tokenizer *tokenizer)
{
    return tokenizer->pipeline ? tokenizer->pipeline->model.kind->type : tokenizer->kind->name;
}

int32_t shoal_tokenizer_vocab_size(const shoal_tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

int32_t shoal_tokenizer_eod(const shoal_tokenizer *tokenizer)
{
    return tokenizer->eod;
}

int32_t shoal_tokenizer_id(const shoal_tokenizer *tokenizer, const char *token)
{
    return tokenizer->pipeline ? shoali_pipeline_id(tokenizer->pipeline, token) : -1;
}

const char *shoal_tokenizer_token(const shoal_tokenizer *tokenizer, int32_t id)
{
    const struct shoali_pipeline *pipeline = tokenizer->pipeline;
    return pipeline && id >= 0 && id < pipeline->size ? pipeline->string[id].text : NULL;
}

bool shoal_tokenizer_is_special(const shoal_tokenizer *tokenizer, int32_t id)
{
    const struct shoali_pipeline *pipeline = tokenizer->pipeline;
    return pipeline && id >= 0 && id < pipeline->size &&
           (pipeline->flags[id] & SHOALI_TOKEN_SPECIAL) != 0;
}

const char *shoal_tokenizer_json(const shoal_tokenizer *tokenizer)
{
    return shoali_str_get(&tokenizer->json);
}

int64_t shoali_tokenizer_host_bytes(const shoal_tokenizer *tokenizer)
{
    int64_t bytes = (int64_t)(sizeof(*tokenizer) + tokenizer->json.length);
    if (tokenizer->code_point)
        bytes += tokenizer->vocab_size * (int64_t)sizeof(*tokenizer->code_point);
    if (tokenizer->pipeline)
        bytes += (int64_t)(sizeof(*tokenizer->pipeline) + tokenizer->pipeline->arena.used_bytes +
                           sizeof(*tokenizer->pipeline->classes) +
                           SHOALI_CACHE_SIZE * sizeof(struct shoali_cached));
    return bytes;
}

/* ---- ids ---- */

shoal_status shoali_tokenizer_encode_at(const shoal_tokenizer *tokenizer, const char *text,
                                        size_t bytes, int64_t offset, int32_t *tokens,
                                        int64_t capacity, int64_t *count)
{
    struct shoali_ids ids = {.token = tokens, .capacity = capacity};
    const shoal_status status = tokenizer->kind->encode(tokenizer, text, bytes, offset, &ids);
    *count = ids.count;
    return status;
}

shoal_status shoal_tokenizer_encode(const shoal_tokenizer *tokenizer, const char *text,
                                    size_t bytes, int32_t *tokens, int64_t capacity, int64_t *count)
{
    return shoali_tokenizer_encode_at(tokenizer, text, bytes, 0, tokens, capacity, count);
}

shoal_status shoal_tokenizer_post_process(const shoal_tokenizer *tokenizer, const int32_t *ids,
                                          int64_t id_count, int32_t *tokens, int64_t capacity,
                                          int64_t *count)
{
    static const struct shoali_around nothing = {0};
    const struct shoali_around *around =
        tokenizer->pipeline ? &tokenizer->pipeline->around : &nothing;
    struct shoali_ids out = {.token = tokens, .capacity = capacity};
    for (int32_t i = 0; i < around->before_count; i++)
        shoali_ids_add(&out, around->before[i]);
    for (int64_t i = 0; i < id_count; i++)
        shoali_ids_add(&out, ids[i]);
    for (int32_t i = 0; i < around->after_count; i++)
        shoali_ids_add(&out, around->after[i]);
    *count = out.count;
    return SHOAL_OK;
}

shoal_status shoal_tokenizer_decode(const shoal_tokenizer *tokenizer, const int32_t *tokens,
                                    int64_t count, char *text, size_t capacity, size_t *bytes)
{
    shoal_status status;
    struct shoali_str out = {0};
    *bytes = 0;
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= tokenizer->vocab_size)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "token %d at position %lld is outside the vocabulary of %d",
                              tokens[i], (long long)i, tokenizer->vocab_size);
    SHOAL_TRY(status, tokenizer->kind->decode(tokenizer, tokens, count, &out), done);
    if (out.failed) {
        status =
            SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the text of %lld tokens", (long long)count);
        goto done;
    }
    *bytes = out.length;
    const size_t copied = out.length < capacity ? out.length : capacity;
    if (copied > 0)
        memcpy(text, out.text, copied);
done:
    shoali_str_fini(&out);
    return status;
}

/* ---- blocks of long texts ---- */

static bool is_space_byte(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

size_t shoali_tokenizer_block(const shoal_tokenizer *tokenizer, const char *text, size_t bytes,
                              bool end)
{
    const size_t max = tokenizer->kind->any_cut ? SHOALI_BLOCK_BYTES : SHOALI_BLOCK_BYTES_MAX;
    const size_t most = bytes < max ? bytes : max;
    if (!tokenizer->kind->any_cut)
        for (size_t i = SHOALI_BLOCK_BYTES; i < most; i++)
            if (text[i - 1] == '\n' && !is_space_byte(text[i]) && !is_space_byte(text[i - 2]))
                return i;
    if (bytes <= most)
        return end || bytes == max ? bytes : 0;
    size_t cut = most;
    while (cut > most - 4 && ((unsigned char)text[cut] & 0xc0) == 0x80)
        cut--;
    return cut;
}

/* ---- words for people ---- */

static void list_stages(const struct shoali_pipeline *pipeline, struct shoali_str *out)
{
    shoali_str_append(out, "normalizer:");
    for (int32_t i = 0; i < pipeline->normalizer_count; i++)
        shoali_str_append(out, " %s", pipeline->normalizer[i].kind->type);
    shoali_str_append(out, "%s\npre-tokenizer:", pipeline->normalizer_count ? "" : " none");
    for (int32_t i = 0; i < pipeline->pretokenizer_count; i++)
        shoali_str_append(out, " %s", pipeline->pretokenizer[i].kind->type);
    shoali_str_append(out, "%s\npost-processor:", pipeline->pretokenizer_count ? "" : " none");
    for (int32_t i = 0; i < pipeline->around.before_count; i++)
        shoali_str_append(out, " %s", pipeline->string[pipeline->around.before[i]].text);
    shoali_str_append(out, " TEXT");
    for (int32_t i = 0; i < pipeline->around.after_count; i++)
        shoali_str_append(out, " %s", pipeline->string[pipeline->around.after[i]].text);
    shoali_str_append(out, "\ndecoder:");
    for (int32_t i = 0; i < pipeline->decoder_count; i++)
        shoali_str_append(out, " %s", pipeline->decoder[i].kind->type);
    shoali_str_append(out, "%s\nadded tokens: %d\n", pipeline->decoder_count ? "" : " none",
                      pipeline->added.count);
    for (int32_t i = 0; i < pipeline->added.count && i < 32; i++) {
        const struct shoali_added_token *token = &pipeline->added.token[i];
        shoali_str_append(out, "  %d %s%s\n", token->id, token->text,
                          token->special ? " (special)" : "");
    }
    if (pipeline->added.count > 32)
        shoali_str_append(out, "  and %d more\n", pipeline->added.count - 32);
}

shoal_status shoal_tokenizer_describe(const shoal_tokenizer *tokenizer, char **text)
{
    struct shoali_str out = {0};
    const struct shoali_pipeline *pipeline = tokenizer->pipeline;
    *text = NULL;
    shoali_str_append(&out, "model: %s\nvocabulary: %d\n", shoal_tokenizer_name(tokenizer),
                      tokenizer->vocab_size);
    if (tokenizer->eod >= 0 && pipeline && pipeline->string[tokenizer->eod].text)
        shoali_str_append(&out, "end of a document: %d %s\n", tokenizer->eod,
                          pipeline->string[tokenizer->eod].text);
    else if (tokenizer->eod >= 0)
        shoali_str_append(&out, "end of a document: %d\n", tokenizer->eod);
    else
        shoali_str_append(&out, "end of a document: none\n");
    if (pipeline)
        list_stages(pipeline, &out);
    if (out.failed) {
        shoali_str_fini(&out);
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the description of a tokenizer");
    }
    *text = out.text;
    return SHOAL_OK;
}
