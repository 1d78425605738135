#include "checkpoint/checkpoint_internal.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

enum { SENTENCE_BYTES = 1024, NAMES_MOST = 8 };

struct found {
    int64_t step;
    char tag[NAME_MAX + 1];
};
struct scan {
    char *tag; /* best so far; owned */
    json_t *manifest;
    struct found found[NAMES_MOST]; /* the newest that verify, by step; equal ones by name */
    int32_t count;                  /* of all that verify */
    /* Of what cannot be read: of the first by name, for the folder's order says nothing. */
    shoal_status failure;
    char failed_tag[NAME_MAX + 1];
    char sentence[SENTENCE_BYTES];
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

static void note_failure(struct scan *scan, const char *tag, shoal_status status)
{
    if (scan->failure < 0 && strcmp(tag, scan->failed_tag) > 0)
        return;
    scan->failure = status;
    snprintf(scan->failed_tag, sizeof scan->failed_tag, "%s", tag);
    snprintf(scan->sentence, sizeof scan->sentence, "%s", shoal_error_message());
}

static void note_found(struct scan *scan, const char *tag, int64_t step)
{
    int32_t at = scan->count < NAMES_MOST ? scan->count : NAMES_MOST;
    while (at > 0 &&
           (scan->found[at - 1].step < step ||
            (scan->found[at - 1].step == step && strcmp(scan->found[at - 1].tag, tag) < 0)))
        at--;
    scan->count++;
    if (at == NAMES_MOST)
        return;
    memmove(&scan->found[at + 1], &scan->found[at],
            (size_t)(NAMES_MOST - 1 - at) * sizeof scan->found[0]);
    scan->found[at].step = step;
    snprintf(scan->found[at].tag, sizeof scan->found[at].tag, "%s", tag);
}

/* "global_step12, global_step9 and 40 older ones" */
static const char *names_of(const struct scan *scan, char text[SENTENCE_BYTES])
{
    text[0] = '\0';
    for (int32_t i = 0; i < scan->count && i < NAMES_MOST; i++)
        snprintf(text + strlen(text), SENTENCE_BYTES - strlen(text), "%s%s", i ? ", " : "",
                 scan->found[i].tag);
    if (scan->count > NAMES_MOST)
        snprintf(text + strlen(text), SENTENCE_BYTES - strlen(text), " and %d older ones",
                 (int)(scan->count - NAMES_MOST));
    return text;
}

static shoal_status scan_entry(const char *dir, const char *tag, struct scan *scan)
{
    json_t *manifest = NULL;
    bool folder = false;
    shoal_status status = shoali_checkpoint_is_folder(dir, tag, &folder);
    if (status == SHOAL_OK && !folder)
        return SHOAL_OK;
    if (status == SHOAL_OK)
        status = shoali_manifest_read(dir, tag, &manifest);
    if (status == SHOAL_ENOENT)
        return SHOAL_OK; /* a folder of something else */
    if (status < 0 && status != SHOAL_ENOMEM) {
        note_failure(scan, tag, status);
        return SHOAL_OK;
    }
    if (status < 0)
        return status;
    note_found(scan, tag, shoali_manifest_step(manifest));
    if (better(scan, tag, manifest)) {
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
    if (!folder)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: cannot read: %s", dir, strerror(errno));
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (!entry && errno != 0)
            status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot read: %s", dir, strerror(errno));
        if (!entry)
            break;
        /* a file system's own lost+found is closed to all but root */
        if (name_valid(entry->d_name) && strcmp(entry->d_name, "lost+found") != 0)
            SHOAL_TRY(status, scan_entry(dir, entry->d_name, scan), done);
    }
done:
    closedir(folder);
    return status;
}

static void scan_fini(struct scan *scan)
{
    free(scan->tag);
    json_decref(scan->manifest);
}

/* ---- latest ---- */

#define LATEST_ADVICE \
    "write the name of a checkpoint's folder into it, or remove it to use the highest step"

/* Why the text of `latest` is no single word; NULL: it may be one. */
static const char *unclear(const char *text, size_t bytes)
{
    const size_t line = strcspn(text, "\r\n");
    if (strlen(text) != bytes)
        return "has a NUL byte";
    if (line > 0 && strspn(text + line, " \t\r\n") < bytes - line)
        return "has more than one line";
    return NULL;
}

/* The tag in DIR/latest; *tag NULL when there is no such file, else owned. */
static shoal_status read_latest(const char *dir, char **tag)
{
    shoal_status status;
    struct shoali_str path = {0};
    char *text = NULL;
    size_t bytes = 0;
    *tag = NULL;
    shoali_str_append(&path, "%s/latest", dir);
    status = path.failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path")
                         : shoali_read_file(path.text, &text, &bytes);
    if (status == SHOAL_ENOENT)
        status = SHOAL_END;
    if (status != SHOAL_OK)
        goto done;
    const char *why = unclear(text, bytes), *name = shoali_strip_line(text);
    if (!why && !*name)
        why = "is empty";
    if (why)
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s %s: " LATEST_ADVICE, path.text, why);
    else if (!name_valid(name))
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "%s says \"%.60s\", which names no checkpoint: " LATEST_ADVICE,
                       path.text, name);
    if (status < 0)
        goto done;
    *tag = strdup(name);
    if (!*tag)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a tag");
done:
    free(text);
    shoali_str_fini(&path);
    return status < 0 ? status : SHOAL_OK;
}

