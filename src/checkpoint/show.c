/* What a manifest says, in lines for people. */
#include "checkpoint/checkpoint_internal.h"

#include "base/plain.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* "key value, key value" of an object's plain members; of others in it when it is `nested`. */
static void say_object(const char *title, const json_t *object, struct shoali_str *out)
{
    const char *key;
    json_t *value;
    bool first = true;
    shoali_str_append(out, "  %-11s ", title);
    json_object_foreach((json_t *)object, key, value)
    {
        char number[64];
        const char *text = json_is_string(value)  ? json_string_value(value)
                           : json_is_true(value)  ? "true"
                           : json_is_false(value) ? "false"
                                                  : number;
        if (json_is_integer(value))
            snprintf(number, sizeof number, "%" PRId64, (int64_t)json_integer_value(value));
        else if (json_is_real(value))
            shoali_snprintf(number, sizeof number, "%.9g", json_real_value(value));
        else if (!json_is_string(value) && !json_is_boolean(value))
            continue;
        shoali_str_append(out, "%s%s %s", first ? "" : ", ", key, *text ? text : "none");
        first = false;
    }
    shoali_str_append(out, "\n");
}

static int64_t elements_of(const json_t *tensor)
{
    size_t d;
    json_t *size;
    int64_t count = 1;
    json_array_foreach(json_object_get(tensor, "shape"), d,
                       size) if (!shoali_mul(count, json_integer_value(size), &count)) return 0;
    return count;
}

static int64_t bytes_of(const json_t *kind)
{
    size_t f;
    json_t *file;
    int64_t bytes = 0;
    json_array_foreach(json_object_get(kind, "files"), f, file) bytes +=
        json_integer_value(json_object_get(file, "bytes"));
    return bytes;
}

static void say_kinds(const json_t *kinds, struct shoali_str *out)
{
    size_t k;
    json_t *kind;
    char bytes[32];
    json_array_foreach(kinds, k, kind)
    {
        const char *of = json_string_value(json_object_get(kind, "of"));
        const size_t files = json_array_size(json_object_get(kind, "files"));
        shoali_str_append(out, "  kind        %-16s %-5s one for each %-8s %3zu file%s %10s\n",
                          json_string_value(json_object_get(kind, "name")),
                          json_string_value(json_object_get(kind, "dtype")), of ? of : "element",
                          files, files == 1 ? " " : "s",
                          shoali_format_bytes((double)bytes_of(kind), bytes));
    }
}

static void say_tensors(const json_t *manifest, struct shoali_str *out)
{
    size_t t, d;
    json_t *tensor, *size, *primary;
    const char *name;
    json_array_foreach(json_object_get(manifest, "tensors"), t, tensor)
    {
        shoali_str_append(out, "  tensor      %s [",
                          json_string_value(json_object_get(tensor, "name")));
        json_array_foreach(json_object_get(tensor, "shape"), d, size)
            shoali_str_append(out, "%s%" PRId64, d ? ", " : "", (int64_t)json_integer_value(size));
        shoali_str_append(out, "]\n");
    }
    json_object_foreach(json_object_get(manifest, "aliases"), name, primary)
        shoali_str_append(out, "  tied        %s is %s\n", name, json_string_value(primary));
}

static void say_head(const char *dir, const char *tag, const json_t *manifest,
                     struct shoali_str *out)
{
    size_t i;
    json_t *one;
    int64_t bytes = 0, parameters = 0;
    char size[32], count[32];
    const json_t *tensors = json_object_get(manifest, "tensors");
    json_array_foreach(json_object_get(manifest, "kinds"), i, one) bytes += bytes_of(one);
    json_array_foreach(tensors, i, one) parameters += elements_of(one);
    shoali_str_append(out, "%s/%s: step %" PRId64 ", %zu tensors of %s parameters, %s\n", dir, tag,
                      shoali_manifest_step(manifest), json_array_size(tensors),
                      shoali_format_count((double)parameters, count),
                      shoali_format_bytes((double)bytes, size));
}

shoal_status shoali_checkpoint_show(const char *dir, const char *tag, bool tensors,
                                    struct shoali_str *out)
{
    shoal_status status;
    char *found = NULL;
    json_t *manifest = NULL;
    SHOAL_TRY(status, shoali_checkpoint_find(dir, tag, true, &found, &manifest), done);
    const json_t *engine = json_object_get(manifest, "engine");
    const json_t *client = json_object_get(manifest, "client");
    const json_t *model = json_object_get(client, "model");
    const json_t *tokenizer = json_object_get(client, "tokenizer");
    say_head(dir, found, manifest, out);
    say_object("engine", engine, out);
    if (json_is_object(json_object_get(engine, "loss_scaler")))
        say_object("loss scaler", json_object_get(engine, "loss_scaler"), out);
    if (json_is_object(json_object_get(engine, "options")))
        say_object("options", json_object_get(engine, "options"), out);
    if (json_is_object(model))
        say_object("model", model, out);
    if (json_is_object(tokenizer))
        say_object("tokenizer", tokenizer, out);
    say_kinds(json_object_get(manifest, "kinds"), out);
    if (tensors)
        say_tensors(manifest, out);
    if (out->failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the lines about a checkpoint");
done:
    json_decref(manifest);
    free(found);
    return status;
}

shoal_status shoali_checkpoint_each(const char *dir,
                                    shoal_status (*visit)(void *user, const char *tag), void *user)
{
    shoal_status status = SHOAL_OK;
    struct dirent **entries = NULL;
    const int count = scandir(dir, &entries, NULL, versionsort);
    if (count < 0)
        return SHOAL_FAIL(shoali_path_status(errno), "%s: cannot read: %s", dir, strerror(errno));
    for (int i = 0; i < count; i++) {
        const char *tag = entries[i]->d_name;
        struct shoali_str path = {0};
        bool folder = false, manifest = false;
        shoali_str_append(&path, "%s/manifest.json", tag);
        if (status == SHOAL_OK && *tag != '.' && shoali_checkpoint_tag_valid(tag))
            status = shoali_checkpoint_is_folder(dir, tag, &folder);
        if (status == SHOAL_OK && folder)
            status = shoali_checkpoint_exists(dir, shoali_str_get(&path), &manifest);
        if (status == SHOAL_OK && manifest)
            status = visit(user, tag);
        shoali_str_fini(&path);
        free(entries[i]);
    }
    free(entries);
    return status;
}
