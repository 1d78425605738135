/* A checkpoint as DeepSpeed's universal one (deepspeed.h has its files). Kind after kind is loaded
 * as by one rank, which verifies every chunk and gives the elements in the order of the files; they
 * go into the archives as they come, so memory does not depend on the model. OUT is there when it
 * is whole.
 *
 * Hyperparameters are the reader's own: optimizer_state.pt has groups that say nothing but the next
 * step's learning rate, as many as any reader could have, because DeepSpeed walks the shorter of
 * both lists. The schedule's position, the steps and t are in the files. Loss scale: that of a new
 * run. */
#include "checkpoint/checkpoint_internal.h"
#include "foreign/deepspeed/deepspeed.h"
#include "foreign/torch_write.h"
#include "shoal/foreign.h"

#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GROUPS = 64 };
static const char ds_version[] = "0.19.0"; /* whose files these are like */

struct export
{
    struct shoali_arena arena;
    const char *out, *partial, *tag; /* OUT, OUT.partial, the new tag */
    char *found;                     /* owned: the tag that is read */
    json_t *manifest;                /* owned */
    const char **names;
    shoal_shape *shapes; /* in the checkpoint */
    shoal_shape *kept;   /* without padding of the vocabulary */
    int32_t count;
    /* of the kind that is at work */
    const char *file; /* "fp32", ...; NULL: all into one archive */
    shoal_dtype dtype;
    struct shoali_torch_writer writer;
    int32_t tensor;
    int64_t at, begin; /* elements so far; where the tensor begins */
    bool open;
};

/* ---- what the manifest says ---- */

static int64_t number(const struct export *export, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(export->manifest, "engine"), key));
}

/* Older checkpoints say how many samples their steps had less than train_batch_size each. */
static int64_t consumed_samples(const struct export *export)
{
    const json_t *engine = json_object_get(export->manifest, "engine");
    if (json_object_get(engine, "consumed_samples"))
        return number(export, "consumed_samples");
    return number(export, "global_steps") * number(export, "train_batch_size") -
           number(export, "samples_behind");
}

/* Rows of the embedding that are tokens; 0: not known. */
static int64_t vocab_rows(const struct export *export)
{
    const json_t *client = json_object_get(export->manifest, "client");
    return json_integer_value(json_object_get(json_object_get(client, "model"), "vocab-size"));
}

static bool is_vocabulary(const char *name)
{
    static const char *const ends[] = {"wte.weight", "lm_head.weight", "embed_tokens.weight",
                                       "word_embeddings.weight"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t length = strlen(name), bytes = strlen(ends[i]);
        if (length >= bytes && strcmp(name + length - bytes, ends[i]) == 0)
            return true;
    }
    return false;
}

static shoal_status read_tensors(struct export *export)
{
    const json_t *list = json_object_get(export->manifest, "tensors"), *row, *dim;
    const int64_t rows = vocab_rows(export);
    const size_t room = json_array_size(list) + 1;
    size_t i, d;
    export->names = shoali_arena_alloc(&export->arena, room * sizeof *export->names);
    export->shapes = shoali_arena_alloc(&export->arena, room * sizeof *export->shapes);
    export->kept = shoali_arena_alloc(&export->arena, room * sizeof *export->kept);
    if (!export->names || !export->shapes || !export->kept)
        return SHOAL_ENOMEM;
    json_array_foreach(list, i, row)
    {
        shoal_shape *shape = &export->shapes[export->count], *kept = &export->kept[export->count];
        export->names[export->count] = json_string_value(json_object_get(row, "name"));
        json_array_foreach(json_object_get(row, "shape"), d, dim)
        {
            shape->dim[shape->ndim++] = json_integer_value(dim);
        }
        *kept = *shape;
        if (rows > 0 && kept->ndim == 2 && kept->dim[0] > rows &&
            is_vocabulary(export->names[export->count]))
            kept->dim[0] = rows;
        if (strchr(export->names[export->count], '/'))
            return SHOAL_FAIL(
                SHOAL_EUNSUPPORTED,
                "the tensor `%s` cannot be the name of a folder, which DeepSpeed's format needs",
                export->names[export->count]);
        export->count++;
    }
    return SHOAL_OK;
}

