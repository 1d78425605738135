/* engine.h - training: one engine per rank, DeepSpeed's semantics.
 *
 *   shoal_engine_create(&(shoal_engine_args){.model = &model, .config_path = "ds_config.json",
 *   .group = world}, &engine);
 *   for each micro-batch:  shoal_engine_forward(engine, &batch, &loss);
 *                          shoal_engine_backward(engine);
 *                          shoal_engine_step(engine);      updates at every gas-th call, counts
 *                          otherwise
 *   or, one call per optimizer step:  shoal_engine_train_batch(engine, next_batch, user, &result);
 *
 * The caller owns the main loop; the engine never exits and prints only through the log sink. All
 * functions are
 * collective over the engine's group unless they say otherwise, and block.
 *
 * Micro-batches are numbered globally: a step has M = gradient_accumulation_steps * N of them (N
 * data-parallel ranks), each of train_micro_batch_size_per_gpu samples; the engine says which ones
 * a rank computes (shoal_engine_get_micro_range), and with "reduction": "exact" the bits do not
 * depend on N.
 */
#ifndef SHOAL_ENGINE_H
#define SHOAL_ENGINE_H

#include "shoal/autograd.h"
#include "shoal/comm.h"
#include "shoal/mesh.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_engine shoal_engine;

typedef struct shoal_engine_args {
    const shoal_model *model; /* borrowed until destroy */
    const char *config_path;  /* ds_config.json */
    const char *config_text;  /* or a text. With both, the text counts: it was made from the file
                                 and flags, and messages give the file's lines */
    shoal_group *group;       /* NULL: one rank (no communication); borrowed until destroy */
    shoal_mesh *mesh;         /* which ranks divide what; NULL: all ranks of `group` divide the
                                 samples. With it `group` may be NULL. Borrowed until destroy */
    uint64_t seed;   /* of init, dropout; the config's "seed" key is used when 0 (default 1234) */
    int32_t threads; /* 0: config "threads", else SHOAL_NUM_THREADS, else cores of this machine /
                        local ranks */
    const char *accelerator; /* NULL: SHOAL_ACCELERATOR, DS_ACCELERATOR, detection */
    const char *ops;         /* NULL: SHOAL_OPS, detection */
    /* Layers or named scopes that drop their activations and run again in backward, with the same
     * bits (Megatron's flags of these names): "full" or "selective"; NULL: keep everything, unless
     * the key activation_checkpointing.number_checkpoints says otherwise. */
    const char *recompute_granularity, *recompute_method; /* method: "uniform" (NULL) or "block" */
    int64_t recompute_num_layers;         /* uniform: layers of a chunk (0: 1); block: how many */
    const char *const *recompute_modules; /* NULL-terminated, borrowed until destroy; NULL: none */
    bool inference;                       /* no gradients, no optimizer */
    const char *output_path; /* folder of hashes.jsonl (key "hashes"); NULL: the current one */
    /* It will save checkpoints, and what that needs is allocated, and planned, with the engine;
     * else at each save. */
    bool saves;
    /* A save may replace a checkpoint of a later step, and move `latest` back to its own. */
    bool override_existing_checkpoint;
    /* Weights begin as zeros instead of their initial values: for who loads others at once, and
     * would draw the first in vain. */
    bool blank_weights;
    /* What the ranks along tp and pp of the mesh do. Of no use where an axis has one rank. */
    /* Between the matrices that tp divides, each rank works on its part of the sequence alone. */
    bool sequence_parallel;
    /* Input gradients are summed over tp before the weight gradient is computed, not beside it. */
    bool no_async_tensor_parallel;
    const char *pipeline_schedule; /* "gpipe", "1f1b", "interleaved", "zb-h1"; NULL: 1f1b, or with
                                      virtual stages interleaved */
    int32_t virtual_stages;        /* chunks of layers on each stage; 0: 1 */
    int32_t micro_batch_group;     /* interleaved: micro-batches of a chunk in turn; 0: stages */
    /* "uniform", "parameters", "flops", "type:REGEX", "even", "layout:TEXT"; NULL: the key
     * pipeline.partition_method, else "flops". */
    const char *partition_method;
    int32_t first_stage_layers, last_stage_layers; /* of "even"; 0: as the others */
    bool account_for_embedding, account_for_loss;  /* of "even": they count as a layer */
    /* What stages send each other is sent and received by the thread that computes, not beside it,
     * whatever pipeline.overlap_p2p says. */
    bool no_overlap_p2p;
} shoal_engine_args;

