/* Selection of tables, the report, the checks of the fronts, and launches on every accelerator. */
#include "base/base.h"
#include "base/scratch.h"
#include "base/test_cmocka.h"
#include "ops/cpu_rules.h"
#include "ops/kernel.h"

#include <stdint.h>
#include <string.h>

#include <stdlib.h>

/* ---- selection ---- */

static void test_select(void **state)
{
    (void)state;
    struct shoali_ops ops;
    assert_int_equal(unsetenv("SHOAL_OPS"), 0);
    assert_int_equal(shoali_ops_select("ref", NULL, &ops), SHOAL_OK);
    assert_ptr_equal(ops.chain[0], &shoali_ops_ref);
    assert_null(ops.chain[1]);
    assert_string_equal(ops.name, "ref");
    /* Each built table by name: it comes first, worse ones follow, ref is last. */
    for (int i = 0; shoali_ops_all()[i] != NULL; i++) {
        const struct shoali_ops_table *table = shoali_ops_all()[i];
        if (table->memory == NULL && !table->probe()) {
            assert_int_equal(shoali_ops_select(table->name, NULL, &ops), SHOAL_EUNSUPPORTED);
            continue;
        }
        assert_int_equal(shoali_ops_select(table->name, NULL, &ops), SHOAL_OK);
        assert_true((ops.chain[0] == table) == (table->memory == NULL)); /* staged_test.c */
        int last = 0;
        while (ops.chain[last + 1] != NULL)
            last++;
        assert_ptr_equal(ops.chain[last], &shoali_ops_ref);
    }
    assert_int_equal(shoali_ops_select("cpu-abacus", NULL, &ops), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "ref"));
    shoali_error_clear();
}

static void test_select_by_environment(void **state)
{
    (void)state;
    struct shoali_ops ops;
    assert_int_equal(setenv("SHOAL_OPS", "ref", 1), 0);
    assert_int_equal(shoali_ops_select(NULL, NULL, &ops), SHOAL_OK);
    assert_string_equal(ops.name, "ref");
    assert_int_equal(setenv("SHOAL_OPS", "reff", 1), 0);
    assert_int_equal(shoali_ops_select(NULL, NULL, &ops), SHOAL_ECONFIG);
    assert_int_equal(setenv("SHOAL_OPS", "", 1), 0);
    assert_int_equal(shoali_ops_select(NULL, NULL, &ops), SHOAL_OK);
    const struct shoali_cpu cpu = shoali_cpu_get();
    int best = 0;
    while (shoali_ops_all()[best]->memory != NULL || shoali_ops_all()[best]->by_name ||
           !shoali_ops_all()[best]->probe() ||
           shoali_ops_refusal(shoali_ops_rules, &cpu, shoali_ops_all()[best]) != NULL)
        best++;
    assert_string_equal(ops.name, shoali_ops_all()[best]->name);
    assert_int_equal(unsetenv("SHOAL_OPS"), 0);
    shoali_error_clear();
}

static void test_report(void **state)
{
    (void)state;
    struct shoali_ops ops;
    struct shoali_str text = {0};
    bool partly;
    assert_int_equal(shoali_ops_select(NULL, NULL, &ops), SHOAL_OK);
    for (int32_t i = 0; i < ops.kernel_count; i++) {
        assert_true(strlen(shoali_ops_kernel_name(&ops, i)) > 0);
        assert_string_equal(shoali_ops_kernel_source(&ops, i, SHOAL_F64, &partly), "ref");
        assert_false(partly);
        assert_non_null(shoali_ops_kernel_source(&ops, i, SHOAL_F32, &partly));
    }
    shoali_ops_describe_fallbacks(&ops, &text);
    if (ops.chain[1] != NULL)
        assert_string_equal(shoali_str_get(&text), "loss_mean, cross_entropy_join, clip to ref; "
                                                   "copy_strided, reduce_sources for some "
                                                   "arguments");
    shoali_str_fini(&text);
    assert_int_equal(shoali_ops_select("ref", NULL, &ops), SHOAL_OK);
    shoali_ops_describe_fallbacks(&ops, &text);
    assert_string_equal(shoali_str_get(&text), "none");
    shoali_str_fini(&text);
}

