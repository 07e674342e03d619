#include <stdlib.h>
#include <string.h>

#include "infer/constraint/constraint.h"

typedef struct token_entry {
    const uint8_t *data;
    uint32_t length;
    uint32_t id;
} token_entry;

static int by_bytes(const void *a, const void *b)
{
    const token_entry *x = a;
    const token_entry *y = b;
    int order = memcmp(x->data, y->data, x->length < y->length ? x->length : y->length);
    if (order == 0) {
        order = (x->length > y->length) - (x->length < y->length);
    }
    return order == 0 ? (x->id > y->id) - (x->id < y->id) : order;
}

/* Lists the tokens in the order of their ids; *bytes receives their concatenated bytes. */
static by_status collect(token_entry *list, uint32_t *count, uint8_t **bytes, by_token_bytes *read,
                         void *user, uint32_t vocab, by_error *error)
{
    size_t used = 0;
    size_t capacity = 0;
    *count = 0;
    for (uint32_t id = 0; id < vocab; id++) {
        const char *data = NULL;
        size_t length = 0;
        BY_TRY(read(user, id, &data, &length, error));
        if (length == 0 || length > BY__MAX_TOKEN_BYTES) {
            continue;
        }
        BY_TRY(by__reserve((void **)bytes, &capacity, used + length, 1, error));
        memcpy(*bytes + used, data, length);
        list[(*count)++] = (token_entry){.length = (uint32_t)length, .id = id};
        used += length;
    }
    used = 0;
    for (uint32_t k = 0; k < *count; k++) {
        list[k].data = *bytes + used;
        used += list[k].length;
    }
    return used > UINT32_MAX ? by_error_set(error, BY_EARG, "the vocabulary has over 4 GiB of text")
                             : BY_OK;
}

static by_status fill(by_token_list *list, const token_entry *entries, uint32_t count,
                      by_error *error)
{
    size_t bytes = 0;
    for (uint32_t k = 0; k < count; k++) {
        bytes += entries[k].length;
    }
    BY_TRY(by__alloc((void **)&list->ids, count, sizeof *list->ids, "a vocabulary", error));
    BY_TRY(by__alloc((void **)&list->first, (size_t)count + 1, sizeof *list->first, "a vocabulary",
                     error));
    BY_TRY(by__alloc((void **)&list->bytes, bytes, 1, "a vocabulary", error));
    BY_TRY(by__alloc((void **)&list->shared, count, 1, "a vocabulary", error));
    BY_TRY(
        by__alloc((void **)&list->place, list->vocab, sizeof *list->place, "a vocabulary", error));
    memset(list->place, 0xff, list->vocab * sizeof *list->place);
    list->count = count;
    for (uint32_t k = 0; k < count; k++) {
        const token_entry *e = &entries[k];
        memcpy(list->bytes + list->first[k], e->data, e->length);
        list->first[k + 1] = list->first[k] + e->length;
        list->ids[k] = e->id;
        list->place[e->id] = k;
        while (k > 0 && list->shared[k] < e->length && list->shared[k] < entries[k - 1].length &&
               e->data[list->shared[k]] == entries[k - 1].data[list->shared[k]]) {
            list->shared[k]++;
        }
    }
    return BY_OK;
}

by_status by_token_list_open(by_token_list **out, by_token_bytes *bytes, void *user, uint32_t vocab,
                             by_error *error)
{
    by_token_list *list;
    token_entry *entries = NULL;
    uint8_t *copied = NULL;
    uint32_t count;
    BY_TRY(by__alloc((void **)&list, 1, sizeof *list, "a vocabulary", error));
    list->vocab = vocab;
    by_status status = by__alloc((void **)&entries, vocab, sizeof *entries, "a vocabulary", error);
    if (status == BY_OK) {
        status = collect(entries, &count, &copied, bytes, user, vocab, error);
    }
    if (status == BY_OK) {
        qsort(entries, count, sizeof *entries, by_bytes);
        status = fill(list, entries, count, error);
    }
    free(entries);
    free(copied);
    if (status != BY_OK) {
        by_token_list_close(&list);
        return status;
    }
    *out = list;
    return BY_OK;
}

static by_status ordinary(void *user, uint32_t id, const char **data, size_t *length,
                          by_error *error)
{
    const by_tokenizer *tokenizer = user;
    *length = 0;
    return by_tokenizer_is_special(tokenizer, id)
               ? BY_OK
               : by_tokenizer_token_bytes(tokenizer, id, data, length, error);
}

by_status by_token_list_of(by_token_list **out, const by_tokenizer *tokenizer, by_error *error)
{
    return by_token_list_open(out, ordinary, (void *)(uintptr_t)tokenizer,
                              by_tokenizer_vocab(tokenizer), error);
}

void by_token_list_close(by_token_list **list)
{
    if (*list != NULL) {
        free((*list)->ids);
        free((*list)->first);
        free((*list)->bytes);
        free((*list)->shared);
        free((*list)->place);
        free(*list);
        *list = NULL;
    }
}
