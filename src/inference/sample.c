/* sample.c - from logits to a token: temperature, top-k, a draw that is a function of (seed,
 * index); and the loop that goes on with what was drawn. */
#include "inference/inference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int32_t argmax(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

static int descending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The k-th largest value; ties with it stay in. +inf when memory is short, which leaves the
 * largest. */
static float threshold(const float *logits, int64_t count, int64_t k)
{
    float *sorted = shoali_malloc((size_t)count * sizeof *sorted, "top-k");
    if (!sorted)
        return INFINITY;
    for (int64_t i = 0; i < count; i++)
        sorted[i] = logits[i];
    qsort(sorted, (size_t)count, sizeof *sorted, descending);
    const float value = sorted[k - 1];
    shoali_free(sorted);
    return value;
}

int32_t shoali_sample_token(float *logits, int64_t count, const shoal_sample_args *args,
                            uint64_t index)
{
    const int32_t best = argmax(logits, count);
    if (args->top_k == 1 || args->temperature == 0)
        return best;
    const float keep =
        args->top_k > 0 && args->top_k < count ? threshold(logits, count, args->top_k) : -INFINITY;
    const struct shoali_stream stream = shoali_stream_make(args->seed, "generate", "", 0);
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        if (logits[i] >= keep)
            total += shoali_exp(((double)logits[i] - (double)logits[best]) / args->temperature);
    double left = (double)shoali_random_uniform(&stream, index) * total;
    for (int64_t i = 0; i < count; i++) {
        if (logits[i] < keep)
            continue;
        left -= shoali_exp(((double)logits[i] - (double)logits[best]) / args->temperature);
        if (left < 0)
            return (int32_t)i;
    }
    return best;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static shoal_status check_sample_args(const shoal_generator *generator,
                                      const shoal_sample_args *args)
{
    if (args->prompt_count < 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the prompt is empty: give at least one character with --prompt");
    if (args->num_tokens < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--num-tokens is %lld; give 0 or more",
                          (long long)args->num_tokens);
    if (args->top_k < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--top-k is %lld; give 0 (all tokens) or more",
                          (long long)args->top_k);
    if (args->top_k != 1 && !(args->temperature >= 0))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--temperature is %g; give 0 (always the likeliest token) or more",
                          args->temperature);
    for (int64_t i = 0; i < args->prompt_count; i++)
        if (args->prompt[i] < 0 || args->prompt[i] >= generator->known)
            return SHOAL_FAIL(SHOAL_EINVAL, "prompt token %lld is %d; the model knows 0 to %lld",
                              (long long)i, (int)args->prompt[i], (long long)generator->known - 1);
    return SHOAL_OK;
}

/* Feeds the newest tokens; a full sequence restarts from its last half. */
static shoal_status feed(shoal_generator *generator, const int32_t *text, int64_t count,
                         int64_t fresh)
{
    shoal_status status;
    struct shoali_decoder *decoder = &generator->decoder;
    const int64_t room = decoder->positions;
    if (decoder->length[0] + fresh > room) {
        fresh = count < room ? count : (room + 1) / 2;
        decoder->length[0] = 0;
    }
    const shoal_generator_input input = {.tokens = text + count - fresh, .count = fresh};
    SHOAL_TRY(status, shoali_decoder_forward(decoder, &input, 1, false, generator->logits), done);
done:
    return status;
}

shoal_status shoal_generate_sized(shoal_generator *generator, const shoal_sample_args *given,
                                  size_t given_size, shoal_token_sink sink, void *user)
{
    shoal_status status;
    shoal_sample_args own = {0};
    const shoal_sample_args *const args = &own;
    int32_t *text = NULL;
    const uint32_t fp = shoali_fp_enter();
    SHOAL_TRY(status, SHOALI_SIZED_READ(shoal_sample_args, seed, given, given_size, &own), done);
    SHOAL_TRY(status, check_sample_args(generator, args), done);
    int64_t count = args->prompt_count, fresh = count;
    text = shoali_malloc((size_t)(count + args->num_tokens) * sizeof *text, "the generated text");
    if (!text) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    memcpy(text, args->prompt, (size_t)count * sizeof *text);
    generator->decoder.length[0] = 0;
    for (int64_t i = 0; i < args->num_tokens; i++) {
        SHOAL_TRY(status, feed(generator, text, count, fresh), done);
        const int32_t token =
            shoali_sample_token(generator->logits, generator->known, args, (uint64_t)i);
        text[count++] = token;
        fresh = 1;
        SHOAL_TRY(status, sink(user, token), done);
    }
done:
    shoali_free(text);
    shoali_fp_leave(fp);
    return status;
}
