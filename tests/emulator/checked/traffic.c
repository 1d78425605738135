/* traffic.c - counts wavefronts and sectors: traffic.h. */
#include "traffic.h"

#include "emulator.h"
#include "emulator_checks.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 32, BANKS = 32, SECTOR = 32 };
enum { GROUPS_LOG2 = 15, GROUPS = 1 << GROUPS_LOG2, MAX_KERNELS = 128 };

/* ---- kernels ---- */

struct kernel {
    char name[64];
    int64_t turns, wavefronts; /* of shared memory: at least, and taken */
    int64_t asked, sectors;    /* of device memory: bytes over 32, and taken */
};
static struct kernel kernels[MAX_KERNELS];
static int kernel_count;
static struct kernel *now;

static bool is_wanted(void)
{
    static int wanted = -1;
    if (wanted < 0)
        wanted = getenv("SHOAL_EMULATOR_BUDGETS") != NULL;
    return wanted != 0;
}

/* ---- groups ---- */

struct group {
    uint64_t key; /* 0: free */
    int lanes;
    bool shared;
    uint32_t bytes;
    uintptr_t address[LANES]; /* by lane; 0: not there */
};
/* How often a thread was at a place. */
struct visits {
    uint64_t key;
    uint32_t count;
};
static struct group groups[GROUPS];
static struct visits visits[GROUPS];
static int group_used[GROUPS], visits_used[GROUPS], groups_count, visits_count;

static uint64_t mix(uint64_t a, uint64_t b)
{
    return ((a ^ b) * UINT64_C(0x9e3779b97f4a7c15)) | 1;
}

static int compare(const void *a, const void *b)
{
    const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}
/* Of so many numbers, each once. */
static int distinct(uintptr_t *number, int count)
{
    int kept = 0;
    qsort(number, (size_t)count, sizeof *number, compare);
    for (int i = 0; i < count; i++)
        if (i == 0 || number[i] != number[kept - 1])
            number[kept++] = number[i];
    return kept;
}

/* The most words of a bank among those that some lanes ask for. */
static int64_t wavefronts_of(const struct group *group, int first, int lanes)
{
    uintptr_t word[LANES * 4];
    int words = 0, in_bank[BANKS] = {0}, most = 0;
    for (int lane = first; lane < first + lanes; lane++)
        for (uint32_t at = 0; group->address[lane] != 0 && at < group->bytes; at += 4)
            word[words++] = (group->address[lane] + at) / 4;
    words = distinct(word, words);
    for (int i = 0; i < words; i++) {
        const int count = ++in_bank[word[i] % BANKS];
        most = count > most ? count : most;
    }
    return most;
}

static void count_shared(const struct group *group)
{
    const int together = group->bytes <= 4 ? LANES : LANES * 4 / (int)group->bytes;
    for (int first = 0; first < LANES; first += together) {
        const int64_t took = wavefronts_of(group, first, together);
        now->turns += took > 0;
        now->wavefronts += took;
    }
}

static void count_device(const struct group *group)
{
    uintptr_t sector[LANES];
    int sectors = 0;
    for (int lane = 0; lane < LANES; lane++)
        if (group->address[lane] != 0)
            sector[sectors++] = group->address[lane] / SECTOR;
    now->asked += (sectors * (int64_t)group->bytes + SECTOR - 1) / SECTOR;
    now->sectors += distinct(sector, sectors);
}

static void count_all(void)
{
    for (int i = 0; i < groups_count; i++) {
        struct group *group = &groups[group_used[i]];
        if (group->shared)
            count_shared(group);
        else
            count_device(group);
        *group = (struct group){0};
    }
    for (int i = 0; i < visits_count; i++)
        visits[visits_used[i]] = (struct visits){0};
    groups_count = visits_count = 0;
}

static uint32_t visit(uint64_t key)
{
    uint32_t i = (uint32_t)(key >> (64 - GROUPS_LOG2));
    while (visits[i].key != 0 && visits[i].key != key)
        i = (i + 1) % GROUPS;
    if (visits[i].key == 0) {
        visits[i].key = key;
        visits_used[visits_count++] = (int)i;
    }
    return visits[i].count++;
}

static struct group *find(uint64_t key)
{
    uint32_t i = (uint32_t)(key >> (64 - GROUPS_LOG2));
    while (groups[i].key != 0 && groups[i].key != key)
        i = (i + 1) % GROUPS;
    if (groups[i].key == 0) {
        groups[i].key = key;
        group_used[groups_count++] = (int)i;
    }
    return &groups[i];
}

