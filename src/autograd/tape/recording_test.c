/* Recording: poison and its sentences, scopes, data-dependent sizes, logical coordinates, costs,
 * observers. */
#include "autograd/tape/tape.h"
#include "autograd/test_model.h"

struct fixture {
    struct rig rig;
    struct shoali_slot *slot;
    struct shoal_tape *tape;
    struct shoal_param weight, table;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    rig_open(&f->rig, NULL);
    rig_ok(shoali_slot_create(f->rig.device, 0, &f->slot));
    f->tape = rig_tape(&f->rig, f->slot, SHOAL_F32, NULL, NULL, 0);
    rig_param(&f->rig, &f->weight, "fc.weight", SHOAL_F32, shoal_shape_2(3, 4));
    rig_param(&f->rig, &f->table, "wte.weight", SHOAL_F32, shoal_shape_2(5, 3));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    shoali_tape_destroy(f->tape);
    shoali_slot_destroy(f->slot);
    rig_close(&f->rig);
    free(f);
    return 0;
}

static void begin(struct fixture *f)
{
    rig_ok(shoali_tape_begin(f->tape,
                             &(struct shoali_tape_begin){.training = true, .needs_grad = true}));
}

/* An F32 input with values 1, 2, 3, ... */
static shoal_tensor *counting(struct shoal_tape *tape, shoal_shape shape)
{
    float values[256];
    for (int32_t i = 0; i < 256; i++)
        values[i] = (float)(i + 1);
    return shoali_tape_add_input(tape, SHOAL_F32, &shape, values, true);
}

/* ---- poison ---- */

static void expect_poison(struct fixture *f, const shoal_tensor *result, shoal_status status,
                          const char *const *words)
{
    assert_null(result);
    assert_int_equal(shoali_tape_status(f->tape), status);
    for (int32_t i = 0; words[i] != NULL; i++)
        if (strstr(shoal_error_message(), words[i]) == NULL)
            fail_msg("'%s' is not in: %s", words[i], shoal_error_message());
    begin(f);
    rig_ok(shoali_tape_status(f->tape));
}

static void test_poison_and_sentences(void **state)
{
    struct fixture *f = *state;
    struct shoal_tape *t = f->tape;
    const int32_t bad_ids[] = {0, 5};
    const shoal_shape two = shoal_shape_1(2), pair = shoal_shape_2(2, 3);
    begin(f);
    shoal_scope_begin(t, "mlp");
    shoal_tensor *x = counting(t, shoal_shape_2(2, 5));
    expect_poison(f, shoal_linear(t, x, &f->weight, NULL), SHOAL_EINVAL,
                  (const char *const[]){"mlp", "linear", "[2, 5]", "fc.weight", "[3, 4]", NULL});
    expect_poison(f, shoal_relu(t, NULL), SHOAL_EINVAL, (const char *const[]){"NULL", NULL});
    expect_poison(f, shoal_add(t, counting(t, pair), counting(t, two)), SHOAL_EINVAL,
                  (const char *const[]){"add", "[2, 3]", "[2]", NULL});
    expect_poison(f, shoal_reshape(t, counting(t, pair), two), SHOAL_EINVAL,
                  (const char *const[]){"reshape", "[2, 3]", "[2]", NULL});
    expect_poison(f, shoal_slice(t, counting(t, pair), 1, 2, 2), SHOAL_EINVAL,
                  (const char *const[]){"slice", "dim 1", NULL});
    expect_poison(f, shoal_sum(t, counting(t, pair), 2), SHOAL_EINVAL,
                  (const char *const[]){"dim 2", "2 dims", NULL});
    expect_poison(f,
                  shoal_embedding(t, shoali_tape_add_input(t, SHOAL_I32, &two, bad_ids, false),
                                  &f->table, NULL),
                  SHOAL_EINVAL, (const char *const[]){"0 to 5", "wte.weight", "5 rows", NULL});
    expect_poison(f,
                  shoal_gather_rows(t, counting(t, pair),
                                    shoali_tape_add_input(t, SHOAL_I32, &two, bad_ids, false)),
                  SHOAL_EINVAL, (const char *const[]){"gather_rows", "0 to 5", "2 rows", NULL});
    expect_poison(f,
                  shoal_cross_entropy(t, counting(t, pair),
                                      shoali_tape_add_input(t, SHOAL_I32, &two, bad_ids, false)),
                  SHOAL_EINVAL, (const char *const[]){"target is 5", "3 classes", NULL});
    expect_poison(f, shoal_dropout(t, counting(t, pair), 1.0, NULL), SHOAL_EINVAL,
                  (const char *const[]){"dropout", "1", NULL});
    expect_poison(f,
                  shoal_attention(t, counting(t, shoal_shape_3(1, 2, 7)),
                                  &(shoal_attention_args){.heads = 2}),
                  SHOAL_EINVAL, (const char *const[]){"attention", "[1, 2, 7]", NULL});
    expect_poison(f,
                  shoal_attention(t, counting(t, shoal_shape_3(1, 2, 6)),
                                  &(shoal_attention_args){.heads = 2, .window = 3, .full = true}),
                  SHOAL_EINVAL, (const char *const[]){"the window is 3", NULL});
    expect_poison(f,
                  shoal_attention(t, counting(t, shoal_shape_3(1, 2, 6)),
                                  &(shoal_attention_args){.heads = 2,
                                                          .key_count = shoali_tape_add_input(
                                                              t, SHOAL_I32, &two, bad_ids, false)}),
                  SHOAL_EINVAL, (const char *const[]){"key_count", "[2]", "1 samples", NULL});
    expect_poison(f, shoal_tape_input(t, 3), SHOAL_EINVAL, (const char *const[]){"3", NULL});
}

