/* Stores a reference as JSON. Reading is strict, so that mistakes in edited files are reported. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "drift/drift.h"

#define SCHEMA       "banyan.drift_reference"
#define VERSION      2 /* version 1 has no roles of features */
#define MAX_BYTES    ((size_t)64 << 20)
#define MAX_FEATURES ((size_t)100000) /* largest number of features */
#define MAX_COUNT    9007199254740992.0

static const char *const kinds[] = {"number", "category", "tokens"};
static const char *const roles[] = {"input", "outcome", "confidence"};

/* ---- printing ---- */

static json_t *list_of(const double *values, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        double v = values[i];
        (void)json_array_append_new(list, v == floor(v) && fabs(v) < MAX_COUNT
                                              ? json_integer((json_int_t)v)
                                              : json_real(v));
    }
    return list;
}

/* Returns NULL when memory is exhausted, or if a name or value is not UTF-8. */
static json_t *print_feature(const by__drift_feature *f)
{
    json_t *o = json_pack("{ss ss sI sI so}", "name", f->name, "kind", kinds[f->kind], "rows",
                          (json_int_t)f->rows, "missing", (json_int_t)f->missing, "counts",
                          list_of(f->counts, f->bins));
    bool failed = o == NULL;
    if (f->role != BY_DRIFT_INPUT) {
        failed = json_object_set_new(o, "role", json_string(roles[f->role])) != 0 || failed;
    }
    if (f->kind == BY_DRIFT_NUMBER) {
        failed = json_object_set_new(o, "edges", list_of(f->edges, f->edge_count)) != 0 || failed;
        failed = json_object_set_new(o, "mean", json_real(f->mean)) != 0 || failed;
        failed = json_object_set_new(o, "deviation", json_real(f->deviation)) != 0 || failed;
    } else {
        json_t *kept = json_array();
        for (size_t i = 0; i < f->kept; i++) {
            json_t *one =
                f->kind == BY_DRIFT_CATEGORY ? json_string(f->values[i]) : json_integer(f->ids[i]);
            failed = json_array_append_new(kept, one) != 0 || failed;
        }
        const char *key = f->kind == BY_DRIFT_CATEGORY ? "values" : "ids";
        failed = json_object_set_new(o, key, kept) != 0 || failed;
        failed = json_object_set_new(o, "distinct", json_integer((json_int_t)f->distinct)) != 0 ||
                 failed;
    }
    if (failed) {
        json_decref(o);
        return NULL;
    }
    return o;
}

by_status by_drift_reference_print(const by_drift_reference *reference, char **out, by_error *error)
{
    const by_drift_reference *r = reference;
    json_t *features = json_array();
    json_t *values = json_object();
    const char *wrong = NULL;
    for (size_t i = 0; i < r->count; i++) {
        if (json_array_append_new(features, print_feature(&r->features[i])) != 0) {
            wrong = r->features[i].name;
        }
    }
    for (size_t i = 0; i < r->value_count; i++) {
        const by__drift_value *v = &r->values[i];
        if (json_object_set_new(values, v->name, json_real(v->value)) != 0) {
            wrong = v->name;
        }
    }
    json_t *all = json_pack("{ss si sI so so}", "schema", SCHEMA, "version", VERSION, "examples",
                            (json_int_t)r->examples, "values", values, "features", features);
    char *text = all == NULL || wrong != NULL
                     ? NULL
                     : json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(all);
    if (wrong != NULL) {
        return by_error_set(error, BY_EARG,
                            "the reference for drift: '%s' cannot be written: its name and its "
                            "values must be UTF-8, and its numbers finite",
                            wrong);
    }
    if (text == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: the reference for drift");
    }
    *out = text;
    return BY_OK;
}

/* ---- reading ---- */

#define ANEW "write it again with a new checkpoint"

static by_status wrong(const char *file, const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: %s; " ANEW, file, what);
}

/* Reads a number that must be in [low, high]. */
static by_status read_number(double *out, const char *file, const json_t *o, const char *key,
                             double low, double high, by_error *error)
{
    const json_t *v = json_object_get(o, key);
    *out = json_number_value(v);
    if (json_is_number(v) && *out >= low && *out <= high) {
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT, "%s: '%s' is not a number of %g to %g; " ANEW, file, key,
                        low, high);
}

