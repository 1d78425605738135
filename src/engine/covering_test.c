/* The promise of "reduction": "exact", over everything at once: ranks, stage, bucket, overlap,
 * offload, recompute, threads, backend, accelerator. A covering array has every pair of values in
 * some cell (a layout); each cell trains the same steps and must give the bits of the plain run.
 * SHOAL_TEST_FULL=1 runs the full product instead, as a nightly job may; SHOAL_TEST_FULL=FROM-TO
 * only its cells [FROM, TO), so that several nights or machines can share it.
 */
#include "engine/test_gpt.h"

#include <float.h>
#include <math.h>

#if defined(SHOALI_TSAN) || defined(__SANITIZE_ADDRESS__)
#define STEPS 8 /* what races or reaches beyond does so in the first steps */
#else
#define STEPS 50
#endif
enum { FACTORS = 9, VALUES_MAX = 5, CELLS_MAX = 200 };
enum factor { RANKS, STAGE, BUCKET, OVERLAP, OFFLOAD, RECOMPUTE, THREADS, BACKEND, ACCELERATOR };

struct dimension {
    const char *name;
    int32_t count;
    const char *value[VALUES_MAX];
};
static const struct dimension dimensions[FACTORS] = {
    [RANKS] = {"ranks", 5, {"1", "2", "3", "4", "6"}},
    [STAGE] = {"stage", 4, {"0", "1", "2", "3"}},
    [BUCKET] = {"bucket", 4, {"1000", "20000", "1000000", "500000000"}},
    [OVERLAP] = {"overlap", 2, {"false", "true"}},
    [OFFLOAD] = {"offload", 3, {"none", "cpu", "nvme"}},
    [RECOMPUTE] = {"recompute", 2, {"off", "full"}},
    [THREADS] = {"threads", 3, {"1", "2", "3"}},
    [BACKEND] = {"backend", 2, {"thread", "shm"}},
    [ACCELERATOR] = {"accelerator", 2, {"cpu", "sim"}},
};

struct cell {
    int8_t value[FACTORS];
};

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];
static char folder[] = "/tmp/shoal-covering-XXXXXX";

static const char *value_of(const struct cell *cell, enum factor factor)
{
    return dimensions[factor].value[cell->value[factor]];
}

/* Stage 0 has nothing to offload, and the configuration says so. */
static bool feasible_pair(int32_t a, int32_t va, int32_t b, int32_t vb)
{
    const bool stage0 = (a == STAGE && va == 0) || (b == STAGE && vb == 0);
    const bool offload = (a == OFFLOAD && va > 0) || (b == OFFLOAD && vb > 0);
    return !(stage0 && offload);
}

static bool feasible(const struct cell *cell)
{
    return feasible_pair(STAGE, cell->value[STAGE], OFFLOAD, cell->value[OFFLOAD]);
}

/* ---- the covering array ---------------------------------------------------------------------- */

struct pairs {
    bool seen[FACTORS][VALUES_MAX][FACTORS][VALUES_MAX];
    int32_t missing;
};

static void pairs_init(struct pairs *pairs)
{
    memset(pairs, 0, sizeof *pairs);
    for (int32_t a = 0; a < FACTORS; a++)
        for (int32_t b = a + 1; b < FACTORS; b++)
            for (int32_t va = 0; va < dimensions[a].count; va++)
                for (int32_t vb = 0; vb < dimensions[b].count; vb++)
                    pairs->missing += feasible_pair(a, va, b, vb);
}

/* How many pairs a cell would add; with `take` it adds them. */
static int32_t new_pairs(struct pairs *pairs, const struct cell *cell, bool take)
{
    int32_t found = 0;
    for (int32_t a = 0; a < FACTORS; a++)
        for (int32_t b = a + 1; b < FACTORS; b++) {
            bool *seen = &pairs->seen[a][cell->value[a]][b][cell->value[b]];
            found += !*seen;
            *seen |= take;
        }
    if (take)
        pairs->missing -= found;
    return found;
}

/* Greedy: of some random cells the one that adds most pairs. */
static int32_t make_covering_array(uint64_t seed, struct cell *cells)
{
    struct pairs pairs;
    int32_t count = 0;
    pairs_init(&pairs);
    while (pairs.missing > 0) {
        struct cell best = {{0}};
        int32_t most = 0;
        for (int32_t i = 0; i < 400; i++) {
            struct cell cell;
            for (int32_t f = 0; f < FACTORS; f++) {
                seed = gpt_mix(seed + 0x9E3779B97F4A7C15u);
                cell.value[f] = (int8_t)(seed % (uint64_t)dimensions[f].count);
            }
            const int32_t found = feasible(&cell) ? new_pairs(&pairs, &cell, false) : 0;
            if (found > most) {
                most = found;
                best = cell;
            }
        }
        if (most == 0)
            continue;
        new_pairs(&pairs, &best, true);
        assert_true(count < CELLS_MAX);
        cells[count++] = best;
    }
    return count;
}

