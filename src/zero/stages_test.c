/* The stages of ZeRO on ranks that are threads: the same bits, the promised memory and traffic. */
#include "zero/test_ranks.h"

/* Nothing kept; everything kept; the next layer ahead; small layers always there. */
static const struct shoali_zero_fetch fetches[] = {
    {.max_live = 0},
    {.max_live = INT64_MAX, .max_reuse_distance = INT64_MAX},
    {.max_live = INT64_MAX, .prefetch_bucket = 1000},
    {.max_live = 2500,
     .max_reuse_distance = 700,
     .prefetch_bucket = INT64_MAX,
     .param_persistence = 100,
     .model_persistence = 200}};

/* ---- the tests ------------------------------------------------------------------------------ */

static void test_exact(void **state)
{
    const shoal_dtype dtype = *(const shoal_dtype *)*state;
    struct run run = {
        .ranks = 1, .dtype = dtype, .exact = true, .micro_batches = 24, .steps = 3, .eval = 7};
    go(run, &reference);
    assert_true(reference.verdict[2].loss < reference.verdict[0].loss);
    for (run.ranks = 1; run.ranks <= 8; run.ranks = run.ranks < 4 ? run.ranks + 1 : run.ranks * 2)
        for (run.stage = 0; run.stage <= 3; run.stage++)
            for (size_t f = 0; f < (run.stage == 3 ? 4u : 2u); f++) {
                run.fetch = fetches[f];
                run.overlap = f >= 1;
                run.bucket = f == 1 ? 300 : f == 2 ? 1 : 0;
                run.all_reduce = f == 1;
                run.sub_group = f == 3 ? 50 : 0;
                go(run, &other);
                compare(&run, true);
            }
}

/* One micro-batch per rank: sums over ranks are the only ones, in the order of ranks. */
static void test_fast(void **state)
{
    const shoal_dtype dtype = *(const shoal_dtype *)*state;
    for (int32_t ranks = 2; ranks <= 8; ranks = ranks < 4 ? ranks + 1 : ranks * 2) {
        struct run run = {.ranks = ranks, .dtype = dtype, .micro_batches = ranks, .steps = 3};
        go(run, &reference);
        for (run.stage = 1; run.stage <= 3; run.stage++)
            for (size_t f = 0; f < (run.stage == 3 ? 4u : 2u); f++) {
                run.fetch = fetches[f];
                run.overlap = f >= 1;
                run.bucket = f == 1 ? 300 : 0;
                run.all_reduce = f == 1;
                go(run, &other);
                compare(&run, true);
            }
    }
}

/* The micro-batches' gradients g_i are the same bits, the seed 1/gas being a power of two; only the
 * order of adding them differs. Adding M numbers errs by at most (M-1) u sum|g_i| in any order, u =
 * 2^-24 (Higham 2002, 4.2), so two orders are within twice that, and the mean's division adds one
 * rounding to each. */
static void test_fast_accumulation(void **state)
{
    enum { MICRO = 8 };
    static double magnitude[FLAT_MAX];
    (void)state;
    struct run run = {.ranks = 1, .dtype = SHOAL_F32, .micro_batches = 1, .steps = 1};
    memset(magnitude, 0, sizeof magnitude);
    for (run.first_micro = 0; run.first_micro < MICRO; run.first_micro++) {
        go(run, &other);
        for (int64_t i = 0; i < FLAT_MAX; i++)
            magnitude[i] += fabs((double)other.gradient[i]) / MICRO;
    }
    run.first_micro = 0;
    run.micro_batches = MICRO;
    go(run, &reference);
    for (run.ranks = 2; run.ranks <= 4; run.ranks *= 2)
        for (run.stage = 1; run.stage <= 3; run.stage++) {
            go(run, &other);
            for (int64_t i = 0; i < reference.flat_count; i++) {
                const double bound = 2 * MICRO * ldexp(magnitude[i], -24);
                const double error =
                    fabs((double)other.gradient[i] - (double)reference.gradient[i]);
                if (error > bound)
                    fail_msg("stage %d, %d ranks: element %lld is off by %.3g, allowed %.3g",
                             (int)run.stage, (int)run.ranks, (long long)i, error, bound);
            }
        }
}

static double predivide = 1;
static bool prescale;

static bool divide_before(struct seat *seat, struct shoali_zero_args *args)
{
    (void)seat;
    args->gradient_predivide_factor = predivide;
    args->prescale_gradients = prescale;
    return true;
}

