/* config.json to a configuration of the model table. */
#include "hub/hub.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { VALUE_BYTES = 96 };

/* ---- values --------------------------------------------------------------------------------- */

const json_t *shoali_hub_get(const struct shoali_hub_reader *reader, const char *key)
{
    const json_t *value = json_object_get(reader->root, key);
    return json_is_null(value) ? NULL : value;
}

/* As in the file, cut where it is long. */
static void show(const json_t *value, char text[VALUE_BYTES])
{
    char *whole = NULL;
    snprintf(text, VALUE_BYTES, "?");
    if (!value)
        snprintf(text, VALUE_BYTES, "not given");
    else if (shoali_json_write(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15),
                               "a value", &whole) == SHOAL_OK)
        snprintf(text, VALUE_BYTES, "%.*s%s", VALUE_BYTES - 8, whole,
                 strlen(whole) > VALUE_BYTES - 8 ? "..." : "");
    free(whole);
}

shoal_status shoali_hub_refuse(const struct shoali_hub_reader *reader, const char *key,
                               const json_t *value, const char *why)
{
    char text[VALUE_BYTES];
    show(value, text);
    return shoali_json_locate(reader->document, key,
                              SHOAL_FAIL(SHOAL_EUNSUPPORTED, "`%s` is %s, %s", key, text, why));
}

static bool has_option(const shoal_model_config *config, const char *option)
{
    const shoal_model_option *at;
    for (int32_t i = 0; (at = shoal_model_config_option(config, i)) != NULL; i++)
        if (strcmp(at->name, option) == 0)
            return true;
    return false;
}

double shoali_hub_option(const shoal_model_config *config, const char *option)
{
    double value = 0;
    if (!has_option(config, option) || shoal_model_config_get(config, option, &value) != SHOAL_OK)
        return 0;
    return value;
}

shoal_status shoali_hub_set(struct shoali_hub_reader *reader, const char *key, const char *option,
                            double value)
{
    const shoal_status status = shoal_model_config_set(reader->config, option, value);
    if (status < 0)
        return shoali_json_locate(reader->document, key,
                                  shoali_error_prefix(SHOAL_ECONFIG, "`%s`", key));
    return status;
}

bool shoali_hub_is_one_of(const char *key, const char *const *keys)
{
    for (; *keys; keys++)
        if (strcmp(*keys, key) == 0)
            return true;
    return false;
}

shoal_status shoali_hub_read_number(struct shoali_hub_reader *reader, const json_t *object,
                                    const char *place, const char *key, const char *option)
{
    char path[96];
    const json_t *value = json_object_get(object, key);
    snprintf(path, sizeof path, "%s%s%s", place, *place ? "." : "", key);
    if (!value || json_is_null(value))
        return SHOAL_OK;
    if (!json_is_number(value))
        return shoali_hub_refuse(reader, path, value, "it must be a number");
    return shoali_hub_set(reader, path, option, json_number_value(value));
}

/* ---- keys ----------------------------------------------------------------------------------- */

static bool is_bool_option(const shoal_model_config *config, const char *option)
{
    const shoal_model_option *at;
    for (int32_t i = 0; (at = shoal_model_config_option(config, i)) != NULL; i++)
        if (strcmp(at->name, option) == 0)
            return at->type == SHOAL_MODEL_BOOL;
    return false;
}

/* 0 of an option is "not given", so a key that says 0 would mean something else. */
static bool is_count(const shoal_model_config *config, const char *option)
{
    const shoal_model_option *at;
    for (int32_t i = 0; (at = shoal_model_config_option(config, i)) != NULL; i++)
        if (strcmp(at->name, option) == 0)
            return at->type == SHOAL_MODEL_INT;
    return false;
}

