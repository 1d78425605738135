/* Flags of the mesh: parsing, the configuration's say, and what contradicts. */
#include "flags/mesh.h"

#include "base/json.h"
#include "base/str.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    SIZES = 6, /* rows about sizes and order, the first ones */
    RANKS_MAX = 65536,
    LAYERS_MAX = 100000,
    MICROS_MAX = 1000000
};

#define O(member) offsetof(struct mesh_flags, member)
#define COUNT(flag, member, standard, least, most, text)                                  \
    {                                                                                     \
        .key = flag, .type = SHOALI_INT, .offset = O(member), .default_number = standard, \
        .min = least, .max = most, .help = text                                           \
    }
#define SIZE(flag, member, text) COUNT(flag, member, 1, 1, RANKS_MAX, text)
#define COMMON_SIZE(flag, member, text)                                                      \
    {                                                                                        \
        .key = flag, .type = SHOALI_INT, .offset = O(member), .default_number = 1, .min = 1, \
        .max = RANKS_MAX, .flags = SHOALI_OPTION_COMMON, .help = text                        \
    }
#define SWITCH(flag, member, text)                                          \
    {                                                                       \
        .key = flag, .type = SHOALI_BOOL, .offset = O(member), .help = text \
    }
#define TEXT(flag, member, text)                                              \
    {                                                                         \
        .key = flag, .type = SHOALI_STRING, .offset = O(member), .help = text \
    }

static const struct shoali_option rows[] = {
    COMMON_SIZE("tensor-model-parallel-size", tensor,
                "tensor-parallel ranks (tp), which share each matrix; the same as "
                "tensor_parallel.autotp_size in the configuration"),
    COMMON_SIZE("pipeline-model-parallel-size", pipeline,
                "pipeline stages (pp); the same as pipeline.stages in the configuration"),
    SIZE("context-parallel-size", context,
         "context-parallel ranks (cp), which share each sequence"),
    SIZE("expert-model-parallel-size", expert,
         "expert-parallel ranks (ep), which share the experts of a layer"),
    COUNT("expert-tensor-parallel-size", expert_tensor, 0, 0, RANKS_MAX,
          "tensor-parallel ranks of experts; 0: as --tensor-model-parallel-size"),
    SWITCH("use-tp-pp-dp-mapping", pipeline_before_data,
           "number ranks along the pipeline before the data axis: tp-cp-ep-pp-dp"),
    SWITCH("sequence-parallel", sequence_parallel,
           "partition the sequence over tensor-parallel ranks between their matrices"),
    SWITCH("no-async-tensor-model-parallel-allreduce", no_async,
           "sum input gradients over tensor-parallel ranks before computing weight gradients, "
           "instead of overlapping the two; the same as tensor_parallel.tp_overlap_comm false"),
    TEXT("pipeline-schedule", schedule,
         "schedule: gpipe, 1f1b, interleaved or zb-h1; default: interleaved with several chunks "
         "of layers per stage, else 1f1b"),
    TEXT("partition-method", partition,
         "method that partitions layers into stages: flops (default), parameters, uniform, even, "
         "type:REGEX, layout:TEXT; the same as pipeline.partition"),
    COUNT("num-virtual-stages-per-pipeline-rank", virtual_stages, 0, 1, LAYERS_MAX,
          "chunks of layers per stage, for the interleaved schedule"),
    COUNT("num-layers-per-virtual-pipeline-stage", virtual_layers, 0, 1, LAYERS_MAX,
          "layers per chunk, instead of --num-virtual-stages-per-pipeline-rank"),
    COUNT("microbatch-group-size-per-virtual-pipeline-stage", group, 0, 1, MICROS_MAX,
          "consecutive micro-batches of a chunk in the interleaved schedule; default: as many as "
          "stages"),
    COUNT("decoder-first-pipeline-num-layers", first, 0, 1, LAYERS_MAX,
          "layers of the first stage; the other stages share the rest evenly"),
    COUNT("decoder-last-pipeline-num-layers", last, 0, 1, LAYERS_MAX,
          "layers of the last stage; the other stages share the rest evenly"),
    SWITCH("no-overlap-p2p-communication", no_overlap_p2p,
           "send and receive activations without overlapping computation; the same as "
           "pipeline.overlap_p2p false"),
    SWITCH("account-for-embedding-in-pipeline-split", account_for_embedding,
           "count the embedding as a layer when layers are partitioned evenly"),
    SWITCH("account-for-loss-in-pipeline-split", account_for_loss,
           "count the head with the loss as a layer when layers are partitioned evenly"),
    TEXT("pipeline-model-parallel-layout", layout,
         "layers of all stages as text, such as \"Ett|(tt|)*2ttL\": E embedding, t layer, L head "
         "and "
         "loss, | between stages, (...)*N repeats"),
};
const struct shoali_section mesh_flags_section = {.name = "parallelism",
                                                  .rows = SHOALI_ROWS(rows),
                                                  .struct_bytes = sizeof(struct mesh_flags),
                                                  .given_offset = O(given)};
