/* Declaration of parameters and layers. */
#include "autograd/test_model.h"

static void test_a_model_is_declared(void **state)
{
    (void)state;
    struct shoali_module module;
    int64_t elements = 0;
    rig_ok(shoali_module_init(&module, &model_spec, SHOAL_BF16, NULL, 0));
    assert_int_equal(module.layer_count, MODEL_LAYERS);
    assert_int_equal(module.param_count, 2 + 2 * 12 + 1);
    for (int32_t i = 0; i < module.param_count; i++) {
        const struct shoal_param *param = module.param[i];
        assert_int_equal(param->index, i);
        assert_ptr_equal(shoali_module_find(&module, shoal_param_name(param)), param);
        assert_int_equal(param->dtype, SHOAL_BF16);
        assert_int_equal(param->sink.dtype, SHOAL_F32);
        assert_null(param->data);
        assert_true(param->lr_mult == 1);
        elements += shoal_param_count(param);
    }
    assert_int_equal(module.element_count, elements);
    assert_string_equal(shoal_param_name(module.param[0]), "embed.table");
    assert_string_equal(shoal_param_name(module.param[2]), "h.0.ln_1.weight");
    assert_null(shoali_module_find(&module, "h.0.ln_1"));
    /* the head's only parameter is the embedding's table */
    const struct shoal_layer *head = &module.layer[MODEL_LAYERS - 1];
    assert_int_equal(head->param_count, 1);
    assert_ptr_equal(shoal_layer_param(head, 0), module.param[0]);
    assert_null(shoal_layer_param(head, 1));
    assert_null(shoal_layer_param(head, -1));
    assert_int_equal(module.param[0]->uses, 2);
    assert_int_equal(module.param[1]->uses, 1);
    assert_int_equal(shoal_param_shape(module.param[0])->dim[0], MODEL_VOCABULARY);
    /* ... which it calls by another name */
    assert_int_equal(module.alias_count, 1);
    assert_int_equal(module.alias[0].param, 0);
    assert_ptr_equal(shoali_module_find(&module, module.alias[0].name), module.param[0]);
    shoali_module_fini(&module);
}

/* ---- many parameters ---- */

static shoal_status declare_many(const void *config, shoal_declaration *declaration)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < *(const int32_t *)config; i++) {
        char name[32];
        snprintf(name, sizeof name, "expert.%d.weight", (int)i);
        SHOAL_TRY(
            status,
            shoal_declare_param(declaration, &(shoal_param_spec){.name = name, .shape = {1, {2}}}),
            done);
    }
done:
    return status;
}

static void no_forward(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    (void)layer;
    (void)tape;
    (void)boundary;
}

static void test_names_are_found_among_many(void **state)
{
    (void)state;
    static const shoal_layer_type type = {
        .name = "many", .declare = declare_many, .forward = no_forward};
    const int32_t count = 3000;
    const shoal_layer_spec layers[] = {{&type, "a", &count}, {&type, "b", &count}};
    const shoal_model model = {.name = "many", .layers = layers, .layer_count = 2};
    struct shoali_module module;
    rig_ok(shoali_module_init(&module, &model, SHOAL_F32, NULL, 0));
    assert_int_equal(module.param_count, 2 * count);
    assert_int_equal(shoali_module_find(&module, "b.expert.2999.weight")->index, 2 * count - 1);
    assert_int_equal(shoali_module_find(&module, "a.expert.17.weight")->index, 17);
    assert_null(shoali_module_find(&module, "b.expert.3000.weight"));
    shoali_module_fini(&module);
}

/* ---- mistakes ---- */

static shoal_status declare_spec(const void *config, shoal_declaration *declaration)
{
    return shoal_declare_param(declaration, config);
}

static void expect_refusal(const shoal_param_spec *first, const shoal_param_spec *second,
                           const char *second_layer, const char *const *words)
{
    static const shoal_layer_type type = {
        .name = "spec", .declare = declare_spec, .forward = no_forward};
    const shoal_layer_spec layers[] = {{&type, "one", first}, {&type, second_layer, second}};
    const shoal_model model = {.name = "wrong", .layers = layers, .layer_count = 2};
    struct shoali_module module;
    assert_int_equal(shoali_module_init(&module, &model, SHOAL_F32, NULL, 0), SHOAL_EINVAL);
    for (int32_t i = 0; words[i] != NULL; i++)
        if (strstr(shoal_error_message(), words[i]) == NULL)
            fail_msg("'%s' is not in: %s", words[i], shoal_error_message());
}

