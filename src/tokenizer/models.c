/* The table of models, and the vocabularies that they read. */
#include "tokenizer/pipeline.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const struct shoali_word_model_kind *const kinds[] = {
    &shoali_word_model_bpe,
    &shoali_word_model_wordpiece,
    &shoali_word_model_unigram,
    &shoali_word_model_wordlevel,
    &shoali_word_model_tiktoken,
    &shoali_word_model_sentencepiece_bpe,
    &shoali_word_model_sentencepiece_unigram,
};

/* Files of before 2020 have no type: what only one model has tells it. */
static const char *guess(const struct shoali_spec *spec)
{
    return json_object_get(spec->json, "merges")                     ? "BPE"
           : json_object_get(spec->json, "unk_id")                   ? "Unigram"
           : json_object_get(spec->json, "max_input_chars_per_word") ? "WordPiece"
                                                                     : NULL;
}

shoal_status shoali_word_model_create(const struct shoali_spec *spec,
                                      struct shoali_word_model *model)
{
    shoal_status status;
    const char *type;
    const struct shoali_pipeline *pipeline = spec->pipeline;
    const struct shoali_word_model_kind *kind = NULL;
    SHOAL_TRY(status, shoali_spec_text(spec, "type", guess(spec), &type), done);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i]->type, type) == 0)
            kind = kinds[i];
    if (!kind)
        return shoali_spec_fail(spec, "there is no model of type `%s` here", type);
    const int32_t stages = pipeline->pretokenizer_count;
    model->raw = kind->takes_bytes && stages > 0 &&
                 strcmp(pipeline->pretokenizer[stages - 1].kind->type, "ByteLevel") == 0;
    model->kind = kind;
    SHOAL_TRY(status, kind->create(spec, model), done);
done:
    return status;
}

/* Puts a string into the vocabulary as the model meets it. */
static shoal_status add(const struct shoali_spec *spec, struct shoali_word_model *model, int32_t id,
                        const char *text)
{
    shoal_status status;
    const size_t bytes = strlen(text);
    const char *kept = shoali_arena_strdup(spec->arena, text);
    size_t raw_bytes;
    if (!kept)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_pipeline_name(spec->pipeline, id, kept, bytes), done);
    if (!model->raw) {
        shoali_vocab_add(&model->vocab, id, kept, bytes);
        return SHOAL_OK;
    }
    char *raw = shoali_arena_alloc(spec->arena, bytes + 1);
    if (!raw)
        return SHOAL_ENOMEM;
    /* What has other characters is never met. */
    if (shoali_byte_chars_bytes(text, bytes, raw, &raw_bytes))
        shoali_vocab_add(&model->vocab, id, raw, raw_bytes);
done:
    return status;
}

shoal_status shoali_word_model_read_vocab(const struct shoali_spec *spec,
                                          struct shoali_word_model *model)
{
    shoal_status status;
    struct shoali_spec vocab;
    const char *text;
    json_t *value;
    int64_t size = 0;
    SHOAL_TRY(status, shoali_spec_member(spec, "vocab", &vocab), done);
    if (!json_is_object(vocab.json))
        return shoali_spec_fail(spec, "the object `vocab` is missing");
    json_object_foreach((json_t *)vocab.json, text, value)
    {
        const int64_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id > SHOALI_ID_MAX)
            return shoali_spec_fail(&vocab, "the number of `%s` is not an integer from 0 to %d",
                                    text, SHOALI_ID_MAX);
        size = id + 1 > size ? id + 1 : size;
    }
    SHOAL_TRY(
        status,
        shoali_vocab_init(&model->vocab, (int64_t)json_object_size(vocab.json), size, spec->arena),
        done);
    json_object_foreach((json_t *)vocab.json, text, value)
    {
        const int32_t id = (int32_t)json_integer_value(value);
        if (id < spec->pipeline->size && spec->pipeline->string[id].text)
            return shoali_spec_fail(&vocab, "`%s` and `%s` have the same number, %d",
                                    spec->pipeline->string[id].text, text, id);
        SHOAL_TRY(status, add(&vocab, model, id, text), done);
    }
done:
    return status;
}

/* One element: "string" or ["string", score, ...]. */
static const char *piece_of(const json_t *element, double *score)
{
    const json_t *number = json_array_get(element, 1);
    *score = json_number_value(number);
    if (json_is_string(element))
        return json_string_value(element);
    return json_is_number(number) ? json_string_value(json_array_get(element, 0)) : NULL;
}

shoal_status shoali_word_model_read_scores(const struct shoali_spec *spec,
                                           struct shoali_word_model *model, double **score)
{
    shoal_status status;
    struct shoali_spec vocab;
    SHOAL_TRY(status, shoali_spec_list(spec, "vocab", &vocab), done);
    const size_t size = shoali_spec_count(&vocab);
    if (size > SHOALI_ID_MAX)
        return shoali_spec_fail(&vocab, "more than %d tokens", SHOALI_ID_MAX);
    *score = shoali_arena_alloc(spec->arena, (size + 1) * sizeof **score);
    if (!*score)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_vocab_init(&model->vocab, (int64_t)size, (int64_t)size, spec->arena),
              done);
    for (size_t i = 0; i < size; i++) {
        const char *text = piece_of(json_array_get(vocab.json, i), &(*score)[i]);
        if (!text)
            return shoali_spec_fail(&vocab, "element %zu is not [\"text\", score]", i);
        SHOAL_TRY(status, add(&vocab, model, (int32_t)i, text), done);
    }
done:
    return status;
}

void shoali_word_model_byte_tokens(const struct shoali_word_model *model, int32_t id[256])
{
    char name[8];
    for (int byte = 0; byte < 256; byte++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        id[byte] = shoali_vocab_find(&model->vocab, name, strlen(name));
    }
}
