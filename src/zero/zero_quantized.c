/* ZeRO++ (Wang et al. 2023): messages of few bits. Fast reduction only: the bits depend on who owns
 * what.
 *
 * qwZ   a rank's part of a bucket travels as 8-bit codes; every rank, the owner too, computes with
 *       what was sent, so all have the same weights.
 * qgZ   each rank's part of a gradient goes to its owner as 4-bit codes (an all-to-all in place of
 *       the reduce-scatter), which adds the contributions in fp32 in the order of ranks. */
#include "zero/zero_internal.h"

enum { WEIGHT_BITS = 8, GRADIENT_BITS = 4 };

static int64_t message_bytes(const struct shoali_zero_bucket *bucket, int32_t bits)
{
    return shoali_quantized_bytes(bucket->part, bits);
}

/* One scratch for both: jobs run one after the other. */
shoal_status shoali_zero_quantized_init(struct shoali_zero *zero)
{
    const struct shoali_zero_args *args = &zero->args;
    int64_t largest = 0;
    for (int32_t b = 0; b < zero->bucket_count && zero->stage == 3; b++) {
        const struct shoali_zero_bucket *bucket = &zero->bucket[b];
        const int64_t weights = message_bytes(bucket, WEIGHT_BITS) * args->quantized_weights;
        const int64_t gradients =
            2 * message_bytes(bucket, GRADIENT_BITS) * args->quantized_gradients;
        largest = weights > largest ? weights : largest;
        largest = gradients > largest ? gradients : largest;
    }
    zero->message_bytes = zero->parts * largest;
    if (zero->message_bytes == 0)
        return SHOAL_OK;
    return shoali_zero_alloc_shared(zero, (size_t)zero->message_bytes, &zero->message);
}

shoal_status shoali_zero_gather_quantized(const struct shoali_zero_channel *channel,
                                          const struct shoali_zero *zero,
                                          const struct shoali_zero_bucket *bucket,
                                          const struct shoali_post *named, const void *own,
                                          void *out)
{
    shoal_status status;
    struct shoali_post post = *named;
    const shoal_dtype dtype = zero->args.module->dtype;
    const int64_t bytes = message_bytes(bucket, WEIGHT_BITS);
    char *messages = zero->message;
    SHOAL_TRY(
        status,
        shoali_op_quantize(&channel->exec,
                           &(struct shoali_quantize_args){.x = own,
                                                          .message = messages + zero->seat * bytes,
                                                          .count = bucket->part,
                                                          .bits = WEIGHT_BITS,
                                                          .dtype = dtype}),
        done);
    post.kind = SHOALI_ALL_GATHER;
    post.in = messages + zero->seat * bytes;
    post.out = messages;
    post.count = bytes;
    post.dtype = SHOAL_U8;
    SHOAL_TRY(status, shoali_comm_device(channel->group, channel->exec.stream, &post), done);
    for (int32_t r = 0; r < zero->parts; r++)
        SHOAL_TRY(status,
                  shoali_op_dequantize(&channel->exec,
                                       &(struct shoali_dequantize_args){
                                           .message = messages + r * bytes,
                                           .y = shoali_zero_at(out, r * bucket->part, dtype),
                                           .count = bucket->part,
                                           .bits = WEIGHT_BITS,
                                           .dtype = dtype}),
                  done);
done:
    return status;
}

shoal_status shoali_zero_reduce_quantized(const struct shoali_zero_channel *channel,
                                          const struct shoali_zero *zero,
                                          const struct shoali_zero_bucket *bucket,
                                          const struct shoali_post *named, void *whole, void *out)
{
    shoal_status status = SHOAL_OK;
    struct shoali_post post = *named;
    const int64_t bytes = message_bytes(bucket, GRADIENT_BITS);
    char *sent = zero->message, *received = sent + zero->parts * bytes;
    for (int32_t r = 0; r < zero->parts; r++)
        SHOAL_TRY(status,
                  shoali_op_quantize(&channel->exec,
                                     &(struct shoali_quantize_args){
                                         .x = shoali_zero_at(whole, r * bucket->part, SHOAL_F32),
                                         .message = sent + r * bytes,
                                         .count = bucket->part,
                                         .bits = GRADIENT_BITS,
                                         .dtype = SHOAL_F32}),
                  done);
    post.kind = SHOALI_ALL_TO_ALL;
    post.in = sent;
    post.out = received;
    post.count = bytes;
    post.dtype = SHOAL_U8;
    SHOAL_TRY(status, shoali_comm_device(channel->group, channel->exec.stream, &post), done);
    for (int32_t r = 0; r < zero->parts; r++)
        SHOAL_TRY(
            status,
            shoali_op_dequantize(&channel->exec,
                                 &(struct shoali_dequantize_args){.message = received + r * bytes,
                                                                  .y = out,
                                                                  .count = bucket->part,
                                                                  .bits = GRADIENT_BITS,
                                                                  .accumulate = r > 0,
                                                                  .dtype = SHOAL_F32}),
            done);
done:
    return status;
}