/* ---- one cell -------------------------------------------------------------------------------- */

static void cell_name(const struct cell *cell, char *text, size_t bytes)
{
    size_t at = 0;
    for (int32_t f = 0; f < FACTORS; f++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%s %s", f ? ", " : "", dimensions[f].name,
                               value_of(cell, (enum factor)f));
}

static void cell_options(const struct cell *cell, const char *reduction, char *text, size_t bytes)
{
    const bool stage3 = cell->value[STAGE] == 3;
    char offload[400] = "", device[160];
    snprintf(device, sizeof device, "{\"device\":\"%s\",\"nvme_path\":\"%s\",\"buffer_count\":4}",
             value_of(cell, OFFLOAD), folder);
    if (cell->value[OFFLOAD])
        snprintf(offload, sizeof offload, ",\"offload_optimizer\":%s%s%s", device,
                 stage3 ? ",\"offload_param\":" : "", stage3 ? device : "");
    snprintf(text, bytes,
             "\"reduction\":\"%s\",\"gradient_clipping\":0.5,\"zero_optimization\":{\"stage\":%s,"
             "\"reduce_bucket_size\":%s,\"allgather_bucket_size\":%s,\"overlap_comm\":%s,"
             "\"sub_group_size\":%s%s%s}",
             reduction, value_of(cell, STAGE), value_of(cell, BUCKET), value_of(cell, BUCKET),
             value_of(cell, OVERLAP), value_of(cell, BUCKET),
             stage3 ? ",\"stage3_param_persistence_threshold\":0" : "", offload);
}

static void run_cell(const struct cell *cell, const char *reduction, int64_t steps)
{
    char options[1024];
    cell_options(cell, reduction, options, sizeof options);
    gpt_run_ranks((struct gpt_run){.ranks = atoi(value_of(cell, RANKS)),
                                   .threads = atoi(value_of(cell, THREADS)),
                                   .processes = cell->value[BACKEND] == 1,
                                   .accelerator = value_of(cell, ACCELERATOR),
                                   .recompute = cell->value[RECOMPUTE] ? "full" : NULL,
                                   .options = options,
                                   .dropout = 0.1,
                                   .steps = steps},
                  seats);
}

static void compare_cell(const struct cell *cell)
{
    char name[300];
    cell_name(cell, name, sizeof name);
    if (getenv("SHOAL_TEST_VERBOSE"))
        printf("%s\n", name);
    run_cell(cell, "exact", STEPS);
    gpt_assert_same(seats, atoi(value_of(cell, RANKS)), reference, name);
}

static void train_reference(void)
{
    const struct cell plain = {{0}};
    run_cell(&plain, "exact", STEPS);
    memcpy(reference, seats, sizeof seats);
    const double first = reference[0].info[0].loss, last = reference[0].info[STEPS - 1].loss;
    printf("plain run: loss %.6f -> %.6f, fingerprint %016llx\n", first, last,
           (unsigned long long)reference[0].fingerprint);
    assert_true(last < first - (STEPS < 50 ? 0.05 : 0.5)); /* it learns, so bits moved */
}

/* Cells [from, to) of the product; their number. */
static int32_t run_product(int32_t from, int32_t to)
{
    struct cell cell = {{0}};
    int32_t at = 0, count = 0;
    for (;;) {
        int32_t f = 0;
        if (feasible(&cell)) {
            if (at >= from && at < to) {
                compare_cell(&cell);
                count++;
            }
            at++;
        }
        while (f < FACTORS && ++cell.value[f] == dimensions[f].count)
            cell.value[f++] = 0;
        if (f == FACTORS)
            return count;
    }
}

static void test_exact_everywhere(void **state)
{
    (void)state;
    static struct cell cells[CELLS_MAX];
    const uint64_t seed = 20261121;
    const char *full = getenv("SHOAL_TEST_FULL");
    train_reference();
    if (full && strcmp(full, "") != 0) {
        int from = 0, to = INT32_MAX;
        assert_true(strcmp(full, "1") == 0 || sscanf(full, "%d-%d", &from, &to) == 2);
        const int32_t count = run_product(from, to);
        assert_true(count > 0);
        printf("full product: %d cells of %d steps, all of the same bits\n", (int)count, STEPS);
        return;
    }
    const int32_t count = make_covering_array(seed, cells);
    for (int32_t i = 0; i < count; i++)
        compare_cell(&cells[i]);
    printf("covering array (seed %llu): %d cells of %d steps, all of the same bits\n",
           (unsigned long long)seed, (int)count, STEPS);
}

