/* Which tensor of a folder is which of a model. */
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/weight_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tensors in one sentence; of another shape few say it, for one option changes most. */
enum { LISTED_MAX = 8, MISFITS_MAX = 2, NAME_BYTES = 512 };

void shoali_checkpoint_wrong_add(struct shoali_checkpoint_wrong *wrong, const char *what,
                                 const char *name, const char *detail)
{
    wrong->count++;
    if (wrong->listed == LISTED_MAX || (*detail && wrong->misfits > MISFITS_MAX))
        return;
    shoali_str_append(&wrong->text, "%s%s `%s`%s", wrong->listed++ > 0 ? ", " : "", what, name,
                      detail);
}

const char *shoali_checkpoint_wrong_text(struct shoali_checkpoint_wrong *wrong)
{
    if (wrong->count > wrong->listed)
        shoali_str_append(&wrong->text, " and %d more", wrong->count - wrong->listed);
    wrong->count = wrong->listed = 0;
    return shoali_str_get(&wrong->text);
}

/* ---- names ---------------------------------------------------------------------------------- */

/* How names of a folder differ from ours: `ours` in front is `theirs`. */
struct spelling {
    const char *ours, *theirs;
};
static const struct spelling spellings[] = {
    {"", ""},        {"transformer.", ""}, {"model.", ""},       {"bert.", ""},  {"gpt_neox.", ""},
    {"", "module."}, {"", "_orig_mod."},   {"", "transformer."}, {"", "model."},
};
enum { SPELLINGS = sizeof spellings / sizeof spellings[0] };

/* Old files of TensorFlow's norms; the output matrix of GPT-NeoX, which has two names. */
static const struct spelling endings[] = {
    {"embed_out.weight", "lm_head.weight"},
    {"LayerNorm.weight", "LayerNorm.gamma"},
    {"LayerNorm.bias", "LayerNorm.beta"},
};

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static int32_t find_ending(const struct shoali_weight_folder *folder, const char *name)
{
    char other[NAME_BYTES];
    const int32_t found = shoali_weight_folder_find(folder, name);
    if (found >= 0)
        return found;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t keep = strlen(name) - strlen(endings[i].ours);
        if (!ends_with(name, endings[i].ours) || strlen(name) + 8 >= sizeof other)
            continue;
        snprintf(other, sizeof other, "%.*s%s", (int)keep, name, endings[i].theirs);
        return shoali_weight_folder_find(folder, other);
    }
    return -1;
}

static int32_t find_as(const struct shoali_weight_folder *folder, const char *name,
                       const struct spelling *as)
{
    char other[NAME_BYTES];
    const size_t skip = strlen(as->ours);
    if (strncmp(name, as->ours, skip) != 0)
        return find_ending(folder, name);
    if (snprintf(other, sizeof other, "%s%s", as->theirs, name + skip) >= (int)sizeof other)
        return -1;
    return find_ending(folder, other);
}

/* A tied tensor may be there under its other name alone. */
static int32_t find_tied(const struct shoali_weight_folder *folder,
                         const struct shoali_weight_want *want, const char *name,
                         const struct spelling *as)
{
    int32_t found = find_as(folder, name, as);
    for (int32_t i = 0; i < want->alias_count && found < 0; i++)
        if (strcmp(want->aliases[i].primary, name) == 0)
            found = find_as(folder, want->aliases[i].name, as);
    return found;
}

/* The spelling that finds most; of equals the first. */
static const struct spelling *choose_spelling(const struct shoali_weight_folder *folder,
                                              const struct shoali_weight_want *want)
{
    int32_t best = -1, chosen = 0;
    for (int32_t s = 0; s < SPELLINGS; s++) {
        int32_t count = 0;
        for (int32_t i = 0; i < want->count; i++)
            count += find_as(folder, want->names[i], &spellings[s]) >= 0;
        if (count > best) {
            best = count;
            chosen = s;
        }
    }
    return &spellings[chosen];
}

/* ---- what is passed over -------------------------------------------------------------------- */

/* Whether a name that no model asks for is passed over. */
static bool is_buffer(const char *name)
{
    static const char *const ends[] = {
        ".attn.bias",
        ".attn.masked_bias",
        ".attention.bias",
        ".attention.masked_bias",
        "rotary_emb.inv_freq",
        "position_ids",
        "rotary_emb.cos_cached",
        "rotary_emb.sin_cached",
        "token_type_ids",
        "predictions.decoder.bias",
    };
    /* heads that a model may do without */
    static const char *const heads[] = {"pooler.dense.", "cls.seq_relationship."};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends_with(name, ends[i]))
            return true;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (strstr(name, heads[i]))
            return true;
    return false;
}

/* ---- matching ------------------------------------------------------------------------------- */

static bool shape_fits(const struct shoali_folder_tensor *stored, const shoal_shape *shape,
                       int64_t vocab_rows)
{
    if (shoali_shape_equal(&stored->shape, shape))
        return true;
    shoal_shape padded = stored->shape;
    if (vocab_rows <= 0 || padded.ndim < 1 || padded.ndim != shape->ndim ||
        padded.dim[0] != vocab_rows)
        return false;
    padded.dim[0] = shape->dim[0];
    return shoali_shape_equal(&padded, shape);
}

