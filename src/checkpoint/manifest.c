/* manifest.json: made from a plan, read back into one. Its last member is the hash of all before
 * it, so that a torn or edited manifest is no manifest. */
#include "checkpoint/checkpoint_internal.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, TAIL_BYTES = sizeof(",\"hash\":\"0123456789abcdef\"}\n") - 1 };

/* What stands behind the hashed bytes. */
static void format_tail(const char *text, size_t bytes, char tail[TAIL_BYTES + 1])
{
    snprintf(tail, TAIL_BYTES + 1, ",\"hash\":\"%016llx\"}\n",
             (unsigned long long)shoali_hash64(text, bytes));
}

/* ---- format ---- */

/* NULL where something could not be allocated, else the value. */
static json_t *whole(json_t *value, int failed)
{
    if (!failed)
        return value;
    json_decref(value);
    return NULL;
}

static json_t *tensors_json(const struct shoali_checkpoint_args *args)
{
    int failed = 0;
    json_t *list = json_array();
    for (int32_t i = 0; i < args->tensor_count; i++) {
        json_t *shape = json_array();
        for (int32_t d = 0; d < args->shapes[i].ndim; d++)
            failed |= json_array_append_new(shape, json_integer(args->shapes[i].dim[d]));
        failed |= json_array_append_new(
            list, json_pack("{s:s, s:o}", "name", args->names[i], "shape", shape));
    }
    return whole(list, failed);
}

static json_t *kind_json(const struct shoali_checkpoint_plan *plan)
{
    int failed = 0;
    json_t *files = json_array();
    for (int32_t f = 0; f < plan->file_count; f++) {
        const struct shoali_checkpoint_file *file = &plan->file[f];
        json_t *chunks = json_array();
        for (int64_t c = 0; c < file->chunk_count; c++) {
            char hex[17];
            snprintf(hex, sizeof hex, "%016llx", (unsigned long long)file->chunk[c]);
            failed |= json_array_append_new(chunks, json_string(hex));
        }
        failed |=
            json_array_append_new(files, json_pack("{s:s, s:I, s:o}", "name", file->name, "bytes",
                                                   (json_int_t)file->bytes, "chunks", chunks));
    }
    return whole(json_pack("{s:s, s:s, s:s*, s:o}", "name", plan->name, "dtype",
                           shoal_dtype_name(plan->dtype), "of", plan->of, "files", files),
                 failed);
}

static shoal_status parse_part(const char *text, const char *what, json_t **part)
{
    struct shoali_json_error error;
    const shoal_status status = shoali_json_read(text, strlen(text), part, &error);
    if (json_is_object(*part) || status == SHOAL_ENOMEM)
        return status;
    const char *why = *part ? "it is another value" : error.text;
    json_decref(*part);
    *part = NULL;
    return SHOAL_FAIL(SHOAL_EINVAL, "%s is not the text of a JSON object: %s", what, why);
}

/* NULL: there are none. */
static json_t *companions_json(const struct shoali_checkpoint_args *args, int *failed)
{
    if (args->companion_count == 0)
        return NULL;
    json_t *list = json_array();
    for (int32_t i = 0; i < args->companion_count; i++) {
        const struct shoali_checkpoint_companion *file = &args->companions[i];
        char hex[17];
        snprintf(hex, sizeof hex, "%016llx",
                 (unsigned long long)shoali_hash64(file->data, file->bytes));
        *failed |=
            json_array_append_new(list, json_pack("{s:s, s:I, s:s}", "name", file->name, "bytes",
                                                  (json_int_t)file->bytes, "hash", hex));
    }
    return list;
}

