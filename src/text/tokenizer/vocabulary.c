#include "text/tokenizer/model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t token_hash(const void *data, size_t length)
{
    return by__hash64(data, length);
}

by_status by__tokenizer_new(by_tokenizer **out, bool characters, by_error *error)
{
    by_tokenizer *t;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "tokenizer", error));
    t->model = characters ? &by__tokenizer_character_model : &by__tokenizer_bpe_model;
    t->characters = characters;
    t->byte_level = !characters;
    t->pipeline.splitters[0].kind = BY__SPLIT_GPT2;
    t->pipeline.splitter_count = characters ? 0 : 1;
    t->unk = BY__NO_TOKEN;
    t->eos = -1;
    by_status status =
        by__reserve((void **)&t->offsets, &t->offsets_capacity, 1, sizeof *t->offsets, error);
    if (status == BY_OK) { /* so that a token's address is never computed from NULL */
        status = by__reserve((void **)&t->bytes, &t->bytes_capacity, 1, 1, error);
    }
    if (status != BY_OK) {
        by_tokenizer_close(&t);
        return status;
    }
    t->offsets[0] = 0;
    *out = t;
    return BY_OK;
}

void by_tokenizer_close(by_tokenizer **tokenizer)
{
    by_tokenizer *t = *tokenizer;
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; i < t->added_count; i++) {
        free(t->added[i].content);
        free(t->added[i].match);
    }
    if (t->model_state != NULL) {
        t->model->free_state(t->model_state);
    }
    by__tokenizer_pipeline_free(&t->pipeline);
    free(t->piece_offsets);
    free(t->pieces);
    free(t->added);
    free(t->added_order);
    free(t->merges);
    free(t->pairs);
    free(t->slots);
    free(t->verbatim);
    free(t->offsets);
    free(t->bytes);
    free(t);
    *tokenizer = NULL;
}

/* Appends bytes as the token `vocab`. */
static by_status append(by_tokenizer *t, const char *data, size_t length, bool verbatim,
                        by_error *error)
{
    size_t end;
    size_t used = t->offsets[t->vocab];
    if (t->vocab >= BY__MAX_TOKENS || !by__size_add(used, length, &end)) {
        return by_error_set(error, BY_EFORMAT, "a vocabulary of more than %zu tokens",
                            BY__MAX_TOKENS);
    }
    size_t next = (size_t)t->vocab + 1;
    BY_TRY(by__reserve((void **)&t->bytes, &t->bytes_capacity, end, 1, error));
    BY_TRY(by__reserve((void **)&t->offsets, &t->offsets_capacity, next + 1, sizeof *t->offsets,
                       error));
    BY_TRY(by__reserve((void **)&t->verbatim, &t->verbatim_capacity, next, 1, error));
    if (length > 0) {
        memcpy(t->bytes + used, data, length);
    }
    t->verbatim[t->vocab] = verbatim ? 1 : 0;
    t->vocab++;
    t->offsets[t->vocab] = end;
    return BY_OK;
}

by_status by__tokenizer_add_token(by_tokenizer *t, const char *data, size_t length, bool verbatim,
                                  by_error *error)
{
    BY_TRY(append(t, data, length, verbatim, error));
    t->model_vocab = t->vocab;
    return BY_OK;
}

by_status by__tokenizer_add_merge(by_tokenizer *t, uint32_t left, uint32_t right, uint32_t id,
                                  by_error *error)
{
    if (t->merge_count >= BY__MAX_TOKENS) {
        return by_error_set(error, BY_EFORMAT, "more than %zu merges", BY__MAX_TOKENS);
    }
    BY_TRY(by__reserve((void **)&t->merges, &t->merge_capacity, t->merge_count + 1,
                       sizeof *t->merges, error));
    t->merges[t->merge_count++] = (by__tokenizer_merge){left, right, id};
    return BY_OK;
}

by_status by__tokenizer_add_added(by_tokenizer *t, const by__tokenizer_added_token *token,
                                  by_error *error)
{
    BY_TRY(by__reserve((void **)&t->added, &t->added_capacity, t->added_count + 1, sizeof *t->added,
                       error));
    by__tokenizer_added_token copy = *token;
    copy.match = NULL;
    copy.content = by__strndup(token->content, token->length);
    if (copy.content == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: added token");
    }
    if (copy.id == BY__NO_TOKEN) {
        copy.id = t->vocab;
        by_status status = append(t, copy.content, copy.length, true, error);
        if (status != BY_OK) {
            free(copy.content);
            return status;
        }
    }
    t->added[t->added_count++] = copy;
    return BY_OK;
}

