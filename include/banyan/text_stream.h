/* Text of tokens as they come: whole characters only, and up to a stop string.
 *
 * A token may be part of a character, and a stop string may begin in one token and end in another.
 * A stream therefore holds back what may still become either, and gives the rest out at once. */
#ifndef BANYAN_TEXT_STREAM_H
#define BANYAN_TEXT_STREAM_H

#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_text_stream by_text_stream;

typedef struct by_text_stream_options {
    const char *const *stops; /* texts that end the stream; copied; none is empty */
    size_t stop_count;
    bool skip_special; /* special tokens give no text */
    bool continues;    /* text stands in front: the first token keeps its space */
    int64_t unstopped; /* the text of so many tokens is shown as it is: a stop begins behind it */
} by_text_stream_options;

/* The tokenizer must outlive the stream. `options` may be NULL: all zero. BY_EARG: a stop string is
 * empty. */
BY_API by_status by_text_stream_open(by_text_stream **out, const by_tokenizer *tokenizer,
                                     const by_text_stream_options *options, by_error *error);
BY_API void by_text_stream_close(by_text_stream **stream);
/* Forgets what it holds: a new text begins. */
BY_API void by_text_stream_reset(by_text_stream *stream);
/* Takes the next token. *out is the text that may be shown now, possibly empty, valid until the
 * next call. *stopped: a stop string has come; *out then ends in front of it, and what follows is
 * not shown. Bytes that belong to no character come as they are, once nothing can complete them.
 * BY_EARG: id is not below the vocabulary; BY_ESTATE: the stream has stopped. */
BY_API by_status by_text_stream_push(by_text_stream *stream, uint32_t id, by_text *out,
                                     bool *stopped, by_error *error);
/* The text has ended: *out is what was held back (nothing after a stop). */
BY_API void by_text_stream_end(by_text_stream *stream, by_text *out);

#ifdef __cplusplus
}
#endif
#endif
