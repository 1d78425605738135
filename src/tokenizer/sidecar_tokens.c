/* Added and special tokens of the files next to a vocabulary. They become entries of
 * `added_tokens`, as transformers gives them to its tokenizers:
 *
 *   1. added_tokens_decoder of tokenizer_config.json, else added_tokens.json, by number;
 *   2. bos_token ... mask_token, additional_special_tokens, extra_special_tokens, and other keys
 *      that end with _token; without a number in the vocabulary they get the next one;
 *   3. what the vocabulary's own format calls special, unless the class or a list says it.
 *
 * The first entry of a text counts. */
#include "tokenizer/formats.h"

#include "tokenizer/unigram.h"
#include "tokenizer/vocab.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct adding {
    const struct shoali_sidecars *sidecars;
    enum shoali_vocabulary vocabulary;
    json_t *list;  /* added_tokens, of the result */
    json_t *index; /* "string": number, of all tokens */
    json_t *done;  /* "string": entry */
    json_int_t size;
    json_int_t pieces; /* its size before anything is added */
    const char *file;  /* that the entries come from */
};

static shoal_status no_memory(void)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate added tokens");
}

/* ---- the vocabulary ---- */

static shoal_status index_strings(const json_t *root, struct adding *adding)
{
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    json_t *value;
    const char *key;
    size_t i;
    bool failed = false;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value)
    {
        failed |= json_object_set(adding->index, key, value) != 0;
        if (json_integer_value(value) >= adding->size)
            adding->size = json_integer_value(value) + 1;
    }
    json_array_foreach(vocab, i, value)
    {
        const json_t *text = json_is_array(value) ? json_array_get(value, 0) : value;
        adding->size = (json_int_t)i + 1;
        if (json_is_string(text) && !json_object_get(adding->index, json_string_value(text)))
            failed |= json_object_set_new(adding->index, json_string_value(text),
                                          json_integer((json_int_t)i)) != 0;
    }
    return failed ? no_memory() : SHOAL_OK;
}

/* An entry that is complete. */
static shoal_status put(struct adding *adding, json_t *entry)
{
    const char *content = json_string_value(json_object_get(entry, "content"));
    json_t *id = json_object_get(entry, "id");
    if (!content || !json_is_integer(id)) /* whose sentence the builder of the pipeline has */
        return json_array_append(adding->list, entry) == 0 ? SHOAL_OK : no_memory();
    if (json_integer_value(id) >= adding->size)
        adding->size = json_integer_value(id) + 1;
    const bool known = json_object_get(adding->index, content) != NULL;
    if (json_array_append(adding->list, entry) != 0 ||
        json_object_set(adding->done, content, entry) != 0 ||
        (!known && json_object_set(adding->index, content, id) != 0))
        return no_memory();
    return SHOAL_OK;
}

/* ---- one token ---- */

/* `otherwise` where the description has no such flag. */
static shoal_status flag(const struct adding *adding, const json_t *description,
                         const char *content, const char *key, bool otherwise, int *value)
{
    const json_t *given = json_object_get(description, key);
    *value = otherwise;
    if (!given || json_is_null(given))
        return SHOAL_OK;
    if (!json_is_boolean(given))
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s%s: `%s` of the token `%s`: true or false is expected",
                          adding->sidecars->folder, adding->file, key, content);
    *value = json_is_true(given);
    return SHOAL_OK;
}

static json_t *pack(struct adding *adding, const char *content, json_int_t id, const int *flags)
{
    return json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id", id, "content", content, "single_word",
                     flags[0], "lstrip", flags[1], "rstrip", flags[2], "normalized",
                     /* SentencePiece looks for them in the text as it is */
                     adding->vocabulary == SHOALI_VOCABULARY_PIECES ? 0 : flags[3], "special",
                     flags[4]);
}

/* `id` < 0: its number in the vocabulary, else the next one. `description`: an object with flags,
 * or NULL. */