/* What gradients are divided by before their sum is made up for behind it. By powers of two no bit
 * changes; 3 costs a rounding of each term, and one behind, of 2^-24 each. */
static void test_division_before_the_sum(void **state)
{
    (void)state;
    static const double factors[] = {4, 0.5, 3};
    for (int32_t ranks = 2; ranks <= 4; ranks++)
        for (int32_t stage = 0; stage <= 1; stage++) {
            struct run run = {.ranks = ranks,
                              .stage = stage,
                              .dtype = SHOAL_F32,
                              .micro_batches = ranks,
                              .steps = 1};
            go(run, &reference);
            run.adjust = divide_before;
            for (int32_t variant = 0; variant < 4; variant++) {
                predivide = variant < 3 ? factors[variant] : 1;
                prescale = variant == 3;
                go(run, &other);
                if (variant < 2 || (prescale && ranks != 3)) {
                    compare(&run, true);
                    continue;
                }
                double largest = 0;
                for (int64_t i = 0; i < reference.flat_count; i++)
                    largest = fmax(largest, fabs((double)reference.gradient[i]));
                for (int64_t i = 0; i < reference.flat_count; i++)
                    assert_true(fabs((double)other.gradient[i] - (double)reference.gradient[i]) <=
                                2 * (ranks + 1) * ldexp(largest, -24));
            }
        }
}

/* What one rank sees stops all of them. */
static void test_overflow(void **state)
{
    (void)state;
    for (int32_t exact = 0; exact < 2; exact++)
        for (int32_t stage = 0; stage <= 3; stage++)
            for (int32_t gas = 1; gas <= 2; gas++) {
                struct run run = {.ranks = 3,
                                  .stage = stage,
                                  .dtype = SHOAL_F16,
                                  .exact = exact != 0,
                                  .micro_batches = 3 * gas,
                                  .steps = 1};
                go(run, &reference);
                run.steps = 2;
                run.bad_step = 1;
                run.bad_rank = 1;
                go(run, &other);
                assert_false(other.verdict[0].overflow);
                assert_true(other.verdict[1].overflow);
                assert_true(isnan(other.verdict[1].norm));
                assert_memory_equal(other.kind, reference.kind, sizeof reference.kind);
            }
}

/* All contributions of a step together stay below 2^63 units: M micro-batches, and of a parameter
 * with several uses as many times more. */
static bool check_limits(struct seat *seat)
{
    const struct run *run = seat->run;
    int32_t tied = 0;
    if (!open_seat(seat))
        return false;
    NEED(shoali_zero_micro_begin(seat->zero, 0));
    for (int32_t i = 0; i < seat->module.param_count; i++) {
        const struct shoal_param *param = seat->module.param[i];
        const bool twice = strcmp(param->name, "embed.table") == 0;
        int bits = 0;
        while (1 << bits < run->micro_batches * (twice ? 2 : 1))
            bits++;
        tied += twice;
        if (param->sink.limit != ldexp(1.0, 63 - 40 - bits)) {
            fprintf(stderr, "%s: a limit of 2^%g, not 2^%d\n", param->name, log2(param->sink.limit),
                    63 - 40 - bits);
            return false;
        }
    }
    return tied == 1 && collect(seat);
}

static void test_head_room(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 1; stage++)
        for (int64_t micro_batches = 2; micro_batches <= 8; micro_batches += 2)
            go((struct run){.ranks = 2,
                            .stage = stage,
                            .dtype = SHOAL_F32,
                            .exact = true,
                            .micro_batches = micro_batches,
                            .drive = check_limits},
               &other);
}

static void within(const char *what, const struct run *run, double got, double expected)
{
    if (fabs(got - expected) > 0.02 * expected)
        fail_msg("%s: stage %d, %d ranks: %.0f, expected %.0f within 2 %%", what, (int)run->stage,
                 (int)run->ranks, got, expected);
}

/* DESIGN 7: (14+g)P, (2+g)P + 12P/N, 2P + (12+g)P/N, (14+g)P/N bytes; 2, 2, 2, 3 times P(N-1)/N
 * elements. */
