/* The constants of the dial. The runs that they are fitted to are listed in docs/dial.md, and
 * bench/dial_laws.py makes and fits them again. */
#include "plan/dial/dial.h"

const by__dial_laws by__dial_laws_of_text = {
    .bits = {.e = 1.543, .a = 9.507, .b = 168.0, .alpha = 0.35, .beta = 0.4},
    .spread = 0.01,
    .blocks = {1.07e5, 8.53e5},
    .bytes = {0.867e6, 13.9e6},
    .repeats = 15.4, /* Muennighoff et al. 2023, arXiv 2305.16264, table 2 */
    .rate = 4e-3,
    .mup_width = 128,
    .context = 128,
    .batch = 1024,
    .batch_tokens = 1e6,
    .batch_power = 0.4,
    .vocab_bytes = 3000.0,
    .vocab = {512, 4096},
};

double by__dial_effective(const by__dial_laws *laws, double bytes, double unique)
{
    return by_law_effective(bytes, unique, laws->repeats);
}

int64_t by__dial_vocab(const by__dial_laws *laws, double bytes)
{
    int64_t vocab = laws->vocab[0];
    while (2 * vocab <= laws->vocab[1] && 2.0 * (double)vocab * laws->vocab_bytes <= bytes) {
        vocab *= 2;
    }
    return vocab;
}

/* Llama with heads of 32 and a tied head: 32 of width for each layer. The MLP is 8/3 of the width,
 * as a multiple of 64. */
void by__dial_shape(by_dial_choice *out, int64_t layers, int64_t context, int64_t vocab)
{
    double width = 32.0 * (double)layers;
    int64_t rounded = ((8 * 32 * layers + 2) / 3 + 63) / 64 * 64;
    double mlp = (double)rounded;
    out->layers = layers;
    out->width = 32 * layers;
    out->heads = layers;
    out->context = context;
    out->blocks = (double)layers * (4.0 * width * width + 3.0 * width * mlp + 2.0 * width) + width;
    out->parameters = out->blocks + width * (double)vocab;
    /* As by_model_size: half of attention. */
    out->flops_per_token = 6.0 * out->parameters + 6.0 * (double)layers * (double)context * width;
}
