/* layout.c - a cut as a text, "Et*3|(tt|)*2tL". */
#include "pipeline_parallel/partition.h"

#include "base/plain.h"

#include <string.h>

enum { REPEATS_MAX = 1000000, DEPTH_MAX = 16, PARTS_MAX = 1 << 20 };

struct reader {
    const struct shoali_partition_args *args;
    const char *at;
    int32_t *counts; /* of each virtual stage, all symbols; NULL: only stages are counted */
    int32_t stage;   /* now */
    int32_t embeddings, decoders, heads;
};

static shoal_status fail_at(const struct reader *reader, const char *at, const char *what)
{
    return SHOAL_FAIL(SHOAL_EINVAL, "the pipeline layout \"%s\" %s at character %td (\"%.12s\")",
                      reader->args->text, what, at - reader->args->text + 1, at);
}

static void skip(struct reader *reader)
{
    while (shoali_ascii_space(*reader->at) || *reader->at == ',')
        reader->at++;
}

/* "*N" behind a symbol or a group, or nothing: once. */
static shoal_status read_repeats(struct reader *reader, int32_t *repeats)
{
    int64_t number = 0;
    *repeats = 1;
    skip(reader);
    if (*reader->at != '*')
        return SHOAL_OK;
    reader->at++;
    skip(reader);
    const char *begin = reader->at;
    while (shoali_ascii_digit(*reader->at) && number <= REPEATS_MAX)
        number = 10 * number + (*reader->at++ - '0');
    if (number < 1 || number > REPEATS_MAX)
        return fail_at(reader, begin, "needs a number from 1 to 1000000 after *");
    *repeats = (int32_t)number;
    return SHOAL_OK;
}

static shoal_status put(struct reader *reader, const char *at, int32_t repeats)
{
    const int32_t parts = reader->args->stages * reader->args->chunks;
    const bool begun = reader->embeddings > 0, ended = reader->heads > 0;
    if (*at == '|') {
        if (repeats >= parts - reader->stage)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "the pipeline layout \"%s\" has more than the %d stages (with their "
                              "chunks) of this run",
                              reader->args->text, parts);
        reader->stage += repeats;
        return SHOAL_OK;
    }
    if (*at == 'm')
        return fail_at(reader, at,
                       "has a multi-token prediction layer, which this model does not have,");
    if (*at == 'E' && (begun || repeats > 1 || reader->decoders || ended))
        return fail_at(reader, at, "has another embedding");
    if (*at != 'E' && !begun)
        return fail_at(reader, at, "does not begin with the embedding E");
    if (ended)
        return fail_at(reader, at, "continues after the head L");
    if (*at == 'L' && repeats > 1)
        return fail_at(reader, at, "has another head");
    reader->embeddings += *at == 'E';
    reader->heads += *at == 'L';
    if (reader->counts)
        reader->counts[reader->stage] += repeats;
    if (*at == 't')
        reader->decoders += repeats;
    if (reader->decoders > reader->args->layer_count)
        return fail_at(reader, at, "has more layers than the model");
    return SHOAL_OK;
}

/* Symbols and groups up to the end or a closing parenthesis. */
static shoal_status read_items(struct reader *reader, int depth)
{
    shoal_status status = SHOAL_OK;
    for (skip(reader); *reader->at && *reader->at != ')'; skip(reader)) {
        int32_t repeats;
        const char *at = reader->at++;
        if (*at == '(' && depth < DEPTH_MAX) {
            const char *inside = reader->at;
            SHOAL_TRY(status, read_items(reader, depth + 1), done);
            if (*reader->at != ')')
                return fail_at(reader, at, "has a parenthesis that does not end,");
            reader->at++;
            SHOAL_TRY(status, read_repeats(reader, &repeats), done);
            const char *behind = reader->at;
            for (int32_t i = 1; i < repeats; i++) {
                reader->at = inside;
                SHOAL_TRY(status, read_items(reader, depth + 1), done);
            }
            reader->at = behind;
        } else if (strchr("EtmL|", *at)) {
            SHOAL_TRY(status, read_repeats(reader, &repeats), done);
            SHOAL_TRY(status, put(reader, at, repeats), done);
        } else {
            return fail_at(reader, at, "has a sign other than E t m L | ( ) * and numbers");
        }
    }
done:
    return status;
}

shoal_status shoali_partition_layout_parts(const char *text, int32_t layer_count, int32_t *parts)
{
    const struct shoali_partition_args args = {
        .stages = PARTS_MAX, .chunks = 1, .layer_count = layer_count, .text = text};
    struct reader reader = {.args = &args, .at = text};
    const shoal_status status = read_items(&reader, 0);
    *parts = reader.stage + 1;
    return status;
}

shoal_status shoali_partition_layout(const struct shoali_partition_args *args, int32_t *counts)
{
    shoal_status status;
    const int32_t parts = args->stages * args->chunks, decoders = args->layer_count - 2;
    struct reader reader = {.args = args, .at = args->text, .counts = counts};
    memset(counts, 0, (size_t)parts * sizeof *counts);
    SHOAL_TRY(status, read_items(&reader, 0), done);
    if (*reader.at)
        return fail_at(&reader, reader.at, "closes a parenthesis that is not open");
    if (reader.heads != 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "the pipeline layout \"%s\" does not end with the head L",
                          args->text);
    if (reader.decoders != decoders)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the pipeline layout \"%s\" has %d layers t, the model has %d",
                          args->text, reader.decoders, decoders);
    if (reader.stage + 1 != parts)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "the pipeline layout \"%s\" has %d stages; %d are wanted: %d pipeline ranks "
            "with %d chunk%s each",
            args->text, reader.stage + 1, parts, args->stages, args->chunks,
            args->chunks == 1 ? "" : "s");
done:
    return status;
}
