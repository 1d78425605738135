/* Flags of `shoal plan`. */
#include "plan/plan.h"

const char *const plan_algorithms[] = {"best",         "ring",      "doubling", "tree",
                                       "rabenseifner", "two_level", "direct",   NULL};

#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct plan_options, key, type, member, __VA_ARGS__)
static const struct shoali_option rows[] = {
    OPTION("world-size", INTS, world_size, .default_text = "1", .min = 1, .max = 1 << 20,
           .unit = "ranks", .flags = SHOALI_OPTION_COMMON,
           .help = "number of ranks to plan for, or a list: N[,N...]"),
    OPTION("memory-limit", STRING, memory_limit, .unit = "bytes", .flags = SHOALI_OPTION_COMMON,
           .help =
               "device memory of a rank, such as 80GiB; default: this machine's memory divided by "
               "--ranks-per-node"),
    OPTION("nodes", INT, nodes, .group = "cluster", .alias = "num_nodes", .min = 1, .max = 1 << 20,
           .help = "nodes of the cluster; without --world-size all their ranks are planned"),
    OPTION("ranks-per-node", INT, ranks_per_node, .group = "cluster", .alias = "num_gpus_per_node",
           .min = 0, .max = 1 << 20, .flags = SHOALI_OPTION_COMMON,
           .help = "ranks per node, which share this machine's memory; 0: all ranks"),
    OPTION("peak-tflops", FLOAT, peak_tflops, .group = "cluster", .min = 1e-6, .max = 1e6,
           .help =
               "peak arithmetic of a rank, in TFLOP/s; with it the time of a step is predicted"),
    OPTION("memory-bandwidth", FLOAT, memory_bandwidth, .group = "cluster", .min = 1e-6, .max = 1e6,
           .unit = "GB/s", .help = "memory bandwidth of a rank's device"),
    OPTION("network-bandwidth", FLOAT, network_bandwidth, .group = "cluster", .min = 1e-6,
           .max = 1e6, .unit = "GB/s", .help = "send bandwidth of a rank"),
    OPTION("node-bandwidth", FLOAT, node_bandwidth, .group = "cluster", .default_number = -1,
           .min = 0, .max = 1e6, .unit = "GB/s",
           .help = "send bandwidth of a rank to ranks of its node; 0: as --network-bandwidth"),
    OPTION("links-per-node", INT, links_per_node, .group = "cluster", .default_number = -1,
           .min = 0, .max = 1 << 16,
           .help = "network links per node, which its ranks share; 0: one per rank"),
    OPTION("link-bandwidth", FLOAT, link_bandwidth, .group = "cluster", .default_number = -1,
           .min = 0, .max = 1e6, .unit = "GB/s",
           .help = "bandwidth of a link; 0: --network-bandwidth for each rank"),
    OPTION("latency", FLOAT, latency_us, .group = "cluster", .default_number = -1, .min = 0,
           .max = 1e6, .unit = "us", .help = "latency of a message between nodes"),
    OPTION("node-latency", FLOAT, node_latency_us, .group = "cluster", .default_number = -1,
           .min = 0, .max = 1e6, .unit = "us",
           .help = "latency of a message within a node; 0: as --latency"),
    OPTION("collective-algorithm", ENUM, collective_algorithm, .group = "cluster",
           .choices = plan_algorithms,
           .help = "algorithm of collectives, where it applies; best: chosen by size and ranks; "
                   "direct: as the backends mpi and ucx do"),
    OPTION("cluster", STRING, cluster, .group = "cluster", .flags = SHOALI_OPTION_COMMON,
           .help = "known cluster with rates, memory, links and ranks per node: v100, a100, h100, "
                   "h200; or a file NAME.json that describes one"),
    OPTION("json", BOOL, json, .flags = SHOALI_OPTION_COMMON,
           .help = "print one line of JSON with exact numbers"),

    OPTION("search", BOOL, search, .flags = SHOALI_OPTION_COMMON,
           .help = "list the fastest layouts that fit; parallel sizes that are given stay fixed"),
    OPTION("search-results", INT, results, .default_number = 10, .min = 1, .max = 64,
           .help = "number of layouts to list, fastest first"),
    OPTION("draw", STRING, draw, .flags = SHOALI_OPTION_COMMON,
           .help = "file for a picture of the pipeline's schedule: FILE.svg"),
};
const struct shoali_section plan_section = {.name = "plan",
                                            .rows = SHOALI_ROWS(rows),
                                            .struct_bytes = sizeof(struct plan_options),
                                            .given_offset = offsetof(struct plan_options, given)};
