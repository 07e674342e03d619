/* cubin: compiles the kernels of src/device/cuda/kernels by NVRTC, which is opened at run time:
 *
 *   cubin LIBRARY ARCH OUT NAME=FILE...
 *
 * ARCH is sm_80, sm_90a, ... for machine code, compute_90 for PTX. Files are known to each other by
 * NAME; those whose NAME ends in .cu are compiled together, as one module. Built with BY_ZSTD, it
 * writes OUT compressed by zstd. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef BY_ZSTD
#include <zstd.h>
#endif

#define MOST_FILES 64

typedef struct nvrtc_program *nvrtc_program;

typedef struct nvrtc {
    int (*create)(nvrtc_program *out, const char *source, const char *name, int count,
                  const char *const *headers, const char *const *names);
    int (*compile)(nvrtc_program program, int count, const char *const *options);
    int (*log_size)(nvrtc_program program, size_t *size);
    int (*log)(nvrtc_program program, char *text);
    int (*cubin_size)(nvrtc_program program, size_t *size);
    int (*cubin)(nvrtc_program program, char *data);
    int (*ptx_size)(nvrtc_program program, size_t *size);
    int (*ptx)(nvrtc_program program, char *data);
} nvrtc;

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "cubin: %s: %s\n", what, why);
    return 1;
}

static bool open_library(nvrtc *n, const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return false;
    }
#define BIND(member, symbol) *(void **)(void *)&n->member = dlsym(library, symbol)
    BIND(create, "nvrtcCreateProgram");
    BIND(compile, "nvrtcCompileProgram");
    BIND(log_size, "nvrtcGetProgramLogSize");
    BIND(log, "nvrtcGetProgramLog");
    BIND(cubin_size, "nvrtcGetCUBINSize");
    BIND(cubin, "nvrtcGetCUBIN");
    BIND(ptx_size, "nvrtcGetPTXSize");
    BIND(ptx, "nvrtcGetPTX");
#undef BIND
    return n->create != NULL && n->compile != NULL && n->log_size != NULL && n->log != NULL &&
           n->cubin_size != NULL && n->cubin != NULL && n->ptx_size != NULL && n->ptx != NULL;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    size_t size = 0;
    size_t capacity = 1 << 20;
    char *text = malloc(capacity);
    if (text != NULL) {
        size = fread(text, 1, capacity - 1, file);
        text[size] = '\0';
    }
    (void)fclose(file);
    return text;
}

static int write_file(const char *path, const char *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    bool good = file != NULL && fwrite(data, 1, size, file) == size;
    good = file != NULL && fclose(file) == 0 && good;
    return good ? 0 : fail(path, "cannot be written");
}

static int write_image(const char *out, const char *data, size_t size)
{
#ifdef BY_ZSTD
    size_t most = ZSTD_compressBound(size);
    char *packed = malloc(most);
    size_t bytes = packed == NULL ? 0 : ZSTD_compress(packed, most, data, size, ZSTD_maxCLevel());
    int result = packed == NULL || ZSTD_isError(bytes) ? fail(out, "cannot be compressed")
                                                       : write_file(out, packed, bytes);
    free(packed);
    return result;
#else
    return write_file(out, data, size);
#endif
}

static int compile(const nvrtc *n, const char *arch, const char *out, const char *source, int count,
                   const char *const *texts, const char *const *names)
{
    nvrtc_program program;
    char option[64];
    size_t size = 0;
    (void)snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
    const char *options[] = {option, "--std=c++17", "--fmad=false"};
    bool ptx = strncmp(arch, "compute_", 8) == 0;
    if (n->create(&program, source, "kernels.cu", count, texts, names) != 0) {
        return fail(arch, "no program was made");
    }
    int result = n->compile(program, 3, options);
    if (n->log_size(program, &size) == 0 && size > 1) {
        char *log = calloc(size + 1, 1);
        if (log != NULL && n->log(program, log) == 0) {
            fputs(log, stderr);
        }
        free(log);
    }
    if (result != 0) {
        return fail(arch, "compilation failed");
    }
    size = 0;
    (void)(ptx ? n->ptx_size(program, &size) : n->cubin_size(program, &size));
    char *data = malloc(size + 1);
    if (data == NULL || size == 0 || (ptx ? n->ptx(program, data) : n->cubin(program, data)) != 0) {
        result = fail(arch, "no code was made");
    } else {
        result = write_image(out, data, size);
    }
    free(data);
    return result;
}

int main(int argc, char **argv)
{
    static char source[8192];
    const char *names[MOST_FILES];
    const char *texts[MOST_FILES];
    nvrtc n;
    int count = 0;
    if (argc < 5 || argc - 4 > MOST_FILES) {
        return fail("usage", "cubin LIBRARY ARCH OUT NAME=FILE...");
    }
    if (!open_library(&n, argv[1])) {
        return fail(argv[1], "is not a library of NVRTC");
    }
    for (int i = 4; i < argc; i++) {
        char *path = strchr(argv[i], '=');
        if (path == NULL) {
            return fail(argv[i], "is not NAME=FILE");
        }
        *path++ = '\0';
        names[count] = argv[i];
        texts[count] = read_file(path);
        if (texts[count++] == NULL) {
            return fail(path, "cannot be read");
        }
        size_t length = strlen(argv[i]);
        if (length > 3 && strcmp(argv[i] + length - 3, ".cu") == 0) {
            size_t used = strlen(source);
            (void)snprintf(source + used, sizeof source - used, "#include \"%s\"\n", argv[i]);
        }
    }
    return compile(&n, argv[2], argv[3], source, count, texts, names);
}
