/* `banyan generate` on the engine: many prompts at once (--batch), or one prompt with drafts or
 * several texts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "banyan/engine.h"
#include "banyan/program.h"
#include "banyan/text_stream.h"
#include "base/measured_model.h"
#include "base/prompt_file.h"
#include "generate/generate.h"

/* Larger files of prompts are refused as mistakes. */
#define MAX_BATCH ((size_t)1 << 30)
/* Seconds between progress lines. */
#define PROGRESS 1.0

/* A text that continues a prompt. */
typedef struct batch_answer {
    by_text_stream *stream;
    by_string text;         /* so far */
    int64_t count;          /* number of generated tokens */
    double log_probability; /* sum over all tokens */
    by_string logprobs;     /* JSON objects of the tokens, separated by commas */
    const char *stop;       /* why it ended; NULL: it is running */
} batch_answer;

/* A prompt and its texts. */
typedef struct batch_prompt {
    cli_prompt from;
    uint64_t session;       /* 0: not submitted */
    by_token_buffer prompt; /* freed when it is submitted */
    size_t prompt_tokens;
    by_logit_process *process; /* NULL: logits are not changed */
    batch_answer *answers;     /* [each] */
    int64_t ended;             /* number of texts that have ended */
    bool done;
    bool cancels;  /* cancel the rest of its session after the events of the step are read */
    char *failure; /* NULL: none */
} batch_prompt;

typedef struct batch {
    const cli_generation *r;
    by_tokenizer *tokenizer;
    by_engine *engine;
    cli_draft drafts;
    cli_form form;
    char *data;
    int64_t each; /* number of texts of a prompt */
    batch_prompt *items;
    size_t count;
    size_t submitted;
    size_t done;
    size_t printed;
    size_t failed;
    bool streams; /* text is printed as it is generated */
    double began;
    double shown;
} batch;

/* ---- prompts ---- */

/* Reads the single prompt of --prompt or --file. */
static by_status read_one(batch *b, by_error *error)
{
    const cli_generation *r = b->r;
    size_t length = strlen(r->prompt);
    by_status status = BY_OK;
    if (r->file != NULL) {
        status = cli_read_prompt_file(&b->data, &length, r->file, MAX_BATCH, error);
    }
    b->items = calloc(1, sizeof *b->items);
    if (status == BY_OK && b->items == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: the prompt");
    }
    if (status == BY_OK) {
        const char *text = b->data == NULL ? r->prompt : b->data;
        b->items[b->count++].from =
            (cli_prompt){.text = text, .length = length, .tokens = -1, .sampling = r->sampling};
        if (!r->json && !r->no_prompt) {
            fwrite(text, 1, length, stdout);
            fflush(stdout);
        }
    }
    return status;
}

/* Lines that start with '{' are JSON objects, others are literal prompts; empty lines are
 * skipped. */
static by_status read_items(batch *b, by_error *error)
{
    size_t length;
    size_t lines = 1;
    if (b->r->batch == NULL) {
        return read_one(b, error);
    }
    by_status status = cli_read_prompt_file(&b->data, &length, b->r->batch, MAX_BATCH, error);
    if (status != BY_OK) {
        return status;
    }
    for (size_t i = 0; i < length; i++) {
        lines += b->data[i] == '\n';
    }
    b->items = calloc(lines, sizeof *b->items);
    if (b->items == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %zu prompts", lines);
    }
    const char *line = b->data;
    const char *end = b->data + length;
    for (size_t number = 1; line < end && status == BY_OK; number++) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((next == NULL ? end : next) - line);
        n -= n > 0 && line[n - 1] == '\r';
        if (n > 0) {
            status = cli_read_prompt_line(&b->items[b->count++].from, b->r, line, n, number, error);
        }
        line = next == NULL ? end : next + 1;
    }
    if (status == BY_OK && b->count == 0) {
        return by_error_set(error, BY_EARG, "%s contains no prompt", b->r->batch);
    }
    return status;
}

/* ---- sessions ---- */

