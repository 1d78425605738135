/* The engine when memory, threads or another rank fail: every failure is a status with a sentence,
 * nothing leaks (the sanitizers look), and the next attempt works. */
#include "base/fault.h"
#include "base/test_folder.h"
#include "engine/test_gpt.h"

#include <unistd.h>

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* ---- one rank: the 1st, 2nd, ... pass of a fault point --------------------------------------- */

/* Everything an engine does, once. */
static shoal_status live(struct gpt_seat *seat)
{
    shoal_status status;
    double loss;
    float value[32];
    SHOAL_TRY(status, gpt_open(seat, NULL), done);
    SHOAL_TRY(status, shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL), done);
    SHOAL_TRY(status, shoal_engine_eval_batch(seat->engine, gpt_next, seat, 2, &loss), done);
    SHOAL_TRY(status, shoal_engine_get_param(seat->engine, "transformer.ln_f.weight", value), done);
    SHOAL_TRY(status, shoal_engine_fingerprint(seat->engine, &seat->fingerprint), done);
    SHOAL_TRY(status, shoal_engine_save_checkpoint(seat->engine, folder, NULL, "{}"), done);
    SHOAL_TRY(status, shoal_engine_load_checkpoint(seat->engine, folder, NULL, 0, NULL), done);
done:
    shoal_engine_destroy(seat->engine);
    shoal_model_destroy(seat->model);
    seat->engine = NULL;
    seat->model = NULL;
    return status;
}

static bool fail_each(struct gpt_seat *seat)
{
    const char *point = seat->run->user;
    char spec[64];
    int64_t passes = 0, failures = 0;
    shoal_status status;
    do {
        snprintf(spec, sizeof spec, "%s:%lld", point, (long long)passes);
        EXPECT(shoali_fault_arm(spec));
        shoali_error_clear();
        status = live(seat);
        EXPECT(shoali_fault_arm(NULL));
        EXPECT(status != SHOAL_EINTERNAL);
        EXPECT(status >= 0 || *shoal_error_message());
        failures += status < 0;
        passes += passes < 300 ? 1 : 7; /* most of them are rows of the configuration */
    } while (status < 0);
    EXPECT(live(seat) == SHOAL_OK); /* and the folder is still good */
    printf("%s: %lld failures, one after the other\n", point, (long long)failures);
    EXPECT(failures >= (strcmp(point, "alloc") == 0 ? 50 : 1));
    return true;
}

static void test_each(void **state)
{
    static const char *const points[] = {"alloc", "device_alloc", "host_alloc", "thread"};
    (void)state;
    for (size_t p = 0; p < 4; p++)
        gpt_run_ranks((struct gpt_run){.run = fail_each,
                                       .threads = 2,
                                       .options = "\"bf16\":{\"enabled\":true}",
                                       .user = (void *)(uintptr_t)points[p]},
                      seats);
}

/* ---- several ranks: one of them fails in its k-th collective --------------------------------- */

static bool fail_collective(struct gpt_seat *seat)
{
    const char *spec = seat->run->user;
    EXPECT(shoali_fault_arm(spec));
    shoal_status status = gpt_open(seat, NULL);
    for (int32_t i = 0; i < 3 && status >= 0; i++)
        status = shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL);
    EXPECT(shoali_fault_arm(NULL));
    seat->steps_done = status < 0;
    if (status < 0 && seat->rank == 1) {
        EXPECT(status != SHOAL_EPEER);
        shoal_comm_abort(seat->group, status);
    } else if (status < 0) {
        EXPECT(status == SHOAL_EPEER);
        EXPECT(strstr(shoal_error_message(), "rank 1"));
    }
    return true;
}

static void test_collectives(void **state)
{
    static const char *const options[] = {NULL, "\"zero_optimization\":{\"stage\":2}",
                                          "\"reduction\":\"exact\"",
                                          "\"tensor_parallel\":{\"autotp_size\":3}"};
    /* Three steps of two at least. A stream's own thread has faults of its own: the host's posts
     * are then what fails. */
    const char *accelerator = getenv("SHOAL_ACCELERATOR");
    const int64_t least = accelerator && strcmp(accelerator, "sim") == 0 ? 3 : 6;
    (void)state;
    for (size_t o = 0; o < sizeof options / sizeof options[0]; o++) {
        int64_t failed = 0;
        /* along tp each layer talks: some of those, of which the host posts few itself */
        const bool tp = options[o] && strstr(options[o], "autotp");
        for (int32_t skip = 0;; skip += tp ? 29 : 1) {
            char spec[64];
            snprintf(spec, sizeof spec, "comm.post:%d@1", (int)skip);
            gpt_run_ranks(
                (struct gpt_run){
                    .ranks = 3, .run = fail_collective, .options = options[o], .user = spec},
                seats);
            if (!seats[1].steps_done)
                break;
            /* the others may have been through with their last step */
            failed++;
        }
        printf("%s: %lld collectives failed, one after the other\n",
               options[o] ? options[o] : "fast", (long long)failed);
        assert_true(failed >= (tp && least == 3 ? 1 : least));
    }
}

