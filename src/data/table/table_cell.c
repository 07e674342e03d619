#include "data/table/table_cell.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/same_value.h"

#define NUMBER_LENGTH 64u /* a longer text is not a number */

bool by__table_cell_missing(const char *text, size_t length)
{
    /* pandas._libs.parsers.STR_NA_VALUES, and "?" of the UCI repository. */
    static const char *const marks[] = {"NA",      "N/A",     "n/a",      "NaN",      "nan",
                                        "-NaN",    "-nan",    "null",     "NULL",     "None",
                                        "<NA>",    "#N/A",    "#NA",      "#N/A N/A", "1.#IND",
                                        "-1.#IND", "1.#QNAN", "-1.#QNAN", "?"};
    by__trim(&text, &length, BY__WHITE_SPACE);
    if (length == 0) {
        return true;
    }
    if (length > 8 || strchr("N?n-<#1", text[0]) == NULL) {
        return false;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(marks); i++) {
        if (length == strlen(marks[i]) && memcmp(text, marks[i], length) == 0) {
            return true;
        }
    }
    return false;
}

bool by__table_cell_number(const char *at, size_t length, char decimal, double *out)
{
    char text[NUMBER_LENGTH];
    by__trim(&at, &length, BY__WHITE_SPACE);
    if (length == 0 || length >= sizeof text) {
        return false;
    }
    memcpy(text, at, length);
    text[length] = '\0';
    if (decimal == ',') {
        char *comma = strchr(text, ',');
        if (strchr(text, '.') != NULL) {
            return false;
        }
        if (comma != NULL) {
            *comma = '.';
        }
    }
    return strspn(text, "+-.0123456789eE") == length && by__parse_f64(text, out) && isfinite(*out);
}

bool by__table_cell_as_number(const char *text, size_t length, char decimal, double *out)
{
    char spelling[BY__SPELLING];
    if (by__table_cell_number(text, length, decimal, out)) {
        return true;
    }
    bool is_true = by__spell_value(spelling, text, length) && strcmp(spelling, "true") == 0;
    *out = is_true ? 1.0 : 0.0;
    return is_true || (by__spell_value(spelling, text, length) && strcmp(spelling, "false") == 0);
}

int by__table_cell_decimal(const char *text, size_t length)
{
    double number;
    by__trim(&text, &length, BY__WHITE_SPACE);
    if (length == 0) {
        return 0;
    }
    const char *comma = memchr(text, ',', length);
    if (comma == NULL) {
        return memchr(text, '.', length) != NULL &&
                       by__table_cell_number(text, length, '.', &number)
                   ? -1
                   : 0;
    }
    if (!by__table_cell_number(text, length, ',', &number)) {
        return 0;
    }
    size_t whole = (size_t)(comma - text);
    size_t fraction = 0;
    while (whole + 1 + fraction < length && comma[1 + fraction] >= '0' &&
           comma[1 + fraction] <= '9') {
        fraction++;
    }
    bool thousands = fraction == 3 && whole > 0 && whole <= 4 && text[whole - 1] != '-' &&
                     text[whole - 1] != '+' && text[0] != '0';
    return thousands ? 0 : 1;
}

