/* What the owner of config keys sees of this room: a model family, an optimizer or a task declares
 * its keys as rows of by__key in a by__kind, and reads their values. schema.h says how they become
 * a config.
 *
 * A key's value is a field of by_config (BY__FIELD) where other rooms read it too, or of a struct
 * that the owner's file alone knows (BY__OWN). A config holds one such struct for each kind, so a
 * new key of a kind touches the kind's file and no other.
 */
#ifndef BY_CONFIG_KIND_H
#define BY_CONFIG_KIND_H

#include "banyan/config.h"
#include "base/base.h"

typedef enum by__key_type {
    BY__KEY_INT,    /* int64_t */
    BY__KEY_SEED,   /* uint64_t, the whole range */
    BY__KEY_REAL,   /* double */
    BY__KEY_PAIR,   /* double[2]; a list of two in the file */
    BY__KEY_SWITCH, /* int64_t: 1 true, 0 false */
    BY__KEY_SIZE,   /* int64_t: bytes */
    BY__KEY_TEXT,   /* char * */
    BY__KEY_TEXTS,  /* by_string_list; a single scalar is a list of one */
    BY__KEY_RECORDS /* by_record_list; a list of mappings whose keys are `fields` */
} by__key_type;

/* Where a value is. `holds` is the type of the C field, INT for a SWITCH and a SIZE. */
typedef struct by__place {
    bool own; /* in the struct of the kind, not in by_config */
    size_t offset;
    by__key_type holds;
} by__place;

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

/* The end of a range that is not part of it. */
#define BY__ABOVE_MIN 1u
#define BY__BELOW_MAX 2u

struct by__key_list;

typedef struct by__key {
    const char *section; /* "" for a key at the top */
    const char *name;
    by__key_type type;
    by__place place;
    const char *fallback; /* the default, as it would stand in the file */
    double min;           /* numbers: the range; text: the least length */
    double max;
    unsigned open;       /* BY__ABOVE_MIN, BY__BELOW_MAX */
    const char *choices; /* text: the words accepted, "f32|bf16"; NULL: any text */
    const char *derived; /* not NULL: -1 is accepted too, and this is what it stands for */
    const char *word;    /* a word that may be written (and is printed) for -1; NULL: none */
    const char *help;
    /* Of records: the keys of one, with BY__OWN places in its struct of `size` bytes. A field whose
     * fallback is NULL must be given. */
    const struct by__key_list *fields;
    size_t size;
    /* The hash of a config has the key only where its value is not the default, so that configs
     * from before there was the key keep theirs. */
    bool later;
} by__key;

typedef struct by__key_list {
    const by__key *rows;
    size_t count;
} by__key_list;
#define BY__KEY_LIST(rows)                                                                         \
    {                                                                                              \
        rows, BY_ARRAY_LENGTH(rows)                                                                \
    }

/* Upper bounds of keys that count something: products of sizes stay far from 63 bits. */
#define BY__MI20 1048576
#define BY__MI24 16777216
#define BY__MI30 1073741824
#define BY__MANY 1e15

/* What a model family, an optimizer or a task declares. */
typedef struct by__kind {
    const char *name; /* the value of the section's key `kind` */
    const char *help; /* one line for docs/config.md */
    /* Lists of keys, of any section; a list may be shared by several kinds. Unused ones are NULL.
     */
    const by__key_list *keys[5];
    size_t size; /* of the struct that BY__OWN of these keys names; 0: none */
    /* Fills what -1 stands for and checks what several keys must agree on; each value is in its
     * range already. Called for the chosen kind; `own` is its struct. May be NULL. */
    by_status (*resolve)(by_config *config, void *own, by_error *error);
} by__kind;

/* The struct of a kind; NULL when `own` is not of a config that knows the kind. */
void *by__kind_own(const by_kind_values *own, const by__kind *kind);
/* Where the first of two keys ("model.heads") was set, else the second, else "config" (both are
 * defaults): the start of a message. */
const char *by__config_where(const by_config *config, const char *first, const char *second);
/* Whether a file or an override sets this key; false: it has its default. */
bool by__config_is_given(const by_config *config, const char *key);
/* Refuses a whole number that does not divide another, with the nearest that do:
 * "train.yaml:14: micro_batch 12 does not divide batch 100; nearest: 10, 20". */
by_status by__config_divides(const by_config *config, const char *part, const char *whole,
                             by_error *error);

#endif
