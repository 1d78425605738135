/* caches - what sysfs and cpuid say of them. */
#include "base/caches.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- sysfs ----------------------------------------------------------------------------------- */

/* The line of folder/indexN/name; false: there is none. */
static bool read_line(const char *folder, int32_t index, const char *name, char line[4096])
{
    char path[512];
    if ((size_t)snprintf(path, sizeof path, "%s/index%d/%s", folder, (int)index, name) >=
        sizeof path)
        return false;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    const bool read = fgets(line, 4096, file) != NULL;
    fclose(file);
    return read;
}

/* "32768K" */
static int64_t read_size(const char *text)
{
    char *unit;
    const long long size = strtoll(text, &unit, 10);
    const int64_t factor = *unit == 'K' ? 1 << 10 : *unit == 'M' ? 1 << 20 : 1;
    return size > 0 && size < INT64_MAX >> 20 ? size * factor : 0;
}

enum { CORES_MAX = 1 << 16 };
/* "0-7,64-71": 16 */
static int32_t count_cores(const char *list)
{
    int64_t count = 0;
    for (char *end; *list >= '0' && *list <= '9'; list = *end == ',' ? end + 1 : end) {
        const long long first = strtoll(list, &end, 10);
        const long long last = *end == '-' ? strtoll(end + 1, &end, 10) : first;
        if (last < first || last >= CORES_MAX)
            break;
        count += last - first + 1;
    }
    return count > 0 && count <= CORES_MAX ? (int32_t)count : 1;
}

/* Notes a cache of data that was found. */
static void take(const struct shoali_cache *found, struct shoali_caches *caches)
{
    if (found->level == 1 && caches->l1.bytes == 0)
        caches->l1 = *found;
    if (found->level == 2 && caches->l2.bytes == 0)
        caches->l2 = *found;
    if (found->level > caches->last.level)
        caches->last = *found;
}

struct shoali_caches shoali_caches_read(const char *folder)
{
    struct shoali_caches caches = {.l1.cores = 1, .l2.cores = 1, .last.cores = 1};
    char line[4096];
    if (folder == NULL)
        folder = "/sys/devices/system/cpu/cpu0/cache";
    for (int32_t index = 0; read_line(folder, index, "level", line); index++) {
        struct shoali_cache found = {.level = (int32_t)strtol(line, NULL, 10), .cores = 1};
        found.bytes = read_line(folder, index, "size", line) ? read_size(line) : 0;
        if (found.bytes == 0 ||
            (read_line(folder, index, "type", line) && strncmp(line, "Instruction", 11) == 0))
            continue;
        if (read_line(folder, index, "ways_of_associativity", line))
            found.ways = (int32_t)strtol(line, NULL, 10);
        if (read_line(folder, index, "shared_cpu_list", line))
            found.cores = count_cores(line);
        take(&found, &caches);
    }
    return caches;
}

/* ---- cpuid ----------------------------------------------------------------------------------- */

#if defined(__x86_64__)

/* Intel's leaf for deterministic caches and AMD's with the same fields. Under a hypervisor the
 * count of cores may be of the host. */
static struct shoali_caches ask_cpu(void)
{
    struct shoali_caches caches = {.l1.cores = 1, .l2.cores = 1, .last.cores = 1};
    uint32_t a, b, c, d;
    char vendor[13] = "";
    if (!__get_cpuid(0, &a, &b, &c, &d))
        return caches;
    memcpy(vendor, &b, 4);
    memcpy(vendor + 4, &d, 4);
    memcpy(vendor + 8, &c, 4);
    const uint32_t leaf = strcmp(vendor, "GenuineIntel") == 0 ? 4 : 0x8000001du;
    for (uint32_t index = 0; index < 8 && __get_cpuid_count(leaf, index, &a, &b, &c, &d); index++) {
        const uint32_t type = a & 31; /* 0: none, 1: data, 2: instructions, 3: both */
        if (type == 0)
            break;
        const struct shoali_cache found = {.level = (int32_t)(a >> 5 & 7),
                                           .ways = (int32_t)(b >> 22) + 1,
                                           .cores = (int32_t)(a >> 14 & 0xfff) + 1,
                                           .bytes = ((int64_t)(b >> 22) + 1) *
                                                    ((b >> 12 & 0x3ff) + 1) * ((b & 0xfff) + 1) *
                                                    ((int64_t)c + 1)};
        if (type != 2)
            take(&found, &caches);
    }
    return caches;
}

