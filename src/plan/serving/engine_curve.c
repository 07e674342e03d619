/* The time of an engine's steps: the formula, and its file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/capacity.h"
#include "base/json.h"

#define MAX_FILE (1u << 20)

double by_engine_curve_seconds(const by_engine_curve *curve, const by_engine_work *work)
{
    if (work->program < 0 || work->program >= curve->program_count) {
        return 0.0;
    }
    return curve->programs[work->program].seconds + curve->decode_key * work->decode_keys +
           curve->prompt_key * work->prompt_keys;
}

/* ---- writing ---- */

static json_t *programs_json(const by_engine_curve *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->program_count; i++) {
        const by_curve_program *p = &c->programs[i];
        (void)json_array_append_new(list, json_pack("{s:I,s:I,s:f}", "rows", (json_int_t)p->rows,
                                                    "wanted", (json_int_t)p->wanted, "seconds",
                                                    p->seconds));
    }
    return list;
}

static json_t *ratios_json(const by_engine_curve *c)
{
    json_t *list = json_array();
    for (int i = 0; i < c->ratio_count; i++) {
        (void)json_array_append_new(list, json_real(c->ratios[i]));
    }
    return list;
}

by_status by_engine_curve_write(const by_engine_curve *curve, const char *path, by_error *error)
{
    const by_engine_curve *c = curve;
    by_string text = {0};
    json_t *root = json_pack(
        "{s:s,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:I,s:o,s:o}", "machine", c->name, "context",
        (json_int_t)c->context, "sessions", (json_int_t)c->sessions, "rows", (json_int_t)c->rows,
        "pages", (json_int_t)c->pages, "decode_key_seconds", c->decode_key, "prompt_key_seconds",
        c->prompt_key, "open_seconds", c->open_seconds, "error", c->error, "steps",
        (json_int_t)c->steps, "ratios", ratios_json(c), "programs", programs_json(c));
    if (root == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: the curve");
    }
    by__json_write(&text, root, JSON_INDENT(1));
    json_decref(root);
    by_string_format(&text, "\n");
    by_status status = by_string_check(&text, error);
    if (status == BY_OK) {
        status = by__file_write(path, text.data, text.length, error);
    }
    by_string_free(&text);
    return status;
}

/* ---- reading ---- */

static by_status read_number(double *out, const json_t *object, const char *path, const char *name,
                             double least, double most, by_error *error)
{
    const json_t *value = json_object_get(object, name);
    double x = value != NULL && by__json_is_number(value) ? by__json_double(value) : (double)NAN;
    if (!(x >= least && x <= most)) {
        return by_error_set(error, BY_EFORMAT, "%s: '%s' must be a number in %g .. %g", path, name,
                            least, most);
    }
    *out = x;
    return BY_OK;
}

static by_status read_count(int64_t *out, const json_t *object, const char *path, const char *name,
                            double most, by_error *error)
{
    double x;
    BY_TRY(read_number(&x, object, path, name, 1.0, most, error));
    *out = (int64_t)x;
    return BY_OK;
}

static by_status read_list(const json_t **out, size_t *count, const json_t *root, const char *path,
                           const char *name, size_t most, by_error *error)
{
    const json_t *list = json_object_get(root, name);
    *count = json_is_array(list) ? json_array_size(list) : most + 1;
    if (*count > most) {
        return by_error_set(error, BY_EFORMAT, "%s: '%s' must be a list of at most %zu", path, name,
                            most);
    }
    *out = list;
    return BY_OK;
}

static by_status read_lists(by_engine_curve *c, const json_t *root, const char *path,
                            by_error *error)
{
    const json_t *list;
    size_t count;
    BY_TRY(read_list(&list, &count, root, path, "programs", BY_CURVE_PROGRAMS, error));
    c->program_count = (int)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *p = json_array_get(list, i);
        BY_TRY(read_count(&c->programs[i].rows, p, path, "rows", 65536.0, error));
        BY_TRY(read_count(&c->programs[i].wanted, p, path, "wanted", 65536.0, error));
        BY_TRY(read_number(&c->programs[i].seconds, p, path, "seconds", 0.0, 1e9, error));
    }
    BY_TRY(read_list(&list, &count, root, path, "ratios", BY_CURVE_RATIOS, error));
    c->ratio_count = (int)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        c->ratios[i] = by__json_is_number(value) ? by__json_double(value) : -1.0;
        if (!(c->ratios[i] >= 0.0 && c->ratios[i] <= 1e6)) {
            return by_error_set(error, BY_EFORMAT, "%s: 'ratios' must be numbers in 0 .. 1e6",
                                path);
        }
    }
    return BY_OK;
}

static by_status read_root(by_engine_curve *c, const json_t *root, const char *path,
                           by_error *error)
{
    double steps;
    const char *name = by__json_string(json_object_get(root, "machine"));
    (void)snprintf(c->name, sizeof c->name, "%s", name == NULL ? "" : name);
    BY_TRY(read_count(&c->context, root, path, "context", 1e9, error));
    BY_TRY(read_count(&c->sessions, root, path, "sessions", 65536.0, error));
    BY_TRY(read_count(&c->rows, root, path, "rows", 65536.0, error));
    BY_TRY(read_count(&c->pages, root, path, "pages", 1e8, error));
    BY_TRY(read_number(&c->decode_key, root, path, "decode_key_seconds", 0.0, 1e3, error));
    BY_TRY(read_number(&c->prompt_key, root, path, "prompt_key_seconds", 0.0, 1e3, error));
    BY_TRY(read_number(&c->open_seconds, root, path, "open_seconds", 0.0, 1e9, error));
    BY_TRY(read_number(&c->error, root, path, "error", 0.0, 1e9, error));
    BY_TRY(read_number(&steps, root, path, "steps", 0.0, 1e15, error));
    c->steps = (size_t)steps;
    return read_lists(c, root, path, error);
}

by_status by_engine_curve_read(by_engine_curve *out, const char *path, by_error *error)
{
    char *text;
    size_t length;
    json_t *root;
    by_engine_curve curve = {0};
    BY_TRY(by__file_read(&text, &length, path, MAX_FILE, error));
    by_status status = by__json_parse(&root, path, text, length, 0, error);
    free(text);
    if (status != BY_OK) {
        return status;
    }
    status = read_root(&curve, root, path, error);
    json_decref(root);
    if (status == BY_OK) {
        *out = curve;
    }
    return status;
}
