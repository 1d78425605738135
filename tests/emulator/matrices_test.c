/* Products of matrices and their fragments, on the emulator or a GPU: where elements lie, by PTX's
 * documentation, and how sums are rounded, by what an H100 gave (tests/golden/gpu). */
#include "accelerator/cuda/cuda.h"
#include "accelerator/test_arguments.h"
#include "base/test_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PRODUCTS, FRAGMENTS, KERNELS };
static struct shoali_cuda_kernel kernels[KERNELS] = {{"shoal_test_products", NULL},
                                                     {"shoal_test_fragments", NULL}};
#ifdef SHOALI_CUDA_TEST_IMAGE
SHOALI_CUDA_EMBED(test_image, SHOALI_CUDA_TEST_IMAGE);
static struct shoali_cuda_image image = {
    .code = test_image_begin, .end = test_image_end, .kernels = kernels, .kernel_count = KERNELS};
#else
static struct shoali_cuda_image image = {.kernels = kernels, .kernel_count = KERNELS};
#endif

static struct shoali_device *device;
static struct shoali_device_stream *stream;
static int64_t products;

static void *on_device(const void *from, size_t bytes)
{
    void *memory;
    ok(shoali_device_alloc(device, bytes, &memory));
    if (from != NULL)
        ok(shoali_copy(stream, memory, from, bytes, SHOALI_HOST_TO_DEVICE));
    return memory;
}

static void run_products(const void *args, const struct shoali_kernel_context *context)
{
    shoali_cuda_launch(context, &kernels[PRODUCTS], args,
                       (struct shoali_cuda_grid){.blocks = products, .threads = 32});
}
static void run_fragments(const void *args, const struct shoali_kernel_context *context)
{
    shoali_cuda_launch(context, &kernels[FRAGMENTS], args,
                       (struct shoali_cuda_grid){.blocks = 1, .threads = 32, .shared_bytes = 512});
}

struct operands {
    uint16_t a[16][16], b[16][8];
    float c[16][8];
};
struct fragments {
    uint32_t (*a)[32][4], (*b)[32][2];
    float (*c)[32][4];
};

static struct fragments take(int64_t count)
{
    struct fragments f = {malloc((size_t)count * sizeof *f.a), malloc((size_t)count * sizeof *f.b),
                          malloc((size_t)count * sizeof *f.c)};
    assert_true(f.a != NULL && f.b != NULL && f.c != NULL);
    return f;
}
static void give_back(struct fragments *f)
{
    free(f->a);
    free(f->b);
    free(f->c);
}

static void pack(const struct fragments *to, int64_t number, const struct operands *from)
{
    for (int lane = 0; lane < 32; lane++) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            const int row = g + 8 * (i % 2), k = 2 * t + 8 * (i / 2);
            to->a[number][lane][i] = from->a[row][k] | (uint32_t)from->a[row][k + 1] << 16;
            to->c[number][lane][i] = from->c[g + 8 * (i / 2)][2 * t + i % 2];
        }
        for (int i = 0; i < 2; i++) {
            const int k = 2 * t + 8 * i;
            to->b[number][lane][i] = from->b[k][g] | (uint32_t)from->b[k + 1][g] << 16;
        }
    }
}