/* Whether the text has these bytes. */
static bool has(const char *text, size_t length, const char *bytes)
{
    size_t n = strlen(bytes);
    for (size_t i = 0; i + n <= length; i++) {
        if (memcmp(text + i, bytes, n) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether commas stand between thousands: three digits follow each, and one to three come
 * before. */
static bool has_thousands(const char *text, size_t length)
{
    size_t run = 0;
    size_t commas = 0;
    for (size_t i = 0; i <= length; i++) {
        if (i < length && text[i] >= '0' && text[i] <= '9') {
            run++;
            continue;
        }
        if (commas > 0 && run != 3) {
            return false;
        }
        if (i == length || text[i] != ',') {
            if (commas > 0) {
                return true;
            }
        } else if (run < 1 || run > 3) {
            return false;
        } else {
            commas++;
        }
        run = 0;
    }
    return false;
}

bool by__data_cell_resembles(const char *text, size_t length)
{
    char digits[NUMBER_LENGTH];
    size_t n = 0;
    size_t letters = 0;
    double number;
    by__trim(&text, &length, BY__WHITE_SPACE);
    while (length > 0 && !(text[0] >= '0' && text[0] <= '9') && text[0] != '.') {
        unsigned char c = (unsigned char)text[0]; /* a sign of a currency, or that of a number */
        if (strchr("+-$( ", c) == NULL && c < 0x80) {
            return false;
        }
        text++;
        length--;
    }
    for (; length > 0 && n + 1 < sizeof digits; text++, length--) {
        if ((text[0] >= '0' && text[0] <= '9') || text[0] == '.') {
            digits[n++] = text[0];
        } else if (text[0] != ',' && text[0] != '\'' && text[0] != '_') {
            break;
        }
    }
    digits[n] = '\0';
    for (size_t i = 0; i < length; i++) { /* a unit */
        unsigned char c = (unsigned char)text[i];
        letters += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if ((c >= '0' && c <= '9') || c == '-' || c == '/' || c == ':') {
            return false; /* a date, a time or a code */
        }
    }
    return n > 0 && letters <= 4 && length <= 8 && by__parse_f64(digits, &number);
}

/* Whether the text has a blank beyond ASCII. */
static bool has_blank(const char *text, size_t length)
{
    static const char *const blanks[] = {"\xe1\x9a\x80", "\xe2\x80\xa8", "\xe2\x80\xa9",
                                         "\xe2\x81\x9f", "\xe3\x80\x80", "\xef\xbb\xbf"};
    bool found = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(blanks); i++) {
        found = found || has(text, length, blanks[i]);
    }
    for (size_t i = 0; i + 3 <= length; i++) { /* U+2000 to U+200B */
        unsigned char last = (unsigned char)text[i + 2];
        found = found || (memcmp(text + i, "\xe2\x80", 2) == 0 && last >= 0x80 && last <= 0x8b);
    }
    return found;
}

/* Whether the text is a number beyond what a double holds. */
static bool is_beyond(const char *text, size_t length)
{
    char copy[64];
    char *end;
    if (length == 0 || length >= sizeof copy) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    return strspn(copy, "0123456789+-.eE") == length && isinf(strtod(copy, &end)) && *end == '\0';
}

const char *by__table_cell_problem(const char *text, size_t length)
{
    by__trim(&text, &length, BY__WHITE_SPACE);
    size_t digits = 0;
    size_t letters = 0;
    size_t signs = 0;
    for (size_t i = 0; i < length; i++) {
        signs += text[i] == '+' || text[i] == '-' || text[i] == '.';
        digits += text[i] >= '0' && text[i] <= '9';
        letters += (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z');
    }
    if (has(text, length, "\xe2\x88\x92")) {
        return "its minus sign is U+2212, not '-'";
    }
    if (has(text, length, "\xc2\xa0") || has(text, length, "\xe2\x80\xaf")) {
        return "it has a no-break space";
    }
    if (has_blank(text, length)) {
        return "it has a blank that is not ASCII's, such as a thin space";
    }
    if (is_beyond(text, length)) {
        return "it is larger than any double, 1.8e308";
    }
    if (digits > 0 && letters == 0 && has(text, length, ",") && has(text, length, ".")) {
        return "it has a comma and a point: take separators of thousands out";
    }
    if (digits > 0 && letters == 0 && has_thousands(text, length)) {
        return "it has a comma: take separators of thousands out";
    }
    if (digits > 0 && letters == 0 && has(text, length, ",")) {
        return "it has a comma: take separators of thousands out, or set data.decimal=comma";
    }
    return digits > 0 && digits + signs < length
               ? "a number has no unit, sign of a currency or other text"
               : NULL;
}

const char *by__table_cell_quote(char out[64], const char *text, size_t length)
{
    size_t n = 0;
    size_t most = length > 40 ? 37 : length;
    while (most < length && most > 0 && ((unsigned char)text[most] & 0xc0) == 0x80) {
        most--; /* not within a character */
    }
    out[n++] = '\'';
    for (size_t i = 0; i < most; i++) {
        unsigned char c = (unsigned char)text[i];
        out[n++] = c < 0x20 || c == 0x7f ? '?' : text[i];
    }
    (void)snprintf(out + n, 64 - n, "%s'", most < length ? "..." : "");
    return out;
}