/* Records why a prompt cannot be processed; the other prompts continue. */
static by_status refuse(batch *b, batch_prompt *it, const by_error *why, by_error *error)
{
    if (b->r->batch == NULL) {
        *error = *why;
        return BY_EARG;
    }
    size_t length = strlen(why->message);
    it->failure = malloc(length + 1);
    if (it->failure == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: prompts");
    }
    memcpy(it->failure, why->message, length + 1);
    it->done = true;
    b->done++;
    b->failed++;
    return BY_OK;
}

/* Prepares a prompt, once, before it is submitted. */
static by_status prepare(batch *b, batch_prompt *it, by_error *error)
{
    const cli_generation *r = b->r;
    by_text_stream_options options = {
        .stops = r->stops.items, .stop_count = r->stops.count, .continues = it->from.length > 0};
    if (it->answers != NULL) {
        return BY_OK;
    }
    it->answers = calloc((size_t)b->each, sizeof *it->answers);
    if (it->answers == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: prompts");
    }
    by_status status = cli_form_process(&it->process, &b->form, (int32_t)b->each, error);
    for (int64_t i = 0; i < b->each && status == BY_OK; i++) {
        status = by_text_stream_open(&it->answers[i].stream, b->tokenizer, &options, error);
    }
    return status == BY_OK && it->prompt.count == 0
               ? cli_encode_prompt(&it->prompt, b->tokenizer, it->from.text, it->from.length, error)
               : status;
}

/* Submits a prompt. BY_ESTATE: the engine has no room at present. */
static by_status submit(batch *b, batch_prompt *it, by_error *error)
{
    const cli_generation *r = b->r;
    by_status status = prepare(b, it, error);
    if (status != BY_OK) {
        return status;
    }
    by_request request = {/* Ids are below 2^31, so they are the same as int32_t. */
                          .prompt = (const int32_t *)(const void *)it->prompt.ids,
                          .prompt_count = it->prompt.count,
                          .tokens = it->from.tokens < 0 ? r->tokens : it->from.tokens,
                          .sampling = it->from.sampling,
                          .n = (int32_t)b->each,
                          .top = (int32_t)(r->logprobs > 0 ? r->logprobs : 0),
                          .stop = b->form.ends,
                          .stop_count = b->form.end_count,
                          .process = it->process == NULL ? NULL : by_logit_process_run,
                          .prepare = by_logit_process_prepare,
                          .user = it->process};
    request.sampling.seed =
        it->from.seeded ? it->from.sampling.seed : r->sampling.seed + (uint64_t)(it - b->items);
    status = by_engine_submit(b->engine, &request, &it->session, error);
    if (status != BY_ESTATE) {
        it->prompt_tokens = it->prompt.count;
        by_token_buffer_free(&it->prompt);
    }
    return status;
}

static by_status submit_more(batch *b, by_error *error)
{
    while (b->submitted < b->count) {
        by_error why = {0};
        batch_prompt *it = &b->items[b->submitted];
        by_status status = submit(b, it, &why);
        if (status == BY_ESTATE) {
            return BY_OK;
        }
        if (status == BY_EMEMORY) {
            *error = why;
            return status;
        }
        if (status != BY_OK && (status = refuse(b, it, &why, error)) != BY_OK) {
            return status;
        }
        b->submitted++;
    }
    return BY_OK;
}

/* Returns the item of a session; NULL: the item is done, and its session was cancelled at a stop
 * string. */
static batch_prompt *item_of(batch *b, uint64_t session)
{
    for (size_t i = b->printed; i < b->submitted; i++) {
        if (b->items[i].session == session) {
            return b->items[i].done ? NULL : &b->items[i];
        }
    }
    return NULL;
}

/* Keeps text that may be shown, and also prints it if there is only this text. */
static by_status show(const batch *b, batch_answer *a, const by_text *text, by_error *error)
{
    if (b->streams && text->length > 0) {
        fwrite(text->data, 1, text->length, stdout);
        fflush(stdout);
    }
    by_string_add(&a->text, text->data, text->length);
    return by_string_check(&a->text, error);
}

