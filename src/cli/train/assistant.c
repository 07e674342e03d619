#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/assistant.h"
#include "base/cli.h"
#include "train/train_screen.h"

typedef struct assistant_request {
    cli_list text;
    cli_list conversations;
    cli_list preferences;
    cli_list prompts;
    cli_list suites;
    double minutes;
    bool plan;
    cli_train_screen screen;
} assistant_request;

static const char *const states[] = {"waits", "began", "done"};

/* ---- output ---- */

static void print_part_json(const by_assistant_part *p)
{
    char number[2][32];
    printf("\"part\":\"%s\",\"state\":\"%s\",\"minutes\":%s,\"seconds\":%s,\"step\":%lld,"
           "\"steps\":%lld,\"config\":",
           p->name, states[p->state], cli_json_number(number[0], p->minutes, 6),
           cli_json_number(number[1], p->seconds, 6), (long long)p->step, (long long)p->steps);
    cli_print_json_string(p->config);
    printf(",\"run\":");
    if (p->run == NULL) {
        printf("null");
    } else {
        cli_print_json_string(p->run);
    }
}

static void show_json(const by_assistant_event *e)
{
    static const char *const names[] = {"kept",    "chooses", "chose",   "trains",
                                        "trained", "scores",  "reported"};
    printf("{\"event\":\"%s\",", names[e->kind]);
    print_part_json(&e->part);
    if (e->kind == BY_ASSISTANT_SCORES) {
        printf(",\"done\":%llu,\"items\":%llu", (unsigned long long)e->done,
               (unsigned long long)e->items);
    }
    if (e->text != NULL) {
        printf(",\"text\":");
        cli_print_json_text(e->text, strlen(e->text));
    }
    printf("}\n");
}

static void show_scores(cli_train_screen *s, const by_assistant_event *e)
{
    if (s->terminal) {
        fprintf(stderr, "\r\033[K%s: %s %llu of %llu items", e->part.name, e->text,
                (unsigned long long)e->done, (unsigned long long)e->items);
        s->open_line = true;
    }
    if (e->done == e->items) {
        cli_train_screen_end_line(s);
        printf("%s: %s, %llu items\n", e->part.name, e->text, (unsigned long long)e->items);
    }
}

static void show_text(const by_assistant_event *e)
{
    char text[32];
    const by_assistant_part *p = &e->part;
    switch (e->kind) {
    case BY_ASSISTANT_KEPT:
        printf("%s: done already, in %s\n", p->name, p->run);
        break;
    case BY_ASSISTANT_CHOOSES:
        printf("%s: %s, in %s\n", p->name, p->help, cli_duration(text, 60.0 * p->minutes));
        break;
    case BY_ASSISTANT_CHOSE:
        cli_print_lines(stdout, e->text == NULL ? "" : e->text);
        printf("config     %s\n", p->config);
        break;
    case BY_ASSISTANT_TRAINS:
        if (e->text != NULL) { /* why it does not go on */
            printf("%s: %s\n", p->name, e->text);
        }
        printf("%s: %s\n", p->name, p->run == NULL ? "begins" : "goes on");
        break;
    case BY_ASSISTANT_TRAINED:
        printf("%s: done in %s, in %s\n", p->name, cli_duration(text, p->seconds), p->run);
        break;
    case BY_ASSISTANT_SCORES:
        break;
    case BY_ASSISTANT_REPORTED:
        printf("report     %s.md %s.html\n", e->text, e->text);
        break;
    }
}

static void on_event(void *user, const by_assistant_event *e)
{
    assistant_request *r = user;
    if (r->screen.json) {
        show_json(e);
    } else if (e->kind == BY_ASSISTANT_SCORES) {
        show_scores(&r->screen, e);
    } else {
        cli_train_screen_end_line(&r->screen);
        show_text(e);
    }
    cli_train_screen_flush(&r->screen);
}

static void on_train_event(void *user, const by_train_event *e)
{
    assistant_request *r = user;
    cli_train_screen_show(&r->screen, e);
}

static void print_plan(const by_assistant *a, bool json)
{
    char text[32];
    if (!json) {
        printf("part\tminutes\tstate\tconfig\twhat it makes\n");
    }
    for (size_t i = 0; i < by_assistant_parts(a); i++) {
        by_assistant_part p = by_assistant_part_at(a, i);
        if (json) {
            printf("{\"event\":\"part\",");
            print_part_json(&p);
            printf("}\n");
        } else {
            printf("%s\t%s\t%s\t%s\t%s\n", p.name, cli_number(text, p.minutes, 1), states[p.state],
                   p.config, p.help);
        }
    }
}

