/* assistant: from text files and conversations to an assistant and a report, as a sequence of
 * ordinary runs.
 *
 * What it is for: assistant_config.c reads assistant.yaml; assistant_parts.c has the table of parts
 * and what their configs have; part_settings.c writes a config; part_inputs.c says when a part is
 * to be done again; assistant_state.c remembers what is done; part_train.c trains a part;
 * part_suites.c and part_samples.c look at its model; report_*.c write the report; assistant_run.c
 * does one after another.
 *
 * Types: by__assistant_row is a part in the table, by__assistant_part the same of a directory.
 *
 * Who owns what: a by_assistant owns its config, its parts and what is known of suites.
 *
 * Determinism: a part's run is a function of its config file; only the choice of steps and model
 * depends on measured times, and is in that file.
 *
 * Never put here: how a model trains or is scored; printing; flags.
 */
#ifndef BY_ASSISTANT_ASSISTANT_H
#define BY_ASSISTANT_ASSISTANT_H

#include <jansson.h>

#include "banyan/assistant.h"
#include "base/base.h"

#define BY__ASSISTANT_PARTS 4

/* ---- the settings of a config (part_settings.c) ---- */

typedef struct by__assistant_setting {
    char key[64]; /* "train.steps" */
    char *value;  /* as YAML has it */
} by__assistant_setting;

typedef struct by__assistant_settings {
    by__assistant_setting *items;
    size_t count;
    size_t capacity;
    by_config *given; /* the user's file, whose keys are kept; NULL: none */
    const char *path; /* of it; "": none */
    bool failed;      /* for lack of memory */
} by__assistant_settings;

/* Begins with the user's file, "": none, whose keys may be those of this kind of task. */
by_status by__assistant_settings_open(by__assistant_settings *out, const char *path,
                                      const char *kind, by_error *error);
void by__assistant_settings_free(by__assistant_settings *settings);
/* Checks what does not depend on the part before: that the user's files can be read, and that what
 * a reward needs is in one. Returns BY_ECONFIG. */
by_status by__assistant_check_settings(const by_assistant *assistant, by_error *error);
/* Adds a key that the user's file may set otherwise; `format` makes its value. */
void by__assistant_settings_add(by__assistant_settings *settings, const char *key,
                                const char *format, ...) BY_PRINTF(3, 4);
/* Adds a text, and a list of texts, that replace those of the user's file. */
void by__assistant_settings_fix(by__assistant_settings *settings, const char *key,
                                const char *text);
void by__assistant_settings_fix_list(by__assistant_settings *settings, const char *key,
                                     const by_string_list *list);
/* Returns true if the user's file sets the key. */
bool by__assistant_settings_given(const by__assistant_settings *settings, const char *key);
/* Writes them as YAML, section by section; free *out with free(). */
by_status by__assistant_settings_print(char **out, const by__assistant_settings *settings,
                                       by_error *error);

/* ---- the parts (assistant_parts.c) ---- */

typedef struct by__assistant_row {
    const char *name;
    const char *help;
    const char *kind; /* task.kind */
    double share;     /* of the minutes */
    size_t own;       /* offset of its by_assistant_part_config */
    size_t data;      /* offset of the list of its files */
    double passes;    /* over data, at most: more only learns them by heart */
    bool rolls_out;   /* it has no passes over data */
    int64_t context;  /* of a config that the dial chooses unless there is one; 0: it does not */
    /* Adds what its config has; `from`: the run before it, NULL: none. */
    by_status (*set)(by__assistant_settings *out, const by_assistant_config *config,
                     const char *from, by_error *error);
} by__assistant_row;

extern const by__assistant_row by__assistant_rows[BY__ASSISTANT_PARTS];

const by_assistant_part_config *by__assistant_own(const by__assistant_row *row,
                                                  const by_assistant_config *config);
const by_string_list *by__assistant_data(const by__assistant_row *row,
                                         const by_assistant_config *config);

/* ---- an assistant ---- */

typedef struct by__assistant_part {
    const by__assistant_row *row;
    double minutes;
    char *file;      /* DIR/PART.yaml */
    char inputs[33]; /* hash of what the config was made of; "": it was not */
    char config[33]; /* hash of the config of the run */
    char *run;       /* DIR/PART; NULL: none yet */
    double seconds;  /* spent on training */
    double joules;   /* drawn meanwhile; below 0: unknown */
    by_assistant_state state;
    int64_t step;
    int64_t steps;
} by__assistant_part;

