/* sample.c - from logits to a token: temperature, top-k, a draw that is a function of (seed,
 * index); and the loop that goes on with what was drawn. */
#include "inference/inference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The likeliest token. A NaN has no order, and beside an infinite logit no other has a chance. */
static shoal_status find_best(const float *logits, int64_t count, int32_t *best)
{
    *best = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return SHOAL_FAIL(SHOAL_ENUMERIC,
                              "the model's logits have NaN or infinity (token %lld: %g): its "
                              "weights do, or a number is too large for its type: try --dtype "
                              "fp32, or another checkpoint",
                              (long long)i, (double)logits[i]);
        if (logits[i] > logits[*best])
            *best = (int32_t)i;
    }
    return SHOAL_OK;
}

static int descending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The k-th largest value; ties with it stay in. */
static shoal_status find_threshold(const float *logits, int64_t count, int64_t k, float *value)
{
    float *sorted = shoali_malloc((size_t)count * sizeof *sorted, "the logits of top-k");
    if (!sorted)
        return SHOAL_ENOMEM;
    for (int64_t i = 0; i < count; i++)
        sorted[i] = logits[i];
    qsort(sorted, (size_t)count, sizeof *sorted, descending);
    *value = sorted[k - 1];
    shoali_free(sorted);
    return SHOAL_OK;
}

/* Of the tokens whose logits are at least `keep`. */
static int32_t draw(const float *logits, int64_t count, float keep, int32_t best,
                    const shoal_sample_args *args, uint64_t index)
{
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

/* Draws the index-th token from `logits[count]`. */
static shoal_status sample_token(const float *logits, int64_t count, const shoal_sample_args *args,
                                 uint64_t index, int32_t *token)
{
    shoal_status status = SHOAL_OK;
    float keep = -INFINITY;
    SHOAL_TRY(status, find_best(logits, count, token), done);
    if (args->top_k == 1 || args->temperature == 0)
        goto done;
    if (args->top_k > 0 && args->top_k < count)
        SHOAL_TRY(status, find_threshold(logits, count, args->top_k, &keep), done);
    *token = draw(logits, count, keep, *token, args, index);
done:
    return status;
}

static bool ends_text(const shoal_sample_args *args, int32_t token)
{
    for (int32_t i = 0; i < args->end_count; i++)
        if (args->end_tokens[i] == token)
            return true;
    return false;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static shoal_status check_sample_args(const shoal_generator *generator,
                                      const shoal_sample_args *args)
{
    if (args->prompt_count < 1)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "the prompt is empty: give at least one character with --prompt");
    if (args->num_tokens < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--num-tokens is %lld: give 0 or more",
                          (long long)args->num_tokens);
    if (args->top_k < 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "--top-k is %lld: give 0 (all tokens) or more",
                          (long long)args->top_k);
    if (args->top_k != 1 && !(args->temperature >= 0))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--temperature is %g: give 0 (always the likeliest token) or more",
                          args->temperature);
    if (args->end_count < 0 || (args->end_count > 0 && !args->end_tokens))
        return SHOAL_FAIL(SHOAL_EINVAL, "%d end tokens: give a list of them, or 0",
                          (int)args->end_count);
    for (int64_t i = 0; i < args->prompt_count; i++)
        if (args->prompt[i] < 0 || args->prompt[i] >= generator->known)
            return SHOAL_FAIL(SHOAL_EINVAL, "prompt token %lld is %d: give tokens from 0 to %lld",
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

shoal_status shoal_generate(shoal_generator *generator, const shoal_sample_args *given,
                            shoal_token_sink sink, void *user)
{
    shoal_status status;
    shoal_sample_args own = {0};
    const shoal_sample_args *const args = &own;
    int32_t *text = NULL;
    const uint32_t fp = shoali_fp_enter();
    if (given)
        own = *given;
    SHOAL_TRY(status, check_sample_args(generator, args), done);
    int64_t count = args->prompt_count, fresh = count;
    text = shoali_malloc((size_t)(count + args->num_tokens) * sizeof *text, "the generated text");
    if (!text) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    memcpy(text, args->prompt, (size_t)count * sizeof *text);
    generator->decoder.length[0] = 0;
    bool ended = false;
    for (int64_t i = 0; i < args->num_tokens && !ended; i++) {
        int32_t token = 0;
        SHOAL_TRY(status, feed(generator, text, count, fresh), done);
        SHOAL_TRY(status,
                  sample_token(generator->logits, generator->known, args, (uint64_t)i, &token),
                  done);
        ended = ends_text(args, token);
        text[count++] = token;
        fresh = 1;
        SHOAL_TRY(status, sink(user, token), done);
    }
done:
    shoali_free(text);
    shoali_fp_leave(fp);
    return status;
}