/* ---- choice ---- */

static bool yes(void)
{
    return true;
}
static void never(const void *args, const struct shoali_kernel_context *context)
{
    (void)args;
    (void)context;
    fail_msg("a function ran that should not have");
}
static void pack_wrongly(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_pack_b_args *pack = args;
    (void)context;
    memset(pack->packed, 0x7f, (size_t)(pack->n * pack->k) * 4);
}
static size_t packed_bytes(int64_t n, int64_t k, shoal_dtype dtype)
{
    return (size_t)(n * k) * shoal_dtype_bytes(dtype);
}
static bool wide_products(const void *args)
{
    return ((const struct shoali_gemm_args *)args)->m >= 100;
}
/* A table with a few kernels, one of them for a type and for wide matrices alone. */
static const struct shoali_ops_entry partial_entries[] = {
    {&shoali_kernel_gemm, never, 1u << SHOAL_F32, wide_products, NULL},
    {&shoali_kernel_pack_b, pack_wrongly, 1u << SHOAL_F32, NULL, NULL},
    {&shoali_kernel_axpy, never, 1u << SHOAL_BF16, NULL, NULL},
    {&shoali_kernel_adam, never, 1u << SHOAL_F32, NULL, NULL},
};
static const struct shoali_ops_table partial = {.abi = SHOALI_OPS_ABI,
                                                .bytes = sizeof partial,
                                                .name = "partial",
                                                .probe = yes,
                                                .entries = partial_entries,
                                                .entry_count = 4,
                                                .packed_b_bytes = packed_bytes};
static const struct shoali_ops_table *const with_partial[] = {&partial, &shoali_ops_ref, NULL};

static const char *chosen(const struct shoali_ops *ops, const struct shoali_kernel *kernel,
                          const void *args)
{
    const struct shoali_ops_table *table = NULL;
    assert_non_null(shoali_ops_choose(ops, kernel, args, &table));
    return table->name;
}

static void test_choice(void **state)
{
    (void)state;
    struct shoali_ops ops;
    struct shoali_str text = {0};
    assert_int_equal(shoali_ops_select_from(with_partial, NULL, NULL, &ops), SHOAL_OK);
    assert_string_equal(ops.name, "partial");
    struct shoali_gemm_args gemm = {.m = 100};
    assert_string_equal(chosen(&ops, &shoali_kernel_gemm, &gemm), "partial");
    gemm.m = 99;
    assert_string_equal(chosen(&ops, &shoali_kernel_gemm, &gemm), "ref");
    gemm = (struct shoali_gemm_args){.m = 100, .dtype_ab = SHOAL_BF16};
    assert_string_equal(chosen(&ops, &shoali_kernel_gemm, &gemm), "ref");
    gemm = (struct shoali_gemm_args){.m = 100, .c = &gemm, .dtype_c = SHOAL_BF16};
    assert_string_equal(chosen(&ops, &shoali_kernel_gemm, &gemm), "partial"); /* by a and b alone */
    struct shoali_adam_args adam = {.low_dtype = SHOAL_BF16};
    assert_string_equal(chosen(&ops, &shoali_kernel_adam, &adam), "partial");
    adam.low = &adam; /* only now there is an array of that type */
    assert_string_equal(chosen(&ops, &shoali_kernel_adam, &adam), "ref");
    struct shoali_axpy_args axpy = {.dtype = SHOAL_F32};
    assert_string_equal(chosen(&ops, &shoali_kernel_axpy, &axpy), "ref");
    axpy.dtype = SHOAL_BF16;
    assert_string_equal(chosen(&ops, &shoali_kernel_axpy, &axpy), "partial");
    shoali_ops_describe_fallbacks(&ops, &text);
    assert_non_null(strstr(shoali_str_get(&text), "norm, norm_backward, rotary, attention"));
    assert_non_null(strstr(shoali_str_get(&text), " to ref; gemm for some arguments"));
    assert_null(strstr(shoali_str_get(&text), "axpy"));
    shoali_str_fini(&text);
}

