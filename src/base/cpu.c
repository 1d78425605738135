/* cpu - cpuid, XCR0 and the permission for tiles. */
#include "base/cpu.h"

#include <stdio.h>
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

const char *shoali_cpu_describe(const struct shoali_cpu *cpu, char text[SHOALI_CPU_NAME_BYTES])
{
    if (cpu->vendor[0] == '\0')
        return "unknown";
    snprintf(text, SHOALI_CPU_NAME_BYTES, "%s family %d model %d", cpu->vendor, (int)cpu->family,
             (int)cpu->model);
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
