/* `banyan generate --beams`: finds the most probable texts that follow a prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/beam.h"
#include "banyan/text_stream.h"
#include "base/prompt_file.h"
#include "generate/generate.h"

/* Larger prompt files are refused as mistakes. */

typedef struct beam_session {
    const cli_generation *r;
    cli_prompted p; /* of its form, only the end tokens are used */
    by_beam *beam;
    by_text_stream *stream;
} beam_session;

static by_status open_model(beam_session *s, const char *path, by_error *error)
{
    const cli_generation *r = s->r;
    by_status status = cli_prompted_open(&s->p, r, path, error);
    if (status == BY_OK) {
        const by_text_stream_options options = {.continues = s->p.length > 0};
        status = by_text_stream_open(&s->stream, s->p.tokenizer, &options, error);
    }
    if (status == BY_OK) {
        const by_beam_options options = {.beams = (int32_t)r->beams,
                                         .threads = (int)r->threads,
                                         .precision = r->precision,
                                         .vocab = s->p.vocab,
                                         .context = s->p.context};
        if (!r->json && !r->no_prompt) {
            fwrite(s->p.text, 1, s->p.length, stdout);
        }
        status = by_beam_open(&s->beam, by_pretrained_config(s->p.model),
                              by_pretrained_weights(s->p.model), &options, error);
    }
    by_pretrained_close(&s->p.model);
    return status;
}

/* Decodes a hypothesis without the token that ends it. */
static by_status text_of(beam_session *s, const by_hypothesis *h, by_string *out, by_error *error)
{
    by_text text;
    bool stopped;
    by_status status = BY_OK;
    by_text_stream_reset(s->stream);
    for (int64_t i = 0; i < h->count - h->stopped && status == BY_OK; i++) {
        status = by_text_stream_push(s->stream, (uint32_t)h->tokens[i], &text, &stopped, error);
        if (status == BY_OK) {
            by_string_add(out, text.data, text.length);
        }
    }
    if (status == BY_OK) {
        by_text_stream_end(s->stream, &text);
        by_string_add(out, text.data, text.length);
        status = by_string_check(out, error);
    }
    return status;
}

static by_status print(beam_session *s, const by_hypothesis *found, int32_t count, by_error *error)
{
    const cli_generation *r = s->r;
    by_status status = BY_OK;
    if (r->json) {
        printf("{\"prompt_tokens\":%zu,\"hypotheses\":[", s->p.prompt.count);
    }
    for (int32_t i = 0; i < (r->json ? count : 1) && status == BY_OK; i++) {
        const by_hypothesis *h = &found[i];
        by_string text = {0};
        status = text_of(s, h, &text, error);
        if (status == BY_OK && r->json) {
            printf("%s{\"tokens\":%lld,\"text\":", i == 0 ? "" : ",",
                   (long long)(h->count - h->stopped));
            cli_print_json_text(text.data, text.length);
            printf(",\"stop\":\"%s\",\"log_probability\":%.6g,\"score\":%.6g}",
                   h->stopped ? "end_of_text" : "length", h->log_probability, h->score);
        } else if (status == BY_OK) {
            fwrite(text.data, 1, text.length, stdout);
        }
        by_string_free(&text);
    }
    printf(r->json ? "]}\n" : "\n");
    return status;
}

static by_status search(beam_session *s, by_error *error)
{
    const cli_generation *r = s->r;
    const by_hypothesis *found;
    int32_t count;
    by_beam_request request = {/* Ids are below 2^31, so they are the same as int32_t. */
                               .prompt = (const int32_t *)(const void *)s->p.prompt.ids,
                               .prompt_count = s->p.prompt.count,
                               .tokens = r->tokens,
                               .length_penalty = r->length_penalty,
                               .end = r->early_stopping ? BY_BEAM_END_FULL : BY_BEAM_END_UNLIKELY,
                               .stop = s->p.form.ends,
                               .stop_count = s->p.form.end_count};
    by_status status = by_beam_run(s->beam, &request, &found, &count, error);
    return status == BY_OK ? print(s, found, count, error) : status;
}

int cli_generate_beams(const cli_generation *r, const char *path)
{
    beam_session s = {.r = r};
    by_error error = {0};
    by_status status = open_model(&s, path, &error);
    if (status == BY_OK) {
        status = search(&s, &error);
    }
    by_beam_close(&s.beam);
    by_text_stream_close(&s.stream);
    cli_prompted_close(&s.p);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_generate, &error);
}
