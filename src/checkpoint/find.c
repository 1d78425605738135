#include "checkpoint/checkpoint_internal.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* One plain folder name. */
static bool name_valid(const char *tag)
{
    return *tag && *tag != '.' && strlen(tag) <= SHOALI_CHECKPOINT_TAG_BYTES && !strchr(tag, '/') &&
           strcmp(tag, "latest") != 0;
}

bool shoali_checkpoint_tag_valid(const char *tag)
{
    return name_valid(tag) && !ends_with(tag, ".partial") && !ends_with(tag, ".old");
}

/* ---- scanning ---- */

struct scan {
    char *tag; /* best so far; owned */
    json_t *manifest;
    bool damaged;            /* some manifest did not verify */
    struct shoali_str names; /* of all that verify */
};

/* Of one step: a finished folder, then one that only lacked its rename, then one that had been
 * replaced. */
static int place_of(const char *tag)
{
    return ends_with(tag, ".old") ? 0 : ends_with(tag, ".partial") ? 1 : 2;
}

static bool better(const struct scan *scan, const char *tag, const json_t *manifest)
{
    if (!scan->tag)
        return true;
    const int64_t step = shoali_manifest_step(manifest);
    const int64_t best = shoali_manifest_step(scan->manifest);
    if (step != best)
        return step > best;
    if (place_of(tag) != place_of(scan->tag))
        return place_of(tag) > place_of(scan->tag);
    return strcmp(tag, scan->tag) > 0; /* any rule that does not depend on the folder's order */
}

static shoal_status scan_entry(const char *dir, const char *tag, struct scan *scan)
{
    shoal_status status = SHOAL_OK;
    json_t *manifest = NULL;
    const shoal_status found = shoali_manifest_read(dir, tag, &manifest);
    if (found == SHOAL_ENOMEM)
        return found;
    scan->damaged = scan->damaged || found == SHOAL_ECORRUPT;
    if (found == SHOAL_OK)
        shoali_str_append(&scan->names, "%s%s", scan->names.length ? ", " : "", tag);
    if (found == SHOAL_OK && better(scan, tag, manifest)) {
        char *copy = strdup(tag);
        if (!copy) {
            status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a tag");
            goto done;
        }
        free(scan->tag);
        json_decref(scan->manifest);
        scan->tag = copy;
        scan->manifest = json_incref(manifest);
    }
done:
    json_decref(manifest);
    return status;
}

static shoal_status scan_folder(const char *dir, struct scan *scan)
{
    shoal_status status = SHOAL_OK;
    DIR *folder = opendir(dir);
    if (!folder && errno == ENOENT)
        return SHOAL_OK;
    if (!folder && errno == ENOTDIR)
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s is no folder: give the one that checkpoints are in",
                          dir);
    if (!folder)
        return SHOAL_FAIL(errno == EACCES ? SHOAL_EINVAL : SHOAL_EIO, "%s: cannot read: %s", dir,
                          strerror(errno));
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        if (name_valid(entry->d_name))
            SHOAL_TRY(status, scan_entry(dir, entry->d_name, scan), done);
done:
    closedir(folder);
    return status;
}

static void scan_fini(struct scan *scan)
{
    free(scan->tag);
    json_decref(scan->manifest);
    shoali_str_fini(&scan->names);
}

/* ---- latest ---- */

/* The tag in DIR/latest; NULL when there is none or it is no tag. Owned. */
static char *read_latest(const char *dir)
{
    struct shoali_str path = {0};
    char *text = NULL;
    size_t bytes = 0;
    shoali_str_append(&path, "%s/latest", dir);
    const bool read = !path.failed && shoali_read_file(path.text, &text, &bytes) == SHOAL_OK;
    shoali_str_fini(&path);
    if (!read)
        return NULL;
    text[strcspn(text, "\r\n")] = '\0';
    if (!name_valid(text)) {
        free(text);
        text = NULL;
    }
    return text;
}

/* Several ranks open the same folder; one of them says it. */
static void say_scanned(const char *dir, const char *latest, const struct scan *scan)
{
    if (shoali_context_get()->rank != 0)
        return;
    if (latest)
        SHOALI_WARN("checkpoint", "%s/latest names %s, which does not verify: using %s (step %lld)",
                    dir, latest, scan->tag, (long long)shoali_manifest_step(scan->manifest));
    else
        SHOALI_WARN("checkpoint", "%s/latest is missing or unreadable: using %s (step %lld)", dir,
                    scan->tag, (long long)shoali_manifest_step(scan->manifest));
}

