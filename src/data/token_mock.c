/* Random tokens: computed when they are read, so that any number of them takes no memory. */
#include "data/token_source.h"

#define HASH_TOKENS 16384

struct mock_source {
    struct shoali_token_source base;
    struct shoali_stream stream;
};

static shoal_status read_mock(const struct shoali_token_source *source, int64_t first,
                              int64_t count, int32_t *tokens)
{
    const struct mock_source *mock = (const struct mock_source *)source;
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)shoali_random_below(&mock->stream, (uint64_t)(first + i),
                                                 (uint64_t)source->vocab_size);
    return SHOAL_OK;
}

static void close_mock(struct shoali_token_source *source)
{
    shoali_free(source);
}

static const struct shoali_token_source_ops mock_ops = {
    .name = "mock", .read = read_mock, .close = close_mock};

static shoal_status hash_mock(struct shoali_token_source *source)
{
    shoal_status status = SHOAL_ENOMEM;
    struct shoali_hash64_stream *hash = shoali_hash64_begin();
    int32_t *tokens = shoali_malloc(2 * HASH_TOKENS * sizeof(*tokens), "mock tokens");
    if (!hash || !tokens)
        goto done;
    for (int64_t at = 0; at < source->count; at += HASH_TOKENS) {
        const int64_t left = source->count - at, piece = left < HASH_TOKENS ? left : HASH_TOKENS;
        SHOAL_TRY(status, read_mock(source, at, piece, tokens), done);
        shoali_token_pack(source->width, tokens, piece, tokens + HASH_TOKENS);
        shoali_hash64_add(hash, tokens + HASH_TOKENS, (size_t)piece * source->width);
    }
    source->hash = shoali_hash64_get(hash);
    status = SHOAL_OK;
done:
    shoali_hash64_end(hash);
    shoali_free(tokens);
    return status;
}

shoal_status shoali_token_mock_open(uint64_t seed, int32_t vocab_size, int64_t count,
                                    struct shoali_token_source **source)
{
    shoal_status status;
    struct mock_source *mock = shoali_calloc(1, sizeof(*mock), "mock data");
    if (!mock)
        return SHOAL_ENOMEM;
    mock->base = (struct shoali_token_source){.ops = &mock_ops,
                                              .count = count,
                                              .vocab_size = vocab_size,
                                              .width = shoali_token_width(vocab_size),
                                              .host_bytes = sizeof(*mock)};
    mock->stream = shoali_stream_make(seed, "mock", "", 0);
    SHOAL_TRY(status, hash_mock(&mock->base), done);
    *source = &mock->base;
    mock = NULL;
done:
    shoali_free(mock);
    return status;
}