/* ---- tensors ---- */

static const char *path_of(struct export *export, const char *folder, const char *name,
                           const char *file, const char *ending)
{
    return shoali_arena_printf(&export->arena, "%s/%s/%s%s%s%s%s", export->partial, export->tag,
                               folder, name, *file ? "/" : "", file, ending);
}

static shoal_status begin_file(struct export *export)
{
    shoal_status status;
    struct shoali_pickling pickling = {0};
    const char *name = export->names[export->tensor];
    const char *path = path_of(export, "zero/", name, export->file, ".pt");
    shoali_pickling_begin(&pickling);
    shoali_pickling_dict(&pickling);
    shoali_pickling_int_item(&pickling, "cat_dim", 0);
    if (is_vocabulary(name)) {
        shoali_pickling_text(&pickling, "vocab_tensor");
        shoali_pickling_bool(&pickling, true);
        shoali_pickling_item(&pickling);
    }
    shoali_pickling_text(&pickling, "param");
    shoali_pickling_tensor(&pickling, export->dtype, &export->kept[export->tensor]);
    shoali_pickling_item(&pickling);
    shoali_pickling_end(&pickling);
    status = path ? shoali_torch_writer_open(&export->writer, path, &pickling) : SHOAL_ENOMEM;
    shoali_pickling_fini(&pickling);
    return status;
}

static shoal_status begin_tensor(struct export *export)
{
    shoal_status status = SHOAL_OK;
    const int64_t count = shoal_shape_count(&export->kept[export->tensor]);
    if (export->file)
        SHOAL_TRY(status, begin_file(export), done);
    SHOAL_TRY(status,
              shoali_torch_writer_begin(&export->writer,
                                        count * (int64_t)shoal_dtype_bytes(export->dtype)),
              done);
    export->open = true;
done:
    return status;
}

static shoal_status end_tensor(struct export *export)
{
    shoal_status status = SHOAL_OK;
    if (export->file) {
        SHOAL_TRY(status, shoali_torch_writer_finish(&export->writer), done);
        shoali_torch_writer_close(&export->writer);
    }
    export->begin += shoal_shape_count(&export->shapes[export->tensor++]);
    export->open = false;
done:
    return status;
}

/* Begins what can be begun, ends what has ended. */
static shoal_status advance(struct export *export)
{
    shoal_status status = SHOAL_OK;
    while (export->tensor < export->count) {
        if (!export->open)
            SHOAL_TRY(status, begin_tensor(export), done);
        if (export->at < export->begin + shoal_shape_count(&export->shapes[export->tensor]))
            return SHOAL_OK;
        SHOAL_TRY(status, end_tensor(export), done);
    }
done:
    return status;
}

static shoal_status take_elements(void *user, int64_t first, int64_t count, const void *in)
{
    shoal_status status = SHOAL_OK;
    struct export *export = user;
    const char *from = in;
    const int64_t item = (int64_t)shoal_dtype_bytes(export->dtype);
    SHOAL_ASSERT(first == export->at);
    while (count > 0) {
        SHOAL_TRY(status, advance(export), done);
        const int64_t within = export->at - export->begin;
        const int64_t left = shoal_shape_count(&export->shapes[export->tensor]) - within;
        const int64_t kept = shoal_shape_count(&export->kept[export->tensor]) - within;
        const int64_t part = count < left ? count : left, taken = part < kept ? part : kept;
        if (taken > 0)
            SHOAL_TRY(status, shoali_torch_writer_put(&export->writer, from, taken * item), done);
        from += part * item;
        export->at += part;
        count -= part;
    }
    SHOAL_TRY(status, advance(export), done);
done:
    return status;
}

