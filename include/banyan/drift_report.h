/* Drift of a file: its rows or texts, compared with a model's training data as a whole, or in
 * windows as a server does with its requests; and a report of the result. */
#ifndef BANYAN_DRIFT_REPORT_H
#define BANYAN_DRIFT_REPORT_H

#include "banyan/drift.h"
#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_drift_report by_drift_report;

/* Compares a file with the reference stored with a model's weights. `data` is
 *
 * - a table (CSV, Parquet, or a directory of the parts of one). Its rows are also predicted if it
 *   has all columns that the model reads; cells of a column that it lacks count as missing. A model
 *   of text reads the column `field` (NULL: "prompt", or else "text").
 * - JSON lines (.jsonl, .ndjson), with the text in member `field` (as above). A line without text
 *   is a row, the prediction for one (as printed by `banyan predict`, with its "index"), or {"row",
 *   "prediction"}; other lines, and rows with none of the reference's columns, are left out.
 * - a directory of JSON lines (a payload log), or else of CSV files.
 *
 * All of it is one window, unless options->requests is set. The last window is compared if it has
 * options->least requests. `options` may be NULL. Returns BY_ESTATE if the weights have no
 * reference; BY_EFORMAT if the data is malformed, has none of the reference's features, or has too
 * few rows or texts for a single window. */
BY_API by_status by_drift_report_open(by_drift_report **out, const by_pretrained *model,
                                      const char *data, const char *field,
                                      const by_drift_options *options, by_error *error);
/* Returns BY_EFORMAT, naming them, if nothing could be compared of features that the data should
 * have: columns that are there, and predictions for a table. */
BY_API by_status by_drift_report_check(const by_drift_report *report, by_error *error);
BY_API void by_drift_report_close(by_drift_report **report);
/* Returns the number of windows. */
BY_API size_t by_drift_report_windows(const by_drift_report *report);
/* Returns the number of windows in which a feature has drifted. */
BY_API size_t by_drift_report_alarms(const by_drift_report *report);
/* Returns the distance at which a feature alarms: options->threshold or its default. */
BY_API double by_drift_report_threshold(const by_drift_report *report);
/* Returns the number of features. */
BY_API size_t by_drift_report_features(const by_drift_report *report);
/* Returns the result for a feature in window `window`, owned by the report. */
BY_API const by_drift_verdict *by_drift_report_verdict(const by_drift_report *report, size_t window,
                                                       size_t feature);
/* Makes one line of JSON: {"requests", "windows", "alarms", "threshold", "features": [{"name",
 * "kind", "alarms", "psi": [...], "jensen_shannon": [...], ..., "detected": [...], "compared":
 * [...]}]}, with one value per window in each list; null: nothing was compared. Free it with
 * free(). */
BY_API by_status by_drift_report_json(const by_drift_report *report, char **out, by_error *error);
/* Makes a self-contained HTML page with charts. Free it with free(). */
BY_API by_status by_drift_report_html(const by_drift_report *report, char **out, by_error *error);

#ifdef __cplusplus
}
#endif

#endif
