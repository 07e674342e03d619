#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/beam.h"
#include "banyan/engine.h"
#include "banyan/infer.h"
#include "banyan/program.h"
#include "banyan/text_stream.h"
#include "base/measured_model.h"
#include "base/prompt_file.h"
#include "generate/generate.h"

/* Larger prompt files are refused as mistakes. */
#define MAX_PROMPT ((size_t)16 << 20)

typedef struct generate_session {
    const cli_generation *request;
    cli_prompted p;
    by_generator *generator;
    by_text_stream *stream;
    by_logit_process *process; /* NULL: logits are not changed */
    int32_t *ids;              /* the prompt, then the generated tokens */
    by_string answer;          /* with --json: the generated text */
    int64_t tokens;            /* number of generated tokens */
    bool shown;                /* text was printed, and its line has not ended yet */
    const char *stop;
    double prefill_seconds;
    double decode_seconds;
} generate_session;

/* ---- the prompt ---- */

/* Without a prompt, the model continues the end of a document, or a newline. */
static by_status begin_without_prompt(by_token_buffer *prompt, const by_tokenizer *tokenizer,
                                      by_error *error)
{
    int64_t id = by_tokenizer_eos(tokenizer);
    if (id < 0) {
        id = by_tokenizer_token_id(tokenizer, "\n", 1);
    }
    if (id < 0) {
        return by_error_set(error, BY_EARG,
                            "this tokenizer has no end-of-text or newline token to begin with: "
                            "give a prompt with --prompt");
    }
    prompt->ids = malloc(sizeof *prompt->ids);
    if (prompt->ids == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: the prompt");
    }
    prompt->ids[0] = (uint32_t)id;
    prompt->count = prompt->capacity = 1;
    return BY_OK;
}

by_status cli_encode_prompt(by_token_buffer *out, const by_tokenizer *tokenizer, const char *text,
                            size_t length, by_error *error)
{
    by_status status = by_tokenizer_encode(tokenizer, text, length, out,
                                           BY_ENCODE_SPECIAL | BY_ENCODE_ADD_BEFORE, error);
    return status == BY_OK && out->count == 0 ? begin_without_prompt(out, tokenizer, error)
                                              : status;
}

int64_t cli_context_of(const cli_generation *r, size_t prompt, int64_t tokens,
                       const by_pretrained *model)
{
    int64_t most = by_pretrained_config(model)->model.context;
    bool fits = prompt < (size_t)most && tokens < most - (int64_t)prompt;
    int64_t need = fits ? (int64_t)prompt + tokens : most;
    return r->context > 0 ? r->context : need < 1 ? 1 : need;
}

by_status cli_prompted_open(cli_prompted *p, const cli_generation *r, const char *path,
                            by_error *error)
{
    by_status status = cli_open_generation(&p->model, &p->tokenizer, &p->form, r, path, error);
    p->length = strlen(r->prompt);
    if (status == BY_OK && r->file != NULL) {
        status = cli_read_prompt_file(&p->file, &p->length, r->file, MAX_PROMPT, error);
    }
    p->text = p->file == NULL ? r->prompt : p->file;
    if (status == BY_OK) {
        status = cli_encode_prompt(&p->prompt, p->tokenizer, p->text, p->length, error);
    }
    if (status == BY_OK) {
        p->vocab = (int64_t)by_tokenizer_vocab(p->tokenizer);
        p->context = cli_context_of(r, p->prompt.count, r->tokens, p->model);
    }
    return status;
}

void cli_prompted_close(cli_prompted *p)
{
    by_pretrained_close(&p->model);
    by_tokenizer_close(&p->tokenizer);
    by_token_buffer_free(&p->prompt);
    cli_form_close(&p->form);
    free(p->file);
}

static void show_prompt(generate_session *s)
{
    if (!s->request->json && !s->request->no_prompt) {
        fwrite(s->p.text, 1, s->p.length, stdout);
        fflush(stdout);
        s->shown = true;
    }
}

/* ---- the continuation ---- */

/* Prints text that may be shown, or keeps it for --json. */
static by_status show(generate_session *s, const by_text *text, by_error *error)
{
    if (s->request->json) {
        by_string_add(&s->answer, text->data, text->length);
        return by_string_check(&s->answer, error);
    }
    if (text->length > 0) {
        fwrite(text->data, 1, text->length, stdout);
        fflush(stdout);
        s->shown = true;
    }
    return BY_OK;
}

