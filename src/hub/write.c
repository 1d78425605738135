/* A configuration of the model table to config.json, and what generation wants to know. */
#include "hub/hub.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int64_t shoali_hub_vocab_rows(const shoal_model_config *config)
{
    const int64_t size = (int64_t)shoali_hub_option(config, "vocab-size");
    const int64_t multiple = (int64_t)shoali_hub_option(config, "make-vocab-size-divisible-by");
    return multiple > 1 ? (size + multiple - 1) / multiple * multiple : size;
}

void shoali_hub_put(struct shoali_hub_writer *writer, const char *key, json_t *value)
{
    writer->failed |= json_object_set_new(writer->root, key, value);
}

/* ---- which family --------------------------------------------------------------------------- */

/* The first option whose value a family has no word for; NULL: none. */
static const struct shoali_hub_fixed *other_value(const struct shoali_hub_family *family,
                                                  const shoal_model_config *config)
{
    for (int32_t i = 0; i < family->fixed_count; i++)
        if (shoali_hub_option(config, family->fixed[i].option) != family->fixed[i].value &&
            !shoal_hub_option_is_free(family->fixed[i].option))
            return &family->fixed[i];
    return NULL;
}

/* An option that a family does not mention has its default. */
static bool has_more(const struct shoali_hub_family *family, const shoal_model_config *config)
{
    const shoal_model_option *at;
    for (int32_t i = 0; (at = shoal_model_config_option(config, i)) != NULL; i++)
        if (!shoali_hub_mentions(family, at->name) &&
            shoali_hub_option(config, at->name) != at->default_value)
            return true;
    return false;
}

static json_t *option_json(const shoal_model_config *config, const struct shoali_hub_key *row);

/* A key that stands for two options needs equal values of both. */
static bool is_torn(const struct shoali_hub_family *family, const shoal_model_config *config)
{
    bool torn = false;
    for (int32_t i = 1; i < family->key_count; i++) {
        const struct shoali_hub_key *a = &family->keys[i - 1], *b = &family->keys[i];
        if (strcmp(a->key, b->key) != 0)
            continue;
        json_t *first = option_json(config, a), *second = option_json(config, b);
        torn = torn || !json_equal(first, second);
        json_decref(first);
        json_decref(second);
    }
    return torn;
}

static bool says(const struct shoali_hub_family *family, const shoal_model_config *config)
{
    return !has_more(family, config) && !is_torn(family, config) &&
           (!family->decoder || shoali_hub_decoder_says(family, config)) &&
           (!family->says || family->says(config));
}

/* The family that says a configuration: of the type `preferred` (NULL: any) if that one does.
 * SHOAL_EUNSUPPORTED: none does, and why. */
static shoal_status find_family(const shoal_model_config *config, const char *preferred,
                                const struct shoali_hub_family **family)
{
    const char *row = shoal_model_config_name(config);
    const struct shoali_hub_fixed *other = NULL;
    *family = NULL;
    for (int32_t i = 0; shoali_hub_families[i]; i++) {
        const struct shoali_hub_family *each = shoali_hub_families[i];
        if (strcmp(each->row, row) != 0 || !says(each, config))
            continue;
        const struct shoali_hub_fixed *wrong = other_value(each, config);
        other = other ? other : wrong;
        if (!wrong && (!*family || (preferred && strcmp(each->type, preferred) == 0)))
            *family = each;
    }
    if (*family)
        return SHOAL_OK;
    if (other)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "transformers cannot describe a `%s` with --%s %g: this option has no "
                          "key in config.json",
                          row, other->option, shoali_hub_option(config, other->option));
    return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "transformers cannot describe a `%s` with these options",
                      row);
}

/* ---- config.json ---------------------------------------------------------------------------- */

static const shoal_model_option *find_option(const shoal_model_config *config, const char *name)
{
    const shoal_model_option *at;
    for (int32_t i = 0; (at = shoal_model_config_option(config, i)) != NULL; i++)
        if (strcmp(at->name, name) == 0)
            return at;
    return NULL;
}