void emulator_traffic_access(const void *address, size_t bytes, uint32_t thread, int shared,
                             const void *place)
{
    if (!is_wanted() || now == NULL || bytes > 16)
        return;
    if (groups_count > GROUPS / 2 || visits_count > GROUPS / 2)
        count_all(); /* lanes that come later count by themselves */
    const uint64_t site = mix((uintptr_t)place, (uint64_t)shared + 2 * bytes);
    const uint32_t time = visit(mix(site, UINT64_C(0x10001) * (thread + 1)));
    struct group *group = find(mix(mix(site, thread / LANES + 7), (uint64_t)time << 20));
    group->shared = shared != 0;
    group->bytes = (uint32_t)bytes;
    group->lanes++;
    group->address[thread % LANES] = (uintptr_t)address;
}

void emulator_traffic_block(void)
{
    if (is_wanted() && now != NULL)
        count_all();
}

/* ---- budgets ---- */

static int64_t hundredths(int64_t taken, int64_t least)
{
    return least > 0 ? (100 * taken + least / 2) / least : 0;
}

static void write_budgets(FILE *file)
{
    fprintf(file, "# compiler %s\n", __VERSION__);
    fprintf(file,
            "# Hundredths of wavefronts and sectors that a kernel takes: checked/traffic.h\n");
    for (int i = 0; i < kernel_count; i++) {
        const struct kernel *kernel = &kernels[i];
        fprintf(file, "%s wavefronts %lld sectors %lld\n", kernel->name,
                (long long)hundredths(kernel->wavefronts, kernel->turns),
                (long long)hundredths(kernel->sectors, kernel->asked));
    }
}

static void check_line(const char *name, long long wavefronts, long long sectors)
{
    for (int i = 0; i < kernel_count; i++) {
        const struct kernel *kernel = &kernels[i];
        const int64_t own[2] = {hundredths(kernel->wavefronts, kernel->turns),
                                hundredths(kernel->sectors, kernel->asked)};
        if (strcmp(kernel->name, name) != 0 || (own[0] <= wavefronts && own[1] <= sectors))
            continue;
        fprintf(stderr,
                "emulator: %s takes %lld wavefronts and %lld sectors for each 100, and its budget "
                "is %lld and %lld\n",
                name, (long long)own[0], (long long)own[1], wavefronts, sectors);
        abort();
    }
}

/* Another compiler accesses memory otherwise. */
static bool is_for_another(const char *line)
{
    char version[64];
    return sscanf(line, "# compiler %63s", version) == 1 &&
           (strncmp(version, __VERSION__, strlen(version)) != 0 || version[0] == '\0');
}

void emulator_traffic_end(void)
{
    const char *path = getenv("SHOAL_EMULATOR_BUDGETS");
    const bool update = getenv("SHOAL_EMULATOR_BUDGETS_UPDATE") != NULL;
    char line[200], name[64];
    long long wavefronts, sectors;
    FILE *file = path != NULL && kernel_count > 0 ? fopen(path, update ? "w" : "r") : NULL;
    if (path == NULL || kernel_count == 0)
        return;
    if (file == NULL)
        emulator_finding("cannot open %s", path);
    emulator_traffic_block();
    if (update)
        write_budgets(file);
    while (!update && fgets(line, sizeof line, file) != NULL && !is_for_another(line))
        if (sscanf(line, "%63s wavefronts %lld sectors %lld", name, &wavefronts, &sectors) == 3)
            check_line(name, wavefronts, sectors);
    fclose(file);
}

void emulator_traffic_launch(const void *kernel)
{
    Dl_info info;
    static const char prefix[] = "emulated_";
    if (!is_wanted() || dladdr(kernel, &info) == 0 || info.dli_sname == NULL)
        return;
    emulator_traffic_block();
    if (kernel_count == 0)
        (void)atexit(emulator_traffic_end);
    const char *name = info.dli_sname;
    if (strncmp(name, prefix, sizeof prefix - 1) == 0)
        name += sizeof prefix - 1;
    int i = 0;
    while (i < kernel_count && strcmp(kernels[i].name, name) != 0)
        i++;
    if (i == MAX_KERNELS)
        abort();
    if (i == kernel_count)
        snprintf(kernels[kernel_count++].name, sizeof kernels[0].name, "%s", name);
    now = &kernels[i];
}
