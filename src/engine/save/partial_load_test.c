/* Parts of a checkpoint: weights alone, without the optimizer's states, and into a model that has
 * other tensors. */
#include "base/test_folder.h"
#include "engine/test_gpt.h"

enum { STEPS = 3, PARAMS_MAX = 64, ELEMENTS_MAX = 4096 };
static struct gpt_seat seats[GPT_RANKS_MAX];

/* What the model that was saved has; rank 0 writes it. */
static struct known {
    char name[96];
    int64_t count;
    float weight[ELEMENTS_MAX], state[ELEMENTS_MAX];
} known[PARAMS_MAX];
static int32_t known_count;

static const struct known *find_known(const char *name)
{
    for (int32_t i = 0; i < known_count; i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

static int64_t count_of(const struct gpt_seat *seat, const char *name)
{
    const struct shoal_param *param = shoali_module_find(&seat->engine->module, name);
    return shoal_shape_count(shoal_param_shape(param));
}

static bool train_and_save(struct gpt_seat *seat)
{
    static struct known nobody[GPT_RANKS_MAX];
    EXPECT(gpt_train(seat));
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, NULL, NULL) == SHOAL_OK);
    for (int32_t i = 0; shoal_engine_param_name(seat->engine, i); i++) {
        struct known *own = seat->rank == 0 ? &known[i] : &nobody[seat->rank];
        const char *name = shoal_engine_param_name(seat->engine, i);
        snprintf(own->name, sizeof own->name, "%s", name);
        own->count = count_of(seat, name);
        EXPECT(i < PARAMS_MAX && own->count <= ELEMENTS_MAX);
        EXPECT(shoal_engine_get_param(seat->engine, name, own->weight) == SHOAL_OK);
        EXPECT(shoal_engine_get_state(seat->engine, name, "exp_avg", own->state) == SHOAL_OK);
        if (seat->rank == 0)
            known_count = i + 1;
    }
    return true;
}

static void save_layers(int64_t layers, int32_t ranks, const char *options)
{
    known_count = 0;
    gpt_run_ranks((struct gpt_run){.ranks = ranks,
                                   .layers = layers,
                                   .options = options,
                                   .steps = STEPS,
                                   .run = train_and_save},
                  seats);
}

/* ---- other tensors -------------------------------------------------------------------------- */

static bool load_what_fits(struct gpt_seat *seat)
{
    static float first[GPT_RANKS_MAX][PARAMS_MAX][ELEMENTS_MAX], now[GPT_RANKS_MAX][ELEMENTS_MAX];
    float(*before)[ELEMENTS_MAX] = first[seat->rank], *after = now[seat->rank];
    const char *name;
    int32_t fresh = 0;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    for (int32_t i = 0; (name = shoal_engine_param_name(seat->engine, i)); i++)
        EXPECT(i < PARAMS_MAX && shoal_engine_get_param(seat->engine, name, before[i]) == SHOAL_OK);
    shoal_load_args args = {.dir = folder};
    EXPECT(shoal_engine_load(seat->engine, &args, NULL) == SHOAL_EINVAL);
    EXPECT(strstr(shoal_error_message(), seat->run->user));
    args.not_strict = true;
    EXPECT(shoal_engine_load(seat->engine, &args, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_global_steps(seat->engine) == STEPS);
    for (int32_t i = 0; (name = shoal_engine_param_name(seat->engine, i)); i++) {
        const struct known *stored = find_known(name);
        const size_t bytes = (size_t)count_of(seat, name) * sizeof(float);
        fresh += !stored;
        EXPECT(shoal_engine_get_param(seat->engine, name, after) == SHOAL_OK);
        EXPECT(memcmp(after, stored ? stored->weight : before[i], bytes) == 0);
        EXPECT(shoal_engine_get_state(seat->engine, name, "exp_avg", after) == SHOAL_OK);
        for (int64_t e = 0; e < count_of(seat, name); e++)
            EXPECT(after[e] == (stored ? stored->state[e] : 0.0f));
    }
    EXPECT((fresh > 0) == (seat->run->layers > 2));
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) >= 0);
    return true;
}

static void test_other_tensors(void **state)
{
    (void)state;
    static const char *const options[] = {
        NULL, "\"bf16\":{\"enabled\":true},\"zero_optimization\":{\"stage\":2}",
        "\"zero_optimization\":{\"stage\":3,\"reduce_bucket_size\":1000}"};
    for (size_t o = 0; o < sizeof options / sizeof options[0]; o++) {
        save_layers(2, 2, options[o]);
        for (int64_t layers = 1; layers <= 4; layers++)
            if (layers != 2)
                gpt_run_ranks(
                    (struct gpt_run){
                        .ranks = (int32_t)layers,
                        .layers = layers,
                        .options = options[o],
                        .seed = 99,
                        .run = load_what_fits,
                        .user = (void *)(uintptr_t)(layers < 2 ? "extra `transformer.h.1.ln_1"
                                                               : "missing `transformer.h.2.ln_1")},
                    seats);
    }
}

/* A shape is never a matter of strictness. */
static bool load_other_shapes(struct gpt_seat *seat)
{
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    const shoal_load_args args = {.dir = folder, .not_strict = true};
    EXPECT(shoal_engine_load(seat->engine, &args, NULL) == SHOAL_EINVAL);
    EXPECT(strstr(shoal_error_message(), "of another shape `transformer.wte.weight`"));
    return true;
}

static void test_other_shapes(void **state)
{
    (void)state;
    save_layers(2, 1, NULL);
    gpt_run_ranks((struct gpt_run){.ranks = 2, .padding = 16, .run = load_other_shapes}, seats);
}

/* ---- without states ------------------------------------------------------------------------- */

static bool load_without_states(struct gpt_seat *seat)
{
    static float values[GPT_RANKS_MAX][ELEMENTS_MAX];
    float *value = values[seat->rank];
    const bool module_only = seat->run->user != NULL;
    const char *name;
    shoal_step_info info;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    const shoal_load_args args = {
        .dir = folder, .module_only = module_only, .no_optimizer_states = !module_only};
    EXPECT(shoal_engine_load(seat->engine, &args, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_global_steps(seat->engine) == (module_only ? 0 : STEPS));
    EXPECT(seat->engine->step.applied_steps == 0);
    for (int32_t i = 0; (name = shoal_engine_param_name(seat->engine, i)); i++) {
        EXPECT(shoal_engine_get_param(seat->engine, name, value) == SHOAL_OK);
        EXPECT(memcmp(value, find_known(name)->weight,
                      (size_t)count_of(seat, name) * sizeof(float)) == 0);
        EXPECT(shoal_engine_get_state(seat->engine, name, "exp_avg", value) == SHOAL_OK);
        for (int64_t e = 0; e < count_of(seat, name); e++)
            EXPECT(value[e] == 0.0f);
    }
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, &info) >= 0);
    EXPECT(info.step == (module_only ? 0 : STEPS));
    EXPECT(seat->engine->step.applied_steps == 1);
    return true;
}

static void test_without_states(void **state)
{
    (void)state;
    save_layers(2, 1, NULL);
    for (int module_only = 0; module_only < 2; module_only++)
        gpt_run_ranks((struct gpt_run){.ranks = 2,
                                       .options = "\"zero_optimization\":{\"stage\":1}",
                                       .run = load_without_states,
                                       .user = module_only ? &known : NULL},
                      seats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_tensors, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_other_shapes, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_without_states, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
