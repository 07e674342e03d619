/* NVRTC: compiles the kernels at run time, for a GPU that the build has no code for. */
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "device/cuda/cuda.h"

typedef void *nvrtc_program;

#define FUNCTIONS(X)                                                                               \
    X(version, nvrtcVersion, (int *major, int *minor))                                             \
    X(create, nvrtcCreateProgram,                                                                  \
      (nvrtc_program * program, const char *source, const char *name, int headers,                 \
       const char *const *texts, const char *const *names))                                        \
    X(compile, nvrtcCompileProgram,                                                                \
      (nvrtc_program program, int count, const char *const *options))                              \
    X(log_bytes, nvrtcGetProgramLogSize, (nvrtc_program program, size_t * bytes))                  \
    X(log, nvrtcGetProgramLog, (nvrtc_program program, char *log))                                 \
    X(image_bytes, nvrtcGetCUBINSize, (nvrtc_program program, size_t * bytes))                     \
    X(image, nvrtcGetCUBIN, (nvrtc_program program, char *image))                                  \
    X(destroy, nvrtcDestroyProgram, (nvrtc_program * program))

typedef struct nvrtc_functions {
#define MEMBER(member, symbol, parameters) int(*member) parameters;
    FUNCTIONS(MEMBER)
#undef MEMBER
} nvrtc_functions;

static const by__cuda_symbol symbols[] = {
#define SYMBOL(member, symbol, parameters) {#symbol, offsetof(nvrtc_functions, member)},
    FUNCTIONS(SYMBOL)
#undef SYMBOL
};

/* A driver loads code of compilers up to its own version. */
static by_status open_compiler(nvrtc_functions *out, const by__cuda_device *d, by_error *error)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL};
    bool newest = d->driver.supports >= 13000;
    void *library = by__cuda_search(newest ? names : names + 1, false);
    if (library == NULL) {
        return by_error_set(
            error, BY_EDEVICE,
            "cuda:%d: this build has no kernels for sm_%d (%s), and libnvrtc.so.%d, "
            "which would compile them, was not found: pip install "
            "nvidia-cuda-nvrtc-cu12, or name its folder in BANYAN_CUDA_PATH",
            d->ordinal, d->capability, d->name, newest ? 13 : 12);
    }
    const char *missing = by__cuda_resolve(out, library, symbols, BY_ARRAY_LENGTH(symbols));
    return missing == NULL ? BY_OK
                           : by_error_set(error, BY_EDEVICE, "cuda: libnvrtc lacks %s", missing);
}

static by_status refuse_source(const nvrtc_functions *nvrtc, nvrtc_program program,
                               const char *family, by_error *error)
{
    size_t bytes = 0;
    char *log = NULL;
    if (nvrtc->log_bytes(program, &bytes) == 0 && bytes > 0 &&
        by__alloc((void **)&log, bytes, 1, "log", NULL) == BY_OK) {
        (void)nvrtc->log(program, log);
    }
    by_status status =
        by_error_set(error, BY_EDEVICE, "cuda: NVRTC cannot compile the kernels of %s: %.300s",
                     family, log == NULL ? "it says nothing" : log);
    free(log);
    return status;
}

/* No contraction: a product and a sum are fused where the source says so, and nowhere else, so that
 * every compiler gives the same bits. */
static by_status compile(char **out, size_t *bytes, const nvrtc_functions *nvrtc,
                         nvrtc_program program, const char *family, int capability, by_error *error)
{
    char architecture[48];
    const char *const options[] = {architecture, "--std=c++17", "--fmad=false"};
    (void)snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d%s", capability,
                   capability == 90 ? "a" : "");
    if (nvrtc->compile(program, (int)BY_ARRAY_LENGTH(options), options) != 0 ||
        nvrtc->image_bytes(program, bytes) != 0) {
        return refuse_source(nvrtc, program, family, error);
    }
    BY_TRY(by__alloc((void **)out, *bytes, 1, "kernels", error));
    if (nvrtc->image(program, *out) != 0) {
        free(*out);
        return refuse_source(nvrtc, program, family, error);
    }
    return BY_OK;
}

