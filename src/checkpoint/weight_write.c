/* A folder of weights for other programs: streamed, and in its place only when it is whole. */
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/weight_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the index ------------------------------------------------------------------------------ */

shoal_status shoali_checkpoint_write_index(const char *path, const char *const *names,
                                           const struct shoali_checkpoint_plan *plan)
{
    shoal_status status;
    char *text = NULL;
    int64_t bytes = 0;
    int failed = 0;
    json_t *map = json_object();
    for (int32_t f = 0; f < plan->file_count; f++) {
        const struct shoali_checkpoint_file *file = &plan->file[f];
        bytes += file->bytes - file->data_start;
        for (int32_t i = 0; i < file->tensor_count; i++)
            failed |=
                json_object_set_new(map, names[file->first_tensor + i], json_string(file->name));
    }
    json_t *index =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
    SHOAL_TRY(status, shoali_json_write(failed ? NULL : index, JSON_INDENT(2), "an index", &text),
              done);
    SHOAL_TRY(status, shoali_write_file_atomic(path, text, strlen(text)), done);
done:
    free(text);
    json_decref(index);
    return status;
}

/* ---- the folder ----------------------------------------------------------------------------- */

shoal_status shoali_weight_output_begin(struct shoali_weight_output *output, const char *out)
{
    shoal_status status;
    struct stat info;
    size_t length = strlen(out);
    *output = (struct shoali_weight_output){0};
    shoali_arena_init(&output->arena);
    while (length > 1 && out[length - 1] == '/')
        length--;
    output->final = shoali_arena_printf(&output->arena, "%.*s", (int)length, out);
    output->partial = shoali_arena_printf(&output->arena, "%.*s.partial", (int)length, out);
    if (!output->final || !output->partial)
        return SHOAL_ENOMEM;
    if (length == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "the name of the folder to write is empty");
    if (lstat(output->final, &info) == 0 && rmdir(output->final) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "%s exists: name a folder that does not", output->final);
    const bool died = lstat(output->partial, &info) == 0;
    if (died && !shoali_checkpoint_only_ours(output->partial))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%s exists and holds other files than a converted model: move it away",
                          output->partial);
    if (died)
        SHOAL_TRY(status, shoali_checkpoint_remove_dir(output->partial), done);
    SHOAL_TRY(status, shoali_checkpoint_make_dir(output->partial), done);
    output->begun = true;
done:
    return status;
}

shoal_status shoali_weight_output_file(struct shoali_weight_output *output, const char *name,
                                       const void *data, size_t bytes)
{
    const char *path = shoali_checkpoint_path(&output->arena, output->partial, "", name);
    return path ? shoali_write_file_atomic(path, data, bytes) : SHOAL_ENOMEM;
}

/* The first error's sentence stays. */
shoal_status shoali_weight_output_end(struct shoali_weight_output *output, shoal_status status)
{
    char sentence[1024];
    if (status == SHOAL_OK)
        status = shoali_checkpoint_sync_dir(output->partial);
    if (status == SHOAL_OK)
        status = shoali_checkpoint_move(output->partial, output->final);
    if (status < 0 && output->begun) {
        snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
        if (shoali_checkpoint_remove_dir(output->partial) < 0)
            status = SHOAL_FAIL(status, "%s", sentence);
    }
    shoali_arena_fini(&output->arena);
    return status;
}

/* ---- weights -------------------------------------------------------------------------------- */

/* One file on its way. */
struct writing {
    const struct shoali_weight_write_args *args;
    const struct shoali_checkpoint_file *file;
    int descriptor;
    int64_t at; /* the next byte */
    char *piece;
};

static shoal_status put(struct writing *writing, const char *data, int64_t bytes)
{
    const shoal_status status = shoali_checkpoint_pwrite(writing->descriptor, writing->file->path,
                                                         data, bytes, writing->at);
    writing->at += bytes;
    return status;
}

