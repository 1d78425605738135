/* A program as users write them, with a struct of every kind that grows: it is compiled against the
 * headers of older versions, and of an imagined newer one, and runs with today's libshoal.so.
 *
 * With FUTURE its structs end with members that the library does not know. They stay 0, unless the
 * program's argument names the struct: then the library must refuse it with a sentence.
 * Usage: program FOLDER [STRUCT]
 */
#include <shoal/shoal.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *asked = "";

#ifdef FUTURE
static void ask(const char *type, int64_t *member)
{
    if (strcmp(asked, type) == 0)
        *member = 1;
}
#define ASK(type, variable) ask(#type, &(variable).future[1])
#define FILLED(variable) ((variable).future[0] == 0 && (variable).future[1] == 0)
#else
#define ASK(type, variable) (void)0
#define FILLED(variable) 1
#endif
/* So that what is not filled in shows. */
#define SPOIL(variable) memset(&(variable), 0x55, sizeof(variable))

#define NEED(condition)                                                                        \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, shoal_error_message()); \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

enum { SAMPLES = 8, WIDTH = 4, TOKENS = 16 };

/* ---- a model of the program's own, with two tensors between its layers ---------------------- */

static shoal_status declare(const void *unused, shoal_declaration *declaration)
{
    shoal_param_spec weight = {.name = "weight",
                               .shape = shoal_shape_2(WIDTH, WIDTH),
                               .init = SHOAL_INIT_NORMAL,
                               .init_b = 0.5,
                               .tags = SHOAL_PARAM_NO_DECAY};
    (void)unused;
    ASK(shoal_param_spec, weight);
    return shoal_declare_param(declaration, &weight);
}

static void forward_first(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    shoal_linear_args args = {.activation = SHOAL_ACTIVATION_GELU, .weight_out_in = true};
    ASK(shoal_linear_args, args);
    shoal_tensor *x = shoal_tape_input(tape, 0), *two[2];
    two[0] = shoal_linear(tape, x, shoal_layer_param(layer, 0), &args);
    two[1] = shoal_scale(tape, x, 0.5);
    shoal_boundary_set(tape, boundary, two, 2);
}

static void forward_last(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    shoal_tensor *x = shoal_linear(tape, shoal_boundary_get(tape, boundary, 0),
                                   shoal_layer_param(layer, 0), NULL);
    x = shoal_add(tape, x, shoal_boundary_get(tape, boundary, 1));
    shoal_tensor *loss = shoal_mse(tape, x, shoal_tape_input(tape, 1));
    shoal_boundary_set(tape, boundary, &loss, 1);
}

static shoal_status fill(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    static float x[SAMPLES * WIDTH], y[SAMPLES * WIDTH];
    (void)user;
    for (int i = 0; i < SAMPLES * WIDTH; i++) {
        x[i] = (float)((i * 7 + step * 3 + micro) % 11) / 11;
        y[i] = 1 - x[i];
    }
    batch->data[0] = x;
    batch->data[1] = y;
    return SHOAL_OK;
}

static void check_infos(const shoal_engine *engine)
{
    shoal_step_info info;
    shoal_memory_info memory;
    SPOIL(info);
    SPOIL(memory);
    shoal_engine_get_step_info(engine, &info);
    shoal_engine_get_memory_info(engine, &memory);
    NEED(info.step == 1 && info.applied && info.loss > 0 && FILLED(info));
    shoal_save_info saved;
    SPOIL(saved);
    shoal_engine_get_save_info(engine, &saved);
    NEED(saved.step == -1 && !saved.at_work && FILLED(saved));
    NEED(memory.weights_bytes > 0 && memory.checkpoint_bytes >= 0 && FILLED(memory));
}

