/* openai: OpenAI's API, completions, chats, embeddings and responses, and the route of predictions,
 * each as a form of calls (gateway.h). */
#ifndef BY_SERVE_GATEWAY_OPENAI_OPENAI_H
#define BY_SERVE_GATEWAY_OPENAI_OPENAI_H

#include "serve/gateway/core/gateway_reply.h"

extern const by__gateway_request_form by__openai_completion_form;
extern const by__gateway_request_form by__openai_chat_form;
/* The same as the `read` of a form. */
by_status by__openai_read_text(by__gateway_request *request, const by__http_request *http,
                               const char **param, by_error *error);
/* Checks the messages of a chat, and gives a tool that said nothing an empty content; *param names
 * what is wrong, in `place` (openai_messages.c). */
by_status by__openai_messages(json_t *messages, char place[BY__PLACE_BYTES], const char **param,
                              by_error *error);
/* Reads the body, of about `length` bytes, of a completion or (another kind) a chat. */
by_status by__openai_read(by__gateway_request *request, const json_t *body, size_t length,
                          const char **param, by_error *error);
/* Fields that constrain the text of an answer; each may be NULL. */
typedef struct by__openai_forms {
    const json_t *response;                           /* OpenAI's response_format */
    const json_t *json, *regex, *choice, *structured; /* vLLM's guided_..., structured_outputs */
} by__openai_forms;
/* Builds the "format" that a worker reads; NULL if there is no constraint (openai_format.c).
 * BY_EARG: more than one is given, or it is invalid; *param names it. */
by_status by__openai_format(json_t **out, const by__openai_forms *forms, const char **param,
                            by_error *error);
/* Print log-probabilities of tokens (openai_logprobs.c): as chats have them, a list; as completions
 * have them, an object, with the most probable tokens if `tops`. */
void by__openai_tokens(const json_t *list, by_string *out);
void by__openai_places(const json_t *list, bool tops, by_string *out);

/* ---- other routes (openai_embeddings.c, openai_responses.c, predict_api.c) ---- */

extern const by__gateway_request_form by__openai_embeddings_form;
extern const by__gateway_request_form by__openai_response_form;
extern const by__gateway_request_form by__openai_predict_form;
/* The route of stored responses (openai_responses.c). */
by__gateway_route_answer by__openai_answer_response;

#endif
