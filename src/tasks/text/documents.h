/* Documents of packed text, each cut into its own windows, and their losses. */
#ifndef BY_TASKS_DOCUMENTS_H
#define BY_TASKS_DOCUMENTS_H

#include "banyan/data.h"
#include "base/base.h"

typedef struct by__task_documents by__task_documents;

/* The loss of a document. */
typedef struct by__task_document_loss {
    uint64_t document;
    uint64_t targets; /* all tokens except the first */
    double loss;      /* mean; NaN without targets */
} by__task_document_loss;

/* The data set must outlive it. */
by_status by__task_documents_open(by__task_documents **out, const by_dataset *dataset,
                                  by_error *error);
void by__task_documents_close(by__task_documents **documents);
/* A source of one pass over the windows of all documents: arrays as in by_token_arrays; with
 * `starts` also those that mark a window as one document, with `weighted` also weights of 1. A
 * document has at least one window. */
by_status by__task_documents_source(by_source **out, by__task_documents *documents, size_t context,
                                    bool starts, bool weighted, by_error *error);
/* Adds the loss of window `window`; called in order. Returns true if it was the last one of its
 * document, and sets *out for that document. */
bool by__task_documents_add(by__task_documents *documents, uint64_t window, double loss,
                            by__task_document_loss *out);

#endif
