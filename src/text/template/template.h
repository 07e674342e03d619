/* text/template: chat templates.
 *
 * What it is for: the subset of Jinja that published chat templates use, as transformers runs them
 * (trim_blocks, lstrip_blocks, loop controls, an immutable sandbox). A template is lexed
 * (template_lexer.c) and parsed (template_parser.c) into nodes once; rendering walks them
 * (template_render.c: statements; template_expression.c: expressions; template_filters.c,
 * template_tests.c and template_methods.c: functions called by name). by__template_value is a
 * Python value (template_value.c, template_text.c, template_json.c). chat_template.c implements the
 * public functions.
 *
 * Who owns what: nodes and their strings live in the template's arena; values in the render's,
 * which ends with the call. Values never change, except the attributes of a namespace.
 *
 * Bounds: a render limits steps, bytes of values, bytes of output and depth, so that any template
 * ends in bounded time. Every evaluated node is a step; operations on many elements or bytes count
 * these too.
 *
 * Never put here: files other than templates, tokenizers, any access to data that the caller did
 * not pass: no imports, no attributes of host objects, no environment.
 */
#ifndef BY_TEXT_TEMPLATE_TEMPLATE_H
#define BY_TEXT_TEMPLATE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/base.h"

#define BY__TEMPLATE_MAX_BYTES ((size_t)1 << 20)
#define BY__TEMPLATE_MAX_DEPTH 100u /* depth of nested constructs in a template's text */

/* ---- arena: memory that is freed at once ---- */

typedef struct by__template_arena_block by__template_arena_block;
typedef struct by__template_arena {
    by__template_arena_block *blocks;
    size_t left; /* bytes that may still be allocated */
} by__template_arena;

/* Allocates zeroed memory, aligned for any value. BY_EARG: the limit is reached. */
by_status by__template_arena_allocate(by__template_arena *arena, void **out, size_t count,
                                      size_t size, by_error *error);
void by__template_arena_free(by__template_arena *arena);

/* ---- values ---- */

typedef enum by__template_value_kind {
    BY__UNDEFINED, /* string: the undefined name */
    BY__NONE,
    BY__BOOL,
    BY__INTEGER,
    BY__REAL,
    BY__SPELLED, /* string: the text of a number, which it keeps */
    BY__STRING,
    BY__LIST,
    BY__MAP,
    BY__NAMESPACE,
    BY__MACRO,
    BY__BUILTIN, /* a builtin function; string: its name */
    BY__METHOD   /* a method of an object */
} by__template_value_kind;

typedef struct by__template_value by__template_value;
typedef struct by__template_pair by__template_pair;
typedef struct by__template_node by__template_node;
typedef struct by__template_scope by__template_scope;

typedef struct by__template_list {
    by__template_value *items;
    size_t count;
    bool tuple;
} by__template_list;

typedef struct by__template_table {
    by__template_pair *pairs;
    size_t count;
    size_t capacity;
} by__template_table;

typedef struct by__template_macro {
    const by__template_node *node;
    by__template_scope *scope; /* scope of its definition */
} by__template_macro;

typedef struct by__template_method {
    by__template_value *object;
    const char *name;
} by__template_method;

struct by__template_value {
    by__template_value_kind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        struct {
            const char *data;
            size_t length;
        } string; /* also the name of BY__UNDEFINED and BY__BUILTIN */
        by__template_list *list;
        by__template_table *table; /* of BY__MAP and BY__NAMESPACE */
        by__template_macro *macro;
        by__template_method *method;
    } as;
};

struct by__template_pair {
    by__template_value key;
    by__template_value value;
};

/* ---- nodes ---- */

