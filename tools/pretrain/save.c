/* Checkpoints of a run. */
#include "pretrain/pretrain.h"

#include "base/base.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- the folder ----------------------------------------------------------------------------- */

enum { PATH_ROOM = 4096 };

/* Cuts the last name off a path: "a/b" and "a/b/" become "a/". */
static void cut_name(char *path, size_t *bytes)
{
    while (*bytes > 0 && path[*bytes - 1] == '/')
        --*bytes;
    while (*bytes > 0 && path[*bytes - 1] != '/')
        --*bytes;
    path[*bytes] = '\0';
}

/* Bytes of a path up to its last folder that exists. */
static size_t existing_bytes(const char *path)
{
    char part[PATH_ROOM];
    size_t bytes = strlen(path);
    if (bytes >= sizeof part)
        return bytes;
    memcpy(part, path, bytes + 1);
    while (bytes > 0 && access(part, F_OK) != 0)
        cut_name(part, &bytes);
    return bytes;
}

/* A folder that cannot be written is a matter of the first second, not of the last. */
shoal_status pretrain_make_folder(struct pretrain *run)
{
    const char *folder = run->options.save;
    if (!folder || !pretrain_is_first(run))
        return SHOAL_OK;
    run->made_from = existing_bytes(folder);
    run->made_folder = true;
    if (shoali_make_dirs(folder) < 0)
        return shoali_error_prefix(SHOAL_EINVAL, "--save %s", folder);
    if (access(folder, W_OK | X_OK) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--save %s: cannot write there: %s", folder,
                          strerror(errno));
    return SHOAL_OK;
}

/* Removes the folders that pretrain_make_folder made, if they are empty. */
void pretrain_drop_folder(const struct pretrain *run)
{
    char part[PATH_ROOM];
    size_t bytes = run->options.save ? strlen(run->options.save) : 0;
    if (!run->made_folder || bytes >= sizeof part)
        return;
    memcpy(part, run->options.save, bytes + 1);
    while (bytes > run->made_from && rmdir(part) == 0)
        cut_name(part, &bytes);
}

/* ---- saving --------------------------------------------------------------------------------- */

static void say(struct pretrain *run, const char *line)
{
    if (run->progress)
        shoal_progress_message(run->progress, line);
}

void pretrain_say_saved(struct pretrain *run)
{
    char line[512];
    shoal_save_info info;
    shoal_engine_get_save_info(run->engine, &info);
    if (info.step < 0 || info.step + 1 == run->reported_saved)
        return;
    run->reported_saved = info.step + 1;
    snprintf(line, sizeof line, "saved step %lld to %s", (long long)info.step, run->options.save);
    if (info.staging_bytes > 0) { /* beside the training */
        const size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, " in %.2f s; stall %.1f ms = %.1f %% of a step",
                 info.seconds, info.stall_ms,
                 run->step_ms > 0 ? 100 * info.stall_ms / run->step_ms : 0.0);
        if (info.waits > 0)
            snprintf(line + strlen(line), sizeof line - strlen(line),
                     ", waited %lld times for staging memory: raise "
                     "checkpoint.writer.staging_buffer_size",
                     (long long)info.waits);
    }
    say(run, line);
}

shoal_status pretrain_save(struct pretrain *run)
{
    shoal_status status;
    SHOAL_TRY(status,
              shoal_engine_save_checkpoint(run->engine, run->options.save, NULL, run->client_json),
              done);
    pretrain_say_saved(run);
done:
    return status;
}

bool pretrain_wants_save(struct pretrain *run, bool due)
{
    if (!shoal_engine_save_requested(run->engine))
        return run->options.save && due;
    if (run->options.save)
        return true;
    if (!run->asked_in_vain)
        say(run, "SIGUSR1 asks for a checkpoint, but there is no --save: nothing is saved");
    run->asked_in_vain = true;
    return false;
}

shoal_status pretrain_end_saves(struct pretrain *run)
{
    shoal_status status;
    SHOAL_TRY(status, shoal_engine_wait_save(run->engine), done);
    pretrain_say_saved(run);
done:
    return status;
}
