/* A batch that changes between steps: the bits of engines made for each of the batches, what is
 * counted in samples, what is refused. */
#include "engine/test_gpt.h"

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

enum { FULL = 12, PART = 6 };

/* Of an engine made for FULL micro-batches, steps of PART. */
static bool train_smaller(struct gpt_seat *seat)
{
    const int64_t unit = seat->run->samples;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_set_train_batch_size(seat->engine, PART * unit) == SHOAL_OK);
    for (int64_t step = 0; step < seat->run->steps; step++) {
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, &seat->info[step]) ==
               SHOAL_OK);
        EXPECT(seat->info[step].train_batch_size == PART * unit);
        EXPECT(seat->info[step].consumed_samples == (step + 1) * PART * unit);
    }
    seat->steps_done = seat->run->steps;
    EXPECT(shoal_engine_consumed_samples(seat->engine) == seat->run->steps * PART * unit);
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    return true;
}

static void test_smaller_is_as_made_so(void **state)
{
    (void)state;
    static const char *const options[] = {
        "\"reduction\":\"exact\"", "\"gradient_clipping\":1.0",
        "\"reduction\":\"exact\",\"zero_optimization\":{\"stage\":2}",
        "\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":3}"};
    for (int32_t i = 0; i < 4; i++)
        for (int32_t n = 1; n <= 3; n++) {
            struct gpt_run run = {.ranks = n,
                                  .options = options[i],
                                  .samples = 2,
                                  .micro_batches = PART,
                                  .dropout = 0.1,
                                  .steps = 3};
            gpt_run_ranks(run, reference);
            run.micro_batches = FULL;
            run.run = train_smaller;
            gpt_run_ranks(run, seats);
            gpt_assert_same(seats, n, reference, options[i]);
        }
}

/* Micro-batches that were learnt from, whatever the order of the ranks. */
struct learnt {
    struct gpt_seat *seat;
    int64_t count, first[3], last[3];
};

static shoal_status note(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    struct learnt *learnt = user;
    if (learnt->count++ == 0 || micro < learnt->first[step])
        learnt->first[step] = micro;
    if (micro > learnt->last[step])
        learnt->last[step] = micro;
    return gpt_next(learnt->seat, step, micro, batch);
}

static bool train_growing(struct gpt_seat *seat)
{
    static const int64_t batch[] = {4, 8, 12};
    const int64_t n = seat->run->ranks, r = seat->rank;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    for (int64_t step = 0; step < 3; step++) {
        struct learnt learnt = {.seat = seat};
        int64_t first, count;
        EXPECT(shoal_engine_set_train_batch_size(seat->engine, batch[step]) == SHOAL_OK);
        EXPECT(shoal_engine_train_batch(seat->engine, note, &learnt, &seat->info[step]) ==
               SHOAL_OK);
        shoal_engine_get_micro_range(seat->engine, &first, &count);
        EXPECT(learnt.count == batch[step] / n && count == batch[step] / n);
        EXPECT(learnt.first[step] == r * batch[step] / n && first == r * batch[step] / n);
        EXPECT(learnt.last[step] == (r + 1) * batch[step] / n - 1);
    }
    seat->steps_done = 3;
    EXPECT(shoal_engine_consumed_samples(seat->engine) == 24);
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    return true;
}

static void test_growing_on_any_ranks(void **state)
{
    (void)state;
    struct gpt_run run = {.ranks = 1,
                          .options = "\"reduction\":\"exact\",\"gradient_clipping\":1.0",
                          .micro_batches = FULL,
                          .steps = 3,
                          .run = train_growing};
    gpt_run_ranks(run, reference);
    for (int32_t n = 2; n <= 4; n += 2) {
        run.ranks = n;
        gpt_run_ranks(run, seats);
        gpt_assert_same(seats, n, reference, "growing");
    }
}

/* Megatron's schedule follows samples, DeepSpeed's follows steps. */
static bool train_scheduled(struct gpt_seat *seat)
{
    const bool *by_samples = seat->run->user;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_set_train_batch_size(seat->engine, PART) == SHOAL_OK);
    for (int64_t step = 0; step < 6; step++) {
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, &seat->info[step]) ==
               SHOAL_OK);
        /* Linear to 0.4 in 4: after `step` steps of half as many samples; or by DeepSpeed's index,
         * which is one less. */
        const double index = step > 0 ? (double)(step - 1) : 0;
        const double n = *by_samples ? 0.5 * (double)step : index;
        EXPECT(seat->info[step].lr == (n < 4 ? 0.4 * n / 4 : 0.4));
    }
    return true;
}

static void test_schedules(void **state)
{
    (void)state;
    bool by_samples = true;
    gpt_run_ranks((struct gpt_run){.micro_batches = FULL,
                                   .options = "\"scheduler\":{\"type\":\"Megatron\",\"params\":{"
                                              "\"lr\":0.4,\"lr_warmup_iters\":4,"
                                              "\"lr_decay_style\":\"constant\"}}",
                                   .steps = 6,
                                   .run = train_scheduled,
                                   .user = &by_samples},
                  seats);
    by_samples = false;
    gpt_run_ranks((struct gpt_run){.micro_batches = FULL,
                                   .options = "\"scheduler\":{\"type\":\"WarmupLR\",\"params\":{"
                                              "\"warmup_max_lr\":0.4,\"warmup_num_steps\":4,"
                                              "\"warmup_type\":\"linear\"}}",
                                   .steps = 6,
                                   .run = train_scheduled,
                                   .user = &by_samples},
                  seats);
}

static bool try_mistakes(struct gpt_seat *seat)
{
    shoal_batch batch = {.data = (const void *[2]){NULL}};
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_set_train_batch_size(seat->engine, 24) == SHOAL_EINVAL);
    EXPECT(strstr(shoal_error_message(), "24 samples is larger than the one that the engine was "
                                         "created with, 12"));
    EXPECT(shoal_engine_set_train_batch_size(seat->engine, 7) == SHOAL_EINVAL);
    EXPECT(strstr(shoal_error_message(), "7 samples is not a multiple of 2"));
    EXPECT(shoal_engine_set_train_batch_size(seat->engine, 0) == SHOAL_EINVAL);
    EXPECT(gpt_next(seat, 0, 0, &batch) == SHOAL_OK);
    EXPECT(shoal_engine_forward(seat->engine, &batch, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_backward(seat->engine) == SHOAL_OK);
    EXPECT(shoal_engine_set_train_batch_size(seat->engine, 6) == SHOAL_EINVAL);
    EXPECT(strstr(shoal_error_message(), "another batch size is possible only between steps"));
    return true;
}

static void test_mistakes(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.ranks = 2, .steps = 1, .run = try_mistakes}, seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smaller_is_as_made_so), cmocka_unit_test(test_growing_on_any_ranks),
        cmocka_unit_test(test_schedules), cmocka_unit_test(test_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
