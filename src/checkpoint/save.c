#include "checkpoint/checkpoint_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- before ---- */

/* Files that are not ours are never moved aside: they would be removed at the end. */
static shoal_status check_final(struct shoali_checkpoint_run *run,
                                const struct shoali_checkpoint_folders *folders)
{
    shoal_status status;
    bool there = false, manifest = false;
    const char *path = shoali_arena_printf(&run->arena, "%s/manifest.json", run->args->tag);
    if (!path)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_checkpoint_exists(run->args->dir, run->args->tag, &there), done);
    if (there)
        SHOAL_TRY(status, shoali_checkpoint_exists(run->args->dir, path, &manifest), done);
    if (there && !manifest && rmdir(folders->final) != 0)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s exists and is not a checkpoint: choose another tag, or remove it",
                            folders->final);
done:
    return status;
}

static shoal_status create_files(const struct shoali_checkpoint_run *run)
{
    shoal_status status = SHOAL_OK;
    int64_t missing_bytes = 0;
    for (int32_t k = 0; k < run->args->kind_count; k++)
        for (int32_t f = 0; f < run->plan[k].file_count; f++)
            missing_bytes += run->plan[k].file[f].bytes;
    for (int32_t k = 0; k < run->args->kind_count; k++) {
        for (int32_t f = 0; f < run->plan[k].file_count; f++) {
            const struct shoali_checkpoint_file *file = &run->plan[k].file[f];
            SHOAL_TRY(status, shoali_checkpoint_create_file(file->path, file->bytes, missing_bytes),
                      done);
            missing_bytes -= file->bytes;
        }
    }
done:
    return status;
}

/* The writer's work before data moves. */
static shoal_status prepare(struct shoali_checkpoint_run *run,
                            struct shoali_checkpoint_folders *folders)
{
    shoal_status status;
    SHOAL_TRY(status, check_final(run, folders), done);
    SHOAL_TRY(status, shoali_checkpoint_recover(run->args->dir, run->args->tag), done);
    shoali_checkpoint_sweep(folders);
    SHOAL_TRY(status, shoali_checkpoint_check_later(run->args, &folders->keep_latest), done);
    SHOAL_TRY(status, shoali_checkpoint_remove_dir(folders->partial), done);
    SHOAL_TRY(status, shoali_checkpoint_make_dir(folders->partial), done);
    folders->begun = true;
    SHOAL_TRY(status, create_files(run), done);
done:
    return status;
}

/* ---- commit ---- */

static shoal_status write_companions(struct shoali_checkpoint_run *run,
                                     const struct shoali_checkpoint_folders *folders)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < run->args->companion_count; i++) {
        const struct shoali_checkpoint_companion *file = &run->args->companions[i];
        const char *path = shoali_checkpoint_path(&run->arena, folders->partial, "", file->name);
        if (!path)
            return SHOAL_ENOMEM;
        SHOAL_TRY(status, shoali_write_file_atomic(path, file->data, file->bytes), done);
    }
done:
    return status;
}

static shoal_status write_manifest(struct shoali_checkpoint_run *run,
                                   const struct shoali_checkpoint_folders *folders)
{
    shoal_status status = SHOAL_OK;
    char *text = NULL;
    SHOAL_TRY(status, write_companions(run, folders), done);
    const char *path = shoali_checkpoint_path(&run->arena, folders->partial, "", "manifest.json");
    const char *index =
        shoali_checkpoint_path(&run->arena, folders->partial, "", "model.safetensors.index.json");
    if (!path || !index)
        return SHOAL_ENOMEM;
    for (int32_t k = 0; k < run->args->kind_count; k++)
        if (strcmp(run->plan[k].name, "model") == 0)
            SHOAL_TRY(status, shoali_checkpoint_write_index(index, run->args->names, &run->plan[k]),
                      done);
    SHOAL_TRY(status, shoali_manifest_format(run->args, run->plan, &text), done);
    if (shoali_fault("ckpt.manifest")) {
        status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot write: %s", path, strerror(EIO));
        goto done;
    }
    SHOAL_TRY(status, shoali_write_file_atomic(path, text, strlen(text)), done);
done:
    free(text);
    return status;
}

