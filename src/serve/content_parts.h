/* The content of a message: a text, or a list of parts as OpenAI's API has them. */
#ifndef BY_SERVE_CONTENT_PARTS_H
#define BY_SERVE_CONTENT_PARTS_H

#include "serve/serve.h"

/* The one text of a content: a string itself, or the texts of its parts on lines, as vLLM has it. A
 * JSON string; a new reference. BY_EARG: it is neither, or has a part that is no text. */
by_status by__content_text(json_t **out, const json_t *content, by_error *error);
/* The same parts, each as {"type": "text", "text": ...}: what templates know. A list; a new
 * reference. */
by_status by__content_parts(json_t **out, const json_t *content, by_error *error);

#endif