static shoal_status load_kind(struct export *export, const char *dir, const char *kind,
                              shoal_dtype dtype, const char *file)
{
    shoal_status status;
    const struct shoali_checkpoint_kind own = {
        .name = kind,
        .dtype = dtype,
        .count = shoali_checkpoint_flat_count(export->shapes, export->count),
        .user = export,
        .write = take_elements};
    const struct shoali_checkpoint_args args = {.dir = dir,
                                                .tag = export->found,
                                                .names = export->names,
                                                .shapes = export->shapes,
                                                .tensor_count = export->count,
                                                .kinds = &own,
                                                .kind_count = 1};
    export->file = file;
    export->dtype = dtype;
    export->tensor = 0;
    export->at = export->begin = 0;
    SHOAL_TRY(status, shoali_checkpoint_load(&args), done);
    SHOAL_TRY(status, advance(export), done);
done:
    return status;
}

/* ---- numbers ---- */

static void put_empty(struct shoali_pickling *pickling, const char *key, bool list)
{
    shoali_pickling_text(pickling, key);
    if (list)
        shoali_pickling_list(pickling);
    else
        shoali_pickling_dict(pickling);
    shoali_pickling_item(pickling);
}

static void put_none(struct shoali_pickling *pickling, const char *key)
{
    shoali_pickling_text(pickling, key);
    shoali_pickling_none(pickling);
    shoali_pickling_item(pickling);
}

static void put_shapes(struct shoali_pickling *pickling, const struct export *export)
{
    shoali_pickling_text(pickling, "param_shapes");
    shoali_pickling_list(pickling);
    shoali_pickling_dict(pickling);
    for (int32_t i = 0; i < export->count; i++) {
        shoali_pickling_text(pickling, export->names[i]);
        shoali_pickling_size(pickling, &export->kept[i]);
        shoali_pickling_item(pickling);
    }
    shoali_pickling_append(pickling);
    shoali_pickling_item(pickling);
}

static void put_shared(struct shoali_pickling *pickling, const struct export *export)
{
    const char *name;
    json_t *primary;
    shoali_pickling_text(pickling, "shared_params");
    shoali_pickling_dict(pickling);
    json_object_foreach(json_object_get(export->manifest, "aliases"), name, primary)
    {
        shoali_pickling_text_item(pickling, name, json_string_value(primary));
    }
    shoali_pickling_item(pickling);
}

static void put_config(struct shoali_pickling *pickling, const struct export *export)
{
    const char *dtype =
        json_string_value(json_object_get(json_object_get(export->manifest, "engine"), "dtype"));
    const char *section = dtype && strcmp(dtype, "BF16") == 0  ? "bf16"
                          : dtype && strcmp(dtype, "F16") == 0 ? "fp16"
                                                               : NULL;
    shoali_pickling_text(pickling, "ds_config");
    shoali_pickling_dict(pickling);
    shoali_pickling_int_item(pickling, "train_batch_size", number(export, "train_batch_size"));
    if (section) {
        shoali_pickling_text(pickling, section);
        shoali_pickling_dict(pickling);
        shoali_pickling_text(pickling, "enabled");
        shoali_pickling_bool(pickling, true);
        shoali_pickling_item(pickling);
        shoali_pickling_item(pickling);
    }
    shoali_pickling_item(pickling);
}

static void put_universal(struct shoali_pickling *pickling)
{
    static const char *const lists[] = {"vocabulary_parameter_patterns",
                                        "pipeline_replicated_parameter_patterns",
                                        "tp_replicated_parameter_patterns",
                                        "parameter_to_average_patterns",
                                        "parameter_with_row_parallelism_patterns",
                                        "parameter_with_2_sub_params_cat_dim_0",
                                        "parameter_with_sub_params"};
    shoali_pickling_text(pickling, "universal_checkpoint_info");
    shoali_pickling_dict(pickling);
    shoali_pickling_text(pickling, "universal_checkpoint_version");
    shoali_pickling_real(pickling, 0.4);
    shoali_pickling_item(pickling);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        put_empty(pickling, lists[i], true);
    shoali_pickling_item(pickling);
}