by_status by__tokenizer_add_end_of_text(by_tokenizer *t, uint32_t id, by_error *error)
{
    char content[] = BY__END_OF_TEXT;
    by__tokenizer_added_token token = {
        .content = content, .length = strlen(content), .id = id, .special = true};
    return by__tokenizer_add_added(t, &token, error);
}

/* ---- tables ---- */

size_t by__tokenizer_table_size(size_t count)
{
    size_t size = 16;
    while (size < count * 2) {
        size *= 2;
    }
    return size;
}

uint32_t by__tokenizer_find(const by_tokenizer *t, const uint8_t *data, size_t length)
{
    size_t i = (size_t)token_hash(data, length) & t->slot_mask;
    for (;; i = (i + 1) & t->slot_mask) {
        uint32_t id = t->slots[i];
        if (id == BY__NO_TOKEN) {
            return id;
        }
        size_t start = t->offsets[id];
        if (t->offsets[id + 1] - start == length && memcmp(t->bytes + start, data, length) == 0) {
            return id;
        }
    }
}

by_status by__tokenizer_index(by_tokenizer *t, const char *name, by_error *error)
{
    if (t->slots != NULL) {
        return BY_OK;
    }
    size_t size = by__tokenizer_table_size(t->model_vocab);
    BY_TRY(by__alloc((void **)&t->slots, size, sizeof *t->slots, "token table", error));
    memset(t->slots, 0xff, size * sizeof *t->slots);
    t->slot_mask = size - 1;
    for (uint32_t id = 0; id < t->model_vocab; id++) {
        if (t->verbatim[id] != 0 && t->byte_level) {
            continue;
        }
        const char *data = t->bytes + t->offsets[id];
        size_t length = t->offsets[id + 1] - t->offsets[id];
        uint32_t held = by__tokenizer_find(t, (const uint8_t *)data, length);
        if (held != BY__NO_TOKEN) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: tokens %" PRIu32 " and %" PRIu32 " are the same", name, held,
                                id);
        }
        size_t i = (size_t)token_hash(data, length) & t->slot_mask;
        while (t->slots[i] != BY__NO_TOKEN) {
            i = (i + 1) & t->slot_mask;
        }
        t->slots[i] = id;
    }
    return BY_OK;
}

static void find_eos(by_tokenizer *t)
{
    const char *const names[] = {BY__END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>",
                                 t->model->end};
    for (size_t n = 0; n < BY_ARRAY_LENGTH(names) && names[n] != NULL; n++) {
        for (size_t i = 0; i < t->added_count; i++) {
            if (t->added[i].special && strcmp(t->added[i].content, names[n]) == 0) {
                t->eos = t->added[i].id;
                return;
            }
        }
    }
}

/* Adds to the hash the settings that byte-level BPE with GPT-2's pattern and characters do not
 * have. */
static void hash_pipeline(const by_tokenizer *t, by__hasher *hasher)
{
    const by__tokenizer_pipeline *p = &t->pipeline;
    if (p->source[0] == NULL && t->byte_level == !t->characters && t->unk == BY__NO_TOKEN) {
        return;
    }
    by__hasher_add_u64(hasher, (t->byte_level ? 1u : 0u) | (t->byte_fallback ? 2u : 0u) |
                                   (t->fuse_unk ? 4u : 0u) | (uint64_t)t->unk << 32);
    for (size_t i = 0; i < 2 && p->source[0] != NULL; i++) {
        by__hasher_add(hasher, p->source[i], strlen(p->source[i]));
    }
    by__hasher_add_u64(hasher, p->before_count << 32 | p->after_count);
    for (size_t i = 0; i < p->before_count + p->after_count; i++) {
        by__hasher_add_u64(hasher,
                           i < p->before_count ? p->before[i] : p->after[i - p->before_count]);
    }
    if (t->model->hash != NULL) {
        t->model->hash(t, hasher);
    }
}