static by_status add_token(generate_session *s, int32_t token, bool *stopped, by_error *error)
{
    by_text text;
    by_status status = by_text_stream_push(s->stream, (uint32_t)token, &text, stopped, error);
    s->tokens++;
    return status == BY_OK ? show(s, &text, error) : status;
}

static by_status open_stream(generate_session *s, by_error *error)
{
    const cli_generation *r = s->request;
    by_text_stream_options options = {.stops = r->stops.items,
                                      .stop_count = r->stops.count,
                                      .continues = r->file != NULL || r->prompt[0] != '\0'};
    return by_text_stream_open(&s->stream, s->p.tokenizer, &options, error);
}

static by_status feed_prompt(generate_session *s, by_error *error)
{
    long long context = (long long)by_generator_context(s->generator);
    /* Only a logit processor needs the generated tokens. */
    size_t room = s->p.prompt.count + (s->process != NULL ? (size_t)s->request->tokens : 0);
    s->ids = room <= SIZE_MAX / sizeof *s->ids ? malloc(room * sizeof *s->ids) : NULL;
    if (s->ids == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: the prompt");
    }
    if (s->p.prompt.count > (size_t)context) {
        fprintf(stderr,
                "banyan generate: the prompt has %zu tokens, the context %lld: only the last %lld "
                "are used\n",
                s->p.prompt.count, context, context / 2 < 1 ? 1 : context / 2);
    }
    for (size_t i = 0; i < s->p.prompt.count; i++) {
        s->ids[i] = (int32_t)s->p.prompt.ids[i];
    }
    double begin = by_clock();
    by_status status = by_generator_feed(s->generator, s->ids, s->p.prompt.count, error);
    s->prefill_seconds = by_clock() - begin;
    return status;
}

/* Chooses the next token, or sets *stop to the reason why there is none. */
static by_status choose(generate_session *s, int32_t *token, const char **stop, by_error *error)
{
    const cli_generation *r = s->request;
    int64_t prompt = (int64_t)s->p.prompt.count;
    by_status status = by_generator_sample_with(
        s->generator, &r->sampling, s->process == NULL ? NULL : by_logit_process_run, s->process,
        s->ids, prompt + s->tokens, prompt, token, error);
    if (status == BY_ESTOPPED || (status == BY_OK && cli_form_ends(&s->p.form, *token))) {
        *stop = status == BY_OK ? "end_of_text" : "complete";
        return BY_OK;
    }
    if (status == BY_OK && s->process != NULL) {
        s->ids[prompt + s->tokens] = *token;
    }
    return status;
}

static by_status continue_text(generate_session *s, by_error *error)
{
    const cli_generation *r = s->request;
    double begin = by_clock();
    by_status status = BY_OK;
    s->stop = "length";
    while (status == BY_OK && s->tokens < r->tokens) {
        int32_t token;
        const char *stop = NULL;
        if (cli_stop_requested(NULL)) {
            s->stop = "interrupted";
            break;
        }
        status = choose(s, &token, &stop, error);
        if (stop != NULL) {
            s->stop = stop;
            break;
        }
        bool stopped = false;
        if (status == BY_OK) {
            status = add_token(s, token, &stopped, error);
        }
        if (stopped) {
            s->stop = "stop_string";
            break;
        }
        if (status == BY_OK && s->tokens < r->tokens) {
            status = by_generator_feed(s->generator, &token, 1, error);
        }
    }
    if (status == BY_OK) {
        by_text rest;
        by_text_stream_end(s->stream, &rest);
        status = show(s, &rest, error);
    }
    s->decode_seconds = by_clock() - begin;
    return status;
}

static double rate(double count, double seconds)
{
    return seconds > 0.0 ? count / seconds : 0.0;
}

