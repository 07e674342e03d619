#include "config/schema.h"

#include <assert.h>
#include <string.h>

#define AT(field) offsetof(by_config, field)

static_assert(AT(optimizer.beta2) == AT(optimizer.beta1) + sizeof(double),
              "betas is stored as a pair");

const by__section by__sections[] = {
    {"", "Keys at the top of the file."},
    {"model", "What is trained."},
    {"data", "What it is trained on. Paths are relative to the working directory."},
    {"train", "How long, in what portions, and how often it is looked at."},
    {"optimizer", "The update rule and the course of the learning rate."},
    {"precision", "Number formats."},
    {"memory", "What is traded against memory."},
    {"checkpoint", "What is saved."},
    {"run", "Where a run keeps its files."},
};
const size_t by__section_count = BY_ARRAY_LENGTH(by__sections);

/* 2^20, 2^24 and 2^30: bounds that keep every product of sizes far from 63 bits. */
#define MI20 1048576
#define MI24 16777216
#define MI30 1073741824
#define MANY 1e15

/* clang-format off: one row a key */
const by__key by__keys[] = {
    {"", "name", BY__KEY_TEXT, AT(name), "run", .min = 1,
     .help = "name of the run and of its directory"},
    {"", "seed", BY__KEY_SEED, AT(seed), "1337",
     .help = "source of all randomness: initial weights, data order, dropout"},

    {"model", "kind", BY__KEY_TEXT, AT(model.kind), "gpt2", .choices = "gpt2|llama",
     .help = "model family"},
    {"model", "layers", BY__KEY_INT, AT(model.layers), "4", 1, 10000, .help = "transformer blocks"},
    {"model", "heads", BY__KEY_INT, AT(model.heads), "4", 1, 65536,
     .help = "query heads; divides width"},
    {"model", "kv_heads", BY__KEY_INT, AT(model.kv_heads), "-1", 1, 65536,
     .derived = "equal to heads",
     .help = "key and value heads (grouped-query attention); divides heads"},
    {"model", "width", BY__KEY_INT, AT(model.width), "128", 1, MI20, .help = "embedding width"},
    {"model", "mlp_width", BY__KEY_INT, AT(model.mlp_width), "-1", 1, MI24,
     .derived = "4 x width (gpt2), 8/3 x width rounded up to a multiple of 64 (llama)",
     .help = "hidden width of the MLP"},
    {"model", "context", BY__KEY_INT, AT(model.context), "64", 1, MI24,
     .help = "positions of a sequence, in tokens"},
    {"model", "vocab", BY__KEY_INT, AT(model.vocab), "-1", 1, MI30,
     .derived = "the tokenizer's size", .help = "rows of the token embedding"},
    {"model", "pad_vocab_to", BY__KEY_INT, AT(model.pad_vocab_to), "1", 1, 65536,
     .help = "the embedding is padded up to a multiple of this; 1 does not pad"},
    {"model", "tied", BY__KEY_SWITCH, AT(model.tied), "-1", .derived = "true (gpt2), false (llama)",
     .help = "the output head shares the token embedding"},
    {"model", "rope_theta", BY__KEY_REAL, AT(model.rope_theta), "10000", 1, 1e12,
     .help = "base of the rotary frequencies (llama)"},
    {"model", "norm_eps", BY__KEY_REAL, AT(model.norm_eps), "1e-5", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon of layer norm or RMS norm"},
    {"model", "dropout", BY__KEY_REAL, AT(model.dropout), "0", 0, 1, BY__BELOW_MAX,
     .help = "dropout probability on embeddings, attention output and MLP output"},
    {"model", "init_std", BY__KEY_REAL, AT(model.init_std), "-1", 0, 10,
     .derived = "the square root of 2 / (5 x width)",
     .help = "standard deviation of initial weights"},
    {"model", "from", BY__KEY_TEXT, AT(model.from), "\"\"",
     .help = "directory in Hugging Face form to start from; empty for none"},

    {"data", "text", BY__KEY_TEXTS, AT(data.text), "[]",
     .help = "raw text files or directories; packed on first use, cached by content"},
    {"data", "tokenizer", BY__KEY_TEXT, AT(data.tokenizer), "bpe", .min = 1,
     .help = "`char`, `bpe` (trained here), or a path: a tokenizer.json, a directory that holds "
             "one, or a directory with encoder.json and vocab.bpe"},
    {"data", "tokenizer_vocab", BY__KEY_INT, AT(data.tokenizer_vocab), "8192", 257, MI24,
     .help = "size of the vocabulary that `tokenizer: bpe` trains"},
    {"data", "field", BY__KEY_TEXT, AT(data.field), "text", .min = 1,
     .help = "field of JSON lines that holds the text"},
    {"data", "valid_fraction", BY__KEY_REAL, AT(data.valid_fraction), "0.1", 0, 1, BY__BELOW_MAX,
     .help = "share of the text, at its end, that is held out"},
    {"data", "train", BY__KEY_TEXT, AT(data.train), "\"\"",
     .help = "packed directory to train on, instead of text; empty for none"},
    {"data", "valid", BY__KEY_TEXT, AT(data.valid), "\"\"",
     .help = "packed directory to evaluate on; empty for none"},
    {"data", "cache", BY__KEY_TEXT, AT(data.cache), "runs/.cache", .min = 1,
     .help = "where packed text is kept"},

    {"train", "steps", BY__KEY_INT, AT(train.steps), "2000", 1, MANY,
     .help = "optimizer steps of the run"},
    {"train", "batch", BY__KEY_INT, AT(train.batch), "12", 1, MI24,
     .help = "sequences a step, over all ranks and micro-batches"},
    {"train", "micro_batch", BY__KEY_INT, AT(train.micro_batch), "-1", 1, MI24,
     .derived = "equal to batch", .help = "sequences a micro-batch; divides batch"},
    {"train", "eval_every", BY__KEY_INT, AT(train.eval_every), "250", 0, MANY,
     .help = "steps between evaluations; 0 evaluates at the end only"},
    {"train", "eval_batches", BY__KEY_INT, AT(train.eval_batches), "all", 1, MANY,
     .derived = "the whole held-out set", .word = "all", .help = "micro-batches of an evaluation"},
    {"train", "log_every", BY__KEY_INT, AT(train.log_every), "10", 1, MANY,
     .help = "steps between log lines"},
    {"train", "threads", BY__KEY_INT, AT(train.threads), "-1", 1, 4096,
     .derived = "one for each core that the process may use", .help = "compute threads"},

    {"optimizer", "kind", BY__KEY_TEXT, AT(optimizer.kind), "adamw", .choices = "adamw",
     .help = "update rule"},
    {"optimizer", "lr", BY__KEY_REAL, AT(optimizer.lr), "1e-3", 0, 1000, BY__ABOVE_MIN,
     .help = "peak learning rate"},
    {"optimizer", "min_lr", BY__KEY_REAL, AT(optimizer.min_lr), "-1", 0, 1000,
     .derived = "a tenth of lr",
     .help = "last learning rate of the cosine, linear and wsd schedules; at most lr"},
    {"optimizer", "schedule", BY__KEY_TEXT, AT(optimizer.schedule), "cosine",
     .choices = "cosine|linear|constant|wsd",
     .help = "course of the learning rate after the warm-up; wsd: constant, then a final decay"},
    {"optimizer", "warmup", BY__KEY_INT, AT(optimizer.warmup), "-1", 0, MANY,
     .derived = "100, or a tenth of the steps where that is fewer",
     .help = "steps of linear warm-up; at most train.steps"},
    {"optimizer", "decay", BY__KEY_INT, AT(optimizer.decay), "-1", 1, MANY,
     .derived = "a tenth of the steps, at least 1", .help = "steps of the final decay of wsd"},
    {"optimizer", "betas", BY__KEY_PAIR, AT(optimizer.beta1), "[0.9, 0.99]", 0, 1, BY__BELOW_MAX,
     .help = "decay rates of the first and second moment"},
    {"optimizer", "eps", BY__KEY_REAL, AT(optimizer.eps), "1e-8", 0, 1, BY__ABOVE_MIN,
     .help = "added to the root of the second moment"},
    {"optimizer", "weight_decay", BY__KEY_REAL, AT(optimizer.weight_decay), "0.1", 0, 1000,
     .help = "decoupled weight decay, on matrices only"},
    {"optimizer", "clip", BY__KEY_REAL, AT(optimizer.clip), "1", 0, 1e9,
     .help = "bound of the global gradient norm; 0 does not clip"},

    {"precision", "compute", BY__KEY_TEXT, AT(precision.compute), "f32", .choices = "f32|bf16",
     .help = "format of activations and matrix products; with bf16 the weights, gradients and "
             "optimizer state stay f32"},

    {"memory", "recompute", BY__KEY_TEXT, AT(memory.recompute), "none", .choices = "none|block",
     .help = "block computes a block's activations again in the backward pass"},

    {"checkpoint", "every", BY__KEY_INT, AT(checkpoint.every), "500", 0, MANY,
     .help = "steps between checkpoints; 0 saves at the end only"},
    {"checkpoint", "keep", BY__KEY_INT, AT(checkpoint.keep), "3", 1, 1000000,
     .help = "newest checkpoints that are kept, beside the best"},

    {"run", "dir", BY__KEY_TEXT, AT(run.dir), "runs", .min = 1,
     .help = "the directory of the run is made in it, under its name"},
};
/* clang-format on */
const size_t by__key_count = BY_ARRAY_LENGTH(by__keys);

const by__key *by__key_find(const char *section, const char *name)
{
    for (size_t i = 0; i < by__key_count; i++) {
        if (strcmp(by__keys[i].name, name) == 0 && strcmp(by__keys[i].section, section) == 0) {
            return &by__keys[i];
        }
    }
    return NULL;
}

const by__key *by__key_at(size_t offset)
{
    for (size_t i = 0; i < by__key_count; i++) {
        if (by__keys[i].offset == offset) {
            return &by__keys[i];
        }
    }
    return NULL;
}

bool by__section_exists(const char *name)
{
    for (size_t i = 1; i < by__section_count; i++) {
        if (strcmp(by__sections[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

const char *by__key_path(char buffer[64], const by__key *key)
{
    (void)snprintf(buffer, 64, "%s%s%s", key->section, key->section[0] == '\0' ? "" : ".",
                   key->name);
    return buffer;
}

/* Names that may stand in a section; at the top the sections and `base` too. */
static size_t names_in(const char *section, const char *names[static 64])
{
    size_t count = 0;
    for (size_t i = 0; i < by__key_count && count < 32; i++) {
        if (strcmp(by__keys[i].section, section) == 0) {
            names[count++] = by__keys[i].name;
        }
    }
    if (section[0] == '\0') {
        names[count++] = "base";
        for (size_t i = 1; i < by__section_count; i++) {
            names[count++] = by__sections[i].name;
        }
    }
    return count;
}

by_status by__key_unknown(const char *where, const char *section, const char *name, by_error *error)
{
    const char *names[64];
    char path[64];
    size_t count = names_in(section, names);
    const char *inside = section[0] == '\0' ? "" : " in section ";
    const char *near = by__nearest_name(name, names, count);
    if (near != NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: unknown key \"%.60s\"%s%s; did you mean \"%s\"?", where, name,
                            inside, section, near);
    }
    for (size_t i = 0; i < by__key_count; i++) {
        if (strcmp(by__keys[i].name, name) == 0 ||
            strcmp(by__key_path(path, &by__keys[i]), name) == 0) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: unknown key \"%.60s\"%s%s; did you mean \"%s\" in section %s?",
                                where, name, inside, section, by__keys[i].name,
                                by__keys[i].section[0] == '\0' ? "(top)" : by__keys[i].section);
        }
    }
    by__text list = {0};
    for (size_t i = 0; i < count; i++) {
        by__text_format(&list, "%s%s", i == 0 ? "" : ", ", names[i]);
    }
    by_status status =
        by_error_set(error, BY_ECONFIG, "%s: unknown key \"%.60s\"%s%s; keys here are %s", where,
                     name, inside, section, list.failed ? "in docs/config.md" : list.data);
    by__text_free(&list);
    return status;
}

/* "from 1 to 10", "above 0 and at most 1". */
static void add_range(by__text *out, const by__key *key)
{
    bool above = (key->open & BY__ABOVE_MIN) != 0;
    bool below = (key->open & BY__BELOW_MAX) != 0;
    if (!above && !below) {
        by__text_format(out, "from %.10g to %.10g", key->min, key->max);
    } else {
        by__text_format(out, "%s %.10g and %s %.10g", above ? "above" : "at least", key->min,
                        below ? "below" : "at most", key->max);
    }
}

void by__key_accepts(by__text *out, const by__key *key)
{
    if (key->derived != NULL) {
        by__text_format(out, "%s or ", key->word != NULL ? key->word : "-1");
    }
    switch (key->type) {
    case BY__KEY_INT:
        by__text_add(out, "a whole number ");
        add_range(out, key);
        break;
    case BY__KEY_SEED:
        by__text_add(out, "a whole number from 0 to 18446744073709551615");
        break;
    case BY__KEY_REAL:
        by__text_add(out, "a number ");
        add_range(out, key);
        break;
    case BY__KEY_PAIR:
        by__text_add(out, "a list of two numbers, each ");
        add_range(out, key);
        break;
    case BY__KEY_SWITCH:
        by__text_add(out, "true or false");
        break;
    case BY__KEY_TEXT:
        if (key->choices != NULL) {
            by__text_add(out, "one of ");
            for (const char *p = key->choices; *p != '\0'; p++) {
                by__text_add_bytes(out, *p == '|' ? ", " : p, *p == '|' ? 2 : 1);
            }
        } else {
            by__text_add(out, key->min > 0 ? "non-empty UTF-8 text" : "UTF-8 text");
        }
        break;
    case BY__KEY_TEXTS:
        by__text_add(out, "UTF-8 text or a list of them");
        break;
    }
}
