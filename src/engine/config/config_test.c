#include "engine/config/config.h"

#include "base/fault.h"
#include "base/str.h"
#include "engine/config/test_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_defaults(void **state)
{
    (void)state;
    struct shoali_ds_config config;
    read_text("{}", &config);
    assert_true(config.gradient_clipping == 1.0);
    assert_int_equal(config.reduction, SHOALI_REDUCTION_FAST);
    assert_int_equal(config.exact_unit_log2, 44);
    assert_int_equal(config.steps_per_print, 0);
    assert_int_equal(config.zero_optimization.stage, 0);
    assert_int_equal(config.zero_optimization.reduce_bucket_size, 500000000);
    assert_int_equal(config.zero_optimization.offload_param.buffer_count, 5);
    assert_int_equal(config.zero_optimization.offload_optimizer.buffer_count, 4);
    assert_true(config.zero_optimization.offload_param.pin_memory);
    assert_true(config.zero_optimization.offload_optimizer.pin_memory);
    assert_false(config.zero_optimization.overlap_comm);
    assert_true(config.bf16.check_grad_overflow);
    assert_int_equal(config.fp16.initial_scale_power, 16);
    assert_int_equal(config.aio.block_size, 1 << 20);
    assert_int_equal(config.elasticity.micro_batch_sizes.count, 3);
    assert_int_equal(config.elasticity.micro_batch_sizes.value[2], 6);
    shoali_ds_config_fini(&config);
}

/* As DeepSpeed's users write them: comments, "auto", sections that are off with values of their
 * own. */
static void test_values(void **state)
{
    (void)state;
    struct shoali_ds_config config;
    read_text(
        "{ // the batch\n"
        "  \"train_micro_batch_size_per_gpu\": 4, /* per rank */\n"
        "  \"gradient_accumulation_steps\": \"auto\",\n"
        "  \"gradient_clipping\": 0.5,\n"
        "  \"bfloat16\": {\"enabled\": true},\n"
        "  \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}},\n"
        "  \"zero_optimization\": {\"stage\": 0, \"reduce_bucket_size\": 2e8,\n"
        "     \"prefetch_bucket_size\": 7, \"stage3_max_live_parameters\": 9,\n"
        "     \"allgather_partitions\": true, \"offload_optimizer\": {\"device\": \"none\"}},\n"
        "  \"flops_profiler\": {\"enabled\": false, \"top_modules\": 3},\n"
        "  \"elasticity\": {\"enabled\": false, \"micro_batch_sizes\": [1, 8]},\n"
        "  \"reduction\": \"exact\", \"seed\": 7, \"threads\": 2\n"
        "}",
        &config);
    assert_int_equal(config.train_micro_batch_size_per_gpu, 4);
    assert_int_equal(config.gradient_accumulation_steps, 0);
    assert_true(config.gradient_clipping == 0.5);
    assert_true(config.bf16.enabled);
    assert_string_equal(config.optimizer.type, "AdamW");
    assert_non_null(config.optimizer.params);
    assert_int_equal(config.zero_optimization.reduce_bucket_size, 200000000);
    assert_int_equal(config.zero_optimization.stage3_prefetch_bucket_size, 7);
    assert_int_equal(config.zero_optimization.stage3_max_live_parameters, 9);
    assert_int_equal(config.elasticity.micro_batch_sizes.value[1], 8);
    assert_int_equal(config.reduction, SHOALI_REDUCTION_EXACT);
    assert_int_equal(config.seed, 7);
    assert_int_equal(config.threads, 2);
    shoali_ds_config_fini(&config);
}

static void test_unknown_keys(void **state)
{
    (void)state;
    expect_error("{\"train_batchsize\": 4}", SHOAL_ECONFIG, "`train_batch_size`");
    expect_error("{\n\n\"zero_optimization\": {\n\"stge\": 1}}", SHOAL_ECONFIG,
                 ":4: zero_optimization.stge");
    expect_error("{\"zero_optimization\": {\"offload_param\": {\"devise\": \"cpu\"}}}",
                 SHOAL_ECONFIG, "`device`");
    expect_error("{\"fp16\": {\"los_scale\": 0}}", SHOAL_ECONFIG, "`loss_scale`");
    expect_error("{\"checkpoint\": {\"writer\": {\"decopled\": true}}}", SHOAL_ECONFIG,
                 "`decoupled`");
    expect_error("{\"seed\": 1, \"seed\": 2}", SHOAL_ECONFIG, "seed");
}

