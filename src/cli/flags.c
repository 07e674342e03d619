#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

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
    cli_keep_failure("wrong usage");
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
    const char *near = name[0] == '\0' ? NULL : by_nearest_name(name, names, count);
    return cli_misuse(command, "unknown flag '%s'%s%s%s; see banyan %s --help", given,
                      near == NULL ? "" : "; did you mean '--", near == NULL ? "" : near,
                      near == NULL ? "" : "'?", command->name);
}

/* Stores a flag's value. Returns -1 to continue, or an exit code. */
static int store(const cli_command *command, const cli_flag *flag, const char *text)
{
    char *end = NULL;
    errno = 0;
    switch (flag->kind) {
    case CLI_SWITCH:
        *(bool *)flag->target = true;
        return -1;
    case CLI_STRING:
        *(const char **)flag->target = text;
        return -1;
    case CLI_INTEGER:
        *(int64_t *)flag->target = strtoll(text, &end, 10);
        break;
    case CLI_SEED:
        *(uint64_t *)flag->target = strtoull(text, &end, 10);
        errno = text[strspn(text, " \t")] == '-' ? ERANGE : errno;
        break;
    case CLI_NUMBER:
        *(double *)flag->target = strtod(text, &end);
        break;
    case CLI_LIST: {
        cli_list *list = flag->target;
        if (list->count == CLI_LIST_MAX) {
            return cli_misuse(command, "%s%s is given more than %d times", dashes(flag), flag->name,
                              CLI_LIST_MAX);
        }
        list->items[list->count++] = text;
        return -1;
    }
    }
    if (end == text || *end != '\0' || errno != 0) {
        return cli_misuse(command, "%s%s '%s' is not a%s number%s", dashes(flag), flag->name, text,
                          flag->kind == CLI_NUMBER ? "" : " whole",
                          flag->kind == CLI_SEED      ? " from 0 to 18446744073709551615"
                          : flag->kind == CLI_INTEGER ? " below 2^63"
                                                      : "");
    }
    return -1;
}

int cli_parse(const cli_command *command, const cli_flag *flags, int argc, char **argv,
              char ***rest, int *rest_count)
{
    struct option options[MAX_FLAGS + 2] = {{0}};
    char letters[2 * MAX_FLAGS + 3] = ":h";
    size_t letter = 2;
    int count = 0;
    for (; flags[count].name != NULL && count < MAX_FLAGS; count++) {
        options[count].name = flags[count].name;
        options[count].has_arg = flags[count].kind == CLI_SWITCH ? no_argument : required_argument;
        options[count].val = count;
        if (flags[count].name[1] == '\0') {
            options[count].val = (unsigned char)flags[count].name[0];
            letters[letter++] = flags[count].name[0];
            if (flags[count].kind != CLI_SWITCH) {
                letters[letter++] = ':';
            }
        }
    }
    assert(flags[count].name == NULL);
    options[count] = (struct option){.name = "help", .has_arg = no_argument, .val = count};
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
    }
    *rest = argv + optind;
    *rest_count = argc - optind;
    return -1;
}

int cli_fail(const cli_command *command, const by_error *error)
{
    fprintf(stderr, "banyan %s: %s\n", command->name, error->message);
    cli_keep_failure(error->message);
    return by_exit_of(error->status);
}
