/* Constraints of `banyan generate`: a JSON schema, any JSON object, or a regular expression; and
 * penalties. */
#include <stdlib.h>
#include <string.h>

#include "base/prompt_file.h"
#include "generate/generate.h"

/* Larger schemas are refused as mistakes. */
#define MAX_SCHEMA ((size_t)1 << 20)

static by_status open_form(cli_form *f, const cli_generation *r, by_error *error)
{
    char *text = NULL;
    size_t length;
    if (r->regex != NULL) {
        return by_constraint_open_regex(&f->constraint, r->regex, strlen(r->regex), f->list, error);
    }
    if (r->json_object) {
        return by_constraint_open_json(&f->constraint, true, f->list, error);
    }
    by_status status = cli_read_prompt_file(&text, &length, r->schema, MAX_SCHEMA, error);
    if (status == BY_OK) {
        status = by_constraint_open_schema(&f->constraint, text, length, f->list, error);
    }
    free(text);
    return status;
}

by_status cli_form_open(cli_form *f, const cli_generation *r, const by_tokenizer *tokenizer,
                        const char *directory, by_error *error)
{
    *f = (cli_form){.vocab = (int64_t)by_tokenizer_vocab(tokenizer), .rules = r->rules};
    by_status status =
        r->ignore_eos ? BY_OK : by_end_tokens(f->ends, &f->end_count, directory, tokenizer, error);
    if (status != BY_OK || (r->schema == NULL && r->regex == NULL && !r->json_object)) {
        return status;
    }
    status = by_token_list_of(&f->list, tokenizer, error);
    return status == BY_OK ? open_form(f, r, error) : status;
}

by_status cli_open_generation(by_pretrained **model, by_tokenizer **tokenizer, cli_form *form,
                              const cli_generation *r, const char *path, by_error *error)
{
    by_status status =
        cli_open_pretrained(model, path, r->device, r->best, r->ema, r->adapter, error);
    status = status == BY_OK ? cli_check_writes(*model, error) : status;
    if (status == BY_OK) {
        status = by_pretrained_tokenizer(tokenizer, *model, error);
    }
    return status == BY_OK
               ? cli_form_open(form, r, *tokenizer, by_pretrained_directory(*model), error)
               : status;
}

void cli_form_close(cli_form *f)
{
    by_constraint_close(&f->constraint);
    by_token_list_close(&f->list);
}

bool cli_form_ends(const cli_form *f, int32_t token)
{
    for (size_t i = 0; i < f->end_count; i++) {
        if (f->ends[i] == token) {
            return true;
        }
    }
    return false;
}

by_status cli_form_process(by_logit_process **out, const cli_form *f, int32_t n, by_error *error)
{
    const by_logit_rules *r = &f->rules;
    by_logit_process_options options = {.vocab = f->vocab,
                                        .n = n,
                                        .rules = *r,
                                        .constraint = f->constraint,
                                        .list = f->list,
                                        .ends = f->ends,
                                        .end_count = f->end_count};
    bool changes = f->constraint != NULL || r->presence != 0.0 || r->frequency != 0.0 ||
                   (r->repetition != 0.0 && r->repetition != 1.0);
    *out = NULL;
    return changes ? by_logit_process_open(out, &options, error) : BY_OK;
}