static json_t *manifest_json(const struct shoali_checkpoint_args *args,
                             const struct shoali_checkpoint_plan *plans, json_t *engine,
                             json_t *client)
{
    json_t *root = json_pack("{s:s, s:i, s:I, s:O}", "format", "shoal-checkpoint", "version",
                             VERSION, "step", (json_int_t)args->step, "engine", engine);
    json_t *kinds = json_array(), *aliases = json_object();
    int failed = client ? json_object_set(root, "client", client) : 0;
    for (int32_t k = 0; k < args->kind_count; k++)
        failed |= json_array_append_new(kinds, kind_json(&plans[k]));
    failed |= json_object_set_new(root, "kinds", kinds);
    failed |= json_object_set_new(root, "tensors", tensors_json(args));
    for (int32_t i = 0; i < args->alias_count; i++)
        failed |= json_object_set_new(aliases, args->aliases[i].name,
                                      json_string(args->aliases[i].primary));
    failed |= json_object_set_new(root, "aliases", aliases);
    json_t *companions = companions_json(args, &failed);
    if (args->companion_count > 0)
        failed |= json_object_set_new(root, "files", companions);
    return whole(root, failed);
}

static shoal_status check_names(const struct shoali_checkpoint_args *args)
{
    for (int32_t i = 0; i < args->alias_count; i++) {
        const char *name = args->aliases[i].name;
        if (shoali_utf8_check(name, strlen(name)) < strlen(name))
            return SHOAL_FAIL(SHOAL_EINVAL, "the second name \"%s\" of a tied tensor is not UTF-8",
                              name);
    }
    return SHOAL_OK;
}

shoal_status shoali_manifest_format(const struct shoali_checkpoint_args *args,
                                    const struct shoali_checkpoint_plan *plans, char **text)
{
    shoal_status status;
    json_t *engine = NULL, *client = NULL, *root = NULL;
    char *body = NULL;
    SHOAL_TRY(status, parse_part(args->engine_json, "engine_json", &engine), done);
    if (args->client_json)
        SHOAL_TRY(status, parse_part(args->client_json, "client_json", &client), done);
    SHOAL_TRY(status, check_names(args), done);
    root = manifest_json(args, plans, engine, client);
    if (root && json_object_size(json_object_get(root, "aliases")) != (size_t)args->alias_count) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "two tied tensors have the same second name");
        goto done;
    }
    SHOAL_TRY(status, shoali_json_write(root, JSON_COMPACT, "the checkpoint's manifest", &body),
              done);
    char *larger = shoali_fault("alloc") ? NULL : realloc(body, strlen(body) + TAIL_BYTES + 1);
    if (!larger) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the checkpoint's manifest");
        goto done;
    }
    body = NULL;
    const size_t hashed = strlen(larger) - 1; /* the closing brace goes behind the hash */
    char tail[TAIL_BYTES + 1];
    format_tail(larger, hashed, tail);
    memcpy(larger + hashed, tail, sizeof tail);
    *text = larger;
done:
    free(body);
    json_decref(root);
    json_decref(engine);
    json_decref(client);
    return status;
}

/* ---- read ---- */

static shoal_status check_text(const char *path, const char *text, size_t bytes)
{
    char tail[TAIL_BYTES + 1];
    if (bytes > TAIL_BYTES) {
        format_tail(text, bytes - TAIL_BYTES, tail);
        if (memcmp(text + bytes - TAIL_BYTES, tail, TAIL_BYTES) == 0)
            return SHOAL_OK;
    }
    return SHOAL_FAIL(SHOAL_ECORRUPT,
                      "%s, bytes 0 to %zu: the hash at its end does not match; the checkpoint is "
                      "damaged, load another",
                      path, bytes);
}

/* Of a file inside the checkpoint's folder. */
static bool is_file_name(const char *name)
{
    return name && *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/');
}

/* Types of everything later code relies on. */
static bool well_formed(const json_t *root)
{
    size_t i, j;
    json_t *kind, *file;
    const json_t *kinds = json_object_get(root, "kinds");
    if (!json_is_integer(json_object_get(root, "step")) ||
        !json_is_object(json_object_get(root, "engine")) || !json_is_array(kinds) ||
        !json_is_array(json_object_get(root, "tensors")) ||
        !json_is_object(json_object_get(root, "aliases")) ||
        json_array_size(kinds) > SHOALI_CHECKPOINT_KINDS)
        return false;
    json_array_foreach(kinds, i, kind)
    {
        const char *name = json_string_value(json_object_get(kind, "name"));
        const json_t *files = json_object_get(kind, "files");
        if (!name || strlen(name) >= SHOALI_CHECKPOINT_KIND_BYTES || !json_is_array(files) ||
            !json_is_string(json_object_get(kind, "dtype")))
            return false;
        json_array_foreach(files, j, file)
        {
            const char *file_name = json_string_value(json_object_get(file, "name"));
            if (!is_file_name(file_name) || json_integer_value(json_object_get(file, "bytes")) <= 0)
                return false;
        }
    }
    return true;
}

