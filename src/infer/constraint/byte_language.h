/* byte_language: sets of byte strings, from expressions to the tables that generation is checked
 * with.
 *
 * A regular expression (regex.c) or a JSON schema (json_schema.c, number_range.c) is parsed into
 * expressions over code points (expression.c), one for each rule of a grammar. Rules may call other
 * rules, so that a schema can refer to itself. compile.c turns each rule into a deterministic
 * automaton over bytes: by Thompson's construction (1968; nfa.c, class.c) and the subset
 * construction (Rabin and Scott 1959), with calls as an additional kind of transition. States from
 * which no text can be completed are removed. way_sets.c runs the automata with a stack,
 * and constraint_state.c lists the tokens that may come next.
 *
 * Everything is bounded, because schemas and expressions come from untrusted clients: nesting
 * depth, nodes, states, and elementary steps of the construction. Exceeding a bound is an error; no
 * part of a constraint is ever dropped.
 *
 * Who owns what: a by__constraint_language owns its expressions, whose nodes live in blocks until
 * it is closed; a compiled by__constraint_automata owns its tables. A builder that fails sets
 * `failed`; from then on the functions that make nodes return NULL and accept NULL.
 *
 * Never put here: tokenizers, sampling, models.
 */
#ifndef BY_INFER_CONSTRAINT_BYTE_LANGUAGE_H
#define BY_INFER_CONSTRAINT_BYTE_LANGUAGE_H

#include "banyan/constraint.h"
#include "base/base.h"

/* Bounds. A step of the construction takes a few nanoseconds. */
#define BY__MAX_NODES   200000
#define BY__MAX_STATES  60000
#define BY__MAX_STEPS   4000000
#define BY__MAX_EDGES   1000000
#define BY__MAX_NESTING 64 /* of groups in an expression, of objects in a schema */
#define BY__MAX_REPEAT  10000

/* ---- sets of code points (expression.c) ---- */

typedef struct by__constraint_code_range {
    uint32_t first;
    uint32_t last;
} by__constraint_code_range;

/* Sorted and without overlaps after by__constraint_code_set_close. {0} is empty. */
typedef struct by__constraint_code_set {
    by__constraint_code_range *ranges;
    size_t count;
    size_t capacity;
} by__constraint_code_set;

by_status by__constraint_code_set_add(by__constraint_code_set *set, uint32_t first, uint32_t last,
                                      by_error *error);
/* Sorts the ranges and merges overlapping ones. */
void by__constraint_code_set_close(by__constraint_code_set *set);
/* Replaces a closed set by its complement, without surrogates. */
by_status by__constraint_code_set_negate(by__constraint_code_set *set, by_error *error);
void by__constraint_code_set_free(by__constraint_code_set *set);

/* ---- expressions (expression.c) ---- */

typedef enum by__constraint_expression_kind {
    BY__EXPR_EMPTY = 0, /* the empty text */
    BY__EXPR_BYTES,     /* one byte in first..last */
    BY__EXPR_CLASS,     /* one character */
    BY__EXPR_CONCAT,    /* a, then b */
    BY__EXPR_EITHER,    /* a or b */
    BY__EXPR_REPEAT,    /* a, repeated first to last times; last may be BY__UNBOUNDED */
    BY__EXPR_CALL,      /* a call of rule `first` */
    BY__EXPR_NUMBER,    /* a decimal number of a range, see by__constraint_number_spec */
} by__constraint_expression_kind;

#define BY__UNBOUNDED UINT32_MAX

struct by__constraint_number_spec;
struct by__constraint_character_class;

typedef struct by__constraint_expression {
    by__constraint_expression_kind kind;
    uint32_t first;
    uint32_t last;
    const struct by__constraint_expression *a;
    const struct by__constraint_expression *b;
    const struct by__constraint_number_spec *number;
    const struct by__constraint_character_class *class;
} by__constraint_expression;

/* How the characters of a text are written: literally, or inside a JSON string. */
typedef enum by__constraint_writing { BY__PLAIN = 0, BY__IN_JSON } by__constraint_writing;

typedef struct by__constraint_character_class {
    const by__constraint_code_range *ranges;
    size_t count;
    by__constraint_writing writing;
} by__constraint_character_class;

