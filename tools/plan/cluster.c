/* --cluster FILE.json: a cluster in figures, by the names of the flags.
 *
 *   {"base": "a100", "nodes": 64, "ranks_per_node": 8, "links_per_node": 4, "link_bandwidth": 25,
 *    "latency": 8, "node_bandwidth": 240, "node_latency": 4}
 */
#include "plan/plan.h"

#include <limits.h>
#include <string.h>

struct cluster_file {
    struct plan_options figures;
    const char *base, *memory;
};
#define O(member) offsetof(struct cluster_file, member)
#define OPTION(key, type, member, ...) \
    SHOALI_OPTION(struct cluster_file, key, type, member, __VA_ARGS__)
/* `absent`: 0, or -1 where the flag of the same name may say 0. */
#define GB(name, absent, text)                                                                   \
    {                                                                                            \
        .key = #name, .type = SHOALI_FLOAT, .offset = O(figures.name), .default_number = absent, \
        .min = 1e-6, .max = 1e6, .unit = "GB/s", .help = text                                    \
    }
#define COUNT(name, absent, text)                                                              \
    {                                                                                          \
        .key = #name, .type = SHOALI_INT, .offset = O(figures.name), .default_number = absent, \
        .min = 1, .max = 1 << 20, .help = text                                                 \
    }
static const struct shoali_option rows[] = {
    OPTION("base", STRING, base,
           .help = "name of a known cluster, for the keys that the file leaves out"),
    OPTION("memory", STRING, memory, .help = "device memory of a rank"),
    COUNT(nodes, 0, "nodes of the cluster"),
    COUNT(ranks_per_node, 0, "ranks per node"),
    COUNT(links_per_node, -1, "network links per node"),
    GB(link_bandwidth, -1, "bandwidth of a link"),
    GB(network_bandwidth, 0, "send bandwidth of a rank"),
    GB(node_bandwidth, -1, "send bandwidth of a rank to ranks of its node"),
    GB(memory_bandwidth, 0, "memory bandwidth of a rank"),
    OPTION("peak_tflops", FLOAT, figures.peak_tflops, .min = 1e-6, .max = 1e6,
           .help = "peak arithmetic of a rank, in TFLOP/s"),
    OPTION("latency", FLOAT, figures.latency_us, .default_number = -1, .min = 0, .max = 1e6,
           .unit = "us", .help = "latency of a message between nodes"),
    OPTION("node_latency", FLOAT, figures.node_latency_us, .default_number = -1, .min = 0,
           .max = 1e6, .unit = "us", .help = "latency of a message within a node"),
    OPTION("collective_algorithm", ENUM, figures.collective_algorithm, .choices = plan_algorithms,
           .help = "algorithm of collectives"),
};
static const struct shoali_section section = {.name = "cluster",
                                              .rows = SHOALI_ROWS(rows),
                                              .struct_bytes = sizeof(struct cluster_file),
                                              .given_offset = SIZE_MAX};

static bool is_file(const char *cluster)
{
    const size_t bytes = cluster ? strlen(cluster) : 0;
    return bytes > 5 && strcmp(cluster + bytes - 5, ".json") == 0;
}

/* A flag counts more than the file, also where it says 0. */
static void take_count(struct plan_options *own, const char *flag, int64_t *value, int64_t other)
{
    *value = shoali_config_given(&plan_section, own, flag) ? *value : other;
}

static void take_rate(struct plan_options *own, const char *flag, double *value, double other)
{
    *value = shoali_config_given(&plan_section, own, flag) ? *value : other;
}

/* A flag's bandwidth of the network is instead of the file's links, too. */
static void merge(const struct cluster_file *file, struct plan_options *own)
{
    const struct plan_options *other = &file->figures;
    const bool links = own->network_bandwidth <= 0;
    take_count(own, "nodes", &own->nodes, other->nodes);
    take_count(own, "ranks-per-node", &own->ranks_per_node, other->ranks_per_node);
    take_count(own, "links-per-node", &own->links_per_node, links ? other->links_per_node : -1);
    take_rate(own, "link-bandwidth", &own->link_bandwidth, links ? other->link_bandwidth : -1);
    take_rate(own, "network-bandwidth", &own->network_bandwidth,
              own->link_bandwidth > 0 ? 0 : other->network_bandwidth);
    take_rate(own, "node-bandwidth", &own->node_bandwidth, other->node_bandwidth);
    take_rate(own, "memory-bandwidth", &own->memory_bandwidth, other->memory_bandwidth);
    take_rate(own, "peak-tflops", &own->peak_tflops, other->peak_tflops);
    take_rate(own, "latency", &own->latency_us, other->latency_us);
    take_rate(own, "node-latency", &own->node_latency_us, other->node_latency_us);
    if (!shoali_config_given(&plan_section, own, "collective-algorithm"))
        own->collective_algorithm = other->collective_algorithm;
    if (!own->memory_limit)
        own->memory_limit = file->memory;
}