static void train(const shoal_engine_args *args, const char *folder)
{
    shoal_engine *engine = NULL;
    shoal_step_info info;
    uint64_t trained = 0, loaded = 1;
    double loss[2];
    char *client = NULL;
    NEED(shoal_engine_create(args, &engine) == SHOAL_OK);
    for (int step = 0; step < 2; step++) {
        SPOIL(info);
        NEED(shoal_engine_train_batch(engine, fill, NULL, &info) == SHOAL_OK);
        NEED(info.step == step && info.applied && info.loss > 0 && info.lr == 0.01 && FILLED(info));
    }
    check_infos(engine);
    NEED(shoal_engine_eval_batch(engine, fill, NULL, 2, &loss[0]) == SHOAL_OK);
    NEED(shoal_engine_fingerprint(engine, &trained) == SHOAL_OK);
    NEED(shoal_engine_save_checkpoint(engine, folder, NULL, "{\"a\":1}") == SHOAL_OK);
    shoal_engine_destroy(engine);
    NEED(shoal_engine_create(args, &engine) == SHOAL_OK);
    NEED(shoal_engine_load_checkpoint(engine, folder, NULL, false, NULL) == SHOAL_OK);
    shoal_load_args load = {.dir = folder};
    ASK(shoal_load_args, load);
    NEED(shoal_engine_load(engine, &load, &client) == SHOAL_OK);
    NEED(client != NULL && strcmp(client, "{\"a\":1}") == 0);
    NEED(shoal_engine_eval_batch(engine, fill, NULL, 2, &loss[1]) == SHOAL_OK);
    NEED(shoal_engine_fingerprint(engine, &loaded) == SHOAL_OK);
    NEED(trained == loaded && loss[0] == loss[1] && shoal_engine_global_steps(engine) == 2);
    free(client);
    shoal_engine_destroy(engine);
}

static void plan(const shoal_engine_args *engine)
{
    shoal_plan_args args = {.world_size = 4, .prefetches = true, .dataset_bytes = 1000};
    shoal_plan_limit limit;
    shoal_plan_rates rates = {.flops = 1e9};
    shoal_plan_time time;
    shoal_plan_verdict verdict;
    shoal_plan made, other;
    char change[256], *json = NULL;
    ASK(shoal_plan_args, args);
    SPOIL(limit);
    SPOIL(time);
    SPOIL(verdict);
    SPOIL(made);
    SPOIL(other);
    NEED(shoal_plan_make(engine, &args, &made) == SHOAL_OK);
    NEED(made.world_size == 4 && made.parameters == 2 * WIDTH * WIDTH && FILLED(made));
    NEED(shoal_plan_get_limit(NULL, 4, &limit) == SHOAL_OK && limit.host_bytes > 0);
    shoal_plan_set_limit(made.device_bytes - 1, &limit);
    NEED(FILLED(limit));
    shoal_plan_judge(&made, &limit, &verdict);
    NEED(verdict.missing_bytes == 1 && FILLED(verdict));
    NEED(shoal_plan_suggest(engine, &args, &limit, &other, change, sizeof change) == SHOAL_OK);
    NEED(other.device_bytes < made.device_bytes && change[0] != '\0' && FILLED(other));
    shoal_plan_get_time(&made, &rates, &time);
    NEED(time.compute_s > 0 && time.network_s == 0 && FILLED(time));
    NEED(shoal_plan_to_json(&made, &json) == SHOAL_OK && strstr(json, "\"world_size\":4"));
    free(json);
}

/* A pipeline that nobody runs, and the best layout of four ranks. */
static void layouts(const shoal_engine_args *engine)
{
    shoal_plan_args args = {.world_size = 2, .pipeline = 2};
    shoal_plan_rates rates;
    shoal_plan_limit limit;
    shoal_layout_pipeline pipeline;
    shoal_layout_stage stage[2];
    shoal_layout best[2];
    int32_t count;
    char *svg = NULL;
    SPOIL(rates);
    SPOIL(limit);
    SPOIL(pipeline);
    NEED(shoal_cluster_find(shoal_cluster_name(0), &rates, &limit) == SHOAL_OK);
    NEED(FILLED(rates) && FILLED(limit) && rates.flops > 0);
    NEED(shoal_layout_draw(engine, &args, &rates, &pipeline, stage, 2, &svg) == SHOAL_OK);
    NEED(pipeline.stages == 2 && FILLED(pipeline) && strstr(svg, "<svg") != NULL);
    NEED(stage[0].layers + stage[1].layers == 2);
    free(svg);
    args.pipeline = 1;
    NEED(shoal_layout_search(engine, &args, &rates, &limit, best, 2, &count) == SHOAL_OK);
    NEED(count > 0 && best[0].step_s > 0 && best[0].data * best[0].tensor == 2);
}