static shoal_status check_root(const char *path, const json_t *root)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (!format || strcmp(format, "shoal-checkpoint") != 0)
        return SHOAL_FAIL(SHOAL_ECORRUPT, "%s: not a checkpoint's manifest", path);
    if (version != VERSION)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "%s has version %lld, this program reads version %d: use a newer one",
                          path, (long long)version, VERSION);
    if (!well_formed(root))
        return SHOAL_FAIL(SHOAL_ECORRUPT, "%s: a member is missing or of another type", path);
    return SHOAL_OK;
}

static shoal_status parse_manifest(const char *path, const char *text, size_t bytes,
                                   json_t **manifest)
{
    shoal_status status;
    json_t *root = NULL;
    SHOAL_TRY(status, check_text(path, text, bytes), done);
    status = shoali_json_read(text, bytes, &root, NULL);
    if (status == SHOAL_ENOMEM)
        goto done;
    SHOAL_TRY(status, check_root(path, root), done);
    *manifest = root;
    root = NULL;
done:
    json_decref(root);
    return status;
}

shoal_status shoali_manifest_read(const char *dir, const char *tag, json_t **manifest)
{
    shoal_status status;
    struct shoali_str path = {0};
    char *text = NULL;
    size_t bytes = 0;
    shoali_str_append(&path, "%s/%s/manifest.json", dir, tag);
    if (path.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a manifest's path");
        goto done;
    }
    SHOAL_TRY(status, shoali_read_file(path.text, &text, &bytes), done);
    SHOAL_TRY(status, parse_manifest(path.text, text, bytes, manifest), done);
done:
    free(text);
    shoali_str_fini(&path);
    return status;
}

int64_t shoali_manifest_step(const json_t *manifest)
{
    return json_integer_value(json_object_get(manifest, "step"));
}

/* ---- tensors ---- */

static void shape_of(const json_t *tensor, shoal_shape *shape)
{
    const json_t *list = json_object_get(tensor, "shape");
    const size_t dims = json_array_size(list);
    *shape = (shoal_shape){.ndim = dims > SHOAL_MAX_DIMS ? -1 : (int32_t)dims};
    for (int32_t i = 0; i < shape->ndim; i++)
        shape->dim[i] = json_integer_value(json_array_get(list, (size_t)i));
}

/* Compares by name. `stored` maps names to the manifest's entries, matched ones are taken out;
 * found[i] becomes the name under which tensor i is stored, NULL: not at all. */
static void compare_tensors(json_t *stored, const json_t *aliases,
                            const struct shoali_checkpoint_args *args, const char **found,
                            struct shoali_checkpoint_wrong *list)
{
    char got[128], want[128], detail[400];
    for (int32_t i = 0; i < args->tensor_count; i++) {
        shoal_shape shape;
        const char *primary = json_string_value(json_object_get(aliases, args->names[i]));
        const bool own = json_object_get(stored, args->names[i]) != NULL;
        found[i] = own ? args->names[i] : primary;
        const json_t *tensor = found[i] ? json_object_get(stored, found[i]) : NULL;
        if (!tensor) {
            snprintf(detail, sizeof detail, " (the checkpoint ties it to `%.300s`)",
                     primary ? primary : "");
            shoali_checkpoint_wrong_add(list, "missing", args->names[i], primary ? detail : "");
            found[i] = NULL;
            continue;
        }
        shape_of(tensor, &shape);
        if (!shoali_shape_equal(&shape, &args->shapes[i])) {
            snprintf(detail, sizeof detail, " (is %s, the model has %s)",
                     shoali_shape_format(&shape, got), shoali_shape_format(&args->shapes[i], want));
            list->misfits++;
            shoali_checkpoint_wrong_add(list, "of another shape", args->names[i], detail);
        }
        json_object_del(stored, found[i]);
    }
}

