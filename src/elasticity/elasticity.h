/* elasticity - one batch that many numbers of ranks can divide. Level L1: pure arithmetic, knows
 * only base.
 *
 *   elasticity.c  the section `elasticity` of ds_config.json, and what it comes to
 *   describe.c    the same in words, for `shoal elastic`; the interface is shoal/elasticity.h
 *
 * Words: a *count* is a number of data-parallel ranks. The batch of a count g is divided as
 *     batch = micro-batch * accumulation * g
 * A count is *valid* for a batch B when some m of micro_batch_sizes has m * g dividing B.
 *
 * Version 0.1 (DeepSpeed: elasticity/elasticity.py). The batches that are looked at are the m, and
 * their least common multiple, each multiplied by the largest highly composite number that keeps
 * it within max_train_batch_size. The one with the most valid counts from min_gpus to max_gpus is
 * taken; of several the largest, without prefer_larger_batch the smallest.
 *
 * Version 0.2 does the same with nodes instead of ranks, max_train_batch_size being divided by the
 * data-parallel ranks of a node (num_gpus_per_node / model_parallel_size), and multiplies batch and
 * counts by those. A count that is not among them gets a batch of its own: the largest (smallest)
 * of floor(max / (m * g)) * m * g. Its run is another run, with another batch.
 *
 * With "reduction": "exact" the bits of a run do not depend on the number of ranks, as long as the
 * same micro-batches are summed. So there one m serves all counts: the one that the most valid
 * counts can have, of several the largest. Only those counts are valid, and none has a batch of its
 * own.
 *
 * The launcher's agent (launcher/elastic/elastic.h) restarts a job on as many ranks as it can find
 * and this section allows. */
#ifndef SHOALI_ELASTICITY_H
#define SHOALI_ELASTICITY_H

#include "base/config_table.h"
#include "shoal/elasticity.h"

struct shoali_elasticity_config {
    bool enabled, prefer_larger_batch, ignore_non_elastic_batch_info;
    struct shoali_ints micro_batch_sizes;
    int64_t max_train_batch_size, min_gpus, max_gpus, min_time, num_gpus_per_node;
    int64_t model_parallel_size;
    double version;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
/* Its check finds every mistake that does not depend on the number of ranks. */
extern const struct shoali_section shoali_elasticity_section;

/* The only versions there are. */
#define SHOALI_ELASTICITY_V1 0.1
#define SHOALI_ELASTICITY_V2 0.2

struct shoali_elastic_sizes {
    int64_t batch;             /* samples of a step */
    struct shoali_ints counts; /* valid for it, ascending; of the arena */
    int64_t common_micro;      /* of all counts ("reduction": "exact"); 0: each has its own */
    bool own_batch;            /* 0.2: it is that of the one count that was asked for */
};
/* What the section comes to for `count` data-parallel ranks; 0: for nobody in particular.
 * SHOAL_ECONFIG: the count is not valid; the sentence lists those that are. */
SHOAL_CHECKED shoal_status shoali_elastic_find(const struct shoali_elasticity_config *config,
                                               int64_t count, bool exact,
                                               struct shoali_arena *arena,
                                               struct shoali_elastic_sizes *sizes);
/* The micro-batch of a valid count: the common one, else the largest m with m * count dividing the
 * batch. */
int64_t shoali_elastic_micro(const struct shoali_elasticity_config *config,
                             const struct shoali_elastic_sizes *sizes, int64_t count);
/* The largest valid count of at most `limit`, 0: there is none. */
int64_t shoali_elastic_largest(const struct shoali_elastic_sizes *sizes, int64_t limit);

/* Reads the section of a configuration file, and whether its "reduction" is exact; strings and
 * lists go to the arena. SHOAL_ECONFIG: there is none, it is not enabled, it has a mistake. */
SHOAL_CHECKED shoal_status shoali_elastic_read(struct shoali_json *document, const char *path,
                                               struct shoali_arena *arena,
                                               struct shoali_elasticity_config *config,
                                               bool *exact);

/* DEEPSPEED_ELASTICITY_CONFIG, by which a scheduler (here `shoal run --elastic_training`) says
 * which section it chose the ranks by, must agree with this one. Not set: nothing to agree with. */
SHOAL_CHECKED shoal_status
shoali_elastic_check_scheduler(const struct shoali_elasticity_config *config);
/* What that variable is set to. NULL: no memory. */
const char *shoali_elastic_variable(const struct shoali_elasticity_config *config,
                                    struct shoali_arena *arena);
#define SHOALI_ELASTIC_VARIABLE "DEEPSPEED_ELASTICITY_CONFIG"

#endif
