/* The tokens of items. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "evaluate/evaluate.h"

/* ---- texts to tokens ---- */

/* The token that a model saw at the beginning of texts. */
static by_status find_begin(int64_t *out, const by_tokenizer *tokenizer, by_error *error)
{
    static const char bos[] = "<|bos|>";
    by_token_buffer ids = {0};
    by_status status = by_tokenizer_encode(tokenizer, "", 0, &ids, BY_ENCODE_ADD_BEFORE, error);
    *out =
        ids.count > 0 ? (int64_t)ids.ids[0] : by_tokenizer_token_id(tokenizer, bos, sizeof bos - 1);
    *out = *out < 0 ? by_tokenizer_eos(tokenizer) : *out;
    by_token_buffer_free(&ids);
    return status;
}

by_status by__evaluate_encoder_open(by__evaluate_encoder *out, const by_tokenizer *tokenizer,
                                    size_t context, by_error *error)
{
    *out = (by__evaluate_encoder){.context = context};
    BY_TRY(find_begin(&out->begin, tokenizer, error));
    return by_encoder_open(&out->encoder, tokenizer, error);
}

void by__evaluate_encoder_close(by__evaluate_encoder *encoder)
{
    by_encoder_close(&encoder->encoder);
}

void by__evaluate_item_free(by__evaluate_item *item)
{
    for (size_t i = 0; i < item->count; i++) {
        by_token_buffer_free(&item->sequences[i].tokens);
    }
    free(item->sequences);
    json_decref(item->targets);
    *item = (by__evaluate_item){0};
}

static by_status add_token(by_token_buffer *tokens, uint32_t id, by_error *error)
{
    BY_TRY(by__reserve((void **)&tokens->ids, &tokens->capacity, tokens->count + 1,
                       sizeof *tokens->ids, error));
    tokens->ids[tokens->count++] = id;
    return BY_OK;
}

static by_status encode(by__evaluate_encoder *e, const char *text, size_t length,
                        by_token_buffer *out, by_error *error)
{
    return by_encoder_encode(e->encoder, text == NULL ? "" : text, length, out, BY_ENCODE_SPECIAL,
                             error);
}

/* Encodes two texts behind each other, the whole behind the token that begins a text. */
static by_status encode_whole(by__evaluate_encoder *e, const by_string *a, const by_string *b,
                              bool begin, by_token_buffer *out, by_error *error)
{
    by_string text = {0};
    if (begin && e->begin >= 0) {
        BY_TRY(add_token(out, (uint32_t)e->begin, error));
    }
    by_string_add(&text, a->data, a->length);
    by_string_add(&text, b->data, b->length);
    by_status status = by_string_check(&text, error);
    status = status == BY_OK ? encode(e, text.data, text.length, out, error) : status;
    by_string_free(&text);
    return status;
}

/* Tokens that all sequences have in common at their beginning, or at their end. */
static size_t common(const by__evaluate_item *item, bool end)
{
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < item->count; i++) {
        size_t n = item->sequences[i].tokens.count;
        least = n < least ? n : least;
    }
    const by_token_buffer *a = &item->sequences[0].tokens;
    for (size_t k = 0; k < least; k++) {
        for (size_t i = 1; i < item->count; i++) {
            const by_token_buffer *b = &item->sequences[i].tokens;
            if (end ? a->ids[a->count - 1 - k] != b->ids[b->count - 1 - k]
                    : a->ids[k] != b->ids[k]) {
                return k;
            }
        }
    }
    return least;
}

/* ---- CORE ---- */

/* A choice begins where the choices differ, and a schema's continuation where they no longer do. An
 * exact continuation begins behind its context without the blanks at its ends. */
static by_status core_item(by__evaluate_item *item, by__evaluate_encoder *e,
                           const by__evaluate_task *t, const by__evaluate_texts *texts,
                           by_error *error)
{
    for (size_t i = 0; i < item->count; i++) {
        BY_TRY(encode_whole(e, &texts->contexts[i], &texts->continuations[i], true,
                            &item->sequences[i].tokens, error));
    }
    if (t->kind == BY__EVALUATE_EXACT) {
        by_token_buffer before = {0};
        const char *s = texts->contexts[0].data == NULL ? "" : texts->contexts[0].data;
        size_t n = texts->contexts[0].length;
        by__template_strip(&s, &n, NULL, true, true);
        by_status status = encode(e, s, n, &before, error);
        item->sequences[0].from = before.count + (e->begin >= 0);
        by_token_buffer_free(&before);
        return status;
    }
    size_t same = common(item, t->kind == BY__EVALUATE_SCHEMA);
    for (size_t i = 0; i < item->count; i++) {
        size_t count = item->sequences[i].tokens.count;
        item->sequences[i].from = t->kind == BY__EVALUATE_SCHEMA ? count - same : same;
    }
    return BY_OK;
}

