/* A save beside the training has, byte for byte, the files of one that was waited for, however far
 * the training has gone on meanwhile, and the training has the bits of one that saves nothing. */
#include "base/test_folder.h"
#include "engine/test_gpt.h"
#include "shoal/plan.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 8, HALF = 4 };
static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

static void *folder_state;

#define DECOUPLED ",\"checkpoint\":{\"writer\":{\"decoupled\":true%s}}"

/* ---- files ---------------------------------------------------------------------------------- */

static bool same_files(const char *a, const char *b)
{
    char paths[2][512];
    char *text[2] = {NULL, NULL};
    size_t bytes[2];
    int files = 0;
    bool same = true;
    DIR *folder_a = opendir(a);
    for (struct dirent *entry = folder_a ? readdir(folder_a) : NULL; entry;
         entry = readdir(folder_a)) {
        if (*entry->d_name == '.')
            continue;
        files++;
        snprintf(paths[0], sizeof paths[0], "%s/%s", a, entry->d_name);
        snprintf(paths[1], sizeof paths[1], "%s/%s", b, entry->d_name);
        for (int i = 0; i < 2; i++)
            same = same && shoali_read_file(paths[i], &text[i], &bytes[i]) == SHOAL_OK;
        const bool equal = same && bytes[0] == bytes[1] && memcmp(text[0], text[1], bytes[0]) == 0;
        if (!equal)
            fprintf(stderr, "%s differs from %s\n", paths[0], paths[1]);
        same = same && equal;
        for (int i = 0; i < 2; i++) {
            free(text[i]);
            text[i] = NULL;
        }
    }
    if (folder_a)
        closedir(folder_a);
    return same && files >= 4; /* manifest, index, weights, a state */
}

static void path_of(const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", folder, name);
}

/* ---- a save that another job holds up ------------------------------------------------------- */

/* Saves take turns by this lock: held, it stops the writers behind the point where they know what
 * they will read and before they read any of it. */
struct holder {
    int fd;
    double release_ms; /* 0: by hand */
    pthread_t thread;
};

static void *release_later(void *user)
{
    struct holder *holder = user;
    const int64_t ns = (int64_t)(holder->release_ms * 1e6);
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
    close(holder->fd);
    return NULL;
}

static bool hold(struct holder *holder, const char *dir)
{
    (void)mkdir(dir, 0700);
    holder->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return holder->fd >= 0 && flock(holder->fd, LOCK_EX) == 0 &&
           (holder->release_ms == 0 ||
            pthread_create(&holder->thread, NULL, release_later, holder) == 0);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static bool save_and_go_on(struct gpt_seat *seat, bool waits, bool held)
{
    char dir[128];
    struct holder holder = {.fd = -1};
    shoal_save_info info;
    path_of(waits ? "waited" : "beside", dir);
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    while (seat->steps_done < HALF)
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat,
                                        &seat->info[seat->steps_done++]) >= 0);
    if (held && seat->rank == 0)
        EXPECT(hold(&holder, dir));
    EXPECT(shoal_engine_save_checkpoint(seat->engine, dir, NULL, "{\"who\":1}") == SHOAL_OK);
    shoal_engine_get_save_info(seat->engine, &info);
    EXPECT(info.at_work == !waits && info.step == (waits ? HALF : -1));
    EXPECT(gpt_train(seat));
    if (held && seat->rank == 0)
        close(holder.fd);
    EXPECT(shoal_engine_wait_save(seat->engine) == SHOAL_OK);
    shoal_engine_get_save_info(seat->engine, &info);
    EXPECT(info.step == HALF && !info.at_work);
    EXPECT(!held || info.waits == 0);
    EXPECT(!held || seat->rank > 0 || info.most_staged_bytes > 0); /* replicas may give nothing */
    EXPECT(info.most_staged_bytes <= info.staging_bytes);
    return true;
}

static bool save_waiting(struct gpt_seat *seat)
{
    return save_and_go_on(seat, true, false);
}

static bool save_beside(struct gpt_seat *seat)
{
    return save_and_go_on(seat, false, false);
}

static bool save_beside_held(struct gpt_seat *seat)
{
    return save_and_go_on(seat, false, true);
}