static void test_memory_and_traffic(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= 8; ranks *= 2)
        for (int32_t stage = 0; stage <= 3; stage++)
            for (int32_t exact = 0; exact < 2; exact++) {
                const struct run run = {.ranks = ranks,
                                        .stage = stage,
                                        .sizes = &large,
                                        .dtype = SHOAL_BF16,
                                        .exact = exact != 0,
                                        .micro_batches = ranks,
                                        .steps = 2};
                go(run, &other);
                const double p = (double)other.flat_count, n = ranks, g = exact ? 8 : 4;
                within("traffic", &run, (double)other.traffic,
                       (stage == 3 ? 3 : 2) * p * (n - 1) / n);
                for (int32_t r = 0; r < ranks; r++) {
                    const struct shoali_zero_memory *memory = &other.memory[r];
                    within("weights", &run, (double)memory->weights_bytes,
                           stage == 3 ? 2 * p / n : 2 * p);
                    within("gradients", &run, (double)memory->gradients_bytes,
                           stage >= 2 ? g * p / n : g * p);
                    within("states", &run, (double)memory->states_bytes,
                           stage >= 1 ? 12 * p / n : 12 * p);
                }
                /* Live units: gradients of one, weights of one, of the largest at most. */
                const double largest = 200 * 128 * (2 + g) * 1.02, chunk = exact ? 4 << 20 : 0;
                if (stage >= 2)
                    assert_true((double)other.memory[0].buffers_bytes <=
                                2 * largest + 128 * 128 * (2 + g) * 1.02 + chunk);
                assert_int_equal(other.params_gone, stage == 3 && ranks > 1);
            }
}

/* Keeping what is used again soon saves fetches; small layers that stay cost none but one. */
static void test_keeping(void **state)
{
    (void)state;
    struct run run = {.ranks = 2,
                      .stage = 3,
                      .sizes = &large,
                      .dtype = SHOAL_F32,
                      .micro_batches = 4,
                      .steps = 2,
                      .fetch = fetches[1]};
    go(run, &other);
    const double half = (double)other.flat_count / 2;
    within("all kept", &run, (double)other.traffic, (1 + 2) * half);
    run.fetch =
        (struct shoali_zero_fetch){.param_persistence = INT64_MAX, .model_persistence = INT64_MAX};
    go(run, &other);
    within("all persistent", &run, (double)other.traffic, (1 + 2) * half);
    /* The head is used again at once in each of two micro-batches, the embedding between them. */
    run.fetch = (struct shoali_zero_fetch){.max_live = INT64_MAX, .max_reuse_distance = 0};
    go(run, &other);
    within("head kept", &run, (double)other.traffic, (4 + 2) * half - 3 * 200 * 128 / 2);
    run.fetch = fetches[0];
    go(run, &other);
    within("none kept", &run, (double)other.traffic, (4 + 2) * half);
}

static shoal_status declare_one(const void *config, shoal_declaration *to)
{
    (void)config;
    return declare(to, "one", shoal_shape_1(1), 0, 1, NULL);
}

static const shoal_layer_type one = {
    .name = "one", .declare = declare_one, .forward = forward_plain};

/* A layer with a single element between the two large ones. */
static void describe_one(struct seat *seat)
{
    describe_model(seat);
    seat->layers[1] = (shoal_layer_spec){&one, "one", NULL};
    seat->layers[2] = seat->layers[5];
    seat->model.layer_count = 3;
}

/* The smallest layer that can stay does: it is gathered once a step instead of twice. */
static void test_keeping_one_element(void **state)
{
    (void)state;
    struct run run = {.ranks = 2,
                      .stage = 3,
                      .dtype = SHOAL_F32,
                      .micro_batches = 2,
                      .steps = 2,
                      .describe = describe_one};
    go(run, &other);
    const int64_t gathered = other.traffic;
    run.fetch = (struct shoali_zero_fetch){.param_persistence = 1, .model_persistence = 1};
    go(run, &other);
    assert_true(other.traffic < gathered);
}

int main(void)
{
    static const shoal_dtype f32 = SHOAL_F32, bf16 = SHOAL_BF16, f16 = SHOAL_F16;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_exact, (void *)(uintptr_t)&f32),
        cmocka_unit_test_prestate(test_exact, (void *)(uintptr_t)&bf16),
        cmocka_unit_test_prestate(test_exact, (void *)(uintptr_t)&f16),
        cmocka_unit_test_prestate(test_fast, (void *)(uintptr_t)&f32),
        cmocka_unit_test_prestate(test_fast, (void *)(uintptr_t)&bf16),
        cmocka_unit_test(test_fast_accumulation),
        cmocka_unit_test(test_division_before_the_sum),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_head_room),
        cmocka_unit_test(test_memory_and_traffic),
        cmocka_unit_test(test_keeping),
        cmocka_unit_test(test_keeping_one_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
