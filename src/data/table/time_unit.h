/* Columns of times: numbers of a unit that counts from some origin. */
#ifndef BY_DATA_TABLE_TIME_UNIT_H
#define BY_DATA_TABLE_TIME_UNIT_H

#include "banyan/table.h"
#include "base/base.h"

/* Whether times of one column can be given as those of another one. A column of which nothing is
 * known fits any. */
bool by__table_time_fits(by_time to, by_time from);
/* Converts a time of one column to the unit of another one; unchanged if either is not known. */
double by__table_time_convert(double value, by_time to, by_time from);
/* "us utc", "day", "ns of day": what is kept with weights; and the same for people. */
const char *by__table_time_print(char out[32], by_time time);
/* Reads what by__table_time_print wrote. */
bool by__table_time_parse(by_time *out, const char *text);

#endif
