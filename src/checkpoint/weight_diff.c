/* Weights of two folders side by side, of which one at least is no checkpoint of ours. */
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/weight_folder.h"
#include "checkpoint/weight_source.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 1 << 18 };

struct side {
    const char *path;
    struct shoali_weight_folder folder;
    float *values; /* AT_ONCE */
};
struct weight_diff {
    struct side side[2];
    struct shoali_str *out;
    bool equal;
    /* differences of elements */
    const char *tensor; /* of the first; NULL: none */
    int64_t element, count, elements;
    double largest;
};

bool shoali_weight_folder_probe(const char *path)
{
    if (shoali_has_file(path, "manifest.json"))
        return false;
    if (shoali_weight_source_find(path))
        return true;
    return !shoali_has_file(path, "latest") &&
           (shoali_has_file(path, "model.safetensors") ||
            shoali_has_file(path, "model.safetensors.index.json") ||
            shoali_has_file(path, "pytorch_model.bin") ||
            shoali_has_file(path, "pytorch_model.bin.index.json"));
}

/* Of a checkpoint of ours: fp32 weights where the other side has them. */
static shoal_status open_own(struct side *side, const struct side *other)
{
    shoal_status status;
    char *tag = NULL;
    json_t *manifest = NULL;
    struct shoali_str path = {0};
    const bool itself = shoali_has_file(side->path, "manifest.json");
    if (!itself)
        SHOAL_TRY(status, shoali_checkpoint_find(side->path, NULL, true, &tag, &manifest), done);
    shoali_str_append(&path, "%s%s%s", side->path, itself ? "" : "/", itself ? "" : tag);
    status = path.failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path") : SHOAL_ENOENT;
    const bool wide = other->folder.tensor_count > 0 && other->folder.tensor[0].dtype == SHOAL_F32;
    if (status == SHOAL_ENOENT && wide)
        status = shoali_weight_folder_open_kind(&side->folder, path.text, "master");
    if (status == SHOAL_ENOENT) {
        shoali_weight_folder_close(&side->folder);
        status = shoali_weight_folder_open_kind(&side->folder, path.text, "model");
    }
done:
    shoali_str_fini(&path);
    json_decref(manifest);
    free(tag);
    return status;
}

/* What wrappers put in front of names. */
static const char *bare(const char *name)
{
    return strncmp(name, "module.", 7) == 0 ? name + 7 : name;
}

static int32_t find(const struct shoali_weight_folder *folder, const char *name)
{
    for (int32_t i = 0; i < folder->tensor_count; i++)
        if (strcmp(bare(folder->tensor[i].weight->name), bare(name)) == 0)
            return i;
    return -1;
}

static void compare_values(struct weight_diff *diff, const char *name, int64_t first, int64_t count)
{
    const float *a = diff->side[0].values, *b = diff->side[1].values;
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) == 0)
            continue;
        if (!diff->tensor) {
            diff->tensor = name;
            diff->element = first + i;
        }
        diff->count++;
        diff->largest = fmax(diff->largest, fabs((double)a[i] - (double)b[i]));
    }
}

static shoal_status compare_tensor(struct weight_diff *diff, int32_t a, int32_t b)
{
    shoal_status status = SHOAL_OK;
    const int32_t index[] = {a, b};
    const struct shoali_folder_tensor *tensor = &diff->side[0].folder.tensor[a];
    const int64_t count = shoal_shape_count(&tensor->shape);
    for (int64_t at = 0; at < count; at += AT_ONCE) {
        const int64_t part = count - at < AT_ONCE ? count - at : AT_ONCE;
        for (int s = 0; s < 2; s++)
            SHOAL_TRY(status,
                      shoali_weight_folder_read(&diff->side[s].folder, index[s], at, part,
                                                SHOAL_F32, diff->side[s].values),
                      done);
        compare_values(diff, bare(tensor->weight->name), at, part);
    }
    diff->elements += count;
done:
    return status;
}

static void unequal(struct weight_diff *diff, const char *name, const char *what)
{
    shoali_str_append(diff->out, "weights: `%s` %s\n", bare(name), what);
    diff->equal = false;
}

static shoal_status compare(struct weight_diff *diff)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_weight_folder *a = &diff->side[0].folder, *b = &diff->side[1].folder;
    for (int32_t i = 0; i < a->tensor_count; i++) {
        const struct shoali_folder_tensor *mine = &a->tensor[i];
        const int32_t other = find(b, mine->weight->name);
        const bool mine_read = mine->dtype != SHOAL_DTYPE_COUNT;
        const bool other_read = other >= 0 && b->tensor[other].dtype != SHOAL_DTYPE_COUNT;
        if (other < 0)
            unequal(diff, mine->weight->name, "is only in the first");
        else if (!shoali_shape_equal(&mine->shape, &b->tensor[other].shape))
            unequal(diff, mine->weight->name, "has another shape in the second");
        else if (mine_read && other_read)
            SHOAL_TRY(status, compare_tensor(diff, i, other), done);
        else if (mine_read || other_read) /* masks of old files are in both */
            unequal(diff, mine->weight->name, "is of a type that is not read");
    }
    for (int32_t i = 0; i < b->tensor_count; i++)
        if (find(a, b->tensor[i].weight->name) < 0)
            unequal(diff, b->tensor[i].weight->name, "is only in the second");
    if (diff->tensor)
        shoali_str_append(diff->out,
                          "weights: first difference in `%s`, element %lld; %lld of %lld elements "
                          "differ, by at most %.3g\n",
                          diff->tensor, (long long)diff->element, (long long)diff->count,
                          (long long)diff->elements, diff->largest);
    diff->equal = diff->equal && !diff->tensor;
done:
    return status;
}

shoal_status shoali_weight_diff(const char *const paths[2], struct shoali_str *out, bool *equal)
{
    shoal_status status = SHOAL_OK;
    struct weight_diff diff = {.out = out, .equal = true};
    for (int s = 0; s < 2; s++) {
        diff.side[s].path = paths[s];
        diff.side[s].values = shoali_malloc(AT_ONCE * sizeof(float), "a piece of a weight");
        if (!diff.side[s].values) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        if (shoali_weight_folder_probe(paths[s]))
            SHOAL_TRY(status, shoali_weight_folder_open(&diff.side[s].folder, paths[s]), done);
    }
    for (int s = 0; s < 2; s++)
        if (!shoali_weight_folder_probe(paths[s]))
            SHOAL_TRY(status, open_own(&diff.side[s], &diff.side[1 - s]), done);
    SHOAL_TRY(status, compare(&diff), done);
    if (diff.equal)
        shoali_str_append(out, "equal: every bit of every weight as fp32\n");
    *equal = diff.equal;
done:
    for (int s = 0; s < 2; s++) {
        shoali_weight_folder_close(&diff.side[s].folder);
        shoali_free(diff.side[s].values);
    }
    return status;
}