static void test_values_that_cannot_be(void **state)
{
    (void)state;
    expect_error("{\"train_batch_size\": 0}", SHOAL_ECONFIG, "train_batch_size");
    expect_error("{\"train_batch_size\": 1.5}", SHOAL_ECONFIG, "integer");
    expect_error("{\"gradient_clipping\": -1}", SHOAL_ECONFIG, "at least 0");
    expect_error("{\"gradient_allreduce_op\": \"max\"}", SHOAL_ECONFIG, "mean");
    expect_error("{\"zero_optimization\": {\"stage\": 4}}", SHOAL_ECONFIG, "stage");
    expect_error("{\"zero_optimization\": 2}", SHOAL_ECONFIG, "section");
    expect_error("{\"zero_optimization\": {\"allgather_bucket_size\": 7}}", SHOAL_ECONFIG, "even");
    expect_error("{\"zero_optimization\": {\"prefetch_bucket_size\": 1, "
                 "\"stage3_prefetch_bucket_size\": 1}}",
                 SHOAL_ECONFIG, "prefetch_bucket_size");
    expect_error("[]", SHOAL_ECONFIG, "");
    expect_error("{", SHOAL_ECONFIG, "");
}

static void test_exact_splits(void **state)
{
    (void)state;
    struct shoali_ds_config config;
    read_text("{\"reduction\": \"exact\"}", &config);
    assert_int_equal(config.exact_splits.tensor, 1);
    assert_int_equal(config.exact_splits.sequence, 1);
    shoali_ds_config_fini(&config);
    read_text("{\"reduction\": \"exact\", \"exact_splits\": {\"tensor\": 4, \"sequence\": 2}}",
              &config);
    assert_int_equal(config.exact_splits.tensor, 4);
    assert_int_equal(config.exact_splits.sequence, 2);
    shoali_ds_config_fini(&config);
    read_text("{\"exact_splits\": {\"tensor\": 1}}", &config);
    shoali_ds_config_fini(&config);
    expect_error("{\"reduction\": \"exact\", \"exact_splits\": {\"tensor\": 3}}", SHOAL_ECONFIG,
                 "exact_splits.tensor is 3: give a power of two");
    expect_error("{\"reduction\": \"exact\", \"exact_splits\": {\"sequence\": 6}}", SHOAL_ECONFIG,
                 "exact_splits.sequence is 6: give a power of two");
    expect_error("{\"reduction\": \"exact\", \"exact_splits\": {\"tensor\": 128}}", SHOAL_ECONFIG,
                 "exact_splits.tensor");
    expect_error("{\"exact_splits\": {\"tensor\": 2}}", SHOAL_ECONFIG, "\"reduction\": \"exact\"");
    expect_error("{\"exact_splits\": 2}", SHOAL_ECONFIG, "section");
}

static void test_checks_across_keys(void **state)
{
    (void)state;
    expect_error("{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}", SHOAL_ECONFIG,
                 "both enabled");
    expect_error("{\"gradient_clipping\": 2, \"optimizer\": {\"type\": \"Adam\", \"params\": "
                 "{\"max_grad_norm\": 1}}}",
                 SHOAL_ECONFIG, "max_grad_norm is 1, but gradient_clipping is 2");
    expect_error("{\"gradient_allreduce_op\": \"sum\", \"reduction\": \"exact\"}", SHOAL_ECONFIG,
                 "exact");
    expect_error("{\"gradient_allreduce_op\": \"sum\", \"zero_optimization\": {\"stage\": 3}}",
                 SHOAL_ECONFIG, "stage 3");
    expect_error("{\"prescale_gradients\": true, \"zero_optimization\": {\"stage\": 2}}",
                 SHOAL_ECONFIG, "reduce_scatter");
    expect_error("{\"zero_optimization\": {\"offload_optimizer\": {\"ratio\": 0.5}}}",
                 SHOAL_ECONFIG, "stage 3");
    expect_error("{\"checkpoint\": {\"writer\": {\"decoupled\": true}}, \"zero_optimization\": "
                 "{\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": "
                 "\"/tmp\"}}}",
                 SHOAL_ECONFIG, "offload_optimizer.device nvme, whose buffers belong");
    expect_error("{\"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": "
                 "\"nvme\"}}}",
                 SHOAL_ECONFIG, "nvme_path");
    expect_error("{\"zero_optimization\": {\"zero_quantized_weights\": true}}", SHOAL_ECONFIG,
                 "zero_quantized_weights needs stage 3");
    expect_error("{\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 2, "
                 "\"mics_shard_size\": 2}}",
                 SHOAL_ECONFIG, "give one of them");
    expect_error("{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 2, "
                 "\"offload_optimizer\": {\"device\": \"cpu\"}}}",
                 SHOAL_ECONFIG, "mics_shard_size cannot be combined with offload_optimizer");
    expect_error("{\"zero_optimization\": {\"stage\": 3, \"zero_quantized_gradients\": true, "
                 "\"reduce_scatter\": false}}",
                 SHOAL_ECONFIG, "reduce_scatter");
    expect_error("{\"zero_optimization\": {\"stage\": 3, \"zeropp_loco_param\": {}}}",
                 SHOAL_ECONFIG, "switch that on too");
    expect_error("{\"reduction\": \"exact\", \"zero_optimization\": {\"stage\": 3, "
                 "\"zero_quantized_gradients\": true}}",
                 SHOAL_ECONFIG, "cannot be combined with \"reduction\": \"exact\"");
}

