/* What published files call the parameters of a decoder: a row for each way. A name of a weight
 * matrix or a norm stands without ".weight" and ".bias". */
#include "transformer/llama.h"

/* Rows differ from Llama's in a few names. */
#define LLAMA_BLOCK                                                       \
    .model = "model", .tokens = "embed_tokens", .blocks = "model.layers", \
    .input_norm = "input_layernorm", .mlp_norm = "post_attention_layernorm"
#define LLAMA_ENDS                                                                     \
    .positions = "embed_positions", .post_attention_norm = "post_attention_layernorm", \
    .post_mlp_norm = "post_feedforward_layernorm"
#define HEADS .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"
#define QKV .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj"
#define GLU .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"

const char *const shoali_llama_layouts[] = {"llama",    "phi",       "phi3",        "starcoder2",
                                            "gpt_neox", "gptj",      "falcon",      "falcon_ln2",
                                            "opt",      "internlm2", "gpt_bigcode", NULL};
const struct shoali_llama_names shoali_llama_names[] = {
    {LLAMA_BLOCK, LLAMA_ENDS, HEADS, QKV, GLU, .o = "self_attn.o_proj", .norm = "model.norm",
     .head = "lm_head"},
    {LLAMA_BLOCK, LLAMA_ENDS, HEADS, QKV, .o = "self_attn.dense", .gate = "mlp.gate_proj",
     .up = "mlp.fc1", .down = "mlp.fc2", .norm = "model.final_layernorm", .head = "lm_head"},
    {LLAMA_BLOCK, LLAMA_ENDS, HEADS, .qkv = "self_attn.qkv_proj", .o = "self_attn.o_proj",
     .gate_up = "mlp.gate_up_proj", .up = "mlp.up_proj", .down = "mlp.down_proj",
     .norm = "model.norm", .head = "lm_head"},
    {LLAMA_BLOCK, LLAMA_ENDS, HEADS, QKV, .o = "self_attn.o_proj", .gate = "mlp.gate_proj",
     .up = "mlp.c_fc", .down = "mlp.c_proj", .norm = "model.norm", .head = "lm_head"},
    {LLAMA_ENDS, .model = "gpt_neox", .tokens = "embed_in", .blocks = "gpt_neox.layers",
     .input_norm = "input_layernorm", .mlp_norm = "post_attention_layernorm",
     .q_norm = "attention.q_norm", .k_norm = "attention.k_norm", .qkv = "attention.query_key_value",
     .grouped = true, .o = "attention.dense", .gate = "mlp.gate_proj", .up = "mlp.dense_h_to_4h",
     .down = "mlp.dense_4h_to_h", .norm = "gpt_neox.final_layer_norm", .head = "embed_out"},
    {LLAMA_ENDS, .model = "transformer", .tokens = "wte", .blocks = "transformer.h",
     .input_norm = "ln_1", .mlp_norm = "ln_2", .q = "attn.q_proj", .k = "attn.k_proj",
     .v = "attn.v_proj", .q_norm = "attn.q_norm", .k_norm = "attn.k_norm", .o = "attn.out_proj",
     .gate = "mlp.gate_proj", .up = "mlp.fc_in", .down = "mlp.fc_out", .norm = "transformer.ln_f",
     .head = "lm_head"},
#define FALCON                                                                                   \
    LLAMA_ENDS, .model = "transformer", .tokens = "word_embeddings", .blocks = "transformer.h",  \
                .q_norm = "self_attention.q_norm", .k_norm = "self_attention.k_norm",            \
                .qkv = "self_attention.query_key_value", .grouped = true,                        \
                .o = "self_attention.dense", .gate = "mlp.gate_proj", .up = "mlp.dense_h_to_4h", \
                .down = "mlp.dense_4h_to_h", .norm = "transformer.ln_f", .head = "lm_head"
    {FALCON, .input_norm = "input_layernorm", .mlp_norm = "post_attention_layernorm"},
    {FALCON, .input_norm = "ln_attn", .mlp_norm = "ln_mlp"},
    {LLAMA_ENDS, .model = "model.decoder", .tokens = "embed_tokens", .spare_positions = 2,
     .blocks = "model.decoder.layers", .input_norm = "self_attn_layer_norm",
     .mlp_norm = "final_layer_norm", HEADS, QKV, .o = "self_attn.out_proj", .gate = "gate_proj",
     .up = "fc1", .down = "fc2", .norm = "model.decoder.final_layer_norm", .head = "lm_head"},
    {LLAMA_ENDS, .model = "model", .tokens = "tok_embeddings", .blocks = "model.layers",
     .input_norm = "attention_norm", .mlp_norm = "ffn_norm", .q_norm = "attention.q_norm",
     .k_norm = "attention.k_norm", .qkv = "attention.wqkv", .grouped = true, .o = "attention.wo",
     .gate = "feed_forward.w1", .up = "feed_forward.w3", .down = "feed_forward.w2",
     .norm = "model.norm", .head = "output"},
    {.positions = "wpe",
     .post_attention_norm = "post_attention_layernorm",
     .post_mlp_norm = "post_feedforward_layernorm",
     .model = "transformer",
     .tokens = "wte",
     .blocks = "transformer.h",
     .input_norm = "ln_1",
     .mlp_norm = "ln_2",
     .q_norm = "attn.q_norm",
     .k_norm = "attn.k_norm",
     .qkv = "attn.c_attn",
     .grouped = true,
     .o = "attn.c_proj",
     .gate = "mlp.gate_proj",
     .up = "mlp.c_fc",
     .down = "mlp.c_proj",
     .norm = "transformer.ln_f",
     .head = "lm_head"},
};
