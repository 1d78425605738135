/* Opens the samples of a split: makes the maps of its parts and of their blend where there are
 * none. */
#include "data/indexed/samples.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 4096 /* numbers of a map that are written at once */

static const char *const split_names[SHOAL_SPLIT_COUNT] = {"train", "valid", "test"};
static const char *const split_words[SHOAL_SPLIT_COUNT] = {"train", "validation", "test"};
static const char *const gpt_names[] = {"document_index", "sample_index", "shuffle_index"};
static const char *const blend_names[] = {"dataset_index", "dataset_sample_index"};

/* ---- descriptions: what a cached map depends on, as Megatron writes it ---- */

void shoali_describe_text(struct shoali_str *out, const char *key, const char *text)
{
    shoali_str_append(out, "    \"%s\": \"", key);
    for (; *text; text++)
        shoali_str_append(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    shoali_str_append(out, "\",\n");
}

static void describe_part(const struct shoali_samples *samples, const struct shoali_gpt_part *part,
                          struct shoali_str *out)
{
    const struct shoali_gpt_args *args = &part->args;
    if (samples->masked) {
        shoali_masked_describe(samples, part, out);
        return;
    }
    shoali_str_append(out, "{\n    \"class\": \"GPTDataset\",\n");
    shoali_describe_text(out, "dataset_path", part->file->prefix);
    shoali_str_append(out, "    \"num_samples\": %lld,\n", (long long)args->sample_count);
    shoali_describe_text(out, "index_split", samples->split);
    shoali_str_append(out, "    \"random_seed\": %lu,\n    \"sequence_length\": %lld,\n",
                      (unsigned long)args->seed, (long long)args->seq_length);
    shoali_describe_text(out, "split", samples->data->split_text);
    shoali_str_append(out,
                      "    \"sequences\": [%lld, %lld],\n    \"drop_last_partial\": %s,\n"
                      "    \"add_extra_token\": %s,\n    \"files\": \"%016llx\"\n}",
                      (long long)args->first, (long long)(args->first + args->sequence_count),
                      args->keep_last_partial ? "false" : "true",
                      args->no_extra_token ? "false" : "true",
                      (unsigned long long)part->file->state);
}

static void describe_blend(const struct shoali_samples *samples, const double *weight,
                           struct shoali_str *out)
{
    shoali_str_append(out, "{\n    \"class\": \"BlendedDataset\",\n");
    shoali_describe_text(out, "split", samples->split);
    shoali_str_append(out, "    \"size\": %lld,\n    \"weights\": [", (long long)samples->count);
    for (int32_t i = 0; weight && i < samples->part_count; i++)
        shoali_str_append(out, "%s%.17g", i ? ", " : "", weight[i]);
    shoali_str_append(out, "],\n    \"datasets\": [\n");
    for (int32_t i = 0; i < samples->part_count; i++) {
        describe_part(samples, &samples->part[i], out);
        shoali_str_append(out, i + 1 < samples->part_count ? ",\n" : "\n]}");
    }
}

/* ---- making the maps of a part ---- */

struct pairs {
    struct shoali_npy file;
    int32_t block[2 * BLOCK];
    int64_t filled;
};

static shoal_status put_pair(void *user, int64_t place, int64_t offset)
{
    struct pairs *pairs = user;
    pairs->block[pairs->filled++] = (int32_t)place;
    pairs->block[pairs->filled++] = (int32_t)offset;
    if (pairs->filled < 2 * BLOCK)
        return SHOAL_OK;
    pairs->filled = 0;
    return shoali_npy_put(&pairs->file, pairs->block, 2 * BLOCK);
}

static shoal_status write_map(const char *path, char kind, size_t width, int64_t rows,
                              const void *numbers)
{
    shoal_status status;
    struct shoali_npy file = {.descriptor = -1};
    SHOAL_TRY(status, shoali_npy_create(path, kind, width, rows, 1, &file), done);
    SHOAL_TRY(status, shoali_npy_put(&file, numbers, rows), done);
    SHOAL_TRY(status, shoali_npy_finish(&file), done);
done:
    shoali_npy_close(&file);
    return status;
}

static shoal_status write_samples(const struct shoali_gpt_part *part, const int32_t *document,
                                  const char *path)
{
    shoal_status status = SHOAL_ENOMEM;
    struct pairs *pairs = shoali_calloc(1, sizeof *pairs, "a sample index");
    int32_t *lengths = shoali_malloc((size_t)part->args.sequence_count * sizeof *lengths,
                                     "the lengths of sequences");
    if (pairs)
        pairs->file.descriptor = -1;
    if (!pairs || !lengths)
        goto done;
    SHOAL_TRY(
        status,
        shoali_indexed_lengths(part->file, part->args.first, part->args.sequence_count, lengths),
        done);
    SHOAL_TRY(status, shoali_npy_create(path, 'i', 4, part->shape.samples + 1, 2, &pairs->file),
              done);
    SHOAL_TRY(
        status,
        shoali_gpt_sample_index(&part->args, &part->shape, lengths, document, put_pair, pairs),
        done);
    SHOAL_TRY(status, shoali_npy_put(&pairs->file, pairs->block, pairs->filled), done);
    SHOAL_TRY(status, shoali_npy_finish(&pairs->file), done);
done:
    if (pairs)
        shoali_npy_close(&pairs->file);
    shoali_free(pairs);
    shoali_free(lengths);
    return status;
}

static shoal_status make_gpt(void *user, const char *const *path)
{
    shoal_status status;
    const struct shoali_gpt_part *part = user;
    const struct shoali_gpt_shape *shape = &part->shape;
    const int64_t places = shape->epochs * part->args.sequence_count;
    struct shoali_mt19937 generator;
    void *shuffle = NULL;
    int32_t *document = shoali_malloc((size_t)places * sizeof *document, "a document index");
    if (!document)
        return SHOAL_ENOMEM;
    shoali_mt19937_init(&generator, part->args.seed);
    shoali_gpt_document_index(&part->args, shape, &generator, document);
    SHOAL_TRY(status, write_map(path[SHOALI_DOCUMENT], 'i', 4, places, document), done);
    SHOAL_TRY(status, write_samples(part, document, path[SHOALI_SAMPLE]), done);
    shoali_free(document);
    document = NULL;
    SHOAL_TRY(status, shoali_gpt_shuffle_index(shape, &generator, &shuffle), done);
    const size_t width = shoali_gpt_shuffle_width(shape->samples);
    SHOAL_TRY(
        status,
        write_map(path[SHOALI_SHUFFLE], width == 4 ? 'u' : 'i', width, shape->samples, shuffle),
        done);
done:
    shoali_free(document);
    shoali_free(shuffle);
    return status;
}

shoal_status shoali_samples_open_maps(const struct shoali_samples *samples,
                                      const struct shoali_open_maps *open, struct shoali_maps *maps)
{
    const struct shoali_maps_request request = {.cache_path = samples->data->cache_path,
                                                .first = open->first,
                                                .kind = open->kind,
                                                .split = samples->split,
                                                .description = shoali_str_get(open->description),
                                                .names = open->names,
                                                .count = open->count,
                                                .make = open->make,
                                                .user = open->user};
    if (open->description->failed)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the description of an index");
    return shoali_maps_open(&request, maps);
}

shoal_status shoali_wrong_map(const struct shoali_npy *file)
{
    return SHOAL_FAIL(
        SHOAL_EIO,
        "%s has other contents than its name says: delete it, then the next start makes it again",
        file->path);
}

static shoal_status open_gpt(const struct shoali_samples *samples, struct shoali_gpt_part *part)
{
    shoal_status status;
    struct shoali_str description = {0};
    describe_part(samples, part, &description);
    const struct shoali_open_maps open = {.kind = "GPTDataset",
                                          .first = part->file->prefix,
                                          .description = &description,
                                          .names = gpt_names,
                                          .count = SHOALI_GPT_MAPS,
                                          .make = make_gpt,
                                          .user = part};
    SHOAL_TRY(status, shoali_samples_open_maps(samples, &open, &part->maps), done);
    const struct shoali_npy *file = part->maps.file;
    const int64_t places = part->shape.epochs * part->args.sequence_count;
    if (file[SHOALI_DOCUMENT].rows != places || file[SHOALI_DOCUMENT].columns != 1)
        status = shoali_wrong_map(&file[SHOALI_DOCUMENT]);
    else if (file[SHOALI_SAMPLE].rows != part->shape.samples + 1 ||
             file[SHOALI_SAMPLE].columns != 2)
        status = shoali_wrong_map(&file[SHOALI_SAMPLE]);
    else if (file[SHOALI_SHUFFLE].rows != part->shape.samples || file[SHOALI_SHUFFLE].columns != 1)
        status = shoali_wrong_map(&file[SHOALI_SHUFFLE]);
done:
    shoali_str_fini(&description);
    return status;
}

/* ---- the blend ---- */

struct blending {
    struct shoali_samples *samples;
    const double *weight; /* NULL: exhaustive */
};

shoal_status shoali_check_taken(const struct shoali_samples *samples, int32_t part, int64_t number)
{
    const struct shoali_gpt_part *gpt = &samples->part[part];
    if (number < gpt->shape.samples)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "the blend asks for more than the %lld samples that were made of %s: give a "
                      "larger --mid-level-dataset-surplus",
                      (long long)gpt->shape.samples, gpt->file->prefix);
}

