/* Prints as DeepSpeed's ds_elastic does, and a table. */
#include "elasticity/elasticity.h"

#include "base/json.h"
#include "base/str.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 64 };
static const char line[] = "------------------------------------------\n";

/* ---- what a scheduler saw ------------------------------------------------------------------- */
const char *shoali_elastic_variable(const struct shoali_elasticity_config *config,
                                    struct shoali_arena *arena)
{
    struct shoali_str text = {0};
    shoali_str_append(&text,
                      "{\"enabled\": true, \"max_train_batch_size\": %lld, "
                      "\"micro_batch_sizes\": [",
                      (long long)config->max_train_batch_size);
    for (int32_t i = 0; i < config->micro_batch_sizes.count; i++)
        shoali_str_append(&text, "%s%lld", i ? ", " : "",
                          (long long)config->micro_batch_sizes.value[i]);
    shoali_str_append(&text, "], \"version\": %g}", config->version);
    const char *copy = text.failed ? NULL : shoali_arena_strdup(arena, shoali_str_get(&text));
    shoali_str_fini(&text);
    return copy;
}

static shoal_status differs(const char *key)
{
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "elasticity.%s is not that of " SHOALI_ELASTIC_VARIABLE
                      ", by which the scheduler chose the number of ranks: start the job with the "
                      "same configuration, or unset the variable",
                      key);
}

static shoal_status compare(const struct shoali_elasticity_config *config,
                            const struct shoali_elasticity_config *seen)
{
    const struct shoali_ints *ours = &config->micro_batch_sizes, *theirs = &seen->micro_batch_sizes;
    if (config->max_train_batch_size != seen->max_train_batch_size)
        return differs("max_train_batch_size");
    if (ours->count != theirs->count ||
        memcmp(ours->value, theirs->value, (size_t)ours->count * sizeof(int64_t)) != 0)
        return differs("micro_batch_sizes");
    return config->version == seen->version ? SHOAL_OK : differs("version");
}

shoal_status shoali_elastic_check_scheduler(const struct shoali_elasticity_config *config)
{
    shoal_status status = SHOAL_OK;
    struct shoali_elasticity_config seen;
    struct shoali_arena arena;
    struct shoali_json *document = NULL;
    const char *text = getenv(SHOALI_ELASTIC_VARIABLE);
    if (!text || !*text)
        return SHOAL_OK;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_config_defaults(&shoali_elasticity_section, &seen, &arena), done);
    SHOAL_TRY(status, shoali_json_parse(text, strlen(text), SHOALI_ELASTIC_VARIABLE, &document),
              done);
    SHOAL_TRY(status,
              shoali_config_read_json(&shoali_elasticity_section, document, "", &seen, &arena),
              done);
    SHOAL_TRY(status, compare(config, &seen), done);
done:
    shoali_json_close(document);
    shoali_arena_fini(&arena);
    return status;
}

/* ---- for people ----------------------------------------------------------------------------- */
struct description {
    struct shoali_elasticity_config config;
    struct shoali_elastic_sizes sizes; /* as DeepSpeed's */
    struct shoali_elastic_sizes shown; /* those that may be started */
    int64_t world;                     /* 0: none */
    bool exact;
};

static void append_list(struct shoali_str *out, const struct shoali_ints *list)
{
    shoali_str_append(out, "[");
    for (int32_t i = 0; i < list->count; i++)
        shoali_str_append(out, "%s%lld", i ? ", " : "", (long long)list->value[i]);
    shoali_str_append(out, "]\n");
}

static void append_table(struct shoali_str *out, const struct description *of)
{
    const struct shoali_ints *counts = &of->shown.counts;
    const int64_t model = of->config.model_parallel_size;
    shoali_str_append(out, "%s%8s  %11s  %12s\n", line, "ranks", "micro-batch", "accumulation");
    for (int32_t i = 0; i < counts->count && i < ROWS_MAX; i++) {
        const int64_t count = counts->value[i];
        const int64_t micro = shoali_elastic_micro(&of->config, &of->shown, count);
        shoali_str_append(out, "%8lld  %11lld  %12lld%s\n", (long long)(count * model),
                          (long long)micro, (long long)(of->shown.batch / count / micro),
                          count * model == of->world ? "  <" : "");
    }
    if (counts->count > ROWS_MAX)
        shoali_str_append(out, "     ... and %d more\n", (int)(counts->count - ROWS_MAX));
}

