/* What data asks of tokenizers. A given tokenizer must be that of the data files. */
#include "data/indexed/indexed.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

static shoal_status check_name(const char *name)
{
    shoal_tokenizer *none = NULL;
    if (strcmp(name, "byte") == 0 || strcmp(name, "char") == 0)
        return SHOAL_OK;
    const shoal_status status = shoal_tokenizer_create(name, "", 0, &none);
    shoal_tokenizer_destroy(none);
    return status;
}

static void get_facts(const shoal_tokenizer *tokenizer, struct shoali_tokenizer_facts *facts)
{
    *facts = (struct shoali_tokenizer_facts){.name = shoal_tokenizer_name(tokenizer),
                                             .json = shoal_tokenizer_json(tokenizer),
                                             .vocab_size = tokenizer->vocab_size,
                                             .eod = tokenizer->eod,
                                             .host_bytes = shoali_tokenizer_host_bytes(tokenizer)};
}

static shoal_status is_same(const shoal_tokenizer *a, const shoal_tokenizer *b, bool *same)
{
    shoal_tokenizer_likeness likeness;
    const shoal_status status = shoal_tokenizer_compare(a, b, &likeness, NULL, 0);
    *same = status >= 0 && likeness == SHOAL_TOKENIZER_SAME;
    return status;
}

/* ---- the given tokenizer ---- */

static const char *source_of(const shoal_dataset_args *args)
{
    return args->tokenizer_source ? args->tokenizer_source : "the given tokenizer";
}

static shoal_status refuse(const shoal_dataset_args *args,
                           const struct shoali_indexed_records *records, const char *why)
{
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s was made with another tokenizer than that of %s (%s): preprocess its "
                      "texts with the right one, or give --allow-other-tokenizer",
                      records->first, source_of(args), why);
}

/* The given one, owned; NULL: none, or one that is known by name alone. */
static shoal_status open_given(const struct shoali_indexed_data *data,
                               const shoal_dataset_args *args,
                               const struct shoali_indexed_records *records,
                               shoal_tokenizer **given)
{
    *given = NULL;
    if (args->use_tokenizer)
        return shoali_tokenizer_copy(args->use_tokenizer, given);
    if (!args->tokenizer)
        return SHOAL_OK;
    if (strcmp(args->tokenizer, "char") != 0)
        return shoal_tokenizer_create(args->tokenizer, "", 0, given);
    if (!data->tokenizer)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "the tokenizer `char` learns from text, and %s is a data file: give --vocab-size N",
            data->file[0]->prefix);
    if (strcmp(shoal_tokenizer_name(data->tokenizer), "char") != 0 && !args->allow_other_tokenizer)
        return refuse(args, records, shoal_tokenizer_name(data->tokenizer));
    return SHOAL_OK;
}

/* A line where nothing says that the tokens of files are those of the tokenizer. */
static shoal_status report(struct shoali_indexed_data *data, const shoal_dataset_args *args,
                           const struct shoali_indexed_records *records)
{
    struct shoali_str text = {0};
    if (records->without)
        shoali_str_append(&text, "data files: %s has no .tokens.json", records->without);
    else
        shoali_str_append(&text, "data files: a NullTokenizer is on one side of %s",
                          records->first);
    shoali_str_append(&text, ": nothing says that its tokens are those of %s\n", source_of(args));
    if (text.failed) {
        shoali_str_fini(&text);
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a line about data files");
    }
    data->report = text.text;
    return SHOAL_OK;
}

/* A given tokenizer, compared with what the files say. It is used. */
static shoal_status take_given(struct shoali_indexed_data *data, const shoal_dataset_args *args,
                               const struct shoali_indexed_records *records)
{
    shoal_status status;
    char why[200];
    shoal_tokenizer *given = NULL;
    shoal_tokenizer_likeness likeness = SHOAL_TOKENIZER_SAME;
    SHOAL_TRY(status, open_given(data, args, records, &given), done);
    if (!given)
        goto done;
    if (data->tokenizer)
        SHOAL_TRY(status,
                  shoal_tokenizer_compare(data->tokenizer, given, &likeness, why, sizeof why),
                  done);
    if (likeness == SHOAL_TOKENIZER_OTHER && !args->allow_other_tokenizer) {
        status = refuse(args, records, why);
        goto done;
    }
    if (records->without || likeness == SHOAL_TOKENIZER_UNKNOWN)
        SHOAL_TRY(status, report(data, args, records), done);
    /* a name goes behind what the files say */
    if (data->tokenizer && !args->use_tokenizer)
        goto done;
    shoal_tokenizer_destroy(data->tokenizer);
    data->tokenizer = given;
    given = NULL;
    if (data->vocab_size > 0 && data->vocab_size < shoal_tokenizer_vocab_size(data->tokenizer))
        data->vocab_size = shoal_tokenizer_vocab_size(data->tokenizer);
done:
    shoal_tokenizer_destroy(given);
    return status;
}

const struct shoali_data_tokenizers shoali_tokenizers_of_data = {
    .check_name = check_name,
    .from_json = shoal_tokenizer_from_json,
    .destroy = shoal_tokenizer_destroy,
    .get_facts = get_facts,
    .id = shoal_tokenizer_id,
    .token = shoal_tokenizer_token,
    .is_same = is_same,
    .take_given = take_given,
};