/* Everything of model states but the module. */
static void put_numbers(struct shoali_pickling *pickling, const struct export *export)
{
    const int64_t steps = number(export, "global_steps");
    put_empty(pickling, "buffer_names", true);
    put_none(pickling, "optimizer");
    put_shapes(pickling, export);
    put_empty(pickling, "frozen_param_shapes", false);
    put_shared(pickling, export);
    put_empty(pickling, "frozen_param_fragments", false);
    shoali_pickling_text(pickling, "lr_scheduler");
    shoali_pickling_dict(pickling);
    shoali_pickling_int_item(pickling, "last_batch_iteration", number(export, "applied_steps") - 1);
    shoali_pickling_item(pickling);
    put_none(pickling, "data_sampler");
    put_none(pickling, "random_ltd");
    put_empty(pickling, "sparse_tensor_module_names", true);
    shoali_pickling_int_item(pickling, "skipped_steps", number(export, "skipped_steps"));
    shoali_pickling_int_item(pickling, "global_steps", steps);
    shoali_pickling_int_item(pickling, "global_samples", consumed_samples(export));
    shoali_pickling_int_item(pickling, "dp_world_size", 1);
    shoali_pickling_int_item(pickling, "mp_world_size", 1);
    put_config(pickling, export);
    shoali_pickling_text_item(pickling, "ds_version", ds_version);
    put_universal(pickling);
}

/* Model states: for stages 0 to 2 with the weights, for stage 3 without, as DeepSpeed has them. */
static shoal_status write_model(struct export *export, const char *dir, shoal_dtype dtype,
                                const char *name, bool weights)
{
    shoal_status status;
    struct shoali_pickling pickling = {0};
    const char *path = path_of(export, "", name, "", "_model_states.pt");
    shoali_pickling_begin(&pickling);
    shoali_pickling_dict(&pickling);
    shoali_pickling_text(&pickling, "module");
    shoali_pickling_dict(&pickling);
    for (int32_t i = 0; i < export->count && weights; i++) {
        shoali_pickling_text(&pickling, export->names[i]);
        shoali_pickling_tensor(&pickling, dtype, &export->kept[i]);
        shoali_pickling_item(&pickling);
    }
    shoali_pickling_item(&pickling);
    put_numbers(&pickling, export);
    shoali_pickling_end(&pickling);
    status = path ? shoali_torch_writer_open(&export->writer, path, &pickling) : SHOAL_ENOMEM;
    if (status < 0)
        goto done;
    if (weights)
        SHOAL_TRY(status, load_kind(export, dir, "model", dtype, NULL), done);
    SHOAL_TRY(status, shoali_torch_writer_finish(&export->writer), done);
done:
    shoali_torch_writer_close(&export->writer);
    shoali_pickling_fini(&pickling);
    return status;
}

/* An archive of one tensor with the number t of Adam, or of a dict that has it. */
static shoal_status write_step(struct export *export, const char *path,
                               const struct shoali_pickling *pickling)
{
    shoal_status status;
    const float step = (float)(number(export, "applied_steps") + number(export, "optimizer_ahead"));
    SHOAL_TRY(status, shoali_torch_writer_open(&export->writer, path, pickling), done);
    SHOAL_TRY(status, shoali_torch_writer_begin(&export->writer, sizeof step), done);
    SHOAL_TRY(status, shoali_torch_writer_put(&export->writer, &step, sizeof step), done);
    SHOAL_TRY(status, shoali_torch_writer_finish(&export->writer), done);
done:
    shoali_torch_writer_close(&export->writer);
    return status;
}

static const shoal_shape scalar = {0};