static shoal_status fill_blend(struct shoali_samples *samples, struct shoali_blend *blend,
                               struct shoali_npy *dataset, struct shoali_npy *number)
{
    shoal_status status = SHOAL_OK;
    for (int64_t i = 0; i < samples->count; i++) {
        int64_t taken;
        const int16_t part = (int16_t)shoali_blend_next(blend, &taken);
        SHOAL_TRY(status, shoali_check_taken(samples, part, taken), done);
        SHOAL_TRY(status, shoali_npy_put(dataset, &part, 1), done);
        SHOAL_TRY(status, shoali_npy_put(number, &taken, 1), done);
    }
    SHOAL_TRY(status, shoali_npy_finish(dataset), done);
    SHOAL_TRY(status, shoali_npy_finish(number), done);
done:
    return status;
}

static shoal_status make_blend(void *user, const char *const *path)
{
    shoal_status status = SHOAL_ENOMEM;
    const struct blending *blending = user;
    struct shoali_samples *samples = blending->samples;
    struct shoali_npy dataset = {.descriptor = -1}, number = {.descriptor = -1};
    struct shoali_blend blend = {0};
    int64_t *room = shoali_calloc((size_t)samples->part_count, sizeof *room, "a blend");
    if (!room)
        goto done;
    for (int32_t k = 0; k < samples->part_count; k++)
        room[k] = samples->part[k].shape.samples;
    SHOAL_TRY(status,
              shoali_blend_init(&blend, blending->weight, blending->weight ? NULL : room,
                                samples->part_count),
              done);
    SHOAL_TRY(status, shoali_npy_create(path[SHOALI_DATASET], 'i', 2, samples->count, 1, &dataset),
              done);
    SHOAL_TRY(status, shoali_npy_create(path[SHOALI_NUMBER], 'i', 8, samples->count, 1, &number),
              done);
    SHOAL_TRY(status, fill_blend(samples, &blend, &dataset, &number), done);
done:
    shoali_npy_close(&dataset);
    shoali_npy_close(&number);
    shoali_blend_fini(&blend);
    shoali_free(room);
    return status;
}