struct by_assistant {
    by_assistant_config *config;
    char *directory;
    by__assistant_part parts[BY__ASSISTANT_PARTS];
    size_t count;
    /* Object "PART SUITE" to {"key", "items", "metrics": [{"task", ...}]}. */
    json_t *scores;
};

/* ---- part_inputs.c ---- */

/* Hashes what the config of a part is made of: settings, the contents of its data, the part before
 * it (NULL: none). */
by_status by__assistant_inputs(char out[33], const by_assistant *assistant,
                               const by__assistant_part *part, const by__assistant_part *before,
                               by_error *error);
/* The hash of the config in the part's file as it is now; "" if there is no file. */
by_status by__assistant_config_hash(char out[33], const by__assistant_part *part, by_error *error);
/* Finds out how far all parts are. */
by_status by__assistant_refresh(by_assistant *assistant, by_error *error);

/* ---- assistant_state.c ---- */

by_status by__assistant_load(by_assistant *assistant, by_error *error);
by_status by__assistant_save(const by_assistant *assistant, by_error *error);

/* ---- part_choose.c, part_train.c, part_suites.c ---- */

/* Makes and writes the config of a part. */
by_status by__assistant_choose(by_assistant *assistant, size_t part,
                               const by_assistant_options *options, by_error *error);
/* Trains it, or goes on. */
by_status by__assistant_train(by_assistant *assistant, size_t part,
                              const by_assistant_options *options, by_error *error);
/* Opens all suites, so that a mistake in one is known before anything is trained. */
by_status by__assistant_check_suites(const by_assistant *assistant, by_error *error);
/* Runs the suites that a part's model has not had. */
by_status by__assistant_score(by_assistant *assistant, size_t part,
                              const by_assistant_options *options, by_error *error);
/* Reports an event of a part. */
void by__assistant_tell(const by_assistant *assistant, const by_assistant_options *options,
                        by_assistant_event_kind kind, size_t part, const char *text);

/* Cells of a table, row by row. */
typedef struct by__assistant_table {
    char **cells;
    size_t count;
    size_t capacity;
    size_t columns;
    bool failed; /* for lack of memory */
} by__assistant_table;

/* ---- part_samples.c ---- */

typedef struct by__assistant_sample {
    char *prompt;
    char *answer;
} by__assistant_sample;

/* Texts by a part's model: answers to questions, or continuations of the text if it is the base
 * model. Free with by__assistant_samples_free. */
by_status by__assistant_samples(by__assistant_sample **out, size_t *count,
                                const by_assistant *assistant, size_t part, by_error *error);
void by__assistant_samples_free(by__assistant_sample **samples, size_t count);

/* ---- the report (report_card.c, and a file for each format and for plots) ---- */

/* A format of reports. Texts may hold anything; formats escape them. */
typedef struct by__assistant_format {
    const char *ending; /* ".md" */
    void (*begin)(by_string *out, const char *title);
    void (*heading)(by_string *out, const char *text);
    void (*paragraph)(by_string *out, const char *text);
    /* The first row has the names of the columns. */
    void (*table)(by_string *out, const by__assistant_table *table);
    void (*code)(by_string *out, const char *text); /* kept as it is, line by line */
    /* A drawing, an SVG file of the report's directory. */
    void (*picture)(by_string *out, const char *directory, const char *file, const char *what);
    void (*end)(by_string *out);
} by__assistant_format;

extern const by__assistant_format by__assistant_markdown;
extern const by__assistant_format by__assistant_html;

/* Adds a cell to a table of `columns`, row by row; printf. */
void by__assistant_table_add(by__assistant_table *table, const char *format, ...) BY_PRINTF(2, 3);
void by__assistant_table_free(by__assistant_table *table);

/* Draws what a part's run has recorded to DIR/PART.svg. *drawn: there was something, and this
 * build draws. */
by_status by__assistant_plot(bool *drawn, const by_assistant *assistant, size_t part,
                             by_error *error);

/* Writes DIR/report.md and DIR/report.html, and the plots beside them. */
by_status by__assistant_report(const by_assistant *assistant, by_error *error);

#endif
