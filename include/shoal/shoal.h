/* shoal.h - includes all public headers.
 *
 *   status.h       results of calls; the text of the last error
 *   log.h          where log messages go
 *   tensor.h       element types, shapes, reading a tensor
 *   comm.h         joining the other ranks; collectives
 *   mpi.h          the ranks of an MPI program (after <mpi.h>)
 *   mesh.h         axes of parallelism over ranks, and their groups
 *   autograd.h     parameters, layers and the ops of a forward pass
 *   transformer.h  models by name: GPT, Llama, BERT
 *   tokenizer.h    text to tokens and back
 *   data.h         text to tokens to micro-batches
 *   indexed.h      Megatron's data files: inspected, written, merged
 *   preprocess.h   JSON lines to Megatron's data files
 *   engine.h       training: forward, backward, step; checkpoints
 *   checkpoint.h   checkpoints in a folder: verified, shown, pruned
 *   foreign.h      checkpoints for other programs
 *   plan.h         memory, traffic and work of a run, without running it
 *   autotuning.h   the fastest layout; pipelines as pictures
 *   monitor.h      numbers of a run: live line, CSV, JSON lines
 *   plot.h         numbers of runs as pictures and pages
 *   inference.h    text from a checkpoint
 *   launcher.h     starting ranks
 *   diff.h         the first difference of two runs or checkpoints
 *   inspect.h      contents of files
 *   elasticity.h   the numbers of ranks that a configuration allows
 *   hub.h          models in the layout of the Hugging Face Hub
 *   report.h       this build, this machine, checkpoints of a folder
 *
 * Rules of every call
 * - Errors: a shoal_status of 0 is success, > 0 a normal outcome, < 0 an error, whose text
 *   shoal_error_message() returns. The library never exits. It prints through log.h alone.
 * - Ownership: the caller owns the result of a `create` or `init` and passes it to the `destroy`,
 *   which accepts NULL. Everything else is borrowed, as long as its docstring says.
 * - Ranks: a call is collective over its group only if its docstring says so. When a rank fails,
 *   the waits of the other ranks fail, too, and name it.
 * - Structs: 0 or NULL selects a member's default. Use designated initialisers. Compile a program
 *   again for each minor version, which adds members.
 * - Threads: an object belongs to one thread at a time. Several ranks may share a process.
 */

/* A program makes a model, joins the group, creates an engine and owns the loop:
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
 * The program runs as one rank. `shoal run --num_gpus 4 ./program` runs it as four ranks. Each gets
 * --local_rank=N before its own arguments, as from DeepSpeed; --no_local_rank leaves it out.
 *
 * Terms: a *rank* is one process (or thread) of a job. A *micro-batch* is the input of one forward
 * pass. A *step* is one update of the weights. Micro-batches of a step are numbered over all ranks,
 * so code that makes data does not depend on the rank.
 *
 * A model is an array of layers. A layer names its parameters in `declare`, before any memory
 * exists. Its forward pass is in `forward`, and the tape differentiates it. shoal_model_create
 * makes a GPT-2 by name, and examples/minimal/main.c makes a model by hand. All headers compile
 * alone, as C11 and as C++17. */
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
#include "shoal/foreign.h"
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
#include "shoal/plot.h"
#include "shoal/preprocess.h"
#include "shoal/report.h"
#include "shoal/status.h"
#include "shoal/tensor.h"
#include "shoal/tokenizer.h"
#include "shoal/transformer.h"

#endif