/* Rank 1 fails alone, anywhere: nobody waits for it until the timeout, and it for nobody when it
 * takes its half-made engine apart. What is not collective a program has to tell itself. */
static bool fail_alone(struct gpt_seat *seat)
{
    EXPECT(shoali_fault_arm(seat->run->user));
    shoal_status status = gpt_open(seat, NULL);
    const bool opened = status >= 0;
    for (int32_t i = 0; i < 2 && status >= 0; i++)
        status = shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL);
    EXPECT(shoali_fault_arm(NULL));
    seat->steps_done = status < 0;
    if (status < 0 && opened && seat->rank == 1)
        shoal_comm_abort(seat->group, status);
    EXPECT(status >= 0 || *shoal_error_message());
    EXPECT(status != SHOAL_ETIMEOUT && status != SHOAL_EINTERNAL);
    if (status < 0 && seat->rank != 1) {
        EXPECT(status == SHOAL_EPEER);
        EXPECT(strstr(shoal_error_message(), "rank 1"));
    }
    return true;
}

static int64_t fail_alone_each(const char *point, const char *options)
{
    int64_t failed = 0;
    for (int32_t skip = 0;; skip += 1 + skip / 8) {
        char spec[64];
        snprintf(spec, sizeof spec, "%s:%d@1", point, (int)skip);
        gpt_run_ranks((struct gpt_run){.ranks = 2,
                                       .run = fail_alone,
                                       .micro_batches = 2,
                                       .options = options,
                                       .user = spec},
                      seats);
        if (!seats[1].steps_done)
            return failed;
        failed++;
    }
}

static void test_alone(void **state)
{
    static const char *const points[] = {"host_alloc", "device_alloc", "comm.alloc", "comm.split",
                                         "comm.post",  "thread",       "io_read",    "io_write"};
    static const char *const groups[] = {
        "\"stage\":3,\"mics_shard_size\":1",
        "\"stage\":3,\"zero_hpz_partition_size\":2,\"stage3_param_persistence_threshold\":0"};
    char nvme[256], options[768];
    int64_t failed = 0, in_files = 0;
    (void)state;
    snprintf(nvme, sizeof nvme, "{\"device\":\"nvme\",\"nvme_path\":\"%s\",\"buffer_count\":4",
             folder);
    for (size_t o = 0; o < 3; o++) {
        if (o < 2)
            snprintf(options, sizeof options, "\"zero_optimization\":{%s}", groups[o]);
        else
            snprintf(options, sizeof options,
                     "\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":3,"
                     "\"sub_group_size\":3000,\"offload_optimizer\":%s},"
                     "\"offload_param\":%s,\"max_in_cpu\":2000}}",
                     nvme, nvme);
        for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
            const int64_t count = fail_alone_each(points[p], options);
            failed += count;
            in_files += strncmp(points[p], "io_", 3) == 0 ? count : 0;
        }
    }
    printf("%lld failures of one rank, %lld of files\n", (long long)failed, (long long)in_files);
    assert_true(failed > 50 && in_files > 10);
}

/* ---- a step that failed ---------------------------------------------------------------------- */

/* The source of batches fails: its status comes through, and the step can be made after all. */
static shoal_status moody_next(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    struct gpt_seat *seat = user;
    int32_t *calls = seat->run->user;
    if (++*calls == 20)
        return shoali_fail(SHOALI_HERE, SHOAL_EIO, "the disk has gone");
    return gpt_next(user, step, micro, batch);
}

static bool moody_source(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, moody_next, seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, moody_next, seat, NULL) == SHOAL_EIO);
    EXPECT(strcmp(shoal_error_message(), "the disk has gone") == 0);
    for (int64_t i = 7; i < 12; i++) { /* 7 micro-batches of the step were done */
        shoal_batch batch = {.data = (const void *[2]){NULL}};
        EXPECT(gpt_next(seat, 1, i, &batch) == SHOAL_OK);
        EXPECT(shoal_engine_forward(seat->engine, &batch, NULL) == SHOAL_OK);
        EXPECT(shoal_engine_backward(seat->engine) == SHOAL_OK);
        EXPECT(shoal_engine_step(seat->engine) == SHOAL_OK);
    }
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    return true;
}

static void test_moody_source(void **state)
{
    int32_t calls = 0;
    (void)state;
    gpt_run_ranks((struct gpt_run){.steps = 2}, reference);
    gpt_run_ranks((struct gpt_run){.run = moody_source, .user = &calls}, seats);
    assert_true(seats[0].fingerprint == reference[0].fingerprint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each, make_folder, remove_folder),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test_setup_teardown(test_alone, make_folder, remove_folder),
        cmocka_unit_test(test_moody_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