/* DIR may be what is meant by DIR/.. and a tag: to begin anew there would be a surprise. */
static shoal_status refuse_checkpoint_itself(const char *dir)
{
    struct shoali_str path = {0};
    shoal_status status = SHOAL_OK;
    shoali_str_append(&path, "%s/manifest.json", dir);
    if (!path.failed && access(path.text, F_OK) == 0)
        status = SHOAL_FAIL(SHOAL_ECONFIG,
                            "%s is itself a checkpoint: give the folder that it is in, and its "
                            "name as the tag",
                            dir);
    shoali_str_fini(&path);
    return status;
}

static shoal_status find_latest(const char *dir, char **found, json_t **manifest)
{
    shoal_status status = SHOAL_OK;
    struct scan scan = {0};
    char *latest = read_latest(dir);
    if (latest) {
        status = shoali_manifest_read(dir, latest, manifest);
        *found = status == SHOAL_OK ? latest : NULL;
        if (status == SHOAL_OK)
            return status;
        if (status != SHOAL_EINVAL && status != SHOAL_ECORRUPT)
            goto done; /* out of memory, or of a newer version: another one is not what was meant */
    }
    SHOAL_TRY(status, scan_folder(dir, &scan), done);
    if (!scan.tag) {
        SHOAL_TRY(status, refuse_checkpoint_itself(dir), done);
        status = scan.damaged
                     ? SHOAL_FAIL(SHOAL_ECORRUPT,
                                  "there is no intact checkpoint in %s: no manifest verifies", dir)
                     : SHOAL_FAIL(SHOAL_EINVAL, "there is no checkpoint in %s", dir);
        goto done;
    }
    say_scanned(dir, latest, &scan);
    *found = scan.tag;
    *manifest = scan.manifest;
    scan.tag = NULL;
    scan.manifest = NULL;
done:
    scan_fini(&scan);
    free(latest);
    return status;
}

/* There is no such tag: says which there are. */
static shoal_status no_such_tag(const char *dir, const char *tag)
{
    shoal_status status;
    struct scan scan = {0};
    SHOAL_TRY(status, scan_folder(dir, &scan), done);
    status = scan.tag ? SHOAL_FAIL(SHOAL_EINVAL, "there is no checkpoint %s in %s; there are: %s",
                                   tag, dir, shoali_str_get(&scan.names))
                      : SHOAL_FAIL(SHOAL_EINVAL, "there is no checkpoint in %s", dir);
done:
    scan_fini(&scan);
    return status;
}

shoal_status shoali_checkpoint_find(const char *dir, const char *tag, char **found,
                                    json_t **manifest)
{
    shoal_status status = SHOAL_OK;
    if (!dir || !*dir)
        return SHOAL_FAIL(SHOAL_EINVAL, "the checkpoint's folder is empty: name one");
    if (!tag)
        return find_latest(dir, found, manifest);
    if (!name_valid(tag))
        return SHOAL_FAIL(SHOAL_EINVAL, "\"%s\" is not the name of a checkpoint's folder", tag);
    status = shoali_manifest_read(dir, tag, manifest);
    if (status == SHOAL_EINVAL)
        return no_such_tag(dir, tag);
    if (status < 0)
        return status;
    *found = strdup(tag);
    if (!*found) {
        json_decref(*manifest);
        *manifest = NULL;
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a tag");
    }
    return SHOAL_OK;
}

shoal_status shoali_checkpoint_open(const char *dir, const char *tag,
                                    struct shoali_checkpoint_info *info)
{
    shoal_status status;
    json_t *manifest = NULL;
    *info = (struct shoali_checkpoint_info){0};
    SHOAL_TRY(status, shoali_checkpoint_find(dir, tag, &info->tag, &manifest), done);
    SHOAL_TRY(status, shoali_manifest_info(manifest, info), done);
done:
    json_decref(manifest);
    if (status < 0)
        shoali_checkpoint_info_fini(info);
    return status;
}

void shoali_checkpoint_info_fini(struct shoali_checkpoint_info *info)
{
    free(info->engine_json);
    free(info->client_json);
    free(info->tag);
    *info = (struct shoali_checkpoint_info){0};
}
