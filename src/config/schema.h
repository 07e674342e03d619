/* config: turns YAML text into a checked by_config, and back.
 *
 * What it is for: a key is declared once (by__config_key in kind.h: type, place, default, range,
 * choices, help), and the parser, the overrides, the printer, the hash and docs/config.md all use
 * that row. Keys that every run has are declared in schema.c. Keys of a model family, an optimizer
 * or a task are declared in the owner's file, in its by__config_kind, together with the meaning of
 * -1 and the constraints between keys. This module is below all owners and knows none of them: a
 * higher module (schema/config_schema.c) passes a by__config_schema with the tables of kinds, and
 * an open config keeps a pointer to it.
 *
 * Types: by__config_entry is a key in one config, with the place of its value and where it was set;
 * by__config_node is a value as written in the text (a scalar or a list of scalars, quoted or not);
 * by__config is a by_config with its private part.
 *
 * Who owns what: a by_config owns its strings and is always the first member of a by__config made
 * by by__config_new; by__config_value_set replaces a string and frees the old one.
 *
 * Never put here: the effect of a key on a model or a run, access to files other than configs, the
 * name of a kind.
 */
#ifndef BY_CONFIG_SCHEMA_H
#define BY_CONFIG_SCHEMA_H

#include "base/hash_table.h"
#include "config/kind.h"

/* The kinds of a section. row(i) returns NULL past the last one. The section's key `kind` is one of
 * every config, or one that kinds of an earlier table have, in one place of by_config: the section
 * is then of a part of these kinds, and foreign to others. */
typedef struct by__config_kind_table {
    const char *section;
    const by__config_kind *(*row)(size_t index);
} by__config_kind_table;

typedef struct by__config_section {
    const char *name;
    const char *help;
    size_t own; /* offset of the section's by_kind_values * in by_config; 0: it has no kinds */
} by__config_section;

typedef struct by__config_section_list {
    const by__config_section *rows; /* the first one is the top level, "" */
    size_t count;
} by__config_section_list;

typedef struct by__config_schema {
    const by__config_kind_table *tables;
    size_t table_count;
    const by__config_section_list *sections;
    const by__config_key_list *keys; /* of every config, section by section */
    size_t size; /* of the struct that the BY__OWN places of these keys refer to; 0:
                                 none */
    /* Refuses a value of the key `device`; NULL: all are accepted. */
    by_status (*check_device)(const char *name, by_error *error);
    /* Finds the format that a device multiplies fastest; NULL: f32. */
    by_status (*fastest)(by_dtype *out, const char *device, by_error *error);
} by__config_schema;

/* The sections and keys that every run has. */
extern const by__config_section_list by__config_run_sections;
extern const by__config_key_list by__config_run_keys;

#define BY__CONFIG_PATH 64

/* A key in one config. */
typedef struct by__config_entry {
    by__config_key key;          /* a copy; a key `kind` gets the names of its table as choices */
    const char *path;            /* as by__config_key_path has it, in the config's `path_text` */
    size_t next;                 /* index of the next key of this path; 0: none */
    const by__config_kind *kind; /* NULL: every config of the schema has the key */
    size_t table;                /* index of the schema's table that `kind` is in */
    void *at;                    /* the value */
    char *origin;                /* "train.yaml:14" or an override; NULL while it is the default */
    char *refusal;   /* why the value that was given suits only another kind; NULL: it suits */
    size_t level;    /* of its origin: 0 an override, 1 the file, 2 its base, ... */
    int64_t derived; /* what was chosen for -1 (by__config_derive); 0: nothing was */
} by__config_entry;

typedef struct by__config {
    by_config config; /* first, so that a by_config * can be cast to a by__config * */
    const by__config_schema *schema;
    by__config_entry *entries; /* by section; within one the common keys, then those of each kind */
    size_t count;
    char *path_text;
    by__base_table paths; /* indices of the first keys of their paths */
    size_t *kinds;        /* for each table the index of the key that chooses its kind */
    void *own;            /* the schema's struct; NULL: it has none */
    char **choices;       /* for each table the names of its kinds, "gpt2|llama" */
    size_t level;         /* of what is being read, as in by__config_entry */
    by_string notes;      /* what by_config_notes returns */
    by_config *trained;   /* what by__config_trained returns */
} by__config;

struct by_kind_values {
    size_t count;
    struct by__config_kind_block {
        const by__config_kind *kind;
        void *values;
    } blocks[];
};