typedef enum by__template_node_kind {
    BY__NODE_TEXT,     /* value */
    BY__NODE_PRINT,    /* a */
    BY__NODE_IF,       /* a: test; body; other */
    BY__NODE_FOR,      /* a: target; b: iterable; c: condition or NULL; body; other */
    BY__NODE_SET,      /* a: target; b: value, or NULL: body is the value */
    BY__NODE_MACRO,    /* name; a: parameters; body */
    BY__NODE_FILTERED, /* a: filter chain whose innermost operand is NULL; body */
    BY__NODE_GROUP,    /* body: what the model wrote (generation) */
    BY__NODE_WITH,     /* a: targets; b: values, as many; body */
    BY__NODE_BREAK,
    BY__NODE_CONTINUE,
    BY__NODE_CONSTANT,  /* value */
    BY__NODE_NAME,      /* name */
    BY__NODE_LIST,      /* a: items; tuple: op */
    BY__NODE_DICT,      /* a: key, value, key, ... */
    BY__NODE_ATTRIBUTE, /* a, name */
    BY__NODE_INDEX,     /* a, b */
    BY__NODE_SLICE,     /* a, b: from, to; c: step; each may be NULL; body: the object */
    BY__NODE_CALL,      /* a; b: arguments */
    BY__NODE_KEYWORD,   /* name; a: value (an argument or a parameter's default) */
    BY__NODE_FILTER,    /* a; name; b: arguments */
    BY__NODE_TEST,      /* a; name; b: arguments; op: negated */
    BY__NODE_UNARY,     /* op; a */
    BY__NODE_BINARY,    /* op; a; b */
    BY__NODE_COMPARE,   /* a; b: chain of BY__NODE_OPERAND */
    BY__NODE_OPERAND,   /* op; a */
    BY__NODE_CONDITION  /* a if b else c (NULL: undefined) */
} by__template_node_kind;

typedef enum by__template_operator {
    BY__OP_NONE,
    BY__OP_ADD,
    BY__OP_SUBTRACT,
    BY__OP_MULTIPLY,
    BY__OP_DIVIDE,
    BY__OP_FLOOR,
    BY__OP_MODULO,
    BY__OP_POWER,
    BY__OP_JOIN, /* ~ */
    BY__OP_AND,
    BY__OP_OR,
    BY__OP_NOT,
    BY__OP_EQUAL,
    BY__OP_UNEQUAL,
    BY__OP_LESS,
    BY__OP_LESS_EQUAL,
    BY__OP_MORE,
    BY__OP_MORE_EQUAL,
    BY__OP_IN,
    BY__OP_NOT_IN
} by__template_operator;

struct by__template_node {
    by__template_node_kind kind;
    by__template_operator op;
    unsigned line;
    const char *name;
    by__template_value value;
    by__template_node *a;
    by__template_node *b;
    by__template_node *c;
    by__template_node *body;
    by__template_node *other;
    by__template_node *next; /* in the chain that it belongs to */
};

/* A parsed template. */
typedef struct by__template {
    char *name;   /* for messages */
    char *source; /* with line ends as '\n'; owned by the handle, like the rest */
    by__template_arena arena;
    by__template_node *body;
    /* White space at blocks and a newline at the end stay, and to print an undefined value is an
     * error: keep_trailing_newline and StrictUndefined. Else as for chat templates. */
    bool plain;
    bool marks; /* it has {% generation %} */
} by__template;

by_status by__template_parse(by__template *out, const char *source, size_t length, const char *name,
                             by_error *error);
/* The same for a text of fields that is no chat template (`plain`). */
by_status by__template_parse_text(by__template *out, const char *source, size_t length,
                                  const char *name, by_error *error);
void by__template_free(by__template *tpl);
/* Returns true if the template iterates over the parts of a message's content
 * (template_content.c). */
bool by__template_accepts_parts(const by__template *tpl);

/* ---- tokens ---- */

typedef enum by__template_token_kind {
    BY__TOKEN_TEXT,
    BY__TOKEN_BLOCK,     /* {% */
    BY__TOKEN_BLOCK_END, /* %} */
    BY__TOKEN_PRINT,     /* {{ */
    BY__TOKEN_PRINT_END, /* }} */
    BY__TOKEN_NAME,
    BY__TOKEN_STRING, /* including its quotes */
    BY__TOKEN_INTEGER,
    BY__TOKEN_REAL,
    BY__TOKEN_OPERATOR,
    BY__TOKEN_END
} by__template_token_kind;

typedef struct by__template_token {
    by__template_token_kind kind;
    unsigned line;
    const char *data;
    size_t length;
} by__template_token;

/* Splits a template's source into tokens, ended by BY__TOKEN_END; freed with free(). */
by_status by__template_lex(const by__template *tpl, by__template_token **out, by_error *error);

/* ---- rendering ---- */

/* Bytes [begin, end) of a text. */
typedef struct by__template_span {
    size_t begin;
    size_t end;
} by__template_span;

typedef struct by__template_spans {
    by__template_span *items;
    size_t count;
    size_t capacity;
    bool hidden; /* one was inside a captured text (a macro, a block that is set): its place in the
                    output is unknown */
} by__template_spans;