static shoal_status write_steps(struct export *export)
{
    shoal_status status = SHOAL_OK;
    struct shoali_pickling pickling = {0};
    shoali_pickling_begin(&pickling);
    shoali_pickling_tensor(&pickling, SHOAL_F32, &scalar);
    shoali_pickling_end(&pickling);
    for (int32_t i = 0; i < export->count; i++) {
        const char *path = path_of(export, "zero/", export->names[i], "step", ".pt");
        SHOAL_TRY(status, path ? write_step(export, path, &pickling) : SHOAL_ENOMEM, done);
    }
done:
    shoali_pickling_fini(&pickling);
    return status;
}

/* DeepSpeed takes the next step's learning rate from here; its schedule goes on after that. */
static void put_groups(struct shoali_pickling *pickling, const struct export *export, int count)
{
    const json_t *lr = json_object_get(json_object_get(export->manifest, "engine"), "lr");
    shoali_pickling_text(pickling, "param_groups");
    shoali_pickling_list(pickling);
    for (int i = 0; i < count; i++) {
        shoali_pickling_dict(pickling);
        put_empty(pickling, "params", true);
        if (json_is_number(lr)) {
            shoali_pickling_text(pickling, "lr");
            shoali_pickling_real(pickling, json_number_value(lr));
            shoali_pickling_item(pickling);
        }
        shoali_pickling_append(pickling);
    }
    shoali_pickling_item(pickling);
}

/* Stages 1 and 2 read param_groups, stage 3 what stands in optimizer_state_dict. */
static shoal_status write_optimizer(struct export *export)
{
    shoal_status status;
    struct shoali_pickling pickling = {0};
    const char *path = path_of(export, "zero/", "optimizer_state", "", ".pt");
    const json_t *engine = json_object_get(export->manifest, "engine");
    const json_t *formula = json_object_get(engine, "optimizer_formula");
    const char *made_by =
        json_string_value(formula ? formula : json_object_get(engine, "optimizer"));
    shoali_pickling_begin(&pickling);
    shoali_pickling_dict(&pickling);
    shoali_pickling_text_item(&pickling, "ds_version", ds_version);
    if (made_by) /* a name that DeepSpeed does not look for */
        shoali_pickling_text_item(&pickling, SHOALI_DEEPSPEED_FORMULA, made_by);
    put_groups(&pickling, export, GROUPS);
    shoali_pickling_text(&pickling, "optimizer_state_dict");
    shoali_pickling_dict(&pickling);
    shoali_pickling_text(&pickling, "state");
    shoali_pickling_dict(&pickling);
    shoali_pickling_int(&pickling, 0);
    shoali_pickling_dict(&pickling);
    shoali_pickling_text(&pickling, "step");
    shoali_pickling_tensor(&pickling, SHOAL_F32, &scalar);
    shoali_pickling_item(&pickling);
    shoali_pickling_item(&pickling);
    shoali_pickling_item(&pickling);
    put_groups(&pickling, export, 1);
    shoali_pickling_item(&pickling);
    shoali_pickling_end(&pickling);
    status = path ? write_step(export, path, &pickling) : SHOAL_ENOMEM;
    shoali_pickling_fini(&pickling);
    return status;
}

/* ---- kinds and folders ---- */

static shoal_status make_folders(struct export *export)
{
    shoal_status status;
    const char *path =
        shoali_arena_printf(&export->arena, "%s/%s/zero", export->partial, export->tag);
    SHOAL_TRY(status, path ? shoali_make_dirs(path) : SHOAL_ENOMEM, done);
    for (int32_t i = 0; i < export->count; i++) {
        path = path_of(export, "zero/", export->names[i], "", "");
        SHOAL_TRY(status, path ? shoali_checkpoint_make_dir(path) : SHOAL_ENOMEM, done);
    }
done:
    return status;
}