/* Reads the configuration, places and initialises the model, plans the activation memory. *engine
 * is
 * owned by the caller. SHOAL_ECONFIG and SHOAL_EINVAL name the key or argument; SHOAL_ENOMEM. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_engine_create(const shoal_engine_args *args,
                                                            shoal_engine **engine);
/* Waits for the other ranks where the engine made groups of its own (overlap_comm, MiCS, hpZ),
 * unless the group is aborted: a rank that fails alone calls shoal_comm_abort first. NULL is fine.
 */
SHOAL_API void shoal_engine_destroy(shoal_engine *engine);

/* One micro-batch: host arrays in the order of the model's input specs, each samples * sample
 * shape, borrowed for the call. */
typedef struct shoal_batch {
    const void **data;   /* as many as the model has inputs */
    int64_t samples;     /* 0: train_micro_batch_size_per_gpu */
    int64_t reserved[4]; /* 0 */
} shoal_batch;

/* These three are not of a pipeline (SHOAL_EUNSUPPORTED), whose stages work on several micro-batches:
 * shoal_engine_train_batch and shoal_engine_eval_batch are. */
/* Runs the model forward. *loss is a device scalar borrowed until backward; shoal_tensor_get_scalar
 * reads it (synchronises). The next forward, an evaluation and a checkpoint drop a forward that had
 * no backward.
 * Errors of the model's ops arrive here. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_forward(shoal_engine *engine,
                                                          const shoal_batch *batch,
                                                          shoal_tensor **loss);
/* Backward of the last forward, with loss scaling. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_backward(shoal_engine *engine);
/* At a boundary: reduces gradients, clips, updates, advances the schedule; else counts.
 * SHOAL_SKIPPED: overflow, nothing changed but the loss scale. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_step(shoal_engine *engine);
/* Whether the next shoal_engine_step updates. Not collective. */
SHOAL_API bool shoal_engine_is_gradient_accumulation_boundary(const shoal_engine *engine);

/* What the last step was. Loss is the mean over the global batch, the same on every rank. */
typedef struct shoal_step_info {
    int64_t step;          /* 0-based index of the step just done */
    int64_t skipped_steps; /* so far */
    double loss, grad_norm, lr, loss_scale;
    bool applied;                                                  /* false: skipped */
    double step_ms, forward_ms, backward_ms, reduce_ms, update_ms; /* this rank */
    int64_t train_batch_size; /* samples of this step, over all ranks */
    int64_t consumed_samples; /* ... of all steps so far, with this one */
} shoal_step_info;

/* Fills *batch for global micro-batch `micro` of step `step`: sets batch->data[i], of which there
 * are as many as the model has inputs. Arrays must stay valid until the next call. In a pipeline it is
 * called where layers read the batch: on the first and on the last stage, and on those whose layers
 * ask for an input of the model. */
typedef shoal_status (*shoal_batch_source)(void *user, int64_t step, int64_t micro,
                                           shoal_batch *batch);
/* Global numbers of the micro-batches that train_batch asks this rank's source for in each step:
 * [*first, *first + *count). */
SHOAL_API void shoal_engine_get_micro_range(const shoal_engine *engine, int64_t *first,
                                            int64_t *count);
/* Steps of so many samples from the next one on (DeepSpeed's name): the micro-batch stays, the
 * accumulation steps follow, and so does what shoal_engine_get_micro_range says. At most the batch
 * that the engine was created with; every rank gives the same number, between steps. Means are over
 * the batch of their step; Megatron's schedules count samples, DeepSpeed's steps. Not collective.
 * SHOAL_EINVAL: larger, or no multiple of micro-batch times data-parallel ranks. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_set_train_batch_size(shoal_engine *engine,
                                                                       int64_t samples);
/* Samples of all steps so far; checkpoints keep it. Where the batch never changed: steps times
 * train_batch_size. Not collective. */
SHOAL_API int64_t shoal_engine_consumed_samples(const shoal_engine *engine);
/* gas micro-batches forward and backward, then the update. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_engine_train_batch(shoal_engine *engine,
                                                                 shoal_batch_source source,
                                                                 void *user, shoal_step_info *info);
/* Mean loss over `micro_batches` global evaluation micro-batches (each weighted by its number of
 * valid targets), spread over ranks;
 * the same bits for any N. No dropout. `step` passed to the source is -1. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_eval_batch(shoal_engine *engine,
                                                             shoal_batch_source source, void *user,
                                                             int64_t micro_batches, double *loss);

/* The table of `comms_logger`: a row per collective and size of its message, as DeepSpeed's
 * log_summary, of this rank's calls until now; with its `show_straggler` a second one, and what all
 * ranks of several hosts have sent to other hosts, and then the call is collective. *text is the
 * caller's: free(); NULL when the section is not enabled. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_format_comms(shoal_engine *engine, char **text);

/* What the last step was. Not collective. */
SHOAL_INLINE void shoal_engine_get_step_info(const shoal_engine *engine, shoal_step_info *info);
/* Optimizer steps done, skipped ones included. Not collective. */
SHOAL_API int64_t shoal_engine_global_steps(const shoal_engine *engine);
/* In samples, samples and micro-batches of a rank; each may be NULL. Not collective. */
SHOAL_API void shoal_engine_get_batch_info(const shoal_engine *engine, int64_t *train_batch_size,
                                           int64_t *micro_batch_size,
                                           int64_t *gradient_accumulation_steps);
