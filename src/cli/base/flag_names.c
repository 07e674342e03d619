/* What other programs call the flags: vLLM, llama.cpp, Hugging Face, PyTorch's launchers. */
#include <stdio.h>
#include <string.h>

#include "base/cli.h"

typedef struct foreign_flag {
    const char *flag;  /* that is meant; NULL: there is none, as `note` explains */
    const char *names; /* separated by |, with dashes */
    /* what to write where the values differ, %s for the command; NULL: the same value */
    const char *note;
    const char *usage; /* for commands whose usage has this; NULL: for all */
} foreign_flag;

#define GPU_NAMES "gpu|gpus|n-gpu-layers|ngl|gpu-memory-utilization|cuda|accelerator|cpu|num-gpus"

static const foreign_flag rows[] = {
    {"listen", "port|host|address|bind|http-port|p", "HOST:PORT, such as --listen 127.0.0.1:8080",
     NULL},
    {"tokens",
     "max-tokens|max-new-tokens|n-predict|num-predict|max-length|num-tokens|length|predict|max-"
     "completion-tokens",
     NULL, NULL},
    {"context",
     "ctx-size|max-model-len|n-ctx|ctx|context-length|max-seq-len|max-input-length|num-ctx|c", NULL,
     NULL},
    {"temperature", "temp|t|do-sample|greedy", "--temperature 0 takes the most probable token",
     NULL},
    {"precision", "dtype|quantization|quantize|torch-dtype|weight-dtype|load-in-8bit|load-in-4bit",
     NULL, NULL},
    {"sessions",
     "max-num-seqs|parallel|n-parallel|np|max-batch-size|max-concurrency|max-concurrent-requests",
     NULL, NULL},
    {"concurrency", "max-concurrency|connections|parallel|users|c", NULL, NULL},
    {"requests", "num-prompts|num-requests|n|count", NULL, NULL},
    {"keys", "api-key|api-keys|api-key-file|token|auth", "a file of keys", NULL},
    {"key", "api-key|token|auth", NULL, NULL},
    {"name", "served-model-name|alias|model-name|model-id", NULL, NULL},
    {"kv", "kv-cache-dtype|cache-type-k|cache-type-v", "int8", NULL},
    {"adapter", "lora|lora-modules|lora-path|peft|adapter-path|enable-lora|lora-adapter", NULL,
     NULL},
    {"threads", "num-threads|n-threads|cpu-threads|j|jobs|t", NULL, NULL},
    {"device", GPU_NAMES, "--device auto, or cpu", NULL},
    {"speculate", "draft|draft-model|speculative-model|model-draft|speculative-config|md",
     "ngram or a model", NULL},
    {"template", "chat-template|chat-template-file", NULL, NULL},
    {"system", "system-prompt|sys", NULL, NULL},
    {"prompt", "p|text|input|message", NULL, NULL},
    {"file", "f|prompt-file|input-file", NULL, NULL},
    {"batch", "batch-file|prompts|prompts-file|input|input-file|file|texts|i", NULL, NULL},
    {"stop", "reverse-prompt|stop-token|stop-sequence|stop-string|eos", NULL, NULL},
    {"n", "num-return-sequences|best-of-n|num-samples|samples|num-completions", NULL, NULL},
    {"beams", "num-beams|beam-size|beam-width|use-beam-search", NULL, NULL},
    {"repetition-penalty", "repeat-penalty", NULL, NULL},
    {"typical-p", "typical", NULL, NULL},
    {"no-prompt", "no-display-prompt|no-echo", NULL, NULL},
    {"schema", "json-schema|guided-json|grammar|response-format|guided-grammar",
     "a file with a JSON schema", NULL},
    {"json-object", "json-mode", NULL, NULL},
    {"regex", "guided-regex|pattern", NULL, NULL},
    {"seed", "s|random-seed|sampling-seed", NULL, NULL},
    {"out",
     "output|o|out-file|output-file|output-dir|outfile|save|dest|destination|out-dir|outdir|save-"
     "dir",
     NULL, NULL},
    {"format", "outtype|type|to|f", NULL, NULL},
    {"dtype", "outtype|quantize|quant|quantization|precision", NULL, NULL},
    {"workers", "replicas|num-workers|instances|data-parallel-size|processes|w", NULL, NULL},
    {"dir", "directory|socket|workdir|state-dir", NULL, NULL},
    {"tokenizer", "tokenizer-path|vocab-file|tokenizer-file", NULL, NULL},
    {"vocab", "vocab-size|n-vocab", NULL, NULL},
    {"valid-fraction", "val-fraction|test-size|val-split|validation-split|val-ratio|valid-split",
     NULL, NULL},
    {"every", "interval|n|refresh", NULL, NULL},
    {"set", "override|config-override|opt|param|o|hparams", "--set section.key=value", NULL},
    {"resume",
     "resume-from|resume-from-checkpoint|continue|restart|checkpoint|ckpt|from-checkpoint|load",
     "a run, --resume runs/NAME", NULL},
    {"quiet", "silent|q|no-progress", NULL, NULL},
    {"data", "input|dataset|file|test-file|eval-file|validation-file|corpus|valid|test", NULL,
     NULL},
    {"best", "best-checkpoint|load-best", NULL, NULL},
    {"ranks", "n|np|nproc|nproc-per-node|num-processes|world-size|processes|workers", NULL, NULL},
    {"hostfile", "hosts|host|machinefile|hostlist|nodelist", NULL, NULL},
    {"max-restarts", "restarts|retries|max-retries", NULL, NULL},
    {"steps", "iterations|iters|n|repeat|repetitions|num-steps", NULL, NULL},
    {"top", "k|top-k|n|top-n", NULL, NULL},
    {"status", "state|filter", NULL, NULL},
    {"log", "log-scale|logy|log-y", NULL, NULL},
    {"check", "dry-run|validate|test|verify", NULL, NULL},
    {NULL, "model|m|model-path|model-name-or-path|checkpoint|ckpt|run",
     "the model is an argument: banyan %s runs/NAME", NULL},
    {NULL, "config|c|config-file|cfg", "the config file is an argument", "CONFIG"},
    {NULL, "device|" GPU_NAMES, "it computes on the processors of this host", NULL},
    {NULL, "nproc-per-node|nproc|np|n|world-size|num-processes|ranks|distributed",
     "start ranks with banyan launch -n N train CONFIG", NULL},
    {NULL, "tensor-parallel-size|tp|pipeline-parallel-size",
     "a server runs whole models, in --workers processes", NULL},
    {NULL, "verbose|v|debug|log-level", "what went wrong is printed without a flag", NULL},
    {NULL, "version|V", "banyan --version prints it", NULL},
};

