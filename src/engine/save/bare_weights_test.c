/* Checkpoints of 16-bit weights alone: an engine without masters of the same type takes them as
 * they are, every other one says what it needs. */
#include "base/test_folder.h"
#include "checkpoint/checkpoint.h"
#include "engine/test_gpt.h"

enum { PARAMS_MAX = 64, WHOLE_MAX = 40000 };
static struct gpt_seat seats[GPT_RANKS_MAX];

/* Element i of the flat space: what bf16 and fp16 hold. */
static float number_of(int64_t i)
{
    return (float)(i % 127 - 63) / 32;
}

static shoal_status read_weights(void *user, int64_t first, int64_t count, void *out)
{
    const shoal_dtype *dtype = user;
    for (int64_t i = 0; i < count; i++)
        ((uint16_t *)out)[i] = *dtype == SHOAL_BF16 ? shoali_f32_to_bf16(number_of(first + i))
                                                    : shoali_f32_to_f16(number_of(first + i));
    return SHOAL_OK;
}

/* Saves "full" as the engine does, and "bare" with the same numbers and weights alone. */
static bool save_bare(struct gpt_seat *seat)
{
    const char *names[PARAMS_MAX];
    shoal_shape shapes[PARAMS_MAX];
    struct shoali_checkpoint_info info;
    int32_t count = 0;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, "full", NULL) == SHOAL_OK);
    EXPECT(shoali_checkpoint_open(folder, "full", &info) == SHOAL_OK);
    for (; (names[count] = shoal_engine_param_name(seat->engine, count)); count++) {
        EXPECT(count < PARAMS_MAX - 1);
        shapes[count] = *shoal_param_shape(seat->engine->module.param[count]);
    }
    const struct shoali_checkpoint_kind kind = {.name = "model",
                                                .dtype = *(const shoal_dtype *)seat->run->user,
                                                .count = seat->engine->module.whole_count,
                                                .user = seat->run->user,
                                                .read = read_weights};
    EXPECT(shoali_checkpoint_save(&(struct shoali_checkpoint_args){.dir = folder,
                                                                   .tag = "bare",
                                                                   .names = names,
                                                                   .shapes = shapes,
                                                                   .tensor_count = count,
                                                                   .kinds = &kind,
                                                                   .kind_count = 1,
                                                                   .engine_json = info.engine_json,
                                                                   .step = info.step}) == SHOAL_OK);
    shoali_checkpoint_info_fini(&info);
    return true;
}

static bool take(struct gpt_seat *seat)
{
    static float values[WHOLE_MAX];
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, "bare", 1, NULL) == SHOAL_OK);
    const char *name;
    for (int32_t p = 0; (name = shoal_engine_param_name(seat->engine, p)); p++) {
        const struct shoal_param *param = seat->engine->module.param[p];
        EXPECT(param->whole_begin + param->count <= WHOLE_MAX);
        EXPECT(shoal_engine_get_param(seat->engine, name, values) == SHOAL_OK);
        for (int64_t i = 0; i < param->count; i++)
            EXPECT(values[i] == number_of(param->whole_begin + i));
    }
    return true;
}

static bool refuse(struct gpt_seat *seat)
{
    char sentence[128];
    snprintf(sentence, sizeof sentence,
             "the checkpoint holds only %s weights; fp32 weights or masters are needed",
             shoal_dtype_name(*(const shoal_dtype *)seat->run->user));
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, "bare", 1, NULL) ==
           SHOAL_EUNSUPPORTED);
    EXPECT(strstr(shoal_error_message(), sentence));
    return true;
}

static void test_bare_weights(void **state)
{
    static shoal_dtype dtypes[] = {SHOAL_BF16, SHOAL_F16};
    static const char *const options[] = {"\"bf16\":{\"enabled\":true}",
                                          "\"fp16\":{\"enabled\":true}", NULL};
    (void)state;
    for (int d = 0; d < 2; d++) {
        struct gpt_run run = {.untied = true, .options = options[d], .user = &dtypes[d]};
        run.run = save_bare;
        gpt_run_ranks(run, seats);
        for (int o = 0; o < 3; o++)
            for (int inference = 0; inference < 2; inference++) {
                run.options = options[o];
                run.inference = inference;
                run.run = inference && o == d ? take : refuse;
                gpt_run_ranks(run, seats);
            }
        assert_int_equal(remove_folder(NULL), 0);
        assert_int_equal(make_folder(state), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bare_weights, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
