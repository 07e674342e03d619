/* Evaluation suites: what a language model can do, measured with questions that have answers.
 *
 * A suite is a YAML file that names tasks: files of items (JSON lines, JSON or Parquet) and the
 * texts to make of each. Two formats are read (docs/evaluation.md): the part of lm-evaluation-
 * harness's task files that needs no Python (doc_to_text, doc_to_choice and doc_to_target as Jinja
 * templates), and core.yaml of the CORE benchmark (DCLM, Li et al. 2024, arXiv 2406.11794), with
 * the prompts and few-shot examples of the programs that these formats are from.
 *
 * Kinds of tasks, with the score of an item in parentheses (1 or 0, unless it says otherwise):
 *
 *   choice       one context, several continuations; the model's choice is the likeliest one, after
 *                division of its log-probability by a length: none (acc), characters (acc_norm),
 *                UTF-8 bytes (acc_bytes) or tokens (acc_tokens, that of CORE)
 *   schema       several contexts, one continuation, whose log-probability chooses the context
 *   exact        whether each token of a continuation is the likeliest one, greedily (acc)
 *   generate     a generated text, of which filters take an answer, e.g. by a regular expression;
 *                whether it is a right one (exact_match)
 *   perplexity   a document's log-probability: word_perplexity, byte_perplexity, bits_per_byte
 *
 * For a task whose chance level is c, `centered` is (a - c) / (1 - c) of its accuracy a: 0 for
 * guessing, 1 for perfect.
 *
 * Items run through the engine (banyan/engine.h): continuations of one context share its keys and
 * values, and a score is bit for bit the same whatever runs beside it.
 */
#ifndef BANYAN_SUITE_H
#define BANYAN_SUITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_suite by_suite;

/* The seed of few-shot examples in lm-evaluation-harness and in CORE. */
#define BY_SUITE_SEED 1234

typedef struct by_suite_options {
    /* Directory that the names of data files are relative to; NULL: that of the suite's file. */
    const char *data;
    int64_t few_shot; /* examples before each item; -1: as many as the suite says */
    int64_t limit;    /* items of each task; 0: all */
    uint64_t seed;    /* of few-shot examples: BY_SUITE_SEED gives the published prompts */
} by_suite_options;

/* Reads a suite and its data. Returns BY_EIO if a file cannot be read; BY_EFORMAT, with the file
 * and the line or key, if one is malformed, needs Python, or an item lacks what a template names;
 * BY_EARG for an option that is out of range. */
BY_API by_status by_suite_open(by_suite **out, const char *path, const by_suite_options *options,
                               by_error *error);
/* The same from memory: the text of a YAML file, and JSON lines that are the rows of each of its
 * splits. It can name no other files. */
BY_API by_status by_suite_parse(by_suite **out, const char *yaml, size_t length, const char *rows,
                                size_t rows_length, const by_suite_options *options,
                                by_error *error);
BY_API void by_suite_close(by_suite **suite);
/* Returns the number of tasks. */
BY_API size_t by_suite_tasks(const by_suite *suite);
/* Returns the name of a task. */
BY_API const char *by_suite_task(const by_suite *suite, size_t task);
/* Returns the number of items of a task. */
BY_API size_t by_suite_items(const by_suite *suite, size_t task);
/* Makes the texts of an item as one JSON object: "task", "item", "contexts" and "continuations",
 * lists of equal length, and "gold", the index of the right one, or "targets". *out is freed with
 * free(). Errors as by_suite_open. */
BY_API by_status by_suite_show(const by_suite *suite, size_t task, size_t item, char **out,
                               by_error *error);

/* ---- results ---- */

/* A value with its 95 % interval: the 2.5th and 97.5th percentile over 2,000 bootstrap samples of
 * the items (Efron 1979), drawn with Philox from seed, task and sample. */
typedef struct by_suite_metric {
    const char *name;
    double value;
    double low;
    double high;
} by_suite_metric;

#define BY_SUITE_METRICS 8

typedef struct by_suite_task_result {
    const char *name;
    const char *kind; /* "choice", "schema", "exact", "generate", "perplexity" */
    uint64_t items;
    int64_t few_shot;
    uint64_t cut; /* items of which the beginning was left out, since they exceed the context */
    by_suite_metric metrics[BY_SUITE_METRICS]; /* the task's main one first */
    size_t metric_count;
} by_suite_task_result;

/* Names belong to the suite, which must outlive the results. */
typedef struct by_suite_results {
    by_suite_task_result *tasks;
    size_t task_count;
    /* Mean of the main metric, if that of each task is a share of right answers (else its name is
     * NULL), and of `centered` if every task has it (the CORE metric), over the tasks; with
     * intervals that draw items within tasks. */
    by_suite_metric mean;
    by_suite_metric centered; /* name NULL: not every task has it */
    uint64_t tokens;          /* of all contexts and continuations */
    uint64_t computed;        /* of them, those that went through the model */
    double seconds;
} by_suite_results;

typedef struct by_suite_run_options {
    const char *precision; /* as for by_infer_precision; NULL: the model's */
    int threads;           /* 0: config.train.threads */
    uint64_t seed;         /* of the bootstrap */
    /* Called behind steps with the items done; may be NULL. Returning false stops: BY_ESTOPPED. */
    bool (*progress)(void *user, uint64_t done, uint64_t items);
    /* Called for each item in order, with a JSON object: "task", "item", "id" (a hash of its
     * texts), "score", and what it was made from. May be NULL. Its errors are passed on. */
    by_status (*item)(void *user, const char *json, by_error *error);
    void *user;
} by_suite_run_options;

/* Runs all tasks. `options` may be NULL. Returns errors of by_engine_open, by_pretrained_tokenizer
 * and by_suite_show; BY_EARG if the model's context is too short for an item's continuation. */
BY_API by_status by_suite_run(by_suite_results **out, const by_suite *suite,
                              const by_pretrained *model, const by_suite_run_options *options,
                              by_error *error);
BY_API void by_suite_results_close(by_suite_results **results);

/* ---- two models ---- */

/* A task of two runs, over the items that both have. */
typedef struct by_suite_pair {
    char *task;
    uint64_t items;
    double first; /* the task's main metric of each run: a mean, of documents weighted by bytes */
    double second;
    double difference; /* second - first, with its 95 % interval by the bootstrap over pairs */
    double low;
    double high;
    uint64_t better; /* items that the second run scores better: lower bits_per_byte, else higher */
    uint64_t worse;
    /* Probability of as unequal a count of both if the models are equally good: McNemar's exact
     * test, two-sided. NaN: scores are not all 0 or 1. */
    double p;
} by_suite_pair;

typedef struct by_suite_comparison {
    by_suite_pair *tasks;
    size_t count;
    uint64_t unpaired; /* items that only one run has */
} by_suite_comparison;

/* Compares two files of the lines of by_suite_run_options.item. Items are the same if task, number
 * and texts are. Returns BY_EIO; BY_EFORMAT with file and line for anything else; BY_EARG if no
 * item is in both, a task has other metrics in the second, or its documents are empty. */
BY_API by_status by_suite_compare(by_suite_comparison **out, const char *first, const char *second,
                                  uint64_t seed, by_error *error);
BY_API void by_suite_comparison_close(by_suite_comparison **comparison);

#ifdef __cplusplus
}
#endif
#endif
