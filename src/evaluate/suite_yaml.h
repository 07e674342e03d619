/* YAML as JSON values, for files that are not configs of banyan. */
#ifndef BY_EVALUATE_SUITE_YAML_H
#define BY_EVALUATE_SUITE_YAML_H

#include <jansson.h>

#include "base/base.h"

/* Reads the first document of a YAML text: mappings, lists and scalars, which are numbers, truths
 * and nulls where YAML 1.1 says so, as Python's yaml.safe_load has them. A value with a tag of its
 * own, `!function f`, becomes the object {"!function": "f"}; an alias becomes a copy; the key <<
 * adds the keys of other mappings that the mapping has not. BY_EFORMAT, with name and line, if it
 * is not YAML, a key is no scalar or occurs twice, or it is nested too deeply or grows too
 * large. */
by_status by__evaluate_yaml(json_t **out, const char *name, const char *text, size_t length,
                            by_error *error);

#endif