typedef struct by__config_scalar {
    char *text;
    bool quoted;
    char *field;   /* key within a record; NULL for plain values */
    size_t record; /* index of the record in the list */
    size_t line;   /* where it begins in its file; 0: not of a file */
    bool wraps;    /* it goes on in the next line without quotes */
} by__config_scalar;

typedef struct by__config_node {
    by__config_scalar *items;
    size_t count;
    size_t capacity;
    bool is_list;
    size_t records; /* number of mappings in the list */
} by__config_node;

/* ---- for the module that knows the schema (config_open.c, config_print.c) ---- */

by_status by__config_new(by__config **out, const by__config_schema *schema, by_error *error);
/* Does the work of by_config_parse and by_config_open. `kept`: skip what by_config_open_run
 * skips. */
by_status by__config_parse(by_config **out, const by__config_schema *schema, const char *name,
                           const char *text, size_t length, const char *const *overrides,
                           size_t count, bool kept, by_error *error);
by_status by__config_open(by_config **out, const by__config_schema *schema, const char *path,
                          const char *const *overrides, size_t count, bool kept, by_error *error);
/* Writes the reference page of all keys, after the text `head`. */
by_status by__config_reference(char **out, const by__config_schema *schema, const char *head,
                               by_error *error);

/* ---- schema.c ---- */

/* Returns the section of this name, or NULL. The top level has none. */
const by__config_section *by__config_section_find(const by__config_schema *schema,
                                                  const char *name);
/* Formats "train.steps", or "seed" for a top-level key. */
const char *by__config_key_path(char buffer[BY__CONFIG_PATH], const by__config_key *key);
/* Appends what a key accepts, for messages and the reference: "a whole number from 1 to 10000". */
void by__config_key_accepts(by_string *out, const by__config_key *key);

/* ---- config_kinds.c ---- */

/* Returns the kind that a config selects from a table; NULL if a program wrote an unknown name. */
const by__config_kind *by__config_chosen_kind(const by__config *config, size_t table);
/* Returns the struct of the selected kind, which must exist; NULL if the kind has no struct. */
void *by__config_chosen_own(const by__config *config, size_t table);
/* Returns true if the kind of a table is known only when the weights of model.from are read. */
bool by__config_kind_open(const by__config *config, size_t table);
/* Returns true if the key belongs to the selected kinds. */
bool by__config_entry_active(const by__config *config, const by__config_entry *entry);
/* Returns the first key of this path, "train.steps", or NULL. */
by__config_entry *by__config_entry_first(const by__config *config, const char *path);
/* Returns the first key of this section and name, or NULL. */
by__config_entry *by__config_entry_find(const by__config *config, const char *section,
                                        const char *name);
/* Returns the next key of the same path, or NULL. */
by__config_entry *by__config_entry_next(const by__config *config, const by__config_entry *entry);
/* Returns the key of this path that the selected kinds have, or NULL. */
by__config_entry *by__config_entry_at(const by__config *config, const char *path);
/* Appends the kinds that have a key named like `entry`: "gpt2, llama". */
void by__config_entry_owners(by_string *out, const by__config *config,
                             const by__config_entry *entry);
/* Assigns a value to all keys that share the name of `first` (several kinds may have one). Each
 * checks it; fails if it suits none. `store` false: only check. */
by_status by__config_assign(by__config *config, by__config_entry *first,
                            const by__config_node *node, const char *where, bool store,
                            by_error *error);
/* Refuses a key that was given although the selected kinds lack it, and a value that suits only
 * another kind. What was given further back in the chain of files than the kind is dropped with a
 * note: it suited the kind there. */
by_status by__config_check_kinds(by__config *config, by_error *error);
/* Adds a line to the notes of a config. */
void by__config_note(by__config *config, const char *format, ...) BY_PRINTF(2, 3);
/* Returns true if the selected kinds have a key that was given further back in the chain of files
 * than another one was given. */
bool by__config_deeper(const by__config *config, const char *key, const char *other);
/* Clears the origin of keys that were given although the selected kinds lack them. */
void by__config_drop_foreign(by__config *config);

/* ---- resolve_lora.c ---- */

/* Derives what the section lora leaves open, and refuses what contradicts it. */
by_status by__config_resolve_lora(by_config *config, by_error *error);

/* ---- key_aliases.c ---- */

/* Reports an unknown key, with the nearest name or the list of names that exist. */
by_status by__config_key_unknown(const by__config *config, const char *where, const char *section,
                                 const char *name, by_error *error);