static shoal_status open_blend(struct shoali_samples *samples, const double *weight)
{
    shoal_status status;
    struct shoali_str description = {0};
    struct blending blending = {samples, weight};
    describe_blend(samples, weight, &description);
    const struct shoali_open_maps open = {.kind = "BlendedDataset",
                                          .first = samples->part[0].file->prefix,
                                          .description = &description,
                                          .names = blend_names,
                                          .count = SHOALI_BLEND_MAPS,
                                          .make = make_blend,
                                          .user = &blending};
    SHOAL_TRY(status, shoali_samples_open_maps(samples, &open, &samples->blend), done);
    for (int i = 0; i < SHOALI_BLEND_MAPS; i++)
        if (samples->blend.file[i].rows != samples->count || samples->blend.file[i].columns != 1)
            status = shoali_wrong_map(&samples->blend.file[i]);
done:
    shoali_str_fini(&description);
    return status;
}

/* ---- opening ---- */

static shoal_status open_part(const struct shoali_samples *samples,
                              const struct shoal_loader_args *args, const struct shoali_part *from,
                              int64_t sample_count, struct shoali_gpt_part *part)
{
    shoal_status status;
    if (from->tokens == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the %s part of %s has no tokens (%lld of its %lld sequences are in it); "
                          "give another --split",
                          split_words[args->split], from->file->prefix,
                          (long long)(from->end - from->first),
                          (long long)from->file->sequence_count);
    part->file = from->file;
    part->first_document = from->first_document;
    part->end_document = from->end_document;
    part->args = (struct shoali_gpt_args){.sequence_count = from->end - from->first,
                                          .first = from->first,
                                          .tokens = from->tokens,
                                          .sample_count = sample_count,
                                          .seq_length = samples->seq_length,
                                          .seed = (uint32_t)args->seed,
                                          .keep_last_partial = args->split == SHOAL_SPLIT_VALID &&
                                                               args->keep_last_partial,
                                          .no_extra_token = args->no_extra_token};
    status = samples->masked ? shoali_masked_open(samples, part)
                             : shoali_gpt_shape(&part->args, &part->shape);
    if (status < 0)
        return shoali_error_prefix(status, "the %s part of %s", split_words[args->split],
                                   from->file->prefix);
    if (!samples->masked)
        SHOAL_TRY(status, open_gpt(samples, part), done);
done:
    return status;
}