/* What weights and activations are computed in. Not collective. */
SHOAL_API shoal_dtype shoal_engine_dtype(const shoal_engine *engine);
/* Elements of all parameters, tied ones once. Not collective. */
SHOAL_API int64_t shoal_engine_param_count(const shoal_engine *engine);
/* Bytes of this rank by kind, from counters. Not collective. */
typedef struct shoal_memory_info {
    int64_t weights_bytes, gradients_bytes, states_bytes, activations_bytes, buffers_bytes;
    int64_t device_peak_bytes, arena_growths, device_alloc_count, host_sync_count;
    int64_t packed_weights_bytes; /* weights in the layout that products read */
    int64_t master_bytes;         /* fp32 copies of 16-bit weights: a part of states_bytes */
    int64_t host_peak_bytes;      /* pinned host memory */
    int64_t comm_bytes;           /* a rank's share of what groups need to pass messages */
    int64_t offload_host_bytes, offload_nvme_bytes; /* outside the device, see offload_optimizer */
    int64_t offload_pinned_bytes; /* of offload_host_bytes: a part of host_peak_bytes, too */
    int64_t offload_read_bytes, offload_written_bytes; /* masters and states, from and to the drive
                                                          since the engine was created */
    int64_t activations_host_bytes; /* cpu_checkpointing: a part of host_peak_bytes */
    int64_t checkpoint_bytes;       /* host memory for saves (`saves`) */
    int64_t workspace_bytes;        /* host memory that kernels have worked in, of all threads */
} shoal_memory_info;
SHOAL_INLINE void shoal_engine_get_memory_info(const shoal_engine *engine, shoal_memory_info *info);
/* Asks every rank to stop at the next step boundary; not collective, safe in a signal handler. */
SHOAL_API void shoal_engine_request_stop(shoal_engine *engine);
/* True on all ranks of the group once any rank asked (agreed with the step's scalars). Not
 * collective. */
SHOAL_API bool shoal_engine_stop_requested(const shoal_engine *engine);
/* Of the engine's group. Not collective. */
SHOAL_API int32_t shoal_engine_rank(const shoal_engine *engine);
SHOAL_API int32_t shoal_engine_world_size(const shoal_engine *engine);

/* Full parameter or its gradient of the last step as fp32, on every rank (tests, tools): out, host
 * memory, has shoal_param_count elements, those of the whole, whichever blocks and parts the ranks
 * hold. An engine for inference in 16 bit has no masters: what it was given, rounded. Costs a gather
 * of it. SHOAL_EINVAL: there is no parameter of this name. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_get_param(shoal_engine *engine, const char *name,
                                                            float *out);
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_get_gradient(shoal_engine *engine,
                                                               const char *name, float *out);
/* A state that the optimizer keeps of the parameter, by its name in checkpoints ("exp_avg",
 * "exp_avg_sq", "momentum_buffer"): as many numbers as the parameter has elements, of a state per
 * row or column ("exp_avg_sq_row", "exp_avg_sq_col" of Adafactor) as many as it has of those. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_get_state(shoal_engine *engine, const char *name,
                                                            const char *state, float *out);
/* Writes a whole parameter, the same values on every rank; each takes what it holds. Its states stay
 * as they are. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_set_param(shoal_engine *engine, const char *name,
                                                            const float *values);
/* Name of the index-th parameter in canonical order, NULL beyond the last. Borrowed until destroy.
 * Not collective. */
SHOAL_API const char *shoal_engine_param_name(const shoal_engine *engine, int32_t index);
/* Which parameters weight decay applies to, in one line for people; the same on every layout.
 * Returns `text`; a line longer than `bytes` is cut. "" for inference. */
SHOAL_API const char *shoal_engine_describe_weight_decay(const shoal_engine *engine, char *text,
                                                         size_t bytes);
