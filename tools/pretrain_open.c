/* What a rank reads, by its place in the mesh: the first and the last pipeline stage open the data,
 * for inputs and for targets; other stages hear what they must know about it and need no file, unless
 * their layers read the samples, too.
 *
 * Tensor-parallel ranks of one data rank read the same samples each for itself. A broadcast from the
 * first of them would stand on the way of every micro-batch, with nothing beside it; reading goes
 * on in the prefetch thread, from one page cache where the ranks share a machine. */
#include "pretrain.h"

shoal_status pretrain_open_mesh(struct pretrain *run)
{
    shoal_status status;
    const struct mesh_flags *flags = &run->options.mesh;
    SHOAL_TRY(status, mesh_flags_open(flags, run->group, 1, 0, &run->mesh), done);
    if (pretrain_is_first(run))
        mesh_flags_say(flags, "shoal pretrain");
    const int32_t stages = shoal_mesh_size(run->mesh, SHOAL_AXIS_PP);
    const int32_t stage =
        shoal_mesh_coordinate(run->mesh, SHOAL_AXIS_PP, shoal_mesh_rank(run->mesh));
    /* of masked samples every layer asks for the lengths */
    run->all_read = stages <= 2 || pretrain_samples(&run->options) != SHOAL_SAMPLE_NEXT_TOKEN;
    run->reads = run->all_read || stage == 0 || stage == stages - 1;
done:
    return status;
}

/* From rank 0, which is on the first stage. */
static shoal_status tell(struct pretrain *run, void *facts, int64_t count)
{
    if (run->all_read)
        return SHOAL_OK;
    return shoal_broadcast(run->group, facts, count, SHOAL_I64, 0, NULL);
}

shoal_status pretrain_open_data(struct pretrain *run)
{
    shoal_status status;
    int64_t facts[2] = {0, 0}; /* kinds of tokens, those of the validation part */
    if (run->reads) {
        if (!run->stored_tokenizer)
            SHOAL_TRY(status, pretrain_load_tokenizer(&run->options, &run->stored_tokenizer), done);
        const shoal_dataset_args data = pretrain_data_args(&run->options, run->stored_tokenizer);
        SHOAL_TRY(status, shoal_dataset_create(&data, &run->dataset), done);
        facts[0] = shoal_dataset_vocab_size(run->dataset);
        facts[1] = shoal_dataset_token_count(run->dataset, SHOAL_SPLIT_VALID);
    }
    SHOAL_TRY(status, tell(run, facts, 2), done);
    run->vocab_size = facts[0];
    const bool wanted = run->options.full_validation || run->options.eval_iters > 0;
    run->validates = wanted && facts[1] > run->options.seq_length;
done:
    return status;
}

shoal_status pretrain_open_loaders(struct pretrain *run)
{
    shoal_status status = SHOAL_OK;
    const struct pretrain_options *options = &run->options;
    shoal_loader_args args = {.dataset = run->dataset,
                              .seq_length = options->seq_length,
                              .micro_batch = run->micro_batch,
                              .micro_batches = run->micro_per_step,
                              .seed = (uint64_t)options->shared.seed};
    run->valid_steps = options->eval_iters;
    if (run->reads) {
        pretrain_loader_args(options, SHOAL_SPLIT_TRAIN, &args);
        SHOAL_TRY(status, shoal_loader_create(&args, &run->train), done);
        SHOAL_TRY(status, pretrain_make_batch(run), done);
    }
    if (run->reads && run->validates) {
        pretrain_loader_args(options, SHOAL_SPLIT_VALID, &args);
        SHOAL_TRY(status, shoal_loader_create(&args, &run->valid), done);
        if (options->full_validation)
            run->valid_steps = shoal_loader_step_count(run->valid);
    }
    if (options->full_validation)
        SHOAL_TRY(status, tell(run, &run->valid_steps, 1), done);
done:
    return status;
}

int64_t pretrain_data_bytes(const struct pretrain *run)
{
    return run->dataset ? shoal_dataset_host_bytes(run->dataset) : 0;
}