const struct shoali_section mesh_tensor_section = {.name = "parallelism",
                                                   .rows = rows,
                                                   .row_count = 1,
                                                   .struct_bytes = sizeof(struct mesh_flags),
                                                   .given_offset = O(given)};
const struct shoali_section mesh_sizes_section = {.name = "parallelism",
                                                  .rows = rows,
                                                  .row_count = SIZES,
                                                  .struct_bytes = sizeof(struct mesh_flags),
                                                  .given_offset = O(given)};

static bool given(const struct mesh_flags *flags, const char *flag)
{
    return shoali_config_given(&mesh_flags_section, flags, flag);
}

bool mesh_flags_any(const struct mesh_flags *flags)
{
    return flags->tensor * flags->pipeline * flags->context * flags->expert > 1;
}

/* ---- the configuration's say ----------------------------------------------------------------- */

/* The value at "a.b.c"; NULL where it is not there, null, or "auto". */
static const json_t *find(const json_t *root, const char *path)
{
    char word[64];
    while (root && *path) {
        const size_t length = strcspn(path, ".");
        snprintf(word, sizeof word, "%.*s", (int)length, path);
        root = json_object_get(root, word);
        path += length + (path[length] == '.');
    }
    const char *text = json_string_value(root);
    return !root || json_is_null(root) || (text && strcmp(text, "auto") == 0) ? NULL : root;
}

static shoal_status contradiction(struct shoali_json *document, const char *path, const char *flag,
                                  const char *flag_value, const char *file_value)
{
    return shoali_json_locate(document, path,
                              SHOAL_FAIL(SHOAL_ECONFIG,
                                         "%s is %s, but --%s is %s: give one of them, or the "
                                         "same value",
                                         path, file_value, flag, flag_value));
}

/* A number of ranks. Keys of other types, and out of range, the engine refuses. */
static shoal_status take_size(const struct mesh_flags *flags, struct shoali_json *document,
                              const char *path, const char *flag, int64_t *size)
{
    char ours[32], theirs[32];
    const json_t *value = find(shoali_json_root(document), path);
    const int64_t number = (int64_t)json_integer_value(value);
    if (!json_is_integer(value) || number < 1 || number > RANKS_MAX)
        return SHOAL_OK;
    if (!given(flags, flag) || *size == number) {
        *size = number;
        return SHOAL_OK;
    }
    snprintf(ours, sizeof ours, "%lld", (long long)*size);
    snprintf(theirs, sizeof theirs, "%lld", (long long)number);
    return contradiction(document, path, flag, ours, theirs);
}

/* Of the key's two places, the second of which may be 1 beside the first. */
static shoal_status take_tensor(struct mesh_flags *flags, struct shoali_json *document)
{
    static const char flag[] = "tensor-model-parallel-size";
    const int64_t whole = (int64_t)json_integer_value(
        find(shoali_json_root(document), "tensor_parallel.autotp_size"));
    if (whole > 0)
        return take_size(flags, document, "tensor_parallel.autotp_size", flag, &flags->tensor);
    return take_size(flags, document, "tensor_parallel.tp.tp_size", flag, &flags->tensor);
}

