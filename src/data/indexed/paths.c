/* From the words of --data-path and --split to the parts of each split. */
#include "data/indexed/indexed.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const path_flags[SHOAL_SPLIT_COUNT] = {"--train-data-path", "--valid-data-path",
                                                          "--test-data-path"};
#define DEFAULT_SPLIT "969,30,1"

/* ---- words ---- */

/* A number as Python's float() reads it, as far as weights go. */
static bool is_weight(const char *word, double *weight)
{
    return shoali_parse_f64(word, weight);
}

static void blend_list_fini(struct shoali_blend_list *list)
{
    shoali_free(list->prefix);
    shoali_free(list->weight);
    *list = (struct shoali_blend_list){0};
}

/* An odd number of words, or no number in front of any, is a list without weights. */
static shoal_status find_weights(const char *const *words, int32_t count, bool *weighted)
{
    int32_t numbers = 0;
    double weight;
    *weighted = false;
    if (count % 2 == 1)
        return SHOAL_OK;
    for (int32_t i = 0; i < count; i += 2)
        numbers += is_weight(words[i], &weight);
    *weighted = numbers > 0;
    if (numbers == 0 || numbers == count / 2)
        return SHOAL_OK;
    for (int32_t i = 0; i < count; i += 2)
        if (!is_weight(words[i], &weight))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "data blend: `%s` stands where the weight of %s should: give WEIGHT "
                              "PREFIX pairs, or prefixes alone",
                              words[i], words[i + 1]);
    return SHOAL_OK;
}

static shoal_status blend_list_parse(const char *const *words, int32_t count,
                                     struct shoali_blend_list *list)
{
    shoal_status status;
    bool weighted;
    *list = (struct shoali_blend_list){0};
    SHOAL_TRY(status, find_weights(words, count, &weighted), done);
    const int32_t step = weighted ? 2 : 1;
    list->count = count / step;
    list->prefix = shoali_calloc((size_t)list->count + 1, sizeof *list->prefix, "a data blend");
    list->weight =
        weighted ? shoali_calloc((size_t)list->count, sizeof(double), "a data blend") : NULL;
    if (!list->prefix || (weighted && !list->weight)) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    for (int32_t i = 0; i < list->count; i++) {
        list->prefix[i] = words[step * i + step - 1];
        if (weighted)
            (void)is_weight(words[step * i], &list->weight[i]);
    }
done:
    if (status < 0)
        blend_list_fini(list);
    return status;
}

/* ---- what the paths are ---- */

static bool exists(const char *path, const char *suffix)
{
    struct stat info;
    char name[PATH_MAX]; /* no file has a longer one */
    return snprintf(name, sizeof name, "%s%s", path, suffix) < (int)sizeof name &&
           stat(name, &info) == 0;
}

/* P, P.idx or P.bin of a pair that is there. */
static bool is_pair(const char *word)
{
    const size_t length = strlen(word);
    if (exists(word, ".idx") && (exists(word, ".bin") || !exists(word, "")))
        return true;
    if (length < 5 || (strcmp(word + length - 4, ".bin") && strcmp(word + length - 4, ".idx")))
        return false;
    char prefix[PATH_MAX];
    return snprintf(prefix, sizeof prefix, "%.*s", (int)(length - 4), word) < (int)sizeof prefix &&
           exists(prefix, ".idx") && exists(prefix, ".bin");
}

/* Files and folders that all are there, and no pair: text, whatever their names look like. */
static bool is_text(const char *const *words, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (!exists(words[i], "") || is_pair(words[i]))
            return false;
    return true;
}

static shoal_status recognize_list(const char *const *words, int32_t count, int32_t *pairs,
                                   const char **other)
{
    shoal_status status;
    struct shoali_blend_list list;
    SHOAL_TRY(status, blend_list_parse(words, count, &list), done);
    for (int32_t i = 0; i < list.count; i++) {
        if (is_pair(list.prefix[i]))
            ++*pairs;
        else if (!*other || list.weight)
            *other = list.prefix[i];
    }
    if (list.weight && *other && exists(*other, ""))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s is text, which has no weight in a blend: make data files of it "
                            "first, with shoal preprocess",
                            *other);
    else if (list.weight && *other)
        status = SHOAL_FAIL(SHOAL_ENOENT, "%s.idx: no such file", *other);
    blend_list_fini(&list);
done:
    return status;
}

