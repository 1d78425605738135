/* Files next to a vocabulary: tokenizer_config.json, special_tokens_map.json, added_tokens.json,
 * and config.json for the class where tokenizer_config.json names none. A tokenizer_config.json
 * with added_tokens_decoder stands for the two others, as in transformers. */
#include "tokenizer/formats.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

const char *const shoali_named_keys[SHOALI_NAMED_COUNT] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

static shoal_status read_one(const struct shoali_sidecars *sidecars, const char *name,
                             json_t **root)
{
    shoal_status status;
    struct stat info;
    const char *path = shoali_arena_printf(sidecars->arena, "%s%s", sidecars->folder, name);
    *root = NULL;
    if (!path)
        return SHOAL_ENOMEM;
    if (stat(path, &info) != 0)
        return SHOAL_OK;
    if (!S_ISREG(info.st_mode))
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s is no plain file: replace it by one, or remove it",
                          path);
    SHOAL_TRY(status, shoali_read_json_file(path, root), done);
    if (!json_is_object(*root))
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s: an object is expected", path);
done:
    return status;
}

/* LlamaTokenizerFast reads the files of LlamaTokenizer. */
static shoal_status take_class(struct shoali_sidecars *sidecars, const char *name, const char *key)
{
    const size_t length = name ? strlen(name) : 0;
    const bool fast = length > 4 && strcmp(name + length - 4, "Fast") == 0;
    if (!name)
        return SHOAL_OK;
    sidecars->class_key = key;
    sidecars->class_name =
        shoali_arena_printf(sidecars->arena, "%.*s", (int)(fast ? length - 4 : length), name);
    return sidecars->class_name ? SHOAL_OK : SHOAL_ENOMEM;
}

static shoal_status find_class(struct shoali_sidecars *sidecars)
{
    shoal_status status;
    json_t *model = NULL;
    const char *name = json_string_value(json_object_get(sidecars->config, "tokenizer_class"));
    if (name)
        return take_class(sidecars, name, "tokenizer_config.json: tokenizer_class");
    SHOAL_TRY(status, read_one(sidecars, "config.json", &model), done);
    name = json_string_value(json_object_get(model, "tokenizer_class"));
    const char *key = name ? "config.json: tokenizer_class" : "config.json: model_type";
    if (!name)
        name = shoali_class_of_model(json_string_value(json_object_get(model, "model_type")));
    SHOAL_TRY(status, take_class(sidecars, name, key), done);
done:
    json_decref(model);
    return status;
}

shoal_status shoali_sidecars_open(struct shoali_arena *arena, const char *folder,
                                  struct shoali_sidecars *sidecars)
{
    shoal_status status;
    const size_t length = strlen(folder);
    *sidecars = (struct shoali_sidecars){.arena = arena};
    sidecars->folder = shoali_arena_printf(arena, "%s%s", folder,
                                           length > 0 && folder[length - 1] == '/' ? "" : "/");
    if (!sidecars->folder)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, read_one(sidecars, "tokenizer_config.json", &sidecars->config), done);
    SHOAL_TRY(status, read_one(sidecars, "special_tokens_map.json", &sidecars->map), done);
    SHOAL_TRY(status, read_one(sidecars, "added_tokens.json", &sidecars->added), done);
    if (json_object_get(sidecars->config, "added_tokens_decoder")) {
        json_decref(sidecars->map);
        json_decref(sidecars->added);
        sidecars->map = sidecars->added = NULL;
    }
    SHOAL_TRY(status, find_class(sidecars), done);
done:
    return status;
}

void shoali_sidecars_close(struct shoali_sidecars *sidecars)
{
    json_decref(sidecars->config);
    json_decref(sidecars->map);
    json_decref(sidecars->added);
    sidecars->config = sidecars->map = sidecars->added = NULL;
}

