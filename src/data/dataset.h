/* data: from packed token shards to batches.
 *
 * What it is for: by_dataset maps a packed directory and finds tokens and documents by position;
 * order.h is the pseudo-random order of samples; by_loader (loader.c) cuts samples, and fills
 * batches ahead of their use. formats/ reads and writes the files; tokenizer/ and packing make
 * them.
 *
 * Who owns what: a data set owns its maps and is read-only after opening, so that any number of
 * loaders and threads share it; a loader borrows it and owns its thread and its ring of batches.
 *
 * Determinism: the content of a batch is a pure function of (data, seed, context, sample index).
 * No thread, time or rank enters it.
 *
 * Never put here: models, losses, devices; an allocation or a lock per sample; an order that needs
 * a table as long as the data.
 */
#ifndef BY_DATA_DATASET_H
#define BY_DATA_DATASET_H

#include "banyan/data.h"

/* The directory, for messages. */
const char *by__dataset_name(const by_dataset *dataset);
/* Tells the operating system how the shards will be read: at random or from front to back. */
void by__dataset_advise(const by_dataset *dataset, bool at_random);

#endif