static shoal_status read_file(struct planning *planning)
{
    shoal_status status;
    struct cluster_file file;
    shoal_plan_rates named;
    shoal_plan_limit limit;
    struct shoali_json *document = NULL;
    struct plan_options *own = &planning->own;
    const char *path = own->cluster;
    SHOAL_TRY(status, shoali_config_defaults(&section, &file, &planning->arena), done);
    SHOAL_TRY(status, shoali_json_load(path, &document), done);
    SHOAL_TRY(status, shoali_config_read_json(&section, document, "", &file, &planning->arena),
              done);
    if (file.base)
        SHOAL_TRY(
            status,
            shoali_json_locate(document, "base", shoal_cluster_find(file.base, &named, &limit)),
            done);
    merge(&file, own);
    own->cluster = file.base;
    snprintf(planning->rates_from, sizeof planning->rates_from, " of %s", path);
done:
    shoali_json_close(document);
    return status;
}

static shoal_status check_nodes(const struct planning *planning)
{
    const struct plan_options *own = &planning->own;
    const bool given = shoali_config_given(&plan_section, own, "world-size");
    if (own->nodes == 0)
        return SHOAL_OK;
    if (own->ranks_per_node == 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--nodes %lld needs the ranks of each node: give --ranks-per-node, or "
                          "a --cluster that has them",
                          (long long)own->nodes);
    if (own->nodes > INT32_MAX / own->ranks_per_node)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--nodes %lld of %lld ranks each are too many: at most %d "
                          "ranks are possible",
                          (long long)own->nodes, (long long)own->ranks_per_node, INT32_MAX);
    for (int32_t i = 0; given && i < own->world_size.count; i++)
        if (own->world_size.value[i] > own->nodes * own->ranks_per_node)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "--world-size %lld is more than the %lld ranks of --nodes %lld, %lld "
                              "on each: give more nodes or fewer ranks",
                              (long long)own->world_size.value[i],
                              (long long)(own->nodes * own->ranks_per_node), (long long)own->nodes,
                              (long long)own->ranks_per_node);
    return SHOAL_OK;
}

/* What would say nothing. */
static shoal_status check_figures(const struct planning *planning)
{
    const struct plan_options *own = &planning->own;
    const bool latency = own->latency_us >= 0 || own->node_latency_us >= 0;
    if (own->cluster)
        return SHOAL_OK;
    if (own->links_per_node > 0 && own->link_bandwidth <= 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--links-per-node %lld needs the GB/s of a link: give "
                          "--link-bandwidth, or a --cluster that has it",
                          (long long)own->links_per_node);
    if (latency && own->peak_tflops <= 0 && own->memory_bandwidth <= 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--%s alone cannot predict the time of a step: give also --peak-tflops "
                          "and bandwidths, or a --cluster",
                          own->latency_us >= 0 ? "latency" : "node-latency");
    return SHOAL_OK;
}

shoal_status plan_read_cluster(struct planning *planning)
{
    shoal_status status = SHOAL_OK;
    shoal_plan_rates named;
    shoal_plan_limit limit;
    struct plan_options *own = &planning->own;
    if (is_file(own->cluster))
        SHOAL_TRY(status, read_file(planning), done);
    if (own->cluster && own->ranks_per_node == 0 &&
        !shoali_config_given(&plan_section, own, "ranks-per-node")) {
        SHOAL_TRY(status, shoal_cluster_find(own->cluster, &named, &limit), done);
        own->ranks_per_node = named.ranks_per_node;
    }
    SHOAL_TRY(status, check_figures(planning), done);
    SHOAL_TRY(status, check_nodes(planning), done);
done:
    return status;
}