static shoal_status write_tensor(struct writing *writing, int32_t tensor)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_weight_write_args *args = writing->args;
    const int64_t item = (int64_t)shoal_dtype_bytes(args->dtype);
    const int64_t room = SHOALI_WEIGHT_PIECE_BYTES / item;
    const int64_t count = shoal_shape_count(&args->shapes[tensor]);
    for (int64_t first = 0; first < count; first += room) {
        const int64_t part = count - first < room ? count - first : room;
        SHOAL_TRY(status, args->read(args->user, tensor, first, part, writing->piece), done);
        SHOAL_TRY(status, put(writing, writing->piece, part * item), done);
    }
done:
    return status;
}

static shoal_status write_file(struct writing *writing)
{
    shoal_status status;
    const struct shoali_checkpoint_file *file = writing->file;
    writing->at = 0;
    writing->descriptor = open(file->path, O_WRONLY | O_CLOEXEC);
    if (writing->descriptor < 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot open for writing: %s", file->path,
                          strerror(errno));
    SHOAL_TRY(status, put(writing, file->head, file->data_start), done);
    for (int32_t i = 0; i < file->tensor_count; i++)
        SHOAL_TRY(status, write_tensor(writing, file->first_tensor + i), done);
    if (fsync(writing->descriptor) != 0)
        status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot flush: %s", file->path, strerror(errno));
done:
    if (close(writing->descriptor) != 0 && status == SHOAL_OK)
        status = SHOAL_FAIL(SHOAL_EIO, "%s: cannot flush: %s", file->path, strerror(errno));
    return status;
}

/* All at once, so that a full disk is known before anything is read. */
static shoal_status create_files(struct shoali_weight_output *output,
                                 struct shoali_checkpoint_plan *plan)
{
    shoal_status status = SHOAL_OK;
    int64_t missing_bytes = 0;
    if (plan->file_count == 1)
        plan->file[0].name = "model.safetensors";
    for (int32_t f = 0; f < plan->file_count; f++)
        missing_bytes += plan->file[f].bytes;
    for (int32_t f = 0; f < plan->file_count; f++) {
        struct shoali_checkpoint_file *file = &plan->file[f];
        file->path = shoali_checkpoint_path(&output->arena, output->partial, "", file->name);
        if (!file->path)
            return SHOAL_ENOMEM;
        SHOAL_TRY(status, shoali_checkpoint_create_file(file->path, file->bytes, missing_bytes),
                  done);
        missing_bytes -= file->bytes;
    }
done:
    return status;
}

shoal_status shoali_weight_write(struct shoali_weight_output *output,
                                 const struct shoali_weight_write_args *args)
{
    shoal_status status;
    const struct shoali_checkpoint_kind kind = {.name = "model", .dtype = args->dtype};
    const struct shoali_checkpoint_args all = {.names = args->names,
                                               .shapes = args->shapes,
                                               .tensor_count = args->count,
                                               .max_shard_bytes = args->max_shard_bytes};
    struct shoali_checkpoint_plan plan = {0};
    struct writing writing = {.args = args};
    SHOAL_TRY(status, shoali_checkpoint_plan_make(&all, &kind, &output->arena, &plan), done);
    SHOAL_TRY(status, create_files(output, &plan), done);
    writing.piece = shoali_malloc(SHOALI_WEIGHT_PIECE_BYTES, "a piece of a weight");
    if (!writing.piece) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t f = 0; f < plan.file_count; f++) {
        writing.file = &plan.file[f];
        SHOAL_TRY(status, write_file(&writing), done);
    }
    if (plan.file_count > 1) {
        const char *path = shoali_checkpoint_path(&output->arena, output->partial, "",
                                                  "model.safetensors.index.json");
        status = path ? shoali_checkpoint_write_index(path, args->names, &plan) : SHOAL_ENOMEM;
    }
done:
    shoali_free(writing.piece);
    return status;
}