static shoal_status add(struct adding *adding, const char *content, json_int_t id,
                        const json_t *description, bool special)
{
    shoal_status status = SHOAL_OK;
    static const char *const keys[4] = {"single_word", "lstrip", "rstrip", "normalized"};
    int flags[5] = {0, 0, 0, 0, special};
    const json_t *known = json_object_get(adding->index, content);
    if (known && id >= 0 && json_integer_value(known) != id)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s%s: the token `%s` has the number %lld, and the vocabulary says %lld: "
                          "remove one of them",
                          adding->sidecars->folder, adding->file, content, (long long)id,
                          (long long)json_integer_value(known));
    if (json_object_get(adding->done, content))
        return SHOAL_OK;
    if (!special)
        SHOAL_TRY(status, flag(adding, description, content, "special", false, &flags[4]), done);
    for (int i = 0; i < 4; i++)
        SHOAL_TRY(status,
                  flag(adding, description, content, keys[i], i == 3 && !flags[4], &flags[i]),
                  done);
    if (id < 0)
        id = known ? json_integer_value(known) : adding->size;
    json_t *entry = pack(adding, content, id, flags);
    if (!entry)
        return no_memory();
    status = put(adding, entry);
    json_decref(entry);
done:
    return status;
}

/* ---- added tokens ---- */

struct numbered {
    json_int_t id;
    const char *content;
    const json_t *description;
};

static int by_number(const void *a, const void *b)
{
    const json_int_t left = ((const struct numbered *)a)->id,
                     right = ((const struct numbered *)b)->id;
    return left < right ? -1 : left > right;
}

static shoal_status wrong_entry(const struct adding *adding, const char *key)
{
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "%s%s: the added token `%s` needs a text and a number from 0 to %d",
                      adding->sidecars->folder, adding->file, key, SHOALI_ID_MAX);
}

/* {"280": {"content": ...}} or {"<|im_end|>": 280} */
static shoal_status list_numbered(const struct adding *adding, const json_t *object, bool decoder,
                                  struct numbered *list)
{
    const char *key;
    json_t *value;
    size_t count = 0;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        int64_t id = -1;
        const json_t *content = json_object_get(value, "content");
        if (decoder ? !shoali_parse_i64(key, &id) || !json_is_string(content)
                    : !json_is_integer(value))
            return wrong_entry(adding, key);
        if (!decoder)
            id = json_integer_value(value);
        list[count] = (struct numbered){id, decoder ? json_string_value(content) : key,
                                        decoder ? value : NULL};
        if (id < 0 || id > SHOALI_ID_MAX || !*list[count++].content)
            return wrong_entry(adding, key);
    }
    qsort(list, count, sizeof *list, by_number);
    for (size_t i = 1; i < count; i++)
        if (list[i].id == list[i - 1].id)
            return SHOAL_FAIL(SHOAL_ECONFIG, "%s%s: `%s` and `%s` have the same number, %lld",
                              adding->sidecars->folder, adding->file, list[i - 1].content,
                              list[i].content, (long long)list[i].id);
    return SHOAL_OK;
}

static bool is_named(const struct shoali_sidecars *sidecars, const char *content);

static shoal_status add_numbered(struct adding *adding)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_sidecars *sidecars = adding->sidecars;
    const json_t *decoder = json_object_get(sidecars->config, "added_tokens_decoder");
    const json_t *object = decoder ? decoder : sidecars->added;
    adding->file = decoder ? "tokenizer_config.json: added_tokens_decoder" : "added_tokens.json";
    if (!object)
        return SHOAL_OK;
    if (!json_is_object(object))
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s%s: an object is expected", sidecars->folder,
                          adding->file);
    const size_t count = json_object_size(object);
    struct numbered *list = shoali_calloc(count + 1, sizeof *list, "added tokens");
    if (!list)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, list_numbered(adding, object, decoder != NULL, list), done);
    for (size_t i = 0; i < count; i++)
        SHOAL_TRY(status,
                  add(adding, list[i].content, list[i].id, list[i].description,
                      is_named(sidecars, list[i].content)),
                  done);
