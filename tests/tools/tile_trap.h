/* tile_trap - AMX's tile instructions on a CPU that has none: their real machine code, executed by
 * hand.
 *
 * Such a CPU raises an invalid-opcode fault at each tile instruction, which Linux delivers as
 * SIGILL. Between begin and end a handler of that signal reads the instruction at the fault, does
 * to memory and to eight tiles of the thread what a CPU with AMX would have done, and steps over
 * it. So a test runs the kernels of cpu-amx as they are compiled: operands, encodings, addresses,
 * configurations.
 *
 * WHAT IS EXECUTED. LDTILECFG, STTILECFG, TILERELEASE, TILEZERO, TILELOADD, TILELOADDT1, TILESTORED
 * and TDPBF16PS, in 64-bit mode, with every form of address but those with a prefix before the VEX
 * one (a segment, 32-bit addresses). The arithmetic is ops/cpu/amx/emulated.h's.
 *
 * WHAT IS CHECKED. What is an exception on a CPU with AMX, #UD and #GP alike, ends the process: a
 * line on stderr says the instruction, the rule and the address, then SIGILL has its default
 * action.
 *     state      tiles were configured, and the process was permitted to use them (tile_trap_permit;
 *                Linux kills one that was not at its first use of tile data, the trap already at
 *                LDTILECFG)
 *     encoding   W0, L0, an unused vvvv of ones, SIB where it is required, registers below 8
 *     configure  palette 0 or 1, reserved bytes zero (those of registers 8 .. 15 too), at most 16
 * rows of
 *                at most 64 bytes, rows and bytes zero only together
 *     loads and stores   a configured register, bytes a multiple of 4, start_row below its rows
 *     TDPBF16PS  three different configured registers, C.rows = A.rows, A.bytes = 4 B.rows, B.bytes
 * =
 *                C.bytes, all bytes multiples of 4
 * Every other illegal instruction, and a SIGILL that somebody sent, has the default action at once.
 *
 * WHAT IS NOT. Speed; what the system does with tiles at context switches and in signal frames;
 * pages that are missing (a fault of the handler is a crash, where the CPU would note the row and
 * go on later).
 *
 * THE REST OF THE PROGRAM is told what fits: a program that links the library `tile_trap` (CMake)
 * has wrappers around shoali_cpu_get and shoali_cpu_permit_tiles, which say between begin and end
 * that there are tiles and that they are permitted, and around pthread_sigmask, because a thread
 * that blocks SIGILL would be killed by it.
 *
 * Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (the
 * instructions, their exception classes AMX-E1 to E6) and 2.1.5, 2.3 (ModRM, SIB, VEX); Intel
 * Architecture Instruction Set Extensions Programming Reference (tiles); Linux,
 * Documentation/arch/x86/xstate.rst (permission).
 */
#ifndef TILE_TRAP_H
#define TILE_TRAP_H

#include <stdint.h>

/* Instructions of all threads since the first tile_trap_begin. */
struct tile_trap_counts {
    int64_t configures, releases, zeros, loads, stores, multiplies;
    /* Threads that have a configuration now: on hardware each of their context switches saves and
     * restores tiles. Those that ended with one count, too. */
    int64_t configured_threads;
};

/* NULL: instructions are executed from now on. Else why not: a CPU that has tiles, or one without
 * the vectors that the rest of the kernels is compiled for. Called by a thread before it starts
 * those that compute, and within a test of cmocka, which has a handler of SIGILL of its own around
 * each; begin and end do not nest. */
const char *tile_trap_begin(void);
void tile_trap_end(void);
/* What the system grants in answer to arch_prctl, for all threads, until tile_trap_end. */
void tile_trap_permit(void);
struct tile_trap_counts tile_trap_counts(void);

#endif
