#include "checkpoint/checkpoint_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- rank 0 learns what the files hold ---- */

/* The header must say what the manifest says: tensors from *tensor on, of this dtype. */
static shoal_status match_header(const struct shoali_checkpoint_run *run, const char *const *found,
                                 const struct shoali_checkpoint_plan *plan,
                                 const shoal_shape *shapes,
                                 const struct shoali_safetensors_entry *entries, int32_t count,
                                 int32_t *tensor)
{
    const struct shoali_checkpoint_args *args = run->args;
    for (int32_t i = 0; i < count; i++, (*tensor)++) {
        if (*tensor < args->tensor_count && entries[i].dtype == plan->dtype &&
            strcmp(entries[i].name, found[*tensor]) == 0 &&
            shoali_shape_equal(&entries[i].shape, &shapes[*tensor]))
            continue;
        return SHOAL_FAIL(SHOAL_ECORRUPT, "the header's entry `%s` differs from the manifest",
                          entries[i].name);
    }
    return SHOAL_OK;
}

/* Tensors by the names that the files have for them. */
struct names {
    const char *const *found;
    int32_t *sorted; /* [count] */
    int32_t count;
};

static int by_found(const void *a, const void *b, void *user)
{
    const char *const *found = user;
    return strcmp(found[*(const int32_t *)a], found[*(const int32_t *)b]);
}

static shoal_status sort_names(struct shoali_checkpoint_run *run, const char *const *found,
                               struct names *names)
{
    const int32_t tensors = run->args->tensor_count;
    *names = (struct names){.found = found};
    names->sorted = shoali_arena_alloc(&run->arena, ((size_t)tensors + 1) * sizeof *names->sorted);
    if (!names->sorted)
        return SHOAL_ENOMEM;
    for (int32_t t = 0; t < tensors; t++)
        if (found[t])
            names->sorted[names->count++] = t;
    qsort_r(names->sorted, (size_t)names->count, sizeof *names->sorted, by_found, (void *)found);
    return SHOAL_OK;
}

/* -1: it is none of ours. */
static int32_t find_name(const struct names *names, const char *name)
{
    for (int32_t low = 0, high = names->count; low < high;) {
        const int32_t middle = low + (high - low) / 2;
        const int order = strcmp(name, names->found[names->sorted[middle]]);
        if (order == 0)
            return names->sorted[middle];
        low = order > 0 ? middle + 1 : low;
        high = order < 0 ? middle : high;
    }
    return -1;
}

/* Where a file's tensors are in the files' order, for a model that has others, too. */
static shoal_status place_entries(const struct names *names, struct shoali_checkpoint_space *space,
                                  const struct shoali_checkpoint_file *file,
                                  const struct shoali_checkpoint_plan *plan,
                                  const struct shoali_safetensors_entry *entries, int32_t count)
{
    const int64_t item = (int64_t)shoal_dtype_bytes(plan->dtype);
    for (int32_t i = 0; i < count; i++) {
        const int32_t tensor = find_name(names, entries[i].name);
        if (entries[i].dtype != plan->dtype ||
            (tensor >= 0 && !shoali_shape_equal(&entries[i].shape, &space->shapes[tensor])))
            return SHOAL_FAIL(SHOAL_ECORRUPT, "the header's entry `%s` differs from the manifest",
                              entries[i].name);
        const int64_t begin = file->flat_begin + entries[i].begin / item;
        if (tensor >= 0 && space->whole_begin[tensor] >= 0 && space->whole_begin[tensor] != begin)
            return SHOAL_FAIL(SHOAL_ECORRUPT, "`%s` is not at its place in another kind's files",
                              entries[i].name);
        if (tensor >= 0)
            space->whole_begin[tensor] = begin;
    }
    return SHOAL_OK;
}

/* Fills in what only the file's own header tells. `names`: of a load that is not strict, else
 * NULL. */
