/* emulator_checks - the checks of each access of a kernel: the second build of the emulator.
 *
 * gcc calls a function at each access of a text that it compiles with -fsanitize=thread. Here these
 * functions are the emulator's own (checks.c) and not those of ThreadSanitizer: they know threads
 * of a GPU, which are fibers of one thread.
 *
 *   bounds   an access lies in the thread's own memory, the block's shared memory, or one block of
 *            device or pinned memory
 *   races    two threads use a byte, one of them writes, and nothing stands between them: no
 *            barrier of their block, no operation of their warp. Threads of different blocks are
 *            never ordered. Atomic accesses do not race with each other.
 *   traffic  a kernel beyond its budget of bank conflicts and sectors (checked/traffic.h)
 */
#ifndef SHOAL_TEST_EMULATOR_CHECKS_H
#define SHOAL_TEST_EMULATOR_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* checks.c has them, or nobody. */
void emulator_check_launch(const void *kernel) __attribute__((weak));
void emulator_check_block(void) __attribute__((weak));
void emulator_check_end(void) __attribute__((weak));
void emulator_check_access(const void *address, size_t bytes, bool writes, const char *where)
    __attribute__((weak));

/* When an access is: of which thread, and behind how many barriers and steps of its warp. */
struct emulator_time {
    uint32_t block, thread, barriers, warp_steps;
};
struct emulator_time emulator_now(void);
bool emulator_is_private(const void *address, size_t bytes);
bool emulator_is_shared(const void *address, size_t bytes);
/* driver.c: in one block of device or pinned memory. Without a driver all memory is. */
bool emulator_is_allocated(const void *address, size_t bytes) __attribute__((weak));

#endif
