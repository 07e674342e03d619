/* evaluate: suites of items with answers, and what a model makes of them.
 *
 * What it is for: suite_file.c and suite_core.c read the two formats of suites into tasks; rows.c
 * reads data files; task_field.c evaluates the texts that a task makes of a row; task_text.c puts
 * an item's contexts and continuations together, with its few-shot examples; suite_encode.c makes
 * tokens of them; suite_keys.c refuses keys that would change unseen what is measured; suite_run.c
 * scores items with the engine, suite_score.c says what that comes to, with answer.c for generated
 * texts; suite_results.c has the metrics and bootstrap.c their intervals; suite_compare.c compares
 * two runs. python_random.c draws few-shot examples as others drew them, suite_yaml.c reads YAML.
 *
 * Types: by__evaluate_task is a task with its rows; by__evaluate_texts what an item says;
 * by__evaluate_item the same in tokens; by__evaluate_score what the model made of it.
 *
 * Who owns what: a suite owns its tasks, a task its rows and templates. Texts, items and scores
 * belong to who asked for them.
 *
 * Determinism: an item's texts depend on the suite, its data and the seed; its score on these and
 * the weights. Neither depends on what else runs, nor on the number of threads.
 *
 * Never put here: printing, flags, a benchmark's name (it is a file in examples/suites), access to
 * the network.
 */
#ifndef BY_EVALUATE_EVALUATE_H
#define BY_EVALUATE_EVALUATE_H

#include <jansson.h>

#include "banyan/suite.h"
#include "base/base.h"
#include "evaluate/answer.h"
#include "text/template/template.h"

typedef enum by__evaluate_kind {
    BY__EVALUATE_CHOICE,
    BY__EVALUATE_SCHEMA,
    BY__EVALUATE_EXACT,
    BY__EVALUATE_PERPLEXITY,
    BY__EVALUATE_GENERATE
} by__evaluate_kind;

/* What a choice's log-probability is divided by. */
typedef enum by__evaluate_length {
    BY__EVALUATE_NONE,
    BY__EVALUATE_CHARACTERS,
    BY__EVALUATE_BYTES,
    BY__EVALUATE_TOKENS,
    BY__EVALUATE_LENGTHS /* number of the above */
} by__evaluate_length;

/* Where a text of a row comes from, as lm-evaluation-harness decides it. */
typedef enum by__evaluate_source {
    BY__EVALUATE_ABSENT,
    BY__EVALUATE_COLUMN,   /* the value of the column `text` */
    BY__EVALUATE_TEMPLATE, /* `tpl` with the row's columns as variables */
    BY__EVALUATE_CONSTANT  /* `value`, whatever the row is */
} by__evaluate_source;

typedef struct by__evaluate_field {
    by__evaluate_source source;
    char *text;
    by__template tpl;
    json_t *value;
} by__evaluate_field;

typedef struct by__evaluate_task {
    char *name;
    by__evaluate_kind kind;
    bool core;                  /* texts and tokens by the rules of CORE */
    by__evaluate_length length; /* of the main metric of choices */
    double chance;              /* accuracy of guessing; NaN: 1 / number of choices */
    json_t *rows;               /* list of objects */
    json_t *shot_rows;          /* from which few-shot examples are drawn; may be `rows` */
    uint32_t *order;            /* [count]: rows that are items */
    size_t count;
    int64_t shots;
    uint32_t *picks; /* [count][shots]: rows of shot_rows */
    by__evaluate_field text;
    by__evaluate_field target;
    by__evaluate_field choice;
    by__evaluate_field shot_text; /* the same of few-shot examples; absent: as for items */
    by__evaluate_field shot_target;
    by__evaluate_field shot_choice;
    by__evaluate_field description;
    /* Of generated texts: what ends them, at most how many tokens, how they are drawn and what is
     * taken of them. */
    json_t *until; /* list of texts */
    int64_t most_tokens;
    by_sampling sampling;
    by__evaluate_answers answers;
    char *target_delimiter; /* between a text and what continues it */
    char *shot_delimiter;
} by__evaluate_task;

struct by_suite {
    by__evaluate_task *tasks;
    size_t count;
    size_t capacity;
    by_suite_options options;
    char *data;    /* options.data */
    json_t *given; /* rows that stand for those of files; NULL: files are read */
};

/* ---- task_field.c ---- */

/* Makes a field of a value of a suite's file, NULL for none. `columns`: a row of the task's data,
 * whose names are columns. `where`: file and key, for messages. */
by_status by__evaluate_field_open(by__evaluate_field *out, const json_t *value,
                                  const json_t *columns, const char *where, by_error *error);
void by__evaluate_field_close(by__evaluate_field *field);
/* Evaluates a field to a new reference. `numbers`: a text of digits is an integer. `lists`: a text
 * that is a list of Python is one. */