/* ---- launches ---- */

struct fixture {
    struct shoali_ops ops;
    struct shoali_device *device;
    struct shoali_exec exec;
};

static void open_fixture(struct fixture *f, const struct shoali_accelerator *accelerator)
{
    assert_int_equal(setenv("SHOAL_SIM_BYTES", "268435456", 1), 0);
    assert_int_equal(shoali_ops_select(NULL, NULL, &f->ops), SHOAL_OK);
    assert_int_equal(shoali_device_create(accelerator, 0, NULL, &f->device), SHOAL_OK);
    f->exec.ops = &f->ops;
    assert_int_equal(shoali_stream_create(f->device, &f->exec.stream), SHOAL_OK);
}
static void close_fixture(struct fixture *f)
{
    shoali_stream_destroy(f->exec.stream);
    shoali_device_destroy(f->device);
    assert_int_equal(unsetenv("SHOAL_SIM_BYTES"), 0);
}
static void *put(struct fixture *f, const void *host, size_t bytes)
{
    void *device;
    assert_int_equal(shoali_device_alloc(f->device, bytes, &device), SHOAL_OK);
    assert_int_equal(shoali_upload(f->exec.stream, device, host, bytes), SHOAL_OK);
    return device;
}
static void take(struct fixture *f, void *device, void *host, size_t bytes)
{
    assert_int_equal(shoali_download(f->exec.stream, host, device, bytes), SHOAL_OK);
    shoali_device_free(f->device, device);
}

static void check_gemm_and_adam(struct fixture *f)
{
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 1, 1}, bias[2] = {10, 20};
    const float want[4] = {14, 25, 20, 31};
    float c[4] = {0};
    struct shoali_gemm_args gemm = {.a = put(f, a, sizeof a),
                                    .b = put(f, b, sizeof b),
                                    .c = put(f, c, sizeof c),
                                    .bias = put(f, bias, sizeof bias),
                                    .m = 2,
                                    .n = 2,
                                    .k = 3,
                                    .lda = 3,
                                    .ldb = 2,
                                    .ldc = 2};
    assert_int_equal(shoali_op_gemm(&f->exec, &gemm), SHOAL_OK);
    take(f, gemm.c, c, sizeof c);
    assert_memory_equal(c, want, sizeof c);
    shoali_device_free(f->device, (void *)(uintptr_t)gemm.a);
    shoali_device_free(f->device, (void *)(uintptr_t)gemm.b);
    shoali_device_free(f->device, (void *)(uintptr_t)gemm.bias);

    const float p[2] = {1, 2}, g[2] = {0.5f, -0.5f}, zero[2] = {0, 0}, control[3] = {0, 2, 0};
    uint16_t low[2] = {0, 0};
    float got[2];
    struct shoali_adam_args adam = {.param = put(f, p, sizeof p),
                                    .exp_avg = put(f, zero, sizeof zero),
                                    .exp_avg_sq = put(f, zero, sizeof zero),
                                    .grad = put(f, g, sizeof g),
                                    .control = put(f, control, sizeof control),
                                    .low = put(f, low, sizeof low),
                                    .count = 2,
                                    .beta1 = 0.5f,
                                    .beta2 = 0.75f,
                                    .step_size = 0.25f,
                                    .inv_sqrt_c2 = 1,
                                    .low_dtype = SHOAL_BF16};
    assert_int_equal(shoali_op_adam(&f->exec, &adam), SHOAL_OK);
    take(f, adam.low, low, sizeof low);
    take(f, adam.param, got, sizeof got);
    take(f, adam.exp_avg, c, sizeof got);
    /* m = 0.5 g, v = 0.25 g^2, so the step is 0.25 in the gradient's direction. */
    assert_true(got[0] == 0.75f && got[1] == 2.25f && c[0] == 0.5f);
    assert_int_equal(low[1], shoali_f32_to_bf16(2.25f));
    shoali_device_free(f->device, adam.exp_avg_sq);
    shoali_device_free(f->device, (void *)(uintptr_t)adam.grad);
    shoali_device_free(f->device, (void *)(uintptr_t)adam.control);
}

