/* Everything together: the axes of a mesh, ZeRO's stages, where things lie, what is recomputed,
 * types, reductions, kernels and backends. A covering array has every possible triple of values in
 * some cell; each cell trains, and with "reduction": "exact" must give the bits of one rank with
 * the same exact_splits, else a run whose difference from one rank's is what rounding explains.
 *
 * Every pair of values is tried by default; sanitizers try a third of those cells.
 *   SHOAL_TEST_FULL=1        every triple; SHOAL_TEST_FULL=FROM-TO only cells [FROM, TO) of those
 *   SHOAL_TEST_PART=2/3      the second third of the cells
 *   SHOAL_TEST_CELL="tp 2, dp 3"  one cell, of the first values but those; a failure prints it
 * What arithmetic forbids is said in `forbids` below, one rule each: docs/RATIONALE.md lists them,
 * and the engine refuses them by a sentence.
 */
#include "engine/test_gpt.h"

#include "shoal/diff.h"

#if defined(SHOALI_TSAN) || defined(__SANITIZE_ADDRESS__)
#define STEPS 4
#define EVERY 3 /* cells of pairs: they all run the same code in the same threads */
#else
#define STEPS 20
#define EVERY 1
#endif
/* One of several runs of this test with other orders of the simulated device's streams. */
#define STREAM_STEPS 4
enum { LAYERS = 8, MICRO_BATCHES = 24, WORLD_MAX = 16, SPLITS = 4 };
enum { FACTORS = 15, VALUES_MAX = 4, CELLS_MAX = 400, TRIES = 60 };
enum factor {
    TENSOR,
    PIPELINE,
    CHUNKS,
    SCHEDULE,
    SEQUENCE,
    DATA,
    STAGE,
    OFFLOAD,
    RECOMPUTE,
    DTYPE,
    REDUCTION,
    PACKED,
    FUSION,
    BACKEND,
    ACCELERATOR
};

struct dimension {
    const char *name;
    int32_t count;
    const char *value[VALUES_MAX];
};
static const struct dimension dimensions[FACTORS] = {
    [TENSOR] = {"tp", 3, {"1", "2", "4"}},
    [PIPELINE] = {"pp", 3, {"1", "2", "4"}},
    [CHUNKS] = {"chunks", 2, {"1", "2"}},
    [SCHEDULE] = {"schedule", 4, {"gpipe", "1f1b", "interleaved", "zb-h1"}},
    [SEQUENCE] = {"sequence parallel", 2, {"false", "true"}},
    [DATA] = {"dp", 3, {"1", "2", "3"}},
    [STAGE] = {"stage", 4, {"0", "1", "2", "3"}},
    [OFFLOAD] = {"offload", 3, {"none", "cpu", "nvme"}},
    [RECOMPUTE] = {"recompute", 2, {"off", "full"}},
    [DTYPE] = {"dtype", 3, {"fp32", "bf16", "fp16"}},
    [REDUCTION] = {"reduction", 2, {"exact", "fast"}},
    [PACKED] = {"packed weights", 2, {"false", "true"}},
    [FUSION] = {"loss fusion", 2, {"false", "true"}},
    [BACKEND] = {"backend", 2, {"thread", "shm"}},
    [ACCELERATOR] = {"accelerator", 2, {"cpu", "sim"}},
};

struct cell {
    int8_t value[FACTORS]; /* -1 in a part of a cell: any */
};

static struct gpt_seat seats[GPT_RANKS_MAX];
static int64_t steps = STEPS;
/* Of one rank, by what changes bits; steps_done 0: not trained yet. */
static struct gpt_seat reference[3][2][2];
static char folder[] = "/tmp/shoal-mesh-XXXXXX";

static const char *value_of(const struct cell *cell, enum factor factor)
{
    return dimensions[factor].value[cell->value[factor]];
}

static int32_t number_of(const struct cell *cell, enum factor factor)
{
    return atoi(value_of(cell, factor));
}

/* ---- what arithmetic forbids ----------------------------------------------------------------- */

static bool given(const struct cell *cell, enum factor a, enum factor b)
{
    return cell->value[a] >= 0 && cell->value[b] >= 0;
}

