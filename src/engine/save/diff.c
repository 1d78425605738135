#include "shoal/diff.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_folder.h"
#include "monitor/hashes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The text is PATH/NAME when there is such a file, else empty. */
static shoal_status look_for(const char *path, const char *name, struct shoali_str *found)
{
    struct stat info;
    shoali_str_append(found, "%s/%s", path, name);
    if (found->failed)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
    if (stat(found->text, &info) == 0)
        return SHOAL_OK;
    if (errno != ENOENT)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: cannot read: %s", found->text,
                          strerror(errno));
    found->length = 0;
    return SHOAL_OK;
}

static shoal_status look_for_hashes(const char *path, struct shoali_str *found)
{
    struct stat info;
    if (stat(path, &info) != 0 || S_ISDIR(info.st_mode))
        return look_for(path, SHOALI_HASHES_FILE, found);
    shoali_str_append(found, "%s", path);
    return SHOAL_OK;
}

/* PATH is DIR/TAG when it holds a manifest. `text` keeps what *dir and *tag point into. */
static shoal_status split_checkpoint(const char *path, struct shoali_str *text, const char **dir,
                                     const char **tag)
{
    shoal_status status;
    SHOAL_TRY(status, look_for(path, "manifest.json", text), done);
    const bool tagged = text->length > 0;
    text->length = 0;
    shoali_str_append(text, "%s", path);
    if (text->failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the checkpoints' names");
        goto done;
    }
    while (text->length > 1 && text->text[text->length - 1] == '/')
        text->text[--text->length] = '\0';
    char *slash = strrchr(text->text, '/');
    *dir = tagged && !slash ? "." : text->text;
    *tag = !tagged ? NULL : slash ? slash + 1 : text->text;
    if (!tagged || !slash)
        goto done;
    *slash = '\0';
    if (slash == text->text)
        *dir = "/";
done:
    return status;
}

static shoal_status diff_checkpoints(const char *const paths[2], struct shoali_str *out,
                                     shoal_diff_verdict *verdict)
{
    shoal_status status;
    struct shoali_str text[2] = {{0}, {0}};
    const char *dirs[2] = {NULL, NULL}, *tags[2];
    bool equal = false;
    if (shoali_weight_folder_probe(paths[0]) || shoali_weight_folder_probe(paths[1])) {
        SHOAL_TRY(status, shoali_weight_diff(paths, out, &equal), done);
        *verdict = equal ? SHOAL_DIFF_EQUAL : SHOAL_DIFF_REAL;
        goto done;
    }
    for (int s = 0; s < 2; s++)
        SHOAL_TRY(status, split_checkpoint(paths[s], &text[s], &dirs[s], &tags[s]), done);
    SHOAL_TRY(status, shoali_checkpoint_diff(dirs, tags, out, &equal), done);
    *verdict = equal ? SHOAL_DIFF_EQUAL : SHOAL_DIFF_REAL;
done:
    for (int s = 0; s < 2; s++)
        shoali_str_fini(&text[s]);
    return status;
}

shoal_status shoal_diff(const char *path_a, const char *path_b, char **text,
                        shoal_diff_verdict *verdict)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str out = {0}, a = {0}, b = {0};
    struct shoali_hashes_verdict found;
    *text = NULL;
    SHOAL_TRY(status, look_for_hashes(path_a, &a), done);
    SHOAL_TRY(status, look_for_hashes(path_b, &b), done);
    if (a.length > 0 && b.length > 0) {
        SHOAL_TRY(status, shoali_hashes_diff(a.text, b.text, &out, &found), done);
        *verdict = found.equal      ? SHOAL_DIFF_EQUAL
                   : found.rounding ? SHOAL_DIFF_ROUNDING
                                    : SHOAL_DIFF_REAL;
    } else if (a.length > 0 || b.length > 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s has no " SHOALI_HASHES_FILE
                            ": train with \"hashes\": true in the configuration",
                            a.length > 0 ? path_b : path_a);
        goto done;
    } else {
        SHOAL_TRY(status, diff_checkpoints((const char *const[2]){path_a, path_b}, &out, verdict),
                  done);
    }
    if (out.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the comparison's text");
        goto done;
    }
    *text = out.text;
    out.text = NULL;
done:
    shoali_str_fini(&out);
    shoali_str_fini(&a);
    shoali_str_fini(&b);
    return status;
}