/* Ends a text; the prompt is done when its last text ends. */
static by_status end(batch *b, batch_prompt *it, batch_answer *a, const char *stop, by_error *error)
{
    by_text rest;
    by_text_stream_end(a->stream, &rest);
    a->stop = stop;
    if (++it->ended == b->each) {
        it->done = true;
        it->cancels = true; /* the session still generates beyond the stop string */
        b->done++;
    }
    return show(b, a, &rest, error);
}

/* Appends "id", "token" and "log_probability", without the end of the object. */
static by_status add_token(const batch *b, by_string *out, int32_t token, float log_probability,
                           by_error *error)
{
    const char *bytes;
    size_t length;
    char number[32];
    by_status status =
        by_tokenizer_token_bytes(b->tokenizer, (uint32_t)token, &bytes, &length, error);
    if (status == BY_OK) {
        by_string_format(out, "{\"id\":%lld,\"token\":", (long long)token);
        by_string_json(out, bytes, length);
        by_string_format(out, ",\"log_probability\":%s",
                         cli_json_number(number, (double)log_probability, 6));
    }
    return status;
}

/* Appends what --logprobs reports for a token. */
static by_status add_logprobs(const batch *b, batch_answer *a, const by_event *event,
                              by_error *error)
{
    by_string *out = &a->logprobs;
    by_string_add(out, ",", a->count > 1);
    by_status status = add_token(b, out, event->token, event->log_probability, error);
    by_string_format(out, ",\"top\":[");
    for (int32_t i = 0; i < event->top_count && status == BY_OK; i++) {
        const by_top_token *top = &event->top[i];
        by_string_add(out, ",", i > 0);
        status = add_token(b, out, top->token, top->log_probability, error);
        by_string_add(out, "}", 1);
    }
    by_string_add(out, "]}", 2);
    return status == BY_OK ? by_string_check(out, error) : status;
}

static by_status add_event(batch *b, const by_event *event, by_error *error)
{
    batch_prompt *it = item_of(b, event->session);
    bool stopped = false;
    by_text text;
    by_status status = BY_OK;
    if (it == NULL || it->answers[event->index].stop != NULL) {
        return BY_OK;
    }
    batch_answer *a = &it->answers[event->index];
    if (event->finish == BY_FINISH_FAILED) {
        by_error why = {0};
        (void)by_error_set(&why, BY_ESTATE, "%s", event->failure);
        it->cancels = true;
        return refuse(b, it, &why, error);
    }
    bool complete = event->finish == BY_FINISH_STOP && event->token < 0;
    if (event->token >= 0 && event->finish != BY_FINISH_STOP) {
        a->count++;
        a->log_probability += (double)event->log_probability;
        status = by_text_stream_push(a->stream, (uint32_t)event->token, &text, &stopped, error);
        if (status == BY_OK) {
            status = show(b, a, &text, error);
        }
        if (status == BY_OK && b->r->logprobs >= 0) {
            status = add_logprobs(b, a, event, error);
        }
    }
    if (status == BY_OK && stopped) {
        status = end(b, it, a, "stop_string", error);
    } else if (status == BY_OK && event->finish != BY_FINISH_NONE) {
        bool eos = event->finish == BY_FINISH_STOP;
        const char *why = complete ? "complete"
                          : eos    ? "end_of_text"
                                   : by_finish_name(event->finish);
        status = end(b, it, a, why, error);
    }
    return status;
}

/* ---- output ---- */

/* Returns the answer with the highest mean log-probability, the first of equals. */
static const batch_answer *best(const batch *b, const batch_prompt *it)
{
    const batch_answer *found = &it->answers[0];
    double most = -HUGE_VAL;
    for (int64_t i = 0; i < b->each; i++) {
        const batch_answer *a = &it->answers[i];
        double mean = a->count == 0 ? -HUGE_VAL : a->log_probability / (double)a->count;
        if (mean > most) {
            most = mean;
            found = a;
        }
    }
    return found;
}

/* Prints the texts of a single prompt; with -n, all of them. */
static void print_texts(const batch *b, const batch_prompt *it)
{
    for (int64_t i = 0; i < b->r->texts && !b->streams; i++) {
        const batch_answer *a = b->r->texts > 1 ? &it->answers[i] : best(b, it);
        if (i > 0) {
            printf("\n---\n");
            fwrite(it->from.text, 1, b->r->no_prompt ? 0 : it->from.length, stdout);
        }
        fwrite(a->text.data, 1, a->text.length, stdout);
    }
    putchar('\n');
}

