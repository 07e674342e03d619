#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "banyan/track.h"
#include "banyan/train.h"
#include "base/braille.h"
#include "base/cli.h"

/* All values of one key of one event, over the steps. */
typedef struct series {
    char event[48];
    char key[128];
    double *steps;
    double *values;
    size_t count;
    size_t capacity;
} series;

/* What was read of a run so far. */
typedef struct watched_run {
    char *run;
    uint64_t offset; /* position in its events */
    series *all;
    size_t count;
    size_t capacity;
    size_t next; /* index at which to look first for the next number's series, because events
                    repeat */
    bool failed; /* memory was exhausted */
    double time; /* of the newest event */
} watched_run;

/* ---- reading ---- */

static void clear_series(watched_run *w)
{
    for (size_t i = 0; i < w->count; i++) {
        free(w->all[i].steps);
        free(w->all[i].values);
    }
    w->count = 0;
    w->next = 0;
}

/* Doubles an array that is full. */
static bool grow(void **items, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    size_t more = *capacity == 0 ? 64 : *capacity * 2;
    void *larger = more > SIZE_MAX / size ? NULL : realloc(*items, more * size);
    if (larger == NULL) {
        return false;
    }
    *items = larger;
    *capacity = more;
    return true;
}

/* Names come from a file that anybody may have written, so characters that move the cursor are
 * replaced. */
static void copy_name(char *out, size_t size, const char *name)
{
    (void)snprintf(out, size, "%s", name);
    for (char *c = out; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f ? '?' : *c;
    }
}

static series *find_from(const watched_run *w, size_t first, const char *event, const char *key)
{
    for (size_t i = 0; i < w->count; i++) {
        series *s = &w->all[(first + i) % w->count];
        if (strcmp(s->event, event) == 0 && strcmp(s->key, key) == 0) {
            return s;
        }
    }
    return NULL;
}

static series *find(const watched_run *w, const char *event, const char *key)
{
    return find_from(w, 0, event, key);
}

static series *find_or_add(watched_run *w, const char *event_name, const char *key_name)
{
    char event[sizeof w->all->event];
    char key[sizeof w->all->key];
    copy_name(event, sizeof event, event_name);
    copy_name(key, sizeof key, key_name);
    series *s = find_from(w, w->next, event, key);
    if (s == NULL && grow((void **)&w->all, &w->capacity, w->count, sizeof *w->all)) {
        s = &w->all[w->count++];
        *s = (series){.count = 0};
        memcpy(s->event, event, sizeof event);
        memcpy(s->key, key, sizeof key);
    }
    w->next = s == NULL ? 0 : (size_t)(s - w->all) + 1;
    return s;
}

static void add_point(void *user, const char *event, uint64_t step, const char *key, double value)
{
    watched_run *w = user;
    if (strcmp(key, "time") == 0) {
        w->time = value;
        return;
    }
    series *s = find_or_add(w, event, key);
    if (s != NULL) {
        size_t capacity = s->capacity;
        if (grow((void **)&s->steps, &capacity, s->count, sizeof *s->steps) &&
            grow((void **)&s->values, &s->capacity, s->count, sizeof *s->values)) {
            s->steps[s->count] = (double)step;
            s->values[s->count++] = value;
            return;
        }
    }
    w->failed = true;
}

/* Reads new events. If a run was reset to a checkpoint, it is read again from the beginning. */
static by_status update(watched_run *w, bool *changed, by_error *error)
{
    bool restarted;
    uint64_t before = w->offset;
    by_status status = by_events_follow(w->run, &w->offset, &restarted, add_point, w, error);
    if (status == BY_OK && restarted) {
        clear_series(w);
        status = by_events_follow(w->run, &w->offset, NULL, add_point, w, error);
    }
    *changed = restarted || w->offset != before;
    return status == BY_OK && w->failed
               ? by_error_set(error, BY_EMEMORY, "out of memory: events of %s", w->run)
               : status;
}

/* ---- display ---- */

static double last_of(const watched_run *w, const char *event, const char *key)
{
    const series *s = find(w, event, key);
    return s == NULL ? (double)NAN : s->values[s->count - 1];
}

static double last_step(const watched_run *w)
{
    double step = 0.0;
    for (size_t i = 0; i < w->count; i++) {
        step = fmax(step, w->all[i].steps[w->all[i].count - 1]);
    }
    return step;
}

typedef struct watch_screen {
    bool terminal;
    int columns;
    int rows; /* rows left */
} watch_screen;

static void end_line(watch_screen *s)
{
    printf(s->terminal ? "\033[K\n" : "\n");
    s->rows--;
}

static void print_value(const char *name, double value)
{
    if (isfinite(value)) {
        printf("  %s %.4g", name, value);
    }
}

/* Returns true for events that are shown as lines above the table. */
static bool is_shown_above(const char *event)
{
    return strcmp(event, "train") == 0 || strcmp(event, "eval") == 0;
}

/* Prints the last numbers of all other events: a row for each key, a column for each event. */
static void print_table(const watched_run *w, watch_screen *s)
{
    const char *events[16];
    size_t event_count = 0;
    for (size_t i = 0; i < w->count; i++) {
        bool known = is_shown_above(w->all[i].event);
        for (size_t k = 0; k < event_count && !known; k++) {
            known = strcmp(events[k], w->all[i].event) == 0;
        }
        if (!known && event_count < sizeof events / sizeof *events) {
            events[event_count++] = w->all[i].event;
        }
    }
    if (event_count == 0 || s->rows < 3) {
        return;
    }
    printf("%-32s", "");
    for (size_t k = 0; k < event_count; k++) {
        /* Shorten at the front: the end distinguishes names such as activation_mean and
         * activation_max. */
        size_t n = strlen(events[k]);
        printf(" %12s", events[k] + (n > 12 ? n - 12 : 0));
    }
    end_line(s);
    for (size_t i = 0; i < w->count && s->rows > 1; i++) {
        const char *key = w->all[i].key;
        bool first = !is_shown_above(w->all[i].event);
        for (size_t k = 0; k < i && first; k++) {
            first = is_shown_above(w->all[k].event) || strcmp(w->all[k].key, key) != 0;
        }
        if (!first) {
            continue;
        }
        printf("%-32.32s", key);
        for (size_t k = 0; k < event_count; k++) {
            double value = last_of(w, events[k], key);
            if (isnan(value)) {
                printf(" %12s", "");
            } else {
                printf(" %12.4g", value);
            }
        }
        end_line(s);
    }
}

