/* ZeRO++, MiCS and joined layers: the bits of plain stage 3 where only who holds what differs, the
 * bound of what is rounded, and the traffic that they are for. */
#include "zero/parts.h"
#include "zero/test_ranks.h"

static const struct shoali_zero_fetch fetches[] = {{.max_live = 0, .prefetch_bucket = INT64_MAX},
                                                   {.max_live = 2500,
                                                    .max_reuse_distance = 700,
                                                    .prefetch_bucket = 1000,
                                                    .param_persistence = 100,
                                                    .model_persistence = 200}};

static void as_reference(struct run run)
{
    go(run, &other);
    compare(&run, true);
}

/* ---- bits ----------------------------------------------------------------------------------- */

/* Groups of neighbours move weights and integers: nothing may change. */
static void test_same_bits(void **state)
{
    (void)state;
    for (int32_t ranks = 4; ranks <= 6; ranks += 2)
        for (int32_t variant = 0; variant < 4; variant++) {
            struct run run = {.ranks = ranks,
                              .stage = 3,
                              .dtype = variant % 2 ? SHOAL_BF16 : SHOAL_F32,
                              .exact = true,
                              .micro_batches = 2 * ranks,
                              .steps = 2,
                              .eval = 7,
                              .bucket = variant / 2 ? 300 : 0,
                              .fetch = fetches[variant / 2]};
            go(run, &reference);
            run.overlap = variant % 2 == 0;
            for (int32_t group = 2; group <= ranks; group++) {
                if (ranks % group)
                    continue;
                run.hpz = group;
                as_reference(run);
                run.hpz = 0;
                run.mics = group;
                as_reference(run);
                run.mics = 0;
            }
            run.fetch.granularity = 700;
            as_reference(run);
        }
}

/* In fast mode too, where the order of sums is that of plain stage 3: hpZ changes none; MiCS with
 * shards of one pair and one pair alone is the plain stage. */
static void test_same_bits_fast(void **state)
{
    (void)state;
    struct run run = {.ranks = 4,
                      .stage = 3,
                      .dtype = SHOAL_BF16,
                      .micro_batches = 8,
                      .steps = 2,
                      .fetch = fetches[0]};
    go(run, &reference);
    run.overlap = true;
    run.hpz = 2;
    as_reference(run);
    run.hpz = 0;
    run.mics = 4;
    as_reference(run);
    run.mics = 0;
    run.fetch.granularity = 1500;
    as_reference(run);
}

/* The sum of N gradients in another order: within 2 (N-1) u sum|g|, u = 2^-24 (Higham 2002, 4.2),
 * and one rounding of the mean for each. */
static void test_mics_fast(void **state)
{
    enum { N = 4 };
    static double magnitude[FLAT_MAX];
    (void)state;
    struct run run = {.ranks = 1, .dtype = SHOAL_F32, .micro_batches = 1, .steps = 1};
    memset(magnitude, 0, sizeof magnitude);
    for (run.first_micro = 0; run.first_micro < N; run.first_micro++) {
        go(run, &other);
        for (int64_t i = 0; i < FLAT_MAX; i++)
            magnitude[i] += fabs((double)other.gradient[i]) / N;
    }
    run = (struct run){.ranks = N, .stage = 3, .dtype = SHOAL_F32, .micro_batches = N, .steps = 1};
    go(run, &reference);
    run.mics = 2;
    go(run, &other);
    for (int64_t i = 0; i < reference.flat_count; i++) {
        const double error = fabs((double)other.gradient[i] - (double)reference.gradient[i]);
        if (error > 2 * N * ldexp(magnitude[i], -24))
            fail_msg("element %lld is off by %.3g", (long long)i, error);
    }
}

/* ---- what is rounded ------------------------------------------------------------------------ */

/* A block of 256 neighbours lies within this. */
static double largest_near(const float *x, int64_t count, int64_t i)
{
    double largest = 0;
    const int64_t first = i < 255 ? 0 : i - 255, end = i + 256 < count ? i + 256 : count;
    for (int64_t j = first; j < end; j++)
        largest = fmax(largest, fabs((double)x[j]));
    return largest;
}