static by_status read_list(double **out, size_t *count, const char *file, const json_t *o,
                           const char *key, size_t most, double low, by_error *error)
{
    const json_t *list = json_object_get(o, key);
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0 || n > most) {
        return by_error_set(error, BY_EFORMAT, "%s: '%s' is not a list of 1 to %zu numbers; " ANEW,
                            file, key, most);
    }
    BY_TRY(by__alloc((void **)out, n, sizeof **out, "a reference", error));
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        (*out)[i] = json_number_value(v);
        if (!json_is_number(v) || !((*out)[i] >= low)) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: '%s' has at %zu what is not a number from %g on; " ANEW, file,
                                key, i, low);
        }
    }
    *count = n;
    return BY_OK;
}

static by_status parse_number(by__drift_feature *f, const char *file, const json_t *o,
                              by_error *error)
{
    BY_TRY(read_list(&f->edges, &f->edge_count, file, o, "edges", BY__DRIFT_BINS + 1, -INFINITY,
                     error));
    for (size_t i = 1; i < f->edge_count; i++) {
        if (!(f->edges[i] > f->edges[i - 1])) {
            return wrong(file, "edges do not ascend", error);
        }
    }
    BY_TRY(read_number(&f->mean, file, o, "mean", -INFINITY, INFINITY, error));
    BY_TRY(read_number(&f->deviation, file, o, "deviation", 0.0, INFINITY, error));
    return f->bins == f->edge_count + 1 ? BY_OK : wrong(file, "counts do not fit edges", error);
}

static by_status parse_value(by__drift_feature *f, const char *file, const json_t *v,
                             by_error *error)
{
    size_t i = f->kept;
    if (f->kind == BY_DRIFT_TOKENS) {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > INT32_MAX || (i > 0 && id <= f->ids[i - 1])) {
            return wrong(file, "ids do not ascend", error);
        }
        f->ids[i] = (int32_t)id;
    } else {
        const char *text = json_string_value(v);
        if (text == NULL || (i > 0 && strcmp(text, f->values[i - 1]) <= 0)) {
            return wrong(file, "values do not ascend", error);
        }
        f->values[i] = by__strdup(text);
        if (f->values[i] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a reference");
        }
    }
    f->kept++;
    return BY_OK;
}

static by_status parse_kept(by__drift_feature *f, const char *file, const json_t *o,
                            by_error *error)
{
    bool texts = f->kind == BY_DRIFT_CATEGORY;
    const json_t *list = json_object_get(o, texts ? "values" : "ids");
    size_t n = json_array_size(list);
    double distinct;
    if (!json_is_array(list) || n > BY__DRIFT_KEPT || f->bins != n + 1) {
        return wrong(file, "values do not fit counts", error);
    }
    BY_TRY(read_number(&distinct, file, o, "distinct", (double)n, MAX_COUNT, error));
    f->distinct = (size_t)distinct;
    if (texts) {
        BY_TRY(by__alloc((void **)&f->values, n + 1, sizeof *f->values, "a reference", error));
    } else {
        BY_TRY(by__alloc((void **)&f->ids, n + 1, sizeof *f->ids, "a reference", error));
    }
    for (size_t i = 0; i < n; i++) {
        BY_TRY(parse_value(f, file, json_array_get(list, i), error));
    }
    return texts ? by__drift_index_values(f, error) : BY_OK;
}

/* Reads the role of the last feature. */
static by_status parse_role(by_drift_reference *r, const char *file, const json_t *value,
                            by_error *error)
{
    const char *role = json_string_value(value);
    size_t k = 0;
    if (value == NULL) {
        return BY_OK;
    }
    while (role != NULL && k < BY_ARRAY_LENGTH(roles) && strcmp(roles[k], role) != 0) {
        k++;
    }
    return role == NULL || k == BY_ARRAY_LENGTH(roles)
               ? wrong(file, "a feature has a role that is not known", error)
               : by_drift_reference_assign(r, r->count - 1, (by_drift_role)k, error);
}

