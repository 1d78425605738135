/* Fingerprints do not depend on order or cut; files are read back; differences are named and
 * judged. */
#include "base/test_cmocka.h"
#include "monitor/hashes.h"
#include "monitor/monitor.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COUNT = 5000 };
static char folder[2][64];

static int make_folders(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        strcpy(folder[i], "/tmp/shoal-hashes-XXXXXX");
        if (!mkdtemp(folder[i]))
            return -1;
    }
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/" SHOALI_HASHES_FILE, folder[i]);
        unlink(path);
        if (rmdir(folder[i]) != 0)
            return -1;
    }
    return 0;
}

/* ---- fingerprints ---------------------------------------------------------------------------- */

static void fill(float *values, uint64_t seed, bool wild)
{
    const struct shoali_stream stream = shoali_stream_make(seed, "test", "values", 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        const uint64_t word = shoali_random_below(&stream, i, (uint64_t)1 << 32);
        const uint32_t bits = (uint32_t)word;
        if (wild) /* every bit pattern: subnormals, infinities, NaN */
            memcpy(&values[i], &bits, sizeof bits);
        else
            values[i] = (float)((double)word * 0x1p-31 - 1) * 0.02f;
    }
}

static struct shoali_hash fingerprint(const float *values, int64_t count)
{
    struct shoali_fingerprint sums = {0};
    struct shoali_hash hash;
    int64_t largest = 0;
    shoali_fingerprint_add(&sums, &largest, 0, values, count);
    shoali_fingerprint_finish(&sums, largest, &hash);
    return hash;
}

/* Cut at random places, held by three ranks, added in another order. */
static void test_any_cut(void **state)
{
    (void)state;
    static float values[COUNT];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        fill(values, seed, seed % 2);
        const struct shoali_hash whole = fingerprint(values, COUNT);
        const struct shoali_stream stream = shoali_stream_make(seed, "test", "cuts", 0);
        struct shoali_fingerprint rank[3] = {{0}};
        int64_t largest[3] = {0};
        uint64_t draw = 0;
        for (int64_t end = COUNT; end > 0;) {
            const int64_t begin = (int64_t)shoali_random_below(&stream, draw++, (uint64_t)end);
            const uint64_t r = shoali_random_below(&stream, draw++, 3);
            shoali_fingerprint_add(&rank[r], &largest[r], begin, values + begin, end - begin);
            end = begin;
        }
        uint64_t *sum = (uint64_t *)&rank[0];
        for (int r = 1; r < 3; r++) {
            for (int64_t w = 0; w < SHOALI_FINGERPRINT_WORDS; w++)
                sum[w] += ((const uint64_t *)&rank[r])[w];
            largest[0] = largest[r] > largest[0] ? largest[r] : largest[0];
        }
        struct shoali_hash parts;
        shoali_fingerprint_finish(&rank[0], largest[0], &parts);
        if (memcmp(&parts, &whole, sizeof whole) != 0)
            fail_msg("seed %llu: the parts' fingerprint is another", (unsigned long long)seed);
    }
}

static void flip(float *value, int bit)
{
    uint32_t word;
    memcpy(&word, value, sizeof word);
    word ^= (uint32_t)1 << bit;
    memcpy(value, &word, sizeof word);
}

/* Any bit, and any two elements that change places, change the hash. */
static void test_every_bit_counts(void **state)
{
    (void)state;
    static float values[COUNT];
    fill(values, 5, true);
    const uint64_t hash = fingerprint(values, COUNT).hash;
    for (int i = 0; i < 64; i++) {
        flip(&values[i * 77], i % 32);
        assert_true(fingerprint(values, COUNT).hash != hash);
        flip(&values[i * 77], i % 32);
        const float kept = values[i];
        values[i] = values[i + 1];
        values[i + 1] = kept;
        assert_true(fingerprint(values, COUNT).hash != hash);
        values[i + 1] = values[i];
        values[i] = kept;
    }
    assert_true(fingerprint(values, COUNT).hash == hash);
}

