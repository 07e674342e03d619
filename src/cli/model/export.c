#include <stdio.h>
#include <stdlib.h>

#include "banyan/export.h"
#include "banyan/infer.h"
#include "base/cli.h"

typedef struct export_request {
    const char *path;
    const char *format;
    const char *dtype;
    const char *output;
    const char *adapter;
    const char *yields;
    bool best;
    bool ema;
    bool no_cache;
    bool json;
} export_request;

static by_status write(by_export_report *report, const export_request *r,
                       const by_pretrained *model, by_error *error)
{
    const by_export_source source = {.config = by_pretrained_config(model),
                                     .weights = by_pretrained_weights(model),
                                     .directory = by_pretrained_directory(model)};
    const by_export_options options = {.format = r->format,
                                       .dtype = r->dtype,
                                       .output = r->output,
                                       .without_cache = r->no_cache,
                                       .yields = r->yields};
    return by_export(report, &source, &options, error);
}

static int export_model(const export_request *r)
{
    by_error error = {0};
    by_pretrained *model = NULL;
    by_export_report report = {0};
    by_status status =
        cli_open_pretrained(&model, r->path, NULL, r->best, r->ema, r->adapter, &error);
    if (status == BY_OK) {
        status = write(&report, r, model, &error);
    }
    if (status == BY_OK && r->json) {
        printf("{\"output\":");
        cli_print_json_string(r->output);
        printf(",\"tensors\":%zu,\"bytes\":%llu,\"widened\":%zu}\n", report.tensors,
               (unsigned long long)report.bytes, report.widened);
    } else if (status == BY_OK) {
        printf("%s: %zu tensors, %.1f MB\n", r->output, report.tensors, (double)report.bytes / 1e6);
        if (report.widened > 0) {
            fprintf(stderr,
                    "%zu tensors have rows that are not a multiple of the block of %s and are "
                    "stored in a wider type\n",
                    report.widened, r->dtype);
        }
    }
    by_pretrained_close(&model);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_export, &error);
}

static int run(int argc, char **argv)
{
    export_request r = {0};
    const cli_flag flags[] = {
        {"format", CLI_STRING, &r.format, "NAME", "gguf, onnx or safetensors (required)"},
        {"dtype", CLI_STRING, &r.dtype, "TYPE",
         "number format of matrices: f32, bf16, f16; gguf also q8_0, q4_0, q4_k (default: that of "
         "the weights)"},
        {"out", CLI_STRING, &r.output, "PATH", "file or directory to create (required)"},
        {"best", CLI_SWITCH, &r.best, NULL, CLI_BEST_HELP},
        {"ema", CLI_SWITCH, &r.ema, NULL, CLI_EMA_HELP},
        {"adapter", CLI_INPUT, &r.adapter, "DIR", CLI_ADAPTER_HELP},
        {"no-cache", CLI_SWITCH, &r.no_cache, NULL,
         "onnx: a graph for whole sequences, without a KV cache"},
        {"yields", CLI_STRING, &r.yields, "NAME",
         "onnx: another output of a model of images or tables, such as features"},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_export, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1 || r.format == NULL || r.output == NULL) {
        return cli_misuse(&cli_export, count != 1 ? "name one run or model"
                                       : r.format == NULL
                                           ? "--format is required: gguf, onnx or safetensors"
                                           : "--out is required");
    }
    r.path = rest[0];
    return export_model(&r);
}

const cli_command cli_export = {
    .name = "export",
    .summary = "export a model to GGUF (llama.cpp), ONNX or safetensors",
    .usage = "banyan export MODEL --format NAME --out PATH [--dtype TYPE]",
    .text =
        "Exports a model for other programs. MODEL is a run, a model directory in Hugging Face\n"
        "form, or a GGUF file.\n"
        "\n"
        "examples:\n"
        "  banyan export runs/chat --format gguf --dtype q8_0 --out chat.gguf\n"
        "  banyan export runs/chat --format safetensors --dtype bf16 --out chat-hf\n"
        "  banyan export model.gguf --format safetensors --out model-hf\n"
        "\n"
        "formats:\n"
        "  gguf         one file for llama.cpp, with the tokenizer and the chat template\n"
        "  onnx         a graph for ONNX Runtime in f32, with its weights in a second file\n"
        "  safetensors  a model directory in Hugging Face form\n"
        "\n"
        "The output appears under its name only when it is complete. docs/export.md lists types\n"
        "and architectures.",
    .run = run,
};
