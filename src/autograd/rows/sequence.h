/* sequence - tensors [B, T/t, ..] whose sequence tp divides: between their layout, in which a
 * sample's positions follow each other, and that of messages, in which a rank's do. For the files
 * of tp's rows.
 */
#ifndef SHOALI_AUTOGRAD_SEQUENCE_H
#define SHOALI_AUTOGRAD_SEQUENCE_H

#include "autograd/rows/rows.h"

struct shoali_sequence {
    int64_t outer, inner; /* samples; elements of a sample that a rank has */
    int32_t ranks, rank;
    shoal_dtype dtype;
    size_t bytes; /* of a rank's part, by its bound */
};
/* Of a part. */
struct shoali_sequence shoali_sequence_of(const struct shoal_tape *tape,
                                          const struct shoal_tensor *part);
/* The same elements of another type. */
static inline void shoali_sequence_as(struct shoali_sequence *sequence, shoal_dtype dtype)
{
    sequence->bytes =
        sequence->bytes / shoal_dtype_bytes(sequence->dtype) * shoal_dtype_bytes(dtype);
    sequence->dtype = dtype;
}
/* Of the whole. */
static inline size_t shoali_sequence_bytes(const struct shoali_sequence *sequence)
{
    return sequence->bytes * (size_t)sequence->ranks;
}
/* SHOAL_EINVAL: ranks do not divide it. */
SHOAL_CHECKED shoal_status shoali_sequence_check(const struct shoal_tape *tape, int64_t length);
/* [outer][ranks][inner] to [ranks][outer][inner], and back. */
SHOAL_CHECKED shoal_status shoali_sequence_pack(struct shoal_tape *tape,
                                                const struct shoali_sequence *sequence,
                                                const void *from, void *to);
SHOAL_CHECKED shoal_status shoali_sequence_unpack(struct shoal_tape *tape,
                                                  const struct shoali_sequence *sequence,
                                                  const void *from, void *to);
/* Of rows whose forward gathers a part. */
SHOAL_CHECKED shoal_status shoali_sequence_gather_infer(struct shoal_tape *tape,
                                                        struct shoali_node *node);
SHOAL_CHECKED shoal_status shoali_sequence_gather_post(struct shoal_tape *tape,
                                                       struct shoali_node *node);
SHOAL_CHECKED shoal_status shoali_sequence_gather_finish(struct shoal_tape *tape,
                                                         struct shoali_node *node);

#endif
