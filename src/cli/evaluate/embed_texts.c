/* `banyan embed`: prints a vector for each text of a file, or for nodes of a graph. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/node_vectors.h"
#include "base/text_rows.h"

typedef struct embed_request {
    bool json; /* accepted, as of every command; there is no other form */
    const char *file;
    const char *pool;
    by_pooling pooling;
    const char *precision;
    const char *adapter;
    int64_t batch;
    int64_t context;
    int64_t threads;
    bool normalize;
    const char *device;
    bool best;
    bool ema;
} embed_request;

typedef struct embed_session {
    const embed_request *r;
    by_tokenizer *tokenizer;
    by_embed *embed;
} embed_session;

static by_status check_text(const void *model, size_t count, by_error *error)
{
    return by_embed_check(model, count, error);
}

static by_status run_texts(void *model, const by_embed_text *texts, size_t count,
                           const float **rows, by_error *error)
{
    return by_embed_run_batch(model, texts, count, rows, error);
}

static void print_vector(const void *model, const float *vector)
{
    printf("\"embedding\":[");
    for (int64_t i = 0; i < by_embed_width(model); i++) {
        char text[32];
        printf("%s%s", i == 0 ? "" : ",", cli_json_number(text, (double)vector[i], 9));
    }
    printf("]");
}

static by_status open_model(embed_session *s, const char *path, by_error *error)
{
    const embed_request *r = s->r;
    by_pretrained *pretrained = NULL;
    by_embed_options options = {.pooling = r->pooling,
                                .normalize = r->normalize,
                                .context = r->context,
                                .batch = r->batch,
                                .precision = r->precision,
                                .threads = (int)r->threads};
    by_status status =
        cli_open_pretrained(&pretrained, path, r->device, r->best, r->ema, r->adapter, error);
    if (status == BY_OK) {
        status = by_pretrained_tokenizer(&s->tokenizer, pretrained, error);
    }
    if (status == BY_OK) {
        status = by_embed_open(&s->embed, by_pretrained_config(pretrained),
                               by_pretrained_weights(pretrained), &options, error);
    }
    by_pretrained_close(&pretrained);
    return status;
}

static int embed(const embed_request *r, const char *path)
{
    embed_session s = {.r = r};
    int code = CLI_DONE;
    by_error error = {0};
    by_status status = open_model(&s, path, &error);
    if (status == BY_OK) {
        const cli_text_rows rows = {.file = r->file,
                                    .batch = r->batch,
                                    .tokenizer = s.tokenizer,
                                    .model = s.embed,
                                    .width = by_embed_width(s.embed),
                                    .check = check_text,
                                    .run = run_texts,
                                    .print = print_vector};
        status = cli_print_text_rows(&rows, &cli_embed, &code, &error);
    }
    by_embed_close(&s.embed);
    by_tokenizer_close(&s.tokenizer);
    return status == BY_OK ? code : cli_fail(&cli_embed, &error);
}

static int run(int argc, char **argv)
{
    embed_request r = {.pool = "mean", .batch = 8};
    cli_node_vectors nodes = {.out = NULL};
    const cli_flag flags[] = {
        {"batch", CLI_STREAM, &r.file, "FILE",
         "file with one text per line (text or {\"text\": ...}); - for standard input"},
        {"pool", CLI_STRING, &r.pool, "mean|last|first",
         "mean of the hidden states of all tokens, or that of the last or the first token (default "
         "mean)"},
        {"normalize", CLI_SWITCH, &r.normalize, NULL, "scale the vectors to length 1"},
        {"batch-size", CLI_INTEGER_IN(1, CLI_TEXT_BATCH), &r.batch, "N",
         "texts that are computed together (default 8)"},
        {"context", CLI_INTEGER_FROM(1), &r.context, "N",
         "tokens of the longest text (default: the model's context)"},
        {"precision", CLI_STRING, &r.precision, "TYPE", CLI_MODEL_PRECISION_HELP},
        {"json", CLI_SWITCH, &r.json, NULL,
         "print JSON lines, which is the default; with --out, what was written"},
        {"out", CLI_STRING, &nodes.out, "FILE",
         "of a graph: write an npy file with a row for each node instead"},
        {"nodes", CLI_STRING, &nodes.nodes.list, "N,N,...", CLI_NODES_HELP},
        {"graph", CLI_INPUT, &nodes.nodes.graph, "FILE", CLI_GRAPH_HELP},
        {"features", CLI_INPUT, &nodes.nodes.features, "FILE", CLI_NODE_FEATURES_HELP},
        {"device", CLI_STRING, &r.device, "NAME", CLI_DEVICE_HELP},
        {"threads", CLI_THREADS, &r.threads, "N",
         "compute threads (default: the model's train.threads)"},
        {"best", CLI_SWITCH, &r.best, NULL, CLI_BEST_HELP},
        {"ema", CLI_SWITCH, &r.ema, NULL, CLI_EMA_HELP},
        {"adapter", CLI_INPUT, &r.adapter, "DIR", CLI_ADAPTER_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_embed, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_embed, "name one run or model directory, and texts with --batch");
    }
    if (r.file == NULL) {
        nodes.json = r.json;
        return cli_with_pretrained(&cli_embed, rest[0], r.device, r.best, r.ema, NULL,
                                   cli_embed_nodes, &nodes);
    }
    code = cli_check_pool(&cli_embed, &r.pooling, r.pool);
    code = code >= 0 ? code : cli_check_precision(&cli_embed, r.precision);
    return code >= 0 ? code : embed(&r, rest[0]);
}

const cli_command cli_embed = {
    .name = "embed",
    .summary = "compute embeddings of texts, or of the nodes of a graph",
    .usage = "banyan embed RUN --batch FILE [--pool mean|last|first] [--normalize]\n"
             "       banyan embed RUN [--nodes N,N,...] [--graph FILE] [--out FILE.npy]",
    .text =
        "Computes an embedding for each text of a file and prints one JSON line each, in order:\n"
        "index, number of tokens, and embedding.\n"
        "\n"
        "examples:\n"
        "  banyan embed runs/shakespeare-char --batch texts.txt --normalize\n"
        "  banyan embed path/to/model --batch texts.jsonl --pool last\n"
        "  banyan embed runs/cora --out nodes.npy\n"
        "\n"
        "An embedding is pooled from the last hidden states of the tokens, after the final\n"
        "norm. For a text that is longer than the context, the line has an error instead.\n"
        "That of a node is what the last layer of a model of a graph reads.",
    .run = run};