const char *shoali_checkpoint_lack(const char *dir, const char *tag)
{
    bool folder = false;
    if (!name_valid(tag))
        return "names no checkpoint";
    if (shoali_checkpoint_is_folder(dir, tag, &folder) < 0)
        shoali_error_clear();
    return folder ? "has no manifest.json (a save writes it last)" : "does not exist";
}

/* Several ranks open the same folder; one of them says it. */
static void say_scanned(const char *dir, const char *latest, const struct scan *scan)
{
    if (shoali_context_get()->rank != 0)
        return;
    if (latest)
        SHOALI_WARN("checkpoint", "%s/latest names %s, which %s: using %s (step %lld)", dir, latest,
                    shoali_checkpoint_lack(dir, latest), scan->tag,
                    (long long)shoali_manifest_step(scan->manifest));
    else
        SHOALI_WARN("checkpoint", "%s/latest does not exist: using %s (step %lld)", dir, scan->tag,
                    (long long)shoali_manifest_step(scan->manifest));
}

/* DIR must be a folder, and may be what is meant by DIR/.. and a tag: to begin anew in these cases
 * would be a surprise. */
static shoal_status check_dir(const char *dir)
{
    shoal_status status = SHOAL_OK;
    struct stat info;
    struct shoali_str path = {0};
    if (stat(dir, &info) != 0)
        return errno == ENOENT ? SHOAL_FAIL(SHOAL_ENOENT, "there is no checkpoint in %s", dir)
                               : SHOAL_FAIL(shoali_path_status(errno), "%s: cannot read: %s", dir,
                                            strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return SHOAL_FAIL(SHOAL_ECONFIG, "%s is not a folder: give the folder of the checkpoints",
                          dir);
    shoali_str_append(&path, "%s/manifest.json", dir);
    if (path.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
    else if (stat(path.text, &info) == 0)
        status = SHOAL_FAIL(
            SHOAL_ECONFIG,
            "%s is itself a checkpoint: give its parent folder, and its name as the tag", dir);
    else if (errno != ENOENT)
        status = SHOAL_FAIL(shoali_path_status(errno), "%s: cannot read the folder: %s", dir,
                            strerror(errno));
    shoali_str_fini(&path);
    return status;
}

/* Something is there that cannot be read, and may be what is meant: says what could be used
 * instead, which is for the user to choose. */
static shoal_status suggest(shoal_status status, const char *sentence, const struct scan *scan)
{
    if (!scan->tag)
        return SHOAL_FAIL(status, "%s", sentence);
    return SHOAL_FAIL(status, "%s; the newest that can be read is %s (step %lld), by its tag",
                      sentence, scan->tag, (long long)shoali_manifest_step(scan->manifest));
}

/* Of a folder without `latest`. */
static shoal_status find_newest(const char *dir, struct scan *scan)
{
    shoal_status status;
    SHOAL_TRY(status, scan_folder(dir, scan), done);
    if (scan->failure < 0)
        status = suggest(scan->failure, scan->sentence, scan);
    else if (!scan->tag)
        status = SHOAL_FAIL(SHOAL_ENOENT, "there is no checkpoint in %s", dir);
done:
    return status;
}

/* `latest` names a tag that is no folder. A save that was killed between its renames left the same
 * checkpoint under TAG.partial, or the one it replaces under TAG.old; another tag is not what was
 * asked for. */
static shoal_status find_interrupted(const char *dir, const char *latest, struct scan *scan)
{
    static const char *const ends[] = {".partial", ".old"};
    shoal_status status = SHOAL_OK;
    char names[SENTENCE_BYTES];
    struct shoali_str tag = {0};
    for (int i = 0; i < 2 && !scan->tag; i++) {
        tag.length = 0;
        shoali_str_append(&tag, "%s%s", latest, ends[i]);
        if (tag.failed)
            status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a tag");
        if (status == SHOAL_OK && name_valid(tag.text))
            status = scan_entry(dir, tag.text, scan);
        if (status < 0)
            goto done;
    }
    if (scan->tag)
        goto done;
    SHOAL_TRY(status, scan_folder(dir, scan), done);
    if (scan->tag)
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "%s/latest names %s, which %s: write one of these into it: %s",
                       dir, latest, shoali_checkpoint_lack(dir, latest), names_of(scan, names));
    else
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s/latest names %s, which %s, and there is no other checkpoint of "
                            "Shoal: correct the file, or give another folder",
                            dir, latest, shoali_checkpoint_lack(dir, latest));
done:
    shoali_str_fini(&tag);
    return status;
}