/* Of a cell, or a part of one. */
static bool forbids(const struct cell *cell)
{
    const int8_t *v = cell->value;
    const int32_t interleaved = 2;
    if (given(cell, STAGE, OFFLOAD) && v[STAGE] == 0 && v[OFFLOAD] > 0)
        return true; /* nothing is divided that could be elsewhere */
    if (given(cell, CHUNKS, PIPELINE) && v[CHUNKS] > 0 && v[PIPELINE] == 0)
        return true; /* chunks of a stage without stages */
    if (given(cell, SCHEDULE, PIPELINE) && v[SCHEDULE] == interleaved && v[PIPELINE] == 0)
        return true;
    if (given(cell, CHUNKS, SCHEDULE) && (v[CHUNKS] > 0) != (v[SCHEDULE] == interleaved))
        return true; /* chunks are what is interleaved */
    if (given(cell, SEQUENCE, TENSOR) && v[SEQUENCE] == 1 && v[TENSOR] == 0)
        return true; /* parts of a sequence among one rank */
    if (given(cell, STAGE, PACKED) && v[STAGE] == 3 && v[PACKED] == 1)
        return true; /* weights are fetched each time */
    if (v[TENSOR] >= 0 && v[PIPELINE] >= 0 && v[DATA] >= 0)
        return number_of(cell, TENSOR) * number_of(cell, PIPELINE) * number_of(cell, DATA) >
               WORLD_MAX;
    return false;
}

/* ---- the covering array ---------------------------------------------------------------------- */

/* Which combinations of `strength` factors' values were in some cell: bit sets, one per combination
 * of factors, over the product of VALUES_MAX values. */
struct tuples {
    int32_t strength;
    uint64_t seen[FACTORS * FACTORS * FACTORS];
    int32_t missing;
};

static uint64_t *seen_of(struct tuples *tuples, const int32_t *factor)
{
    return &tuples->seen[(factor[0] * FACTORS + factor[1]) * FACTORS + factor[2]];
}

/* Calls visit for each set of factors; with pairs the third is the second again. */
static int64_t each_set(struct tuples *tuples, const struct cell *cell, bool take,
                        int64_t (*visit)(struct tuples *, const struct cell *, const int32_t *,
                                         bool))
{
    int64_t sum = 0;
    for (int32_t a = 0; a < FACTORS; a++)
        for (int32_t b = a + 1; b < FACTORS; b++)
            for (int32_t c = tuples->strength == 3 ? b + 1 : b;
                 c < (tuples->strength == 3 ? FACTORS : b + 1); c++)
                sum += visit(tuples, cell, (int32_t[]){a, b, c}, take);
    return sum;
}

static int64_t bit_of(const int8_t *value, const int32_t *factor)
{
    return (value[factor[0]] * VALUES_MAX + value[factor[1]]) * VALUES_MAX + value[factor[2]];
}

/* Part of a cell that a rule of further factors makes impossible is not counted as missing: a part
 * is possible when some whole cell has it. */
static bool completes(struct cell part)
{
    for (int32_t f = 0; f < FACTORS; f++)
        for (int8_t v = 0; part.value[f] < 0 || v > 0;) {
            part.value[f] = v++;
            if (!forbids(&part))
                break;
            if (v == dimensions[f].count)
                return false;
        }
    return true;
}

static int64_t count_missing(struct tuples *tuples, const struct cell *cell, const int32_t *factor,
                             bool take)
{
    (void)cell, (void)take;
    int64_t count = 0;
    uint64_t *seen = seen_of(tuples, factor);
    struct cell part;
    for (int64_t i = 0; i < VALUES_MAX * VALUES_MAX * VALUES_MAX; i++) {
        const int8_t value[3] = {(int8_t)(i / (VALUES_MAX * VALUES_MAX)),
                                 (int8_t)(i / VALUES_MAX % VALUES_MAX), (int8_t)(i % VALUES_MAX)};
        bool exists = factor[1] != factor[2] || value[1] == value[2];
        memset(part.value, -1, sizeof part.value);
        for (int32_t k = 0; k < 3; k++) {
            exists = exists && value[k] < dimensions[factor[k]].count;
            part.value[factor[k]] = value[k];
        }
        exists = exists && completes(part);
        count += exists;
        *seen |= exists ? 0 : UINT64_C(1) << i;
    }
    return count;
}

static int64_t count_new(struct tuples *tuples, const struct cell *cell, const int32_t *factor,
                         bool take)
{
    uint64_t *seen = seen_of(tuples, factor);
    const uint64_t bit = UINT64_C(1) << bit_of(cell->value, factor);
    const bool found = !(*seen & bit);
    if (take)
        *seen |= bit;
    return found;
}

static void draw_cell(uint64_t *seed, struct cell *cell)
{
    do
        for (int32_t f = 0; f < FACTORS; f++) {
            *seed = gpt_mix(*seed + 0x9E3779B97F4A7C15u);
            cell->value[f] = (int8_t)(*seed % (uint64_t)dimensions[f].count);
        }
    while (forbids(cell));
}