shoal_status shoali_indexed_recognize(const shoal_dataset_args *args, bool *indexed)
{
    shoal_status status = SHOAL_OK;
    const char *other = NULL;
    int32_t pairs = 0;
    *indexed = false;
    if (args->mock)
        return SHOAL_OK;
    if (!is_text(args->paths, args->path_count))
        SHOAL_TRY(status, recognize_list(args->paths, args->path_count, &pairs, &other), done);
    if (pairs > 0 && other && exists(other, ""))
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s is text, but other data paths are data files of Megatron's: give "
                            "one kind; shoal preprocess makes data files of JSON lines",
                            other);
    *indexed = pairs > 0;
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        *indexed |= args->split_path_count[p] > 0;
done:
    return status;
}

/* ---- split ---- */

/* Megatron's rule: numbers of a text, padded to three, as cumulated fractions; "969,30,1" for NULL.
 * SHOAL_EINVAL: none is positive. */
static shoal_status split_fractions(const char *text, double cut[SHOAL_SPLIT_COUNT + 1])
{
    double weight[SHOAL_SPLIT_COUNT] = {0}, sum = 0;
    int parts = 0;
    const char *spec = text ? text : DEFAULT_SPLIT;
    for (const char *at = spec; *at;) {
        const size_t length = strspn(at, ".0123456789");
        char number[64];
        if (length == 0) {
            at++;
            continue;
        }
        snprintf(number, sizeof number, "%.*s", (int)length, at);
        if (parts == SHOAL_SPLIT_COUNT || length >= sizeof number ||
            !shoali_parse_f64(number, &weight[parts++]))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "split `%s`: give up to three weights such as 969,30,1: train, "
                              "validation, test",
                              spec);
        at += length;
    }
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        sum += weight[p];
    if (!(sum > 0) || !isfinite(sum))
        return SHOAL_FAIL(SHOAL_EINVAL, "split `%s`: no weight is positive", spec);
    cut[0] = 0;
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        cut[p + 1] = cut[p] + weight[p] / sum;
    return SHOAL_OK;
}

/* ---- parts ---- */

static shoal_status open_file(struct shoali_indexed_data *data, const char *prefix,
                              const struct shoali_indexed **file)
{
    shoal_status status;
    for (int32_t i = 0; i < data->file_count; i++)
        if (strcmp(data->file[i]->prefix, prefix) == 0) {
            *file = data->file[i];
            return SHOAL_OK;
        }
    struct shoali_indexed **grown =
        realloc(data->file, ((size_t)data->file_count + 1) * sizeof *grown);
    if (!grown)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a list of data files");
    data->file = grown;
    SHOAL_TRY(status, shoali_indexed_open(prefix, &data->file[data->file_count]), done);
    *file = data->file[data->file_count++];
done:
    return status;
}

static shoal_status check_list(const struct shoali_blend_list *list)
{
    if (list->count > SHOALI_BLEND_PARTS_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL, "a blend of %d data files; at most %d can be numbered",
                          (int)list->count, SHOALI_BLEND_PARTS_MAX);
    for (int32_t i = 0; list->weight && i < list->count; i++)
        if (!(list->weight[i] > 0) || !isfinite(list->weight[i]))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "the weight of %s in the data blend is %g: weights are positive",
                              list->prefix[i], list->weight[i]);
    return SHOAL_OK;
}

/* [begin, end) as fractions of the file, in sequences or in documents. */
static shoal_status cut_part(const struct shoali_indexed_data *data, double begin, double end,
                             struct shoali_part *part)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_indexed *file = part->file;
    const int64_t all = data->by_documents ? file->boundary_count - 1 : file->sequence_count;
    const int64_t last = (int64_t)rint(end * (double)all);
    part->first = (int64_t)rint(begin * (double)all);
    part->end = last > all ? all : last;
    if (!data->by_documents)
        return SHOAL_OK;
    part->first_document = part->first;
    part->end_document = part->end;
    SHOAL_TRY(status, shoali_indexed_boundaries(file, part->first_document, 1, &part->first), done);
    SHOAL_TRY(status, shoali_indexed_boundaries(file, part->end_document, 1, &part->end), done);
done:
    return status;
}

/* The parts of one split, each its share of its file. */
static shoal_status add_parts(struct shoali_indexed_data *data,
                              const struct shoali_blend_list *list, int p, double begin, double end)
{
    shoal_status status;
    struct shoali_indexed_split *split = &data->split[p];
    SHOAL_TRY(status, check_list(list), done);
    if (list->count == 0 || begin == end)
        return SHOAL_OK;
    split->part = shoali_calloc((size_t)list->count, sizeof *split->part, "a data blend");
    if (!split->part)
        return SHOAL_ENOMEM;
    split->weighted = list->weight != NULL;
    split->count = list->count;
    for (int32_t i = 0; i < list->count; i++) {
        struct shoali_part *part = &split->part[i];
        SHOAL_TRY(status, open_file(data, list->prefix[i], &part->file), done);
        part->weight = list->weight ? list->weight[i] : 0;
        SHOAL_TRY(status, cut_part(data, begin, end, part), done);
        SHOAL_TRY(status, shoali_indexed_count(part->file, part->first, part->end, &part->tokens),
                  done);
    }
done:
    return status;
}

