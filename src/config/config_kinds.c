/* Keys and kinds: which keys a config has, who owns them, and where their values are stored. */
#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"

/* ---- a new config ---- */

/* Returns the field `own` of the section that a table belongs to. */
static by_kind_values **values_of(const by__config *config, size_t table)
{
    const by__config_section *section = config->schema->sections->rows;
    while (strcmp(section->name, config->schema->tables[table].section) != 0) {
        section++;
    }
    return (by_kind_values **)((uintptr_t)config + section->own);
}

/* Allocates the structs of all kinds of a table and lists their names as choices of its key
 * `kind`. */
static by_status add_table(by__config *config, size_t table, by_error *error)
{
    const by__config_kind_table *t = &config->schema->tables[table];
    by_kind_values *values;
    by_string names = {0};
    size_t count = 0;
    while (t->row(count) != NULL) {
        by_string_format(&names, "%s%s", count == 0 ? "" : "|", t->row(count)->name);
        count++;
    }
    BY_TRY(by__string_release(&names, &config->choices[table], error));
    BY_TRY(by__alloc((void **)&values, 1, sizeof *values + count * sizeof values->blocks[0],
                     "a config", error));
    *values_of(config, table) = values;
    values->count = count;
    for (size_t i = 0; i < count; i++) {
        values->blocks[i].kind = t->row(i);
        if (t->row(i)->size > 0) {
            BY_TRY(by__alloc(&values->blocks[i].values, 1, t->row(i)->size, "a config", error));
        }
    }
    return BY_OK;
}

static by_status add_entry(by__config *config, size_t *capacity, const by__config_key *key,
                           const by__config_kind *kind, size_t table, by_error *error)
{
    BY_TRY(by__reserve((void **)&config->entries, capacity, config->count + 1,
                       sizeof *config->entries, error));
    void *base = !key->place.own ? config
                 : kind == NULL  ? config->own
                                 : by__config_kind_own(*values_of(config, table), kind);
    assert(base != NULL);
    config->entries[config->count++] = (by__config_entry){
        .key = *key, .kind = kind, .table = table, .at = (char *)base + key->place.offset};
    return BY_OK;
}

static by_status add_kind(by__config *config, size_t *capacity, const char *section, size_t table,
                          const by__config_kind *kind, by_error *error)
{
    for (size_t l = 0; l < BY_ARRAY_LENGTH(kind->keys) && kind->keys[l] != NULL; l++) {
        for (size_t i = 0; i < kind->keys[l]->count; i++) {
            const by__config_key *key = &kind->keys[l]->rows[i];
            if (strcmp(key->section, section) == 0) {
                BY_TRY(add_entry(config, capacity, key, kind, table, error));
            }
        }
    }
    return BY_OK;
}

static by_status add_section(by__config *config, size_t *capacity, const char *section,
                             by_error *error)
{
    const by__config_schema *schema = config->schema;
    for (size_t i = 0; i < schema->keys->count; i++) {
        if (strcmp(schema->keys->rows[i].section, section) == 0) {
            BY_TRY(add_entry(config, capacity, &schema->keys->rows[i], NULL, 0, error));
        }
    }
    for (size_t t = 0; t < schema->table_count; t++) {
        for (size_t k = 0; schema->tables[t].row(k) != NULL; k++) {
            BY_TRY(add_kind(config, capacity, section, t, schema->tables[t].row(k), error));
        }
    }
    return BY_OK;
}

static by_status add_paths(by__config *config, by_error *error)
{
    char path[BY__CONFIG_PATH];
    size_t length = 0;
    for (size_t i = 0; i < config->count; i++) {
        length += strlen(by__config_key_path(path, &config->entries[i].key)) + 1;
    }
    BY_TRY(by__alloc((void **)&config->path_text, 1, length, "the keys of a config", error));
    char *at = config->path_text;
    for (size_t i = 0; i < config->count; i++) {
        size_t size = strlen(by__config_key_path(path, &config->entries[i].key)) + 1;
        memcpy(at, path, size);
        config->entries[i].path = at;
        at += size;
    }
    return BY_OK;
}

