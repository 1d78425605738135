/* Which keys of the configuration change how a run trains: each is of one kind or the other. */
#include "base/str.h"
#include "engine/config/test_config.h"

#include <stdio.h>

/* Those without SHOALI_OPTION_TRAINING: a name, or all that begin so. */
static const char *const silent[] = {
    /* told otherwise (save/checkpoint.c, save/options.c) */
    "train_batch_size", "seed", "fp16.enabled", "bf16.enabled", "exact_splits.", "optimizer.type",
    "scheduler.type",
    /* used at the beginning alone */
    "fp16.initial_scale_power",
    /* how a step is spread over ranks, time and memory */
    "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "prescale_gradients",
    "gradient_predivide_factor", "packed_weights", "data_parallel_size", "zero_optimization.",
    "activation_checkpointing.", "pipeline.", "tensor_parallel.", "expert_parallel.", "compile.",
    "hybrid_engine.", "elasticity.",
    /* what is written down */
    "hashes", "wandb.", "comet.", "comms_logger.", "flops_profiler.", "timers.", "checkpoint.",
    "autotuning.",
    /* of sections that are refused where they are on */
    "torch_autocast.", "progressive_layer_drop.", "curriculum_learning.", "data_efficiency.",
    "weight_quantization.",
    /* tables of their own: a row for each optimizer and schedule */
    "optimizer.params", "scheduler.params"};

static bool is_silent(const char *path)
{
    for (size_t i = 0; i < COUNT(silent); i++) {
        const size_t length = strlen(silent[i]);
        if (strncmp(path, silent[i], length) == 0 &&
            (silent[i][length - 1] == '.' || !path[length]))
            return true;
    }
    return false;
}

static void add_path(void *user, const char *path, const char *value)
{
    (void)value;
    shoali_str_append(user, " %s ", path);
}

static void check_path(void *told, const char *path, const char *value)
{
    char word[128];
    (void)value;
    snprintf(word, sizeof word, " %s ", path);
    if (!strstr(shoali_str_get(told), word) && !is_silent(path))
        fail_msg("%s: does it change the training? Give its row SHOALI_OPTION_TRAINING, or list it",
                 path);
}

/* A run that continues says which of them differ: a new key is of one kind or the other. */
static void test_training_keys(void **state)
{
    struct shoali_ds_config config;
    struct shoali_str told = {0};
    (void)state;
    read_text("{}", &config);
    assert_int_equal(shoali_config_visit(&shoali_ds_section, &config, "", SHOALI_OPTION_TRAINING,
                                         add_path, &told),
                     SHOAL_OK);
    assert_int_equal(shoali_config_visit(&shoali_ds_section, &config, "", 0, check_path, &told),
                     SHOAL_OK);
    assert_non_null(strstr(shoali_str_get(&told), " gradient_clipping "));
    assert_non_null(strstr(shoali_str_get(&told), " zero_optimization.zero_quantized_weights "));
    shoali_str_fini(&told);
    shoali_ds_config_fini(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_training_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
