/* Incremental decoding of tokens to text, in whole characters and up to a stop string.
 *
 * A token may end within a character, and a stop string may span tokens. A stream therefore holds
 * back bytes that may still belong to either and releases everything else at once. */
#ifndef BANYAN_TEXT_STREAM_H
#define BANYAN_TEXT_STREAM_H

#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_text_stream by_text_stream;

typedef struct by_text_stream_options {
    const char *const *stops; /* strings that end the text, not empty; copied */
    size_t stop_count;
    bool skip_special; /* special tokens produce no text */
    bool continues;    /* the tokens continue a text: the first one keeps its leading space */
    int64_t unstopped; /* tokens at the beginning that are not searched for stop strings */
} by_text_stream_options;

/* Opens a stream. `options` may be NULL for all zeros. The tokenizer must outlive the stream.
 * Returns BY_EARG if a stop string is empty. */
BY_API by_status by_text_stream_open(by_text_stream **out, const by_tokenizer *tokenizer,
                                     const by_text_stream_options *options, by_error *error);
BY_API void by_text_stream_close(by_text_stream **stream);
/* Discards all held text and begins a new text, with the same options. */
BY_API void by_text_stream_reset(by_text_stream *stream);
/* Adds the next token and sets *out to the text that is now complete, possibly empty; it is valid
 * until the next call with this stream. *stopped tells that a stop string was found: *out then ends
 * before it, and the stream accepts no more tokens until it is reset. Invalid UTF-8 is passed
 * through once no further byte can complete it. Returns BY_EARG if `id` is not below the vocabulary
 * size, BY_ESTATE if the stream has stopped. */
BY_API by_status by_text_stream_push(by_text_stream *stream, uint32_t id, by_text *out,
                                     bool *stopped, by_error *error);
/* Ends the text: sets *out to the bytes still held back (none after a stop string), valid until the
 * next call with this stream. */
BY_API void by_text_stream_end(by_text_stream *stream, by_text *out);

#ifdef __cplusplus
}
#endif
#endif
