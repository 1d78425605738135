/* Weights that others have written: each rank reads what it holds. */
#include "base/waiting.h"
#include "checkpoint/weight_folder.h"
#include "engine/engine.h"

#include <string.h>

/* Elements that go from a file to the engine at once. */
enum { AT_ONCE = SHOALI_WEIGHT_PIECE_BYTES / 4 };

/* One load on one rank. */
struct loading {
    struct shoal_engine *engine;
    struct shoali_weight_folder folder;
    const char **names;
    shoal_shape *shapes;
    struct shoali_checkpoint_alias *aliases;
    int32_t *found;
    struct shoali_weight_want want;
    int32_t kind; /* of zero's */
    shoal_dtype dtype;
    char *piece; /* AT_ONCE elements */
};

static void loading_fini(struct loading *loading)
{
    shoali_weight_folder_close(&loading->folder);
    shoali_free(loading->names);
    shoali_free(loading->shapes);
    shoali_free(loading->aliases);
    shoali_free(loading->found);
    shoali_free(loading->piece);
}

static shoal_status loading_init(struct loading *loading, struct shoal_engine *engine,
                                 const shoal_load_weights_args *args)
{
    const struct shoali_module *module = &engine->module;
    const size_t count = (size_t)module->param_count + 1;
    loading->engine = engine;
    loading->names = shoali_calloc(count, sizeof *loading->names, "tensor names");
    loading->shapes = shoali_calloc(count, sizeof *loading->shapes, "tensor shapes");
    loading->found = shoali_calloc(count, sizeof *loading->found, "tensors of a folder");
    loading->aliases =
        shoali_calloc((size_t)module->alias_count + 1, sizeof *loading->aliases, "tied names");
    loading->piece = shoali_malloc(AT_ONCE * sizeof(float), "a piece of a weight");
    if (!loading->names || !loading->shapes || !loading->found || !loading->aliases ||
        !loading->piece)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < module->param_count; i++) {
        loading->names[i] = module->param[i]->name;
        loading->shapes[i] = *shoal_param_shape(module->param[i]);
    }
    for (int32_t i = 0; i < module->alias_count; i++)
        loading->aliases[i] = (struct shoali_checkpoint_alias){
            module->alias[i].name, module->param[module->alias[i].param]->name};
    loading->want = (struct shoali_weight_want){.names = loading->names,
                                                .shapes = loading->shapes,
                                                .count = module->param_count,
                                                .aliases = loading->aliases,
                                                .alias_count = module->alias_count,
                                                .vocab_rows = args->vocab_rows,
                                                .not_strict = args->not_strict,
                                                .quiet = engine->place.rank != 0};
    return SHOAL_OK;
}

/* Masters take fp32. 16-bit weights without any take a folder of their type as it is. */
static void choose_kind(struct loading *loading)
{
    const struct shoal_engine *engine = loading->engine;
    bool same = !shoali_zero_has_masters(engine->zero);
    for (int32_t i = 0; i < loading->want.count; i++)
        same = same && (loading->found[i] < 0 ||
                        loading->folder.tensor[loading->found[i]].dtype == engine->module.dtype);
    loading->kind = same ? shoali_zero_kind_count(engine->zero) - 1 : 0;
    loading->dtype = same ? engine->module.dtype : SHOAL_F32;
}

/* Elements [at, at + piece->count) of the flat space; what the file does not have is 0. */
static shoal_status load_piece(struct loading *loading, int64_t at,
                               const struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    const int32_t tensor = loading->found[piece->param->index];
    const size_t item = shoal_dtype_bytes(loading->dtype);
    if (tensor < 0)
        return SHOAL_OK;
    const int64_t stored = shoal_shape_count(&loading->folder.tensor[tensor].shape);
    for (int64_t done_count = 0; done_count < piece->count;) {
        const int64_t first = piece->first + done_count, left = piece->count - done_count;
        const int64_t part = left < AT_ONCE ? left : AT_ONCE;
        const int64_t there = first >= stored ? 0 : stored - first < part ? stored - first : part;
        if (there > 0)
            SHOAL_TRY(status,
                      shoali_weight_folder_read(&loading->folder, tensor, first, there,
                                                loading->dtype, loading->piece),
                      done);
        if (loading->dtype == SHOAL_F32)
            shoali_weight_count_lost(&loading->folder, tensor,
                                     (const float *)(const void *)loading->piece, there,
                                     loading->engine->module.dtype);
        memset(loading->piece + (size_t)there * item, 0, (size_t)(part - there) * item);
        SHOAL_TRY(status,
                  shoali_zero_write(loading->engine->zero, loading->kind, at + done_count, part,
                                    loading->piece),
                  done);
        done_count += part;
    }
done:
    return status;
}

