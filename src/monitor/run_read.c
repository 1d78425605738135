/* Lines of a run. */
#include "monitor/run_read.h"

#include "base/plain.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEEDS_LINES "give a file that jsonl_monitor writes"

/* ---- growing -------------------------------------------------------------------------------- */

/* Replaces *memory by a larger copy. */
static bool grow(void **memory, size_t item_bytes, int64_t used, int64_t capacity)
{
    void *larger = shoali_calloc((size_t)capacity, item_bytes, "the numbers of a run");
    if (!larger)
        return false;
    if (used > 0)
        memcpy(larger, *memory, (size_t)used * item_bytes);
    shoali_free(*memory);
    *memory = larger;
    return true;
}

static shoal_status reserve_step(struct shoali_run *run)
{
    void *step = run->step, *samples = run->samples;
    if (run->count < run->capacity)
        return SHOAL_OK;
    const int64_t capacity = 2 * run->capacity + 256;
    bool made = grow(&step, sizeof *run->step, run->count, capacity);
    run->step = step;
    made = made && grow(&samples, sizeof *run->samples, run->count, capacity);
    run->samples = samples;
    for (int32_t i = 0; made && i < run->scalar_count; i++) {
        void *value = run->scalar[i].value;
        made = grow(&value, sizeof(double), run->count, capacity);
        run->scalar[i].value = value;
    }
    if (!made)
        return SHOAL_ENOMEM;
    run->capacity = capacity;
    return SHOAL_OK;
}

/* The scalar of a name, which is made if this is its first line; NULL: no memory. */
static struct shoali_scalar *scalar_of(struct shoali_run *run, const char *name)
{
    void *all = run->scalar;
    for (int32_t i = 0; i < run->scalar_count; i++)
        if (strcmp(run->scalar[i].name, name) == 0)
            return &run->scalar[i];
    if (run->scalar_count == run->scalar_capacity) {
        const int32_t capacity = 2 * run->scalar_capacity + 16;
        if (!grow(&all, sizeof *run->scalar, run->scalar_count, capacity))
            return NULL;
        run->scalar = all;
        run->scalar_capacity = capacity;
    }
    struct shoali_scalar made = {
        .name = shoali_arena_strdup(&run->arena, name),
        .value = shoali_calloc((size_t)run->capacity, sizeof(double), "the values of a scalar")};
    if (!made.name || !made.value) {
        shoali_free(made.value);
        return NULL;
    }
    for (int64_t i = 0; i <= run->count; i++)
        made.value[i] = NAN;
    run->scalar[run->scalar_count] = made;
    return &run->scalar[run->scalar_count++];
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Forgets steps that were run again, from the checkpoint before them. */
static void drop_from(struct shoali_run *run, int64_t step)
{
    while (run->count > 0 && run->step[run->count - 1] >= step)
        run->count--;
}

static shoal_status add_line(struct shoali_run *run, json_t *line)
{
    shoal_status status;
    const char *name;
    json_t *value;
    const json_t *samples = json_object_get(line, "samples");
    drop_from(run, (int64_t)json_integer_value(json_object_get(line, "step")));
    SHOAL_TRY(status, reserve_step(run), done);
    run->step[run->count] = json_integer_value(json_object_get(line, "step"));
    run->samples[run->count] = json_is_integer(samples) ? json_integer_value(samples) : -1;
    for (int32_t i = 0; i < run->scalar_count; i++)
        run->scalar[i].value[run->count] = NAN;
    json_object_foreach(line, name, value)
    {
        const bool numeric = json_is_number(value) || json_is_null(value);
        if (!numeric || strcmp(name, "step") == 0 || strcmp(name, "samples") == 0)
            continue;
        struct shoali_scalar *scalar = scalar_of(run, name);
        if (!scalar) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        if (json_is_number(value))
            scalar->value[run->count] = json_number_value(value);
    }
    run->count++;
done:
    return status;
}

/* Reads one line, [text, text + bytes). `torn`: nothing follows it, not even a newline. */
static shoal_status read_line(struct shoali_run *run, const char *text, size_t bytes,
                              int64_t number, bool torn)
{
    shoal_status status;
    json_t *line = NULL;
    struct shoali_json_error error = {0};
    status = shoali_json_read(text, bytes, &line, &error);
    if (status == SHOAL_ENOMEM)
        goto done;
    if (status < 0 && torn) {
        shoali_error_clear();
        status = SHOAL_OK;
        goto done;
    }
    if (status < 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s:%lld: the line is not JSON: column %d: %s: %s",
                            run->lines, (long long)number, (int)error.column, error.text,
                            run->count > 0 ? "remove the line" : NEEDS_LINES);
    else if (!json_is_integer(json_object_get(line, "step")))
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s:%lld: the line has no \"step\": " NEEDS_LINES,
                            run->lines, (long long)number);
    else
        status = add_line(run, line);
done:
    json_decref(line);
    return status;
}

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!shoali_ascii_space(text[i]))
            return false;
    return true;
}

