/* Queries of targets: NAME=VALUE, separated by '&', with %XX and + escapes. */
#ifndef BY_SERVE_HTTP_QUERY_H
#define BY_SERVE_HTTP_QUERY_H

#include <stdbool.h>
#include <stddef.h>

/* Most parameters of a query. */
#define BY__QUERY_MAX 64

/* Returns true if every escape is whole, no NUL is encoded, and no name comes twice: programs take
 * the first, the last, or both. At most BY__QUERY_MAX parameters. */
bool by__http_query_valid(const char *query);
/* Decodes the value of a parameter of a valid query into `out`; its name needs no escapes. Returns
 * its length, or -1 if there is none or it does not fit. */
long by__http_query_value(char *out, size_t size, const char *query, const char *name);

#endif
