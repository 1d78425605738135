/* Builds a pipeline from its JSON value, and runs it. */
#include "tokenizer/pipeline.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- building ---- */

/* Room for ids below `size`. */
static shoal_status grow_names(struct shoali_pipeline *pipeline, int64_t size)
{
    const size_t old = (size_t)pipeline->size;
    size_t capacity = 256;
    while (capacity < (size_t)size)
        capacity *= 2;
    struct shoali_string *string =
        shoali_fault("alloc") ? NULL : realloc(pipeline->string, capacity * sizeof *string);
    if (string)
        pipeline->string = string;
    uint8_t *flags = string ? realloc(pipeline->flags, capacity) : NULL;
    if (flags)
        pipeline->flags = flags;
    if (!flags)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a vocabulary of %lld", (long long)size);
    memset(string + old, 0, (capacity - old) * sizeof *string);
    memset(flags + old, 0, capacity - old);
    return SHOAL_OK;
}

shoal_status shoali_pipeline_name(struct shoali_pipeline *pipeline, int32_t id, const char *text,
                                  size_t bytes)
{
    shoal_status status = SHOAL_OK;
    size_t capacity = 256; /* grow_names has made: the size tells it */
    while (capacity < (size_t)pipeline->size)
        capacity *= 2;
    if (pipeline->size == 0 || (size_t)id >= capacity)
        SHOAL_TRY(status, grow_names(pipeline, (int64_t)id + 1), done);
    if (id >= pipeline->size)
        pipeline->size = id + 1;
    pipeline->string[id] = (struct shoali_string){.text = text, .bytes = (uint32_t)bytes};
done:
    return status;
}

/* A pattern that lives as long as the pipeline. */
static shoal_status keep_regex(const struct shoali_spec *spec, const char *pattern, bool literal,
                               const struct shoali_regex **regex)
{
    struct shoali_regex *made = NULL;
    struct shoali_kept_regex *kept = shoali_arena_alloc(spec->arena, sizeof *kept);
    *regex = NULL;
    if (!kept)
        return SHOAL_ENOMEM;
    const shoal_status status = shoali_regex_create(pattern, literal, &made);
    if (status < 0)
        return shoali_spec_prefix(spec, status);
    *kept = (struct shoali_kept_regex){.regex = made, .next = spec->pipeline->regexes};
    spec->pipeline->regexes = kept;
    *regex = made;
    return SHOAL_OK;
}

shoal_status shoali_pipeline_pattern(const struct shoali_spec *spec, const char *key,
                                     const struct shoali_regex **regex)
{
    shoal_status status;
    struct shoali_spec member;
    const char *text = NULL, *pattern = NULL;
    SHOAL_TRY(status, shoali_spec_member(spec, key, &member), done);
    if (!member.json)
        return shoali_spec_fail(spec, "the pattern `%s` is missing", key);
    if (json_is_string(member.json))
        return keep_regex(&member, json_string_value(member.json), true, regex);
    SHOAL_TRY(status, shoali_spec_optional(&member, "String", &text), done);
    SHOAL_TRY(status, shoali_spec_optional(&member, "Regex", &pattern), done);
    if (!text == !pattern)
        return shoali_spec_fail(&member, "give `String` or `Regex`");
    SHOAL_TRY(status, keep_regex(&member, text ? text : pattern, text != NULL, regex), done);
done:
    return status;
}

typedef shoal_status (*stage_create)(const struct shoali_spec *spec, int depth);

/* A member that may be absent. */
static shoal_status create_stage(const struct shoali_spec *root, const char *key,
                                 stage_create create)
{
    shoal_status status;
    struct shoali_spec member;
    SHOAL_TRY(status, shoali_spec_member(root, key, &member), done);
    if (member.json)
        SHOAL_TRY(status, create(&member, 0), done);
done:
    return status;
}

static shoal_status create_stages(struct shoali_pipeline *pipeline, const struct shoali_spec *root)
{
    shoal_status status;
    struct shoali_spec model, added;
    SHOAL_TRY(status, create_stage(root, "normalizer", shoali_normalizers_create), done);
    SHOAL_TRY(status, create_stage(root, "pre_tokenizer", shoali_pretokenizers_create), done);
    SHOAL_TRY(status, shoali_spec_member(root, "model", &model), done);
    if (!model.json)
        return shoali_spec_fail(root, "there is no `model`: this is no tokenizer.json");
    SHOAL_TRY(status, shoali_word_model_create(&model, &pipeline->model), done);
    pipeline->raw = pipeline->model.raw;
    SHOAL_TRY(status, shoali_spec_member(root, "added_tokens", &added), done);
    if (added.json)
        SHOAL_TRY(status, shoali_added_create(&added), done);
    SHOAL_TRY(status, create_stage(root, "post_processor", shoali_post_create), done);
    SHOAL_TRY(status, create_stage(root, "decoder", shoali_decoders_create), done);
done:
    return status;
}

