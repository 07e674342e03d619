/* State of the parser of templates, shared by template_parser.c (statements) and
 * template_parse_expression.c (expressions). */
#ifndef BY_TEXT_TEMPLATE_TEMPLATE_PARSER_H
#define BY_TEXT_TEMPLATE_TEMPLATE_PARSER_H

#include "text/template/template.h"

typedef struct by__parser {
    by__template *tpl;
    const by__token *token;
    unsigned depth;
    unsigned loops; /* number of loops around the token */
    by_error *error;
} by__parser;

/* BY_EFORMAT: "NAME:LINE: what 'token'". */
by_status by__parse_fail(const by__parser *p, const char *what);
/* Return true if the current token is this operator, or this word; the `take` variants also consume
 * it. */
bool by__parse_is_op(const by__parser *p, const char *op);
bool by__parse_is_word(const by__parser *p, const char *word);
bool by__parse_take_op(by__parser *p, const char *op);
bool by__parse_take_word(by__parser *p, const char *word);
by_status by__parse_expect_op(by__parser *p, const char *op);
/* Enters a level of depth, which the caller leaves (p->depth--) on success. */
by_status by__parse_enter(by__parser *p);
by_status by__parse_node(by__parser *p, by__node_kind kind, by__template_node **out);
/* Consumes a name; the string lives as long as the template. */
by_status by__parse_name_of(by__parser *p, const char **out);
/* Parses arguments after a consumed "(". */
by_status by__parse_arguments(by__parser *p, by__template_node **out);
/* Parses the filters and tests that follow an operand. */
by_status by__parse_filters(by__parser *p, by__template_node **node);
/* Parses an expression without "a if b else c", as after "in" of a loop. */
by_status by__parse_plain(by__parser *p, by__template_node **out);
by_status by__parse_expression(by__parser *p, by__template_node **out);
/* Parses an expression, or several separated by commas: a tuple. */
by_status by__parse_tuple(by__parser *p, by__template_node **out);

#endif
