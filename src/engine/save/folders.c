/* Checkpoints in a folder, without an engine: shoal/checkpoint.h. */
#include "shoal/checkpoint.h"

#include "base/base.h"
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

/* As malloc gives it; the text is given up in any case. */
static shoal_status hand_over(struct shoali_str *out, shoal_status status, char **text)
{
    *text = status == SHOAL_OK ? strdup(shoali_str_get(out)) : NULL;
    shoali_str_fini(out);
    if (status == SHOAL_OK && !*text)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate lines about checkpoints");
    return status;
}

struct visit {
    const char *dir;
    int32_t threads, count;
    struct shoali_str *out;
    bool whole;
};

static shoal_status verify_one(void *user, const char *tag)
{
    struct visit *visit = user;
    bool good;
    const shoal_status status =
        shoali_checkpoint_verify(visit->dir, tag, visit->threads, visit->out, &good);
    visit->whole = visit->whole && good;
    visit->count++;
    return status;
}

shoal_status shoal_checkpoint_verify(const char *dir, const char *tag, int32_t threads, char **text,
                                     bool *whole)
{
    struct shoali_str out = {0};
    struct visit visit = {.dir = dir, .threads = threads, .out = &out, .whole = true};
    shoal_status status =
        tag ? verify_one(&visit, tag) : shoali_checkpoint_each(dir, verify_one, &visit);
    if (status == SHOAL_OK && visit.count == 0)
        status = SHOAL_FAIL(SHOAL_ENOENT, "there is no checkpoint in %s", dir);
    *whole = visit.whole;
    return hand_over(&out, status, text);
}

shoal_status shoal_checkpoint_show(const char *dir, const char *tag, bool tensors, char **text)
{
    struct shoali_str out = {0};
    const shoal_status status = shoali_checkpoint_show(dir, tag, tensors, &out);
    return hand_over(&out, status, text);
}

shoal_status shoal_checkpoint_prune(const char *dir, int64_t keep_last, int64_t keep_every,
                                    bool dry_run, char **text)
{
    struct shoali_str out = {0};
    *text = NULL;
    if (keep_last < 0 || keep_every < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "keep_last %lld and keep_every %lld must be at least 0",
                          (long long)keep_last, (long long)keep_every);
    const struct shoali_checkpoint_keep keep = {keep_last, keep_every};
    const shoal_status status = shoali_checkpoint_prune(dir, &keep, dry_run, &out);
    return hand_over(&out, status, text);
}
