/* Trees and programs of patterns. */
#ifndef BY_TEXT_PATTERN_PATTERN_PROGRAM_H
#define BY_TEXT_PATTERN_PATTERN_PROGRAM_H

#include "text/pattern/pattern.h"

typedef enum by__pattern_assertion {
    BY__PATTERN_BEGIN,      /* \A, and ^ without the flag m */
    BY__PATTERN_END,        /* \Z */
    BY__PATTERN_LAST,       /* $: the end, or before a newline there */
    BY__PATTERN_LINE_BEGIN, /* ^ with the flag m */
    BY__PATTERN_LINE_END,   /* $ with the flag m */
    BY__PATTERN_BOUNDARY,   /* \b */
    BY__PATTERN_INSIDE      /* \B */
} by__pattern_assertion;

typedef enum by__pattern_class {
    BY__PATTERN_DIGIT = 1,
    BY__PATTERN_WORD = 2,
    BY__PATTERN_SPACE = 4,
    BY__PATTERN_OPPOSITE = 8 /* times the above: \D is DIGIT * OPPOSITE */
} by__pattern_class;

/* A set of characters: ranges [from, to] in pairs, and classes. */
typedef struct by__pattern_set {
    uint32_t *ranges;
    size_t count;
    size_t capacity;
    unsigned classes;
    bool negated;
} by__pattern_set;

typedef enum by__pattern_kind {
    BY__PATTERN_EMPTY,
    BY__PATTERN_CHAR,   /* number: the code point */
    BY__PATTERN_ANY,    /* number: 1 if a newline is one, too */
    BY__PATTERN_SET,    /* number: index of the set */
    BY__PATTERN_CHAIN,  /* a, then b */
    BY__PATTERN_EITHER, /* a, else b */
    BY__PATTERN_REPEAT, /* a, `least` to `most` times */
    BY__PATTERN_GROUP,  /* a; number: of the group */
    BY__PATTERN_LOOK,   /* a follows; number: characters before, if `behind` */
    BY__PATTERN_ASSERT, /* number: by__pattern_assertion */
    BY__PATTERN_BACK    /* number: of the group whose text is repeated */
} by__pattern_kind;

#define BY__PATTERN_NONE UINT32_MAX /* no node; no limit of repetitions */

typedef struct by__pattern_node {
    by__pattern_kind kind;
    uint32_t a;
    uint32_t b;
    uint32_t number;
    uint32_t least;
    uint32_t most;
    bool lazy;
    bool negated;
    bool behind;
} by__pattern_node;

typedef enum by__pattern_op {
    BY__PATTERN_OP_CHAR,   /* a: the code point */
    BY__PATTERN_OP_ANY,    /* a: 1 if a newline is one, too */
    BY__PATTERN_OP_SET,    /* a: index of the set */
    BY__PATTERN_OP_SPLIT,  /* continue at a, and if that fails at b */
    BY__PATTERN_OP_JUMP,   /* continue at a */
    BY__PATTERN_OP_SAVE,   /* slot a is the position */
    BY__PATTERN_OP_MOVED,  /* fail unless the position is another than that of slot a */
    BY__PATTERN_OP_ASSERT, /* a: by__pattern_assertion */
    BY__PATTERN_OP_BACK,   /* a: the group */
    BY__PATTERN_OP_LOOK,   /* a: 1 if negated; b: characters to step back; the program up to its
                              OP_MATCH follows, then a JUMP over it at the next instruction */
    BY__PATTERN_OP_MATCH
} by__pattern_op;

typedef struct by__pattern_instruction {
    by__pattern_op op;
    uint32_t a;
    uint32_t b;
} by__pattern_instruction;

struct by__pattern {
    by__pattern_node *nodes; /* of the tree; freed when it is compiled */
    size_t node_count;
    size_t node_capacity;
    by__pattern_set *sets;
    size_t set_count;
    size_t set_capacity;
    by__pattern_instruction *program;
    size_t count;
    size_t capacity;
    uint32_t groups;
    uint32_t slots; /* two for each group, then one for each loop that may be empty */
    bool ignores_case;
};

/* Parses a pattern to p->nodes; *root is the tree. */
by_status by__pattern_parse(by__pattern *p, const char *text, size_t length, uint32_t *root,
                            by_error *error);
by_status by__pattern_compile(by__pattern *p, uint32_t root, by_error *error);
/* Whether a set has a character. */
bool by__pattern_has(const by__pattern_set *set, uint32_t code, bool ignores_case);
/* A character in lower case, as far as case is ignored: ASCII, Latin-1, Greek and Cyrillic. */
uint32_t by__pattern_lower(uint32_t code);

#endif
