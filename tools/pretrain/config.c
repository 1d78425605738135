/* Two sources, one truth: a value given as flag and in ds_config.json must be the same in both. */
#include "pretrain/pretrain.h"

#include "base/json.h"
#include "base/log.h"
#include "base/plain.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct shoali_section pretrain_shared_section;

/* Where a flag's value lives in the configuration; index >= 0: element of a list of two with the
 * other default. */
struct pair {
    const char *flag, *path[3];
    int32_t index;
};
static const struct pair pairs[] = {
    {"micro-batch-size", {"train_micro_batch_size_per_gpu"}, -1},
    {"global-batch-size", {"train_batch_size"}, -1},
    {"lr", {"optimizer", "params", "lr"}, -1},
    {"weight-decay", {"optimizer", "params", "weight_decay"}, -1},
    {"adam-eps", {"optimizer", "params", "eps"}, -1},
    {"adam-beta1", {"optimizer", "params", "betas"}, 0},
    {"adam-beta2", {"optimizer", "params", "betas"}, 1},
    {"clip-grad", {"gradient_clipping"}, -1},
    {"bf16", {"bf16", "enabled"}, -1},
    {"fp16", {"fp16", "enabled"}, -1},
    {"loss-scale", {"fp16", "loss_scale"}, -1},
    {"min-loss-scale", {"fp16", "min_loss_scale"}, -1},
    {"loss-scale-window", {"fp16", "loss_scale_window"}, -1},
    {"hysteresis", {"fp16", "hysteresis"}, -1},
    {"seed", {"seed"}, -1},
    {"threads", {"threads"}, -1},
    {"initial-loss-scale", {"fp16", "initial_scale_power"}, -1},
    {"zero-stage", {"zero_optimization", "stage"}, -1},
    {"overlap-grad-reduce", {"zero_optimization", "overlap_comm"}, -1},
    {"overlap-param-gather", {"zero_optimization", "overlap_comm"}, -1},
    {"async-save", {"checkpoint", "writer", "decoupled"}, -1},
    {"keep-last", {"checkpoint", "keep_last"}, -1},
    {"save-retain-interval", {"checkpoint", "keep_every"}, -1},
};
/* Flags of the Megatron schedule and its parameter names. */
static const char *const schedule_flags[][2] = {
    {"lr-decay-style", "lr_decay_style"},         {"min-lr", "min_lr"},
    {"lr-decay-iters", "lr_decay_iters"},         {"lr-warmup-iters", "lr_warmup_iters"},
    {"lr-warmup-fraction", "lr_warmup_fraction"}, {"lr-warmup-init", "lr_warmup_init"},
    {"lr-wsd-decay-style", "lr_wsd_decay_style"}, {"lr-wsd-decay-iters", "lr_wsd_decay_iters"},
};
/* Of these the first that is given sets the parameter, in steps of the full batch. */
static const struct {
    const char *name, *tokens, *samples, *iters;
} lengths[] = {
    {"lr_decay_iters", "lr-decay-tokens", "lr-decay-samples", "lr-decay-iters"},
    {"lr_warmup_iters", "lr-warmup-tokens", "lr-warmup-samples", "lr-warmup-iters"},
    {"lr_wsd_decay_iters", NULL, "lr-wsd-decay-samples", "lr-wsd-decay-iters"},
};

static bool given(const struct pretrain_options *options, const char *flag)
{
    return shoali_config_given(&pretrain_shared_section, &options->shared, flag);
}

/* Also the batch of --step-batch-size-schedule, which stands for --global-batch-size. */
static bool sets(const struct pretrain_options *options, const char *flag)
{
    return given(options, flag) ||
           (strcmp(flag, "global-batch-size") == 0 && options->shared.global_batch_size > 0);
}

