#include "data/pack/shard_writer.h"

#include <stdlib.h>
#include <string.h>

#define TOKENIZER_FILE "tokenizer.json"
#define OFFSETS_FILE   "documents.npy"
#define MASK_FILE      "mask.npy"
#define TEMPLATE_FILE  "chat_template.jinja"

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: path");
}

static by_status save_tokenizer(const by__data_shard_writer *w, const by_tokenizer *tokenizer,
                                by_error *error)
{
    char *path = by__path_join(w->directory, TOKENIZER_FILE);
    by_status status = path == NULL ? no_memory(error) : by_tokenizer_save(tokenizer, path, error);
    free(path);
    return status;
}

static by_status open_npy(const by__data_shard_writer *w, by__format_npy_writer **out,
                          const char *file, unsigned width, by_error *error)
{
    char *path = by__path_join(w->directory, file);
    by_status status =
        path == NULL ? no_memory(error) : by__format_npy_writer_open(out, path, width, error);
    free(path);
    return status;
}

by_status by__data_shard_writer_open(by__data_shard_writer *w, const char *directory,
                                     const by_tokenizer *tokenizer, bool eos, uint64_t shard_tokens,
                                     by_error *error)
{
    by__data_token_manifest *m = &w->manifest;
    const uint64_t zero = 0;
    w->directory = by__strdup(directory);
    w->shard_tokens = shard_tokens;
    m->vocab = by_tokenizer_vocab(tokenizer);
    m->width = by__data_token_width(m->vocab);
    m->eos = eos ? by_tokenizer_eos(tokenizer) : -1;
    m->tokenizer_file = by__strdup(TOKENIZER_FILE);
    m->offsets_file = by__strdup(OFFSETS_FILE);
    if (w->directory == NULL || m->tokenizer_file == NULL || m->offsets_file == NULL) {
        return no_memory(error);
    }
    memcpy(m->tokenizer_hash, by_tokenizer_hash(tokenizer), sizeof m->tokenizer_hash);
    BY_TRY(by__make_dirs(directory, error));
    BY_TRY(save_tokenizer(w, tokenizer, error));
    BY_TRY(open_npy(w, &w->offsets, OFFSETS_FILE, 8, error));
    BY_TRY(open_npy(w, &w->blocks, BY__BLOCKS_FILE, 8, error));
    BY_TRY(by__alloc((void **)&w->block, BY__CHECKED_TOKENS, m->width, "tokens", error));
    return by__format_npy_writer_add_u64(w->offsets, &zero, 1, error);
}

/* Writes the checksum of a full block, or of the last one of its shard. */
static by_status end_block(by__data_shard_writer *w, by_error *error)
{
    if (w->block_tokens == 0) {
        return BY_OK;
    }
    uint64_t sum = by__hash64(w->block, w->block_tokens * w->manifest.width);
    w->block_tokens = 0;
    return by__format_npy_writer_add_u64(w->blocks, &sum, 1, error);
}

/* Tokens as the file has them, in 2 or 4 bytes. Compilers make vector code of a loop of one width.
 */