/* Layer "three" gives a second name that the parameter of layer "two" has. */
static void expect_alias_refusal(const shoal_param_spec *first, const shoal_param_spec *second,
                                 const shoal_param_spec *owner)
{
    static const shoal_layer_type type = {
        .name = "spec", .declare = declare_spec, .forward = no_forward};
    const shoal_layer_spec layers[] = {
        {&type, "one", first}, {&type, "two", owner}, {&type, "three", second}};
    const shoal_model model = {.name = "wrong", .layers = layers, .layer_count = 3};
    struct shoali_module module;
    assert_int_equal(shoali_module_init(&module, &model, SHOAL_F32, NULL, 0), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "parameter two.w is tied to w, but the name"));
}

static void test_mistakes_have_sentences(void **state)
{
    (void)state;
    const shoal_param_spec good = {.name = "w", .shape = {1, {4}}};
    const shoal_param_spec untied = {.name = "v", .shape = {1, {4}}, .tied_to = "one.x"};
    const shoal_param_spec other_shape = {.name = "v", .shape = {2, {4, 1}}, .tied_to = "one.w"};
    const shoal_param_spec negative = {.name = "v", .shape = {1, {-4}}};
    const shoal_param_spec nameless = {.shape = {1, {4}}};
    const shoal_param_spec dotted = {.name = "x.w", .shape = {1, {4}}};
    const shoal_param_spec plain = {.name = "w", .shape = {1, {4}}};
    const shoal_param_spec second = {.name = "/two.w", .shape = {1, {4}}, .tied_to = "w"};
    const shoal_param_spec root = {.name = "/w", .shape = {1, {4}}};
    expect_refusal(&good, &good, "one", (const char *const[]){"layers 0 and 1", "one", NULL});
    expect_refusal(&dotted, &plain, "one.x", (const char *const[]){"one.x.w", "twice", NULL});
    expect_refusal(&good, &untied, "two", (const char *const[]){"two.v", "'one.x'", NULL});
    expect_refusal(&good, &other_shape, "two",
                   (const char *const[]){"two.v", "[4, 1]", "one.w", "[4]", NULL});
    expect_alias_refusal(&root, &second, &good);
    expect_refusal(&good, &negative, "two", (const char *const[]){"two.v", "[-4]", NULL});
    expect_refusal(&good, &nameless, "two", (const char *const[]){"two", "without a name", NULL});
}

static void test_a_module_needs_a_type_to_compute_in(void **state)
{
    (void)state;
    struct shoali_module module;
    assert_int_equal(shoali_module_init(&module, &model_spec, SHOAL_I32, NULL, 0), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "I32"));
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    int32_t failures = 0;
    for (bool fired = true; fired; failures += fired) {
        struct shoali_module module;
        char spec[32];
        snprintf(spec, sizeof spec, "alloc:%d", (int)failures);
        assert_true(shoali_fault_arm(spec));
        const shoal_status status = shoali_module_init(&module, &model_spec, SHOAL_F32, NULL, 0);
        fired = shoali_fault_left() < 0;
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(status, fired ? SHOAL_ENOMEM : SHOAL_OK);
        if (status >= 0)
            shoali_module_fini(&module);
    }
    assert_true(failures > 50);
}

/* A query-key-value matrix by heads, and a table by rows whose number does not divide. */
static shoal_status declare_cut(const void *config, shoal_declaration *declaration)
{
    shoal_status status;
    const int64_t bad = *(const int32_t *)config;
    SHOAL_TRY(
        status,
        shoal_declare_param(declaration, &(shoal_param_spec){.name = "qkv",
                                                             .shape = shoal_shape_2(5, 24),
                                                             .split = {{.axis = SHOAL_AXIS_TP,
                                                                        .dim = 1,
                                                                        .part_count = 3,
                                                                        .part = {12, 6, 6 + bad},
                                                                        .unit = {6, 3, 3}}}}),
        done);
    SHOAL_TRY(
        status,
        shoal_declare_param(declaration, &(shoal_param_spec){.name = "table",
                                                             .shape = shoal_shape_2(7, 2),
                                                             .split = {{.axis = SHOAL_AXIS_TP}}}),
        done);
    SHOAL_TRY(status,
              shoal_declare_param(declaration,
                                  &(shoal_param_spec){.name = "norm", .shape = shoal_shape_1(5)}),
              done);
done:
    return status;
}

