/* The part of config that owners of keys use. A model family, an optimizer or a task declares its
 * keys as rows of by__config_key in a by__config_kind and reads their values; schema.h describes
 * how a config is made from them.
 *
 * A value is stored in a field of by_config (BY__FIELD) if other modules read it, otherwise in a
 * struct that only the owner's file knows (BY__OWN). A config holds one such struct for each kind,
 * so adding a key to a kind touches no other file.
 */
#ifndef BY_CONFIG_KIND_H
#define BY_CONFIG_KIND_H

#include "banyan/config.h"
#include "base/base.h"

typedef enum by__config_key_type {
    BY__KEY_INT,    /* int64_t */
    BY__KEY_SEED,   /* uint64_t, the whole range */
    BY__KEY_REAL,   /* double */
    BY__KEY_TIME,   /* double: seconds */
    BY__KEY_SHARE,  /* double: a share if below 1, otherwise a whole number */
    BY__KEY_PAIR,   /* double[2]; written as a list of two */
    BY__KEY_SWITCH, /* int64_t: 1 true, 0 false */
    BY__KEY_SIZE,   /* int64_t: bytes */
    BY__KEY_TEXT,   /* char * */
    BY__KEY_TEXTS,  /* by_string_list; a single scalar is read as a list of one */
    BY__KEY_RECORDS /* by_record_list; a list of mappings whose keys are `fields` */
} by__config_key_type;

/* Where a value is stored. `holds` is the type of the C field: INT for a SWITCH or a SIZE, REAL for
 * a TIME or a SHARE. */
typedef struct by__config_place {
    bool own; /* in the kind's struct, not in by_config */
    size_t offset;
    by__config_key_type holds;
} by__config_place;

#define BY__HOLDS(field)                                                                           \
    _Generic((field),                                                                              \
        int64_t: BY__KEY_INT,                                                                      \
        uint64_t: BY__KEY_SEED,                                                                    \
        double: BY__KEY_REAL,                                                                      \
        double *: BY__KEY_PAIR,                                                                    \
        char *: BY__KEY_TEXT,                                                                      \
        by_string_list: BY__KEY_TEXTS,                                                             \
        by_record_list: BY__KEY_RECORDS)
/* A field of by_config: BY__FIELD(model.layers). */
#define BY__FIELD(field)                                                                           \
    {                                                                                              \
        false, offsetof(by_config, field), BY__HOLDS(((by_config *)0)->field)                      \
    }
/* A field of the owner's struct: BY__OWN(llama_keys, rope_theta). */
#define BY__OWN(type, field)                                                                       \
    {                                                                                              \
        true, offsetof(type, field), BY__HOLDS(((type *)0)->field)                                 \
    }

/* Flags that exclude an end of a range. */
#define BY__ABOVE_MIN 1u
#define BY__BELOW_MAX 2u

struct by__config_key_list;

typedef struct by__config_key {
    const char *section; /* "" for a top-level key */
    const char *name;
    by__config_key_type type;
    by__config_place place;
    const char *fallback; /* the default, as it would be written in the file */
    double min;           /* numbers: the range; text: the minimum length */
    double max;
    unsigned open;       /* BY__ABOVE_MIN, BY__BELOW_MAX */
    const char *choices; /* text: the accepted words, "f32|bf16"; NULL: any text */
    const char *derived; /* not NULL: -1 is accepted too, and this explains its meaning */
    const char *word;    /* a word that is accepted for -1 and printed instead of it; NULL: none */
    const char *help;
    /* Records: the keys of a record, whose BY__OWN places are in a struct of `size` bytes. A field
     * with a NULL fallback is required. */
    const struct by__config_key_list *fields;
    size_t size;
    /* The key was added later: it enters the config's hash only if it differs from its default, so
     * that hashes of older configs stay valid. */
    bool later;
    /* Texts: a list of one is written as its text, and an empty one as an empty text, as before the
     * key took several. */
    bool plain_if_one;
} by__config_key;