static void own_model(const char *folder)
{
    const shoal_layer_type first = {.name = "first", .declare = declare, .forward = forward_first},
                           last = {.name = "last", .declare = declare, .forward = forward_last};
    const shoal_layer_spec layers[] = {{&first, "a", NULL}, {&last, "b", NULL}};
    const shoal_input_spec inputs[] = {
        {.name = "x", .dtype = SHOAL_F32, .sample_shape = shoal_shape_1(WIDTH)},
        {.name = "y", .dtype = SHOAL_F32, .sample_shape = shoal_shape_1(WIDTH)}};
    const shoal_model model = {
        .name = "own", .layers = layers, .layer_count = 2, .inputs = inputs, .input_count = 2};
    shoal_group *group = NULL;
    shoal_mesh *mesh = NULL;
    shoal_comm_args comm = {.timeout_s = 60};
    ASK(shoal_comm_args, comm);
    NEED(shoal_comm_init(&comm, &group) == SHOAL_OK);
    shoal_mesh_args axes = {.group = group, .order = "tp-cp-ep-dp-pp"};
    ASK(shoal_mesh_args, axes);
    NEED(shoal_mesh_create(&axes, &mesh) == SHOAL_OK);
    shoal_engine_args args = {
        .model = &model,
        .config_text = "{\"train_micro_batch_size_per_gpu\":8,\"zero_optimization\":{\"stage\":1},"
                       "\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":0.01}}}",
        .mesh = mesh,
        .saves = true};
    ASK(shoal_engine_args, args);
    train(&args, folder);
    args.mesh = NULL;
    plan(&args);
    layouts(&args);
    shoal_mesh_destroy(mesh);
    shoal_comm_destroy(group);
}

/* ---- a GPT on mock data, and text from it --------------------------------------------------- */

struct text {
    shoal_loader *loader;
    int32_t tokens[2 * TOKENS], targets[2 * TOKENS];
};

static shoal_status next(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    struct text *text = user;
    batch->data[0] = text->tokens;
    batch->data[1] = text->targets;
    return shoal_loader_get(text->loader, step, micro, text->tokens, text->targets);
}

static shoal_status count_token(void *user, int32_t token)
{
    ++*(int *)user;
    return token >= 0 ? SHOAL_OK : SHOAL_EINVAL;
}

static void make_loader(shoal_dataset **dataset, shoal_loader **loader)
{
    shoal_dataset_info info;
    shoal_dataset_args data = {.mock = true, .mock_vocab_size = 64, .mock_token_count = 4000};
    SPOIL(info);
    ASK(shoal_dataset_args, data);
    NEED(shoal_dataset_peek(&data, &info) == SHOAL_OK && info.vocab_size == 64 && FILLED(info));
    NEED(shoal_dataset_create(&data, dataset) == SHOAL_OK);
    shoal_loader_args args = {
        .dataset = *dataset, .seq_length = TOKENS, .micro_batch = 2, .micro_batches = 1};
    ASK(shoal_loader_args, args);
    NEED(shoal_loader_create(&args, loader) == SHOAL_OK);
    shoal_prefetch_args list = {.count = 1};
    ASK(shoal_prefetch_args, list);
    NEED(shoal_loader_prefetch(*loader, &list) == SHOAL_OK);
}

