/* Derives the config.json of a GGUF file from its metadata. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "export/gguf_read.h"
#include "export/gguf_write.h"
#include "text/tokenizer/gguf_tokenizer.h"

typedef struct gguf_config_reader {
    const by__format_gguf_file *file;
    const by__export_gguf_architecture *architecture;
    const char *name; /* of the file */
    json_t *root;
} gguf_config_reader;

static const char *key_of(char out[128], const gguf_config_reader *r, const char *key)
{
    (void)snprintf(out, 128, "%s.%s", r->architecture->name, key);
    return out;
}

/* Returns the shortest decimal that is the same f32: 1e-05, not 9.99999975e-06. */
static double short_real(double value)
{
    char text[32];
    for (int digits = 1; digits < 9; digits++) {
        double back;
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (by__parse_f64(text, &back) && (float)back == (float)value) {
            return back;
        }
    }
    return value;
}

static by_status lacks(const gguf_config_reader *r, const char *key, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s has no %s.%s, or one that is out of range", r->name,
                        r->architecture->name, key);
}

static by_status read_key(const gguf_config_reader *r, const by__export_gguf_key *k,
                          by_error *error)
{
    char key[128];
    uint64_t whole = 0;
    double real = 0.0;
    bool is_whole = k->kind == BY__GGUF_WHOLE;
    key_of(key, r, k->gguf);
    if (by__format_gguf_find(r->file, key) == NULL && k->optional) {
        return BY_OK;
    }
    bool good = is_whole ? by__format_gguf_whole(r->file, key, &whole) && whole <= INT32_MAX
                         : by__format_gguf_real(r->file, key, &real) && isfinite(real);
    if (!good) {
        return lacks(r, k->gguf, error);
    }
    (void)json_object_set_new(r->root, k->other,
                              is_whole ? json_integer((json_int_t)whole)
                                       : json_real(short_real(real)));
    return BY_OK;
}

static bool has_tensor(const gguf_config_reader *r, const char *name)
{
    return by__name_table_find(&r->file->names, name) >= 0;
}

static void set_real(json_t *object, const char *to, const gguf_config_reader *r, const char *key)
{
    char name[128];
    double value;
    if (by__format_gguf_real(r->file, key_of(name, r, key), &value) && isfinite(value)) {
        (void)json_object_set_new(object, to, json_real(short_real(value)));
    }
}

/* Recognises rope_type llama3 from the file's frequency factors, by computing those that it would
 * have and comparing. */
static by_status read_frequencies(const gguf_config_reader *r, json_t *scaling, by_error *error)
{
    char key[128];
    uint64_t context = 8192;
    const by__format_gguf_description *t =
        &r->file->tensors[by__name_table_find(&r->file->names, "rope_freqs.weight")];
    float *expected;
    if (t->type != 0 || t->rank != 1 || t->size[0] < 1 || t->size[0] > 65536) {
        return by_error_set(error, BY_EFORMAT, "%s: rope_freqs.weight is not f32 [n]", r->name);
    }
    size_t count = (size_t)t->size[0];
    float last;
    memcpy(&last, t->data + (count - 1) * sizeof last, sizeof last);
    (void)by__format_gguf_whole(r->file, key_of(key, r, "rope.scaling.original_context_length"),
                                &context);
    (void)json_object_set_new(scaling, "rope_type", json_string("llama3"));
    (void)json_object_set_new(scaling, "factor", json_real(short_real((double)last)));
    (void)json_object_set_new(scaling, "low_freq_factor", json_real(1.0));
    (void)json_object_set_new(scaling, "high_freq_factor", json_real(4.0));
    (void)json_object_set_new(scaling, "original_max_position_embeddings",
                              json_integer((json_int_t)context));
    (void)json_object_set(r->root, "rope_scaling", scaling);
    BY_TRY(by__alloc((void **)&expected, count, sizeof *expected, "frequencies", error));
    by__export_gguf_frequency_factors(expected, 2 * (int64_t)count, r->root);
    bool equal = true;
    for (size_t i = 0; i < count; i++) {
        float factor;
        memcpy(&factor, t->data + i * sizeof factor, sizeof factor);
        equal = equal && isfinite(factor) && fabsf(factor - expected[i]) <= 1e-4f * fabsf(factor);
    }
    free(expected);
    return equal ? BY_OK
                 : by_error_set(error, BY_EFORMAT,
                                "%s: the factors of frequencies in rope_freqs.weight are not those "
                                "of rope_type llama3 with frequency factors 1 and 4",
                                r->name);
}

