#include "monitor/hashes_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The next line as an object; *line NULL at the end, or where a run died in the middle of a line.
 */
static shoal_status next_line(struct shoali_hashes_file *file, json_t **line)
{
    shoal_status status = SHOAL_OK;
    char *text = NULL;
    size_t capacity = 0;
    struct shoali_json_error error = {.text = "it is no object"};
    const ssize_t bytes = getline(&text, &capacity, file->file);
    *line = NULL;
    file->line++;
    if (bytes < 0 && ferror(file->file))
        status = SHOAL_FAIL(SHOAL_EIO, "cannot read %s: %s", file->path, strerror(errno));
    else if (bytes > 0 && text[bytes - 1] == '\n') {
        status = shoali_json_read(text, (size_t)bytes, line, &error);
        if (status != SHOAL_ENOMEM && !json_is_object(*line)) {
            json_decref(*line);
            *line = NULL;
            status = SHOAL_FAIL(SHOAL_ECORRUPT, "%s, line %lld: this line cannot be read: %s",
                                file->path, (long long)file->line, error.text);
        }
    }
    free(text);
    return status;
}

static shoal_status append_place(struct shoali_hashes_file *file, int64_t step, long at)
{
    if (file->place_count == file->place_capacity) {
        const int32_t capacity = 2 * file->place_capacity + 64;
        struct shoali_hashes_place *grown =
            shoali_calloc((size_t)capacity, sizeof *grown, "the steps of a file of hashes");
        if (!grown)
            return SHOAL_ENOMEM;
        if (file->place)
            memcpy(grown, file->place, (size_t)file->place_count * sizeof *grown);
        shoali_free(file->place);
        file->place = grown;
        file->place_capacity = capacity;
    }
    file->place[file->place_count++] =
        (struct shoali_hashes_place){.step = step, .at = at, .line = file->line};
    return SHOAL_OK;
}

/* ---- what a line must hold ------------------------------------------------------------------ */

enum member_type { COUNT, VALUE, TEXT, FLAG, HASH, SKETCH };
struct member {
    const char *key; /* NULL: the last */
    enum member_type type;
};
static const struct member fact_members[] = {{"dtype", TEXT},          {"kernels", TEXT},
                                             {"micro_batches", COUNT}, {"tensors", COUNT},
                                             {"elements", COUNT},      {NULL, TEXT}};
static const struct member number_members[] = {
    {"step", COUNT}, {"applied", FLAG},     {"loss", VALUE}, {"grad_norm", VALUE},
    {"lr", VALUE},   {"loss_scale", VALUE}, {NULL, TEXT}};
static const struct member tensor_members[] = {
    {"step", COUNT},      {"kind", TEXT},  {"tensor", TEXT},   {"count", COUNT},   {"hash", HASH},
    {"nonfinite", COUNT}, {"norm", VALUE}, {"largest", VALUE}, {"sketch", SKETCH}, {NULL, TEXT}};

static bool is_value(const json_t *value)
{
    const char *text = json_string_value(value);
    return json_is_number(value) ||
           (text &&
            (strcmp(text, "nan") == 0 || strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0));
}

static bool is_sketch(const json_t *value)
{
    size_t i;
    const json_t *counter;
    bool good = json_array_size(value) == SHOALI_SKETCH_COUNTERS;
    json_array_foreach(value, i, counter)
    {
        good = good && json_is_number(counter);
    }
    return good;
}

static bool is_of_type(const json_t *value, enum member_type type)
{
    const char *text = json_string_value(value);
    switch (type) {
    case COUNT:
        return json_is_integer(value) && json_integer_value(value) >= 0;
    case VALUE:
        return is_value(value);
    case TEXT:
        return text != NULL;
    case FLAG:
        return json_is_boolean(value);
    case HASH:
        return text && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
    case SKETCH:
        return is_sketch(value);
    }
    return false;
}

