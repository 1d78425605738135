#include "text_data/text_kind.h"

#include "base/str.h"

static bool is_control(unsigned char byte)
{
    const bool known = (byte >= '\b' && byte <= '\r') || byte == 27;
    return (byte < 32 && !known) || byte == 127;
}

void shoali_text_count(struct shoali_text_counts *counts, const char *piece, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const int64_t at = counts->bytes + (int64_t)i;
        if (piece[i] != '\0') {
            counts->control += is_control((unsigned char)piece[i]);
            continue;
        }
        if (counts->nul == 0)
            counts->first_nul = at;
        counts->nul++;
        counts->nul_even += at % 2 == 0;
    }
    counts->bytes += (int64_t)bytes;
    counts->other = counts->other || shoali_utf8_check(piece, bytes) < bytes;
}

/* A quarter of the bytes are NUL, nearly all of them at even offsets or at odd ones. */
static bool is_wide(const struct shoali_text_counts *counts)
{
    const int64_t odd = counts->nul - counts->nul_even;
    const int64_t fewer = odd < counts->nul_even ? odd : counts->nul_even;
    return counts->bytes >= 8 && counts->nul >= counts->bytes / 4 && fewer * 20 <= counts->nul &&
           counts->control * SHOALI_CONTROL_SHARE <= counts->bytes;
}

enum shoali_text_kind shoali_text_kind_of(const struct shoali_text_counts *counts)
{
    const int64_t limit = counts->bytes / SHOALI_CONTROL_SHARE;
    if (is_wide(counts))
        return SHOALI_KIND_WIDE;
    if (!counts->other && counts->nul < counts->bytes && counts->control <= limit)
        return SHOALI_KIND_TEXT;
    return counts->control + counts->nul <= limit ? SHOALI_KIND_TEXT : SHOALI_KIND_BINARY;
}
