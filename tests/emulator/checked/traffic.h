/* traffic - how kernels use memory: bank conflicts of shared memory, sectors of device memory.
 *
 *   group      what the lanes of a warp do at one place of the text, the n-th time each of them is
 *              there: one instruction of a warp. Lanes whose branches differ make several.
 *   wavefront  shared memory has 32 banks of 4 bytes, and serves a word of each at once. A group
 *              takes as many wavefronts as words of its fullest bank; accesses of more than 4 bytes
 *              take turns of as many lanes as fill the banks.
 *   sector     device memory comes in 32 bytes. Counted beside the bytes that lanes ask for.
 *
 * nvcc makes wider accesses than gcc, so these are measures of the text and not of a GPU.
 *
 * SHOAL_EMULATOR_BUDGETS names a file of lines "KERNEL wavefronts W sectors S": per group that
 * could take one, in hundredths, of all its launches. A kernel of the file that takes more is a
 * finding at the end of the process, or of the device. A line "# compiler VERSION" ends the file
 * for others. SHOAL_EMULATOR_BUDGETS_UPDATE=1 writes the file anew. */
#ifndef SHOAL_TEST_TRAFFIC_H
#define SHOAL_TEST_TRAFFIC_H

#include <stddef.h>
#include <stdint.h>

void emulator_traffic_launch(const void *kernel);
void emulator_traffic_block(void);
/* `place` is the same for all lanes. */
void emulator_traffic_access(const void *address, size_t bytes, uint32_t thread, int shared,
                             const void *place);
/* The verdict: at the end of the process, and where a device ends. */
void emulator_traffic_end(void);

#endif
