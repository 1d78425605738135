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
        return SHOAL_FAIL(SHOAL_ECORRUPT, "the header's entry `%s` is not what the manifest lists",
                          entries[i].name);
    }
    return SHOAL_OK;
}

/* Fills in what only the file's own header tells. */
static shoal_status read_file(struct shoali_checkpoint_run *run, const char *const *found,
                              const struct shoali_checkpoint_plan *plan, const shoal_shape *shapes,
                              struct shoali_checkpoint_file *file, int32_t *tensor)
{
    shoal_status status;
    int descriptor = -1;
    struct shoali_safetensors_entry *entries = NULL;
    int32_t count = 0;
    const int64_t item = (int64_t)shoal_dtype_bytes(plan->dtype);
    SHOAL_TRY(status, shoali_checkpoint_open_file(file, &descriptor), done);
    status = shoali_checkpoint_read_head(file, descriptor, &run->arena, &entries, &count);
    if (status == SHOAL_OK)
        status = match_header(run, found, plan, shapes, entries, count, tensor);
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

static shoal_status read_plan(struct shoali_checkpoint_run *run, const char *folder,
                              const json_t *manifest, const char *const *found, int32_t k)
{
    shoal_status status;
    struct shoali_checkpoint_plan *plan = &run->plan[k];
    const shoal_shape *shapes = shoali_checkpoint_shapes(run->args, &run->args->kinds[k]);
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
        SHOAL_TRY(status, read_file(run, found, plan, shapes, &plan->file[f], &tensor), done);
        flat += plan->file[f].flat_count;
    }
    if (tensor != run->args->tensor_count)
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
    for (int32_t k = 0; k < run->args->kind_count; k++)
        SHOAL_TRY(status, read_plan(run, folder, manifest, found, k), done);
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
    shoali_checkpoint_number_chunks(&run);
    SHOAL_TRY(status, shoali_checkpoint_agree(&run, shoali_checkpoint_run_buffer(&run)), done);
    for (int32_t k = 0; k < args->kind_count; k++)
        SHOAL_TRY(status, shoali_checkpoint_scatter(&run, k), done);
done:
    shoali_checkpoint_run_fini(&run);
    return status;
}