/* Chains the keys of each path, and finds those that choose kinds. */
static by_status add_index(by__config *config, by_error *error)
{
    const by__config_schema *schema = config->schema;
    for (size_t i = 0; i < config->count; i++) {
        const char *path = config->entries[i].path;
        uint64_t hash = by__hash64(path, strlen(path));
        by__config_entry *last = by__config_entry_first(config, path);
        if (last == NULL) {
            BY_TRY(by__base_table_add(&config->paths, hash, i, "the keys of a config", error));
            continue;
        }
        while (last->next != 0) {
            last = &config->entries[last->next];
        }
        last->next = i;
    }
    BY_TRY(by__alloc((void **)&config->kinds, schema->table_count + 1, sizeof *config->kinds,
                     "a config", error));
    for (size_t t = 0; t < schema->table_count; t++) {
        by__config_entry *kind = by__config_entry_find(config, schema->tables[t].section, "kind");
        assert(kind != NULL);
        config->kinds[t] = (size_t)(kind - config->entries);
        for (; kind != NULL; kind = by__config_entry_next(config, kind)) {
            kind->key.choices = config->choices[t];
        }
    }
    return BY_OK;
}

static by_status set_defaults(by__config *config, by_error *error)
{
    for (size_t i = 0; i < config->count; i++) {
        by__config_node node = {0};
        by__config_entry *entry = &config->entries[i];
        by_status status = by__config_read_value(&node, entry->key.fallback, "default", error);
        if (status == BY_OK) {
            status = by__config_value_set(entry, &node, "default", error);
        }
        by__config_node_free(&node);
        BY_TRY(status);
    }
    return BY_OK;
}

static by_status fill(by__config *config, by_error *error)
{
    size_t capacity = 0;
    BY_TRY(by__alloc((void **)&config->choices, config->schema->table_count + 1,
                     sizeof *config->choices, "a config", error));
    for (size_t t = 0; t < config->schema->table_count; t++) {
        BY_TRY(add_table(config, t, error));
    }
    if (config->schema->size > 0) {
        BY_TRY(by__alloc(&config->own, 1, config->schema->size, "a config", error));
    }
    for (size_t s = 0; s < config->schema->sections->count; s++) {
        BY_TRY(add_section(config, &capacity, config->schema->sections->rows[s].name, error));
    }
    BY_TRY(add_paths(config, error));
    BY_TRY(add_index(config, error));
    return set_defaults(config, error);
}

by_status by__config_new(by__config **out, const by__config_schema *schema, by_error *error)
{
    by__config *made;
    BY_TRY(by__alloc((void **)&made, 1, sizeof *made, "a config", error));
    made->schema = schema;
    by_status status = fill(made, error);
    if (status != BY_OK) {
        by_config *config = &made->config;
        by_config_close(&config);
        return status;
    }
    *out = made;
    return BY_OK;
}

by_status by__config_like(by_config **out, const by_config *config, by_error *error)
{
    by__config *made;
    BY_TRY(by__config_new(&made, ((const by__config *)config)->schema, error));
    *out = &made->config;
    return BY_OK;
}

static by_status copy_text(char **out, const char *text, by_error *error)
{
    *out = text == NULL ? NULL : by__strdup(text);
    return text != NULL && *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a config")
                                        : BY_OK;
}

/* The value, and where it is from. */
static by_status copy_entry(by__config_entry *to, const by__config_entry *from, bool value,
                            by_error *error)
{
    to->derived = from->derived;
    BY_TRY(value ? by__config_value_copy(to, from, error) : BY_OK);
    free(to->origin);
    to->origin = NULL;
    BY_TRY(copy_text(&to->origin, from->origin, error));
    free(to->refusal);
    to->refusal = NULL;
    return copy_text(&to->refusal, from->refusal, error);
}

by_status by__config_copy_section(by_config *to, const by_config *from, const char *section,
                                  by_error *error)
{
    by__config *into = (by__config *)to;
    const by__config *whole = (const by__config *)from;
    for (size_t i = 0; i < whole->count; i++) {
        if (strcmp(whole->entries[i].key.section, section) == 0) {
            BY_TRY(copy_entry(&into->entries[i], &whole->entries[i], true, error));
        }
    }
    return BY_OK;
}

by_status by__config_keep_trained(by_config *config, by_error *error)
{
    by__config *whole = (by__config *)config;
    return whole->trained != NULL ? BY_OK : by_config_copy(&whole->trained, config, error);
}

const by_config *by__config_trained(const by_config *config)
{
    return ((const by__config *)config)->trained;
}

