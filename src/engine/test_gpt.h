/* test_gpt - a small GPT, its endless text, and N ranks as threads or processes, for the tests that
 * train.
 *
 * A run says what to train (struct gpt_run); gpt_run_ranks starts one thread (or, over shm, one
 * process) per rank, each of which opens an engine and calls the run's function (default: train the
 * steps, take the fingerprint). cmocka's assertions belong to the main thread alone: rank functions
 * use EXPECT and return false.
 */
#ifndef SHOALI_ENGINE_TEST_GPT_H
#define SHOALI_ENGINE_TEST_GPT_H

#include "base/base.h"
#include "base/test_cmocka.h"
#include "engine/engine.h"
#include "shoal/transformer.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GPT_RANKS_MAX = 16, GPT_STEPS_MAX = 64, GPT_VOCAB = 31, GPT_SEQ = 16, GPT_SAMPLES_MAX = 8 };

struct gpt_seat;
/* What all ranks share. Zero is a good default for everything but `steps`. */
struct gpt_run {
    int32_t ranks, threads; /* 0: 1 */
    bool processes;         /* ranks are processes over shm, not threads */
    const char *accelerator, *ops;
    int64_t micro_batches; /* of a step, all ranks together; 0: 12 */
    int64_t samples;       /* of a micro-batch; 0: 1 */
    int64_t layers;        /* 0: 2 */
    /* Another model than the GPT, with GPT_SEQ tokens of GPT_VOCAB kinds; NULL: the GPT. */
    shoal_status (*make)(const struct gpt_run *run, shoal_model **model);
    const char *options;   /* more members of ds_config.json: "\"bf16\":{...}" */
    const char *optimizer; /* NULL: AdamW */
    double dropout, label_smoothing;
    bool untied, inference;
    bool fused;            /* head and loss in tiles of the vocabulary */
    int64_t padding;       /* of the vocabulary, to a multiple of this; 0: 1 */
    const char *recompute; /* granularity */
    const char *output_path;
    int64_t steps;
    uint64_t seed;                      /* of text and engine; 0: 7 */
    int64_t first_micro;                /* added to the number of each micro-batch */
    int64_t lonely_step, lonely_micro;  /* this one has a single target that counts; step 0: none */
    bool (*run)(struct gpt_seat *seat); /* NULL: gpt_train */
    void *user;
    struct shoal_thread_world *world; /* filled */
    int32_t port;                     /* filled, for processes */
};

struct gpt_seat {
    const struct gpt_run *run;
    int32_t rank;
    shoal_group *group;
    shoal_model *model;
    shoal_engine *engine;
    int32_t tokens[GPT_SAMPLES_MAX * GPT_SEQ], targets[GPT_SAMPLES_MAX * GPT_SEQ];
    bool passed;
    /* what gpt_train found */
    int64_t steps_done;
    shoal_step_info info[GPT_STEPS_MAX];
    uint64_t fingerprint;
};

#define EXPECT(condition)                                                                      \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: rank %d of %d: not true: %s (last error: %s)\n", __FILE__, \
                    __LINE__, (int)seat->rank, (int)seat->run->ranks, #condition,              \
                    shoal_error_message());                                                    \
            return false;                                                                      \
        }                                                                                      \
    } while (0)

static inline uint64_t gpt_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* A walk over the alphabet with some noise and some targets that do not count: learnable, and a
 * pure function of (seed, step, micro). */
static inline shoal_status gpt_next(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    struct gpt_seat *seat = user;
    const struct gpt_run *run = seat->run;
    const bool lonely = run->lonely_step && step == run->lonely_step && micro == run->lonely_micro;
    micro += run->first_micro;
    uint64_t state = gpt_mix(run->seed + (uint64_t)(step + 1) * 0x9E3779B97F4A7C15u +
                             (uint64_t)micro * 0xD1B54A32D192ED03u);
    for (int64_t b = 0; b < run->samples; b++) {
        int32_t token = (int32_t)(state % GPT_VOCAB);
        for (int64_t t = 0; t < GPT_SEQ; t++) {
            state = gpt_mix(state + 0x9E3779B97F4A7C15u);
            const int64_t i = b * GPT_SEQ + t;
            seat->tokens[i] = token;
            token = state % 8 == 0 ? (int32_t)((state >> 8) % GPT_VOCAB) : (token + 3) % GPT_VOCAB;
            const bool counts = lonely ? i == 0 : (state >> 40) % 11 != 0;
            seat->targets[i] = counts ? token : -1;
        }
    }
    batch->data[0] = seat->tokens;
    batch->data[1] = seat->targets;
    return SHOAL_OK;
}