static bool has(const cli_flag *flags, const char *name)
{
    while (flags->name != NULL && strcmp(flags->name, name) != 0) {
        flags++;
    }
    return flags->name != NULL;
}

/* Appends a row's suggestion. */
static void suggest(char out[400], const foreign_flag *r, const char *command)
{
    const char *note = r->note == NULL ? "" : r->note;
    if (r->flag == NULL) {
        size_t n = strcspn(note, "%");
        bool names = note[n] == '%';
        (void)snprintf(out, 400, "%.*s%s%s", (int)n, note, names ? command : "",
                       names ? note + n + 2 : "");
        return;
    }
    (void)snprintf(out, 400, "did you mean '%s%s'?%s%s%s", r->flag[1] == '\0' ? "-" : "--", r->flag,
                   note[0] == '\0' ? "" : " (", note, note[0] == '\0' ? "" : ")");
}

/* Returns the row of a name for a command: one of its flags, or what it has instead. */
static const foreign_flag *find_row(const cli_command *command, const cli_flag *flags,
                                    const char *name)
{
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            const foreign_flag *r = &rows[i];
            bool suits = pass == 0 ? r->flag != NULL && has(flags, r->flag)
                                   : r->flag == NULL && (r->usage == NULL ||
                                                         strstr(command->usage, r->usage) != NULL);
            if (suits && by_name_listed(r->names, name)) {
                return r;
            }
        }
    }
    return NULL;
}

/* Returns true if the command has a flag for keys of a run's config. */
static bool sets_keys(const cli_flag *flags)
{
    while (flags->name != NULL && strcmp(flags->help, CLI_SET_HELP) != 0) {
        flags++;
    }
    return flags->name != NULL;
}

bool cli_suggest_flag(char out[400], const cli_command *command, const cli_flag *flags,
                      const char *name)
{
    char plain[64];
    char key[256];
    size_t length = strlen(name);
    if (length >= sizeof plain) {
        return false;
    }
    for (size_t i = 0; i <= length; i++) {
        plain[i] = name[i] == '_' ? '-' : name[i];
    }
    const foreign_flag *r = find_row(command, flags, plain);
    if (has(flags, plain)) {
        (void)snprintf(out, 400, "did you mean '--%s'?", plain);
    } else if (r != NULL) {
        suggest(out, r, command->name);
    } else if (sets_keys(flags) && by_config_suggest(key, plain)) {
        (void)snprintf(out, 400, "keys of the config are set as --set KEY=VALUE; %s", key);
    } else {
        return false;
    }
    return true;
}
