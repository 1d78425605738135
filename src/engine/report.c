/* The text of `shoal report`: one section per subject, one line per fact. */
#include "shoal/report.h"

#include "accelerator/accelerator.h"
#include "base/caches.h"
#include "base/cpu.h"
#include "base/memory.h"
#include "base/plain.h"
#include "base/pool.h"
#include "base/str.h"
#include "checkpoint/checkpoint.h"
#include "comm/mpi/mpi.h"
#include "comm/ucx/ucx.h"
#include "engine/config/config.h"
#include "io/io.h"
#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SMALL_SHM_BYTES (512.0 * 1024 * 1024)

extern char **environ;

static void add_heading(struct shoali_str *out, const char *heading)
{
    shoali_str_append(out, "%s%s\n", out->length ? "\n" : "", heading);
}

static void add_line(struct shoali_str *out, const char *name, const char *value)
{
    shoali_str_append(out, "  %-22s %s\n", name, value);
}

static void add_build(struct shoali_str *out)
{
    add_heading(out, "build");
    add_line(out, "version", shoal_version());
#if defined(__clang__)
    add_line(out, "compiler", __VERSION__);
#else
    add_line(out, "compiler", "gcc " __VERSION__);
#endif
#if defined(__SANITIZE_ADDRESS__)
    add_line(out, "sanitizer", "address (slow)");
#elif defined(__SANITIZE_THREAD__)
    add_line(out, "sanitizer", "thread (slow)");
#endif
}