static void make_gpt(shoal_model **model)
{
    shoal_gpt_config config, again;
    shoal_model_config *named = NULL;
    char *json = NULL;
    int64_t count = 0;
    double flops = 0;
    SPOIL(config);
    SPOIL(again);
    shoal_gpt_config_defaults(&config);
    NEED(config.add_bias_linear && config.norm_epsilon == 1e-5 && FILLED(config));
    config.num_layers = 2;
    config.hidden_size = 32;
    config.num_attention_heads = 4;
    config.seq_length = TOKENS;
    config.vocab_size = 64;
    config.openai_gelu = true;
    ASK(shoal_gpt_config, config);
    NEED(shoal_gpt_create(&config, model) == SHOAL_OK);
    NEED(shoal_model_param_count(*model, &count) == SHOAL_OK && count > 0);
    NEED(shoal_model_flops_per_token(*model, &flops) == SHOAL_OK && flops > 0);
    NEED(shoal_model_config_to_json(shoal_model_get_config(*model), &json) == SHOAL_OK);
    NEED(shoal_model_config_from_json(json, &named) == SHOAL_OK);
    NEED(shoal_model_config_set(named, "num-layers", 3) == SHOAL_OK);
    NEED(shoal_model_config_get(named, "num-layers", &flops) == SHOAL_OK && flops == 3);
    NEED(strcmp(shoal_model_config_option(named, 0)->name, "num-layers") == 0);
    shoal_model_config_destroy(named);
    free(json);
    SPOIL(again);
    shoal_gpt_get_config(*model, &again);
    NEED(again.ffn_hidden_size == 128 && FILLED(again));
}

/* As others have models; what is not there is refused after the arguments were read. */
static void hub(shoal_engine *engine, const shoal_model *model)
{
    char *json = NULL;
    shoal_hub_write_args written = {.config = shoal_model_get_config(model), .dtype = SHOAL_F32};
    shoal_load_weights_args weights = {.path = "/nowhere"};
    shoal_convert_args convert = {.in = "/nowhere", .out = "/nowhere/out", .dtype = "bf16"};
    ASK(shoal_hub_write_args, written);
    shoal_load_args load = {.dir = "/nowhere", .module_only = true};
    ASK(shoal_load_args, load);
    ASK(shoal_load_weights_args, weights);
    ASK(shoal_convert_args, convert);
    NEED(shoal_hub_write_config(&written, &json) == SHOAL_OK && strstr(json, "\"gpt2\""));
    free(json);
    NEED(shoal_hub_write_generation(&written, &json) == SHOAL_OK && json[0] == '{');
    free(json);
    NEED(shoal_engine_load_weights(engine, &weights) < 0 &&
         strstr(shoal_error_message(), "/nowhere"));
    NEED(shoal_engine_load(engine, &load, NULL) < 0 && strstr(shoal_error_message(), "/nowhere"));
    NEED(shoal_convert(&convert) < 0 && strstr(shoal_error_message(), "/nowhere"));
}

static void gpt(void)
{
    struct text text = {0};
    shoal_dataset *dataset = NULL;
    shoal_model *model = NULL;
    shoal_engine *engine = NULL;
    shoal_generator *generator = NULL;
    const int32_t prompt[] = {1, 2, 3};
    int count = 0;
    make_loader(&dataset, &text.loader);
    make_gpt(&model);
    NEED(shoal_engine_create(
             &(shoal_engine_args){.model = model,
                                  .config_text =
                                      "{\"train_micro_batch_size_per_gpu\":2,\"optimizer\":{"
                                      "\"type\":\"AdamW\",\"params\":{\"lr\":0.001}}}"},
             &engine) == SHOAL_OK);
    NEED(shoal_engine_train_batch(engine, next, &text, NULL) == SHOAL_OK);
    hub(engine, model);
    shoal_generator_args args = {.engine = engine, .max_length = TOKENS};
    ASK(shoal_generator_args, args);
    NEED(shoal_generator_create(&args, &generator) == SHOAL_OK);
    shoal_sample_args sample = {.prompt = prompt, .prompt_count = 3, .num_tokens = 5, .seed = 1};
    ASK(shoal_sample_args, sample);
    NEED(shoal_generate(generator, &sample, count_token, &count) == SHOAL_OK && count == 5);
    shoal_generator_destroy(generator);
    shoal_engine_destroy(engine);
    shoal_model_destroy(model);
    shoal_loader_destroy(text.loader);
    shoal_dataset_destroy(dataset);
}

/* Ops that the models above do not have: refused when they are recorded, before they compute. */
static shoal_status declare_attention(const void *unused, shoal_declaration *declaration)
{
    (void)unused;
    NEED(shoal_declare_param(declaration, &(shoal_param_spec){.name = "norm",
                                                              .shape = shoal_shape_1(WIDTH / 2),
                                                              .init = SHOAL_INIT_ONES}) == 0);
    return shoal_declare_param(declaration,
                               &(shoal_param_spec){.name = "weight",
                                                   .shape = shoal_shape_2(3 * WIDTH, WIDTH),
                                                   .init = SHOAL_INIT_ZEROS});
}