/* Prints an answer as members of a JSON object. */
static void print_answer(const batch *b, const batch_answer *a)
{
    printf("\"tokens\":%lld,\"text\":", (long long)a->count);
    cli_print_json_text(a->text.data, a->text.length);
    printf(",\"stop\":\"%s\",\"log_probability\":%.6g", a->stop, a->log_probability);
    if (b->r->logprobs >= 0) {
        printf(",\"logprobs\":[%s]", a->logprobs.data == NULL ? "" : a->logprobs.data);
    }
}

static void print_item(const batch *b, const batch_prompt *it)
{
    if (b->r->batch == NULL && !b->r->json && it->failure == NULL) {
        print_texts(b, it);
        return;
    }
    printf("{\"index\":%zu,", (size_t)(it - b->items));
    if (it->failure != NULL) {
        printf("\"error\":");
        cli_print_json_string(it->failure);
        printf("}\n");
        return;
    }
    printf("\"prompt_tokens\":%zu,", it->prompt_tokens);
    if (b->r->texts == 1) {
        print_answer(b, best(b, it));
    }
    for (int64_t i = 0; i < b->r->texts && b->r->texts > 1; i++) {
        printf(i == 0 ? "\"texts\":[{" : ",{");
        print_answer(b, &it->answers[i]);
        putchar('}');
    }
    printf(b->r->texts > 1 ? "]}\n" : "}\n");
}

static void release(batch_prompt *it, int64_t answers)
{
    for (int64_t i = 0; i < answers && it->answers != NULL; i++) {
        by_text_stream_close(&it->answers[i].stream);
        by_string_free(&it->answers[i].text);
        by_string_free(&it->answers[i].logprobs);
    }
    by_token_buffer_free(&it->prompt);
    by_logit_process_close(&it->process);
    free(it->answers);
    free(it->failure);
    json_decref(it->from.parsed);
    it->answers = NULL;
    it->failure = NULL;
    it->from.parsed = NULL;
}

/* Prints finished prompts behind an unfinished one, when there will be no more: each line has its
 * index. */
static void print_rest(batch *b)
{
    for (size_t i = b->printed; i < b->count && b->r->batch != NULL; i++) {
        if (b->items[i].done) {
            print_item(b, &b->items[i]);
        }
    }
    fflush(stdout);
}

/* Prints finished prompts in order, up to the first one that is not finished. */
static void print_done(batch *b)
{
    size_t first = b->printed;
    while (b->printed < b->count && b->items[b->printed].done) {
        print_item(b, &b->items[b->printed]);
        release(&b->items[b->printed++], b->each);
    }
    if (b->printed > first) {
        fflush(stdout);
    }
}

static void show_progress(batch *b, bool last)
{
    double now = by_clock();
    bool terminal = isatty(STDERR_FILENO) != 0;
    if (b->r->batch == NULL && !(last && b->r->verbose)) {
        return;
    }
    if ((!terminal && !(last && b->r->verbose)) || (!last && now - b->shown < PROGRESS)) {
        return;
    }
    by_engine_statistics st = by_engine_statistics_now(b->engine);
    double seconds = now - b->began;
    b->shown = now;
    fprintf(stderr,
            "%s%zu of %zu prompts, %llu tokens, %.1f tokens/s, %.1f rows per step, %llu of %llu "
            "drafts accepted%s",
            terminal ? "\r" : "", b->done, b->count, (unsigned long long)st.generated,
            seconds > 0.0 ? (double)st.generated / seconds : 0.0,
            st.steps > 0 ? (double)st.rows / (double)st.steps : 0.0,
            (unsigned long long)st.accepted, (unsigned long long)st.drafted, last ? "\n" : "   ");
}

