/* Optimizers that look at whole tensors, against their formulas in fp64; cuts bit by bit. */
#include "optimizer/test_tensor.h"

enum { STEPS = 5 };
static double lr = 0.02;
static float initial[TENSOR_MAX], gradient[TENSOR_MAX], got[TENSOR_MAX], again[TENSOR_MAX];
static double want[TENSOR_MAX], moment[2][TENSOR_MAX], update[TENSOR_MAX];

/* A vector of 768 elements, matrices, three matrices, one number, nothing but a row. */
static const shoal_shape shapes[] = {{1, {768}},       {2, {37, 24}}, {2, {1, 50}},
                                     {3, {3, 17, 33}}, {0, {0}},      {4, {2, 2, 5, 3}}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static double norm_of(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* The step of an optimizer in fp64, with the gradient g. */
typedef void (*formula_fn)(const struct subject *subject, int64_t t, const float *g);

/* How large parameters and gradients are. */
struct scales {
    double param, gradient;
};

/* Steps with gradients that control multiplies with 1/4; in one piece, then in many, which must
 * give the same bits; every element as the formula has it. Each of the ~12 roundings of a step
 * costs 2^-24 of operands below 8. */
static void check(struct subject *subject, shoal_shape shape, struct scales scales,
                  formula_fn formula)
{
    const int64_t count = shoal_shape_count(&shape);
    const double tolerance = STEPS * 12 * 0x1p-24 * 8;
    tensor_values(initial, count, 0, scales.param);
    for (int32_t pieces = 1; pieces <= PIECES_MAX; pieces += 4) {
        memset(moment, 0, sizeof moment);
        for (int64_t i = 0; i < count; i++)
            want[i] = (double)initial[i];
        subject_open(subject, shape, initial);
        for (int64_t t = 1; t <= STEPS; t++) {
            tensor_values(gradient, count, (uint64_t)t, scales.gradient * (t == 3 ? 40 : 4));
            subject_step(subject, lr, t, gradient, 0.25f, pieces);
            for (int64_t i = 0; i < count; i++)
                gradient[i] *= 0.25f;
            formula(subject, t, gradient);
        }
        subject_read(subject, pieces == 1 ? got : again);
        for (int64_t i = 0; i < count && pieces == 1; i++)
            if (!(fabs((double)got[i] - want[i]) <= tolerance))
                fail_msg("%s, %d dims: element %lld is %.9g, not %.9g",
                         subject->optimizer.type->name, (int)shape.ndim, (long long)i,
                         (double)got[i], want[i]);
        if (pieces > 1)
            assert_memory_equal(got, again, (size_t)count * sizeof(float));
        assert_memory_not_equal(got, initial, (size_t)count * sizeof(float));
        subject_close(subject);
    }
}

/* ---- Lamb ---- */

static void lamb(const struct subject *subject, int64_t t, const float *g)
{
    const struct shoali_lamb_params *params = &subject->optimizer.params.lamb;
    const double b1 = subject->optimizer.beta[0], b2 = subject->optimizer.beta[1];
    const int64_t count = subject->tensor.count;
    double step = lr;
    if (params->bias_correction)
        step *= sqrt(1 - pow(b2, (double)t)) / (1 - pow(b1, (double)t));
    for (int64_t i = 0; i < count; i++) {
        double *m = &moment[0][i], *v = &moment[1][i];
        *m = b1 * *m + (1 - b1) * (double)g[i];
        *v = b2 * *v + (1 - b2) * (double)g[i] * (double)g[i];
        update[i] =
            *m / (params->eps_inside_sqrt ? sqrt(*v + params->eps) : sqrt(*v) + params->eps) +
            subject->optimizer.weight_decay * want[i];
    }
    const double p = norm_of(want, count), u = norm_of(update, count);
    const double ratio =
        p == 0 || u == 0 ? 1 : fmax(params->min_coeff, fmin(params->max_coeff, p / u));
    for (int64_t i = 0; i < count; i++)
        want[i] -= step * ratio * update[i];
}

static void test_lamb(void **state)
{
    static struct subject subject;
    (void)state;
    for (int variant = 0; variant < 8; variant++)
        for (int s = 0; s < SHAPES; s++) {
            shoali_arena_init(&subject.arena);
            tensor_ok(optimizer_default("Lamb", &subject.arena, &subject.optimizer));
            struct shoali_lamb_params *params = &subject.optimizer.params.lamb;
            params->bias_correction = variant & 1;
            params->eps_inside_sqrt = (variant & 2) != 0;
            params->weight_decay = variant & 1 ? 0.1 : 0;
            params->max_coeff = variant == 3 ? 0.3 : 10;
            shoali_optimizer_configure(&subject.optimizer);
            /* zeros have no norm: the ratio is 1; small ones are below min_coeff */
            const double param = variant == 4 ? 0 : variant == 5 ? 1e-4 : 1;
            check(&subject, shapes[s], (struct scales){param, 1}, lamb);
            shoali_arena_fini(&subject.arena);
        }
}

/* ---- Adafactor ---- */

static void adafactor(const struct subject *subject, int64_t t, const float *g)
{
    const struct shoali_adafactor_params *params = &subject->optimizer.params.adafactor;
    const struct shoali_optimizer_tensor *tensor = &subject->tensor;
    const int64_t rows = tensor->rows, columns = tensor->columns;
    const double mixed = pow((double)t, params->beta2_decay), count = (double)tensor->count;
    const double eps1 = params->eps.value[0], eps2 = params->eps.value[1];
    double alpha =
        fmax(eps2, norm_of(want, tensor->count) / sqrt(count)) * fmin(lr, 1 / sqrt((double)t));
    for (int64_t b = 0; b < tensor->matrices; b++) {
        double *row = moment[0] + b * rows, *column = moment[1] + b * columns, mean = 0;
        const float *matrix = g + b * rows * columns;
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0;
            for (int64_t c = 0; c < columns; c++)
                sum += (double)matrix[r * columns + c] * (double)matrix[r * columns + c];
            row[r] += mixed * (sum / (double)columns - row[r]);
            mean += row[r] / (double)rows;
        }
        for (int64_t c = 0; c < columns; c++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++)
                sum += (double)matrix[r * columns + c] * (double)matrix[r * columns + c];
            column[c] += mixed * (sum / (double)rows - column[c]);
        }
        for (int64_t i = 0; i < rows * columns; i++) {
            double v = row[i / columns];
            if (subject->shape.ndim >= 2)
                v *= column[i % columns] / fmax(mean, eps1);
            update[b * rows * columns + i] = (double)matrix[i] / sqrt(fmax(v, eps1 * eps1));
        }
    }
    alpha /= fmax(1, norm_of(update, tensor->count) / (sqrt(count) * params->d));
    for (int64_t i = 0; i < tensor->count; i++)
        want[i] = want[i] * (1 - lr * params->weight_decay) - alpha * update[i];
}

