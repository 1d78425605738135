/* comm_data - values that every rank can compute for every other, and the results they must lead
 * to. */
#ifndef SHOAL_TEST_COMM_DATA_H
#define SHOAL_TEST_COMM_DATA_H

#include "comm/comm.h"

/* Element `index` of rank `rank`'s data, stored at `to`: never 0, NaN or infinite. */
void data_store(shoal_dtype dtype, uint64_t seed, int32_t rank, int64_t index, void *to);
void data_fill(shoal_dtype dtype, uint64_t seed, int32_t rank, int64_t first, int64_t count,
               void *to);
/* The reduction over ranks 0..ranks-1, in this order, of element `index`; stored at `to`. */
void data_reduce(shoal_dtype dtype, shoal_reduce op, uint64_t seed, int32_t ranks, int64_t index,
                 void *to);
/* Sums and products of floats within each host, in rank order, then over hosts in the order of
 * their first ranks, stored in the type each time; the rest as data_reduce. */
void data_reduce_by_host(shoal_dtype dtype, shoal_reduce op, uint64_t seed, const int32_t *host,
                         int32_t ranks, int64_t index, void *to);
/* Small deterministic random numbers, the same on every rank. */
uint64_t data_mix(uint64_t x);

#endif
