/* What the ranks of a run must have alike beyond the engine's configuration (shoal_comm_agree).
 * Flags are compared before the first group is made, the data when they are open. Rows with
 * SHOALI_OPTION_BY_RANK may differ. Of --save and --load only whether they are given counts. */
#include "pretrain/pretrain.h"

#include "base/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Names and values behind each other, each with its NUL. */
struct collected {
    struct shoali_str text;
    int32_t count;
};

static void add(struct collected *collected, const char *before, const char *name,
                const char *value)
{
    shoali_str_append(&collected->text, "%s%s", before, name);
    shoali_str_append_bytes(&collected->text, "", 1);
    shoali_str_append(&collected->text, "%s", value);
    shoali_str_append_bytes(&collected->text, "", 1);
    collected->count++;
}

static void add_flag(void *collected, const char *path, const char *value)
{
    add(collected, "--", path, value);
}

static void add_model(const shoal_model_config *config, struct collected *collected)
{
    const shoal_model_option *option;
    add(collected, "", "model", shoal_model_config_name(config));
    for (int32_t i = 0; (option = shoal_model_config_option(config, i)) != NULL; i++) {
        double value = 0;
        char text[32];
        if (shoal_model_config_get(config, option->name, &value) < 0)
            continue;
        snprintf(text, sizeof text, "%.15g", value);
        add(collected, "--", option->name, text);
    }
}

/* A difference is a user's mistake, which every rank finds. */
static shoal_status compare(shoal_group *group, const struct collected *collected)
{
    shoal_status status;
    char sentence[1024];
    shoal_fact *facts = shoali_calloc((size_t)collected->count + 1, sizeof *facts, "facts");
    if (!facts || collected->text.failed) {
        shoali_free(facts);
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate what the ranks compare");
    }
    const char *at = shoali_str_get(&collected->text);
    for (int32_t i = 0; i < collected->count; i++) {
        facts[i].name = at;
        facts[i].value = at += strlen(at) + 1;
        at += strlen(at) + 1;
    }
    status = shoal_comm_agree(group, facts, collected->count);
    shoali_free(facts);
    if (status != SHOAL_EMISMATCH)
        return status;
    snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
    return SHOAL_FAIL(SHOAL_ECONFIG, "%s", sentence);
}

shoal_status pretrain_agree_flags(const struct pretrain *run)
{
    struct collected collected = {0};
    const struct pretrain_options *options = &run->options;
    if (!run->group)
        return SHOAL_OK;
    add_model(options->model.config, &collected);
    if (pretrain_options_visit(options, add_flag, &collected) < 0)
        collected.text.failed = true;
    add(&collected, "", "--save", options->save ? "given" : "not given");
    add(&collected, "", "--load", options->load ? "given" : "not given");
    const shoal_status status = compare(run->group, &collected);
    shoali_str_fini(&collected.text);
    return status;
}

shoal_status pretrain_agree_data(const struct pretrain *run)
{
    struct collected collected = {0};
    char text[128];
    if (!run->group)
        return SHOAL_OK;
    if (run->dataset) { /* other stages read nothing, and agree */
        snprintf(text, sizeof text, "%016" PRIx64, shoal_dataset_fingerprint(run->dataset));
        add(&collected, "", "fingerprint of the data", text);
        snprintf(text, sizeof text, "%lld, %lld and %lld tokens",
                 (long long)shoal_dataset_token_count(run->dataset, SHOAL_SPLIT_TRAIN),
                 (long long)shoal_dataset_token_count(run->dataset, SHOAL_SPLIT_VALID),
                 (long long)shoal_dataset_token_count(run->dataset, SHOAL_SPLIT_TEST));
        add(&collected, "", "parts of the data", text);
        snprintf(text, sizeof text, "%lld", (long long)run->vocab_size);
        add(&collected, "", "kinds of tokens", text);
        const shoal_tokenizer *tokenizer = shoal_dataset_tokenizer(run->dataset);
        add(&collected, "", "tokenizer", tokenizer ? shoal_tokenizer_json(tokenizer) : "none");
    }
    const shoal_status status = compare(run->group, &collected);
    shoali_str_fini(&collected.text);
    return status;
}
