/* Drift of a file: rows or texts, counted in windows and compared with what a model was trained on,
 * as a server does with its requests; and a report of it. */
#ifndef BANYAN_DRIFT_REPORT_H
#define BANYAN_DRIFT_REPORT_H

#include "banyan/drift.h"
#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_drift_report by_drift_report;

/* Compares a file with the reference that lies with a model's weights. `data`: a table (CSV or
 * Parquet) for a reference of a table, whose rows are predicted, too, where it has all columns that
 * the model reads; for one of text, and for rows as well, JSON lines (.jsonl, .ndjson) or a
 * directory of them (a payload log), of which the text is in `field` (NULL: "prompt", or "text"
 * where there is none); without text a line is a row, what was predicted for one (as `banyan
 * predict` says it), or {"row", "prediction"}. A last window is compared if it has options->least
 * requests. `options` may be NULL. BY_ESTATE: the weights have no reference; BY_EFORMAT: the data
 * cannot be read, or none of it is in the reference. */
BY_API by_status by_drift_report_open(by_drift_report **out, const by_pretrained *model,
                                      const char *data, const char *field,
                                      const by_drift_options *options, by_error *error);
BY_API void by_drift_report_close(by_drift_report **report);
BY_API size_t by_drift_report_windows(const by_drift_report *report);
/* Windows in which a feature had drifted. */
BY_API size_t by_drift_report_alarms(const by_drift_report *report);
/* What a distance must reach for an alarm: options->threshold, or its default. */
BY_API double by_drift_report_threshold(const by_drift_report *report);
BY_API size_t by_drift_report_features(const by_drift_report *report);
/* What a window (below by_drift_report_windows, in their order) says of a feature; the report's. */
BY_API const by_drift_verdict *by_drift_report_verdict(const by_drift_report *report, size_t window,
                                                       size_t feature);
/* One line of JSON: {"requests", "windows", "alarms", "threshold", "features": [{"name", "kind",
 * "alarms", "psi": [...], "jensen_shannon": [...], ..., "detected": [...]}]} with a value for each
 * window, and a page of HTML with charts in it that needs nothing else. Freed with free(). */
BY_API by_status by_drift_report_json(const by_drift_report *report, char **out, by_error *error);
BY_API by_status by_drift_report_html(const by_drift_report *report, char **out, by_error *error);

#ifdef __cplusplus
}
#endif

#endif