/* What people want to know of the mesh after the start: its sizes and the order of its ranks, of a
 * pipeline each stage's layers and parameters, the schedule and what it loses. Lines, each with its
 * end; "" where all ranks divide the samples alone. The same on every rank; not collective. *text is
 * owned by the caller: free(). */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_describe_mesh(const shoal_engine *engine,
                                                                char **text);
/* 64-bit fingerprint of weights (masters) and optimizer states, layout-free. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_fingerprint(shoal_engine *engine, uint64_t *hash);

/* Writes DIR/TAG as checkpoint/checkpoint.h describes; tag NULL: "global_stepN". client_json: text
 * stored in the manifest
 * (tokenizer, model flags ...), may be NULL. Only at a step boundary. SHOAL_EEXIST, and nothing is
 * written: DIR/TAG or DIR/latest is of a later step than this engine, unless TAG is given and new
 * (`latest` then stays) or override_existing_checkpoint was set. Waits while another job saves in
 * DIR. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_save_checkpoint(shoal_engine *engine,
                                                                  const char *dir, const char *tag,
                                                                  const char *client_json);
/* With the key checkpoint.writer.decoupled (DeepSpeed's; --async-save of Megatron) a save returns at
 * once and goes on beside the training, which keeps a copy of what it changes before it was written
 * (in memory that is planned: writer.staging_buffer_size). The files are, bit by bit, those of the step
 * at which it was called. The next save, a load and the end wait for it. If it fails, all ranks get its
 * status from the next step, or from whichever of these comes first. `latest` moves when it is over. */
typedef struct shoal_save_info {
    int64_t step;                             /* of the last save that is whole; -1: none yet */
    double seconds;                           /* from the call to its end */
    double stall_ms;                          /* that it held up the training on this rank */
    bool at_work;                             /* one that is not over */
    int64_t at_work_step;                     /* of that one */
    int64_t staging_bytes, most_staged_bytes; /* what copies may take, and have taken at most */
    int64_t waits;                            /* blocks that an update waited for without room */
} shoal_save_info;
/* Not collective. */
SHOAL_INLINE void shoal_engine_get_save_info(const shoal_engine *engine, shoal_save_info *info);
/* Waits for the save at work, if there is one, and returns its status. Each rank waits for its own
 * part of it. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_wait_save(shoal_engine *engine);
/* Asks all ranks to save after the next step, which the caller does when shoal_engine_save_requested
 * says so, the same on all ranks, until a save begins. Not collective; safe in a signal handler. */
SHOAL_API void shoal_engine_request_save(shoal_engine *engine);
SHOAL_API bool shoal_engine_save_requested(const shoal_engine *engine);
/* Says before the first step whether saves in DIR could succeed: makes DIR, writes and removes a
 * file there, removes what saves that died have left, compares free space and the limit of a file's
 * size with what a checkpoint needs. SHOAL_EEXIST: DIR holds a later step than this engine's.
 * ignore_space: too little of it is only a warning. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_check_save(shoal_engine *engine, const char *dir,
                                                             bool ignore_space);
/* tag NULL: DIR/latest. Without a checkpoint, and only then: SHOAL_ENOENT. *client_json (optional)
 * is owned by the caller (free()). weights_only: no optimizer states, step 0. DIR may also hold a
 * checkpoint of DeepSpeed, of ZeRO stages 0 to 3 or universal: weights, optimizer states, steps and
 * loss scale are taken over, and *client_json is NULL. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_load_checkpoint(shoal_engine *engine,
                                                                  const char *dir, const char *tag,
                                                                  bool weights_only,
                                                                  char **client_json);
/* Which parts of a checkpoint are taken, and how strictly. */
typedef struct shoal_load_args {
    const char *dir, *tag; /* tag NULL: DIR/latest */
    bool module_only;      /* weights alone; step 0 (DeepSpeed's load_module_only, --finetune) */
    /* Weights and the step, so that data goes on where it was; optimizer states, schedule and loss
     * scale begin afresh (load_optimizer_states=False, --no-load-optim). */
    bool no_optimizer_states;
    /* Tensors that the checkpoint has not keep their values, and what the model has not is not read;
     * a line of the log lists both. Other shapes are an error in any case (load_module_strict=False). */
    bool not_strict;
} shoal_load_args;
/* As shoal_engine_load_checkpoint. Only what the kinds that are taken need is read. */
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_engine_load(shoal_engine *engine,
                                                          const shoal_load_args *args,
                                                          char **client_json);
/* Weights of a folder as the Hugging Face Hub has it: model.safetensors, or several files and
 * model.safetensors.index.json, in F32, BF16 or F16. */
