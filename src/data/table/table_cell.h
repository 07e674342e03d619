/* What the text of a cell is, in a file of any format and in a request: nothing, a number or a
 * category. */
#ifndef BY_DATA_TABLE_TABLE_CELL_H
#define BY_DATA_TABLE_TABLE_CELL_H

#include "base/base.h"

/* Returns true for a text that denotes a missing cell: the marks of pandas ("", "NA", "#N/A",
 * "None", ...) and "?", with or without blanks around. */
bool by__table_cell_missing(const char *text, size_t length);
/* Parses a finite decimal number, ignoring surrounding blanks. `decimal` is the mark in front of
 * its fraction, '.' or ','. */
bool by__table_cell_number(const char *text, size_t length, char decimal, double *out);
/* The same, and 1 or 0 for a truth value, for columns that were learned from such. */
bool by__table_cell_as_number(const char *text, size_t length, char decimal, double *out);
/* What tells a decimal comma: 1 for a number that can be read with a comma only and has no three
 * digits behind it, which might be thousands ("0,5"); -1 for one with a point ("0.5"); 0 for any
 * other text. */
int by__table_cell_decimal(const char *text, size_t length);
/* Whether a text that is not a number would be one without the sign of a currency, separators of
 * thousands, percent sign or unit in it. */
bool by__data_cell_resembles(const char *text, size_t length);
/* Why a text is no number, for people; NULL: it does not look like one. */
const char *by__table_cell_problem(const char *text, size_t length);

/* A cell, quoted for a message, and cut if it is long; control characters become '?'. */
const char *by__table_cell_quote(char out[64], const char *text, size_t length);

#endif
