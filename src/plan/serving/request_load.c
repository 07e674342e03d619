/* Loads of a service: from a table, or at random. */
#include <math.h>
#include <stdlib.h>

#include "banyan/capacity.h"
#include "base/base.h"

/* The longest load, in seconds. */
static const double longest = 1e12;

static by_status find_column(const double **out, const by_table *table, const char *name,
                             by_error *error)
{
    const by_column *c = by_table_find(table, name);
    if (c == NULL || c->kind != BY_COLUMN_NUMBER) {
        return by_error_set(error, BY_EARG,
                            "%s: no column '%s' of numbers; a load has seconds, prompt_tokens and "
                            "generated_tokens",
                            by_table_name(table), name);
    }
    *out = c->numbers;
    return BY_OK;
}

static bool is_count(double x)
{
    return x >= 1.0 && x <= (double)(1 << 30) && x == floor(x);
}

by_status by_load_read(by_load_request **requests, size_t *count, const by_table *table,
                       by_error *error)
{
    const double *seconds;
    const double *prompt;
    const double *tokens;
    by_load_request *load;
    size_t rows = (size_t)by_table_rows(table);
    BY_TRY(find_column(&seconds, table, "seconds", error));
    BY_TRY(find_column(&prompt, table, "prompt_tokens", error));
    BY_TRY(find_column(&tokens, table, "generated_tokens", error));
    if (rows == 0) {
        return by_error_set(error, BY_EFORMAT, "%s: no request", by_table_name(table));
    }
    BY_TRY(by__alloc((void **)&load, rows, sizeof *load, "the load", error));
    for (size_t i = 0; i < rows; i++) {
        double least = i == 0 ? 0.0 : seconds[i - 1];
        if (!(seconds[i] >= least && seconds[i] <= longest) || !is_count(prompt[i]) ||
            !is_count(tokens[i])) {
            free(load);
            return by_error_set(error, BY_EFORMAT,
                                "%s row %zu: a request at %g s with %g tokens of prompt and %g "
                                "generated; seconds ascend from 0, tokens are from 1 on",
                                by_table_name(table), i + 1, seconds[i], prompt[i], tokens[i]);
        }
        load[i] = (by_load_request){seconds[i], (int64_t)prompt[i], (int64_t)tokens[i]};
    }
    *requests = load;
    *count = rows;
    return BY_OK;
}

void by_load_poisson(by_load_request *requests, size_t count, double rate, int64_t prompt,
                     int64_t tokens, uint64_t seed)
{
    uint32_t key[2];
    uint32_t bits[4];
    double at = 0.0;
    by__philox_key(key, seed, 0x6c6f6164u); /* "load" in ASCII */
    for (size_t i = 0; i < count; i++) {
        by__philox(bits, key, (const uint32_t[4]){(uint32_t)i, (uint32_t)(i >> 32), 0, 0});
        at -= log(((double)bits[0] + 0.5) / 4294967296.0) / rate;
        requests[i] = (by_load_request){at, prompt, tokens};
    }
}
