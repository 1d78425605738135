/* test_model - a small language model for tests: tied embedding, two blocks with dropout, a layer
 * nobody uses, a head.
 *
 * Every layer of it is made of nested scopes where a real one would have them. The model struct
 * holds its module, the memory of parameters and of sinks.
 */
#ifndef SHOALI_AUTOGRAD_TEST_MODEL_H
#define SHOALI_AUTOGRAD_TEST_MODEL_H

#include "autograd/test_rig.h"

enum {
    MODEL_VOCABULARY = 11,
    MODEL_WIDTH = 8,
    MODEL_LENGTH = 5,
    MODEL_BATCH = 3,
    MODEL_LAYERS = 5
};

/* ---- layers ---- */

static inline shoal_status model_declare(shoal_declaration *declaration, const char *name,
                                         shoal_shape shape, shoal_init_kind kind)
{
    return shoal_declare_param(
        declaration,
        &(shoal_param_spec){.name = name, .shape = shape, .init = kind, .init_b = 0.3});
}

static inline shoal_status embed_declare(const void *config, shoal_declaration *declaration)
{
    (void)config;
    shoal_status status;
    SHOAL_TRY(status,
              model_declare(declaration, "table", shoal_shape_2(MODEL_VOCABULARY, MODEL_WIDTH),
                            SHOAL_INIT_NORMAL),
              done);
    SHOAL_TRY(status,
              model_declare(declaration, "positions", shoal_shape_2(MODEL_LENGTH, MODEL_WIDTH),
                            SHOAL_INIT_NORMAL),
              done);
done:
    return status;
}

static inline void embed_forward(const shoal_layer *layer, shoal_tape *tape,
                                 shoal_boundary *boundary)
{
    shoal_tensor *x = shoal_embedding(tape, shoal_tape_input(tape, 0), shoal_layer_param(layer, 0),
                                      shoal_layer_param(layer, 1));
    x = shoal_dropout(tape, x, 0.1, NULL);
    shoal_boundary_set(tape, boundary, &x, 1);
}

static inline shoal_status block_declare(const void *config, shoal_declaration *declaration)
{
    (void)config;
    static const struct {
        const char *name;
        int64_t rows, columns;
        shoal_init_kind kind;
    } row[] = {
        {"ln_1.weight", MODEL_WIDTH, 0, SHOAL_INIT_ONES},
        {"ln_1.bias", MODEL_WIDTH, 0, SHOAL_INIT_ZEROS},
        {"qkv.weight", MODEL_WIDTH, 3 * MODEL_WIDTH, SHOAL_INIT_NORMAL},
        {"qkv.bias", 3 * MODEL_WIDTH, 0, SHOAL_INIT_ZEROS},
        {"out.weight", MODEL_WIDTH, MODEL_WIDTH, SHOAL_INIT_NORMAL},
        {"ln_2.weight", MODEL_WIDTH, 0, SHOAL_INIT_ONES},
        {"ln_2.bias", MODEL_WIDTH, 0, SHOAL_INIT_ZEROS},
        {"up.weight", MODEL_WIDTH, 4 * MODEL_WIDTH, SHOAL_INIT_NORMAL},
        {"up.bias", 4 * MODEL_WIDTH, 0, SHOAL_INIT_ZEROS},
        {"down.weight", 4 * MODEL_WIDTH, MODEL_WIDTH, SHOAL_INIT_NORMAL},
        {"down.bias", MODEL_WIDTH, 0, SHOAL_INIT_ZEROS},
        {"never_used", 3, 0, SHOAL_INIT_ONES},
    };
    shoal_status status = SHOAL_OK;
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        SHOAL_TRY(status,
                  model_declare(declaration, row[i].name,
                                row[i].columns > 0 ? shoal_shape_2(row[i].rows, row[i].columns)
                                                   : shoal_shape_1(row[i].rows),
                                row[i].kind),
                  done);
done:
    return status;
}

