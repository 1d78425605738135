/* What the user's configuration and flags leave open, and what they come to in a trial. */
#include "launcher/tuning/tuning.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const struct shoali_knob knobs[] = {
    {.key = "reduce_bucket_size",
     .acronym = "rbs",
     .first_stage = 1,
     .count = 3,
     .value = {50000000, 500000000, 1000000000}},
    {.key = "allgather_bucket_size",
     .acronym = "abs",
     .first_stage = 1,
     .count = 3,
     .value = {50000000, 500000000, 1000000000}},
    {.key = "overlap_comm",
     .acronym = "oc",
     .first_stage = 1,
     .count = 2,
     .value = {1, 0},
     .is_bool = true},
    {.key = "reduce_scatter",
     .acronym = "rs",
     .first_stage = 1,
     .count = 2,
     .value = {1, 0},
     .is_bool = true},
};
_Static_assert(sizeof(knobs) / sizeof(knobs[0]) == SHOALI_KNOBS, "as many as a trial has");

/* ---- flags of the program -------------------------------------------------------------------- */
static bool is_flag(const char *word, const char *name, bool *has_value)
{
    if (word[0] != '-' || word[1] != '-')
        return false;
    for (word += 2; *name; word++, name++)
        if (*word != *name && !(*word == '_' && *name == '-') && !(*word == '-' && *name == '_'))
            return false;
    *has_value = *word == '=';
    return *word == '=' || *word == '\0';
}

void shoali_text_list_drop(struct shoali_text_list *words, const char *name)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < words->count; i++) {
        bool has_value = false;
        if (!is_flag(shoali_text_list_at(words, i), name, &has_value))
            words->value[kept++] = words->value[i];
        else if (!has_value && i + 1 < words->count)
            i++;
    }
    words->count = kept;
    if (words->value)
        words->value[kept] = NULL;
}

static int64_t flag_number(const struct shoali_tuning *tuning, const char *name)
{
    int64_t number = 0;
    const char *text = shoali_program_flag(tuning->args->program, name);
    return text && shoali_parse_i64(text, &number) && number > 0 ? number : 0;
}

/* ---- the configuration ----------------------------------------------------------------------- */
static const json_t *zero_of(const struct shoali_tuning *tuning)
{
    return json_object_get(tuning->root, "zero_optimization");
}

static int64_t number_of(const struct shoali_tuning *tuning, const char *key, const char *flag)
{
    const json_t *value = json_object_get(tuning->root, key);
    if (json_is_integer(value) && json_integer_value(value) > 0)
        return json_integer_value(value);
    return flag_number(tuning, flag);
}

/* Ranks of one model: those of the mesh where the program has Megatron's flags. */
static shoal_status find_data_ranks(struct shoali_tuning *tuning)
{
    static const char *const axes[] = {"tensor-model-parallel-size", "pipeline-model-parallel-size",
                                       "context-parallel-size"};
    int64_t model = 1;
    for (size_t i = 0; i < sizeof(axes) / sizeof(axes[0]); i++)
        model *= flag_number(tuning, axes[i]) ? flag_number(tuning, axes[i]) : 1;
    if (model == 1)
        model = tuning->config.mp_size;
    if (model > tuning->ranks || tuning->ranks % model != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--autotuning: %d ranks cannot hold models of %lld ranks each: start a "
                          "multiple of %lld",
                          (int)tuning->ranks, (long long)model, (long long)model);
    tuning->data_ranks = (int32_t)(tuning->ranks / model);
    return SHOAL_OK;
}