static void test_ops_on_a_poisoned_tape_do_nothing(void **state)
{
    struct fixture *f = *state;
    struct shoal_tape *t = f->tape;
    begin(f);
    shoal_tensor *x = counting(t, shoal_shape_2(2, 3));
    assert_null(shoal_relu(t, NULL));
    const int32_t nodes = t->node_count;
    shoal_tensor *const parts[] = {x, x};
    const int64_t counts[] = {2};
    shoal_scope_begin(t, "late");
    assert_null(shoal_linear(t, x, &f->weight, NULL));
    assert_null(shoal_concat(t, parts, 2, 0));
    assert_null(shoal_all_to_all_rows(t, x, NULL, counts, 2));
    assert_null(shoal_param_tensor(t, &f->weight));
    shoal_scope_end(t, NULL, 0);
    assert_int_equal(t->node_count, nodes);
    assert_int_equal(shoali_tape_scope_count(t), 0);
    assert_int_equal(shoali_tape_backward(t, &(struct shoali_backward){0}), SHOAL_EINVAL);
}

static void test_scopes_must_match(void **state)
{
    struct fixture *f = *state;
    struct shoal_tape *t = f->tape;
    begin(f);
    shoal_scope_end(t, NULL, 0);
    assert_int_equal(shoali_tape_status(t), SHOAL_EINVAL);
    begin(f);
    shoal_scope_begin(t, "a");
    shoal_tensor *x = counting(t, shoal_shape_1(3)), *inner = shoal_relu(t, x);
    shoal_scope_end(t, NULL, 0);
    /* an input outlives the scope, a result does not */
    assert_non_null(shoal_relu(t, x));
    assert_null(shoal_relu(t, inner));
    assert_non_null(strstr(shoal_error_message(), "list it as an output"));
    begin(f);
    shoal_scope_begin(t, "b");
    x = shoal_relu(t, counting(t, shoal_shape_1(3)));
    assert_int_equal(
        shoali_tape_backward(t, &(struct shoali_backward){.outputs = &x, .output_count = 1}),
        SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "scope b"));
}

static void test_backward_runs_once(void **state)
{
    struct fixture *f = *state;
    struct shoal_tape *t = f->tape;
    begin(f);
    shoal_tensor *x = counting(t, shoal_shape_1(3)), *y = shoal_sum(t, x, SHOAL_ALL_DIMS);
    model_backward(t, y);
    const struct shoali_backward again = {.outputs = &y, .output_count = 1};
    assert_int_equal(shoali_tape_backward(t, &again), SHOAL_EINVAL);
    assert_null(shoal_relu(t, y));
}