static inline void block_forward(const shoal_layer *layer, shoal_tape *tape,
                                 shoal_boundary *boundary)
{
    shoal_param *p[12];
    for (int32_t i = 0; i < 12; i++)
        p[i] = shoal_layer_param(layer, i);
    shoal_tensor *x = shoal_boundary_get(tape, boundary, 0);
    shoal_scope_begin(tape, "attn");
    shoal_tensor *h = shoal_layer_norm(tape, x, p[0], p[1], 1e-5);
    shoal_tensor *qkv = shoal_linear(tape, h, p[2], &(shoal_linear_args){.bias = p[3]});
    shoal_tensor *a =
        shoal_attention(tape, qkv, &(shoal_attention_args){.heads = 2, .dropout = 0.2});
    a = shoal_linear(tape, a, p[4], NULL);
    x = shoal_dropout(tape, a, 0.1, x);
    shoal_scope_end(tape, &x, 1);
    shoal_scope_begin(tape, "mlp");
    h = shoal_layer_norm(tape, x, p[5], p[6], 1e-5);
    h = shoal_linear(tape, h, p[7],
                     &(shoal_linear_args){.bias = p[8], .activation = SHOAL_ACTIVATION_GELU_TANH});
    x = shoal_linear(tape, h, p[9], &(shoal_linear_args){.bias = p[10], .residual = x});
    shoal_scope_end(tape, &x, 1);
    shoal_boundary_set(tape, boundary, &x, 1);
}

static inline shoal_status norm_declare(const void *config, shoal_declaration *declaration)
{
    (void)config;
    return model_declare(declaration, "weight", shoal_shape_1(MODEL_WIDTH), SHOAL_INIT_ONES);
}

static inline void norm_forward(const shoal_layer *layer, shoal_tape *tape,
                                shoal_boundary *boundary)
{
    shoal_tensor *x = shoal_rms_norm(tape, shoal_boundary_get(tape, boundary, 0),
                                     shoal_layer_param(layer, 0), 1e-5);
    shoal_boundary_set(tape, boundary, &x, 1);
}

static inline shoal_status head_declare(const void *config, shoal_declaration *declaration)
{
    (void)config;
    return shoal_declare_param(
        declaration, &(shoal_param_spec){.name = "weight",
                                         .shape = shoal_shape_2(MODEL_VOCABULARY, MODEL_WIDTH),
                                         .tied_to = "embed.table"});
}

static inline void head_forward(const shoal_layer *layer, shoal_tape *tape,
                                shoal_boundary *boundary)
{
    shoal_tensor *logits =
        shoal_linear(tape, shoal_boundary_get(tape, boundary, 0), shoal_layer_param(layer, 0),
                     &(shoal_linear_args){.weight_out_in = true});
    shoal_tensor *loss = shoal_cross_entropy(tape, logits, shoal_tape_input(tape, 1));
    shoal_boundary_set(tape, boundary, &loss, 1);
}

static const shoal_layer_type embed_type = {
    .name = "embed", .declare = embed_declare, .forward = embed_forward};
static const shoal_layer_type block_type = {
    .name = "block", .declare = block_declare, .forward = block_forward};
static const shoal_layer_type norm_type = {
    .name = "norm", .declare = norm_declare, .forward = norm_forward};
static const shoal_layer_type head_type = {
    .name = "head", .declare = head_declare, .forward = head_forward};
static const shoal_layer_spec model_layers[MODEL_LAYERS] = {
    {&embed_type, "embed", NULL}, {&block_type, "h.0", NULL}, {&block_type, "h.1", NULL},
    {&norm_type, "norm", NULL},   {&head_type, "head", NULL},
};
static const shoal_model model_spec = {
    .name = "tiny", .layers = model_layers, .layer_count = MODEL_LAYERS};

/* ---- the model with memory ---- */

struct model {
    struct rig *rig;
    struct shoali_module module;
    float *gradients; /* host copy of all sinks, in canonical order */
};

