#include "optimizer/param_groups.h"

#include <fnmatch.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "optimizer/types.h"

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct shoali_param_group_config, key, type, member, __VA_ARGS__)
static const struct shoali_option group_rows[] = {
    OPTION("params", STRINGS, params, .flags = SHOALI_OPTION_REQUIRED,
           .help = "Names of parameters, or patterns such as *.bias and transformer.h.[01].*"),
    OPTION("lr", FLOAT, lr, .flags = SHOALI_OPTION_NO_DEFAULT, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "Instead of params.lr; a schedule changes both in the same proportion."),
    OPTION("lr_mult", FLOAT, lr_mult, .default_number = 1, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "Multiplies the learning rate."),
    OPTION("weight_decay", FLOAT, weight_decay, .flags = SHOALI_OPTION_NO_DEFAULT,
           .max = SHOALI_OPTIMIZER_LARGE, .help = "Instead of params.weight_decay."),
    OPTION("betas", FLOATS, betas, .help = "Adam, AdamW and Lamb: instead of params.betas."),
    OPTION("eps", FLOAT, eps, .flags = SHOALI_OPTION_NO_DEFAULT, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "Adam, AdamW and Lamb: instead of params.eps."),
    OPTION("momentum", FLOAT, momentum, .flags = SHOALI_OPTION_NO_DEFAULT,
           .max = SHOALI_OPTIMIZER_LARGE,
           .help = "SGD: instead of params.momentum; 0 in both or in neither."),
    OPTION("dampening", FLOAT, dampening, .flags = SHOALI_OPTION_NO_DEFAULT,
           .min = -SHOALI_OPTIMIZER_LARGE, .max = SHOALI_OPTIMIZER_LARGE,
           .help = "SGD: instead of params.dampening."),
    OPTION("nesterov", BOOL, nesterov, .flags = SHOALI_OPTION_NO_DEFAULT,
           .help = "SGD: instead of params.nesterov."),
};
const struct shoali_section shoali_param_group_section = {
    .name = "param_groups",
    .help = "Keys that are not given have the value of `optimizer.params`.",
    .rows = group_rows,
    .row_count = sizeof(group_rows) / sizeof(group_rows[0]),
    .struct_bytes = sizeof(struct shoali_param_group_config),
    .given_offset = offsetof(struct shoali_param_group_config, given),
};

/* What the functions below share. */
struct maker {
    struct shoali_json *document;
    const char *path;
    const struct shoali_param_about *param;
    int32_t param_count;
    struct shoali_arena *arena;
};

/* ---- patterns ------------------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, 0) == 0;
}

static bool is_1d(const struct shoali_param_about *param)
{
    const size_t length = strlen(param->name);
    return param->ndim <= 1 || (length >= 5 && strcmp(param->name + length - 5, ".bias") == 0);
}

/* Parameters whose name has `word` somewhere; *first is one of them. */
static int32_t count_containing(const struct maker *maker, const char *word, const char **first)
{
    int32_t count = 0;
    for (int32_t p = 0; p < maker->param_count; p++) {
        if (!strstr(maker->param[p].name, word))
            continue;
        *first = count++ ? *first : maker->param[p].name;
    }
    return count;
}

static shoal_status fail_unmatched(const struct maker *maker, const char *key, const char *pattern)
{
    const char *first = NULL;
    const char **names =
        shoali_malloc((size_t)maker->param_count * sizeof(*names) + 1, "names of parameters");
    if (!names)
        return SHOAL_ENOMEM;
    for (int32_t p = 0; p < maker->param_count; p++)
        names[p] = maker->param[p].name;
    const char *near = shoali_nearest(pattern, names, (size_t)maker->param_count);
    const int32_t inside = *pattern ? count_containing(maker, pattern, &first) : 0;
    shoali_free((void *)names);
    shoal_status status;
    if (inside > 0)
        status = SHOAL_FAIL(SHOAL_ECONFIG,
                            "%s: \"%s\" is the name of no parameter: \"*%s*\" matches %d, such as "
                            "`%s`",
                            key, pattern, pattern, (int)inside, first);
    else
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s: \"%s\" matches no parameter of this model; %s `%s`",
                            key, pattern, near ? "near is" : "a name looks like",
                            near                     ? near
                            : maker->param_count > 0 ? maker->param[0].name
                                                     : "?");
    return shoali_json_locate(maker->document, key, status);
}

/* ---- groups --------------------------------------------------------------------------------- */

static const struct shoali_option *find_row(const struct shoali_section *section, const char *key)
{
    for (int32_t r = 0; r < section->row_count; r++)
        if (strcmp(section->rows[r].key, key) == 0)
            return &section->rows[r];
    return NULL;
}

/* A key that the optimizer does not have, or with values of another type; NULL none. */
static const char *foreign_key(const struct shoali_optimizer *base,
                               const struct shoali_param_group_config *group)
{
    static const char *const keys[] = {"weight_decay", "betas",     "eps",
                                       "momentum",     "dampening", "nesterov"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const struct shoali_option *row = find_row(base->type->params, keys[i]);
        const struct shoali_option *own = find_row(&shoali_param_group_section, keys[i]);
        if ((!row || row->type != own->type) &&
            shoali_config_given(&shoali_param_group_section, group, keys[i]))
            return keys[i];
    }
    return NULL;
}

