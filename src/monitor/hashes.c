#include "monitor/hashes.h"

#include "monitor/append.h"
#include "monitor/monitor.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- fingerprints ---- */

/* A float is mantissa * 2^(exponent - FLOAT_SHIFT). */
enum { FLOAT_SHIFT = 150, NOT_FINITE = 255, SQUARE_DROPPED = 24 };

/* A permutation of 64-bit words without structure (Stafford's mix 13). */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

void shoali_fingerprint_add(struct shoali_fingerprint *sums, int64_t *largest, int64_t first,
                            const float *values, int64_t count)
{
    uint64_t hash = 0;
    uint32_t top = (uint32_t)*largest;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        const uint64_t place = mix((uint64_t)(first + i) + 0x9E3779B97F4A7C15u);
        hash += mix(place ^ ((uint64_t)bits * 0xD1B54A32D192ED03u));
        const uint32_t magnitude = bits & 0x7FFFFFFFu;
        uint32_t exponent = magnitude >> 23;
        uint64_t mantissa = magnitude & 0x7FFFFFu;
        if (exponent == NOT_FINITE) {
            sums->nonfinite++;
            continue;
        }
        if (exponent > 0)
            mantissa |= 0x800000u;
        else
            exponent = 1;
        top = magnitude > top ? magnitude : top;
        const uint64_t term = mantissa << (exponent % 16);
        const uint64_t minus = (bits >> 31) ^ (place >> 63); /* 0 or 1 */
        sums->sketch[place % SHOALI_SKETCH_COUNTERS][exponent / 16] += (term ^ -minus) + minus;
        sums->square[exponent / 4] += mantissa * mantissa >> SQUARE_DROPPED << 2 * (exponent % 4);
    }
    sums->hash += hash;
    *largest = top;
}

void shoali_fingerprint_finish(const struct shoali_fingerprint *sums, int64_t largest,
                               struct shoali_hash *hash)
{
    const uint32_t bits = (uint32_t)largest;
    float top;
    double square = 0;
    memcpy(&top, &bits, sizeof top);
    *hash = (struct shoali_hash){
        .hash = sums->hash, .nonfinite = (int64_t)sums->nonfinite, .largest = (double)top};
    for (int i = 0; i < SHOALI_SQUARE_WORDS; i++)
        square += ldexp((double)sums->square[i], 8 * i + SQUARE_DROPPED - 2 * FLOAT_SHIFT);
    hash->norm = sqrt(square);
    for (int k = 0; k < SHOALI_SKETCH_COUNTERS; k++)
        for (int i = 0; i < SHOALI_SKETCH_WORDS; i++) {
            int64_t word;
            memcpy(&word, &sums->sketch[k][i], sizeof word);
            hash->sketch[k] += ldexp((double)word, 16 * i - FLOAT_SHIFT);
        }
}

/* ---- lines ---- */

static void append_value(struct shoali_str *out, const char *key, double value)
{
    shoali_str_append(out, ",\"%s\":", key);
    if (isfinite(value))
        shoali_append_number(out, value);
    else
        shoali_str_append(out, isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"");
}

static void append_beyond_one(struct shoali_str *out, const char *key, int64_t value)
{
    if (value > 1)
        shoali_str_append(out, ",\"%s\":%lld", key, (long long)value);
}

static void append_facts(struct shoali_str *out, const struct shoali_hashes_facts *facts)
{
    shoali_str_append(
        out,
        "{\"format\":\"shoal-hashes\",\"version\":1,\"dtype\":\"%s\","
        "\"kernels\":\"%s\",\"micro_batches\":%lld,\"tensors\":%lld,\"elements\":%lld",
        facts->dtype, facts->kernels, (long long)facts->micro_batches, (long long)facts->tensors,
        (long long)facts->elements);
    append_beyond_one(out, "tensor_splits", facts->tensor_splits);
    append_beyond_one(out, "sequence_splits", facts->sequence_splits);
    append_beyond_one(out, "accumulation", facts->accumulation);
    append_beyond_one(out, "tensor_ranks", facts->tensor_ranks);
    shoali_str_append(out, "}\n");
}

void shoali_hashes_append_step(struct shoali_str *out, const struct shoali_hashes_step *step)
{
    shoali_str_append(out, "{\"step\":%lld,\"dtype\":\"%s\",\"applied\":%s", (long long)step->step,
                      step->dtype, step->applied ? "true" : "false");
    append_value(out, "loss", step->loss);
    append_value(out, "grad_norm", step->grad_norm);
    append_value(out, "lr", step->lr);
    append_value(out, "loss_scale", step->loss_scale);
    shoali_str_append(out, "}\n");
}

void shoali_hashes_append_tensor(struct shoali_str *out, int64_t step, const char *kind,
                                 const char *tensor, int64_t count, const struct shoali_hash *hash)
{
    shoali_str_append(out, "{\"step\":%lld,\"kind\":\"%s\",\"tensor\":", (long long)step, kind);
    shoali_append_json_string(out, tensor);
    shoali_str_append(out, ",\"count\":%lld,\"hash\":\"%016llx\",\"nonfinite\":%lld",
                      (long long)count, (unsigned long long)hash->hash, (long long)hash->nonfinite);
    append_value(out, "norm", hash->norm);
    append_value(out, "largest", hash->largest);
    for (int i = 0; i < SHOALI_SKETCH_COUNTERS; i++)
        shoali_str_append(out, "%s%.17g", i ? "," : ",\"sketch\":[", hash->sketch[i]);
    shoali_str_append(out, "]}\n");
}

shoal_status shoali_hashes_write(const char *folder, bool fresh,
                                 const struct shoali_hashes_facts *facts,
                                 const struct shoali_str *text)
{
    shoal_status status = SHOAL_OK;
    struct shoali_str path = {0}, head = {0};
    const bool here = !folder || !*folder;
    if (!here)
        SHOAL_TRY(status, shoali_make_dirs(folder), done);
    shoali_str_append(&path, "%s%s%s", here ? "" : folder, here ? "" : "/", SHOALI_HASHES_FILE);
    append_facts(&head, facts);
    if (text->failed || path.failed || head.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the hashes of a step");
        goto done;
    }
    if (!shoali_append(&(struct shoali_append){.path = path.text,
                                               .fresh = fresh,
                                               .whole_bytes = SHOALI_APPEND_LINES,
                                               .head = &head,
                                               .text = text}))
        status = SHOAL_FAIL(
            SHOAL_EIO, "cannot write the hashes to %s: %s; leave `hashes` out, or make room there",
            path.text, strerror(errno));
done:
    shoali_str_fini(&path);
    shoali_str_fini(&head);
    return status;
}