/* special_tokens_map.json goes before tokenizer_config.json. */
const json_t *shoali_sidecars_value(const struct shoali_sidecars *sidecars, const char *key,
                                    const char **file, bool *present)
{
    const json_t *own = json_object_get(sidecars->config, key);
    const json_t *value = json_object_get(sidecars->map, key);
    if (file)
        *file = value ? "special_tokens_map.json" : "tokenizer_config.json";
    if (!value)
        value = own;
    if (present)
        *present = value != NULL;
    return json_is_null(value) ? NULL : value;
}

shoal_status shoali_sidecars_bool(const struct shoali_sidecars *sidecars, const char *key,
                                  bool otherwise, bool *value)
{
    const json_t *given = json_object_get(sidecars->config, key);
    *value = otherwise;
    if (!given || json_is_null(given))
        return SHOAL_OK;
    if (!json_is_boolean(given))
        return SHOAL_FAIL(SHOAL_ECONFIG, "%stokenizer_config.json: %s: true or false is expected",
                          sidecars->folder, key);
    *value = json_is_true(given);
    return SHOAL_OK;
}

shoal_status shoali_sidecars_named(const struct shoali_sidecars *sidecars, enum shoali_named named,
                                   const char **text)
{
    const char *file, *key = shoali_named_keys[named];
    bool present;
    const json_t *value = shoali_sidecars_value(sidecars, key, &file, &present);
    *text = present || !sidecars->kind ? NULL : sidecars->kind->named[named];
    if (!value)
        return SHOAL_OK;
    *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    if (!*text || !**text)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s%s: %s: a text, or an object with the text `content`, is expected",
                          sidecars->folder, file, key);
    return SHOAL_OK;
}

/* ---- refusals ---- */

static shoal_status refuse_key(const struct shoali_sidecars *sidecars, const char *key)
{
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "%stokenizer_config.json: %s changes the ids by rules that are not "
                      "supported: save the tokenizer with transformers as tokenizer.json",
                      sidecars->folder, key);
}

/* Keys of any class. */
static shoal_status refuse_keys(const struct shoali_sidecars *sidecars,
                                enum shoali_vocabulary vocabulary)
{
    shoal_status status;
    bool split, basic;
    const json_t *never = json_object_get(sidecars->config, "never_split");
    const json_t *sampling =
        json_object_get(json_object_get(sidecars->config, "sp_model_kwargs"), "enable_sampling");
    SHOAL_TRY(status, shoali_sidecars_bool(sidecars, "split_special_tokens", false, &split), done);
    SHOAL_TRY(status, shoali_sidecars_bool(sidecars, "do_basic_tokenize", true, &basic), done);
    if (split)
        return refuse_key(sidecars, "split_special_tokens");
    if (vocabulary == SHOALI_VOCABULARY_WORDPIECE && !basic)
        return refuse_key(sidecars, "do_basic_tokenize");
    if (vocabulary == SHOALI_VOCABULARY_WORDPIECE && json_array_size(never) > 0)
        return refuse_key(sidecars, "never_split");
    if (json_is_true(sampling))
        return refuse_key(sidecars, "sp_model_kwargs.enable_sampling");
done:
    return status;
}

shoal_status shoali_sidecars_begin(struct shoali_sidecars *sidecars,
                                   enum shoali_vocabulary vocabulary, const char *name)
{
    if (vocabulary == SHOALI_VOCABULARY_JSON)
        return refuse_keys(sidecars, vocabulary);
    /* such ranks are read alike by every class */
    const bool ranks = vocabulary == SHOALI_VOCABULARY_RANKS;
    sidecars->kind = shoali_class_find(ranks ? NULL : sidecars->class_name, vocabulary);
    if (!sidecars->kind)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s%s: the rules of %s for %s are not supported: save the tokenizer "
                          "with transformers as tokenizer.json",
                          sidecars->folder, sidecars->class_key, sidecars->class_name, name);
    return refuse_keys(sidecars, vocabulary);
}
