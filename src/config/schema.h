/* config: from YAML text to a checked by_config, and back.
 *
 * What it is for: a key is declared once (by__key in kind.h: type, place, default, range, choices,
 * help), and the parser, the overrides, the printer, the hash and docs/config.md read that row and
 * nothing else. Keys that every run has stand in schema.c. Keys of a model family, an optimizer or
 * a task stand in that owner's file, in its by__kind, with the values that -1 stands for and the
 * checks over several keys. This room is below all owners and knows none of them: a higher room
 * (train/config_schema.c) hands in a by__schema, the tables of kinds, and an open config remembers
 * it.
 *
 * Types: by__entry is a key in one config, with the place of its value and where it was set;
 * by__config_node is a value as it stood in the text (a scalar or a list of scalars, quoted or
 * not); by__config is the by_config with what the user must not see.
 *
 * Who owns what: a by_config owns its strings and is always the first member of a by__config made
 * by by__config_new; by__value_set replaces a string and frees the old one.
 *
 * Never put here: what a key does to a model or a run, any file but configs, the name of a kind.
 */
#ifndef BY_CONFIG_SCHEMA_H
#define BY_CONFIG_SCHEMA_H

#include "config/kind.h"

/* The kinds of a section; row(i) is NULL past the last. */
typedef struct by__kind_table {
    const char *section;
    const by__kind *(*row)(size_t index);
} by__kind_table;

typedef struct by__section {
    const char *name;
    const char *help;
    size_t own; /* offset of the section's by_kind_values * in by_config; 0: it has no kinds */
} by__section;

typedef struct by__section_list {
    const by__section *rows; /* the first one is the top, "" */
    size_t count;
} by__section_list;

typedef struct by__schema {
    const by__kind_table *tables;
    size_t table_count;
    const by__section_list *sections;
    const by__key_list *keys; /* that every config has, section by section */
    size_t size;              /* of the struct that BY__OWN of these keys names; 0: none */
} by__schema;

/* Of a run. */
extern const by__section_list by__run_sections;
extern const by__key_list by__run_keys;

/* A key in one config. */
typedef struct by__entry {
    by__key key;          /* a copy; the choices of a key `kind` are the names of its table */
    const by__kind *kind; /* NULL: every config of the schema has the key */
    size_t table;         /* of the schema, where `kind` is one */
    void *at;             /* the value */
    char *origin;         /* "train.yaml:14" or an override; NULL while it is the default */
    char *refusal;        /* the value that was given suits another kind, and not this one: why */
} by__entry;

typedef struct by__config {
    by_config config; /* first, so that a by_config * is a by__config * */
    const by__schema *schema;
    by__entry *entries; /* by section; in it common keys, then those of each kind */
    size_t count;
    void *own;      /* the schema's struct; NULL: it has none */
    char **choices; /* for each table the names of its kinds, "gpt2|llama" */
} by__config;

struct by_kind_values {
    size_t count;
    struct by__kind_block {
        const by__kind *kind;
        void *values;
    } blocks[];
};

typedef struct by__scalar {
    char *text;
    bool quoted;
    char *field;   /* of a record; NULL in values without */
    size_t record; /* number of it in the list */
} by__scalar;

typedef struct by__config_node {
    by__scalar *items;
    size_t count;
    size_t capacity;
    bool is_list;
    size_t records; /* mappings in the list */
} by__config_node;

/* ---- for the room that knows the schema (config_open.c, config_print.c) ---- */

by_status by__config_new(by__config **out, const by__schema *schema, by_error *error);
/* by_config_parse and by_config_open. `kept`: what by_config_open_run leaves out is left out. */
by_status by__config_parse(by_config **out, const by__schema *schema, const char *name,
                           const char *text, size_t length, const char *const *overrides,
                           size_t count, bool kept, by_error *error);
by_status by__config_open(by_config **out, const by__schema *schema, const char *path,
                          const char *const *overrides, size_t count, bool kept, by_error *error);
/* A page on all keys; `head` comes first. */
by_status by__config_reference(char **out, const by__schema *schema, const char *head,
                               by_error *error);

/* ---- schema.c ---- */

/* NULL: there is none of this name. The top has none. */
const by__section *by__section_find(const by__schema *schema, const char *name);
/* "train.steps", or "seed" for a key at the top. */
const char *by__key_path(char buffer[64], const by__key *key);
/* What a key accepts, for messages and the reference: "a whole number from 1 to 10000". */
void by__key_accepts(by__text *out, const by__key *key);