done:
    shoali_free(list);
    return status;
}

/* ---- special tokens ---- */

static const char *content_of(const json_t *value)
{
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
enum { LISTS = 2 };

static bool is_named(const struct shoali_sidecars *sidecars, const char *content)
{
    for (int i = 0; i < SHOALI_NAMED_COUNT; i++) {
        const char *text =
            content_of(shoali_sidecars_value(sidecars, shoali_named_keys[i], NULL, NULL));
        if (text && strcmp(text, content) == 0)
            return true;
    }
    for (int i = 0; i < LISTS; i++) {
        const json_t *list = shoali_sidecars_value(sidecars, lists[i], NULL, NULL), *value;
        size_t at;
        json_array_foreach(list, at, value)
        {
            const char *text = content_of(value);
            if (text && strcmp(text, content) == 0)
                return true;
        }
    }
    return false;
}

static shoal_status add_special(struct adding *adding, const json_t *value, const char *key)
{
    const char *content = content_of(value);
    if (!content || !*content)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s%s: %s: a text, or an object with the text `content`, is expected",
                          adding->sidecars->folder, adding->file, key);
    return add(adding, content, -1, json_is_object(value) ? value : NULL, true);
}

/* A list, or an object of names. */
static shoal_status add_list(struct adding *adding, const char *key)
{
    shoal_status status = SHOAL_OK;
    const json_t *list = shoali_sidecars_value(adding->sidecars, key, &adding->file, NULL);
    const char *name;
    json_t *value;
    size_t i;
    if (list && !json_is_array(list) && !json_is_object(list))
        return add_special(adding, NULL, key);
    json_array_foreach(list, i, value) SHOAL_TRY(status, add_special(adding, value, key), done);
    json_object_foreach((json_t *)(uintptr_t)list, name, value)
        SHOAL_TRY(status, add_special(adding, value, key), done);
done:
    return status;
}

/* Keys of a model's own, as image_token. */
static shoal_status add_others(struct adding *adding, const json_t *object, const char *file)
{
    shoal_status status = SHOAL_OK;
    const char *key;
    json_t *value;
    adding->file = file;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const size_t length = strlen(key);
        bool named = false;
        for (int i = 0; i < SHOALI_NAMED_COUNT; i++)
            named = named || strcmp(key, shoali_named_keys[i]) == 0;
        if (!named && length > 6 && strcmp(key + length - 6, "_token") == 0 && content_of(value))
            SHOAL_TRY(status, add_special(adding, value, key), done);
    }
done:
    return status;
}

/* Whether a file names the class, so that its special tokens exist even if the vocabulary lacks
 * them. */
static bool is_class_given(const struct shoali_sidecars *sidecars)
{
    return sidecars->kind && sidecars->class_name &&
           strcmp(sidecars->kind->name, sidecars->class_name) == 0;
}

/* Of the files, and a class's own ones. */
static shoal_status add_named(struct adding *adding)
{
    shoal_status status = SHOAL_OK;
    const bool given = is_class_given(adding->sidecars);
    for (int i = 0; i < SHOALI_NAMED_COUNT; i++) {
        const char *text;
        const json_t *value =
            shoali_sidecars_value(adding->sidecars, shoali_named_keys[i], &adding->file, NULL);
        SHOAL_TRY(status, shoali_sidecars_named(adding->sidecars, (enum shoali_named)i, &text),
                  done);
        if (text && (value || given || json_object_get(adding->index, text)))
            SHOAL_TRY(status, add(adding, text, -1, json_is_object(value) ? value : NULL, true),
                      done);
    }
    for (int i = 0; i < LISTS; i++)
        SHOAL_TRY(status, add_list(adding, lists[i]), done);
    SHOAL_TRY(status, add_others(adding, adding->sidecars->map, "special_tokens_map.json"), done);
    SHOAL_TRY(status, add_others(adding, adding->sidecars->config, "tokenizer_config.json"), done);
done:
    return status;
}