static shoal_status read_file(struct shoali_checkpoint_run *run, const char *const *found,
                              const struct names *names, struct shoali_checkpoint_space *space,
                              const struct shoali_checkpoint_plan *plan,
                              struct shoali_checkpoint_file *file, int32_t *tensor)
{
    shoal_status status;
    int descriptor = -1;
    struct shoali_safetensors_entry *entries = NULL;
    int32_t count = 0;
    const int64_t item = (int64_t)shoal_dtype_bytes(plan->dtype);
    SHOAL_TRY(status, shoali_checkpoint_open_file(file, &descriptor), done);
    status = shoali_checkpoint_read_head(file, descriptor, &run->arena, &entries, &count);
    if (status == SHOAL_OK && names)
        status = place_entries(names, space, file, plan, entries, count);
    else if (status == SHOAL_OK)
        status = match_header(run, found, plan, space->shapes, entries, count, tensor);
    if (status == SHOAL_OK && file->data_start % SHOALI_SAFETENSORS_ALIGN != 0)
        status = SHOAL_FAIL(SHOAL_ECORRUPT, "the header is not padded to whole pages");
    if (status == SHOAL_ECORRUPT)
        shoali_error_prefix(status, "%s, bytes 0 to %lld", file->path,
                            (long long)(file->data_start > 8 ? file->data_start : 8) - 1);
    if (status == SHOAL_OK)
        file->flat_count = (file->bytes - file->data_start) / item;
done:
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

/* A state of another kind has other shapes. */
static shoal_status check_of(const struct shoali_checkpoint_plan *plan,
                             const struct shoali_checkpoint_kind *kind)
{
    const char *stored = plan->of ? plan->of : "element", *own = kind->of ? kind->of : "element";
    if (strcmp(stored, own) == 0)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "the checkpoint's `%s` has a number for each %s, this run one for each %s",
                      kind->name, stored, own);
}

/* Nothing is where the canonical order would have it. */
static void forget_places(struct shoali_checkpoint_run *run)
{
    for (int32_t k = 0; k < run->args->kind_count; k++)
        for (int32_t t = 0; t < run->args->tensor_count; t++)
            run->space[k]->whole_begin[t] = -1;
}

/* Of those in one place the empty ones first, so that their ends rise, too. */
static int by_place(const void *a, const void *b, void *user)
{
    const struct shoali_checkpoint_space *space = user;
    const int32_t t = *(const int32_t *)a, u = *(const int32_t *)b;
    const int64_t x = space->whole_begin[t], y = space->whole_begin[u];
    if (x != y)
        return x < y ? -1 : 1;
    const int64_t m = shoal_shape_count(&space->shapes[t]),
                  n = shoal_shape_count(&space->shapes[u]);
    return (m > n) - (m < n);
}

static shoal_status check_places(const struct names *names,
                                 const struct shoali_checkpoint_space *space, const char *folder,
                                 const char *kind)
{
    for (int32_t i = 0; i < names->count; i++)
        if (space->whole_begin[names->sorted[i]] < 0)
            return SHOAL_FAIL(SHOAL_ECORRUPT, "%s: the files of `%s` lack `%s`", folder, kind,
                              names->found[names->sorted[i]]);
    return SHOAL_OK;
}

/* All ranks learn rank 0's places. */
static shoal_status share_places(struct shoali_checkpoint_run *run)
{
    shoal_status status = SHOAL_OK;
    const int32_t tensors = run->args->tensor_count;
    for (int32_t k = 0; k < run->args->kind_count; k++) {
        struct shoali_checkpoint_space *space = run->space[k];
        if (run->size > 1)
            SHOAL_TRY(
                status,
                shoal_broadcast(run->args->group, space->whole_begin, tensors, SHOAL_I64, 0, NULL),
                done);
        space->order_count = 0;
        for (int32_t t = 0; t < tensors; t++)
            if (space->whole_begin[t] >= 0)
                space->order[space->order_count++] = t;
        qsort_r(space->order, (size_t)space->order_count, sizeof *space->order, by_place, space);
    }
done:
    return status;
}

