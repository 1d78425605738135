/* base - what every other folder stands on: errors, logging, memory, strings, numbers, threads.
 *
 * Level L0: knows nothing of tensors, devices or ranks beyond the numbers in the thread's context.
 * One small header per subject; this one includes them all.
 *
 *   error.h         SHOAL_FAIL / SHOAL_TRY, the thread's last error and context
 *   log.h           levelled log lines per subsystem, to a callback sink
 *   arena.h         bump memory with one lifetime; checked arithmetic
 *   str.h           string builder, nearest key, number parsing, UTF-8, small files
 *   json.h          JSON texts to values and back
 *   config_table.h  rows of options: JSON sections, flags, help and docs from one table
 *   rng.h           Philox counter-based random numbers, streams by logical name
 *   mathx.h         exp, ln, sin, cos, tanh, erf with the same bits on every machine
 *   clock.h         monotonic nanoseconds, deadlines
 *   pool.h          the rank's thread pool: claimed pieces, bounded spin then futex
 *   worker.h        one thread that runs jobs in order
 *   process.h       what the kernel tells of a process
 *   cgroup.h        control groups: the limits of a container
 *   waiting.h       a wait that says for whom, after 5 s
 *   memory.h        main memory that is left, by the machine and its control groups
 *   status_page.h   what a rank says of itself, where others can read it
 *   fault.h         named fault points for tests
 *   hash.h          xxh3 of bytes
 *
 * Invariants: no mutable process globals (ranks may be threads): state is in objects or in the
 * thread-local context (one stated exception in pool.c). No function prints, exits or aborts,
 * except SHOAL_ASSERT on our own bugs.
 */
#ifndef SHOALI_BASE_H
#define SHOALI_BASE_H

#include "base/arena.h"
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/config_table.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mathx.h"
#include "base/pool.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/started.h"
#include "base/status_page.h"
#include "base/str.h"
#include "base/worker.h"

#endif
