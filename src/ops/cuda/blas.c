#include "ops/cuda/blas.h"

#include "base/hash.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHAPES = 4096, ALIGN_BYTES = 16 };

/* What an algorithm is chosen by. All of it is compared as bytes. */
struct shape {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t trans_a, trans_b, dtype_ab, dtype_d, dtype_bias, with_bias;
};
struct chosen {
    struct shape shape;
    struct shoali_blas_algorithm algorithm;
    unsigned code; /* 0, or SHOALI_BLAS_NOT_SUPPORTED */
};

static struct {
    pthread_mutex_t lock;
    bool tried, works;
    struct shoali_blas blas;
    void *handle; /* NULL: none yet */
    struct chosen *chosen;
    int32_t count;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the library ---- */

bool shoali_blas_is_off(void)
{
    const char *name = getenv("SHOAL_CUDA_BLAS");
    return name != NULL && strcmp(name, "off") == 0;
}

static void *open_library(void)
{
    static const char *const usual[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "/usr/local/cuda/lib64/libcublasLt.so.13",
                                        "/usr/local/cuda/lib64/libcublasLt.so.12"};
    const char *name = getenv("SHOAL_CUDA_BLAS"), *driver = getenv("SHOAL_CUDA_DRIVER");
    void *library = NULL;
    if (shoali_blas_is_off())
        return NULL;
    if (name != NULL && name[0] != '\0')
        return dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (driver != NULL && driver[0] != '\0')
        return dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && library == NULL; i++)
        library = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

static void find_functions(void)
{
    void *library = open_library(), *symbol;
    bool complete = true;
    if (library == NULL)
        return;
#define FIND(member, name, parameters)     \
    symbol = dlsym(library, #name);        \
    complete = complete && symbol != NULL; \
    memcpy(&state.blas.member, &symbol, sizeof state.blas.member);
    SHOALI_BLAS_FUNCTIONS(FIND)
    FIND(version, cublasLtGetVersion, )
#undef FIND
    state.chosen = complete ? calloc(MAX_SHAPES, sizeof *state.chosen) : NULL;
    state.works = state.chosen != NULL;
}

static bool is_open(void)
{
    pthread_mutex_lock(&state.lock);
    if (!state.tried)
        find_functions();
    state.tried = true;
    const bool works = state.works;
    pthread_mutex_unlock(&state.lock);
    return works;
}

/* With the lock held, and the device's context the thread's. The library's code. */
static unsigned get_handle(void)
{
    return state.handle == NULL ? state.blas.create(&state.handle) : 0;
}

/* ---- one product ---- */

/* Column-major, as the library sees memory, D is N x M: it multiplies our B by our A. */
struct call {
    const struct shoali_blas *blas;
    void *product, *left, *right, *out;
};

static unsigned type_of(shoal_dtype dtype)
{
    if (dtype == SHOAL_F32)
        return SHOALI_BLAS_F32;
    return dtype == SHOAL_BF16 ? SHOALI_BLAS_BF16 : SHOALI_BLAS_F16;
}

static unsigned set_product(const struct call *call, unsigned attribute, const void *value,
                            size_t bytes)
{
    return call->blas->product_set(call->product, attribute, value, bytes);
}

/* The library's code; `call` is to be forgotten in any case. */
static unsigned describe(struct call *call, const struct shoali_blas_product *p)
{
    const int32_t trans_left = p->trans_b, trans_right = p->trans_a;
    const uint32_t with_bias = SHOALI_BLAS_WITH_BIAS, bias_type = type_of(p->dtype_bias);
    const struct shoali_blas *blas = call->blas;
    const unsigned type = type_of(p->dtype_ab);
    unsigned code = blas->product_create(&call->product, SHOALI_BLAS_COMPUTE_F32, SHOALI_BLAS_F32);
    if (code == 0)
        code = set_product(call, SHOALI_BLAS_TRANS_A, &trans_left, sizeof trans_left);
    if (code == 0)
        code = set_product(call, SHOALI_BLAS_TRANS_B, &trans_right, sizeof trans_right);
    if (code == 0 && p->bias != NULL)
        code = set_product(call, SHOALI_BLAS_EPILOGUE, &with_bias, sizeof with_bias);
    if (code == 0 && p->bias != NULL)
        code = set_product(call, SHOALI_BLAS_BIAS, &p->bias, sizeof p->bias);
    if (code == 0 && p->bias != NULL)
        code = set_product(call, SHOALI_BLAS_BIAS_TYPE, &bias_type, sizeof bias_type);
    const int64_t left[2] = {p->trans_b ? p->k : p->n, p->trans_b ? p->n : p->k};
    const int64_t right[2] = {p->trans_a ? p->m : p->k, p->trans_a ? p->k : p->m};
    if (code == 0)
        code = blas->layout_create(&call->left, type, (uint64_t)left[0], (uint64_t)left[1], p->ldb);
    if (code == 0)
        code =
            blas->layout_create(&call->right, type, (uint64_t)right[0], (uint64_t)right[1], p->lda);
    if (code == 0)
        code = blas->layout_create(&call->out, type_of(p->dtype_d), (uint64_t)p->n, (uint64_t)p->m,
                                   p->ldd);
    return code;
}

static void forget(const struct call *call)
{
    if (call->out != NULL)
        (void)call->blas->layout_destroy(call->out);
    if (call->right != NULL)
        (void)call->blas->layout_destroy(call->right);
    if (call->left != NULL)
        (void)call->blas->layout_destroy(call->left);
    if (call->product != NULL)
        (void)call->blas->product_destroy(call->product);
}

/* ---- one algorithm for each shape ---- */

static bool is_aligned(const void *address, int64_t stride, shoal_dtype dtype)
{
    return ((uintptr_t)address | (uint64_t)stride * shoal_dtype_bytes(dtype)) % ALIGN_BYTES == 0;
}

bool shoali_blas_takes(const struct shoali_blas_product *p)
{
    return is_aligned(p->a, p->lda, p->dtype_ab) && is_aligned(p->b, p->ldb, p->dtype_ab) &&
           is_aligned(p->d, p->ldd, p->dtype_d) && is_aligned(p->add, p->ldd, p->dtype_d) &&
           is_open();
}

static struct shape shape_of(const struct shoali_blas_product *p)
{
    struct shape shape;
    memset(&shape, 0, sizeof shape);
    shape.m = p->m;
    shape.n = p->n;
    shape.k = p->k;
    shape.lda = p->lda;
    shape.ldb = p->ldb;
    shape.ldd = p->ldd;
    shape.trans_a = p->trans_a;
    shape.trans_b = p->trans_b;
    shape.dtype_ab = (int32_t)p->dtype_ab;
    shape.dtype_d = (int32_t)p->dtype_d;
    shape.dtype_bias = p->bias != NULL ? (int32_t)p->dtype_bias : 0;
    shape.with_bias = p->bias != NULL;
    return shape;
}

/* With the lock held. The library's code; SHOALI_BLAS_NOT_SUPPORTED: it has none. */
static unsigned choose(const struct call *call, struct shoali_blas_algorithm *algorithm)
{
    const uint64_t workspace = SHOALI_BLAS_WORKSPACE_BYTES;
    const uint32_t sums = SHOALI_BLAS_SUMS_IN_WORKSPACE, align = ALIGN_BYTES;
    struct shoali_blas_choice choice;
    void *wanted = NULL;
    int found = 0;
    unsigned code = get_handle();
    if (code == 0)
        code = call->blas->preference_create(&wanted);
    if (code == 0)
        code =
            call->blas->preference_set(wanted, SHOALI_BLAS_WORKSPACE, &workspace, sizeof workspace);
    if (code == 0)
        code = call->blas->preference_set(wanted, SHOALI_BLAS_SUMS, &sums, sizeof sums);
    for (unsigned i = 0; i < 4 && code == 0; i++)
        code = call->blas->preference_set(wanted, SHOALI_BLAS_ALIGN_A + i, &align, sizeof align);
    if (code == 0)
        code = call->blas->choose(state.handle, call->product, call->left, call->right, call->out,
                                  call->out, wanted, 1, &choice, &found);
    if (wanted != NULL)
        (void)call->blas->preference_destroy(wanted);
    if (code == 0 && (found < 1 || choice.state != 0))
        code = SHOALI_BLAS_NOT_SUPPORTED;
    if (code == 0)
        *algorithm = choice.algorithm;
    return code;
}

/* With the lock held: the entry of the shape, a new one where there was none. NULL: full. */
static struct chosen *find(const struct shape *shape, bool *known)
{
    int32_t i = 0;
    while (i < state.count && memcmp(&state.chosen[i].shape, shape, sizeof *shape) != 0)
        i++;
    *known = i < state.count;
    if (i == MAX_SHAPES)
        return NULL;
    if (!*known) {
        state.chosen[i].shape = *shape;
        state.count++;
    }
    return &state.chosen[i];
}

/* What the library says of a shape holds for good; an error is none of its answers. */
static unsigned algorithm_for(const struct call *call, const struct shape *shape,
                              struct shoali_blas_algorithm *algorithm)
{
    bool known;
    pthread_mutex_lock(&state.lock);
    struct chosen *chosen = find(shape, &known);
    if (chosen != NULL && !known)
        chosen->code = choose(call, &chosen->algorithm);
    const unsigned code = chosen != NULL ? chosen->code : SHOALI_BLAS_NOT_SUPPORTED;
    if (code == 0)
        *algorithm = chosen->algorithm;
    else if (code != SHOALI_BLAS_NOT_SUPPORTED)
        state.count--;
    pthread_mutex_unlock(&state.lock);
    return code;
}

bool shoali_blas_multiply(const struct shoali_kernel_context *context,
                          const struct shoali_blas_product *product, void *workspace)
{
    const float one = 1, beta = product->add != NULL ? 1 : 0;
    const struct shape shape = shape_of(product);
    struct shoali_blas_algorithm algorithm;
    struct call call = {.blas = &state.blas};
    unsigned code = describe(&call, product);
    if (code == 0)
        code = algorithm_for(&call, &shape, &algorithm);
    const bool chosen = code == 0;
    if (chosen)
        code = state.blas.multiply(
            state.handle, call.product, &one, product->b, call.left, product->a, call.right, &beta,
            product->add != NULL ? product->add : product->d, call.out, product->d, call.out,
            &algorithm, workspace, SHOALI_BLAS_WORKSPACE_BYTES, shoali_cuda_native_stream(context));
    forget(&call);
    if (code == SHOALI_BLAS_NOT_SUPPORTED && !chosen)
        return false;
    if (code != 0)
        shoali_cuda_launch_failed(
            context,
            SHOAL_FAIL(SHOAL_EIO,
                       "cuBLASLt gave status %u for a product of %lld x %lld x %lld; "
                       "SHOAL_CUDA_BLAS=off uses the kernels of Shoal instead",
                       code, (long long)product->m, (long long)product->n, (long long)product->k));
    return true;
}

/* ---- what ranks compare ---- */

void shoali_blas_describe(struct shoali_str *text)
{
    const size_t version = is_open() ? state.blas.version() : 0;
    if (version == 0)
        shoali_str_append(text, "without cuBLASLt");
    else
        shoali_str_append(text, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100,
                          version % 100);
}

/* A choice follows from the shape, the library and the GPU. So ranks that choose alike for some
 * shapes have alike libraries and GPUs: forward, dX and dW of a layer. */
static const struct shoali_blas_product probes[] = {
    {.m = 8192, .n = 2304, .k = 768, .lda = 768, .ldb = 768, .ldd = 2304, .trans_b = true},
    {.m = 8192, .n = 768, .k = 2304, .lda = 2304, .ldb = 768, .ldd = 768},
    {.m = 768, .n = 768, .k = 8192, .lda = 768, .ldb = 768, .ldd = 768, .trans_a = true}};

static uint64_t digest_probe(const struct shoali_blas_product *probe, shoal_dtype dtype,
                             shoal_dtype dtype_d)
{
    struct shoali_blas_product product = *probe;
    struct shoali_blas_algorithm algorithm = {{0}};
    struct call call = {.blas = &state.blas};
    product.dtype_ab = dtype;
    product.dtype_d = dtype_d;
    pthread_mutex_lock(&state.lock);
    const bool found = describe(&call, &product) == 0 && choose(&call, &algorithm) == 0;
    pthread_mutex_unlock(&state.lock);
    forget(&call);
    return found ? shoali_hash64(&algorithm, sizeof algorithm) : 0;
}

uint64_t shoali_blas_digest(void)
{
    if (!is_open())
        return 0;
    uint64_t digest = state.blas.version();
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
        digest = digest * 31 + digest_probe(&probes[i], SHOAL_BF16, SHOAL_BF16);
        digest = digest * 31 + digest_probe(&probes[i], SHOAL_F16, SHOAL_F32);
    }
    return shoali_hash64(&digest, sizeof digest);
}
