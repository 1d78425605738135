/* Whether two tokenizers give the same ids. Files of different formats may hold one tokenizer, so
 * texts of JSON say little. The strings of the ids are compared, and, where both have a model of
 * one kind, what it makes of a text in which every string occurs: merges and scores may differ
 * while the strings are the same. */
#include "tokenizer/pipeline.h"

#include <stdio.h>
#include <string.h>

/* Case, accents, digits, spaces and scripts, which normalizers and patterns treat differently. */
static const char sample[] =
    "The Quick caf\xc3\xa9 \xc3\x89 cole 2024 it's  x,y.\n\n"
    "\xe4\xbd\xa0\xe5\xa5\xbd \xd0\x9f\xd1\x80\xd0\xb8 e\xcc\x81 \xef\xac\x81 f(x)=10;\n";

/* Tokens that added strings give: they differ in where they are found, not in what they mean. */
static bool is_plain(const struct shoali_pipeline *pipeline, int32_t id)
{
    return pipeline->string[id].text && pipeline->flags[id] == 0;
}

static shoal_status append_decoded(const shoal_tokenizer *tokenizer, const int32_t *ids,
                                   int64_t count, struct shoali_str *out)
{
    shoal_status status;
    struct shoali_str text = {0};
    SHOAL_TRY(status, tokenizer->kind->decode(tokenizer, ids, count, &text), done);
    for (size_t at = 0; at < text.length;) {
        const size_t good = shoali_utf8_prefix(text.text + at, text.length - at);
        for (size_t i = at; i < at + good; i++)
            if (text.text[i] != '\0')
                shoali_str_append_bytes(out, text.text + i, 1);
        at += good < text.length - at ? good + 1 : good;
    }
    shoali_str_append(out, "\n");
done:
    shoali_str_fini(&text);
    return status;
}

/* The sample, and all strings that both have, joined as they come. */
static shoal_status make_probe(const shoal_tokenizer *a, const shoal_tokenizer *b,
                               struct shoali_str *text)
{
    enum { LINE = 64 };
    shoal_status status = SHOAL_OK;
    int32_t line[LINE];
    int64_t count = 0;
    const int32_t size = a->vocab_size < b->vocab_size ? a->vocab_size : b->vocab_size;
    shoali_str_append(text, "%s", sample);
    for (int32_t id = 0; id < size; id++) {
        if (is_plain(a->pipeline, id) && is_plain(b->pipeline, id))
            line[count++] = id;
        if (count == LINE || (count > 0 && id == size - 1)) {
            SHOAL_TRY(status, append_decoded(a, line, count, text), done);
            count = 0;
        }
    }
    if (text->failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a text to compare tokenizers");
done:
    return status;
}

/* The ids of a text; *ids NULL: it has no ids. */
static shoal_status encode_all(const shoal_tokenizer *tokenizer, const struct shoali_str *text,
                               int32_t **ids, int64_t *count)
{
    shoal_status status;
    *ids = NULL;
    *count = 0;
    status = shoal_tokenizer_encode(tokenizer, text->text, text->length, NULL, 0, count);
    if (status == SHOAL_EINVAL) { /* a character that it cannot say */
        shoali_error_clear();
        return SHOAL_OK;
    }
    SHOAL_TRY(status, status, done);
    *ids = shoali_calloc((size_t)*count + 1, sizeof **ids, "the ids of a text");
    if (!*ids)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status,
              shoal_tokenizer_encode(tokenizer, text->text, text->length, *ids, *count, count),
              done);
done:
    return status;
}

static shoal_status compare_rules(const shoal_tokenizer *a, const shoal_tokenizer *b, bool *same)
{
    shoal_status status;
    struct shoali_str text = {0};
    int32_t *left = NULL, *right = NULL;
    int64_t left_count, right_count;
    *same = true;
    if (a->pipeline->model.kind != b->pipeline->model.kind)
        return SHOAL_OK;
    SHOAL_TRY(status, make_probe(a, b, &text), done);
    SHOAL_TRY(status, encode_all(a, &text, &left, &left_count), done);
    SHOAL_TRY(status, encode_all(b, &text, &right, &right_count), done);
    *same =
        !left == !right && (!left || (left_count == right_count &&
                                      memcmp(left, right, (size_t)left_count * sizeof *left) == 0));
done:
    shoali_free(left);
    shoali_free(right);
    shoali_str_fini(&text);
    return status;
}

