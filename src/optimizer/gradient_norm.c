#include "optimizer/gradient_norm.h"

#include <string.h>

/* Layout of the device block. */
struct block {
    uint64_t limbs[3];
    uint32_t flag, padding;
    float control[4];
};

shoal_status shoali_gradient_norm_init(struct shoali_gradient_norm *norm,
                                       struct shoali_device *device,
                                       struct shoali_device_stream *stream)
{
    shoal_status status;
    memset(norm, 0, sizeof(*norm));
    SHOAL_TRY(status, shoali_device_alloc(device, sizeof(struct block), &norm->memory), done);
    norm->device = device;
    norm->stream = stream;
    char *base = norm->memory;
    norm->limbs = (uint64_t *)(void *)(base + offsetof(struct block, limbs));
    norm->flag = (uint32_t *)(void *)(base + offsetof(struct block, flag));
    norm->control = (float *)(void *)(base + offsetof(struct block, control));
    SHOAL_TRY(status, shoali_fill(stream, norm->memory, 0, sizeof(struct block)), done);
done:
    if (status < 0)
        shoali_gradient_norm_fini(norm);
    return status;
}

void shoali_gradient_norm_fini(struct shoali_gradient_norm *norm)
{
    if (norm->memory && norm->device)
        shoali_device_free(norm->device, norm->memory);
    memset(norm, 0, sizeof(*norm));
}

shoal_status shoali_gradient_norm_begin(struct shoali_gradient_norm *norm)
{
    return shoali_fill(norm->stream, norm->memory, 0, offsetof(struct block, control));
}

shoal_status shoali_gradient_norm_add(struct shoali_gradient_norm *norm,
                                      const struct shoali_exec *exec, const float *grad,
                                      int64_t count)
{
    if (count == 0)
        return SHOAL_OK;
    struct shoali_norm2_args args = {
        .x = grad, .limbs = norm->limbs, .flag = norm->flag, .count = count};
    return shoali_op_norm2(exec, &args);
}

void shoali_gradient_norm_split(const uint64_t limbs[3], uint32_t flag,
                                int64_t words[SHOALI_GRADIENT_NORM_WORDS])
{
    for (int i = 0; i < 3; i++) {
        words[2 * i] = (int64_t)(limbs[i] & 0xffffffffu);
        words[2 * i + 1] = (int64_t)(limbs[i] >> 32);
    }
    words[6] = flag != 0;
}

void shoali_gradient_norm_join(const int64_t words[SHOALI_GRADIENT_NORM_WORDS], uint64_t limbs[3],
                               uint32_t *flag)
{
    uint64_t carry = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t low = (uint64_t)words[2 * i] + carry;
        uint64_t high = (uint64_t)words[2 * i + 1] + (low >> 32);
        limbs[i] = (low & 0xffffffffu) | (high << 32);
        carry = high >> 32;
    }
    *flag = words[6] != 0;
}
