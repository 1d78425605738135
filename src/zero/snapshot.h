/* snapshot - masters and states as they were between two steps, for a thread that reads them while
 * training goes on: software copy-on-write.
 *
 *   row     masters, or one state: what the optimizer writes, element by element of the part space
 *   block   a run of the part space of each row. A block of a row is
 *             pending   as it was, where it lives
 *             read      the reader is copying from it
 *             copied    about to be changed: a copy of it is in a slot, or on its way there
 *             over      everything that the reader will ask of it was read, and its slot is free
 *   slot    room for one block; there are so many, and that is all the memory there is
 *
 * The reader first tells what it will ask (expect), so that a block is over as soon as the last
 * element that anyone wants was read. The update calls shoali_zero_snapshot_guard in front of each
 * piece that it changes: it copies what is pending there into slots; without a free one it waits
 * until the reader has freed one, or has read the block itself. That and nothing else is what a
 * save costs the training; its time is counted.
 *
 * Nobody waits for ever: the update waits for the reader alone, the reader only for a copy of one
 * block, and whatever becomes of a save ends with shoali_zero_snapshot_end.
 *
 * The 16-bit weights are not rows. They are the masters rounded (update.h), so they are read so; in
 * stages 1 and 2 they would change with every gather of weights.
 *
 * What an optimizer keeps of whole tensors is small and copied when the snapshot begins.
 *
 * THREADS  begin, guard: the rank's. All others: the reader's. A stream of the device is the
 * reader's own, and begins where the rank's was.
 */
#ifndef SHOALI_ZERO_SNAPSHOT_H
#define SHOALI_ZERO_SNAPSHOT_H

#include "zero/layout.h"
#include "zero/setup.h"

struct shoali_zero_masters;
struct shoali_zero_snapshot;

/* Keeps elements [local, local + count) of the part space, which are about to be changed. NULL, or
 * no snapshot under way: nothing. */
SHOAL_CHECKED shoal_status shoali_zero_snapshot_guard(struct shoali_zero_snapshot *snapshot,
                                                      int64_t local, int64_t count);
/* Elements that should be updated at once at most, so that what is kept and what is read take
 * turns; INT64_MAX without a snapshot under way. */
int64_t shoali_zero_snapshot_piece(const struct shoali_zero_snapshot *snapshot);
void shoali_zero_snapshot_fini(struct shoali_zero_snapshot *snapshot);

#endif
