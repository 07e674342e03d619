/* Caches packed directories: the name is a hash of everything that determines the content. */
#include <stdlib.h>
#include <string.h>

#include "data/pack/pack.h"

#define CACHE_VERSION "banyan-pack-1" /* increase it when the same key would give other bytes */

static void add_string(by__hasher *hasher, const char *s)
{
    by__hasher_add_u64(hasher, strlen(s));
    by__hasher_add(hasher, s, strlen(s));
}

static void add_optional(by__hasher *hasher, const char *s)
{
    add_string(hasher, s == NULL ? "" : s);
}

static void add_chat(by__hasher *hasher, const by_pack_chat *chat)
{
    const by_conversation_options *o = &chat->options;
    static const char *const specials[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    add_string(hasher, "conversations 3");
    add_string(hasher, by_chat_text(chat->chat));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(specials); i++) {
        add_optional(hasher, by_chat_special(chat->chat, specials[i]));
    }
    add_string(hasher, by_conversation_form_name(o->form));
    add_optional(hasher, o->question);
    add_optional(hasher, o->answer);
    add_optional(hasher, o->system);
    add_string(hasher, by_conversation_learn_name(o->learn));
    add_optional(hasher, o->variables);
    add_string(hasher, by_conversation_long_name(o->longer));
    by__hasher_add_u64(hasher, o->context);
}

by_status by__data_pack_key(char key[33], const by__data_pack *pack, const by_tokenizer *tokenizer,
                            by_error *error)
{
    const by_pack_options *o = &pack->options;
    by__hasher *hasher;
    uint64_t fraction;
    BY_TRY(by__hasher_open(&hasher, error));
    memcpy(&fraction, &o->valid_fraction, sizeof fraction);
    add_string(hasher, CACHE_VERSION);
    add_string(hasher, tokenizer != NULL ? by_tokenizer_hash(tokenizer) : o->tokenizer_kind);
    by__hasher_add_u64(hasher, tokenizer == NULL && strcmp(o->tokenizer_kind, "bpe") == 0
                                   ? o->tokenizer_vocab
                                   : 0);
    by__hasher_add_u64(hasher, fraction);
    by__hasher_add_u64(hasher, o->shard_tokens);
    by__hasher_add_u64(hasher, o->no_eos ? 1 : 0);
    if (o->dedup != BY_PACK_DEDUP_NONE) {
        add_string(hasher, o->dedup == BY_PACK_DEDUP_EXACT ? "without exact duplicates"
                                                           : "without near duplicates");
    }
    if (o->skip_corrupt) {
        uint64_t budget;
        memcpy(&budget, &o->corrupt_budget, sizeof budget);
        add_string(hasher, "without damaged lines");
        by__hasher_add_u64(hasher, budget);
    }
    if (pack->source.split_end > 0) { /* earlier versions held all of the document out */
        add_string(hasher, "with a document that is cut");
    }
    if (o->chat != NULL) {
        add_chat(hasher, o->chat);
    }
    by__hasher_add_u64(hasher, pack->source.count);
    for (size_t i = 0; i < pack->source.count; i++) {
        const by__data_source_file *file = &pack->source.files[i];
        add_string(hasher, file->json_lines && o->chat == NULL ? o->field : "");
        by__hasher_add_u64(hasher, file->bytes);
        add_string(hasher, file->hash);
        if (file->mark_bytes > 0) {
            add_string(hasher, "without byte-order mark");
        }
    }
    by__hasher_hex(hasher, key);
    by__hasher_close(&hasher);
    return BY_OK;
}

by_status by__data_pack_find_tokenizer(const by_pack_options *o, const by_tokenizer **tokenizer,
                                       by_tokenizer **own, by_error *error)
{
    *tokenizer = o->tokenizer;
    if (o->tokenizer != NULL || strcmp(o->tokenizer_kind, "char") == 0 ||
        strcmp(o->tokenizer_kind, "bpe") == 0) {
        return BY_OK;
    }
    BY_TRY(by_tokenizer_open(own, o->tokenizer_kind, error));
    *tokenizer = *own;
    return BY_OK;
}

static by_status pack_once(const by__data_pack *pack, const char *path,
                           const by_tokenizer *tokenizer, by_error *error)
{
    by_pack_result result = {0};
    by_tokenizer *made = NULL;
    if (by__path_exists(path)) {
        return BY_OK;
    }
    if (tokenizer == NULL) {
        BY_TRY(by__data_pack_make_tokenizer(pack, &made, error));
    }
    by_status status =
        by__data_pack_write(pack, made != NULL ? made : tokenizer, path, true, &result, error);
    by_tokenizer_close(&made);
    return status;
}

by_status by_pack_cached(char **directory, const by_pack_options *options, const char *cache,
                         by_error *error)
{
    by__data_pack pack;
    char key[33];
    char *path = NULL;
    const by_tokenizer *tokenizer = NULL;
    by_tokenizer *own = NULL;
    BY_TRY(by__data_pack_open(&pack, options, error));
    by_status status = by__data_pack_find_tokenizer(&pack.options, &tokenizer, &own, error);
    if (status == BY_OK) {
        status = by__data_pack_key(key, &pack, tokenizer, error);
    }
    if (status == BY_OK) {
        path = by__path_join(cache, key);
        status = path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                              : pack_once(&pack, path, tokenizer, error);
    }
    by_tokenizer_close(&own);
    by__data_pack_close(&pack);
    if (status != BY_OK) {
        free(path);
        return status;
    }
    *directory = path;
    return BY_OK;
}