/* Moves an existing TAG out of the way. *moved: it is TAG.old now. A damaged TAG must not push
 * out a good TAG.old. */
static shoal_status put_aside(struct shoali_checkpoint_run *run,
                              const struct shoali_checkpoint_folders *folders, bool *moved)
{
    shoal_status status;
    bool there = false, old = false, good = true;
    const char *name = shoali_arena_printf(&run->arena, "%s.old", run->args->tag);
    if (!name)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_checkpoint_exists(run->args->dir, run->args->tag, &there), done);
    if (!there)
        goto done;
    SHOAL_TRY(status, shoali_checkpoint_exists(run->args->dir, name, &old), done);
    if (old)
        SHOAL_TRY(status, shoali_checkpoint_verifies(run->args->dir, run->args->tag, &good), done);
    SHOAL_TRY(status, shoali_checkpoint_remove_dir(good ? folders->old : folders->final), done);
    if (!good)
        goto done;
    SHOAL_TRY(status, shoali_checkpoint_move(folders->final, folders->old), done);
    *moved = true;
done:
    return status;
}

static shoal_status write_latest(struct shoali_checkpoint_run *run,
                                 const struct shoali_checkpoint_folders *folders)
{
    shoal_status status;
    const char *text = shoali_arena_printf(&run->arena, "%s\n", run->args->tag);
    if (!text)
        return SHOAL_ENOMEM;
    if (shoali_fault("ckpt.rename"))
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot write: %s", folders->latest, strerror(EIO));
    SHOAL_TRY(status, shoali_checkpoint_sync_dir(folders->dir), done);
    if (folders->keep_latest)
        goto done;
    SHOAL_TRY(status, shoali_write_file_atomic(folders->latest, text, strlen(text)), done);
done:
    return status;
}

/* Whether `latest` names the tag. Leaves the last error as it is. */
static bool latest_names(const struct shoali_checkpoint_folders *folders, const char *tag)
{
    char text[SHOALI_CHECKPOINT_TAG_BYTES + 2];
    const int file = open(folders->latest, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = file < 0 ? -1 : read(file, text, sizeof text);
    if (file >= 0)
        close(file);
    return bytes == (ssize_t)strlen(tag) + 1 && memcmp(text, tag, strlen(tag)) == 0;
}

/* Makes the complete TAG.partial the checkpoint, or puts everything back. `latest` may have moved
 * before its folder could not be flushed: then the checkpoint that it names stays. */
static shoal_status commit(struct shoali_checkpoint_run *run,
                           const struct shoali_checkpoint_folders *folders)
{
    shoal_status status;
    bool moved = false, placed = false;
    SHOAL_TRY(status, write_manifest(run, folders), done);
    SHOAL_TRY(status, put_aside(run, folders, &moved), done);
    SHOAL_TRY(status, shoali_checkpoint_move(folders->partial, folders->final), done);
    placed = true;
    SHOAL_TRY(status, write_latest(run, folders), done);
done:
    if (status == SHOAL_OK) {
        if (shoali_checkpoint_remove_dir(folders->old) < 0)
            SHOALI_WARN("checkpoint", "%s: remove it by hand", shoal_error_message());
        return SHOAL_OK;
    }
    if (placed && (moved || !latest_names(folders, run->args->tag)))
        (void)rename(folders->final, folders->partial);
    if (moved)
        (void)rename(folders->old, folders->final);
    return status;
}

/* Takes the unfinished folder away; the last error keeps the first sentence. */
static shoal_status discard(const struct shoali_checkpoint_folders *folders, shoal_status status)
{
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
    if (shoali_checkpoint_remove_dir(folders->partial) < 0)
        status = SHOAL_FAIL(status, "%s", sentence);
    return status;
}

/* Under the lock, when nothing of this save can fail any more. */
static void retain(const struct shoali_checkpoint_args *args)
{
    const bool asked = args->keep.last > 0 || args->keep.every > 0;
    if (asked && shoali_checkpoint_retain(args->dir, &args->keep, false, NULL) < 0) {
        SHOALI_WARN("checkpoint", "older checkpoints stay: %s", shoal_error_message());
        shoali_error_clear();
    }
}

static shoal_status check_save_args(const struct shoali_checkpoint_args *args)
{
    if (!args->tag || !shoali_checkpoint_tag_valid(args->tag))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the tag \"%s\" cannot name a checkpoint: give one folder name, not "
                          "`latest`, not ending in .partial or .old, at most %d bytes",
                          args->tag ? args->tag : "", SHOALI_CHECKPOINT_TAG_BYTES);
    if (!args->engine_json)
        return SHOAL_FAIL(SHOAL_EINVAL, "engine_json is missing: give an object's text");
    for (int32_t i = 0; i < args->companion_count; i++) {
        const shoal_status status = shoali_checkpoint_check_companion(args->companions[i].name);
        if (status < 0)
            return status;
    }
    return SHOAL_OK;
}

