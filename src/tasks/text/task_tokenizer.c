#include "tasks/text/task_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "banyan/tokenizer.h"

by_status by__task_text_to_ids(const char *path, const char *text, int32_t **ids, size_t *count,
                               int64_t *vocab, by_error *error)
{
    by_token_buffer tokens = {0};
    by_tokenizer *tokenizer;
    BY_TRY(by_tokenizer_open(&tokenizer, path, error));
    by_status status =
        by_tokenizer_encode(tokenizer, text, strlen(text), &tokens, BY_ENCODE_SPECIAL, error);
    if (status == BY_OK) {
        status = by__alloc((void **)ids, tokens.count + 1, sizeof **ids, "text", error);
    }
    if (status == BY_OK) {
        for (size_t i = 0; i < tokens.count; i++) {
            (*ids)[i] = (int32_t)tokens.ids[i];
        }
        *count = tokens.count;
        *vocab = by_tokenizer_vocab(tokenizer);
    }
    by_token_buffer_free(&tokens);
    by_tokenizer_close(&tokenizer);
    return status;
}

by_status by__task_text_of_ids(const char *path, const int32_t *ids, size_t count, char **text,
                               size_t *length, by_error *error)
{
    uint32_t *tokens;
    by_tokenizer *tokenizer;
    BY_TRY(by_tokenizer_open(&tokenizer, path, error));
    by_status status = by__alloc((void **)&tokens, count + 1, sizeof *tokens, "text", error);
    if (status == BY_OK) {
        for (size_t i = 0; i < count; i++) {
            tokens[i] = (uint32_t)ids[i];
        }
        status = by_tokenizer_decode(tokenizer, tokens, count, text, length, error);
        free(tokens);
    }
    by_tokenizer_close(&tokenizer);
    return status;
}

by_status by__task_find_eos(int64_t *id, char **token, const char *path, by_error *error)
{
    by_tokenizer *tokenizer;
    const char *bytes;
    size_t length;
    BY_TRY(by_tokenizer_open(&tokenizer, path, error));
    by_status status = BY_OK;
    int64_t eos = by_tokenizer_eos(tokenizer);
    if (eos >= 0) {
        *id = eos;
        status = by_tokenizer_token_bytes(tokenizer, (uint32_t)eos, &bytes, &length, error);
        if (status == BY_OK && (*token = by__strndup(bytes, length)) == NULL) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: token");
        }
    }
    by_tokenizer_close(&tokenizer);
    return status;
}

by_status by__task_tokenizer_config(char **out, const char *eos, int64_t context, by_error *error)
{
    by_string text = {0};
    by__string_append(&text, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    if (eos != NULL) {
        by__string_append(&text, "  \"eos_token\": ");
        by_string_json(&text, eos, strlen(eos));
        by__string_append(&text, ",\n");
    }
    by_string_format(&text, "  \"model_max_length\": %lld\n}\n", (long long)context);
    return by__string_release(&text, out, error);
}
