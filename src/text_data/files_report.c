/* What a dataset reads and what it leaves out, for people. */
#include "text_data/files.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { ENDING_BYTES = 24, SHOWN_KINDS = 8, SHOWN_WARNINGS = 20, GROUPS = 256 };

/* Files of one ending, and of one way to read them. */
struct group {
    char ending[ENDING_BYTES];
    bool records;
    int64_t count;
};
struct groups {
    struct group group[GROUPS];
    int32_t count;
    int64_t more; /* of endings beyond the table */
};

/* ".txt" of "a/b.TXT", ".jsonl.gz"; "" when there is none. */
static void read_ending(const char *path, char ending[ENDING_BYTES])
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    if (dot && strcmp(dot, ".gz") == 0)
        for (const char *at = dot; at > base && dot[1] == 'g'; at--)
            if (at[-1] == '.') {
                dot = at - 1;
                break;
            }
    ending[0] = '\0';
    if (!dot || dot == base || strlen(dot) >= ENDING_BYTES)
        return;
    for (size_t i = 0; i <= strlen(dot); i++)
        ending[i] = dot[i] >= 'A' && dot[i] <= 'Z' ? (char)(dot[i] - 'A' + 'a') : dot[i];
}

static void count_ending(struct groups *groups, const struct shoali_file *file)
{
    char ending[ENDING_BYTES];
    int32_t g = 0;
    read_ending(file->path, ending);
    while (g < groups->count && (strcmp(groups->group[g].ending, ending) != 0 ||
                                 groups->group[g].records != (file->records != NULL)))
        g++;
    if (g == GROUPS) {
        groups->more++;
        return;
    }
    if (g == groups->count)
        strcpy(groups->group[groups->count++].ending, ending);
    groups->group[g].records = file->records != NULL;
    groups->group[g].count++;
}

static int compare_groups(const void *a, const void *b)
{
    const struct group *first = a, *second = b;
    if (first->count != second->count)
        return first->count < second->count ? 1 : -1;
    return strcmp(first->ending, second->ending);
}

static void append_groups(struct groups *groups, struct shoali_str *text)
{
    int64_t more = groups->more;
    qsort(groups->group, (size_t)groups->count, sizeof groups->group[0], compare_groups);
    for (int32_t g = 0; g < groups->count; g++) {
        const struct group *group = &groups->group[g];
        if (g >= SHOWN_KINDS) {
            more += group->count;
            continue;
        }
        shoali_str_append(text, "%s%lld %s%s", g ? ", " : " (", (long long)group->count,
                          *group->ending ? group->ending : "without an ending",
                          group->records ? " as JSON lines" : "");
    }
    if (more > 0)
        shoali_str_append(text, ", %lld of other endings", (long long)more);
    if (groups->count > 0)
        shoali_str_append(text, ")");
}

/* Of one, and what makes more of it. */
struct name {
    const char *one, *more;
};
static const struct name left_names[SHOALI_LEFT_KINDS] = {
    [SHOALI_LEFT_HIDDEN] = {"hidden", ""},
    [SHOALI_LEFT_LINK] = {"link to nothing", "links to nothing"},
    [SHOALI_LEFT_LOOP] = {"link back to a folder above", "links back to folders above"},
    [SHOALI_LEFT_UNREADABLE] = {"unreadable folder", "unreadable folders"},
    [SHOALI_LEFT_SPECIAL] = {"device or pipe", "devices or pipes"}};
static const struct name verdict_names[SHOALI_FILE_VERDICTS] = {
    [SHOALI_FILE_READ] = {"read", ""},
    [SHOALI_FILE_EMPTY] = {"empty", ""},
    [SHOALI_FILE_BINARY] = {"binary", ""},
    [SHOALI_FILE_UNREADABLE] = {"unreadable", ""}};

static void append_count(struct shoali_str *text, int64_t count, const struct name *name,
                         bool *first)
{
    if (count > 0)
        shoali_str_append(text, "%s%lld %s", *first ? " (" : ", ", (long long)count,
                          count > 1 && *name->more ? name->more : name->one);
    *first = *first && count == 0;
}

