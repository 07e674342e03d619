/* Chat templates: render a conversation as the text format that a model was trained on.
 *
 * A template is the `chat_template` distributed with a model, in the subset of Jinja that published
 * templates use (docs/chat.md); the output is byte-identical to transformers' apply_chat_template.
 * A template can only access its inputs, and each rendering is bounded in steps, memory, output
 * size and nesting depth: exceeding a bound is an error with the template's line.
 *
 * A handle is immutable; any number of threads may render with it.
 */
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

/* Where to find a template. */
typedef struct by_chat_source {
    /* Directory with tokenizer_config.json and chat_template.jinja, each optional, or path of a
     * GGUF file. NULL: none. */
    const char *directory;
    /* File with the template itself, or the name of a built-in one: "chatml", "llama3", "zephyr",
     * "plain", or "none", which joins the texts; NULL: the directory's. */
    const char *file;
    const char *name; /* which of several named templates; NULL: "default" */
} by_chat_source;

/* Reads a template and the special tokens of its tokenizer. Returns BY_ESTATE if there is no
 * template, BY_EFORMAT if a file is malformed or the template uses an unsupported construct (the
 * message has its path and line; those of by_chat_render have "chat template" for the path). */
BY_API by_status by_chat_open(by_chat **out, const by_chat_source *source, by_error *error);
/* Parses a template from memory, without special tokens. `name` is used in messages. Returns
 * BY_EFORMAT as by_chat_open. */
BY_API by_status by_chat_parse(by_chat **out, const char *text, size_t length, const char *name,
                               by_error *error);
BY_API void by_chat_close(by_chat **chat);

/* Bounds of one rendering; 0 selects the default. */
typedef struct by_chat_limits {
    uint64_t steps; /* evaluated nodes and processed elements; 0: 1,000,000 + bytes of the input */
    size_t memory;  /* bytes of values; 0: 64 MiB + 16 * bytes of the input */
    size_t output;  /* bytes of text; 0: 8 MiB + 4 * bytes of the input */
} by_chat_limits;

typedef struct by_chat_request {
    const char *messages; /* JSON list: {"role": ..., "content": text or list of parts, ...} */
    size_t messages_length;
    const char *tools; /* JSON list of function definitions; NULL: none */
    size_t tools_length;
    const char *variables; /* JSON object of further template variables; NULL: none */
    size_t variables_length;
    bool calls_as_text;         /* the arguments of calls in messages are texts of JSON, as in
                                   OpenAI's API: templates get the objects, numbers as spelled */
    bool add_generation_prompt; /* end with the header of the assistant's reply */
    int64_t now;                /* Unix time for strftime_now, in seconds; 0: the current time */
    by_chat_limits limits;
} by_chat_request;

/* Renders a conversation. *out is NUL-terminated, its *length bytes exclude the NUL; free it with
 * free(). The text contains its special tokens, including a beginning-of-text token if the template
 * writes one: encode it with BY_ENCODE_SPECIAL only. Returns BY_EFORMAT if an input is not JSON of
 * the right kind; BY_EARG if the template rejects the conversation (with its message), fails, or
 * exceeds a limit. */
BY_API by_status by_chat_render(const by_chat *chat, const by_chat_request *request, char **out,
                                size_t *length, by_error *error);
/* Returns the text of the template, which lives as long as the handle. */
BY_API const char *by_chat_text(const by_chat *chat);
/* Returns whether the template iterates over the parts of a message's content (`for part in
 * message.content` or similar). Other templates need each content as a single string. */
BY_API bool by_chat_accepts_parts(const by_chat *chat);
/* Returns the text of a special token by its key in tokenizer_config.json ("bos_token",
 * "eos_token", ...), or NULL. */
BY_API const char *by_chat_special(const by_chat *chat, const char *name);
/* Returns the special token that the template writes behind an answer, or -1. by_end_tokens has it,
 * for the template of a directory, among the others that end one. */
BY_API int64_t by_chat_end(const by_chat *chat, const by_tokenizer *tokenizer);

#ifdef __cplusplus
}
#endif
#endif
