/* caches - the caches of a core: how large they are, and how their lines are placed.
 *
 * Kernels choose their blocks by it, and never by a processor's name. Core 0 stands for all. The
 * sizes come from Linux (sysfs); where that says nothing, as in some virtual machines, from cpuid;
 * else they are those of a small core. No result's bits depend on them, so that ranks on different
 * machines agree.
 *
 *   way     A cache of so many ways keeps that many lines whose addresses are a multiple of
 *           bytes/ways apart, and no more: rows that far apart push each other out.
 *   share   What of a cache one core can count on, when all that share it work. Siblings of one
 *           core count once: a rank has one thread per core.
 */
#ifndef SHOALI_CACHES_H
#define SHOALI_CACHES_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct shoali_cache {
    int64_t bytes; /* 0: unknown */
    int32_t cores; /* that share it, siblings of one core counted, too */
    int32_t level, ways;
};
/* Data caches. Last: the last level that a core reaches, not what the whole machine has of it: a
 * processor of several dies has one each, and a core keeps nothing in another's. */
struct shoali_caches {
    struct shoali_cache l1, l2, last;
};

/* As Linux describes those of a core in `folder`; NULL: of core 0. */
struct shoali_caches shoali_caches_read(const char *folder);
/* The same with nothing unknown of l1 and l2: what kernels go by. The first call asks the system,
 * any thread may make it. */
const struct shoali_caches *shoali_caches_get(void);
/* A core's share in bytes of `cache`, which is one of `caches`. */
int64_t shoali_cache_share(const struct shoali_caches *caches, const struct shoali_cache *cache);

/* For tests: SHOAL_CPU_CACHES=32K,512K,16M,8 replaces the machine's in shoali_caches_get. It has a
 * core's shares of L1, L2 and the last level, and the ways of L1. SHOAL_ECONFIG if it cannot be
 * read. */
SHOAL_CHECKED shoal_status shoali_caches_check(void);
/* For tests: the same from now on, while no other thread asks; NULL: as at first. False: `text`
 * cannot be read. */
bool shoali_caches_pretend(const char *text);

#endif
