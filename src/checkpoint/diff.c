/* Two checkpoints side by side. Tensors are found by name in the files' own headers, so files may
 * be cut at different places. */
#include "checkpoint/checkpoint_internal.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AT_ONCE_BYTES = 1 << 20 };

/* One tensor of a kind: where its bytes are. */
struct located {
    const char *name;
    shoal_shape shape;
    const struct shoali_checkpoint_file *file;
    int64_t at; /* byte of the file */
};
struct side {
    const char *folder;
    json_t *manifest;
    char *tag;
    struct shoali_checkpoint_plan plan;
    struct located *tensor; /* of the kind in `plan`, sorted by name */
    int32_t tensor_count;
};
/* What is known of one kind's differences. */
struct findings {
    const char *tensor; /* of the first in A's order; NULL: none */
    int64_t element, count, elements;
    uint64_t largest_ulp;
    double largest; /* difference */
};
struct diff {
    struct shoali_arena arena;
    struct side side[2];
    char *buffer[2]; /* AT_ONCE_BYTES */
    struct shoali_str *out;
    bool equal;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct located *)a)->name, ((const struct located *)b)->name);
}

/* ---- where things are ---- */

static shoal_status add_file(struct diff *diff, struct side *side,
                             struct shoali_checkpoint_file *file)
{
    shoal_status status;
    int descriptor = -1;
    struct shoali_safetensors_entry *entries = NULL;
    int32_t count = 0;
    file->path = shoali_checkpoint_path(&diff->arena, side->folder, "", file->name);
    if (!file->path)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoali_checkpoint_open_file(file, &descriptor), done);
    SHOAL_TRY(status, shoali_checkpoint_read_head(file, descriptor, &diff->arena, &entries, &count),
              done);
    struct located *grown =
        shoali_arena_alloc(&diff->arena, (size_t)(side->tensor_count + count + 1) * sizeof *grown);
    if (!grown) {
        status = SHOAL_ENOMEM;
        goto done;
    }
    if (side->tensor_count > 0)
        memcpy(grown, side->tensor, (size_t)side->tensor_count * sizeof *grown);
    side->tensor = grown;
    for (int32_t i = 0; i < count; i++)
        grown[side->tensor_count++] = (struct located){entries[i].name, entries[i].shape, file,
                                                       file->data_start + entries[i].begin};
done:
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

/* Of a kind that both have: files and tensors of one side. */
static shoal_status locate(struct diff *diff, struct side *side,
                           const struct shoali_checkpoint_kind *kind)
{
    shoal_status status;
    side->tensor = NULL;
    side->tensor_count = 0;
    SHOAL_TRY(status, shoali_manifest_plan(side->manifest, kind, &diff->arena, &side->plan), done);
    for (int32_t f = 0; f < side->plan.file_count; f++)
        SHOAL_TRY(status, add_file(diff, side, &side->plan.file[f]), done);
done:
    return status;
}

/* ---- elements ---- */

static uint64_t load_bits(const char *at, int64_t item)
{
    uint64_t bits = 0;
    memcpy(&bits, at, (size_t)item); /* files are little endian, as are all machines we run on */
    return bits;
}

/* How many representable values lie between two floats; bits as numbers for integers. */
static uint64_t ulp_between(uint64_t a, uint64_t b, int64_t item, bool floating)
{
    const uint64_t sign = (uint64_t)1 << (8 * item - 1);
    if (floating && ((a ^ b) & sign))
        return (a & ~sign) + (b & ~sign);
    return a > b ? a - b : b - a;
}

static double value_of(uint64_t bits, shoal_dtype dtype)
{
    const uint32_t low = (uint32_t)bits;
    float single;
    double value;
    switch (dtype) {
    case SHOAL_F64:
        memcpy(&value, &bits, sizeof value);
        return value;
    case SHOAL_F32:
        memcpy(&single, &low, sizeof single);
        return (double)single;
    case SHOAL_BF16:
        return (double)shoali_bf16_to_f32((uint16_t)bits);
    case SHOAL_F16:
        return (double)shoali_f16_to_f32((uint16_t)bits);
    default:
        return (double)bits;
    }
}

static void compare_bytes(struct diff *diff, struct findings *findings, const char *tensor,
                          int64_t first, int64_t bytes, shoal_dtype dtype)
{
    const int64_t item = (int64_t)shoal_dtype_bytes(dtype);
    const bool floating =
        dtype == SHOAL_F32 || dtype == SHOAL_F64 || dtype == SHOAL_BF16 || dtype == SHOAL_F16;
    if (memcmp(diff->buffer[0], diff->buffer[1], (size_t)bytes) == 0)
        return;
    for (int64_t i = 0; i < bytes / item; i++) {
        const uint64_t a = load_bits(diff->buffer[0] + i * item, item);
        const uint64_t b = load_bits(diff->buffer[1] + i * item, item);
        if (a == b)
            continue;
        const uint64_t ulp = ulp_between(a, b, item, floating);
        if (!findings->tensor) {
            findings->tensor = tensor;
            findings->element = first + i;
        }
        const double difference = fabs(value_of(a, dtype) - value_of(b, dtype));
        findings->largest = difference > findings->largest ? difference : findings->largest;
        findings->count++;
        findings->largest_ulp = ulp > findings->largest_ulp ? ulp : findings->largest_ulp;
    }
}

