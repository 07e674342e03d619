/* Runs the tokenizers for scripts that compare them with other libraries.
 *
 *   tokenizer_tool encode TOKENIZER FLAGS     texts from stdin, ids to stdout
 *   tokenizer_tool both TOKENIZER FLAGS       the same, and what the ids decode to
 *   tokenizer_tool bpe VOCAB MIN_FREQUENCY THREADS OUT FILE...
 *   tokenizer_tool char OUT FILE...
 *   tokenizer_tool resave TOKENIZER OUT
 *   tokenizer_tool stream TOKENIZER           bytes from stdin, texts as clients get them to stdout
 *   tokenizer_tool speed TOKENIZER FILE...    MB/s of one thread over all files, cache cold
 *
 * A text on stdin is a little-endian u32 length and its bytes; ids come out as a u32 count and the
 * u32 ids. Decoding must give the text back; exit 1 with a message otherwise. With `both`, counts
 * of ids and of bytes come first, the bytes last, and they may be any. With `stream` they may be
 * any, too: each byte is a token of its own, and what a stream of text releases is replaced piece
 * by piece where it is not UTF-8. */
#include <stdlib.h>
#include <string.h>

#include "banyan/text_stream.h"
#include "banyan/tokenizer.h"
#include "base/base.h"

static int fail(const by_error *error)
{
    (void)fprintf(stderr, "%s\n", error->message);
    return 1;
}

static int encode(const char *path, unsigned flags, bool both)
{
    by_error error = {0};
    by_tokenizer *tokenizer;
    by_encoder *encoder;
    uint32_t length;
    if (by_tokenizer_open(&tokenizer, path, &error) != BY_OK ||
        by_encoder_open(&encoder, tokenizer, &error) != BY_OK) {
        return fail(&error);
    }
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        by_token_buffer ids = {0};
        char *back;
        size_t back_length;
        char *text = malloc((size_t)length + 1);
        if (text == NULL || fread(text, 1, length, stdin) != length) {
            return 1;
        }
        if (by_encoder_encode(encoder, text, length, &ids, flags, &error) != BY_OK ||
            by_tokenizer_decode(tokenizer, ids.ids, ids.count, &back, &back_length, &error) !=
                BY_OK) {
            return fail(&error);
        }
        if (flags == BY_ENCODE_ORDINARY && !both &&
            (back_length != length || memcmp(back, text, length) != 0)) {
            (void)fprintf(stderr, "decoding does not give the text back\n");
            return 1;
        }
        uint32_t count = (uint32_t)ids.count;
        uint32_t bytes = (uint32_t)back_length;
        (void)fwrite(&count, sizeof count, 1, stdout);
        (void)fwrite(&bytes, sizeof bytes, both ? 1 : 0, stdout);
        (void)fwrite(ids.ids, sizeof *ids.ids, ids.count, stdout);
        (void)fwrite(back, 1, both ? back_length : 0, stdout);
        by_token_buffer_free(&ids);
        free(back);
        free(text);
    }
    by_encoder_close(&encoder);
    by_tokenizer_close(&tokenizer);
    return 0;
}

/* Writes what comes of the bytes of a text, token by token. */
static by_status stream_text(by_text_stream *stream, const uint32_t ids[256], const uint8_t *bytes,
                             uint32_t length, by_error *error)
{
    by_string out = {0};
    by_text text;
    bool stopped;
    by_text_stream_reset(stream);
    for (uint32_t i = 0; i < length; i++) {
        BY_TRY(by_text_stream_push(stream, ids[bytes[i]], &text, &stopped, error));
        by__string_add_valid(&out, text.data, text.length);
    }
    by_text_stream_end(stream, &text);
    by__string_add_valid(&out, text.data, text.length);
    BY_TRY(by_string_check(&out, error));
    uint32_t count = (uint32_t)out.length;
    (void)fwrite(&count, sizeof count, 1, stdout);
    (void)fwrite(out.data, 1, count, stdout);
    by_string_free(&out);
    return BY_OK;
}