/* Everything gathered and kept, as a rank computes with it. */
static float gathered[FLAT_MAX];

static bool gather_all(struct seat *seat)
{
    if (!open_seat(seat))
        return false;
    NEED(shoali_zero_idle_forward(seat->zero));
    for (int32_t i = 0; i < seat->module.param_count && seat->rank == 1; i++) {
        const struct shoal_param *param = seat->module.param[i];
        NEED(shoali_download(seat->exec.stream, gathered + param->begin, param->data,
                             (size_t)param->count * sizeof(float)));
    }
    return collect(seat);
}

static void test_weights_bound(void **state)
{
    (void)state;
    struct run run = {.ranks = 3,
                      .stage = 3,
                      .dtype = SHOAL_F32,
                      .micro_batches = 3,
                      .overlap = true,
                      .quantized_weights = true,
                      .drive = gather_all,
                      .fetch = {.max_live = INT64_MAX, .max_reuse_distance = INT64_MAX}};
    int64_t changed = 0;
    go(run, &other);
    for (int64_t i = 0; i < other.flat_count; i++) {
        const double own = (double)other.kind[0][i], error = fabs((double)gathered[i] - own);
        const double largest = largest_near(other.kind[0], other.flat_count, i);
        changed += error > 0;
        if (error > largest / 127 / 2 + ldexp(largest, -22))
            fail_msg("weight %lld: %g arrived as %g", (long long)i, own, (double)gathered[i]);
    }
    assert_true(changed > other.flat_count / 2);
}

/* The mean of what N ranks sent in 4 bits: each contribution is off by at most max/7/2. */
static void test_gradients_bound(void **state)
{
    enum { N = 3 };
    static double bound[FLAT_MAX], mean[FLAT_MAX];
    (void)state;
    struct run run = {.ranks = 1, .dtype = SHOAL_F32, .micro_batches = 1, .steps = 1};
    int64_t changed = 0;
    memset(bound, 0, sizeof bound);
    memset(mean, 0, sizeof mean);
    for (run.first_micro = 0; run.first_micro < N; run.first_micro++) {
        go(run, &other);
        for (int64_t i = 0; i < other.flat_count; i++) {
            const double largest = largest_near(other.gradient, other.flat_count, i);
            bound[i] += (largest / 7 / 2 + ldexp(largest, -20)) / N;
            mean[i] += (double)other.gradient[i] / N;
        }
    }
    run = (struct run){.ranks = N,
                       .stage = 3,
                       .dtype = SHOAL_F32,
                       .micro_batches = N,
                       .steps = 1,
                       .overlap = true,
                       .quantized_gradients = true,
                       .fetch = fetches[0]};
    go(run, &other);
    for (int64_t i = 0; i < other.flat_count; i++) {
        const double error = fabs((double)other.gradient[i] - mean[i]);
        changed += error > 0;
        if (error > bound[i])
            fail_msg("gradient %lld is off by %g, allowed %g", (long long)i, error, bound[i]);
    }
    assert_true(changed > other.flat_count / 4);
}

/* The same gradient again and again, with no update between. With beta 0 the whole error comes
 * back, so that the mean of what was sent is off by what is kept at the end alone; without feedback
 * the same error is made each time. */
enum { REPEATS = 16 };
static double sent[FLAT_MAX];

static bool repeat_step(struct seat *seat)
{
    int32_t count;
    struct shoali_zero_verdict verdict;
    struct shoal_tensor *loss;
    if (!open_seat(seat))
        return false;
    for (int32_t k = 0; k < REPEATS; k++) {
        if (!forward(seat, 0, seat->rank, true, &loss))
            return false;
        NEED(shoali_zero_micro_begin(seat->zero, 0));
        NEED(shoali_tape_backward(
            seat->tape, &(struct shoali_backward){.outputs = &loss,
                                                  .output_count = 1,
                                                  .seed_value = shoali_zero_seed(seat->zero, 1)}));
        shoali_tape_end(seat->tape);
        NEED(shoali_zero_reduce(seat->zero, 1, false, &verdict));
        const struct shoali_zero_range *own = shoali_zero_own_ranges(seat->zero, &count);
        for (int32_t r = 0; r < count; r++) {
            float part[FLAT_MAX / 8];
            NEED(shoali_zero_read_gradient(seat->zero, own[r].begin, own[r].count, part));
            for (int64_t i = 0; i < own[r].count; i++)
                sent[own[r].begin + i] += (double)part[i] / REPEATS;
        }
    }
    return collect(seat);
}

