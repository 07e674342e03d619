/* Starts a program of a bundle with the loader and the libraries of the bundle.
 *
 * It is compiled without a C library, so that it runs on any x86-64 Linux. BUNDLE_UP is how many
 * names to cut from the path of this file and BUNDLE_DOWN what to append to come to lib/banyan;
 * BUNDLE_PROGRAM is the program, below that. The program gets the arguments and the environment,
 * and the places of the bundle's fonts and of its Open MPI. With BUNDLE_NAMED its name is the path
 * of this file, by whose folder mpirun finds the rest of Open MPI. */
#define PATH_SPACE 4096
#define TEXT_SPACE 65536
#define MOST_WORDS 65536

enum { sys_write = 1, sys_execve = 59, sys_exit = 60, sys_readlink = 89 };

/* Where the loader looks behind the bundle's libraries and those of LD_LIBRARY_PATH for what the
 * host alone has, such as the driver of a GPU; /etc/ld.so.cache and Debian's folders come last. */
#define HOST_LIBRARIES ":/usr/lib64:/lib64:/usr/lib/wsl/lib"

static char home[PATH_SPACE];
static char loader[PATH_SPACE];
static char program[PATH_SPACE];
static char self[PATH_SPACE];
static char libraries[TEXT_SPACE];
static char mpi[PATH_SPACE];
static char pmix_plugins[PATH_SPACE];
static char pmix_texts[PATH_SPACE];
static char fonts[PATH_SPACE];
static char *words[MOST_WORDS];
static char *environment[MOST_WORDS];

static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return result;
}

static unsigned long length(const char *s)
{
    unsigned long n = 0;
    while (s[n] != '\0') {
        n++;
    }
    return n;
}

__attribute__((noreturn)) static void fail(const char *what, const char *path)
{
    static const char name[] = "banyan: ";
    (void)call(sys_write, 2, (long)name, sizeof name - 1);
    (void)call(sys_write, 2, (long)what, (long)length(what));
    (void)call(sys_write, 2, (long)path, (long)length(path));
    (void)call(sys_write, 2, (long)"\n", 1);
    for (;;) {
        (void)call(sys_exit, 127, 0, 0);
    }
}

/* Appends text to a string. */
static void add(char *to, unsigned long space, const char *text)
{
    unsigned long n = length(to);
    if (n + length(text) >= space) {
        fail("a path is too long: ", text);
    }
    for (; *text != '\0'; text++) {
        to[n++] = *text;
    }
    to[n] = '\0';
}

/* The value of "NAME=value"; null: another variable. */
static char *value_of(char *variable, const char *name)
{
    while (*name != '\0') {
        if (*variable++ != *name++) {
            return 0;
        }
    }
    return *variable == '=' ? variable + 1 : 0;
}

static void find_home(void)
{
    long n = call(sys_readlink, (long)"/proc/self/exe", (long)self, PATH_SPACE - 1);
    if (n <= 0) {
        fail("/proc is not mounted, where this program finds its libraries", "");
    }
    self[n] = '\0';
    add(home, PATH_SPACE, self);
    for (int i = 0; i < BUNDLE_UP; i++) {
        do {
            n--;
        } while (n > 0 && home[n] != '/');
        home[n < 0 ? 0 : n] = '\0';
    }
    add(home, PATH_SPACE, BUNDLE_DOWN);
}

static void place(char *to, const char *variable, const char *below)
{
    add(to, PATH_SPACE, variable);
    add(to, PATH_SPACE, home);
    add(to, PATH_SPACE, below);
}

/* The given environment, in which the bundle's own places replace those of the host's Open MPI: its
 * plugins belong to another library. */
static void fill_environment(char **given)
{
    unsigned long count = 0;
    char *own_fonts = fonts;
    int homeless = BUNDLE_NAMED;
    place(mpi, "OPAL_PREFIX=", "/mpi");
    place(pmix_plugins, "PMIX_PKGLIBDIR=", "/mpi/lib/pmix");
    place(pmix_texts, "PMIX_PKGDATADIR=", "/mpi/share/pmix");
    place(fonts, "FONTCONFIG_FILE=", "/fonts/fonts.conf");
    add(libraries, TEXT_SPACE, home);
    add(libraries, TEXT_SPACE, "/lib");
    for (; *given != 0; given++) {
        char *path = value_of(*given, "LD_LIBRARY_PATH");
        if (path != 0 && *path != '\0') {
            add(libraries, TEXT_SPACE, ":");
            add(libraries, TEXT_SPACE, path);
        }
        if (value_of(*given, "FONTCONFIG_FILE") != 0) {
            own_fonts = 0;
        }
        if (value_of(*given, "HOME") != 0) {
            homeless = 0;
        }
        if (value_of(*given, "OPAL_PREFIX") != 0 || value_of(*given, "PMIX_PKGLIBDIR") != 0 ||
            value_of(*given, "PMIX_PKGDATADIR") != 0) {
            continue;
        }
        if (count + 6 >= MOST_WORDS) {
            fail("the environment has too many variables", "");
        }
        environment[count++] = *given;
    }
    add(libraries, TEXT_SPACE, HOST_LIBRARIES);
    if (homeless) {
        /* PMIx 4.2 crashes for a user who is not in /etc/passwd either, as in many containers. */
        environment[count++] = "HOME=/";
    }
    environment[count++] = mpi;
    environment[count++] = pmix_plugins;
    environment[count++] = pmix_texts;
    environment[count] = own_fonts;
}

__attribute__((noreturn, used)) void start(long *stack)
{
    long argc = stack[0];
    char **argv = (char **)(stack + 1);
    unsigned long count = 0;
    find_home();
    fill_environment(argv + argc + 1);
    place(loader, "", "/lib/ld-linux-x86-64.so.2");
    place(program, "", "/" BUNDLE_PROGRAM);
    words[count++] = loader;
    words[count++] = "--library-path";
    words[count++] = libraries;
    words[count++] = "--argv0";
    words[count++] = BUNDLE_NAMED || argc == 0 ? self : argv[0];
    words[count++] = program;
    for (long i = 1; i < argc; i++) {
        if (count + 1 >= MOST_WORDS) {
            fail("too many arguments", "");
        }
        words[count++] = argv[i];
    }
    (void)call(sys_execve, (long)loader, (long)words, (long)environment);
    fail("cannot be started; are all files of the bundle there? ", loader);
}

/* The kernel enters with the arguments on the stack. */
__asm__(".globl _start\n_start:\n    mov %rsp, %rdi\n    and $-16, %rsp\n    call start\n");