static void list_extra(json_t *stored, const struct shoali_checkpoint_args *args,
                       struct shoali_checkpoint_wrong *list)
{
    const char *name;
    json_t *tensor;
    char detail[400];
    json_object_foreach(stored, name, tensor)
    {
        *detail = '\0';
        for (int32_t i = 0; i < args->alias_count; i++)
            if (strcmp(args->aliases[i].name, name) == 0)
                snprintf(detail, sizeof detail, " (the model ties it to `%.300s`)",
                         args->aliases[i].primary);
        shoali_checkpoint_wrong_add(list, "extra", name, detail);
    }
}

/* By their names in the file. */
static bool same_order(const json_t *tensors, const char *const *found, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const json_t *tensor = json_array_get(tensors, (size_t)i);
        if (strcmp(json_string_value(json_object_get(tensor, "name")), found[i]) != 0)
            return false;
    }
    return true;
}

shoal_status shoali_manifest_match(const json_t *manifest,
                                   const struct shoali_checkpoint_args *args, const char **found)
{
    shoal_status status = SHOAL_OK;
    struct shoali_checkpoint_wrong list = {0};
    size_t i;
    json_t *tensor;
    const json_t *tensors = json_object_get(manifest, "tensors");
    json_t *stored = json_object();
    json_array_foreach(tensors, i, tensor)
    {
        const char *name = json_string_value(json_object_get(tensor, "name"));
        status = !name ? SHOAL_FAIL(SHOAL_ECORRUPT, "the manifest's tensor %zu has no name", i)
                 : json_object_set(stored, name, tensor) != 0
                     ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the manifest's tensors")
                     : SHOAL_OK;
        if (status < 0)
            goto done;
    }
    compare_tensors(stored, json_object_get(manifest, "aliases"), args, found, &list);
    list_extra(stored, args, &list);
    if (list.count > 0 && args->not_strict && list.misfits == 0)
        SHOALI_WARN("checkpoint",
                    "the checkpoint in %s holds other tensors than the model: %s; what is missing "
                    "keeps its values, and what is extra is not read",
                    args->dir, shoali_checkpoint_wrong_text(&list));
    else if (list.count > 0)
        status =
            SHOAL_FAIL(SHOAL_EINVAL,
                       "the checkpoint in %s holds another model's tensors: %s; give the "
                       "model the options it was trained with%s",
                       args->dir, shoali_checkpoint_wrong_text(&list),
                       list.misfits > 0 ? ""
                                        : ", or take what fits with --dist-ckpt-strictness log_all "
                                          "(shoal_load_args.not_strict)");
    else if (!args->not_strict && !same_order(tensors, found, args->tensor_count))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "the checkpoint in %s holds the model's tensors in another order",
                            args->dir);
done:
    json_decref(stored);
    shoali_str_fini(&list.text);
    return status;
}

/* ---- kinds ---- */

static const json_t *find_kind(const json_t *manifest, const char *name)
{
    size_t i;
    json_t *kind;
    json_array_foreach(json_object_get(manifest, "kinds"), i, kind)
    {
        if (strcmp(json_string_value(json_object_get(kind, "name")), name) == 0)
            return kind;
    }
    return NULL;
}

static bool parse_hash(const json_t *value, uint64_t *hash)
{
    const char *text = json_string_value(value);
    char *end;
    if (!text || strlen(text) != 16)
        return false;
    *hash = strtoull(text, &end, 16);
    return *end == '\0';
}