static void test_launch(void **state)
{
    (void)state;
    for (int i = 0; shoali_accelerator_all()[i] != NULL; i++) {
        struct fixture f;
        if (!shoali_accelerator_all()[i]->probe())
            continue;
        open_fixture(&f, shoali_accelerator_all()[i]);
        check_gemm_and_adam(&f);
        close_fixture(&f);
    }
}

/* A packed B is of the layout of the table that packs it: another table's product reads B. */
static void test_packed_by_another(void **state)
{
    (void)state;
    const float a[2] = {2, 3}, b[2] = {5, 7};
    float c[1] = {0}, packed[2];
    struct fixture f;
    open_fixture(&f, &shoali_accelerator_cpu);
    assert_int_equal(shoali_ops_select_from(with_partial, NULL, NULL, &f.ops), SHOAL_OK);
    assert_int_equal(shoali_op_packed_b_bytes(&f.ops, 1, 2, SHOAL_F32), 8);
    assert_int_equal(shoali_op_packed_b_bytes(&f.ops, 1, 2, SHOAL_BF16), 0);
    assert_int_equal(shoali_op_pack_b(&f.exec,
                                      &(struct shoali_pack_b_args){
                                          .b = b, .packed = packed, .n = 1, .k = 2, .ldb = 1}),
                     SHOAL_OK);
    const struct shoali_gemm_args gemm = {.a = a,
                                          .b = b,
                                          .c = c,
                                          .packed_b = packed,
                                          .m = 1,
                                          .n = 1,
                                          .k = 2,
                                          .lda = 2,
                                          .ldb = 1,
                                          .ldc = 1};
    assert_int_equal(shoali_op_gemm(&f.exec, &gemm), SHOAL_OK);
    assert_true(c[0] == 31);
    close_fixture(&f);
}

static void test_reduce_sources(void **state)
{
    (void)state;
    const float a[3] = {1, 2, 3}, b[3] = {4, 5, 6};
    float y[3] = {0};
    struct shoali_reduce_sources_args args = {
        .x = {a, b}, .sources = 2, .y = {y}, .destinations = 1, .count = 3};
    struct fixture f;
    open_fixture(&f, &shoali_accelerator_cpu);
    shoali_host_reduce(&f.ops, &args);
    assert_true(y[0] == 5 && y[1] == 7 && y[2] == 9);
    args.op = SHOALI_AVG;
    shoali_host_reduce(&f.ops, &args);
    assert_true(y[0] == 2.5f && y[1] == 3.5f && y[2] == 4.5f);
    close_fixture(&f);
}

/* ---- checks ---- */

