/* The engine when memory, threads or another rank fail: every failure is a status with a sentence,
 * nothing leaks (the sanitizers look), and the next attempt works. */
#include "base/fault.h"
#include "base/test_folder.h"
#include "engine/test_gpt.h"
#include "shoal/report.h"

#include <unistd.h>

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* ---- one rank: the 1st, 2nd, ... pass of a fault point --------------------------------------- */

struct point {
    const char *name;
    int64_t first;   /* passes before it are those of another run's configuration */
    int64_t unheard; /* passes whose failure leaves out a line for people, and no more */
    bool saves;
};

/* Everything an engine does, once. A save comes last: it waits for the drive. */
static shoal_status live(struct gpt_seat *seat)
{
    shoal_status status;
    const struct point *point = seat->run->user;
    double loss;
    float value[32];
    SHOAL_TRY(status, gpt_open(seat, NULL), done);
    SHOAL_TRY(status, shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL), done);
    SHOAL_TRY(status, shoal_engine_eval_batch(seat->engine, gpt_next, seat, 2, &loss), done);
    SHOAL_TRY(status, shoal_engine_get_param(seat->engine, "transformer.ln_f.weight", value), done);
    SHOAL_TRY(status, shoal_engine_fingerprint(seat->engine, &seat->fingerprint), done);
    if (!point->saves)
        goto done;
    SHOAL_TRY(status, shoal_engine_load_checkpoint(seat->engine, folder, NULL, 0, NULL), done);
    SHOAL_TRY(status, shoal_engine_save_checkpoint(seat->engine, folder, NULL, "{}"), done);
done:
    shoal_engine_destroy(seat->engine);
    shoal_model_destroy(seat->model);
    seat->engine = NULL;
    seat->model = NULL;
    return status;
}

/* There is a checkpoint to load. */
static bool save_first(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, "{}") == SHOAL_OK);
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_model_destroy(seat->model);
    seat->model = NULL;
    return true;
}

/* Every pass of the fault point fails once, and each time the caller hears of it. */
static bool fail_each(struct gpt_seat *seat)
{
    const struct point *point = seat->run->user;
    char spec[64];
    int64_t failures = 0, unheard = 0;
    EXPECT(!point->saves || save_first(seat));
    for (bool fired = true; fired; failures += fired) {
        snprintf(spec, sizeof spec, "%s:%lld", point->name, (long long)(point->first + failures));
        EXPECT(shoali_fault_arm(spec));
        shoali_error_clear();
        const shoal_status status = live(seat);
        fired = shoali_fault_left() < 0;
        EXPECT(shoali_fault_arm(NULL));
        EXPECT(status != SHOAL_EINTERNAL && fired >= (status < 0));
        EXPECT(status >= 0 || *shoal_error_message());
        unheard += fired && status >= 0;
    }
    EXPECT(live(seat) == SHOAL_OK); /* and the folder is still good */
    printf("%s: %lld failures, one after the other\n", point->name, (long long)failures);
    EXPECT(failures >= (strcmp(point->name, "alloc") == 0 ? 500 : 1));
    EXPECT(unheard == point->unheard);
    return true;
}

static void fail_each_of(const struct point *point, const char *options)
{
    gpt_run_ranks((struct gpt_run){.run = fail_each,
                                   .threads = 2,
                                   .micro_batches = 2,
                                   .options = options,
                                   .user = (void *)(uintptr_t)point},
                  seats);
}

static void test_each(void **state)
{
    static const struct point points[] = {
        {.name = "alloc", .unheard = 2, .saves = true}, /* what a load and a save wait for */
        {.name = "device_alloc", .saves = true},
        {.name = "host_alloc", .saves = true},
        {.name = "thread", .saves = true}};
    (void)state;
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++)
        fail_each_of(&points[p], "\"bf16\":{\"enabled\":true}");
}

/* A report without memory is an error, or lacks a line: never no text. */
static void test_report(void **state)
{
    (void)state;
    int failures = 0;
    for (bool fired = true; fired; failures++) {
        char spec[32], *text = NULL;
        snprintf(spec, sizeof spec, "alloc:%d", failures);
        assert_true(shoali_fault_arm(spec));
        const shoal_status status = shoal_report(&text);
        fired = shoali_fault_left() < 0;
        assert_true(shoali_fault_arm(NULL));
        assert_true(status == SHOAL_OK || (fired && status == SHOAL_ENOMEM));
        assert_int_equal(text != NULL, status == SHOAL_OK);
        free(text);
    }
    assert_true(failures > 5);
}

