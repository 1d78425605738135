/* What all token sources share. */
#include "data/token_source.h"

#define COUNT_TOKENS 16384

size_t shoali_token_width(int32_t vocab_size)
{
    return vocab_size <= 256 ? 1 : vocab_size <= 65536 ? 2 : 4;
}

void shoali_token_pack(size_t width, const int32_t *from, int64_t count, void *to)
{
    uint8_t *to1 = to;
    uint16_t *to2 = to;
    int32_t *to4 = to;
    for (int64_t i = 0; i < count && width == 1; i++)
        to1[i] = (uint8_t)from[i];
    for (int64_t i = 0; i < count && width == 2; i++)
        to2[i] = (uint16_t)from[i];
    for (int64_t i = 0; i < count && width == 4; i++)
        to4[i] = from[i];
}

bool shoali_token_unpack(size_t width, const void *from, int64_t count, int32_t vocab_size,
                         int32_t *to)
{
    const uint8_t *from1 = from;
    const uint16_t *from2 = from;
    const int32_t *from4 = from;
    uint32_t outside = 0;
    for (int64_t i = 0; i < count; i++) {
        to[i] = width == 1 ? from1[i] : width == 2 ? from2[i] : from4[i];
        outside |= (uint32_t)to[i] >= (uint32_t)vocab_size;
    }
    return !outside;
}

void shoali_token_source_close(struct shoali_token_source *source)
{
    if (source)
        source->ops->close(source);
}

shoal_status shoali_token_source_count(const struct shoali_token_source *source, int64_t first,
                                       int64_t count, int64_t *counts)
{
    shoal_status status = SHOAL_OK;
    int32_t *tokens = shoali_malloc(COUNT_TOKENS * sizeof(*tokens), "tokens");
    if (!tokens)
        return SHOAL_ENOMEM;
    while (count > 0) {
        const int64_t piece = count < COUNT_TOKENS ? count : COUNT_TOKENS;
        SHOAL_TRY(status, source->ops->read(source, first, piece, tokens), done);
        for (int64_t i = 0; i < piece; i++)
            counts[tokens[i]]++;
        first += piece;
        count -= piece;
    }
done:
    shoali_free(tokens);
    return status;
}
