/* test_model - a GPT and its configuration for the tests of this folder. */
#ifndef SHOALI_AUTOTUNING_TEST_MODEL_H
#define SHOALI_AUTOTUNING_TEST_MODEL_H

#include "autotuning/autotuning.h"
#include "base/test_cmocka.h"
#include "shoal/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline shoal_model *test_gpt(int64_t layers, int64_t hidden, int64_t heads, int64_t sequence,
                                    int64_t vocabulary)
{
    shoal_gpt_config config;
    shoal_model *model = NULL;
    shoal_gpt_config_defaults(&config);
    config.num_layers = layers;
    config.hidden_size = hidden;
    config.num_attention_heads = heads;
    config.seq_length = sequence;
    config.vocab_size = vocabulary;
    assert_int_equal(shoal_gpt_create(&config, &model), SHOAL_OK);
    return model;
}

/* `more`: further members, with a comma before each. */
static inline const char *test_config(char *text, size_t bytes, int64_t batch, int64_t micro,
                                      const char *more)
{
    snprintf(
        text, bytes,
        "{\"train_batch_size\": %lld, \"train_micro_batch_size_per_gpu\": %lld, \"optimizer\": "
        "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}}%s}",
        (long long)batch, (long long)micro, more);
    return text;
}

#endif