#define REFUSED(call, words)                                   \
    do {                                                       \
        assert_int_equal(call, SHOAL_EINVAL);                  \
        assert_non_null(strstr(shoal_error_message(), words)); \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    float x[16] = {0};
    struct fixture f;
    open_fixture(&f, &shoali_accelerator_cpu);
    struct shoali_gemm_args gemm = {
        .a = x, .b = x, .c = x, .m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2};
    assert_int_equal(shoali_op_gemm(&f.exec, &gemm), SHOAL_OK);
    gemm.m = -1;
    REFUSED(shoali_op_gemm(&f.exec, &gemm), "m is -1");
    gemm.m = 2;
    gemm.lda = 1;
    REFUSED(shoali_op_gemm(&f.exec, &gemm), "lda is 1");
    gemm.lda = 2;
    gemm.c = NULL;
    REFUSED(shoali_op_gemm(&f.exec, &gemm), "c is NULL");
    gemm.c = x;
    gemm.dtype_c = SHOAL_F16;
    REFUSED(shoali_op_gemm(&f.exec, &gemm), "dtype_c is F16");
    gemm.dtype_ab = SHOAL_I32;
    REFUSED(shoali_op_gemm(&f.exec, &gemm), "dtype_ab is I32");
    struct shoali_norm_args norm = {.x = x, .gamma = x, .y = x, .rstd = x, .rows = 1, .columns = 1};
    REFUSED(shoali_op_norm(&f.exec, &norm), "mean is NULL");
    norm.rms = 1;
    assert_int_equal(shoali_op_norm(&f.exec, &norm), SHOAL_OK);
    struct shoali_gemm_args sums = {
        .a = x, .b = x, .m = 1, .n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1};
    REFUSED(shoali_op_gemm(&f.exec, &sums), "c is NULL");
    sums.fixed = (void *)x;
    REFUSED(shoali_op_gemm(&f.exec, &sums), "flag is NULL");
    sums.flag = (void *)x;
    sums.unit_log2 = 44;
    sums.limit = 0x1p20;
    REFUSED(shoali_op_gemm(&f.exec, &sums), "63 bits");
    sums.limit = 0x1p15;
    sums.c = x;
    REFUSED(shoali_op_gemm(&f.exec, &sums), "in the place of c; c is given, too");
    sums.c = NULL;
    sums.bias = x;
    REFUSED(shoali_op_gemm(&f.exec, &sums), "there is a bias");
    sums.bias = NULL;
    sums.dtype_c = SHOAL_BF16;
    REFUSED(shoali_op_gemm(&f.exec, &sums), "dtype_c is not F32");
    sums.dtype_c = SHOAL_F32;
    sums.dtype_ab = SHOAL_F64;
    REFUSED(shoali_op_gemm(&f.exec, &sums), "the operands are F64");
    struct shoali_axpy_args axpy = {.y = x, .count = INT64_MIN};
    REFUSED(shoali_op_axpy(&f.exec, &axpy), "count");
    struct shoali_reduce_args reduce = {
        .x = x, .y = x, .outer = INT64_MAX / 2, .reduced = 3, .inner = 1};
    REFUSED(shoali_op_reduce(&f.exec, &reduce), "beyond 64 bits");
    struct shoali_binary_args binary = {.a = x, .b = x, .y = x, .count = 4, .b_count = 3};
    REFUSED(shoali_op_binary(&f.exec, &binary), "divide");
    struct shoali_dropout_args dropout = {.x = x, .y = x, .count = 4, .probability = 1.0f};
    REFUSED(shoali_op_dropout(&f.exec, &dropout), "probability");
    struct shoali_attention_args attention = {.heads = 3, .kv_heads = 2, .head_size = 1};
    REFUSED(shoali_op_attention(&f.exec, &attention), "multiple of kv_heads");
    struct shoali_attention_args window = {.heads = 1, .kv_heads = 1, .head_size = 1, .window = 4};
    window.q_stride = window.kv_stride = window.out_stride = 1;
    REFUSED(shoali_op_attention(&f.exec, &window), "only causal");
    struct shoali_convert_args convert = {x, x, 4, SHOAL_F32, SHOAL_BF16};
    REFUSED(shoali_op_convert(&f.exec, &convert), "in place");
    struct shoali_to_fixed_args fixed = {.unit_log2 = 44, .limit = 0x1p20};
    REFUSED(shoali_op_to_fixed(&f.exec, &fixed), "63 bits");
    struct shoali_quantize_args quantize = {.bits = 5};
    REFUSED(shoali_op_quantize(&f.exec, &quantize), "give 4 or 8");
    struct shoali_dequantize_args dequantize = {.count = 1, .bits = 8};
    REFUSED(shoali_op_dequantize(&f.exec, &dequantize), "message is NULL");
    struct shoali_cross_entropy_tile_args tile = {
        .rows = 2, .columns = 5, .stride = 5, .first = 8, .vocabulary = 12, .dtype = SHOAL_F32};
    REFUSED(shoali_op_cross_entropy_tile(&f.exec, &tile), "vocabulary - first is 4");
    struct shoali_cross_entropy_tile_backward_args tile_back = {.rows = 2,
                                                                .columns = 5,
                                                                .stride = 5,
                                                                .stride_out = 5,
                                                                .dtype = SHOAL_F64,
                                                                .dtype_out = SHOAL_BF16};
    REFUSED(shoali_op_cross_entropy_tile_backward(&f.exec, &tile_back),
            "with F64 both must be F64");
    struct shoali_clip_args clip = {.loss_scale = 0};
    bool empty;
    REFUSED(shoali_kernel_check(&shoali_kernel_clip, &clip, &empty), "loss scale");
    struct shoali_reduce_sources_args sources = {.x = {x}, .sources = 1, .op = SHOALI_BOR};
    REFUSED(shoali_kernel_check(&shoali_kernel_reduce_sources, &sources, &empty), "no bitwise or");
    sources.op = SHOALI_SUM;
    sources.count = 1;
    sources.sources = 65;
    REFUSED(shoali_kernel_check(&shoali_kernel_reduce_sources, &sources, &empty), "x[1] of 65");
    struct shoali_copy_strided_args copy = {.x = x, .y = x, .ndim = 6};
    REFUSED(shoali_op_copy_strided(&f.exec, &copy), "ndim");
    close_fixture(&f);
    shoali_error_clear();
}