by_status by_config_copy(by_config **out, const by_config *config, by_error *error)
{
    const by__config *whole = (const by__config *)config;
    by__config *made;
    by_status status = BY_OK;
    BY_TRY(by__config_new(&made, whole->schema, error));
    for (size_t i = 0; i < whole->count && status == BY_OK; i++) {
        const by__config_entry *from = &whole->entries[i];
        by__config_entry *to = &made->entries[i];
        bool active = by__config_entry_active(whole, from);
        bool good = by__config_value_verify(from, from->origin == NULL ? "config" : from->origin,
                                            active ? error : NULL) == BY_OK;
        status = good || !active ? copy_entry(to, from, good, error) : BY_ECONFIG;
    }
    if (status == BY_OK && whole->trained != NULL) {
        status = by_config_copy(&made->trained, whole->trained, error);
    }
    made->config.model.head_dim = config->model.head_dim; /* derived, and no key */
    by_config *copy = &made->config;
    if (status != BY_OK) {
        by_config_close(&copy);
        return status;
    }
    *out = copy;
    return BY_OK;
}

const char *by_config_offload_path(const by_config *config)
{
    return config->offload.path[0] == '\0' ? config->run.dir : config->offload.path;
}

void by_config_close(by_config **config)
{
    if (config == NULL || *config == NULL) {
        return;
    }
    by__config *whole = (by__config *)*config;
    for (size_t i = 0; i < whole->count; i++) {
        by__config_value_free(&whole->entries[i]);
        free(whole->entries[i].origin);
        free(whole->entries[i].refusal);
    }
    for (size_t t = 0; t < whole->schema->table_count && whole->choices != NULL; t++) {
        by_kind_values *values = *values_of(whole, t);
        for (size_t i = 0; values != NULL && i < values->count; i++) {
            free(values->blocks[i].values);
        }
        free(values);
        free(whole->choices[t]);
    }
    free(whole->choices);
    free(whole->kinds);
    free(whole->path_text);
    by__base_table_free(&whole->paths);
    by_string_free(&whole->notes);
    by_config_close(&whole->trained);
    free(whole->own);
    free(whole->entries);
    free(whole);
    *config = NULL;
}

void *by__config_kind_own(const by_kind_values *own, const by__config_kind *kind)
{
    for (size_t i = 0; own != NULL && i < own->count; i++) {
        if (own->blocks[i].kind == kind) {
            return own->blocks[i].values;
        }
    }
    return NULL;
}

const by__config_kind *by__config_kind_named(const by_kind_values *own, const char *name)
{
    for (size_t i = 0; own != NULL && i < own->count; i++) {
        if (strcmp(own->blocks[i].kind->name, name) == 0) {
            return own->blocks[i].kind;
        }
    }
    return NULL;
}

/* ---- finding keys ---- */

/* The key that chooses the kind of a table. */
static const by__config_entry *kind_key(const by__config *config, size_t table)
{
    return &config->entries[config->kinds[table]];
}

const by__config_kind *by__config_chosen_kind(const by__config *config, size_t table)
{
    const by__config_kind_table *t = &config->schema->tables[table];
    const char *name = *(char *const *)kind_key(config, table)->at;
    for (size_t i = 0; name != NULL && t->row(i) != NULL; i++) {
        if (strcmp(t->row(i)->name, name) == 0) {
            return t->row(i);
        }
    }
    return NULL;
}

void *by__config_chosen_own(const by__config *config, size_t table)
{
    return by__config_kind_own(*values_of(config, table), by__config_chosen_kind(config, table));
}

bool by__config_kind_open(const by__config *config, size_t table)
{
    const char *section = config->schema->tables[table].section;
    const char *from = config->config.model.from;
    const by__config_entry *kind = kind_key(config, table);
    bool of_model = strcmp(section, "model") == 0 || kind->kind != NULL; /* or of a part of it */
    return of_model && from != NULL && from[0] != '\0' && kind->origin == NULL;
}

/* Returns false for a table about a part that the chosen model does not have: each family that has
 * it lists the key that chooses the kind. */
static bool section_active(const by__config *config, size_t table)
{
    const by__config_entry *kind = kind_key(config, table);
    while (kind != NULL && kind->kind != NULL &&
           by__config_chosen_kind(config, kind->table) != kind->kind) {
        kind = by__config_entry_next(config, kind);
    }
    return kind != NULL;
}

/* Whether the chosen kind of the key's own section has a key of that name, before which those of
 * other sections' kinds give way: task.loss is that of a task, if it has one, not of a model. */
