/* Architectures of llama.cpp: the names of their tensors and metadata, and those of the
 * corresponding Hugging Face families. */
#include <string.h>

#include "export/gguf.h"

static const by__export_gguf_layer llama_layers[] = {
    {"token_embd", "embed_tokens", BY__GGUF_PLAIN, false},
    {"output_norm", "norm", BY__GGUF_PLAIN, true},
    {0},
};

/* What a block of a mixture shares with one of a llama, and their metadata. */
#define LLAMA_BLOCK                                                                                \
    {"attn_norm", "input_layernorm", BY__GGUF_PLAIN, true},                                        \
        {"attn_q", "self_attn.q_proj", BY__GGUF_HEADS, false},                                     \
        {"attn_k", "self_attn.k_proj", BY__GGUF_KV_HEADS, false},                                  \
        {"attn_v", "self_attn.v_proj", BY__GGUF_PLAIN, false},                                     \
        {"attn_output", "self_attn.o_proj", BY__GGUF_PLAIN, false},                                \
        {"attn_q_norm", "self_attn.q_norm", BY__GGUF_PLAIN, true},                                 \
        {"attn_k_norm", "self_attn.k_norm", BY__GGUF_PLAIN, true},                                 \
    {                                                                                              \
        "ffn_norm", "post_attention_layernorm", BY__GGUF_PLAIN, true                               \
    }
#define LLAMA_KEYS                                                                                 \
    {"context_length", "max_position_embeddings", BY__GGUF_WHOLE, false},                          \
        {"embedding_length", "hidden_size", BY__GGUF_WHOLE, false},                                \
        {"block_count", "num_hidden_layers", BY__GGUF_WHOLE, false},                               \
        {"feed_forward_length", "intermediate_size", BY__GGUF_WHOLE, false},                       \
        {"attention.head_count", "num_attention_heads", BY__GGUF_WHOLE, false},                    \
        {"attention.head_count_kv", "num_key_value_heads", BY__GGUF_WHOLE, true},                  \
        {"attention.key_length", "head_dim", BY__GGUF_WHOLE, true},                                \
        {"attention.layer_norm_rms_epsilon", "rms_norm_eps", BY__GGUF_REAL, false},                \
    {                                                                                              \
        "rope.freq_base", "rope_theta", BY__GGUF_REAL, true                                        \
    }

static const by__export_gguf_layer llama_blocks[] = {
    LLAMA_BLOCK,
    {"ffn_gate", "mlp.gate_proj", BY__GGUF_PLAIN, false},
    {"ffn_up", "mlp.up_proj", BY__GGUF_PLAIN, false},
    {"ffn_down", "mlp.down_proj", BY__GGUF_PLAIN, false},
    {0},
};

static const by__export_gguf_key llama_keys[] = {
    LLAMA_KEYS,
    {0},
};

/* llama.cpp computes the router and its choice in f32. */
static const by__export_gguf_layer mixtral_blocks[] = {
    LLAMA_BLOCK,
    {"ffn_gate_inp", "block_sparse_moe.gate", BY__GGUF_PLAIN, true},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.w1", BY__GGUF_EXPERTS, false},
    {"ffn_up_exps", "block_sparse_moe.experts.*.w3", BY__GGUF_EXPERTS, false},
    {"ffn_down_exps", "block_sparse_moe.experts.*.w2", BY__GGUF_EXPERTS, false},
    {0},
};

static const by__export_gguf_key mixtral_keys[] = {
    LLAMA_KEYS,
    {BY__GGUF_EXPERT_COUNT, "num_local_experts", BY__GGUF_WHOLE, false},
    {"expert_used_count", "num_experts_per_tok", BY__GGUF_WHOLE, false},
    {0},
};

static const by__export_gguf_layer gpt2_layers[] = {
    {"token_embd", "wte", BY__GGUF_PLAIN, false},
    {"position_embd", "wpe", BY__GGUF_PLAIN, true},
    {"output_norm", "ln_f", BY__GGUF_PLAIN, true},
    {0},
};

static const by__export_gguf_layer gpt2_blocks[] = {
    {"attn_norm", "ln_1", BY__GGUF_PLAIN, true},
    {"attn_qkv", "attn.c_attn", BY__GGUF_TRANSPOSED, false},
    {"attn_output", "attn.c_proj", BY__GGUF_TRANSPOSED, false},
    {"ffn_norm", "ln_2", BY__GGUF_PLAIN, true},
    {"ffn_up", "mlp.c_fc", BY__GGUF_TRANSPOSED, false},
    {"ffn_down", "mlp.c_proj", BY__GGUF_TRANSPOSED, false},
    {0},
};

static const by__export_gguf_key gpt2_keys[] = {
    {"context_length", "n_positions", BY__GGUF_WHOLE, false},
    {"embedding_length", "n_embd", BY__GGUF_WHOLE, false},
    {"block_count", "n_layer", BY__GGUF_WHOLE, false},
    {"feed_forward_length", "n_inner", BY__GGUF_WHOLE, true},
    {"attention.head_count", "n_head", BY__GGUF_WHOLE, false},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", BY__GGUF_REAL, false},
    {0},
};

static const by__export_gguf_architecture architectures[] = {
    {"gpt2",
     {"gpt2"},
     "GPT2LMHeadModel",
     "transformer.",
     "h.",
     gpt2_layers,
     gpt2_blocks,
     gpt2_keys,
     false,
     false,
     false},
    {"llama",
     {"llama", "mistral"},
     "LlamaForCausalLM",
     "model.",
     "layers.",
     llama_layers,
     llama_blocks,
     llama_keys,
     true,
     true,
     false},
    {"llama",
     {"mixtral"},
     "MixtralForCausalLM",
     "model.",
     "layers.",
     llama_layers,
     mixtral_blocks,
     mixtral_keys,
     true,
     true,
     true},
    {"qwen2",
     {"qwen2"},
     "Qwen2ForCausalLM",
     "model.",
     "layers.",
     llama_layers,
     llama_blocks,
     llama_keys,
     true,
     false,
     false},
    {"qwen3",
     {"qwen3"},
     "Qwen3ForCausalLM",
     "model.",
     "layers.",
     llama_layers,
     llama_blocks,
     llama_keys,
     true,
     false,
     false},
    {"smollm3",
     {"smollm3"},
     "SmolLM3ForCausalLM",
     "model.",
     "layers.",
     llama_layers,
     llama_blocks,
     llama_keys,
     true,
     true,
     false},
};

const by__export_gguf_architecture *by__export_gguf_architecture_of(const char *model_type)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(architectures); i++) {
        for (size_t k = 0; k < 3 && architectures[i].model_types[k] != NULL; k++) {
            if (strcmp(architectures[i].model_types[k], model_type) == 0) {
                return &architectures[i];
            }
        }
    }
    return NULL;
}

const by__export_gguf_architecture *by__export_gguf_architecture_named(const char *name,
                                                                       bool experts)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(architectures); i++) {
        if (strcmp(architectures[i].name, name) == 0 && architectures[i].experts == experts) {
            return &architectures[i];
        }
    }
    return NULL;
}

by_status by__export_gguf_architectures(char **out, by_error *error)
{
    by_string text = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(architectures); i++) {
        by_string_format(&text, "%s%s%s", i == 0 ? "" : ", ", architectures[i].name,
                         architectures[i].experts ? " with experts" : "");
    }
    return by__string_release(&text, out, error);
}
