/* ZeRO++ (Wang et al. 2023): messages of few bits. Fast reduction only: the bits depend on who owns
 * what.
 *
 * qwZ   a rank's part of a bucket travels as 8-bit codes; every rank, the owner too, computes with
 *       what was sent, so all have the same weights.
 * qgZ   each rank's part of a gradient goes to its owner as 4-bit codes (an all-to-all in place of
 *       the reduce-scatter), which adds the contributions in fp32 in the order of ranks.
 * LoCo  (Xie et al. 2024) feeds back what qgZ lost: with h = gradient + e, Q(h) is sent and e
 *       becomes beta e + (1 - beta) (h - Q(h)), kept as 8-bit codes for each element that this
 *       rank sends. Errors are in units of the loss scale, so they are forgotten when it changes,
 *       after an overflow, and every reset_T steps. */
#include "zero/zero_internal.h"

enum { WEIGHT_BITS = 8, GRADIENT_BITS = 4, ERROR_BITS = 8 };

static int64_t message_bytes(const struct shoali_zero_bucket *bucket, int32_t bits)
{
    return shoali_quantized_bytes(bucket->part, bits);
}

shoal_status shoali_zero_forget_errors(struct shoali_zero *zero)
{
    zero->forget_errors = false;
    if (!zero->errors)
        return SHOAL_OK;
    return shoali_fill(zero->args.exec.stream, zero->errors, 0, (size_t)zero->error_bytes);
}

static shoal_status make_errors(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
    for (int32_t b = 0; b < zero->bucket_count; b++) {
        zero->bucket[b].errors = zero->error_bytes;
        zero->error_bytes += zero->parts * message_bytes(&zero->bucket[b], ERROR_BITS);
    }
    SHOAL_TRY(status,
              shoali_device_alloc(zero->args.device, (size_t)zero->error_bytes, &zero->errors),
              done);
    SHOAL_TRY(status, shoali_zero_forget_errors(zero), done);
done:
    return status;
}

/* One scratch for both: jobs run one after the other. */
shoal_status shoali_zero_quantized_init(struct shoali_zero *zero)
{
    shoal_status status = SHOAL_OK;
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
    if (zero->message_bytes > 0)
        SHOAL_TRY(status,
                  shoali_zero_alloc_shared(zero, (size_t)zero->message_bytes, &zero->message),
                  done);
    if (zero->stage == 3 && args->loco_reset > 0)
        SHOAL_TRY(status, make_errors(zero), done);
done:
    return status;
}

static shoal_status quantize(const struct shoali_exec *exec, const void *x, void *message,
                             int64_t count, int32_t bits)
{
    return shoali_op_quantize(
        exec, &(struct shoali_quantize_args){
                  .x = x, .message = message, .count = count, .bits = bits, .dtype = SHOAL_F32});
}

static shoal_status dequantize(const struct shoali_exec *exec, const void *message, void *y,
                               int64_t count, int32_t bits)
{
    return shoali_op_dequantize(
        exec, &(struct shoali_dequantize_args){
                  .message = message, .y = y, .count = count, .bits = bits, .dtype = SHOAL_F32});
}

static shoal_status add(const struct shoali_exec *exec, double a, const void *x, void *y,
                        int64_t count)
{
    return shoali_op_axpy(
        exec, &(struct shoali_axpy_args){
                  .x = x, .y = y, .count = count, .a = a, .accumulate = 1, .dtype = SHOAL_F32});
}

static shoal_status multiply(const struct shoali_exec *exec, double a, void *x, int64_t count)
{
    return shoali_op_unary(
        exec,
        &(struct shoali_unary_args){
            .x = x, .y = x, .count = count, .alpha = a, .kind = SHOALI_SCALE, .dtype = SHOAL_F32});
}

/* LoCo's buffers for one message: what is sent, in the end used up; the errors' codes; room. */
struct feedback {
    float *x;
    void *errors;
    float *scratch;
};

static shoal_status quantize_with_errors(const struct shoali_exec *exec, double beta,
                                         const struct feedback *of, int64_t count, void *message)
{
    shoal_status status;
    SHOAL_TRY(status, dequantize(exec, of->errors, of->scratch, count, ERROR_BITS), done);
    SHOAL_TRY(status, add(exec, 1.0, of->scratch, of->x, count), done);
    SHOAL_TRY(status, quantize(exec, of->x, message, count, GRADIENT_BITS), done);
    SHOAL_TRY(status, multiply(exec, beta, of->scratch, count), done);
    SHOAL_TRY(status, add(exec, 1.0 - beta, of->x, of->scratch, count), done);
    SHOAL_TRY(status, dequantize(exec, message, of->x, count, GRADIENT_BITS), done);
    SHOAL_TRY(status, add(exec, beta - 1.0, of->x, of->scratch, count), done);
    SHOAL_TRY(status, quantize(exec, of->scratch, of->errors, count, ERROR_BITS), done);
done:
    return status;
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
    for (int32_t r = 0; r < zero->parts; r++) {
        const struct feedback feedback = {.x = (float *)whole + r * bucket->part,
                                          .errors = zero->errors
                                                        ? (char *)zero->errors + bucket->errors +
                                                              r * message_bytes(bucket, ERROR_BITS)
                                                        : NULL,
                                          .scratch = out};
        status = zero->errors ? quantize_with_errors(&channel->exec, zero->args.loco_beta,
                                                     &feedback, bucket->part, sent + r * bytes)
                              : quantize(&channel->exec, feedback.x, sent + r * bytes, bucket->part,
                                         GRADIENT_BITS);
        SHOAL_TRY(status, status, done);
    }
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