static void append_results(struct shoali_str *out, const struct description *of)
{
    const int64_t count = of->world / of->config.model_parallel_size;
    if (of->world)
        shoali_str_append(out, "%sCalculated results for world size %lld:\n%s", line,
                          (long long)of->world, line);
    else
        shoali_str_append(out, "%sCalculated results:\n%s", line, line);
    shoali_str_append(out, "final_batch_size .... %lld\nvalid_gpus .......... ",
                      (long long)of->sizes.batch);
    append_list(out, &of->sizes.counts);
    if (of->world)
        shoali_str_append(out, "micro_batch_size .... %lld\n",
                          (long long)shoali_elastic_micro(&of->config, &of->shown, count));
    if (of->exact) {
        shoali_str_append(out, "with reduction exact, micro-batch %lld for all of them: ",
                          (long long)of->shown.common_micro);
        append_list(out, &of->shown.counts);
    }
    if (of->sizes.own_batch)
        shoali_str_append(out, "the batch is for this world size only\n");
    append_table(out, of);
}

static shoal_status find(struct description *of, struct shoali_arena *arena)
{
    shoal_status status;
    const int64_t model = of->config.model_parallel_size, count = of->world / model;
    if (of->world % model != 0)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "%lld ranks are not a multiple of elasticity.model_parallel_size %lld",
                          (long long)of->world, (long long)model);
    SHOAL_TRY(status,
              shoali_elastic_find(&of->config, of->exact ? 0 : count, false, arena, &of->sizes),
              done);
    of->shown = of->sizes;
    if (of->exact)
        SHOAL_TRY(status, shoali_elastic_find(&of->config, count, true, arena, &of->shown), done);
done:
    return status;
}

static shoal_status write(const struct description *of, const json_t *section, char **text)
{
    shoal_status status;
    struct shoali_str out = {0};
    char *config = NULL;
    SHOAL_TRY(status,
              shoali_json_write(section, JSON_INDENT(4) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9),
                                "the section", &config),
              done);
    shoali_str_append(&out, "%sElasticity config:\n%s%s\n", line, line, config);
    append_results(&out, of);
    if (out.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the text of the elasticity section");
        shoali_str_fini(&out);
        goto done;
    }
    *text = out.text;
done:
    free(config);
    return status;
}

shoal_status shoali_elastic_read(struct shoali_json *document, const char *path,
                                 struct shoali_arena *arena,
                                 struct shoali_elasticity_config *config, bool *exact)
{
    shoal_status status;
    static const char name[] = "elasticity";
    const json_t *root = shoali_json_root(document);
    const char *reduction = json_string_value(json_object_get(root, "reduction"));
    *exact = reduction && strcmp(reduction, "exact") == 0;
    SHOAL_TRY(status, shoali_config_defaults(&shoali_elasticity_section, config, arena), done);
    if (!json_is_object(json_object_get(root, name))) {
        status = SHOAL_FAIL(SHOAL_ECONFIG,
                            "%s has no section elasticity: add {\"elasticity\": {\"enabled\": "
                            "true, \"max_train_batch_size\": 2000, \"micro_batch_sizes\": [2, 4, "
                            "6]}}",
                            path);
        goto done;
    }
    SHOAL_TRY(status,
              shoali_config_read_json(&shoali_elasticity_section, document, name, config, arena),
              done);
    if (!config->enabled)
        status = shoali_json_locate(
            document, name,
            SHOAL_FAIL(SHOAL_ECONFIG, "elasticity is not enabled: add \"enabled\": true to it"));
done:
    return status;
}

shoal_status shoal_elasticity_describe(const char *config_path, int64_t world_size, char **text)
{
    shoal_status status;
    struct shoali_arena arena;
    struct shoali_json *document = NULL;
    struct description of = {.world = world_size};
    *text = NULL;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_json_load_config(config_path, &document), done);
    SHOAL_TRY(status, shoali_elastic_read(document, config_path, &arena, &of.config, &of.exact),
              done);
    status = find(&of, &arena);
    if (status < 0) {
        status = shoali_json_locate(document, "elasticity", status);
        goto done;
    }
    SHOAL_TRY(status, write(&of, json_object_get(shoali_json_root(document), "elasticity"), text),
              done);
done:
    shoali_json_close(document);
    shoali_arena_fini(&arena);
    return status;
}
