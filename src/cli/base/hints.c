/* What a command line probably meant, once the command has failed: the same for every command. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cli.h"

static bool is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Returns true for a setting whose value may be a run, such as model.from=NAME. */
static bool may_be_setting(const char *setting)
{
    static const char *const keys[] = {"model.from", "lora.from", "distill.teacher",
                                       "task.reference_from"};
    size_t length = strcspn(setting, "=");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strlen(keys[i]) == length && strncmp(keys[i], setting, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Finds the run in runs/ that an argument, "NAME", "MODEL=NAME" or "NAME+ADAPTER", names bare. */
static bool find_run(char path[256], const char *argument)
{
    const char *equals = strchr(argument, '=');
    const char *name = equals == NULL ? argument : equals + 1;
    int length = (int)strcspn(name, "+");
    if (argument[0] == '-' || length == 0 || length > 200 || exists(argument) ||
        memchr(name, '/', (size_t)length) != NULL || name[0] == '.') {
        return false;
    }
    (void)snprintf(path, 256, "runs/%.*s/config.yaml", length, name);
    bool found = exists(path);
    (void)snprintf(path, 256, "runs/%.*s", length, name);
    return found;
}

/* Values of other flags are texts and numbers. */
static bool may_be_run(const char *before, const char *argument)
{
    return strcmp(before, "--set") == 0 ? may_be_setting(argument)
                                        : before[0] != '-' || strcmp(before, "--resume") == 0;
}

/* "train X --set a.b=1 c.d=2": the value of --set is one setting. */
static const char *find_setting(int argc, char **argv)
{
    bool sets = false;
    for (int i = 1; i < argc; i++) {
        bool own = strcmp(argv[i], "--set") == 0;
        const char *before = argv[i - 1];
        const char *equals = strchr(argv[i], '=');
        size_t name = strspn(argv[i], "abcdefghijklmnopqrstuvwxyz0123456789_.");
        if (sets && !own && strcmp(before, "--set") != 0 && equals != NULL && before[0] != '-' &&
            name > 0 && argv[i][name] == '=') {
            return argv[i];
        }
        sets = sets || own || strncmp(argv[i], "--set=", 6) == 0;
    }
    return NULL;
}

/* "train runs/NAME --resume": the run is the flag's value. */
static const char *find_resumed(int argc, char **argv)
{
    bool train = strcmp(argv[0], "train") == 0;
    bool last = strcmp(argv[argc - 1], "--resume") == 0;
    for (int i = 1; i < argc && train && last; i++) {
        if (argv[i][0] != '-' && is_directory(argv[i])) {
            return argv[i];
        }
    }
    return NULL;
}

/* A text behind the model of a command that takes a prompt. */
static const char *find_prompt(int argc, char **argv)
{
    bool writes = strcmp(argv[0], "generate") == 0;
    for (int i = 1; i < argc; i++) {
        writes = writes && strncmp(argv[i], "--", 2) != 0;
    }
    return writes && argc == 3 && !exists(argv[2]) ? argv[2] : NULL;
}

void cli_hint(int argc, char **argv)
{
    char path[256];
    const char *setting = find_setting(argc, argv);
    const char *resumed = find_resumed(argc, argv);
    const char *prompt = find_prompt(argc, argv);
    if (setting != NULL) {
        fprintf(stderr, "each setting needs a --set of its own: --set %s\n", setting);
    }
    if (resumed != NULL) {
        fprintf(stderr, "to continue it: banyan train --resume %s\n", resumed);
    }
    if (prompt != NULL) {
        fprintf(stderr, "a prompt follows its flag: banyan generate %s --prompt \"%s\"\n", argv[1],
                prompt);
    }
    for (int i = 1; i < argc; i++) {
        if (may_be_run(argv[i - 1], argv[i]) && find_run(path, argv[i])) {
            fprintf(stderr, "there is a run %s: name it so, with its directory\n", path);
        }
    }
}