/* The texts of a program: its source, then the headers, each with a NUL. */
#define TEXTS (1 + BY__CUDA_HEADERS)

static const by__cuda_image *text_of(const by__cuda_image *source, int i)
{
    return i == 0 ? source : &by__cuda_headers()[i - 1];
}

static by_status copy_texts(char *texts[TEXTS], const by__cuda_image *source, by_error *error)
{
    for (int i = 0; i < TEXTS; i++) {
        const by__cuda_image *text = text_of(source, i);
        BY_TRY(by__alloc((void **)&texts[i], text->bytes + 1, 1, "the kernels' source", error));
        memcpy(texts[i], text->data, text->bytes);
    }
    return BY_OK;
}

static by_status compile_texts(char **out, size_t *bytes, const nvrtc_functions *nvrtc,
                               char *const texts[TEXTS], const by__cuda_image *source,
                               int capability, by_error *error)
{
    const char *names[BY__CUDA_HEADERS];
    nvrtc_program program;
    for (int i = 0; i < BY__CUDA_HEADERS; i++) {
        names[i] = by__cuda_headers()[i].family;
    }
    int result = nvrtc->create(&program, texts[0], source->family, BY__CUDA_HEADERS,
                               (const char *const *)&texts[1], names);
    if (result != 0) {
        return by_error_set(error, BY_EDEVICE, "cuda: NVRTC does not start: %d", result);
    }
    by_status status = compile(out, bytes, nvrtc, program, source->family, capability, error);
    (void)nvrtc->destroy(&program);
    return status;
}

/* The file that keeps the kernels of these texts for an architecture, of this compiler. */
static by_status cached_path(char **out, const nvrtc_functions *nvrtc, char *const texts[TEXTS],
                             const by__cuda_image *source, int capability, by_error *error)
{
    char name[128];
    int version[2] = {0, 0};
    uint64_t hashes[TEXTS];
    (void)nvrtc->version(&version[0], &version[1]);
    for (int i = 0; i < TEXTS; i++) {
        hashes[i] = by__hash64(texts[i], strlen(texts[i]));
    }
    (void)snprintf(name, sizeof name, "cuda-%s-%016llx-%d.%d-sm_%d.cubin", source->family,
                   (unsigned long long)by__hash64(hashes, sizeof hashes), version[0], version[1],
                   capability);
    return by__cache_path(out, name, error);
}

static void keep(const char *path, const char *image, size_t bytes)
{
    char *directory = by__strndup(path, (size_t)(strrchr(path, '/') - path));
    if (directory != NULL && by__make_dirs(directory, NULL) == BY_OK) {
        (void)by__file_write(path, image, bytes, NULL);
    }
    free(directory);
}

by_status by__cuda_nvrtc_image(char **out, const by__cuda_device *d, const by__cuda_image *source,
                               by_error *error)
{
    nvrtc_functions nvrtc = {0};
    char *texts[TEXTS] = {NULL};
    char *path = NULL;
    size_t bytes;
    BY_TRY(open_compiler(&nvrtc, d, error));
    by_status status = copy_texts(texts, source, error);
    /* Without a place for a cache, kernels are compiled every time. */
    if (status == BY_OK) {
        (void)cached_path(&path, &nvrtc, texts, source, d->capability, NULL);
    }
    bool kept = path != NULL && by__file_read(out, &bytes, path, SIZE_MAX, NULL) == BY_OK;
    if (status == BY_OK && !kept) {
        status = compile_texts(out, &bytes, &nvrtc, texts, source, d->capability, error);
        if (status == BY_OK && path != NULL) {
            keep(path, *out, bytes);
        }
    }
    for (int i = 0; i < TEXTS; i++) {
        free(texts[i]);
    }
    free(path);
    return status;
}