static json_t *option_json(const shoal_model_config *config, const struct shoali_hub_key *row)
{
    const shoal_model_option *option = find_option(config, row->option);
    const double value = shoali_hub_option(config, row->option);
    if (row->use == SHOALI_HUB_INVERSE)
        return json_real(1 / value);
    if (option && option->type == SHOAL_MODEL_BOOL)
        return json_boolean((value != 0) != (row->use == SHOALI_HUB_NOT));
    return option && option->type == SHOAL_MODEL_INT ? json_integer((json_int_t)value)
                                                     : json_real(value);
}

static void put_options(struct shoali_hub_writer *writer)
{
    for (int32_t i = 0; i < writer->family->key_count; i++) {
        const struct shoali_hub_key *row = &writer->family->keys[i];
        if (row->option && row->use != SHOALI_HUB_DROPOUT)
            shoali_hub_put(writer, row->key, option_json(writer->config, row));
    }
}

static void put_vocab(struct shoali_hub_writer *writer)
{
    const int64_t size = (int64_t)shoali_hub_option(writer->config, "vocab-size");
    const int64_t rows = shoali_hub_vocab_rows(writer->config);
    shoali_hub_put(writer, "vocab_size", json_integer(rows));
    if (rows == size)
        return;
    shoali_hub_put(
        writer, "shoal",
        json_pack("{s:I, s:I}", "vocab_size", (json_int_t)size, "make_vocab_size_divisible_by",
                  (json_int_t)shoali_hub_option(writer->config, "make-vocab-size-divisible-by")));
}

/* Keys that change nothing here: others read them, or one value alone is computed. */
static bool is_passed(enum shoali_hub_use use)
{
    return use == SHOALI_HUB_PASSED || use == SHOALI_HUB_ONLY || use == SHOALI_HUB_NOTE ||
           use == SHOALI_HUB_DROPOUT;
}

/* As the source has them. */
static void put_passed(struct shoali_hub_writer *writer, const struct shoali_hub_key *rows,
                       int32_t count)
{
    for (int32_t i = 0; i < count && writer->source; i++) {
        json_t *value = json_object_get(writer->source, rows[i].key);
        if (value && is_passed(rows[i].use))
            shoali_hub_put(writer, rows[i].key, json_incref(value));
    }
}

/* Whoever read the source allowed them. */
static void put_unknown(struct shoali_hub_writer *writer)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)writer->source, key, value)
    {
        if (!shoali_hub_knows(writer->family, key))
            shoali_hub_put(writer, key, json_incref((json_t *)(uintptr_t)value));
    }
}

static const char *const token_keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
enum { TOKEN_KEYS = sizeof token_keys / sizeof token_keys[0] };

/* Which tokens begin and end a text: as the source says, else as the tokenizer does; -1 else. */
static void put_tokens(struct shoali_hub_writer *writer, const json_t *source, int64_t eod)
{
    for (int i = 0; i < TOKEN_KEYS; i++) {
        json_t *value = json_object_get(source, token_keys[i]);
        if (value)
            shoali_hub_put(writer, token_keys[i], json_incref(value));
        else if (!source && i < 2)
            shoali_hub_put(writer, token_keys[i], eod >= 0 ? json_integer(eod) : json_null());
    }
}

static const char *dtype_name(shoal_dtype dtype)
{
    return dtype == SHOAL_BF16 ? "bfloat16" : dtype == SHOAL_F16 ? "float16" : "float32";
}

/* With as many digits as say the same numbers: 0.1 shall not look like 0.10000000000000001. */
static shoal_status write_digits(const json_t *root, const char *what, char **text)
{
    shoal_status status;
    const size_t flags = JSON_INDENT(2) | JSON_SORT_KEYS;
    json_t *again = NULL;
    SHOAL_TRY(status, shoali_json_write(root, flags | JSON_REAL_PRECISION(15), what, text), done);
    SHOAL_TRY(status, shoali_json_read(*text, strlen(*text), &again, NULL), done);
    if (json_equal(root, again))
        goto done;
    free(*text);
    *text = NULL;
    SHOAL_TRY(status, shoali_json_write(root, flags | JSON_REAL_PRECISION(17), what, text), done);
done:
    json_decref(again);
    return status;
}

