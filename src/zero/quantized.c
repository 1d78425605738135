/* Messages of few bits. */
#include "zero/quantized.h"

#include "zero/pool.h"

enum { WEIGHT_BITS = 8, GRADIENT_BITS = 4, ERROR_BITS = 8 };

static int64_t message_bytes(const struct shoali_zero_bucket *bucket, int32_t bits)
{
    return shoali_quantized_bytes(bucket->part, bits);
}

static shoal_status forget_errors(struct shoali_zero_quantized *quantized,
                                  struct shoali_device_stream *stream)
{
    quantized->forget = false;
    if (!quantized->errors)
        return SHOAL_OK;
    return shoali_fill(stream, quantized->errors, 0, (size_t)quantized->error_bytes);
}

/* Of `parts` ranks on several hosts with equally many of them, more than one. A plan knows no
 * hosts, so that there is room for the errors of as many messages in the second hop. */
static int32_t most_hosts(int32_t parts)
{
    for (int32_t per_host = 2; per_host * 2 <= parts; per_host++)
        if (parts % per_host == 0)
            return parts / per_host;
    return 0;
}

static shoal_status make_errors(struct shoali_zero_quantized *quantized)
{
    shoal_status status = SHOAL_ENOMEM;
    const struct shoali_zero_layout *layout = quantized->layout;
    quantized->errors_of = shoali_calloc((size_t)layout->bucket_count + 1,
                                         sizeof *quantized->errors_of, "feedback of errors");
    if (!quantized->errors_of)
        goto done;
    for (int32_t b = 0; b < layout->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &layout->bucket[b];
        quantized->errors_of[b] = quantized->error_bytes;
        const int32_t parts = shoali_zero_group_of(layout, bucket)->parts;
        quantized->error_bytes += (parts + most_hosts(parts)) * message_bytes(bucket, ERROR_BITS);
    }
    SHOAL_TRY(status,
              shoali_device_alloc(quantized->setup->args.device, (size_t)quantized->error_bytes,
                                  &quantized->errors),
              done);
    SHOAL_TRY(status, forget_errors(quantized, quantized->setup->args.exec.stream), done);
done:
    return status;
}

