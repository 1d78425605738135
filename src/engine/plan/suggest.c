/* What would make a plan fit: alternatives are planned one after the other, the cheap ones first.
 */
#include "engine/engine.h"

#include "base/config_table.h"
#include "base/json.h"
#include "base/str.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 1 << 20, SMALL_SUB_GROUP = 1000000 };

/* A change of the configuration; what is 0 stays as it is. */
struct change {
    int32_t stage;
    bool lean; /* the lean model */
    bool recompute;
    int64_t micro_batch;
    int64_t sub_group;
    const char *offload; /* device of offload_optimizer; in stage 3 of offload_param too */
    int32_t ranks;
};

struct search {
    const shoal_engine_args *engine;
    const shoal_plan_args *args;
    const shoal_plan_limit *limit;
    shoal_plan best;
    int64_t best_missing_bytes;
    char *best_change;
    size_t best_change_bytes;
    const json_t *root;
    int64_t train_batch;
    bool packs; /* weights are packed as things are; no alternative does */
    bool found; /* best is filled */
};

static json_t *member_object(json_t *root, const char *key)
{
    json_t *object = json_object_get(root, key);
    if (!json_is_object(object)) {
        object = json_object();
        if (json_object_set_new(root, key, object) != 0)
            return NULL;
    }
    return object;
}

/* These return 0 or, without memory, -1. */
static int set_offload(json_t *object, const char *device)
{
    int failed = json_object_set_new(object, "device", json_string(device));
    if (!json_is_string(json_object_get(object, "nvme_path"))) /* a plan opens no file there */
        failed |= json_object_set_new(object, "nvme_path", json_string("/"));
    return failed;
}

static int change_zero(json_t *zero, const struct change *change)
{
    int failed = 0;
    if (change->stage > 0)
        failed |= json_object_set_new(zero, "stage", json_integer(change->stage));
    if (change->sub_group > 0)
        failed |= json_object_set_new(zero, "sub_group_size", json_integer(change->sub_group));
    if (change->offload)
        failed |= set_offload(member_object(zero, "offload_optimizer"), change->offload);
    if (change->offload && change->stage == 3) {
        json_t *param = member_object(zero, "offload_param");
        failed |= set_offload(param, change->offload);
        failed |= json_object_set_new(param, "max_in_cpu", json_integer(0));
    }
    return failed;
}

static char *changed_config(const struct search *search, const struct change *change)
{
    json_t *root = json_deep_copy(search->root);
    char *text = NULL;
    if (change->stage > 0 || change->offload)
        (void)member_object(root, "zero_optimization");
    json_t *zero = json_object_get(root, "zero_optimization");
    int failed = zero || change->stage > 0 || change->offload ? change_zero(zero, change) : 0;
    if (search->packs)
        failed |= json_object_set_new(root, "packed_weights", json_false());
    if (change->micro_batch > 0 || change->ranks > 0) {
        json_object_del(root, "gradient_accumulation_steps");
        failed |= json_object_set_new(root, "train_batch_size", json_integer(search->train_batch));
    }
    if (change->micro_batch > 0)
        failed |= json_object_set_new(root, "train_micro_batch_size_per_gpu",
                                      json_integer(change->micro_batch));
    if (!failed && shoali_json_write(root, JSON_REAL_PRECISION(17), "a plan", &text) < 0)
        text = NULL;
    json_decref(root);
    return text;
}

static void describe(const struct search *search, const struct change *change, char *text,
                     size_t bytes)
{
    struct shoali_str list = {0};
    if (search->packs)
        shoali_str_append(&list, ", packed_weights false");
    if (change->ranks > 0)
        shoali_str_append(&list, ", %d ranks", (int)change->ranks);
    if (change->stage > 0)
        shoali_str_append(&list, ", zero_optimization.stage %d", (int)change->stage);
    if (change->offload)
        shoali_str_append(&list, ", offload_optimizer%s to %s",
                          change->stage == 3 ? " and offload_param (max_in_cpu 0)" : "",
                          change->offload);
    if (change->sub_group > 0)
        shoali_str_append(&list, ", sub_group_size %lld", (long long)change->sub_group);
    if (change->lean)
        shoali_str_append(&list, ", %s", search->args->lean_model_flag);
    if (change->recompute)
        shoali_str_append(&list, ", --recompute-granularity full");
    if (change->micro_batch > 0)
        shoali_str_append(&list, ", train_micro_batch_size_per_gpu %lld",
                          (long long)change->micro_batch);
    const char *found = shoali_str_get(&list);
    snprintf(text, bytes, "%s", *found ? found + 2 : "");
    shoali_str_fini(&list);
}

/* Plans one alternative; true when it fits. What is not possible (a stage that the configuration
 * excludes, a batch that cannot be cut) is no alternative. */
static bool try(struct search *search, const struct change *change)
{
    shoal_plan plan;
    shoal_plan_args args = *search->args;
    shoal_engine_args engine = *search->engine;
    char *text = changed_config(search, change);
    if (!text)
        return false;
    engine.config_path = NULL;
    engine.config_text = text;
    if (change->lean)
        engine.model = args.lean_model;
    if (change->recompute) {
        engine.recompute_granularity = "full";
        engine.recompute_method = NULL;
        engine.recompute_num_layers = 0;
        engine.recompute_modules = NULL;
    }
    if (change->ranks > 0)
        args.world_size = change->ranks;
    const shoal_status status = shoal_plan_make(&engine, &args, &plan);
    free(text);
    if (status < 0)
        return false;
    shoal_plan_verdict verdict;
    shoal_plan_check(&plan, search->limit, &verdict);
    if (search->found && verdict.missing_bytes >= search->best_missing_bytes)
        return false;
    search->found = true;
    search->best = plan;
    search->best_missing_bytes = verdict.missing_bytes;
    describe(search, change, search->best_change, search->best_change_bytes);
    return verdict.missing_bytes <= 0;
}

