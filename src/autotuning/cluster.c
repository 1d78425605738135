/* cluster.c - rates by name. */
#include "autotuning/autotuning.h"

#include "base/str.h"

#include <string.h>

/* Of one accelerator, by data sheets: dense bf16 (V100: fp16) FLOP/s, memory, what it sends to
 * others of its machine, in units per second; links of a machine (DGX-1V, DGX A100, H100, H200) and
 * what one carries. `reached`: part of the FLOP/s that products of a training come to. A100: so
 * that published steps and a published layer come out right (published_test.c). H100: as much of
 * its largest products (0.83 of the data sheet to A100's 0.86: the table of achievable matmul FLOPS
 * in S. Bekman's "Machine learning engineering"). V100: nothing is known. */
static const struct {
    const char *name;
    double flops, reached, memory_bytes, node_bytes, link_bytes;
    int32_t links;
    int64_t gib;
} rows[] = {
    {"v100", 125e12, 0.6, 0.9e12, 150e9, 12.5e9, 4, 32},
    {"a100", 312e12, 0.72, 2.039e12, 300e9, 25e9, 8, 80},
    {"h100", 989e12, 0.7, 3.35e12, 450e9, 50e9, 8, 80},
    {"h200", 989e12, 0.7, 4.8e12, 450e9, 50e9, 8, 141},
};
enum { ROWS = sizeof rows / sizeof rows[0], RANKS_PER_NODE = 8 };
static const double reached_bytes = 0.8, latency_s = 10e-6, node_latency_s = 4e-6;

const char *shoal_cluster_name(int32_t index)
{
    return index >= 0 && index < ROWS ? rows[index].name : NULL;
}

shoal_status shoal_cluster_find(const char *name, shoal_plan_rates *rates, shoal_plan_limit *limit)
{
    const char *names[ROWS];
    for (int32_t i = 0; i < ROWS; i++) {
        names[i] = rows[i].name;
        if (strcmp(name, rows[i].name) != 0)
            continue;
        const shoal_plan_rates found = {.flops = rows[i].reached * rows[i].flops,
                                        .memory_bytes = reached_bytes * rows[i].memory_bytes,
                                        .network_bytes = reached_bytes * rows[i].link_bytes,
                                        .node_bytes = reached_bytes * rows[i].node_bytes,
                                        .latency_s = latency_s,
                                        .ranks_per_node = RANKS_PER_NODE,
                                        .node_latency_s = node_latency_s,
                                        .link_bytes = reached_bytes * rows[i].link_bytes,
                                        .links_per_node = rows[i].links};
        if (rates)
            *rates = found;
        if (limit)
            shoal_plan_set_limit(rows[i].gib << 30, limit);
        return SHOAL_OK;
    }
    const char *nearest = shoali_nearest(name, names, ROWS);
    return SHOAL_FAIL(SHOAL_EINVAL, "unknown cluster \"%s\"%s%s; give v100, a100, h100 or h200",
                      name, nearest ? "; nearest is " : "", nearest ? nearest : "");
}