/* Appends which key is meant by a name that is unknown where it was given: one of that name in
 * another section, or one that another program calls so. Returns false, and appends nothing, if no
 * key is known to be meant. */
bool by__config_key_suggest(by_string *out, const by__config *config, const char *name);
/* The same for the name that is nearest to one of these other names. */
bool by__config_key_suggest_near(by_string *out, const by__config *config, const char *name);
/* Returns the key of a row of the table of other programs' names ("": none), and its names,
 * separated by |; NULL past the last row. */
const char *by__config_key_alias(size_t index, const char **names);

/* ---- config_value.c ---- */

/* Refuses something that cannot be a value of the key, such as "a list". */
by_status by__config_value_refuse(const by__config_key *key, const char *what, const char *where,
                                  by_error *error);
/* Checks a node against the key's row and stores it. `where` starts messages: "train.yaml:14". */
by_status by__config_value_set(by__config_entry *entry, const by__config_node *node,
                               const char *where, by_error *error);
/* Checks a node without storing it. */
by_status by__config_value_check(const by__config_key *key, const by__config_node *node,
                                 const char *where, by_error *error);
/* Checks the value that a config holds, since a program may have written the fields directly. */
by_status by__config_value_verify(const by__config_entry *entry, const char *where,
                                  by_error *error);
/* Replaces a value by a copy of another entry's value; both belong to the same key. */
by_status by__config_value_copy(by__config_entry *to, const by__config_entry *from,
                                by_error *error);
/* Frees what the field owns. */
void by__config_value_free(by__config_entry *entry);
/* Appends a copy of a scalar. */
by_status by__config_node_add(by__config_node *node, const char *text, size_t length, bool quoted,
                              by_error *error);
void by__config_node_free(by__config_node *node);
#define BY__CONFIG_WHERE 320
/* "FILE:LINE" of an item of a value whose key is at `where`: `where` itself, or in `buffer`. */
const char *by__config_item_where(char buffer[BY__CONFIG_WHERE], const char *where,
                                  const by__config_scalar *item);

/* ---- config_records.c: the same for by_record_list ---- */

by_status by__config_records_check(const by__config_key *key, const by__config_node *node,
                                   const char *where, by_error *error);
by_status by__config_records_set(by__config_entry *entry, const by__config_node *node,
                                 const char *where, by_error *error);
by_status by__config_records_copy(by__config_entry *to, const by__config_entry *from,
                                  by_error *error);
by_status by__config_records_verify(const by__config_entry *entry, const char *where,
                                    by_error *error);
void by__config_records_print(by_string *out, const by__config_entry *entry);
void by__config_records_free(by__config_entry *entry);

/* ---- config_number.c ---- */

/* All return false for a text that is no such number. */
bool by__config_parse_real(double *out, const char *s);
/* A whole number as sign and magnitude: 12, 1_000, 1e3, 2.5e3; 12.0 is refused. */
bool by__config_parse_whole(uint64_t *magnitude, bool *negative, const char *s);
bool by__config_parse_int(int64_t *out, const char *s);
/* A size: 6GiB, 1.5 GB, 512MiB, or a whole number of bytes. */
bool by__config_parse_size(int64_t *out, const char *s);
/* A time: 90, 90s, 1.5m, 2h, 200ms. */
bool by__config_parse_time(double *out, const char *s);
/* Appends "6GiB", or plain bytes if no unit divides them. */
void by__config_size_print(by_string *out, int64_t bytes);

/* ---- config_print.c ---- */

/* Appends a verified value as YAML that reads back exactly. */
void by__config_value_print(by_string *out, const by__config_entry *entry);

/* ---- config_file.c ---- */

/* Reads one YAML text into the config. A key that already has an origin is checked but not
 * replaced, because files are read from the most derived one to the base. *base receives the
 * `base:` value and *base_where its position (both NULL if there is none; freed with free()). */
by_status by__config_read(by__config *config, const char *file, const char *text, size_t length,
                          char **base, char **base_where, by_error *error);
/* Parses the value of an override: as YAML if it starts like a list or quoted text, else as literal
 * text. */
by_status by__config_read_value(by__config_node *node, const char *text, const char *where,
                                by_error *error);

/* ---- batch warm-up (batch_warmup.c) ---- */

#define BY__BATCH_STAGES 16
by_status by__config_check_batch_warmup(const by_config *config, by_error *error);

#endif
