/* The optimizer of docs/EXTENDING.md, made of the page's own code. */
#include "optimizer/test_tensor.h"

#include "novograd_types.inc"

/* As the list in optimizer.c. */
static const struct shoali_optimizer_type *const types[] = {
#include "novograd_list.inc"
    NULL};

enum { STEPS = 5, COUNT = 37 * 24 };
static float initial[COUNT], gradient[COUNT], got[COUNT], again[COUNT];
static double want[COUNT], moment[COUNT];

static void open_novograd(struct subject *subject)
{
    shoali_arena_init(&subject->arena);
    subject->optimizer = (struct shoali_optimizer){.type = types[0]};
    tensor_ok(
        shoali_config_defaults(types[0]->params, &subject->optimizer.params, &subject->arena));
    shoali_optimizer_configure(&subject->optimizer);
    subject->optimizer.weight_decay = 0.1;
    subject_open(subject, shoal_shape_2(37, 24), initial);
}

/* Each of the ~8 roundings of a step costs 2^-24 of operands below 8. */
static void test_formula(void **state)
{
    static struct subject subject;
    double v = 0;
    (void)state;
    assert_string_equal(types[0]->name, "novograd");
    tensor_values(initial, COUNT, 0, 1);
    for (int32_t pieces = 1; pieces <= 9; pieces += 4) {
        memset(moment, 0, sizeof moment);
        for (int64_t i = 0; i < COUNT; i++)
            want[i] = (double)initial[i];
        open_novograd(&subject);
        for (int64_t t = 1; t <= STEPS; t++) {
            double square = 0;
            tensor_values(gradient, COUNT, (uint64_t)t, 4);
            subject_step(&subject, 0.02, t, gradient, 0.25f, pieces);
            for (int64_t i = 0; i < COUNT; i++)
                square += 0.0625 * (double)gradient[i] * (double)gradient[i];
            v = t == 1 ? square : 0.98 * v + 0.02 * square;
            for (int64_t i = 0; i < COUNT; i++) {
                const double g = 0.25 * (double)gradient[i] / (sqrt(v) + 1e-8);
                moment[i] = 0.95 * moment[i] + g + 0.1 * want[i];
                want[i] -= 0.02 * moment[i];
            }
        }
        subject_read(&subject, pieces == 1 ? got : again);
        for (int64_t i = 0; i < COUNT; i++)
            if (!(fabs((double)got[i] - want[i]) <= STEPS * 8 * 0x1p-24 * 8))
                fail_msg("element %lld is %.9g, not %.9g", (long long)i, (double)got[i], want[i]);
        assert_true(fabs((double)subject.state[1][0] - v) <= 1e-6 * v);
        if (pieces > 1)
            assert_memory_equal(got, again, sizeof got);
        subject_close(&subject);
        shoali_arena_fini(&subject.arena);
    }
}

static void test_groups_and_keys(void **state)
{
    static struct subject subject;
    const char *const text = "{\"params\":{\"betas\":[0.9,1]}}";
    struct shoali_json *document = NULL;
    (void)state;
    open_novograd(&subject);
    tensor_ok(shoali_json_parse(text, strlen(text), "test.json", &document));
    assert_int_equal(shoali_config_read_json(types[0]->params, document, "params",
                                             &subject.optimizer.params, &subject.arena),
                     SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "[0, 1)"));
    shoali_json_close(document);
    subject_close(&subject);
    shoali_arena_fini(&subject.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula),
        cmocka_unit_test(test_groups_and_keys),
    };
    return cmocka_run_group_tests_name("extending.optimizer", tests, NULL, NULL);
}