static void forward_nothing(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    (void)layer;
    (void)tape;
    (void)boundary;
}

/* Every element of the flat space, by the pieces it is in. */
static void check_pieces(const struct shoali_module *module)
{
    for (int64_t at = 0; at < module->element_count; at++) {
        const struct shoali_piece piece = shoali_module_piece(module, at, module->element_count);
        const struct shoal_param *param = piece.param;
        int64_t count = param->begin + param->count - at, first = at - param->begin;
        if (param->shard != NULL)
            first = shoali_shard_run(param->shard, at - param->begin, &count);
        assert_true(at >= param->begin && at < param->begin + param->count);
        assert_int_equal(piece.first, first);
        assert_int_equal(piece.count, count);
        assert_int_equal(shoali_module_piece(module, at, at + 1).count, 1);
    }
}

static void test_parameters_are_cut(void **state)
{
    (void)state;
    int32_t bad = 0;
    const shoal_layer_type type = {
        .name = "cut", .declare = declare_cut, .forward = forward_nothing};
    const shoal_layer_spec layer = {&type, "l", &bad};
    const shoal_model model = {.name = "cut", .layers = &layer, .layer_count = 1};
    struct shoali_module module;
    int64_t elements = 0;
    for (int32_t r = 0; r < 2; r++) {
        const struct shoali_axis_place place = {SHOAL_AXIS_TP, 2, r, 0};
        rig_ok(shoali_module_init(&module, &model, SHOAL_F32, &place, 1));
        const struct shoal_param *qkv = module.param[0], *table = module.param[1];
        assert_int_equal(shoal_param_shape(qkv)->dim[1], 24);
        assert_int_equal(shoal_param_count(qkv), 5 * 24);
        assert_int_equal(shoal_param_local_shape(qkv)->dim[1], 12);
        assert_int_equal(qkv->count, 5 * 12);
        assert_int_equal(qkv->shard->interval[1][2].begin, 18 + 3 * r);
        assert_int_equal(table->shape.dim[0], r == 0 ? 4 : 3);
        assert_null(module.param[2]->shard);
        assert_int_equal(module.whole_count, 5 * 24 + 14 + 5);
        elements += module.element_count - 5; /* the norm is on both */
        assert_int_equal(qkv->cut_by, SHOAL_AXIS_TP);
        assert_int_equal(module.param[2]->cut_by, 0);
        assert_int_equal(table->begin, 5 * 12);
        assert_int_equal(table->whole_begin, 5 * 24);
        check_pieces(&module);
        shoali_module_fini(&module);
    }
    assert_int_equal(elements, 5 * 24 + 14);
    bad = 1;
    const struct shoali_axis_place place = {SHOAL_AXIS_TP, 2, 0, 0};
    assert_int_equal(shoali_module_init(&module, &model, SHOAL_F32, &place, 1), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_message(), "parameter l.qkv: dim 1 of shape [5, 24]"));
}

/* Experts: a split of ep, and the tp beside it, are those of the expert generator. */
static shoal_status declare_experts(const void *config, shoal_declaration *declaration)
{
    shoal_status status;
    const int32_t tied_dim = *(const int32_t *)config;
    const shoal_param_spec spec = {
        .name = "up",
        .shape = shoal_shape_3(4, 6, 3),
        .split = {{.axis = SHOAL_AXIS_EP}, {.axis = SHOAL_AXIS_TP, .dim = 1}}};
    shoal_param_spec again = spec;
    again.name = "again";
    again.tied_to = "l.up";
    again.split[1].dim = tied_dim;
    SHOAL_TRY(status, shoal_declare_param(declaration, &spec), done);
    SHOAL_TRY(status, shoal_declare_param(declaration, &again), done);
    again.name = "plain";
    memset(again.split, 0, sizeof again.split);
    SHOAL_TRY(status, shoal_declare_param(declaration, &again), done);
done:
    return status;
}