/* ---- seeds ---- */

static void test_several_outputs_and_seeds(void **state)
{
    struct fixture *f = *state;
    struct shoal_tape *t = f->tape;
    const double seed_values[3] = {10, 20, 30};
    double got[2][3];
    void *seed = rig_alloc(&f->rig, 12), *grad = rig_alloc(&f->rig, 12),
         *nothing = rig_alloc(&f->rig, 12);
    rig_write_values(&f->rig, SHOAL_F32, seed, seed_values, 3);
    begin(f);
    shoal_tensor *x = counting(t, shoal_shape_1(3)), *unread = counting(t, shoal_shape_1(3));
    rig_ok(shoali_fill(f->rig.stream, nothing, 0xFF, 12));
    shoal_tensor *const outputs[] = {shoal_scale(t, x, 2), shoal_sum(t, x, 0), x};
    const void *const seeds[] = {seed, NULL, seed};
    shoal_tensor *const inputs[] = {x, unread};
    void *const grads[] = {grad, nothing};
    rig_ok(shoali_tape_backward(t, &(struct shoali_backward){.outputs = outputs,
                                                             .seeds = seeds,
                                                             .output_count = 3,
                                                             .seed_value = 5,
                                                             .inputs = inputs,
                                                             .input_grads = grads,
                                                             .input_count = 2}));
    rig_read_values(&f->rig, SHOAL_F32, grad, got[0], 3);
    rig_read_values(&f->rig, SHOAL_F32, nothing, got[1], 3);
    for (int32_t i = 0; i < 3; i++) {
        assert_true(got[0][i] == 3 * seed_values[i] + 5);
        assert_true(got[1][i] == 0);
    }
}

/* ---- data-dependent sizes ---- */

enum { ROWS = 40 };

/* Rows of [40, 3] whose mask is set go through a linear and come back summed; returns the slot's
 * peak. */
static size_t run_dynamic(struct fixture *f, struct shoal_tape *tape, struct shoali_slot *slot,
                          const int32_t *mask, double *grad)
{
    const shoal_shape rows = shoal_shape_1(ROWS);
    rig_ok(shoali_tape_begin(tape, &(struct shoali_tape_begin){.needs_grad = true}));
    const bool meta = shoali_tape_is_meta(tape);
    shoal_tensor *x = counting(tape, shoal_shape_2(ROWS, 3));
    shoal_tensor *m = shoali_tape_add_input(tape, SHOAL_I32, &rows, meta ? NULL : mask, false);
    shoal_tensor *picked = shoal_select_rows(tape, x, m);
    shoal_tensor *h = shoal_linear(tape, picked, &f->weight,
                                   &(shoal_linear_args){.activation = SHOAL_ACTIVATION_GELU_TANH});
    shoal_tensor *y = shoal_sum(tape, shoal_square(tape, h), SHOAL_ALL_DIMS);
    rig_ok(shoali_tape_status(tape));
    void *to = rig_alloc(&f->rig, ROWS * 12);
    rig_ok(shoali_tape_backward(tape, &(struct shoali_backward){.outputs = &y,
                                                                .output_count = 1,
                                                                .seed_value = 1,
                                                                .inputs = &x,
                                                                .input_grads = &to,
                                                                .input_count = 1}));
    rig_read_values(&f->rig, SHOAL_F32, to, grad, 3 * ROWS);
    rig_free(&f->rig, to);
    return shoali_slot_peak_bytes(slot);
}

