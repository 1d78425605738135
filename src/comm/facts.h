/* facts - named values that all ranks of a group must have alike, compared before they are used.
 *
 * A fact is a name and a short text. All ranks list their facts in one order. What is long, such
 * as a table of buckets, is a fact with a digest. The comparison is one message of three numbers:
 * the digest of the list, and whether the rank has failed. Only where digests differ do lists
 * travel. Every rank can then say which facts differ, with both values.
 *
 * A rank that has failed takes part too: the others get its sentence instead of a wait for it. A
 * rank without facts (of a stage that reads no data) agrees with everything.
 */
#ifndef SHOALI_COMM_FACTS_H
#define SHOALI_COMM_FACTS_H

#include "base/str.h"
#include "comm/comm.h"

/* Zero-initialise. */
struct shoali_facts {
    struct shoali_str text; /* name, NUL, value, NUL, of each */
    int32_t count;
};
void shoali_facts_add(struct shoali_facts *facts, const char *name, const char *format, ...)
    SHOAL_PRINTF(3, 4);
/* A value of many bytes: `format` says it shortly, and the digest of the bytes stands behind. Bytes
 * that memory was missing for fail the comparison with SHOAL_ENOMEM. */
void shoali_facts_add_bytes(struct shoali_facts *facts, const char *name,
                            const struct shoali_str *bytes, const char *format, ...)
    SHOAL_PRINTF(4, 5);
void shoali_facts_fini(struct shoali_facts *facts);

/* Collective over the group (NULL: one rank, which agrees with itself). `number` is what messages
 * call this rank, `own` how far it came. Returns `own` where that is an error; SHOAL_EPEER with the
 * sentence of another rank that has failed; SHOAL_EMISMATCH, on all ranks alike, names the facts
 * that differ. The group stays good. */
SHOAL_CHECKED shoal_status shoali_facts_agree(const struct shoali_facts *facts, shoal_group *group,
                                              int32_t number, shoal_status own);

#endif