static json_t *flag_value(const struct pretrain_options *options, const char *flag)
{
    for (int32_t i = 0; i < pretrain_shared_section.row_count; i++) {
        const struct shoali_option *row = &pretrain_shared_section.rows[i];
        const void *at = (const char *)&options->shared + row->offset;
        if (strcmp(row->key, flag) != 0)
            continue;
        if (strcmp(flag, "initial-loss-scale") == 0)
            return json_integer((json_int_t)log2(*(const double *)at));
        if (row->type == SHOALI_INT)
            return json_integer(*(const int64_t *)at);
        if (row->type == SHOALI_FLOAT)
            return json_real(*(const double *)at);
        if (row->type == SHOALI_BOOL)
            return json_boolean(*(const bool *)at);
        return json_string(*(const char *const *)at);
    }
    return NULL;
}

static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool is_auto(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strcmp(text, "auto") == 0;
}

static shoal_status no_memory(void)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the configuration that flags change");
}

/* The object that holds the last word of the path, made where it is missing; NULL without memory.
 */
static json_t *parent_of(json_t *root, const struct pair *pair, const char **key)
{
    int32_t depth = 0;
    while (depth < 2 && pair->path[depth + 1])
        depth++;
    for (int32_t i = 0; i < depth; i++) {
        if (!json_is_object(json_object_get(root, pair->path[i])) &&
            json_object_set_new(root, pair->path[i], json_object()) != 0)
            return NULL;
        root = json_object_get(root, pair->path[i]);
    }
    *key = pair->path[depth];
    return root;
}

static shoal_status contradiction(const struct pretrain_options *options, const struct pair *pair,
                                  const json_t *flag, const json_t *file)
{
    shoal_status status;
    char *flag_text = NULL, *file_text = NULL;
    const char *const *path = pair->path;
    SHOAL_TRY(status, shoali_json_write(flag, JSON_REAL_PRECISION(9), "a flag's value", &flag_text),
              done);
    if (file)
        SHOAL_TRY(status, shoali_json_write(file, JSON_REAL_PRECISION(9), "a value", &file_text),
                  done);
    status = SHOAL_FAIL(
        SHOAL_ECONFIG,
        "--%s is %s but %s has %s%s%s%s%s%s = %s: give one of them, or the same value", pair->flag,
        flag_text, options->deepspeed_config, path[0], path[1] ? "." : "", path[1] ? path[1] : "",
        path[1] && path[2] ? "." : "", path[1] && path[2] ? path[2] : "",
        pair->index < 0 ? ""
        : pair->index   ? "[1]"
                        : "[0]",
        file_text ? file_text : "nothing");
done:
    free(flag_text);
    free(file_text);
    return status;
}

/* Puts one flag into the configuration, or finds it there already. */
static shoal_status merge(const struct pretrain_options *options, json_t *root,
                          const struct pair *pair, bool *changed)
{
    shoal_status status = SHOAL_OK;
    int failed = 0;
    const char *key = NULL;
    json_t *parent = parent_of(root, pair, &key);
    json_t *flag = flag_value(options, pair->flag);
    if (!parent || !flag) {
        json_decref(flag);
        return no_memory();
    }
    json_t *file = json_object_get(parent, key);
    if (json_is_null(file) || is_auto(file))
        file = NULL;
    if (pair->index >= 0) {
        if (!file) {
            failed = json_object_set_new(parent, key, json_pack("[f, f]", 0.9, 0.999));
            failed |= json_array_set(json_object_get(parent, key), (size_t)pair->index, flag);
            *changed = true;
        } else {
            file = json_array_get(file, (size_t)pair->index);
            /* the other beta's flag may have made the list: then its default stands here */
            const bool ours = *changed && !same(file, flag);
            if (ours)
                failed = json_array_set(json_object_get(parent, key), (size_t)pair->index, flag);
            else if (!same(file, flag))
                status = contradiction(options, pair, flag, file);
        }
    } else if (!file) {
        failed = json_object_set(parent, key, flag);
        *changed = true;
    } else if (!same(file, flag)) {
        status = contradiction(options, pair, flag, file);
    }
    json_decref(flag);
    return failed ? no_memory() : status;
}

/* --weight-decay means what it means in Megatron: nothing of one dimension decays. Where the
 * configuration has a weight_decay or says itself what does not decay, it is the configuration's.
 */