/* The value of "key : value" in a file such as /proc/cpuinfo; false when there is none. */
static bool find_value(const char *path, const char *key, char *value, size_t bytes)
{
    char *data = NULL;
    size_t size = 0;
    if (shoali_read_file(path, &data, &size) < 0)
        return false;
    const char *at = strstr(data, key);
    const char *colon = at ? strchr(at, ':') : NULL;
    if (colon) {
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(value, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    free(data);
    return colon != NULL;
}

#if defined(__x86_64__)
#define ADD_FEATURE(text, name) \
    shoali_str_append(text, "%s", __builtin_cpu_supports(name) ? " " name : "")
#endif
static void add_features(struct shoali_str *out)
{
    struct shoali_str text = {0};
#if defined(__x86_64__)
    ADD_FEATURE(&text, "avx2");
    ADD_FEATURE(&text, "fma");
    ADD_FEATURE(&text, "avx512f");
    ADD_FEATURE(&text, "avx512bw");
    ADD_FEATURE(&text, "avx512dq");
    ADD_FEATURE(&text, "avx512vl");
    ADD_FEATURE(&text, "avx512bf16");
    const struct shoali_cpu cpu = shoali_cpu_get();
    shoali_str_append(&text, "%s%s%s", cpu.amx_tile ? " amx_tile" : "",
                      cpu.amx_bf16 ? " amx_bf16" : "", cpu.amx_int8 ? " amx_int8" : "");
#else
    const struct shoali_cpu cpu = shoali_cpu_get();
    shoali_str_append(&text, "%s%s%s%s", cpu.asimd ? " asimd" : "", cpu.asimddp ? " asimddp" : "",
                      cpu.bf16 ? " bf16" : "", cpu.sve ? " sve" : "");
#endif
    const char *list = shoali_str_get(&text);
    add_line(out, "CPU features", *list ? list + strspn(list, " ") : "none that Shoal uses");
    shoali_str_fini(&text);
}

static void add_cache(struct shoali_str *out, const char *name, const struct shoali_cache *cache)
{
    char value[96], size[32];
    snprintf(value, sizeof(value), "%s, %d ways, shared by %d core%s",
             shoali_format_bytes((double)cache->bytes, size), (int)cache->ways, (int)cache->cores,
             cache->cores == 1 ? "" : "s");
    add_line(out, name, value);
}

/* What kernels go by. */
static void add_caches(struct shoali_str *out)
{
    const struct shoali_caches *caches = shoali_caches_get();
    add_cache(out, "L1 data cache", &caches->l1);
    add_cache(out, "L2 cache", &caches->l2);
    add_cache(out, "last-level cache", &caches->last);
}

static void add_machine(struct shoali_str *out)
{
    char value[256], size[32];
    struct utsname name;
    add_heading(out, "machine");
    if (uname(&name) == 0) {
        snprintf(value, sizeof(value), "%s %s %s", name.sysname, name.release, name.machine);
        add_line(out, "system", value);
    }
    if (find_value("/proc/cpuinfo", "model name", value, sizeof(value)))
        add_line(out, "CPU", value);
    const struct shoali_cpu cpu = shoali_cpu_get();
    char identity[SHOALI_CPU_NAME_BYTES];
    add_line(out, "CPU identity", shoali_cpu_describe(&cpu, identity));
    add_features(out);
#if defined(__aarch64__)
    add_line(out, "vectors", shoali_cpu_describe_vectors(&cpu, value));
#else
    add_line(out, "AMX tiles", shoali_cpu_describe_tiles(&cpu, shoali_cpu_permit_tiles()));
#endif
    const double quota = shoali_cgroup_cpus("");
    const int count = snprintf(value, sizeof(value), "%d usable of %ld", shoali_core_count(),
                               sysconf(_SC_NPROCESSORS_ONLN));
    if (quota > 0)
        snprintf(value + count, sizeof(value) - (size_t)count,
                 ": the control group limits CPU time to %lld.%02lld cores", (long long)quota,
                 (long long)(quota * 100) % 100);
    add_line(out, "cores", value);
    add_caches(out);
    int64_t total, available;
    shoali_memory_read("", &total, &available);
    add_line(out, "memory", shoali_format_bytes((double)total, size));
    add_line(out, "memory available", shoali_format_bytes((double)available, size));
}

static void add_limit(struct shoali_str *out, const char *name, int resource, bool bytes)
{
    struct rlimit limit;
    char value[32];
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        snprintf(value, sizeof(value), "unlimited");
    else if (bytes)
        shoali_format_bytes((double)limit.rlim_cur, value);
    else
        snprintf(value, sizeof(value), "%llu", (unsigned long long)limit.rlim_cur);
    add_line(out, name, value);
}

static void add_limits(struct shoali_str *out)
{
    struct statvfs info;
    char total[32], available[32], value[160];
    add_heading(out, "limits");
    if (statvfs("/dev/shm", &info) == 0) {
        double unit = (double)info.f_frsize, free_bytes = (double)info.f_bavail * unit;
        snprintf(value, sizeof(value), "%s, %s free%s",
                 shoali_format_bytes((double)info.f_blocks * unit, total),
                 shoali_format_bytes(free_bytes, available),
                 free_bytes < SMALL_SHM_BYTES ? " (small: ranks of one machine meet here)" : "");
        add_line(out, "/dev/shm",
                 access("/dev/shm", W_OK) == 0 ? value
                                               : "not writable: ranks share memory without names");
    } else {
        add_line(out, "/dev/shm", "missing: ranks share memory without names");
    }
    add_limit(out, "locked memory", RLIMIT_MEMLOCK, true);
    add_limit(out, "address space", RLIMIT_AS, true);
    add_limit(out, "open files", RLIMIT_NOFILE, false);
    add_limit(out, "processes", RLIMIT_NPROC, false);
}

static const char *found(bool (*probe)(void))
{
    return !probe || probe() ? "found" : "not on this machine";
}

/* What is loaded on demand, and what this process would use as a rank of somebody's job. */
static void add_mpi(struct shoali_str *out)
{
    const struct shoali_started job = shoali_started_get();
    char text[256];
    shoali_mpi_list(text, sizeof text);
    if (strcmp(text, "none") == 0)
        snprintf(text, sizeof text,
                 "no plug-in loads (it is built where libopenmpi-dev or libmpich-dev is installed, "
                 "and needs that MPI)");
    add_line(out, "mpi", text);
    shoali_ucx_list(text, sizeof text);
    if (strcmp(text, "none") == 0)
        snprintf(text, sizeof text,
                 "no plug-in loads (it is built where libucx-dev is installed, and needs libucx0)");
    add_line(out, "ucx", text);
    if (!job.launcher)
        return;
    snprintf(text, sizeof text, "rank %d of %d, started by %s, connected by %s", (int)job.rank,
             (int)job.size, job.launcher, shoali_comm_default_backend(&job));
    add_line(out, "this process", text);
}

static void add_devices(struct shoali_str *out)
{
    add_heading(out, "devices");
    for (const struct shoali_accelerator *const *at = shoali_accelerator_all(); *at; at++) {
        struct shoali_str text = {0};
        shoali_str_append(&text, "%s", found((*at)->probe));
        if ((*at)->describe) {
            shoali_str_append(&text, ": ");
            (*at)->describe(&text);
        }
        add_line(out, (*at)->name, shoali_str_get(&text));
        shoali_str_fini(&text);
    }
}

static void add_backends(struct shoali_str *out, const struct shoali_ops *ops)
{
    add_devices(out);
    add_heading(out, "communication");
    for (const struct shoali_comm_ops *const *at = shoali_comm_all(); *at; at++)
        if (*at != &shoali_comm_mpi && *at != &shoali_comm_ucx) /* plug-ins, below */
            add_line(out, (*at)->name, found((*at)->probe));
    add_mpi(out);
    char io[240];
    shoali_io_describe(io, sizeof io);
    add_heading(out, "files");
    add_line(out, "backend", io);
    add_heading(out, "kernels");
    for (const struct shoali_ops_table *const *at = shoali_ops_all(); *at; at++) {
        struct shoali_str text = {0};
        shoali_ops_describe_table(ops, *at, &text);
        add_line(out, (*at)->name, shoali_str_get(&text));
        shoali_str_fini(&text);
    }
}

/* How this machine's caches cut a usual product, that of GPT-2's second layer of a feed-forward. */
static void add_blocks(struct shoali_str *out, const struct shoali_ops *ops)
{
    struct shoali_ops host;
    struct shoali_str text = {0};
    const struct shoali_gemm_args product = {
        .m = 1024, .n = 768, .k = 3072, .lda = 3072, .ldb = 768, .ldc = 768, .dtype_ab = SHOAL_F32};
    shoali_ops_host_of(ops, &host);
    shoali_ops_explain_gemm(&host, &product, shoali_core_count(), &text);
    if (text.text)
        shoali_str_append(out, "  fp32 product of 1024x3072 by 3072x768: %s\n", text.text);
    shoali_str_fini(&text);
}

static void add_kernel_sources(struct shoali_str *out, const struct shoali_ops *ops)
{
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16};
    const size_t dtype_count = sizeof(dtypes) / sizeof(dtypes[0]);
    int width = 0;
    for (int32_t kernel = 0; kernel < ops->kernel_count; kernel++) {
        const int length = (int)strlen(shoali_ops_kernel_name(ops, kernel));
        width = length > width ? length : width;
    }
    add_heading(out, "which kernels serve");
    shoali_str_append(out, "  %-*s", width, "");
    for (size_t i = 0; i < dtype_count; i++)
        shoali_str_append(out, " %-*s", i + 1 < dtype_count ? 16 : 0, shoal_dtype_name(dtypes[i]));
    shoali_str_append(out, "\n");
    for (int32_t kernel = 0; kernel < ops->kernel_count; kernel++) {
        bool partly = false;
        shoali_str_append(out, "  %-*s", width, shoali_ops_kernel_name(ops, kernel));
        for (size_t i = 0; i < dtype_count; i++)
            shoali_str_append(out, " %-*s", i + 1 < dtype_count ? 16 : 0,
                              shoali_ops_kernel_source(ops, kernel, dtypes[i], &partly));
        shoali_str_append(out, "%s\n", partly ? " (some arguments)" : "");
    }
    shoali_str_append(out, "  fall back: ");
    shoali_ops_describe_fallbacks(ops, out);
    shoali_str_append(out, "\n");
    add_blocks(out, ops);
}

/* The variables that change what Shoal does. */
static void add_environment(struct shoali_str *out)
{
    static const char *const prefixes[] = {"SHOAL_", "DS_", "DEEPSPEED_", "OMP_NUM_THREADS="};
    static const char secret[] = "SHOAL_SECRET=";
    bool any = false;
    add_heading(out, "environment");
    for (char **at = environ; *at; at++) {
        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
            if (strncmp(*at, prefixes[i], strlen(prefixes[i])) != 0)
                continue;
            /* A report is pasted into mails and issues. */
            if (strncmp(*at, secret, sizeof(secret) - 1) == 0)
                shoali_str_append(out, "  %s(not shown)\n", secret);
            else
                shoali_str_append(out, "  %s\n", *at);
            any = true;
            break;
        }
    }
    if (!any)
        shoali_str_append(out, "  no variable that Shoal reads is set\n");
}