/* How many samples the blend has, and how many each part is asked for (0: one epoch of it). */
static int64_t ask_part(const struct shoali_samples *samples, const struct shoal_loader_args *args,
                        const double *weight, int32_t k)
{
    if (samples->part_count == 1 && !weight)
        return args->sample_count;
    if (!weight || args->sample_count <= 0)
        return 0;
    return shoali_blend_share(args->sample_count, weight[k],
                              args->surplus > 0 ? args->surplus : 0.005);
}

static int64_t blend_size(const struct shoali_samples *samples,
                          const struct shoal_loader_args *args, const double *weight)
{
    int64_t size = 0;
    for (int32_t k = 0; k < samples->part_count; k++)
        size += weight && args->sample_count > 0
                    ? shoali_blend_share(args->sample_count, weight[k], 0)
                    : samples->part[k].shape.samples;
    if (!weight && args->sample_count > 0 && samples->part_count > 1 && args->sample_count < size)
        size = args->sample_count;
    return size;
}

/* Weights of the choice: those that were given; without, and with a size, the parts' samples. Where
 * everything is to be taken once there are none. */
static shoal_status choose_weights(const struct shoali_samples *samples,
                                   const struct shoal_loader_args *args,
                                   const struct shoali_indexed_split *split, double *weight,
                                   const double **chosen)
{
    *chosen = NULL;
    if (args->sample_count <= 0)
        return SHOAL_OK;
    if (!split->weighted)
        for (int32_t k = 0; k < split->count; k++)
            weight[k] = (double)samples->part[k].shape.samples;
    *chosen = weight;
    return split->weighted ? SHOAL_OK : shoali_blend_normalize(weight, split->count);
}