static shoal_status read_lines(struct shoali_run *run)
{
    shoal_status status;
    char *text = NULL;
    size_t bytes = 0;
    int64_t number = 1;
    status = shoali_read_text(run->lines, &text, &bytes);
    if (status == SHOAL_ENOENT)
        status = SHOAL_FAIL(SHOAL_ENOENT,
                            "%s does not exist: give a folder of --save, or a file of JSON lines",
                            run->lines);
    if (status < 0)
        goto done;
    const char *at = text + shoali_bom_bytes(text, bytes), *end = text + bytes;
    for (; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        const size_t length = (size_t)(stop - at);
        if (!is_blank(at, length))
            SHOAL_TRY(status, read_line(run, at, length, number, !newline), done);
        at = newline ? newline + 1 : end;
    }
    if (run->count == 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s has no whole line: wait for the run's first step",
                            run->lines);
done:
    free(text);
    return status;
}

shoal_status shoali_run_read(const char *path, struct shoali_run *run)
{
    shoal_status status;
    *run = (struct shoali_run){0};
    shoali_arena_init(&run->arena);
    run->path = run->lines = shoali_arena_strdup(&run->arena, path);
    if (!run->path) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    if (shoali_run_is_folder(path))
        SHOAL_TRY(status, shoali_run_find_file(&run->arena, path, ".jsonl", &run->lines), done);
    if (!run->lines) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "%s has no lines of numbers (*.jsonl): give the file that jsonl_monitor "
                       "writes at output_path/job_name.jsonl",
                       path);
        goto done;
    }
    SHOAL_TRY(status, read_lines(run), done);
done:
    if (status < 0)
        shoali_run_fini(run);
    return status;
}

void shoali_run_fini(struct shoali_run *run)
{
    for (int32_t i = 0; i < run->scalar_count; i++)
        shoali_free(run->scalar[i].value);
    shoali_free(run->scalar);
    shoali_free(run->step);
    shoali_free(run->samples);
    shoali_arena_fini(&run->arena);
    *run = (struct shoali_run){0};
}

/* ---- scalars -------------------------------------------------------------------------------- */

static const char *last_part(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static shoal_status say_missing(const struct shoali_run *run, const char *name)
{
    enum { NAMES = 64, LISTED = 5 };
    const char *names[NAMES];
    struct shoali_str all = {0};
    size_t count = 0;
    for (int32_t i = 0; i < run->scalar_count && count < NAMES; i++) {
        names[count++] = last_part(run->scalar[i].name);
        if (count <= LISTED)
            shoali_str_append(&all, "%s%s", count > 1 ? ", " : "", names[count - 1]);
    }
    const char *nearest = shoali_nearest(last_part(name), names, count);
    const shoal_status status =
        nearest ? SHOAL_FAIL(SHOAL_EINVAL, "%s has no scalar \"%s\"; nearest is \"%s\"", run->lines,
                             name, nearest)
                : SHOAL_FAIL(SHOAL_EINVAL, "%s has no scalar \"%s\": give one of %s%s", run->lines,
                             name, shoali_str_get(&all), count > LISTED ? ", ..." : "");
    shoali_str_fini(&all);
    return status;
}

shoal_status shoali_run_find(const struct shoali_run *run, const char *name,
                             const struct shoali_scalar **scalar)
{
    *scalar = NULL;
    for (int32_t i = 0; i < run->scalar_count; i++)
        if (strcmp(run->scalar[i].name, name) == 0)
            *scalar = &run->scalar[i];
    for (int32_t i = 0; !*scalar && i < run->scalar_count; i++)
        if (strcmp(last_part(run->scalar[i].name), name) == 0)
            *scalar = &run->scalar[i];
    return *scalar ? SHOAL_OK : say_missing(run, name);
}

shoal_status shoali_run_seconds(const struct shoali_run *run, double *seconds)
{
    const struct shoali_scalar *rate = NULL;
    double sum = 0;
    for (int32_t i = 0; i < run->scalar_count; i++)
        if (strcmp(last_part(run->scalar[i].name), "samples_per_second") == 0)
            rate = &run->scalar[i];
    if (!rate)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s has no scalar \"samples_per_second\", which --x time needs: give "
                          "--x step",
                          run->lines);
    for (int64_t i = 0; i < run->count; i++) {
        /* A resumed run's first line may be of any step: its batch is the mean one. */
        const int64_t steps = run->step[i] > 0 ? run->step[i] : 1;
        const double batch = i > 0 ? (double)(run->samples[i] - run->samples[i - 1])
                                   : (double)run->samples[i] / (double)steps;
        if (run->samples[i] < 0)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%s: step %lld has no \"samples\", which --x time needs: give "
                              "--x step",
                              run->lines, (long long)run->step[i]);
        if (rate->value[i] > 0 && batch > 0)
            sum += batch / rate->value[i];
        seconds[i] = sum;
    }
    return SHOAL_OK;
}