static void test_numbers(void **state)
{
    (void)state;
    static float values[COUNT];
    double square = 0, largest = 0;
    fill(values, 3, false);
    for (int i = 0; i < COUNT; i++) {
        square += (double)values[i] * (double)values[i];
        largest = fmax(largest, fabs((double)values[i]));
    }
    struct shoali_hash hash = fingerprint(values, COUNT);
    assert_true(fabs(hash.norm - sqrt(square)) <= 0x1p-22 * sqrt(square));
    assert_true(hash.largest == largest && hash.nonfinite == 0);
    values[7] = NAN;
    values[8] = -INFINITY;
    values[9] = -3e38f;
    hash = fingerprint(values, COUNT);
    assert_int_equal(hash.nonfinite, 2);
    assert_true(hash.largest == (double)3e38f && isfinite(hash.norm));
    /* all-zero and empty tensors */
    hash = fingerprint(values, 0);
    assert_true(hash.hash == 0 && hash.norm == 0 && hash.largest == 0);
}

static double distance(const struct shoali_hash *a, const struct shoali_hash *b)
{
    double sum = 0;
    for (int i = 0; i < SHOALI_SKETCH_COUNTERS; i++)
        sum += (a->sketch[i] - b->sketch[i]) * (a->sketch[i] - b->sketch[i]);
    return sqrt(sum);
}

/* The sketches' distance is that of the tensors: within a factor of 3 for dense differences (chi^2
 * of 8 degrees is outside [8/9, 72] once in 10^3), exactly for one element. */
