/* A tiny model in a directory of its own, to compress. */
#ifndef COMPRESS_FIXTURE_H
#define COMPRESS_FIXTURE_H

#include "banyan/infer.h"

#define VOCAB   61
#define TIME    16
#define EXPERTS 3

static const char *const gpt2[] = {
    "model.kind=gpt2",    "model.layers=2",        "model.heads=4",
    "model.width=96",     "model.context=16",      "model.vocab=61",
    "model.init_std=0.3", "precision.compute=f32", "train.threads=2"};
static const char *const llama[] = {
    "model.kind=llama",   "model.layers=2",        "model.heads=4",    "model.kv_heads=2",
    "model.mlp_width=88", "model.width=96",        "model.context=16", "model.vocab=61",
    "model.init_std=0.3", "precision.compute=f32", "train.threads=2"};
static const char *const mixtral[] = {
    "model.kind=mixtral",        "model.layers=1",        "model.heads=4",
    "model.kv_heads=2",          "model.mlp_width=88",    "model.width=96",
    "model.context=16",          "model.vocab=61",        "model.experts=3",
    "model.experts_per_token=2", "precision.compute=f32", "train.threads=2"};

typedef struct fixture {
    by_config *config;
    char *directory;
    char *out; /* a directory in it that is not there yet */
    by_pretrained *model;
} fixture;

/* Fails the test that calls it, as does the next. */
void open_fixture(fixture *f, const char *const *settings, size_t count);
void close_fixture(fixture *f);

#endif