static void show(const watched_run *w, bool terminal)
{
    struct winsize size = {.ws_col = 80, .ws_row = 40};
    by_run_list record = {0};
    if (terminal) {
        (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
        printf("\033[H");
    }
    watch_screen s = {.terminal = terminal,
                      .columns = size.ws_col < 40 ? 40 : size.ws_col,
                      .rows = terminal ? (size.ws_row < 10 ? 10 : size.ws_row) : 1000};
    bool is_known = by_run_read(&record, w->run, NULL) == BY_OK;
    double step = last_step(w);
    double steps = is_known ? (double)record.items[0].steps : 0.0;
    double best = is_known ? record.items[0].best_loss : (double)NAN;
    const char *status = is_known ? record.items[0].status : "";
    printf("%s  %s  step %.0f of %.0f (%.0f %%)", w->run, status, step, steps,
           steps > 0.0 ? 100.0 * step / steps : 0.0);
    if (w->time > 0.0) {
        char ago[32];
        printf("  newest event %s ago", cli_duration(ago, fmax(0.0, (double)time(NULL) - w->time)));
    }
    end_line(&s);
    by_run_list_free(&record);
    const series *train = find(w, "train", "loss");
    const series *valid = find(w, "eval", "valid_loss");
    printf("loss");
    print_value("training", last_of(w, "train", "loss"));
    print_value("held out", last_of(w, "eval", "valid_loss"));
    print_value("best", best);
    end_line(&s);
    cli_curve curves[2];
    size_t count = 0;
    if (train != NULL) {
        curves[count++] = (cli_curve){train->steps, train->values, train->count};
    }
    if (valid != NULL) {
        curves[count++] = (cli_curve){valid->steps, valid->values, valid->count};
    }
    int rows = s.rows > 30 ? 12 : s.rows / 3;
    cli_print_curves(curves, count, s.columns - 12, rows, terminal);
    s.rows -= count > 0 ? rows : 0;
    printf("now");
    for (size_t i = 0; i < w->count; i++) {
        if (strcmp(w->all[i].event, "train") == 0 && strcmp(w->all[i].key, "loss") != 0) {
            print_value(w->all[i].key, w->all[i].values[w->all[i].count - 1]);
        }
    }
    end_line(&s);
    print_table(w, &s);
    if (terminal) {
        printf("\033[J");
    }
    fflush(stdout);
}

static bool is_over(const char *run)
{
    by_run_list record;
    if (by_run_read(&record, run, NULL) != BY_OK) {
        return false;
    }
    bool over = strcmp(record.items[0].status, "running") != 0;
    by_run_list_free(&record);
    return over;
}

/* ---- the command ---- */

/* Checks the run every `every` seconds until it ends or Ctrl-C is pressed. */
static by_status follow(watched_run *w, double every, by_error *error)
{
    bool terminal = isatty(STDOUT_FILENO) != 0;
    const struct timespec pause = {.tv_sec = (time_t)every,
                                   .tv_nsec = (long)((every - floor(every)) * 1e9)};
    printf(terminal ? "\033[2J" : "");
    for (;;) {
        bool over = is_over(w->run); /* checked first, so that the events read after it are
                                        complete */
        bool changed;
        by_status status = update(w, &changed, error);
        if (status != BY_OK) {
            return status;
        }
        if (changed || terminal || over) {
            show(w, terminal);
        }
        if (over || cli_stop_requested(NULL)) {
            return BY_OK;
        }
        (void)nanosleep(&pause, NULL);
    }
}

static int run(int argc, char **argv)
{
    watched_run w = {.offset = 0};
    bool once = false;
    double every = 1.0;
    bool changed;
    const cli_flag flags[] = {
        {"every", CLI_TIME_IN(0.1, 1e6), &every, "TIME", "time between updates (default 1s)"},
        {"once", CLI_SWITCH, &once, NULL, "print the current state and exit"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_watch, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_watch, "name one run directory");
    }
    cli_catch_signals();
    by_status status = by_run_find(&w.run, rest[0], &error);
    if (status == BY_OK && once) {
        status = update(&w, &changed, &error);
        if (status == BY_OK) {
            show(&w, false);
        }
    } else if (status == BY_OK) {
        status = follow(&w, every, &error);
    }
    clear_series(&w);
    free(w.all);
    free(w.run);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_watch, &error);
}

const cli_command cli_watch = {
    .name = "watch",
    .summary = "follow a run on the terminal: curves, norms, speed",
    .usage = "banyan watch RUN [--every TIME] [--once]",
    .text =
        "Follows a run on the terminal until it ends: losses as curves, the newest numbers, and\n"
        "the statistics that it records of its layers.\n"
        "\n"
        "examples:\n"
        "  banyan watch runs/shakespeare-char\n"
        "  banyan watch runs/shakespeare-char --once\n"
        "\n"
        "Only the run directory is read, so the run may be on another host that shares the file\n"
        "system. Ctrl-C ends the display, not the run.",
    .run = run};
