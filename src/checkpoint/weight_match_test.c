/* Which tensor of a folder is which of a model: names as others spell them, padded vocabularies,
 * tied tensors, what is passed over, and the one sentence about everything else. */
#include "checkpoint/weight_folder.h"

#include "base/fault.h"
#include "base/test_cmocka.h"
#include "base/test_folder.h"

#include <sys/stat.h>
#include <unistd.h>

enum { TENSORS_MAX = 16 };
/* Half of a piece and a little: tied tensors are compared in two reads. */
enum { LARGE = SHOALI_WEIGHT_PIECE_BYTES / 8 + 5 };

/* ---- a folder -------------------------------------------------------------------------------- */

struct stored {
    const char *name;
    shoal_shape shape;
    int64_t other; /* an element that is 1 more; 0: none */
};

static shoal_status read_numbers(void *user, int32_t tensor, int64_t first, int64_t count,
                                 void *out)
{
    const struct stored *stored = user;
    for (int64_t i = 0; i < count; i++)
        ((float *)out)[i] = (float)((first + i) % 251) +
                            (stored[tensor].other && first + i == stored[tensor].other);
    return SHOAL_OK;
}

static void open_folder(struct stored *stored, int32_t count, struct shoali_weight_folder *opened)
{
    const char *names[TENSORS_MAX];
    shoal_shape shapes[TENSORS_MAX];
    char path[128];
    struct shoali_weight_output output = {0};
    for (int32_t i = 0; i < count; i++) {
        names[i] = stored[i].name;
        shapes[i] = stored[i].shape;
    }
    assert_int_equal(remove_folder(NULL), 0);
    void *made;
    assert_int_equal(make_folder(&made), 0);
    snprintf(path, sizeof path, "%s/weights", folder);
    ok(shoali_weight_output_begin(&output, path));
    ok(shoali_weight_output_end(
        &output,
        shoali_weight_write(&output, &(struct shoali_weight_write_args){.names = names,
                                                                        .shapes = shapes,
                                                                        .count = count,
                                                                        .dtype = SHOAL_F32,
                                                                        .user = stored,
                                                                        .read = read_numbers})));
    ok(shoali_weight_folder_open(opened, path));
}

static const char *name_of(const struct shoali_weight_folder *opened, int32_t found)
{
    return found < 0 ? "none" : opened->tensor[found].weight->name;
}

static void assert_says(shoal_status status, const char *sentence)
{
    assert_int_equal(status, SHOAL_EINVAL);
    if (!strstr(shoal_error_message(), sentence))
        fail_msg("\"%s\", not \"%s\"", shoal_error_message(), sentence);
}

/* ---- names ----------------------------------------------------------------------------------- */

static const shoal_shape two = {1, {2}};

/* {ours, theirs}: the same two tensors in each. */
static void test_spellings(void **state)
{
    static const struct {
        const char *ours[2], *theirs[2];
    } cases[] = {
        {{"h.0.w", "h.1.w"}, {"h.0.w", "h.1.w"}},
        {{"transformer.h.0.w", "transformer.h.1.w"}, {"h.0.w", "h.1.w"}},
        {{"model.a", "lm_head.b"}, {"a", "lm_head.b"}},
        {{"bert.a", "cls.b"}, {"a", "cls.b"}},
        {{"a", "b"}, {"module.a", "module.b"}},
        {{"a", "b"}, {"_orig_mod.a", "_orig_mod.b"}},
        {{"h.0.w", "h.1.w"}, {"transformer.h.0.w", "transformer.h.1.w"}},
        {{"a", "b"}, {"model.a", "model.b"}},
        {{"a.LayerNorm.weight", "a.LayerNorm.bias"}, {"a.LayerNorm.gamma", "a.LayerNorm.beta"}},
        {{"bert.LayerNorm.weight", "bert.b"}, {"LayerNorm.gamma", "b"}},
        {{"a", "LayerNorm.bias"}, {"module.a", "module.LayerNorm.beta"}},
    };
    const shoal_shape shapes[2] = {two, two};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct shoali_weight_folder opened;
        struct stored stored[2] = {{cases[c].theirs[0], two, 0}, {cases[c].theirs[1], two, 0}};
        int32_t found[2];
        open_folder(stored, 2, &opened);
        ok(shoali_weight_match(
            &opened,
            &(struct shoali_weight_want){.names = cases[c].ours, .shapes = shapes, .count = 2},
            found));
        for (int32_t i = 0; i < 2; i++)
            assert_string_equal(name_of(&opened, found[i]), cases[c].theirs[i]);
        shoali_weight_folder_close(&opened);
    }
}

