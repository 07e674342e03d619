/* Keys that a config gives beside a model that is described elsewhere (model.from). */
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"

const char *by__config_next_given(size_t *at, const by_config *config, const by_config *as,
                                  const char *section)
{
    const by__config *given = (const by__config *)config;
    const by__config *other = (const by__config *)as;
    while (*at < given->count) {
        const by__config_entry *entry = &given->entries[(*at)++];
        if (entry->origin != NULL && entry->refusal == NULL &&
            strcmp(entry->key.section, section) == 0 &&
            by__config_entry_active(other, &other->entries[entry - given->entries])) {
            return entry->path;
        }
    }
    return NULL;
}

bool by__config_has_key(const by_config *config, const char *key)
{
    return by__config_entry_at((const by__config *)config, key) != NULL;
}

by_status by__config_copy_value(by_config *to, const by_config *from, const char *key,
                                by_error *error)
{
    by__config *whole = (by__config *)to;
    by__config_entry *entry = by__config_entry_at(whole, key);
    return entry == NULL
               ? by_error_set(error, BY_EARG, "%s is not a key of this kind", key)
               : by__config_value_copy(
                     entry, &((const by__config *)from)->entries[entry - whole->entries], error);
}

void by__config_show(by_string *out, const by_config *config, const char *key)
{
    const by__config_entry *entry = by__config_entry_at((const by__config *)config, key);
    if (entry != NULL) {
        by__config_value_print(out, entry);
    }
}

by_status by__config_kind_found(by_config *config, by_error *error)
{
    by__config *whole = (by__config *)config;
    const by__config_entry *from = by__config_entry_at(whole, "model.from");
    by__config_entry *kind = by__config_entry_at(whole, "model.kind");
    if (kind->origin != NULL) {
        return BY_OK;
    }
    kind->origin = by__strdup(from->origin == NULL ? "model.from" : from->origin);
    kind->level = from->level;
    return kind->origin == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a config")
                                : BY_OK;
}