static shoal_status read_plan(struct shoali_checkpoint_run *run, const char *folder,
                              const json_t *manifest, const char *const *found,
                              const struct names *names, int32_t k)
{
    shoal_status status;
    struct shoali_checkpoint_plan *plan = &run->plan[k];
    int32_t tensor = 0;
    int64_t flat = 0;
    SHOAL_TRY(status, shoali_manifest_plan(manifest, &run->args->kinds[k], &run->arena, plan),
              done);
    SHOAL_TRY(status, check_of(plan, &run->args->kinds[k]), done);
    for (int32_t f = 0; f < plan->file_count; f++) {
        plan->file[f].flat_begin = flat;
        plan->file[f].path = shoali_checkpoint_path(&run->arena, folder, "", plan->file[f].name);
        if (!plan->file[f].path)
            return SHOAL_ENOMEM;
        SHOAL_TRY(status,
                  read_file(run, found, names, run->space[k], plan, &plan->file[f], &tensor), done);
        flat += plan->file[f].flat_count;
    }
    if (names)
        SHOAL_TRY(status, check_places(names, run->space[k], folder, plan->name), done);
    else if (tensor != run->args->tensor_count)
        status = SHOAL_FAIL(SHOAL_ECORRUPT, "%s: the files of `%s` hold %d of %d tensors", folder,
                            plan->name, tensor, run->args->tensor_count);
done:
    return status;
}

static shoal_status prepare(struct shoali_checkpoint_run *run)
{
    shoal_status status;
    char *tag = NULL;
    json_t *manifest = NULL;
    struct names names;
    SHOAL_TRY(status, shoali_checkpoint_find(run->args->dir, run->args->tag, true, &tag, &manifest),
              done);
    const char *folder = shoali_checkpoint_path(&run->arena, run->args->dir, tag, "");
    if (!folder) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    const char **found =
        shoali_arena_alloc(&run->arena, ((size_t)run->args->tensor_count + 1) * sizeof *found);
    if (!found) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, shoali_manifest_match(manifest, run->args, found), done);
    if (run->args->not_strict) {
        SHOAL_TRY(status, sort_names(run, found, &names), done);
        forget_places(run);
    }
    for (int32_t k = 0; k < run->args->kind_count; k++)
        SHOAL_TRY(status,
                  read_plan(run, folder, manifest, found, run->args->not_strict ? &names : NULL, k),
                  done);
done:
    json_decref(manifest);
    free(tag);
    return status;
}

/* ---- and tells the others ---- */

enum { FACTS = 5 }; /* of a file: data_start, bytes, flat_begin, flat_count, bytes of its path */

/* How many files each kind has. A rank that cannot make room for them says so before they come. */
static shoal_status share_counts(struct shoali_checkpoint_run *run, int64_t **facts,
                                 int64_t *file_count)
{
    shoal_status status;
    int32_t counts[SHOALI_CHECKPOINT_KINDS];
    for (int32_t k = 0; k < run->args->kind_count; k++)
        counts[k] = run->plan[k].file_count;
    SHOAL_TRY(status,
              shoal_broadcast(run->args->group, counts, run->args->kind_count, SHOAL_I32, 0, NULL),
              done);
    *file_count = 0;
    for (int32_t k = 0; k < run->args->kind_count; k++) {
        struct shoali_checkpoint_plan *plan = &run->plan[k];
        *file_count += counts[k];
        if (run->rank == 0)
            continue;
        plan->dtype = run->args->kinds[k].dtype;
        plan->file_count = counts[k];
        plan->file = shoali_arena_alloc(&run->arena, (size_t)counts[k] * sizeof *plan->file);
        if (!plan->file)
            run->local = SHOAL_ENOMEM;
    }
    *facts = shoali_arena_alloc(&run->arena, (size_t)*file_count * FACTS * sizeof **facts);
    if (!*facts)
        run->local = SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_checkpoint_agree(run, SHOAL_OK), done);
