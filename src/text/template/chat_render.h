/* Rendering of conversations that are JSON values already, many times with one template, and the
 * places of what a model wrote. */
#ifndef BY_TEXT_TEMPLATE_CHAT_RENDER_H
#define BY_TEXT_TEMPLATE_CHAT_RENDER_H

#include <jansson.h>

#include "banyan/chat.h"
#include "text/template/template.h"

typedef struct by__template_chat {
    const json_t *messages;    /* list */
    const json_t *tools;       /* list; NULL: none */
    const char *variables;     /* as in by_chat_request; NULL: none */
    size_t bytes;              /* about as many as the conversation has, for the limits */
    bool prompt;               /* end with the header of the assistant's reply */
    int64_t now;               /* Unix time for strftime_now */
    by__template_spans *spans; /* gets those of {% generation %}; NULL: not wanted */
} by__template_chat;

/* As by_chat_render. */
by_status by__template_chat_render(const by_chat *chat, const by__template_chat *request,
                                   char **out, size_t *length, by_error *error);
/* Makes objects of the texts that the arguments of calls are, as by_chat_request.calls_as_text. */
by_status by__template_chat_calls(json_t *messages, by_error *error);
/* Returns whether the template has {% generation %}. */
bool by__template_chat_marks(const by_chat *chat);

#endif
