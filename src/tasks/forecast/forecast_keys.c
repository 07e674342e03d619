#include "tasks/forecast/forecast.h"

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"data", "table", BY__KEY_TEXT, BY__OWN(by__forecast_keys, table), "\"\"",
     .help = "table of the series: a CSV file (optionally gzipped) whose first row has the column "
             "names, a Parquet file, JSON lines of rows, or a directory of Parquet files or of "
             "JSON lines"},
    {"data", "time", BY__KEY_TEXT, BY__OWN(by__forecast_keys, time), "\"\"",
     .help = "column of times, such as 2026-11-29 07:45:00, or of numbers, which must ascend "
             "within a series; empty: the first one of dates or times"},
    {"data", "series", BY__KEY_TEXT, BY__OWN(by__forecast_keys, series), "\"\"",
     .help = "column that tells which series a row belongs to; empty: there is one"},
    {"data", "channels", BY__KEY_TEXTS, BY__OWN(by__forecast_keys, channels), "[]",
     .help = "columns of numbers to read and to forecast; empty: all others of numbers"},
    {"data", "ignore", BY__KEY_TEXTS, BY__OWN(by__forecast_keys, ignore), "[]",
     .help = "columns that are left out, where channels names none"},
    {"data", "rows", BY__KEY_INT, BY__OWN(by__forecast_keys, rows), "0", 0, BY__COUNT_LIMIT,
     .help = "rows of each series that are used, from its first one; 0: all"},
    {"data", "skip_last", BY__KEY_INT, BY__OWN(by__forecast_keys, skip_last), "0", 0,
     BY__COUNT_LIMIT, .later = true,
     .help = "of these, so many last ones are left out, as `banyan backtest` does"},
    {"data", "test_fraction", BY__KEY_SHARE, BY__OWN(by__forecast_keys, test_fraction), "0", 0,
     BY__COUNT_LIMIT,
     .help = "share, or from 1 on the number, of the last rows of each series that neither "
             "training nor validation sees: `banyan eval RUN --test` reads them"},
    {"data", "known", BY__KEY_TEXTS, BY__OWN(by__forecast_keys, known), "[]", .later = true,
     .help =
         "columns of numbers that are known ahead, such as prices that are set: tide, lstm, gru "
         "and tcn read them of the rows that are forecast, too"},
    {"data", "time_features", BY__KEY_TEXTS, BY__OWN(by__forecast_keys, time_features), "[]",
     .later = true,
     .help = "what these models are told of the time of each row: sine and cosine of minute, hour, "
             "weekday, day (of the month), month and yearday, and whether its day is a holiday"},
    {"data", "holidays", BY__KEY_TEXT, BY__OWN(by__forecast_keys, holidays), "\"\"", .later = true,
     .help = "file of the dates of holidays, one at the beginning of each line"},
    {"data", "zone", BY__KEY_TEXT, BY__OWN(by__forecast_keys, zone), "\"\"", .later = true,
     .help =
         "time zone, such as Europe/Berlin or +01:00, of times that are written without one, and "
         "in which days begin; empty: UTC, or the one that is written"},
    {"data", "resample", BY__KEY_TEXT, BY__OWN(by__forecast_keys, step), "\"\"", .later = true,
     .help =
         "step of time that the rows of each series are brought to, such as 15min, 1h, 1d or 1w; "
         "empty: rows stay as they are"},
    {"data", "resample_rule", BY__KEY_TEXT, BY__OWN(by__forecast_keys, rule), "mean",
     .choices = "mean|sum|first|last|none", .later = true,
     .help = "what a step is of the rows from its beginning to the next one; none: the row at its "
             "beginning, and others are left out"},
    {"data", "resample_empty", BY__KEY_TEXT, BY__OWN(by__forecast_keys, empty), "missing",
     .choices = "missing|zero", .later = true,
     .help =
         "what a step without rows is: missing numbers, or 0, such as sales that no row tells of"},
    {"data", "duplicates", BY__KEY_TEXT, BY__OWN(by__forecast_keys, duplicates), "fail",
     .choices = "fail|first|last|mean|sum", .later = true,
     .help = "what rows of a series with the same time are: an error, or the one row that these "
             "become"},
    {"data", "sort", BY__KEY_SWITCH, BY__OWN(by__forecast_keys, sort), "false", .later = true,
     .help = "sort the rows of each series by time; false: they must ascend"},
    {"data", "standardize", BY__KEY_TEXT, BY__OWN(by__forecast_keys, standardize), "all",
     .choices = "all|series", .later = true,
     .help = "by whose mean and deviation in the part to train on a channel is standardized: of "
             "all series, or of each alone; one that is not there then has its own rows'"},
    {"data", "missing", BY__KEY_TEXT, BY__OWN(by__forecast_keys, missing), "last",
     .choices = "last|refuse", .later = true,
     .help = "what to do if a number is missing in the rows from which a series is continued: read "
             "the last one before it, or refuse the series; it is refused in any case if a channel "
             "has no number in these rows"},
    {"task", "anomaly", BY__KEY_SWITCH, BY__OWN(by__forecast_keys, anomaly), "false", .later = true,
     .help =
         "`banyan predict` tells how odd each row of a table is instead of continuing its series, "
         "as with --anomaly"},
    {"task", "season", BY__KEY_INT, BY__OWN(by__forecast_keys, season), "0", 0, BY__MI24,
     .help = "rows of a period, such as 24 for a day of hours: evaluations tell the error of "
             "repeating the last one, if the context has it; 0: none"},
};
/* clang-format on */
const by__config_key_list by__forecast_key_list = BY__KEY_LIST(keys);

const by__forecast_keys *by__forecast_keys_of(const by_config *config)
{
    const by__config_kind *kind = by__config_kind_named(config->task.own, "forecast");
    return kind == NULL ? NULL : by__config_kind_own(config->task.own, kind);
}
