/* Prints a config as YAML, hashes it, and writes the reference of all keys. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "config/schema.h"

/* Appends the fewest digits that read back to the same value. */
static void add_real(by_string *out, double value)
{
    char text[40] = "";
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t old = uselocale(c);
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    if (strstr(text, "e+0") != NULL) { /* write 10000 and not 1e+04 */
        (void)snprintf(text, sizeof text, "%.17g", value);
    }
    (void)uselocale(old);
    if (c != (locale_t)0) {
        freelocale(c);
    }
    by__string_append(out, text);
}

/* Returns true if s can be a plain YAML scalar: a word or a simple path without special meaning. */
static bool is_plain(const char *s)
{
    if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '/' || *s == '_')) {
        return false;
    }
    for (const char *p = s; *p != '\0'; p++) {
        bool word =
            (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');
        if (!word && strchr("_-./+", *p) == NULL) {
            return false;
        }
    }
    return strcmp(s, "null") != 0;
}

/* Returns true for code points that YAML forbids in a file or reads as a line break. */
static bool needs_escape(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
           code == 0xfeff || code == 0xfffe || code == 0xffff;
}

/* Appends a string, which was checked to be UTF-8 when it was set. */
static void add_string(by_string *out, const char *s)
{
    if (is_plain(s)) {
        by__string_append(out, s);
        return;
    }
    by__string_append(out, "\"");
    size_t left = strlen(s);
    for (const uint8_t *p = (const uint8_t *)s; left > 0;) {
        uint32_t code;
        size_t length = by__utf8_next(p, left, &code);
        if (code == '"' || code == '\\') {
            by_string_format(out, "\\%c", (int)code);
        } else if (code == '\n') {
            by__string_append(out, "\\n");
        } else if (code == '\t') {
            by__string_append(out, "\\t");
        } else if (needs_escape(code)) {
            by_string_format(out, "\\u%04x", code);
        } else {
            by_string_add(out, p, length);
        }
        p += length;
        left -= length;
    }
    by__string_append(out, "\"");
}

void by__config_value_print(by_string *out, const by__config_entry *entry)
{
    const by__config_key *key = &entry->key;
    const void *at = entry->at;
    const by_string_list *list = at;
    const int64_t *whole = at;
    const double *real = at;
    switch (key->type) {
    case BY__KEY_INT:
        if (key->word != NULL && *whole == -1) {
            by__string_append(out, key->word);
        } else {
            by_string_format(out, "%lld", (long long)*whole);
        }
        break;
    case BY__KEY_SWITCH:
        if (*whole == 0 || *whole == 1) {
            by__string_append(out, *whole == 1 ? "true" : "false");
        } else {
            by_string_format(out, "%lld", (long long)*whole);
        }
        break;
    case BY__KEY_SIZE:
        by__config_size_print(out, *whole);
        break;
    case BY__KEY_SEED:
        by_string_format(out, "%llu", (unsigned long long)*(const uint64_t *)at);
        break;
    case BY__KEY_REAL:
    case BY__KEY_TIME:
    case BY__KEY_SHARE:
        add_real(out, *real);
        break;
    case BY__KEY_PAIR:
        by__string_append(out, "[");
        add_real(out, real[0]);
        by__string_append(out, ", ");
        add_real(out, real[1]);
        by__string_append(out, "]");
        break;
    case BY__KEY_TEXT:
        add_string(out, *(char *const *)at);
        break;
    case BY__KEY_TEXTS:
        if (key->plain_if_one && list->count < 2) {
            add_string(out, list->count == 0 ? "" : list->items[0]);
            break;
        }
        by__string_append(out, "[");
        for (size_t i = 0; i < list->count; i++) {
            by__string_append(out, i == 0 ? "" : ", ");
            add_string(out, list->items[i]);
        }
        by__string_append(out, "]");
        break;
    case BY__KEY_RECORDS:
        by__config_records_print(out, entry);
        break;
    }
}