/* What can be done with what there is now. */
static void show_next(const by_assistant *a)
{
    by_assistant_part last = by_assistant_part_at(a, by_assistant_parts(a) - 1);
    by_assistant_part first = by_assistant_part_at(a, 0);
    printf("next       banyan chat %s\n           banyan generate %s --prompt TEXT\n           "
           "banyan serve %s\n",
           last.run, first.run, last.run);
}

/* ---- the command ---- */

static by_string_list list_of(cli_list *list)
{
    return (by_string_list){(char **)(uintptr_t)list->items, list->count};
}

/* Whether the command line describes a new assistant. */
static bool is_new(const assistant_request *r)
{
    return r->text.count > 0 || r->conversations.count > 0 || r->preferences.count > 0 ||
           r->prompts.count > 0 || r->suites.count > 0 || r->minutes > 0.0;
}

static bool equal_lists(const by_string_list *a, const by_string_list *b)
{
    size_t i = 0;
    while (a->count == b->count && i < a->count && strcmp(a->items[i], b->items[i]) == 0) {
        i++;
    }
    return a->count == b->count && i == a->count;
}

/* Flags that say what DIR/assistant.yaml has go on with it; names what they say otherwise. */
static by_status compare(const by_assistant_config *flags, const char *path, by_error *error)
{
    by_assistant_config *there;
    char other[128] = "";
    size_t length = 0;
    by_status status = by_assistant_config_open(&there, path, error);
    if (status != BY_OK) {
        return status;
    }
    const struct {
        const char *key;
        bool same;
    } keys[] = {
        {"text", equal_lists(&flags->text, &there->text)},
        {"conversations", equal_lists(&flags->conversations, &there->conversations)},
        {"preferences", equal_lists(&flags->preferences, &there->preferences)},
        {"prompts", equal_lists(&flags->prompts, &there->prompts)},
        {"suites", equal_lists(&flags->suites, &there->suites)},
        /* The file has six digits of it. */
        {"minutes", fabs(flags->minutes - there->minutes) <= 1e-5 * flags->minutes},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!keys[i].same) {
            length += (size_t)snprintf(other + length, sizeof other - length, "%s%s",
                                       length > 0 ? ", " : "", keys[i].key);
        }
    }
    by_assistant_config_close(&there);
    return length == 0
               ? BY_OK
               : by_error_set(error, BY_ESTATE,
                              "%s is there already, and the flags say otherwise (%s): to go "
                              "on with it, name only the directory; to change it, edit it",
                              path, other);
}

/* ---- a new file, and where nothing comes of it, none ---- */

typedef struct new_file {
    char path[4200]; /* DIR/assistant.yaml */
    size_t length;   /* of DIR in it */
    size_t existed;  /* of the part of DIR that was there */
    bool made;
} new_file;

static by_status name_file(new_file *f, const char *directory, by_error *error)
{
    f->length = strlen(directory);
    while (f->length > 1 && directory[f->length - 1] == '/') {
        f->length--;
    }
    if (f->length + 32 > sizeof f->path) {
        return by_error_set(error, BY_EARG, "%.80s...: the path is too long", directory);
    }
    (void)snprintf(f->path, sizeof f->path, "%.*s", (int)f->length, directory);
    for (f->existed = f->length; f->existed > 0 && access(f->path, F_OK) != 0;) {
        do {
            f->existed--;
        } while (f->existed > 0 && f->path[f->existed] != '/');
        f->path[f->existed] = '\0';
    }
    (void)snprintf(f->path, sizeof f->path, "%.*s/assistant.yaml", (int)f->length, directory);
    return BY_OK;
}

/* Removes the file and the directories that were made for it. */
static void discard(new_file *f)
{
    if (!f->made) {
        return;
    }
    (void)unlink(f->path);
    size_t end = f->length;
    while (end > f->existed) {
        f->path[end] = '\0';
        (void)rmdir(f->path);
        do {
            end--;
        } while (end > f->existed && f->path[end] != '/');
    }
}

/* Writes DIR/assistant.yaml of a new one. */
static by_status create(new_file *f, assistant_request *r, const char *directory, by_error *error)
{
    char reward[] = "auto";
    const by_assistant_config config = {.text = list_of(&r->text),
                                        .conversations = list_of(&r->conversations),
                                        .preferences = list_of(&r->preferences),
                                        .prompts = list_of(&r->prompts),
                                        .suites = list_of(&r->suites),
                                        .reward = reward,
                                        .minutes = r->minutes > 0.0 ? r->minutes : 10.0};
    if (!is_new(r)) {
        return BY_OK;
    }
    by_status status = name_file(f, directory, error);
    if (status == BY_OK && access(f->path, F_OK) == 0) {
        return compare(&config, f->path, error);
    }
    status = status == BY_OK ? by_assistant_create(directory, &config, error) : status;
    f->made = status == BY_OK;
    return status;
}