static shoal_status hand_over(struct shoali_str *out, const char *what, char **text)
{
    if (out->failed) {
        shoali_str_fini(out);
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %s", what);
    }
    *text = out->text;
    return SHOAL_OK;
}

const char *shoal_version(void)
{
    return SHOAL_VERSION;
}

shoal_status shoal_report(char **text)
{
    shoal_status status;
    struct shoali_str out = {0};
    struct shoali_ops ops;
    const struct shoali_accelerator *accelerator;
    *text = NULL;
    SHOAL_TRY(status, shoali_accelerator_select(NULL, &accelerator), done);
    SHOAL_TRY(status, shoali_ops_select(NULL, accelerator, &ops), done);
    add_build(&out);
    add_machine(&out);
    add_limits(&out);
    add_backends(&out, &ops);
    add_kernel_sources(&out, &ops);
    add_environment(&out);
    SHOAL_TRY(status, hand_over(&out, "the report", text), done);
done:
    return status;
}

shoal_status shoal_report_checkpoints(const char *dir, char **text)
{
    shoal_status status;
    struct shoali_str out = {0};
    *text = NULL;
    SHOAL_TRY(status, shoali_checkpoint_list(dir, &out), done);
    return hand_over(&out, "the list of checkpoints", text);
done:
    shoali_str_fini(&out);
    return status;
}

shoal_status shoal_config_help(char **text)
{
    struct shoali_str out = {0};
    *text = NULL;
    shoali_ds_config_markdown(&out);
    return hand_over(&out, "the help text", text);
}