static shoal_status merge_no_decay(const struct pretrain_options *options, json_t *root)
{
    json_t *optimizer = json_object_get(root, "optimizer");
    json_t *params = json_object_get(optimizer, "params");
    const json_t *decay = json_object_get(params, "weight_decay");
    const bool by_file = decay && !json_is_null(decay) && !is_auto(decay);
    if (!given(options, "weight-decay") || by_file || json_object_get(optimizer, "no_decay"))
        return SHOAL_OK;
    int failed = 0;
    if (!optimizer) {
        optimizer = json_object();
        failed = json_object_set_new(root, "optimizer", optimizer);
    }
    if (!failed)
        failed = json_object_set_new(optimizer, "no_decay", json_pack("[s]", "1-D"));
    return failed ? no_memory() : SHOAL_OK;
}

/* Lengths in samples and tokens, as steps. *first: the first flag that is given. */
static shoal_status merge_lengths(const struct pretrain_options *options, json_t *params,
                                  const char **first)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const bool by_tokens = lengths[i].tokens && given(options, lengths[i].tokens);
        const char *flag = by_tokens                            ? lengths[i].tokens
                           : given(options, lengths[i].samples) ? lengths[i].samples
                                                                : NULL;
        if (!flag)
            continue;
        if (given(options, lengths[i].iters))
            return SHOAL_FAIL(SHOAL_ECONFIG, "--%s and --%s set the same length: give one of them",
                              flag, lengths[i].iters);
        json_t *value = flag_value(options, flag);
        const double samples =
            json_number_value(value) / (by_tokens ? (double)options->seq_length : 1);
        json_decref(value);
        failed |= json_object_set_new(params, lengths[i].name,
                                      json_real(samples / (double)options->full_batch));
        *first = *first ? *first : flag;
    }
    return failed ? no_memory() : SHOAL_OK;
}

/* Where no flag says when the decay ends: with the training. */
static double decay_end(const struct pretrain_options *options)
{
    if (options->train_samples > 0)
        return (double)options->train_samples / (double)options->full_batch;
    return (double)(options->train_iters > 0 ? options->train_iters : 1);
}

/* Flags that say what an "auto" of the configuration's own scheduler leaves open. */
static bool fills_auto(const json_t *root, const char *flag)
{
    const json_t *params = json_object_get(json_object_get(root, "scheduler"), "params");
    const bool total = strcmp(flag, "lr-decay-iters") == 0;
    const bool warmup =
        strcmp(flag, "lr-warmup-iters") == 0 || strcmp(flag, "lr-warmup-fraction") == 0;
    return (total && is_auto(json_object_get(params, "total_num_steps"))) ||
           (warmup && is_auto(json_object_get(params, "warmup_num_steps")));
}

/* "auto" of a scheduler, as Hugging Face's Trainer fills it: the length of the training, and its
 * warm-up, which is none where no flag says so. */
static shoal_status fill_schedule(const struct pretrain_options *options, json_t *root,
                                  bool *changed)
{
    const struct pretrain_shared *shared = &options->shared;
    json_t *params = json_object_get(json_object_get(root, "scheduler"), "params");
    const bool total_open = is_auto(json_object_get(params, "total_num_steps"));
    const bool warmup_open = is_auto(json_object_get(params, "warmup_num_steps"));
    const int64_t iters = options->train_iters > 0 ? options->train_iters : 1;
    const int64_t total = given(options, "lr-decay-iters") ? shared->lr_decay_iters : iters;
    const int64_t warmup = given(options, "lr-warmup-iters")
                               ? shared->lr_warmup_iters
                               : (int64_t)(shared->lr_warmup_fraction * (double)total);
    int failed = 0;
    if (total_open)
        failed |= json_object_set_new(params, "total_num_steps", json_integer(total));
    if (warmup_open)
        failed |= json_object_set_new(params, "warmup_num_steps", json_integer(warmup));
    *changed |= total_open || warmup_open;
    return failed ? no_memory() : SHOAL_OK;
}

