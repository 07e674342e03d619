/* Conversations as tokens with a mask of those that are learned. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/chat/conversation.h"
#include "text/tokenizer/encoder.h"

static const char *const long_names[] = {"skip", "cut", "error"};

const char *by_conversation_long_name(by_conversation_long longer)
{
    return (size_t)longer < BY_ARRAY_LENGTH(long_names) ? long_names[longer] : NULL;
}

typedef struct sample_range {
    size_t begin;
    size_t end;
    size_t targets;
} sample_range;

struct by_conversation_encoder {
    const by_chat *chat;
    const by_tokenizer *tokenizer;
    by_conversation_options options;
    by_encoder *encoder;
    bool parts;
    by_token_buffer ids; /* of all samples of the record */
    by_token_buffer prefix;
    uint8_t *learned;
    size_t learned_capacity;
    sample_range *samples;
    size_t sample_count;
    size_t sample_capacity;
};

by_status by_conversation_encoder_open(by_conversation_encoder **out, const by_chat *chat,
                                       const by_tokenizer *tokenizer,
                                       const by_conversation_options *options, by_error *error)
{
    by_conversation_encoder *e;
    if (by_conversation_form_name(options->form) == NULL ||
        by_conversation_learn_name(options->learn) == NULL ||
        by_conversation_long_name(options->longer) == NULL) {
        return by_error_set(error, BY_EARG, "options of conversations are out of range");
    }
    if (options->form == BY_CONVERSATION_PREFERENCE && options->learn == BY_LEARN_ALL) {
        return by_error_set(error, BY_EARG,
                            "of preferences only answers are compared: learn assistant or "
                            "last_turn, not all");
    }
    BY_TRY(by__alloc((void **)&e, 1, sizeof *e, "an encoder of conversations", error));
    e->chat = chat;
    e->tokenizer = tokenizer;
    e->options = *options;
    e->parts = by_chat_accepts_parts(chat);
    by_status status = by_encoder_open(&e->encoder, tokenizer, error);
    if (status != BY_OK) {
        by_conversation_encoder_close(&e);
        return status;
    }
    *out = e;
    return BY_OK;
}

void by_conversation_encoder_close(by_conversation_encoder **encoder)
{
    by_conversation_encoder *e = *encoder;
    if (e == NULL) {
        return;
    }
    by_encoder_close(&e->encoder);
    by_token_buffer_free(&e->ids);
    by_token_buffer_free(&e->prefix);
    free(e->learned);
    free(e->samples);
    free(e);
    *encoder = NULL;
}

/* ---- tokens of spans ---- */

/* Returns true if the tokens from `first` on are the text byte for byte. */
static by_status spells(const by_conversation_encoder *e, size_t first,
                        const by__chat_sample_text *text, bool *out, by_error *error)
{
    size_t at = 0;
    *out = true;
    for (size_t i = first; i < e->ids.count && *out; i++) {
        const char *bytes;
        size_t length;
        BY_TRY(by_tokenizer_token_bytes(e->tokenizer, e->ids.ids[i], &bytes, &length, error));
        *out = length <= text->length - at && memcmp(text->text + at, bytes, length) == 0;
        at += length;
    }
    *out = *out && at == text->length;
    return BY_OK;
}

/* Marks the tokens that have a byte of a span, from the bytes of each token. */
static by_status mark_bytes(by_conversation_encoder *e, size_t first,
                            const by__chat_sample_text *text, by_error *error)
{
    const by__template_spans *spans = &text->learned;
    size_t begin = 0;
    size_t span = 0;
    for (size_t i = first; i < e->ids.count; i++) {
        const char *bytes;
        size_t length;
        BY_TRY(by_tokenizer_token_bytes(e->tokenizer, e->ids.ids[i], &bytes, &length, error));
        size_t end = begin + length;
        while (span < spans->count && spans->items[span].end <= begin) {
            span++;
        }
        e->learned[i] = span < spans->count && spans->items[span].begin < end;
        begin = end;
    }
    return BY_OK;
}

/* The number of tokens of the text that end at or before byte `at`: those that it has in common
 * with the text before it alone. */
static by_status count_before(by_conversation_encoder *e, size_t first,
                              const by__chat_sample_text *text, size_t at, size_t *out,
                              by_error *error)
{
    size_t count = e->ids.count - first;
    size_t kept;
    size_t same = 0;
    if (at >= text->length) {
        *out = count;
        return BY_OK;
    }
    e->prefix.count = 0;
    BY_TRY(by__tokenizer_encode_rest(e->encoder, text->text, at, &kept, &e->prefix,
                                     BY_ENCODE_SPECIAL, error));
    while (same < e->prefix.count && kept + same < count &&
           e->prefix.ids[same] == e->ids.ids[first + kept + same]) {
        same++;
    }
    *out = kept + same;
    return BY_OK;
}

/* The same for tokenizers whose tokens are not the bytes of the text, since they rewrite it. */
static by_status mark_prefixes(by_conversation_encoder *e, size_t first,
                               const by__chat_sample_text *text, by_error *error)
{
    memset(e->learned + first, 0, e->ids.count - first);
    for (size_t s = 0; s < text->learned.count; s++) {
        size_t begin;
        size_t end;
        BY_TRY(count_before(e, first, text, text->learned.items[s].begin, &begin, error));
        BY_TRY(count_before(e, first, text, text->learned.items[s].end, &end, error));
        if (end > begin) {
            memset(e->learned + first + begin, 1, end - begin);
        }
    }
    return BY_OK;
}

static size_t count_targets(const uint8_t *learned, size_t begin, size_t end)
{
    size_t count = 0;
    for (size_t i = begin + 1; i < end; i++) {
        count += learned[i];
    }
    return count;
}