by_status by__evaluate_field_value(json_t **out, const by__evaluate_field *field, const json_t *row,
                                   bool numbers, bool lists, by_error *error);
/* str() of a value, appended. */
void by__evaluate_text_add(by_string *out, const json_t *value);

/* ---- rows.c ---- */

/* Reads all rows of a file of JSON lines, JSON or Parquet, and appends them to a list of objects.
 * `field`: the member of a JSON object that has the rows; NULL: its only list of objects. */
by_status by__evaluate_rows(json_t *rows, const char *path, const char *field, by_error *error);
/* The same for the text of a file of JSON lines. */
by_status by__evaluate_line_rows(json_t *rows, const char *path, const char *data, size_t size,
                                 by_error *error);
/* Finds the files of a split in a directory, .jsonl, .json or .parquet whose names begin or end
 * with the split's, such as "test.jsonl" or "data_val.jsonl", and appends their rows in the order
 * of the names. BY_EIO: there is none. */
by_status by__evaluate_split_rows(json_t *rows, const char *directory, const char *split,
                                  const char *field, by_error *error);

/* ---- suite_core.c, suite_file.c ---- */

/* Adds a task, all of whose members are zero. */
by_status by__evaluate_add_task(by__evaluate_task **out, by_suite *suite, const char *name,
                                by_error *error);
bool by__evaluate_is_core(const json_t *yaml);
by_status by__evaluate_core_open(by_suite *suite, const char *path, const json_t *yaml,
                                 by_error *error);

/* ---- suite_keys.c ---- */

/* Refuses keys of a task's file that would change what is measured and are not followed, and those
 * that are slips of the pen, with the key that they are near to: BY_EFORMAT. `path` names the
 * file. */
by_status by__evaluate_keys_check(const json_t *yaml, const char *path, by_error *error);
/* Refuses metrics that tasks of a kind have not, and what would change those that they have. */
by_status by__evaluate_metrics_check(const json_t *yaml, by__evaluate_kind kind, const char *path,
                                     by_error *error);

/* ---- task_text.c ---- */

/* What an item says. */
typedef struct by__evaluate_texts {
    size_t count;
    by_string *contexts;      /* [count] */
    by_string *continuations; /* [count] */
    by_string *choices;       /* [count]: what lengths are counted of */
    int64_t gold;             /* index of the right one; -1: none is */
    json_t *targets;          /* right answers of a generated text */
} by__evaluate_texts;

by_status by__evaluate_texts_make(by__evaluate_texts *out, const by__evaluate_task *task,
                                  size_t item, by_error *error);
void by__evaluate_texts_free(by__evaluate_texts *texts);

/* ---- suite_encode.c ---- */

/* One prompt to score. */
typedef struct by__evaluate_sequence {
    by_token_buffer tokens;
    size_t from;                          /* the first token that is scored, at least 1 */
    size_t lengths[BY__EVALUATE_LENGTHS]; /* of the choice; [0] is 1 */
} by__evaluate_sequence;

typedef struct by__evaluate_item {
    by__evaluate_sequence *sequences;
    size_t count;
    size_t shared; /* tokens at the beginning that all have in common */
    bool cut;
    int64_t gold;
    json_t *targets;
    size_t words; /* of a document */
    char id[33];  /* hash of its texts */
} by__evaluate_item;

typedef struct by__evaluate_encoder {
    by_encoder *encoder;
    int64_t begin;  /* the token that begins a text; -1: none */
    size_t context; /* most tokens of a sequence */
} by__evaluate_encoder;

by_status by__evaluate_encoder_open(by__evaluate_encoder *out, const by_tokenizer *tokenizer,
                                    size_t context, by_error *error);
void by__evaluate_encoder_close(by__evaluate_encoder *encoder);
by_status by__evaluate_item_make(by__evaluate_item *out, by__evaluate_encoder *encoder,
                                 const by__evaluate_task *task, size_t index, by_error *error);
void by__evaluate_item_free(by__evaluate_item *item);

/* ---- suite_results.c ---- */

/* What the model made of an item. A metric of a task is a function of the means of its items' sums
 * and weights: their quotient, but for perplexities. */
typedef struct by__evaluate_score {
    double sums[BY_SUITE_METRICS];
    double weights[BY_SUITE_METRICS];
} by__evaluate_score;

/* The names of a task's metrics in the order of the sums, the main one first. Returns how many. */
size_t by__evaluate_metric_names(const by__evaluate_task *task,
                                 const char *names[BY_SUITE_METRICS]);
/* Whether a lower value of a metric is the better one. */
bool by__evaluate_lower_is_better(const char *metric);
/* Fills the metrics of all tasks from scores [items of all tasks]. */
by_status by__evaluate_results_fill(by_suite_results *results, const by_suite *suite,
                                    const by__evaluate_score *scores, uint64_t seed,
                                    by_error *error);

#endif