static void test_sketches(void **state)
{
    (void)state;
    static float a[COUNT], b[COUNT], noise[COUNT];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        double square = 0;
        fill(a, seed, false);
        fill(noise, 100 + seed, false);
        for (int i = 0; i < COUNT; i++) {
            b[i] = a[i] + 1e-4f * noise[i];
            square += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        }
        const struct shoali_hash x = fingerprint(a, COUNT), y = fingerprint(b, COUNT);
        const double ratio = distance(&x, &y) / sqrt(square);
        if (!(ratio > 1. / 3 && ratio < 3))
            fail_msg("seed %llu: the sketches' distance is %g times the true one",
                     (unsigned long long)seed, ratio);
        memcpy(b, a, sizeof b);
        b[seed] = nextafterf(a[seed], 1);
        const struct shoali_hash z = fingerprint(b, COUNT);
        const double one = fabs((double)b[seed] - (double)a[seed]);
        assert_true(fabs(distance(&x, &z) - one) <= 1e-6 * one);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

enum { TENSORS = 3 };
static const struct shoali_hashes_facts facts = {.dtype = "F32",
                                                 .kernels = "ref",
                                                 .micro_batches = 4,
                                                 .tensors = TENSORS,
                                                 .elements = TENSORS * COUNT};

static int64_t tensor_splits[2]; /* of the runs */

/* What run `run` has of one tensor: the noise begins at step `from`, where that tensor is changed.
 */
struct plot {
    int64_t steps, from;
    const char *kind, *tensor;
    float noise;
    double loss, lr;   /* added to the loss and lr from that step on */
    const char *dtype; /* from that step on; NULL: that of the facts */
};

static void append_tensor(struct shoali_str *text, const struct plot *plot, int64_t step,
                          const char *kind, const char *tensor)
{
    static float values[COUNT];
    fill(values, (uint64_t)(step * 100 + kind[0] + tensor[0]), false);
    for (int i = 0; step >= plot->from && strcmp(kind, plot->kind) == 0 &&
                    strcmp(tensor, plot->tensor) == 0 && i < COUNT;
         i++)
        values[i] *= 1 + plot->noise;
    const struct shoali_hash hash = fingerprint(values, COUNT);
    shoali_hashes_append_tensor(text, step, kind, tensor, COUNT, &hash);
}

static void write_step(int side, const struct plot *plot, int64_t step, bool fresh)
{
    static const char *const kinds[] = {"gradient", "exp_avg", "weight"};
    static const char *const names[TENSORS] = {"a", "b", "c\"d"};
    struct shoali_str text = {0};
    for (int t = 0; step == 1 && t < TENSORS; t++)
        append_tensor(&text, plot, step, "start", names[t]);
    const bool late = step >= plot->from;
    shoali_hashes_append_step(&text, &(struct shoali_hashes_step){
                                         .step = step,
                                         .dtype = late && plot->dtype ? plot->dtype : facts.dtype,
                                         .loss = 3 + (late ? plot->loss : 0),
                                         .grad_norm = 1.2,
                                         .lr = 0.01 + (late ? plot->lr : 0),
                                         .loss_scale = 1,
                                         .applied = true});
    for (int k = 0; k < 3; k++)
        for (int t = 0; t < TENSORS; t++)
            append_tensor(&text, plot, step, kinds[k], names[t]);
    struct shoali_hashes_facts own = facts;
    own.tensor_splits = tensor_splits[side];
    assert_int_equal(shoali_hashes_write(folder[side], fresh, &own, &text), SHOAL_OK);
    shoali_str_fini(&text);
}

static const struct plot quiet = {.steps = 4, .from = 100, .kind = "", .tensor = ""};

static void write_run(int side, const struct plot *plot)
{
    for (int64_t step = 1; step <= plot->steps; step++)
        write_step(side, plot, step, step == 1);
}

static void expect(bool equal, bool rounding, const char *sentence)
{
    char path[2][160];
    struct shoali_str out = {0};
    struct shoali_hashes_verdict verdict;
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/" SHOALI_HASHES_FILE, folder[i]);
    assert_int_equal(shoali_hashes_diff(path[0], path[1], &out, &verdict), SHOAL_OK);
    if (!strstr(out.text, sentence) || verdict.equal != equal || verdict.rounding != rounding)
        fail_msg("expected %d %d \"%s\", found %d %d: %s", equal, rounding, sentence, verdict.equal,
                 verdict.rounding, out.text);
    shoali_str_fini(&out);
}

static void test_equal_runs(void **state)
{
    (void)state;
    write_run(0, &quiet);
    write_run(1, &quiet);
    expect(true, false, "equal: every bit of 4 steps");
    struct plot longer = quiet;
    longer.steps = 6;
    write_run(1, &longer);
    expect(true, false, "the 4 steps in both; ");
    /* steps done again after a resume replace what was there */
    const struct plot wrong = {
        .steps = 4, .from = 3, .kind = "weight", .tensor = "b", .noise = 0.1f};
    write_run(1, &wrong);
    expect(false, false, "step 3, weight of `b`");
    write_step(1, &quiet, 3, false);
    write_step(1, &quiet, 4, false);
    expect(true, false, "equal: every bit of 4 steps");
}

static void test_differences(void **state)
{
    (void)state;
    static const struct {
        struct plot plot;
        bool rounding;
        const char *sentence;
    } cases[] = {
        {{4, 1, "start", "b", 1e-7f, 0, 0, NULL}, false, "before step 1, weight of `b`"},
        {{4, 3, "gradient", "a", 2e-7f, 0, 0, NULL}, true, "step 3, gradient of `a`"},
        {{4, 3, "gradient", "c\"d", 1e-2f, 0, 0, NULL}, false, "step 3, gradient of `c\"d`"},
        {{4, 2, "exp_avg", "b", 2e-7f, 0, 0, NULL}, true, "step 2, exp_avg of `b`"},
        {{4, 2, "weight", "b", 1e-4f, 0, 0, NULL}, false, "step 2, weight of `b`"},
        {{4, 4, "", "", 0, 1e-7, 0, NULL}, true, "step 4, loss: 3 against 3.0000001"},
        {{4, 4, "", "", 0, 1e-3, 0, NULL}, false, "step 4, loss: 3 against 3.001"},
        {{4, 2, "", "", 0, NAN, 0, NULL}, false, "step 2, loss: 3 against nan"},
        {{4, 2, "", "", 0, 0, 1e-9, NULL}, false, "step 2, the learning rate: not rounding"},
    };
    write_run(0, &quiet);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_run(1, &cases[i].plot);
        expect(false, cases[i].rounding, cases[i].sentence);
    }
}

