/* test_families - small models of every family by name and options, and their batches, for the
 * tests that train on a mesh. */
#ifndef SHOALI_ENGINE_TEST_FAMILIES_H
#define SHOALI_ENGINE_TEST_FAMILIES_H

#include "engine/test_gpt.h"

enum { BERT_ARRAYS = 5 };

/* An option of a model; the last one's name is NULL. */
struct test_setting {
    const char *option;
    double value;
};

/* The GPT's text; of BERT's other arrays each sample has something else, too. */
static inline shoal_status test_next(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    static _Thread_local int32_t more[BERT_ARRAYS][GPT_SAMPLES_MAX * GPT_SEQ];
    struct gpt_seat *seat = user;
    const void *data[BERT_ARRAYS];
    shoal_batch text = {.data = data};
    const shoal_status status = gpt_next(user, step, micro, &text);
    for (int64_t i = 0; i < seat->run->samples * GPT_SEQ; i++)
        more[1][i] = i % GPT_SEQ > 9;
    for (int64_t b = 0; b < seat->run->samples; b++) {
        more[3][b] = (int32_t)(GPT_SEQ - (step + micro + b) % 5);
        more[4][b] = (int32_t)((step + micro + b) % 2);
    }
    const bool is_bert = seat->model->input_count > 2;
    batch->data[0] = data[0];
    batch->data[is_bert ? 2 : 1] = data[1];
    for (int i = 1; is_bert && i < seat->model->input_count; i++)
        if (i != 2)
            batch->data[i] = more[i];
    return status;
}

/* With the sizes of test_gpt.h's text, and the run's dropout. */
static inline shoal_status test_make_model(const struct gpt_run *run, const char *name,
                                           const struct test_setting *settings, shoal_model **model)
{
    const struct test_setting all[] = {{"seq-length", GPT_SEQ},
                                       {"vocab-size", GPT_VOCAB},
                                       {"make-vocab-size-divisible-by", 1},
                                       {"attention-dropout", run->dropout},
                                       {"hidden-dropout", run->dropout}};
    shoal_status status;
    shoal_model_config *config;
    SHOAL_TRY(status, shoal_model_config_create(name, &config), done);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        SHOAL_TRY(status, shoal_model_config_set(config, all[i].option, all[i].value), done);
    for (const struct test_setting *s = settings; s->option; s++)
        SHOAL_TRY(status, shoal_model_config_set(config, s->option, s->value), done);
    SHOAL_TRY(status, shoal_model_create(config, model), done);
done:
    shoal_model_config_destroy(config);
    return status;
}

#endif
