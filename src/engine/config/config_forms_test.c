/* Keys and forms of published files that are taken: what each means, and the one line it costs. */
#include "engine/config/rows.h"

#include "engine/config/test_config.h"

#include <stdio.h>
#include <string.h>

struct notices {
    const char *expected;
    int count, found;
};

static void note_line(void *user, shoal_log_level level, const char *subsystem, int rank,
                      const char *text)
{
    struct notices *notices = user;
    (void)level;
    (void)subsystem;
    (void)rank;
    notices->count++;
    notices->found += notices->expected && strstr(text, notices->expected);
}

/* A key that means something elsewhere and nothing here says so, once. */
static void test_idle_keys_are_noticed(void **state)
{
    static const struct {
        const char *zero, *expected; /* NULL: no notice at all */
    } cases[] = {
        {"\"stage\": 2, \"max_live_parameters\": 9",
         "zero_optimization.stage3_max_live_parameters has no effect: it is for stage 3"},
        {"\"stage\": 2, \"sub_group_size\": 9", "sub_group_size has no effect"},
        {"\"stage\": 2, \"sub_group_size\": 9, \"offload_optimizer\": {\"device\": \"cpu\"}", NULL},
        {"\"stage\": 3, \"sub_group_size\": 9, \"prefetch_bucket_size\": 9", NULL},
        {"\"stage\": 3, \"prefetch_bucket_size\": 9, \"overlap_comm\": false",
         "stage3_prefetch_bucket_size has no effect: nothing is gathered ahead"},
        {"\"stage\": 0, \"reduce_scatter\": false", "reduce_scatter has no effect"},
        {"\"stage\": 1, \"reduce_scatter\": false", NULL},
        {"\"stage\": 1, \"offload_optimizer\": {\"device\": \"cpu\", \"pipeline_read\": true}",
         "offload_optimizer.pipeline_read has no effect: device is not nvme"},
        {"\"stage\": 3, \"offload_optimizer\": {\"ratio\": 0.5}", "ratio has no effect"},
        {"\"stage\": 3, \"offload_param\": {\"device\": \"cpu\", \"max_in_cpu\": 9}",
         "offload_param.max_in_cpu has no effect"},
        {"\"stage\": 3, \"offload_param\": {\"pin_memory\": true}", "pin_memory has no effect"},
        {"\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}, "
         "\"offload_optimizer\": {\"buffer_count\": 6}",
         NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct notices notices = {.expected = cases[i].expected};
        struct shoali_ds_config config;
        char text[256];
        snprintf(text, sizeof text, "{\"zero_optimization\": {%s}}", cases[i].zero);
        assert_int_equal(shoal_log_configure("info", note_line, &notices), SHOAL_OK);
        read_text(text, &config);
        shoali_ds_config_fini(&config);
        assert_int_equal(shoal_log_configure(NULL, NULL, NULL), SHOAL_OK);
        if (notices.count != notices.found || notices.found != (cases[i].expected != NULL))
            fail_msg("%s: %d notices, %d as expected", text, notices.count, notices.found);
    }
}

/* Keys that change no result, on: one line each. */
static void test_accepted_keys_say_what_happens(void **state)
{
    static const char *const cases[][2] = {
        {"\"memory_breakdown\": true", "memory_breakdown has no effect: shoal plan"},
        {"\"communication_data_type\": \"bf16\"", "communication_data_type has no effect"},
        {"\"data_types\": {\"grad_accum_dtype\": \"fp16\"}", "summed in fp32"},
        {"\"wandb\": {\"enabled\": true}", "Nothing is sent to Weights"},
        {"\"pipeline\": {\"grad_partitioned\": false}", "pipeline.grad_partitioned has no effect"},
        {"\"checkpoint\": {\"use_node_local_storage\": true}", "which all hosts share"},
        {"\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true}", "stay in fp32"},
        {"\"bf16\": {\"immediate_grad_update\": true}", "immediate_grad_update has no effect"},
        {"\"bf16\": {\"loss_scale\": 0}", "bf16.loss_scale has no effect"},
        {"\"aio\": {\"use_gds\": true}", "read through host memory"},
        {"\"sparse_gradients\": true", "sent whole"},
        {"\"cuda_visible_devices\": 0", "Set the variable CUDA_VISIBLE_DEVICES"},
        {"\"compile\": {\"deepcompile\": true, \"passes\": [\"z1\"]}", "compiled ahead"},
        {"\"compile\": {\"disable\": false}", "compiled ahead"},
        {"\"offload_optimizer\": {\"device\": \"cpu\"}", "zero_optimization only"},
        {"\"disable_allgather\": true", "never had an effect"},
        {"\"fp32_allreduce\": true", "always sent in fp32"},
        {"\"communication_data_type\": \"fp16\"", "always sent in fp32"},
        {"\"seq_parallel_comm_data_type\": \"bf16\"", "No ranks share a sequence"},
        {"\"allgather_size\": 500000000", "Use zero_optimization.allgather_bucket_size"},
        {"\"flops_profiler\": {\"start_step\": 5}", "Use profile_step"},
        {"\"optimizer\": {\"type\": \"Adam\", \"adam_w_mode\": true}", "in params only"},
        {"\"fp16\": {\"opt_level\": \"O2\"}", "NVIDIA Apex"},
        {"\"fp16\": {\"min_loss_scale\": 0}", "min_loss_scale 0 is taken as 2^-24"},
        {"\"fp16\": {\"hysteresis\": 0}", "hysteresis 0 is taken as 1"},
        {"\"fp16\": {\"dynamic_loss_scale\": true}", "use loss_scale, where 0 means dynamic"},
        {"\"flops_profiler\": {\"step\": 1}", "step has no effect"},
        {"\"memory_break_down\": false", "use memory_breakdown"},
        {"\"memory_optimization\": {\"enable_memory_logging\": true}", "reads no key"},
        {"\"optimizer\": {\"type\": \"Adam\", \"weight_decay\": 0.1}", "in params only"},
        {"\"pipeline\": {\"activation_checkpointing\": false}", "activation_checkpoint_interval"},
        {"\"flops_profiler\": {\"enabled\": true}", "No report is written"},
        {"\"zero_optimization\": {\"elastic_checkpoint\": true}", "loads into any layout"},
        {"\"fp16\": {\"enabled\": 0}", "it is taken as false"},
        {"\"prescale_gradients\": \"True\"", "it is taken as true"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct notices notices = {.expected = cases[i][1]};
        struct shoali_ds_config config;
        char text[256];
        snprintf(text, sizeof text, "{%s}", cases[i][0]);
        assert_int_equal(shoal_log_configure("info", note_line, &notices), SHOAL_OK);
        read_text(text, &config);
        shoali_ds_config_fini(&config);
        assert_int_equal(shoal_log_configure(NULL, NULL, NULL), SHOAL_OK);
        if (notices.count != 1 || notices.found != 1)
            fail_msg("%s: %d notices, %d as expected", text, notices.count, notices.found);
    }
}

/* Reads a text that costs one line. */
static void read_noticed(const char *text, const char *line, struct shoali_ds_config *config)
{
    struct notices notices = {.expected = line};
    assert_int_equal(shoal_log_configure("info", note_line, &notices), SHOAL_OK);
    read_text(text, config);
    assert_int_equal(shoal_log_configure(NULL, NULL, NULL), SHOAL_OK);
    if (notices.count != 1 || notices.found != 1)
        fail_msg("%s: %d notices, %d as expected", text, notices.count, notices.found);
}

static void test_old_names(void **state)
{
    (void)state;
    struct shoali_ds_config config;
    const struct shoali_zero_config *zero = &config.zero_optimization;
    read_noticed("{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}",
                 "zero_optimization.cpu_offload is an old name", &config);
    assert_int_equal(zero->offload_optimizer.device, SHOALI_OFFLOAD_CPU);
    shoali_ds_config_fini(&config);
    read_noticed("{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": false}}",
                 "zero_optimization.cpu_offload is an old name", &config);
    assert_int_equal(zero->offload_optimizer.device, SHOALI_OFFLOAD_NONE);
    shoali_ds_config_fini(&config);
    read_noticed("{\"zero_optimization\": {\"stage\": 3, \"cpu_offload_params\": true}}",
                 "offload_param", &config);
    assert_int_equal(zero->offload_param.device, SHOALI_OFFLOAD_CPU);
    shoali_ds_config_fini(&config);
    read_text("{\"zero_optimization\": {\"stage\": 1, \"cpu_offload\": true, "
              "\"cpu_offload_use_pin_memory\": false}}",
              &config);
    assert_false(zero->offload_optimizer.pin_memory);
    shoali_ds_config_fini(&config);
    expect_error("{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true, "
                 "\"offload_optimizer\": {\"device\": \"none\"}}}",
                 SHOAL_ECONFIG, "offload_optimizer.device is none");
    read_noticed("{\"zero_optimization\": {\"stage\": 3, "
                 "\"stage3_gather_fp16_weights_on_model_save\": true}}",
                 "It means stage3_gather_16bit_weights_on_model_save", &config);
    assert_true(shoali_config_given(&shoali_zero_section, zero,
                                    "stage3_gather_16bit_weights_on_model_save"));
    shoali_ds_config_fini(&config);
    read_noticed("{\"zero_optimization\": {\"stage\": 2, \"find_unused_parameters\": false}}",
                 "It means ignore_unused_parameters", &config);
    assert_false(zero->ignore_unused_parameters);
    shoali_ds_config_fini(&config);
    read_noticed("{\"aio\": {\"thread_count\": 3}}", "It means intra_op_parallelism", &config);
    assert_int_equal(config.aio.intra_op_parallelism, 3);
    shoali_ds_config_fini(&config);
    expect_error("{\"aio\": {\"thread_count\": 3, \"intra_op_parallelism\": 2}}", SHOAL_ECONFIG,
                 "old name of `intra_op_parallelism`, which has another value");
}