/* Greedy: of some random cells the one that adds most. */
static int32_t make_covering_array(uint64_t seed, int32_t strength, struct cell *cells)
{
    static struct tuples tuples;
    int32_t count = 0;
    memset(&tuples, 0, sizeof tuples);
    tuples.strength = strength;
    tuples.missing = (int32_t)each_set(&tuples, NULL, false, count_missing);
    while (tuples.missing > 0) {
        struct cell best = {{0}}, cell;
        int64_t most = 0;
        for (int32_t i = 0; i < TRIES || most == 0; i++) {
            draw_cell(&seed, &cell);
            const int64_t found = each_set(&tuples, &cell, false, count_new);
            if (found > most) {
                most = found;
                best = cell;
            }
        }
        tuples.missing -= (int32_t)each_set(&tuples, &best, true, count_new);
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

static void cell_options(const struct cell *cell, char *text, size_t bytes)
{
    const bool stage3 = cell->value[STAGE] == 3, exact = cell->value[REDUCTION] == 0;
    static const char *const types[] = {"", ",\"bf16\":{\"enabled\":true}",
                                        ",\"fp16\":{\"enabled\":true,\"initial_scale_power\":8}"};
    char offload[400] = "", device[160], splits[80] = "";
    snprintf(device, sizeof device, "{\"device\":\"%s\",\"nvme_path\":\"%s\",\"buffer_count\":4}",
             value_of(cell, OFFLOAD), folder);
    if (cell->value[OFFLOAD])
        snprintf(offload, sizeof offload, ",\"offload_optimizer\":%s%s%s", device,
                 stage3 ? ",\"offload_param\":" : "", stage3 ? device : "");
    if (exact)
        snprintf(splits, sizeof splits, ",\"exact_splits\":{\"tensor\":%d,\"sequence\":%d}", SPLITS,
                 SPLITS);
    snprintf(text, bytes,
             "\"reduction\":\"%s\"%s,\"gradient_clipping\":0.5,\"packed_weights\":%s%s%s,"
             "\"zero_optimization\":{\"stage\":%s,\"reduce_bucket_size\":3000,"
             "\"allgather_bucket_size\":3000,\"sub_group_size\":2000%s%s}",
             value_of(cell, REDUCTION), splits, value_of(cell, PACKED), types[cell->value[DTYPE]],
             exact ? "" : ",\"hashes\":true", value_of(cell, STAGE),
             stage3 ? ",\"stage3_param_persistence_threshold\":0" : "", offload);
}

/* A rank of a cell: its mesh, its engine, the steps. */
static bool train_on_mesh(struct gpt_seat *seat)
{
    const struct gpt_run *run = seat->run;
    const struct cell *cell = run->user;
    const bool piped = cell->value[PIPELINE] > 0;
    shoal_mesh *mesh = NULL;
    char text[2048];
    gpt_config_text(run, text, sizeof text);
    EXPECT(gpt_make_model(run, &seat->model) == SHOAL_OK);
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group,
                                                .tensor = number_of(cell, TENSOR),
                                                .pipeline = number_of(cell, PIPELINE),
                                                .data = number_of(cell, DATA)},
                             &mesh) == SHOAL_OK);
    EXPECT(shoal_engine_create(
               &(shoal_engine_args){.model = seat->model,
                                    .config_text = text,
                                    .mesh = mesh,
                                    .output_path = run->output_path,
                                    .seed = run->seed,
                                    .threads = run->threads,
                                    .accelerator = run->accelerator,
                                    .recompute_granularity = run->recompute,
                                    .sequence_parallel = cell->value[SEQUENCE] == 1,
                                    .pipeline_schedule = piped ? value_of(cell, SCHEDULE) : NULL,
                                    .virtual_stages = number_of(cell, CHUNKS)},
               &seat->engine) == SHOAL_OK);
    const bool trained = gpt_train(seat);
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return trained;
}

static void run_cell(const struct cell *cell, const char *output_path)
{
    char options[1024];
    cell_options(cell, options, sizeof options);
    gpt_run_ranks((struct gpt_run){.ranks = number_of(cell, TENSOR) * number_of(cell, PIPELINE) *
                                            number_of(cell, DATA),
                                   .processes = cell->value[BACKEND] == 1,
                                   .accelerator = value_of(cell, ACCELERATOR),
                                   .recompute = cell->value[RECOMPUTE] ? "full" : NULL,
                                   .micro_batches = MICRO_BATCHES,
                                   .layers = LAYERS,
                                   .fused = cell->value[FUSION] == 1,
                                   .options = options,
                                   .dropout = 0.1,
                                   .output_path = output_path,
                                   .steps = steps,
                                   .run = train_on_mesh,
                                   .user = (void *)(uintptr_t)cell},
                  seats);
}

/* The folder of a run's hashes. */
static void output_of(const struct cell *cell, const char *who, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s-%s-%s", folder, who, value_of(cell, DTYPE),
             value_of(cell, FUSION));
}

