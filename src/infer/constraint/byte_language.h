/* byte_language: sets of byte strings, from expressions to tables that a generation is checked
 * with.
 *
 * A regular expression (regex.c) or a JSON schema (json_schema.c, number_range.c) becomes
 * expressions over code points (expression.c), one for each rule of a grammar. A rule may call
 * another, which is how a schema refers to itself. compile.c makes one deterministic automaton of
 * bytes of each rule: Thompson's construction (1968; nfa.c, class.c), then subsets (Rabin and Scott
 * 1959), with a call as one more kind of transition, and takes out states from which no text can be
 * completed. walk.c runs the automata with a stack, constraint_state.c lists the tokens that may
 * come next.
 *
 * All of that has bounds, for schemas and expressions come from strangers: depth of nesting, nodes,
 * states, and elementary steps of the construction. What is over a bound is an error, never a
 * constraint that is left out.
 *
 * Ownership: a by__language owns its expressions, whose nodes live in blocks until it is closed; a
 * compiled by__automata owns its tables. A failed builder sets `failed` once; the functions that
 * make nodes then return NULL and accept it.
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
#define BY__MAX_NESTING 64 /* of groups of an expression, of objects within a schema */
#define BY__MAX_REPEAT  10000

/* ---- sets of code points (expression.c) ---- */

typedef struct by__code_range {
    uint32_t first;
    uint32_t last;
} by__code_range;

/* Sorted, without overlaps, once by__code_set_close was called. {0} is empty. */
typedef struct by__code_set {
    by__code_range *ranges;
    size_t count;
    size_t capacity;
} by__code_set;

by_status by__code_set_add(by__code_set *set, uint32_t first, uint32_t last, by_error *error);
/* Sorts and joins. */
void by__code_set_close(by__code_set *set);
/* All code points that are not in the set (closed), without surrogates. */
by_status by__code_set_negate(by__code_set *set, by_error *error);
void by__code_set_free(by__code_set *set);

/* ---- expressions (expression.c) ---- */

typedef enum by__expression_kind {
    BY__EXPR_EMPTY = 0, /* the empty text */
    BY__EXPR_BYTES,     /* one byte of first..last */
    BY__EXPR_CLASS,     /* one character */
    BY__EXPR_CONCAT,    /* a, then b */
    BY__EXPR_EITHER,    /* a or b */
    BY__EXPR_REPEAT,    /* a, first to last times; last BY__UNBOUNDED */
    BY__EXPR_CALL,      /* rule `first` */
    BY__EXPR_NUMBER,    /* a decimal number of a range, see by__number_spec */
} by__expression_kind;

#define BY__UNBOUNDED UINT32_MAX

struct by__number_spec;
struct by__character_class;

typedef struct by__expression {
    by__expression_kind kind;
    uint32_t first;
    uint32_t last;
    const struct by__expression *a;
    const struct by__expression *b;
    const struct by__number_spec *number;
    const struct by__character_class *class;
} by__expression;

/* How a character of a text is written: as it is, or within a JSON string. */
typedef enum by__writing { BY__PLAIN = 0, BY__IN_JSON } by__writing;

typedef struct by__character_class {
    const by__code_range *ranges;
    size_t count;
    by__writing writing;
} by__character_class;

typedef struct by__language {
    struct by__block *blocks;
    const by__expression **rules; /* NULL until by__language_define */
    size_t rule_count;
    size_t rule_capacity;
    by__code_set without[3]; /* what \D, \W and \S leave, found when one is first used */
    size_t nodes;
    bool failed; /* too many nodes, or memory is exhausted: see by__language_status */
    bool exhausted;
} by__language;

void by__language_close(by__language *language);
/* BY_OK, BY_EARG: over BY__MAX_NODES, or BY_EMEMORY. */
by_status by__language_status(const by__language *language, by_error *error);
/* Memory that lives as long as the language, zeroed; NULL when it failed. */
void *by__language_alloc(by__language *language, size_t bytes);

const by__expression *by__expr_empty(by__language *language);
const by__expression *by__expr_bytes(by__language *language, uint8_t first, uint8_t last);
const by__expression *by__expr_concat(by__language *language, const by__expression *a,
                                      const by__expression *b);
/* NULL (no text at all) is allowed as a or b of this one, as long as nothing failed. */
const by__expression *by__expr_either(by__language *language, const by__expression *a,
                                      const by__expression *b);
const by__expression *by__expr_repeat(by__language *language, const by__expression *a,
                                      uint32_t least, uint32_t most);
const by__expression *by__expr_optional(by__language *language, const by__expression *a);
const by__expression *by__expr_call(by__language *language, uint32_t rule);
const by__expression *by__expr_text(by__language *language, const char *text, size_t length);
/* One character of a closed set; NULL when the set is empty. */
const by__expression *by__expr_class(by__language *language, const by__code_set *set,
                                     by__writing writing);
/* Adds a rule without an expression yet. Its number, or BY__UNBOUNDED when it failed. */
uint32_t by__language_rule(by__language *language);
void by__language_define(by__language *language, uint32_t rule, const by__expression *expression);

