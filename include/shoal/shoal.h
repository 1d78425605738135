/* shoal.h - everything, and a tour of it on one page.
 *
 *   status.h       what calls return; the sentence of the last error
 *   log.h          where messages go
 *   tensor.h       element types, shapes, reading a tensor
 *   comm.h         joining the other ranks; collectives
 *   mpi.h          the ranks of a program of MPI (after <mpi.h>)
 *   mesh.h         axes of parallelism over ranks, and their groups
 *   autograd.h     parameters, layers and the ops of a forward pass
 *   transformer.h  GPT as an array of layers
 *   tokenizer.h    text -> token numbers, and back
 *   data.h         text -> tokens -> micro-batches
 *   indexed.h      Megatron's data files: looked at, written, merged
 *   preprocess.h   JSON lines to such files
 *   engine.h       training: forward, backward, step; checkpoints
 *   checkpoint.h   checkpoints in a folder: whole or not, shown, pruned
 *   plan.h         what a run will need, without running it
 *   autotuning.h   which layout is fastest; pipelines as pictures
 *   monitor.h      numbers of a run: live line, CSV, JSON lines
 *   inference.h    text from a checkpoint
 *   launcher.h     starting ranks
 *   diff.h         where two runs, or two checkpoints, part
 *   inspect.h      what is inside of files
 *   elasticity.h   which numbers of ranks a configuration allows
 *   hub.h          models as the Hugging Face Hub has them
 *   report.h       what this build finds on this machine
 *
 * WORDS  A *rank* is one process (or thread) of a job. A *micro-batch* is what one forward pass
 * sees, a *step* is one update of the weights. Micro-batches of a step are numbered over all ranks,
 * so code that makes data never asks which rank it runs on.
 *
 * A PROGRAM makes a model, joins the group, creates an engine and owns the loop:
 *
 *   shoal_group *group = NULL;
 *   shoal_engine *engine = NULL;
 *   shoal_step_info info;
 *   shoal_status status = shoal_comm_init(&(shoal_comm_args){0}, &group);
 *   if (status >= 0)
 *       status = shoal_engine_create(&(shoal_engine_args){.model = &model,
 *                                                         .config_path = "ds_config.json",
 *                                                         .group = group}, &engine);
 *   while (status >= 0 && shoal_engine_global_steps(engine) < 1000)
 *       status = shoal_engine_train_batch(engine, fill_batch, data, &info);
 *   if (status >= 0)
 *       status = shoal_engine_save_checkpoint(engine, "checkpoints", NULL, NULL);
 *   if (status < 0)
 *       fprintf(stderr, "%s\n", shoal_error_message());
 *   shoal_engine_destroy(engine);
 *   shoal_comm_destroy(group);
 *
 * Started alone it is one rank; `shoal run --num_gpus 4 ./program` makes it four, without a change.
 *
 * A MODEL is an array of layers. A layer names its parameters in `declare`, before any memory
 * exists, and writes its forward pass in `forward`; the tape differentiates it. shoal_model_create
 * makes a GPT-2 by name; examples/minimal/main.c makes one by hand in a screenful.
 *
 * RULES of every call
 *   Errors     shoal_status: 0 is success, > 0 a normal outcome, < 0 an error whose sentence
 *              shoal_error_message() returns. The library neither prints (but through log.h) nor
 *              exits.
 *   Ownership  what a `create` or `init` gives is the caller's, to be given to its `destroy`, which
 *              takes NULL too. Everything else is borrowed, as long as the comment says.
 *   Ranks      a call is collective over its group only where its header says so; a rank that
 *              fails takes the others' waits with it, naming itself.
 *   Structs    what is 0 or NULL in a struct of arguments has its default. Use designated initialisers:
 *              structs get members in new versions, and programs keep running (status.h,
 *              SHOAL_INLINE). Members called `reserved` stay 0.
 *   Threads    an object belongs to one thread at a time. There is no global state: several ranks
 *              may live in one process (shoal_thread_world_create).
 *
 * All headers compile alone, as C11 and as C++17.
 */
#ifndef SHOAL_SHOAL_H
#define SHOAL_SHOAL_H

#include "shoal/autograd.h"
#include "shoal/autotuning.h"
#include "shoal/checkpoint.h"
#include "shoal/comm.h"
#include "shoal/data.h"
#include "shoal/diff.h"
#include "shoal/elasticity.h"
#include "shoal/engine.h"
#include "shoal/hub.h"
#include "shoal/indexed.h"
#include "shoal/inference.h"
#include "shoal/inspect.h"
#include "shoal/launcher.h"
#include "shoal/log.h"
#include "shoal/mesh.h"
#include "shoal/monitor.h"
#include "shoal/mpi.h"
#include "shoal/plan.h"
#include "shoal/preprocess.h"
#include "shoal/report.h"
#include "shoal/status.h"
#include "shoal/tensor.h"
#include "shoal/tokenizer.h"
#include "shoal/transformer.h"

#endif