static shoal_status load_range(struct loading *loading, int64_t begin, int64_t end)
{
    shoal_status status = SHOAL_OK;
    for (int64_t at = begin; at < end;) {
        const struct shoali_piece piece = shoali_module_piece(&loading->engine->module, at, end);
        SHOAL_TRY(status, load_piece(loading, at, &piece), done);
        at += piece.count;
    }
done:
    return status;
}

/* Weights that are infinite in the type of the computation give no loss and no text. */
static shoal_status check_lost(const struct loading *loading)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str text = {0};
    const shoal_dtype dtype = loading->engine->module.dtype;
    if (shoali_weight_describe_lost(&loading->folder, loading->found, loading->want.count, dtype,
                                    &text))
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s: %s: compute in %s", loading->folder.dir,
                            shoali_str_get(&text), dtype == SHOAL_F16 ? "bf16 or fp32" : "fp32");
    shoali_str_fini(&text);
    return status;
}

static shoal_status load_own(struct loading *loading, const shoal_load_weights_args *args)
{
    shoal_status status;
    struct shoali_zero_kind kind;
    if (!args->path || !*args->path)
        return SHOAL_FAIL(SHOAL_EINVAL, "the folder of the weights is not named");
    SHOAL_TRY(status, shoali_weight_folder_open(&loading->folder, args->path), done);
    SHOAL_TRY(status, loading_init(loading, loading->engine, args), done);
    SHOAL_TRY(status, shoali_weight_match(&loading->folder, &loading->want, loading->found), done);
    if (loading->engine->place.rank == 0)
        SHOAL_TRY(status,
                  shoali_weight_compare_tied(&loading->folder, &loading->want, loading->found),
                  done);
    choose_kind(loading);
    shoali_zero_get_kind(loading->engine->zero, loading->kind, &kind);
    if (kind.replicated)
        SHOAL_TRY(status, load_range(loading, 0, kind.count), done);
    for (int32_t r = 0; r < kind.range_count && !kind.replicated; r++)
        SHOAL_TRY(
            status,
            load_range(loading, kind.range[r].begin, kind.range[r].begin + kind.range[r].count),
            done);
    SHOAL_TRY(status, check_lost(loading), done);
done:
    return status;
}

shoal_status shoal_engine_load_weights(shoal_engine *engine, const shoal_load_weights_args *given)
{
    shoal_status status;
    shoal_load_weights_args args = {0};
    struct loading loading = {.engine = engine};
    struct shoali_waiting_aloud *aloud;
    if (given)
        args = *given;
    SHOAL_TRY(status, shoali_engine_between_steps(engine, "loading weights"), done);
    SHOAL_TRY(status, shoal_engine_wait_save(engine), done);
    aloud = shoali_waiting_files_begin("loading the weights of", args.path ? args.path : "");
    status = shoali_weight_agree(engine->place.group, load_own(&loading, &args));
    shoali_waiting_aloud_end(aloud);
    if (status < 0)
        goto done;
    SHOAL_TRY(status, shoali_zero_masters_changed(engine->zero), done);
done:
    loading_fini(&loading);
    return status;
}

/* ---- files beside weights ------------------------------------------------------------------- */

static void drop_file(struct shoali_checkpoint_companion *file)
{
    shoali_free((void *)(uintptr_t)file->name);
    shoali_free((void *)(uintptr_t)file->data);
}

shoal_status shoal_engine_add_file(shoal_engine *engine, const char *name, const void *data,
                                   size_t bytes)
{
    shoal_status status;
    int32_t at = 0;
    char *own_name = NULL;
    void *own_data = NULL;
    SHOAL_TRY(status, shoali_checkpoint_check_companion(name), done);
    SHOAL_TRY(status, shoal_engine_wait_save(engine), done); /* which may write the one before */
    while (at < engine->save.file_count && strcmp(engine->save.file[at].name, name) != 0)
        at++;
    if (at == SHOALI_ENGINE_FILES) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s: a checkpoint has at most %d further files", name,
                            SHOALI_ENGINE_FILES);
        goto done;
    }
    status = SHOAL_ENOMEM;
    own_name = shoali_malloc(strlen(name) + 1, "a file's name");
    own_data = shoali_malloc(bytes + 1, "a file of a checkpoint");
    if (!own_name || !own_data)
        goto done;
    strcpy(own_name, name);
    memcpy(own_data, data, bytes);
    if (at < engine->save.file_count)
        drop_file(&engine->save.file[at]);
    else
        engine->save.file_count++;
    engine->save.file[at] = (struct shoali_checkpoint_companion){own_name, own_data, bytes};
    status = SHOAL_OK;
done:
    if (status < 0) {
        shoali_free(own_name);
        shoali_free(own_data);
    }
    return status;
}

void shoali_engine_drop_files(struct shoal_engine *engine)
{
    for (int32_t i = 0; i < engine->save.file_count; i++)
        drop_file(&engine->save.file[i]);
    engine->save.file_count = 0;
}
