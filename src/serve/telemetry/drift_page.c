/* Prints a drift report as JSON and as an HTML page. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/telemetry/drift_pages.h"

/* A number of a verdict, plotted over the windows. */
typedef struct drift_line {
    const char *key;
    const char *colour; /* on the page; NULL: not drawn */
    size_t offset;
    bool compares; /* it says nothing if nothing was compared */
} drift_line;

static const drift_line lines[] = {
    {"psi", "#1f77b4", offsetof(by_drift_verdict, psi), true},
    {"jensen_shannon", "#2ca02c", offsetof(by_drift_verdict, jensen_shannon), true},
    {"wasserstein", "#9467bd", offsetof(by_drift_verdict, wasserstein), true},
    {"ks", NULL, offsetof(by_drift_verdict, ks), true},
    {"p", NULL, offsetof(by_drift_verdict, p), true},
    {"missing", NULL, offsetof(by_drift_verdict, missing), false},
    {"unknown", NULL, offsetof(by_drift_verdict, unknown), false},
    {"out_of_range", NULL, offsetof(by_drift_verdict, out_of_range), false},
};

static const char *const kinds[] = {"number", "category", "tokens"};

static double value_of(const by_drift_verdict *v, const drift_line *l)
{
    double value;
    memcpy(&value, (const char *)v + l->offset, sizeof value);
    return value;
}

static size_t alarms_of(const by_drift_report *r, size_t feature)
{
    size_t count = 0;
    for (size_t w = 0; w < r->windows; w++) {
        count += by_drift_report_verdict(r, w, feature)->detected;
    }
    return count;
}

/* ---- JSON ---- */

static json_t *feature_of(const by_drift_report *r, size_t feature)
{
    by_drift_kind kind;
    const char *name = by__telemetry_served_drift_feature(r->drift, feature, &kind);
    json_t *out = json_pack("{ss ss sI}", "name", name, "kind", kinds[kind], "alarms",
                            (json_int_t)alarms_of(r, feature));
    json_t *detected = json_array();
    json_t *compared = json_array();
    for (size_t i = 0; i < BY_ARRAY_LENGTH(lines); i++) {
        json_t *list = json_array();
        for (size_t w = 0; w < r->windows; w++) {
            const by_drift_verdict *v = by_drift_report_verdict(r, w, feature);
            double value = value_of(v, &lines[i]);
            bool any = isfinite(value) && (v->compared || !lines[i].compares);
            (void)json_array_append_new(list, any ? json_real(value) : json_null());
        }
        (void)json_object_set_new(out, lines[i].key, list);
    }
    for (size_t w = 0; w < r->windows; w++) {
        const by_drift_verdict *v = by_drift_report_verdict(r, w, feature);
        (void)json_array_append_new(detected,
                                    v->compared ? json_boolean(v->detected) : json_null());
        (void)json_array_append_new(compared, json_boolean(v->compared));
    }
    (void)json_object_set_new(out, "detected", detected);
    (void)json_object_set_new(out, "compared", compared);
    return out;
}

by_status by_drift_report_json(const by_drift_report *report, char **out, by_error *error)
{
    const by_drift_report *r = report;
    json_t *features = json_array();
    for (size_t i = 0; i < r->features; i++) {
        (void)json_array_append_new(features, feature_of(r, i));
    }
    json_t *all = json_pack("{sI sI sI sf so}", "requests", (json_int_t)r->requests, "windows",
                            (json_int_t)r->windows, "alarms", (json_int_t)r->alarms, "threshold",
                            r->threshold, "features", features);
    char *text = all == NULL ? NULL : json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(all);
    if (text == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a report");
    }
    *out = text;
    return BY_OK;
}

/* ---- the page ---- */

#define WIDTH  640.0
#define HEIGHT 120.0
#define LEFT   44.0

static double x_of(const by_drift_report *r, size_t window)
{
    return LEFT + (WIDTH - LEFT - 10.0) *
                      (r->windows > 1 ? (double)window / (double)(r->windows - 1) : 0.5);
}

static double y_of(double value, double most)
{
    return 10.0 + (HEIGHT - 30.0) * (1.0 - fmin(value / most, 1.0));
}

static void draw_line(by_string *out, const by_drift_report *r, size_t feature, const drift_line *l,
                      double most)
{
    by_string_format(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
                     l->colour);
    for (size_t w = 0; w < r->windows; w++) {
        double value = value_of(by_drift_report_verdict(r, w, feature), l);
        if (isfinite(value)) {
            by_string_format(out, "%.1f,%.1f ", x_of(r, w), y_of(value, most));
        }
    }
    by__string_append(out, "\"/>\n");
    for (size_t w = 0; w < r->windows; w++) {
        const by_drift_verdict *v = by_drift_report_verdict(r, w, feature);
        double value = value_of(v, l);
        if (isfinite(value)) {
            by_string_format(out,
                             "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\"><title>window "
                             "%zu: %s %.4g, p %.3g</title></circle>\n",
                             x_of(r, w), y_of(value, most), v->detected ? "3.5" : "2",
                             v->detected ? "#d62728" : l->colour, w + 1, l->key, value, v->p);
        }
    }
}