static shoal_status take_option(struct shoali_hub_reader *reader, const struct shoali_hub_key *row)
{
    const char *key = row->key;
    const json_t *value = shoali_hub_get(reader, key);
    if (!value && row->alias) {
        value = shoali_hub_get(reader, row->alias);
        key = value ? row->alias : key;
    }
    const bool truth = is_bool_option(reader->config, row->option);
    double number = row->absent;
    if (!value && row->use == SHOALI_HUB_NEEDED)
        return shoali_json_locate(reader->document, "",
                                  SHOAL_FAIL(SHOAL_ECONFIG,
                                             "there is no `%s`, which a model of type %s needs",
                                             key, reader->family->type));
    if (value && !(truth ? json_is_boolean(value) : json_is_number(value)))
        return shoali_hub_refuse(reader, key, value,
                                 truth ? "it must be true or false" : "it must be a number");
    if (value)
        number = truth ? json_is_true(value) : json_number_value(value);
    if (row->use == SHOALI_HUB_INVERSE && !(number > 0))
        return shoali_hub_refuse(reader, key, value, "it must be above 0");
    if (row->use == SHOALI_HUB_INVERSE)
        number = 1 / number;
    if (value && number == 0 && is_count(reader->config, row->option))
        return shoali_hub_refuse(reader, key, value, "it must be 1 or more");
    return shoali_hub_set(reader, key, row->option,
                          row->use == SHOALI_HUB_NOT ? number == 0 : number);
}

/* Equal, numbers by their value: 1 and 1.0 are the same. */
static bool is_same(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

static shoal_status check_only(const struct shoali_hub_reader *reader,
                               const struct shoali_hub_key *row)
{
    shoal_status status = SHOAL_OK;
    char why[VALUE_BYTES];
    json_t *only = NULL;
    const json_t *value = shoali_hub_get(reader, row->key);
    if (!value)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_json_read(row->only, strlen(row->only), &only, NULL), done);
    snprintf(why, sizeof why, "and only %s is computed", row->only);
    if (!is_same(only, value))
        status = shoali_hub_refuse(reader, row->key, value,
                                   json_is_null(only) ? "which is not computed" : why);
done:
    json_decref(only);
    return status;
}

/* Training drops with one probability what transformers drops with several. */
static void note_dropout(const struct shoali_hub_reader *reader, const struct shoali_hub_key *row)
{
    const json_t *value = shoali_hub_get(reader, row->key);
    const double used = shoali_hub_option(reader->config, row->option);
    if (value && (!json_is_number(value) || json_number_value(value) != used))
        SHOALI_WARN("hub",
                    "%s: `%s` has another value than %g, with which training drops here: "
                    "--%s sets it",
                    reader->name, row->key, used, row->option);
}

/* A key under both of its names says the same under both. */
static shoal_status check_alias(const struct shoali_hub_reader *reader,
                                const struct shoali_hub_key *row)
{
    char why[VALUE_BYTES];
    const json_t *value = shoali_hub_get(reader, row->key);
    const json_t *other = row->alias ? shoali_hub_get(reader, row->alias) : NULL;
    if (!value || !other || is_same(value, other))
        return SHOAL_OK;
    snprintf(why, sizeof why, "and `%s`, which means the same, has another value: leave one out",
             row->key);
    return shoali_hub_refuse(reader, row->alias, other, why);
}

static shoal_status take_keys(struct shoali_hub_reader *reader, const struct shoali_hub_key *rows,
                              int32_t count)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < count; i++) {
        const enum shoali_hub_use use = rows[i].use;
        SHOAL_TRY(status, check_alias(reader, &rows[i]), done);
        if (use == SHOALI_HUB_ONLY)
            SHOAL_TRY(status, check_only(reader, &rows[i]), done);
        else if (use == SHOALI_HUB_DROPOUT)
            note_dropout(reader, &rows[i]);
        else if (use == SHOALI_HUB_NEEDED || use == SHOALI_HUB_TAKEN || use == SHOALI_HUB_NOT ||
                 use == SHOALI_HUB_INVERSE)
            SHOAL_TRY(status, take_option(reader, &rows[i]), done);
    }
