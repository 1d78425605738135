/* Rates: by name, by flags, or of this machine. */
#include "plan/plan.h"

#include "base/json.h"
#include "base/pool.h"
#include "base/str.h"
#include "benchmark/bench.h"

#include <jansson.h>
#include <string.h>

enum { SAMPLES = 3, ROWS = 1024, COLUMNS = 3072, DEPTH = 768, MIB = 1 << 20 };
static const double seconds = 0.3;

/* The last figure of a measurement, or one of its values. */
struct figure {
    const char *value; /* NULL: the median */
    double number;
};

static shoal_status take_figure(void *user, const shoali_bench_result *result)
{
    struct figure *figure = user;
    if (!figure->value)
        figure->number = result->median;
    for (int32_t i = 0; figure->value && i < result->value_count; i++)
        if (strcmp(result->values[i].name, figure->value) == 0)
            figure->number = result->values[i].value;
    return SHOAL_OK;
}

static bool has_bf16(const struct planning *planning)
{
    struct shoali_json *document = NULL;
    const shoal_engine_args *args = &planning->setup.args;
    const shoal_status status =
        args->config_text ? shoali_json_parse(args->config_text, strlen(args->config_text),
                                              "the configuration", &document)
                          : shoali_json_load_config(args->config_path, &document);
    bool found = false;
    if (status < 0)
        shoali_error_clear(); /* the engine will say it */
    else
        found = json_is_true(
            json_object_get(json_object_get(shoali_json_root(document), "bf16"), "enabled"));
    shoali_json_close(document);
    return found;
}

/* All ranks of this machine work at once, so each has its share of what all cores do. */
static shoal_status measure(struct planning *planning, int32_t ranks)
{
    shoal_status status;
    struct figure flops = {0}, memory = {0}, sent = {.value = "busbw"};
    shoali_bench_run run = {
        .repeats = SAMPLES, .seconds = seconds, .accelerator = "cpu", .sink = take_figure};
    run.user = &flops;
    SHOAL_TRY(status,
              shoali_bench_gemm(
                  &(shoali_bench_gemm_args){.run = run,
                                            .dtype = has_bf16(planning) ? SHOAL_BF16 : SHOAL_F32,
                                            .m = ROWS,
                                            .n = COLUMNS,
                                            .k = DEPTH,
                                            .prepacked = 1}),
              done);
    run.user = &memory;
    SHOAL_TRY(status,
              shoali_bench_stream(
                  &(shoali_bench_stream_args){.run = run, .count = 4 * MIB, .adam_only = 1}),
              done);
    run.user = &sent;
    if (ranks > 1)
        SHOAL_TRY(status,
                  shoali_bench_comm(&(shoali_bench_comm_args){.run = run,
                                                              .op = "all_reduce",
                                                              .min_bytes = 16 * MIB,
                                                              .max_bytes = 16 * MIB,
                                                              .dtype = SHOAL_F32,
                                                              .ranks = ranks}),
                  done);
    planning->rates = (shoal_plan_rates){.flops = flops.number * 1e9 / ranks,
                                         .memory_bytes = memory.number * 1e9 / ranks,
                                         .network_bytes = sent.number * 1e9,
                                         .latency_s = 5e-6};
    snprintf(planning->rates_from, sizeof planning->rates_from, ", measured on this machine");
done:
    return status;
}

static bool any_rate(const struct plan_options *own)
{
    return own->peak_tflops > 0 || own->memory_bandwidth > 0 || own->network_bandwidth > 0 ||
           own->node_bandwidth > 0 || own->link_bandwidth > 0;
}

/* A flag counts more than the cluster's name. */
static void add_flags(const struct plan_options *own, shoal_plan_rates *rates)
{
    const struct {
        double given;
        double *rate;
    } flags[] = {{own->peak_tflops * 1e12, &rates->flops},
                 {own->memory_bandwidth * 1e9, &rates->memory_bytes},
                 {own->network_bandwidth * 1e9, &rates->network_bytes},
                 {own->node_bandwidth * 1e9, &rates->node_bytes},
                 {own->latency_us * 1e-6, &rates->latency_s},
                 {own->node_latency_us * 1e-6, &rates->node_latency_s},
                 {own->link_bandwidth * 1e9, &rates->link_bytes}};
    if (own->network_bandwidth > 0) { /* instead of the name's links */
        rates->links_per_node = 0;
        rates->link_bytes = 0;
    }
    /* below 0: not given; of the first three 0 is no value of the flag */
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (flags[i].given > 0 || (flags[i].given == 0 && i >= 3))
            *flags[i].rate = flags[i].given;
    if (own->ranks_per_node > 0 || shoali_config_given(&plan_section, own, "ranks-per-node"))
        rates->ranks_per_node = (int32_t)own->ranks_per_node;
    if (own->links_per_node >= 0)
        rates->links_per_node = (int32_t)own->links_per_node;
    rates->collective_algorithm = plan_algorithms[own->collective_algorithm];
    /* what one rank has of the links when all send */
    if (own->link_bandwidth > 0 && own->network_bandwidth <= 0) {
        const int32_t ranks = rates->ranks_per_node, links = rates->links_per_node;
        rates->network_bytes =
            links > 0 && links < ranks ? rates->link_bytes * links / ranks : rates->link_bytes;
    }
}

shoal_status plan_find_rates(struct planning *planning, int32_t world, bool needed)
{
    shoal_status status = SHOAL_OK;
    shoal_plan_limit limit;
    const struct plan_options *own = &planning->own;
    const int64_t node = own->ranks_per_node;
    if (own->cluster) {
        SHOAL_TRY(status, shoal_cluster_find(own->cluster, &planning->rates, &limit), done);
        if (!planning->rates_from[0])
            snprintf(planning->rates_from, sizeof planning->rates_from, " of --cluster %s",
                     own->cluster);
    } else if (needed && !any_rate(own)) {
        const int32_t here = node > 0 && node < world ? (int32_t)node : world;
        if (here > shoali_core_count())
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "%d ranks are too many for this machine's %d cores to measure "
                              "their rates: give --cluster (v100, a100, h100, h200), or "
                              "--peak-tflops, --memory-bandwidth and --network-bandwidth",
                              (int)here, (int)shoali_core_count());
        SHOAL_TRY(status, measure(planning, here), done);
    }
    add_flags(own, &planning->rates);
done:
    return status;
}
