/* config: from YAML text to a checked by_config, and back.
 *
 * What it is for: one table (schema.c) holds every key of the file: type, place in by_config,
 * default, range, choices and help. The parser, the overrides, the printer, the hash and
 * docs/config.md read that table and nothing else, so a new key is one field in
 * include/banyan/config.h and one row here.
 *
 * Types: by__key is a row; by__node is a value as it stood in the text (a scalar or a list of
 * scalars, quoted or not); by__config is the by_config with what the user must not see: where each
 * key was set, so that a check over several keys can name file and line.
 *
 * Who owns what: a by_config owns its strings and is always the first member of a by__config made
 * by by__config_new; by__value_set replaces a string and frees the old one.
 *
 * Never put here: what a key does to a model or a run, any file but configs, a second list of keys.
 */
#ifndef BY_CONFIG_SCHEMA_H
#define BY_CONFIG_SCHEMA_H

#include "banyan/config.h"
#include "base/base.h"

typedef enum by__key_type {
    BY__KEY_INT,    /* int64_t */
    BY__KEY_SEED,   /* uint64_t, the whole range */
    BY__KEY_REAL,   /* double */
    BY__KEY_PAIR,   /* two doubles, one behind the other; a list of two in the file */
    BY__KEY_SWITCH, /* int64_t: 1 true, 0 false */
    BY__KEY_TEXT,   /* char * */
    BY__KEY_TEXTS   /* by_string_list; a single scalar is a list of one */
} by__key_type;

/* The end of a range that is not part of it. */
#define BY__ABOVE_MIN 1u
#define BY__BELOW_MAX 2u

typedef struct by__key {
    const char *section; /* "" for a key at the top */
    const char *name;
    by__key_type type;
    size_t offset;        /* into by_config */
    const char *fallback; /* the default, as it would stand in the file */
    double min;           /* numbers: the range; text: the least length */
    double max;
    unsigned open;       /* BY__ABOVE_MIN, BY__BELOW_MAX */
    const char *choices; /* text: the words accepted, "gpt2|llama"; NULL: any text */
    const char *derived; /* not NULL: -1 is accepted too, and this is what it stands for */
    const char *word;    /* a word that may be written (and is printed) for -1; NULL: none */
    const char *help;
} by__key;

typedef struct by__section {
    const char *name;
    const char *help;
} by__section;

extern const by__key by__keys[];
extern const size_t by__key_count;
extern const by__section by__sections[];
extern const size_t by__section_count;

typedef struct by__config {
    by_config config; /* first, so that a by_config * is a by__config * */
    /* for each key "train.yaml:14" or an override; NULL while it is the default */
    char **origin;
} by__config;

typedef struct by__scalar {
    char *text;
    bool quoted;
} by__scalar;

typedef struct by__node {
    by__scalar *items;
    size_t count;
    size_t capacity;
    bool is_list;
} by__node;

/* ---- schema.c ---- */

/* The row of a key; NULL when there is none. `section` is "" for the top. */
const by__key *by__key_find(const char *section, const char *name);
/* The row whose field is at this offset of by_config. */
const by__key *by__key_at(size_t offset);
#define BY__KEY(field) by__key_at(offsetof(by_config, field))
/* Where the value of a row is. */
static inline void *by__key_field(const by_config *config, const by__key *key)
{
    return (char *)(uintptr_t)config + key->offset;
}
bool by__section_exists(const char *name);
/* "train.steps", or "seed" for a key at the top. */
const char *by__key_path(char buffer[64], const by__key *key);
/* Fills `error`: there is no such key; names the nearest, or those that there are. */
by_status by__key_unknown(const char *where, const char *section, const char *name,
                          by_error *error);
/* What a key accepts, for messages and the reference: "a whole number from 1 to 10000". */
void by__key_accepts(by__text *out, const by__key *key);

/* ---- config_value.c ---- */

/* Checks a node against the row and stores it. `where` opens the message: "train.yaml:14". */
by_status by__value_set(by_config *config, const by__key *key, const by__node *node,
                        const char *where, by_error *error);
/* The same check without a place to store the value. */
by_status by__value_check(const by__key *key, const by__node *node, const char *where,
                          by_error *error);
/* Checks the value that a config holds (a program may have written the fields). */
by_status by__value_verify(const by_config *config, const by__key *key, const char *where,
                           by_error *error);
/* Releases what the field owns. */
void by__value_free(by_config *config, const by__key *key);
/* Appends a copy of a scalar. */
by_status by__node_add(by__node *node, const char *text, size_t length, bool quoted,
                       by_error *error);
void by__node_free(by__node *node);
/* False when the text is not UTF-8, which YAML cannot hold. */
bool by__is_utf8(const char *text);

/* ---- config_print.c ---- */

/* Adds a verified value as YAML that reads back to it exactly. */
void by__value_print(by__text *out, const by_config *config, const by__key *key);

/* ---- config_file.c ---- */

/* Reads one YAML text into the config. A key that already has an origin is checked but kept: files
 * are read from the most derived to the base. *base receives the `base:` value and *base_where its
 * place (both NULL when there is none; freed with free()). */
by_status by__config_read(by__config *config, const char *file, const char *text, size_t length,
                          char **base, char **base_where, by_error *error);
/* The value of an override: a YAML list or quoted text when it starts as one, else taken
 * literally. */
by_status by__config_read_value(by__node *node, const char *text, const char *where,
                                by_error *error);

#endif
