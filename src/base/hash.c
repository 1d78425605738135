#include "base/hash.h"

#include "base/error.h"
#include "base/fault.h"

#include <xxhash.h>

uint64_t shoali_hash64(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

uint64_t shoali_hash64_seeded(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

struct shoali_hash64_stream *shoali_hash64_begin(void)
{
    XXH3_state_t *state = shoali_fault("alloc") ? NULL : XXH3_createState();
    if (state)
        (void)XXH3_64bits_reset(state);
    else
        (void)SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the state of a hash");
    return (struct shoali_hash64_stream *)state;
}

void shoali_hash64_add(struct shoali_hash64_stream *stream, const void *data, size_t bytes)
{
    (void)XXH3_64bits_update((XXH3_state_t *)stream, data, bytes);
}

uint64_t shoali_hash64_get(const struct shoali_hash64_stream *stream)
{
    return XXH3_64bits_digest((const XXH3_state_t *)stream);
}

void shoali_hash64_end(struct shoali_hash64_stream *stream)
{
    (void)XXH3_freeState((XXH3_state_t *)stream);
}