/* Parameters are filled from their init rules, sinks are F32 and overwrite. */
static inline void model_open(struct model *model, struct rig *rig, shoal_dtype dtype)
{
    model->rig = rig;
    rig_ok(shoali_module_init(&model->module, &model_spec, dtype, NULL, 0));
    model->gradients = calloc((size_t)model->module.element_count, sizeof(float));
    for (int32_t i = 0; i < model->module.param_count; i++) {
        struct shoal_param *p = model->module.param[i];
        double *values = malloc((size_t)p->count * sizeof *values);
        const struct shoali_stream stream = shoali_stream_make(7, "init", p->name, 0);
        for (int64_t e = 0; e < p->count; e++)
            values[e] = p->init == SHOAL_INIT_ONES ? 1
                        : p->init == SHOAL_INIT_ZEROS
                            ? 0.01 * (double)e
                            : 0.3 * shoali_random_normal(&stream, (uint64_t)e);
        p->data = rig_alloc(rig, (size_t)p->count * shoal_dtype_bytes(dtype));
        rig_write_values(rig, dtype, p->data, values, p->count);
        p->sink.destination = rig_alloc(rig, (size_t)p->count * 8);
        free(values);
    }
}

static inline void model_close(struct model *model)
{
    free(model->gradients);
    shoali_module_fini(&model->module);
}

/* Reads all sinks into `gradients`. */
static inline void model_read_gradients(struct model *model)
{
    int64_t at = 0;
    for (int32_t i = 0; i < model->module.param_count; i++) {
        const struct shoal_param *p = model->module.param[i];
        rig_read(model->rig, model->gradients + at, p->sink.destination,
                 (size_t)p->count * sizeof(float));
        at += p->count;
    }
}

/* Fills the sinks with a value that no gradient has, so that "written" can be told; what comes next
 * overwrites it. */
static inline void model_spoil_gradients(struct model *model)
{
    for (int32_t i = 0; i < model->module.param_count; i++) {
        struct shoal_param *p = model->module.param[i];
        rig_ok(shoali_fill(model->rig->stream, p->sink.destination, 0x7B, (size_t)p->count * 8));
        p->sink.accumulate = false;
    }
}

/* Tokens and targets of global samples [first, first+batch). */
static inline void model_add_batch(struct shoal_tape *tape, int64_t first, int64_t batch)
{
    int32_t tokens[64 * MODEL_LENGTH], targets[64 * MODEL_LENGTH];
    const struct shoali_stream stream = shoali_stream_make(5, "data", "", 0);
    for (int64_t i = 0; i < batch * MODEL_LENGTH; i++) {
        const uint64_t at = (uint64_t)(first * MODEL_LENGTH + i);
        tokens[i] = (int32_t)shoali_random_below(&stream, 2 * at, MODEL_VOCABULARY);
        targets[i] = (int32_t)shoali_random_below(&stream, 2 * at + 1, MODEL_VOCABULARY + 1) - 1;
    }
    const shoal_shape shape = shoal_shape_2(batch, MODEL_LENGTH);
    const bool meta = shoali_tape_is_meta(tape);
    shoal_tensor *const inputs[2] = {
        shoali_tape_add_input(tape, SHOAL_I32, &shape, meta ? NULL : tokens, false),
        shoali_tape_add_input(tape, SHOAL_I32, &shape, meta ? NULL : targets, false)};
    shoali_tape_set_batch(tape, inputs, 2);
}

/* One forward over all layers; the loss tensor. */
static inline shoal_tensor *model_forward(struct model *model, struct shoal_tape *tape,
                                          int64_t first, int64_t batch)
{
    shoal_boundary boundary = {0};
    rig_ok(shoali_tape_begin(
        tape, &(struct shoali_tape_begin){
                  .step = 4, .first_sample = first, .training = true, .needs_grad = true}));
    model_add_batch(tape, first, batch);
    rig_ok(shoali_tape_forward_layers(tape, &model->module, 0, MODEL_LAYERS, &boundary));
    return boundary.tensor[0];
}

static inline void model_backward(struct shoal_tape *tape, shoal_tensor *loss)
{
    rig_ok(shoali_tape_backward(
        tape, &(struct shoali_backward){.outputs = &loss, .output_count = 1, .seed_value = 1}));
}

#endif
