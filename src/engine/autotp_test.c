/* A model of one's own, which knows nothing of tp, is divided by rules of the configuration: it
 * trains as one rank does, whether or not its heads, softmax and slices can be computed in part. */
#include "engine/test_gpt.h"

#include <math.h>

enum { STEPS = 5, SAMPLES = 2, SIZE = 12, HEADS = 3, FFN = 20 };

static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

/* ---- the model ------------------------------------------------------------------------------- */

enum { EMBED, Q, K, V, O, NORM, UP, UP_BIAS, DOWN, DOWN_BIAS, HEAD, PARAMS };

static shoal_status declare(const void *config, shoal_declaration *declaration)
{
    static const struct {
        const char *name;
        shoal_shape shape;
    } all[PARAMS] = {[EMBED] = {"embed_tokens.weight", {2, {GPT_VOCAB, SIZE}}},
                     [Q] = {"q_proj.weight", {2, {SIZE, SIZE}}},
                     [K] = {"k_proj.weight", {2, {SIZE, SIZE}}},
                     [V] = {"v_proj.weight", {2, {SIZE, SIZE}}},
                     [O] = {"o_proj.weight", {2, {SIZE, SIZE}}},
                     [NORM] = {"norm.weight", {1, {SIZE}}},
                     [UP] = {"up_proj.weight", {2, {FFN, SIZE}}},
                     [UP_BIAS] = {"up_proj.bias", {1, {FFN}}},
                     [DOWN] = {"down_proj.weight", {2, {SIZE, FFN}}},
                     [DOWN_BIAS] = {"down_proj.bias", {1, {SIZE}}},
                     [HEAD] = {"lm_head.weight", {2, {GPT_VOCAB, SIZE}}}};
    shoal_status status = SHOAL_OK;
    (void)config;
    for (int i = 0; i < PARAMS && status >= 0; i++)
        status = shoal_declare_param(declaration, &(shoal_param_spec){.name = all[i].name,
                                                                      .shape = all[i].shape,
                                                                      .init = SHOAL_INIT_NORMAL,
                                                                      .init_b = 0.3});
    return status;
}

static void forward(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    shoal_param *p[PARAMS];
    for (int i = 0; i < PARAMS; i++)
        p[i] = shoal_layer_param(layer, i);
    shoal_tensor *x = shoal_embedding(tape, shoal_tape_input(tape, 0), p[EMBED], NULL);
    shoal_tensor *y = shoal_rms_norm(tape, x, p[NORM], 1e-5);
    y = shoal_linears(tape, y,
                      &(shoal_linears_args){.weight = {p[Q], p[K], p[V]}, .weight_out_in = true});
    y = shoal_attention(tape, y, &(shoal_attention_args){.heads = HEADS, .dropout = 0.1});
    x = shoal_linear(tape, y, p[O], &(shoal_linear_args){.residual = x, .weight_out_in = true});
    y = shoal_linear(tape, x, p[UP],
                     &(shoal_linear_args){.bias = p[UP_BIAS],
                                          .activation = SHOAL_ACTIVATION_GELU,
                                          .weight_out_in = true});
    y = shoal_dropout(tape, shoal_softmax(tape, y), 0.1, NULL); /* over all of the hidden layer */
    x = shoal_linear(tape, y, p[DOWN],
                     &(shoal_linear_args){.bias = p[DOWN_BIAS],
                                          .residual = x,
                                          .activation = SHOAL_ACTIVATION_SILU,
                                          .weight_out_in = true});
    y = shoal_linear(tape, x, p[HEAD], &(shoal_linear_args){.weight_out_in = true});
    /* a second loss of a part of the text, from logits that are cut and joined again */
    shoal_tensor *text = shoal_tape_input(tape, 1);
    const shoal_shape rows = shoal_shape_1(SAMPLES * GPT_SEQ);
    const shoal_shape flat = shoal_shape_2(rows.dim[0], GPT_VOCAB);
    shoal_tensor *loss = shoal_cross_entropy(tape, y, text);
    shoal_tensor *again =
        shoal_cross_entropy(tape, shoal_reshape(tape, y, flat), shoal_reshape(tape, text, rows));
    loss = shoal_add(tape, loss, shoal_scale(tape, again, 0.5));
    shoal_boundary_set(tape, boundary, &loss, 1);
}