/* Puts D in C's place. */
static void multiply(const struct fragments *f, int64_t count, bool f16)
{
    static const struct shoali_kernel_type type = {.name = "products",
                                                   .args_bytes = sizeof(struct products_args)};
    const size_t bytes = (size_t)count * sizeof *f->c;
    struct products_args args = {on_device(f->a, (size_t)count * sizeof *f->a),
                                 on_device(f->b, (size_t)count * sizeof *f->b),
                                 on_device(f->c, bytes), on_device(NULL, bytes), f16};
    products = count;
    ok(shoali_launch(stream, &type, run_products, &args));
    ok(shoali_copy(stream, f->c, args.d, bytes, SHOALI_DEVICE_TO_HOST));
    ok(shoali_stream_synchronize(stream));
    shoali_device_free(device, (void *)(uintptr_t)args.a);
    shoali_device_free(device, (void *)(uintptr_t)args.b);
    shoali_device_free(device, (void *)(uintptr_t)args.c);
    shoali_device_free(device, args.d);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* ---- rounding ---- */

static void read_numbers(const char *text, uint16_t *to)
{
    for (int k = 0; k < 16; k++) {
        unsigned value;
        assert_int_equal(sscanf(text + 4 * k, "%4x", &value), 1);
        to[k] = (uint16_t)value;
    }
}

/* Each line is one dot product, which fills all rows and columns of a product. */
static void test_rounding(void **state)
{
    enum { CASES = 9000 };
    static uint32_t want[CASES];
    static char kind[CASES][16];
    char a[80], b[80], line[256];
    unsigned c;
    int64_t count = 0;
    int wrong = 0;
    (void)state;
    if (access(GOLDEN_FOLDER "/gpu/mma.csv.xz", R_OK) != 0 ||
        system("xz --version >/dev/null 2>&1") != 0)
        skip();
    FILE *file = popen("xz -dc " GOLDEN_FOLDER "/gpu/mma.csv.xz", "r");
    assert_non_null(file);
    struct fragments f = take(CASES);
    assert_non_null(fgets(line, sizeof line, file));
    while (count < CASES && fgets(line, sizeof line, file) != NULL) {
        struct operands x;
        uint16_t row[2][16];
        float sum;
        assert_int_equal(
            sscanf(line, "%15[^,],%79[^,],%79[^,],%x,%x", kind[count], a, b, &c, &want[count]), 5);
        read_numbers(a, row[0]);
        read_numbers(b, row[1]);
        memcpy(&sum, &c, sizeof sum);
        for (int i = 0; i < 16; i++)
            for (int k = 0; k < 16; k++) {
                x.a[i][k] = row[0][k];
                x.b[k][i % 8] = row[1][k];
                x.c[i][k % 8] = sum;
            }
        pack(&f, count++, &x);
    }
    assert_int_equal(pclose(file), 0);
    assert_int_equal(count, CASES);
    multiply(&f, count, false);
    for (int i = 0; i < CASES; i++)
        for (int j = 0; j < 128; j++)
            if (bits_of(f.c[i][j / 4][j % 4]) != want[i] && wrong++ < 10)
                fprintf(stderr, "case %d (%s) lane %d: %08x, and a GPU gave %08x\n", i, kind[i],
                        j / 4, bits_of(f.c[i][j / 4][j % 4]), want[i]);
    assert_int_equal(wrong, 0);
    give_back(&f);
}

/* ---- places ---- */

static uint64_t seed = 1;
static int below(int n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((seed >> 33) % (unsigned)n);
}
/* An integer of at most 16 in size as bf16 or fp16: exact in both. */
static uint16_t short_of(int x, bool f16)
{
    int exponent = 0;
    if (x == 0)
        return 0;
    while (abs(x) >> (exponent + 1) != 0)
        exponent++;
    const uint32_t float_bits = bits_of((float)abs(x)) & 0x7fffff;
    const uint32_t bits = f16 ? (uint32_t)(exponent + 15) << 10 | float_bits >> 13
                              : (uint32_t)(exponent + 127) << 7 | float_bits >> 16;
    return (uint16_t)(bits | (x < 0 ? 0x8000u : 0));
}

/* Small integers: no sum rounds, so only the places matter. */
static void test_places(void **state)
{
    enum { COUNT = 20 };
    (void)state;
    for (int f16 = 0; f16 < 2; f16++) {
        struct fragments got = take(COUNT), want = take(COUNT);
        for (int i = 0; i < COUNT; i++) {
            struct operands x;
            int a[16][16], b[16][8];
            for (int j = 0; j < 256; j++)
                x.a[j / 16][j % 16] = short_of(a[j / 16][j % 16] = below(33) - 16, f16 != 0);
            for (int j = 0; j < 128; j++) {
                x.b[j / 8][j % 8] = short_of(b[j / 8][j % 8] = below(33) - 16, f16 != 0);
                x.c[j / 8][j % 8] = (float)(below(2001) - 1000);
            }
            pack(&got, i, &x);
            for (int j = 0; j < 128; j++)
                for (int k = 0; k < 16; k++)
                    x.c[j / 8][j % 8] += (float)(a[j / 8][k] * b[k][j % 8]);
            pack(&want, i, &x);
        }
        multiply(&got, COUNT, f16 != 0);
        assert_memory_equal(got.c, want.c, COUNT * sizeof *want.c);
        give_back(&got);
        give_back(&want);
    }
}

static void test_fragments(void **state)
{
    static const struct shoali_kernel_type type = {.name = "fragments",
                                                   .args_bytes = sizeof(struct fragments_args)};
    uint16_t rows[32][8];
    uint32_t got[32][12];
    (void)state;
    for (int i = 0; i < 256; i++)
        rows[i / 8][i % 8] = (uint16_t)(i * 257 + 1);
    struct fragments_args args = {on_device(rows, sizeof rows), on_device(NULL, sizeof got)};
    ok(shoali_launch(stream, &type, run_fragments, &args));
    ok(shoali_copy(stream, got, args.out, sizeof got, SHOALI_DEVICE_TO_HOST));
    ok(shoali_stream_synchronize(stream));
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int r = lane / 4, k = lane % 4 * 2;
            const uint32_t plain = rows[8 * i + r][k] | (uint32_t)rows[8 * i + r][k + 1] << 16;
            const uint32_t across = rows[8 * i + k][r] | (uint32_t)rows[8 * i + k + 1][r] << 16;
            assert_int_equal(got[lane][i], plain);
            assert_int_equal(got[lane][4 + i], across);
            if (i < 2)
                assert_int_equal(got[lane][8 + i], plain);
            if (i < 2)
                assert_int_equal(got[lane][10 + i], across);
        }
    shoali_device_free(device, (void *)(uintptr_t)args.rows);
    shoali_device_free(device, args.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounding),
                                       cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_fragments)};
    if (!shoali_accelerator_cuda.probe() || !shoali_cuda_load(&image)) {
        printf("skipped: there is no GPU, or no kernels for one\n");
        return 77;
    }
    if (shoali_device_create(&shoali_accelerator_cuda, 0, NULL, &device) != SHOAL_OK ||
        shoali_stream_create(device, &stream) != SHOAL_OK) {
        fprintf(stderr, "%s\n", shoal_error_message());
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    shoali_stream_destroy(stream);
    shoali_device_destroy(device);
    return failed;
}
