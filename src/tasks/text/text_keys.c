/* Keys of the section data for text. A task lists them in this order, that of the rows in hashes of
 * configs, so that runs from before conversations, which have fewer keys, can go on. */
#include "config/kind.h"
#include "tasks/text/text_data.h"

/* clang-format off: one row a key */
static const by__config_key source_keys[] = {
    {"data", "text", BY__KEY_TEXTS, BY__FIELD(data.text), "[]",
     .help = "text files, JSON lines, Parquet files or directories of them; packed on first use "
             "and cached by content"},
    {"data", "tokenizer", BY__KEY_TEXT, BY__FIELD(data.tokenizer), "bpe", .min = 1,
     .help =
         "`char`, `bpe` (trained on the text), or the path of a tokenizer.json, of a directory "
         "that contains one, or of a directory with encoder.json and vocab.bpe; with model.from "
         "or distill.teacher, `char` and `bpe` stand for the tokenizer of that model, if it has "
         "one"},
};
static const by__config_key plain_keys[] = {
    {"data", "tokenizer_vocab", BY__KEY_INT, BY__FIELD(data.tokenizer_vocab), "8192", 257, BY__MI24,
     .help = "vocabulary size of a tokenizer that `tokenizer: bpe` trains"},
    {"data", "field", BY__KEY_TEXT, BY__FIELD(data.field), "text", .min = 1,
     .help = "field of JSON lines, or column of Parquet files, that holds the text"},
    {"data", "dedup", BY__KEY_TEXT, BY__FIELD(data.dedup), "none", .choices = "none|exact|near",
     .later = true,
     .help = "duplicate documents to remove: none; exact: documents equal to an earlier one; near: "
             "also those that share most of their word 5-grams with one (MinHash)"},
};
static const by__config_key training_keys[] = {
    {"data", "train", BY__KEY_TEXT, BY__FIELD(data.train), "\"\"",
     .help = "packed directory to train on, instead of text; empty: none"},
    {"data", "mix", BY__KEY_TEXTS, BY__FIELD(data.mix), "[]", .later = true,
     .help = "mixture of packed directories to train on, instead of train: a list of DIR=WEIGHT, "
             "all with the same tokenizer. The share of a directory among the samples is its "
             "weight divided by the sum of weights; each directory has its own epochs"},
    {"data", "mix_order", BY__KEY_TEXT, BY__FIELD(data.mix_order), "exact",
     .choices = "exact|random", .later = true,
     .help = "exact: the shares hold in every batch, to within a sample or two; random: samples "
             "are drawn at random, and the shares hold to within a few of 4,096 samples"},
    {"data", "curriculum", BY__KEY_TEXTS, BY__FIELD(data.curriculum), "[]", .later = true,
     .help = "changes of the weights of mix: a list of STEP=WEIGHT:WEIGHT..., in ascending order "
             "of steps, with one weight per directory in the order of mix"},
};
static const by__config_key document_keys[] = {
    {"data", "documents", BY__KEY_TEXT, BY__FIELD(data.documents), "join", .choices = "join|mask",
     .later = true,
     .help = "attention across documents in a sample: join allows it; mask restricts a token to "
             "its own document, and no other document predicts the first token of one"},
    {"data", "packing", BY__KEY_TEXT, BY__FIELD(data.packing), "stream",
     .choices = "stream|best_fit", .later = true,
     .help = "stream: samples are windows of all documents, one after another; best_fit: whole "
             "documents are combined to fill samples as well as possible (best-fit decreasing), "
             "and only documents longer than a sample are cut. Evaluation data is always a stream"},
};
static const by__config_key held_out_keys[] = {
    {"data", "valid", BY__KEY_TEXT, BY__FIELD(data.valid), "\"\"",
     .help = "packed directory to evaluate on; empty: none"},
    {"data", "valid_sets", BY__KEY_TEXTS, BY__FIELD(data.valid_sets), "[]", .later = true,
     .help = "several packed directories to evaluate on, instead of valid: a list of NAME=DIR, up "
             "to 16, all with the same tokenizer. The loss of each is reported under its name, "
             "valid_loss is the mean over the targets of all, and eval_batches applies to each"},
    {"data", "cache", BY__KEY_TEXT, BY__FIELD(data.cache), "runs/.cache", .min = 1,
     .help = "directory for packed text"},
};
/* clang-format on */
const by__config_key_list by__task_text_source_keys = BY__KEY_LIST(source_keys);
const by__config_key_list by__task_text_plain_keys = BY__KEY_LIST(plain_keys);
const by__config_key_list by__task_text_training_keys = BY__KEY_LIST(training_keys);
const by__config_key_list by__task_text_document_keys = BY__KEY_LIST(document_keys);
const by__config_key_list by__task_text_held_out_keys = BY__KEY_LIST(held_out_keys);