static shoal_status make_plans(struct shoali_checkpoint_run *run,
                               struct shoali_checkpoint_folders *folders)
{
    shoal_status status;
    SHOAL_TRY(status, check_save_args(run->args), done);
    for (int32_t k = 0; k < run->args->kind_count; k++)
        SHOAL_TRY(status,
                  shoali_checkpoint_plan_make(run->args, &run->args->kinds[k], &run->arena,
                                              &run->plan[k]),
                  done);
    shoali_checkpoint_number_chunks(run);
    SHOAL_TRY(status, shoali_checkpoint_run_buffer(run), done);
    SHOAL_TRY(status, shoali_checkpoint_folders_init(run, folders), done);
    for (int32_t k = 0; k < run->args->kind_count; k++)
        for (int32_t f = 0; f < run->plan[k].file_count; f++) {
            struct shoali_checkpoint_file *file = &run->plan[k].file[f];
            file->path = shoali_checkpoint_path(&run->arena, folders->partial, "", file->name);
            if (!file->path)
                return SHOAL_ENOMEM;
        }
done:
    return status;
}

shoal_status shoali_checkpoint_save(const struct shoali_checkpoint_args *args)
{
    shoal_status status;
    struct shoali_checkpoint_run run;
    struct shoali_checkpoint_folders folders = {.lock = -1};
    shoali_checkpoint_run_init(&run, args, "save");
    SHOAL_TRY(status, shoali_checkpoint_run_begin(&run), done);
    SHOAL_TRY(status, shoali_checkpoint_agree(&run, make_plans(&run, &folders)), done);
    shoali_checkpoint_expect(&run);
    if (run.rank == 0)
        run.local = shoali_checkpoint_make_dir(args->dir);
    SHOAL_TRY(status, shoali_checkpoint_agree(&run, SHOAL_OK), done);
    SHOAL_TRY(status, shoali_checkpoint_take_turn(&run, &folders), done);
    if (run.rank == 0)
        run.local = prepare(&run, &folders);
    SHOAL_TRY(status, shoali_checkpoint_agree(&run, SHOAL_OK), done);
    SHOAL_TRY(status, shoali_checkpoint_gather(&run), done);
    if (run.rank == 0)
        run.local = commit(&run, &folders);
    SHOAL_TRY(status, shoali_checkpoint_agree(&run, SHOAL_OK), done);
    if (run.rank == 0)
        retain(args);
done:
    /* A call between the ranks failed on this one: beside the training nobody else would tell
     * them. */
    if (status < 0 && !run.agreed && run.size > 1)
        shoal_comm_abort(args->group, status);
    shoali_checkpoint_lane_fini(&run.lane); /* nothing is on its way into files that are removed */
    if (status < 0 && folders.begun)
        status = discard(&folders, status);
    shoali_checkpoint_end_turn(&folders);
    shoali_checkpoint_run_fini(&run);
    return status;
}