static shoal_status merge_schedule(const struct pretrain_options *options, json_t *root,
                                   bool *changed)
{
    const char *first = NULL;
    int failed = 0;
    json_t *params = json_object();
    for (size_t i = 0; i < sizeof schedule_flags / sizeof schedule_flags[0]; i++) {
        if (!given(options, schedule_flags[i][0]) || fills_auto(root, schedule_flags[i][0]))
            continue;
        first = first ? first : schedule_flags[i][0];
        failed |= json_object_set_new(params, schedule_flags[i][1],
                                      flag_value(options, schedule_flags[i][0]));
    }
    const shoal_status status = merge_lengths(options, params, &first);
    if (status < 0) {
        json_decref(params);
        return status;
    }
    const json_t *file = json_object_get(root, "scheduler");
    if (!first || (file && !json_is_null(file))) {
        json_decref(params);
        if (!first)
            return SHOAL_OK;
        const char *type = json_string_value(json_object_get(file, "type"));
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "--%s asks for Megatron's schedule but %s has a scheduler (%s): give one of them",
            first, options->deepspeed_config, type ? type : "without type");
    }
    if (!json_object_get(params, "lr_decay_iters"))
        failed |= json_object_set_new(params, "lr_decay_iters", json_real(decay_end(options)));
    failed |= json_object_set_new(root, "scheduler",
                                  json_pack("{s:s, s:o}", "type", "Megatron", "params", params));
    *changed = true;
    return failed ? no_memory() : SHOAL_OK;
}

/* Flags of an optimizer without an optimizer section mean AdamW, as Megatron's command line does.
 */
static shoal_status default_optimizer(const struct pretrain_options *options, json_t *root,
                                      bool *changed)
{
    const char *flag = options->shared.optimizer;
    const char *type = !flag || shoali_strcasecmp(flag, "adam") == 0 ? "AdamW"
                       : shoali_strcasecmp(flag, "sgd") == 0         ? "SGD"
                                                                     : flag;
    const json_t *section = json_object_get(root, "optimizer");
    const char *file = json_string_value(json_object_get(section, "type"));
    const bool adam = flag && shoali_strcasecmp(flag, "adam") == 0;
    if (file && flag && shoali_strcasecmp(file, type) != 0 && shoali_strcasecmp(file, flag) != 0 &&
        !(adam && strstr(file, "Adam")))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "--optimizer is %s but %s has optimizer.type = %s: give one of them, or "
                          "the same value",
                          flag, options->deepspeed_config, file);
    if (section || (!given(options, "lr") && !flag))
        return SHOAL_OK;
    *changed = true;
    const int failed = json_object_set_new(root, "optimizer", json_pack("{s:s}", "type", type));
    return failed ? no_memory() : SHOAL_OK;
}

/* --sgd-momentum, which Megatron's scripts give to every optimizer. */
static shoal_status merge_momentum(const struct pretrain_options *options, json_t *root,
                                   bool *changed)
{
    static const struct pair pair = {"sgd-momentum", {"optimizer", "params", "momentum"}, -1};
    const char *type =
        json_string_value(json_object_get(json_object_get(root, "optimizer"), "type"));
    if (!given(options, "sgd-momentum"))
        return SHOAL_OK;
    if (type && shoali_strcasecmp(type, "sgd") == 0)
        return merge(options, root, &pair, changed);
    SHOALI_INFO("config", "--sgd-momentum has no effect: the optimizer is %s",
                type ? type : "not SGD");
    return SHOAL_OK;
}

/* --use-distributed-optimizer: the first stage of ZeRO, at least. */
static shoal_status merge_distributed(const struct pretrain_options *options, json_t *root,
                                      bool *changed)
{
    json_t *zero = json_object_get(root, "zero_optimization");
    const json_t *stage = json_object_get(zero, "stage");
    if (!given(options, "use-distributed-optimizer") || json_integer_value(stage) > 0)
        return SHOAL_OK;
    if (json_is_integer(stage))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "--use-distributed-optimizer means stage 1 of ZeRO, but --zero-stage or "
                          "the configuration says zero_optimization.stage = 0: give one of them");
    int failed = 0;
    if (!json_is_object(zero)) {
        zero = json_object();
        failed = json_object_set_new(root, "zero_optimization", zero);
    }
    failed |= failed ? 0 : json_object_set_new(zero, "stage", json_integer(1));
    *changed = true;
    return failed ? no_memory() : SHOAL_OK;
}