/* ---- lm-evaluation-harness ---- */

/* Encodes context and continuation together, and takes as many tokens for the context as it has
 * alone; blanks at its end belong to the continuation (lm_eval/api/model.py, _encode_pair). */
static by_status encode_pair(by__evaluate_sequence *s, by__evaluate_encoder *e,
                             const by_string *context, const by_string *continuation,
                             by_error *error)
{
    by_token_buffer before = {0};
    const char *text = context->data == NULL ? "" : context->data;
    size_t n = context->length;
    bool empty = n == 0;
    if (continuation->length == 0) {
        return by_error_set(error, BY_EARG,
                            "a continuation is empty, so that every model predicts it: look at "
                            "doc_to_target, doc_to_choice and target_delimiter");
    }
    by__template_strip(&text, &n, NULL, false, true);
    BY_TRY(encode_whole(e, context, continuation, empty, &s->tokens, error));
    by_status status = encode(e, text, n, &before, error);
    s->from = before.count + (empty && e->begin >= 0);
    by_token_buffer_free(&before);
    return status != BY_OK || s->from > 0
               ? status
               : by_error_set(error, BY_EARG,
                              "nothing comes before the continuation, and the tokenizer has no "
                              "token that begins a text: give a description or a doc_to_text");
}

/* A document's windows: each predicts as many tokens as fit, behind the last token of the one
 * before it; the last window has as much context as fits (lm_eval/utils.py,
 * get_rolling_token_windows). */
static by_status cut_windows(by__evaluate_item *item, size_t context, by_error *error)
{
    by_token_buffer all = item->sequences[0].tokens;
    size_t most = context - 1; /* predicted by a window */
    if (most == 0) {
        return by_error_set(error, BY_EARG,
                            "a model with a context of 1 token predicts no token of a document");
    }
    size_t predicted = all.count - 1;
    size_t count = predicted == 0 ? 1 : (predicted + most - 1) / most;
    by__evaluate_sequence *windows;
    if (count <= 1) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&windows, count, sizeof *windows, "windows of a document", error));
    free(item->sequences);
    item->sequences = windows;
    item->count = count;
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        size_t first = 1 + i * most; /* predicted token */
        size_t end = first + most < all.count ? first + most : all.count;
        size_t begin = end > context ? end - context : 0;
        by__evaluate_sequence *w = &windows[i];
        status = by__reserve((void **)&w->tokens.ids, &w->tokens.capacity, end - begin,
                             sizeof *w->tokens.ids, error);
        if (status == BY_OK) {
            memcpy(w->tokens.ids, all.ids + begin, (end - begin) * sizeof *all.ids);
            w->tokens.count = end - begin;
            w->from = first - begin;
        }
    }
    by_token_buffer_free(&all);
    return status;
}

static size_t count_words(const by_string *text)
{
    const char *s = text->data == NULL ? "" : text->data;
    size_t n = text->length;
    size_t words = 1; /* re.split gives one more than there are separators */
    while (n > 0) {
        size_t length = 1;
        bool blank = by__template_is_space(s, n, &length);
        if (!blank) {
            s++;
            n--;
            continue;
        }
        words++;
        while (n > 0 && by__template_is_space(s, n, &length)) {
            s += length;
            n -= length;
        }
    }
    return words;
}

/* A text to continue, of which so much of the beginning is left out that the continuation fits. */
static by_status generated_item(by__evaluate_item *item, by__evaluate_encoder *e,
                                const by__evaluate_task *t, const by__evaluate_texts *texts,
                                by_error *error)
{
    by__evaluate_sequence *s = &item->sequences[0];
    const by_string none = {0};
    bool empty = texts->contexts[0].length == 0;
    if (t->most_tokens >= (int64_t)e->context) {
        return by_error_set(error, BY_EARG,
                            "%lld generated tokens do not fit into the model's context of %zu: "
                            "lower max_gen_toks",
                            (long long)t->most_tokens, e->context);
    }
    size_t room = e->context - (size_t)t->most_tokens;
    BY_TRY(encode_whole(e, &texts->contexts[0], &none, empty, &s->tokens, error));
    if (s->tokens.count > room) {
        memmove(s->tokens.ids, s->tokens.ids + s->tokens.count - room,
                room * sizeof *s->tokens.ids);
        s->tokens.count = room;
        item->cut = true;
    }
    s->from = s->tokens.count;
    return s->tokens.count > 0
               ? BY_OK
               : by_error_set(error, BY_EARG, "an empty text, and no token that begins one");
}

