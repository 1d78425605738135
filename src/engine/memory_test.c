/* A step allocates nothing, synchronises once, and the bytes are those of the formula. */
#include "engine/test_gpt.h"

static struct gpt_seat seats[GPT_RANKS_MAX];

/* What the layout of stage 0 costs per parameter (docs/MEMORY.md, "Bytes of a parameter"). */
struct bytes {
    const char *options;
    int64_t weight, gradient, states;
};
static const struct bytes precisions[] = {
    {NULL, 4, 4, 8},                           /* Adam's two moments */
    {"\"reduction\":\"exact\"", 4, 8, 8},      /* 64-bit sums */
    {"\"bf16\":{\"enabled\":true}", 2, 4, 12}, /* and an fp32 master */
    {"\"bf16\":{\"enabled\":true},\"reduction\":\"exact\"", 2, 8, 12},
    {"\"fp16\":{\"enabled\":true}", 2, 4, 12},
};

static int64_t padded(int64_t count)
{
    return (count + 15) / 16 * 16;
}

static bool count_everything(struct gpt_seat *seat)
{
    const struct bytes *expected = seat->run->user;
    shoal_memory_info first, now;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    shoal_engine_get_memory_info(seat->engine, &first);
    EXPECT(first.arena_growths == 0);
    const int64_t count = padded(shoal_engine_param_count(seat->engine));
    EXPECT(first.weights_bytes == count * expected->weight);
    EXPECT(first.gradients_bytes == count * expected->gradient);
    EXPECT(first.states_bytes == count * expected->states);
    EXPECT(first.activations_bytes > 0);
    const int64_t sum = first.weights_bytes + first.gradients_bytes + first.states_bytes +
                        first.activations_bytes + first.buffers_bytes + first.packed_weights_bytes;
    /* with several ranks weights and gradients may lie in memory of the communication */
    const int64_t shared = seat->run->ranks > 1 ? first.weights_bytes + first.gradients_bytes : 0;
    EXPECT(first.device_peak_bytes >= sum - shared);
    EXPECT(first.device_peak_bytes <= sum + 4096);
    const int64_t per_step = 1; /* the step's scalars; collectives are in the stream */
    for (int64_t step = 1; step < 6; step++) {
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
        shoal_engine_get_memory_info(seat->engine, &now);
        EXPECT(now.device_alloc_count == first.device_alloc_count);
        EXPECT(now.device_peak_bytes == first.device_peak_bytes);
        EXPECT(now.arena_growths == 0);
        EXPECT(now.activations_bytes == first.activations_bytes);
        EXPECT(now.host_sync_count - first.host_sync_count == step * per_step);
    }
    if (seat->rank == 0)
        printf("%s, %s, %d ranks: %lld bytes, the device had %lld; %lld allocations, "
               "%lld synchronisations in 5 steps\n",
               seat->run->options ? seat->run->options : "fp32", seat->run->accelerator,
               (int)seat->run->ranks, (long long)sum, (long long)first.device_peak_bytes,
               (long long)first.device_alloc_count,
               (long long)(now.host_sync_count - first.host_sync_count));
    return true;
}

static void test_counts(void **state)
{
    static const char *const accelerators[] = {"cpu", "sim"};
    (void)state;
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "268435456", 1), 0);
    for (size_t p = 0; p < sizeof precisions / sizeof precisions[0]; p++)
        for (int32_t n = 1; n <= 3; n += 2)
            for (int32_t a = 0; a < 2; a++)
                gpt_run_ranks((struct gpt_run){.ranks = n,
                                               .accelerator = accelerators[a],
                                               .threads = n == 1 ? 2 : 1,
                                               .options = precisions[p].options,
                                               .dropout = 0.1,
                                               .run = count_everything,
                                               .user = (void *)(uintptr_t)&precisions[p]},
                              seats);
}

/* The host waits for the device once a step, whatever the number of ranks and collectives: those
 * are in streams. */