/* Each floor lies above what it bounds in one variant, and far below in another: parameters below
 * eps[1] (3); means of squares between eps[0] and eps[1], where one must not be taken for the other
 * (4); means below eps[0], and their products below its square (5). In the last one the step is
 * 1/sqrt(t), which is below lr. */
static void test_adafactor(void **state)
{
    static struct subject subject;
    static const struct scales scales[] = {{1, 1},    {1, 1},    {1, 1}, {1e-5, 1},
                                           {1, 1e-3}, {1, 0.05}, {1, 1}};
    (void)state;
    for (int variant = 0; variant < 7; variant++)
        for (int s = 0; s < SHAPES; s++) {
            shoali_arena_init(&subject.arena);
            tensor_ok(optimizer_default("Adafactor", &subject.arena, &subject.optimizer));
            struct shoali_adafactor_params *params = &subject.optimizer.params.adafactor;
            params->weight_decay = variant & 1 ? 0.1 : 0;
            params->d = variant == 2 ? 0.5 : 1;
            params->eps.value[0] = variant == 5 ? 0.1 : params->eps.value[0];
            shoali_optimizer_configure(&subject.optimizer);
            lr = variant == 6 ? 0.8 : 0.02;
            check(&subject, shapes[s], scales[variant], adafactor);
            lr = 0.02;
            shoali_arena_fini(&subject.arena);
        }
}

