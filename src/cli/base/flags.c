#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cli.h"

#define MAX_FLAGS 64

/* Returns the dashes before a name: one for a single letter, else two. */
static const char *dashes(const cli_flag *flag)
{
    return flag->name[1] == '\0' ? "-" : "--";
}

/* The columns of a flag's description, which goes on in the same place on the next line. */
#define HELP_BEGIN 27
#define HELP_END   100

static void print_flag(const char *left, const char *help)
{
    int column = printf("  %-24s", left);
    while (*help != '\0') {
        size_t inside = help[0] == '(' ? strcspn(help, ")") : 0; /* "(default 15)" is not cut */
        int length = (int)(inside + strcspn(help + inside, " "));
        if (column + 1 + length > HELP_END) {
            column = printf("\n%*s", HELP_BEGIN - 1, "") - 1;
        }
        column += printf(" %.*s", length, help);
        help += length;
        help += strspn(help, " ");
    }
    printf("\n");
}

static void print_help(const cli_command *command, const cli_flag *flags)
{
    printf("usage: %s\n\n%s\n\nflags:\n", command->usage, command->text);
    for (const cli_flag *flag = flags; flag->name != NULL; flag++) {
        char left[64];
        (void)snprintf(left, sizeof left, "%s%s%s%s", dashes(flag), flag->name,
                       flag->value == NULL ? "" : " ", flag->value == NULL ? "" : flag->value);
        print_flag(left, flag->help);
    }
    print_flag("--help", "print this text");
}

int cli_misuse(const cli_command *command, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "banyan %s: ", command->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nusage: %s\n", command->usage);
    cli_record_failure(&(by_error){.status = BY_EARG, .message = "wrong usage"});
    return CLI_USAGE;
}

/* Reports an unknown flag ("--top_k=3") with the nearest existing one. */
static int misuse_unknown(const cli_command *command, const cli_flag *flags, const char *given)
{
    const char *names[MAX_FLAGS];
    size_t count = 0;
    char name[64];
    for (; flags[count].name != NULL && count < MAX_FLAGS; count++) {
        names[count] = flags[count].name;
    }
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(given + strspn(given, "-"), "="),
                   given + strspn(given, "-"));
    char meant[400];
    if (name[0] != '\0' && cli_suggest_flag(meant, command, flags, name)) {
        return cli_misuse(command, "unknown flag '%s'; %s; see banyan %s --help", given, meant,
                          command->name);
    }
    const char *near = name[0] == '\0' ? NULL : by_nearest_name(name, names, count);
    return cli_misuse(command, "unknown flag '%s'%s%s%s; see banyan %s --help", given,
                      near == NULL ? "" : "; did you mean '--", near == NULL ? "" : near,
                      near == NULL ? "" : "'?", command->name);
}

/* Says "--steps '0' is not a whole number from 1 to 10000". */
static int misuse_number(const cli_command *command, const cli_flag *flag, const char *text)
{
    const cli_flag_kind *kind = &flag->kind;
    const char *what = kind->type == CLI_TYPE_NUMBER ? "number" : "whole number";
    bool ends = isfinite(kind->most);
    char range[96];
    if (kind->type == CLI_TYPE_SEED) {
        (void)snprintf(range, sizeof range, "from 0 to 18446744073709551615");
    } else if (!isfinite(kind->least)) {
        (void)snprintf(range, sizeof range, "that is finite");
    } else if (!ends) {
        (void)snprintf(range, sizeof range, "%s %.10g", kind->above ? "above" : "of at least",
                       kind->least);
    } else {
        (void)snprintf(range, sizeof range,
                       kind->above ? "above %.10g and at most %.10g" : "from %.10g to %.10g",
                       kind->least, kind->most);
    }
    return cli_misuse(command, "%s%s '%s' is not a %s %s", dashes(flag), flag->name, text, what,
                      range);
}

/* Returns true if a number was parsed from all of the text. */
static bool takes_all(const char *text, const char *end)
{
    return end != text && *end == '\0' && errno == 0;
}