/* Zero elements: fine with NULL everywhere, and nothing is launched. */
static void test_empty(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, &shoali_accelerator_cpu);
    assert_int_equal(shoali_op_gemm(&f.exec,
                                    &(struct shoali_gemm_args){
                                        .m = 0, .n = 3, .k = 3, .lda = 3, .ldb = 3, .ldc = 3}),
                     SHOAL_OK);
    assert_int_equal(shoali_op_norm(&f.exec, &(struct shoali_norm_args){.columns = 3}), SHOAL_OK);
    assert_int_equal(
        shoali_op_norm_backward(&f.exec, &(struct shoali_norm_backward_args){.rows = 3}), SHOAL_OK);
    assert_int_equal(shoali_op_attention(&f.exec, &(struct shoali_attention_args){.heads = 1,
                                                                                  .kv_heads = 1,
                                                                                  .head_size = 1,
                                                                                  .q_stride = 1,
                                                                                  .kv_stride = 1,
                                                                                  .out_stride = 1}),
                     SHOAL_OK);
    assert_int_equal(shoali_op_embedding(&f.exec, &(struct shoali_embedding_args){.columns = 3}),
                     SHOAL_OK);
    assert_int_equal(shoali_op_cross_entropy(&f.exec, &(struct shoali_cross_entropy_args){0}),
                     SHOAL_OK);
    assert_int_equal(shoali_op_softmax(&f.exec, &(struct shoali_softmax_args){0}), SHOAL_OK);
    assert_int_equal(shoali_op_unary(&f.exec, &(struct shoali_unary_args){.backward = 1}),
                     SHOAL_OK);
    assert_int_equal(shoali_op_binary(&f.exec, &(struct shoali_binary_args){0}), SHOAL_OK);
    assert_int_equal(shoali_op_broadcast(&f.exec, &(struct shoali_broadcast_args){.outer = 2}),
                     SHOAL_OK);
    assert_int_equal(shoali_op_copy_strided(&f.exec, &(struct shoali_copy_strided_args){.ndim = 1}),
                     SHOAL_OK);
    assert_int_equal(
        shoali_op_convert(&f.exec, &(struct shoali_convert_args){.dtype_out = SHOAL_BF16}),
        SHOAL_OK);
    assert_int_equal(shoali_op_norm2(&f.exec, &(struct shoali_norm2_args){0}), SHOAL_OK);
    assert_int_equal(shoali_op_adam(&f.exec, &(struct shoali_adam_args){0}), SHOAL_OK);
    shoali_host_reduce(&f.ops,
                       &(struct shoali_reduce_sources_args){.sources = 1, .destinations = 1});
    struct shoali_device_counters counters;
    shoali_device_get_counters(f.device, &counters);
    assert_int_equal(counters.launch_count, 0);
    /* But what is overwritten by a sum of nothing is launched. */
    float y[2] = {7, 7};
    assert_int_equal(
        shoali_op_reduce(&f.exec, &(struct shoali_reduce_args){.y = y, .outer = 2, .inner = 1}),
        SHOAL_OK);
    assert_true(y[0] == 0 && y[1] == 0);
    assert_int_equal(shoali_op_norm_backward(
                         &f.exec, &(struct shoali_norm_backward_args){.dgamma = y, .columns = 1}),
                     SHOAL_OK);
    close_fixture(&f);
}

