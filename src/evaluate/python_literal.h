/* Python literals as JSON values: what a template makes of a list is Python's text of it. */
#ifndef BY_EVALUATE_PYTHON_LITERAL_H
#define BY_EVALUATE_PYTHON_LITERAL_H

#include <jansson.h>

#include "base/base.h"

/* Reads a list or tuple of texts, numbers, True, False, None, lists and tuples, as
 * ast.literal_eval does. Returns a new reference, or NULL if the text is no such literal (or memory
 * is exhausted). */
json_t *by__evaluate_python_list(const char *text, size_t length);

#endif