/* ---- kinds ---- */

static void test_shapes_of_states(void **state)
{
    static const struct {
        shoal_shape param, row, column;
    } cases[] = {{{2, {5, 7}}, {1, {5}}, {1, {7}}},
                 {{3, {2, 5, 7}}, {2, {2, 5}}, {2, {2, 7}}},
                 {{1, {9}}, {1, {9}}, {1, {0}}},
                 {{0, {0}}, {0, {0}}, {1, {0}}}};
    const shoal_shape one = {1, {1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const shoal_shape row = shoali_state_shape(SHOALI_STATE_ROW, &cases[i].param);
        const shoal_shape column = shoali_state_shape(SHOALI_STATE_COLUMN, &cases[i].param);
        const shoal_shape tensor = shoali_state_shape(SHOALI_STATE_TENSOR, &cases[i].param);
        const shoal_shape element = shoali_state_shape(SHOALI_STATE_ELEMENT, &cases[i].param);
        assert_true(shoali_shape_equal(&row, &cases[i].row));
        assert_true(shoali_shape_equal(&column, &cases[i].column));
        assert_true(shoali_shape_equal(&tensor, &one));
        assert_true(shoali_shape_equal(&element, &cases[i].param));
    }
}

/* What zero and others rely on. */
static void test_tables(void **state)
{
    (void)state;
    const struct shoali_option *params = shoali_optimizer_section.rows;
    struct shoali_arena arena;
    struct shoali_variant variant;
    while (!params->variant)
        params++;
    shoali_arena_init(&arena);
    for (int32_t i = 0; params->variant(i, &variant); i++) {
        struct shoali_optimizer optimizer;
        tensor_ok(optimizer_default(variant.name, &arena, &optimizer));
        const struct shoali_optimizer_type *type = optimizer.type;
        for (int32_t s = 1; s < type->state_count; s++)
            assert_false(type->states[s].kind == SHOALI_STATE_ELEMENT &&
                         type->states[s - 1].kind != SHOALI_STATE_ELEMENT);
        for (int32_t m = 0; m < type->measure_count; m++)
            for (int32_t k = 0; k < type->measures[m].sum_count; k++)
                assert_int_not_equal(type->measures[m].sum[k], SHOALI_STATE_ELEMENT);
        for (int32_t f = 0; f < type->factor_count; f++)
            assert_int_not_equal(type->factor[f], SHOALI_STATE_ELEMENT);
        assert_true(type->configure && type->take_group && type->step);
    }
    shoali_arena_fini(&arena);
}

/* A piece outside its tensor is refused, not added to another tensor's sums. */
static void test_refusals(void **state)
{
    static struct subject subject;
    (void)state;
    shoali_arena_init(&subject.arena);
    tensor_ok(optimizer_default("lamb", &subject.arena, &subject.optimizer));
    tensor_values(initial, 10, 0, 1);
    subject_open(&subject, shoal_shape_1(10), initial);
    const struct shoali_optimizer_now now = {.exec = &subject.exec, .lr = lr, .t = 1};
    struct shoali_optimizer_segment segment = {.param = subject.param,
                                               .grad = subject.grad,
                                               .state = {subject.element[0], subject.element[1]},
                                               .sum = {subject.sum[0], subject.sum[1]},
                                               .count = 5,
                                               .tensor = &subject.tensor,
                                               .first = 6};
    assert_int_equal(shoali_optimizer_measure(&subject.optimizer, 0, &now, &segment), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "is not inside its tensor"));
    segment.first = 5;
    tensor_ok(shoali_optimizer_measure(&subject.optimizer, 0, &now, &segment));
    segment.tensor = NULL;
    assert_int_equal(shoali_optimizer_measure(&subject.optimizer, 0, &now, &segment), SHOAL_EINVAL);
    subject_close(&subject);
    shoali_arena_fini(&subject.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lamb),
        cmocka_unit_test(test_adafactor),
        cmocka_unit_test(test_shapes_of_states),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
