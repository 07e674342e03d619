/* Writes a tokenizer in llama.cpp's terms.
 *
 *   byte-level BPE       model "gpt2": tokens in byte-level letters, merges, and the name ("pre")
 * of
 *                        the pattern that splits the text
 *   BPE over characters  model "llama" (SentencePiece): tokens, and scores that order the merges
 *   characters           model "rwkv": the longest matching token, which is always one character
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "export/gguf_write.h"
#include "text/tokenizer/vocabulary.h"
#include "text/unicode/unicode.h"

/* Types of tokens. */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

static const char *bytes_of(const by_tokenizer *t, uint32_t id, size_t *length)
{
    *length = t->offsets[id + 1] - t->offsets[id];
    return t->bytes + t->offsets[id];
}

/* Appends a token of the RWKV vocabulary; a backslash and bytes outside of printable ASCII are
 * escaped. */
static void add_escaped(by_string *out, const char *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = (uint8_t)data[i];
        if (byte == '\\') {
            by__string_append(out, "\\\\");
        } else if (byte < 0x20 || byte > 0x7e) {
            by_string_format(out, "\\x%02x", byte);
        } else {
            by_string_add(out, &byte, 1);
        }
    }
}

static void add_letters(by_string *out, const char *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        uint8_t utf8[4];
        by_string_add(out, utf8, by__utf8_put(utf8, by__text_byte_letter((uint8_t)data[i])));
    }
}

/* Appends a token's name in the file. */
static void add_name(by_string *out, const by_tokenizer *t, uint32_t id)
{
    size_t length;
    const char *data = bytes_of(t, id, &length);
    if (t->characters) {
        add_escaped(out, data, length);
    } else if (t->byte_level && t->verbatim[id] == 0) {
        add_letters(out, data, length);
    } else {
        by_string_add(out, data, length);
    }
}

/* Adds the names of tokens, and of the unused rows that follow them in the embedding. */
static by_status put_tokens(by__export_gguf_pairs *pairs, const by_tokenizer *t, uint32_t count,
                            by_error *error)
{
    by_string name = {0};
    by__export_gguf_begin_array(pairs, "tokenizer.ggml.tokens", BY__GGUF_STRING, count);
    for (uint32_t id = 0; id < count; id++) {
        name.length = 0;
        if (id < t->vocab) {
            add_name(&name, t, id);
        } else {
            by_string_format(&name, "[PAD%" PRIu32 "]", id);
        }
        if (name.failed) {
            by_string_free(&name);
            return by_error_set(error, BY_EMEMORY, "out of memory: tokens");
        }
        by__export_gguf_add_text(pairs, name.data == NULL ? "" : name.data, name.length);
    }
    by_string_free(&name);
    return BY_OK;
}

static by_status put_types(by__export_gguf_pairs *pairs, const by_tokenizer *t, uint32_t count,
                           by_error *error)
{
    int32_t *types;
    BY_TRY(by__alloc((void **)&types, count, sizeof *types, "types of tokens", error));
    for (uint32_t id = 0; id < count; id++) {
        types[id] = id < t->vocab ? NORMAL : UNUSED;
    }
    for (size_t byte = 0; t->byte_fallback && byte < 256; byte++) {
        if (t->fallback_ids[byte] < count) {
            types[t->fallback_ids[byte]] = BYTE;
        }
    }
    for (size_t i = 0; i < t->added_count; i++) {
        if (t->added[i].id < count) {
            types[t->added[i].id] = t->added[i].special ? CONTROL : USER_DEFINED;
        }
    }
    if (t->unk < count && !t->byte_level) {
        types[t->unk] = UNKNOWN;
    }
    by__export_gguf_begin_array(pairs, "tokenizer.ggml.token_type", BY__GGUF_I32, count);
    by_string_add(&pairs->bytes, types, count * sizeof *types);
    free(types);
    return BY_OK;
}

/* ---- byte-level BPE ---- */

