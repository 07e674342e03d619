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