/* Looks at what was found for one name; false: it is there, and cannot be taken. */
static bool compare(const struct shoali_weight_folder *folder,
                    const struct shoali_weight_want *want, int32_t index, int32_t found,
                    struct shoali_checkpoint_wrong *wrong)
{
    char got[128], shape[128], detail[400];
    const struct shoali_folder_tensor *stored = found >= 0 ? &folder->tensor[found] : NULL;
    const char *name = want->names[index];
    if (!stored) {
        shoali_checkpoint_wrong_add(wrong, "missing", name, "");
    } else if (!shape_fits(stored, &want->shapes[index], want->vocab_rows)) {
        snprintf(detail, sizeof detail, " (is %s, the model has %s)",
                 stored->shape.ndim < 0 ? "of too many dimensions"
                                        : shoali_shape_format(&stored->shape, got),
                 shoali_shape_format(&want->shapes[index], shape));
        shoali_checkpoint_wrong_add(wrong, "of another shape", name, detail);
        return false;
    } else if (stored->dtype == SHOAL_DTYPE_COUNT) {
        snprintf(detail, sizeof detail, " (is %.60s; F32, BF16, F16 and F64 can be read)",
                 shoali_file_tensor_type(stored->weight));
        shoali_checkpoint_wrong_add(wrong, "of another type", name, detail);
        return false;
    }
    return true;
}

static bool is_tied(const struct shoali_weight_folder *folder,
                    const struct shoali_weight_want *want, const struct spelling *as,
                    int32_t tensor)
{
    for (int32_t i = 0; i < want->alias_count; i++)
        if (find_as(folder, want->aliases[i].name, as) == tensor)
            return true;
    return false;
}

static void list_extra(const struct shoali_weight_folder *folder,
                       const struct shoali_weight_want *want, const struct spelling *as,
                       const bool *used, struct shoali_checkpoint_wrong *wrong)
{
    for (int32_t i = 0; i < folder->tensor_count; i++)
        if (!used[i] && !is_buffer(folder->tensor[i].weight->name) && !is_tied(folder, want, as, i))
            shoali_checkpoint_wrong_add(wrong, "extra", folder->tensor[i].weight->name, "");
}

shoal_status shoali_weight_match(const struct shoali_weight_folder *folder,
                                 const struct shoali_weight_want *want, int32_t *found)
{
    shoal_status status = SHOAL_OK;
    struct shoali_checkpoint_wrong wrong = {0};
    bool fits = true;
    const struct spelling *as = choose_spelling(folder, want);
    bool *used = shoali_calloc((size_t)folder->tensor_count + 1, sizeof *used, "tensors in use");
    if (!used)
        return SHOAL_ENOMEM;
    for (int32_t i = 0; i < want->count; i++) {
        found[i] = find_tied(folder, want, want->names[i], as);
        if (found[i] >= 0)
            used[found[i]] = true;
        fits = compare(folder, want, i, found[i], &wrong) && fits;
    }
    list_extra(folder, want, as, used, &wrong);
    const bool any = wrong.count > 0;
    const char *text = shoali_checkpoint_wrong_text(&wrong);
    if (any && (!want->not_strict || !fits))
        status = SHOAL_FAIL(SHOAL_EINVAL, "the weights in %s do not match this model: %s",
                            folder->dir, text);
    else if (any && !want->quiet)
        SHOALI_WARN("checkpoint", "the weights in %s do not fully match this model: %s",
                    folder->dir, text);
    shoali_str_fini(&wrong.text);
    shoali_free(used);
    return status;
}

/* ---- tied tensors --------------------------------------------------------------------------- */

static int32_t found_for(const struct shoali_weight_want *want, const char *name,
                         const int32_t *found)
{
    for (int32_t i = 0; i < want->count; i++)
        if (strcmp(want->names[i], name) == 0)
            return found[i];
    return -1;
}

/* Reads both in pieces. */
static shoal_status compare_two(struct shoali_weight_folder *folder, int32_t a, int32_t b,
                                float *piece)
{
    shoal_status status = SHOAL_OK;
    enum { HALF = SHOALI_WEIGHT_PIECE_BYTES / (int)sizeof(float) / 2 };
    const struct shoali_folder_tensor *x = &folder->tensor[a], *y = &folder->tensor[b];
    const int64_t count = shoal_shape_count(&x->shape);
    bool equal = shoali_shape_equal(&x->shape, &y->shape) && y->dtype != SHOAL_DTYPE_COUNT;
    for (int64_t at = 0; equal && at < count; at += HALF) {
        const int64_t part = count - at < HALF ? count - at : HALF;
        SHOAL_TRY(status, shoali_weight_folder_read(folder, a, at, part, SHOAL_F32, piece), done);
        SHOAL_TRY(status, shoali_weight_folder_read(folder, b, at, part, SHOAL_F32, piece + HALF),
                  done);
        equal = memcmp(piece, piece + HALF, (size_t)part * sizeof *piece) == 0;
    }
    if (!equal)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: `%s` and `%s` differ, but config.json says that they are tied: "
                            "set tie_word_embeddings to false there, or remove one of the two",
                            folder->dir, x->weight->name, y->weight->name);
done:
    return status;
}

shoal_status shoali_weight_compare_tied(struct shoali_weight_folder *folder,
                                        const struct shoali_weight_want *want, const int32_t *found)
{
    shoal_status status = SHOAL_OK;
    const struct spelling *as = choose_spelling(folder, want);
    float *piece = NULL;
    for (int32_t i = 0; i < want->alias_count; i++) {
        const int32_t second = find_as(folder, want->aliases[i].name, as);
        const int32_t first = found_for(want, want->aliases[i].primary, found);
        if (second < 0 || first < 0 || first == second)
            continue;
        if (!piece)
            piece = shoali_malloc(SHOALI_WEIGHT_PIECE_BYTES, "tied weights");
        if (!piece)
            return SHOAL_ENOMEM;
        SHOAL_TRY(status, compare_two(folder, first, second, piece), done);
    }
done:
    shoali_free(piece);
    return status;
}