typedef struct by__config_key_list {
    const by__config_key *rows;
    size_t count;
} by__config_key_list;
#define BY__KEY_LIST(rows)                                                                         \
    {                                                                                              \
        rows, BY_ARRAY_LENGTH(rows)                                                                \
    }

/* Upper bounds of keys that count something, chosen so that products of sizes stay far below
 * 2^63. */
#define BY__MI20        1048576
#define BY__MI24        16777216
#define BY__MI30        1073741824
#define BY__COUNT_LIMIT 1e15

/* The declaration of a model family, an optimizer or a task. */
typedef struct by__config_kind {
    const char *name; /* the value of the section's key `kind` */
    const char *help; /* one line for docs/config.md */
    /* Lists of keys in any sections. Several kinds may share a list. Unused entries are NULL. */
    const by__config_key_list *keys[12];
    size_t size; /* of the struct that the BY__OWN places of these keys refer to; 0: none */
    /* Replaces values of -1 and checks constraints between keys; each value is already known to be
     * in its range. Called for the chosen kind with its struct `own`. May be NULL. */
    by_status (*resolve)(by_config *config, void *own, by_error *error);
} by__config_kind;

/* Returns the struct of a kind, or NULL if `own` is of a config that does not know the kind. */
void *by__config_kind_own(const by_kind_values *own, const by__config_kind *kind);
/* The kind of this name among those; NULL if there is none. */
const by__config_kind *by__config_kind_named(const by_kind_values *own, const char *name);
/* Returns where the first of two keys ("model.heads") was set, else where the second was, else
 * "config" (both have their defaults). Messages start with it. */
const char *by__config_where(const by_config *config, const char *first, const char *second);
/* Makes a config of defaults with the schema of another one. */
by_status by__config_like(by_config **out, const by_config *config, by_error *error);
/* Keeps a copy of a config as it is now, unless it has one: for those who use a run otherwise than
 * it was trained, and compare it with what training had. Copies of the config have it, too. */
by_status by__config_keep_trained(by_config *config, by_error *error);
/* That copy; NULL: none was kept. */
const by_config *by__config_trained(const by_config *config);
/* Gives a section the values of another config of the same schema. */
by_status by__config_copy_section(by_config *to, const by_config *from, const char *section,
                                  by_error *error);
/* Returns true if a file or an override sets this key, false if it has its default. */
bool by__config_is_given(const by_config *config, const char *key);
/* Whether the selected kinds have a key. */
bool by__config_has_key(const by_config *config, const char *key);
/* Iterates over the keys of a section that a file or an override sets, among those that the kinds
 * of `as`, a config of the same schema, have. *at starts at 0; NULL: there is no further one. */
const char *by__config_next_given(size_t *at, const by_config *config, const by_config *as,
                                  const char *section);
/* Copies the value of a key of `to` from a config of the same schema, whose kinds may be others. */
by_status by__config_copy_value(by_config *to, const by_config *from, const char *key,
                                by_error *error);
/* Appends the value of a key as a file has it. */
void by__config_show(by_string *out, const by_config *config, const char *key);
/* Says that the kind of section `model` is that of the weights of model.from. */
by_status by__config_kind_found(by_config *config, by_error *error);
/* Replaces the value of an integer key by one chosen for -1. The key may be derived again while
 * by__config_is_derived: until a value is set. */
void by__config_derive(by_config *config, const char *key, int64_t value);
bool by__config_is_derived(const by_config *config, const char *key);
/* Returns the largest number that divides the batch of every step. */
int64_t by__config_batch_divisor(const by_config *config);
/* Refuses an integer that does not divide another and suggests the nearest divisors:
 * "train.yaml:14: micro_batch 12 does not divide batch 100; nearest: 10, 20". */
by_status by__config_divides(const by_config *config, const char *part, const char *whole,
                             by_error *error);

#endif