static bool is_overruled(const by__config *config, const by__config_entry *entry)
{
    const by__config_key *key = &entry->key;
    if (strcmp(config->schema->tables[entry->table].section, key->section) == 0) {
        return false;
    }
    const by__config_entry *e = by__config_entry_first(config, entry->path);
    while (e != NULL && (e->kind == NULL ||
                         strcmp(config->schema->tables[e->table].section, key->section) != 0 ||
                         by__config_chosen_kind(config, e->table) != e->kind)) {
        e = by__config_entry_next(config, e);
    }
    return e != NULL;
}

bool by__config_entry_active(const by__config *config, const by__config_entry *entry)
{
    return entry->kind == NULL ||
           (by__config_chosen_kind(config, entry->table) == entry->kind &&
            section_active(config, entry->table) && !is_overruled(config, entry));
}

by__config_entry *by__config_entry_first(const by__config *config, const char *path)
{
    uint64_t hash = by__hash64(path, strlen(path));
    for (by__base_probe p = by__base_probe_begin(&config->paths, hash);
         by__base_probe_next(&config->paths, &p);) {
        if (strcmp(config->entries[p.number].path, path) == 0) {
            return &config->entries[p.number];
        }
    }
    return NULL;
}

by__config_entry *by__config_entry_find(const by__config *config, const char *section,
                                        const char *name)
{
    char path[BY__CONFIG_PATH];
    int length =
        snprintf(path, sizeof path, "%s%s%s", section, section[0] == '\0' ? "" : ".", name);
    by__config_entry *entry =
        length >= BY__CONFIG_PATH ? NULL : by__config_entry_first(config, path);
    /* a name "train.steps" of no section is none of section train */
    return entry != NULL && strcmp(entry->key.section, section) == 0 ? entry : NULL;
}

by__config_entry *by__config_entry_next(const by__config *config, const by__config_entry *entry)
{
    return entry->next == 0 ? NULL : &config->entries[entry->next];
}

by__config_entry *by__config_entry_at(const by__config *config, const char *path)
{
    by__config_entry *entry = by__config_entry_first(config, path);
    while (entry != NULL && !by__config_entry_active(config, entry)) {
        entry = by__config_entry_next(config, entry);
    }
    return entry;
}

void by__config_entry_owners(by_string *out, const by__config *config,
                             const by__config_entry *entry)
{
    const by__config_entry *e = by__config_entry_first(config, entry->path);
    for (bool first = true; e != NULL; e = by__config_entry_next(config, e)) {
        if (e->kind != NULL && e->table == entry->table) {
            by_string_format(out, "%s%s", first ? "" : ", ", e->kind->name);
            first = false;
        }
    }
}

/* ---- values of keys that several kinds have ---- */

/* Assigns to one of the keys that share a name: stores the value, or the reason for refusing it. */
static by_status assign(by__config_entry *entry, const by__config_node *node, const char *where,
                        size_t level, by_error *error)
{
    by_error reason = {0};
    by_status status = by__config_value_set(entry, node, where, &reason);
    if (status != BY_OK && status != BY_ECONFIG) {
        return by_error_set(error, status, "%s", reason.message);
    }
    char *origin = by__strdup(where);
    char *refusal = status == BY_OK ? NULL : by__strdup(reason.message);
    if (origin == NULL || (status != BY_OK && refusal == NULL)) {
        free(origin);
        free(refusal);
        return by_error_set(error, BY_EMEMORY, "out of memory: a config value");
    }
    free(entry->origin);
    free(entry->refusal);
    entry->origin = origin;
    entry->refusal = refusal;
    entry->level = level;
    entry->derived = 0;
    return BY_OK;
}

by_status by__config_assign(by__config *config, by__config_entry *first,
                            const by__config_node *node, const char *where, bool store,
                            by_error *error)
{
    by_error ignored;
    bool suits = false;
    for (by__config_entry *e = first; e != NULL; e = by__config_entry_next(config, e)) {
        suits = suits || by__config_value_check(&e->key, node, where, &ignored) == BY_OK;
    }
    if (!suits) { /* what the kind in use takes explains most */
        for (by__config_entry *e = first; e != NULL; e = by__config_entry_next(config, e)) {
            if (by__config_entry_active(config, e)) {
                first = e;
                break;
            }
        }
        return by__config_value_check(&first->key, node, where, error);
    }
    for (by__config_entry *e = first; e != NULL && store; e = by__config_entry_next(config, e)) {
        BY_TRY(assign(e, node, where, config->level, error));
    }
    return BY_OK;
}

/* ---- keys of other kinds ---- */