/* ---- T5 ---- */

static bool is_t5(const struct adding *adding)
{
    return adding->sidecars->kind && adding->sidecars->kind->appends_eos;
}

static shoal_status refuse_t5(const struct adding *adding, const char *what)
{
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "%s%s: T5 has its extra_ids right behind the pieces, and other added tokens "
                      "behind them without a gap: save the tokenizer with transformers as "
                      "tokenizer.json",
                      adding->sidecars->folder, what);
}

/* A list of special tokens has all extra ids or none, as in transformers 4. */
static shoal_status check_t5_lists(const struct adding *adding, json_int_t count)
{
    json_int_t found = 0;
    const char *file = "", *key = "";
    for (int i = 0; i < LISTS; i++) {
        const json_t *value, *list = shoali_sidecars_value(adding->sidecars, lists[i], &file, NULL);
        size_t at;
        json_array_foreach(list, at, value)
        {
            const char *text = content_of(value);
            found += text && strncmp(text, "<extra_id_", 10) == 0;
            key = lists[i];
        }
    }
    return found == 0 || found == count || count == 0
               ? SHOAL_OK
               : SHOAL_FAIL(SHOAL_ECONFIG,
                            "%s%s: %s has %lld of T5's %lld extra ids (extra_ids): give all or "
                            "none",
                            adding->sidecars->folder, file, key, (long long)found,
                            (long long)count);
}

/* <extra_id_0> ... behind the pieces, the first of them last. */
static shoal_status add_extra_ids(struct adding *adding)
{
    shoal_status status = SHOAL_OK;
    const json_t *given = json_object_get(adding->sidecars->config, "extra_ids");
    const json_int_t count = given ? json_integer_value(given) : 100;
    adding->file = "tokenizer_config.json";
    if (given && (!json_is_integer(given) || count < 0 || count > SHOALI_ID_MAX - adding->pieces))
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s%s: extra_ids: a number from 0 is expected",
                          adding->sidecars->folder, adding->file);
    SHOAL_TRY(status, check_t5_lists(adding, count), done);
    for (json_int_t i = count - 1; i >= 0; i--) {
        const json_int_t id = adding->pieces + count - 1 - i;
        char name[40];
        snprintf(name, sizeof name, "<extra_id_%lld>", (long long)i);
        const json_t *entry = json_object_get(adding->done, name);
        if (entry && json_integer_value(json_object_get(entry, "id")) != id)
            return refuse_t5(adding, adding->file);
        SHOAL_TRY(status, add(adding, name, id, NULL, true), done);
    }
done:
    return status;
}

/* Transformers gives each added token the next number, whatever the files say. */
static shoal_status check_t5_numbers(const struct adding *adding)
{
    const json_int_t count = adding->size - adding->pieces;
    json_int_t behind = 0;
    size_t i;
    json_t *entry;
    bool *used = shoali_calloc((size_t)count + 1, sizeof *used, "added tokens");
    if (!used)
        return SHOAL_ENOMEM;
    json_array_foreach(adding->list, i, entry)
    {
        const json_int_t at = json_integer_value(json_object_get(entry, "id")) - adding->pieces;
        behind += at >= 0;
        used[at >= 0 ? at : count] = true;
    }
    bool whole = behind == count;
    for (json_int_t at = 0; at < count; at++)
        whole = whole && used[at];
    shoali_free(used);
    return whole ? SHOAL_OK : refuse_t5(adding, "tokenizer_config.json, added_tokens.json");
}