static by_status find_pre(const char **out, const by_tokenizer *t, by_error *error)
{
    const by__tokenizer_pipeline *p = &t->pipeline;
    for (size_t i = 0; i < p->rewrite_count; i++) {
        if (p->rewrites[i].kind != BY__REWRITE_FORM) {
            return by_error_set(error, BY_EFORMAT,
                                "llama.cpp's byte-level tokenizers do not change a text as this "
                                "tokenizer.json does (normalizer, add_prefix_space)");
        }
    }
    const by__tokenizer_splitter *s = p->splitters;
    if (p->splitter_count == 1 && (s->kind == BY__SPLIT_GPT2 || s->kind == BY__SPLIT_RULE)) {
        *out = s->kind == BY__SPLIT_GPT2 ? "gpt-2" : s->rule->name;
        return BY_OK;
    }
    if (p->splitter_count == 2 && s[0].kind == BY__SPLIT_NUMBERS && s[0].digits == 1 &&
        s[1].kind == BY__SPLIT_GPT2) {
        *out = "smollm";
        return BY_OK;
    }
    if (p->splitter_count == 0 && p->source[0] == NULL) {
        *out = "gpt-2";
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT,
                        "llama.cpp has no tokenizer that cuts a text as this tokenizer.json's "
                        "pre_tokenizer does");
}

static by_status put_merges(by__export_gguf_pairs *pairs, const by_tokenizer *t, by_error *error)
{
    by_string merge = {0};
    by__export_gguf_begin_array(pairs, "tokenizer.ggml.merges", BY__GGUF_STRING, t->merge_count);
    for (size_t i = 0; i < t->merge_count; i++) {
        merge.length = 0;
        add_name(&merge, t, t->merges[i].left);
        by__string_append(&merge, " ");
        add_name(&merge, t, t->merges[i].right);
        if (merge.failed) {
            by_string_free(&merge);
            return by_error_set(error, BY_EMEMORY, "out of memory: merges");
        }
        by__export_gguf_add_text(pairs, merge.data, merge.length);
    }
    by_string_free(&merge);
    return BY_OK;
}

static by_status put_byte_level(by__export_gguf_pairs *pairs, const by_tokenizer *t, uint32_t count,
                                by_error *error)
{
    const char *pre;
    BY_TRY(find_pre(&pre, t, error));
    by__export_gguf_put_text(pairs, "tokenizer.ggml.model", "gpt2");
    by__export_gguf_put_text(pairs, "tokenizer.ggml.pre", pre);
    BY_TRY(put_tokens(pairs, t, count, error));
    BY_TRY(put_types(pairs, t, count, error));
    return put_merges(pairs, t, error);
}

/* ---- BPE over characters ---- */

/* SentencePiece merges the pair whose token has the highest score, so earlier merges get higher
 * scores, and tokens that no merge makes get lower ones than all merges. */
static by_status put_scores(by__export_gguf_pairs *pairs, const by_tokenizer *t, uint32_t count,
                            by_error *error)
{
    float *scores;
    BY_TRY(by__alloc((void **)&scores, count, sizeof *scores, "scores of tokens", error));
    for (uint32_t id = 0; id < count; id++) {
        scores[id] = -(float)t->merge_count - 1.0f;
    }
    for (size_t i = t->merge_count; i > 0; i--) {
        scores[t->merges[i - 1].id] = -(float)(i - 1);
    }
    by__export_gguf_begin_array(pairs, "tokenizer.ggml.scores", BY__GGUF_F32, count);
    by_string_add(&pairs->bytes, scores, count * sizeof *scores);
    free(scores);
    return BY_OK;
}

static bool puts_space_in_front(const by__tokenizer_pipeline *p)
{
    for (size_t i = 0; i < p->rewrite_count; i++) {
        by__tokenizer_rewrite_kind kind = p->rewrites[i].kind;
        if (kind == BY__REWRITE_PREPEND || kind == BY__REWRITE_PREFIX ||
            kind == BY__REWRITE_PREFIX_FIRST) {
            return true;
        }
    }
    return false;
}

