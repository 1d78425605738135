/* cpu - cpuid, XCR0 and the permission for tiles; MIDR and hardware capabilities of ARM. */
#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void shoali_cpu_read_signature(uint32_t signature, int32_t *family, int32_t *model)
{
    *family = (int32_t)(signature >> 8 & 15);
    *model = (int32_t)(signature >> 4 & 15);
    if (*family == 6 || *family == 15)
        *model |= (int32_t)(signature >> 16 & 15) << 4;
    if (*family == 15)
        *family += (int32_t)(signature >> 20 & 255);
}

/* Arm's list of implementers, as far as Linux runs on what they make. */
static const struct {
    uint32_t code;
    const char *name;
} implementers[] = {
    {0x41, "ARM"},       {0x42, "Broadcom"}, {0x43, "Cavium"},    {0x46, "Fujitsu"},
    {0x48, "HiSilicon"}, {0x4e, "NVIDIA"},   {0x50, "APM"},       {0x51, "Qualcomm"},
    {0x61, "Apple"},     {0x69, "Intel"},    {0x6d, "Microsoft"}, {0x70, "Phytium"},
    {0xc0, "Ampere"},
};

void shoali_cpu_read_midr(uint64_t midr, struct shoali_cpu *cpu)
{
    const uint32_t code = (uint32_t)(midr >> 24 & 255);
    snprintf(cpu->vendor, sizeof cpu->vendor, "maker 0x%02x", (unsigned)code);
    for (size_t i = 0; i < sizeof implementers / sizeof implementers[0]; i++)
        if (implementers[i].code == code)
            snprintf(cpu->vendor, sizeof cpu->vendor, "%s", implementers[i].name);
    cpu->family = 0;
    cpu->model = (int32_t)(midr >> 4 & 0xfff);
}

/* Bits of AT_HWCAP and AT_HWCAP2 (Linux, Documentation/arch/arm64/elf_hwcaps.rst). */
#define HWCAP_ASIMD_BIT (1u << 1)
#define HWCAP_CPUID_BIT (1u << 11)
#define HWCAP_ASIMDDP_BIT (1u << 20)
#define HWCAP_SVE_BIT (1u << 22)
#define HWCAP2_BF16_BIT (1u << 14)

void shoali_cpu_read_hwcaps(uint64_t hwcap, uint64_t hwcap2, struct shoali_cpu *cpu)
{
    cpu->asimd = (hwcap & HWCAP_ASIMD_BIT) != 0;
    cpu->asimddp = (hwcap & HWCAP_ASIMDDP_BIT) != 0;
    cpu->sve = (hwcap & HWCAP_SVE_BIT) != 0;
    cpu->bf16 = (hwcap2 & HWCAP2_BF16_BIT) != 0;
}

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of cpuid's leaf 7 (edx), of leaf 1 (ecx), and of XCR0: the tiles' configuration and data. */
#define AMX_BF16_BIT (1u << 22)
#define AMX_TILE_BIT (1u << 24)
#define AMX_INT8_BIT (1u << 25)
#define XGETBV_BIT (1u << 27)
#define TILE_STATES (3u << 17)
/* Linux's arch_prctl, and the number of the state that must be asked for. */
#define ARCH_REQ_XCOMP_PERM 0x1023
#define TILE_DATA 18

static uint32_t saved_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

struct shoali_cpu shoali_cpu_get(void)
{
    struct shoali_cpu cpu = {.vendor = ""};
    uint32_t a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d))
        return cpu;
    memcpy(cpu.vendor, &b, 4);
    memcpy(cpu.vendor + 4, &d, 4);
    memcpy(cpu.vendor + 8, &c, 4);
    if (__get_cpuid(1, &a, &b, &c, &d)) {
        shoali_cpu_read_signature(a, &cpu.family, &cpu.model);
        cpu.tiles_kept = (c & XGETBV_BIT) != 0 && (saved_states() & TILE_STATES) == TILE_STATES;
    }
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        cpu.amx_tile = (d & AMX_TILE_BIT) != 0;
        cpu.amx_bf16 = (d & AMX_BF16_BIT) != 0;
        cpu.amx_int8 = (d & AMX_INT8_BIT) != 0;
    }
    return cpu;
}

bool shoali_cpu_permit_tiles(void)
{
    const struct shoali_cpu cpu = shoali_cpu_get();
    return cpu.amx_tile && cpu.tiles_kept &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

/* Of core 0. Where no file says it, the instruction that Linux lets programs read it with, which
 * gives that of the core it runs on; 0: neither. */
static uint64_t midr(uint64_t hwcap)
{
    uint64_t value = 0;
    char text[32];
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1", "re");
    if (file != NULL) {
        if (fgets(text, sizeof text, file) != NULL)
            value = strtoull(text, NULL, 16);
        fclose(file);
    }
    if (value == 0 && (hwcap & HWCAP_CPUID_BIT) != 0)
        __asm__("mrs %0, midr_el1" : "=r"(value));
    return value;
}

struct shoali_cpu shoali_cpu_get(void)
{
    struct shoali_cpu cpu = {.vendor = ""};
    const uint64_t hwcap = getauxval(AT_HWCAP), identity = midr(hwcap);
    if (identity != 0)
        shoali_cpu_read_midr(identity, &cpu);
    shoali_cpu_read_hwcaps(hwcap, getauxval(AT_HWCAP2), &cpu);
    return cpu;
}

bool shoali_cpu_permit_tiles(void)
{
    return false;
}

#else

struct shoali_cpu shoali_cpu_get(void)
{
    return (struct shoali_cpu){.vendor = ""};
}

bool shoali_cpu_permit_tiles(void)
{
    return false;
}

#endif

/* ---- what is said ------------------------------------------------------------------------- */

const char *shoali_cpu_describe(const struct shoali_cpu *cpu, char text[SHOALI_CPU_NAME_BYTES])
{
    if (cpu->vendor[0] == '\0')
        return "unknown";
    if (cpu->family == 0)
        snprintf(text, SHOALI_CPU_NAME_BYTES, "%s part 0x%03x", cpu->vendor, (unsigned)cpu->model);
    else
        snprintf(text, SHOALI_CPU_NAME_BYTES, "%s family %d model %d", cpu->vendor,
                 (int)cpu->family, (int)cpu->model);
    return text;
}

const char *shoali_cpu_describe_tiles(const struct shoali_cpu *cpu, bool permitted)
{
    if (!cpu->amx_tile)
        return "none in this CPU";
    if (!cpu->tiles_kept)
        return "in this CPU, but the system does not keep their registers (XCR0): it needs Linux "
               "5.16 or later, and a virtual machine must be given them";
    if (!permitted)
        return "in this CPU and kept by the system, which does not permit them to this process "
               "(arch_prctl)";
    return cpu->amx_bf16 ? "usable" : "usable, without bf16";
}

const char *shoali_cpu_describe_vectors(const struct shoali_cpu *cpu,
                                        char text[SHOALI_CPU_VECTORS_BYTES])
{
    if (!cpu->asimd)
        return "none in this CPU";
    snprintf(text, SHOALI_CPU_VECTORS_BYTES, "Advanced SIMD; %s%s",
             cpu->bf16 ? "products of bf16 by BFDOT" : "no BFDOT (bf16), so bf16 is widened",
             cpu->sve ? "; SVE exists but is not used" : "");
    return text;
}
