/* autotp.c - rules from the configuration, and which of them a name matches. */
#include "tensor_parallel/autotp.h"

#include "base/plain.h"
#include "base/str.h"

#include <jansson.h>
#include <regex.h>
#include <string.h>

/* ---- presets --------------------------------------------------------------------------------- */

#define LLAMA                                                                         \
    {".*\\.(q|k|v|gate|up)_proj\\.(weight|bias)$", SHOALI_AUTOTP_COLUMN, -1, 0, {0}}, \
        {".*\\.(o|down)_proj\\.(weight|bias)$", SHOALI_AUTOTP_ROW, -1, 0, {0}},       \
    {                                                                                 \
        ".*(embed_tokens|lm_head)\\.weight$", SHOALI_AUTOTP_VOCABULARY, -1, 0,        \
        {                                                                             \
            0                                                                         \
        }                                                                             \
    }

static const struct shoali_autotp_rule llama[] = {LLAMA, {0}};
/* Fused projections. */
static const struct shoali_autotp_rule phi3[] = {
    {".*\\.gate_up_proj\\.weight$", SHOALI_AUTOTP_COLUMN, -1, 2, {0}}, LLAMA, {0}};
static const struct shoali_autotp_rule gpt2[] = {
    {".*\\.c_attn\\.(weight|bias)$", SHOALI_AUTOTP_COLUMN, 1, 3, {0}},
    {".*\\.c_fc\\.(weight|bias)$", SHOALI_AUTOTP_COLUMN, 1, 0, {0}},
    {".*\\.c_proj\\.(weight|bias)$", SHOALI_AUTOTP_ROW, 0, 0, {0}},
    {".*(wte|lm_head)\\.weight$", SHOALI_AUTOTP_VOCABULARY, -1, 0, {0}},
    {0}};
static const struct shoali_autotp_rule bert[] = {
    {".*\\.(query|key|value)\\.(weight|bias)$", SHOALI_AUTOTP_COLUMN, -1, 0, {0}},
    {".*\\.intermediate\\.dense\\.(weight|bias)$", SHOALI_AUTOTP_COLUMN, -1, 0, {0}},
    {".*\\.output\\.dense\\.(weight|bias)$", SHOALI_AUTOTP_ROW, -1, 0, {0}},
    {".*(word_embeddings|decoder)\\.weight$", SHOALI_AUTOTP_VOCABULARY, -1, 0, {0}},
    {".*predictions\\.bias$", SHOALI_AUTOTP_VOCABULARY, -1, 0, {0}},
    {0}};
/* Query, key and value of each head behind each other: one part. */
static const struct shoali_autotp_rule bloom[] = {
    {".*\\.self_attention\\.query_key_value\\.(weight|bias)$", SHOALI_AUTOTP_COLUMN, -1, 0, {0}},
    {".*\\.mlp\\.dense_h_to_4h\\.(weight|bias)$", SHOALI_AUTOTP_COLUMN, -1, 0, {0}},
    {".*\\.self_attention\\.dense\\.(weight|bias)$", SHOALI_AUTOTP_ROW, -1, 0, {0}},
    {".*\\.mlp\\.dense_4h_to_h\\.(weight|bias)$", SHOALI_AUTOTP_ROW, -1, 0, {0}},
    {".*(word_embeddings|lm_head)\\.weight$", SHOALI_AUTOTP_VOCABULARY, -1, 0, {0}},
    {0}};
/* All queries, all keys, all values; gate and up. Fewer keys than queries: their sizes must be
 * given in partition_config, as a preset does not know them. */
static const struct shoali_autotp_rule chatglm[] = {
    {".*\\.self_attention\\.query_key_value\\.(weight|bias)$", SHOALI_AUTOTP_COLUMN, -1, 3, {0}},
    {".*\\.mlp\\.dense_h_to_4h\\.(weight|bias)$", SHOALI_AUTOTP_COLUMN, -1, 2, {0}},
    {".*\\.self_attention\\.dense\\.(weight|bias)$", SHOALI_AUTOTP_ROW, -1, 0, {0}},
    {".*\\.mlp\\.dense_4h_to_h\\.(weight|bias)$", SHOALI_AUTOTP_ROW, -1, 0, {0}},
    {".*(word_embeddings|output_layer)\\.weight$", SHOALI_AUTOTP_VOCABULARY, -1, 0, {0}},
    {0}};
