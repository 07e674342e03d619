/* Language modelling: each token is predicted from those before it. */
#include "banyan/ops.h"
#include "train/tasks/tasks.h"

/* clang-format off: one row a key */
static const by__key keys[] = {
    {"data", "text", BY__KEY_TEXTS, BY__FIELD(data.text), "[]",
     .help = "raw text files or directories; packed on first use, cached by content"},
    {"data", "tokenizer", BY__KEY_TEXT, BY__FIELD(data.tokenizer), "bpe", .min = 1,
     .help = "`char`, `bpe` (trained here), or a path: a tokenizer.json, a directory that holds "
             "one, or a directory with encoder.json and vocab.bpe"},
    {"data", "tokenizer_vocab", BY__KEY_INT, BY__FIELD(data.tokenizer_vocab), "8192", 257, BY__MI24,
     .help = "size of the vocabulary that `tokenizer: bpe` trains"},
    {"data", "field", BY__KEY_TEXT, BY__FIELD(data.field), "text", .min = 1,
     .help = "field of JSON lines that holds the text"},
    {"data", "train", BY__KEY_TEXT, BY__FIELD(data.train), "\"\"",
     .help = "packed directory to train on, instead of text; empty for none"},
    {"data", "valid", BY__KEY_TEXT, BY__FIELD(data.valid), "\"\"",
     .help = "packed directory to evaluate on; empty for none"},
    {"data", "cache", BY__KEY_TEXT, BY__FIELD(data.cache), "runs/.cache", .min = 1,
     .help = "where packed text is kept"},
};
/* clang-format on */
static const by__key_list key_list = BY__KEY_LIST(keys);

/* Head and loss are one operation, which never holds all logits. */
static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    if (model->hidden == BY_NONE || model->head == BY_NONE) {
        return by_error_set(error, BY_ECONFIG,
                            "task.kind language needs a model of tokens; model.kind %s reads %s",
                            config->model.kind, by_model_reads(&config->model));
    }
    by_value targets =
        by_graph_input(graph, "targets", BY_I32, BY_SHAPE(request->batch, request->time));
    model->loss = by_linear_cross_entropy(graph, model->hidden, model->head, targets);
    return BY_OK;
}

const by__task_row by__task_language = {
    .kind = {.name = "language",
             .help = "The next token of text; models of tokens.",
             .keys = {&key_list}},
    .task = {.name = "language", .example = "tokens", .loss = loss},
};