typedef struct shoal_load_weights_args {
    const char *path; /* the folder */
    int64_t
        vocab_rows;  /* a tensor with so many rows there may have more in the engine, which become
                           zeros (padding of a vocabulary); 0: none */
    bool not_strict; /* as of shoal_load_args; else SHOAL_EINVAL lists what does not fit */
} shoal_load_weights_args;
/* Reads them into an engine at a step boundary, by name (docs/HUGGING-FACE.md has the rules); what
 * the optimizer keeps stays as it is. Every rank reads what it holds, through 32 MiB of memory. */
SHOAL_CHECKED SHOAL_INLINE shoal_status
shoal_engine_load_weights(shoal_engine *engine, const shoal_load_weights_args *args);
/* A further file that each later checkpoint of this engine has in its folder: what other programs
 * want to find beside weights (config.json, tokenizer.json). `name`: without a folder; a second one
 * of a name replaces the first. The bytes are copied. Rank 0's count. Not collective. SHOAL_EINVAL:
 * a name that a checkpoint needs itself. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_add_file(shoal_engine *engine, const char *name,
                                                           const void *data, size_t bytes);
/* Reads just the client JSON and the step of a checkpoint; statuses as above. Not collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_peek(const char *dir, const char *tag,
                                                           char **client_json, int64_t *step);

/* The folder DIR/TAG of a checkpoint, owned (free()); tag NULL: the latest. Statuses as above. Not
 * collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_find(const char *dir, const char *tag,
                                                           char **folder);

/* Writes DIR/TAG (NULL: the latest) as DeepSpeed's universal checkpoint: OUT/latest_universal and
 * OUT/global_stepN_universal, with weights, optimizer states and steps; what is in vocabulary beyond
 * the tokens is left out. OUT must not exist (SHOAL_EEXIST) and is there when it is whole. Memory does
 * not depend on the model. Not collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_to_deepspeed(const char *dir, const char *tag,
                                                                   const char *out);

/* ---- structs that grow ---------------------------------------------------------------------- */
/* The functions behind the inline ones above. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_create_sized(const shoal_engine_args *args,
                                                               size_t args_size,
                                                               shoal_engine **engine);
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_train_batch_sized(shoal_engine *engine,
                                                                    shoal_batch_source source,
                                                                    void *user,
                                                                    shoal_step_info *info,
                                                                    size_t info_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_load_sized(shoal_engine *engine,
                                                             const shoal_load_args *args,
                                                             size_t args_size, char **client_json);
SHOAL_API void shoal_engine_get_save_info_sized(const shoal_engine *engine, shoal_save_info *info,
                                                size_t info_size);
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_load_weights_sized(
    shoal_engine *engine, const shoal_load_weights_args *args, size_t args_size);
SHOAL_API void shoal_engine_get_step_info_sized(const shoal_engine *engine, shoal_step_info *info,
                                                size_t info_size);
SHOAL_API void shoal_engine_get_memory_info_sized(const shoal_engine *engine,
                                                  shoal_memory_info *info, size_t info_size);

SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_engine_create(const shoal_engine_args *args,
                                                            shoal_engine **engine)
{
    return shoal_engine_create_sized(args, sizeof *args, engine);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_engine_train_batch(shoal_engine *engine,
                                                                 shoal_batch_source source,
                                                                 void *user, shoal_step_info *info)
{
    return shoal_engine_train_batch_sized(engine, source, user, info, sizeof *info);
}
SHOAL_CHECKED SHOAL_INLINE shoal_status shoal_engine_load(shoal_engine *engine,
                                                          const shoal_load_args *args,
                                                          char **client_json)
{
    return shoal_engine_load_sized(engine, args, sizeof *args, client_json);
}

SHOAL_INLINE void shoal_engine_get_save_info(const shoal_engine *engine, shoal_save_info *info)
{
    shoal_engine_get_save_info_sized(engine, info, sizeof *info);
}

SHOAL_CHECKED SHOAL_INLINE shoal_status
shoal_engine_load_weights(shoal_engine *engine, const shoal_load_weights_args *args)
{
    return shoal_engine_load_weights_sized(engine, args, sizeof *args);
}
SHOAL_INLINE void shoal_engine_get_step_info(const shoal_engine *engine, shoal_step_info *info)
{
    shoal_engine_get_step_info_sized(engine, info, sizeof *info);
}
SHOAL_INLINE void shoal_engine_get_memory_info(const shoal_engine *engine, shoal_memory_info *info)
{
    shoal_engine_get_memory_info_sized(engine, info, sizeof *info);
}

#ifdef __cplusplus
}
#endif
#endif