/* Those that the user has not pinned, with the values of a list instead of ours. */
static void find_knobs(struct shoali_tuning *tuning)
{
    for (size_t i = 0; i < SHOALI_KNOBS; i++) {
        const json_t *given = json_object_get(zero_of(tuning), knobs[i].key);
        struct shoali_knob *knob = &tuning->knobs[tuning->knob_count];
        if (given && !json_is_array(given) &&
            !(json_is_string(given) && strcmp(json_string_value(given), "auto") == 0))
            continue;
        *knob = knobs[i];
        if (json_array_size(given) > 0)
            knob->count = 0;
        for (size_t k = 0; k < json_array_size(given) && knob->count < SHOALI_KNOB_VALUES; k++) {
            const json_t *value = json_array_get(given, k);
            const double number =
                json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
            knob->value[knob->count++] = number > -0x1p63 && number < 0x1p63 ? (int64_t)number : 0;
        }
        tuning->knob_count++;
    }
}

static shoal_status check_sections(const struct shoali_tuning *tuning)
{
    if (json_is_true(json_object_get(json_object_get(tuning->root, "elasticity"), "enabled")))
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "%s: --autotuning chooses a micro-batch, and the section elasticity does, "
            "too: disable it to tune",
            tuning->config_path);
    return SHOAL_OK;
}

shoal_status shoali_tuning_read(struct shoali_tuning *tuning)
{
    shoal_status status;
    tuning->config_path = shoali_program_flag(tuning->args->program, "deepspeed-config");
    if (!tuning->config_path)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--autotuning starts the program with other configurations: give it "
                          "--deepspeed_config FILE");
    SHOAL_TRY(status, shoali_json_load_config(tuning->config_path, &tuning->document), done);
    tuning->root = shoali_json_root(tuning->document);
    SHOAL_TRY(status,
              shoali_config_defaults(&shoali_autotuning_section, &tuning->config, &tuning->arena),
              done);
    SHOAL_TRY(status,
              shoali_config_read_json(&shoali_autotuning_section, tuning->document, "autotuning",
                                      &tuning->config, &tuning->arena),
              done);
    SHOAL_TRY(status, check_sections(tuning), done);
    SHOAL_TRY(status, find_data_ranks(tuning), done);
    tuning->batch = number_of(tuning, "train_batch_size", "global-batch-size");
    tuning->accumulation =
        number_of(tuning, "gradient_accumulation_steps", "gradient-accumulation");
    const int64_t micro_batch =
        number_of(tuning, "train_micro_batch_size_per_gpu", "micro-batch-size");
    if (!tuning->batch) /* two of three say the third */
        tuning->batch = micro_batch * tuning->accumulation * tuning->data_ranks;
    find_knobs(tuning);
done:
    return status;
}

shoal_status shoali_tuning_stages(const struct shoali_tuning *tuning, int32_t stages[4],
                                  int32_t *count)
{
    const json_t *stage = json_object_get(zero_of(tuning), "stage");
    *count = 0;
    for (size_t i = 0; i < json_array_size(stage) && *count < 4; i++) {
        const json_t *value = json_array_get(stage, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > 3)
            return shoali_json_locate(
                tuning->document, "zero_optimization.stage",
                SHOAL_FAIL(SHOAL_ECONFIG,
                           "zero_optimization.stage: the stages to try are numbers from 0 to 3"));
        stages[(*count)++] = (int32_t)json_integer_value(value);
    }
    if (*count > 0)
        return SHOAL_OK;
    if (json_is_integer(stage))
        stages[(*count)++] = -1;
    for (int32_t i = 0; i < 4 && !json_is_integer(stage) && (i == 0 || tuning->data_ranks > 1); i++)
        stages[(*count)++] = i;
    return SHOAL_OK;
}

int64_t shoali_tuning_accumulation(const struct shoali_tuning *tuning, int64_t micro_batch)
{
    const struct shoali_autotuning_config *config = &tuning->config;
    const int64_t samples = micro_batch * tuning->data_ranks;
    if (micro_batch < config->min_train_micro_batch_size_per_gpu ||
        micro_batch > config->max_train_micro_batch_size_per_gpu)
        return 0;
    if (tuning->batch)
        return tuning->batch % samples == 0 ? tuning->batch / samples : 0;
    int64_t accumulation = tuning->accumulation ? tuning->accumulation : 1;
    if (config->max_train_batch_size && !tuning->accumulation)
        accumulation = config->max_train_batch_size / samples;
    else if (config->max_train_batch_size && samples * accumulation > config->max_train_batch_size)
        accumulation = 0;
    return samples * accumulation < config->min_train_batch_size ? 0 : accumulation;
}