static void report(const generate_session *s)
{
    const by_generator_memory_report *memory = by_generator_memory(s->generator);
    double prefill = rate((double)s->p.prompt.count, s->prefill_seconds);
    double decode = rate((double)s->tokens, s->decode_seconds);
    if (s->request->json) {
        printf("{\"prompt_tokens\":%zu,\"tokens\":%lld,\"text\":", s->p.prompt.count,
               (long long)s->tokens);
        cli_print_json_text(s->answer.data, s->answer.length);
        printf(",\"stop\":\"%s\",\"seed\":%llu,\"prefill_tokens_per_s\":%.6g,"
               "\"decode_tokens_per_s\":%.6g,\"memory_bytes\":%llu}\n",
               s->stop, (unsigned long long)s->request->sampling.seed, prefill, decode,
               (unsigned long long)memory->total);
        return;
    }
    putchar('\n');
    fflush(stdout);
    if (s->request->verbose || isatty(STDERR_FILENO)) {
        char text[32];
        fprintf(stderr, "%zu + %lld tokens, prompt %.0f tokens/s, generation %.1f tokens/s, %s%s\n",
                s->p.prompt.count, (long long)s->tokens, prefill, decode,
                by_format_bytes(text, memory->total),
                strcmp(s->stop, "interrupted") == 0 ? "; interrupted" : "");
    }
}

/* ---- the model ---- */

static by_status open_model(generate_session *s, const char *path, by_error *error)
{
    by_status status = cli_prompted_open(&s->p, s->request, path, error);
    if (status == BY_OK) {
        const by_generator_options options = {.threads = (int)s->request->threads,
                                              .precision = s->request->precision,
                                              .slide = true,
                                              .vocab = s->p.vocab,
                                              .context = s->p.context};
        status = by_generator_open(&s->generator, by_pretrained_config(s->p.model),
                                   by_pretrained_weights(s->p.model), &options, error);
    }
    by_pretrained_close(&s->p.model);
    return status;
}

static int generate(const cli_generation *r, const char *path)
{
    generate_session s = {.request = r, .stop = "length"};
    by_error error = {0};
    by_status status = open_model(&s, path, &error);
    if (status == BY_OK) {
        show_prompt(&s);
        status = open_stream(&s, &error);
    }
    if (status == BY_OK) {
        status = cli_form_process(&s.process, &s.p.form, 1, &error);
    }
    if (status == BY_OK) {
        status = feed_prompt(&s, &error);
    }
    if (status == BY_OK) {
        status = continue_text(&s, &error);
    }
    int code = CLI_DONE;
    if (status == BY_OK) {
        report(&s);
        code = strcmp(s.stop, "interrupted") == 0 ? CLI_INTERRUPTED : CLI_DONE;
    } else {
        if (s.shown) { /* so that the message starts on a new line */
            putchar('\n');
            fflush(stdout);
        }
        code = cli_fail(&cli_generate, &error);
    }
    by_generator_close(&s.generator);
    by_text_stream_close(&s.stream);
    by_logit_process_close(&s.process);
    cli_prompted_close(&s.p);
    free(s.ids);
    by_string_free(&s.answer);
    return code;
}

static bool on_engine(const cli_generation *r)
{
    return r->batch != NULL || r->speculate != NULL || r->kv != NULL || r->best_of > 1 ||
           r->texts > 1 || r->logprobs >= 0;
}

/* A beam search takes the most probable tokens without sampling options. */
static int check_beams(const cli_generation *r)
{
    bool shaped = r->schema != NULL || r->regex != NULL || r->json_object ||
                  r->rules.repetition != 0.0 || r->rules.presence != 0.0 ||
                  r->rules.frequency != 0.0;
    if (r->beams > 0 && (on_engine(r) || r->stops.count > 0 || shaped)) {
        return cli_misuse(&cli_generate,
                          "--beams cannot be combined with --batch, --speculate, --kv, --best-of, "
                          "-n, --logprobs, --stop, penalties or structured output");
    }
    return -1;
}

/* Checks the number of texts of a prompt, and what is reported about them. */
static int check_texts(const cli_generation *r)
{
    if (r->best_of > r->sessions * 4) {
        return cli_misuse(&cli_generate, "--best-of must be at most four times --sessions");
    }
    if (r->texts > r->sessions * 4) {
        return cli_misuse(&cli_generate, "-n must be at most four times --sessions");
    }
    if (r->texts > 1 && r->best_of > 1) {
        return cli_misuse(&cli_generate, "-n and --best-of cannot be combined: the first prints "
                                         "all texts of a prompt, the second the best one");
    }
    if (r->logprobs >= 0 && r->batch == NULL && !r->json) {
        return cli_misuse(&cli_generate,
                          "--logprobs needs --json or --batch, whose JSON lines contain them");
    }
    return -1;
}