done:
    return status;
}

static const struct shoali_hub_key *find_key(const struct shoali_hub_key *rows, int32_t count,
                                             const char *key)
{
    for (int32_t i = 0; i < count; i++)
        if (strcmp(rows[i].key, key) == 0 || (rows[i].alias && strcmp(rows[i].alias, key) == 0))
            return &rows[i];
    return NULL;
}

static const struct shoali_hub_key *find_known(const struct shoali_hub_family *family,
                                               const char *key)
{
    const struct shoali_hub_key *own = find_key(family->keys, family->key_count, key);
    return own ? own : find_key(shoali_hub_common, shoali_hub_common_count, key);
}

bool shoali_hub_knows(const struct shoali_hub_family *family, const char *key)
{
    return find_known(family, key) != NULL;
}

bool shoali_hub_mentions(const struct shoali_hub_family *family, const char *option)
{
    for (int32_t i = 0; i < family->key_count; i++)
        if (family->keys[i].option && strcmp(family->keys[i].option, option) == 0)
            return true;
    for (int32_t i = 0; i < family->fixed_count; i++)
        if (strcmp(family->fixed[i].option, option) == 0)
            return true;
    return (family->seen && shoali_hub_is_one_of(option, family->seen)) ||
           (family->decoder && shoali_hub_decoder_sees(family->decoder, option)) ||
           shoal_hub_option_is_free(option);
}

static bool says_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && !*json_string_value(value)) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static void list_key(struct shoali_str *list, const char *key)
{
    shoali_str_append(list, "%s`%s`", list->length ? ", " : "", key);
}

/* Unknown keys end the reading, unless they are allowed. A line lists them then, and one the keys
 * that change no logits. */
static shoal_status check_unknown(const struct shoali_hub_reader *reader)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str notes = {0}, ignored = {0};
    const char *key;
    json_t *value;
    json_object_foreach(reader->root, key, value)
    {
        const struct shoali_hub_key *row = find_known(reader->family, key);
        if (says_nothing(value))
            continue;
        if (row && row->use == SHOALI_HUB_NOTE)
            list_key(&notes, key);
        if (row)
            continue;
        if (!reader->allow_unknown_keys)
            SHOAL_TRY(status,
                      shoali_hub_refuse(reader, key, value,
                                        "and nothing is known of this key for such a model: if it "
                                        "does not change what the model computes, remove it or "
                                        "give --allow-unknown-config-keys"),
                      done);
        list_key(&ignored, key);
    }
    if (notes.length)
        SHOALI_INFO("hub", "%s: keys that change no logits: %s", reader->name,
                    shoali_str_get(&notes));
    if (ignored.length)
        SHOALI_WARN("hub", "%s: --allow-unknown-config-keys: ignored %s", reader->name,
                    shoali_str_get(&ignored));
done:
    shoali_str_fini(&notes);
    shoali_str_fini(&ignored);
    return status;
}

/* ---- what all have -------------------------------------------------------------------------- */

static shoal_status fail_type(const struct shoali_json *document, const json_t *root)
{
    struct shoali_str list = {0};
    char text[VALUE_BYTES];
    const json_t *value = json_object_get(root, "model_type");
    for (int32_t i = 0; shoali_hub_families[i]; i++)
        shoali_str_append(&list, "%s%s", i ? ", " : "", shoali_hub_families[i]->type);
    show(value, text);
    const shoal_status status = shoali_json_locate(
        document, value ? "model_type" : "",
        SHOAL_FAIL(SHOAL_EUNSUPPORTED, "`model_type` is %s; models of these types are computed: %s",
                   text, shoali_str_get(&list)));
    shoali_str_fini(&list);
    return status;
}