static void test_dynamic_sizes_down_to_zero(void **state)
{
    struct fixture *f = *state;
    int32_t masks[3][ROWS] = {{0}};
    double weights[12], grad[3 * ROWS], weight_grad[12];
    for (int32_t r = 0; r < ROWS; r++) {
        masks[0][r] = r % 3 == 1;
        masks[2][r] = 1;
    }
    rig_random(3, "weights", -1, 1, weights, 12);
    rig_write_values(&f->rig, SHOAL_F32, f->weight.data, weights, 12);
    struct shoali_slot *meta_slot;
    rig_ok(shoali_slot_create(NULL, 0, &meta_slot));
    struct shoal_tape *meta = rig_tape(NULL, meta_slot, SHOAL_F32, NULL, NULL, 0);
    const size_t plan = run_dynamic(f, meta, meta_slot, NULL, grad);
    for (int32_t i = 0; i < 3; i++) {
        bool any = false;
        struct shoali_slot *slot;
        rig_ok(shoali_slot_create(f->rig.device, plan, &slot));
        struct shoal_tape *tape = rig_tape(&f->rig, slot, SHOAL_F32, NULL, NULL, 0);
        rig_ok(shoali_fill(f->rig.stream, f->weight.sink.destination, 0xFF, 48));
        f->weight.sink.accumulate = false;
        /* whatever the actual size, the bound was allocated */
        assert_int_equal(run_dynamic(f, tape, slot, masks[i], grad), plan);
        assert_int_equal(shoali_slot_growth_count(slot), 0);
        for (int32_t e = 0; e < 3 * ROWS; e++)
            assert_true(masks[i][e / 3] != 0 ? grad[e] != 0 : grad[e] == 0);
        rig_read_values(&f->rig, SHOAL_F32, f->weight.sink.destination, weight_grad, 12);
        for (int32_t e = 0; e < 12; e++)
            any = any || weight_grad[e] != 0;
        assert_int_equal(any, i != 1);
        shoali_tape_destroy(tape);
        shoali_slot_destroy(slot);
    }
    shoali_tape_destroy(meta);
    shoali_slot_destroy(meta_slot);
}

/* Ids that the host has not seen are checked on the device when somebody asks. */
static void test_late_ids_are_checked_on_request(void **state)
{
    struct fixture *f = *state;
    struct shoal_tape *t = f->tape;
    const int32_t ids[] = {1, 4, 9, 2};
    const shoal_shape four = shoal_shape_1(4);
    for (int32_t good = 0; good < 2; good++) {
        begin(f);
        shoal_tensor *all = shoali_tape_add_input(t, SHOAL_I32, &four, ids, false);
        shoal_tensor *some = shoal_slice(t, all, 0, good ? 0 : 1, 2);
        assert_non_null(shoal_embedding(t, some, &f->table, NULL));
        assert_int_equal(shoali_tape_check_ids(t), good ? SHOAL_OK : SHOAL_EINVAL);
    }
}

/* ---- coordinates ---- */

static void dropout_values(struct fixture *f, int64_t first, int64_t batch, double *values)
{
    struct shoal_tape *t = f->tape;
    rig_ok(shoali_tape_begin(
        t, &(struct shoali_tape_begin){.step = 9, .first_sample = first, .training = true}));
    const shoal_shape shape = shoal_shape_3(batch, 4, 5);
    float ones[128];
    for (int32_t i = 0; i < 128; i++)
        ones[i] = 1;
    shoal_tensor *x = shoali_tape_add_input(t, SHOAL_F32, &shape, ones, false);
    shoal_scope_begin(t, "drop");
    shoal_tensor *flat = shoal_reshape(t, x, shoal_shape_2(batch * 4, 5));
    shoal_tensor *y = shoal_dropout(t, shoal_dropout(t, flat, 0.3, NULL), 0.3, NULL);
    shoal_scope_end(t, &y, 1);
    rig_ok(shoali_tape_status(t));
    rig_read_values(&f->rig, SHOAL_F32, y->data, values, batch * 20);
}

/* A sample's mask is the same wherever the batch is cut. */
static void test_dropout_follows_global_samples(void **state)
{
    struct fixture *f = *state;
    double whole[60], part[20];
    int32_t dropped = 0;
    dropout_values(f, 6, 3, whole);
    for (int32_t s = 0; s < 3; s++) {
        dropout_values(f, 6 + s, 1, part);
        assert_memory_equal(part, whole + 20 * s, sizeof part);
    }
    for (int32_t i = 0; i < 60; i++)
        dropped += whole[i] == 0;
    assert_true(dropped > 10 && dropped < 55);
}