/* Checks the flags of images. */
static int check_images(const cli_generation *r)
{
    if ((r->image != NULL || r->images != NULL) &&
        (r->file != NULL || r->prompt[0] != '\0' || on_engine(r) || r->beams > 0)) {
        return cli_misuse(&cli_generate, "--image and --images take no text and no options of it");
    }
    if ((r->class != NULL || r->tensorboard) && r->image == NULL && r->images == NULL) {
        return cli_misuse(&cli_generate, "%s is of new images: it needs --image FILE.png",
                          r->tensorboard ? "--tensorboard" : "--class");
    }
    if (r->tensorboard && r->image == NULL) {
        return cli_misuse(&cli_generate, "--tensorboard needs --image FILE.png, the grid");
    }
    size_t length = r->image == NULL ? 0 : strlen(r->image);
    if (r->image != NULL && (length < 5 || strcmp(r->image + length - 4, ".png") != 0)) {
        return cli_misuse(&cli_generate, "--image %s: a grid of images is a file in .png",
                          r->image);
    }
    return -1;
}

/* Checks combinations of flags. Returns an exit code, or -1 to continue. */
static int check(const cli_generation *r)
{
    if (r->file != NULL && r->prompt[0] != '\0') {
        return cli_misuse(&cli_generate, "--prompt and --file cannot be combined");
    }
    if (r->batch != NULL && (r->file != NULL || r->prompt[0] != '\0' || r->json || r->no_prompt)) {
        return cli_misuse(
            &cli_generate,
            "--batch cannot be combined with --prompt, --file, --json or --no-prompt");
    }
    if (r->tokens < 1 && (on_engine(r) || r->beams > 0)) {
        return cli_misuse(&cli_generate, "--tokens must be at least 1 with --batch, --speculate, "
                                         "--kv, --best-of, -n, --logprobs and --beams");
    }
    if ((r->schema != NULL) + (r->regex != NULL) + (r->json_object ? 1 : 0) > 1) {
        return cli_misuse(&cli_generate, "--schema, --regex and --json-object exclude each other");
    }
    for (size_t i = 0; i < r->stops.count; i++) {
        if (r->stops.items[i][0] == '\0') {
            return cli_misuse(&cli_generate, "--stop needs a text");
        }
    }
    by_error error;
    if (by_sampling_check(&r->sampling, &error) != BY_OK) {
        return cli_misuse(&cli_generate, "%s", error.message);
    }
    if (r->kv != NULL && strcmp(r->kv, "int8") != 0) {
        return cli_misuse(&cli_generate, "--kv '%s': only int8 is supported", r->kv);
    }
    int code = check_texts(r);
    code = code >= 0 ? code : check_beams(r);
    code = code >= 0 ? code : check_images(r);
    return code >= 0 ? code : cli_check_precision(&cli_generate, r->precision);
}

/* Generates with checked flags. */
static int start(const cli_generation *r, const char *model)
{
    cli_catch_signals();
    if (r->image != NULL || r->images != NULL) {
        return cli_generate_images(r, model);
    }
    if (r->beams > 0) {
        return cli_generate_beams(r, model);
    }
    return on_engine(r) ? cli_generate_batch(r, model) : generate(r, model);
}

static const cli_generation defaults = {.prompt = "",
                                        .tokens = 200,
                                        .best_of = 1,
                                        .texts = 1,
                                        .logprobs = -1,
                                        .length_penalty = 1.0,
                                        .sessions = 16,
                                        .samples = 16,
                                        .guidance = 2.0,
                                        .sampling = {.temperature = 0.8, .top_p = 0.95}};

