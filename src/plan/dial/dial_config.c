/* The config of a choice, with the reasons for each part of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/dial/dial.h"

/* A scalar in double quotes. */
static void quote(by_string *out, const char *text)
{
    by_string_add(out, "\"", 1);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            by_string_add(out, "\\", 1);
        }
        by_string_add(out, text, 1);
    }
    by_string_add(out, "\"", 1);
}

/* Why a run ends where it does. */
static const char *end_of(const by_dial_choice *c)
{
    return strcmp(c->limit, "time") == 0    ? "all of the time"
           : strcmp(c->limit, "FLOPs") == 0 ? "all of the FLOPs"
           : strcmp(c->limit, "repeats") == 0
               ? "more of them are worth little (Muennighoff et al. 2023)"
               : "with as many tokens the size is the best of its FLOPs, by the law";
}

static void add_memory(by_string *out, const by_dial_choice *c, const char *before)
{
    char text[2][32];
    by_string_format(out, "%srecompute  ", before);
    if (c->planned > 0) {
        by_string_format(out, "%s planned%s%s: ", by_format_bytes(text[0], c->planned),
                         c->bytes > 0 ? " of " : "",
                         c->bytes > 0 ? by_format_bytes(text[1], c->bytes) : "");
    }
    if (c->bytes == 0 || !(c->slower > 1.0)) {
        by_string_format(out, "none, as all of it fits");
    } else {
        by_string_format(out, "steps take at most %.3g times as long", c->slower);
    }
    if (c->micro_batch > 0) {
        by_string_format(out, ", in micro-batches of %lld", (long long)c->micro_batch);
    }
    by_string_format(out, "\n");
}

static void add_reasons(by_string *out, const by_dial_choice *c, const by_dial_data *data,
                        const char *before)
{
    const by__dial_laws *l = &by__dial_laws_of_text;
    by_string_format(out,
                     "%smodel      llama, %lld layer%s, width %lld, %lld head%s: %.3g parameters, "
                     "%s\n",
                     before, (long long)c->layers, c->layers == 1 ? "" : "s", (long long)c->width,
                     (long long)c->heads, c->heads == 1 ? "" : "s", c->parameters, c->model);
    by_string_format(out,
                     "%slaw        bits = %.4g + %.4g N^-%.3g + %.4g D^-%.3g (blocks, bytes), of "
                     "runs here: docs/dial.md\n",
                     before, l->bits.e, l->bits.a, l->bits.alpha, l->bits.b, l->bits.beta);
    by_string_format(out, "%shorizon    %lld steps, %.4g tokens, %.3g epochs: %s\n", before,
                     (long long)c->steps, c->tokens, c->epochs, end_of(c));
    by_string_format(out,
                     "%stokenizer  BPE of %lld, %.3g bytes a token: an entry for each %g bytes of "
                     "text\n",
                     before, (long long)data->vocab, data->bytes_per_token, l->vocab_bytes);
    by_string_format(out,
                     "%sbatch      %lld x %lld tokens, as tokens^%.2g: the critical batch "
                     "(McCandlish et al. 2018)\n",
                     before, (long long)c->batch, (long long)c->context, l->batch_power);
    by_string_format(out,
                     "%srate       %.3g at width %lld, by muP at others (Yang et al. 2022), "
                     "linear to 0 (Defazio et al. 2023)\n",
                     before, c->lr, (long long)l->mup_width);
    if (c->precision[0] != '\0') {
        bool narrow = strcmp(c->precision, "f32") != 0;
        by_string_format(out, "%sprecision  %s: %s\n", before, c->precision,
                         c->asked ? "as asked for"
                         : narrow ? "this device multiplies it faster than f32"
                                  : "this device multiplies no narrower format faster");
    }
    add_memory(out, c, before);
    by_string_format(out, "%sprediction %.4f bits per byte, 80 %% within %.4f to %.4f%s\n", before,
                     c->bits, c->low, c->high, c->beyond ? ", beyond the law's runs" : "");
}

by_status by_dial_config(char **yaml, char **lines, const by_dial_choice *c,
                         const by_dial_data *data, const char *name, const by_string_list *text,
                         by_error *error)
{
    by_string out = {0};
    by_string reasons = {0};
    add_reasons(&reasons, c, data, "");
    by_string_format(
        &out, "# Chosen by the dial (banyan train --data); from here on an ordinary config.\n");
    add_reasons(&out, c, data, "# ");
    by_string_format(&out, "name: ");
    quote(&out, name);
    by_string_format(&out,
                     "\nmodel: {kind: llama, layers: %lld, width: %lld, heads: %lld, context: "
                     "%lld, tied: true,\n"
                     "        parameterisation: mup, mup_base_width: %lld}\n",
                     (long long)c->layers, (long long)c->width, (long long)c->heads,
                     (long long)c->context, (long long)by__dial_laws_of_text.mup_width);
    by_string_format(&out, "data: {text: [");
    for (size_t i = 0; i < text->count; i++) {
        by__string_append(&out, i > 0 ? ", " : "");
        quote(&out, text->items[i]);
    }
    by_string_format(&out, "], tokenizer: bpe, tokenizer_vocab: %lld, valid_fraction: 0.1}\n",
                     (long long)data->tokenizer);
    by_string_format(&out, "train: {steps: %lld, batch: %lld", (long long)c->steps,
                     (long long)c->batch);
    if (c->micro_batch > 0) {
        by_string_format(&out, ", micro_batch: %lld", (long long)c->micro_batch);
    }
    by_string_format(&out, "}\n");
    by_string_format(&out,
                     "optimizer: {kind: adamw, lr: %.4g, min_lr: 0, schedule: linear, warmup: "
                     "0.02, betas: [0.9, 0.98]}\n",
                     c->lr);
    if (c->precision[0] != '\0') {
        by_string_format(&out, "precision: {compute: %s}\n", c->precision);
    }
    if (c->bytes > 0) {
        by_string_format(&out, "memory: {budget: %llu}\n", (unsigned long long)c->bytes);
    }
    if (out.failed || reasons.failed) {
        by_string_free(&out);
        by_string_free(&reasons);
        return by_error_set(error, BY_EMEMORY, "out of memory: a config");
    }
    *yaml = out.data;
    if (lines != NULL) {
        *lines = reasons.data;
    } else {
        by_string_free(&reasons);
    }
    return BY_OK;
}

by_status by__dial_open(by_config **out, const by_dial_choice *choice, const by_dial_data *data,
                        const by_dial_request *request, by_error *error)
{
    char *yaml;
    BY_TRY(by_dial_config(&yaml, NULL, choice, data, request->name, &request->text, error));
    by_status status = by_config_parse(out, "the dial's config", yaml, strlen(yaml),
                                       request->overrides, request->override_count, error);
    free(yaml);
    if (status == BY_OK) {
        status = by_config_resolve(*out, error);
        if (status != BY_OK) {
            by_config_close(out);
        }
    }
    return status;
}