static void encode_tokens(uint8_t *out, const uint32_t *ids, size_t count, unsigned width)
{
    if (width == 2) {
        for (size_t i = 0; i < count; i++) {
            out[2 * i] = (uint8_t)ids[i];
            out[2 * i + 1] = (uint8_t)(ids[i] >> 8);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        for (unsigned k = 0; k < 4; k++) {
            out[4 * i + k] = (uint8_t)(ids[i] >> (8 * k));
        }
    }
}

static by_status check_tokens(by__data_shard_writer *w, const uint32_t *ids, size_t count,
                              by_error *error)
{
    unsigned width = w->manifest.width;
    while (count > 0) {
        size_t room = BY__CHECKED_TOKENS - w->block_tokens;
        size_t n = count < room ? count : room;
        encode_tokens(w->block + w->block_tokens * width, ids, n, width);
        w->block_tokens += n;
        if (w->block_tokens == BY__CHECKED_TOKENS) {
            BY_TRY(end_block(w, error));
        }
        ids += n;
        count -= n;
    }
    return BY_OK;
}

static by_status end_shard(by__data_shard_writer *w, by_error *error)
{
    if (w->shard == NULL) {
        return BY_OK;
    }
    by__data_token_shard *shard = &w->manifest.shards[w->manifest.shard_count - 1];
    BY_TRY(end_block(w, error));
    BY_TRY(by__format_npy_writer_finish(w->shard, shard->hash, error));
    by__format_npy_writer_close(&w->shard);
    return BY_OK;
}

static by_status begin_shard(by__data_shard_writer *w, by_error *error)
{
    char name[40];
    by__data_token_manifest *m = &w->manifest;
    BY_TRY(end_shard(w, error));
    BY_TRY(by__reserve((void **)&m->shards, &w->shard_capacity, m->shard_count + 1,
                       sizeof *m->shards, error));
    (void)snprintf(name, sizeof name, "tokens-%05zu.npy", m->shard_count);
    BY_TRY(open_npy(w, &w->shard, name, m->width, error));
    char *copy = by__strdup(name);
    if (copy == NULL) {
        return no_memory(error);
    }
    m->shards[m->shard_count++] = (by__data_token_shard){.file = copy};
    w->shard_room = w->shard_tokens;
    return BY_OK;
}

by_status by__data_shard_writer_add(by__data_shard_writer *w, const uint32_t *ids, size_t count,
                                    by_error *error)
{
    while (count > 0) {
        if (w->shard_room == 0) {
            BY_TRY(begin_shard(w, error));
        }
        size_t n = count < w->shard_room ? count : (size_t)w->shard_room;
        BY_TRY(by__format_npy_writer_add_u32(w->shard, ids, n, error));
        BY_TRY(check_tokens(w, ids, n, error));
        w->manifest.shards[w->manifest.shard_count - 1].tokens += n;
        w->manifest.tokens += n;
        w->shard_room -= n;
        ids += n;
        count -= n;
    }
    return BY_OK;
}

by_status by__data_shard_writer_open_mask(by__data_shard_writer *w, const by_chat *chat,
                                          by_error *error)
{
    by__data_chat_manifest *c = &w->manifest.chat;
    const char *text = by_chat_text(chat);
    c->mask_file = by__strdup(MASK_FILE);
    c->template_file = by__strdup(TEMPLATE_FILE);
    char *path = by__path_join(w->directory, TEMPLATE_FILE);
    by_status status = c->mask_file == NULL || c->template_file == NULL || path == NULL
                           ? no_memory(error)
                           : by__file_write(path, text, strlen(text), error);
    free(path);
    return status == BY_OK ? open_npy(w, &w->mask, MASK_FILE, 1, error) : status;
}

by_status by__data_shard_writer_add_mask(by__data_shard_writer *w, const uint8_t *learned,
                                         size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t value = learned[i];
        BY_TRY(by__format_npy_writer_add_u32(w->mask, &value, 1, error));
    }
    return BY_OK;
}

by_status by__data_shard_writer_end_document(by__data_shard_writer *w, by_error *error)
{
    w->manifest.documents++;
    return by__format_npy_writer_add_u64(w->offsets, &w->manifest.tokens, 1, error);
}

by_status by__data_shard_writer_add_source(by__data_shard_writer *w, const char *path,
                                           uint64_t bytes, const char hash[33], by_error *error)
{
    by__data_token_manifest *m = &w->manifest;
    BY_TRY(by__reserve((void **)&m->sources, &w->source_capacity, m->source_count + 1,
                       sizeof *m->sources, error));
    by__data_token_source *source = &m->sources[m->source_count];
    *source = (by__data_token_source){.path = by__strdup(path), .bytes = bytes};
    if (source->path == NULL) {
        return no_memory(error);
    }
    memcpy(source->hash, hash, sizeof source->hash);
    m->source_count++;
    return BY_OK;
}

by_status by__data_shard_writer_finish(by__data_shard_writer *w, by_error *error)
{
    char unnamed[33];
    BY_TRY(end_shard(w, error));
    BY_TRY(by__format_npy_writer_finish(w->blocks, unnamed, error));
    BY_TRY(by__format_npy_writer_finish(w->offsets, w->manifest.offsets_hash, error));
    if (w->mask != NULL) {
        BY_TRY(by__format_npy_writer_finish(w->mask, w->manifest.chat.mask_hash, error));
    }
    BY_TRY(by__data_token_manifest_write(&w->manifest, w->directory, error));
    return by__sync_dir(w->directory, error);
}

void by__data_shard_writer_close(by__data_shard_writer *w)
{
    by__format_npy_writer_close(&w->shard);
    by__format_npy_writer_close(&w->offsets);
    by__format_npy_writer_close(&w->blocks);
    by__format_npy_writer_close(&w->mask);
    free(w->block);
    by__data_token_manifest_free(&w->manifest);
    free(w->directory);
    *w = (by__data_shard_writer){0};
}
