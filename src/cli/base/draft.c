/* Opens what --speculate names. */
#include <string.h>
#include <unistd.h>

#include "base/measured_model.h"

/* Compares the tokenizers, because drafts with different tokens would be meaningless. */
static by_status check_tokenizer(const cli_draft *d, const char *path,
                                 const by_tokenizer *tokenizer, by_error *error)
{
    by_tokenizer *own = NULL;
    if (tokenizer == NULL || d->model.pretrained == NULL) {
        return BY_OK;
    }
    by_status status = by_tokenizer_open(&own, by_pretrained_directory(d->model.pretrained), error);
    if (status == BY_OK && strcmp(by_tokenizer_hash(own), by_tokenizer_hash(tokenizer)) != 0) {
        status = by_error_set(error, BY_EARG,
                              "--speculate %s: its tokenizer differs from the model's", path);
    }
    by_tokenizer_close(&own);
    return status;
}

by_status cli_draft_open(cli_draft *out, const char *name, const by_tokenizer *tokenizer,
                         const char *precision, int threads, by_error *error)
{
    static const cli_list none = {0};
    by_draft_model_options options = {.precision = precision, .threads = threads};
    *out = (cli_draft){0};
    if (strcmp(name, "ngram") == 0) {
        return by_draft_ngram(&out->source, error);
    }
    if (access(name, F_OK) != 0) {
        return by_error_set(error, BY_EARG,
                            "--speculate %s: it is neither ngram nor a model directory", name);
    }
    by_status status = cli_open_measured(&out->model, name, &none, error);
    if (status == BY_OK) {
        status = check_tokenizer(out, name, tokenizer, error);
    }
    if (status == BY_OK) {
        status = by_draft_model(&out->source, out->model.used, out->model.weights, &options, error);
    }
    return status;
}

void cli_draft_close(cli_draft *draft)
{
    by_draft_close(&draft->source);
    cli_close_measured(&draft->model);
}