static shoal_status write_states(struct export *export, const char *dir,
                                 const struct shoali_checkpoint_info *info)
{
    shoal_status status = SHOAL_OK;
    bool masters = false;
    for (int32_t k = 0; k < info->kind_count; k++)
        masters = masters || strcmp(info->kind_name[k], "master") == 0;
    for (int32_t k = 0; k < info->kind_count; k++) {
        const char *kind = info->kind_name[k];
        const bool model = strcmp(kind, "model") == 0;
        if (json_object_get(json_array_get(json_object_get(export->manifest, "kinds"), (size_t)k),
                            "of"))
            return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                              "the checkpoint's `%s` has one number for several elements, which "
                              "universal checkpoints do not support",
                              kind);
        if (model && masters)
            continue;
        if (model && info->kind_dtype[k] != SHOAL_F32)
            return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                              "the checkpoint has no fp32 weights, which a universal one needs");
        SHOAL_TRY(status,
                  load_kind(export, dir, kind, info->kind_dtype[k],
                            model || strcmp(kind, "master") == 0 ? "fp32" : kind),
                  done);
    }
done:
    return status;
}

static shoal_status write_all(struct export *export, const char *dir,
                              const struct shoali_checkpoint_info *info)
{
    shoal_status status;
    shoal_dtype dtype = SHOAL_F32;
    const char *latest =
        shoali_arena_printf(&export->arena, "%s/latest_universal", export->partial);
    if (!latest)
        return SHOAL_ENOMEM;
    for (int32_t k = 0; k < info->kind_count; k++)
        if (strcmp(info->kind_name[k], "model") == 0)
            dtype = info->kind_dtype[k];
    SHOAL_TRY(status, make_folders(export), done);
    SHOAL_TRY(status, write_states(export, dir, info), done);
    SHOAL_TRY(status, write_steps(export), done);
    SHOAL_TRY(status, write_optimizer(export), done);
    SHOAL_TRY(status, write_model(export, dir, dtype, "mp_rank_00", true), done);
    SHOAL_TRY(status, write_model(export, dir, dtype, "zero_pp_rank_0_mp_rank_00", false), done);
    SHOAL_TRY(status, shoali_write_file_atomic(latest, export->tag, strlen(export->tag)), done);
    if (rename(export->partial, export->out) != 0)
        status = SHOAL_FAIL(shoali_path_status(errno), "%s: cannot rename to %s: %s",
                            export->partial, export->out, strerror(errno));
done:
    return status;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)where;
    return type == FTW_DP ? rmdir(path) : unlink(path);
}

static shoal_status prepare(struct export *export, const char *dir, const char *tag,
                            const char *out)
{
    shoal_status status;
    struct stat info;
    if (lstat(out, &info) == 0)
        return SHOAL_FAIL(SHOAL_EEXIST, "%s exists: name a folder that does not", out);
    SHOAL_TRY(status, shoali_checkpoint_find(dir, tag, true, &export->found, &export->manifest),
              done);
    SHOAL_TRY(status, read_tensors(export), done);
    export->out = out;
    export->partial = shoali_arena_printf(&export->arena, "%s.partial", out);
    export->tag = shoali_arena_printf(&export->arena, "global_step%lld_universal",
                                      (long long)number(export, "global_steps"));
    if (!export->partial || !export->tag) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    (void)nftw(export->partial, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* of one that died */
done:
    return status;
}

shoal_status shoal_checkpoint_to_deepspeed(const char *dir, const char *tag, const char *out)
{
    shoal_status status;
    struct export export = {.writer = {.descriptor = -1}};
    struct shoali_checkpoint_info info = {0};
    if (!dir || !*dir || !out || !*out)
        return SHOAL_FAIL(SHOAL_EINVAL, "a folder to read and one to write must be named");
    shoali_arena_init(&export.arena);
    SHOAL_TRY(status, prepare(&export, dir, tag, out), done);
    SHOAL_TRY(status, shoali_manifest_info(export.manifest, &info), done);
    status = write_all(&export, dir, &info);
    shoali_torch_writer_close(&export.writer);
    if (status < 0)
        (void)nftw(export.partial, remove_one, 16, FTW_DEPTH | FTW_PHYS);
done:
    shoali_checkpoint_info_fini(&info);
    json_decref(export.manifest);
    free(export.found);
    shoali_arena_fini(&export.arena);
    return status;
}