/* Experts are matrices like others; what chooses among them is on all ranks. */
static const struct shoali_autotp_rule mixtral[] = {
    {".*\\.block_sparse_moe\\.gate\\.weight$", SHOALI_AUTOTP_SKIP, -1, 0, {0}},
    {".*\\.experts\\.[0-9]+\\.w[13]\\.weight$", SHOALI_AUTOTP_COLUMN, -1, 0, {0}},
    {".*\\.experts\\.[0-9]+\\.w2\\.weight$", SHOALI_AUTOTP_ROW, -1, 0, {0}},
    LLAMA,
    {0}};
/* ... and so is what makes the latent vectors of attention (q_a, kv_a), whose norms need the
 * whole. */
static const struct shoali_autotp_rule deepseek_v2[] = {
    {".*\\.self_attn\\.(q_a_proj|kv_a_proj_with_mqa)\\.(weight|bias)$",
     SHOALI_AUTOTP_SKIP,
     -1,
     0,
     {0}},
    {".*\\.mlp\\.gate\\.weight$", SHOALI_AUTOTP_SKIP, -1, 0, {0}},
    {".*\\.self_attn\\.(q_b|kv_b)_proj\\.weight$", SHOALI_AUTOTP_COLUMN, -1, 0, {0}},
    LLAMA,
    {0}};

static const struct preset {
    const char *name;
    const struct shoali_autotp_rule *rules;
} presets[] = {{"llama", llama},     {"mistral", llama},   {"qwen2", llama},
               {"qwen3", llama},     {"gemma", llama},     {"phi3", phi3},
               {"gpt2", gpt2},       {"bert", bert},       {"bloom", bloom},
               {"chatglm", chatglm}, {"mixtral", mixtral}, {"deepseek_v2", deepseek_v2}};
enum { PRESETS = sizeof presets / sizeof presets[0] };

static shoal_status find_preset(const char *name, const struct shoali_autotp_rule **rules)
{
    struct shoali_str list = {0};
    *rules = NULL;
    for (int32_t i = 0; i < PRESETS && !*rules; i++)
        if (shoali_strcasecmp(presets[i].name, name) == 0)
            *rules = presets[i].rules;
    if (*rules)
        return SHOAL_OK;
    for (int32_t i = 0; i < PRESETS; i++)
        shoali_str_append(&list, "%s%s", i ? ", " : "", presets[i].name);
    const shoal_status status =
        SHOAL_FAIL(SHOAL_ECONFIG,
                   "tensor_parallel.preset_model is \"%s\": give one of %s, or the splits in "
                   "tensor_parallel.partition_config",
                   name, shoali_str_get(&list));
    shoali_str_fini(&list);
    return status;
}

/* ---- rules of one's own ---------------------------------------------------------------------- */

#define SPEC "tensor_parallel.partition_config.layer_specs[%zu]"

/* Keys of DeepSpeed that have a meaning there. What a rank's part needs of the others is found out
 * from the shapes, so they would change nothing; one that picks rules by model would be another
 * rule. */
static shoal_status check_meaning(const json_t *object, const char *where)
{
    static const char *const idle[] = {"gather_output", "grad_allreduce", "embedding_partition_dim",
                                       "lm_head_patterns", NULL};
    for (int32_t i = 0; idle[i]; i++)
        if (json_object_get(object, idle[i]) && shoali_context_get()->rank == 0)
            SHOALI_WARN("engine",
                        "%s.%s has no effect: the communication between ranks follows from how "
                        "weights are divided",
                        where, idle[i]);
    if (json_object_get(object, "model_types"))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%s.model_types is not supported: leave it out, and give the rules of "
                          "this model alone",
                          where);
    return SHOAL_OK;
}

static shoal_status check_keys(const json_t *object, const char *const *known, const char *where)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        bool is_known = false;
        for (int32_t i = 0; known[i]; i++)
            is_known = is_known || strcmp(key, known[i]) == 0;
        if (!is_known)
            return SHOAL_FAIL(SHOAL_ECONFIG, "%s has the key `%s`, which is not known", where, key);
    }
    return check_meaning(object, where);
}

static shoal_status read_type(const json_t *spec, size_t index, enum shoali_autotp_type *type)
{
    static const char *const names[] = {"column", "row", "vocabulary", "skip"};
    const char *name = json_string_value(json_object_get(spec, "partition_type"));
    for (int32_t i = 0; name && i < 4; i++)
        if (shoali_strcasecmp(name, names[i]) == 0) {
            *type = (enum shoali_autotp_type)i;
            return SHOAL_OK;
        }
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      SPEC ".partition_type is \"%s\": give column, row, vocabulary or skip", index,
                      name ? name : "missing");
}

