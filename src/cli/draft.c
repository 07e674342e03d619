/* What --speculate names. */
#include <string.h>

#include "cli.h"

by_status cli_draft_open(by_draft_source *out, const char *name, by_error *error)
{
    if (strcmp(name, "ngram") != 0) {
        return by_error_set(error, BY_EARG, "--speculate %s: drafts are made by ngram", name);
    }
    return by_draft_ngram(out, error);
}
