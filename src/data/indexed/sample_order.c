/* The three maps of a part: which document follows which, where samples begin, which sample is
 * taken when. indexed.h has the rules. */
#include "data/indexed/indexed.h"

#include <math.h>
#include <string.h>

#define SEPARATE_SHARE 0.80 /* of the last epoch: with less it is shuffled by itself */

static int64_t extra_token(const struct shoali_gpt_args *args)
{
    return args->no_extra_token ? 0 : 1;
}

/* Full samples of so many tokens; with keep_last_partial the rest counts too. The quotient is then
 * a 32-bit float, as Megatron's is, so that both count alike. */
static int64_t count_samples(const struct shoali_gpt_args *args, int64_t tokens)
{
    const int64_t usable = tokens - extra_token(args);
    if (usable <= 0)
        return 0;
    if (!args->keep_last_partial)
        return usable / args->seq_length;
    return (int64_t)ceilf((float)usable / (float)args->seq_length);
}

static shoal_status count_epochs(const struct shoali_gpt_args *args, int64_t *epochs)
{
    int64_t needed;
    *epochs = 1;
    if (args->sample_count <= 0)
        return SHOAL_OK;
    if (!shoali_mul(args->sample_count, args->seq_length, &needed) ||
        !shoali_add(needed, extra_token(args), &needed) ||
        !shoali_add(needed, args->tokens, &needed))
        return SHOAL_FAIL(SHOAL_EINVAL, "%lld samples of %lld tokens are too many to index",
                          (long long)args->sample_count, (long long)args->seq_length);
    *epochs = (needed - 1) / args->tokens;
    if (*epochs < 1)
        *epochs = 1;
    return SHOAL_OK;
}

shoal_status shoali_gpt_shape(const struct shoali_gpt_args *args, struct shoali_gpt_shape *shape)
{
    shoal_status status;
    int64_t total, places;
    SHOAL_ASSERT(args->tokens > 0 && args->sequence_count > 0 && args->seq_length > 0);
    *shape = (struct shoali_gpt_shape){0};
    SHOAL_TRY(status, count_epochs(args, &shape->epochs), done);
    if (!shoali_mul(shape->epochs, args->tokens, &total) ||
        !shoali_mul(shape->epochs, args->sequence_count, &places) || places > INT32_MAX)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "%lld samples of %lld tokens are %lld passes over %lld sequences, which "
                          "is more than an index can number: ask for fewer samples, or give more "
                          "data",
                          (long long)args->sample_count, (long long)args->seq_length,
                          (long long)shape->epochs, (long long)args->sequence_count);
    shape->samples = count_samples(args, total);
    shape->leading = shape->samples;
    if (shape->epochs > 1) {
        const int64_t extra = extra_token(args);
        const int64_t sans = ((shape->epochs - 1) * args->tokens - extra) / args->seq_length;
        const int64_t per_epoch = (args->tokens - extra) / args->seq_length;
        shape->separate = args->sample_count - sans < (int64_t)(SEPARATE_SHARE * (double)per_epoch);
        if (shape->separate)
            shape->leading = sans;
    }
    if (shape->samples < 1)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "there are %lld tokens, but a sequence length of %lld needs at least "
                            "%lld; give more text, another split or a shorter sequence length",
                            (long long)args->tokens, (long long)args->seq_length,
                            (long long)(args->seq_length + extra_token(args)));
done:
    return status;
}

void shoali_gpt_document_index(const struct shoali_gpt_args *args,
                               const struct shoali_gpt_shape *shape,
                               struct shoali_mt19937 *generator, int32_t *document)
{
    const int64_t epochs = shape->epochs, count = args->sequence_count;
    const int64_t together = shape->separate ? epochs - 1 : epochs;
    for (int64_t e = 0; e < epochs; e++)
        for (int64_t i = 0; i < count; i++)
            document[e * count + i] = (int32_t)(args->first + i);
    shoali_mt19937_shuffle_i32(generator, document, together * count);
    if (shape->separate)
        shoali_mt19937_shuffle_i32(generator, document + together * count, count);
}

shoal_status shoali_gpt_sample_index(const struct shoali_gpt_args *args,
                                     const struct shoali_gpt_shape *shape, const int32_t *lengths,
                                     const int32_t *document, shoali_gpt_put put, void *user)
{
    shoal_status status;
    const int64_t extra = extra_token(args), last = shape->epochs * args->sequence_count - 1;
    int64_t place = 0, offset = 0;
    SHOAL_TRY(status, put(user, 0, 0), done);
    for (int64_t sample = 0; sample < shape->samples; sample++) {
        int64_t needed = args->seq_length + extra;
        while (needed > 0) {
            const int64_t length = lengths[document[place] - args->first];
            if (length - offset >= needed) {
                offset += needed - extra; /* the next one begins with this one's last token */
                break;
            }
            if (place == last) { /* a last sample that is not full */
                offset = length - extra;
                break;
            }
            needed -= length - offset;
            place++;
            offset = 0;
        }
        SHOAL_TRY(status, put(user, place, offset), done);
    }
done:
    return status;
}

size_t shoali_gpt_shuffle_width(int64_t samples)
{
    return samples >= (int64_t)UINT32_MAX - 1 ? 8 : 4;
}

static void shuffle(struct shoali_mt19937 *generator, void *numbers, size_t width, int64_t count)
{
    if (width == 8)
        shoali_mt19937_shuffle_i64(generator, numbers, count);
    else
        shoali_mt19937_shuffle_i32(generator, numbers, count);
}

shoal_status shoali_gpt_shuffle_index(const struct shoali_gpt_shape *shape,
                                      struct shoali_mt19937 *generator, void **numbers)
{
    const int64_t count = shape->samples, leading = shape->leading;
    const size_t width = shoali_gpt_shuffle_width(count);
    int64_t bytes;
    *numbers = NULL;
    if (!shoali_mul(count, (int64_t)width, &bytes))
        return SHOAL_FAIL(SHOAL_EINVAL, "%lld samples are too many", (long long)count);
    *numbers = shoali_malloc((size_t)bytes, "a shuffle index");
    if (!*numbers)
        return SHOAL_ENOMEM;
    int64_t *wide = *numbers;
    uint32_t *narrow = *numbers;
    for (int64_t i = 0; i < count; i++)
        if (width == 8)
            wide[i] = i;
        else
            narrow[i] = (uint32_t)i;
    shuffle(generator, *numbers, width, leading);
    shuffle(generator, (char *)*numbers + (size_t)leading * width, width, count - leading);
    return SHOAL_OK;
}