/* Mean error of the repeated step's mean, against the reference in full precision. */
static double mean_error(struct run run)
{
    double sum = 0;
    memset(sent, 0, sizeof sent);
    go(run, &other);
    for (int64_t i = 0; i < other.flat_count; i++)
        sum += fabs(sent[i] - (double)reference.gradient[i]);
    return sum / (double)other.flat_count;
}

/* `hosts`: pretended, for qgZ's two hops; NULL: one. */
static void feed_back(int32_t ranks, const char *hosts)
{
    struct run run = {.ranks = ranks,
                      .stage = 3,
                      .dtype = SHOAL_F32,
                      .micro_batches = ranks,
                      .overlap = true,
                      .drive = repeat_step,
                      .fetch = fetches[0]};
    (void)mean_error(run);
    memcpy(reference.gradient, other.gradient, sizeof reference.gradient);
    if (hosts)
        assert_int_equal(setenv("SHOAL_PRETEND_HOSTS", hosts, 1), 0);
    run.quantized_gradients = true;
    const double without = mean_error(run);
    run.loco_reset = 1000;
    const double full = mean_error(run);
    run.loco_beta = 0.8;
    const double slow = mean_error(run);
    run.loco_reset = 1;
    const double forgotten = mean_error(run);
    assert_int_equal(unsetenv("SHOAL_PRETEND_HOSTS"), 0);
    printf("%s: mean error: %.3g without feedback, %.3g with all of it, %.3g with beta 0.8\n",
           hosts ? "two hops" : "one hop", without, full, slow);
    assert_true(full < without / 4);
    assert_true(slow < without);
    assert_true(fabs(forgotten - without) <= 1e-12); /* every step begins without errors */
}

static void test_error_feedback(void **state)
{
    (void)state;
    feed_back(3, NULL);
    feed_back(4, "2");
}

/* One backward and its reduction, with the gradient of step 0 times the loss scale, or infinity. */
static bool reduce_once(struct seat *seat, double scale, bool overflow)
{
    struct shoali_zero_verdict verdict;
    struct shoal_tensor *loss;
    if (!forward(seat, 0, seat->rank, true, &loss))
        return false;
    const double seed = overflow ? INFINITY : shoali_zero_seed(seat->zero, scale);
    NEED(shoali_zero_micro_begin(seat->zero, 0));
    NEED(shoali_tape_backward(
        seat->tape,
        &(struct shoali_backward){.outputs = &loss, .output_count = 1, .seed_value = seed}));
    shoali_tape_end(seat->tape);
    NEED(shoali_zero_reduce(seat->zero, scale, false, &verdict));
    return verdict.overflow == overflow;
}

/* `first_micro` is the number of reductions before the last one; of those, `eval` - 1 overflows.
 * `bad_step`: not 0, the loss scale of the last one is 2. */
static bool reduce_after(struct seat *seat)
{
    const struct run *run = seat->run;
    if (!open_seat(seat))
        return false;
    for (int64_t k = 0; k < run->first_micro; k++)
        if (!reduce_once(seat, 1, k == run->eval - 1))
            return false;
    return reduce_once(seat, run->bad_step ? 2 : 1, false) && collect(seat);
}

/* Errors that a step with an overflow has left are of no use, nor are older ones: the next step is
 * as a first one. Without an overflow it is not. `hosts`: pretended, for qgZ's two hops. */