/* A product whose caller goes on alone, because the pool is another's, works in what it would have
 * worked in with the pool, and gives the same bits. */
static bool check_alone(struct shoali_device *device, const struct shoali_ops_entry *entry,
                        struct shoali_gemm_args *args)
{
    enum { BYTES = 256 * 900 * 4 };
    static unsigned char c[2][BYTES];
    const struct shoali_kernel_context alone = {.device = device};
    struct shoali_kernel_context pool = alone;
    pool.threads = shoali_device_pool(device);
    assert_true((size_t)(args->m * args->n) * 4 <= BYTES);
    memset(c, 0, sizeof c);
    args->c = c[0];
    entry->fn(args, &pool);
    args->c = c[1];
    shoali_scratch_forget_asked();
    entry->fn(args, &alone);
    assert_int_equal(shoali_scratch_asked(), entry->workspace(args, 3));
    assert_memory_equal(c[0], c[1], BYTES);
    return entry->workspace(args, 1) != entry->workspace(args, 3);
}

static void test_alone(void **state)
{
    static float a[256 * 700], b[700 * 900];
    static const int64_t sizes[][3] = {{130, 900, 200}, {256, 300, 700}, {250, 64, 64}};
    struct shoali_pool *pool;
    struct shoali_device *device;
    int differing = 0;
    (void)state;
    assert_int_equal(shoali_pool_create(3, &pool), SHOAL_OK);
    assert_int_equal(shoali_device_create(&shoali_accelerator_cpu, 0, pool, &device), SHOAL_OK);
    for (size_t i = 0; i < sizeof a / sizeof a[0]; i++)
        a[i] = (float)(i % 7);
    for (size_t i = 0; i < sizeof b / sizeof b[0]; i++)
        b[i] = (float)(i % 5);
    for (int t = 0; shoali_ops_all()[t] != &shoali_ops_ref; t++) {
        const struct shoali_ops_entry *entry =
            shoali_ops_entry(shoali_ops_all()[t], &shoali_kernel_gemm);
        for (int i = 0; i < 3 * 2 * 2 && entry != NULL && shoali_ops_all()[t]->probe(); i++) {
            const int64_t *size = sizes[i / 4];
            const bool trans_a = i % 2;
            struct shoali_gemm_args args = {.a = a,
                                            .b = b,
                                            .m = size[0],
                                            .n = size[1],
                                            .k = size[2],
                                            .ldb = size[1],
                                            .ldc = size[1]};
            args.dtype_ab = args.dtype_c = i / 2 % 2 ? SHOAL_BF16 : SHOAL_F32;
            args.trans_a = trans_a;
            args.lda = trans_a ? args.m : args.k;
            if (entry->dtypes & shoali_dtype_bit(args.dtype_ab))
                differing += check_alone(device, entry, &args);
        }
    }
    assert_true(differing > 0 || !shoali_ops_all()[0]->probe());
    shoali_device_destroy(device);
    shoali_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_select_by_environment),
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_packed_by_another),
        cmocka_unit_test(test_launch),
        cmocka_unit_test(test_reduce_sources),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests_name("fronts", tests, NULL, NULL);
}
