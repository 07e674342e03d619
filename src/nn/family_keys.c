/* Config keys that several model families share. */
#include <math.h>

#include "nn/nn.h"

static const by__config_key transformer[] = {
    {"model", "heads", BY__KEY_INT, BY__FIELD(model.heads), "4", 1, 65536,
     .help = "attention heads (query heads); divides width"},
    {"model", "norm_eps", BY__KEY_REAL, BY__FIELD(model.norm_eps), "1e-5", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon of layer norm or RMS norm"},
    {"model", "init_std", BY__KEY_REAL, BY__FIELD(model.init_std), "-1", 0, 10,
     .derived = "the square root of 2 / (5 x width)",
     .help = "standard deviation of the initial weights"},
};
const by__config_key_list by__nn_transformer_keys = BY__KEY_LIST(transformer);

static const by__config_key token[] = {
    {"model", "context", BY__KEY_INT, BY__FIELD(model.context), "64", 1, BY__MI24,
     .help = "context length: tokens per sequence"},
    {"model", "vocab", BY__KEY_INT, BY__FIELD(model.vocab), "-1", 1, BY__MI30,
     .derived = "the tokenizer's size", .help = "vocabulary size: rows of the token embedding"},
    {"model", "pad_vocab_to", BY__KEY_INT, BY__FIELD(model.pad_vocab_to), "1", 1, 65536,
     .help = "pad the embedding to a multiple of this; 1: no padding"},
};
const by__config_key_list by__nn_token_keys = BY__KEY_LIST(token);

static const by__config_key output[] = {
    {"model", "outputs", BY__KEY_INT, BY__FIELD(model.outputs), "-1", 1, BY__MI24,
     .derived = "what the data has", .help = "classes, or predicted numbers"},
};
const by__config_key_list by__nn_output_keys = BY__KEY_LIST(output);

static const by__config_key image[] = {
    {"model", "channels", BY__KEY_INT, BY__FIELD(model.channels), "-1", 1, 4096,
     .derived = "what the data has", .help = "channels of an image"},
    {"model", "image_height", BY__KEY_INT, BY__FIELD(model.image_height), "-1", 1, 65536,
     .derived = "what the data has", .help = "height of an image in pixels"},
    {"model", "image_width", BY__KEY_INT, BY__FIELD(model.image_width), "-1", 1, 65536,
     .derived = "what the data has", .help = "width of an image in pixels"},
};
const by__config_key_list by__nn_image_keys = BY__KEY_LIST(image);

static const by__config_key table[] = {
    {"model", "numbers", BY__KEY_INT, BY__FIELD(model.numbers), "-1", 0, BY__MI20,
     .derived = "what the data has", .help = "numeric columns of a table"},
    {"model", "categories", BY__KEY_TEXTS, BY__FIELD(model.categories), "[]",
     .help = "number of categories of each categorical column; empty: what the data has"},
};
const by__config_key_list by__nn_table_keys = BY__KEY_LIST(table);

static const by__config_key series[] = {
    {"model", "context", BY__KEY_INT, BY__FIELD(model.context), "64", 1, BY__MI20,
     .help = "rows of a series that the model reads"},
    {"model", "outputs", BY__KEY_INT, BY__FIELD(model.outputs), "-1", 1, BY__MI20,
     .derived = "a quarter of context", .help = "rows behind these that it forecasts"},
    {"model", "channels", BY__KEY_INT, BY__FIELD(model.channels), "-1", 1, 65536,
     .derived = "what the data has", .help = "numbers in a row"},
};
const by__config_key_list by__nn_series_keys = BY__KEY_LIST(series);

static const by__config_key nodes[] = {
    {"model", "outputs", BY__KEY_INT, BY__FIELD(model.outputs), "-1", 1, BY__MI24,
     .derived = "what the data has", .help = "classes"},
    {"model", "channels", BY__KEY_INT, BY__FIELD(model.channels), "-1", 1, BY__MI20,
     .derived = "what the data has", .help = "features of a node"},
    {"model", "nodes", BY__KEY_INT, BY__OWN(by__nn_node_sizes, nodes), "-1", 1, INT32_MAX - 1,
     .derived = "what the data has", .help = "nodes of the graph"},
    {"model", "edges", BY__KEY_INT, BY__OWN(by__nn_node_sizes, edges), "-1", 1, INT32_MAX,
     .derived = "what the data has", .help = "edges of the graph, with those that are added"},
    {"model", "sample_nodes", BY__KEY_INT, BY__OWN(by__nn_node_sizes, sample_nodes), "-1", 0,
     INT32_MAX - 1, .derived = "what data.fan_outs or data.sampling need",
     .help = "room for the nodes of a sample; 0: the whole graph is read"},
    {"model", "sample_edges", BY__KEY_INT, BY__OWN(by__nn_node_sizes, sample_edges), "-1", 0,
     INT32_MAX, .derived = "what data.fan_outs or data.sampling need",
     .help = "room for their edges"},
    {"model", "sample_targets", BY__KEY_INT, BY__OWN(by__nn_node_sizes, sample_targets), "-1", 1,
     BY__MI20, .derived = "data.sample_targets", .help = "targets of a sample"},
    {"model", "sample_weights", BY__KEY_SWITCH, BY__OWN(by__nn_node_sizes, sample_weights), "-1",
     .derived = "what data.sampling needs", .later = true, .help = "edges of samples have factors"},
    {"model", "hop_nodes", BY__KEY_TEXTS, BY__OWN(by__nn_node_sizes, hop_nodes), "[]",
     .derived = "what data.fan_outs need",
     .help = "room for the nodes at most 0, 1, ... hops from a target, the most that layers put "
             "out, from the last one back"},
    {"model", "hop_edges", BY__KEY_TEXTS, BY__OWN(by__nn_node_sizes, hop_edges), "[]",
     .derived = "what data.fan_outs need", .help = "room for the edges that end in these"},
    {"model", "feature_entries", BY__KEY_INT, BY__OWN(by__nn_node_sizes, feature_entries), "-1", 0,
     INT32_MAX, .derived = "what the data has", .later = true,
     .help = "features that are not 0, if few are: the first layer reads these alone; 0: it reads "
             "all"},
    {"model", "edge_weights", BY__KEY_SWITCH, BY__OWN(by__nn_node_sizes, edge_weights), "-1",
     .derived = "what the data has", .later = true, .help = "edges have weights"},
    {"model", "input_dropout", BY__KEY_REAL, BY__OWN(by__nn_node_sizes, input_dropout), "-1", 0, 1,
     BY__BELOW_MAX, .derived = "dropout", .later = true,
     .help = "dropout probability of the features, in front of the first layer"},
    {"model", "edge_dropout", BY__KEY_REAL, BY__OWN(by__nn_node_sizes, edge_dropout), "0", 0, 1,
     BY__BELOW_MAX, .later = true,
     .help = "probability that a step leaves an edge out of a layer's sums, which are scaled up in "
             "return"},
    {"model", "residual", BY__KEY_SWITCH, BY__OWN(by__nn_node_sizes, residual), "false",
     .later = true,
     .help = "add what a layer reads to what it makes, where both have as many columns"},
    {"model", "relations", BY__KEY_INT, BY__OWN(by__nn_node_sizes, relations), "-1", 0, 131072,
     .derived = "what the data has", .later = true, .help = "relations that edges have"},
    {"model", "relation_edges", BY__KEY_INT, BY__OWN(by__nn_node_sizes, relation_edges), "-1", 0,
     INT32_MAX, .derived = "what the data has", .later = true, .help = "edges with relations"},
    {"model", "own_graphs", BY__KEY_INT, BY__OWN(by__nn_node_sizes, own_graphs), "0", 0, 1,
     .help = "1: each sample has a graph of its own, as task.kind graphs has it", .later = true},
    {"model", "graphs", BY__KEY_INT, BY__OWN(by__nn_node_sizes, graphs), "0", 0, BY__MI24,
     .help = "room for the graphs of a sample, each of which is read out; task.kind graphs sets it",
     .later = true},
    {"model", "readout", BY__KEY_TEXT, BY__OWN(by__nn_node_sizes, readout), "mean",
     .choices = "mean|sum|max", .help = "what is made of the nodes of each of these graphs",
     .later = true},
    {"model", "graph_features", BY__KEY_INT, BY__OWN(by__nn_node_sizes, graph_features), "0", 0,
     BY__MI20,
     .help = "features of such a graph as a whole; task.kind graphs sets it to what the "
             "data has",
     .later = true},
    {"model", "candidates", BY__KEY_INT, BY__OWN(by__nn_node_sizes, candidates), "0", 0, BY__MI20,
     .help = "scores of a sample of links in training; task.kind links sets it", .later = true},
    {"model", "held_out_candidates", BY__KEY_INT, BY__OWN(by__nn_node_sizes, held_out_candidates),
     "0", 0, BY__MI20, .help = "the same in an evaluation", .later = true},
    {"model", "decoder", BY__KEY_TEXT, BY__OWN(by__nn_node_sizes, decoder), "dot",
     .choices = "dot|mlp",
     .help = "how links are scored: the product of the vectors of two nodes, summed or put into a "
             "perceptron",
     .later = true},
};
const by__config_key_list by__nn_node_keys = BY__KEY_LIST(nodes);

/* Limits: the tokens of a micro-batch are rows of every activation, those of a step a batch of the
 * loader. */
#define MICRO_BATCH_TOKENS ((int64_t)1 << 31)
#define BATCH_TOKENS       ((int64_t)1 << 40)

/* Refuses a product that is too large: "c.yaml:5: micro_batch 16777216 x context 16777216 is more
 * than 2147483648 tokens". */
static by_status countable(const by_config *config, const char *name, int64_t sequences,
                           int64_t most, by_error *error)
{
    char path[64];
    int64_t context = config->model.context;
    (void)snprintf(path, sizeof path, "train.%s", name);
    if (sequences <= most / context) {
        return BY_OK;
    }
    return by_error_set(error, BY_ECONFIG,
                        "%s: %s %lld x context %lld is more than %lld tokens; make one smaller",
                        by__config_where(config, path, "model.context"), name, (long long)sequences,
                        (long long)context, (long long)most);
}

/* Each rank of the axis has two chunks of a sequence, all of equal length. */
static by_status check_chunks(const by_config *config, by_error *error)
{
    int64_t ranks = config->parallel.sequence;
    int64_t context = config->model.context;
    int64_t below = context / (2 * ranks) * 2 * ranks;
    if (ranks <= 1 || context == below) {
        return BY_OK;
    }
    return by_error_set(
        error, BY_ECONFIG,
        "%s: parallel.sequence %lld needs a model.context that is a multiple of %lld (two chunks "
        "for each rank), and it is %lld; nearest: %lld, %lld",
        by__config_where(config, "parallel.sequence", "model.context"), (long long)ranks,
        (long long)(2 * ranks), (long long)context, (long long)(below == 0 ? 2 * ranks : below),
        (long long)(below + 2 * ranks));
}

by_status by__nn_token_resolve(const by_config *config, by_error *error)
{
    BY_TRY(check_chunks(config, error));
    if (config->parallel.sequence_parallel != 0) {
        BY_TRY(by__config_divides(config, "parallel.tensor", "model.context", error));
    }
    BY_TRY(countable(config, "micro_batch", config->train.micro_batch, MICRO_BATCH_TOKENS, error));
    return countable(config, "batch", config->train.batch, BATCH_TOKENS, error);
}

by_status by__nn_transformer_resolve(by_config *config, int64_t head_dim, by_error *error)
{
    by_model_config *model = &config->model;
    if (model->init_std == -1.0) {
        int64_t base = by__nn_has_mup(model) && model->mup_base_width > 0 ? model->mup_base_width
                                                                          : model->width;
        model->init_std = sqrt(2.0 / (5.0 * (double)base));
    }
    BY_TRY(by__config_divides(config, "parallel.tensor", "model.heads", error));
    if (head_dim == -1) {
        BY_TRY(by__config_divides(config, "model.heads", "model.width", error));
    }
    model->head_dim = head_dim == -1 ? model->width / model->heads : head_dim;
    return BY_OK;
}