static inline void gpt_config_text(const struct gpt_run *run, char *text, size_t bytes)
{
    const char *adam =
        "{\"type\":\"AdamW\",\"params\":{\"lr\":0.01,\"weight_decay\":0.1},\"no_decay\":[\"1-D\"]}";
    snprintf(text, bytes,
             "{\"train_batch_size\":%lld,\"train_micro_batch_size_per_gpu\":%lld,"
             "\"steps_per_print\":1000000,\"optimizer\":%s%s%s}",
             (long long)(run->micro_batches * run->samples), (long long)run->samples,
             run->optimizer ? run->optimizer : adam, run->options ? "," : "",
             run->options ? run->options : "");
}

static inline shoal_status gpt_make_model(const struct gpt_run *run, shoal_model **model)
{
    shoal_gpt_config config;
    if (run->make)
        return run->make(run, model);
    shoal_gpt_config_defaults(&config);
    config.num_layers = run->layers ? run->layers : 2;
    config.hidden_size = 32;
    config.num_attention_heads = 4;
    config.seq_length = GPT_SEQ;
    config.vocab_size = GPT_VOCAB;
    config.make_vocab_size_divisible_by = run->padding ? run->padding : 1;
    config.attention_dropout = config.hidden_dropout = run->dropout;
    config.label_smoothing = run->label_smoothing;
    config.untie_embeddings = run->untied;
    config.cross_entropy_loss_fusion = run->fused;
    return shoal_gpt_create(&config, model);
}

/* Makes the model when the seat has none, and an engine. Collective. */
static inline shoal_status gpt_open(struct gpt_seat *seat, const char *config)
{
    shoal_status status;
    const struct gpt_run *run = seat->run;
    char text[2048];
    gpt_config_text(run, text, sizeof text);
    if (!seat->model)
        SHOAL_TRY(status, gpt_make_model(run, &seat->model), done);
    SHOAL_TRY(status,
              shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                       .config_text = config ? config : text,
                                                       .group = seat->group,
                                                       .output_path = run->output_path,
                                                       .saves = 1,
                                                       .inference = run->inference,
                                                       .seed = run->seed,
                                                       .threads = run->threads,
                                                       .accelerator = run->accelerator,
                                                       .ops = run->ops,
                                                       .recompute_granularity = run->recompute},
                                  &seat->engine),
              done);
done:
    return status;
}

/* Steps up to run->steps, then the fingerprint. */
static inline bool gpt_train(struct gpt_seat *seat)
{
    if (!seat->engine)
        EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    while (seat->steps_done < seat->run->steps) {
        shoal_step_info *info = &seat->info[seat->steps_done];
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, info) >= 0);
        seat->steps_done++;
    }
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    return true;
}

static inline bool gpt_sit(struct gpt_seat *seat)
{
    const struct gpt_run *run = seat->run;
    if (run->ranks > 1 || run->processes)
        EXPECT(shoal_comm_init(&(shoal_comm_args){.rank = seat->rank,
                                                  .world_size = run->ranks,
                                                  .backend = run->processes ? "shm" : NULL,
                                                  .master_addr = "127.0.0.1",
                                                  .master_port = run->port,
                                                  .threads = run->world,
                                                  .timeout_s = 60},
                               &seat->group) == SHOAL_OK);
    return run->run ? run->run(seat) : gpt_train(seat);
}

static inline void *gpt_thread(void *arg)
{
    struct gpt_seat *seat = arg;
    seat->passed = gpt_sit(seat);
    if (!seat->passed && seat->group)
        shoal_comm_abort(seat->group, SHOAL_EINTERNAL); /* or the others wait for us */
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_model_destroy(seat->model);
    seat->model = NULL;
    shoal_comm_destroy(seat->group);
    seat->group = NULL;
    return NULL;
}

