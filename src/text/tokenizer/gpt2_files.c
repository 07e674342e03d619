/* GPT-2's own files: encoder.json ({"token": id}) and vocab.bpe (a "#version" line, then a merge a
 * line, both in byte-level letters). <|endoftext|> is special if the vocabulary has it. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer/json_parts.h"

#define MAX_FILE ((size_t)1 << 30)

static by_status read_line(by_tokenizer *t, const json_t *vocab, char *line, size_t length,
                           size_t number, const char *name, by_error *error)
{
    line[length] = '\0';
    char *space = strchr(line, ' ');
    if (space == NULL || space == line || space[1] == '\0' || strchr(space + 1, ' ') != NULL ||
        strlen(line) != length) {
        return by_error_set(error, BY_EFORMAT, "%s:%zu: not two tokens with a space between them",
                            name, number);
    }
    *space = '\0';
    return by__tokenizer_merge_from_names(t, vocab, line, space + 1, t->merge_count, name, error);
}

/* Modifies `text`. */
static by_status read_lines(by_tokenizer *t, const json_t *vocab, char *text, size_t length,
                            const char *name, by_error *error)
{
    size_t number = 1;
    for (size_t at = 0; at < length; number++) {
        char *end = memchr(text + at, '\n', length - at);
        size_t n = end != NULL ? (size_t)(end - (text + at)) : length - at;
        size_t next = at + n + 1;
        if (n > 0 && text[at + n - 1] == '\r') {
            n--;
        }
        bool is_version = number == 1 && n >= 8 && memcmp(text + at, "#version", 8) == 0;
        if (n > 0 && !is_version) {
            BY_TRY(read_line(t, vocab, text + at, n, number, name, error));
        }
        at = next;
    }
    return BY_OK;
}

by_status by__tokenizer_parse_gpt2(by_tokenizer **out, const char *encoder_name,
                                   const char *encoder, size_t encoder_length,
                                   const char *merges_name, const char *merges,
                                   size_t merges_length, by_error *error)
{
    json_t *vocab;
    by_tokenizer *t = NULL;
    BY_TRY(by__json_parse(&vocab, encoder_name, encoder, encoder_length, JSON_REJECT_DUPLICATES,
                          error));
    char *lines = by__strndup(merges, merges_length);
    by_status status = lines == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: merges")
                                     : by__tokenizer_new(&t, false, error);
    if (status == BY_OK) {
        status = by__tokenizer_vocab_from_json(t, vocab, encoder_name, error);
    }
    if (status == BY_OK) {
        status = read_lines(t, vocab, lines, merges_length, merges_name, error);
    }
    const json_t *end = json_object_get(vocab, BY__END_OF_TEXT);
    if (status == BY_OK && end != NULL) {
        status = by__tokenizer_add_end_of_text(t, (uint32_t)json_integer_value(end), error);
    }
    if (status == BY_OK) {
        status = by__tokenizer_finish(t, encoder_name, error);
    }
    free(lines);
    json_decref(vocab);
    if (status != BY_OK) {
        by_tokenizer_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

by_status by__tokenizer_open_gpt2(by_tokenizer **out, const char *encoder_path,
                                  const char *merges_path, by_error *error)
{
    char *encoder;
    char *merges;
    size_t encoder_length;
    size_t merges_length;
    BY_TRY(by__file_read_text(&encoder, &encoder_length, encoder_path, MAX_FILE, error));
    by_status status = by__file_read_text(&merges, &merges_length, merges_path, MAX_FILE, error);
    if (status == BY_OK) {
        status = by__tokenizer_parse_gpt2(out, encoder_path, encoder, encoder_length, merges_path,
                                          merges, merges_length, error);
        free(merges);
    }
    free(encoder);
    return status;
}