static shoal_status find_family(struct shoali_hub_reader *reader)
{
    const char *type = json_string_value(json_object_get(reader->root, "model_type"));
    for (int32_t i = 0; type && shoali_hub_families[i]; i++)
        if (strcmp(shoali_hub_families[i]->type, type) == 0) {
            reader->family = shoali_hub_families[i];
            return SHOAL_OK;
        }
    return fail_type(reader->document, reader->root);
}

static shoal_status read_dtype(const struct shoali_hub_reader *reader, shoal_dtype *dtype)
{
    static const struct {
        const char *name;
        shoal_dtype dtype;
    } names[] = {{"float32", SHOAL_F32}, {"bfloat16", SHOAL_BF16}, {"float16", SHOAL_F16}};
    const char *key = shoali_hub_get(reader, "torch_dtype") ? "torch_dtype" : "dtype";
    const json_t *value = shoali_hub_get(reader, key);
    const char *name = json_string_value(value);
    *dtype = SHOAL_F32;
    if (!value)
        return SHOAL_OK;
    if (name && strncmp(name, "torch.", 6) == 0)
        name += 6;
    for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].name, name) == 0) {
            *dtype = names[i].dtype;
            return SHOAL_OK;
        }
    return shoali_hub_refuse(reader, key, value,
                             "and only float32, bfloat16 and float16 are known");
}

/* The member of our own: how many rows of the vocabulary are tokens. */
static shoal_status read_padding(struct shoali_hub_reader *reader)
{
    shoal_status status;
    const json_t *own = shoali_hub_get(reader, "shoal");
    const int64_t rows = (int64_t)shoali_hub_option(reader->config, "vocab-size");
    if (!own)
        return SHOAL_OK;
    const json_t *size = json_object_get(own, "vocab_size");
    const json_t *multiple = json_object_get(own, "make_vocab_size_divisible_by");
    if (!json_is_integer(size) || !json_is_integer(multiple))
        return shoali_hub_refuse(reader, "shoal", own,
                                 "it must have numbers vocab_size, make_vocab_size_divisible_by");
    SHOAL_TRY(status,
              shoali_hub_set(reader, "shoal", "vocab-size", (double)json_integer_value(size)),
              done);
    SHOAL_TRY(status,
              shoali_hub_set(reader, "shoal", "make-vocab-size-divisible-by",
                             (double)json_integer_value(multiple)),
              done);
    if (shoali_hub_vocab_rows(reader->config) != rows)
        status = shoali_hub_refuse(reader, "shoal", own, "which does not make `vocab_size`");
done:
    return status;
}

/* Samples of a training have no length in config.json: as long as the model reads, up to a length
 * at which all of these models can be trained. */
static shoal_status set_length(struct shoali_hub_reader *reader)
{
    enum { LONGEST = 1024 };
    const double positions = shoali_hub_option(reader->config, "max-position-embeddings");
    return shoali_hub_set(reader, "max_position_embeddings", "seq-length",
                          positions > 0 && positions < LONGEST ? positions : LONGEST);
}

static shoal_status read_root(struct shoali_hub_reader *reader)
{
    shoal_status status;
    SHOAL_TRY(status, find_family(reader), done);
    SHOAL_TRY(status, shoal_model_config_create(reader->family->row, &reader->config), done);
    SHOAL_TRY(status, check_unknown(reader), done);
    for (int32_t i = 0; i < reader->family->fixed_count; i++)
        SHOAL_TRY(status,
                  shoal_model_config_set(reader->config, reader->family->fixed[i].option,
                                         reader->family->fixed[i].value),
                  done);
    SHOAL_TRY(status, take_keys(reader, shoali_hub_common, shoali_hub_common_count), done);
    SHOAL_TRY(status, take_keys(reader, reader->family->keys, reader->family->key_count), done);
    if (reader->family->decoder)
        SHOAL_TRY(status, shoali_hub_read_decoder(reader), done);
    if (reader->family->read)
        SHOAL_TRY(status, reader->family->read(reader), done);
    SHOAL_TRY(status, read_padding(reader), done);
    SHOAL_TRY(status, set_length(reader), done);
done:
    return status;
}

