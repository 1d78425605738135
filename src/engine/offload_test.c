/* Where masters, states and weights lie does not change a bit: everything that offload can be told,
 * against the same run without. */
#include "base/test_folder.h"
#include "engine/test_gpt.h"

#include <sys/stat.h>
#include <unistd.h>

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* ---- the cases ------------------------------------------------------------------------------ */

/* Members of zero_optimization; PATH stands for the folder. */
static const char *const offloads[] = {
    "\"offload_optimizer\":{\"device\":\"cpu\"}",
    "\"sub_group_size\":1000,\"offload_optimizer\":{\"device\":\"cpu\",\"buffer_count\":2,"
    "\"pin_memory\":false}",
    "\"sub_group_size\":700,\"offload_optimizer\":{\"device\":\"nvme\",\"nvme_path\":PATH}",
    "\"sub_group_size\":3000,\"offload_optimizer\":{\"device\":\"nvme\",\"nvme_path\":PATH,"
    "\"pipeline_read\":true,\"pipeline_write\":true,\"buffer_count\":12,\"pin_memory\":false}",
};
#define FETCHES "\"stage3_param_persistence_threshold\":40,\"stage3_max_live_parameters\":9000,"
/* Of stage 3 alone. */
static const char *const offloads_3[] = {
    "\"sub_group_size\":900,\"offload_optimizer\":{\"device\":\"cpu\",\"ratio\":0.4}",
    FETCHES "\"offload_param\":{\"device\":\"cpu\"}",
    FETCHES "\"sub_group_size\":2000,\"offload_param\":{\"device\":\"cpu\",\"pin_memory\":false},"
            "\"offload_optimizer\":{\"device\":\"cpu\",\"ratio\":0.7}",
    FETCHES "\"sub_group_size\":1500,\"overlap_comm\":false,"
            "\"offload_param\":{\"device\":\"nvme\",\"nvme_path\":PATH,\"buffer_count\":2,"
            "\"max_in_cpu\":4000},\"offload_optimizer\":{\"device\":\"nvme\",\"nvme_path\":PATH,"
            "\"pipeline_read\":true,\"buffer_count\":8}",
    FETCHES "\"offload_param\":{\"device\":\"nvme\",\"nvme_path\":PATH,\"buffer_count\":1,"
            "\"max_in_cpu\":0}",
};
enum {
    OFFLOADS = sizeof offloads / sizeof offloads[0],
    OFFLOADS_3 = sizeof offloads_3 / sizeof offloads_3[0]
};

struct precision {
    const char *options;
    bool exact;
    int64_t lonely_step; /* this step overflows */
};
static const struct precision precisions[] = {
    {"\"gradient_clipping\":0.5", false, 0},
    {"\"bf16\":{\"enabled\":true}", false, 0},
    {"\"reduction\":\"exact\",\"bf16\":{\"enabled\":true},\"gradient_clipping\":0.5", true, 0},
    {"\"reduction\":\"exact\",\"exact_unit_log2\":30,\"fp16\":{\"enabled\":true,"
     "\"initial_scale_power\":16,\"hysteresis\":1,\"loss_scale_window\":4}",
     true, 3},
};
enum { PRECISIONS = sizeof precisions / sizeof precisions[0] };

/* "zero_optimization": {stage and members} and the precision's options. */
static void put_options(char *text, size_t bytes, const char *precision, int32_t stage,
                        const char *members)
{
    struct shoali_str str = {0};
    shoali_str_append(&str, "%s,\"zero_optimization\":{\"stage\":%d", precision, (int)stage);
    if (members)
        shoali_str_append(&str, ",");
    for (const char *at = members; at && *at; at++) {
        const bool path = strncmp(at, "PATH", 4) == 0;
        if (path)
            shoali_str_append(&str, "\"%s\"", folder);
        else
            shoali_str_append_bytes(&str, at, 1);
        at += path ? 3 : 0;
    }
    shoali_str_append(&str, "}");
    snprintf(text, bytes, "%s", shoali_str_get(&str));
    assert_true(strlen(text) + 1 < bytes);
    shoali_str_fini(&str);
}

static struct gpt_run run_of(const struct precision *precision, int32_t ranks,
                             const char *accelerator, const char *options)
{
    return (struct gpt_run){.ranks = ranks,
                            .accelerator = accelerator,
                            .options = options,
                            .micro_batches = precision->exact ? 6 : ranks,
                            .steps = 5,
                            .dropout = 0.1,
                            .lonely_step = precision->lonely_step,
                            .lonely_micro = 2};
}