typedef struct by__constraint_language {
    struct by__constraint_block *blocks;
    const by__constraint_expression *
        *rules; /* NULL until by__constraint_language_define is called */
    size_t rule_count;
    size_t rule_capacity;
    by__constraint_code_set without[3]; /* complements for \D, \W and \S, computed at first use */
    size_t nodes;
    bool failed; /* too many nodes, or out of memory: see by__constraint_language_status */
    bool exhausted;
} by__constraint_language;

void by__constraint_language_close(by__constraint_language *language);
/* Returns BY_OK, BY_EARG (more than BY__MAX_NODES) or BY_EMEMORY. */
by_status by__constraint_language_status(const by__constraint_language *language, by_error *error);
/* Allocates zeroed memory that lives as long as the language. NULL on failure. */
void *by__constraint_language_alloc(by__constraint_language *language, size_t bytes);

const by__constraint_expression *by__constraint_expr_empty(by__constraint_language *language);
const by__constraint_expression *by__constraint_expr_bytes(by__constraint_language *language,
                                                           uint8_t first, uint8_t last);
const by__constraint_expression *by__constraint_expr_concat(by__constraint_language *language,
                                                            const by__constraint_expression *a,
                                                            const by__constraint_expression *b);
/* Here a or b may be NULL, which means no text at all, unless the language has failed. */
const by__constraint_expression *by__constraint_expr_either(by__constraint_language *language,
                                                            const by__constraint_expression *a,
                                                            const by__constraint_expression *b);
const by__constraint_expression *by__constraint_expr_repeat(by__constraint_language *language,
                                                            const by__constraint_expression *a,
                                                            uint32_t least, uint32_t most);
const by__constraint_expression *by__constraint_expr_optional(by__constraint_language *language,
                                                              const by__constraint_expression *a);
const by__constraint_expression *by__constraint_expr_call(by__constraint_language *language,
                                                          uint32_t rule);
const by__constraint_expression *by__constraint_expr_text(by__constraint_language *language,
                                                          const char *text, size_t length);
/* One character of a closed set. Returns NULL if the set is empty. */
const by__constraint_expression *by__constraint_expr_class(by__constraint_language *language,
                                                           const by__constraint_code_set *set,
                                                           by__constraint_writing writing);
/* Adds a rule without an expression. Returns its number, or BY__UNBOUNDED on failure. */
uint32_t by__constraint_language_rule(by__constraint_language *language);
void by__constraint_language_define(by__constraint_language *language, uint32_t rule,
                                    const by__constraint_expression *expression);

/* ---- regular expressions (regex.c) ---- */

/* Parses `pattern`. anchored: the whole text must match, as in a constraint. Otherwise any part of
 * it may match, as with JSON Schema's `pattern`, and ^ and $ anchor. BY_EARG says what is not
 * supported and where. */
by_status by__constraint_regex_parse(const by__constraint_expression **out,
                                     by__constraint_language *language, const char *pattern,
                                     size_t length, bool anchored, by__constraint_writing writing,
                                     by_error *error);

/* ---- numbers (number_range.c) ---- */

#define BY__MAX_DIGITS 19

/* Decimal numbers without exponent, with `fraction` digits after the point (0: no point). Bounds
 * and multiple apply to the absolute value, in units of 10^-fraction. */
typedef struct by__constraint_number_spec {
    int fraction;
    uint64_t low;      /* minimum */
    uint64_t high;     /* maximum */
    uint64_t multiple; /* 0: any */
} by__constraint_number_spec;

/* The keywords of a schema about a number. */
typedef struct by__constraint_number_limits {
    bool integer;
    bool has_low, has_high, low_open, high_open;
    double low, high;
    double multiple; /* 0: none */
} by__constraint_number_limits;

/* Numbers within limits. BY_EARG: they have more digits than can be checked, or no number fits. */
by_status by__constraint_number_expression(const by__constraint_expression **out,
                                           by__constraint_language *language,
                                           const by__constraint_number_limits *limits,
                                           const char *where, by_error *error);

/* ---- schemas (json_schema.c) ---- */