done:
    return status;
}

static void copy_facts(struct shoali_checkpoint_run *run, int64_t *facts, bool out)
{
    const int64_t chunk = SHOALI_CHECKPOINT_CHUNK;
    for (int32_t k = 0; k < run->args->kind_count; k++) {
        for (int32_t f = 0; f < run->plan[k].file_count; f++, facts += FACTS) {
            struct shoali_checkpoint_file *file = &run->plan[k].file[f];
            int64_t *const member[FACTS - 1] = {&file->data_start, &file->bytes, &file->flat_begin,
                                                &file->flat_count};
            for (int i = 0; i < FACTS - 1; i++)
                *(out ? &facts[i] : member[i]) = *(out ? member[i] : &facts[i]);
            if (out)
                facts[FACTS - 1] = (int64_t)strlen(file->path) + 1;
            file->chunk_count = (file->bytes + chunk - 1) / chunk;
        }
    }
}

/* Where a file is, and its hashes: texts of facts[FACTS - 1] bytes. */
static shoal_status share_file(struct shoali_checkpoint_run *run,
                               struct shoali_checkpoint_file *file, int64_t path_bytes)
{
    shoal_status status;
    char *path = shoali_arena_alloc(&run->arena, (size_t)path_bytes);
    if (run->rank == 0 && path)
        memcpy(path, file->path, (size_t)path_bytes);
    else if (run->rank != 0)
        file->chunk =
            shoali_arena_alloc(&run->arena, (size_t)file->chunk_count * sizeof *file->chunk);
    if (!path || !file->chunk)
        run->local = SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_checkpoint_agree(run, SHOAL_OK), done);
    SHOAL_TRY(status, shoal_broadcast(run->args->group, path, path_bytes, SHOAL_U8, 0, NULL), done);
    SHOAL_TRY(status,
              shoal_broadcast(run->args->group, file->chunk, file->chunk_count, SHOAL_I64, 0, NULL),
              done);
    file->path = path;
done:
    return status;
}

/* Collective: afterwards all ranks know the files, and where their chunks and elements are. */
static shoal_status share_plans(struct shoali_checkpoint_run *run)
{
    shoal_status status;
    int64_t *facts = NULL, files = 0, file = 0;
    SHOAL_TRY(status, share_counts(run, &facts, &files), done);
    if (run->rank == 0)
        copy_facts(run, facts, true);
    SHOAL_TRY(status, shoal_broadcast(run->args->group, facts, files * FACTS, SHOAL_I64, 0, NULL),
              done);
    if (run->rank != 0)
        copy_facts(run, facts, false);
    for (int32_t k = 0; k < run->args->kind_count; k++)
        for (int32_t f = 0; f < run->plan[k].file_count; f++, file++)
            SHOAL_TRY(status,
                      share_file(run, &run->plan[k].file[f], facts[file * FACTS + FACTS - 1]),
                      done);
done:
    return status;
}

shoal_status shoali_checkpoint_load(const struct shoali_checkpoint_args *args)
{
    shoal_status status;
    struct shoali_checkpoint_run run;
    shoali_checkpoint_run_init(&run, args, "load");
    SHOAL_TRY(status, shoali_checkpoint_run_begin(&run), done);
    if (run.rank == 0)
        run.local = prepare(&run);
    SHOAL_TRY(status, shoali_checkpoint_agree(&run, SHOAL_OK), done);
    if (run.size > 1)
        SHOAL_TRY(status, share_plans(&run), done);
    if (args->not_strict)
        SHOAL_TRY(status, share_places(&run), done);
    shoali_checkpoint_number_chunks(&run);
    SHOAL_TRY(status, shoali_checkpoint_agree(&run, shoali_checkpoint_run_buffer(&run)), done);
    SHOAL_TRY(status, shoali_checkpoint_scatter(&run), done);
done:
    shoali_checkpoint_run_fini(&run);
    return status;
}