/* One decision for the whole folder, the one that finds most; of equals the first. */
static void test_one_spelling(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    const shoal_shape shapes[] = {two, two, two};
    struct stored most[] = {{"a", two, 0}, {"module.b", two, 0}, {"module.c", two, 0}};
    struct stored even[] = {{"a", two, 0}, {"module.b", two, 0}};
    struct shoali_weight_want want = {.names = names, .shapes = shapes, .count = 3};
    struct shoali_weight_folder opened;
    int32_t found[3];
    (void)state;
    open_folder(most, 3, &opened);
    assert_says(shoali_weight_match(&opened, &want, found), ": missing `a`, extra `a`");
    want.not_strict = want.quiet = true;
    ok(shoali_weight_match(&opened, &want, found));
    assert_string_equal(name_of(&opened, found[0]), "none");
    assert_string_equal(name_of(&opened, found[2]), "module.c");
    shoali_weight_folder_close(&opened);
    open_folder(even, 2, &opened);
    want.count = 2;
    want.not_strict = false;
    assert_says(shoali_weight_match(&opened, &want, found), ": missing `b`, extra `module.b`");
    shoali_weight_folder_close(&opened);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void test_vocabulary(void **state)
{
    static const char *const names[] = {"w"};
    static const struct {
        shoal_shape stored, wanted;
        int64_t rows;
        bool fits;
    } cases[] = {
        {{2, {31, 4}}, {2, {31, 4}}, 0, true},   {{2, {31, 4}}, {2, {32, 4}}, 31, true},
        {{2, {31, 4}}, {2, {30, 4}}, 31, true},  {{2, {31, 4}}, {2, {32, 4}}, 0, false},
        {{2, {31, 4}}, {2, {32, 4}}, 30, false}, {{2, {31, 4}}, {2, {32, 5}}, 31, false},
        {{2, {31, 4}}, {1, {124}}, 31, false},   {{1, {31}}, {1, {32}}, 31, true},
        {{1, {124}}, {2, {31, 4}}, 124, false},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct shoali_weight_folder opened;
        struct stored stored[] = {{"w", cases[c].stored, 0}};
        int32_t found[1];
        open_folder(stored, 1, &opened);
        struct shoali_weight_want want = {
            .names = names, .shapes = &cases[c].wanted, .count = 1, .vocab_rows = cases[c].rows};
        if (cases[c].fits) {
            ok(shoali_weight_match(&opened, &want, found));
        } else {
            assert_says(shoali_weight_match(&opened, &want, found), ": of another shape `w` (is [");
            want.not_strict = true; /* it is there, and cannot be taken */
            assert_says(shoali_weight_match(&opened, &want, found), ": of another shape `w` (is [");
        }
        shoali_weight_folder_close(&opened);
    }
}

/* ---- what is left ---------------------------------------------------------------------------- */

/* Buffers and heads that a model may do without are no mistake. */
static void test_passed_over(void **state)
{
    static const char *const names[] = {"w"};
    struct stored stored[] = {{"w", two, 0},
                              {"h.0.attn.bias", two, 0},
                              {"h.0.attn.masked_bias", two, 0},
                              {"l.rotary_emb.inv_freq", two, 0},
                              {"l.rotary_emb.cos_cached", two, 0},
                              {"l.rotary_emb.sin_cached", two, 0},
                              {"e.position_ids", two, 0},
                              {"e.token_type_ids", two, 0},
                              {"cls.predictions.decoder.bias", two, 0},
                              {"bert.pooler.dense.weight", two, 0},
                              {"cls.seq_relationship.weight", two, 0}};
    struct stored more[] = {{"w", two, 0}, {"h.0.attn.bias2", two, 0}};
    struct shoali_weight_want want = {.names = names, .shapes = &two, .count = 1};
    struct shoali_weight_folder opened;
    int32_t found[1];
    (void)state;
    open_folder(stored, sizeof stored / sizeof stored[0], &opened);
    ok(shoali_weight_match(&opened, &want, found));
    assert_string_equal(name_of(&opened, found[0]), "w");
    shoali_weight_folder_close(&opened);
    open_folder(more, 2, &opened);
    assert_says(shoali_weight_match(&opened, &want, found), ": extra `h.0.attn.bias2`");
    shoali_weight_folder_close(&opened);
}

/* Eight are listed. */
static void test_many(void **state)
{
    static const char *const names[] = {"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"};
    shoal_shape shapes[10];
    struct stored stored[] = {{"w", two, 0}};
    struct shoali_weight_folder opened;
    int32_t found[10];
    (void)state;
    for (int i = 0; i < 10; i++)
        shapes[i] = two;
    open_folder(stored, 1, &opened);
    struct shoali_weight_want want = {.names = names, .shapes = shapes, .count = 7};
    assert_says(shoali_weight_match(&opened, &want, found), "`a5`, missing `a6`, extra `w`");
    assert_null(strstr(shoal_error_message(), "more"));
    want.count = 10;
    assert_says(shoali_weight_match(&opened, &want, found), "`a6`, missing `a7` and 3 more");
    shoali_weight_folder_close(&opened);
}

/* ---- tied tensors ---------------------------------------------------------------------------- */

static const struct shoali_checkpoint_alias alias = {.name = "head", .primary = "embed"};

static void test_tied(void **state)
{
    static const char *const names[] = {"embed", "w"};
    const shoal_shape shapes[] = {two, two};
    struct stored both[] = {{"embed", two, 0}, {"head", two, 0}, {"w", two, 0}};
    struct stored other[] = {{"head", two, 0}, {"w", two, 0}};
    struct shoali_weight_want want = {
        .names = names, .shapes = shapes, .count = 2, .aliases = &alias, .alias_count = 1};
    struct shoali_weight_folder opened;
    int32_t found[2];
    (void)state;
    open_folder(both, 3, &opened); /* of the two, the first name */
    ok(shoali_weight_match(&opened, &want, found));
    assert_string_equal(name_of(&opened, found[0]), "embed");
    ok(shoali_weight_compare_tied(&opened, &want, found));
    want.alias_count = 0;
    assert_says(shoali_weight_match(&opened, &want, found), ": extra `head`");
    shoali_weight_folder_close(&opened);
    open_folder(other, 2, &opened); /* the only name that is there */
    want.alias_count = 1;
    ok(shoali_weight_match(&opened, &want, found));
    assert_string_equal(name_of(&opened, found[0]), "head");
    ok(shoali_weight_compare_tied(&opened, &want, found));
    want.alias_count = 0;
    assert_says(shoali_weight_match(&opened, &want, found), ": missing `embed`, extra `head`");
    shoali_weight_folder_close(&opened);
}

/* A difference anywhere, also in what is read last; whichever of the two a folder has first. */
static void compare_large(const char *second, int64_t count, int64_t place)
{
    static const char *const names[] = {"embed"};
    const shoal_shape large = {1, {LARGE}};
    const struct shoali_checkpoint_alias tied = {.name = second, .primary = "embed"};
    const struct shoali_weight_want want = {
        .names = names, .shapes = &large, .count = 1, .aliases = &tied, .alias_count = 1};
    struct stored stored[] = {{"embed", large, 0}, {second, {1, {count}}, place}};
    struct shoali_weight_folder opened;
    char sentence[64];
    int32_t found[1];
    snprintf(sentence, sizeof sentence, "`embed` and `%s` differ", second);
    open_folder(stored, 2, &opened);
    ok(shoali_weight_match(&opened, &want, found));
    const shoal_status status = shoali_weight_compare_tied(&opened, &want, found);
    if (place == 0 && count == LARGE)
        ok(status);
    else
        assert_says(status, sentence);
    shoali_weight_folder_close(&opened);
}

static void test_tied_that_differ(void **state)
{
    static const int64_t places[] = {1, LARGE - 6, LARGE - 5, LARGE - 1, 0};
    (void)state;
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
        compare_large("head", LARGE, places[p]);
        compare_large("aligned", LARGE, places[p]);
    }
    compare_large("head", LARGE - 1, 0);
}

