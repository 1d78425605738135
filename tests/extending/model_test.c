/* The model of docs/EXTENDING.md: found by its name, trained two steps, saved, and generated
 * from. */
#include "base/base.h"
#include "shoal/engine.h"
#include "shoal/inference.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { T = 8 };
static const char text[] = "to and fro and to and fro";

static void ok(shoal_status status)
{
    if (status < 0)
        fail_msg("%s: %s", shoal_status_name(status), shoal_error_trace());
}

static shoal_status next(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    static int32_t tokens[T], targets[T];
    (void)user, (void)step;
    for (int32_t t = 0; t < T; t++) {
        tokens[t] = text[micro + t];
        targets[t] = text[micro + t + 1];
    }
    batch->data[0] = tokens;
    batch->data[1] = targets;
    return SHOAL_OK;
}

static shoal_model *make_model(void)
{
    shoal_model_config *config;
    shoal_model *model;
    ok(shoal_model_config_create("echo", &config));
    ok(shoal_model_config_set(config, "hidden-size", 16));
    ok(shoal_model_config_set(config, "num-attention-heads", 3));
    ok(shoal_model_config_set(config, "seq-length", T));
    ok(shoal_model_config_set(config, "vocab-size", 256));
    assert_int_equal(shoal_model_create(config, &model), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "must divide"));
    ok(shoal_model_config_set(config, "num-attention-heads", 2));
    ok(shoal_model_create(config, &model));
    shoal_model_config_destroy(config);
    return model;
}

static void train_and_save(const char *folder)
{
    shoal_model *model = make_model();
    shoal_engine *engine;
    shoal_step_info info;
    shoal_tokenizer *tokenizer;
    char client[1024], *description;
    double first = 0;
    ok(shoal_engine_create(
        &(shoal_engine_args){.model = model,
                             .config_text =
                                 "{\"train_batch_size\":4,\"train_micro_batch_size_per_gpu\":1,"
                                 "\"optimizer\":{\"type\":"
                                 "\"AdamW\",\"params\":{\"lr\":0.01}}}",
                             .threads = 1},
        &engine));
    for (int32_t i = 0; i < 2; i++) {
        ok(shoal_engine_train_batch(engine, next, NULL, &info));
        first = i == 0 ? info.loss : first;
    }
    assert_true(info.loss < first);
    ok(shoal_tokenizer_create("byte", "", 0, &tokenizer));
    ok(shoal_model_config_to_json(shoal_model_get_config(model), &description));
    assert_non_null(strstr(description, "\"model_type\":\"echo\""));
    snprintf(client, sizeof client, "{\"model\":%s,\"tokenizer\":%s}", description,
             shoal_tokenizer_json(tokenizer));
    ok(shoal_engine_save_checkpoint(engine, folder, NULL, client));
    free(description);
    shoal_tokenizer_destroy(tokenizer);
    shoal_engine_destroy(engine);
    shoal_model_destroy(model);
}

static shoal_status take(void *user, int32_t token)
{
    int32_t *count = user;
    assert_in_range(token, 0, 255);
    ++*count;
    return SHOAL_OK;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static void test_model(void **state)
{
    char folder[] = "/tmp/shoal-model-XXXXXX";
    shoal_generator *generator;
    const int32_t prompt[] = {'t', 'o'};
    int32_t count = 0;
    (void)state;
    assert_non_null(mkdtemp(folder));
    train_and_save(folder);
    ok(shoal_generator_create(&(shoal_generator_args){.load = folder, .threads = 1}, &generator));
    assert_string_equal(shoal_model_config_name(shoal_generator_config(generator)), "echo");
    ok(shoal_generate(generator,
                      &(shoal_sample_args){.prompt = prompt, .prompt_count = 2, .num_tokens = 12},
                      take, &count));
    assert_int_equal(count, 12);
    shoal_generator_destroy(generator);
    assert_int_equal(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_model)};
    return cmocka_run_group_tests_name("extending.model", tests, NULL, NULL);
}
