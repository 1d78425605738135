/* cpu - which processor this is: who made it, which one of theirs, and which vectors it has.
 *
 * x86's instructions of vectors are asked for where they are compiled (__builtin_cpu_supports).
 * Here is what that does not know: the identity, because an instruction may be there and be slow,
 * and AMX, whose registers need the CPU (cpuid), the system (XCR0) and, on Linux, a permission of
 * the process. Of ARM: what the system gives to programs (AT_HWCAP), and the identity (MIDR_EL1) of
 * core 0, so that a machine with cores of several kinds has one answer. Its caches are in caches.h.
 */
#ifndef SHOALI_CPU_H
#define SHOALI_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shoali_cpu {
    char vendor[13]; /* "GenuineIntel", "AuthenticAMD", "ARM", "Apple"; "" where nothing tells */
    int32_t family, model; /* as the vendor counts, extended parts added; of ARM 0 and the part */
    bool amx_tile, amx_bf16, amx_int8; /* instructions */
    bool tiles_kept;                   /* the system saves and restores tile registers */
    bool asimd, asimddp, bf16, sve;    /* of ARM, by the names of /proc/cpuinfo */
};
struct shoali_cpu shoali_cpu_get(void);

/* Family and model of cpuid's signature (leaf 1, eax). */
void shoali_cpu_read_signature(uint32_t signature, int32_t *family, int32_t *model);
/* Vendor and model of ARM's MIDR_EL1. */
void shoali_cpu_read_midr(uint64_t midr, struct shoali_cpu *cpu);
/* Vectors of ARM's AT_HWCAP and AT_HWCAP2. */
void shoali_cpu_read_hwcaps(uint64_t hwcap, uint64_t hwcap2, struct shoali_cpu *cpu);

/* Asks the system to let this process use tile registers, once and for all its threads, those that
 * are still to start included; whether it may. */
bool shoali_cpu_permit_tiles(void);

/* "GenuineIntel family 6 model 143", "ARM part 0xd40", or "unknown". */
#define SHOALI_CPU_NAME_BYTES 64
const char *shoali_cpu_describe(const struct shoali_cpu *cpu, char text[SHOALI_CPU_NAME_BYTES]);
/* Whether tiles can be used, and if not, what is missing. `permitted`:
 * shoali_cpu_permit_tiles(). */
const char *shoali_cpu_describe_tiles(const struct shoali_cpu *cpu, bool permitted);
/* The same of ARM's vectors: what is used of them and what is not. */
#define SHOALI_CPU_VECTORS_BYTES 160
const char *shoali_cpu_describe_vectors(const struct shoali_cpu *cpu,
                                        char text[SHOALI_CPU_VECTORS_BYTES]);

#endif
