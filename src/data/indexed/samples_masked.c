/* Samples of masked tokens: the map of a part, and a sample of it. */
#include "data/indexed/samples.h"

#include <string.h>

#define CLASS "BERTMaskedWordPieceDataset"
#define COLUMNS 3 /* of its map */

static const char *const names[] = {"sample_index"};

void shoali_masked_describe(const struct shoali_samples *samples,
                            const struct shoali_gpt_part *part, struct shoali_str *out)
{
    const struct shoali_gpt_args *args = &part->args;
    shoali_str_append(out, "{\n    \"class\": \"" CLASS "\",\n");
    shoali_describe_text(out, "dataset_path", part->file->prefix);
    shoali_str_append(out, "    \"num_samples\": %lld,\n", (long long)args->sample_count);
    shoali_describe_text(out, "index_split", samples->split);
    shoali_str_append(out, "    \"random_seed\": %lu,\n    \"sequence_length\": %lld,\n",
                      (unsigned long)args->seed, (long long)args->seq_length);
    shoali_describe_text(out, "split", samples->data->split_text);
    shoali_str_append(out,
                      "    \"documents\": [%lld, %lld],\n"
                      "    \"short_sequence_probability\": %.17g,\n"
                      "    \"classification_head\": %s,\n    \"files\": \"%016llx\"\n}",
                      (long long)part->first_document, (long long)part->end_document,
                      samples->short_seq_prob, samples->masked->pairs ? "true" : "false",
                      (unsigned long long)part->file->state);
}

/* ---- the map ---- */

struct making {
    const struct shoali_samples *samples;
    const struct shoali_gpt_part *part;
};

static shoal_status make_map(void *user, const char *const *path)
{
    shoal_status status = SHOAL_ENOMEM;
    const struct making *making = user;
    const struct shoali_gpt_part *part = making->part;
    const int64_t documents = part->end_document - part->first_document;
    struct shoali_npy file = {.descriptor = -1};
    uint32_t *rows = NULL;
    int64_t count;
    int32_t *lengths = shoali_malloc((size_t)part->args.sequence_count * sizeof *lengths + 1,
                                     "the lengths of sentences");
    int64_t *boundaries =
        shoali_malloc((size_t)(documents + 1) * sizeof *boundaries, "the documents");
    if (!lengths || !boundaries)
        goto done;
    SHOAL_TRY(
        status,
        shoali_indexed_lengths(part->file, part->args.first, part->args.sequence_count, lengths),
        done);
    SHOAL_TRY(
        status,
        shoali_indexed_boundaries(part->file, part->first_document, documents + 1, boundaries),
        done);
    const struct shoali_masked_args args = {
        .lengths = lengths,
        .boundaries = boundaries,
        .document_count = documents,
        .sample_count = part->args.sample_count,
        .most_tokens = part->args.seq_length - SHOALI_MASKED_EXTRA,
        .short_seq_prob = making->samples->short_seq_prob,
        .least_sentences = making->samples->masked->pairs ? 2 : 1,
        .seed = part->args.seed};
    SHOAL_TRY(status, shoali_masked_index(&args, &rows, &count), done);
    SHOAL_TRY(status, shoali_npy_create(path[0], 'u', 4, count, COLUMNS, &file), done);
    SHOAL_TRY(status, shoali_npy_put(&file, rows, COLUMNS * count), done);
    SHOAL_TRY(status, shoali_npy_finish(&file), done);
done:
    shoali_npy_close(&file);
    shoali_free(rows);
    shoali_free(lengths);
    shoali_free(boundaries);
    return status;
}

shoal_status shoali_masked_open(const struct shoali_samples *samples, struct shoali_gpt_part *part)
{
    shoal_status status;
    struct shoali_str description = {0};
    struct making making = {samples, part};
    if (part->args.first + part->args.sequence_count > UINT32_MAX)
        return SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                          "more than 2^32 sentences in one file; split the file");
    shoali_masked_describe(samples, part, &description);
    const struct shoali_open_maps open = {.kind = CLASS,
                                          .first = part->file->prefix,
                                          .description = &description,
                                          .names = names,
                                          .count = 1,
                                          .make = make_map,
                                          .user = &making};
    SHOAL_TRY(status, shoali_samples_open_maps(samples, &open, &part->maps), done);
    part->shape.samples = part->maps.file[0].rows;
    if (part->maps.file[0].columns != COLUMNS || part->shape.samples < 1)
        status = shoali_wrong_map(&part->maps.file[0]);
done:
    shoali_str_fini(&description);
    return status;
}

/* ---- a sample ---- */

/* The sentences' tokens, one after the other. */
static shoal_status read_sentences(const struct shoali_samples *samples,
                                   const struct shoali_gpt_part *part, int64_t first,
                                   struct shoali_masked_text *text, int64_t *end, int64_t room)
{
    shoal_status status = SHOAL_OK;
    int64_t at = 0, got;
    for (int64_t i = 0; i < text->sentence_count; i++) {
        SHOAL_TRY(status,
                  shoali_indexed_read(part->file, first + i, 0, -1, samples->data->vocab_size,
                                      room - at, text->tokens + at, &got),
                  done);
        end[i] = at += got;
    }
done:
    return status;
}

shoal_status shoali_masked_read(const struct shoali_samples *samples,
                                const struct shoali_gpt_part *part, int64_t number,
                                int32_t *const *arrays)
{
    shoal_status status;
    const struct shoali_npy *map = &part->maps.file[0];
    const struct shoali_gpt_args *args = &part->args;
    int64_t row[COLUMNS], room, *end = NULL;
    struct shoali_masked_text text = {.tokens = NULL};
    SHOAL_TRY(status, shoali_npy_read(map, number, 1, row), done);
    text.sentence_count = row[1] - row[0];
    text.target = row[2];
    text.seed = (uint32_t)(args->seed + (uint64_t)number);
    if (row[0] < args->first || row[1] > args->first + args->sequence_count ||
        text.sentence_count < (samples->masked->pairs ? 2 : 1) || text.target < 2 ||
        text.target > args->seq_length - SHOALI_MASKED_EXTRA)
        return shoali_wrong_map(map);
    SHOAL_TRY(status, shoali_indexed_count(part->file, row[0], row[1], &room), done);
    text.tokens = shoali_malloc((size_t)room * sizeof(int32_t) + 1, "the sentences of a sample");
    text.end = end = shoali_malloc((size_t)text.sentence_count * sizeof *end, "their ends");
    if (!text.tokens || !end) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    SHOAL_TRY(status, read_sentences(samples, part, row[0], &text, end, room), done);
    const struct shoali_masked_sample sample = {arrays[0], arrays[1], arrays[2], arrays[3],
                                                arrays[4]};
    SHOAL_TRY(status, shoali_masked_make(samples->masked, &text, &sample), done);
done:
    shoali_free(text.tokens);
    shoali_free(end);
    return status;
}
