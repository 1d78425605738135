/* train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * data-parallel
 * ranks. */
#include "engine/config.h"

shoal_status shoali_batch_triad(const struct shoali_ds_config *config, int64_t dp_world,
                                struct shoali_batch_sizes *sizes)
{
    int64_t train = config->train_batch_size, micro = config->train_micro_batch_size_per_gpu;
    int64_t accumulation = config->gradient_accumulation_steps, product;
    SHOAL_ASSERT(dp_world > 0);
    if (!train && !micro)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "neither train_batch_size nor "
                          "train_micro_batch_size_per_gpu is given: give one of them");
    if (!accumulation)
        accumulation = train && micro ? train / micro / dp_world : 1;
    if (!micro)
        micro = accumulation ? train / dp_world / accumulation : 0;
    if (!shoali_mul(micro, accumulation, &product) || !shoali_mul(product, dp_world, &product))
        return SHOAL_FAIL(
            SHOAL_ECONFIG,
            "train_micro_batch_size_per_gpu %lld * gradient_accumulation_steps %lld * "
            "%lld data-parallel ranks does not fit in 64 bits",
            (long long)micro, (long long)accumulation, (long long)dp_world);
    if (!train)
        train = product;
    if (micro <= 0 || accumulation <= 0 || product != train)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "train_batch_size %lld is not train_micro_batch_size_per_gpu %lld * "
                          "gradient_accumulation_steps %lld * %lld data-parallel ranks (= %lld): "
                          "change one, or leave one out to have it derived",
                          (long long)train, (long long)micro, (long long)accumulation,
                          (long long)dp_world, (long long)product);
    *sizes = (struct shoali_batch_sizes){train, micro, accumulation};
    return SHOAL_OK;
}
