/* slot - the offset allocator behind a tape's memory. Internal to autograd.
 *
 * One address space of offsets, cut into 64-byte units, first fit, neighbours coalesced: what an
 * allocation gets is a function of the sequence of calls alone, so a meta run (no memory) ends with
 * the peak a real run needs. A real slot is one device block; when a request does not fit, a
 * further block is appended (counted), and no segment crosses blocks.
 */
#ifndef SHOALI_AUTOGRAD_SLOT_H
#define SHOALI_AUTOGRAD_SLOT_H

#include "autograd/autograd.h"

#define SHOALI_NO_SEGMENT (-1)
/* Address handed out for meta memory: never NULL, never dereferenced. */
#define SHOALI_META_ADDRESS ((char *)(uintptr_t)4096)

SHOAL_CHECKED shoal_status shoali_slot_alloc(struct shoali_slot *slot, size_t bytes,
                                             int32_t *segment);
/* SHOALI_NO_SEGMENT is fine. */
void shoali_slot_free(struct shoali_slot *slot, int32_t segment);
void *shoali_slot_address(const struct shoali_slot *slot, int32_t segment);
/* Frees all segments, keeps the blocks. */
void shoali_slot_reset(struct shoali_slot *slot);
size_t shoali_slot_used_bytes(const struct shoali_slot *slot);
/* Most that was used at once since the last call: what a part of a recording needs. */
size_t shoali_slot_take_high(struct shoali_slot *slot);

#endif