/* What only other stages of ZeRO allocate. */
static void test_each_stage(void **state)
{
    static const char *const options[] = {
        "\"zero_optimization\":{\"stage\":0}", "\"zero_optimization\":{\"stage\":2}",
        "\"zero_optimization\":{\"stage\":3,\"stage3_param_persistence_threshold\":0}",
        ("\"zero_optimization\":{\"stage\":3,\"sub_group_size\":3000,"
         "\"offload_optimizer\":{\"device\":\"cpu\"},\"offload_param\":{\"device\":\"cpu\"}}")};
    static const struct point points[] = {
        {.name = "alloc", .first = 380}, {.name = "device_alloc"}, {.name = "host_alloc"}};
    (void)state;
    for (size_t o = 0; o < sizeof options / sizeof options[0]; o++)
        for (size_t p = 0; p < sizeof points / sizeof points[0]; p++)
            fail_each_of(&points[p], options[o]);
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

struct alone {
    const char *point;
    int64_t first; /* passes before it are those of another run's configuration */
    bool lanes;    /* not the rank's own thread fails, but those of its transfers */
    char spec[64]; /* filled */
};

/* Whether a rank's own threads post its messages. On the simulated device its streams do. */
static bool posts_itself(void)
{
    const char *accelerator = getenv("SHOAL_ACCELERATOR");
    return !accelerator || strcmp(accelerator, "sim") != 0;
}

/* Rank 1 fails alone, anywhere: nobody waits for it until the timeout, and it for nobody when it
 * takes its half-made engine apart. What is not collective a program has to tell itself. */
static bool fail_alone(struct gpt_seat *seat)
{
    const struct alone *alone = seat->run->user;
    double loss;
    EXPECT(shoali_fault_arm(alone->lanes ? NULL : alone->spec));
    shoal_status status = gpt_open(seat, NULL);
    const bool opened = status >= 0;
    for (int32_t i = 0; i < 2 && status >= 0; i++)
        status = seat->run->inference
                     ? shoal_engine_eval_batch(seat->engine, gpt_next, seat, 2, &loss)
                     : shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL);
    const bool fired = alone->lanes ? status < 0 : shoali_fault_left() < 0;
    EXPECT(shoali_fault_arm(NULL));
    seat->steps_done = status < 0;
    if (status < 0 && opened && seat->rank == 1)
        shoal_comm_abort(seat->group, status);
    EXPECT(status >= 0 || *shoal_error_message());
    EXPECT(status != SHOAL_ETIMEOUT && status != SHOAL_EINTERNAL);
    /* a stream's thread has faults of its own */
    const bool own = posts_itself() || strcmp(alone->point, "comm.post") != 0;
    EXPECT(seat->rank != 1 || (own ? fired == (status < 0) : fired <= (status < 0)));
    if (status < 0 && seat->rank != 1) {
        /* memory of several ranks is none for all of them */
        EXPECT(status == SHOAL_EPEER || status == SHOAL_ENOMEM);
        EXPECT(strstr(shoal_error_message(), "rank 1"));
    }
    return true;
}

/* How many passes failed, one after the other. */
static int64_t fail_alone_each(struct alone alone, struct gpt_run run)
{
    int64_t failed = 0;
    run.ranks = 2;
    run.run = fail_alone;
    run.micro_batches = 2;
    run.user = &alone;
    for (int64_t skip = 0;; skip += alone.lanes ? 1 : 1 + skip / 8) {
        snprintf(alone.spec, sizeof alone.spec, "%s:%lld@1", alone.point,
                 (long long)(alone.first + skip));
        assert_int_equal(setenv("SHOAL_FAULT", alone.lanes ? alone.spec : "", 1), 0);
        gpt_run_ranks(run, seats);
        if (!seats[1].steps_done)
            break;
        failed++;
    }
    unsetenv("SHOAL_FAULT");
    return failed;
}

static void test_alone(void **state)
{
    static const struct alone points[] = {
        {.point = "host_alloc"}, {.point = "device_alloc"}, {.point = "comm.alloc"},
        {.point = "comm.split"}, {.point = "comm.post"},    {.point = "thread"},
        {.point = "io_read"},    {.point = "io_write"},     {.point = "alloc", .first = 380}};
    static const char *const groups[] = {
        "\"zero_optimization\":{\"stage\":3,\"mics_shard_size\":1}",
        ("\"zero_optimization\":{\"stage\":3,\"zero_hpz_partition_size\":2,"
         "\"stage3_param_persistence_threshold\":0}"),
        "\"pipeline\":{\"stages\":2,\"overlap_p2p\":true}"};
    char nvme[256], options[768];
    int64_t failed = 0, in_files = 0;
    (void)state;
    snprintf(nvme, sizeof nvme, "{\"device\":\"nvme\",\"nvme_path\":\"%s\",\"buffer_count\":4",
             folder);
    snprintf(options, sizeof options,
             "\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":3,"
             "\"sub_group_size\":3000,\"offload_optimizer\":%s},"
             "\"offload_param\":%s,\"max_in_cpu\":2000}}",
             nvme, nvme);
    for (size_t o = 0; o < 4; o++)
        for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
            const struct gpt_run run = {.options = o < 3 ? groups[o] : options};
            const int64_t count = fail_alone_each(points[p], run);
            failed += count;
            in_files += strncmp(points[p].point, "io_", 3) == 0 ? count : 0;
        }
    printf("%lld failures of one rank, %lld of files\n", (long long)failed, (long long)in_files);
    assert_true(failed > 50 && in_files > 10);
}

/* Without an optimizer, only evaluations plan what their buffers are. */
static void test_alone_in_inference(void **state)
{
    static const struct alone points[] = {{.point = "comm.alloc"}, {.point = "comm.post"}};
    (void)state;
    if (!posts_itself())
        skip();
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        const struct gpt_run run = {.inference = true,
                                    .options = "\"zero_optimization\":{\"stage\":3,"
                                               "\"stage3_param_persistence_threshold\":0}"};
        const int64_t count = fail_alone_each(points[p], run);
        printf("%s: %lld failures in inference\n", points[p].point, (long long)count);
        assert_true(count >= 3);
    }
}

/* Rank 1 receives two activations a step in one thread, and sends two gradients in another. */
static void test_alone_in_transfers(void **state)
{
    (void)state;
    if (!posts_itself())
        skip();
    const struct alone posts = {.point = "comm.post", .lanes = true};
    const struct gpt_run run = {.options = "\"pipeline\":{\"stages\":2,\"overlap_p2p\":true}"};
    assert_int_equal(fail_alone_each(posts, run), 4);
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
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_each_stage),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test_setup_teardown(test_alone, make_folder, remove_folder),
        cmocka_unit_test(test_alone_in_inference),
        cmocka_unit_test(test_alone_in_transfers),
        cmocka_unit_test(test_moody_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