static void test_scopes_of_one_name_have_their_own_masks(void **state)
{
    struct fixture *f = *state;
    struct shoal_tape *t = f->tape;
    double first[64], second[64];
    begin(f);
    shoal_tensor *x = counting(t, shoal_shape_1(64)), *y[2];
    shoal_scope_begin(t, "layer");
    for (int32_t i = 0; i < 2; i++) {
        shoal_scope_begin(t, "mlp");
        y[i] = shoal_dropout(t, x, 0.5, NULL);
        shoal_scope_end(t, &y[i], 1);
    }
    assert_string_equal(shoali_tape_scope(t, 1)->path, "layer/mlp");
    assert_string_equal(shoali_tape_scope(t, 2)->path, "layer/mlp#2");
    rig_read_values(&f->rig, SHOAL_F32, y[0]->data, first, 64);
    rig_read_values(&f->rig, SHOAL_F32, y[1]->data, second, 64);
    assert_memory_not_equal(first, second, sizeof first);
}

/* ---- costs and observers ---- */

static void test_costs_are_exact(void **state)
{
    struct fixture *f = *state;
    struct shoal_tape *t = f->tape;
    int64_t forward, backward, bytes;
    begin(f);
    shoal_scope_begin(t, "outer");
    shoal_tensor *x = counting(t, shoal_shape_2(7, 3));
    shoal_scope_begin(t, "inner");
    shoal_tensor *y = shoal_linear(t, x, &f->weight, NULL);
    shoal_scope_end(t, &y, 1);
    y = shoal_relu(t, y);
    shoal_scope_end(t, &y, 1);
    shoali_tape_totals(t, &forward, &backward, &bytes);
    assert_int_equal(shoali_tape_scope(t, 1)->flops_forward, 2 * 7 * 3 * 4);
    assert_int_equal(shoali_tape_scope(t, 1)->flops_backward, 4 * 7 * 3 * 4);
    assert_int_equal(shoali_tape_scope(t, 0)->flops_forward, forward);
    assert_int_equal(forward, 2 * 7 * 3 * 4 + 28);
    assert_int_equal(backward, 4 * 7 * 3 * 4 + 28);
    assert_int_equal(bytes, 4 * (21 + 12 + 28) + 4 * (28 + 28));
    assert_int_equal(shoali_tape_scope(t, 1)->node_count, 1);
    assert_int_equal(shoali_tape_scope(t, 0)->node_count, 2);
}

struct log {
    char text[512];
    shoal_status fail_at_backward;
};
struct listener {
    struct log *log;
    char letter;
};

static void note(struct listener *listener, const char *what, const struct shoali_scope *scope)
{
    char *text = listener->log->text;
    snprintf(text + strlen(text), sizeof listener->log->text - strlen(text), "%c%s%s ",
             listener->letter, what, scope->name);
}
static shoal_status on_forward_begin(void *user, struct shoal_tape *tape,
                                     struct shoali_scope *scope)
{
    (void)tape;
    note(user, "+", scope);
    return SHOAL_OK;
}
static shoal_status on_forward_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)tape;
    note(user, "-", scope);
    return SHOAL_OK;
}
static shoal_status on_backward_begin(void *user, struct shoal_tape *tape,
                                      struct shoali_scope *scope)
{
    (void)tape;
    struct listener *listener = user;
    note(listener, "<", scope);
    if (listener->log->fail_at_backward < 0)
        return SHOAL_FAIL(listener->log->fail_at_backward, "the observer refuses");
    return SHOAL_OK;
}
static shoal_status on_backward_end(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    (void)tape;
    note(user, ">", scope);
    return SHOAL_OK;
}