static void test_not_supported_yet(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"zero_optimization\": {\"zero_quantized_nontrainable_weights\": true}}",
        "{\"data_types\": {\"param_dtype\": \"fp16\"}}",
        "{\"torch_autocast\": {\"enabled\": true}}",
        "{\"compile\": {\"passes\": [\"z3\", \"autosp\"]}}",
        "{\"sequence_parallel_size\": 2}",
        ("{\"compression_training\": {\"weight_quantization\": {\"shared_parameters\": "
         "{\"enabled\": true}}}}"),
        "{\"zero_optimization\": {\"stage\": 2, \"zenflow\": {}}}",
    };
    struct shoali_ds_config config;
    for (size_t i = 0; i < COUNT(texts); i++)
        expect_error(texts[i], SHOAL_EUNSUPPORTED, "not supported");
    /* The same keys at their defaults ask for nothing. */
    read_text("{\"memory_breakdown\": false, \"communication_data_type\": \"fp32\", "
              "\"sequence_parallel_size\": 1, \"wandb\": {\"enabled\": false}}",
              &config);
    shoali_ds_config_fini(&config);
}

static void test_dead_keys_name_the_alternative(void **state)
{
    (void)state;
    expect_error("{\"amp\": {\"enabled\": true, \"opt_level\": \"O1\"}}", SHOAL_ECONFIG, "bf16");
    expect_error("{\"log_level\": \"info\"}", SHOAL_ECONFIG, "SHOAL_LOG");
    expect_error("{\"sparse_attention\": {\"mode\": \"fixed\"}}", SHOAL_ECONFIG, "leave it out");
}

struct triad {
    int64_t train, micro, accumulation, world;
    int64_t expected[3]; /* train, micro, accumulation; 0: an error */
};

