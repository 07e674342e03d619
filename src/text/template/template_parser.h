/* State of the parser of templates, shared by template_parser.c (statements) and
 * template_parse_expression.c (expressions). */
#ifndef BY_TEXT_TEMPLATE_TEMPLATE_PARSER_H
#define BY_TEXT_TEMPLATE_TEMPLATE_PARSER_H

#include "text/template/template.h"

typedef struct by__template_parser {
    by__template *tpl;
    const by__template_token *token;
    unsigned depth;
    unsigned loops; /* number of loops around the token */
    by_error *error;
} by__template_parser;

/* BY_EFORMAT: "NAME:LINE: what 'token'". */
by_status by__template_parse_fail(const by__template_parser *p, const char *what);
/* Return true if the current token is this operator, or this word; the `take` variants also consume
 * it. */
bool by__template_parse_is_op(const by__template_parser *p, const char *op);
bool by__template_parse_is_word(const by__template_parser *p, const char *word);
bool by__template_parse_accept_op(by__template_parser *p, const char *op);
bool by__template_parse_accept_word(by__template_parser *p, const char *word);
by_status by__template_parse_expect_op(by__template_parser *p, const char *op);
/* Enters a level of depth, which the caller leaves (p->depth--) on success. */
by_status by__template_parse_enter(by__template_parser *p);
by_status by__template_parse_node(by__template_parser *p, by__template_node_kind kind,
                                  by__template_node **out);
/* Consumes a name; the string lives as long as the template. */
by_status by__template_parse_name_of(by__template_parser *p, const char **out);
/* Parses arguments after a consumed "(". */
by_status by__template_parse_arguments(by__template_parser *p, by__template_node **out);
/* Parses the filters and tests that follow an operand. */
by_status by__template_parse_filters(by__template_parser *p, by__template_node **node);
/* Parses an expression without "a if b else c", as after "in" of a loop. */
by_status by__template_parse_plain(by__template_parser *p, by__template_node **out);
by_status by__template_parse_expression(by__template_parser *p, by__template_node **out);
/* Parses an expression, or several separated by commas: a tuple. */
by_status by__template_parse_tuple(by__template_parser *p, by__template_node **out);

#endif