#else

static struct shoali_caches ask_cpu(void)
{
    return (struct shoali_caches){.l1.cores = 1, .l2.cores = 1, .last.cores = 1};
}

#endif

/* ---- what kernels go by ---------------------------------------------------------------------- */

/* A small core's, for what nothing tells. */
static const struct shoali_caches small = {
    .l1 = {.bytes = 32 << 10, .cores = 1, .level = 1, .ways = 8},
    .l2 = {.bytes = 256 << 10, .cores = 1, .level = 2, .ways = 8},
    .last = {.bytes = 2 << 20, .cores = 1, .level = 3, .ways = 16}};

static struct shoali_caches machine, pretended;
static const char *given; /* the variable; NULL: not set */
static const struct shoali_caches *used = &machine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void complete(struct shoali_cache *cache, const struct shoali_cache *asked,
                     const struct shoali_cache *guess)
{
    if (cache->bytes == 0)
        *cache = asked->bytes > 0 ? *asked : *guess;
    if (cache->ways <= 0)
        cache->ways = guess->ways;
}

static bool read_text(const char *text, struct shoali_caches *caches)
{
    int64_t part[4];
    for (int i = 0; i < 4; i++) {
        char *end;
        const long long number = strtoll(text, &end, 10);
        const int64_t factor = i == 3 || (*end != 'K' && *end != 'M') ? 1
                               : *end == 'K'                          ? 1 << 10
                                                                      : 1 << 20;
        part[i] = number * factor;
        end += factor > 1;
        if (end == text || number <= 0 || number >= 1 << 30 || *end != (i < 3 ? ',' : '\0'))
            return false;
        text = end + 1;
    }
    *caches = (struct shoali_caches){
        .l1 = {.bytes = part[0], .cores = 1, .level = 1, .ways = (int32_t)part[3]},
        .l2 = {.bytes = part[1], .cores = 1, .level = 2, .ways = 8},
        .last = {.bytes = part[2], .cores = 1, .level = 3, .ways = 16}};
    return true;
}

static void ask_machine(void)
{
    machine = shoali_caches_read(NULL);
    const struct shoali_caches cpu = ask_cpu();
    complete(&machine.l1, &cpu.l1, &small.l1);
    complete(&machine.l2, &cpu.l2, &small.l2);
    complete(&machine.last, &cpu.last, &machine.l2);
    const char *text = getenv("SHOAL_CPU_CACHES");
    given = text != NULL && *text != '\0' ? text : NULL;
    struct shoali_caches caches;
    if (given != NULL && read_text(given, &caches))
        machine = caches;
}

const struct shoali_caches *shoali_caches_get(void)
{
    pthread_once(&once, ask_machine);
    return used;
}

int64_t shoali_cache_share(const struct shoali_caches *caches, const struct shoali_cache *cache)
{
    const int32_t siblings = caches->l1.cores > 0 ? caches->l1.cores : 1;
    const int32_t cores = cache->cores / siblings;
    return cache->bytes / (cores > 0 ? cores : 1);
}

shoal_status shoali_caches_check(void)
{
    struct shoali_caches caches;
    pthread_once(&once, ask_machine);
    if (given == NULL || read_text(given, &caches))
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "SHOAL_CPU_CACHES is \"%s\": give the bytes of L1, of L2 and of a core's "
                      "share of the last level, and the ways of L1, as 32K,512K,16M,8",
                      given);
}

bool shoali_caches_pretend(const char *text)
{
    pthread_once(&once, ask_machine);
    used = text != NULL ? &pretended : &machine;
    return text == NULL || read_text(text, &pretended);
}