static void check_stages(int32_t ranks, const char *accelerator, int32_t first, int32_t last)
{
    char plain[1024], text[1024];
    for (int32_t p = 0; p < PRECISIONS; p++) {
        const struct precision *precision = &precisions[p];
        for (int32_t stage = first; stage <= last; stage++) {
            const int32_t more = stage == 3 ? OFFLOADS_3 : 0;
            put_options(plain, sizeof plain, precision->options, stage, NULL);
            gpt_run_ranks(run_of(precision, ranks, accelerator, plain), reference);
            assert_true(reference->info[4].applied);
            assert_true(!precision->lonely_step || !reference->info[3].applied);
            for (int32_t o = 0; o < OFFLOADS + more; o++) {
                put_options(text, sizeof text, precision->options, stage,
                            o < OFFLOADS ? offloads[o] : offloads_3[o - OFFLOADS]);
                gpt_run_ranks(run_of(precision, ranks, accelerator, text), seats);
                gpt_assert_same(seats, ranks, reference, text);
            }
        }
    }
}

static void test_one_rank(void **state)
{
    (void)state;
    check_stages(1, "cpu", 1, 3);
}

static void test_two_ranks(void **state)
{
    (void)state;
    check_stages(2, "cpu", 3, 3);
}

static void test_three_ranks(void **state)
{
    (void)state;
    check_stages(3, "cpu", 1, 2);
}

static void test_sim(void **state)
{
    static const char *const streams[] = {"random", "late", "thread"};
    (void)state;
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(setenv("SHOAL_SIM_STREAMS", streams[i], 1), 0);
        check_stages(1 + i % 2, "sim", i + 1, i + 1);
    }
}

/* ---- checkpoints ---------------------------------------------------------------------------- */

enum { STEPS = 6, HALF = 3 };

static bool save_half(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    while (seat->steps_done < HALF)
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat,
                                        &seat->info[seat->steps_done++]) >= 0);
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, NULL) == SHOAL_OK);
    return gpt_train(seat); /* saving changes nothing */
}

static bool load_half(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, NULL, 0, NULL) == SHOAL_OK);
    memcpy(seat->info, reference[0].info, HALF * sizeof seat->info[0]);
    seat->steps_done = HALF;
    return gpt_train(seat);
}

/* From any offload into any other, with other ranks. */
static void test_resume(void **state)
{
    static const int32_t from[] = {2, 4, 7, 8}, to[] = {7, -1, 3, 6};
    char text[1024];
    (void)state;
    for (int32_t p = 0; p < 2; p++) {
        const char *options =
            p ? "\"reduction\":\"exact\"" : "\"reduction\":\"exact\",\"bf16\":{\"enabled\":true}";
        struct gpt_run run = {.options = text, .steps = STEPS, .dropout = 0.1};
        put_options(text, sizeof text, options, 1, NULL);
        gpt_run_ranks(run, reference);
        for (int32_t i = 0; i < 4; i++) {
            const int32_t cases[2] = {from[i], to[i]};
            for (int32_t half = 0; half < 2; half++) {
                const int32_t o = cases[half];
                const char *members = o < 0          ? NULL
                                      : o < OFFLOADS ? offloads[o]
                                                     : offloads_3[o - OFFLOADS];
                put_options(text, sizeof text, options, 3, members);
                run.ranks = 1 + (i + half) % 3;
                run.accelerator = (i + half) % 2 ? "sim" : "cpu";
                run.run = half ? load_half : save_half;
                gpt_run_ranks(run, seats);
                gpt_assert_same(seats, run.ranks, reference, text);
            }
        }
    }
}

/* ---- inference ------------------------------------------------------------------------------ */

static bool evaluate_there(struct gpt_seat *seat)
{
    double *losses = seat->run->user;
    char text[2048];
    shoal_memory_info info;
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(gpt_make_model(seat->run, &seat->model) == SHOAL_OK);
    EXPECT(shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                    .config_text = text,
                                                    .group = seat->group,
                                                    .seed = 7,
                                                    .inference = 1},
                               &seat->engine) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, NULL, 1, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 4, &losses[seat->rank]) ==
           SHOAL_OK);
    shoal_engine_get_memory_info(seat->engine, &info);
    EXPECT(info.states_bytes == 0 && info.master_bytes == 0); /* or outside the device */
    return true;
}

static void test_inference(void **state)
{
    double plain[GPT_RANKS_MAX] = {0}, losses[GPT_RANKS_MAX] = {0};
    char text[1024];
    (void)state;
    for (int32_t ranks = 1; ranks <= 3; ranks++) {
        struct gpt_run run = {.ranks = ranks,
                              .options = text,
                              .micro_batches = 12,
                              .run = evaluate_there,
                              .user = plain};
        put_options(text, sizeof text, "\"bf16\":{\"enabled\":true}", 3, NULL);
        gpt_run_ranks(run, seats);
        put_options(text, sizeof text, "\"bf16\":{\"enabled\":true}", 3, offloads_3[1]);
        run.user = losses;
        gpt_run_ranks(run, seats);
        assert_memory_equal(plain, losses, sizeof plain);
        assert_true(losses[0] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),    cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_three_ranks), cmocka_unit_test(test_sim),
        cmocka_unit_test(test_resume),      cmocka_unit_test(test_inference),
    };
    setenv("SHOAL_SIM_BYTES", "268435456", 1);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
