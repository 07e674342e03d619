/* OpenAI's API: what a response consists of (openai_response_output.c), how a request for one is
 * read (openai_response_read.c) and streamed (openai_response_stream.c), for openai_responses.c,
 * which stores responses and has their routes.
 *
 * The output has the message, if there is one, and then the calls of functions. Functions that make
 * JSON return NULL if memory is exhausted, also for a part. */
#ifndef BY_SERVE_GATEWAY_OPENAI_OPENAI_RESPONSES_H
#define BY_SERVE_GATEWAY_OPENAI_OPENAI_RESPONSES_H

#include "serve/gateway/openai/openai.h"

#define BY__ITEM_BYTES 72

/* ---- reading ---- */

/* The same as the `read` of a form. request->own is set to the part of the response that repeats
 * its request, and to what openai_tools.c keeps there. */
by_status by__openai_response_read(by__gateway_request *request, const by__http_request *http,
                                   const char **param, by_error *error);

/* ---- the response ---- */

/* The items of the text so far. */
typedef struct by__openai_response_items {
    by_string message_text; /* the text of the message */
    bool message;           /* the first item is one */
    json_t *calls;          /* as chats have them; a new reference, NULL: memory is exhausted */
} by__openai_response_items;

by__openai_response_items by__openai_response_items_of(const by__gateway_request *request);
void by__openai_response_items_free(by__openai_response_items *items);
const char *by__openai_response_message_id(const by__gateway_request *request,
                                           char id[BY__ITEM_BYTES]);
const char *by__openai_response_call_id(const by__gateway_request *request, size_t k,
                                        char id[BY__ITEM_BYTES]);
/* The text of a message as a part of it; and that message, whose content is taken. */
json_t *by__openai_response_part(const by__gateway_request *request, const by_string *message_text);
json_t *by__openai_response_message(const by__gateway_request *request, const char *status,
                                    json_t *content);
/* An item for a call of by__openai_response_items; `whole`: with its arguments. */
json_t *by__openai_response_call(const by__gateway_request *request,
                                 const by__openai_response_items *items, size_t k,
                                 const char *status, bool whole);
/* Log-probabilities as a part has them. */
json_t *by__openai_response_tokens(const by__gateway_request *request, const json_t *list);
/* "completed" or "incomplete", of a response that has ended. */
const char *by__openai_response_status(const by__gateway_request *request);
/* Status "completed" and "incomplete" include the output. error is taken. */
json_t *by__openai_response_object(const by__gateway_request *request, const char *status,
                                   json_t *error);

/* ---- the functions of the form for streams (gateway.h) ---- */

void by__openai_response_first(by__gateway_request *request, size_t choice, by_string *out);
void by__openai_response_text(by__gateway_request *request, size_t choice, const char *text,
                              size_t length, const json_t *logprobs, by_string *out);
void by__openai_response_stop(by__gateway_request *request, size_t choice, const char *reason,
                              by_string *out);
void by__openai_response_end(by__gateway_request *request, by_string *out);
void by__openai_response_fail(by__gateway_request *request, int status, const char *code,
                              const char *param, const char *message, by_string *out);
/* The events of a response in the background (task status, error as in by__openai_response_object,
 * of one that has failed), whose answer the request has if it is completed. */
void by__openai_response_replay(by__gateway_request *request, const char *status, json_t *error,
                                by_string *out);

#endif