static by_status read_scaling(const gguf_config_reader *r, json_t *scaling, by_error *error)
{
    char key[128];
    uint64_t context;
    key_of(key, r, "rope.scaling.type");
    bool yarn = by__format_gguf_is(r->file, key, "yarn");
    bool linear = by__format_gguf_is(r->file, key, "linear");
    if (has_tensor(r, "rope_freqs.weight")) {
        return read_frequencies(r, scaling, error);
    }
    if (by__format_gguf_find(r->file, key) == NULL || by__format_gguf_is(r->file, key, "none")) {
        return BY_OK;
    }
    if (!yarn && !linear) {
        return by_error_set(error, BY_EFORMAT, "%s: %s is none of linear, yarn, none", r->name,
                            key);
    }
    (void)json_object_set_new(scaling, "rope_type", json_string(yarn ? "yarn" : "linear"));
    set_real(scaling, "factor", r, "rope.scaling.factor");
    if (yarn) {
        set_real(scaling, "beta_fast", r, "rope.scaling.yarn_beta_fast");
        set_real(scaling, "beta_slow", r, "rope.scaling.yarn_beta_slow");
        if (by__format_gguf_whole(r->file, key_of(key, r, "rope.scaling.original_context_length"),
                                  &context)) {
            (void)json_object_set_new(scaling, "original_max_position_embeddings",
                                      json_integer((json_int_t)(context & INT32_MAX)));
        }
    }
    (void)json_object_set(r->root, "rope_scaling", scaling);
    return BY_OK;
}

static int64_t number(const json_t *root, const char *key)
{
    return json_integer_value(json_object_get(root, key));
}

/* Reads what Llama and its descendants have beyond the table of keys. */
static by_status read_rotary(const gguf_config_reader *r, by_error *error)
{
    json_t *scaling = json_object();
    bool bias = has_tensor(r, "blk.0.attn_q.bias");
    int64_t heads = number(r->root, "num_attention_heads");
    (void)json_object_set_new(r->root, "hidden_act", json_string("silu"));
    if (strcmp(r->architecture->name, "qwen2") != 0) {
        (void)json_object_set_new(r->root, "attention_bias", json_boolean(bias));
    }
    if (has_tensor(r, "blk.0.ffn_up.bias")) {
        (void)json_object_set_new(r->root, "mlp_bias", json_true());
    }
    /* In transformers, Llama needs a head width of width / heads; Mistral, otherwise equal, does
     * not. */
    if (strcmp(r->architecture->model_types[0], "llama") == 0 && heads > 0 &&
        number(r->root, "hidden_size") % heads != 0) {
        json_t *classes = json_pack("[s]", "MistralForCausalLM");
        (void)json_object_set_new(r->root, "model_type", json_string("mistral"));
        (void)json_object_set_new(r->root, "architectures", classes);
        (void)json_object_set_new(r->root, "sliding_window", json_null());
    }
    by_status status = read_scaling(r, scaling, error);
    json_decref(scaling);
    return status;
}

/* The origin that by_export records, in the form that a config.json has it. */
static void read_origin(const gguf_config_reader *r)
{
    static const char *const keys[] = {"banyan.run", "banyan.config_hash", "banyan.data_hash"};
    json_t *origin = json_object();
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        const char *text;
        size_t length;
        if (by__format_gguf_text(r->file, keys[i], &text, &length)) {
            (void)json_object_set_new(origin, strchr(keys[i], '.') + 1, json_stringn(text, length));
        }
    }
    if (json_object_size(origin) > 0) {
        (void)json_object_set(r->root, "banyan", origin);
    }
    json_decref(origin);
}

static by_status read_all(const gguf_config_reader *r, by_error *error)
{
    uint64_t id;
    int32_t table = by__name_table_find(&r->file->names, "token_embd.weight");
    if (table < 0 || r->file->tensors[table].rank != 2) {
        return by_error_set(error, BY_EFORMAT, "%s has no token_embd.weight of two dimensions",
                            r->name);
    }
    for (const by__export_gguf_key *k = r->architecture->keys; k->gguf != NULL; k++) {
        BY_TRY(read_key(r, k, error));
    }
    if (number(r->root, "num_attention_heads") == 0 && number(r->root, "n_head") == 0) {
        return lacks(r, "attention.head_count", error);
    }
    (void)json_object_set_new(r->root, "vocab_size", json_integer(r->file->tensors[table].size[1]));
    (void)json_object_set_new(r->root, "tie_word_embeddings",
                              json_boolean(!has_tensor(r, "output.weight")));
    if (by__format_gguf_whole(r->file, "tokenizer.ggml.bos_token_id", &id) && id <= INT32_MAX) {
        (void)json_object_set_new(r->root, "bos_token_id", json_integer((json_int_t)id));
    }
    if (by__format_gguf_whole(r->file, "tokenizer.ggml.eos_token_id", &id) && id <= INT32_MAX) {
        (void)json_object_set_new(r->root, "eos_token_id", json_integer((json_int_t)id));
    }
    read_origin(r);
    if (r->architecture->rotary) {
        return read_rotary(r, error);
    }
    (void)json_object_set_new(r->root, "activation_function", json_string("gelu_new"));
    return BY_OK;
}

by_status by__export_gguf_read_config(char **out, const by__export_gguf_architecture *architecture,
                                      const char *name, const by__format_gguf_file *file,
                                      by_error *error)
{
    gguf_config_reader r = {
        .file = file, .architecture = architecture, .name = name, .root = json_object()};
    (void)json_object_set_new(r.root, "architectures", json_pack("[s]", architecture->class_name));
    (void)json_object_set_new(r.root, "model_type", json_string(architecture->model_types[0]));
    by_status status = read_all(&r, error);
    *out = status == BY_OK ? json_dumps(r.root, JSON_INDENT(2)) : NULL;
    json_decref(r.root);
    if (status == BY_OK && *out == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: config.json");
    }
    return status;
}