/* ---- the folder to write -------------------------------------------------------------------- */

/* An empty folder becomes the new one; what is in another one stays. */
static void test_output_that_is_there(void **state)
{
    (void)state;
    char path[128], inside[140];
    struct shoali_weight_output output;
    snprintf(path, sizeof path, "%s/out", folder);
    snprintf(inside, sizeof inside, "%s/precious", path);
    assert_int_equal(mkdir(path, 0700), 0);
    ok(shoali_weight_output_begin(&output, path));
    ok(shoali_weight_output_file(&output, "config.json", "{}", 2));
    ok(shoali_weight_output_end(&output, SHOAL_OK));
    ok(shoali_write_file_atomic(inside, "text", 4));
    const shoal_status status = shoali_weight_output_begin(&output, path);
    assert_int_equal(shoali_weight_output_end(&output, status), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "/out exists: name a folder that does not"));
    assert_int_equal(access(inside, F_OK), 0);
}

/* Short of memory is no folder without weights. */
static void test_open_short_memory(void **state)
{
    (void)state;
    char path[128], spec[32];
    struct stored stored[] = {{"a", two, 0}};
    struct shoali_weight_folder opened;
    bool fired = true;
    open_folder(stored, 1, &opened);
    shoali_weight_folder_close(&opened);
    snprintf(path, sizeof path, "%s/weights", folder);
    for (int32_t skip = 0; fired; skip++) {
        snprintf(spec, sizeof spec, "alloc:%d", (int)skip);
        assert_true(shoali_fault_arm(spec));
        const shoal_status status = shoali_weight_folder_open(&opened, path);
        fired = shoali_fault_left() < 0;
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(status, fired ? SHOAL_ENOMEM : SHOAL_OK);
        shoali_weight_folder_close(&opened);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_one_spelling),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_passed_over),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_tied),
        cmocka_unit_test(test_tied_that_differ),
        cmocka_unit_test(test_output_that_is_there),
        cmocka_unit_test(test_open_short_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