static by_status harness_item(by__evaluate_item *item, by__evaluate_encoder *e,
                              const by__evaluate_task *t, const by__evaluate_texts *texts,
                              by_error *error)
{
    if (t->kind == BY__EVALUATE_PERPLEXITY) {
        by__evaluate_sequence *s = &item->sequences[0];
        const by_string none = {0};
        item->words = count_words(&texts->continuations[0]);
        BY_TRY(encode_whole(e, &none, &texts->continuations[0], true, &s->tokens, error));
        s->from = 1;
        return s->tokens.count == 0 ? BY_OK : cut_windows(item, e->context, error);
    }
    if (t->kind == BY__EVALUATE_GENERATE) {
        item->targets = json_incref(texts->targets);
        return generated_item(item, e, t, texts, error);
    }
    for (size_t i = 0; i < item->count; i++) {
        BY_TRY(encode_pair(&item->sequences[i], e, &texts->contexts[i], &texts->continuations[i],
                           error));
    }
    return BY_OK;
}

/* ---- both ---- */

/* Leaves out the beginning of what is longer than the context. */
static by_status cut(by__evaluate_item *item, size_t context, by_error *error)
{
    for (size_t i = 0; i < item->count; i++) {
        by__evaluate_sequence *s = &item->sequences[i];
        size_t extra = s->tokens.count > context ? s->tokens.count - context : 0;
        s->from = s->from > s->tokens.count ? s->tokens.count : s->from;
        if (extra > 0) {
            if (s->from <= extra) {
                return by_error_set(error, BY_EARG,
                                    "a continuation of %zu tokens does not fit into the model's "
                                    "context of %zu",
                                    s->tokens.count - s->from, context);
            }
            memmove(s->tokens.ids, s->tokens.ids + extra, context * sizeof *s->tokens.ids);
            s->tokens.count = context;
            s->from -= extra;
            item->cut = true;
        }
        s->from = s->from < 1 ? 1 : s->from; /* nothing predicts the first token */
        s->lengths[BY__EVALUATE_TOKENS] = s->tokens.count > s->from ? s->tokens.count - s->from : 0;
    }
    item->shared = item->count > 1 ? common(item, false) : 0;
    return BY_OK;
}

static void measure(by__evaluate_item *item, const by__evaluate_texts *texts)
{
    for (size_t i = 0; i < item->count && i < texts->count; i++) {
        by__evaluate_sequence *s = &item->sequences[i];
        const by_string *choice = &texts->choices[i];
        const char *data = choice->data == NULL ? "" : choice->data;
        s->lengths[BY__EVALUATE_NONE] = 1;
        s->lengths[BY__EVALUATE_CHARACTERS] = by__utf8_count(data, choice->length);
        s->lengths[BY__EVALUATE_BYTES] = choice->length;
    }
}

static by_status hash_texts(char id[33], const by__evaluate_texts *texts, by_error *error)
{
    by__hasher *hasher;
    BY_TRY(by__hasher_open(&hasher, error));
    for (size_t i = 0; i < texts->count; i++) {
        by__hasher_add_u64(hasher, texts->contexts[i].length);
        by__hasher_add(hasher, texts->contexts[i].data, texts->contexts[i].length);
        by__hasher_add_u64(hasher, texts->continuations[i].length);
        by__hasher_add(hasher, texts->continuations[i].data, texts->continuations[i].length);
    }
    by__hasher_hex(hasher, id);
    by__hasher_close(&hasher);
    return BY_OK;
}

by_status by__evaluate_item_make(by__evaluate_item *out, by__evaluate_encoder *encoder,
                                 const by__evaluate_task *task, size_t index, by_error *error)
{
    by__evaluate_texts texts;
    by__evaluate_item item = {0};
    by_error why = {0};
    BY_TRY(by__evaluate_texts_make(&texts, task, index, error));
    item.gold = texts.gold;
    by_status status =
        by__alloc((void **)&item.sequences, texts.count, sizeof *item.sequences, "an item", &why);
    if (status == BY_OK) {
        item.count = texts.count;
        status = task->core ? core_item(&item, encoder, task, &texts, &why)
                            : harness_item(&item, encoder, task, &texts, &why);
    }
    status = status == BY_OK ? cut(&item, encoder->context, &why) : status;
    status = status == BY_OK ? hash_texts(item.id, &texts, &why) : status;
    if (status == BY_OK) {
        measure(&item, &texts);
        *out = item;
    } else {
        by__evaluate_item_free(&item);
        status = by_error_set(error, status, "task '%s', row %u: %s", task->name,
                              (unsigned)task->order[index], why.message);
    }
    by__evaluate_texts_free(&texts);
    return status;
}