static void destroy(shoal_tokenizer *tokenizer)
{
    struct shoali_pipeline *pipeline = tokenizer->pipeline;
    if (!pipeline)
        return;
    shoali_scratches_destroy(pipeline);
    if (pipeline->model.kind && pipeline->model.kind->destroy)
        pipeline->model.kind->destroy(&pipeline->model);
    for (struct shoali_kept_regex *kept = pipeline->regexes; kept; kept = kept->next)
        shoali_regex_destroy(kept->regex);
    shoali_trie_fini(&pipeline->added.trie[0]);
    shoali_trie_fini(&pipeline->added.trie[1]);
    shoali_trie_fini(&pipeline->user_trie);
    shoali_free(pipeline->classes);
    free(pipeline->string);
    free(pipeline->flags);
    pthread_mutex_destroy(&pipeline->mutex);
    shoali_arena_fini(&pipeline->arena);
    shoali_free(pipeline);
}

/* What ends a document: what the file says ("eod"), else a name that is known for it. */
static shoal_status find_eod(const struct shoali_spec *root, shoal_tokenizer *tokenizer)
{
    static const char *const known[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    shoal_status status;
    int64_t id;
    SHOAL_TRY(status, shoali_spec_int(root, "eod", -1, -1, SHOALI_ID_MAX, &id), done);
    for (size_t i = 0; id < 0 && i < sizeof known / sizeof known[0]; i++)
        id = shoali_pipeline_id(tokenizer->pipeline, known[i]);
    if (id >= tokenizer->vocab_size)
        return shoali_spec_fail(root, "`eod` is %lld, outside the vocabulary of %d", (long long)id,
                                tokenizer->vocab_size);
    tokenizer->eod = (int32_t)id;
done:
    return status;
}

static const struct shoali_tokenizer_kind pipeline_kind;

shoal_status shoali_pipeline_create(const char *file, const json_t *json,
                                    shoal_tokenizer **tokenizer)
{
    shoal_status status;
    char *text = NULL;
    shoal_tokenizer *made = shoali_calloc(1, sizeof *made, "a tokenizer");
    struct shoali_pipeline *pipeline = shoali_calloc(1, sizeof *pipeline, "a tokenizer");
    *tokenizer = NULL;
    if (!made || !pipeline) {
        shoali_free(made);
        shoali_free(pipeline);
        return SHOAL_ENOMEM;
    }
    made->kind = &pipeline_kind;
    made->references = 1;
    made->pipeline = pipeline;
    shoali_arena_init(&pipeline->arena);
    pthread_mutex_init(&pipeline->mutex, NULL);
    const struct shoali_spec root = {
        .file = file, .place = "", .json = json, .arena = &pipeline->arena, .pipeline = pipeline};
    SHOAL_TRY(status, shoali_classes_create(&pipeline->classes), done);
    SHOAL_TRY(status, create_stages(pipeline, &root), done);
    made->vocab_size = pipeline->size;
    if (pipeline->size == 0) {
        status = shoali_spec_fail(&root, "the vocabulary is empty");
        goto done;
    }
    SHOAL_TRY(status, find_eod(&root, made), done);
    SHOAL_TRY(status, shoali_json_write(json, JSON_COMPACT, "a tokenizer", &text), done);
    made->json = (struct shoali_str){.text = text, .length = strlen(text)};
    made->json.capacity = made->json.length + 1;
    *tokenizer = made;
    made = NULL;
done:
    shoal_tokenizer_destroy(made);
    return status;
}

int32_t shoali_pipeline_id(const struct shoali_pipeline *pipeline, const char *text)
{
    const size_t bytes = strlen(text);
    for (int32_t i = 0; i < pipeline->added.count; i++)
        if (strcmp(pipeline->added.token[i].text, text) == 0)
            return pipeline->added.token[i].id;
    if (!pipeline->model.raw)
        return shoali_vocab_find(&pipeline->model.vocab, text, bytes);
    char *raw = malloc(bytes + 1);
    size_t count;
    const int32_t id = raw && shoali_byte_chars_bytes(text, bytes, raw, &count)
                           ? shoali_vocab_find(&pipeline->model.vocab, raw, count)
                           : -1;
    free(raw);
    return id;
}

/* ---- encoding ---- */

/* Text that is UTF-8, has no added token in it any more, and is normalized. */
static shoal_status encode_plain(struct shoali_run *run, const char *text, size_t bytes,
                                 bool starts)
{
    const struct shoali_piece piece = {.text = text, .bytes = bytes, .starts = starts};
    return shoali_emit(run, 0, &piece);
}

/* Takes the added tokens of one kind out; what is between goes to `next`. */
static shoal_status
encode_between(struct shoali_run *run, bool normalized, const char *text, size_t bytes, bool starts,
               shoal_status (*next)(struct shoali_run *, const char *, size_t, bool))
{
    shoal_status status = SHOAL_OK;
    size_t from = 0, at = 0, begin, end;
    int32_t id;
    while (
        shoali_added_find(run->pipeline, normalized, text, bytes, from, &at, &begin, &end, &id)) {
        if (from < begin)
            SHOAL_TRY(status, next(run, text + from, begin - from, starts && from == 0), done);
        shoali_ids_add(run->ids, id);
        from = end;
    }
    if (from < bytes)
        SHOAL_TRY(status, next(run, text + from, bytes - from, starts && from == 0), done);
done:
    return status;
}

static shoal_status encode_normal(struct shoali_run *run, const char *text, size_t bytes,
                                  bool starts)
{
    shoal_status status;
    const struct shoali_pipeline *pipeline = run->pipeline;
    if (pipeline->normalizer_count == 0)
        return encode_between(run, true, text, bytes, starts, encode_plain);
    struct shoali_normal *normal = run->scratch->normal;
    normal[0].text.length = 0;
    normal[0].starts = starts;
    shoali_str_append_bytes(&normal[0].text, text, bytes);
    SHOAL_TRY(status, shoali_normalize(run, &normal[0], &normal[1]), done);
    SHOAL_TRY(status,
              encode_between(run, true, shoali_str_get(&normal[0].text), normal[0].text.length,
                             normal[0].starts, encode_plain),
              done);
done:
    return status;
}

/* Bytes that are no UTF-8. */
static shoal_status encode_bytes(struct shoali_run *run, const char *text, size_t bytes,
                                 int64_t offset)
{
    const struct shoali_word_model *model = &run->pipeline->model;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)text[i];
        const int32_t id = model->kind->byte_id ? model->kind->byte_id(model, byte) : -1;
        if (id < 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "the text is not UTF-8 at byte %lld (0x%02x), and the tokenizer `%s` "
                              "has no token for that byte; the tokenizer `byte` takes any data",
                              (long long)offset + (long long)i, byte, model->kind->type);
        shoali_ids_add(run->ids, id);
    }
    return SHOAL_OK;
}

