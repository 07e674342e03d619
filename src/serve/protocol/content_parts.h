/* The content of a message: a string, or a list of parts as in OpenAI's API. */
#ifndef BY_SERVE_PROTOCOL_CONTENT_PARTS_H
#define BY_SERVE_PROTOCOL_CONTENT_PARTS_H

#include "serve/base/serve.h"

/* Joins a content into one text: a string as it is, or the texts of its parts separated by line
 * breaks, as vLLM does. A JSON string; a new reference. BY_EARG: it is neither, or has a part that
 * is not text. */
by_status by__protocol_content_text(json_t **out, const json_t *content, by_error *error);
/* Normalises a content to the list of parts that templates know, each {"type": "text", "text":
 * ...}. A new reference. */
by_status by__protocol_content_parts(json_t **out, const json_t *content, by_error *error);

#endif