/* What one rank makes of the same, trained when it is asked for first. */
static const struct gpt_seat *reference_of(const struct cell *cell)
{
    struct gpt_seat *kept =
        &reference[cell->value[DTYPE]][cell->value[REDUCTION]][cell->value[FUSION]];
    struct cell plain = {{0}};
    char path[128];
    if (kept->steps_done)
        return kept;
    plain.value[SCHEDULE] = 1;
    plain.value[DTYPE] = cell->value[DTYPE];
    plain.value[REDUCTION] = cell->value[REDUCTION];
    plain.value[FUSION] = cell->value[FUSION];
    output_of(cell, "one", path, sizeof path);
    run_cell(&plain, path);
    *kept = seats[0];
    return kept;
}

static void drop_hashes(const char *path)
{
    char file[160];
    snprintf(file, sizeof file, "%s/hashes.jsonl", path);
    remove(file);
    rmdir(path);
}

static void check_rounding(const struct cell *cell, const char *name, const char *path)
{
    char *text = NULL, one[128];
    shoal_diff_verdict verdict;
    output_of(cell, "one", one, sizeof one);
    assert_int_equal(shoal_diff(one, path, &text, &verdict), SHOAL_OK);
    if (verdict == SHOAL_DIFF_REAL)
        fail_msg("%s: differs from one rank by more than rounding:\n%s", name, text);
    free(text);
}

static void compare_cell(const struct cell *cell)
{
    char name[400], path[128];
    const struct gpt_seat *expected = reference_of(cell);
    const int32_t ranks =
        number_of(cell, TENSOR) * number_of(cell, PIPELINE) * number_of(cell, DATA);
    cell_name(cell, name, sizeof name);
    if (getenv("SHOAL_TEST_VERBOSE"))
        printf("%s\n", name);
    output_of(cell, "cell", path, sizeof path);
    run_cell(cell, path);
    if (cell->value[REDUCTION] == 0)
        gpt_assert_same(seats, ranks, expected, name);
    else
        check_rounding(cell, name, path);
    drop_hashes(path);
}

/* A cell as cell_name says it. */
static void read_cell(const char *text, struct cell *cell)
{
    const int32_t one_f_one_b = 1;
    char part[64];
    int length;
    *cell = (struct cell){.value = {[SCHEDULE] = one_f_one_b}};
    for (; sscanf(text, " %63[^,]%n", part, &length) == 1; text += length + (text[length] == ',')) {
        bool found = false;
        for (int32_t f = 0; f < FACTORS; f++)
            for (int8_t v = 0; v < dimensions[f].count; v++) {
                char word[64];
                snprintf(word, sizeof word, "%s %s", dimensions[f].name, dimensions[f].value[v]);
                if (strcmp(word, part) == 0) {
                    cell->value[f] = v;
                    found = true;
                }
            }
        if (!found)
            fail_msg("SHOAL_TEST_CELL: there is no \"%s\"", part);
    }
    if (forbids(cell))
        fail_msg("SHOAL_TEST_CELL: arithmetic forbids it");
}

static void test_everything_together(void **state)
{
    (void)state;
    static struct cell cells[CELLS_MAX];
    const uint64_t seed = 20261122;
    const char *full = getenv("SHOAL_TEST_FULL");
    const bool triples = full && *full;
    int from = 0, to = INT32_MAX;
    assert_true(!triples || strcmp(full, "1") == 0 || sscanf(full, "%d-%d", &from, &to) == 2);
    const int32_t count = make_covering_array(seed, triples ? 3 : 2, cells);
    int part = 1, parts = 1;
    const char *given = getenv("SHOAL_TEST_PART");
    assert_true(!given ||
                (sscanf(given, "%d/%d", &part, &parts) == 2 && part > 0 && part <= parts));
    const char *one = getenv("SHOAL_TEST_CELL");
    const int32_t every = triples ? 1 : EVERY;
    int32_t tried = 0;
    if (one) {
        read_cell(one, &cells[0]);
        from = 0;
        to = 1;
    }
    for (int32_t i = from + (part - 1) * every; i < count && i < to; i += every * parts, tried++)
        compare_cell(&cells[i]);
    printf("covering array of every %s (seed %llu): %d of %d cells of %d steps\n",
           triples ? "triple" : "pair", (unsigned long long)seed, (int)tried, (int)count,
           (int)steps);
    for (int8_t d = 0; d < 3; d++)
        for (int8_t f = 0; f < 2; f++) {
            char path[128];
            const struct cell cell = {.value = {[DTYPE] = d, [FUSION] = f}};
            output_of(&cell, "one", path, sizeof path);
            drop_hashes(path);
        }
}

static int make_folder(void **state)
{
    (void)state;
    setenv("SHOAL_SIM_BYTES", "268435456", 1);
    if (getenv("SHOAL_SIM_STREAMS"))
        steps = STREAM_STEPS;
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_everything_together)};
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
