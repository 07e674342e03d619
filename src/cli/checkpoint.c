#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/checkpoint.h"
#include "banyan/train.h"
#include "cli.h"

/* The checkpoints of a run, or `path` itself. Freed with free(). */
static by_status find(char **out, const char *path, by_error *error)
{
    char *run;
    if (by_run_find(&run, path, NULL) != BY_OK) {
        *out = strdup(path);
    } else {
        size_t length = strlen(run) + sizeof "/checkpoints";
        *out = malloc(length);
        if (*out != NULL) {
            (void)snprintf(*out, length, "%s/checkpoints", run);
        }
        free(run);
    }
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: a path");
}

/* "[768,3072]". */
static void print_shape(const by_tensor_digest *tensor)
{
    putchar('[');
    for (int i = 0; i < tensor->rank; i++) {
        printf("%s%" PRId64, i == 0 ? "" : ",", tensor->shape[i]);
    }
    putchar(']');
}

static void print_text(const by_digest *digest)
{
    for (size_t i = 0; i < digest->count; i++) {
        const by_tensor_digest *t = &digest->tensors[i];
        printf("%s\t%s\t", t->sha256, t->dtype);
        print_shape(t);
        printf("\t%s\n", t->name);
    }
    printf("%s\tmodel\n", digest->model);
    if (digest->optimizer[0] != '\0') {
        printf("%s\toptimizer\n", digest->optimizer);
    }
    printf("%s\tall\n", digest->all);
}

static void print_json(const by_digest *digest)
{
    printf("{\"path\":");
    cli_print_json_string(digest->path);
    printf(",\"all\":\"%s\",\"model\":\"%s\"", digest->all, digest->model);
    if (digest->optimizer[0] != '\0') {
        printf(",\"optimizer\":\"%s\"", digest->optimizer);
    }
    printf(",\"tensors\":[");
    for (size_t i = 0; i < digest->count; i++) {
        const by_tensor_digest *t = &digest->tensors[i];
        printf("%s{\"name\":", i == 0 ? "" : ",");
        cli_print_json_string(t->name);
        printf(",\"part\":\"%s\",\"dtype\":\"%s\",\"shape\":",
               i < digest->model_count ? "model" : "optimizer", t->dtype);
        print_shape(t);
        printf(",\"sha256\":\"%s\"}", t->sha256);
    }
    printf("]}\n");
}

static by_status print_digest(const char *path, bool json, by_error *error)
{
    char *found;
    by_digest digest;
    if (find(&found, path, error) != BY_OK) {
        return error->status;
    }
    by_status status = by_checkpoint_digest(&digest, found, 0, error);
    free(found);
    if (status == BY_OK) {
        if (json) {
            print_json(&digest);
        } else {
            print_text(&digest);
        }
        by_digest_free(&digest);
    }
    return status;
}

static by_status merge(const char *path, const char *directory, by_error *error)
{
    char *found;
    if (find(&found, path, error) != BY_OK) {
        return error->status;
    }
    by_status status = by_checkpoint_merge(found, directory, 0, error);
    free(found);
    return status;
}

static int run(int argc, char **argv)
{
    bool json = false;
    const cli_flag flags[] = {{"json", CLI_SWITCH, &json, NULL, "one JSON line, of a digest"}, {0}};
    char **rest;
    int count;
    by_error error = {0};
    by_status status;
    int code = cli_parse(&cli_checkpoint, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count == 2 && strcmp(rest[0], "digest") == 0) {
        status = print_digest(rest[1], json, &error);
    } else if (count == 3 && strcmp(rest[0], "merge") == 0 && !json) {
        status = merge(rest[1], rest[2], &error);
    } else {
        return cli_misuse(&cli_checkpoint, "say what to do: digest DIR, or merge DIR OUT");
    }
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_checkpoint, &error);
}

const cli_command cli_checkpoint = {
    .name = "checkpoint",
    .summary = "hash what a checkpoint holds; make one directory of it",
    .usage = "banyan checkpoint digest DIR [--json] | merge DIR OUT",
    .text =
        "DIR: a run (its newest checkpoint), a checkpoint or, for digest, a directory in Hugging\n"
        "Face form.\n\n"
        "digest: SHA-256 of each tensor, of the model, of the optimizer's states and of all.\n"
        "The hashes do not depend on how the tensors are cut into files, nor on how many ranks\n"
        "wrote them: equal hashes, equal weights. include/banyan/checkpoint.h says what is\n"
        "hashed; in Python, for a tensor of NumPy:\n\n"
        "  sha256(b'%s\\0%s\\0%s\\0' % (name, b'F32', b'768,3072') + tensor.tobytes())\n\n"
        "merge: writes the model into a new directory OUT in Hugging Face form, with config.json\n"
        "and the tokenizer's files, which transformers loads. Only what several ranks have\n"
        "written in slices needs that; any number of ranks resumes from any checkpoint as it "
        "is.\n\n"
        "  banyan checkpoint digest runs/shakespeare | tail -n 1\n"
        "  banyan checkpoint merge runs/shakespeare shakespeare-hf",
    .run = run};