/* ---- fast ------------------------------------------------------------------------------------ */

enum { MICRO = 8, GRADIENT_MAX = 60000 };
struct gradient {
    int64_t count;
    float value[GRADIENT_MAX];
    bool single[GRADIENT_MAX]; /* a micro-batch adds to it once */
};
static struct gradient *found;

/* One step, then the gradient of everything. The rows of the token embedding get one addend per
 * token, not per micro-batch. */
static bool take_gradient(struct gpt_seat *seat)
{
    static _Thread_local float part[GRADIENT_MAX];
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, &seat->info[0]) >= 0);
    int64_t at = 0;
    for (int32_t i = 0; i < seat->engine->module.param_count; i++) {
        const char *name = seat->engine->module.param[i]->name;
        const int64_t count = seat->engine->module.param[i]->count;
        EXPECT(at + count <= GRADIENT_MAX);
        EXPECT(shoal_engine_get_gradient(seat->engine, name, part) == SHOAL_OK);
        for (int64_t k = 0; seat->rank == 0 && k < count; k++) {
            found->value[at + k] = part[k];
            found->single[at + k] = strcmp(name, "transformer.wte.weight") != 0;
        }
        at += count;
    }
    if (seat->rank == 0)
        found->count = at;
    return true;
}

static void gradient_of(const struct gpt_run *base, struct gradient *into)
{
    struct gpt_run run = *base;
    run.steps = 1;
    run.untied = true;
    run.run = take_gradient;
    found = into;
    gpt_run_ranks(run, seats);
}

/* Sums of the same M addends in two orders differ by at most 2 (M-1) u / (1 - (M-1) u) times the
 * sum of their magnitudes. The number of micro-batches and of ranks are powers of two, so seeds
 * and means add no rounding of their own. */
static void test_fast_within_its_bound(void **state)
{
    (void)state;
    static struct gradient plain, other, one;
    static double magnitude[GRADIENT_MAX];
    const double u = FLT_EPSILON / 2, factor = 2 * (MICRO - 1) * u / (1 - (MICRO - 1) * u);
    for (int32_t m = 0; m < MICRO; m++) {
        gradient_of(&(struct gpt_run){.micro_batches = 1, .first_micro = m}, &one);
        for (int64_t i = 0; i < one.count; i++)
            magnitude[i] += fabs((double)one.value[i]) / MICRO;
    }
    gradient_of(&(struct gpt_run){.micro_batches = MICRO}, &plain);
    double worst = 0;
    int64_t different = 0, compared = 0;
    for (int32_t stage = 0; stage <= 3; stage++)
        for (int32_t ranks = 2; ranks <= MICRO; ranks *= 2) {
            char options[200];
            snprintf(options, sizeof options,
                     "\"zero_optimization\":{\"stage\":%d,\"reduce_bucket_size\":3000}", stage);
            gradient_of(
                &(struct gpt_run){.micro_batches = MICRO, .ranks = ranks, .options = options},
                &other);
            assert_int_equal(other.count, plain.count);
            for (int64_t i = 0; i < plain.count; i++) {
                if (!plain.single[i])
                    continue;
                const double bound = factor * magnitude[i];
                const double error = fabs((double)other.value[i] - (double)plain.value[i]);
                if (error > bound)
                    fail_msg("stage %d, %d ranks: element %lld is off by %g, more than %g",
                             (int)stage, (int)ranks, (long long)i, error, bound);
                worst = fmax(worst, bound > 0 ? error / bound : 0);
                different += error > 0;
                compared++;
            }
        }
    printf("fast: %lld of %lld gradient elements differ, at most %.3f of the bound "
           "2(M-1)u sum|g| (M = %d)\n",
           (long long)different, (long long)compared, worst, MICRO);
    assert_true(different > 0); /* else it is not the rounding of another order that we look at */
}

static int make_folder(void **state)
{
    (void)state;
    setenv("SHOAL_SIM_BYTES", "268435456", 1);
    return mkdtemp(folder) ? 0 : -1;
}

/* The runs have to leave the folder empty. */
static int drop_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_everywhere),
        cmocka_unit_test(test_fast_within_its_bound),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
