/* Kernels of the host on memory that only a device reaches: what is copied, and that a description
 * which says too little is found. */
#include "base/test_cmocka.h"
#include "ops/kernel.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call)                                        \
    do {                                                \
        if ((call) != SHOAL_OK) {                       \
            print_error("%s\n", shoal_error_message()); \
            fail_msg("%s", #call);                      \
        }                                               \
    } while (0)

enum { COUNT = 40, STRIDE = 3 };

/* b[i * STRIDE] = 2 a[i] + (c[i], NULL: 0) */
struct shoali_toy_args {
    const float *a, *c;
    float *b;
    int64_t count;
};
static void toy(const void *args, const struct shoali_kernel_context *context)
{
    const struct shoali_toy_args *given = args;
    (void)context;
    for (int64_t i = 0; i < given->count; i++)
        given->b[i * STRIDE] = 2 * given->a[i] + (given->c != NULL ? given->c[i] : 0);
}
static int64_t spread(const void *args)
{
    return shoali_extent(((const struct shoali_toy_args *)args)->count, STRIDE, 1);
}
static int64_t half(const void *args)
{
    return ((const struct shoali_toy_args *)args)->count / 2;
}

#define TOY(label, ...)                                        \
    {                                                          \
        .type = {.name = label,                                \
                 .args_bytes = sizeof(struct shoali_toy_args), \
                 .pointers = {__VA_ARGS__}},                   \
        .products = {{{SHOALI_SIZE(toy, count)}}},             \
    }
#define EACH SHOALI_COUNT(toy, count)
#define F32 SHOALI_ALWAYS(SHOAL_F32)
#define A SHOALI_IN(toy, a, F32, EACH)
#define C SHOALI_OPTIONAL_IN(toy, c, F32, EACH)
#define A_WRITTEN SHOALI_OUT(toy, a, F32, EACH)
#define B SHOALI_OUT(toy, b, F32, SHOALI_COUNT_BY(spread))
#define B_READ SHOALI_IN(toy, b, F32, SHOALI_COUNT_BY(spread))
#define B_SHORT SHOALI_OUT(toy, b, F32, SHOALI_COUNT_BY(half))
static const struct shoali_kernel honest = TOY("honest", A, C, B);
/* What rows may say wrongly. */
static const struct shoali_kernel liars[] = {
    TOY("short_output", A, C, B_SHORT),
    TOY("output_as_input", A_WRITTEN, C, B_READ),
    TOY("missing_input", C, B),
    TOY("missing_output", A_WRITTEN, C),
};
enum { LIARS = sizeof liars / sizeof liars[0] };

static bool yes(void)
{
    return true;
}
static const struct shoali_ops_entry entries[] = {
    {&honest, toy, SHOALI_ALL_DTYPES, NULL, NULL},
    {&liars[0], toy, SHOALI_ALL_DTYPES, NULL, NULL},
    {&liars[1], toy, SHOALI_ALL_DTYPES, NULL, NULL},
    {&liars[2], toy, SHOALI_ALL_DTYPES, NULL, NULL},
    {&liars[3], toy, SHOALI_ALL_DTYPES, NULL, NULL},
};
static const struct shoali_ops_table host = {.abi = SHOALI_OPS_ABI,
                                             .bytes = sizeof host,
                                             .name = "host",
                                             .probe = yes,
                                             .entries = entries,
                                             .entry_count = 1 + LIARS};
static const struct shoali_ops_entry own_entries[] = {
    {&honest, toy, SHOALI_ALL_DTYPES, NULL, NULL}};
static const struct shoali_ops_table own = {.abi = SHOALI_OPS_ABI,
                                            .bytes = sizeof own,
                                            .name = "own",
                                            .probe = yes,
                                            .entries = own_entries,
                                            .entry_count = 1,
                                            .memory = "sim"};
static const struct shoali_ops_table *const tables[] = {&own, &host, NULL};
static const struct shoali_ops_table *const hosts_alone[] = {&host, NULL};

/* ---- a device, and memory of it with known numbers ---- */

struct rig {
    struct shoali_ops ops;
    struct shoali_device *device;
    struct shoali_exec exec;
    float *memory; /* on the device: a, c, b behind each other */
    _Atomic int64_t calls[1 + LIARS];
};
enum { A_AT = 0, C_AT = COUNT, B_AT = 2 * COUNT, ALL = 2 * COUNT + COUNT * STRIDE };

static void open_rig(struct rig *rig, const struct shoali_accelerator *accelerator,
                     const struct shoali_ops_table *const *list)
{
    float numbers[ALL];
    void *memory;
    memset(rig, 0, sizeof *rig);
    OK(shoali_ops_select_from(list, NULL, accelerator, &rig->ops));
    rig->ops.staged_calls = rig->calls;
    OK(shoali_device_create(accelerator, 0, NULL, &rig->device));
    OK(shoali_stream_create(rig->device, &rig->exec.stream));
    OK(shoali_device_alloc(rig->device, sizeof numbers, &memory));
    rig->exec.ops = &rig->ops;
    rig->memory = memory;
    for (int i = 0; i < ALL; i++)
        numbers[i] = (float)i;
    OK(shoali_upload(rig->exec.stream, memory, numbers, sizeof numbers));
}

static void close_rig(struct rig *rig)
{
    shoali_device_free(rig->device, rig->memory);
    shoali_stream_destroy(rig->exec.stream);
    shoali_device_destroy(rig->device);
}

/* Whether a row's call leaves on the device what it leaves on the host. */
static bool runs_as_on_host(struct rig *rig, const struct shoali_kernel *kernel,
                            struct shoali_toy_args args)
{
    float want[ALL], got[ALL];
    OK(shoali_download(rig->exec.stream, want, rig->memory, sizeof want));
    struct shoali_toy_args on_host = args;
    on_host.a = want + (args.a - rig->memory);
    on_host.c = args.c != NULL ? want + (args.c - rig->memory) : NULL;
    on_host.b = want + (args.b - rig->memory);
    toy(&on_host, NULL);
    OK(shoali_kernel_launch(&rig->exec, kernel, &args));
    OK(shoali_download(rig->exec.stream, got, rig->memory, sizeof got));
    return memcmp(want, got, sizeof want) == 0;
}

static struct shoali_toy_args plain_args(const struct rig *rig)
{
    return (struct shoali_toy_args){
        .a = rig->memory + A_AT, .c = rig->memory + C_AT, .b = rig->memory + B_AT, .count = COUNT};
}

/* ---- tests ---- */

/* Gaps between rows stay as they are; arrays that overlap, or are one, do so on the host, too. */
static void test_honest(void **state)
{
    struct rig rig;
    (void)state;
    open_rig(&rig, &shoali_accelerator_sim_closed, hosts_alone);
    struct shoali_toy_args args = plain_args(&rig);
    assert_true(runs_as_on_host(&rig, &honest, args));
    args.c = NULL;
    assert_true(runs_as_on_host(&rig, &honest, args));
    args.c = args.a + COUNT / 2; /* a's second half and beyond */
    assert_true(runs_as_on_host(&rig, &honest, args));
    args.b = rig.memory + C_AT + COUNT / 2; /* c's second half is written while it is read */
    args.c = rig.memory + C_AT;
    args.count = COUNT / 2;
    assert_true(runs_as_on_host(&rig, &honest, args));
    args.count = 0;
    assert_true(runs_as_on_host(&rig, &honest, args));
    assert_int_equal(rig.calls[0], 4);
    close_rig(&rig);
}

/* Several calls in a row share the stream's pinned memory, which grows. */
static void test_queue(void **state)
{
    struct rig rig;
    float got[ALL];
    (void)state;
    open_rig(&rig, &shoali_accelerator_sim_closed, hosts_alone);
    struct shoali_toy_args args = plain_args(&rig);
    args.c = NULL;
    for (int64_t count = 1; count <= COUNT; count++) {
        args.count = count;
        OK(shoali_kernel_launch(&rig.exec, &honest, &args));
    }
    OK(shoali_download(rig.exec.stream, got, rig.memory, sizeof got));
    for (int i = 0; i < COUNT; i++)
        assert_true(got[B_AT + i * STRIDE] == 2 * (float)i);
    close_rig(&rig);
}

/* A table for the device's memory comes first, and its kernels get addresses that work. */
static void test_own(void **state)
{
    struct rig rig;
    struct shoali_ops of_host;
    struct shoali_str text = {0};
    (void)state;
    open_rig(&rig, &shoali_accelerator_sim_closed, tables);
    assert_string_equal(rig.ops.name, "own");
    assert_true(runs_as_on_host(&rig, &honest, plain_args(&rig)));
    assert_int_equal(rig.calls[0], 0);
    shoali_ops_describe_staged(&rig.ops, &text);
    assert_string_equal(shoali_str_get(&text),
                        "short_output, output_as_input, missing_input, missing_output");
    shoali_str_fini(&text);
    shoali_ops_host_of(&rig.ops, &of_host);
    assert_string_equal(of_host.name, "host");
    assert_false(of_host.staged);
    assert_null(of_host.chain[1]);
    /* on memory of the host the table of the device is not asked */
    float a[1] = {3}, b[1] = {0};
    shoali_ops_run(&rig.ops, &honest, &(struct shoali_toy_args){.a = a, .b = b, .count = 1});
    assert_true(b[0] == 6);
    close_rig(&rig);
}

static void test_selection(void **state)
{
    struct shoali_ops ops;
    (void)state;
    assert_int_equal(shoali_ops_select_from(tables, "own", &shoali_accelerator_cpu, &ops),
                     SHOAL_EUNSUPPORTED);
    assert_non_null(strstr(shoal_error_message(), "memory of accelerator 'sim' alone"));
    OK(shoali_ops_select_from(tables, "own", NULL, &ops));
    assert_string_equal(ops.name, "host");
    OK(shoali_ops_select_from(tables, NULL, &shoali_accelerator_cpu, &ops));
    assert_string_equal(ops.name, "host");
    assert_int_equal(ops.host_from, 0);
    OK(shoali_ops_select_from(tables, "host", &shoali_accelerator_sim_closed, &ops));
    assert_string_equal(ops.name, "host");
    assert_true(ops.staged);
    OK(shoali_ops_select_from(tables, NULL, &shoali_accelerator_sim, &ops));
    assert_string_equal(ops.name, "own");
    assert_false(ops.staged);
    /* a plan chooses as the run does */
    OK(shoali_ops_select_from(tables, NULL, shoali_accelerator_meta(&shoali_accelerator_sim_closed),
                              &ops));
    assert_string_equal(ops.name, "own");
    assert_true(ops.staged);
    shoali_error_clear();
}

/* 0: the row is found honest; else a sign that it is not: another result, or an access to memory
 * that the host does not reach. */
static int found_out(const struct shoali_kernel *kernel)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        struct rig rig;
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        (void)signal(SIGSEGV, SIG_DFL);
        open_rig(&rig, &shoali_accelerator_sim_closed, hosts_alone);
        _exit(runs_as_on_host(&rig, kernel, plain_args(&rig)) ? 0 : 1);
    }
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

static void test_liars(void **state)
{
    (void)state;
    assert_int_equal(found_out(&honest), 0);
    for (int i = 0; i < LIARS; i++)
        if (found_out(&liars[i]) == 0)
            fail_msg("%s was not found out", liars[i].type.name);
}

int main(void)
{
    if (!shoali_accelerator_sim.probe())
        return 77;
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_honest),    cmocka_unit_test(test_queue), cmocka_unit_test(test_own),
        cmocka_unit_test(test_selection), cmocka_unit_test(test_liars),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
