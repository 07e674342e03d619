/* In place of libnvrtc: gives back the source, which the stand-in of the driver loads as well. */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

typedef struct compiled {
    char *source;
} compiled;

STANDIN_API int nvrtcVersion(int *major, int *minor);
STANDIN_API int nvrtcCreateProgram(compiled **out, const char *source, const char *name,
                                   int headers, const char *const *texts, const char *const *names);
STANDIN_API int nvrtcCompileProgram(compiled *program, int count, const char *const *options);
STANDIN_API int nvrtcGetProgramLogSize(compiled *program, size_t *bytes);
STANDIN_API int nvrtcGetProgramLog(compiled *program, char *log);
STANDIN_API int nvrtcGetCUBINSize(compiled *program, size_t *bytes);
STANDIN_API int nvrtcGetCUBIN(compiled *program, char *image);
STANDIN_API int nvrtcDestroyProgram(compiled **program);

static const char log_text[] = "the stand-in compiles nothing";

int nvrtcVersion(int *major, int *minor)
{
    *major = 12;
    *minor = 999; /* what it makes must not be taken for that of a real one */
    return 0;
}

int nvrtcCreateProgram(compiled **out, const char *source, const char *name, int headers,
                       const char *const *texts, const char *const *names)
{
    (void)name;
    (void)headers;
    (void)texts;
    (void)names;
    *out = calloc(1, sizeof **out);
    (*out)->source = strdup(source);
    return 0;
}

int nvrtcCompileProgram(compiled *program, int count, const char *const *options)
{
    int failure;
    (void)program;
    if (standin_fails("nvrtcCompileProgram", &failure)) {
        return failure;
    }
    return count > 0 && strncmp(options[0], "--gpu-architecture=sm_", 22) == 0 ? 0 : 5;
}

int nvrtcGetProgramLogSize(compiled *program, size_t *bytes)
{
    (void)program;
    *bytes = sizeof log_text;
    return 0;
}

int nvrtcGetProgramLog(compiled *program, char *log)
{
    (void)program;
    memcpy(log, log_text, sizeof log_text);
    return 0;
}

int nvrtcGetCUBINSize(compiled *program, size_t *bytes)
{
    *bytes = strlen(program->source) + 1;
    return 0;
}

int nvrtcGetCUBIN(compiled *program, char *image)
{
    memcpy(image, program->source, strlen(program->source) + 1);
    return 0;
}

int nvrtcDestroyProgram(compiled **program)
{
    free((*program)->source);
    free(*program);
    *program = NULL;
    return 0;
}