static shoal_status write_json(const json_t *root, int failed, const char *what, char **text)
{
    shoal_status status;
    char *body = NULL;
    SHOAL_TRY(status, write_digits(failed ? NULL : root, what, &body), done);
    const size_t length = strlen(body);
    *text = realloc(body, length + 2);
    if (!*text) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the text of %s", what);
        goto done;
    }
    body = NULL;
    memcpy(*text + length, "\n", 2);
done:
    free(body);
    return status;
}

shoal_status shoal_hub_write_config(const shoal_hub_write_args *given, char **json)
{
    shoal_status status;
    shoal_hub_write_args args = {0};
    json_t *source = NULL;
    struct shoali_hub_writer writer = {.root = json_object()};
    *json = NULL;
    if (given)
        args = *given;
    writer.config = args.config;
    if (args.source)
        SHOAL_TRY(status, shoali_json_load_object(args.source, "config.json", &source), done);
    const char *preferred = json_string_value(json_object_get(source, "model_type"));
    SHOAL_TRY(status, find_family(args.config, preferred, &writer.family), done);
    if (preferred && strcmp(preferred, writer.family->type) == 0)
        writer.source = source;
    put_passed(&writer, shoali_hub_common, shoali_hub_common_count);
    put_passed(&writer, writer.family->keys, writer.family->key_count);
    put_unknown(&writer);
    shoali_hub_put(&writer, "model_type", json_string(writer.family->type));
    shoali_hub_put(&writer, "architectures", json_pack("[s]", writer.family->architecture));
    shoali_hub_put(&writer, "torch_dtype", json_string(dtype_name(args.dtype)));
    put_options(&writer);
    put_vocab(&writer);
    put_tokens(&writer, source, args.tokenizer ? shoal_tokenizer_eod(args.tokenizer) : -1);
    if (writer.family->decoder)
        shoali_hub_write_decoder(&writer);
    if (writer.family->write)
        writer.family->write(&writer);
    SHOAL_TRY(status, write_json(writer.root, writer.failed, "config.json", json), done);
done:
    json_decref(writer.root);
    json_decref(source);
    return status;
}

/* ---- generation_config.json ----------------------------------------------------------------- */

/* Rows that stand for no token are never drawn; what a source says of rows that are no tokens is
 * left out. */
static int suppress_padding(const shoal_model_config *config, json_t *root)
{
    int failed = 0;
    size_t i;
    json_t *value;
    const int64_t size = (int64_t)shoali_hub_option(config, "vocab-size");
    json_t *list = json_array();
    json_array_foreach(json_object_get(root, "suppress_tokens"), i, value)
    {
        if (json_integer_value(value) < size)
            failed |= json_array_append(list, value);
    }
    for (int64_t id = size; id < shoali_hub_vocab_rows(config) && !failed; id++)
        failed |= json_array_append_new(list, json_integer(id));
    if (json_array_size(list) > 0)
        return failed | json_object_set_new(root, "suppress_tokens", list);
    json_decref(list);
    (void)json_object_del(root, "suppress_tokens"); /* -1: there was none */
    return failed;
}

shoal_status shoal_hub_write_generation(const shoal_hub_write_args *given, char **json)
{
    shoal_status status;
    shoal_hub_write_args args = {0};
    json_t *config = NULL, *root = NULL;
    *json = NULL;
    if (given)
        args = *given;
    if (args.source) {
        SHOAL_TRY(status, shoali_json_load_object(args.source, "config.json", &config), done);
        SHOAL_TRY(status, shoali_json_load_object(args.source, "generation_config.json", &root),
                  done);
    }
    struct shoali_hub_writer writer = {.root = root ? root : json_object()};
    if (!root)
        put_tokens(&writer, config, args.tokenizer ? shoal_tokenizer_eod(args.tokenizer) : -1);
    root = writer.root;
    writer.failed |= suppress_padding(args.config, root);
    SHOAL_TRY(status, write_json(root, writer.failed, "generation_config.json", json), done);
done:
    json_decref(root);
    json_decref(config);
    return status;
}
