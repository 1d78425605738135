#include "optimizer/clip.h"

#include <string.h>

/* Layout of the device block. */
struct block {
    uint64_t limbs[3];
    uint32_t flag, padding;
    float control[4];
};

shoal_status shoali_clip_init(struct shoali_clip *clip, struct shoali_device *device,
                              struct shoali_device_stream *stream)
{
    shoal_status status;
    memset(clip, 0, sizeof(*clip));
    SHOAL_TRY(status, shoali_device_alloc(device, sizeof(struct block), &clip->memory), done);
    clip->device = device;
    clip->stream = stream;
    char *base = clip->memory;
    clip->limbs = (uint64_t *)(void *)(base + offsetof(struct block, limbs));
    clip->flag = (uint32_t *)(void *)(base + offsetof(struct block, flag));
    clip->control = (float *)(void *)(base + offsetof(struct block, control));
    SHOAL_TRY(status, shoali_fill(stream, clip->memory, 0, sizeof(struct block)), done);
done:
    if (status < 0)
        shoali_clip_fini(clip);
    return status;
}

void shoali_clip_fini(struct shoali_clip *clip)
{
    if (clip->memory && clip->device)
        shoali_device_free(clip->device, clip->memory);
    memset(clip, 0, sizeof(*clip));
}

shoal_status shoali_clip_begin(struct shoali_clip *clip)
{
    return shoali_fill(clip->stream, clip->memory, 0, offsetof(struct block, control));
}

shoal_status shoali_clip_add(struct shoali_clip *clip, const struct shoali_exec *exec,
                             const float *grad, int64_t count)
{
    if (count == 0)
        return SHOAL_OK;
    struct shoali_norm2_args args = {
        .x = grad, .limbs = clip->limbs, .flag = clip->flag, .count = count};
    return shoali_op_norm2(exec, &args);
}

shoal_status shoali_clip_mark(struct shoali_clip *clip)
{
    return shoali_fill(clip->stream, clip->flag, 1, sizeof(*clip->flag));
}

shoal_status shoali_clip_take(struct shoali_clip *clip, int64_t words[SHOALI_CLIP_WORDS])
{
    shoal_status status;
    struct block block;
    SHOAL_TRY(status,
              shoali_download(clip->stream, &block, clip->memory, offsetof(struct block, control)),
              done);
    shoali_clip_split_words(block.limbs, block.flag, words);
done:
    return status;
}

shoal_status shoali_clip_put(struct shoali_clip *clip, const int64_t words[SHOALI_CLIP_WORDS])
{
    struct block block;
    memset(&block, 0, sizeof(block));
    shoali_clip_join_words(words, block.limbs, &block.flag);
    return shoali_upload(clip->stream, clip->memory, &block, offsetof(struct block, control));
}

shoal_status shoali_clip_finish(struct shoali_clip *clip, const struct shoali_exec *exec,
                                double loss_scale, double max_norm)
{
    struct shoali_clip_args args = {.limbs = clip->limbs,
                                    .flag = clip->flag,
                                    .out = clip->control,
                                    .loss_scale = loss_scale,
                                    .max_norm = max_norm};
    return shoali_op_clip(exec, &args);
}

shoal_status shoali_clip_result(struct shoali_clip *clip, struct shoali_clip_result *result)
{
    shoal_status status;
    float out[3];
    SHOAL_TRY(status, shoali_download(clip->stream, out, clip->control, sizeof(out)), done);
    result->norm = out[0];
    result->multiplier = out[1];
    result->skip = out[2] != 0;
done:
    return status;
}

void shoali_clip_split_words(const uint64_t limbs[3], uint32_t flag,
                             int64_t words[SHOALI_CLIP_WORDS])
{
    for (int i = 0; i < 3; i++) {
        words[2 * i] = (int64_t)(limbs[i] & 0xffffffffu);
        words[2 * i + 1] = (int64_t)(limbs[i] >> 32);
    }
    words[6] = flag != 0;
}

void shoali_clip_join_words(const int64_t words[SHOALI_CLIP_WORDS], uint64_t limbs[3],
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