static shoal_status find_latest(const char *dir, bool says, char **found, json_t **manifest)
{
    shoal_status status;
    struct scan scan = {0};
    char *latest = NULL, sentence[SENTENCE_BYTES];
    SHOAL_TRY(status, check_dir(dir), done);
    SHOAL_TRY(status, read_latest(dir, &latest), done);
    if (latest) {
        status = shoali_manifest_read(dir, latest, manifest);
        *found = status == SHOAL_OK ? latest : NULL;
        if (status == SHOAL_OK)
            return status;
    }
    if (status == SHOAL_ECORRUPT || status == SHOAL_EIO || status == SHOAL_EINVAL) {
        snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
        const shoal_status scanned = scan_folder(dir, &scan);
        status = suggest(scanned == SHOAL_ENOMEM ? scanned : status, sentence, &scan);
    } else if (!latest)
        status = find_newest(dir, &scan);
    else if (status == SHOAL_ENOENT)
        status = find_interrupted(dir, latest, &scan);
    if (status < 0)
        goto done;
    if (says)
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
    char names[SENTENCE_BYTES];
    bool folder = false;
    SHOAL_TRY(status, shoali_checkpoint_is_folder(dir, tag, &folder), done);
    SHOAL_TRY(status, scan_folder(dir, &scan), done);
    if (folder)
        status =
            SHOAL_FAIL(SHOAL_ENOENT, "%s/%s %s%s%s", dir, tag, shoali_checkpoint_lack(dir, tag),
                       scan.tag ? "; complete checkpoints are: " : "", names_of(&scan, names));
    else
        status = scan.tag
                     ? SHOAL_FAIL(SHOAL_ENOENT, "there is no checkpoint %s in %s; there are: %s",
                                  tag, dir, names_of(&scan, names))
                     : SHOAL_FAIL(SHOAL_ENOENT, "there is no checkpoint in %s", dir);
done:
    scan_fini(&scan);
    return status;
}

shoal_status shoali_checkpoint_find(const char *dir, const char *tag, bool says, char **found,
                                    json_t **manifest)
{
    shoal_status status = SHOAL_OK;
    if (!dir || !*dir)
        return SHOAL_FAIL(SHOAL_EINVAL, "the checkpoint's folder is empty: name one");
    if (!tag)
        return find_latest(dir, says, found, manifest);
    if (!name_valid(tag))
        return SHOAL_FAIL(SHOAL_EINVAL, "\"%s\" is not the name of a checkpoint's folder", tag);
    status = shoali_manifest_read(dir, tag, manifest);
    if (status == SHOAL_ENOENT)
        return no_such_tag(dir, tag);
    if (status < 0)
        return status;
    *found = strdup(tag);
    return *found ? SHOAL_OK : SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a tag");
}

static shoal_status open_checkpoint(const char *dir, const char *tag, bool says,
                                    struct shoali_checkpoint_info *info)
{
    shoal_status status;
    json_t *manifest = NULL;
    *info = (struct shoali_checkpoint_info){0};
    SHOAL_TRY(status, shoali_checkpoint_find(dir, tag, says, &info->tag, &manifest), done);
    SHOAL_TRY(status, shoali_manifest_info(manifest, info), done);
done:
    json_decref(manifest);
    if (status < 0)
        shoali_checkpoint_info_fini(info);
    return status;
}

shoal_status shoali_checkpoint_open(const char *dir, const char *tag,
                                    struct shoali_checkpoint_info *info)
{
    return open_checkpoint(dir, tag, true, info);
}

shoal_status shoali_checkpoint_peek(const char *dir, const char *tag,
                                    struct shoali_checkpoint_info *info)
{
    return open_checkpoint(dir, tag, false, info);
}

shoal_status shoali_checkpoint_peek_folder(const char *folder, struct shoali_checkpoint_info *info)
{
    shoal_status status;
    json_t *manifest = NULL;
    *info = (struct shoali_checkpoint_info){0};
    SHOAL_TRY(status, shoali_manifest_read(folder, ".", &manifest), done);
    SHOAL_TRY(status, shoali_manifest_info(manifest, info), done);
done:
    json_decref(manifest);
    return status;
}

void shoali_checkpoint_info_fini(struct shoali_checkpoint_info *info)
{
    free(info->engine_json);
    free(info->client_json);
    free(info->tag);
    *info = (struct shoali_checkpoint_info){0};
}