/* `optimizer` is a copy of that of `params`. */
static shoal_status configure_group(const struct shoali_param_group_config *group,
                                    struct shoali_optimizer *optimizer)
{
    shoal_status status = SHOAL_OK;
    const int32_t states = optimizer->state_count;
    const double lr = optimizer->lr;
    const char *foreign = foreign_key(optimizer, group);
    if (foreign)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          find_row(optimizer->type->params, foreign)
                              ? "%s: %s takes the value of optimizer.params for all groups"
                              : "%s: is not a parameter of %s",
                          foreign, optimizer->type->name);
    optimizer->type->take_group(optimizer, group);
    if (optimizer->type->params->validate)
        SHOAL_TRY(status, optimizer->type->params->validate(&optimizer->params), done);
    shoali_optimizer_configure(optimizer);
    if (optimizer->state_count != states)
        status = SHOAL_FAIL(SHOAL_ECONFIG,
                            "momentum: must be above 0 in all groups or in none, because all "
                            "parameters keep the same states");
    else if (optimizer->lr != lr && lr == 0)
        status = SHOAL_FAIL(SHOAL_ECONFIG, "lr: needs an optimizer.params.lr above 0, to which a "
                                           "schedule keeps it in proportion");
done:
    return status;
}

/* Gives the parameters that the pattern matches to group `index`. */
static shoal_status claim(const struct maker *maker, struct shoali_param_groups *groups,
                          int32_t index, double lr_multiplier, const char *key, const char *pattern)
{
    bool any = false;
    for (int32_t p = 0; p < maker->param_count; p++) {
        struct shoali_param_rule *rule = &groups->rule[p];
        if (!matches(pattern, maker->param[p].name))
            continue;
        any = true;
        if (rule->optimizer == &groups->group[index])
            continue; /* by another pattern of the same group */
        if (rule->optimizer != &groups->group[0]) {
            const int other = (int)(rule->optimizer - groups->group) - 1;
            const shoal_status status =
                SHOAL_FAIL(SHOAL_ECONFIG,
                           "%s: \"%s\" matches `%s`, which %s.param_groups.%d has already: a "
                           "parameter is in one group",
                           key, pattern, maker->param[p].name, maker->path, other);
            return shoali_json_locate(maker->document, key, status);
        }
        rule->optimizer = &groups->group[index];
        rule->lr_multiplier *= lr_multiplier;
    }
    return any ? SHOAL_OK : fail_unmatched(maker, key, pattern);
}

static shoal_status make_group(const struct maker *maker, struct shoali_param_groups *groups,
                               int32_t index)
{
    shoal_status status;
    char key[256], params[280];
    struct shoali_param_group_config group;
    const struct shoali_optimizer *base = &groups->group[0];
    struct shoali_optimizer *optimizer = &groups->group[index];
    snprintf(key, sizeof key, "%s.param_groups.%d", maker->path, (int)index - 1);
    snprintf(params, sizeof params, "%s.params", key);
    *optimizer = *base;
    SHOAL_TRY(status, shoali_config_defaults(&shoali_param_group_section, &group, maker->arena),
              done);
    SHOAL_TRY(status,
              shoali_config_read_json(&shoali_param_group_section, maker->document, key, &group,
                                      maker->arena),
              done);
    status = configure_group(&group, optimizer);
    if (status < 0) {
        status = shoali_error_prefix(status, "%s", key);
        return shoali_json_locate(maker->document, key, status);
    }
    const double ratio = optimizer->lr == base->lr ? 1 : optimizer->lr / base->lr;
    for (int32_t i = 0; i < group.params.count; i++)
        SHOAL_TRY(status,
                  claim(maker, groups, index, ratio * group.lr_mult, params, group.params.value[i]),
                  done);
done:
    return status;
}

/* ---- decay ---------------------------------------------------------------------------------- */

static shoal_status take_decay_away(const struct maker *maker, struct shoali_param_groups *groups,
                                    const char *pattern)
{
    char key[256];
    const bool by_shape = strcmp(pattern, SHOALI_NO_DECAY_1D) == 0;
    bool any = by_shape;
    snprintf(key, sizeof key, "%s.no_decay", maker->path);
    for (int32_t p = 0; p < maker->param_count; p++) {
        struct shoali_param_rule *rule = &groups->rule[p];
        if (by_shape ? !is_1d(&maker->param[p]) : !matches(pattern, maker->param[p].name))
            continue;
        any = true;
        rule->weight_decay_multiplier = 0;
        rule->by_shape |= by_shape;
        rule->by_name |= !by_shape;
    }
    return any ? SHOAL_OK : fail_unmatched(maker, key, pattern);
}