static void append_skipped(const struct shoali_files *files, const int64_t *verdict_counts,
                           struct shoali_str *text)
{
    int64_t left_counts[SHOALI_LEFT_KINDS] = {0}, all = (int64_t)files->left_count;
    bool first = true;
    for (size_t i = 0; i < files->left_count; i++)
        left_counts[files->left[i].kind]++;
    for (int v = SHOALI_FILE_EMPTY; v < SHOALI_FILE_VERDICTS; v++)
        all += verdict_counts[v];
    shoali_str_append(text, "; %lld skipped", (long long)all);
    for (int v = SHOALI_FILE_EMPTY; v < SHOALI_FILE_VERDICTS; v++)
        append_count(text, verdict_counts[v], &verdict_names[v], &first);
    for (int k = 0; k < SHOALI_LEFT_KINDS; k++)
        append_count(text, left_counts[k], &left_names[k], &first);
    if (all > 0)
        shoali_str_append(text, ")");
}

static void append_each(const struct shoali_files *files, const unsigned char *verdicts,
                        struct shoali_str *text)
{
    for (int32_t i = 0; i < files->count; i++) {
        const struct shoali_file *file = &files->file[i];
        shoali_str_append(text, "data file: %s: ", file->path);
        if (verdicts[i] != SHOALI_FILE_READ)
            shoali_str_append(text, "skipped, %s\n", verdict_names[verdicts[i]].one);
        else
            shoali_str_append(text, "read as %s, %lld bytes\n",
                              file->records ? "JSON lines" : "text", (long long)file->bytes);
    }
    for (size_t i = 0; i < files->left_count; i++)
        shoali_str_append(text, "data file: %s: skipped, %s\n", files->left[i].path,
                          left_names[files->left[i].kind].one);
}

/* One file, given by its name, whose ending says how it is read. */
static bool is_plain(const struct shoali_files *files)
{
    char ending[ENDING_BYTES];
    if (files->path_count != 1 || files->count != 1 || files->left_count > 0 ||
        *files->file[0].name)
        return false;
    read_ending(files->file[0].path, ending);
    return files->file[0].records || strcmp(ending, ".txt") == 0;
}

shoal_status shoali_files_report(const struct shoali_files *files, const unsigned char *verdicts,
                                 bool each, char **text)
{
    struct shoali_str out = {0};
    int64_t counts[SHOALI_FILE_VERDICTS] = {0};
    struct groups *groups = shoali_calloc(1, sizeof *groups, "the kinds of data files");
    *text = NULL;
    if (!groups)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < files->count; i++) {
        counts[verdicts[i]]++;
        if (verdicts[i] == SHOALI_FILE_READ)
            count_ending(groups, &files->file[i]);
    }
    shoali_str_append(&out, "%s", "");
    if (each)
        append_each(files, verdicts, &out);
    if (each || !is_plain(files)) {
        shoali_str_append(&out, "data files: %lld read", (long long)counts[SHOALI_FILE_READ]);
        append_groups(groups, &out);
        append_skipped(files, counts, &out);
        shoali_str_append(&out, "\n");
    }
    shoali_free(groups);
    if (out.failed) {
        shoali_str_fini(&out);
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the list of data files");
    }
    *text = out.text;
    return SHOAL_OK;
}

static void warn_of(const struct shoali_left *left)
{
    if (left->kind == SHOALI_LEFT_LINK)
        SHOALI_WARN("data", "%s: skipped: the link leads nowhere: %s", left->path, left->why);
    else if (left->kind == SHOALI_LEFT_LOOP)
        SHOALI_WARN("data", "%s: skipped: it leads back to %s, in which it lies", left->path,
                    left->why);
    else
        SHOALI_WARN("data", "%s: skipped: %s", left->path, left->why);
}

void shoali_files_warn(const struct shoali_files *files)
{
    int64_t shown = 0, more = 0;
    for (size_t i = 0; i < files->left_count; i++) {
        const enum shoali_left_kind kind = files->left[i].kind;
        if (kind == SHOALI_LEFT_HIDDEN || kind == SHOALI_LEFT_SPECIAL)
            continue;
        if (shown < SHOWN_WARNINGS)
            warn_of(&files->left[i]);
        more += shown++ >= SHOWN_WARNINGS;
    }
    if (more > 0)
        SHOALI_WARN("data",
                    "%lld more links and folders were skipped: --data-files-report lists "
                    "them",
                    (long long)more);
}