static by_status put_pieces(by__export_gguf_pairs *pairs, const by_tokenizer *t, uint32_t count,
                            by_error *error)
{
    by__export_gguf_put_text(pairs, "tokenizer.ggml.model", "llama");
    by__export_gguf_put_text(pairs, "tokenizer.ggml.pre", "default");
    BY_TRY(put_tokens(pairs, t, count, error));
    BY_TRY(put_scores(pairs, t, count, error));
    BY_TRY(put_types(pairs, t, count, error));
    by__export_gguf_put_bool(pairs, "tokenizer.ggml.add_space_prefix",
                             puts_space_in_front(&t->pipeline));
    if (t->unk < count) {
        by__export_gguf_put_u32(pairs, "tokenizer.ggml.unknown_token_id", t->unk);
    }
    return BY_OK;
}

static by_status put_characters(by__export_gguf_pairs *pairs, const by_tokenizer *t, uint32_t count,
                                by_error *error)
{
    by__export_gguf_put_text(pairs, "tokenizer.ggml.model", "rwkv");
    BY_TRY(put_tokens(pairs, t, count, error));
    return put_types(pairs, t, count, error);
}

/* ---- special tokens ---- */

static void put_id(by__export_gguf_pairs *pairs, const char *key, int64_t id, uint32_t count)
{
    if (id >= 0 && id < (int64_t)count) {
        by__export_gguf_put_u32(pairs, key, (uint32_t)id);
    }
}

/* Returns the id of a token that tokenizer_config.json names; -1: none. */
static int64_t named(const by__export *e, const char *key)
{
    const json_t *value = json_object_get(e->settings, key);
    value = json_is_object(value) ? json_object_get(value, "content") : value;
    return json_is_string(value) ? by_tokenizer_token_id(e->tokenizer, json_string_value(value),
                                                         json_string_length(value))
                                 : -1;
}

by_status by__export_gguf_put_vocabulary(by__export_gguf_pairs *pairs, const by__export *e,
                                         by_error *error)
{
    const by_tokenizer *t = e->tokenizer;
    uint32_t count = (uint32_t)e->source->config->model.vocab;
    int64_t turn;
    if (t == NULL) { /* the model only has token ids */
        by__export_gguf_put_text(pairs, "tokenizer.ggml.model", "no_vocab");
        return BY_OK;
    }
    if (t->vocab > count) {
        return by_error_set(error, BY_EFORMAT,
                            "the tokenizer has %" PRIu32 " tokens, the model %" PRIu32, t->vocab,
                            count);
    }
    if (t->model_state != NULL) {
        return by_error_set(error, BY_EFORMAT,
                            "a GGUF file has no WordPiece or Unigram tokenizer as tokenizer.json "
                            "describes it; export the model as safetensors");
    }
    BY_TRY((t->characters   ? put_characters
            : t->byte_level ? put_byte_level
                            : put_pieces)(pairs, t, count, error));
    BY_TRY(by__export_eot(&turn, e, error));
    int64_t front = by__export_bos(e);
    put_id(pairs, "tokenizer.ggml.bos_token_id", front >= 0 ? front : named(e, "bos_token"), count);
    put_id(pairs, "tokenizer.ggml.eos_token_id", by__export_eos(e), count);
    put_id(pairs, "tokenizer.ggml.eot_token_id", turn, count);
    put_id(pairs, "tokenizer.ggml.padding_token_id", named(e, "pad_token"), count);
    by__export_gguf_put_bool(pairs, "tokenizer.ggml.add_bos_token", front >= 0);
    by__export_gguf_put_bool(pairs, "tokenizer.ggml.add_eos_token", t->pipeline.after_count > 0);
    if (e->template != NULL) {
        by__export_gguf_put_text(pairs, "tokenizer.chat_template", e->template);
    }
    return BY_OK;
}