/* ---- samples ---- */

/* Decides about a sample that is longer than the context: *kept tokens stay, or none. */
static by_status shorten(const by_conversation_encoder *e, size_t first,
                         by_conversation_result *result, size_t *kept, by_error *error)
{
    size_t count = e->ids.count - first;
    size_t most = e->options.context + 1;
    *kept = count;
    if (e->options.context == 0 || count <= most) {
        return BY_OK;
    }
    if (e->options.longer == BY_LONG_ERROR) {
        return by_error_set(error, BY_EFORMAT,
                            "the conversation has %zu tokens, more than the %zu of a sample: raise "
                            "model.context, or set chat.long to skip or cut",
                            count, most);
    }
    /* Up to the end of the last answer that fits: part of one would be learned without its end, and
     * of what is behind it nothing is. */
    size_t end = first + most;
    bool answers = e->options.learn != BY_LEARN_ALL;
    while (answers && end > first && e->learned[end - 1] && e->learned[end]) {
        end--;
    }
    while (answers && end > first && !e->learned[end - 1]) {
        end--;
    }
    size_t targets = count_targets(e->learned, first, end);
    bool cuts = e->options.longer == BY_LONG_CUT && targets > 0;
    *kept = cuts ? end - first : 0;
    result->cut += cuts;
    result->long_ones += !cuts;
    result->lost += count_targets(e->learned, first, e->ids.count) - (cuts ? targets : 0);
    return BY_OK;
}

static by_status add_sample(by_conversation_encoder *e, const by__chat_sample_text *text,
                            by_conversation_result *result, by_error *error)
{
    bool bytes;
    size_t kept;
    size_t first = e->ids.count;
    BY_TRY(
        by_encoder_encode(e->encoder, text->text, text->length, &e->ids, BY_ENCODE_SPECIAL, error));
    BY_TRY(by__reserve((void **)&e->learned, &e->learned_capacity, e->ids.count + 1, 1, error));
    BY_TRY(spells(e, first, text, &bytes, error));
    BY_TRY(bytes ? mark_bytes(e, first, text, error) : mark_prefixes(e, first, text, error));
    size_t targets = count_targets(e->learned, first, e->ids.count);
    if (targets == 0) {
        return by_error_set(error, BY_EFORMAT, "no token of the conversation is learned");
    }
    BY_TRY(shorten(e, first, result, &kept, error));
    e->ids.count = first + kept;
    if (kept == 0) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&e->samples, &e->sample_capacity, e->sample_count + 1,
                       sizeof *e->samples, error));
    e->samples[e->sample_count++] =
        (sample_range){first, e->ids.count, count_targets(e->learned, first, e->ids.count)};
    result->text_bytes += text->length;
    return BY_OK;
}

static by_status encode_one(by_conversation_encoder *e, const char *text, size_t length,
                            by_conversation_result *made, by_error *error)
{
    by__chat_conversation conversation;
    by__chat_sample_texts texts = {0};
    BY_TRY(by__chat_conversation_read(&conversation, text, length, &e->options, e->parts, error));
    by_status status =
        by__chat_conversation_render(&texts, e->chat, &conversation, &e->options, error);
    /* The last sample was rendered first. */
    for (size_t i = texts.count; i > 0 && status == BY_OK; i--) {
        status = add_sample(e, &texts.items[i - 1], made, error);
    }
    by__chat_sample_texts_free(&texts);
    by__chat_conversation_free(&conversation);
    return status;
}

/* Adds the sample that ends with the last answer: what a template renders otherwise, of earlier
 * ones, is not compared. */
static by_status add_side(by_conversation_encoder *e, const by__chat_conversation *conversation,
                          by_conversation_result *made, by_error *error)
{
    by__chat_sample_texts texts = {0};
    BY_TRY(by__chat_conversation_render(&texts, e->chat, conversation, &e->options, error));
    by_status status = add_sample(e, &texts.items[0], made, error);
    by__chat_sample_texts_free(&texts);
    return status;
}

static by_status encode_pair(by_conversation_encoder *e, const char *text, size_t length,
                             by_conversation_result *made, by_error *error)
{
    by__chat_conversation pair[2];
    BY_TRY(by__chat_pair_read(pair, text, length, &e->options, e->parts, error));
    by_status status = add_side(e, &pair[0], made, error);
    if (status == BY_OK) {
        status = add_side(e, &pair[1], made, error);
    }
    by__chat_conversation_free(&pair[0]);
    by__chat_conversation_free(&pair[1]);
    if (e->sample_count == 1) { /* the other one is too long */
        e->sample_count = 0;
        e->ids.count = 0;
        made->text_bytes = 0;
    }
    return status;
}

by_status by_conversation_encode(by_conversation_encoder *e, const char *text, size_t length,
                                 by_conversation_result *result, by_error *error)
{
    by_conversation_result made = {0};
    e->ids.count = 0;
    e->sample_count = 0;
    BY_TRY(e->options.form == BY_CONVERSATION_PREFERENCE
               ? encode_pair(e, text, length, &made, error)
               : encode_one(e, text, length, &made, error));
    made.samples = e->sample_count;
    *result = made;
    return BY_OK;
}

by_conversation_sample by_conversation_encoder_sample(const by_conversation_encoder *e,
                                                      size_t index)
{
    const sample_range *s = &e->samples[index];
    return (by_conversation_sample){.ids = e->ids.ids + s->begin,
                                    .learned = e->learned + s->begin,
                                    .count = s->end - s->begin,
                                    .targets = s->targets};
}