static shoal_status take_partition(struct mesh_flags *flags, struct shoali_json *document,
                                   struct shoali_arena *arena)
{
    static const char path[] = "pipeline.partition";
    const char *text = json_string_value(find(shoali_json_root(document), path));
    const char *flag = given(flags, "partition-method") ? "partition-method"
                       : given(flags, "pipeline-model-parallel-layout")
                           ? "pipeline-model-parallel-layout"
                           : NULL;
    if (!text || strcmp(text, "best") == 0)
        return SHOAL_OK;
    if (flag) {
        const char *ours = flags->partition ? flags->partition : flags->layout;
        return flags->partition && strcmp(ours, text) == 0
                   ? SHOAL_OK
                   : contradiction(document, path, flag, ours, text);
    }
    flags->partition = shoali_arena_strdup(arena, text);
    return flags->partition ? SHOAL_OK : SHOAL_ENOMEM;
}

/* A flag that turns off what the key turns on. */
static shoal_status take_overlap(struct shoali_json *document, const char *path, const char *flag,
                                 bool *off)
{
    const json_t *value = find(shoali_json_root(document), path);
    if (json_is_true(value) && *off)
        return contradiction(document, path, flag, "given", "true");
    *off |= json_is_false(value);
    return SHOAL_OK;
}

shoal_status mesh_flags_take_config(struct mesh_flags *flags, const char *path,
                                    struct shoali_arena *arena)
{
    shoal_status status = SHOAL_OK;
    struct shoali_json *document = NULL;
    if (!path)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_json_load_config(path, &document), done);
    SHOAL_TRY(status, take_tensor(flags, document), done);
    SHOAL_TRY(status,
              take_size(flags, document, "pipeline.stages", "pipeline-model-parallel-size",
                        &flags->pipeline),
              done);
    SHOAL_TRY(status, take_partition(flags, document, arena), done);
    SHOAL_TRY(status,
              take_overlap(document, "tensor_parallel.tp_overlap_comm",
                           "no-async-tensor-model-parallel-allreduce", &flags->no_async),
              done);
    SHOAL_TRY(status,
              take_overlap(document, "pipeline.overlap_p2p", "no-overlap-p2p-communication",
                           &flags->no_overlap_p2p),
              done);
done:
    shoali_json_close(document);
    return status;
}

/* ---- what contradicts ------------------------------------------------------------------------ */

/* Axes that no layer computes along. */
static shoal_status check_supported(const struct mesh_flags *flags)
{
    const char *flag = flags->context > 1         ? "context-parallel-size"
                       : flags->expert > 1        ? "expert-model-parallel-size"
                       : flags->expert_tensor > 1 ? "expert-tensor-parallel-size"
                                                  : NULL;
    if (!flag)
        return SHOAL_OK;
    return SHOAL_FAIL(
        SHOAL_EUNSUPPORTED,
        "--%s above 1 is not supported, see docs/FEATURES.md: give 1, or leave it out", flag);
}

/* The flag that says how stages are cut evenly; NULL: none. */
static const char *even_flag(const struct mesh_flags *flags)
{
    return flags->first                   ? "decoder-first-pipeline-num-layers"
           : flags->last                  ? "decoder-last-pipeline-num-layers"
           : flags->account_for_embedding ? "account-for-embedding-in-pipeline-split"
           : flags->account_for_loss      ? "account-for-loss-in-pipeline-split"
           : flags->virtual_layers        ? "num-layers-per-virtual-pipeline-stage"
                                          : NULL;
}

/* What only means something with several stages. */
static shoal_status check_has_stages(const struct mesh_flags *flags)
{
    const char *flag = even_flag(flags);
    if (!flag)
        flag = flags->virtual_stages > 1 ? "num-virtual-stages-per-pipeline-rank"
               : flags->group            ? "microbatch-group-size-per-virtual-pipeline-stage"
               : flags->layout           ? "pipeline-model-parallel-layout"
                                         : NULL;
    if (flags->pipeline > 1 || !flag)
        return SHOAL_OK;
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "--%s has no effect without a pipeline: give "
                      "--pipeline-model-parallel-size, or leave it out",
                      flag);
}

