/* hash - xxh3 of bytes (libxxhash), for checksums and fingerprints. */
#ifndef SHOALI_HASH_H
#define SHOALI_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t shoali_hash64(const void *data, size_t bytes);
uint64_t shoali_hash64_seeded(const void *data, size_t bytes, uint64_t seed);

#endif