static shoal_status encode_all(struct shoali_run *run, const char *text, size_t bytes,
                               int64_t offset)
{
    shoal_status status = SHOAL_OK;
    for (size_t at = 0; at < bytes;) {
        const size_t good = shoali_utf8_prefix(text + at, bytes - at);
        if (good > 0)
            SHOAL_TRY(status, encode_between(run, false, text + at, good, at == 0, encode_normal),
                      done);
        at += good;
        size_t bad = 0;
        uint32_t c;
        while (at + bad < bytes && !shoali_utf8_decode(text + at + bad, bytes - at - bad, &c))
            bad++;
        SHOAL_TRY(status, encode_bytes(run, text + at, bad, offset + (int64_t)at), done);
        at += bad;
    }
done:
    return status;
}

static shoal_status encode(const shoal_tokenizer *tokenizer, const char *text, size_t bytes,
                           int64_t offset, struct shoali_ids *ids)
{
    shoal_status status;
    struct shoali_run run = {.pipeline = tokenizer->pipeline, .ids = ids};
    SHOAL_TRY(status, shoali_scratch_take(run.pipeline, &run.scratch), done);
    SHOAL_TRY(status, encode_all(&run, text, bytes, offset), done);
done:
    shoali_scratch_give(run.pipeline, run.scratch);
    return status;
}

/* ---- decoding ---- */

static shoal_status decode(const shoal_tokenizer *tokenizer, const int32_t *tokens, int64_t count,
                           struct shoali_str *text)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_pipeline *pipeline = tokenizer->pipeline;
    struct shoali_parts parts[2] = {{{0}, 0, 0, 0, 0}, {{0}, 0, 0, 0, 0}};
    int now = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct shoali_string *string = &pipeline->string[tokens[i]];
        if (!string->text) /* a number that the file leaves out stands for nothing */
            continue;
        if (!pipeline->has_decoder && parts[0].count > 0)
            shoali_str_append_bytes(&parts[0].text, " ", 1);
        shoali_parts_add(&parts[0], string->text, string->bytes);
    }
    for (int32_t d = 0; d < pipeline->decoder_count; d++, now = !now) {
        const struct shoali_decoder *decoder = &pipeline->decoder[d];
        parts[!now].text.length = 0;
        parts[!now].count = 0;
        SHOAL_TRY(status, decoder->kind->apply(decoder->state, pipeline, &parts[now], &parts[!now]),
                  done);
    }
    if (parts[0].failed || parts[1].failed || parts[0].text.failed || parts[1].text.failed) {
        status =
            SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the text of %lld tokens", (long long)count);
        goto done;
    }
    shoali_str_append_bytes(text, shoali_str_get(&parts[now].text), parts[now].text.length);
done:
    shoali_parts_fini(&parts[0]);
    shoali_parts_fini(&parts[1]);
    return status;
}

static const struct shoali_tokenizer_kind pipeline_kind = {
    .name = "pipeline",
    .encode = encode,
    .decode = decode,
    .destroy = destroy,
};
