/* BERT: as published, and with Megatron's order of norms. */
#include "hub/hub.h"

#include <jansson.h>
#include <string.h>

static const struct shoali_hub_key keys[] = {
    {"num_hidden_layers", NULL, SHOALI_HUB_NEEDED, "num-layers", 0, NULL},
    {"hidden_size", NULL, SHOALI_HUB_NEEDED, "hidden-size", 0, NULL},
    {"num_attention_heads", NULL, SHOALI_HUB_NEEDED, "num-attention-heads", 0, NULL},
    {"intermediate_size", NULL, SHOALI_HUB_NEEDED, "ffn-hidden-size", 0, NULL},
    {"vocab_size", NULL, SHOALI_HUB_NEEDED, "vocab-size", 0, NULL},
    {"max_position_embeddings", NULL, SHOALI_HUB_TAKEN, "max-position-embeddings", 512, NULL},
    {"layer_norm_eps", NULL, SHOALI_HUB_TAKEN, "norm-epsilon", 1e-12, NULL},
    {"hidden_dropout_prob", NULL, SHOALI_HUB_TAKEN, "hidden-dropout", 0.1, NULL},
    {"attention_probs_dropout_prob", NULL, SHOALI_HUB_TAKEN, "attention-dropout", 0.1, NULL},
    {"initializer_range", NULL, SHOALI_HUB_TAKEN, "init-method-std", 0.02, NULL},
    {"hidden_act", NULL, SHOALI_HUB_OWN, NULL, 0, NULL},
    {"type_vocab_size", NULL, SHOALI_HUB_ONLY, NULL, 0, "2"},
    {"position_embedding_type", NULL, SHOALI_HUB_ONLY, NULL, 0, "\"absolute\""},
    {"tie_word_embeddings", NULL, SHOALI_HUB_ONLY, NULL, 0, "true"},
    {"is_decoder", NULL, SHOALI_HUB_ONLY, NULL, 0, "false"},
    {"classifier_dropout", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"directionality", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"pooler_fc_size", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"pooler_num_attention_heads", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"pooler_num_fc_layers", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"pooler_size_per_head", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
    {"pooler_type", NULL, SHOALI_HUB_PASSED, NULL, 0, NULL},
};
static const struct shoali_hub_fixed post_norm[] = {{"bert-pre-norm", 0}};
static const struct shoali_hub_fixed pre_norm[] = {{"bert-pre-norm", 1}};
static const char *const seen[] = {"openai-gelu", "bert-binary-head", NULL};

/* The head for the order of two texts is there, unless the class is the one without it. */
static shoal_status read_head(struct shoali_hub_reader *reader)
{
    const json_t *classes = shoali_hub_get(reader, "architectures");
    const char *name = json_string_value(json_array_get(classes, 0));
    const char *without = name ? strstr(name, "ForMaskedLM") : NULL;
    return shoali_hub_set(reader, "architectures", "bert-binary-head", without == NULL);
}

static shoal_status read(struct shoali_hub_reader *reader)
{
    static const char *const names[] = {"gelu", "gelu_python", "gelu_new", "gelu_pytorch_tanh",
                                        "gelu_fast"};
    enum { ERF = 2 };
    const json_t *value = shoali_hub_get(reader, "hidden_act");
    const char *name = value ? json_string_value(value) : "gelu";
    shoal_status status = read_head(reader);
    for (int i = 0; status == SHOAL_OK && name && i < (int)(sizeof names / sizeof names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return shoali_hub_set(reader, "hidden_act", "openai-gelu", i >= ERF);
    return status < 0 ? status
                      : shoali_hub_refuse(reader, "hidden_act", value,
                                          "and only gelu, gelu_new and gelu_pytorch_tanh are "
                                          "computed");
}

static void write_class(struct shoali_hub_writer *writer, const char *with, const char *without)
{
    const bool tanh_form = shoali_hub_option(writer->config, "openai-gelu") != 0;
    const bool head = shoali_hub_option(writer->config, "bert-binary-head") != 0;
    shoali_hub_put(writer, "hidden_act", json_string(tanh_form ? "gelu_new" : "gelu"));
    shoali_hub_put(writer, "type_vocab_size", json_integer(2));
    shoali_hub_put(writer, "architectures", json_pack("[s]", head ? with : without));
}

static void write(struct shoali_hub_writer *writer)
{
    write_class(writer, "BertForPreTraining", "BertForMaskedLM");
}

static void write_megatron(struct shoali_hub_writer *writer)
{
    write_class(writer, "MegatronBertForPreTraining", "MegatronBertForMaskedLM");
}

const struct shoali_hub_family shoali_hub_bert = {
    .type = "bert",
    .row = "bert",
    .architecture = "BertForPreTraining",
    .keys = SHOALI_HUB_KEYS(keys),
    .fixed = SHOALI_HUB_KEYS(post_norm),
    .seen = seen,
    .read = read,
    .write = write,
};
const struct shoali_hub_family shoali_hub_megatron_bert = {
    .type = "megatron-bert",
    .row = "bert",
    .architecture = "MegatronBertForPreTraining",
    .keys = SHOALI_HUB_KEYS(keys),
    .fixed = SHOALI_HUB_KEYS(pre_norm),
    .seen = seen,
    .read = read,
    .write = write_megatron,
};
