/* Models by name, and what flags change of them. */
#include "bench.h"

#include "base/str.h"

#include <string.h>

struct named_model {
    const char *name;
    int64_t layers, hidden, heads, vocabulary, positions, sequence, micro_batch;
};
/* The first with the batch that docs and peers use. */
static const struct named_model models[] = {
    {"gpt2-124m", 12, 768, 12, 50257, 1024, 256, 4},
    {"gpt2-355m", 24, 1024, 16, 50257, 1024, 256, 4},
    {"gpt2-774m", 36, 1280, 20, 50257, 1024, 256, 4},
    {"gpt2-1558m", 48, 1600, 25, 50257, 1024, 256, 4},
    {"tiny", 4, 128, 4, 65, 64, 64, 12},
};
enum { MODELS = sizeof models / sizeof models[0] };

static shoal_status find_model(const char *name, const struct named_model **model)
{
    const char *names[MODELS];
    for (int i = 0; i < MODELS; i++) {
        names[i] = models[i].name;
        *model = &models[i];
        if (strcmp(name, names[i]) == 0)
            return SHOAL_OK;
    }
    const char *nearest = shoali_nearest(name, names, MODELS);
    return SHOAL_FAIL(SHOAL_ECONFIG,
                      "--model: there is no model \"%s\"%s%s; shoal bench step --help "
                      "lists them",
                      name, nearest ? "; nearest is " : "", nearest ? nearest : "");
}

static void change(const struct shoali_section *section, const struct bench_options *options,
                   const char *flag, int64_t given, int64_t *number)
{
    if (shoali_config_given(section, options, flag))
        *number = given;
}

shoal_status bench_model(const struct shoali_section *section, const struct bench_options *options,
                         shoal_gpt_config *config, int64_t *micro_batch)
{
    const struct named_model *model;
    shoal_status status;
    SHOAL_TRY(status, find_model(options->model, &model), done);
    shoal_gpt_config_defaults(config);
    config->num_layers = model->layers;
    config->hidden_size = model->hidden;
    config->num_attention_heads = model->heads;
    config->vocab_size = model->vocabulary;
    config->seq_length = model->sequence;
    config->attention_dropout = config->hidden_dropout = 0;
    config->openai_gelu = 1;
    *micro_batch = model->micro_batch;
    change(section, options, "num-layers", options->num_layers, &config->num_layers);
    change(section, options, "hidden-size", options->hidden_size, &config->hidden_size);
    change(section, options, "num-attention-heads", options->num_attention_heads,
           &config->num_attention_heads);
    change(section, options, "vocab-size", options->vocab_size, &config->vocab_size);
    change(section, options, "seq-length", options->seq_length, &config->seq_length);
    change(section, options, "micro-batch", options->micro_batch, micro_batch);
    config->max_position_embeddings =
        config->seq_length > model->positions ? config->seq_length : model->positions;
done:
    return status;
}