struct case_ {
    int32_t ranks;
    const char *options, *optimizer, *accelerator;
};
static const struct case_ cases[] = {
    {1, "\"reduction\":\"exact\"", NULL, NULL},
    {2, "\"reduction\":\"exact\"", NULL, NULL},
    {3, "\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":1}", NULL, NULL},
    {2,
     "\"fp16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":2,\"reduce_bucket_size\":900}",
     NULL, NULL},
    {4,
     "\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":3,\"overlap_comm\":true,"
     "\"reduce_bucket_size\":900,\"allgather_bucket_size\":900}",
     NULL, NULL},
    {3, "\"zero_optimization\":{\"stage\":3}", NULL, "sim"},
    {2, "\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":1}",
     "{\"type\":\"Lamb\",\"params\":{\"lr\":0.02}}", "sim"},
    {2, "\"zero_optimization\":{\"stage\":2}",
     "{\"type\":\"Adafactor\",\"params\":{\"weight_decay\":0.1}}", NULL},
    {1, "\"bf16\":{\"enabled\":true}", "{\"type\":\"SGD\",\"params\":{\"lr\":0.1}}", NULL},
    {2,
     "\"zero_optimization\":{\"stage\":3,\"sub_group_size\":2000,"
     "\"offload_optimizer\":{\"device\":\"cpu\",\"ratio\":0.6}}",
     NULL, NULL},
    {2,
     "\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":3,\"sub_group_size\":3000,"
     "\"offload_optimizer\":{\"device\":\"cpu\"},\"offload_param\":{\"device\":\"cpu\"}}",
     NULL, "sim"},
    {2,
     "\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":2,\"sub_group_size\":3000,"
     "\"offload_optimizer\":{\"device\":\"cpu\"}}",
     "{\"type\":\"Lamb\",\"params\":{\"lr\":0.02}}", NULL},
    {4, "\"zero_optimization\":{\"stage\":3,\"mics_shard_size\":2}", NULL, NULL},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static struct gpt_run run_of(const struct case_ *of, const char *options)
{
    return (struct gpt_run){.ranks = of->ranks,
                            .options = options,
                            .optimizer = of->optimizer,
                            .accelerator = of->accelerator,
                            .dropout = 0.1,
                            .steps = STEPS};
}

static void compare(const struct case_ *of, bool (*beside)(struct gpt_seat *seat), bool processes)
{
    char a[160], b[160], options[512];
    struct gpt_run run = run_of(of, of->options);
    make_folder(&folder_state);
    run.run = save_waiting;
    gpt_run_ranks(run, reference);
    snprintf(options, sizeof options, "%s" DECOUPLED, of->options, "");
    run = run_of(of, options);
    run.run = beside;
    run.processes = processes;
    gpt_run_ranks(run, seats);
    gpt_assert_same(seats, of->ranks, reference, of->options);
    path_of("waited/global_step4", a);
    path_of("beside/global_step4", b);
    if (!same_files(a, b))
        fail_msg("%s", options);
    remove_folder(&folder_state);
}

static void test_same_bytes(void **state)
{
    (void)state;
    setenv("SHOAL_SIM_BYTES", "268435456", 1);
    for (int c = 0; c < CASES; c++)
        compare(&cases[c], save_beside, false);
}

/* Nothing is read before the training is over: all of it comes from copies. */
static void test_copies(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++)
        compare(&cases[c], save_beside_held, false);
}

static void test_processes(void **state)
{
    (void)state;
    compare(&cases[4], save_beside, true);
    compare(&cases[9], save_beside_held, true);
}

/* ---- room for one block --------------------------------------------------------------------- */

static bool save_with_little_room(struct gpt_seat *seat)
{
    char dir[128];
    struct holder holder = {.fd = -1};
    shoal_save_info info;
    path_of("beside", dir);
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    while (seat->steps_done < HALF)
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat,
                                        &seat->info[seat->steps_done++]) >= 0);
    /* the update comes within a step's time, and shall find the writer stopped */
    holder.release_ms = 100;
    for (int s = 0; s < HALF; s++)
        holder.release_ms += 4 * seat->info[s].step_ms;
    if (seat->rank == 0)
        EXPECT(hold(&holder, dir));
    EXPECT(shoal_engine_save_checkpoint(seat->engine, dir, NULL, "{\"who\":1}") == SHOAL_OK);
    EXPECT(gpt_train(seat));
    EXPECT(shoal_engine_wait_save(seat->engine) == SHOAL_OK);
    if (seat->rank == 0)
        pthread_join(holder.thread, NULL);
    shoal_engine_get_save_info(seat->engine, &info);
    EXPECT(info.waits > 0 && info.stall_ms > 10);
    EXPECT(info.most_staged_bytes == info.staging_bytes && info.staging_bytes < 20000);
    return true;
}