static void test_batch_triad(void **state)
{
    (void)state;
    static const struct triad cases[] = {
        {32, 4, 2, 4, {32, 4, 2}}, {32, 4, 0, 4, {32, 4, 2}},
        {32, 0, 2, 4, {32, 4, 2}}, {0, 4, 2, 4, {32, 4, 2}},
        {32, 0, 0, 4, {32, 8, 1}}, {0, 4, 0, 4, {16, 4, 1}},
        {1, 0, 0, 1, {1, 1, 1}},   {0, 0, 0, 4, {4, 1, 1}},
        {0, 0, 3, 4, {12, 1, 3}},  {30, 4, 0, 4, {0, 0, 0}},
        {32, 0, 3, 4, {0, 0, 0}},  {32, 4, 1, 4, {0, 0, 0}},
        {3, 0, 0, 4, {0, 0, 0}},   {4, 8, 0, 1, {0, 0, 0}},
        {2, 0, 4, 1, {0, 0, 0}},   {0, INT64_MAX, 2, 1, {0}},
        {0, INT64_MAX, 1, 2, {0}}, {0, INT64_MAX, 0, 1, {INT64_MAX, INT64_MAX, 1}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct triad *one = &cases[i];
        struct shoali_ds_config config = {0};
        struct shoali_batch_sizes sizes = {0};
        config.train_batch_size = one->train;
        config.train_micro_batch_size_per_gpu = one->micro;
        config.gradient_accumulation_steps = one->accumulation;
        shoal_status status = shoali_batch_triad(&config, one->world, &sizes);
        if (status != (one->expected[0] ? SHOAL_OK : SHOAL_ECONFIG))
            fail_msg("case %zu: %s %s", i, shoal_status_name(status), shoal_error_message());
        assert_int_equal(sizes.train, one->expected[0]);
        assert_int_equal(sizes.micro, one->expected[1]);
        assert_int_equal(sizes.accumulation, one->expected[2]);
    }
}

/* What does not divide is said with the numbers that were given, and one that would do. */
static void test_triad_messages(void **state)
{
    (void)state;
    static const struct {
        int64_t train, micro, accumulation, world;
        const char *sentence;
    } cases[] = {
        {30, 4, 1, 4,
         "train_batch_size 30 is not train_micro_batch_size_per_gpu 4 * "
         "gradient_accumulation_steps "
         "1 * 4 data-parallel ranks (= 16)"},
        {30, 4, 0, 4,
         "train_batch_size 30 is not a multiple of 16, which is train_micro_batch_size_per_gpu 4 * "
         "4 data-parallel ranks: make it one, such as 32, or change "
         "train_micro_batch_size_per_gpu"},
        {4, 8, 0, 1, "such as 8, or change train_micro_batch_size_per_gpu"},
        {32, 0, 3, 4,
         "train_batch_size 32 is not a multiple of 12, which is gradient_accumulation_steps 3 * 4 "
         "data-parallel ranks: make it one, such as 36, or change gradient_accumulation_steps"},
        {3, 0, 0, 4,
         "train_batch_size 3 cannot be shared equally by 4 data-parallel ranks: make it a multiple "
         "of 4, such as 4"},
        {8, INT64_MAX, 0, 2, "does not fit in 64 bits"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct shoali_ds_config config = {.train_batch_size = cases[i].train,
                                          .train_micro_batch_size_per_gpu = cases[i].micro,
                                          .gradient_accumulation_steps = cases[i].accumulation};
        struct shoali_batch_sizes sizes;
        assert_int_equal(shoali_batch_triad(&config, cases[i].world, &sizes), SHOAL_ECONFIG);
        if (!strstr(shoal_error_message(), cases[i].sentence))
            fail_msg("\"%s\" does not say \"%s\"", shoal_error_message(), cases[i].sentence);
    }
}

static size_t value_bytes(enum shoali_option_type type)
{
    switch (type) {
    case SHOALI_BOOL:
        return sizeof(bool);
    case SHOALI_ENUM:
        return sizeof(int32_t);
    case SHOALI_FLOATS:
    case SHOALI_INTS:
    case SHOALI_STRINGS:
        return sizeof(struct shoali_ints);
    default:
        return 8;
    }
}

/* Rows that only say what happens to a key, and older names, need none of their own. */
static bool has_member(const struct shoali_option *row)
{
    return row->state != SHOALI_DEAD && !row->instead &&
           !(row->state == SHOALI_NOEFFECT && row->type == SHOALI_JSON);
}

/* Every row can be shown and stored: it has help, its member lies inside the struct and no other
 * supported row has the same one, keys differ, an enum's default exists. */
static void check_section(const struct shoali_section *section)
{
    for (int32_t i = 0; i < section->row_count; i++) {
        const struct shoali_option *row = &section->rows[i];
        size_t bytes =
            row->type == SHOALI_SECTION ? row->section->struct_bytes : value_bytes(row->type);
        if (!row->help || !*row->help)
            fail_msg("%s.%s has no help", section->name, row->key);
        size_t length = strlen(row->help);
        if ((row->help[length - 1] == '.') != (row->state != SHOALI_DEAD))
            fail_msg("%s.%s: \"%s\" is not one sentence", section->name, row->key, row->help);
        if (row->offset + bytes > section->struct_bytes)
            fail_msg("%s.%s lies outside its struct", section->name, row->key);
        if (row->type == SHOALI_ENUM)
            for (int32_t choice = 0; choice <= (int32_t)row->default_number; choice++)
                assert_non_null(row->choices[choice]);
        for (int32_t j = 0; j < i; j++) {
            const struct shoali_option *other = &section->rows[j];
            if (strcmp(row->key, other->key) == 0 ||
                (other->alias && strcmp(row->key, other->alias) == 0))
                fail_msg("%s.%s stands twice", section->name, row->key);
            if (row->offset == other->offset && has_member(row) && has_member(other))
                fail_msg("%s: %s and %s share a member", section->name, row->key, other->key);
        }
        if (row->type == SHOALI_SECTION)
            check_section(row->section);
    }
}

static void test_elasticity(void **state)
{
    (void)state;
    static const char section[] =
        "\"elasticity\": {\"enabled\": true, \"max_train_batch_size\": 2000, "
        "\"micro_batch_sizes\": [2, 4, 6]";
    static const char *const keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps"};
    char text[512];
    struct shoali_ds_config config;
    struct shoali_batch_sizes sizes;
    for (int i = 0; i < 3; i++) {
        char says[96];
        snprintf(says, sizeof(says), "%s is given, and elasticity", keys[i]);
        snprintf(text, sizeof(text), "{\"%s\": 4, %s}}", keys[i], section);
        expect_error(text, SHOAL_ECONFIG, says);
        snprintf(text, sizeof(text), "{\"%s\": 4, %s, \"ignore_non_elastic_batch_info\": true}}",
                 keys[i], section);
        read_text(text, &config);
        assert_int_equal(shoali_batch_triad(&config, 140, &sizes), SHOAL_OK);
        assert_int_equal(sizes.train, 1680);
        assert_int_equal(sizes.micro, 6);
        assert_int_equal(sizes.accumulation, 2);
        shoali_ds_config_fini(&config);
    }
    snprintf(text, sizeof(text), "{\"reduction\": \"exact\", %s}}", section);
    read_text(text, &config);
    assert_int_equal(shoali_batch_triad(&config, 140, &sizes), SHOAL_OK);
    assert_int_equal(sizes.micro, 2);
    assert_int_equal(sizes.accumulation, 6);
    assert_int_equal(shoali_batch_triad(&config, 11, &sizes), SHOAL_ECONFIG);
    shoali_ds_config_fini(&config);
    snprintf(text, sizeof(text), "{%s, \"version\": 0.1}}", section);
    read_text(text, &config);
    assert_int_equal(shoali_batch_triad(&config, 11, &sizes), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14,"));
    shoali_ds_config_fini(&config);
    expect_error("{\n\"elasticity\": {\"enabled\": true}}", SHOAL_ECONFIG,
                 ":2: elasticity: max_train_batch_size is missing");
}

static void test_tables(void **state)
{
    (void)state;
    check_section(&shoali_ds_section);
}

static bool has_key(const char *path)
{
    const struct shoali_section *section = &shoali_ds_section;
    for (;;) {
        size_t length = strcspn(path, ".");
        const struct shoali_option *found = NULL;
        for (int32_t i = 0; i < section->row_count; i++) {
            const struct shoali_option *row = &section->rows[i];
            if ((strlen(row->key) == length && strncmp(row->key, path, length) == 0) ||
                (row->alias && strlen(row->alias) == length &&
                 strncmp(row->alias, path, length) == 0))
                found = row;
        }
        if (!found || !path[length])
            return found != NULL;
        if (found->type != SHOALI_SECTION)
            return false;
        section = found->section;
        path += length + 1;
    }
}

/* One key of every part of DeepSpeed's configuration, and the less common ones. */
static void test_known_keys(void **state)
{
    (void)state;
    static const char *const keys[] = {"managed_gradient_accumulation",
                                       "seq_parallel_communication_data_type",
                                       "graph_harvesting",
                                       "vocabulary_size",
                                       "use_data_before_expert_parallelism",
                                       "zero_force_ds_cpu_optimizer",
                                       "data_parallel_size",
                                       "fp16.auto_cast",
                                       "fp16.consecutive_hysteresis",
                                       "fp16.fp16_master_weights_and_grads",
                                       "bf16.bf16_optimizer_states",
                                       "torch_autocast.lower_precision_safe_modules",
                                       "amp",
                                       "data_types.buffer_dtype",
                                       "optimizer.legacy_fusion",
                                       "scheduler.params",
                                       "zero_optimization.max_reuse_distance",
                                       "zero_optimization.stage3_max_reuse_distance",
                                       "zero_optimization.gather_16bit_weights_on_model_save",
                                       "zero_optimization.zeropp_loco_param",
                                       "zero_optimization.zenflow.topk_ratio",
                                       "zero_optimization.leaf_module.name_suffixes",
                                       "zero_optimization.offload_optimizer.cpuadam_cores_perc",
                                       "zero_optimization.offload_param.max_in_cpu",
                                       "aio.use_gds",
                                       "checkpoint.parallel_write.pipeline_stage",
                                       "checkpoint.writer.io_multiplier",
                                       "activation_checkpointing.cpu_checkpointing",
                                       "tensorboard.job_name",
                                       "wandb.team",
                                       "csv_monitor.output_path",
                                       "comet.samples_log_interval",
                                       "comms_logger.prof_ops",
                                       "flops_profiler.recompute_fwd_factor",
                                       "timers.throughput.synchronized",
                                       "elasticity.ignore_non_elastic_batch_info",
                                       "autotuning.model_info_path",
                                       "progressive_layer_drop.theta",
                                       "hybrid_engine.tp_gather_partition_size",
                                       "pipeline.use_reentrant",
                                       "tensor_parallel.tp.tp_grain_size",
                                       "tensor_parallel.kernel_inject",
                                       "expert_parallel.load_balance_coeff",
                                       "compile.sync_after_allgather",
                                       "data_efficiency.data_routing",
                                       "curriculum_learning.schedule_config",
                                       "compression_training",
                                       "weight_quantization.post_init_quant",
                                       "sparse_attention",
                                       "eigenvalue",
                                       "nebula",
                                       "datastates_ckpt"};
    for (size_t i = 0; i < COUNT(keys); i++)
        if (!has_key(keys[i]))
            fail_msg("%s has no row", keys[i]);
}

static void test_markdown_names_every_section(void **state)
{
    (void)state;
    struct shoali_str text = {0};
    shoali_ds_config_markdown(&text);
    assert_false(text.failed);
    for (int32_t i = 0; i < shoali_ds_section.row_count; i++)
        if (!strstr(shoali_str_get(&text), shoali_ds_section.rows[i].key))
            fail_msg("%s is not described", shoali_ds_section.rows[i].key);
    static const char *const parts[] = {
        "## `optimizer.params` of adam and adamw\n\nParameters of Adam",
        "| `betas` |",
        "## `optimizer.params` of sgd\n",
        "| `dampening` |",
        "## `scheduler.params` of WarmupLR\n",
        "| `warmup_max_lr` | number |  | ",
        "## `scheduler.params` of OneCycle\n",
        "| `lr_wsd_decay_style` |"};
    for (size_t i = 0; i < COUNT(parts); i++)
        if (!strstr(shoali_str_get(&text), parts[i]))
            fail_msg("no \"%s\"", parts[i]);
    shoali_str_fini(&text);
}

static void test_source(void **state)
{
    (void)state;
    struct shoali_ds_config config;
    assert_int_equal(shoali_ds_config_init(&config, NULL, NULL), SHOAL_EINVAL);
    assert_int_equal(shoali_ds_config_init(&config, "/nowhere/x.json", NULL), SHOAL_ENOENT);
    assert_non_null(strstr(shoal_error_message(), "/nowhere/x.json"));
}

/* Every allocation in turn fails: an error or a whole configuration. */
static void test_memory_runs_out(void **state)
{
    (void)state;
    int failures = 0;
    for (bool fired = true; fired; failures += fired) {
        struct shoali_ds_config config;
        char spec[32];
        snprintf(spec, sizeof(spec), "alloc:%d", failures);
        assert_true(shoali_fault_arm(spec));
        shoal_status status = shoali_ds_config_init(
            &config, NULL, "{\"csv_monitor\": {\"output_path\": \"x\", \"enabled\": true}}");
        fired = shoali_fault_left() < 0;
        shoali_fault_arm(NULL);
        assert_int_equal(status, fired ? SHOAL_ENOMEM : SHOAL_OK);
        if (status == SHOAL_OK)
            shoali_ds_config_fini(&config);
    }
    assert_true(failures > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_unknown_keys),
        cmocka_unit_test(test_values_that_cannot_be),
        cmocka_unit_test(test_exact_splits),
        cmocka_unit_test(test_checks_across_keys),
        cmocka_unit_test(test_not_supported_yet),
        cmocka_unit_test(test_dead_keys_name_the_alternative),
        cmocka_unit_test(test_batch_triad),
        cmocka_unit_test(test_triad_messages),
        cmocka_unit_test(test_elasticity),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_known_keys),
        cmocka_unit_test(test_markdown_names_every_section),
        cmocka_unit_test(test_source),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
