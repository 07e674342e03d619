/* OpenAI's API: the functions of a chat, `tools` and `tool_choice` (openai_tools.c), for openai.c
 * and openai_answer.c. */
#ifndef BY_SERVE_GATEWAY_OPENAI_OPENAI_TOOLS_H
#define BY_SERVE_GATEWAY_OPENAI_OPENAI_TOOLS_H

#include "serve/gateway/openai/openai.h"

/* How a text has calls of functions. */
typedef enum by__openai_calling {
    BY__CALLS_NONE,
    BY__CALLS_NAMED,  /* it is the arguments of one function */
    BY__CALLS_CHOSEN, /* it is an object with the name of a function and its arguments */
    BY__CALLS_MARKED  /* it may have such objects between marks */
} by__openai_calling;

/* Checks *tools (NULL: none were given) and the choice (NULL: auto), sets request->own and
 * request->gathers, and *tools to NULL if the model is not to be shown them. parallel: the answer
 * may have several calls. *format: the constraint for a worker if a call is required, else NULL; a
 * new reference. BY_EARG: *param names what is wrong. */
by_status by__openai_tools(by__gateway_request *request, const json_t **tools, const json_t *choice,
                           bool parallel, json_t **format, const char **param, by_error *error);
by__openai_calling by__openai_calls_as(const by__gateway_request *request);
/* Removes from a copy of request->own what was set there. */
void by__openai_calls_remove(json_t *own);
/* A call of a function in the answer. */
typedef struct by__openai_called {
    size_t choice;
    size_t index; /* among the calls of the choice */
    bool streams; /* the index is printed */
    const char *name;
    size_t name_length;
    const char *arguments;
    size_t length;
} by__openai_called;

/* Prints a call: its id, type and function. */
void by__openai_add_call(const by__gateway_request *request, const by__openai_called *called,
                         by_string *out);
/* Prints the calls in the complete text of a choice, separated by commas, and returns their number.
 * said: gets the content of the message, the text around marked calls; what by__openai_shown says
 * of any beginning of the text is a beginning of it. */
size_t by__openai_add_calls(const by__gateway_request *request, size_t choice, bool streams,
                            by_string *out, by_string *message_text);
/* Leading bytes of an incomplete text that cannot become part of a marked call. */
size_t by__openai_shown(const by_string *text);

#endif