/* Of a model that makes images. */
#define IMAGE_FLAGS                                                                                \
    {"image", CLI_STRING, &r.image, "FILE",                                                        \
     "of a model of task.kind diffuse: write a grid of new images, .png"},                         \
        {"images", CLI_STRING, &r.images, "DIR",                                                   \
         "the same: write each image to a PNG in DIR, by number and class"},                       \
        {"samples", CLI_INTEGER_IN(1, 100000), &r.samples, "N",                                    \
         "with --image: number of images (default 16)"},                                           \
        {"class", CLI_STRING, &r.class, "NAME",                                                    \
         "with --image: the class of all images, by name or number (default: each in turn)"},      \
        {"tensorboard", CLI_SWITCH, &r.tensorboard, NULL,                                          \
         "with --image: write the grid for TensorBoard, too"},                                     \
        {"steps", CLI_INTEGER_FROM(1), &r.steps, "N",                                              \
         "with --image: runs of the model for an image (default 50)"},                             \
    {                                                                                              \
        "guidance", CLI_NUMBER, &r.guidance, "S",                                                  \
            "with --image: how much the class counts; 1: as the model says (default 2)"            \
    }

static int run(int argc, char **argv)
{
    cli_generation r = defaults;
    const cli_flag flags[] = {
        {"prompt", CLI_STRING, &r.prompt, "TEXT",
         "text to continue (default: begin a new document)"},
        {"file", CLI_STREAM, &r.file, "FILE", "read the prompt from a file; - for standard input"},
        {"batch", CLI_STREAM, &r.batch, "FILE",
         "continue every prompt of a file, one per line (text or {\"prompt\": ...}), and print one "
         "JSON line each"},
        {"n", CLI_INTEGER_FROM(1), &r.texts, "N",
         "generate N texts per prompt and print all of them (default 1)"},
        {"best-of", CLI_INTEGER_FROM(1), &r.best_of, "N",
         "generate N texts per prompt and print the most likely one (default 1)"},
        {"beams", CLI_INTEGER_IN(1, BY_BEAMS), &r.beams, "N",
         "beam search with N beams instead of sampling"},
        {"length-penalty", CLI_NUMBER, &r.length_penalty, "X",
         "with --beams: divide log-probabilities by length to the power of X (default 1)"},
        {"early-stopping", CLI_SWITCH, &r.early_stopping, NULL,
         "with --beams: stop as soon as N texts have ended"},
        {"speculate", CLI_STRING, &r.speculate, "ngram|MODEL", CLI_SPECULATE_HELP},
        {"kv", CLI_STRING, &r.kv, "int8", CLI_KV_HELP},
        {"sessions", CLI_INTEGER_IN(1, 4096), &r.sessions, "N",
         "prompts of a batch that run at the same time (default 16)"},
        {"tokens", CLI_INTEGER_FROM(0), &r.tokens, "N", "most tokens to generate (default 200)"},
        {"temperature", CLI_NUMBER, &r.sampling.temperature, "T",
         "sampling temperature; 0 always takes the most probable token (default 0.8)"},
        {"top-k", CLI_INTEGER_FROM(0), &r.sampling.top_k, "K",
         "sample from the K most probable tokens only; 0: from all (default 0)"},
        {"top-p", CLI_NUMBER, &r.sampling.top_p, "P",
         "sample from the most probable tokens whose probabilities add up to P; 1: from all "
         "(default 0.95)"},
        {"min-p", CLI_NUMBER, &r.sampling.min_p, "P",
         "sample from tokens with at least P times the probability of the best one; 0: from all "
         "(default 0)"},
        {"typical-p", CLI_NUMBER, &r.sampling.typical_p, "P",
         "locally typical sampling: the most typical tokens that add up to P; 1: off"},
        {"repetition-penalty", CLI_NUMBER, &r.rules.repetition, "X",
         "divide the logits of tokens that occurred already by X; 1: off (default 1)"},
        {"presence-penalty", CLI_NUMBER, &r.rules.presence, "X",
         "subtract X from the logits of tokens that were generated already (default 0)"},
        {"frequency-penalty", CLI_NUMBER, &r.rules.frequency, "X",
         "subtract X for each time that a token was generated already (default 0)"},
        {"schema", CLI_INPUT, &r.schema, "FILE",
         "structured output: JSON that fits the JSON schema in this file"},
        {"json-object", CLI_SWITCH, &r.json_object, NULL, "structured output: a JSON object"},
        {"regex", CLI_STRING, &r.regex, "PATTERN",
         "structured output: text that matches this regular expression as a whole"},
        {"stop", CLI_LIST, &r.stops, "TEXT",
         "end the text where the model writes TEXT, which is not printed; may be repeated"},
        {"seed", CLI_SEED, &r.sampling.seed, "N",
         "random seed; equal seeds give equal texts (default 0)"},
        IMAGE_FLAGS,
        {"context", CLI_INTEGER_FROM(1), &r.context, "N",
         "tokens of the context window (default: as prompt and --tokens need, up to the model's)"},
        {"precision", CLI_STRING, &r.precision, "TYPE", CLI_MODEL_PRECISION_HELP},
        {"device", CLI_STRING, &r.device, "NAME", CLI_DEVICE_HELP},
        {"threads", CLI_THREADS, &r.threads, "N",
         "compute threads (default: the model's train.threads)"},
        {"best", CLI_SWITCH, &r.best, NULL, CLI_BEST_HELP},
        {"ema", CLI_SWITCH, &r.ema, NULL, CLI_EMA_HELP},
        {"adapter", CLI_INPUT, &r.adapter, "DIR", CLI_ADAPTER_HELP},
        {"ignore-eos", CLI_SWITCH, &r.ignore_eos, NULL, "continue when the model ends the text"},
        {"no-prompt", CLI_SWITCH, &r.no_prompt, NULL, "print the continuation without the prompt"},
        {"verbose", CLI_SWITCH, &r.verbose, NULL,
         "print the speed even when standard error is not a terminal"},
        {"logprobs", CLI_INTEGER_IN(0, BY_TOP_TOKENS), &r.logprobs, "K",
         "with --json or --batch: log-probabilities of each token and the K most probable ones"},
        {"json", CLI_SWITCH, &r.json, NULL, "print one JSON line at the end instead of the text"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_generate, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_generate, "name one run or model directory");
    }
    code = check(&r);
    return code >= 0 ? code : start(&r, rest[0]);
}