static void forget_after_an_overflow(int32_t ranks, const char *hosts)
{
    struct run run = {.ranks = ranks,
                      .stage = 3,
                      .dtype = SHOAL_F32,
                      .micro_batches = ranks,
                      .overlap = true,
                      .quantized_gradients = true,
                      .loco_reset = 1000,
                      .drive = reduce_after,
                      .fetch = fetches[0]};
    if (hosts)
        assert_int_equal(setenv("SHOAL_PRETEND_HOSTS", hosts, 1), 0);
    go(run, &reference);
    const size_t bytes = (size_t)reference.flat_count * sizeof(float);
    run.first_micro = 2;
    go(run, &other);
    assert_memory_not_equal(other.gradient, reference.gradient, bytes);
    run.eval = 2;
    go(run, &other);
    assert_memory_equal(other.gradient, reference.gradient, bytes);
    run.eval = 1; /* the overflow first: the step behind it leaves errors again */
    go(run, &other);
    assert_memory_not_equal(other.gradient, reference.gradient, bytes);
    run.eval = 0; /* errors are in units of the loss scale, and forgotten with it */
    run.bad_step = 1;
    go(run, &other);
    assert_memory_equal(other.gradient, reference.gradient, bytes);
    assert_int_equal(unsetenv("SHOAL_PRETEND_HOSTS"), 0);
}

static void test_errors_after_an_overflow(void **state)
{
    (void)state;
    forget_after_an_overflow(3, NULL);
    forget_after_an_overflow(4, "2");
}

static void test_quantized_training(void **state)
{
    (void)state;
    struct run run = {.ranks = 4,
                      .stage = 3,
                      .dtype = SHOAL_BF16,
                      .micro_batches = 24,
                      .steps = 4,
                      .fetch = fetches[0]};
    go(run, &other);
    run.hpz = 2;
    run.quantized_weights = run.quantized_gradients = true;
    go(run, &reference);
    for (int32_t s = 0; s < run.steps; s++)
        printf("step %d: loss %.4f, in few bits %.4f\n", (int)s, other.verdict[s].loss,
               reference.verdict[s].loss);
    assert_true(fabs(other.verdict[3].loss - reference.verdict[3].loss) < 0.01);
    run.overlap = true;
    as_reference(run);
    run.bad_step = 2;
    run.bad_rank = 3;
    go(run, &other);
    assert_false(other.verdict[1].overflow);
    assert_true(other.verdict[2].overflow);  /* what is not finite goes through 4 bits */
    assert_false(other.verdict[3].overflow); /* and leaves nothing behind, in no buffer */
}

/* ---- traffic -------------------------------------------------------------------------------- */

static struct shoali_comm_counters everywhere, near, over_replicas;

static void difference(const shoal_group *group, struct shoali_comm_counters *counters)
{
    struct shoali_comm_counters now = {0};
    if (group)
        shoali_comm_get_counters(group, &now);
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++)
        counters->bytes[k] = now.bytes[k] - counters->bytes[k];
}

static bool count_step(struct seat *seat)
{
    struct shoali_comm_counters first[3];
    memset(first, 0, sizeof first);
    if (!open_seat(seat) || !train_step(seat, 0))
        return false;
    const struct shoali_zero_channel *channel = &seat->zero->jobs.away[0];
    const shoal_group *groups[] = {channel->group, channel->nearby, channel->replicas};
    for (int32_t g = 0; g < 2; g++) {
        for (int32_t i = 0; i < 3; i++)
            difference(groups[i], &first[i]);
        if (g == 0 && !train_step(seat, 1))
            return false;
    }
    if (seat->rank == 0) {
        everywhere = first[0];
        near = first[1];
        over_replicas = first[2];
    }
    return collect(seat);
}

static int64_t total(const struct shoali_comm_counters *counters)
{
    int64_t sum = 0;
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++)
        sum += counters->bytes[k];
    return sum;
}

static void about(const char *what, int64_t got, double expected)
{
    if (fabs((double)got - expected) > 0.02 * expected)
        fail_msg("%s: %lld bytes, expected %.0f within 2 %%", what, (long long)got, expected);
}

