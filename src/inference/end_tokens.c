/* Which tokens end a text, in the words of transformers. */
#include "inference/inference.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static shoal_status set_tokens(shoal_generator *generator, const json_t *const *values,
                               size_t count)
{
    generator->end_tokens = shoali_calloc(count + 1, sizeof *generator->end_tokens, "end tokens");
    if (!generator->end_tokens)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const json_int_t id = json_integer_value(values[i]);
        if (id >= 0 && id <= INT32_MAX) /* -1 is a word for none */
            generator->end_tokens[generator->end_count++] = (int32_t)id;
    }
    return SHOAL_OK;
}

/* A number or a list of numbers; SHOAL_END: the file says nothing. */
static shoal_status take(const char *folder, const char *file, shoal_generator *generator)
{
    enum { MOST = 64 };
    shoal_status status;
    json_t *object = NULL;
    const json_t *values[MOST];
    SHOAL_TRY(status, shoali_json_load_object(folder, file, &object), done);
    const json_t *value = json_object_get(object, "eos_token_id");
    if (!value || json_is_null(value)) {
        status = SHOAL_END;
        goto done;
    }
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    bool good = count <= MOST;
    for (size_t i = 0; i < count && good; i++) {
        values[i] = json_is_array(value) ? json_array_get(value, i) : value;
        good = json_is_integer(values[i]);
    }
    if (!good) {
        status =
            SHOAL_FAIL(SHOAL_ECONFIG,
                       "%s/%s: `eos_token_id` should be a token's number, a list of at most %d "
                       "of them, or null",
                       folder, file, MOST);
        goto done;
    }
    SHOAL_TRY(status, set_tokens(generator, values, count), done);
done:
    json_decref(object);
    return status;
}

shoal_status shoali_end_tokens_read(const char *folder, const char *name,
                                    shoal_generator *generator)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str path = {0};
    shoali_str_append(&path, "%s%s%s", folder, name ? "/" : "", name ? name : "");
    if (path.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
        goto done;
    }
    SHOAL_TRY(status, take(shoali_str_get(&path), "generation_config.json", generator), done);
    if (status == SHOAL_END)
        SHOAL_TRY(status, take(shoali_str_get(&path), "config.json", generator), done);
    if (status != SHOAL_END)
        goto done;
    status = SHOAL_OK;
    const int32_t eod = generator->tokenizer ? shoal_tokenizer_eod(generator->tokenizer) : -1;
    json_t *value = eod >= 0 ? json_integer(eod) : NULL;
    if (value)
        status = set_tokens(generator, &(const json_t *){value}, 1);
    json_decref(value);
done:
    shoali_str_fini(&path);
    return status;
}