/* Says "--grace '5x' is not a time from 0.1s to 1000000s, such as 30s, 10m or 1h". */
static int misuse_time(const cli_command *command, const cli_flag *flag, const char *text)
{
    const cli_flag_kind *kind = &flag->kind;
    char range[96] = "";
    if (isfinite(kind->most)) {
        (void)snprintf(range, sizeof range, " %s %.10gs to %.10gs", kind->above ? "above" : "from",
                       kind->least, kind->most);
    }
    return cli_misuse(command, "%s%s '%s' is not a time%s, such as 500ms, 30s, 10m or 1h",
                      dashes(flag), flag->name, text, range);
}

static bool in_range(const cli_flag_kind *kind, double value)
{
    return (kind->above ? value > kind->least : value >= kind->least) && value <= kind->most;
}

/* Stores a number. Returns false if the text is none, or it is out of range. */
static bool store_number(const cli_flag *flag, const char *text)
{
    char *end = NULL;
    errno = 0;
    if (flag->kind.type == CLI_TYPE_INTEGER) {
        int64_t value = strtoll(text, &end, 10);
        if (!takes_all(text, end) || !in_range(&flag->kind, (double)value)) {
            return false;
        }
        *(int64_t *)flag->target = value;
    } else if (flag->kind.type == CLI_TYPE_SEED) {
        uint64_t value = strtoull(text, &end, 10);
        if (!takes_all(text, end) || text[strspn(text, " \t")] == '-') {
            return false;
        }
        *(uint64_t *)flag->target = value;
    } else {
        double value = strtod(text, &end);
        if (!takes_all(text, end) || !isfinite(value) || !in_range(&flag->kind, value)) {
            return false;
        }
        *(double *)flag->target = value;
    }
    return true;
}

/* Says that of a flag or a setting that is given twice, the last value counts. The values may be
 * secrets. */
static void tell_twice(const cli_command *command, const char *what, const char *first,
                       const char *last)
{
    int rank, ranks;
    cli_find_rank(&rank, &ranks);
    if (rank == 0 && strcmp(first, last) != 0) {
        fprintf(stderr, "banyan %s: %s is given twice: its last value counts\n", command->name,
                what);
    }
}

/* The same of "section.key=value" in a list. */
static void tell_set_twice(const cli_command *command, const cli_flag *flag, const cli_list *list)
{
    const char *last = list->items[list->count - 1];
    size_t length = strcspn(last, "=");
    char what[128];
    if (flag->value == NULL || strchr(flag->value, '=') == NULL || last[length] == '\0') {
        return; /* a list of other things */
    }
    (void)snprintf(what, sizeof what, "%s%s %.*s", dashes(flag), flag->name,
                   (int)(length < 80 ? length : 80), last);
    for (size_t i = list->count - 1; i-- > 0;) {
        if (strncmp(list->items[i], last, length + 1) == 0) {
            tell_twice(command, what, list->items[i] + length + 1, last + length + 1);
            return;
        }
    }
}

/* Of a flag that is given twice, the last value counts. */
static void store_setting(const cli_flag *flag, const char *text)
{
    cli_settings *settings = flag->target;
    size_t at = 0;
    while (at < settings->count && strcmp(settings->items[at].key, flag->kind.key) != 0) {
        at++;
    }
    assert(at < CLI_SETTINGS_MAX);
    settings->items[at] = (struct cli_setting){flag->name, flag->kind.key, text};
    settings->count += at == settings->count;
}

