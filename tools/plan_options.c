/* Flags of `shoal plan`. */
#include "plan.h"

#define O(member) offsetof(struct plan_options, member)
<<<<<<< HEAD
=======
#define SIZE(flag, member, text)                                                                  \
    {                                                                                             \
        .key = flag, .type = SHOALI_INT, .offset = O(mesh.member), .default_number = 1, .min = 1, \
        .max = 1 << 20, .help = text                                                              \
    }
#define COUNT(flag, member, text)                                                            \
    {                                                                                        \
        .key = flag, .type = SHOALI_INT, .offset = O(mesh.member), .min = 0, .max = 1 << 20, \
        .help = text                                                                         \
    }
#define SWITCH(flag, member, text)                                               \
    {                                                                            \
        .key = flag, .type = SHOALI_BOOL, .offset = O(mesh.member), .help = text \
    }
#define TEXT(flag, member, text)                                                   \
    {                                                                              \
        .key = flag, .type = SHOALI_STRING, .offset = O(mesh.member), .help = text \
    }
>>>>>>> a553ab6 (engine: what a pipeline's rank knows is struct shoali_engine_stages)
static const struct shoali_option rows[] = {
    {.key = "world-size",
     .type = SHOALI_INTS,
     .offset = O(world_size),
     .default_text = "1",
     .min = 1,
     .max = 1 << 20,
     .unit = "ranks",
     .help = "numbers of ranks to plan for: N[,N...]"},
    {.key = "memory-limit",
     .type = SHOALI_STRING,
     .offset = O(memory_limit),
     .unit = "bytes",
     .help = "device memory of a rank, such as 80GiB; default: this machine's, shared by "
             "--ranks-per-node"},
    {.key = "ranks-per-node",
     .type = SHOALI_INT,
     .offset = O(ranks_per_node),
     .alias = "num_gpus_per_node",
     .min = 0,
     .max = 1 << 20,
     .help = "ranks that share this machine's memory; 0: all"},
    {.key = "peak-tflops",
     .type = SHOALI_FLOAT,
     .offset = O(peak_tflops),
     .min = 0,
     .max = 1e9,
     .help = "arithmetic of a rank, in 10^12 operations per second: gives the time of a step"},
    {.key = "memory-bandwidth",
     .type = SHOALI_FLOAT,
     .offset = O(memory_bandwidth),
     .min = 0,
     .max = 1e9,
     .unit = "GB/s",
     .help = "of a rank's device memory"},
    {.key = "network-bandwidth",
     .type = SHOALI_FLOAT,
     .offset = O(network_bandwidth),
     .min = 0,
     .max = 1e9,
     .unit = "GB/s",
     .help = "what a rank can send"},
    {.key = "node-bandwidth",
     .type = SHOALI_FLOAT,
     .offset = O(node_bandwidth),
     .min = 0,
     .max = 1e9,
     .unit = "GB/s",
     .help = "what a rank can send to ranks of its machine; 0: --network-bandwidth"},
    {.key = "latency",
     .type = SHOALI_FLOAT,
     .offset = O(latency_us),
     .min = 0,
     .max = 1e6,
     .unit = "us",
     .help = "of a message"},
    {.key = "cluster",
     .type = SHOALI_STRING,
     .offset = O(cluster),
     .help = "rates, memory and ranks per node by name: v100, a100, h100, h200"},
    {.key = "json",
     .type = SHOALI_BOOL,
     .offset = O(json),
     .help = "one line of JSON with exact numbers"},

    {.key = "search",
     .type = SHOALI_BOOL,
     .offset = O(search),
     .help = "finds the fastest layouts that fit; sizes of the mesh that are given stay"},
    {.key = "search-results",
     .type = SHOALI_INT,
     .offset = O(results),
     .default_number = 10,
     .min = 1,
     .max = 64,
     .help = "layouts to name, fastest first"},
    {.key = "draw",
     .type = SHOALI_STRING,
     .offset = O(draw),
     .help = "writes who does what when in a step of the pipeline, as FILE.svg"},
};
const struct shoali_section plan_section = {.name = "plan",
                                            .rows = SHOALI_ROWS(rows),
                                            .struct_bytes = sizeof(struct plan_options),
                                            .given_offset = O(given)};
<<<<<<< HEAD
=======

/* ---- the mesh ------------------------------------------------------------------------------- */

static shoal_status find_chunks(const struct planning *planning, int32_t *chunks)
{
    const struct plan_mesh *mesh = &planning->own.mesh;
    const int64_t layers = model_flags_int(&planning->options.model, "num-layers");
    const int64_t whole = mesh->pipeline * mesh->virtual_layers;
    *chunks = (int32_t)mesh->virtual_stages;
    if (mesh->virtual_layers == 0)
        return SHOAL_OK;
    if (mesh->virtual_stages > 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--num-layers-per-virtual-pipeline-stage and "
                          "--num-virtual-stages-per-pipeline-rank say the same: give one of them");
    if (layers % whole != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--num-layers-per-virtual-pipeline-stage %lld: %lld layers do not divide "
                          "into %lld stages with chunks of that",
                          (long long)mesh->virtual_layers, (long long)layers,
                          (long long)mesh->pipeline);
    *chunks = (int32_t)(layers / whole);
    return SHOAL_OK;
}

shoal_status plan_take_mesh(struct planning *planning)
{
    shoal_status status;
    const struct plan_mesh *mesh = &planning->own.mesh;
    shoal_engine_args *args = &planning->setup.args;
    SHOAL_TRY(status, find_chunks(planning, &args->virtual_stages), done);
    args->sequence_parallel = mesh->sequence_parallel;
    args->no_async_tensor_parallel = mesh->no_async;
    args->pipeline_schedule = mesh->schedule;
    args->micro_batch_group = (int32_t)mesh->group;
    args->partition_method = mesh->partition;
    args->first_stage_layers = (int32_t)mesh->first_layers;
    args->last_stage_layers = (int32_t)mesh->last_layers;
    args->account_for_embedding = mesh->embedding;
    args->account_for_loss = mesh->loss;
    if (mesh->layout && mesh->partition)
        return SHOAL_FAIL(SHOAL_EINVAL, "--pipeline-model-parallel-layout and --partition-method "
                                        "both cut the layers: give one of them");
    if (mesh->layout) {
        args->partition_method =
            shoali_arena_printf(&planning->options.arena, "layout:%s", mesh->layout);
        status = args->partition_method ? SHOAL_OK : SHOAL_ENOMEM;
    } else if (!mesh->partition &&
               (mesh->first_layers || mesh->last_layers || mesh->embedding || mesh->loss)) {
        args->partition_method = "even";
    }
done:
    return status;
}

shoal_plan_args plan_args_of(const struct planning *planning, int32_t world)
{
    const struct plan_mesh *mesh = &planning->own.mesh;
    return (shoal_plan_args){.world_size = world,
                             .prefetches = true,
                             .dataset_bytes = planning->dataset_bytes,
                             .lean_model = planning->setup.lean,
                             .lean_model_flag = planning->setup.lean_flag,
                             .tensor = (int32_t)mesh->tensor,
                             .pipeline = (int32_t)mesh->pipeline,
                             .order = mesh->pipeline_before_data ? "tp-cp-ep-pp-dp" : NULL};
}
>>>>>>> a553ab6 (engine: what a pipeline's rank knows is struct shoali_engine_stages)