static shoal_status compare_tensor(struct diff *diff, const struct located *const pair[2],
                                   shoal_dtype dtype, struct findings *findings)
{
    shoal_status status = SHOAL_OK;
    int descriptor[2] = {-1, -1};
    const int64_t item = (int64_t)shoal_dtype_bytes(dtype);
    const int64_t bytes = shoal_shape_count(&pair[0]->shape) * item;
    findings->elements += bytes / item;
    for (int s = 0; s < 2; s++)
        SHOAL_TRY(status, shoali_checkpoint_open_file(pair[s]->file, &descriptor[s]), done);
    for (int64_t at = 0; at < bytes; at += AT_ONCE_BYTES) {
        const int64_t part = bytes - at < AT_ONCE_BYTES ? bytes - at : AT_ONCE_BYTES;
        for (int s = 0; s < 2; s++)
            SHOAL_TRY(status,
                      shoali_checkpoint_pread(descriptor[s], pair[s]->file->path, diff->buffer[s],
                                              part, pair[s]->at + at),
                      done);
        compare_bytes(diff, findings, pair[0]->name, at / item, part, dtype);
    }
done:
    for (int s = 0; s < 2; s++)
        if (descriptor[s] >= 0)
            close(descriptor[s]);
    return status;
}

/* ---- kinds ---- */

static void unequal(struct diff *diff, const char *kind, const char *tensor, const char *what)
{
    shoali_str_append(diff->out, "%s: `%s` %s\n", kind, tensor, what);
    diff->equal = false;
}

static shoal_status compare_tensors(struct diff *diff, const char *kind, shoal_dtype dtype)
{
    shoal_status status = SHOAL_OK;
    struct findings findings = {0};
    struct side *a = &diff->side[0], *b = &diff->side[1];
    int32_t shared = 0;
    qsort(b->tensor, (size_t)b->tensor_count, sizeof *b->tensor, by_name);
    for (int32_t i = 0; i < a->tensor_count; i++) {
        const struct located *mine = &a->tensor[i];
        const struct located *other =
            bsearch(mine, b->tensor, (size_t)b->tensor_count, sizeof *mine, by_name);
        shared += other != NULL;
        if (!other)
            unequal(diff, kind, mine->name, "is only in the first");
        else if (!shoali_shape_equal(&mine->shape, &other->shape))
            unequal(diff, kind, mine->name, "has another shape in the second");
        else
            SHOAL_TRY(status,
                      compare_tensor(diff, (const struct located *const[2]){mine, other}, dtype,
                                     &findings),
                      done);
    }
    if (shared < b->tensor_count) {
        shoali_str_append(diff->out, "%s: %d tensor%s only in the second\n", kind,
                          (int)(b->tensor_count - shared),
                          b->tensor_count - shared == 1 ? " is" : "s are");
        diff->equal = false;
    }
    if (findings.tensor) {
        shoali_str_append(diff->out,
                          "%s: first difference in `%s`, element %lld; %lld of %lld elements "
                          "differ, by at most %.3g or %llu units in the last place\n",
                          kind, findings.tensor, (long long)findings.element,
                          (long long)findings.count, (long long)findings.elements, findings.largest,
                          (unsigned long long)findings.largest_ulp);
        diff->equal = false;
    }
done:
    return status;
}

static shoal_status compare_kinds(struct diff *diff)
{
    shoal_status status = SHOAL_OK;
    struct shoali_checkpoint_info info[2] = {{0}, {0}};
    for (int s = 0; s < 2; s++)
        SHOAL_TRY(status, shoali_manifest_info(diff->side[s].manifest, &info[s]), done);
    for (int s = 0; s < 2; s++)
        for (int32_t k = 0; k < info[s].kind_count; k++) {
            const struct shoali_checkpoint_info *other = &info[1 - s];
            const struct shoali_checkpoint_kind kind = {.name = info[s].kind_name[k],
                                                        .dtype = info[s].kind_dtype[k]};
            int32_t o = 0;
            while (o < other->kind_count && strcmp(other->kind_name[o], kind.name) != 0)
                o++;
            const bool shared = o < other->kind_count && other->kind_dtype[o] == kind.dtype;
            if (!shared) {
                shoali_str_append(diff->out, "%s in %s: only in the %s\n", kind.name,
                                  shoal_dtype_name(kind.dtype), s == 0 ? "first" : "second");
                diff->equal = false;
            } else if (s == 0) {
                for (int side = 0; side < 2; side++)
                    SHOAL_TRY(status, locate(diff, &diff->side[side], &kind), done);
                SHOAL_TRY(status, compare_tensors(diff, kind.name, kind.dtype), done);
            }
        }
done:
    for (int s = 0; s < 2; s++)
        shoali_checkpoint_info_fini(&info[s]);
    return status;
}

shoal_status shoali_checkpoint_diff(const char *const dirs[2], const char *const tags[2],
                                    struct shoali_str *out, bool *equal)
{
    shoal_status status = SHOAL_OK;
    struct diff diff = {.out = out, .equal = true};
    shoali_arena_init(&diff.arena);
    for (int s = 0; s < 2; s++) {
        struct side *side = &diff.side[s];
        SHOAL_TRY(status,
                  shoali_checkpoint_find(dirs[s], tags[s], true, &side->tag, &side->manifest),
                  done);
        side->folder = shoali_checkpoint_path(&diff.arena, dirs[s], side->tag, "");
        diff.buffer[s] = shoali_arena_alloc(&diff.arena, AT_ONCE_BYTES);
        if (!side->folder || !diff.buffer[s]) {
            status = SHOAL_ENOMEM;
            goto done;
        }
        shoali_str_append(out, "%s: step %lld\n", side->folder,
                          (long long)shoali_manifest_step(side->manifest));
    }
    SHOAL_TRY(status, compare_kinds(&diff), done);
    if (diff.equal)
        shoali_str_append(out, "equal: every bit of every tensor\n");
    *equal = diff.equal;
done:
    for (int s = 0; s < 2; s++) {
        json_decref(diff.side[s].manifest);
        free(diff.side[s].tag);
    }
    shoali_arena_fini(&diff.arena);
    return status;
}