static by_status hash_all(by_tokenizer *t, by_error *error)
{
    by__hasher *hasher;
    BY_TRY(by__hasher_open(&hasher, error));
    by__hasher_add_u64(hasher, (t->characters ? 1u : 0u) | (t->ignore_merges ? 2u : 0u));
    by__hasher_add_u64(hasher, t->model_vocab);
    by__hasher_add_u64(hasher, t->vocab);
    for (uint32_t id = 0; id < t->vocab; id++) {
        by__hasher_add_u64(hasher, t->offsets[id + 1]);
    }
    by__hasher_add(hasher, t->verbatim, t->vocab);
    by__hasher_add(hasher, t->bytes, t->offsets[t->vocab]);
    by__hasher_add_u64(hasher, t->merge_count);
    for (size_t i = 0; i < t->merge_count; i++) {
        by__hasher_add_u64(hasher, (uint64_t)t->merges[i].left << 32 | t->merges[i].right);
    }
    hash_pipeline(t, hasher);
    for (size_t i = 0; i < t->added_count; i++) {
        const by__tokenizer_added_token *a = &t->added[i];
        unsigned flags = (a->single_word ? 1u : 0u) | (a->lstrip ? 2u : 0u) |
                         (a->rstrip ? 4u : 0u) | (a->normalized ? 8u : 0u) |
                         (a->special ? 16u : 0u);
        by__hasher_add_u64(hasher, (uint64_t)a->id << 32 | flags);
        by__hasher_add_u64(hasher, a->length);
        by__hasher_add(hasher, a->content, a->length);
    }
    by__hasher_hex(hasher, t->hash);
    by__hasher_close(&hasher);
    return BY_OK;
}

bool by__tokenizer_cuts(const by_tokenizer *t)
{
    const by__tokenizer_pipeline *p = &t->pipeline;
    bool words = t->byte_level && p->splitter_count > 0;
    for (size_t i = 0; i < p->rewrite_count; i++) {
        by__tokenizer_rewrite_kind kind = p->rewrites[i].kind;
        if (kind != BY__REWRITE_FORM && kind != BY__REWRITE_CHARACTERS && kind != BY__REWRITE_MAP &&
            kind != BY__REWRITE_WORDS) {
            return false;
        }
        words = words || kind == BY__REWRITE_WORDS;
    }
    for (size_t i = 0; i < p->splitter_count; i++) {
        by__tokenizer_splitter_kind kind = p->splitters[i].kind;
        bool spaces = kind == BY__SPLIT_SPACES || kind == BY__SPLIT_BERT;
        if (!spaces && kind != BY__SPLIT_GPT2 && kind != BY__SPLIT_RULE &&
            kind != BY__SPLIT_NUMBERS && !(kind == BY__SPLIT_BEHIND && words)) {
            return false;
        }
        words = words || spaces;
    }
    return t->characters || words;
}

by_status by__tokenizer_finish(by_tokenizer *t, const char *name, by_error *error)
{
    if (t->vocab == 0) {
        return by_error_set(error, BY_EFORMAT, "%s: the vocabulary is empty", name);
    }
    BY_TRY(by__tokenizer_index(t, name, error));
    t->all_bytes = true;
    for (unsigned b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        char fallback[8];
        t->byte_ids[b] = by__tokenizer_find(t, &byte, 1);
        t->all_bytes = t->all_bytes && t->byte_ids[b] != BY__NO_TOKEN;
        (void)snprintf(fallback, sizeof fallback, "<0x%02X>", b);
        t->fallback_ids[b] =
            t->byte_fallback ? by__tokenizer_find(t, (const uint8_t *)fallback, 6) : BY__NO_TOKEN;
    }
    if (t->model->finish != NULL) {
        BY_TRY(t->model->finish(t, name, error));
    }
    BY_TRY(by__tokenizer_added_index(t, name, error));
    BY_TRY(by__tokenizer_pieces_make(t, error));
    find_eos(t);
    return hash_all(t, error);
}

/* ---- properties ---- */

uint32_t by_tokenizer_vocab(const by_tokenizer *tokenizer)
{
    return tokenizer->vocab;
}

int64_t by_tokenizer_eos(const by_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

bool by_tokenizer_is_char(const by_tokenizer *tokenizer)
{
    return tokenizer->characters;
}

const char *by_tokenizer_hash(const by_tokenizer *tokenizer)
{
    return tokenizer->hash;
}

int64_t by_tokenizer_token_id(const by_tokenizer *t, const char *data, size_t length)
{
    for (size_t i = 0; i < t->added_count; i++) {
        if (t->added[i].length == length && memcmp(t->added[i].content, data, length) == 0) {
            return t->added[i].id;
        }
    }
    uint32_t id = by__tokenizer_find(t, (const uint8_t *)data, length);
    if (id == BY__NO_TOKEN && length == 1) {
        id = t->fallback_ids[(uint8_t)data[0]];
    }
    return id == BY__NO_TOKEN ? -1 : (int64_t)id;
}

void by_token_buffer_free(by_token_buffer *buffer)
{
    free(buffer->ids);
    *buffer = (by_token_buffer){0};
}