/* After rounding has begun, a loss moves by |gradient| |difference of the weights|, not by more. */
static void test_later_differences(void **state)
{
    (void)state;
    struct plot plot = {4, 2, "weight", "b", 2e-7f, 0, 0, NULL};
    write_run(0, &quiet);
    write_run(1, &plot);
    expect(false, true, "the runs differ within rounding, from step 2 on");
    write_step(1, &plot, 3, false);
    plot.loss = 1e-7; /* of 1.2 * 1e-7 * norm 0.8, and the loss's own rounding */
    write_step(1, &plot, 4, false);
    expect(false, true, "losses: at most 1e-07 apart, at step 4");
    plot.loss = 1e-4;
    write_step(1, &plot, 4, false);
    expect(false, false, "later: step 4, loss");
    plot.loss = 0;
    plot.lr = 1e-5;
    write_step(1, &plot, 4, false);
    expect(false, false, "later: step 4, the learning rate");
}

static void append_raw(int side, const char *text)
{
    char path[160];
    snprintf(path, sizeof path, "%s/" SHOALI_HASHES_FILE, folder[side]);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void refused(shoal_status status, const char *sentence)
{
    char path[2][160];
    struct shoali_str out = {0};
    struct shoali_hashes_verdict verdict;
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/" SHOALI_HASHES_FILE, folder[i]);
    assert_int_equal(shoali_hashes_diff(path[0], path[1], &out, &verdict), status);
    if (!strstr(shoal_error_message(), sentence))
        fail_msg("no \"%s\" in: %s", sentence, shoal_error_message());
    shoali_str_fini(&out);
}

/* Other logical splits are other sums: that is said, and judged by the type of activations. */
static void test_other_splits(void **state)
{
    (void)state;
    const struct plot plot = {4, 3, "gradient", "a", 1e-4f, 0, 0, "BF16"};
    struct plot quiet16 = quiet;
    quiet16.from = 1;
    quiet16.dtype = "BF16";
    write_run(0, &quiet16);
    struct plot loud = plot;
    loud.from = 1;
    write_run(1, &loud);
    expect(false, false, "more than rounding");
    tensor_splits[1] = 2;
    write_run(1, &loud);
    expect(false, true, "tensor 2, sequence 1: differences are expected");
    tensor_splits[0] = 2;
    write_run(0, &quiet16);
    expect(false, false, "more than rounding");
    tensor_splits[0] = tensor_splits[1] = 0;
}

/* A run that is continued in 16 bits: what follows is judged as such, and said to be. */
static void test_other_types(void **state)
{
    (void)state;
    const struct plot plot = {4, 3, "gradient", "a", 1e-4f, 0, 0, "BF16"};
    struct plot fp32 = plot;
    fp32.dtype = NULL;
    write_run(0, &quiet);
    write_run(1, &plot);
    expect(false, true, "from step 3 on ");
    expect(false, true, " computes in F32 and ");
    write_run(1, &fp32);
    expect(false, false, "step 3, gradient of `a`");
    write_run(0, &plot); /* the same change of type in both is no difference */
    write_run(1, &plot);
    expect(true, false, "equal: every bit of 4 steps");
}

static void test_other_files(void **state)
{
    (void)state;
    char path[160];
    write_run(0, &quiet);
    snprintf(path, sizeof path, "%s/" SHOALI_HASHES_FILE, folder[1]);
    unlink(path);
    refused(SHOAL_EINVAL, "cannot open");
    append_raw(1, "");
    refused(SHOAL_EINVAL, "is no file of hashes");
    append_raw(1, "{\"format\":\"other\"}\n");
    refused(SHOAL_EINVAL, "is no file of hashes");
    write_run(1, &quiet);
    append_raw(1, "{\"step\":5,\"kind\":\"gra"); /* a run that died */
    expect(true, false, "equal: every bit of 4 steps");
    write_run(1, &quiet);
    append_raw(1, "rubbish\n");
    refused(SHOAL_ECORRUPT, "this line cannot be read");
    write_run(1, &quiet);
    append_raw(1, "{\"tensor\":\"a\"}\n");
    refused(SHOAL_ECORRUPT, "`step` is missing, the file is damaged");
    write_step(1, &quiet, 9, true);
    refused(SHOAL_EINVAL, "have no finished step in common");
}

/* Every kind of member, damaged: the file, the line and the member are named. */
static void test_damaged_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *sentence;
    } cases[] = {
        {"\"norm\":", "\"norm\":\"0.3\",\"n\":", "`norm` is \"0.3\""},
        {"\"largest\":", "\"largest\":null,\"l\":", "`largest` is null"},
        {"\"count\":", "\"count\":-", "`count` is -"},
        {"\"hash\":\"", "\"hash\":\"x", "`hash` is \"x"},
        {"\"nonfinite\":0", "\"nonfinite\":0.5", "`nonfinite` is 0.5"},
        {"\"sketch\":[", "\"sketch\":[1,", "`sketch` is [1,"},
        {"\"loss\":", "\"loss\":\"NaN\",\"o\":", "`loss` is \"NaN\""},
        {"\"applied\":true", "\"applied\":1", "`applied` is 1"},
        {"\"micro_batches\":", "\"micro_batches\":\"8\",\"m\":", "`micro_batches` is"},
        {"\"step\":1", "\"step\":0", "`step` is 0"},
    };
    char path[160];
    size_t bytes;
    write_run(0, &quiet);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = NULL;
        write_run(1, &quiet);
        expect(true, false, "equal");
        snprintf(path, sizeof path, "%s/" SHOALI_HASHES_FILE, folder[1]);
        assert_int_equal(shoali_read_file(path, &text, &bytes), SHOAL_OK);
        char *at = strstr(text, cases[i].from);
        assert_non_null(at);
        int line = 1;
        for (const char *c = text; c < at; c++)
            line += *c == '\n';
        char sentence[160];
        snprintf(sentence, sizeof sentence, SHOALI_HASHES_FILE ", line %d: %s", line,
                 cases[i].sentence);
        unlink(path);
        *at = '\0';
        append_raw(1, text);
        append_raw(1, cases[i].to);
        append_raw(1, at + strlen(cases[i].from));
        free(text);
        refused(SHOAL_ECORRUPT, sentence);
    }
}