/* One of them has the id, and not as an added token: texts have other ids. */
static bool is_more(const shoal_tokenizer *tokenizer, int32_t id)
{
    return tokenizer->pipeline && id < tokenizer->vocab_size && is_plain(tokenizer->pipeline, id);
}

/* -1: the strings of all ids that both have are the same. *more: one has other ids, too. */
static int32_t first_other(const shoal_tokenizer *a, const shoal_tokenizer *b, bool *more)
{
    const int32_t size = a->vocab_size > b->vocab_size ? a->vocab_size : b->vocab_size;
    *more = a->vocab_size != b->vocab_size;
    for (int32_t id = 0; id < size; id++) {
        const bool both = id < a->vocab_size && id < b->vocab_size;
        if (both && a->code_point && a->code_point[id] != b->code_point[id])
            return id;
        const char *left = shoal_tokenizer_token(a, id), *right = shoal_tokenizer_token(b, id);
        *more = *more || !left != !right;
        if (left && right ? strcmp(left, right) != 0 : is_more(a, id) || is_more(b, id))
            return id;
    }
    return -1;
}

/* How many bytes of a string are shown: whole characters. */
static int shown(const char *text)
{
    enum { MOST = 40 };
    int length = (int)strnlen(text, MOST + 1);
    if (length > MOST)
        for (length = MOST; length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80;)
            length--;
    return length;
}

static void explain(const shoal_tokenizer *a, const shoal_tokenizer *b, int32_t token, char *why,
                    size_t bytes)
{
    const char *left = token >= 0 ? shoal_tokenizer_token(a, token) : NULL;
    const char *right = token >= 0 ? shoal_tokenizer_token(b, token) : NULL;
    if (left && right)
        snprintf(why, bytes, "token %d is `%.*s` and `%.*s`", (int)token, shown(left), left,
                 shown(right), right);
    else if (left || right)
        snprintf(why, bytes, "only one has token %d, `%.*s`", (int)token,
                 shown(left ? left : right), left ? left : right);
    else if (a->kind != b->kind)
        snprintf(why, bytes, "`%s` and `%s`", shoal_tokenizer_name(a), shoal_tokenizer_name(b));
    else if (token >= 0)
        snprintf(why, bytes, "token %d is not the same character", (int)token);
    else
        snprintf(why, bytes, "the tokens are the same, merges or other rules are not");
}

shoal_status shoal_tokenizer_compare(const shoal_tokenizer *a, const shoal_tokenizer *b,
                                     shoal_tokenizer_likeness *likeness, char *why,
                                     size_t why_bytes)
{
    shoal_status status = SHOAL_OK;
    bool same = true, more = false;
    int32_t token = -1;
    if (why_bytes > 0)
        *why = '\0';
    *likeness = SHOAL_TOKENIZER_SAME;
    if (strcmp(shoal_tokenizer_json(a), shoal_tokenizer_json(b)) == 0)
        return SHOAL_OK;
    *likeness = SHOAL_TOKENIZER_UNKNOWN;
    if (a->kind == &shoali_tokenizer_null || b->kind == &shoali_tokenizer_null)
        return SHOAL_OK;
    *likeness = SHOAL_TOKENIZER_OTHER;
    if (a->kind == b->kind)
        token = first_other(a, b, &more);
    if (a->kind == b->kind && token < 0 && a->pipeline)
        SHOAL_TRY(status, compare_rules(a, b, &same), done);
    if (a->kind == b->kind && token < 0 && same)
        *likeness = more ? SHOAL_TOKENIZER_EXTENDED : SHOAL_TOKENIZER_SAME;
    else
        explain(a, b, token, why, why_bytes);
done:
    return status;
}
