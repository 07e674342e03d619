/* text/chat: conversations as training data (banyan/conversation.h).
 *
 * What it is for: records of data sets become messages (conversation_forms.c; those of two answers
 * conversation_pairs.c), a chat template renders them, and what it writes of the answers is found
 * in the text (conversation_spans.c) and in its tokens (conversation_encoder.c).
 *
 * Types: by__chat_conversation, the messages of a record as JSON values, which it owns;
 * by__chat_sample_text, a rendered text and the spans of it that are learned.
 *
 * Never put here: files, packing, what a run trains on.
 */
#ifndef BY_TEXT_CHAT_CONVERSATION_H
#define BY_TEXT_CHAT_CONVERSATION_H

#include <jansson.h>

#include "banyan/conversation.h"
#include "base/base.h"
#include "text/template/template.h"

typedef struct by__chat_conversation {
    json_t *messages; /* list of {"role", "content", ...} without marks of what is learned */
    json_t *tools;    /* list; NULL: none */
    bool *answers;    /* for each message: it is by the assistant, */
    bool *learned;    /* and it is learned; */
    bool *excluded;   /* it is marked as one that is not learned, whoever it is by */
    size_t count;
    size_t bytes; /* of the record */
} by__chat_conversation;

/* Reads a record. BY_EFORMAT names the field that is not as its form has it. `parts`: the template
 * takes contents that are lists of parts; else their texts are joined. */
by_status by__chat_conversation_read(by__chat_conversation *out, const char *text, size_t length,
                                     const by_conversation_options *options, bool parts,
                                     by_error *error);
/* The same of a record that is a JSON object, of so many bytes. */
by_status by__chat_conversation_of(by__chat_conversation *out, const json_t *record, size_t bytes,
                                   const by_conversation_options *options, bool parts,
                                   by_error *error);
/* Opens the JSON object of a record; its new reference is the caller's. */
by_status by__chat_record_open(json_t **out, const char *text, size_t length, by_error *error);
/* Reads the record of a preference: the chosen conversation and the rejected one. BY_EFORMAT names
 * the field, and what is wrong with it. */
by_status by__chat_pair_read(by__chat_conversation pair[2], const char *text, size_t length,
                             const by_conversation_options *options, bool parts, by_error *error);
void by__chat_conversation_free(by__chat_conversation *conversation);

/* A rendered text, and the bytes of it that are learned: ascending, without overlap. */
typedef struct by__chat_sample_text {
    char *text;
    size_t length;
    by__template_spans learned;
} by__chat_sample_text;

typedef struct by__chat_sample_texts {
    by__chat_sample_text *items;
    size_t count;
    size_t capacity;
} by__chat_sample_texts;

/* Renders a conversation as samples whose learned spans are the answers. BY_EFORMAT: nothing of it
 * is learned, or an answer is not found in what the template writes. */
by_status by__chat_conversation_render(by__chat_sample_texts *out, const by_chat *chat,
                                       const by__chat_conversation *conversation,
                                       const by_conversation_options *options, by_error *error);
void by__chat_sample_texts_free(by__chat_sample_texts *texts);

#endif