static void test_traffic(void **state)
{
    (void)state;
    enum { N = 4, NEAR = 2 };
    struct run run = {.ranks = N,
                      .stage = 3,
                      .sizes = &large,
                      .dtype = SHOAL_BF16,
                      .micro_batches = N,
                      .overlap = true,
                      .steps = 2,
                      .drive = count_step,
                      .fetch = fetches[0]};
    go(run, &other);
    const double p = (double)other.flat_count, far = p * (N - 1) / N, close = p * (NEAR - 1) / NEAR;
    const double scale = 4.0 / SHOALI_QUANTIZE_BLOCK;
    about("stage 3", total(&everywhere), far * (2 + 2 + 4));
    const int64_t weights = everywhere.bytes[SHOALI_ALL_GATHER];
    run.hpz = NEAR;
    go(run, &other);
    about("hpZ, all ranks", everywhere.bytes[SHOALI_ALL_GATHER], far * 2);
    about("hpZ, neighbours", total(&near), close * 2);
    run.quantized_weights = run.quantized_gradients = true;
    go(run, &other);
    about("qwZ", everywhere.bytes[SHOALI_ALL_GATHER], far * (1 + scale));
    about("qgZ", everywhere.bytes[SHOALI_ALL_TO_ALL], far * (0.5 + scale));
    /* The paper counts 16-bit gradients: 3 M of 16 bits become 0.75 M, the scales aside. */
    printf("between all ranks: %.0f bytes become %lld: %.2f times less\n", far * 6,
           (long long)total(&everywhere), far * 6 / (double)total(&everywhere));
    assert_true(far * 6 / (double)total(&everywhere) > 3.8);
    run.hpz = 0;
    run.quantized_weights = run.quantized_gradients = false;
    run.mics = NEAR;
    go(run, &other);
    about("MiCS, shard", total(&everywhere), close * (2 + 2 + 4));
    about("MiCS, replicas", total(&over_replicas), p / NEAR * 2 * (N / NEAR - 1) / (N / NEAR) * 4);
    assert_true(weights > 0);
}

/* The second copy is counted: 2 P / nearby bytes more of weights, in bf16. */
static void test_memory(void **state)
{
    (void)state;
    struct run run = {.ranks = 4,
                      .stage = 3,
                      .sizes = &large,
                      .dtype = SHOAL_BF16,
                      .micro_batches = 4,
                      .steps = 1};
    go(run, &reference);
    run.hpz = 2;
    go(run, &other);
    const double p = (double)other.flat_count;
    about("hpZ", other.memory[0].weights_bytes - reference.memory[0].weights_bytes, p);
    run.hpz = 0;
    run.mics = 2;
    go(run, &other);
    about("MiCS weights", other.memory[0].weights_bytes, p);
    about("MiCS gradients", other.memory[0].gradients_bytes, 2 * p);
    about("MiCS states", other.memory[0].states_bytes, 6 * p);
}

static void test_refused(void **state)
{
    (void)state;
    struct run run = {.ranks = 4, .stage = 3, .micro_batches = 4, .fails = true, .hpz = 3};
    go(run, &other);
    assert_int_equal(seats[2].status, SHOAL_ECONFIG);
    assert_non_null(strstr(seats[2].message, "zero_hpz_partition_size: 3 does not divide"));
    run.hpz = 0;
    run.mics = 3;
    go(run, &other);
    assert_non_null(strstr(seats[2].message, "mics_shard_size: 3 does not divide"));
    run.mics = 8; /* not all of them after all */
    go(run, &other);
    assert_non_null(strstr(seats[2].message, "mics_shard_size: 8 does not divide"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_same_bits_fast),
        cmocka_unit_test(test_mics_fast),
        cmocka_unit_test(test_weights_bound),
        cmocka_unit_test(test_gradients_bound),
        cmocka_unit_test(test_error_feedback),
        cmocka_unit_test(test_errors_after_an_overflow),
        cmocka_unit_test(test_quantized_training),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