static void test_little_room(void **state)
{
    (void)state;
    static const int chosen[] = {1, 3, 9};
    for (size_t i = 0; i < sizeof chosen / sizeof chosen[0]; i++) {
        const struct case_ *of = &cases[chosen[i]];
        char a[160], b[160], options[512];
        make_folder(&folder_state);
        struct gpt_run run = run_of(of, of->options);
        run.run = save_waiting;
        gpt_run_ranks(run, reference);
        snprintf(options, sizeof options, "%s" DECOUPLED, of->options,
                 ",\"staging_buffer_size\":1");
        run = run_of(of, options);
        run.run = save_with_little_room;
        gpt_run_ranks(run, seats);
        gpt_assert_same(seats, of->ranks, reference, of->options);
        path_of("waited/global_step4", a);
        path_of("beside/global_step4", b);
        assert_true(same_files(a, b));
        remove_folder(&folder_state);
    }
}

/* ---- one after the other, and failures ------------------------------------------------------ */

/* A save at every step: each waits for the one before, and all are whole. */
static bool save_often(struct gpt_seat *seat)
{
    int64_t step;
    char tag[32];
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    for (; seat->steps_done < HALF; seat->steps_done++) {
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat,
                                        &seat->info[seat->steps_done]) >= 0);
        EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, NULL) == SHOAL_OK);
    }
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, NULL, false, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_global_steps(seat->engine) == HALF);
    for (int s = 1; s <= HALF; s++) {
        snprintf(tag, sizeof tag, "global_step%d", s);
        EXPECT(shoal_checkpoint_peek(folder, tag, NULL, &step) == SHOAL_OK && step == s);
    }
    return true;
}

static void test_one_after_the_other(void **state)
{
    (void)state;
    char options[256];
    make_folder(&folder_state);
    snprintf(options, sizeof options, "\"reduction\":\"exact\"" DECOUPLED, "");
    struct gpt_run run = run_of(&cases[1], options);
    run.run = save_often;
    gpt_run_ranks(run, seats);
    remove_folder(&folder_state);
}

/* The failing rank's sentence comes from a later step, or from the wait, on all ranks alike. */
static bool fail_beside(struct gpt_seat *seat)
{
    int64_t step;
    shoal_status status = SHOAL_OK;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, NULL) == SHOAL_OK);
    if (seat->run->user)
        status = shoal_engine_wait_save(seat->engine);
    for (int s = 0; s < 30000 && status >= 0; s++) {
        status = shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    EXPECT(status == SHOAL_EIO);
    EXPECT(strstr(shoal_error_message(), "the background save of step 1 failed: "));
    EXPECT(strstr(shoal_error_message(), "cannot write"));
    EXPECT(shoal_checkpoint_peek(folder, NULL, NULL, &step) == SHOAL_ENOENT);
    return true;
}

static void test_failures(void **state)
{
    (void)state;
    char options[256];
    snprintf(options, sizeof options, "\"reduction\":\"exact\"" DECOUPLED, "");
    setenv("SHOAL_FAULT", "ckpt.write@0", 1); /* read by the threads that save, too */
    for (int waits = 0; waits < 2; waits++) {
        for (int32_t ranks = 1; ranks <= 3; ranks += 2) {
            make_folder(&folder_state);
            struct gpt_run run = run_of(&cases[0], options);
            run.ranks = ranks;
            run.user = waits ? options : NULL;
            run.run = fail_beside;
            gpt_run_ranks(run, seats);
            remove_folder(&folder_state);
        }
    }
    unsetenv("SHOAL_FAULT");
}

/* An engine that is destroyed with a save at work leaves it whole. */
static bool leave_at_once(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, NULL) == SHOAL_OK);
    return true;
}

