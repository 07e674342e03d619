/* What the files of packed text as data share: text_data.c opens it and makes samples, text_kept.c
 * says what a checkpoint keeps of it. */
#ifndef BY_TASKS_TEXT_PARTS_H
#define BY_TASKS_TEXT_PARTS_H

#include "data/loader/damage.h"
#include "tasks/origin_files.h"
#include "tasks/text/documents.h"
#include "tasks/text/language.h"

typedef struct by__task_text_data {
    by_task_data base;
    by__task_data_paths paths;        /* of the data named by the config */
    by__task_evaluation_data other;   /* data to evaluate or predict instead */
    by_dataset **train;               /* [paths.train_count] */
    by__task_data_mix mix;            /* how they are mixed; unused for one data set */
    by_logit_store *logits;           /* of the data set; NULL: none */
    by_token_weights **weights;       /* [train_count], each may be NULL: none */
    by_dataset **valid;               /* [valid_count] */
    by_token_weights **valid_weights; /* [valid_count], as weights */
    size_t valid_count;               /* 0: nothing is held out */
    char (*keys)[64];                 /* names of the losses of data.valid_sets */
    by__task_documents *documents;    /* for prediction */
    int64_t eos;
    char *eos_token; /* NULL: none */
    by__task_origin_files origin;
    char *tokenizer_config;
    char *reference;          /* the text of BY_DRIFT_FILE */
    char *template_file;      /* path of the template of conversations; NULL: none */
    char *named_template;     /* what chat.template names for data.text; NULL: nothing */
    by_token_packing packing; /* of the training data */
    float **references;       /* of pairs: [train_count + valid_count] what the weights at the start
                                 make of each set, [samples, 2]; NULL: not known */
    by__loader_damage damage; /* of all data sets */
    char content[33];         /* hash of the training data */
} by__task_text_data;

#endif