/* ---- the file ------------------------------------------------------------------------------- */

bool shoal_hub_is_folder(const char *dir)
{
    return shoali_has_file(dir, "config.json") && !shoali_has_file(dir, "latest");
}

bool shoal_hub_option_is_free(const char *option)
{
    for (int32_t i = 0; shoali_hub_training[i]; i++)
        if (strcmp(shoali_hub_training[i], option) == 0)
            return true;
    return false;
}

static shoal_status parse(const char *text, size_t bytes, const char *name, bool allow_unknown_keys,
                          shoal_model_config **config, shoal_dtype *dtype)
{
    shoal_status status;
    struct shoali_hub_reader reader = {.allow_unknown_keys = allow_unknown_keys};
    shoal_dtype unused;
    *config = NULL;
    reader.name = name;
    SHOAL_TRY(status, shoali_json_parse(text, bytes, name, &reader.document), done);
    reader.root = shoali_json_root(reader.document);
    SHOAL_TRY(status, read_root(&reader), done);
    SHOAL_TRY(status, read_dtype(&reader, dtype ? dtype : &unused), done);
    *config = reader.config;
    reader.config = NULL;
done:
    shoal_model_config_destroy(reader.config);
    shoali_json_close(reader.document);
    return status;
}

shoal_status shoal_hub_parse_config(const char *text, size_t bytes, const char *name,
                                    shoal_model_config **config, shoal_dtype *dtype)
{
    return parse(text, bytes, name, false, config, dtype);
}

shoal_status shoal_hub_read_config(const char *dir, shoal_model_config **config, shoal_dtype *dtype)
{
    return shoal_hub_read(dir, false, config, dtype);
}

shoal_status shoal_hub_read(const char *dir, bool allow_unknown_keys, shoal_model_config **config,
                            shoal_dtype *dtype)
{
    shoal_status status;
    struct shoali_str path = {0};
    char *text = NULL;
    size_t bytes = 0;
    *config = NULL;
    shoali_str_append(&path, "%s/config.json", dir);
    if (path.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
        goto done;
    }
    SHOAL_TRY(status, shoali_read_text(path.text, &text, &bytes), done);
    SHOAL_TRY(status, parse(text, bytes, path.text, allow_unknown_keys, config, dtype), done);
done:
    free(text);
    shoali_str_fini(&path);
    return status;
}

/* ---- the tokenizer -------------------------------------------------------------------------- */

/* What a tokenizer can be in; those that it is opened by first. */
static const char *const tokenizer_files[] = {
    "tokenizer.json",          "vocab.json",        "tokenizer.model",     "spiece.model",
    "sentencepiece.bpe.model", "vocab.txt",         "merges.txt",          "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", NULL};
enum { OPENED_BY = 6 };

const char *shoal_hub_tokenizer_file(int32_t index)
{
    for (int32_t i = 0; i <= index; i++)
        if (!tokenizer_files[i])
            return NULL;
    return index < 0 ? NULL : tokenizer_files[index];
}

shoal_status shoal_hub_open_tokenizer(const char *dir, shoal_tokenizer **tokenizer)
{
    *tokenizer = NULL;
    for (int32_t i = 0; i < OPENED_BY; i++)
        if (shoali_has_file(dir, tokenizer_files[i]))
            return shoal_tokenizer_open(dir, tokenizer);
    return SHOAL_OK;
}

/* ---- the folder in the table of models ------------------------------------------------------ */

const struct shoali_model_folder shoali_model_folder_hub = {
    .name = "Hugging Face Hub",
    .probe = shoal_hub_is_folder,
    .read_config = shoal_hub_read,
    .open_tokenizer = shoal_hub_open_tokenizer,
};