/* Parses a JSON schema; *root is the rule of its root. BY_EARG names the place and the keyword. */
by_status by__constraint_schema_parse(uint32_t *root, by__constraint_language *language,
                                      const char *text, size_t length, by_error *error);
/* Makes a rule *root for any JSON value (object: any JSON object). */
by_status by__constraint_schema_any(uint32_t *root, by__constraint_language *language, bool object,
                                    by_error *error);

/* ---- automata (compile.c) ---- */

#define BY__DEAD (-1)

/* A call: enters state `start` of a rule and continues at `back` after the rule. */
typedef struct by__constraint_automata_call {
    int32_t start;
    int32_t back;
} by__constraint_automata_call;

typedef struct by__constraint_automata {
    uint8_t class_of[256]; /* bytes that no state distinguishes share a class */
    int32_t classes;
    int32_t states;
    int32_t root;        /* start state of the root rule */
    int32_t *next;       /* [states, classes]: next state, or BY__DEAD */
    uint8_t *accepts;    /* [states] */
    uint8_t *ends;       /* [states]: accepting, and nothing can follow within the rule */
    uint8_t *reads;      /* [states]: a byte can follow within the rule, other than by a call */
    int32_t *first_call; /* [states + 1]: the calls of state s start at first_call[s] */
    by__constraint_automata_call *calls;
} by__constraint_automata;

/* Compiles the rules for texts of the bytes in `has`, [256]; NULL: all bytes. BY_EARG: a bound was
 * exceeded, or a rule calls itself before reading anything; BY_EFORMAT, or BY_EARG without `has`:
 * no text fits. */
by_status by__constraint_automata_compile(by__constraint_automata *out,
                                          const by__constraint_language *language, uint32_t root,
                                          const bool *has, by_error *error);
void by__constraint_automata_free(by__constraint_automata *automata);

/* The nondeterministic automaton of all rules (nfa.c), to which class.c and number_range.c add
 * states. */
typedef struct by__constraint_edge {
    uint8_t first; /* bytes first..last */
    uint8_t last;
    int32_t to;
    int32_t next; /* the next edge of the same state, -1: none */
} by__constraint_edge;

typedef enum by__constraint_jump_kind { BY__JUMP_FREE = 0, BY__JUMP_CALL } by__constraint_jump_kind;

typedef struct by__constraint_jump {
    by__constraint_jump_kind kind;
    uint32_t rule; /* the rule that is called */
    int32_t to;
    int32_t next;
} by__constraint_jump;

typedef struct by__constraint_nfa_state {
    int32_t edges; /* -1: none */
    int32_t jumps;
} by__constraint_nfa_state;

typedef struct by__constraint_nfa {
    by__constraint_nfa_state *states;
    size_t count;
    size_t capacity;
    by__constraint_edge *edges;
    size_t edge_count;
    size_t edge_capacity;
    by__constraint_jump *jumps;
    size_t jump_count;
    size_t jump_capacity;
} by__constraint_nfa;

/* Adds states between two states for the texts of an expression. */
by_status by__constraint_nfa_build(by__constraint_nfa *nfa, const by__constraint_expression *e,
                                   int32_t from, int32_t to, by_error *error);
void by__constraint_nfa_free(by__constraint_nfa *nfa);
/* Adds a state and stores its number in *out. BY_EARG: more than BY__MAX_STATES. */
by_status by__constraint_nfa_state_add(by__constraint_nfa *nfa, int32_t *out, by_error *error);
by_status by__constraint_nfa_edge(by__constraint_nfa *nfa, int32_t from, uint8_t first,
                                  uint8_t last, int32_t to, by_error *error);
by_status by__constraint_nfa_free_jump(by__constraint_nfa *nfa, int32_t from, int32_t to,
                                       by_error *error);
/* Adds edges and states between two states for one character of a class. */
by_status by__constraint_nfa_class(by__constraint_nfa *nfa,
                                   const by__constraint_character_class *class, int32_t from,
                                   int32_t to, by_error *error);
/* Adds states between two states for the numbers of `spec`. */
by_status by__constraint_nfa_number(by__constraint_nfa *nfa, const by__constraint_number_spec *spec,
                                    int32_t from, int32_t to, by_error *error);

#endif