/* ---- the whole config ---- */

/* Returns true if the value prints exactly as its declared default. */
static bool is_default(const by__config_entry *entry)
{
    by_string text = {0};
    by__config_value_print(&text, entry);
    bool same = !text.failed && strcmp(text.data, entry->key.fallback) == 0;
    by_string_free(&text);
    return same;
}

/* Returns true if a key affects the computed values. Paths, storage of states and tracking do not.
 * Nor does the way ranks share the work, with two exceptions: mesh axes that split products change
 * the order of sums, and so does zero 2 or 3 with sequence parallelism, which adds up its ranks'
 * parts micro-batch by micro-batch. Guards count only when they differ from their defaults. */
static bool is_hashed(const by__config *config, const by__config_entry *entry)
{
    const by__config_key *key = &entry->key;
    const by_parallel_config *p = &config->config.parallel;
    if (key->later && is_default(entry)) {
        return false;
    }
    if (strcmp(key->section, "parallel") == 0 && strcmp(key->name, "zero") == 0) {
        return p->zero > 1 && p->sequence != 1 && p->shard != 1;
    }
    if (strcmp(key->section, "parallel") == 0) {
        bool cuts = strcmp(key->name, "tensor") == 0 || strcmp(key->name, "sequence") == 0 ||
                    strcmp(key->name, "expert") == 0;
        return cuts && *(const int64_t *)entry->at != 1;
    }
    if (strcmp(key->section, "memory") == 0 && strcmp(key->name, "activations") == 0) {
        return strcmp(*(char *const *)entry->at, "same") != 0;
    }
    if (strcmp(key->section, "memory") == 0 && strcmp(key->name, "recompute") != 0) {
        const by_memory_config *memory = &config->config.memory;
        return strcmp(key->name, "recompute_every") == 0 &&
               strcmp(memory->activations, "same") != 0 && strcmp(memory->recompute, "every") == 0;
    }
    if (strcmp(key->section, "checkpoint") == 0) {
        return strcmp(key->name, "every") == 0 || strcmp(key->name, "keep") == 0;
    }
    if (strcmp(key->section, "guard") == 0) {
        return !is_default(entry);
    }
    return strcmp(key->section, "run") != 0 && strcmp(key->section, "offload") != 0 &&
           strcmp(key->section, "track") != 0 &&
           !(key->section[0] == '\0' && strcmp(key->name, "name") == 0);
}

/* Prints all sections as YAML; when hashing, only the keys that is_hashed selects. */
static by_status print(char **out, const by__config *config, bool hashing, by_error *error)
{
    by_string text = {0};
    const char *section = "";
    for (size_t i = 0; i < config->count; i++) {
        const by__config_entry *entry = &config->entries[i];
        const by__config_key *key = &entry->key;
        bool top = key->section[0] == '\0';
        if ((hashing && !is_hashed(config, entry)) || !by__config_entry_active(config, entry)) {
            continue;
        }
        by_status status = by__config_value_verify(entry, "config", error);
        if (status != BY_OK) {
            by_string_free(&text);
            return status;
        }
        if (strcmp(key->section, section) != 0) {
            section = key->section;
            by_string_format(&text, "%s:\n", section);
        }
        by_string_format(&text, "%s%s: ", top ? "" : "  ", key->name);
        by__config_value_print(&text, entry);
        by__string_append(&text, "\n");
    }
    return by__string_release(&text, out, error);
}

by_status by_config_print(const by_config *config, char **out, by_error *error)
{
    return print(out, (const by__config *)config, false, error);
}

by_status by_config_hash(const by_config *config, char out[33], by_error *error)
{
    char *text;
    BY_TRY(print(&text, (const by__config *)config, true, error));
    by__hash128_hex(out, text, strlen(text));
    free(text);
    return BY_OK;
}