static inline void gpt_run_threads(struct gpt_seat *seats, int32_t ranks)
{
    pthread_t thread[GPT_RANKS_MAX];
    for (int32_t r = 0; r < ranks; r++)
        assert_int_equal(pthread_create(&thread[r], NULL, gpt_thread, &seats[r]), 0);
    for (int32_t r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
}

/* A TCP port that nobody else is given until `keeper` is closed; whoever knows it may listen, with
 * SO_REUSEADDR. */
static inline int32_t gpt_keep_port(int *keeper)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    assert_true(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *keeper = fd;
    return ntohs(address.sin_port);
}

/* What the ranks find comes back through shared memory. */
static inline void gpt_run_processes(struct gpt_seat *seats, int32_t ranks)
{
    const size_t bytes = (size_t)ranks * sizeof *seats;
    pid_t pid[GPT_RANKS_MAX];
    struct gpt_seat *shared =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    memcpy(shared, seats, bytes);
    fflush(NULL);
    for (int32_t r = 0; r < ranks; r++) {
        pid[r] = fork();
        if (pid[r] == 0) {
            alarm(100);
            gpt_thread(&shared[r]);
            fflush(NULL);
            _exit(0);
        }
        assert_true(pid[r] > 0);
    }
    for (int32_t r = 0; r < ranks; r++) {
        int code = 0;
        assert_int_equal(waitpid(pid[r], &code, 0), pid[r]);
        shared[r].passed &= WIFEXITED(code) && WEXITSTATUS(code) == 0;
    }
    memcpy(seats, shared, bytes);
    munmap(shared, bytes);
}

/* Fills in defaults, runs all ranks, fails the test when one of them failed. seats[GPT_RANKS_MAX].
 */
static inline void gpt_run_ranks(struct gpt_run run, struct gpt_seat *seats)
{
    static struct gpt_run kept[GPT_RANKS_MAX]; /* seats borrow it after the return, too */
    int keeper = -1;
    run.ranks = run.ranks ? run.ranks : 1;
    run.threads = run.threads ? run.threads : 1;
    run.micro_batches = run.micro_batches ? run.micro_batches : 12;
    run.samples = run.samples ? run.samples : 1;
    run.seed = run.seed ? run.seed : 7;
    assert_true(run.ranks <= GPT_RANKS_MAX && run.steps <= GPT_STEPS_MAX &&
                run.samples <= GPT_SAMPLES_MAX);
    if (run.processes)
        run.port = gpt_keep_port(&keeper);
    else if (run.ranks > 1)
        assert_int_equal(shoal_thread_world_create(run.ranks, &run.world), SHOAL_OK);
    for (int32_t r = 0; r < run.ranks; r++) {
        kept[r] = run;
        seats[r] = (struct gpt_seat){.run = &kept[r], .rank = r};
    }
    if (run.processes)
        gpt_run_processes(seats, run.ranks);
    else
        gpt_run_threads(seats, run.ranks);
    shoal_thread_world_destroy(run.world);
    close(keeper);
    for (int32_t r = 0; r < run.ranks; r++)
        assert_true(seats[r].passed);
}

/* Every rank of both runs trained the same bits and saw the same numbers. */
static inline void gpt_assert_same(const struct gpt_seat *seats, int32_t ranks,
                                   const struct gpt_seat *reference, const char *what)
{
    for (int32_t r = 0; r < ranks; r++) {
        for (int64_t s = 0; s < reference->steps_done; s++) {
            const shoal_step_info *a = &seats[r].info[s], *b = &reference->info[s];
            if (memcmp(&a->loss, &b->loss, sizeof a->loss) != 0 || a->applied != b->applied ||
                memcmp(&a->grad_norm, &b->grad_norm, sizeof a->grad_norm) != 0 ||
                a->loss_scale != b->loss_scale || a->lr != b->lr)
                fail_msg("%s: rank %d of %d, step %lld: loss %.17g norm %.17g scale %g applied %d, "
                         "expected loss %.17g norm %.17g scale %g applied %d",
                         what, (int)r, (int)ranks, (long long)s, a->loss, a->grad_norm,
                         a->loss_scale, (int)a->applied, b->loss, b->grad_norm, b->loss_scale,
                         (int)b->applied);
        }
        if (seats[r].fingerprint != reference->fingerprint)
            fail_msg("%s: rank %d of %d: fingerprint %016llx, expected %016llx", what, (int)r,
                     (int)ranks, (unsigned long long)seats[r].fingerprint,
                     (unsigned long long)reference->fingerprint);
    }
}

#endif