/* What is damaged must not be compared as if it were a number of the run. */
static shoal_status check_members(const struct shoali_hashes_file *file, const json_t *line,
                                  const struct member *member)
{
    for (; member->key; member++) {
        const json_t *value = json_object_get(line, member->key);
        if (is_of_type(value, member->type))
            continue;
        char *text = NULL;
        shoal_status status = SHOAL_OK;
        if (value)
            SHOAL_TRY(status, shoali_json_write(value, JSON_COMPACT, "a damaged line", &text),
                      done);
        status =
            SHOAL_FAIL(SHOAL_ECORRUPT, "%s, line %lld: `%s` is %.40s, the file is damaged",
                       file->path, (long long)file->line, member->key, text ? text : "missing");
    done:
        free(text);
        return status;
    }
    if (json_integer_value(json_object_get(line, "step")) < 1 && json_object_get(line, "step"))
        return SHOAL_FAIL(SHOAL_ECORRUPT, "%s, line %lld: `step` is 0, the file is damaged",
                          file->path, (long long)file->line);
    return SHOAL_OK;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* A run that was continued from an older checkpoint does some steps again: the older ones do not
 * count. Lines of a step follow each other; its line of numbers is the only one without a tensor,
 * and only weights at the start come before it. */
static shoal_status add_line(struct shoali_hashes_file *file, const json_t *line, long at,
                             bool *numbers_seen)
{
    shoal_status status = SHOAL_OK;
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    const bool numbers = !json_object_get(line, "tensor");
    SHOAL_TRY(status, check_members(file, line, numbers ? number_members : tensor_members), done);
    int32_t *count = &file->place_count;
    const bool same = *count > 0 && file->place[*count - 1].step == step;
    if (!same || (numbers && *numbers_seen)) {
        while (*count > 0 && file->place[*count - 1].step >= step)
            (*count)--;
        SHOAL_TRY(status, append_place(file, step, at), done);
        *numbers_seen = false;
    }
    *numbers_seen = *numbers_seen || numbers;
    struct shoali_hashes_place *place = &file->place[*count - 1];
    const char *kind = json_string_value(json_object_get(line, "kind"));
    place->lines++;
    place->weights += kind && strcmp(kind, "weight") == 0;
done:
    return status;
}

static shoal_status read_facts(struct shoali_hashes_file *file)
{
    const shoal_status status = next_line(file, &file->facts);
    const char *format = json_string_value(json_object_get(file->facts, "format"));
    if (status < 0 && status != SHOAL_ECORRUPT)
        return status;
    if (!format || strcmp(format, "shoal-hashes") != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s is no file of hashes: its first line is not that of one", file->path);
    if (json_integer_value(json_object_get(file->facts, "version")) != 1)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED, "%s was written by a newer version: use that one",
                          file->path);
    return check_members(file, file->facts, fact_members);
}

/* A run that died, or still writes, is not compared in the step that it is in. */
static void drop_unfinished(struct shoali_hashes_file *file)
{
    const int64_t tensors = json_integer_value(json_object_get(file->facts, "tensors"));
    if (file->place_count > 0 && file->place[file->place_count - 1].weights < tensors)
        file->place_count--;
}

shoal_status shoali_hashes_open(const char *path, struct shoali_hashes_file *file)
{
    shoal_status status;
    json_t *line = NULL;
    bool numbers_seen = false;
    struct stat info;
    *file = (struct shoali_hashes_file){.path = path, .file = fopen(path, "r")};
    if (!file->file)
        return SHOAL_FAIL(SHOAL_EINVAL, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fileno(file->file), &info) != 0 || !S_ISREG(info.st_mode)) {
        /* a device may have a line without an end, and a pipe is not read twice */
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "%s is no file of hashes: it is not a regular file", path);
        goto done;
    }
    SHOAL_TRY(status, read_facts(file), done);
    for (;;) {
        const long at = ftell(file->file);
        SHOAL_TRY(status, next_line(file, &line), done);
        if (!line)
            break;
        SHOAL_TRY(status, add_line(file, line, at, &numbers_seen), done);
        json_decref(line);
        line = NULL;
    }
    drop_unfinished(file);
done:
    json_decref(line);
    if (status < 0)
        shoali_hashes_close(file);
    return status;
}

void shoali_hashes_close(struct shoali_hashes_file *file)
{
    if (file->file)
        fclose(file->file);
    json_decref(file->facts);
    shoali_free(file->place);
    *file = (struct shoali_hashes_file){0};
}

shoal_status shoali_hashes_read(struct shoali_hashes_file *file,
                                const struct shoali_hashes_place *place, json_t **lines)
{
    shoal_status status = SHOAL_OK;
    *lines = json_array();
    file->line = place->line - 1;
    if (!*lines)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the lines of a step of %s", file->path);
    if (fseek(file->file, place->at, SEEK_SET) != 0)
        return SHOAL_FAIL(SHOAL_EIO, "cannot read step %lld of %s", (long long)place->step,
                          file->path);
    for (int32_t i = 0; i < place->lines; i++) {
        json_t *line = NULL;
        SHOAL_TRY(status, next_line(file, &line), done);
        status = !line ? SHOAL_FAIL(SHOAL_EIO, "%s was changed while it was read", file->path)
                 : json_array_append_new(*lines, line) != 0
                     ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a step of %s", file->path)
                     : SHOAL_OK;
        if (status < 0)
            goto done;
    }
done:
    return status;
}
