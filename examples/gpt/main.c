/* A small GPT learns random tokens and saves a checkpoint: the core alone, without the program.
 * Usage: gpt [FOLDER [STEPS]]. Its weights are those of
 *
 *   shoal pretrain gpt --mock-data --vocab-size 256 --num-layers 2 --hidden-size 64 \
 *     --num-attention-heads 2 --seq-length 32 --seed 1234 --train-iters STEPS --save FOLDER \
 *     --deepspeed_config CONFIG   (the text below) */
#include <shoal/shoal.h>

#include <stdio.h>
#include <stdlib.h>

enum { SEED = 1234, TOKENS = 32, VOCABULARY = 256 };

static const char config[] =
    "{ \"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 4, \"reduction\": \"exact\",\n"
    "  \"optimizer\": { \"type\": \"AdamW\", \"params\": { \"lr\": 0.001 } } }";

/* What a run holds; all NULL at first. */
struct run {
    shoal_group *group;
    shoal_dataset *dataset;
    shoal_model *model;
    shoal_engine *engine;
    shoal_loader *loader;
    int32_t *tokens, *targets; /* of a micro-batch */
    int64_t samples;           /* of a micro-batch */
};

static shoal_status make_model(shoal_model **model)
{
    shoal_gpt_config gpt;
    shoal_gpt_config_defaults(&gpt);
    gpt.num_layers = 2;
    gpt.hidden_size = 64;
    gpt.num_attention_heads = 2;
    gpt.seq_length = TOKENS;
    gpt.vocab_size = VOCABULARY;
    return shoal_gpt_create(&gpt, model);
}

static shoal_status make_loader(struct run *run)
{
    int64_t step_samples;
    shoal_engine_get_batch_info(run->engine, &step_samples, &run->samples, NULL);
    const size_t bytes = (size_t)(run->samples * TOKENS) * sizeof(int32_t);
    run->tokens = malloc(bytes);
    run->targets = malloc(bytes);
    if (!run->tokens || !run->targets)
        return SHOAL_ENOMEM;
    return shoal_loader_create(&(shoal_loader_args){.dataset = run->dataset,
                                                    .seq_length = TOKENS,
                                                    .micro_batch = run->samples,
                                                    .micro_batches = step_samples / run->samples,
                                                    .seed = SEED},
                               &run->loader);
}

static shoal_status prepare(struct run *run)
{
    shoal_status status = shoal_comm_init(&(shoal_comm_args){0}, &run->group);
    if (status >= 0)
        status = shoal_dataset_create(
            &(shoal_dataset_args){.mock = true, .mock_vocab_size = VOCABULARY, .seed = SEED},
            &run->dataset);
    if (status >= 0)
        status = make_model(&run->model);
    if (status >= 0)
        status = shoal_engine_create(
            &(shoal_engine_args){
                .model = run->model, .config_text = config, .group = run->group, .seed = SEED},
            &run->engine);
    return status < 0 ? status : make_loader(run);
}

/* The engine asks for the micro-batches of its own rank. */
static shoal_status fill(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    struct run *run = user;
    batch->data[0] = run->tokens;
    batch->data[1] = run->targets;
    return shoal_loader_get(run->loader, step, micro, run->tokens, run->targets);
}

static shoal_status train(struct run *run, int64_t steps)
{
    shoal_step_info info;
    shoal_status status = SHOAL_OK;
    for (int64_t i = 0; i < steps && status >= 0; i++) {
        status = shoal_engine_train_batch(run->engine, fill, run, &info);
        if (status >= 0 && shoal_engine_rank(run->engine) == 0)
            printf("step %d  loss %.5f\n", (int)i + 1, info.loss);
    }
    return status;
}

int main(int argc, char **argv)
{
    /* `shoal run` may put --local_rank=N first */
    const int first = argc > 1 && argv[1][0] == '-' ? 2 : 1;
    const char *folder = argc > first ? argv[first] : NULL;
    const int64_t steps = argc > first + 1 ? atoi(argv[first + 1]) : 10;
    struct run run = {0};
    shoal_status status = prepare(&run);
    if (status >= 0)
        status = train(&run, steps);
    if (status >= 0 && folder)
        status = shoal_engine_save_checkpoint(run.engine, folder, NULL, NULL);
    if (status < 0)
        fprintf(stderr, "%s\n", shoal_error_message());
    shoal_loader_destroy(run.loader);
    shoal_engine_destroy(run.engine);
    shoal_model_destroy(run.model);
    shoal_dataset_destroy(run.dataset);
    shoal_comm_destroy(run.group);
    free(run.tokens);
    free(run.targets);
    return status < 0;
}
