/* `banyan eval --suite`: a model on suites of questions. */
#ifndef BY_CLI_EVALUATE_EVAL_SUITE_H
#define BY_CLI_EVALUATE_EVAL_SUITE_H

#include "banyan/suite.h"
#include "base/cli.h"

typedef struct cli_suite_request {
    const char *suite; /* file, or the name of one; NULL: no suite */
    const char *data;  /* directory of data files, or NULL */
    const char *items; /* file that gets a line for each item, or NULL */
    const char *precision;
    int64_t few_shot; /* -1: as the suite says */
    int64_t limit;    /* 0: all */
    uint64_t seed;
    bool show; /* print the items' texts; no model runs */
    bool json;
} cli_suite_request;

/* Prints the texts of a suite's items. */
by_status cli_suite_show(const cli_suite_request *request, by_error *error);
/* Compares two files of items. */
by_status cli_suite_compare(const char *first, const char *second, uint64_t seed, bool json,
                            by_error *error);
/* Runs a suite; for cli_with_pretrained, with a cli_suite_request. */
by_status cli_suite_run(void *request, const by_pretrained *model, const char *run,
                        by_error *error);

#endif