static int stream(const char *path)
{
    by_error error = {0};
    by_tokenizer *tokenizer;
    by_text_stream *texts;
    uint32_t ids[256];
    uint8_t bytes[256];
    uint32_t length;
    if (by_tokenizer_open(&tokenizer, path, &error) != BY_OK ||
        by_text_stream_open(&texts, tokenizer, NULL, &error) != BY_OK) {
        return fail(&error);
    }
    for (unsigned i = 0; i < 256; i++) {
        const char byte = (char)i;
        by_token_buffer id = {0};
        if (by_tokenizer_encode(tokenizer, &byte, 1, &id, BY_ENCODE_ORDINARY, &error) != BY_OK) {
            return fail(&error);
        }
        ids[i] = id.ids[0];
        by_token_buffer_free(&id);
    }
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        if (length > sizeof bytes || fread(bytes, 1, length, stdin) != length) {
            return 1;
        }
        if (stream_text(texts, ids, bytes, length, &error) != BY_OK) {
            return fail(&error);
        }
    }
    by_text_stream_close(&texts);
    by_tokenizer_close(&tokenizer);
    return 0;
}

static int learn(const by_bpe_options *options, const char *out, char **files, int count)
{
    by_error error = {0};
    by_tokenizer *tokenizer;
    by__map *maps = calloc((size_t)count, sizeof *maps);
    by_text *texts = calloc((size_t)count, sizeof *texts);
    for (int i = 0; i < count; i++) {
        if (by__map_open(&maps[i], files[i], &error) != BY_OK) {
            return fail(&error);
        }
        texts[i] = (by_text){(const char *)maps[i].data, maps[i].size};
    }
    double start = by__now();
    by_status status =
        options != NULL ? by_tokenizer_train_bpe(&tokenizer, options, texts, (size_t)count, &error)
                        : by_tokenizer_char(&tokenizer, texts, (size_t)count, &error);
    if (status != BY_OK) {
        return fail(&error);
    }
    printf("%u tokens in %.3f s\n", by_tokenizer_vocab(tokenizer), by__now() - start);
    if (by_tokenizer_save(tokenizer, out, &error) != BY_OK) {
        return fail(&error);
    }
    by_tokenizer_close(&tokenizer);
    for (int i = 0; i < count; i++) {
        by__map_close(&maps[i]);
    }
    free(texts);
    free(maps);
    return 0;
}

static int resave(const char *path, const char *out)
{
    by_error error = {0};
    by_tokenizer *tokenizer;
    if (by_tokenizer_open(&tokenizer, path, &error) != BY_OK ||
        by_tokenizer_save(tokenizer, out, &error) != BY_OK) {
        return fail(&error);
    }
    by_tokenizer_close(&tokenizer);
    return 0;
}

static int speed(const char *path, char **files, int count)
{
    by_error error = {0};
    by_tokenizer *tokenizer;
    by_encoder *encoder;
    by_token_buffer ids = {0};
    size_t bytes = 0;
    double seconds = 0;
    if (by_tokenizer_open(&tokenizer, path, &error) != BY_OK ||
        by_encoder_open(&encoder, tokenizer, &error) != BY_OK) {
        return fail(&error);
    }
    for (int i = 0; i < count; i++) {
        char *text;
        size_t length;
        if (by__file_read(&text, &length, files[i], SIZE_MAX / 2, &error) != BY_OK) {
            return fail(&error);
        }
        double start = by__now();
        ids.count = 0;
        if (by_encoder_encode(encoder, text, length, &ids, 0, &error) != BY_OK) {
            return fail(&error);
        }
        seconds += by__now() - start;
        bytes += length;
        free(text);
    }
    printf("%.1f MB/s (%zu bytes in %.3f s)\n", (double)bytes / seconds / 1e6, bytes, seconds);
    by_token_buffer_free(&ids);
    by_encoder_close(&encoder);
    by_tokenizer_close(&tokenizer);
    return 0;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    bool both = strcmp(command, "both") == 0;
    if ((both || strcmp(command, "encode") == 0) && argc == 4) {
        return encode(argv[2], (unsigned)atoi(argv[3]), both);
    }
    if (strcmp(command, "bpe") == 0 && argc > 6) {
        by_bpe_options options = {.vocab = (size_t)atol(argv[2]),
                                  .min_frequency = (uint64_t)atol(argv[3]),
                                  .threads = (size_t)atol(argv[4])};
        return learn(&options, argv[5], argv + 6, argc - 6);
    }
    if (strcmp(command, "char") == 0 && argc > 3) {
        return learn(NULL, argv[2], argv + 3, argc - 3);
    }
    if (strcmp(command, "resave") == 0 && argc == 4) {
        return resave(argv[2], argv[3]);
    }
    if (strcmp(command, "stream") == 0 && argc == 3) {
        return stream(argv[2]);
    }
    if (strcmp(command, "speed") == 0 && argc > 3) {
        return speed(argv[2], argv + 3, argc - 3);
    }
    (void)fprintf(stderr, "usage: tokenizer_tool encode|both|bpe|char|resave|stream|speed ...\n");
    return 2;
}