static shoal_status read_file_row(const json_t *row, struct shoali_arena *arena,
                                  struct shoali_checkpoint_file *file)
{
    const int64_t chunk = SHOALI_CHECKPOINT_CHUNK;
    const json_t *chunks = json_object_get(row, "chunks");
    file->name = shoali_arena_strdup(arena, json_string_value(json_object_get(row, "name")));
    file->bytes = json_integer_value(json_object_get(row, "bytes"));
    file->chunk_count = (int64_t)json_array_size(chunks);
    if (!file->name)
        return SHOAL_ENOMEM;
    bool good = file->chunk_count == file->bytes / chunk + (file->bytes % chunk != 0);
    file->chunk = shoali_arena_alloc(arena, (size_t)file->chunk_count * sizeof *file->chunk);
    if (!file->chunk)
        return SHOAL_ENOMEM;
    for (int64_t c = 0; good && c < file->chunk_count; c++)
        good = parse_hash(json_array_get(chunks, (size_t)c), &file->chunk[c]);
    if (!good)
        return SHOAL_FAIL(SHOAL_ECORRUPT, "the manifest does not hold the hashes of %s",
                          file->name);
    return SHOAL_OK;
}

shoal_status shoali_manifest_plan(const json_t *manifest, const struct shoali_checkpoint_kind *kind,
                                  struct shoali_arena *arena, struct shoali_checkpoint_plan *plan)
{
    shoal_status status = SHOAL_OK;
    const json_t *row = find_kind(manifest, kind->name);
    if (!row)
        return SHOAL_FAIL(SHOAL_EINVAL, "the checkpoint has no `%s`", kind->name);
    const char *dtype = json_string_value(json_object_get(row, "dtype"));
    if (strcmp(dtype, shoal_dtype_name(kind->dtype)) != 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "the checkpoint's `%s` is %s, this run has %s", kind->name,
                          dtype, shoal_dtype_name(kind->dtype));
    plan->name = kind->name;
    plan->dtype = kind->dtype;
    SHOAL_TRY(status, shoali_manifest_files(row, arena, plan), done);
done:
    return status;
}

shoal_status shoali_manifest_files(const json_t *row, struct shoali_arena *arena,
                                   struct shoali_checkpoint_plan *plan)
{
    shoal_status status = SHOAL_OK;
    const char *of = json_string_value(json_object_get(row, "of"));
    plan->of = of ? shoali_arena_strdup(arena, of) : NULL;
    if (of && !plan->of)
        return SHOAL_ENOMEM;
    const json_t *files = json_object_get(row, "files");
    plan->file_count = (int32_t)json_array_size(files);
    plan->file = shoali_arena_alloc(arena, ((size_t)plan->file_count + 1) * sizeof *plan->file);
    if (!plan->file)
        return SHOAL_ENOMEM;
    for (int32_t f = 0; f < plan->file_count; f++)
        SHOAL_TRY(status, read_file_row(json_array_get(files, (size_t)f), arena, &plan->file[f]),
                  done);
done:
    return status;
}

shoal_status shoali_manifest_info(const json_t *manifest, struct shoali_checkpoint_info *info)
{
    size_t i;
    json_t *kind;
    const json_t *client = json_object_get(manifest, "client");
    info->step = shoali_manifest_step(manifest);
    shoal_status status = shoali_json_write(json_object_get(manifest, "engine"), JSON_COMPACT,
                                            "the checkpoint's numbers", &info->engine_json);
    if (status == SHOAL_OK && client)
        status = shoali_json_write(client, JSON_COMPACT, "the checkpoint's other part",
                                   &info->client_json);
    if (status < 0)
        return status;
    json_array_foreach(json_object_get(manifest, "kinds"), i, kind)
    {
        const int32_t at = info->kind_count++;
        const char *dtype = json_string_value(json_object_get(kind, "dtype"));
        int found = 0;
        while (found < SHOAL_DTYPE_COUNT &&
               strcmp(shoal_dtype_name((shoal_dtype)found), dtype) != 0)
            found++;
        if (found == SHOAL_DTYPE_COUNT)
            return SHOAL_FAIL(SHOAL_ECORRUPT, "the manifest names the unknown dtype %s", dtype);
        info->kind_dtype[at] = (shoal_dtype)found;
        snprintf(info->kind_name[at], sizeof info->kind_name[at], "%s",
                 json_string_value(json_object_get(kind, "name")));
    }
    return SHOAL_OK;
}