/* ---- regular expressions (regex.c) ---- */

/* Parses `pattern`. anchored: the whole text must match, as for a constraint; otherwise a part of
 * it may, as JSON Schema's `pattern` means it, and ^ and $ anchor. BY_EARG names what is not
 * supported and where. */
by_status by__regex_parse(const by__expression **out, by__language *language, const char *pattern,
                          size_t length, bool anchored, by__writing writing, by_error *error);

/* ---- numbers (number_range.c) ---- */

#define BY__MAX_DIGITS 19

/* Decimal numbers without exponent: `whole` digits at most before the point, `fraction` behind it
 * (0: no point). Bounds and multiple are in units of 10^-fraction, of the absolute value. */
typedef struct by__number_spec {
    int fraction;
    uint64_t low;      /* at least */
    uint64_t high;     /* at most */
    uint64_t multiple; /* 0: any */
} by__number_spec;

/* What the keywords of a schema say of a number, as their JSON texts' values. */
typedef struct by__number_limits {
    bool integer;
    bool has_low, has_high, low_open, high_open;
    double low, high;
    double multiple; /* 0: none */
} by__number_limits;

/* Numbers within limits. BY_EARG: they have more digits than can be checked, or nothing fits. */
by_status by__number_expression(const by__expression **out, by__language *language,
                                const by__number_limits *limits, const char *where,
                                by_error *error);

/* ---- schemas (json_schema.c) ---- */

/* Parses a JSON schema. Its root is rule *root. BY_EARG names the place and the keyword. */
by_status by__schema_parse(uint32_t *root, by__language *language, const char *text, size_t length,
                           by_error *error);
/* Any JSON value (object: any JSON object) as rule *root. */
by_status by__schema_any(uint32_t *root, by__language *language, bool object, by_error *error);

/* ---- automata (compile.c) ---- */

#define BY__DEAD (-1)

/* A call: `rule`'s first state is entered, and `back` when it is done. */
typedef struct by__automata_call {
    int32_t start;
    int32_t back;
} by__automata_call;

typedef struct by__automata {
    uint8_t class_of[256]; /* bytes that no state tells apart have one class */
    int32_t classes;
    int32_t states;
    int32_t root;        /* first state of the root rule */
    int32_t *next;       /* [states, classes]: a state or BY__DEAD */
    uint8_t *accepts;    /* [states] */
    uint8_t *ends;       /* [states]: accepts, and nothing can follow within the rule */
    int32_t *first_call; /* [states + 1]: the calls of state s are first_call[s].. */
    by__automata_call *calls;
} by__automata;

/* Texts are of the bytes that `has` says, [256]; NULL: of any. BY_EARG: over a bound, a rule that
 * calls itself before anything is read, or no text at all fits. */
by_status by__automata_compile(by__automata *out, const by__language *language, uint32_t root,
                               const bool *has, by_error *error);
void by__automata_free(by__automata *automata);

/* The nondeterministic automaton of all rules (nfa.c), which class.c and number_range.c add to. */
typedef struct by__edge {
    uint8_t first; /* bytes first..last */
    uint8_t last;
    int32_t to;
    int32_t next; /* the next edge of the same state, -1: none */
} by__edge;

typedef enum by__jump_kind { BY__JUMP_FREE = 0, BY__JUMP_CALL } by__jump_kind;

typedef struct by__jump {
    by__jump_kind kind;
    uint32_t rule; /* of a call */
    int32_t to;
    int32_t next;
} by__jump;

typedef struct by__nfa_state {
    int32_t edges; /* -1: none */
    int32_t jumps;
} by__nfa_state;

typedef struct by__nfa {
    by__nfa_state *states;
    size_t count;
    size_t capacity;
    by__edge *edges;
    size_t edge_count;
    size_t edge_capacity;
    by__jump *jumps;
    size_t jump_count;
    size_t jump_capacity;
} by__nfa;

/* States for the texts of an expression between two states. */
by_status by__nfa_build(by__nfa *nfa, const by__expression *e, int32_t from, int32_t to,
                        by_error *error);
void by__nfa_free(by__nfa *nfa);
/* The new state's number in *out. BY_EARG: over BY__MAX_STATES. */
by_status by__nfa_state_add(by__nfa *nfa, int32_t *out, by_error *error);
by_status by__nfa_edge(by__nfa *nfa, int32_t from, uint8_t first, uint8_t last, int32_t to,
                       by_error *error);
by_status by__nfa_free_jump(by__nfa *nfa, int32_t from, int32_t to, by_error *error);
/* Edges and states for one character of a class between two states. */
by_status by__nfa_class(by__nfa *nfa, const by__character_class *class, int32_t from, int32_t to,
                        by_error *error);
/* States for the numbers of `spec` between two states. */
by_status by__nfa_number(by__nfa *nfa, const by__number_spec *spec, int32_t from, int32_t to,
                         by_error *error);

#endif
