/* Chat templates: a conversation to the text that a model was trained on.
 *
 * A template is the `chat_template` that comes with a model, in the subset of Jinja that published
 * templates use; the text equals that of transformers' apply_chat_template byte for byte
 * (docs/chat.md lists the subset). A template cannot reach anything but what it is given, and every
 * render is bounded in steps, memory, output and depth: a template that never ends, or grows
 * without end, is an error that names its line.
 *
 * A handle is read-only: any number of threads may render with one. */
#ifndef BANYAN_CHAT_H
#define BANYAN_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_chat by_chat;

typedef struct by_chat_source {
    const char *directory; /* with tokenizer_config.json, chat_template.jinja,
                              generation_config.json, each optional, or a GGUF file; NULL:
                              none */
    const char *file;      /* the template itself; NULL: the directory's */
    const char *name;      /* of several templates in one file: "default" where this is NULL */
} by_chat_source;

/* Reads a template and the texts of special tokens. BY_ESTATE: the directory has no template (the
 * message says what to do); BY_EFORMAT: a file is broken, or the template uses what is not
 * supported (names line and construct). */
BY_API by_status by_chat_open(by_chat **out, const by_chat_source *source, by_error *error);
/* A template from memory without special tokens; `name` stands for it in messages. */
BY_API by_status by_chat_parse(by_chat **out, const char *text, size_t length, const char *name,
                               by_error *error);
BY_API void by_chat_close(by_chat **chat);

typedef struct by_chat_limits {
    uint64_t steps; /* evaluated nodes, and work on many elements; 0: 1,000,000 and the input */
    size_t memory;  /* bytes of values; 0: 64 MiB and 16 times the input */
    size_t output;  /* bytes of text; 0: 8 MiB and 4 times the input */
} by_chat_limits;

typedef struct by_chat_request {
    const char *messages; /* JSON list: {"role": ..., "content": text or parts, ...} */
    size_t messages_length;
    const char *tools; /* JSON list of functions; NULL: none */
    size_t tools_length;
    const char *variables; /* JSON object of further variables; NULL: none */
    size_t variables_length;
    bool add_generation_prompt; /* end where the answer begins */
    int64_t now;                /* seconds since 1970 for strftime_now; 0: the clock's */
    by_chat_limits limits;
} by_chat_request;

/* The text of a conversation, with a NUL behind it that is not counted; freed with free(). It holds
 * its special tokens, the beginning of the text too where the template has it: encode it with
 * BY_ENCODE_SPECIAL alone. BY_EFORMAT: JSON is broken; BY_EARG: the template refuses the
 * conversation (its message), is wrong, or exceeds a limit. */
BY_API by_status by_chat_render(const by_chat *chat, const by_chat_request *request, char **out,
                                size_t *length, by_error *error);
/* Whether the template goes through the parts of a content, `for part in message.content` or alike,
 * so that a message may have a list of them. Of other templates a content is one text. */
BY_API bool by_chat_takes_parts(const by_chat *chat);
/* The text of a special token as tokenizer_config.json has it ("bos_token", "eos_token", ...), NULL
 * if it has none. Lives as long as the handle. */
BY_API const char *by_chat_special(const by_chat *chat, const char *name);
/* True for a token that ends an answer: eos_token, those of generation_config.json, the
 * tokenizer's end of text. */
BY_API bool by_chat_ends(const by_chat *chat, const by_tokenizer *tokenizer, int64_t id);

#ifdef __cplusplus
}
#endif
#endif
