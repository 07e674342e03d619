#include "serve/protocol/answer_hash.h"

#include <string.h>

#include "serve/protocol/messages.h"

/* FNV-1a, which can be continued piece by piece. */
static uint64_t add(uint64_t hash, const char *data, size_t length)
{
    hash = hash == 0 ? 0xcbf29ce484222325u : hash;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    }
    return hash;
}

void by__protocol_answer_hash_piece(by__protocol_answer_hash *hash, size_t sequence,
                                    const char *text, size_t length)
{
    uint64_t *own = &hash->texts[sequence < BY__HASHED_SEQUENCES ? sequence : 0];
    *own = add(*own, text, length);
}

void by__protocol_answer_hash_add(by__protocol_answer_hash *hash, const json_t *event)
{
    const char *kind = by__protocol_get_text(event, "e");
    if (kind != NULL && strcmp(kind, "text") == 0) {
        const json_t *text = json_object_get(event, "text");
        int64_t i = by__protocol_get_integer(event, "i");
        by__protocol_answer_hash_piece(hash, i < 0 ? 0 : (size_t)i,
                                       json_is_string(text) ? json_string_value(text) : "",
                                       json_string_length(text));
    } else if (kind != NULL && strcmp(kind, "again") == 0) {
        *hash = (by__protocol_answer_hash){0};
    }
}

void by__protocol_answer_hash_print(char out[17], const by__protocol_answer_hash *hash)
{
    (void)snprintf(out, 17, "%016llx",
                   (unsigned long long)by__hash64(hash->texts, sizeof hash->texts));
}