/* Stores a flag's value. Returns -1 to continue, or an exit code. */
static int store(const cli_command *command, const cli_flag *flag, const char *text)
{
    switch (flag->kind.type) {
    case CLI_TYPE_SWITCH:
        *(bool *)flag->target = true;
        return -1;
    case CLI_TYPE_STRING:
        *(const char **)flag->target = text;
        return -1;
    case CLI_TYPE_TIME: {
        double seconds;
        if (!by_parse_duration(&seconds, text) || !in_range(&flag->kind, seconds)) {
            return misuse_time(command, flag, text);
        }
        *(double *)flag->target = seconds;
        return -1;
    }
    case CLI_TYPE_INPUT:
    case CLI_TYPE_STREAM:
        *(const char **)flag->target = text;
        return flag->kind.type == CLI_TYPE_STREAM && strcmp(text, "-") == 0
                   ? -1
                   : cli_check_input(command, text);
    case CLI_TYPE_INTEGER:
    case CLI_TYPE_SEED:
    case CLI_TYPE_NUMBER:
        return store_number(flag, text) ? -1 : misuse_number(command, flag, text);
    case CLI_TYPE_LIST:
    case CLI_TYPE_INPUTS: {
        cli_list *list = flag->target;
        if (list->count == CLI_LIST_MAX) {
            return cli_misuse(command, "%s%s is given more than %d times", dashes(flag), flag->name,
                              CLI_LIST_MAX);
        }
        list->items[list->count++] = text;
        tell_set_twice(command, flag, list);
        return flag->kind.type == CLI_TYPE_INPUTS ? cli_check_input(command, text) : -1;
    }
    case CLI_TYPE_DEVICE: {
        cli_list *list = flag->target;
        if (list->device[0] == '\0' && list->count < CLI_LIST_MAX) {
            list->items[list->count++] = list->device;
        }
        (void)snprintf(list->device, sizeof list->device, "device=%.50s", text);
        return -1;
    }
    case CLI_TYPE_KEY:
        store_setting(flag, text);
        return -1;
    }
    return -1;
}

int cli_parse(const cli_command *command, const cli_flag *flags, int argc, char **argv,
              char ***rest, int *rest_count)
{
    struct option options[MAX_FLAGS + 3] = {{0}};
    char letters[2 * MAX_FLAGS + 3] = ":h";
    const char *given[MAX_FLAGS + 3] = {NULL}; /* the value so far; of a switch NULL */
    size_t letter = 2;
    int count = 0;
    for (; flags[count].name != NULL && count < MAX_FLAGS; count++) {
        options[count].name = flags[count].name;
        options[count].has_arg =
            flags[count].kind.type == CLI_TYPE_SWITCH ? no_argument : required_argument;
        options[count].val = count;
        if (flags[count].name[1] == '\0') {
            options[count].val = (unsigned char)flags[count].name[0];
            letters[letter++] = flags[count].name[0];
            if (flags[count].kind.type != CLI_TYPE_SWITCH) {
                letters[letter++] = ':';
            }
        }
    }
    assert(flags[count].name == NULL);
    options[count] = (struct option){.name = "help", .has_arg = no_argument, .val = count};
    for (int i = 0; i < count; i++) { /* what others, and this program once, call it */
        if (strcmp(flags[i].name, "out") == 0) {
            options[count + 1] = options[i];
            options[count + 1].name = "output";
        }
    }
    opterr = 0;
    for (int got; (got = getopt_long(argc, argv, letters, options, NULL)) != -1;) {
        if (got == count || got == 'h') {
            print_help(command, flags);
            return CLI_DONE;
        }
        if (got == '?') {
            return misuse_unknown(command, flags, argv[optind - 1]);
        }
        if (got == ':') {
            return cli_misuse(command, "flag '%s' needs a value", argv[optind - 1]);
        }
        int at = 0;
        while (options[at].val != got) {
            at++;
        }
        int code = store(command, &flags[at], optarg);
        if (code >= 0) {
            return code;
        }
        if (given[at] != NULL && flags[at].kind.type != CLI_TYPE_LIST &&
            flags[at].kind.type != CLI_TYPE_INPUTS) {
            char what[80];
            (void)snprintf(what, sizeof what, "%s%s", dashes(&flags[at]), flags[at].name);
            tell_twice(command, what, given[at], optarg);
        }
        given[at] = optarg;
    }
    *rest = argv + optind;
    *rest_count = argc - optind;
    return -1;
}

int cli_fail(const cli_command *command, const by_error *error)
{
    fprintf(stderr, "banyan %s: %s\n", command->name, error->message);
    cli_record_failure(error);
    return (int)by_exit_of(error->status);
}
