/* Values that are lists of mappings (by_record_list). Each mapping is stored in a struct, each of
 * its keys in a field of that struct that a by__config_key declares. */
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"

#define FIELD_LIMIT 32

/* Returns field `i` of a record in the form of a config entry, so that the value functions
 * apply. */
static by__config_entry field_of(const by__config_key *key, size_t i, void *record)
{
    const by__config_key *field = &key->fields->rows[i];
    return (by__config_entry){.key = *field, .at = (char *)record + field->place.offset};
}

static void *record_of(const by__config_key *key, const by_record_list *list, size_t r)
{
    return (char *)list->items + r * key->size;
}

static void free_list(const by__config_key *key, by_record_list *list)
{
    for (size_t r = 0; r < list->count; r++) {
        for (size_t i = 0; i < key->fields->count; i++) {
            by__config_entry field = field_of(key, i, record_of(key, list, r));
            by__config_value_free(&field);
        }
    }
    free(list->items);
    *list = (by_record_list){0};
}

void by__config_records_free(by__config_entry *entry)
{
    free_list(&entry->key, entry->at);
}

static by_status make_list(by_record_list *out, const by__config_key *key, size_t count,
                           by_error *error)
{
    *out = (by_record_list){0};
    if (count > 0) {
        BY_TRY(by__alloc(&out->items, count, key->size, "a list", error));
    }
    out->count = count;
    return BY_OK;
}

/* ---- from text ---- */

static by_status refuse_field(const by__config_key *key, const char *name, const char *where,
                              by_error *error)
{
    char path[64];
    const char *names[FIELD_LIMIT];
    size_t count = 0;
    for (; count < key->fields->count && count < FIELD_LIMIT; count++) {
        names[count] = key->fields->rows[count].name;
    }
    const char *near = by_nearest_name(name, names, count);
    if (near != NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: unknown key \"%.60s\" in %s; did you mean \"%s\"?", where, name,
                            by__config_key_path(path, key), near);
    }
    by_string accepts = {0};
    by__config_key_accepts(&accepts, key);
    by_status status =
        by_error_set(error, BY_ECONFIG, "%s: unknown key \"%.60s\" in %s; it takes %s", where, name,
                     by__config_key_path(path, key), accepts.failed ? "other keys" : accepts.data);
    by_string_free(&accepts);
    return status;
}

/* Finds the field that an item of a node sets. */
static by_status find_field(size_t *out, const by__config_key *key, const by__config_scalar *item,
                            const char *where, by_error *error)
{
    for (size_t i = 0; i < key->fields->count; i++) {
        if (strcmp(key->fields->rows[i].name, item->field) == 0) {
            *out = i;
            return BY_OK;
        }
    }
    return refuse_field(key, item->field, where, error);
}

/* Sets a field that the record does not give to its default. */
static by_status set_default(by__config_entry *field, const char *where, by_error *error)
{
    char path[64];
    by__config_node node = {0};
    if (field->key.fallback == NULL) {
        return by_error_set(error, BY_ECONFIG, "%s: a mapping without %s, which must be given",
                            where, by__config_key_path(path, &field->key));
    }
    by_status status = by__config_read_value(&node, field->key.fallback, "default", error);
    if (status == BY_OK) {
        status = by__config_value_set(field, &node, "default", error);
    }
    by__config_node_free(&node);
    return status;
}

/* Fills record `r` from the items from *next on, which are in the order of their records. */
static by_status fill_record(const by__config_key *key, void *record, size_t r,
                             const by__config_node *node, size_t *next, const char *where,
                             by_error *error)
{
    uint32_t given = 0;
    char line[BY__CONFIG_WHERE];
    const char *own = where;
    for (; *next < node->count && node->items[*next].record == r; ++*next) {
        by__config_scalar *item = &node->items[*next];
        size_t i = 0;
        own = by__config_item_where(line, where, item);
        BY_TRY(find_field(&i, key, item, own, error));
        if ((given >> i & 1u) != 0) {
            return by_error_set(error, BY_ECONFIG, "%s: \"%s\" is given twice in one mapping", own,
                                item->field);
        }
        given |= 1u << i;
        by__config_entry field = field_of(key, i, record);
        const by__config_node value = {.items = item, .count = 1};
        BY_TRY(by__config_value_set(&field, &value, own, error));
    }
    for (size_t i = 0; i < key->fields->count; i++) {
        by__config_entry field = field_of(key, i, record);
        if ((given >> i & 1u) == 0) {
            BY_TRY(set_default(&field, own, error));
        }
    }
    return BY_OK;
}

