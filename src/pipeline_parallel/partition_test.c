/* Cuts of models: DeepSpeed's and Megatron's worked examples, properties, mistakes. */
#include "base/test_cmocka.h"
#include "pipeline_parallel/partition.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 40 };

static void assert_begins(const int32_t *begin, int32_t parts, const int32_t *wanted)
{
    for (int32_t i = 0; i <= parts; i++)
        assert_int_equal(begin[i], wanted[i]);
}
#define BEGINS(...) ((const int32_t[]){__VA_ARGS__})

/* Layers of these weights (NULL: equal), cut by their number or by their weight. */
static void assert_parts(enum shoali_partition_method method, int32_t count, const double *weights,
                         int32_t parts, const int32_t *wanted)
{
    struct shoali_partition_layer layers[10] = {{0}};
    const struct shoali_partition_args args = {
        .stages = parts, .chunks = 1, .layers = layers, .layer_count = count, .method = method};
    int32_t begin[8];
    for (int32_t i = 0; weights && i < count; i++)
        layers[i].weight = weights[i];
    assert_int_equal(shoali_partition_make(&args, begin), SHOAL_OK);
    assert_begins(begin, parts, wanted);
}

static void test_uniform(void **state)
{
    (void)state;
    assert_parts(SHOALI_PARTITION_UNIFORM, 10, NULL, 4, BEGINS(0, 3, 6, 8, 10));
    assert_parts(SHOALI_PARTITION_UNIFORM, 3, NULL, 3, BEGINS(0, 1, 2, 3));
    assert_parts(SHOALI_PARTITION_UNIFORM, 7, NULL, 3, BEGINS(0, 3, 5, 7));
}

static void assert_balanced(int32_t count, const double *weights, int32_t parts,
                            const int32_t *wanted)
{
    assert_parts(SHOALI_PARTITION_PARAMETERS, count, weights, parts, wanted);
    assert_parts(SHOALI_PARTITION_FLOPS, count, weights, parts, wanted);
}
#define WEIGHTS(...) ((const double[]){__VA_ARGS__})

static void test_balanced(void **state)
{
    (void)state;
    assert_balanced(6, WEIGHTS(1, 1, 1, 1, 1, 1), 3, BEGINS(0, 2, 4, 6));
    assert_balanced(6, WEIGHTS(0, 5, 5, 5, 5, 0), 2, BEGINS(0, 3, 6));
    assert_balanced(8, WEIGHTS(0, 1, 1, 1, 1, 1, 0, 0), 2, BEGINS(0, 4, 8));
    assert_balanced(6, WEIGHTS(10, 1, 1, 1, 1, 10), 3, BEGINS(0, 1, 5, 6));
    assert_balanced(7, WEIGHTS(4, 2, 3, 3, 1, 7, 2), 3, BEGINS(0, 2, 5, 7));
    assert_balanced(3, WEIGHTS(4, 0, 2), 3, BEGINS(0, 1, 2, 3));
}

/* ---- of a model ----------------------------------------------------------------------------- */

static const struct shoali_partition_layer *model_layers(int32_t decoders)
{
    static struct shoali_partition_layer layers[LAYERS];
    for (int32_t i = 0; i < decoders + 2; i++)
        layers[i] = (struct shoali_partition_layer){.type = "gpt_block", .weight = 10};
    layers[0] = (struct shoali_partition_layer){.type = "gpt_embedding", .weight = 25};
    layers[decoders + 1] = (struct shoali_partition_layer){.type = "gpt_head", .weight = 0};
    return layers;
}

static struct shoali_partition_args args_of(int32_t decoders, int32_t stages, int32_t chunks,
                                            const char *method)
{
    struct shoali_partition_args args = {.stages = stages,
                                         .chunks = chunks,
                                         .layers = model_layers(decoders),
                                         .layer_count = decoders + 2};
    assert_int_equal(shoali_partition_parse(method, &args.method, &args.text), SHOAL_OK);
    return args;
}

static void assert_cut(const struct shoali_partition_args *args, const int32_t *wanted)
{
    int32_t begin[LAYERS];
    assert_int_equal(shoali_partition_make(args, begin), SHOAL_OK);
    assert_begins(begin, args->stages * args->chunks, wanted);
}

static void test_methods(void **state)
{
    (void)state;
    struct shoali_partition_args args = args_of(6, 2, 1, "uniform");
    assert_cut(&args, BEGINS(0, 4, 8));
    args = args_of(6, 2, 1, "Parameters");
    assert_cut(&args, BEGINS(0, 3, 8)); /* 45 and 40 */
    args = args_of(6, 2, 1, "type:BLOCK$");
    assert_cut(&args, BEGINS(0, 4, 8));
    args = args_of(6, 2, 1, "even");
    assert_cut(&args, BEGINS(0, 4, 8));
    args = args_of(16, 4, 2, "even"); /* stage 0: decoder layers 0-1 and 8-9 */
    assert_cut(&args, BEGINS(0, 3, 5, 7, 9, 11, 13, 15, 18));
    args = args_of(6, 4, 1, "even");
    args.embedding = args.loss = true;
    assert_cut(&args, BEGINS(0, 2, 4, 6, 8));
    args = args_of(7, 3, 1, "even");
    args.first = 1;
    args.last = 2;
    assert_cut(&args, BEGINS(0, 2, 6, 9));
    args = args_of(9, 2, 2, "even");
    args.first = 6; /* 3 in each of its chunks */
    args.loss = true;
    assert_cut(&args, BEGINS(0, 4, 6, 9, 11));
}