static shoal_status make_messages(struct shoali_zero_quantized *quantized)
{
    const struct shoali_zero_layout *layout = quantized->layout;
    const struct shoali_zero_args *args = &quantized->setup->args;
    int64_t largest = 0;
    for (int32_t b = 0; b < layout->bucket_count; b++) {
        const struct shoali_zero_bucket *bucket = &layout->bucket[b];
        const int64_t parts = shoali_zero_group_of(layout, bucket)->parts;
        const int64_t weights =
            parts * message_bytes(bucket, WEIGHT_BITS) * args->quantized_weights;
        const int64_t gradients =
            2 * parts * message_bytes(bucket, GRADIENT_BITS) * args->quantized_gradients;
        largest = weights > largest ? weights : largest;
        largest = gradients > largest ? gradients : largest;
    }
    quantized->message_bytes = largest;
    return largest > 0
               ? shoali_zero_alloc_shared(quantized->setup, (size_t)largest, &quantized->message)
               : SHOAL_OK;
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

/* ---- the wire ------------------------------------------------------------------------------- */

static shoal_status gather(void *user, const struct shoali_zero_channel *channel,
                           const struct shoali_zero_bucket *bucket, const struct shoali_post *named,
                           const void *own, void *out)
{
    shoal_status status;
    const struct shoali_zero_quantized *quantized = user;
    struct shoali_post post = *named;
    const shoal_dtype dtype = named->dtype;
    const int64_t bytes = message_bytes(bucket, WEIGHT_BITS);
    char *messages = quantized->message, *mine = messages + channel->cut->seat * bytes;
    SHOAL_TRY(
        status,
        shoali_op_quantize(&channel->exec, &(struct shoali_quantize_args){.x = own,
                                                                          .message = mine,
                                                                          .count = bucket->part,
                                                                          .bits = WEIGHT_BITS,
                                                                          .dtype = dtype}),
        done);
    post.dtype = SHOAL_U8;
    SHOAL_TRY(status, shoali_zero_all_gather(channel, &post, mine, messages, bytes), done);
    for (int32_t r = 0; r < channel->cut->parts; r++)
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

/* Part `to` of `whole` as message number `at`; of LoCo with what was lost before in place `error`
 * of the bucket's. `out` is room. */
struct coding {
    int32_t to, at, error;
};

static shoal_status encode(const struct shoali_zero_quantized *quantized,
                           const struct shoali_exec *exec, const struct shoali_zero_bucket *bucket,
                           struct coding coding, void *whole, void *out)
{
    const int64_t bytes = message_bytes(bucket, GRADIENT_BITS);
    float *x = (float *)whole + coding.to * bucket->part;
    char *message = (char *)quantized->message + coding.at * bytes;
    if (!quantized->errors)
        return quantize(exec, x, message, bucket->part, GRADIENT_BITS);
    const int64_t first = quantized->errors_of[bucket - quantized->layout->bucket];
    const struct feedback feedback = {.x = x,
                                      .errors = (char *)quantized->errors + first +
                                                coding.error * message_bytes(bucket, ERROR_BITS),
                                      .scratch = out};
    return quantize_with_errors(exec, quantized->setup->args.loco_beta, &feedback, bucket->part,
                                message);
}

/* Adds `count` messages, `stride` bytes apart, in their order. */
static shoal_status sum_messages(const struct shoali_exec *exec, const char *messages,
                                 int64_t stride, int32_t count, int64_t elements, void *y)
{
    shoal_status status = SHOAL_OK;
    for (int32_t r = 0; r < count; r++)
        SHOAL_TRY(status,
                  shoali_op_dequantize(
                      exec, &(struct shoali_dequantize_args){.message = messages + r * stride,
                                                             .y = y,
                                                             .count = elements,
                                                             .bits = GRADIENT_BITS,
                                                             .accumulate = r > 0,
                                                             .dtype = SHOAL_F32}),
                  done);
done:
    return status;
}

/* Within each host first, so that what a host sends is its ranks' sum: rank (host h, place i) gets
 * what its host has for place i of every host, adds it up, and sends the sums on. */
static shoal_status reduce_by_hosts(const struct shoali_zero_quantized *quantized,
                                    const struct shoali_zero_channel *channel,
                                    const struct shoali_zero_bucket *bucket,
                                    const struct shoali_post *named, void *whole, void *out)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_exec *exec = &channel->exec;
    struct shoali_post post = *named;
    const int32_t places = shoal_comm_size(channel->within);
    const int32_t hosts = shoal_comm_size(channel->across);
    const int64_t bytes = message_bytes(bucket, GRADIENT_BITS);
    char *sent = quantized->message, *received = sent + channel->cut->parts * bytes;
    for (int32_t h = 0; h < hosts; h++)
        for (int32_t i = 0; i < places; i++)
            SHOAL_TRY(status,
                      encode(quantized, exec, bucket,
                             (struct coding){h * places + i, i * hosts + h, h * places + i}, whole,
                             out),
                      done);
    post.kind = SHOALI_ALL_TO_ALL;
    post.in = sent;
    post.out = received;
    post.count = hosts * bytes;
    post.dtype = SHOAL_U8;
    SHOAL_TRY(status, shoali_comm_post_on(channel->within, exec->stream, &post), done);
    for (int32_t h = 0; h < hosts; h++) {
        float *sum = (float *)whole + h * bucket->part;
        SHOAL_TRY(
            status,
            sum_messages(exec, received + h * bytes, hosts * bytes, places, bucket->part, sum),
            done);
        SHOAL_TRY(
            status,
            encode(quantized, exec, bucket, (struct coding){h, h, hosts * places + h}, whole, out),
            done);
    }
    post.count = bytes;
    SHOAL_TRY(status, shoali_comm_post_on(channel->across, exec->stream, &post), done);
    SHOAL_TRY(status, sum_messages(exec, received, bytes, hosts, bucket->part, out), done);
done:
    return status;
}

static shoal_status reduce(void *user, const struct shoali_zero_channel *channel,
                           const struct shoali_zero_bucket *bucket, const struct shoali_post *named,
                           void *whole, void *out)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_zero_quantized *quantized = user;
    struct shoali_post post = *named;
    const int32_t parts = channel->cut->parts;
    const int64_t bytes = message_bytes(bucket, GRADIENT_BITS);
    char *sent = quantized->message, *received = channel->group ? sent + parts * bytes : sent;
    if (channel->within)
        return reduce_by_hosts(quantized, channel, bucket, named, whole, out);
    for (int32_t r = 0; r < parts; r++)
        SHOAL_TRY(status,
                  encode(quantized, &channel->exec, bucket, (struct coding){r, r, r}, whole, out),
                  done);
    post.kind = SHOALI_ALL_TO_ALL;
    post.in = sent;
    post.out = received;
    post.count = bytes;
    post.dtype = SHOAL_U8;
    if (channel->group)
        SHOAL_TRY(status, shoali_comm_post_on(channel->group, channel->exec.stream, &post), done);
    SHOAL_TRY(status, sum_messages(&channel->exec, received, bytes, parts, bucket->part, out),
              done);
done:
    return status;
}

static shoal_status prepare(void *user, struct shoali_device_stream *stream)
{
    struct shoali_zero_quantized *quantized = user;
    return quantized->forget ? forget_errors(quantized, stream) : SHOAL_OK;
}

static void scaled(void *user, double loss_scale)
{
    struct shoali_zero_quantized *quantized = user;
    quantized->forget = quantized->forget || loss_scale != quantized->loss_scale;
    quantized->loss_scale = loss_scale;
}

static void stepped(void *user, bool overflow)
{
    struct shoali_zero_quantized *quantized = user;
    quantized->error_age++;
    if (overflow || quantized->error_age == quantized->setup->args.loco_reset) {
        quantized->forget = true;
        quantized->error_age = 0;
    }
}

/* ---- creation ------------------------------------------------------------------------------- */

shoal_status shoali_zero_quantized_init(struct shoali_zero_quantized *quantized,
                                        const struct shoali_zero_setup *setup,
                                        const struct shoali_zero_layout *layout,
                                        struct shoali_zero_wire *wire)
{
    shoal_status status;
    const struct shoali_zero_args *args = &setup->args;
    if (setup->stage != 3 || !(args->quantized_weights || args->quantized_gradients))
        return SHOAL_OK;
    *quantized = (struct shoali_zero_quantized){.setup = setup, .layout = layout};
    SHOAL_TRY(status, make_messages(quantized), done);
    if (args->loco_reset > 0)
        SHOAL_TRY(status, make_errors(quantized), done);
    wire->user = quantized;
    if (args->quantized_weights)
        wire->gather = gather;
    if (args->quantized_gradients) {
        wire->reduce = reduce;
        wire->scaled = scaled;
        wire->prepare = prepare;
        wire->stepped = stepped;
    }
done:
    return status;
}

void shoali_zero_quantized_fini(struct shoali_zero_quantized *quantized)
{
    if (!quantized->setup)
        return;
    shoali_zero_free_shared(quantized->setup, quantized->message);
    if (quantized->errors)
        shoali_device_free(quantized->setup->args.device, quantized->errors);
    shoali_free(quantized->errors_of);
}