static void draw_chart(by_string *out, const by_drift_report *r, size_t feature)
{
    double most = 2.0 * r->threshold;
    for (size_t w = 0; w < r->windows; w++) {
        for (size_t i = 0; i < BY_ARRAY_LENGTH(lines); i++) {
            double value = value_of(by_drift_report_verdict(r, w, feature), &lines[i]);
            most = lines[i].colour != NULL && isfinite(value) ? fmax(most, value) : most;
        }
    }
    double level = y_of(r->threshold, most);
    by_string_format(out, "<svg viewBox=\"0 0 %g %g\" role=\"img\">\n", WIDTH, HEIGHT);
    by_string_format(out, "<line x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\" class=\"level\"/>\n",
                     LEFT, level, WIDTH - 10.0, level);
    by_string_format(out, "<line x1=\"%g\" y1=\"10\" x2=\"%g\" y2=\"%g\" class=\"axis\"/>\n", LEFT,
                     LEFT, HEIGHT - 20.0);
    by_string_format(out,
                     "<text x=\"%g\" y=\"14\">%.3g</text><text x=\"%g\" y=\"%.1f\">%.3g</text>\n",
                     2.0, most, 2.0, level + 4.0, r->threshold);
    by_string_format(out, "<text x=\"%g\" y=\"%g\">window 1 to %zu</text>\n", LEFT, HEIGHT - 4.0,
                     r->windows);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(lines); i++) {
        if (lines[i].colour != NULL) {
            draw_line(out, r, feature, &lines[i], most);
        }
    }
    by__string_append(out, "</svg>\n");
}

static void add_head(by_string *out, const by_drift_report *r)
{
    by__string_append(out,
                      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                      "<title>Drift</title>\n<style>\n"
                      "body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;"
                      "padding:0 1rem;color:#222}\n"
                      "table{border-collapse:collapse;width:100%}td,th{padding:.2rem .5rem;"
                      "text-align:right;border-bottom:1px solid #ddd}\n"
                      "td:first-child,th:first-child{text-align:left}.yes{color:#d62728;"
                      "font-weight:600}\n"
                      "svg{width:100%}svg text{font-size:10px;fill:#555}.axis{stroke:#999}"
                      ".level{stroke:#d62728;stroke-dasharray:4 3}\n"
                      "</style></head><body>\n<h1>Drift</h1>\n<p>");
    by__string_append_html(out, r->title);
    by_string_format(
        out,
        ": %llu requests in %zu windows, %zu of them with drift. The last window:</p>\n"
        "<table><tr><th>feature</th><th>drift</th><th>PSI</th><th>Jensen-Shannon</th>"
        "<th>Wasserstein</th><th>KS</th><th>p</th><th>missing</th><th>unknown</th>"
        "<th>out of range</th><th>windows</th></tr>\n",
        (unsigned long long)r->requests, r->windows, r->alarms);
}

static void add_number(by_string *out, double value, const char *unit, double scale)
{
    if (isfinite(value)) {
        by_string_format(out, "<td>%.3g%s</td>", value * scale, unit);
    } else {
        by__string_append(out, "<td></td>");
    }
}

static void add_row(by_string *out, const by_drift_report *r, size_t feature)
{
    const by_drift_verdict *v = by_drift_report_verdict(r, r->windows - 1, feature);
    by__string_append(out, "<tr><td>");
    by__string_append_html(out, v->feature);
    by__string_append(out, !v->compared  ? "</td><td>not compared</td>"
                           : v->detected ? "</td><td class=\"yes\">yes</td>"
                                         : "</td><td>no</td>");
    add_number(out, v->compared ? v->psi : NAN, "", 1.0);
    add_number(out, v->compared ? v->jensen_shannon : NAN, "", 1.0);
    add_number(out, v->wasserstein, "", 1.0);
    add_number(out, v->ks, "", 1.0);
    add_number(out, v->compared ? v->p : NAN, "", 1.0);
    add_number(out, v->missing, " %", 100.0);
    add_number(out, v->unknown, " %", 100.0);
    add_number(out, v->out_of_range, " %", 100.0);
    by_string_format(out, "<td>%zu</td></tr>\n", alarms_of(r, feature));
}

by_status by_drift_report_html(const by_drift_report *report, char **out, by_error *error)
{
    const by_drift_report *r = report;
    by_string text = {0};
    add_head(&text, r);
    for (size_t i = 0; i < r->features && r->windows > 0; i++) {
        add_row(&text, r, i);
    }
    by_string_format(
        &text,
        "</table>\n<p>A window has drifted when a distance reaches %g (dashed) and its "
        "p-value is small: red points. PSI is blue, Jensen-Shannon green, Wasserstein "
        "(in deviations) violet.</p>\n",
        r->threshold);
    for (size_t i = 0; i < r->features && r->windows > 0; i++) {
        by__string_append(&text, "<h2>");
        by__string_append_html(&text, by_drift_report_verdict(r, 0, i)->feature);
        by__string_append(&text, "</h2>\n");
        draw_chart(&text, r, i);
    }
    by__string_append(&text, "</body></html>\n");
    return by__string_release(&text, out, error);
}
