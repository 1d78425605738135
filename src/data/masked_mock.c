/* Masked samples of random tokens. */
#include "data/data.h"
#include "data/masked.h"

/* Two texts of equal length from anywhere in the part: tokens below 4 stand for [PAD] and so on, so
 * that those of the text are above. */
shoal_status shoali_masked_mock(const struct shoali_masked *masked,
                                const struct shoal_loader_args *args, int64_t number,
                                const struct shoali_masked_sample *sample)
{
    shoal_status status;
    const int64_t target = args->seq_length - SHOALI_MASKED_EXTRA, end[] = {target / 2, target};
    const int64_t total = shoal_dataset_token_count(args->dataset, args->split);
    const struct shoali_stream stream = shoali_loader_stream(args);
    const int64_t first =
        (int64_t)shoali_random_below(&stream, 2 * (uint64_t)number, (uint64_t)(total - target + 1));
    int32_t *tokens = shoali_malloc((size_t)target * sizeof *tokens, "the tokens of a sample");
    if (!tokens)
        return SHOAL_ENOMEM;
    const struct shoali_masked_text text = {
        .tokens = tokens,
        .end = end,
        .sentence_count = 2,
        .target = target,
        .seed = (uint32_t)shoali_random_below(&stream, 2 * (uint64_t)number + 1, UINT32_MAX)};
    SHOAL_TRY(status, shoal_dataset_read(args->dataset, args->split, first, target, tokens), done);
    for (int64_t i = 0; i < target; i++)
        tokens[i] = tokens[i] < 4 ? 4 + tokens[i] % (masked->vocab_size - 4) : tokens[i];
    SHOAL_TRY(status, shoali_masked_make(masked, &text, sample), done);
done:
    shoali_free(tokens);
    return status;
}