/* Sections at other places, values in place of sections, limits that adapt. */
static void test_forms_that_are_taken(void **state)
{
    (void)state;
    struct shoali_ds_config config;
    read_noticed("{\"zero_optimization\": {\"aio\": {\"block_size\": 4096}}}", "is taken as aio",
                 &config);
    assert_int_equal(config.aio.block_size, 4096);
    shoali_ds_config_fini(&config);
    expect_error("{\"aio\": {}, \"zero_optimization\": {\"aio\": {}}}", SHOAL_ECONFIG,
                 "both given");
    read_noticed("{\"zero_optimization\": true}", "it is taken as {\"stage\": 1}", &config);
    assert_int_equal(config.zero_optimization.stage, 1);
    shoali_ds_config_fini(&config);
    read_noticed("{\"zero_optimization\": false}", "it is taken as {\"stage\": 0}", &config);
    shoali_ds_config_fini(&config);
    read_noticed("{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"max_grad_norm\": 0.5}}}",
                 "is taken as gradient_clipping 0.5", &config);
    assert_true(config.gradient_clipping == 0.5);
    shoali_ds_config_fini(&config);
    read_noticed("{\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 0}}",
                 "sub_group_size 0 is taken as 4194304", &config);
    assert_int_equal(config.zero_optimization.sub_group_size, 4194304);
    shoali_ds_config_fini(&config);
    read_noticed("{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}}}",
                 "it needs stage 1, 2 or 3 (stage is 0)", &config);
    assert_int_equal(config.zero_optimization.offload_optimizer.device, SHOALI_OFFLOAD_NONE);
    shoali_ds_config_fini(&config);
    read_noticed("{\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": "
                 "\"cpu\"}}}",
                 "it needs stage 3 (stage is 2)", &config);
    assert_int_equal(config.zero_optimization.offload_param.device, SHOALI_OFFLOAD_NONE);
    shoali_ds_config_fini(&config);
    read_text("{\"compression_training\": {\"weight_quantization\": {\"shared_parameters\": {}, "
              "\"different_groups\": {}}, \"row_pruning\": {\"shared_parameters\": {\"enabled\": "
              "false}, \"different_groups\": {\"a\": {\"params\": {\"x\": 1}}}}}}",
              &config);
    shoali_ds_config_fini(&config);
    read_noticed("{\"zero_optimization\": {\"stage\": 3, \"prefetch_bucket_size\": 15099494.4}}",
                 "it is taken as 15099494", &config);
    assert_int_equal(config.zero_optimization.stage3_prefetch_bucket_size, 15099494);
    shoali_ds_config_fini(&config);
    read_noticed("{\"zero_optimization\": {\"stage\": \"2\"}}", "is text", &config);
    assert_int_equal(config.zero_optimization.stage, 2);
    shoali_ds_config_fini(&config);
    read_noticed("{\"gradient_clipping\": false}", "it is taken as 0", &config);
    assert_true(config.gradient_clipping == 0);
    shoali_ds_config_fini(&config);
    read_noticed("{\"gradient_clipping\": true}", "it is taken as 1", &config);
    assert_true(config.gradient_clipping == 1);
    shoali_ds_config_fini(&config);
    read_noticed("{\"steps_per_print\": false}", "it is taken as 0", &config);
    assert_int_equal(config.steps_per_print, 0);
    shoali_ds_config_fini(&config);
    read_noticed("{\"activation_checkpointing\": false}", "it is left out", &config);
    shoali_ds_config_fini(&config);
    read_noticed("{\"data_types\": {\"keep_in_fp32_modules\": [\"norm\"]}}", "masters are in fp32",
                 &config);
    shoali_ds_config_fini(&config);
    read_text("{\"data_types\": {\"keep_in_fp32_modules\": \"auto\"}}", &config);
    shoali_ds_config_fini(&config);
    read_noticed("{\"gradient_accumulation_dtype\": \"fp32\"}", "use data_types.grad_accum_dtype",
                 &config);
    shoali_ds_config_fini(&config);
    read_noticed("{\"zero3_init_flag\": true}", "Accelerate reads it", &config);
    shoali_ds_config_fini(&config);
    expect_error("{\"activation_checkpointing\": true}", SHOAL_ECONFIG, "must be a section");
    read_text("{\"_comment\": \"why\", \"fp16\": {\"comment\": \"none\"}, "
              "\"#flops_profiler\": {\"enabled\": true}}",
              &config);
    shoali_ds_config_fini(&config);
    read_noticed("{\"moe_gating\": {\"enabled\": false}}", "moe_gating is ignored", &config);
    shoali_ds_config_fini(&config);
    expect_error("{\"moe_gating\": {\"enabled\": true}}", SHOAL_ECONFIG, "unknown key");
    expect_error("{\"zero_optimization\": {\"overlap_com\": false}}", SHOAL_ECONFIG,
                 "nearest key is `overlap_comm`");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_keys_are_noticed),
        cmocka_unit_test(test_accepted_keys_say_what_happens),
        cmocka_unit_test(test_old_names),
        cmocka_unit_test(test_forms_that_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