static by_status parse_feature(by_drift_reference *r, const char *file, const json_t *o,
                               by_error *error)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *kind = json_string_value(json_object_get(o, "kind"));
    by__drift_feature *f;
    double sum = 0.0;
    size_t k = 0;
    while (kind != NULL && k < BY_ARRAY_LENGTH(kinds) && strcmp(kinds[k], kind) != 0) {
        k++;
    }
    if (name == NULL || kind == NULL || k == BY_ARRAY_LENGTH(kinds)) {
        return wrong(file, "a feature has no name, or a kind that is not known", error);
    }
    BY_TRY(by__drift_feature_add(r, &f, name, (by_drift_kind)k, error));
    BY_TRY(parse_role(r, file, json_object_get(o, "role"), error));
    BY_TRY(read_number(&f->rows, file, o, "rows", 1.0, MAX_COUNT, error));
    BY_TRY(read_number(&f->missing, file, o, "missing", 0.0, MAX_COUNT, error));
    BY_TRY(read_list(&f->counts, &f->bins, file, o, "counts", BY__DRIFT_KEPT + 1, 0.0, error));
    for (size_t i = 0; i < f->bins; i++) {
        sum += floor(f->counts[i]) == f->counts[i] ? f->counts[i] : NAN;
    }
    if (sum != f->rows || floor(f->missing) != f->missing) {
        return wrong(file, "counts do not add up to rows", error);
    }
    return k == BY_DRIFT_NUMBER ? parse_number(f, file, o, error) : parse_kept(f, file, o, error);
}

static by_status parse_all(by_drift_reference *r, const char *file, const json_t *all,
                           by_error *error)
{
    const json_t *features = json_object_get(all, "features");
    json_t *values = json_object_get(all, "values");
    const char *schema = json_string_value(json_object_get(all, "schema"));
    const char *key;
    json_t *v;
    size_t i;
    if (schema == NULL || strcmp(schema, SCHEMA) != 0) {
        return wrong(file, "'schema' is not " SCHEMA, error);
    }
    json_int_t version = json_integer_value(json_object_get(all, "version"));
    if (version < 1 || version > VERSION) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: its version is not 1 to %d: a later version of this program wrote "
                            "it",
                            file, VERSION);
    }
    if (!json_is_array(features) || json_array_size(features) > MAX_FEATURES ||
        !json_is_object(values)) {
        return wrong(file, "'features' or 'values' is missing", error);
    }
    json_array_foreach(features, i, v)
    {
        BY_TRY(parse_feature(r, file, v, error));
    }
    json_object_foreach(values, key, v)
    {
        if (!json_is_number(v)) {
            return wrong(file, "a value is no number", error);
        }
        BY_TRY(by_drift_reference_value(r, key, json_number_value(v), error));
    }
    return BY_OK;
}

by_status by_drift_reference_parse(by_drift_reference **out, const char *name, const char *text,
                                   size_t length, by_error *error)
{
    json_t *all;
    by_drift_reference *r = NULL;
    double examples = 0.0;
    BY_TRY(by__json_parse(&all, name, text, length, JSON_REJECT_DUPLICATES, error));
    by_status status = read_number(&examples, name, all, "examples", 0.0, MAX_COUNT, error);
    if (status == BY_OK) {
        status = by_drift_reference_open(&r, (uint64_t)examples, error);
    }
    if (status == BY_OK) {
        status = parse_all(r, name, all, error);
    }
    json_decref(all);
    if (status != BY_OK) {
        by_drift_reference_close(&r);
        return status == BY_EARG ? BY_EFORMAT : status;
    }
    *out = r;
    return BY_OK;
}

by_status by_drift_reference_read(by_drift_reference **out, const char *directory, by_error *error)
{
    char *path = by__path_join(directory, BY_DRIFT_FILE);
    char *text = NULL;
    size_t length = 0;
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    by_status status = by__path_exists(path)
                           ? by__file_read(&text, &length, path, MAX_BYTES, error)
                           : by_error_set(error, BY_ESTATE,
                                          "%s has no " BY_DRIFT_FILE ": its checkpoint was "
                                          "written without a reference",
                                          directory);
    if (status == BY_OK) {
        status = by_drift_reference_parse(out, path, text, length, error);
    }
    free(text);
    free(path);
    return status;
}