static int make(assistant_request *r, const char *directory)
{
    by_error error = {0};
    by_assistant *a = NULL;
    const by_assistant_options options = {
        .train_event = on_train_event, .event = on_event, .stop = cli_stop_requested, .user = r};
    new_file file = {.made = false};
    by_status status = create(&file, r, directory, &error);
    status = status == BY_OK ? by_assistant_open(&a, directory, &error) : status;
    if (r->plan || status != BY_OK) {
        discard(&file);
    }
    if (status == BY_OK && r->plan) {
        print_plan(a, r->screen.json);
    } else if (status == BY_OK) {
        cli_catch_signals();
        (void)signal(SIGPIPE, SIG_IGN);
        status = by_assistant_run(a, &options, &error);
        cli_train_screen_end_line(&r->screen);
    }
    if (status == BY_OK && !r->plan && !r->screen.json) {
        show_next(a);
    }
    int code = status == BY_OK ? CLI_DONE : cli_fail(&cli_assistant, &error);
    if (status == BY_ESTOPPED) {
        fprintf(stderr, "everything is saved; go on with: banyan assistant %s\n", directory);
        code = CLI_STOPPED;
    }
    by_assistant_close(&a);
    return cli_train_screen_lost(&r->screen, &cli_assistant, code);
}

static int run(int argc, char **argv)
{
    assistant_request r = {.screen = {.terminal = isatty(STDERR_FILENO) != 0}};
    char **rest;
    int count;
    const cli_flag flags[] = {
        {"text", CLI_INPUTS, &r.text, "FILE",
         "of a new assistant: a file or directory of text that the base model learns; may be "
         "repeated"},
        {"conversations", CLI_INPUTS, &r.conversations, "FILE",
         "conversations that it is tuned on; may be repeated"},
        {"preferences", CLI_INPUTS, &r.preferences, "FILE",
         "pairs of answers of which one is preferred; may be repeated"},
        {"prompts", CLI_INPUTS, &r.prompts, "FILE",
         "prompts with answers, to learn from rewards; may be repeated"},
        {"suite", CLI_INPUTS, &r.suites, "FILE",
         "questions that its models are measured with; may be repeated"},
        {"minutes", CLI_NUMBER_ABOVE(0, 1e6), &r.minutes, "N",
         "minutes of training, without preferences and rewards, which take 15 and 30 % of them on "
         "top (default: 10)"},
        {"plan", CLI_SWITCH, &r.plan, NULL, "print the parts and their minutes, and train nothing"},
        {"json", CLI_SWITCH, &r.screen.json, NULL,
         "print one JSON line per event to standard output"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    int code = cli_parse(&cli_assistant, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_assistant, "name one directory");
    }
    code = is_new(&r) ? -1 : cli_check_input(&cli_assistant, rest[0]);
    return code >= 0 ? code : make(&r, rest[0]);
}

const cli_command cli_assistant = {
    .name = "assistant",
    .summary = "make an assistant from text files and conversations",
    .usage = "banyan assistant DIR [--plan] |\n       banyan assistant DIR --text FILE... "
             "--conversations FILE... [--preferences FILE...] [--prompts FILE...]\n"
             "                           [--suite FILE...] [--minutes N]",
    .text = "Trains a tokenizer and a base model on text, tunes that on conversations and, where "
            "there\n"
            "are any, on preferences and on prompts with rewards, measures all of them, and writes "
            "a\n"
            "report: DIR/report.md and DIR/report.html. DIR/assistant.yaml names the data; flags "
            "write a\n"
            "new one, and go on with one that says the same.\n"
            "\n"
            "examples:\n"
            "  banyan assistant talker --text book.txt --conversations talks.jsonl --minutes 10\n"
            "  banyan assistant talker\n"
            "  banyan chat talker\n"
            "\n"
            "Each part is an ordinary run, such as DIR/pretrain and DIR/chat, of a config that is\n"
            "written beside it: `banyan train DIR/chat.yaml` repeats one. Called again after "
            "Ctrl-C, a\n"
            "crash or a power cut, the command goes on where it stood. Parts that are done stay; "
            "one\n"
            "whose data, settings or config file has changed is trained again, with those behind "
            "it.\n"
            "--plan prints the parts with their state and the minutes that they are expected to "
            "take.",
    .run = run};