static long file_bytes(int side)
{
    char path[160];
    struct stat info;
    snprintf(path, sizeof path, "%s/" SHOALI_HASHES_FILE, folder[side]);
    assert_int_equal(stat(path, &info), 0);
    return (long)info.st_size;
}

static void cut(int side, long bytes)
{
    char path[160];
    snprintf(path, sizeof path, "%s/" SHOALI_HASHES_FILE, folder[side]);
    assert_int_equal(truncate(path, bytes), 0);
}

/* A run dies at any byte of its last step: the steps before are compared, and a run that continues
 * it in the same file leaves what an unbroken one leaves. */
static void test_run_that_died(void **state)
{
    (void)state;
    struct plot three = quiet;
    three.steps = 3;
    write_run(0, &quiet);
    write_run(1, &three);
    const long before = file_bytes(1);
    write_step(1, &quiet, 4, false);
    const long after = file_bytes(1);
    for (long bytes = before; bytes < after; bytes += 97) {
        cut(1, bytes);
        expect(true, false, "the 3 steps in both; ");
        write_step(1, &quiet, 4, false);
        expect(true, false, "equal: every bit of 4 steps");
    }
    /* in its first step, or in the weights before it */
    cut(1, 1500);
    refused(SHOAL_EINVAL, "have no finished step in common");
}

/* What the disk does not take is not there in part. */
static void test_full_disk(void **state)
{
    (void)state;
    struct rlimit usual;
    struct shoali_str text = {0};
    write_run(0, &quiet);
    const long before = file_bytes(0);
    append_tensor(&text, &quiet, 5, "gradient", "a");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    const struct rlimit tight = {.rlim_cur = (rlim_t)before + 100, .rlim_max = usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    const shoal_status status = shoali_hashes_write(folder[0], false, &facts, &text);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_int_equal(status, SHOAL_EIO);
    assert_non_null(strstr(shoal_error_message(), folder[0]));
    assert_int_equal(file_bytes(0), before);
    shoali_str_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_sketches),
        cmocka_unit_test_setup_teardown(test_equal_runs, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_differences, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_later_differences, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_other_splits, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_other_types, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_other_files, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_damaged_numbers, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_run_that_died, make_folders, remove_folders),
        cmocka_unit_test_setup_teardown(test_full_disk, make_folders, remove_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