static shoal_status add_one_blend(struct shoali_indexed_data *data, const shoal_dataset_args *args)
{
    shoal_status status;
    struct shoali_blend_list list = {0};
    double cut[SHOAL_SPLIT_COUNT + 1];
    SHOAL_TRY(status, split_fractions(args->split, cut), done);
    SHOAL_TRY(status, blend_list_parse(args->paths, args->path_count, &list), done);
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        SHOAL_TRY(status, add_parts(data, &list, p, cut[p], cut[p + 1]), done);
done:
    blend_list_fini(&list);
    return status;
}

static shoal_status add_split_blends(struct shoali_indexed_data *data,
                                     const shoal_dataset_args *args)
{
    shoal_status status = SHOAL_OK;
    struct shoali_blend_list list = {0};
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++) {
        SHOAL_TRY(status, blend_list_parse(args->split_paths[p], args->split_path_count[p], &list),
                  done);
        status = add_parts(data, &list, p, 0, 1);
        if (status < 0) {
            shoali_error_prefix(status, "%s", path_flags[p]);
            goto done;
        }
        blend_list_fini(&list);
    }
done:
    blend_list_fini(&list);
    return status;
}

/* ---- the data ---- */

static shoal_status copy_text(const char *from, char **to)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to ? SHOAL_OK : SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a name");
}

static void hash_all(struct shoali_indexed_data *data)
{
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        for (int32_t i = 0; i < data->split[p].count; i++) {
            const struct shoali_part *part = &data->split[p].part[i];
            const uint64_t words[] = {part->file->hash, (uint64_t)part->first, (uint64_t)part->end,
                                      (uint64_t)p};
            data->hash = shoali_hash64_seeded(words, sizeof words, data->hash);
            data->hash = shoali_hash64_seeded(&part->weight, sizeof part->weight, data->hash);
        }
}

shoal_status shoali_indexed_data_open(const shoal_dataset_args *args,
                                      struct shoali_indexed_data **data)
{
    shoal_status status;
    bool per_split = false;
    struct shoali_indexed_data *made = shoali_calloc(1, sizeof *made, "data files");
    *data = NULL;
    if (!made)
        return SHOAL_ENOMEM;
    made->by_documents = args->split_documents;
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        per_split |= args->split_path_count[p] > 0;
    if (per_split && (args->path_count > 0 || args->split)) {
        status = SHOAL_FAIL(
            SHOAL_EINVAL,
            "%s and data paths of each split exclude each other: give only one of the two",
            args->path_count > 0 ? "--data-path" : "--split");
        goto done;
    }
    SHOAL_TRY(status, copy_text(args->cache_path, &made->cache_path), done);
    SHOAL_TRY(status,
              copy_text(per_split     ? "none"
                        : args->split ? args->split
                                      : DEFAULT_SPLIT,
                        &made->split_text),
              done);
    if (per_split)
        SHOAL_TRY(status, add_split_blends(made, args), done);
    else
        SHOAL_TRY(status, add_one_blend(made, args), done);
    SHOAL_TRY(status, shoali_indexed_find_vocabulary(made, args), done);
    hash_all(made);
    *data = made;
    made = NULL;
done:
    shoali_indexed_data_close(made);
    return status;
}

void shoali_indexed_data_close(struct shoali_indexed_data *data)
{
    if (!data)
        return;
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        shoali_free(data->split[p].part);
    for (int32_t i = 0; i < data->file_count; i++)
        shoali_indexed_close(data->file[i]);
    free(data->file);
    free(data->split_text);
    free(data->cache_path);
    free(data->report);
    if (data->tokenizer)
        shoali_data_tokenizers[0]->destroy(data->tokenizer);
    shoali_free(data);
}

int64_t shoali_indexed_data_bytes(const struct shoali_indexed_data *data)
{
    struct shoali_tokenizer_facts facts = {0};
    int64_t bytes = (int64_t)sizeof *data;
    for (int p = 0; p < SHOAL_SPLIT_COUNT; p++)
        bytes += data->split[p].count * (int64_t)sizeof(struct shoali_part);
    bytes += data->file_count * (int64_t)(sizeof(struct shoali_indexed) + sizeof(void *));
    if (data->tokenizer)
        shoali_data_tokenizers[0]->get_facts(data->tokenizer, &facts);
    return bytes + facts.host_bytes;
}