shoal_status shoali_param_groups_make(const struct shoali_optimizer_config *config,
                                      struct shoali_json *document, const char *path,
                                      const struct shoali_optimizer *base,
                                      const struct shoali_param_about *param, int32_t param_count,
                                      struct shoali_arena *arena,
                                      struct shoali_param_groups *groups)
{
    shoal_status status = SHOAL_OK;
    const struct maker maker = {document, path, param, param_count, arena};
    if (config->param_groups && !json_is_array(config->param_groups)) {
        char key[256];
        snprintf(key, sizeof key, "%s.param_groups", path);
        status = SHOAL_FAIL(SHOAL_ECONFIG, "%s: must be a list of groups, [{\"params\": ...}, ...]",
                            key);
        return shoali_json_locate(document, key, status);
    }
    groups->count = 1 + (int32_t)json_array_size(config->param_groups);
    groups->group = shoali_arena_alloc(arena, (size_t)groups->count * sizeof *groups->group);
    groups->rule = shoali_arena_alloc(arena, ((size_t)param_count + 1) * sizeof *groups->rule);
    if (!groups->group || !groups->rule)
        return SHOAL_ENOMEM;
    groups->group[0] = *base;
    for (int32_t p = 0; p < param_count; p++)
        groups->rule[p] =
            (struct shoali_param_rule){.optimizer = &groups->group[0],
                                       .lr_multiplier = param[p].lr_mult,
                                       .weight_decay_multiplier = param[p].no_decay ? 0 : 1};
    for (int32_t g = 1; g < groups->count; g++)
        SHOAL_TRY(status, make_group(&maker, groups, g), done);
    for (int32_t i = 0; i < config->no_decay.count; i++)
        SHOAL_TRY(status, take_decay_away(&maker, groups, config->no_decay.value[i]), done);
done:
    return status;
}

/* ---- in words ------------------------------------------------------------------------------- */

static double decay_of(const struct shoali_param_rule *rule)
{
    return rule->optimizer->weight_decay * rule->weight_decay_multiplier;
}

struct tally {
    double decay;
    int64_t tensors, parameters;
};

static void append_tally(const struct tally *tally, struct shoali_str *out)
{
    shoali_str_append(out, "%lld tensor%s, ", (long long)tally->tensors,
                      tally->tensors == 1 ? "" : "s");
    shoali_str_append_count(out, tally->parameters);
    shoali_str_append(out, " parameter%s", tally->parameters == 1 ? "" : "s");
}

static void append_reasons(const struct shoali_param_groups *groups,
                           const struct shoali_optimizer_config *config,
                           const struct shoali_param_about *param, int32_t param_count,
                           struct shoali_str *out)
{
    bool by_name = false, by_shape = false, by_tag = false, by_group = false;
    const char *between = " (";
    for (int32_t p = 0; p < param_count; p++) {
        const struct shoali_param_rule *rule = &groups->rule[p];
        if (param[p].frozen || decay_of(rule) != 0)
            continue;
        by_name |= rule->by_name;
        by_shape |= rule->by_shape;
        by_tag |= param[p].no_decay;
        by_group |= rule->weight_decay_multiplier != 0;
    }
    for (int32_t i = 0; i < config->no_decay.count; i++) {
        const char *word = config->no_decay.value[i];
        if (strcmp(word, SHOALI_NO_DECAY_1D) == 0 ? !by_shape : !by_name)
            continue;
        shoali_str_append(out, "%s%s", between, word);
        between = ", ";
    }
    if (by_tag)
        shoali_str_append(out, "%stagged by the model", between);
    between = by_tag ? ", " : between;
    if (by_group)
        shoali_str_append(out, "%sa weight_decay of 0", between);
    shoali_str_append(out, ")");
}

void shoali_param_groups_describe(const struct shoali_param_groups *groups,
                                  const struct shoali_optimizer_config *config,
                                  const struct shoali_param_about *param, int32_t param_count,
                                  struct shoali_str *out)
{
    struct tally none = {0};
    const size_t begin = out->length;
    for (int32_t p = 0; p < param_count; p++) {
        const double decay = decay_of(&groups->rule[p]);
        struct tally tally = {.decay = decay};
        bool seen = false;
        for (int32_t q = 0; q < p && !seen; q++)
            seen = !param[q].frozen && decay_of(&groups->rule[q]) == decay;
        if (param[p].frozen || (seen && decay != 0))
            continue;
        for (int32_t q = p; q < param_count && !seen; q++) {
            if (param[q].frozen || decay_of(&groups->rule[q]) != decay)
                continue;
            tally.tensors++;
            tally.parameters += param[q].count;
        }
        if (decay == 0) {
            none = seen ? none : tally;
            continue;
        }
        shoali_str_append(out, "%s%g: ", out->length == begin ? "weight decay " : "; ", decay);
        append_tally(&tally, out);
    }
    if (out->length == begin) {
        shoali_str_append(out, "weight decay: none");
        return;
    }
    if (none.tensors == 0) {
        shoali_str_append(out, "; every tensor decays");
        return;
    }
    shoali_str_append(out, "; ");
    append_tally(&none, out);
    shoali_str_append(out, " do not decay");
    append_reasons(groups, config, param, param_count, out);
}