static bool count_synchronisations(struct gpt_seat *seat)
{
    shoal_memory_info first, now;
    struct shoali_comm_counters before = {0}, after = {0};
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    EXPECT(shoali_zero_counters(seat->engine->zero, &before) == SHOAL_OK);
    shoal_engine_get_memory_info(seat->engine, &first);
    for (int64_t step = 1; step < 4; step++) {
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
        shoal_engine_get_memory_info(seat->engine, &now);
        EXPECT(now.host_sync_count - first.host_sync_count == step);
    }
    EXPECT(shoali_zero_counters(seat->engine->zero, &after) == SHOAL_OK);
    int64_t calls = 0;
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++)
        calls += after.calls[k] - before.calls[k];
    EXPECT(seat->run->ranks == 1 || calls >= 3 * 4); /* many buckets */
    return true;
}

static void test_synchronisations(void **state)
{
    static const char *const modes[] = {"late", "random", "thread"};
    const char *given = getenv("SHOAL_SIM_STREAMS");
    char options[256], restored[16];
    (void)state;
    (void)snprintf(restored, sizeof restored, "%s", given ? given : "");
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "268435456", 1), 0);
    for (int32_t stage = 0; stage <= 3; stage++)
        for (int32_t ranks = 1; ranks <= 3; ranks += 2)
            for (int32_t overlap = 0; overlap < 2; overlap++) {
                assert_int_equal(setenv("SHOAL_SIM_STREAMS", modes[(stage + overlap) % 3], 1), 0);
                snprintf(options, sizeof options,
                         "\"zero_optimization\":{\"stage\":%d,\"overlap_comm\":%s,"
                         "\"reduce_bucket_size\":500,\"allgather_bucket_size\":500,"
                         "\"stage3_param_persistence_threshold\":0}",
                         (int)stage, overlap ? "true" : "false");
                gpt_run_ranks((struct gpt_run){.ranks = ranks,
                                               .accelerator = "sim",
                                               .options = options,
                                               .run = count_synchronisations},
                              seats);
            }
    assert_int_equal(setenv("SHOAL_SIM_STREAMS", restored, 1), 0);
}

/* Evaluation needs no more memory than training; reading the loss costs its own synchronisation. */
static bool evaluate(struct gpt_seat *seat)
{
    shoal_memory_info before, after;
    double loss;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    shoal_engine_get_memory_info(seat->engine, &before);
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 5, &loss) == SHOAL_OK);
    shoal_engine_get_memory_info(seat->engine, &after);
    EXPECT(after.device_alloc_count == before.device_alloc_count && after.arena_growths == 0);
    EXPECT(after.buffers_bytes == before.buffers_bytes);
    if (!seat->run->options)
        EXPECT(after.host_sync_count - before.host_sync_count == 5);
    return true;
}

static void test_evaluation(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.run = evaluate}, seats);
    /* what was kept for a backward that does not come makes room for the next forward */
    for (int64_t distance = 0; distance <= 60000; distance += 6000)
        for (int32_t ranks = 1; ranks <= 2; ranks++) {
            char options[320];
            snprintf(options, sizeof options,
                     "\"reduction\":\"%s\",\"zero_optimization\":{\"stage\":3,\"overlap_comm\":%s,"
                     "\"offload_param\":{\"device\":\"cpu\"},\"stage3_prefetch_bucket_size\":0,"
                     "\"stage3_model_persistence_threshold\":0,\"stage3_max_reuse_distance\":%lld}",
                     ranks == 1 ? "fast" : "exact", distance % 12000 ? "false" : "true",
                     (long long)distance);
            gpt_run_ranks((struct gpt_run){.run = evaluate, .ranks = ranks, .options = options},
                          seats);
        }
}

/* What the engine took it gives back: no device memory is left, whatever went wrong before. */
static bool open_and_close(struct gpt_seat *seat)
{
    for (int32_t i = 0; i < 3; i++) {
        EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
        shoal_batch batch = {.data = (const void *[2]){NULL}};
        EXPECT(gpt_next(seat, 1, 0, &batch) == SHOAL_OK);
        EXPECT(shoal_engine_forward(seat->engine, &batch, NULL) == SHOAL_OK);
        shoal_engine_destroy(seat->engine); /* in the middle of a step */
        seat->engine = NULL;
    }
    return true;
}

static void test_open_and_close(void **state)
{
    (void)state;
    gpt_run_ranks((struct gpt_run){.run = open_and_close, .accelerator = "sim", .ranks = 2}, seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_synchronisations),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_open_and_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
