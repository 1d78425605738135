/* sim - what tests may ask of the simulated device beyond the accelerator table.
 *
 * Environment, read when a device is made:
 *   SHOAL_SIM_BYTES    size of the reservation (default 8 GiB, at most 1 TiB)
 *   SHOAL_SIM_STREAMS  late (default), random or thread
 *   SHOAL_SIM_SEED     seed of `random` (default 0)
 * and when the accelerator is chosen:
 *   SHOAL_SIM_MEMORY   open (default) or closed
 */
#ifndef SHOALI_ACCELERATOR_SIM_H
#define SHOALI_ACCELERATOR_SIM_H

#include "accelerator/accelerator.h"

/* True when the address lies in the device range of this sim device: for a SIGSEGV handler that
 * wants to say "host code touched device memory". False for devices of other accelerators.
 * Async-signal-safe. */
bool shoali_sim_owns(const struct shoali_device *device, const void *address);

#endif