const cli_command cli_generate = {
    .name = "generate",
    .summary = "continue a text, or make images, with a trained model",
    .usage = "banyan generate RUN [--prompt TEXT | --file FILE] [--tokens N] [--temperature T]",
    .text =
        "Continues a text with a trained model, and prints it as it is generated. With --image or\n"
        "--images, makes images with a model of task.kind diffuse.\n"
        "\n"
        "examples:\n"
        "  banyan generate runs/shakespeare-char --prompt 'ROMEO:' --tokens 300 --seed 1\n"
        "  banyan generate runs/shakespeare-char --batch prompts.txt --tokens 100\n"
        "  banyan generate runs/shakespeare-char --prompt 'ROMEO:' -n 3 --logprobs 5 --json\n"
        "  banyan generate runs/digits-dit --ema --image digits.png --samples 50 --seed 1\n"
        "  banyan generate runs/shakespeare-char --regex '[A-Z]{3,8}: [^\\n]{10,60}'\n"
        "\n"
        "RUN is a run directory (its newest checkpoint is used), a directory that holds runs\n"
        "(the newest one), or a model in Hugging Face form with config.json, model.safetensors\n"
        "and tokenizer.json.\n"
        "\n"
        "When the text outgrows the context window, the model continues from the last half of\n"
        "it. Ctrl-C ends the text.\n"
        "\n"
        "--batch, --speculate, --kv, --best-of, -n and --logprobs run on the engine, where a\n"
        "text ends when the context window is full. The texts of -n are separated by a line\n"
        "\"---\".\n"
        "\n"
        "With --batch, prompts run concurrently, and the JSON lines come in the order of the\n"
        "prompts. A line of the file is a prompt, or an object with \"prompt\" and optionally\n"
        "\"tokens\", \"seed\", \"temperature\", \"top_p\", \"top_k\", \"min_p\" and \"typical_p\"\n"
        "in place of the flags. Line i uses the seed --seed + i; the texts of --best-of and -n\n"
        "use that and the following seeds. If the run is interrupted, finished answers behind an\n"
        "unfinished one are printed too: each line has its index.\n"
        "\n"
        "--schema, --json-object and --regex restrict the choice of tokens to those that can\n"
        "lead to matching output. A text that ends by itself matches; one that --tokens cuts\n"
        "off may not.",
    .run = run};