/* ---- config_kinds.c ---- */

/* The kind that a config has chosen from a table; NULL when a program has written another name. */
const by__kind *by__chosen_kind(const by__config *config, size_t table);
/* The struct of that kind, which must be one; NULL when it has none. */
void *by__chosen_own(const by__config *config, size_t table);
/* True when the chosen kinds have the key. */
bool by__entry_active(const by__config *config, const by__entry *entry);
/* The next key of this name behind `after` (NULL: the first); NULL when there is none. */
by__entry *by__entry_find(const by__config *config, const by__entry *after, const char *section,
                          const char *name);
/* The key of this path that the chosen kinds have; NULL when there is none. */
by__entry *by__entry_at(const by__config *config, const char *path);
/* Fills `error`: there is no such key; names the nearest, or those that there are. */
by_status by__key_unknown(const by__config *config, const char *where, const char *section,
                          const char *name, by_error *error);
/* Gives a value to all keys of the name of `first` (several kinds may have one of that name). Each
 * checks it; an error when it suits none. `store` false: only the check. */
by_status by__config_assign(by__config *config, by__entry *first, const by__config_node *node,
                            const char *where, bool store, by_error *error);
/* Refuses a key that was given and that the chosen kinds do not have, and a value that suits
 * another kind only. */
by_status by__config_check_kinds(const by__config *config, by_error *error);
/* Forgets that keys which the chosen kinds do not have were given. */
void by__config_drop_foreign(by__config *config);

/* ---- config_value.c ---- */

/* Refuses what is no value of the key at all: "a list". */
by_status by__value_refuse(const by__key *key, const char *what, const char *where,
                           by_error *error);
/* Checks a node against the row and stores it. `where` opens the message: "train.yaml:14". */
by_status by__value_set(by__entry *entry, const by__config_node *node, const char *where,
                        by_error *error);
/* The same check without a place to store the value. */
by_status by__value_check(const by__key *key, const by__config_node *node, const char *where,
                          by_error *error);
/* Checks the value that a config holds (a program may have written the fields). */
by_status by__value_verify(const by__entry *entry, const char *where, by_error *error);
/* Replaces a value by a copy of another entry's, which belongs to the same key. */
by_status by__value_copy(by__entry *to, const by__entry *from, by_error *error);
/* Releases what the field owns. */
void by__value_free(by__entry *entry);
/* Appends a copy of a scalar. */
by_status by__node_add(by__config_node *node, const char *text, size_t length, bool quoted,
                       by_error *error);
void by__node_free(by__config_node *node);
/* False when the text is not UTF-8, which YAML cannot hold. */
bool by__is_utf8(const char *text);

/* ---- config_records.c: the same for by_record_list ---- */

by_status by__records_check(const by__key *key, const by__config_node *node, const char *where,
                            by_error *error);
by_status by__records_set(by__entry *entry, const by__config_node *node, const char *where,
                          by_error *error);
by_status by__records_copy(by__entry *to, const by__entry *from, by_error *error);
by_status by__records_verify(const by__entry *entry, const char *where, by_error *error);
void by__records_print(by__text *out, const by__entry *entry);
void by__records_free(by__entry *entry);

/* ---- config_print.c ---- */

/* "6GiB", or bytes where no unit divides them. */
void by__size_print(by__text *out, int64_t bytes);
/* Adds a verified value as YAML that reads back to it exactly. */
void by__value_print(by__text *out, const by__entry *entry);

/* ---- config_file.c ---- */

/* Reads one YAML text into the config. A key that already has an origin is checked but kept: files
 * are read from the most derived to the base. *base receives the `base:` value and *base_where its
 * place (both NULL when there is none; freed with free()). */
by_status by__config_read(by__config *config, const char *file, const char *text, size_t length,
                          char **base, char **base_where, by_error *error);
/* The value of an override: a YAML list or quoted text when it starts as one, else taken
 * literally. */
by_status by__config_read_value(by__config_node *node, const char *text, const char *where,
                                by_error *error);

/* ---- batches that grow (batch_warmup.c) ---- */

#define BY__BATCH_STAGES 16
by_status by__check_batch_warmup(const by_config *config, by_error *error);

#endif
