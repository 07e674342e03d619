/* Measured steps of this machine beside their plans, in a file beside the figures of machines, and
 * the factor by which they correct other plans. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "plan/layout/layout.h"
#include "plan/plan.h"

/* {"version": 1, "steps": [{"machine": {...}, "kind": "gpt2", "compute": "f32", "ranks": 2,
 * "layout": "...", "planned_s": 0.01, "measured_s": 0.012}]} */
#define VERSION   1
#define MAX_BYTES ((size_t)1 << 20)
/* Entries kept; the oldest are dropped first. */
#define MAX_STEPS 256
/* Plans this close are of the same step. */
#define SAME 1e-3

by_status by_layout_corrections_path(char **out, by_error *error)
{
    return by__cache_path(out, "steps.json", error);
}

by__layout_step_key by__layout_step_key_of(const by_machine *machine, const by_config *config,
                                           const int sizes[BY_MESH_AXES])
{
    const by_parallel_config *p = &config->parallel;
    by__layout_step_key key = {.machine = machine,
                               .kind = config->model.kind,
                               .compute = config->precision.compute,
                               .ranks = 1};
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        key.ranks *= sizes[axis];
    }
    (void)snprintf(key.layout, sizeof key.layout,
                   "data %d shard %d zero %lld tensor %d sequence %d expert %d pipeline %d %.20s "
                   "recompute %.20s",
                   sizes[BY_MESH_DATA], sizes[BY_MESH_SHARD], (long long)p->zero,
                   sizes[BY_MESH_TENSOR], sizes[BY_MESH_SEQUENCE], sizes[BY_MESH_EXPERT],
                   sizes[BY_MESH_PIPELINE], p->schedule, config->memory.recompute);
    return key;
}

/* Returns the array of steps in the file as a new reference; NULL if it is none of this version. */
static json_t *read_steps(const char *path)
{
    char *text;
    size_t length;
    if (by__file_read(&text, &length, path, MAX_BYTES, NULL) != BY_OK) {
        return NULL;
    }
    json_t *root = by_json_load(text, length, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    json_t *version = json_object_get(root, "version");
    json_t *steps = json_object_get(root, "steps");
    steps =
        json_is_array(steps) && json_integer_value(version) == VERSION ? json_incref(steps) : NULL;
    json_decref(root);
    return steps;
}

static bool has_text(const json_t *entry, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(entry, key));
    return value != NULL && strcmp(value, text) == 0;
}

/* Returns true if an entry is of this machine, model family, format and number of ranks; and its
 * times. */
static bool read_entry(const json_t *entry, const by__layout_step_key *key, double *planned,
                       double *measured)
{
    *planned = json_number_value(json_object_get(entry, "planned_s"));
    *measured = json_number_value(json_object_get(entry, "measured_s"));
    return by__plan_machine_is(json_object_get(entry, "machine"), key->machine) &&
           has_text(entry, "kind", key->kind) && has_text(entry, "compute", key->compute) &&
           json_integer_value(json_object_get(entry, "ranks")) == key->ranks && *planned > 0.0 &&
           *measured > 0.0 && isfinite(*planned) && isfinite(*measured);
}

/* ---- the factor ---- */

/* A measured step in logarithms. */
typedef struct correction_point {
    double at;     /* log of what was planned */
    double factor; /* log of measured / planned */
} correction_point;

/* The points next to `at`, below and above. */
typedef struct correction_pair {
    correction_point below;
    correction_point above;
    bool has_below;
    bool has_above;
} correction_pair;

/* Among the steps of any layout, or of that of the key alone. */
static correction_pair find_pair(const json_t *steps, const by__layout_step_key *key, double at,
                                 bool any)
{
    correction_pair pair = {0};
    for (size_t i = 0; i < json_array_size(steps); i++) {
        double planned;
        double measured;
        const json_t *entry = json_array_get(steps, i);
        if (!read_entry(entry, key, &planned, &measured) ||
            !(any || has_text(entry, "layout", key->layout))) {
            continue;
        }
        const correction_point p = {log(planned), log(measured / planned)};
        if (p.at <= at && (!pair.has_below || p.at >= pair.below.at)) {
            pair.below = p;
            pair.has_below = true;
        }
        if (p.at >= at && (!pair.has_above || p.at <= pair.above.at)) {
            pair.above = p;
            pair.has_above = true;
        }
    }
    return pair;
}