/* Returns true if the key was given but none of the selected kinds has it. */
static bool is_foreign(const by__config *config, const by__config_entry *entry)
{
    return entry->origin != NULL && !by__config_entry_active(config, entry) &&
           by__config_entry_at(config, entry->path) == NULL;
}

/* Returns true if the kind of the model is that of the weights of model.from. */
static bool kind_is_found(const by__config *config)
{
    const char *kind = by__config_entry_find(config, "model", "kind")->origin;
    const char *from = by__config_entry_find(config, "model", "from")->origin;
    return kind != NULL && from != NULL && strcmp(kind, from) == 0;
}

/* Reports "train.yaml:4: model.rope_theta belongs to llama; the kind here is gpt2" or, for a key
 * outside its owner's section, "data.images belongs to task image; the task here is text". */
static by_status refuse_foreign(const by__config *config, const by__config_entry *entry,
                                by_error *error)
{
    by_string owners = {0};
    by_string text = {0};
    const char *section = config->schema->tables[entry->table].section;
    const by__config_kind *chosen = by__config_chosen_kind(config, entry->table);
    const char *from = config->config.model.from;
    bool near = strcmp(section, entry->key.section) == 0;
    by__config_entry_owners(&owners, config, entry);
    by_string_format(&text, "%s: %s belongs to %s%s%s; the %s here is %s", entry->origin,
                     entry->path, near ? "" : section, near ? "" : " ",
                     owners.failed ? entry->kind->name : owners.data, near ? "kind" : section,
                     chosen == NULL ? "unknown" : chosen->name);
    if (strcmp(section, "model") == 0 && kind_is_found(config)) {
        by_string_format(&text, ", that of model.from=%s", from);
    }
    if (!near && strcmp(section, "task") == 0 && owners.length > 0) {
        bool several = strchr(owners.data, ',') != NULL;
        by_string_format(&text, ": set task.kind to %s", several ? "one of these" : owners.data);
    }
    by_status status = by_error_set(error, BY_ECONFIG, "%s", text.failed ? entry->path : text.data);
    by_string_free(&text);
    by_string_free(&owners);
    return status;
}

/* ---- notes ---- */

void by__config_note(by__config *config, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    by_string_format(&config->notes, "%s%s", config->notes.length > 0 ? "\n" : "", line);
}

const char *by_config_notes(const by_config *config)
{
    const by_string *notes = &((const by__config *)config)->notes;
    return notes->length == 0 || notes->failed ? NULL : notes->data;
}

bool by__config_deeper(const by__config *config, const char *key, const char *other)
{
    const by__config_entry *a = by__config_entry_at(config, key);
    const by__config_entry *b = by__config_entry_at(config, other);
    return a != NULL && b != NULL && a->origin != NULL && b->origin != NULL && a->level > b->level;
}

static void reset(by__config_entry *entry)
{
    free(entry->origin);
    free(entry->refusal);
    entry->origin = entry->refusal = NULL;
}

/* Drops what was given for the kind that the section had further back in the chain of files. */
static bool drop_earlier(by__config *config, by__config_entry *entry)
{
    const char *section = config->schema->tables[entry->table].section;
    const by__config_entry *kind = kind_key(config, entry->table);
    const by__config_kind *chosen = by__config_chosen_kind(config, entry->table);
    if (kind->origin == NULL || entry->level <= kind->level || chosen == NULL) {
        return false;
    }
    by__config_note(config, "%s: %s is not used: %s.kind %s has no such key", entry->origin,
                    entry->path, section, chosen->name);
    for (by__config_entry *e = by__config_entry_first(config, entry->path); e != NULL;
         e = by__config_entry_next(config, e)) {
        reset(e);
    }
    return true;
}

by_status by__config_check_kinds(by__config *config, by_error *error)
{
    for (size_t i = 0; i < config->count; i++) {
        by__config_entry *entry = &config->entries[i];
        if (entry->kind != NULL && by__config_kind_open(config, entry->table)) {
            continue;
        }
        if (is_foreign(config, entry) && !drop_earlier(config, entry)) {
            return refuse_foreign(config, entry, error);
        }
        if (entry->refusal != NULL && by__config_entry_active(config, entry)) {
            return by_error_set(error, BY_ECONFIG, "%s", entry->refusal);
        }
    }
    return BY_OK;
}

void by__config_drop_foreign(by__config *config)
{
    for (size_t i = 0; i < config->count; i++) {
        by__config_entry *entry = &config->entries[i];
        if (is_foreign(config, entry)) {
            reset(entry);
        }
    }
}