static int32_t dim_of(const struct shoali_autotp_rule *rule)
{
    return rule->dim >= 0 ? rule->dim : rule->type == SHOALI_AUTOTP_ROW ? 1 : 0;
}

static shoal_status read_shape(const json_t *spec, size_t index, struct shoali_autotp_rule *rule)
{
    const json_t *shape = json_object_get(spec, "shape");
    const json_t *at = json_array_get(shape, (size_t)dim_of(rule));
    const size_t count = json_is_array(at)            ? json_array_size(at)
                         : json_integer_value(at) > 0 ? (size_t)json_integer_value(at)
                                                      : 0;
    bool good = count <= SHOAL_SPLIT_PARTS && (!json_is_array(at) || count > 0);
    if (!shape)
        return SHOAL_OK;
    rule->part_count = good ? (int32_t)count : 0;
    for (size_t p = 0; good && json_is_array(at) && p < count; p++) {
        rule->part[p] = json_integer_value(json_array_get(at, p));
        good = rule->part[p] > 0;
    }
    if (!good || !json_is_array(shape))
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          SPEC
                          ".shape must be a list whose entry %d, of the dim that is divided, is "
                          "-1, a number of equal parts or a list of their sizes, at most %d",
                          index, (int)dim_of(rule), SHOAL_SPLIT_PARTS);
    return SHOAL_OK;
}

static shoal_status read_spec(const json_t *spec, size_t index, struct shoali_autotp_rule *rule)
{
    static const char *const known[] = {"patterns",      "partition_type", "partition_dim", "shape",
                                        "gather_output", "grad_allreduce", "model_types",   NULL};
    shoal_status status;
    char where[96];
    snprintf(where, sizeof where, SPEC, index);
    SHOAL_TRY(status, check_keys(spec, known, where), done);
    SHOAL_TRY(status, read_type(spec, index, &rule->type), done);
    const json_t *dim = json_object_get(spec, "partition_dim");
    rule->dim = json_is_integer(dim) ? (int32_t)json_integer_value(dim) : -1;
    if (rule->dim > 1 || (dim && (!json_is_integer(dim) || json_integer_value(dim) < 0))) {
        status = SHOAL_FAIL(SHOAL_ECONFIG, SPEC ".partition_dim: give 0 or 1", index);
        goto done;
    }
    SHOAL_TRY(status, read_shape(spec, index, rule), done);
done:
    return status;
}

static size_t count_patterns(const json_t *specs)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(specs); i++)
        count += json_array_size(json_object_get(json_array_get(specs, i), "patterns"));
    return count;
}

static shoal_status read_specs(struct shoali_autotp *autotp, const json_t *specs)
{
    shoal_status status = SHOAL_OK;
    for (size_t i = 0; i < json_array_size(specs); i++) {
        const json_t *spec = json_array_get(specs, i);
        const json_t *patterns = json_object_get(spec, "patterns");
        struct shoali_autotp_rule rule = {0};
        SHOAL_TRY(status, read_spec(spec, i, &rule), done);
        for (size_t p = 0; p < json_array_size(patterns); p++) {
            const char *text = json_string_value(json_array_get(patterns, p));
            rule.pattern = text ? shoali_arena_strdup(&autotp->arena, text) : NULL;
            if (!rule.pattern)
                return text ? SHOAL_ENOMEM
                            : SHOAL_FAIL(SHOAL_ECONFIG, SPEC ".patterns[%zu] is no text", i, p);
            autotp->rule[autotp->rule_count++] = rule;
        }
        if (json_array_size(patterns) == 0)
            return SHOAL_FAIL(SHOAL_ECONFIG, SPEC ".patterns must be a list of regular expressions",
                              i);
    }
done:
    return status;
}

static bool flag(const json_t *object, const char *key, bool other)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : other;
}

static shoal_status compile(struct shoali_autotp *autotp)
{
    regex_t *compiled =
        shoali_arena_alloc(&autotp->arena, ((size_t)autotp->rule_count + 1) * sizeof *compiled);
    const int32_t count = autotp->rule_count;
    if (!compiled)
        return SHOAL_ENOMEM;
    autotp->compiled = compiled;
    for (autotp->rule_count = 0; autotp->rule_count < count; autotp->rule_count++) {
        const char *pattern = autotp->rule[autotp->rule_count].pattern;
        char why[128];
        const int failed = regcomp(&compiled[autotp->rule_count], pattern, REG_EXTENDED);
        if (!failed)
            continue;
        regerror(failed, &compiled[autotp->rule_count], why, sizeof why);
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "tensor_parallel.partition_config: \"%s\" is no extended regular "
                          "expression: %s",
                          pattern, why);
    }
    return SHOAL_OK;
}