by__layout_correction by__layout_correct(const char *path, const by__layout_step_key *key,
                                         double planned)
{
    json_t *steps = read_steps(path);
    double at = log(planned);
    correction_pair p = find_pair(steps, key, at, false);
    bool own = p.has_below || p.has_above;
    p = own ? p : find_pair(steps, key, at, true);
    by__layout_correction c = {.factor = 1.0};
    json_decref(steps);
    if (!p.has_below && !p.has_above) {
        return c;
    }
    p.below = p.has_below ? p.below : p.above;
    p.above = p.has_above ? p.above : p.below;
    double apart = p.above.at - p.below.at;
    double share = apart > 0.0 ? (at - p.below.at) / apart : 0.0;
    double from = fmin(fabs(at - p.below.at), fabs(p.above.at - at));
    c.factor = exp(p.below.factor + share * (p.above.factor - p.below.factor));
    c.runs = p.has_below && p.has_above && apart > SAME ? 2 : 1;
    /* As good as a measurement at the same step; else what neighbours differ by. */
    c.error = by_origin_error(BY_ORIGIN_MEASURED);
    if (from > SAME || !own) {
        double beyond = c.runs == 1 || !own ? by_origin_error(BY_ORIGIN_TABLE) : 0.0;
        c.error += beyond + 0.5 * fabs(p.above.factor - p.below.factor);
    }
    return c;
}

void by__layout_apply(const by__layout_correction *c, double *seconds, double *low, double *high)
{
    if (c->runs == 0) {
        return;
    }
    *seconds *= c->factor;
    double deviation = 1.28 * c->error * *seconds;
    *low = *seconds > deviation ? *seconds - deviation : 0.0;
    *high = *seconds + deviation;
}

/* ---- learning ---- */

static json_t *make_entry(const by__layout_step_key *key, double planned, double measured)
{
    return json_pack("{s:o, s:s, s:s, s:i, s:s, s:f, s:f}", "machine",
                     by__plan_machine_name(key->machine), "kind", key->kind, "compute",
                     key->compute, "ranks", key->ranks, "layout", key->layout, "planned_s", planned,
                     "measured_s", measured);
}

/* Returns the text of the file with a step added; NULL when memory is exhausted. */
static char *make_text(const char *path, const by__layout_step_key *key, double planned,
                       double measured)
{
    json_t *steps = read_steps(path);
    char *text = NULL;
    if (steps == NULL) {
        steps = json_array();
    }
    for (size_t i = json_array_size(steps); i-- > 0;) {
        double p;
        double m;
        const json_t *entry = json_array_get(steps, i);
        if (read_entry(entry, key, &p, &m) && has_text(entry, "layout", key->layout) &&
            fabs(log(p / planned)) < SAME) {
            (void)json_array_remove(steps, i);
        }
    }
    while (json_array_size(steps) >= MAX_STEPS) {
        (void)json_array_remove(steps, 0);
    }
    if (json_array_append_new(steps, make_entry(key, planned, measured)) == 0) {
        json_t *root = json_pack("{s:i, s:O}", "version", VERSION, "steps", steps);
        text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        json_decref(root);
    }
    json_decref(steps);
    return text;
}

by_status by__layout_learn(const char *path, const by__layout_step_key *key, double planned,
                           double measured, by_error *error)
{
    char *directory = by__strndup(path, (size_t)(strrchr(path, '/') - path));
    char *text = make_text(path, key, planned, measured);
    by_status status = directory == NULL || text == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: measured steps")
                           : by__make_dirs(directory, error);
    if (status == BY_OK) {
        status = by__file_write(path, text, strlen(text), error);
    }
    free(text);
    free(directory);
    return status;
}
