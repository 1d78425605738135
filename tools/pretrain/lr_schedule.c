/* The learning-rate schedule in a checkpoint. Its client object has, beside the model and the data,
 *
 *   "schedule": {"lr": 6e-4, "weight_decay": 0.1, "no_decay": ["1-D"], "scheduler": {...}}
 *
 * which are optimizer.params.lr, optimizer.params.weight_decay, optimizer.no_decay and scheduler of
 * the configuration, after flags filled it. A missing member is missing there. With
 * --use-checkpoint-opt_param-scheduler a run that continues takes them in place of its own. */
#include "pretrain/pretrain.h"

#include "base/json.h"
#include "base/str.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Where a member lives in the configuration. */
static const struct {
    const char *key, *section, *subsection;
} members[] = {
    {"lr", "optimizer", "params"},
    {"weight_decay", "optimizer", "params"},
    {"no_decay", "optimizer", NULL},
    {"scheduler", NULL, NULL},
};
enum { MEMBER_COUNT = sizeof members / sizeof members[0] };

static shoal_status no_memory(void)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the checkpoint's schedule");
}

static json_t *holder_of(json_t *root, int32_t i)
{
    json_t *holder = members[i].section ? json_object_get(root, members[i].section) : root;
    return members[i].subsection ? json_object_get(holder, members[i].subsection) : holder;
}

/* As holder_of, made where it is missing; NULL without memory. */
static json_t *make_holder(json_t *root, int32_t i)
{
    json_t *holder = holder_of(root, i);
    if (json_is_object(holder) || !members[i].subsection)
        return holder;
    holder = json_object();
    return json_object_set_new(json_object_get(root, members[i].section), members[i].subsection,
                               holder) == 0
               ? holder
               : NULL;
}

shoal_status pretrain_lr_schedule_read(struct pretrain_options *options, const char *client)
{
    shoal_status status = SHOAL_OK;
    json_t *root = NULL;
    if (!options->use_checkpoint_schedule || options->finetune || options->no_load_optim)
        return SHOAL_OK;
    if (client)
        SHOAL_TRY(status, shoali_json_read(client, strlen(client), &root, NULL), done);
    const json_t *stored = json_object_get(root, "schedule");
    if (!json_is_object(stored)) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "--use-checkpoint-opt_param-scheduler: the checkpoint in %s does not "
                            "store its schedule: leave the flag out, and give the schedule's flags",
                            options->load);
        goto done;
    }
    options->schedule_object = json_deep_copy(stored);
    status = options->schedule_object ? SHOAL_OK : no_memory();
done:
    json_decref(root);
    return status;
}

shoal_status pretrain_lr_schedule_apply(const struct pretrain_options *options, json_t *root,
                                        bool *changed)
{
    int failed = 0;
    const json_t *stored = options->schedule_object;
    if (!stored)
        return SHOAL_OK;
    for (int32_t i = 0; i < MEMBER_COUNT; i++) {
        json_t *value = json_object_get(stored, members[i].key);
        json_t *holder = value ? make_holder(root, i) : holder_of(root, i);
        if (value)
            failed |= json_object_set(holder, members[i].key, value);
        else if (holder)
            json_object_del(holder, members[i].key); /* which may not be there */
    }
    *changed = true;
    return failed ? no_memory() : SHOAL_OK;
}

shoal_status pretrain_lr_schedule_write(const struct pretrain_options *options, const char *text,
                                        struct shoali_str *out)
{
    shoal_status status;
    int failed = 0;
    char *written = NULL;
    struct shoali_json *document = NULL;
    json_t *schedule = json_object();
    if (text)
        SHOAL_TRY(status, shoali_json_parse(text, strlen(text), "the configuration", &document),
                  done);
    else
        SHOAL_TRY(status, pretrain_load_config(options, &document), done);
    json_t *root = shoali_json_root(document);
    for (int32_t i = 0; i < MEMBER_COUNT; i++) {
        json_t *value = json_object_get(holder_of(root, i), members[i].key);
        if (value && !json_is_null(value))
            failed |= json_object_set(schedule, members[i].key, value);
    }
    if (failed || !schedule) {
        status = no_memory();
        goto done;
    }
    SHOAL_TRY(status,
              shoali_json_write(schedule, JSON_COMPACT | JSON_REAL_PRECISION(17), "the schedule",
                                &written),
              done);
    shoali_str_append(out, "%s", written);
done:
    free(written);
    json_decref(schedule);
    shoali_json_close(document);
    return status;
}