static void test_parts_of_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t parts;
    } cases[] = {{"EtL", 1}, {"Et*3|(tt|)*2tL", 4}, {"Et|t|t|tL", 4}, {"E|||(t|)*2 L", 6}};
    int32_t parts;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(shoali_partition_layout_parts(cases[i].text, 12, &parts), SHOAL_OK);
        assert_int_equal(parts, cases[i].parts);
    }
    assert_int_equal(shoali_partition_layout_parts("Et|(t", 12, &parts), SHOAL_EINVAL);
    assert_int_equal(shoali_partition_layout_parts("E((|*1000000)*1000000)*1000000L", 12, &parts),
                     SHOAL_EINVAL);
    assert_int_equal(shoali_partition_layout_parts("E((t*1000000)*1000000)*1000000L", 12, &parts),
                     SHOAL_EINVAL);
}

static void test_layouts(void **state)
{
    (void)state;
    struct shoali_partition_args args = args_of(8, 4, 1, "layout:Et*3|(tt|)*2tL");
    assert_cut(&args, BEGINS(0, 4, 6, 8, 10));
    args = args_of(8, 2, 2, "layout:");
    args.chunks = 2;
    args.text = " E,t | t*3, | (t)*4 | L";
    assert_cut(&args, BEGINS(0, 2, 5, 9, 10));
    args.text = "E||t*8|L"; /* an empty stage */
    assert_cut(&args, BEGINS(0, 1, 1, 9, 10));
    args.text = "E((t)*2|)*2(t)*4|L";
    assert_cut(&args, BEGINS(0, 3, 5, 9, 10));
}

/* Whatever the method, every layer is on one stage, in order. */
static void test_all(void **state)
{
    (void)state;
    static const char *const methods[] = {"uniform", "parameters", "flops", "type:block", "even"};
    int32_t begin[LAYERS];
    for (size_t method = 0; method < 5; method++)
        for (int32_t stages = 1; stages <= 6; stages++)
            for (int32_t chunks = 1; chunks <= 3; chunks++) {
                const int32_t parts = stages * chunks;
                const struct shoali_partition_args args =
                    args_of(parts * 2, stages, chunks, methods[method]);
                assert_int_equal(shoali_partition_make(&args, begin), SHOAL_OK);
                assert_int_equal(begin[0], 0);
                assert_int_equal(begin[parts], args.layer_count);
                for (int32_t k = 0; k < parts; k++)
                    assert_true(begin[k] < begin[k + 1]);
            }
}

/* ---- mistakes ------------------------------------------------------------------------------- */

static void assert_refused(const struct shoali_partition_args *args, const char *words)
{
    int32_t begin[LAYERS];
    assert_int_equal(shoali_partition_make(args, begin), SHOAL_EINVAL);
    if (!strstr(shoal_error_message(), words))
        fail_msg("\"%s\" is not in: %s", words, shoal_error_message());
}

static void test_mistakes(void **state)
{
    (void)state;
    enum shoali_partition_method method;
    const char *text;
    assert_int_equal(shoali_partition_parse("profile", &method, &text), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "there is no partition method \"profile\""));
    struct shoali_partition_args args = args_of(1, 4, 1, "uniform");
    assert_refused(&args, "4 stages needs more than 3 layers");
    args = args_of(7, 2, 1, "even");
    assert_refused(&args, "7 layers, without 0 of the first");
    args.first = 8;
    assert_refused(&args, "do not divide");
    args = args_of(2, 4, 1, "even");
    args.embedding = args.loss = true;
    assert_cut(&args, BEGINS(0, 1, 2, 3, 4)); /* one alone with E, one with L */
    args = args_of(4, 2, 1, "type:nothing");
    assert_refused(&args, "matches no layer");
    args.text = "(";
    assert_refused(&args, "type:(");
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"Ettt|tL", "has 4 layers t, the model has 8"},
        {"Et*8L", "has 1 stages; 2 are wanted"},
        {"Et*4|t*4|L", "more than the 2 stages"},
        {"t*8|L", "does not begin with the embedding"},
        {"Et*4|t*4", "does not end with the head"},
        {"Et*4|t*4LE", "has another embedding"},
        {"Et*4|t*4Lt", "continues after the head"},
        {"Et*4|t*4L*2", "has another head"},
        {"Et*0|L", "needs a number from 1"},
        {"Et*99999999999|L", "needs a number from 1"},
        {"E(t*4|t*4L", "does not end"},
        {"Et*4)|t*4L", "not open at character 5"},
        {"Et*4|t*4xL", "has a sign other than"},
        {"Et*4|t*3mL", "multi-token"},
        {"E(((((((((((((((((t)))))))))))))))))|L", "has a sign other"},
        {"E(t*1000)*1000000|L", "more layers than the model"},
    };
    args = args_of(8, 2, 1, "layout:");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        args.text = wrong[i].text;
        assert_refused(&args, wrong[i].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform),          cmocka_unit_test(test_balanced),
        cmocka_unit_test(test_methods),          cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_parts_of_layouts), cmocka_unit_test(test_all),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