static const shoal_layer_type type = {.name = "mine", .declare = declare, .forward = forward};
static const shoal_layer_spec layer = {&type, "mine", NULL};
static const shoal_input_spec inputs[] = {
    {.name = "tokens", .dtype = SHOAL_I32, .sample_shape = {1, {GPT_SEQ}}},
    {.name = "targets", .dtype = SHOAL_I32, .sample_shape = {1, {GPT_SEQ}}}};
static const shoal_model model = {
    .name = "mine", .layers = &layer, .layer_count = 1, .inputs = inputs, .input_count = 2};

/* ---- ranks ----------------------------------------------------------------------------------- */

struct task {
    int32_t tensor;
    bool sequence;
};

static bool live(struct gpt_seat *seat)
{
    const struct task *task = seat->run->user;
    char text[2048];
    shoal_mesh *mesh = NULL;
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group, .tensor = task->tensor},
                             &mesh) == SHOAL_OK);
    EXPECT(shoal_engine_create(&(shoal_engine_args){.model = &model,
                                                    .config_text = text,
                                                    .mesh = mesh,
                                                    .seed = 7,
                                                    .threads = 1,
                                                    .accelerator = "cpu",
                                                    .recompute_granularity = seat->run->recompute,
                                                    .sequence_parallel = task->sequence},
                               &seat->engine) == SHOAL_OK);
    const bool passed = gpt_train(seat);
    if (!passed && seat->group)
        shoal_comm_abort(seat->group, SHOAL_EINTERNAL);
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return passed;
}

static void run(int32_t tensor, int32_t data, bool sequence, const char *options)
{
    const struct task task = {tensor, sequence};
    gpt_run_ranks(
        (struct gpt_run){.ranks = tensor * data,
                         .micro_batches = 4,
                         .samples = SAMPLES,
                         .steps = STEPS,
                         .options = options,
                         .optimizer = "{\"type\":\"SGD\",\"params\":{\"lr\":0.1,\"momentum\":0.9}}",
                         .recompute = data > 1 ? "full" : NULL,
                         .run = live,
                         .user = (void *)(uintptr_t)&task},
        seats);
}

#define RULES "\"tensor_parallel\":{\"preset_model\":\"llama\"},"
#define PART                                                                                     \
    "\"tensor_parallel\":{\"partition_config\":{\"layer_specs\":[{\"patterns\":[\".*(up|q|k|v)_" \
    "proj\"],\"partition_type\":\"column\"},{\"patterns\":[\".*down_proj\"],\"partition_type\":" \
    "\"row\"}]}},"

/* Sums of at most 31 numbers, some ten behind each other: 10 sqrt(31) 2^-24 = 3.3e-6, twice as much
 * a step. */
static void test_as_one_rank(void **state)
{
    static const char *const options[] = {RULES "\"zero_optimization\":{\"stage\":0}",
                                          PART "\"zero_optimization\":{\"stage\":3}"};
    (void)state;
    run(1, 1, false, options[0]);
    memcpy(reference, seats, sizeof seats);
    assert_true(seats[0].info[STEPS - 1].loss < seats[0].info[0].loss);
    for (int o = 0; o < 2; o++)
        for (int32_t tensor = 2; tensor <= 4; tensor++)
            for (int32_t data = 1; data <= 2; data++)
                for (int sequence = 0; sequence < (tensor == 3 ? 1 : 2); sequence++) {
                    run(tensor, data, sequence, options[o]);
                    for (int64_t s = 0; s < STEPS; s++) {
                        const shoal_step_info *a = &seats[0].info[s], *b = &reference[0].info[s];
                        const double bound = 3.3e-6 * (double)(1 << s);
                        if (!(fabs(a->loss - b->loss) <= bound * b->loss) ||
                            !(fabs(a->grad_norm - b->grad_norm) <= 4 * bound * b->grad_norm))
                            fail_msg(
                                "rules %d, %d x %d, sequence %d, step %d: loss %.9g norm %.9g, "
                                "not %.9g %.9g",
                                o, (int)tensor, (int)data, sequence, (int)s, a->loss, a->grad_norm,
                                b->loss, b->grad_norm);
                    }
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
