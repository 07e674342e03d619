/* The parser of templates: where it is (template_parser.c, with statements) and what an expression
 * is (template_parse_expression.c). */
#ifndef BY_DATA_TEMPLATE_TEMPLATE_PARSER_H
#define BY_DATA_TEMPLATE_TEMPLATE_PARSER_H

#include "data/template/template.h"

typedef struct by__parser {
    by__template *tpl;
    const by__token *token;
    unsigned depth;
    unsigned loops; /* around the token */
    by_error *error;
} by__parser;

/* BY_EFORMAT: "NAME:LINE: what 'token'". */
by_status by__parse_fail(const by__parser *p, const char *what);
/* Whether the token is this operator, or this word; the `take` forms pass over it then. */
bool by__parse_is_op(const by__parser *p, const char *op);
bool by__parse_is_word(const by__parser *p, const char *word);
bool by__parse_take_op(by__parser *p, const char *op);
bool by__parse_take_word(by__parser *p, const char *word);
by_status by__parse_expect_op(by__parser *p, const char *op);
/* A level of depth, which the caller takes back (p->depth--) on success. */
by_status by__parse_enter(by__parser *p);
by_status by__parse_node(by__parser *p, by__node_kind kind, by__node **out);
/* The word that the token is, which is passed over; it lives as long as the template. */
by_status by__parse_name_of(by__parser *p, const char **out);
/* Arguments behind "(", which is taken. */
by_status by__parse_arguments(by__parser *p, by__node **out);
/* The filters and tests behind an operand. */
by_status by__parse_filters(by__parser *p, by__node **node);
/* Without "a if b else c", as behind "in" of a loop. */
by_status by__parse_plain(by__parser *p, by__node **out);
by_status by__parse_expression(by__parser *p, by__node **out);
/* An expression, or several with commas: a tuple. */
by_status by__parse_tuple(by__parser *p, by__node **out);

#endif