/* Converts a node to a list of records. */
static by_status read_list(by_record_list *out, const by__config_key *key,
                           const by__config_node *node, const char *where, by_error *error)
{
    if (!node->is_list) {
        return by__config_value_refuse(key, "a single value", where, error);
    }
    for (size_t k = 0; k < node->count; k++) {
        if (node->items[k].field == NULL) {
            return by__config_value_refuse(key, "a value in the list", where, error);
        }
    }
    size_t next = 0;
    BY_TRY(make_list(out, key, node->records, error));
    for (size_t r = 0; r < node->records; r++) {
        by_status status = fill_record(key, record_of(key, out, r), r, node, &next, where, error);
        if (status != BY_OK) {
            free_list(key, out);
            return status;
        }
    }
    return BY_OK;
}

by_status by__config_records_check(const by__config_key *key, const by__config_node *node,
                                   const char *where, by_error *error)
{
    by_record_list list;
    BY_TRY(read_list(&list, key, node, where, error));
    free_list(key, &list);
    return BY_OK;
}

by_status by__config_records_set(by__config_entry *entry, const by__config_node *node,
                                 const char *where, by_error *error)
{
    by_record_list list;
    BY_TRY(read_list(&list, &entry->key, node, where, error));
    by__config_records_free(entry);
    memcpy(entry->at, &list, sizeof list);
    return BY_OK;
}

/* ---- values ---- */

by_status by__config_records_copy(by__config_entry *to, const by__config_entry *from,
                                  by_error *error)
{
    const by__config_key *key = &from->key;
    const by_record_list *list = from->at;
    by_record_list copy;
    by_status status = make_list(&copy, key, list->count, error);
    for (size_t r = 0; r < list->count && status == BY_OK; r++) {
        for (size_t i = 0; i < key->fields->count && status == BY_OK; i++) {
            by__config_entry old = field_of(key, i, record_of(key, list, r));
            by__config_entry made = field_of(key, i, record_of(key, &copy, r));
            status = by__config_value_copy(&made, &old, error);
        }
    }
    if (status != BY_OK) {
        free_list(key, &copy);
        return status;
    }
    by__config_records_free(to);
    memcpy(to->at, &copy, sizeof copy);
    return BY_OK;
}

by_status by__config_records_verify(const by__config_entry *entry, const char *where,
                                    by_error *error)
{
    const by_record_list *list = entry->at;
    for (size_t r = 0; r < list->count; r++) {
        for (size_t i = 0; i < entry->key.fields->count; i++) {
            const by__config_entry field =
                field_of(&entry->key, i, record_of(&entry->key, list, r));
            BY_TRY(by__config_value_verify(&field, where, error));
        }
    }
    return BY_OK;
}

void by__config_records_print(by_string *out, const by__config_entry *entry)
{
    const by_record_list *list = entry->at;
    by__string_append(out, "[");
    for (size_t r = 0; r < list->count; r++) {
        by__string_append(out, r == 0 ? "{" : ", {");
        for (size_t i = 0; i < entry->key.fields->count; i++) {
            const by__config_entry field =
                field_of(&entry->key, i, record_of(&entry->key, list, r));
            by_string_format(out, "%s%s: ", i == 0 ? "" : ", ", field.key.name);
            by__config_value_print(out, &field);
        }
        by__string_append(out, "}");
    }
    by__string_append(out, "]");
}