/* Sources of one thing exclude each other. */
static shoal_status check_sources(const struct mesh_flags *flags)
{
    const char *even = even_flag(flags);
    if (flags->virtual_layers && flags->virtual_stages)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--num-layers-per-virtual-pipeline-stage %lld and "
                          "--num-virtual-stages-per-pipeline-rank %lld both set the chunks per "
                          "stage: give one of them",
                          (long long)flags->virtual_layers, (long long)flags->virtual_stages);
    if (flags->layout && (flags->virtual_layers || flags->virtual_stages))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--pipeline-model-parallel-layout sets the chunks per stage: leave "
                          "--%s out",
                          flags->virtual_layers ? "num-layers-per-virtual-pipeline-stage"
                                                : "num-virtual-stages-per-pipeline-rank");
    if (flags->virtual_layers && (flags->first || flags->last))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--num-layers-per-virtual-pipeline-stage and --%s cannot be combined: "
                          "give the number of chunks with --num-virtual-stages-per-pipeline-rank",
                          even);
    if (flags->layout && (flags->partition || even))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--pipeline-model-parallel-layout and %s%s both partition layers into "
                          "stages: give one of them",
                          flags->partition ? "--partition-method " : "--",
                          flags->partition ? flags->partition : even);
    if (even && flags->partition && strcmp(flags->partition, "even") != 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--%s works only with the partition method even, not %s: leave one of "
                          "them out",
                          even, flags->partition);
    return SHOAL_OK;
}

/* Chunks by their layers, of as many as the model has. */
static shoal_status find_chunks(struct mesh_flags *flags, int64_t layers)
{
    int64_t count = layers + flags->account_for_embedding + flags->account_for_loss;
    if (!flags->virtual_layers)
        return SHOAL_OK;
    if (count % flags->pipeline)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--num-layers-per-virtual-pipeline-stage %lld: %lld layers cannot be "
                          "shared evenly by %lld pipeline stages",
                          (long long)flags->virtual_layers, (long long)count,
                          (long long)flags->pipeline);
    count /= flags->pipeline;
    if (count % flags->virtual_layers)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--num-layers-per-virtual-pipeline-stage %lld does not divide the %lld "
                          "layers of a pipeline stage (%lld layers on %lld stages)",
                          (long long)flags->virtual_layers, (long long)count, (long long)layers,
                          (long long)flags->pipeline);
    flags->virtual_stages = count / flags->virtual_layers;
    return SHOAL_OK;
}

static shoal_status check_chunks(const struct mesh_flags *flags)
{
    const int64_t chunks = flags->virtual_stages;
    const bool interleaved = !flags->schedule || strcmp(flags->schedule, "interleaved") == 0;
    if (chunks > 1 && !interleaved)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--pipeline-schedule %s has one chunk of layers per stage, not %lld: "
                          "give --pipeline-schedule interleaved",
                          flags->schedule, (long long)chunks);
    if (flags->group && chunks <= 1 && !flags->layout)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--microbatch-group-size-per-virtual-pipeline-stage works only with "
                          "the interleaved schedule: give "
                          "--num-virtual-stages-per-pipeline-rank, or leave it out");
    if (flags->group && flags->group < flags->pipeline)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--microbatch-group-size-per-virtual-pipeline-stage %lld is less than "
                          "the %lld pipeline stages: give at least the number of stages",
                          (long long)flags->group, (long long)flags->pipeline);
    return SHOAL_OK;
}

static shoal_status check_pipeline(struct mesh_flags *flags, int64_t layers)
{
    shoal_status status;
    SHOAL_TRY(status, check_has_stages(flags), done);
    SHOAL_TRY(status, check_sources(flags), done);
    SHOAL_TRY(status, find_chunks(flags, layers), done);
    SHOAL_TRY(status, check_chunks(flags), done);
    const int64_t chunks = flags->virtual_stages > 1 ? flags->virtual_stages : 1;
    /* embedding and head are layers, too */
    if (flags->pipeline * chunks > layers + 2)
        status = SHOAL_FAIL(
            SHOAL_EINVAL,
            "--pipeline-model-parallel-size %lld: %lld layer%s, embedding and head are "
            "too few for %lld %s; each needs at least one",
            (long long)flags->pipeline, (long long)layers, layers > 1 ? "s" : "",
            (long long)(flags->pipeline * chunks), chunks > 1 ? "chunks of stages" : "stages");
done:
    return status;
}