/* One change at a time. */
static bool try_single(struct search *search, const shoal_plan *now, int32_t top, bool recompute)
{
    if (search->packs && try(search, &(struct change){0}))
        return true;
    for (int32_t stage = now->stage + 1; stage <= top; stage++)
        if (try(search, &(struct change){.stage = stage}))
            return true;
    const bool lean = search->args->lean_model != NULL;
    if (lean && try(search, &(struct change){.lean = true}))
        return true;
    if (recompute && try(search, &(struct change){.recompute = true}))
        return true;
    if (lean && recompute && try(search, &(struct change){.lean = true, .recompute = true}))
        return true;
    for (int64_t micro = now->micro_batch / 2; micro > 0; micro /= 2)
        if (try(search, &(struct change){.micro_batch = micro}))
            return true;
    return false;
}

static bool try_together(struct search *search, const shoal_plan *now, int32_t top, bool recompute)
{
    const int32_t stage = top > now->stage ? top : 0;
    const bool lean = search->args->lean_model != NULL;
    if (stage && lean && try(search, &(struct change){.stage = stage, .lean = true}))
        return true;
    if (stage && recompute && try(search, &(struct change){.stage = stage, .recompute = true}))
        return true;
    if (stage && lean && recompute &&
        try(search, &(struct change){.stage = stage, .lean = true, .recompute = true}))
        return true;
    for (int64_t micro = now->micro_batch / 2; micro > 0; micro /= 2)
        if (try(search,
                &(struct change){.stage = stage, .recompute = recompute, .micro_batch = micro}) ||
            (lean &&
             try(search,
                 &(struct change){
                     .stage = stage, .lean = true, .recompute = recompute, .micro_batch = micro})))
            return true;
    return false;
}

/* Host memory is no help where it is the device's. */
static bool try_offload(struct search *search, const shoal_plan *now, bool recompute)
{
    static const char *const devices[] = {"cpu", "nvme"};
    const int64_t micro = now->micro_batch > 1 ? 1 : 0;
    for (int32_t d = search->limit->device_is_host ? 1 : 0; d < 2; d++)
        if (try(search, &(struct change){.stage = now->stage > 0 ? 0 : 2, .offload = devices[d]}) ||
            try(search, &(struct change){.stage = 3, .offload = devices[d]}) ||
            try(search, &(struct change){.stage = 3,
                                         .recompute = recompute,
                                         .micro_batch = micro,
                                         .sub_group = SMALL_SUB_GROUP,
                                         .offload = devices[d]}))
            return true;
    return false;
}

static bool try_ranks(struct search *search, const shoal_plan *now, bool recompute)
{
    for (int32_t ranks = 2 * now->world_size; ranks <= RANKS_MAX; ranks *= 2)
        for (int64_t micro = now->micro_batch; micro > 0; micro /= 2)
            if (try(search, &(struct change){.ranks = ranks,
                                             .stage = now->stage < 3 ? 3 : 0,
                                             .recompute = recompute,
                                             .micro_batch = micro == now->micro_batch ? 0 : micro}))
                return true;
    return false;
}

static shoal_status find(struct search *search)
{
    shoal_status status;
    shoal_plan now;
    struct shoali_json *document = NULL;
    const shoal_engine_args *engine = search->engine;
    SHOAL_TRY(status, shoal_plan_make(engine, search->args, &now), done);
    if (engine->config_path)
        SHOAL_TRY(status, shoali_json_load_config(engine->config_path, &document), done);
    else
        SHOAL_TRY(status,
                  shoali_json_parse(engine->config_text, strlen(engine->config_text),
                                    "the configuration", &document),
                  done);
    search->root = shoali_json_root(document);
    search->train_batch = now.train_batch;
    search->packs = now.packed_weights_bytes > 0;
    const bool recompute =
        !engine->recompute_granularity || strcmp(engine->recompute_granularity, "full") != 0;
    const int32_t top = now.world_size > 1 ? 3 : now.stage;
    const bool fits = try_single(search, &now, top, recompute) ||
                      try_together(search, &now, top, recompute) ||
                      try_offload(search, &now, recompute);
    if (!fits && !search->limit->device_is_host) /* more ranks on one machine: no more memory */
        (void)try_ranks(search, &now, recompute);
    status = search->found ? SHOAL_OK : SHOAL_END;
done:
    shoali_json_close(document);
    return status;
}

shoal_status shoal_plan_suggest(const shoal_engine_args *engine, const shoal_plan_args *args,
                                const shoal_plan_limit *limit, shoal_plan *plan, char *change,
                                size_t bytes)
{
    shoal_status status;
    struct search search = {.engine = engine,
                            .args = args ? args : &(shoal_plan_args){0},
                            .limit = limit,
                            .best_change = change,
                            .best_change_bytes = bytes};
    if (bytes > 0)
        *change = '\0';
    status = find(&search);
    if (plan)
        *plan = search.best;
    return status;
}