static void test_observers_see_scopes_in_order(void **state)
{
    struct fixture *f = *state;
    struct log log = {0};
    struct listener listener[2] = {{&log, '1'}, {&log, '2'}};
    struct shoali_observer observers[2];
    for (int32_t i = 0; i < 2; i++)
        observers[i] = (struct shoali_observer){.user = &listener[i],
                                                .forward_begin = on_forward_begin,
                                                .forward_end = on_forward_end,
                                                .backward_begin = on_backward_begin,
                                                .backward_end = on_backward_end};
    struct shoal_tape *t = rig_tape(&f->rig, f->slot, SHOAL_F32, NULL, observers, 2);
    for (int32_t round = 0; round < 2; round++) {
        log = (struct log){.fail_at_backward = round == 0 ? SHOAL_OK : SHOAL_EPEER};
        rig_ok(shoali_tape_begin(t, &(struct shoali_tape_begin){.needs_grad = true}));
        shoal_tensor *x = counting(t, shoal_shape_1(3));
        shoal_scope_begin(t, "a");
        shoal_scope_begin(t, "b");
        x = shoal_relu(t, x);
        shoal_scope_end(t, &x, 1);
        shoal_scope_end(t, &x, 1);
        shoal_scope_begin(t, "empty");
        shoal_scope_end(t, NULL, 0);
        assert_string_equal(shoali_context_get()->scope, "");
        const struct shoali_backward backward = {.outputs = &x, .output_count = 1};
        const shoal_status status = shoali_tape_backward(t, &backward);
        const char *expected =
            "1+a 2+a 1+b 2+b 2-b 1-b 2-a 1-a 1+empty 2+empty 2-empty 1-empty 1<empty ";
        const char *rest = "2<empty 2>empty 1>empty 1<a 2<a 1<b 2<b 2>b 1>b 2>a 1>a ";
        assert_int_equal(strncmp(log.text, expected, strlen(expected)), 0);
        assert_string_equal(log.text + strlen(expected), round == 0 ? rest : "");
        assert_int_equal(status, round == 0 ? SHOAL_OK : SHOAL_EPEER);
        assert_int_equal(shoali_tape_status(t), status);
    }
    shoali_tape_destroy(t);
}

/* The 1st, 2nd, ... allocation fails: an error with a sentence each time, and the tape is good for
 * another recording. */
static void test_every_allocation_may_fail(void **state)
{
    struct fixture *f = *state;
    struct model model;
    int32_t failures = 0;
    model_open(&model, &f->rig, SHOAL_F32);
    for (int32_t n = 0; n < 400; n++) {
        struct shoali_slot *slot = NULL;
        struct shoal_tape *tape = NULL;
        shoal_boundary boundary = {0};
        char spec[64];
        snprintf(spec, sizeof spec, "alloc:%d,device_alloc:%d,host_alloc:%d", (int)n, (int)n / 8,
                 (int)n / 8);
        assert_true(shoali_fault_arm(spec));
        const struct shoali_tape_args args = {.exec = f->rig.exec, .module = &model.module};
        struct shoali_tape_args filled = args;
        shoal_status status = shoali_slot_create(f->rig.device, 0, &slot);
        filled.slot = slot;
        if (status >= 0)
            status = shoali_tape_create(&filled, &tape);
        if (status >= 0)
            status = shoali_tape_begin(tape, &(struct shoali_tape_begin){.needs_grad = true});
        if (status >= 0) {
            model_add_batch(tape, 0, 1);
            status = shoali_tape_forward_layers(tape, &model.module, 0, MODEL_LAYERS, &boundary);
        }
        if (status >= 0)
            status = shoali_tape_backward(
                tape, &(struct shoali_backward){.outputs = boundary.tensor, .output_count = 1});
        assert_true(status < 0 || shoali_fault_left() >= 0); /* of alloc */
        assert_true(shoali_fault_arm(NULL));
        if (status < 0) {
            failures++;
            assert_int_equal(status, SHOAL_ENOMEM);
            assert_true(strlen(shoal_error_message()) > 0);
        }
        if (tape != NULL)
            model_backward(tape, model_forward(&model, tape, 0, 1));
        shoali_tape_destroy(tape);
        shoali_slot_destroy(slot);
        for (int32_t i = 0; i < model.module.param_count; i++)
            assert_int_equal(model.module.param[i]->reader_tapes, 0);
    }
    assert_true(failures > 100);
    model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_poison_and_sentences, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ops_on_a_poisoned_tape_do_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scopes_must_match, setup, teardown),
        cmocka_unit_test_setup_teardown(test_backward_runs_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_several_outputs_and_seeds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dynamic_sizes_down_to_zero, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late_ids_are_checked_on_request, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dropout_follows_global_samples, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scopes_of_one_name_have_their_own_masks, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_costs_are_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(test_observers_see_scopes_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_allocation_may_fail, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