/* Flags whose value only some configurations can have. */
static shoal_status check_flags(const struct pretrain_options *options, const json_t *root)
{
    const double scale = options->shared.initial_loss_scale;
    int exponent;
    if (given(options, "initial-loss-scale") && !(scale > 0 && frexp(scale, &exponent) == 0.5))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "--initial-loss-scale %g is no power of two: give one, such as 65536",
                          scale);
    const bool half = options->shared.bf16 || options->shared.fp16 ||
                      json_is_true(json_object_get(json_object_get(root, "bf16"), "enabled")) ||
                      json_is_true(json_object_get(json_object_get(root, "fp16"), "enabled"));
    if (options->fp32_residual && half)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "--fp32-residual-connection is not supported with bf16 or fp16, see "
                          "docs/MODELS.md: leave it out");
    return SHOAL_OK;
}

/* Hugging Face's Trainer writes "auto" where a flag says the value. */
static void warn_lr(const struct pretrain_options *options, const json_t *root)
{
    const json_t *params = json_object_get(json_object_get(root, "optimizer"), "params");
    if (is_auto(json_object_get(params, "lr")))
        SHOALI_WARN_FIRST("config",
                          "%s: optimizer.params.lr is \"auto\", which the flag --lr fills; without "
                          "it the optimizer's default holds",
                          options->deepspeed_config);
}

shoal_status pretrain_load_config(const struct pretrain_options *options,
                                  struct shoali_json **document)
{
    if (options->deepspeed_config)
        return shoali_json_load_config(options->deepspeed_config, document);
    return shoali_json_parse("{}", 2, "the command line", document);
}

shoal_status pretrain_take_seed(struct pretrain_options *options)
{
    shoal_status status;
    struct shoali_json *document = NULL;
    if (given(options, "seed"))
        return SHOAL_OK;
    SHOAL_TRY(status, pretrain_load_config(options, &document), done);
    const json_t *seed = json_object_get(shoali_json_root(document), "seed");
    const double value = json_number_value(seed);
    /* the engine refuses what is no whole number from 0 on */
    if (json_is_integer(seed) && json_integer_value(seed) >= 0)
        options->shared.seed = (int64_t)json_integer_value(seed);
    else if (json_is_real(seed) && value >= 0 && value < 0x1p63)
        options->shared.seed = (int64_t)value;
done:
    shoali_json_close(document);
    return status;
}

shoal_status pretrain_config(const struct pretrain_options *options, const char **path, char **text)
{
    shoal_status status;
    struct shoali_json *document = NULL;
    bool changed = false, betas_changed = false;
    *path = NULL;
    *text = NULL;
    SHOAL_TRY(status, pretrain_load_config(options, &document), done);
    json_t *root = shoali_json_root(document);
    if (!json_is_object(root)) {
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s: the configuration must be an object {...}",
                            options->deepspeed_config);
        goto done;
    }
    SHOAL_TRY(status, check_flags(options, root), done);
    SHOAL_TRY(status, default_optimizer(options, root, &changed), done);
    SHOAL_TRY(status, merge_no_decay(options, root), done);
    SHOAL_TRY(status, merge_momentum(options, root, &changed), done);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        bool *flag = pairs[i].index >= 0 ? &betas_changed : &changed;
        if (sets(options, pairs[i].flag))
            SHOAL_TRY(status, merge(options, root, &pairs[i], flag), done);
    }
    SHOAL_TRY(status, merge_distributed(options, root, &changed), done);
    SHOAL_TRY(status, merge_schedule(options, root, &changed), done);
    SHOAL_TRY(status, fill_schedule(options, root, &changed), done);
    SHOAL_TRY(status, pretrain_lr_schedule_apply(options, root, &changed), done);
    warn_lr(options, root);
    *path = options->deepspeed_config;
    if (!changed && !betas_changed && options->deepspeed_config)
        goto done;
    status = shoali_json_write(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17), "the configuration",
                               text);
done:
    shoali_json_close(document);
    return status;
}