static shoal_status check_tensor(struct mesh_flags *flags, const shoal_model_config *model)
{
    double heads, seq_length;
    shoal_status status;
    SHOAL_TRY(status, shoal_model_config_get(model, "num-attention-heads", &heads), done);
    SHOAL_TRY(status, shoal_model_config_get(model, "seq-length", &seq_length), done);
    if ((double)flags->tensor > heads)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--tensor-model-parallel-size %lld: %lld attention heads are too few "
                          "for so many ranks; each needs at least one",
                          (long long)flags->tensor, (long long)heads);
    if (flags->sequence_parallel && (int64_t)seq_length % flags->tensor)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--sequence-parallel: --seq-length %lld cannot be shared evenly by %lld "
                          "tensor-parallel ranks",
                          (long long)seq_length, (long long)flags->tensor);
done:
    return status;
}

/* "layout:TEXT", and even for the flags that are about it. */
static shoal_status find_partition(struct mesh_flags *flags, struct shoali_arena *arena)
{
    if (flags->layout)
        flags->partition = shoali_arena_printf(arena, "layout:%s", flags->layout);
    else if (even_flag(flags))
        flags->partition = "even";
    return flags->layout && !flags->partition ? SHOAL_ENOMEM : SHOAL_OK;
}

shoal_status mesh_flags_check(struct mesh_flags *flags, const shoal_model_config *model,
                              struct shoali_arena *arena)
{
    shoal_status status = SHOAL_OK;
    double layers;
    flags->sequence_parallel_alone = flags->sequence_parallel && flags->tensor == 1;
    flags->sequence_parallel &= flags->tensor > 1;
    if (!model)
        return SHOAL_OK;
    SHOAL_TRY(status, check_supported(flags), done);
    SHOAL_TRY(status, check_tensor(flags, model), done);
    SHOAL_TRY(status, shoal_model_config_get(model, "num-layers", &layers), done);
    SHOAL_TRY(status, check_pipeline(flags, (int64_t)layers), done);
    SHOAL_TRY(status, find_partition(flags, arena), done);
done:
    return status;
}

void mesh_flags_say(const struct mesh_flags *flags, const char *tool)
{
    if (flags->sequence_parallel_alone)
        fprintf(stderr,
                "%s: --sequence-parallel is off: it has no effect with one tensor-parallel rank\n",
                tool);
}

/* ---- what they become ------------------------------------------------------------------------ */

static const char *order_of(const struct mesh_flags *flags)
{
    return flags->pipeline_before_data ? "tp-cp-ep-pp-dp" : NULL;
}

shoal_mesh_args mesh_flags_args(const struct mesh_flags *flags)
{
    return (shoal_mesh_args){.tensor = (int32_t)flags->tensor,
                             .context = (int32_t)flags->context,
                             .expert = (int32_t)flags->expert,
                             .pipeline = (int32_t)flags->pipeline,
                             .expert_tensor = (int32_t)flags->expert_tensor,
                             .order = order_of(flags)};
}

shoal_status mesh_flags_open(const struct mesh_flags *flags, shoal_group *group, int32_t ranks,
                             int32_t rank, shoal_mesh **mesh)
{
    shoal_mesh_args args = mesh_flags_args(flags);
    args.group = group;
    args.ranks = ranks;
    args.rank = rank;
    return shoal_mesh_create(&args, mesh);
}

void mesh_flags_fill(const struct mesh_flags *flags, shoal_engine_args *args)
{
    args->sequence_parallel = flags->sequence_parallel;
    args->no_async_tensor_parallel = flags->no_async;
    args->pipeline_schedule = flags->schedule;
    args->virtual_stages = (int32_t)flags->virtual_stages;
    args->micro_batch_group = (int32_t)flags->group;
    args->partition_method = flags->partition;
    args->first_stage_layers = (int32_t)flags->first;
    args->last_stage_layers = (int32_t)flags->last;
    args->account_for_embedding = flags->account_for_embedding;
    args->account_for_loss = flags->account_for_loss;
    args->no_overlap_p2p = flags->no_overlap_p2p;
}

void mesh_flags_fill_plan(const struct mesh_flags *flags, shoal_plan_args *args)
{
    args->tensor = (int32_t)flags->tensor;
    args->context = (int32_t)flags->context;
    args->expert = (int32_t)flags->expert;
    args->pipeline = (int32_t)flags->pipeline;
    args->expert_tensor = (int32_t)flags->expert_tensor;
    args->order = order_of(flags);
}