shoal_status shoali_autotp_init(struct shoali_autotp *autotp, const char *preset_model,
                                const struct json_t *partition_config)
{
    static const char *const known[] = {"layer_specs",       "strict_mode",
                                        "use_default_specs", "embedding_partition_dim",
                                        "lm_head_patterns",  NULL};
    shoal_status status = SHOAL_ENOMEM;
    const struct shoali_autotp_rule *preset = NULL;
    const json_t *specs = json_object_get(partition_config, "layer_specs");
    size_t more = 0;
    *autotp = (struct shoali_autotp){.strict = flag(partition_config, "strict_mode", false)};
    shoali_arena_init(&autotp->arena);
    SHOAL_TRY(status, check_keys(partition_config, known, "tensor_parallel.partition_config"),
              done);
    if (preset_model && preset_model[0])
        SHOAL_TRY(status, find_preset(preset_model, &preset), done);
    if (!flag(partition_config, "use_default_specs", true))
        preset = NULL;
    while (preset && preset[more].pattern)
        more++;
    autotp->rule = shoali_arena_alloc(&autotp->arena,
                                      (count_patterns(specs) + more + 1) * sizeof *autotp->rule);
    if (!autotp->rule) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, read_specs(autotp, specs), done);
    for (size_t i = 0; i < more; i++)
        autotp->rule[autotp->rule_count++] = preset[i];
    SHOAL_TRY(status, compile(autotp), done);
done:
    if (status < 0)
        shoali_autotp_fini(autotp);
    return status;
}

void shoali_autotp_fini(struct shoali_autotp *autotp)
{
    regex_t *compiled = autotp->compiled;
    for (int32_t i = 0; compiled && i < autotp->rule_count; i++)
        regfree(&compiled[i]);
    if (autotp->rule)
        shoali_arena_fini(&autotp->arena);
    *autotp = (struct shoali_autotp){0};
}

/* ---- tagging --------------------------------------------------------------------------------- */

/* NULL: none. */
static const struct shoali_autotp_rule *match(const struct shoali_autotp *autotp, const char *name)
{
    const regex_t *compiled = autotp->compiled;
    regmatch_t found;
    for (int32_t i = 0; i < autotp->rule_count; i++)
        if (regexec(&compiled[i], name, 1, &found, 0) == 0 && found.rm_so == 0)
            return &autotp->rule[i];
    return NULL;
}

bool shoali_autotp_knows(const struct shoali_autotp *autotp, const char *name)
{
    return match(autotp, name) != NULL;
}

static shoal_status fill_split(const struct shoali_autotp_rule *rule, const char *name,
                               const shoal_shape *shape, int32_t dim, shoal_param_split *split)
{
    const int64_t whole = shape->dim[dim];
    *split = (shoal_param_split){.axis = SHOAL_AXIS_TP, .dim = dim, .part_count = rule->part_count};
    int64_t sum = 0;
    for (int32_t p = 0; p < rule->part_count; p++) {
        split->part[p] = rule->part[p] > 0 ? rule->part[p] : whole / rule->part_count;
        sum += split->part[p];
    }
    if (rule->part_count > 0 && sum != whole)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "tensor_parallel: parameter %s has %lld indices in dim %d, which do not "
                          "form the %d parts of the rule \"%s\"",
                          name, (long long)whole, (int)dim, (int)rule->part_count, rule->pattern);
    return SHOAL_OK;
}

shoal_status shoali_autotp_tag(void *user, const char *name, shoal_param_spec *spec)
{
    const struct shoali_autotp *autotp = user;
    const struct shoali_autotp_rule *rule = match(autotp, name);
    if (!rule && autotp->strict && spec->shape.ndim == 2)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "tensor_parallel.partition_config.strict_mode: no rule says how ranks "
                          "divide the matrix %s; give one, or one of type skip",
                          name);
    if (!rule || rule->type == SHOALI_AUTOTP_SKIP || spec->shape.ndim < 1)
        return SHOAL_OK;
    /* a bias goes with outputs; a row weight's is added once, to the sum */
    if (spec->shape.ndim == 1)
        return rule->type == SHOALI_AUTOTP_ROW
                   ? SHOAL_OK
                   : fill_split(rule, name, &spec->shape, 0, &spec->split[0]);
    if (spec->shape.ndim != 2)
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "tensor_parallel: the rule \"%s\" matches %s, which is no matrix; give it "
            "a rule of type skip before",
            rule->pattern, name);
    return fill_split(rule, name, &spec->shape, dim_of(rule), &spec->split[0]);
}
