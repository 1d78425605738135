/* The families, and what all of them may have in config.json. */
#include "hub/hub.h"

const struct shoali_hub_family *const shoali_hub_families[] = {
    &shoali_hub_gpt2,  &shoali_hub_llama,         &shoali_hub_mistral,
    &shoali_hub_qwen2, &shoali_hub_qwen3,         &shoali_hub_gemma,
    &shoali_hub_bert,  &shoali_hub_megatron_bert, NULL,
};

#define PASSED(name)                          \
    {                                         \
        .key = name, .use = SHOALI_HUB_PASSED \
    }
#define ONLY(name, value)                                  \
    {                                                      \
        .key = name, .use = SHOALI_HUB_ONLY, .only = value \
    }

const struct shoali_hub_key shoali_hub_common[] = {
    {.key = "model_type", .use = SHOALI_HUB_OWN},
    {.key = "architectures", .use = SHOALI_HUB_OWN},
    {.key = "torch_dtype", .alias = "dtype", .use = SHOALI_HUB_OWN},
    {.key = "shoal", .use = SHOALI_HUB_OWN},
    ONLY("is_encoder_decoder", "false"),
    ONLY("add_cross_attention", "false"),
    ONLY("cross_attention_hidden_size", "null"),
    ONLY("pruned_heads", "{}"),
    ONLY("quantization_config", "null"),
    PASSED("_name_or_path"),
    PASSED("_attn_implementation"),
    PASSED("_attn_implementation_autoset"),
    PASSED("_commit_hash"),
    PASSED("_num_labels"),
    PASSED("auto_map"),
    PASSED("bos_token_id"),
    PASSED("eos_token_id"),
    PASSED("pad_token_id"),
    PASSED("sep_token_id"),
    PASSED("cls_token_id"),
    PASSED("mask_token_id"),
    PASSED("decoder_start_token_id"),
    PASSED("forced_bos_token_id"),
    PASSED("forced_eos_token_id"),
    PASSED("chunk_size_feed_forward"),
    PASSED("finetuning_task"),
    PASSED("gradient_checkpointing"),
    PASSED("id2label"),
    PASSED("label2id"),
    PASSED("num_labels"),
    PASSED("is_decoder"),
    PASSED("output_attentions"),
    PASSED("output_hidden_states"),
    PASSED("output_past"),
    PASSED("output_scores"),
    PASSED("prefix"),
    PASSED("problem_type"),
    PASSED("return_dict"),
    PASSED("return_dict_in_generate"),
    PASSED("task_specific_params"),
    PASSED("tf_legacy_loss"),
    PASSED("tokenizer_class"),
    PASSED("torchscript"),
    PASSED("transformers_version"),
    PASSED("unsloth_fixed"),
    PASSED("unsloth_version"),
    PASSED("use_bfloat16"),
    PASSED("use_cache"),
    /* of generation */
    PASSED("bad_words_ids"),
    PASSED("begin_suppress_tokens"),
    PASSED("diversity_penalty"),
    PASSED("do_sample"),
    PASSED("early_stopping"),
    PASSED("encoder_no_repeat_ngram_size"),
    PASSED("exponential_decay_length_penalty"),
    PASSED("length_penalty"),
    PASSED("max_length"),
    PASSED("min_length"),
    PASSED("no_repeat_ngram_size"),
    PASSED("num_beam_groups"),
    PASSED("num_beams"),
    PASSED("num_return_sequences"),
    PASSED("remove_invalid_values"),
    PASSED("repetition_penalty"),
    PASSED("suppress_tokens"),
    PASSED("temperature"),
    PASSED("top_k"),
    PASSED("top_p"),
    PASSED("typical_p"),
};
const int32_t shoali_hub_common_count =
    (int32_t)(sizeof shoali_hub_common / sizeof shoali_hub_common[0]);

const char *const shoali_hub_training[] = {
    "seq-length",
    "make-vocab-size-divisible-by",
    "cross-entropy-loss-fusion",
    "label-smoothing",
    "attention-dropout",
    "hidden-dropout",
    "init-method-std",
    "bert-binary-head",
    NULL,
};
