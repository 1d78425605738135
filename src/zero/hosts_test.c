/* Ranks on several hosts, which are pretended: the bits of one host where reductions are exact, and
 * what is sent between hosts, with and without what ZeRO++ and MiCS save there. */
#include "zero/test_ranks.h"

enum { HOSTS = 2, PER_HOST = 2, RANKS = HOSTS * PER_HOST };

static void pretend(const char *hosts)
{
    assert_int_equal(
        hosts ? setenv("SHOAL_PRETEND_HOSTS", hosts, 1) : unsetenv("SHOAL_PRETEND_HOSTS"), 0);
}

/* ---- bits ----------------------------------------------------------------------------------- */

static void test_same_bits(void **state)
{
    (void)state;
    static const char *const layouts[] = {"2", "3,1", "cyclic:2"};
    for (int32_t stage = 0; stage <= 3; stage++) {
        struct run run = {.ranks = RANKS,
                          .stage = stage,
                          .dtype = SHOAL_BF16,
                          .exact = true,
                          .micro_batches = 2 * RANKS,
                          .steps = 2,
                          .eval = 7,
                          .bucket = stage % 2 ? 300 : 0};
        pretend(NULL);
        go(run, &reference);
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
            pretend(layouts[i]);
            run.overlap = i % 2 == 0;
            go(run, &other);
            compare(&run, true);
        }
        for (int32_t variant = 0; variant < 2 && stage == 3; variant++) {
            pretend(layouts[variant]);
            run.hpz = variant == 0 ? 2 : 0;
            run.mics = variant == 1 ? 2 : 0;
            go(run, &other);
            compare(&run, true);
        }
        pretend(NULL);
    }
}

/* ---- traffic between hosts ------------------------------------------------------------------ */

/* Of one step, by all ranks; what the busiest one has sent. */
static _Atomic int64_t crossed[SHOALI_COLLECTIVE_COUNT];
static _Atomic int64_t most_gathered;

static bool count_step(struct seat *seat)
{
    struct shoali_comm_counters before, after;
    if (!open_seat(seat) || !train_step(seat, 0))
        return false;
    shoali_comm_get_counters(seat->group, &before);
    if (!train_step(seat, 1))
        return false;
    shoali_comm_get_counters(seat->group, &after);
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++)
        crossed[k] += after.between_hosts[k] - before.between_hosts[k];
    const int64_t own =
        after.between_hosts[SHOALI_ALL_GATHER] - before.between_hosts[SHOALI_ALL_GATHER];
    for (int64_t most = most_gathered;
         own > most && !atomic_compare_exchange_weak(&most_gathered, &most, own);)
        ;
    return collect(seat);
}

static double cross(struct run run)
{
    int64_t sum = 0;
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++)
        crossed[k] = 0;
    most_gathered = 0;
    go(run, &other);
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++)
        sum += crossed[k];
    return (double)sum;
}

static void about(const char *what, double got, double expected)
{
    printf("%s: %.0f bytes between hosts\n", what, got);
    if (fabs(got - expected) > 0.02 * expected)
        fail_msg("%s: %.0f bytes between hosts, expected %.0f within 2 %%", what, got, expected);
}

/* With P parameters in bf16 and gradients in fp32 the hosts send each other, in all, P (HOSTS - 1)
 * elements for each gather and each sum. */
static void test_traffic(void **state)
{
    (void)state;
    struct run run = {.ranks = RANKS,
                      .stage = 3,
                      .sizes = &large,
                      .dtype = SHOAL_BF16,
                      .micro_batches = RANKS,
                      .overlap = true,
                      .steps = 2,
                      .drive = count_step,
                      .fetch = {.max_live = 0, .prefetch_bucket = INT64_MAX}};
    const double scale = 4.0 / SHOALI_QUANTIZE_BLOCK;
    pretend("2");
    const double plain_step = cross(run);
    const double p = (double)other.flat_count * (HOSTS - 1);
    about("stage 3", plain_step, p * (2 + 2 + 4));
    run.hpz = PER_HOST;
    about("hpZ", cross(run), p * (2 + 4)); /* backward's gathers stay on the host */
    run.quantized_weights = true;
    about("hpZ and qwZ", cross(run), p * (1 + scale + 4));
    run.quantized_gradients = true;
    const double all_three = cross(run);
    about("hpZ, qwZ and qgZ", all_three, p * (1 + scale + 0.5 + scale));
    /* The paper counts gradients of 16 bits: 3 M become 0.75 M. */
    printf("ZeRO++: %.2f times less than 3 M\n", p * 6 / all_three);
    assert_true(p * 6 / all_three > 3.8);
    /* MiCS: nothing but one sum over replicas in a step, however many micro-batches it has. */
    run.hpz = 0;
    run.quantized_weights = run.quantized_gradients = false;
    run.micro_batches = 4 * RANKS;
    about("stage 3, 4 micro-batches", cross(run), 4 * p * (2 + 2 + 4));
    run.mics = PER_HOST;
    about("MiCS, 4 micro-batches", cross(run), p * 2 * 4);
    pretend(NULL);
}

/* MiCS over hosts: the bits of the plain gather, the same bytes in all, and of them each rank its
 * share instead of one per host. */
static void test_hierarchical_gather(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, shard;
        const char *hosts;
    } cases[] = {{4, 4, "2"}, {8, 4, "2"}, {6, 6, "3"}, {6, 6, "2"}, {8, 8, "2"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int32_t bits = 0; bits < 2; bits++) {
            struct run run = {.ranks = cases[i].ranks,
                              .stage = 3,
                              .sizes = &large,
                              .dtype = SHOAL_BF16,
                              .exact = bits == 0,
                              .micro_batches = cases[i].ranks,
                              .overlap = i % 2 == 0,
                              .steps = 2,
                              .drive = count_step,
                              .mics = cases[i].shard,
                              .quantized_weights = bits == 1,
                              .fetch = {.max_live = 0, .prefetch_bucket = INT64_MAX}};
            const int32_t places = cases[i].hosts[0] - '0';
            pretend(cases[i].hosts);
            const double in_all = cross(run), spoken = (double)most_gathered;
            reference = other;
            run.hierarchical_gather = true;
            about("hierarchical gather", cross(run), in_all);
            compare(&run, true);
            printf("%d ranks on hosts of %d: the busiest sends %.0f bytes of gathers instead of "
                   "%.0f\n",
                   (int)run.ranks, (int)places, (double)most_gathered, spoken);
            if (run.ranks == run.mics)
                assert_true(fabs((double)most_gathered * places - spoken) <= 0.02 * spoken);
        }
    pretend(NULL);
}

/* Two hops round twice: no further from the sum than a step of the codes per hop, which training
 * does not notice. */
static void test_two_hops(void **state)
{
    (void)state;
    struct run run = {.ranks = RANKS,
                      .stage = 3,
                      .dtype = SHOAL_F32,
                      .micro_batches = RANKS,
                      .steps = 4,
                      .quantized_gradients = true};
    pretend(NULL);
    go(run, &reference);
    for (int32_t loco = 0; loco < 2; loco++) {
        run.loco_reset = loco ? 8 : 0;
        run.loco_beta = 0.25;
        pretend("2");
        go(run, &other);
        for (int32_t s = 0; s < 4; s++)
            assert_true(fabs(other.verdict[s].loss - reference.verdict[s].loss) < 0.02);
        assert_memory_not_equal(other.gradient, reference.gradient,
                                (size_t)reference.flat_count * sizeof(float)); /* they were taken */
    }
    pretend(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_hierarchical_gather),
        cmocka_unit_test(test_two_hops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
