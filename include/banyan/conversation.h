/* Conversations as training data: read in the forms that data sets have, rendered by a model's chat
 * template, and encoded to tokens with a mask of those that are learned.
 *
 * A record is a JSON object in one of these forms:
 *
 *   messages  {"messages": [{"role", "content", "tool_calls"}, ...], "tools": [...]}, as OpenAI's
 *             API has them; a message with "train": false or "weight": 0 is not learned
 *   sharegpt  {"conversations": [{"from", "value"}, ...], "tools"}
 *   alpaca    {"instruction", "input", "output" or "response", "history"}
 *   prompt    {"prompt", "completion"}, each a text or a list of messages
 *   columns   a question and its answer in two fields of any name
 *   preference  {"prompt", "chosen", "rejected"}: two answers, of which the first is preferred. The
 *             prompt is a text or a list of messages, as is each answer; without a prompt both are
 *             whole conversations that begin alike, lists of messages or texts in which
 *             "\n\nHuman:" and "\n\nAssistant:" begin turns. "question", or the field that
 *             options.question names, may be in the place of "prompt"; beside whole conversations
 *             it must be what they ask; "tools"
 *
 * In each of them a text "system" is the first message; they must not have one of their own then.
 *
 * Only if it is asked for, a record is read as a preference; it then is two samples, the chosen and
 * the rejected conversation, or none if one of them is too long. Learned are the answers behind the
 * prompt, or behind what both conversations begin with.
 *
 * What is learned is what the model writes: the spans of {% generation %} if the template has them,
 * as transformers marks them (return_assistant_tokens_mask); else, for each answer, what the
 * rendering of the conversation up to it adds to that of the messages before it with the header of
 * an answer (add_generation_prompt), without an empty <think></think> that the template wrote.
 * Where a template renders an earlier answer differently once later messages follow it (without its
 * reasoning), the answer is not found there; the conversation up to it is a sample of its own, so
 * that each answer is learned as it would be generated.
 */
#ifndef BANYAN_CONVERSATION_H
#define BANYAN_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/chat.h"
#include "banyan/status.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_conversation_form {
    BY_CONVERSATION_AUTO = 0, /* the first of these whose fields a record has */
    BY_CONVERSATION_MESSAGES,
    BY_CONVERSATION_SHAREGPT,
    BY_CONVERSATION_ALPACA,
    BY_CONVERSATION_PROMPT,
    BY_CONVERSATION_COLUMNS,
    BY_CONVERSATION_PREFERENCE, /* never chosen by AUTO */
    BY_CONVERSATION_FORMS
} by_conversation_form;

/* Which tokens are learned. */
typedef enum by_conversation_learn {
    BY_LEARN_ASSISTANT = 0, /* the answers */
    BY_LEARN_LAST_TURN,     /* the last answer */
    BY_LEARN_ALL,           /* everything but messages that are marked as not learned */
    BY_LEARN_KINDS
} by_conversation_learn;

/* What becomes of a conversation that is longer than a sample. */
typedef enum by_conversation_long {
    BY_LONG_SKIP = 0, /* it is left out, and counted */
    BY_LONG_CUT,      /* its beginning is kept if a whole answer is in it, else it is left out */
    BY_LONG_ERROR,
    BY_LONG_KINDS
} by_conversation_long;

typedef struct by_conversation_options {
    by_conversation_form form;
    const char *question; /* of columns: names of the two fields; NULL: "question", "answer" */
    const char *answer;
    const char *system; /* system message of conversations without one; NULL: none */
    by_conversation_learn learn;
    const char *variables; /* JSON object of further variables of the template; NULL: none */
    size_t context; /* the most tokens of a sample that predict one: it may have one token more;
                       0: any number */
    by_conversation_long longer;
} by_conversation_options;

/* The names of these settings, as configs have them: "auto", "messages", ...; NULL past the
 * last. */
BY_API const char *by_conversation_form_name(by_conversation_form form);
BY_API const char *by_conversation_learn_name(by_conversation_learn learn);
BY_API const char *by_conversation_long_name(by_conversation_long longer);

/* A sample: tokens, and for each 1 if it is learned or 0. */
typedef struct by_conversation_sample {
    const uint32_t *ids;
    const uint8_t *learned;
    size_t count;
    size_t targets; /* tokens that are learned, the first one of the sample excepted */
} by_conversation_sample;

/* What encoding one record led to. */
typedef struct by_conversation_result {
    size_t samples;
    size_t text_bytes; /* of the rendered texts */
    size_t long_ones;  /* samples left out because they are longer than the context, */
    size_t cut;        /* and samples of which the beginning was kept */
    size_t lost;       /* learned tokens that these would have had beyond it */
} by_conversation_result;

/* Opens the template and the tokenizer that a model is tuned with. `model`: what
 * by_tokenizer_open takes; its directory has the special tokens and, if `file` is NULL or empty,
 * the template. `file`: a template, or the name of a built-in one, as by_chat_source has it.
 * Special tokens <|NAME|> that the template's text names and the tokenizer lacks are added behind
 * its vocabulary. Returns BY_ESTATE, with the remedy, if there is no template; errors as
 * by_chat_open and by_tokenizer_open. */
BY_API by_status by_chat_for_tuning(by_chat **chat, by_tokenizer **tokenizer, const char *model,
                                    const char *file, by_error *error);

/* Encodes records one after another; used by one thread at a time. */
typedef struct by_conversation_encoder by_conversation_encoder;

/* The options' texts, the template and the tokenizer must outlive the encoder. Returns BY_EARG for
 * options out of range. */
BY_API by_status by_conversation_encoder_open(by_conversation_encoder **out, const by_chat *chat,
                                              const by_tokenizer *tokenizer,
                                              const by_conversation_options *options,
                                              by_error *error);
BY_API void by_conversation_encoder_close(by_conversation_encoder **encoder);
/* Encodes the record in text[0, length). Sample i of result->samples is then
 * by_conversation_encoder_sample(encoder, i), until the next call. Returns BY_EFORMAT if the record
 * is not of the form, has a role that is none of OpenAI's and that the template does not name, has
 * no answer that is learned, or is longer than the context with BY_LONG_ERROR, or the template does
 * not mark or repeat what it writes of an answer; BY_EARG if the template rejects it. */
BY_API by_status by_conversation_encode(by_conversation_encoder *encoder, const char *text,
                                        size_t length, by_conversation_result *result,
                                        by_error *error);
BY_API by_conversation_sample by_conversation_encoder_sample(const by_conversation_encoder *encoder,
                                                             size_t index);

#ifdef __cplusplus
}
#endif
#endif
