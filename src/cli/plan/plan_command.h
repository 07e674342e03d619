/* `banyan plan`: what a run will lose, take and cost, before it starts. */
#ifndef BY_CLI_PLAN_PLAN_COMMAND_H
#define BY_CLI_PLAN_PLAN_COMMAND_H

#include "banyan/layout.h"
#include "banyan/plan.h"
#include "base/cli.h"

extern const cli_command cli_plan_fit, cli_plan_cost, cli_plan_search, cli_plan_calibrate,
    cli_plan_coords, cli_plan_ladder, cli_plan_serve;

/* ---- layouts (plan_layout.c) ---- */

/* `banyan plan CONFIG`. */
int cli_plan_layout(int argc, char **argv);
/* Sets the sizes that a config leaves to its data, and *bytes to what these take in memory. */
by_status cli_plan_complete(by_config *config, uint64_t *bytes, by_error *error);
/* Prints the axes of a mesh that are larger than 1, `before` in front; false: there is none. */
bool cli_plan_print_axes(const int sizes[BY_MESH_AXES], const char *before);
/* Reads a cluster file; NULL: this machine. */
by_status cli_plan_cluster(by_cluster *out, const char *path, const by_config *config, int ranks,
                           by_error *error);

/* ---- runs (plan_runs.c) ---- */

/* Runs that a law is fitted to, and what they are called: "run.csv row 3", or a directory. */
typedef struct cli_law_runs {
    by_law_run *items;
    size_t count;
    const char *table; /* the file that they come from; NULL: directories */
    char **paths;      /* [count] of these, borrowed */
    size_t left_out;   /* runs that are not on the law of the others */
} cli_law_runs;

/* Reads the runs of one table, or of run directories, whose paths must outlive *out. A run that
 * began with another's weights is left out, with a line to standard error. */
by_status cli_law_runs_open(cli_law_runs *out, char **paths, int count,
                            const by_law_columns *columns, by_error *error);
void cli_law_runs_close(cli_law_runs *runs);
/* BY_EARG if the loss does not fall with N, or not with D: then no size is the best of a budget. */
by_status cli_check_law(const by_law *law, by_error *error);
/* Formats what run i is called. */
const char *cli_law_run_name(char buffer[160], const cli_law_runs *runs, size_t i);

/* ---- shapes (plan_shape.c) ---- */

/* A model that a config can have, and its training. */
typedef struct cli_law_shape {
    int64_t width;
    int64_t layers;
    int64_t heads;
    int64_t kv_heads;  /* below 1: as heads */
    int64_t mlp_width; /* 0: what the width gives */
    int64_t steps;
    double parameters;
    double tokens;
    double loss; /* by the law */
} cli_law_shape;

/* What a shape is to be best for. */
typedef struct cli_law_goal {
    by_law law;
    by_law_flops cost;
    double flops;
    double unique; /* tokens that differ; 0: all */
} cli_law_goal;

/* Finds the shape of least loss for a budget: that of the config at `path` with more or fewer heads
 * of the same width, and as many times its layers and its model.mlp_width, if it has one. */
by_status cli_find_shape(cli_law_shape *out, const cli_law_goal *goal, const char *path,
                         by_error *error);

/* ---- fits (plan_fit.c) ---- */

#define CLI_LAW_CHOICES 4

/* A fit with another choice than usual. */
typedef struct cli_law_choice {
    const char *name;
    by_law_fit fit;
    bool fitted;
} cli_law_choice;

typedef struct cli_law_report {
    cli_law_runs runs;
    by_law_options options;
    by_law_fit fit;
    double seconds; /* that the fit took */
    by_law_flops cost;
    by_law_isoflop isoflop;
    by_law *draws;
    size_t draw_count;
    double level;    /* of the intervals */
    by_law *without; /* [runs.count], each without a run */
    cli_law_choice choices[CLI_LAW_CHOICES];
    double flops;  /* the budget; 0: none */
    double unique; /* tokens that differ; 0: all */
    bool has_shape;
    cli_law_shape shape; /* for it */
    double loss;         /* to reach; 0: none */
    double served;       /* tokens of inference after that; 0: none count */
    double most;         /* the largest budget of the runs */
} cli_law_report;

/* plan_fit_report.c */
by_status cli_print_law(const cli_law_report *r, bool json, by_error *error);
/* plan_fit_chart.c: draws the runs and the law to a file. */
by_status cli_draw_law(const cli_law_report *r, const char *path, by_error *error);

#endif