/* Zeros of x's shape. */
static shoal_tensor *around_attention(const shoal_layer *layer, shoal_tape *tape, shoal_tensor *x)
{
    shoal_param *gamma = shoal_layer_param(layer, 0), *weight = shoal_layer_param(layer, 1);
    static float frequency[1];
    shoal_rope_args rope = {.rotary_size = 2};
    ASK(shoal_rope_args, rope);
    NEED(shoal_rope_frequencies(&rope, frequency) == SHOAL_OK);
    shoal_qk_norm_args qk = {.heads = 2, .q_gamma = gamma, .k_gamma = gamma, .rms = true};
    ASK(shoal_qk_norm_args, qk);
    shoal_rotary_args turn = {.heads = 2, .rotary_size = 2, .inverse_frequency = frequency};
    ASK(shoal_rotary_args, turn);
    shoal_norm_args norm = {.gamma = gamma, .rms = true, .gamma_plus_one = true};
    ASK(shoal_norm_args, norm);
    shoal_linears_args three = {.weight = {weight, weight, weight}};
    ASK(shoal_linears_args, three);
    shoal_tensor *y = shoal_rotary(tape, shoal_qk_norm(tape, x, &qk), &turn);
    y = shoal_reshape(tape, y, shoal_shape_2(TOKENS * 3 * 2, WIDTH / 2));
    y = shoal_reshape(tape, shoal_norm(tape, y, &norm), shoal_shape_3(1, TOKENS, 3 * WIDTH));
    return shoal_linears(tape, y, &three);
}

static void forward_attention(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    shoal_attention_args args = {.heads = 2, .full = true};
    ASK(shoal_attention_args, args);
    shoal_tensor *x = shoal_tape_input(tape, 0);
    x = shoal_attention(tape, shoal_add(tape, x, around_attention(layer, tape, x)), &args);
    x = shoal_mean(tape, x, SHOAL_ALL_DIMS);
    shoal_boundary_set(tape, boundary, &x, 1);
}

static void attention(void)
{
    const shoal_layer_type type = {
        .name = "attention", .declare = declare_attention, .forward = forward_attention};
    const shoal_layer_spec layer = {&type, "a", NULL};
    const shoal_input_spec input = {
        .name = "qkv", .dtype = SHOAL_F32, .sample_shape = shoal_shape_2(TOKENS, 3 * WIDTH)};
    const shoal_model model = {.name = "attention",
                               .layers = &layer,
                               .layer_count = 1,
                               .inputs = &input,
                               .input_count = 1};
    static float qkv[TOKENS * 3 * WIDTH];
    shoal_engine *engine = NULL;
    shoal_tensor *out = NULL;
    double mean = -1;
    for (int i = 0; i < TOKENS * 3 * WIDTH; i++)
        qkv[i] = 2;
    NEED(shoal_engine_create(
             &(shoal_engine_args){.model = &model,
                                  .config_text = "{\"train_micro_batch_size_per_gpu\":1}",
                                  .inference = true},
             &engine) == SHOAL_OK);
    const void *arrays[] = {qkv};
    NEED(shoal_engine_forward(engine, &(shoal_batch){.data = arrays}, &out) == SHOAL_OK);
    NEED(shoal_tensor_get_scalar(out, &mean) == SHOAL_OK && mean == 2);
    shoal_engine_destroy(engine);
}

/* ---- data files ------------------------------------------------------------------------------ */