struct by__template_scope {
    by__template_scope *parent;
    by__template_table variables; /* keys are strings */
};

typedef struct by__template_render {
    const by__template *tpl;
    by__template_arena arena;
    uint64_t steps; /* steps left */
    size_t output;  /* bytes left */
    unsigned depth;
    unsigned line;
    unsigned captured; /* texts that are being captured; 0: the output is printed */
    by_string *out;
    by__template_scope *scope;
    const by__template_value *subject; /* of a filter without an operand: the output of its body */
    by__template_node_kind
        leaving; /* BY__NODE_BREAK or BY__NODE_CONTINUE while a loop is being left */
    int64_t now; /* seconds since 1970, for strftime_now */
    struct by__template_spans *spans; /* of {% generation %} in the output; NULL: not wanted */
    by_error *error;
} by__template_render;

/* BY_EARG: "NAME:LINE: message". */
by_status by__template_render_fail(by__template_render *r, const char *format, ...) BY_PRINTF(2, 3);
/* Counts steps; BY_EARG if the limit is reached. */
by_status by__template_render_steps(by__template_render *r, size_t count);
/* Counts a step and enters a level of depth, which the caller leaves (r->depth--) on success. */
by_status by__template_render_enter(by__template_render *r);
by_status by__template_render_allocate(by__template_render *r, void **out, size_t count,
                                       size_t size);
by_status by__template_render_body(by__template_render *r, const by__template_node *body);
/* Renders a body into a string. */
by_status by__template_render_capture(by__template_render *r, const by__template_node *body,
                                      by__template_value *out);
by_status by__template_render_expression(by__template_render *r, const by__template_node *node,
                                         by__template_value *out);

/* Arguments of a call. */
typedef struct by__template_arguments {
    const by__template_value *values;
    size_t count;
    const by__template_pair *keywords;
    size_t keyword_count;
} by__template_arguments;

/* The argument at `index` or with that name; NULL if it is not given. */
const by__template_value *by__template_argument(const by__template_arguments *arguments,
                                                size_t index, const char *name);
/* BY_EARG: more than `most` arguments, or a keyword that is not in `names` (ended by NULL). */
by_status by__template_arguments_check(by__template_render *r,
                                       const by__template_arguments *arguments, const char *what,
                                       size_t most, const char *const *names);
by_status by__template_call(by__template_render *r, const by__template_value *callee,
                            const by__template_arguments *arguments, by__template_value *out);
/* A row of a table of filters; a row without a name ends it. */
typedef struct by__template_filter_row {
    const char *name;
    by_status (*call)(by__template_render *r, const by__template_value *subject,
                      const by__template_arguments *arguments, by__template_value *out);
} by__template_filter_row;
extern const by__template_filter_row by__template_list_filters[]; /* template_list_filters.c */
/* re.sub, in plain templates (template_pattern.c). */
by_status by__template_filter_regex_replace(by__template_render *r,
                                            const by__template_value *subject,
                                            const by__template_arguments *arguments,
                                            by__template_value *out);
/* Rounding as in Python, and its operator % (template_format.c). */
by_status by__template_filter_round(by__template_render *r, const by__template_value *subject,
                                    const by__template_arguments *arguments,
                                    by__template_value *out);
by_status by__template_filter_format(by__template_render *r, const by__template_value *subject,
                                     const by__template_arguments *arguments,
                                     by__template_value *out);
by_status by__template_filter(by__template_render *r, const char *name,
                              const by__template_value *subject,
                              const by__template_arguments *arguments, by__template_value *out);
by_status by__template_test(by__template_render *r, const char *name,
                            const by__template_value *subject,
                            const by__template_arguments *arguments, bool *out);
/* Returns true if values of a kind have a method of this name. */
bool by__template_method_exists(by__template_value_kind kind, const char *name);
by_status by__template_method_call(by__template_render *r, const by__template_value *object,
                                   const char *name, const by__template_arguments *arguments,
                                   by__template_value *out);
/* Joins the items as text, separated by the string `mark`. */
by_status by__template_join(by__template_render *r, const by__template_value *mark,
                            const by__template_list *items, by__template_value *out);
/* Returns true if there is a builtin function of this name. */
bool by__template_builtin_exists(const char *name);
by_status by__template_builtin_call(by__template_render *r, const char *name,
                                    const by__template_arguments *arguments,
                                    by__template_value *out);

/* ---- working with values (template_value.c) ---- */