static by_status work(batch *b, by_error *error)
{
    by_status status = BY_OK;
    b->began = b->shown = by_clock();
    while (status == BY_OK && b->done < b->count) {
        const by_event *events;
        size_t count = 0;
        if (cli_stop_requested(NULL)) {
            return by_error_set(error, BY_ESTOPPED, "interrupted: %zu of %zu prompts are done",
                                b->done, b->count);
        }
        status = submit_more(b, error);
        if (status == BY_OK && by_engine_busy(b->engine)) {
            status = by_engine_step(b->engine, &events, &count, error);
        }
        for (size_t i = 0; i < count && status == BY_OK; i++) {
            status = add_event(b, &events[i], error);
        }
        for (size_t i = b->printed; i < b->submitted && status == BY_OK; i++) {
            if (b->items[i].cancels) {
                by_error ended = {0}; /* it may have ended with its last text */
                b->items[i].cancels = false;
                (void)by_engine_cancel(b->engine, b->items[i].session, &ended);
            }
        }
        if (status == BY_OK) {
            print_done(b);
            show_progress(b, false);
        }
    }
    if (status == BY_OK) {
        show_progress(b, true);
    }
    return status;
}

/* Returns the context for the longest prompt and its continuation. A prompt that cannot be encoded
 * is refused when it is submitted. */
static int64_t longest_context(batch *b, const by_pretrained *model)
{
    int64_t most = 1;
    for (size_t i = 0; i < b->count; i++) {
        batch_prompt *it = &b->items[i];
        by_error unused = {0};
        if (cli_encode_prompt(&it->prompt, b->tokenizer, it->from.text, it->from.length, &unused) !=
            BY_OK) {
            by_token_buffer_free(&it->prompt);
        }
        int64_t tokens = it->from.tokens < 0 ? b->r->tokens : it->from.tokens;
        int64_t need = cli_context_of(b->r, it->prompt.count, tokens, model);
        most = need > most ? need : most;
    }
    return most;
}

static by_status open_engine(batch *b, const char *path, by_error *error)
{
    const cli_generation *r = b->r;
    by_pretrained *pretrained = NULL;
    int64_t texts =
        (int64_t)b->count > r->sessions / b->each ? r->sessions : (int64_t)b->count * b->each;
    by_engine_options options = {.sessions = texts,
                                 .waiting = 4 * r->sessions,
                                 .threads = (int)r->threads,
                                 .precision = r->precision,
                                 .kv = r->kv};
    by_status status = cli_open_generation(&pretrained, &b->tokenizer, &b->form, r, path, error);
    if (status == BY_OK && r->speculate != NULL) {
        status = cli_draft_open(&b->drafts, r->speculate, b->tokenizer, r->precision,
                                (int)r->threads, error);
        options.draft = &b->drafts.source;
    }
    if (status == BY_OK) {
        options.vocab = (int64_t)by_tokenizer_vocab(b->tokenizer);
        options.context = longest_context(b, pretrained);
        status = by_engine_open(&b->engine, by_pretrained_config(pretrained),
                                by_pretrained_weights(pretrained), &options, error);
    }
    by_pretrained_close(&pretrained);
    return status;
}

int cli_generate_batch(const cli_generation *r, const char *path)
{
    batch b = {.r = r, .each = r->texts > 1 ? r->texts : r->best_of};
    b.streams = r->batch == NULL && b.each == 1 && !r->json;
    by_error error = {0};
    by_status status = read_items(&b, &error);
    if (status == BY_OK) {
        status = open_engine(&b, path, &error);
    }
    if (status == BY_OK) {
        status = work(&b, &error);
        print_rest(&b);
    }
    by_engine_close(&b.engine);
    cli_draft_close(&b.drafts);
    for (size_t i = b.printed; i < b.count; i++) {
        release(&b.items[i], b.each);
    }
    cli_form_close(&b.form);
    by_tokenizer_close(&b.tokenizer);
    free(b.items);
    free(b.data);
    if (status == BY_ESTOPPED) {
        (void)cli_fail(&cli_generate, &error);
        return CLI_INTERRUPTED;
    }
    return status == BY_OK ? cli_tell_failed(&cli_generate, b.failed, b.count)
                           : cli_fail(&cli_generate, &error);
}