static shoal_status open_parts(struct shoali_samples *samples, const struct shoal_loader_args *args)
{
    shoal_status status = SHOAL_ENOMEM;
    const struct shoali_indexed_split *split = &samples->data->split[args->split];
    const double *chosen;
    double *weight = shoali_calloc((size_t)split->count, sizeof *weight, "blend weights");
    samples->part = shoali_calloc((size_t)split->count, sizeof *samples->part, "a data blend");
    if (!weight || !samples->part)
        goto done;
    status = SHOAL_OK;
    for (int32_t k = 0; k < split->count; k++)
        weight[k] = split->part[k].weight;
    if (split->weighted)
        SHOAL_TRY(status, shoali_blend_normalize(weight, split->count), done);
    samples->part_count = split->count;
    for (int32_t k = 0; k < split->count; k++) {
        struct shoali_gpt_part *part = &samples->part[k];
        const int64_t asked = ask_part(samples, args, split->weighted ? weight : NULL, k);
        SHOAL_TRY(status, open_part(samples, args, &split->part[k], asked, part), done);
    }
    samples->count = samples->part[0].shape.samples;
    if (split->count == 1 && !split->weighted)
        goto done;
    samples->count = blend_size(samples, args, split->weighted ? weight : NULL);
    SHOAL_TRY(status, choose_weights(samples, args, split, weight, &chosen), done);
    SHOAL_TRY(status, open_blend(samples, chosen), done);
done:
    shoali_free(weight);
    return status;
}

static shoal_status open_cycle(struct shoali_samples *samples, const struct shoal_loader_args *args)
{
    struct shoali_cycle *cycle = &samples->cycle;
    cycle->epoch = -1;
    if (args->order != SHOAL_ORDER_CYCLIC)
        return SHOAL_OK;
    if (samples->count > SHOALI_PERMUTE_MAX)
        return SHOAL_FAIL(
            SHOAL_EUNSUPPORTED,
            "--dataloader-type cyclic with %lld samples: at most %lld are supported; use single",
            (long long)samples->count, (long long)SHOALI_PERMUTE_MAX);
    cycle->order =
        shoali_malloc((size_t)samples->count * sizeof *cycle->order, "the order of an epoch");
    return cycle->order ? SHOAL_OK : SHOAL_ENOMEM;
}

shoal_status shoali_samples_open(const struct shoali_indexed_data *data,
                                 const struct shoal_loader_args *args,
                                 const struct shoali_masked *masked,
                                 struct shoali_samples **samples)
{
    shoal_status status;
    struct shoali_samples *made = shoali_calloc(1, sizeof *made, "the order of samples");
    *samples = NULL;
    if (!made)
        return SHOAL_ENOMEM;
    pthread_mutex_init(&made->cycle.mutex, NULL);
    made->data = data;
    made->split = split_names[args->split];
    made->seq_length = args->seq_length;
    made->mask_eod = args->eod_mask_loss;
    made->masked = masked;
    made->short_seq_prob = args->short_seq_prob;
    if (data->split[args->split].count == 0)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "the data have no %s part: give another --split, or paths "
                            "for it",
                            split_words[args->split]);
    else if (args->seed > UINT32_MAX)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "seed %llu: the order of Megatron's samples takes seeds "
                            "below 2^32",
                            (unsigned long long)args->seed);
    else if (made->mask_eod && data->eod < 0)
        status = SHOAL_FAIL(SHOAL_EINVAL, "--eod-mask-loss: which token ends documents is unknown; "
                                          "give --eod-id N");
    else
        status = open_parts(made, args);
    if (status >= 0)
        SHOAL_TRY(status, open_cycle(made, args), done);
    if (status >= 0) {
        *samples = made;
        made = NULL;
    }
done:
    shoali_samples_close(made);
    return status;
}