/* Appends a table cell with `|` escaped. */
static void add_cell(by_string *out, const char *s)
{
    for (; *s != '\0'; s++) {
        by_string_add(out, *s == '|' ? "\\|" : s, *s == '|' ? 2 : 1);
    }
}

static const char table_head[] = "| key | default | accepts | meaning |\n|---|---|---|---|\n";

/* Appends what a key accepts and means. */
static void add_meaning(by_string *text, const by__config_key *key)
{
    by__config_key_accepts(text, key);
    by__string_append(text, " | ");
    add_cell(text, key->help);
    if (key->derived != NULL) {
        by_string_format(text, "; %s: ", key->word != NULL ? key->word : "-1");
        add_cell(text, key->derived);
    }
    by__string_append(text, " |\n");
}

static void add_row(by_string *text, const by__config_entry *entry)
{
    const by__config_key *key = &entry->key;
    by_string_format(text, "| `%s` | `", key->name);
    by__config_value_print(text, entry);
    by__string_append(text, "` | ");
    add_meaning(text, key);
    for (size_t i = 0; key->fields != NULL && i < key->fields->count; i++) {
        const by__config_key *field = &key->fields->rows[i];
        by_string_format(text, "| `%s[].%s` | ", key->name, field->name);
        if (field->fallback != NULL) {
            by_string_format(text, "`%s`", field->fallback);
        }
        by__string_append(text, " | ");
        add_meaning(text, field);
    }
}

/* Appends the rows of one kind's keys in a section (NULL: keys of every run). */
static void add_rows(by_string *text, const by__config *defaults, const char *section,
                     const by__config_kind *kind)
{
    for (size_t i = 0; i < defaults->count; i++) {
        const by__config_entry *entry = &defaults->entries[i];
        if (entry->kind == kind && strcmp(entry->key.section, section) == 0) {
            add_row(text, entry);
        }
    }
}

static bool has_keys_of_all(const by__config *config, const char *section)
{
    bool has = false;
    for (size_t i = 0; i < config->count; i++) {
        const by__config_entry *entry = &config->entries[i];
        has = has || (entry->kind == NULL && strcmp(entry->key.section, section) == 0);
    }
    return has;
}

/* Appends one table for each kind that has keys in a section. */
static void add_kinds(by_string *text, const by__config *defaults, const char *section)
{
    const by__config_kind *kind = NULL;
    for (size_t i = 0; i < defaults->count; i++) {
        const by__config_entry *entry = &defaults->entries[i];
        if (entry->kind == NULL || entry->kind == kind ||
            strcmp(entry->key.section, section) != 0) {
            continue;
        }
        kind = entry->kind;
        by_string_format(text, "\n### %s.kind: %s\n\n%s\n\n%s",
                         defaults->schema->tables[entry->table].section, kind->name, kind->help,
                         table_head);
        add_rows(text, defaults, section, kind);
    }
}

by_status by__config_reference(char **out, const by__config_schema *schema, const char *head,
                               by_error *error)
{
    by__config *defaults;
    by_string text = {0};
    BY_TRY(by__config_new(&defaults, schema, error));
    by__string_append(&text, head);
    for (size_t s = 0; s < schema->sections->count; s++) {
        const by__config_section *section = &schema->sections->rows[s];
        bool top = section->name[0] == '\0';
        bool any = has_keys_of_all(defaults, section->name); /* not only some kinds have keys */
        by_string_format(&text, "\n## %s\n\n%s\n%s%s", top ? "Top" : section->name, section->help,
                         any ? "\n" : "", any ? table_head : "");
        if (top) {
            by__string_append(
                &text, "| `base` | | path of a YAML file | file to include; keys of this file "
                       "override its keys |\n");
        }
        add_rows(&text, defaults, section->name, NULL);
        add_kinds(&text, defaults, section->name);
    }
    by_config *config = &defaults->config;
    by_config_close(&config);
    return by__string_release(&text, out, error);
}