static void data_files(const char *folder)
{
    char input[400], prefix[400];
    const char *const inputs[] = {input};
    shoal_preprocess_info info;
    snprintf(input, sizeof input, "%s/input.jsonl", folder);
    snprintf(prefix, sizeof prefix, "%s/output", folder);
    FILE *out = fopen(input, "w");
    NEED(out != NULL && fputs("{\"text\": \"one\"}\n{\"text\": \"three\"}\n", out) >= 0);
    NEED(fclose(out) == 0);
    shoal_preprocess_args args = {
        .inputs = inputs, .input_count = 1, .output_prefix = prefix, .workers = 1};
    SPOIL(info);
    ASK(shoal_preprocess_args, args);
    NEED(shoal_preprocess(&args, &info) == SHOAL_OK && FILLED(info));
    NEED(info.documents == 2 && info.tokens == 8);
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

static void tokenizers(const char *folder)
{
    char text[400];
    const char *const paths[] = {text};
    shoal_tokenizer *null = NULL, *trained = NULL;
    shoal_tokenizer_args args = {.type = "NullTokenizer", .vocab_size = 7};
    ASK(shoal_tokenizer_args, args);
    NEED(shoal_tokenizer_load(&args, &null) == SHOAL_OK);
    NEED(shoal_tokenizer_vocab_size(null) == 7);
    shoal_tokenizer_destroy(null);
    snprintf(text, sizeof text, "%s/text", folder);
    FILE *out = fopen(text, "w");
    NEED(out != NULL && fputs("to be or not to be, that is the question\n", out) >= 0);
    NEED(fclose(out) == 0);
    shoal_tokenizer_train_args train = {.paths = paths, .path_count = 1, .vocab_size = 260};
    ASK(shoal_tokenizer_train_args, train);
    NEED(shoal_tokenizer_train(&train, &trained) == SHOAL_OK);
    NEED(shoal_tokenizer_vocab_size(trained) == 260);
    shoal_tokenizer_destroy(trained);
}

/* ---- lines and ranks ------------------------------------------------------------------------- */

static void lines(const char *folder)
{
    char text[400], path[400];
    shoal_monitor *monitor = NULL;
    shoal_progress *progress = NULL;
    snprintf(path, sizeof path, "%s/progress", folder);
    FILE *out = fopen(path, "w");
    NEED(out != NULL);
    shoal_monitor_args sinks = {.jsonl_enabled = true, .jsonl_output_path = folder};
    ASK(shoal_monitor_args, sinks);
    NEED(shoal_monitor_create(&sinks, &monitor) == SHOAL_OK && shoal_monitor_enabled(monitor));
    NEED(shoal_monitor_write(monitor, 1, 8, &(shoal_event){"loss", 2}, 1) == SHOAL_OK);
    shoal_monitor_destroy(monitor);
    shoal_progress_args args = {.out = out, .style = SHOAL_PROGRESS_PLAIN, .plain_every = 1};
    ASK(shoal_progress_args, args);
    NEED(shoal_progress_create(&args, &progress) == SHOAL_OK);
    shoal_progress_update(progress, &(shoal_progress_values){.step = 1, .loss = 2.5});
    shoal_progress_destroy(progress);
    fclose(out);
    out = fopen(path, "r");
    NEED(out != NULL && fgets(text, sizeof text, out) != NULL && strstr(text, "loss 2.5000"));
    fclose(out);
    const shoal_throughput speed = {.epoch = 3};
    const shoal_iteration_line iteration = {.iteration = 7, .loss = 1.5};
    NEED(strstr(shoal_format_throughput_line(&speed, text, sizeof text), "epoch=3"));
    NEED(strstr(shoal_format_iteration_line(&iteration, text, sizeof text), "lm loss: 1.5"));
}

static void launch(void)
{
    const char *const program[] = {"/bin/sh", "-c", "exit 5", NULL};
    int code = -1;
    shoal_launch_args args = {
        .program = program, .ranks = 1, .master_port = SHOAL_ANY_PORT, .no_local_rank = true};
    ASK(shoal_launch_args, args);
    NEED(shoal_launch(&args, &code) == SHOAL_OK && code == 5);
}

int main(int argc, char **argv)
{
    NEED(argc > 1);
    asked = argc > 2 ? argv[2] : "";
    NEED(shoal_log_configure("off", NULL, NULL) == SHOAL_OK);
    launch(); /* first: it wants a process without threads of its own */
    own_model(argv[1]);
    gpt();
    attention();
    data_files(argv[1]);
    tokenizers(argv[1]);
    lines(argv[1]);
    printf("passed with libshoal %s\n", shoal_version());
    return 0;
}
