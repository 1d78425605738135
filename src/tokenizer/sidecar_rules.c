/* Keys of tokenizer_config.json other than tokens: spaces before a text, BERT's normalizer,
 * Qwen 2's words, and what stands around a text. */
#include "tokenizer/formats.h"

#include <jansson.h>
#include <string.h>

static shoal_status no_memory(void)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a tokenizer");
}

static shoal_status set(json_t *object, const char *key, json_t *value)
{
    return value && json_object_set_new(object, key, value) == 0 ? SHOAL_OK : no_memory();
}

static bool is_type(const json_t *stage, const char *type)
{
    const char *text = json_string_value(json_object_get(stage, "type"));
    return text && strcmp(text, type) == 0;
}

/* Sets a member where the config has the key. */
static shoal_status set_bool(const struct shoali_sidecars *sidecars, const char *key,
                             json_t *object, const char *member)
{
    bool value;
    shoal_status status;
    const json_t *given = json_object_get(sidecars->config, key);
    if (!given || json_is_null(given))
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_sidecars_bool(sidecars, key, false, &value), done);
    SHOAL_TRY(status, set(object, member, json_boolean(value)), done);
done:
    return status;
}

/* ---- byte-level vocabularies ---- */

static shoal_status take_qwen_words(json_t *root)
{
    static const char pattern[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
                                  "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|"
                                  "\\s+";
    shoal_status status;
    json_t *words = json_pack("{s:s,s:[{s:s,s:{s:s},s:s,s:b},{s:s,s:b,s:b,s:b}]}", "type",
                              "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
                              pattern, "behavior", "Isolated", "invert", 0, "type", "ByteLevel",
                              "add_prefix_space", 0, "trim_offsets", 0, "use_regex", 0);
    SHOAL_TRY(status, set(root, "pre_tokenizer", words), done);
    SHOAL_TRY(status, set(root, "normalizer", shoali_typed("NFC")), done);
done:
    return status;
}

/* ByteLevel, alone or the last of a sequence. */
static json_t *byte_level_of(const json_t *root)
{
    json_t *stage = json_object_get(root, "pre_tokenizer");
    const json_t *list = json_object_get(stage, "pretokenizers");
    if (is_type(stage, "Sequence") && json_array_size(list) > 0)
        stage = json_array_get(list, json_array_size(list) - 1);
    return is_type(stage, "ByteLevel") ? stage : NULL;
}

static shoal_status apply_byte_level(const struct shoali_sidecars *sidecars, json_t *root)
{
    shoal_status status = SHOAL_OK;
    if (sidecars->kind && sidecars->kind->nfc_words)
        SHOAL_TRY(status, take_qwen_words(root), done);
    json_t *stage = byte_level_of(root);
    if (stage)
        SHOAL_TRY(status, set_bool(sidecars, "add_prefix_space", stage, "add_prefix_space"), done);
done:
    return status;
}

/* ---- BERT ---- */

static shoal_status apply_bert(const struct shoali_sidecars *sidecars, json_t *root)
{
    shoal_status status = SHOAL_OK;
    json_t *normalizer = json_object_get(root, "normalizer");
    if (!is_type(normalizer, "BertNormalizer"))
        return SHOAL_OK;
    SHOAL_TRY(status, set_bool(sidecars, "do_lower_case", normalizer, "lowercase"), done);
    SHOAL_TRY(status, set_bool(sidecars, "strip_accents", normalizer, "strip_accents"), done);
    SHOAL_TRY(status,
              set_bool(sidecars, "tokenize_chinese_chars", normalizer, "handle_chinese_chars"),
              done);
done:
    return status;
}

/* ---- SentencePiece ---- */

static shoal_status drop_prefix(json_t *root)
{
    shoal_status status;
    json_t *step;
    size_t i;
    SHOAL_TRY(status, set(json_object_get(root, "normalizer"), "add_dummy_prefix", json_false()),
              done);
    json_array_foreach(json_object_get(json_object_get(root, "decoder"), "decoders"), i, step)
    {
        if (!is_type(step, "Strip"))
            continue;
        SHOAL_TRY(status, set(step, "start", json_integer(0)), done);
        SHOAL_TRY(status, set(step, "stop", json_integer(0)), done);
    }
done:
    return status;
}

static shoal_status apply_pieces(const struct shoali_sidecars *sidecars, json_t *root)
{
    shoal_status status;
    bool legacy, prefix;
    if (sidecars->kind->appends_eos) /* T5: a space before each part, whatever the keys say */
        return set(json_object_get(root, "normalizer"), "any_space", json_true());
    SHOAL_TRY(status, shoali_sidecars_bool(sidecars, "legacy", true, &legacy), done);
    SHOAL_TRY(status, shoali_sidecars_bool(sidecars, "add_prefix_space", true, &prefix), done);
    if (!legacy)
        SHOAL_TRY(status,
                  set(json_object_get(root, "normalizer"), "dummy_prefix_at_start", json_true()),
                  done);
    if (!prefix)
        SHOAL_TRY(status, drop_prefix(root), done);
done:
    return status;
}

/* ---- around a text ---- */

/* A special token's text and number; *text NULL: there is none. */
static shoal_status find(const struct shoali_sidecars *sidecars, const json_t *index,
                         enum shoali_named named, const char **text, json_int_t *id)
{
    const shoal_status status = shoali_sidecars_named(sidecars, named, text);
    const json_t *number = status >= 0 && *text ? json_object_get(index, *text) : NULL;
    *id = number ? json_integer_value(number) : -1;
    if (!number)
        *text = NULL;
    return status;
}

static json_t *special(const char *text)
{
    return json_pack("{s:{s:s,s:i}}", "SpecialToken", "id", text, "type_id", 0);
}

/* bos TEXT eos, each of them if it is not NULL. */
static json_t *template_of(const char *bos, json_int_t bos_id, const char *eos, json_int_t eos_id)
{
    json_t *single = json_array(), *table = json_object();
    bool failed = false;
    if (bos) {
        failed |= json_array_append_new(single, special(bos)) != 0;
        failed |= json_object_set_new(
                      table, bos,
                      json_pack("{s:s,s:[I],s:[s]}", "id", bos, "ids", bos_id, "tokens", bos)) != 0;
    }
    failed |= json_array_append_new(
                  single, json_pack("{s:{s:s,s:i}}", "Sequence", "id", "A", "type_id", 0)) != 0;
    if (eos) {
        failed |= json_array_append_new(single, special(eos)) != 0;
        failed |= json_object_set_new(
                      table, eos,
                      json_pack("{s:s,s:[I],s:[s]}", "id", eos, "ids", eos_id, "tokens", eos)) != 0;
    }
    json_t *made = failed ? NULL
                          : json_pack("{s:s,s:O,s:[],s:O}", "type", "TemplateProcessing", "single",
                                      single, "pair", "special_tokens", table);
    json_decref(single);
    json_decref(table);
    return made;
}

static shoal_status apply_ends(const struct shoali_sidecars *sidecars, const json_t *index,
                               json_t *root)
{
    shoal_status status;
    const char *bos, *eos, *cls, *sep;
    json_int_t bos_id, eos_id, cls_id, sep_id;
    bool add_bos, add_eos;
    const struct shoali_tokenizer_class *kind = sidecars->kind;
    SHOAL_TRY(status, shoali_sidecars_bool(sidecars, "add_bos_token", false, &add_bos), done);
    SHOAL_TRY(status, shoali_sidecars_bool(sidecars, "add_eos_token", false, &add_eos), done);
    add_eos = add_eos || kind->appends_eos;
    SHOAL_TRY(status, find(sidecars, index, SHOALI_BOS, &bos, &bos_id), done);
    SHOAL_TRY(status, find(sidecars, index, SHOALI_EOS, &eos, &eos_id), done);
    SHOAL_TRY(status, find(sidecars, index, SHOALI_CLS, &cls, &cls_id), done);
    SHOAL_TRY(status, find(sidecars, index, SHOALI_SEP, &sep, &sep_id), done);
    if (kind->roberta_ends) {
        add_bos = add_eos = true;
        bos = cls;
        bos_id = cls_id;
        eos = sep;
        eos_id = sep_id;
    }
    add_bos = add_bos && bos;
    add_eos = add_eos && eos;
    if (add_bos || add_eos)
        SHOAL_TRY(status,
                  set(root, "post_processor",
                      template_of(add_bos ? bos : NULL, bos_id, add_eos ? eos : NULL, eos_id)),
                  done);
done:
    return status;
}

shoal_status shoali_sidecars_apply(const struct shoali_sidecars *sidecars,
                                   enum shoali_vocabulary vocabulary, json_t *root)
{
    shoal_status status = SHOAL_OK;
    json_t *index = NULL;
    const bool pieces = vocabulary == SHOALI_VOCABULARY_PIECES;
    const bool bert = vocabulary == SHOALI_VOCABULARY_WORDPIECE;
    if (vocabulary == SHOALI_VOCABULARY_JSON || vocabulary == SHOALI_VOCABULARY_BYTE_LEVEL)
        SHOAL_TRY(status, apply_byte_level(sidecars, root), done);
    if (vocabulary == SHOALI_VOCABULARY_JSON || bert)
        SHOAL_TRY(status, apply_bert(sidecars, root), done);
    if (pieces)
        SHOAL_TRY(status, apply_pieces(sidecars, root), done);
    SHOAL_TRY(status, shoali_sidecars_tokens(sidecars, vocabulary, root, &index), done);
    if (vocabulary != SHOALI_VOCABULARY_JSON && !bert)
        SHOAL_TRY(status, apply_ends(sidecars, index, root), done);
done:
    json_decref(index);
    return status;
}
