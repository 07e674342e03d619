/* The whole public API, for programs that do not choose their headers. status.h has the conventions
 * that all of them share: errors, ownership, threads. */
#ifndef BANYAN_BANYAN_H
#define BANYAN_BANYAN_H

/* Conventions: errors, ownership, threads, names */
#include "banyan/build.h"
#include "banyan/dtype.h"
#include "banyan/executable.h"
#include "banyan/exit.h"
#include "banyan/formats.h"
#include "banyan/json.h"
#include "banyan/path_hint.h"
#include "banyan/shape.h"
#include "banyan/status.h"
#include "banyan/text.h"

/* The config of a run */
#include "banyan/config.h"

/* Graphs, and what runs them */
#include "banyan/comm.h"
#include "banyan/device.h"
#include "banyan/device_meter.h"
#include "banyan/graph.h"
#include "banyan/map.h"
#include "banyan/op.h"
#include "banyan/ops.h"
#include "banyan/packing.h"
#include "banyan/passes.h"
#include "banyan/program.h"

/* Models and optimizers */
#include "banyan/model.h"
#include "banyan/optimizer.h"

/* Data */
#include "banyan/array_set.h"
#include "banyan/chat.h"
#include "banyan/conversation.h"
#include "banyan/data.h"
#include "banyan/graph_pack.h"
#include "banyan/image_pack.h"
#include "banyan/pack.h"
#include "banyan/remote.h"
#include "banyan/table.h"
#include "banyan/text_stream.h"
#include "banyan/tokenizer.h"

/* Weights on disk */
#include "banyan/adapter.h"
#include "banyan/checkpoint.h"
#include "banyan/export.h"

/* Training */
#include "banyan/failures.h"
#include "banyan/launch.h"
#include "banyan/pipeline.h"
#include "banyan/predictor.h"
#include "banyan/runs.h"
#include "banyan/scores.h"
#include "banyan/task.h"
#include "banyan/track.h"
#include "banyan/train.h"
#include "banyan/train_events.h"
#include "banyan/trainer.h"

/* Inference and compression */
#include "banyan/beam.h"
#include "banyan/compress.h"
#include "banyan/constraint.h"
#include "banyan/diffusion.h"
#include "banyan/draft.h"
#include "banyan/engine.h"
#include "banyan/infer.h"
#include "banyan/logit_process.h"
#include "banyan/reinforce.h"
#include "banyan/suite.h"

/* Serving and drift */
#include "banyan/drift.h"
#include "banyan/drift_report.h"
#include "banyan/serve.h"
#include "banyan/serve_config.h"

/* The machine */
#include "banyan/capacity.h"
#include "banyan/machine.h"
#include "banyan/plan.h"
#include "banyan/profile.h"

/* Plans of layouts */
#include "banyan/calibrate.h"
#include "banyan/cluster.h"
#include "banyan/layout.h"
#include "banyan/layout_search.h"

/* Drawings */
#include "banyan/plot.h"

/* From text to an assistant */
#include "banyan/assistant.h"

#endif