by__template_value by__template_value_none(void);
by__template_value by__template_value_bool(bool truth);
by__template_value by__template_value_integer(int64_t integer);
/* Borrows data, which must live as long as the render. */
by__template_value by__template_value_string(const char *data, size_t length);
by__template_value by__template_value_undefined(const char *name);
by_status by__template_value_copy_string(by__template_render *r, const char *data, size_t length,
                                         by__template_value *out);
/* Makes a value of the text that was built; frees the text. */
by_status by__template_value_move_text(by__template_render *r, by_string *text,
                                       by__template_value *out);
/* Allocates a list of `count` uninitialized items. */
by_status by__template_value_list(by__template_render *r, size_t count, bool tuple,
                                  by__template_value *out);
by_status by__template_value_map(by__template_render *r, by__template_value *out);
by_status by__template_table_put(by__template_render *r, by__template_table *table,
                                 const by__template_value *key, const by__template_value *value);
by__template_value *by__template_table_find(const by__template_table *table, const char *key,
                                            size_t length);
/* BY_EARG for values that cannot be keys: lists and mappings. */
by_status by__template_check_key(by__template_render *r, const by__template_value *key);
/* Looks up any key. */
by_status by__template_table_get(by__template_render *r, const by__template_table *table,
                                 const by__template_value *key, by__template_value **out);
bool by__template_value_is(const by__template_value *value, const char *text);
/* True for integers, reals, and booleans, which count as 0 and 1; the other functions convert
 * them. Numbers that keep their text count as reals. */
bool by__template_value_is_number(const by__template_value *v);
bool by__template_value_is_real(const by__template_value *v);
double by__template_value_real(const by__template_value *v);
int64_t by__template_value_whole(const by__template_value *v);
bool by__template_value_true(const by__template_value *value);
by_status by__template_value_equal(by__template_render *r, const by__template_value *a,
                                   const by__template_value *b, bool *out);
/* Compares: < 0, 0, > 0; BY_EARG if the values have no order. */
by_status by__template_value_compare(by__template_render *r, const by__template_value *a,
                                     const by__template_value *b, int *out);
by_status by__template_value_contains(by__template_render *r, const by__template_value *all,
                                      const by__template_value *one, bool *out);
/* The elements of an iterable: items, keys, characters. BY_EARG names `what`. */
by_status by__template_value_items(by__template_render *r, const by__template_value *value,
                                   by__template_list **out);
by_status by__template_value_length(by__template_render *r, const by__template_value *value,
                                    int64_t *out);
/* value[key], or value.name if `attribute`; undefined if it does not exist. */
by_status by__template_value_get(by__template_render *r, const by__template_value *value,
                                 const by__template_value *key, bool attribute,
                                 by__template_value *out);
by_status by__template_value_slice(by__template_render *r, const by__template_value *value,
                                   const by__template_value *from, const by__template_value *to,
                                   const by__template_value *step, by__template_value *out);
by_status by__template_value_operate(by__template_render *r, by__template_operator op,
                                     const by__template_value *a, const by__template_value *b,
                                     by__template_value *out);
/* The kind of a value for messages: "a string", "a list", ... */
const char *by__template_value_word(const by__template_value *value);
bool by__template_is_space(const char *s, size_t n, size_t *length);
/* Strips whitespace, or the characters of `set`, from the ends. */
void by__template_strip(const char **s, size_t *n, const by__template_value *set, bool left,
                        bool right);

/* ---- values from JSON (template_json.c) ---- */

by_status by__template_value_of_json(by__template_render *r, const json_t *json,
                                     by__template_value *out);
/* Renders a template with the members of a JSON object as its variables. *out ends with a NUL and
 * is freed with free(). BY_EARG: a variable that it prints is missing, or it fails otherwise. */
by_status by__template_render_json(const by__template *tpl, const json_t *variables, char **out,
                                   size_t *length, by_error *error);

/* ---- values as text (template_text.c) ---- */

/* str(value). */
by_status by__template_value_text(by__template_render *r, const by__template_value *value,
                                  by__template_value *out);
by_status by__template_value_json(by__template_render *r, const by__template_value *value,
                                  const by__template_arguments *arguments, by__template_value *out);

#ifdef __clang_analyzer__
/* by__template_render_fail always returns BY_EARG; the macro lets the static analyzer see that. */
#define by__template_render_fail(...) ((void)(by__template_render_fail)(__VA_ARGS__), BY_EARG)
#endif

#endif