static void test_leaving(void **state)
{
    (void)state;
    int64_t step;
    char options[256];
    snprintf(options, sizeof options, "\"reduction\":\"exact\"" DECOUPLED, "");
    make_folder(&folder_state);
    struct gpt_run run = run_of(&cases[1], options);
    run.run = leave_at_once;
    gpt_run_ranks(run, seats);
    assert_int_equal(shoal_checkpoint_peek(folder, NULL, NULL, &step), SHOAL_OK);
    assert_int_equal(step, 1);
    remove_folder(&folder_state);
}

/* What the caller changes meanwhile is not in it: these calls wait. */
static bool change_meanwhile(struct gpt_seat *seat)
{
    static float values[GPT_RANKS_MAX][GPT_VOCAB * 32];
    char path[128], *text = NULL;
    float *value = values[seat->rank];
    size_t bytes;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_add_file(seat->engine, "config.json", "before", 6) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    EXPECT(shoal_engine_get_param(seat->engine, "transformer.wte.weight", value) == SHOAL_OK);
    const float first = value[0];
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, NULL) == SHOAL_OK);
    if (seat->run->user) { /* whichever comes first */
        EXPECT(shoal_engine_add_file(seat->engine, "config.json", "behind", 6) == SHOAL_OK);
    }
    value[0] = 77;
    EXPECT(shoal_engine_set_param(seat->engine, "transformer.wte.weight", value) == SHOAL_OK);
    EXPECT(shoal_engine_load_checkpoint(seat->engine, folder, NULL, false, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_get_param(seat->engine, "transformer.wte.weight", value) == SHOAL_OK);
    EXPECT(value[0] == first);
    path_of("global_step1/config.json", path);
    EXPECT(shoali_read_file(path, &text, &bytes) == SHOAL_OK);
    const bool right = bytes == 6 && memcmp(text, "before", 6) == 0;
    free(text);
    EXPECT(right);
    return true;
}

static void test_changes_meanwhile(void **state)
{
    (void)state;
    char options[256];
    snprintf(options, sizeof options, "\"reduction\":\"exact\"" DECOUPLED, "");
    for (int file = 0; file < 2; file++) {
        make_folder(&folder_state);
        struct gpt_run run = run_of(&cases[1], options);
        run.run = change_meanwhile;
        run.user = file ? options : NULL;
        gpt_run_ranks(run, seats);
        remove_folder(&folder_state);
    }
}

/* ---- asking for a save ---------------------------------------------------------------------- */

static bool ask(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    EXPECT(!shoal_engine_save_requested(seat->engine));
    if (seat->rank == 1)
        shoal_engine_request_save(seat->engine);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    EXPECT(shoal_engine_save_requested(seat->engine));
    EXPECT(!shoal_engine_stop_requested(seat->engine));
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, NULL) == SHOAL_OK);
    EXPECT(!shoal_engine_save_requested(seat->engine));
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    EXPECT(!shoal_engine_save_requested(seat->engine));
    return true;
}

static void test_asking(void **state)
{
    (void)state;
    make_folder(&folder_state);
    struct gpt_run run = run_of(&cases[1], cases[1].options);
    run.run = ask;
    gpt_run_ranks(run, seats);
    remove_folder(&folder_state);
}

/* What a run takes is what its plan says. */
static bool compare_plan(struct gpt_seat *seat)
{
    shoal_plan plan;
    char text[2048];
    shoal_memory_info info;
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    shoal_engine_get_memory_info(seat->engine, &info);
    const shoal_engine_args args = {.model = seat->model,
                                    .config_text = text,
                                    .group = seat->group,
                                    .saves = true,
                                    .threads = 1};
    EXPECT(shoal_plan_make(&args,
                           &(shoal_plan_args){.rank = seat->rank, .world_size = seat->run->ranks},
                           &plan) == SHOAL_OK);
    EXPECT(plan.checkpoint_bytes == info.checkpoint_bytes && info.checkpoint_bytes > 0);
    EXPECT(plan.comm_bytes == info.comm_bytes);
    return true;
}

static void test_plan(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        char options[512];
        snprintf(options, sizeof options, "%s" DECOUPLED, cases[c].options, "");
        struct gpt_run run = run_of(&cases[c], options);
        run.run = compare_plan;
        gpt_run_ranks(run, seats);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_little_room),
        cmocka_unit_test(test_one_after_the_other),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_changes_meanwhile),
        cmocka_unit_test(test_asking),
        cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
