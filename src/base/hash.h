/* hash - xxh3 of bytes (libxxhash), for checksums and fingerprints. */
#ifndef SHOALI_HASH_H
#define SHOALI_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t shoali_hash64(const void *data, size_t bytes);
uint64_t shoali_hash64_seeded(const void *data, size_t bytes, uint64_t seed);

/* The same of bytes that come piece by piece: `get` is shoali_hash64 of all so far. */
struct shoali_hash64_stream;
struct shoali_hash64_stream *shoali_hash64_begin(void); /* NULL, with an error set: no memory */
void shoali_hash64_add(struct shoali_hash64_stream *stream, const void *data, size_t bytes);
uint64_t shoali_hash64_get(const struct shoali_hash64_stream *stream);
void shoali_hash64_end(struct shoali_hash64_stream *stream); /* NULL is fine */

#endif
