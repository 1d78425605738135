/* Engines for inference: 16-bit weights without masters have the same bits, take what is loaded and
 * set, and need no memory beside them. */
#include "engine/test_gpt.h"

#include <ftw.h>

enum { COUNT_MAX = 4096 };
static struct gpt_seat seats[GPT_RANKS_MAX];
static char folder[64];

struct task {
    const char *type; /* "bf16" */
    const char *stage;
    bool fp32; /* of the training: its checkpoint has fp32 weights alone */
};
static const char *const types[] = {"bf16", "fp16"};
static const char *const stages[] = {"0", "1", "2", "3"};

static shoal_status open_for_inference(struct gpt_seat *seat)
{
    const struct task *task = seat->run->user;
    char text[512];
    shoal_status status;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\":1,\"%s\":{\"enabled\":true},"
             "\"zero_optimization\":{\"stage\":%s}}",
             task->type, task->stage);
    SHOAL_TRY(status, gpt_make_model(seat->run, &seat->model), done);
    SHOAL_TRY(status,
              shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                       .config_text = text,
                                                       .group = seat->group,
                                                       .accelerator = seat->run->accelerator,
                                                       .threads = 1,
                                                       .seed = 7,
                                                       .inference = 1},
                                  &seat->engine),
              done);
done:
    return status;
}

static float rounded(const struct task *task, float x)
{
    return strcmp(task->type, "bf16") == 0 ? shoali_bf16_to_f32(shoali_f32_to_bf16(x))
                                           : shoali_f16_to_f32(shoali_f32_to_f16(x));
}

/* Every weight is that of the training's engine, rounded once. */
static bool compare(struct gpt_seat *seat, shoal_engine *training)
{
    static _Thread_local float got[COUNT_MAX], expected[COUNT_MAX];
    const char *name;
    for (int32_t p = 0; (name = shoal_engine_param_name(training, p)) != NULL; p++) {
        const int64_t count = seat->engine->module.param[p]->count;
        EXPECT(count <= COUNT_MAX);
        EXPECT(shoal_engine_get_param(seat->engine, name, got) == SHOAL_OK);
        EXPECT(shoal_engine_get_param(training, name, expected) == SHOAL_OK);
        for (int64_t i = 0; i < count; i++) {
            const float want = rounded(seat->run->user, expected[i]);
            EXPECT(memcmp(&got[i], &want, sizeof want) == 0);
        }
    }
    return true;
}

static bool check_memory(struct gpt_seat *seat)
{
    shoal_memory_info info;
    shoal_engine_get_memory_info(seat->engine, &info);
    EXPECT(info.weights_bytes > 0 && info.states_bytes == 0 && info.master_bytes == 0);
    /* with several ranks weights may lie in memory of the communication */
    EXPECT(info.device_peak_bytes <= info.weights_bytes + info.activations_bytes +
                                         info.buffers_bytes + info.packed_weights_bytes +
                                         (128 << 10));
    return true;
}

/* Initial values, then those of a checkpoint, then one that is set. */
static bool follow_training(struct gpt_seat *seat)
{
    const struct task *task = seat->run->user;
    float value[COUNT_MAX];
    char config[512], tag[64];
    snprintf(config, sizeof config, "\"%s\":{\"enabled\":%s},\"zero_optimization\":{\"stage\":%s}",
             task->type, task->fp32 ? "false" : "true", task->stage);
    struct gpt_run run = *seat->run;
    run.options = config;
    struct gpt_seat trainer = *seat;
    trainer.run = &run;
    EXPECT(gpt_open(&trainer, NULL) == SHOAL_OK);
    EXPECT(open_for_inference(seat) == SHOAL_OK);
    bool same = compare(seat, trainer.engine) && check_memory(seat);
    snprintf(tag, sizeof tag, "%s-%s-%d-%d", task->type, task->stage, (int)seat->run->ranks,
             task->fp32);
    for (int32_t i = 0; i < 2; i++)
        EXPECT(shoal_engine_train_batch(trainer.engine, gpt_next, &trainer, NULL) >= 0);
    EXPECT(shoal_engine_save_checkpoint(trainer.engine, folder, tag, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, tag, 1, NULL) == SHOAL_OK);
    same = same && compare(seat, trainer.engine) && check_memory(seat);
    const char *name = "transformer.h.0.ln_1.weight";
    EXPECT(shoal_engine_get_param(trainer.engine, name, value) == SHOAL_OK);
    value[3] = 0.3333f;
    EXPECT(shoal_engine_set_param(trainer.engine, name, value) == SHOAL_OK);
    EXPECT(shoal_engine_set_param(seat->engine, name, value) == SHOAL_OK);
    same = same && compare(seat, trainer.engine);
    shoal_engine_destroy(trainer.engine);
    shoal_model_destroy(trainer.model);
    return same;
}

static void test_weights(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 24; i++) {
        struct task task = {types[i % 2], stages[i / 2 % 4], i >= 16};
        gpt_run_ranks((struct gpt_run){.ranks = i % 3 == 0 ? 1 : 3,
                                       .accelerator = i % 5 == 0 ? "sim" : "cpu",
                                       .run = follow_training,
                                       .user = &task},
                      seats);
    }
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/shoal-inference-XXXXXX");
    return setenv("SHOAL_SIM_BYTES", "268435456", 1) == 0 && mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_weights)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