static shoal_status add_t5(struct adding *adding)
{
    shoal_status status;
    const json_t *first = json_object_get(adding->index, "<extra_id_0>");
    const bool is_piece = first && json_integer_value(first) < adding->pieces;
    if (!is_t5(adding) || is_piece)
        return SHOAL_OK;
    SHOAL_TRY(status, add_extra_ids(adding), done);
    SHOAL_TRY(status, check_t5_numbers(adding), done);
done:
    return status;
}

/* ---- the format's own ---- */

static shoal_status add_pieces(struct adding *adding, const json_t *root)
{
    shoal_status status = SHOAL_OK;
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *piece;
    size_t i;
    adding->file = "";
    json_array_foreach(vocab, i, piece)
    {
        const json_int_t type = json_integer_value(json_array_get(piece, 2));
        const char *text = json_string_value(json_array_get(piece, 0));
        if (text && (type == SHOALI_PIECE_CONTROL || type == SHOALI_PIECE_UNKNOWN))
            SHOAL_TRY(status, add(adding, text, -1, NULL, true), done);
    }
done:
    return status;
}

static shoal_status put_list(struct adding *adding, const json_t *list)
{
    shoal_status status = SHOAL_OK;
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry)
    {
        const char *content = json_string_value(json_object_get(entry, "content"));
        if (!content || !json_object_get(adding->done, content))
            SHOAL_TRY(status, put(adding, entry), done);
    }
done:
    return status;
}

static shoal_status set_eod(struct adding *adding, json_t *root)
{
    shoal_status status;
    const char *text;
    SHOAL_TRY(status, shoali_sidecars_named(adding->sidecars, SHOALI_EOS, &text), done);
    json_t *id = text ? json_object_get(adding->index, text) : NULL;
    if (id && json_object_set(root, "eod", id) != 0)
        status = no_memory();
done:
    return status;
}

/* Whether what the vocabulary's own format calls special is so: transformers takes the special
 * tokens of its class, and control pieces where tokenizer_config.json has no list of others. */
static bool takes_own(const struct adding *adding)
{
    const struct shoali_tokenizer_class *kind = adding->sidecars->kind;
    bool given = adding->vocabulary != SHOALI_VOCABULARY_PIECES;
    for (int i = 0; i < LISTS; i++)
        given = given || json_object_get(adding->sidecars->config, lists[i]);
    return !given || !kind || !kind->named[SHOALI_UNK];
}

static shoal_status collect(struct adding *adding, json_t *root)
{
    shoal_status status;
    const json_t *own = json_object_get(root, "added_tokens");
    const bool whole = adding->vocabulary == SHOALI_VOCABULARY_JSON;
    const bool takes = takes_own(adding);
    SHOAL_TRY(status, index_strings(root, adding), done);
    adding->pieces = adding->size;
    if (whole) /* the file's own go before those of the files next to it */
        SHOAL_TRY(status, put_list(adding, own), done);
    SHOAL_TRY(status, add_numbered(adding), done);
    SHOAL_TRY(status, add_t5(adding), done);
    SHOAL_TRY(status, add_named(adding), done);
    if (takes && adding->vocabulary == SHOALI_VOCABULARY_PIECES)
        SHOAL_TRY(status, add_pieces(adding, root), done);
    if (takes && !whole)
        SHOAL_TRY(status, put_list(adding, own), done);
    if (json_object_set(root, "added_tokens", adding->list) != 0) {
        status = no_memory();
        goto done;
    }
    SHOAL_TRY(status, set_eod(adding, root), done);
done:
    return status;
}

shoal_status shoali_sidecars_tokens(const struct shoali_sidecars *sidecars,
                                    enum shoali_vocabulary vocabulary, json_t *root, json_t **index)
{
    struct adding adding = {.sidecars = sidecars,
                            .vocabulary = vocabulary,
                            .list = json_array(),
                            .index = json_object(),
                            .done = json_object()};
    *index = adding.index;
    const shoal_status status = collect(&adding, root);
    json_decref(adding.list);
    json_decref(adding.done);
    return status;
}