static void test_experts_and_tied_splits(void **state)
{
    (void)state;
    int32_t tied_dim = 1;
    const shoal_layer_type type = {
        .name = "experts", .declare = declare_experts, .forward = forward_nothing};
    const shoal_layer_spec layer = {&type, "l", &tied_dim};
    const shoal_model model = {.name = "experts", .layers = &layer, .layer_count = 1};
    struct shoali_module module;
    const struct shoali_axis_place places[] = {{SHOAL_AXIS_TP, 8, 7, 0},
                                               {SHOAL_AXIS_TP | SHOAL_AXIS_EXPERT, 3, 1, 0},
                                               {SHOAL_AXIS_EP | SHOAL_AXIS_EXPERT, 2, 1, 0}};
    rig_ok(shoali_module_init(&module, &model, SHOAL_F32, places, 3));
    const struct shoal_param *up = module.param[0];
    assert_int_equal(module.param_count, 1);
    assert_int_equal(up->uses, 1); /* of one layer */
    assert_int_equal(up->cut_by, SHOAL_AXIS_EP | SHOAL_AXIS_TP | SHOAL_AXIS_EXPERT);
    assert_int_equal(up->shard->interval[0][0].begin, 2);
    assert_int_equal(up->shard->interval[1][0].begin, 2);
    assert_int_equal(up->count, 2 * 2 * 3);
    shoali_module_fini(&module);
    tied_dim = 2;
    assert_int_equal(shoali_module_init(&module, &model, SHOAL_F32, places, 3), SHOAL_EINVAL);
    assert_non_null(
        strstr(shoal_error_message(), "parameter l.again is tied to l.up but split differently"));
}

/* A layer of two parameters, the second of which is tied to the first of layer "a" in layer "c". */
static shoal_status declare_stage(const void *config, shoal_declaration *declaration)
{
    shoal_status status;
    const bool last = *(const bool *)config;
    const shoal_param_spec specs[] = {{.name = last ? "tied" : "matrix",
                                       .shape = shoal_shape_2(4, 3),
                                       .tied_to = last ? "a.matrix" : NULL},
                                      {.name = "scalar"}};
    SHOAL_TRY(status, shoal_declare_param(declaration, &specs[0]), done);
    SHOAL_TRY(status, shoal_declare_param(declaration, &specs[1]), done);
done:
    return status;
}

/* A stage has what its layers declare, also first elsewhere, and of all others nothing but
 * names. */
static void test_layers_of_other_ranks(void **state)
{
    (void)state;
    const bool no = false, yes = true;
    const shoal_layer_type type = {
        .name = "stage", .declare = declare_stage, .forward = forward_nothing};
    const shoal_layer_spec layers[] = {{&type, "a", &no}, {&type, "b", &no}, {&type, "c", &yes}};
    const shoal_model model = {.name = "stages", .layers = layers, .layer_count = 3};
    /* a.matrix a.scalar b.matrix b.scalar c.scalar */
    static const int64_t counts[3][5] = {{12, 1, 0, 0, 0}, {0, 0, 12, 1, 0}, {12, 0, 0, 0, 1}};
    for (int32_t stage = 0; stage < 3; stage++) {
        struct shoali_module module;
        int64_t begin = 0;
        rig_ok(shoali_module_init(&module, &model, SHOAL_F32, NULL, 0));
        const struct shoali_layer_run run = {stage, 1};
        rig_ok(shoali_module_keep_layers(&module, &run, 1));
        assert_int_equal(module.param_count, 5);
        assert_int_equal(module.whole_count, 27);
        for (int32_t i = 0; i < 5; i++) {
            const struct shoal_param *param = module.param[i];
            assert_int_equal(param->count, counts[stage][i]);
            assert_int_equal(shoal_shape_count(&param->shape), counts[stage][i]);
            assert_int_equal(shoali_shard_is_nothing(param->shard), counts[stage][i] == 0);
            assert_int_equal(param->uses_here, counts[stage][i] > 0);
            assert_int_equal(param->uses, i == 0 ? 2 : 1);
            assert_int_equal(param->begin, begin);
            assert_int_equal(shoal_param_count(param), i == 0 || i == 2 ? 12 : 1);
            assert_true(param->cut_by == SHOAL_AXIS_PP);
            begin += param->count;
        }
        assert_int_equal(module.element_count, begin);
        assert_true(module.layer[stage].here && !module.layer[(stage + 1) % 3].here);
        check_pieces(&module);
        shoali_module_fini(&module);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_is_declared),
        cmocka_unit_test(test_parameters_are_cut),
        cmocka_unit_test(test_experts_and_tied_splits),
        cmocka_unit_test(test_layers_of_other_ranks),
        cmocka_unit_test(test_names_are_found_among_many),
        cmocka_unit_test(test_mistakes_have_sentences),
        cmocka_unit_test(test_a_module_needs_a_type_to_compute_in),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