static int ascending(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

shoal_status shoali_tuning_sizes(const struct shoali_tuning *tuning, struct shoali_ints *sizes,
                                 int64_t *first)
{
    const json_t *given = json_object_get(tuning->root, "train_micro_batch_size_per_gpu");
    const size_t count = json_array_size(given);
    *first = number_of(tuning, "train_micro_batch_size_per_gpu", "micro-batch-size");
    if (*first < tuning->config.min_train_micro_batch_size_per_gpu)
        *first = tuning->config.min_train_micro_batch_size_per_gpu;
    sizes->count = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t size = json_integer_value(json_array_get(given, i));
        if (size < 1)
            return shoali_json_locate(
                tuning->document, "train_micro_batch_size_per_gpu",
                SHOAL_FAIL(SHOAL_ECONFIG, "train_micro_batch_size_per_gpu: the sizes to try are "
                                          "numbers from 1"));
        sizes->value[sizes->count++] = size;
    }
    qsort(sizes->value, (size_t)sizes->count, sizeof(sizes->value[0]), ascending);
    return SHOAL_OK;
}

/* ---- a trial's ------------------------------------------------------------------------------- */
static int set_zero(const struct shoali_tuning *tuning, const struct shoali_trial *trial,
                    json_t *root)
{
    int failed = 0;
    json_t *zero = json_object_get(root, "zero_optimization");
    if (!zero) {
        zero = json_object();
        failed |= json_object_set_new(root, "zero_optimization", zero);
    }
    if (trial->stage >= 0)
        failed |= json_object_set_new(zero, "stage", json_integer(trial->stage));
    for (int32_t i = 0; i < tuning->knob_count; i++) {
        const struct shoali_knob *knob = &tuning->knobs[i];
        const int64_t value = trial->knob[i] >= 0 ? knob->value[trial->knob[i]] : 0;
        if (trial->knob[i] < 0)
            (void)json_object_del(zero, knob->key); /* a list: not for the engine */
        else
            failed |= json_object_set_new(
                zero, knob->key, knob->is_bool ? json_boolean(value != 0) : json_integer(value));
    }
    return failed;
}

static int set_experiment(const struct shoali_tuning *tuning, const struct shoali_trial *trial,
                          json_t *root)
{
    char path[4400];
    snprintf(path, sizeof(path), "%s/%s/metrics.json", tuning->results_dir, trial->name);
    return json_object_set_new(
        root, "autotuning",
        json_pack("{s:b, s:I, s:I, s:s}", "enabled", 1, "start_profile_step",
                  (json_int_t)tuning->config.start_profile_step, "end_profile_step",
                  (json_int_t)tuning->config.end_profile_step, "metric_path", path));
}

json_t *shoali_tuning_config(const struct shoali_tuning *tuning, const struct shoali_trial *trial,
                             bool measured)
{
    json_t *root = json_deep_copy(tuning->root);
    int failed = !root;
    if (failed)
        return NULL;
    failed |= set_zero(tuning, trial, root);
    failed |= json_object_set_new(root, "train_micro_batch_size_per_gpu",
                                  json_integer(trial->micro_batch));
    failed |=
        json_object_set_new(root, "gradient_accumulation_steps", json_integer(trial->accumulation));
    failed |= json_object_set_new(
        root, "train_batch_size",
        json_integer(trial->micro_batch * trial->accumulation * tuning->data_ranks));
    if (tuning->aio)
        failed |= json_object_set(root, "aio", tuning->aio);
    if (measured)
        failed |= set_experiment(tuning, trial, root);
    else
        (void)json_object_del(root, "autotuning");
    if (!failed)
        return root;
    json_decref(root);
    return NULL;
}
