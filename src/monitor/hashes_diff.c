/* Two runs, line by line in the order in which things come about. Nothing before the first
 * difference differs, so it must come from the rounding of one operation or be real. Later ones
 * follow from it; of those only the loss has a bound that needs no more than what is written: by
 * Cauchy and Schwarz it moves by at most |gradient| |difference of the weights|. */
#include "monitor/hashes_internal.h"

#include <math.h>
#include <string.h>

#define FP32_ROUNDOFF 0x1p-24

/* Roundings of one element in an update rule. */
enum { UPDATE_ROUNDINGS = 16 };
/* Sketches know a norm within a factor of 2; curvature may add as much for small differences. */
static const double loss_slack = 4;

struct comparison {
    struct shoali_hashes_file a, b;
    double roundoff;     /* of weights and activations */
    double sum_rounding; /* relative: what another order of a gradient's sums can make */
    double largest_loss; /* difference; at which step */
    int64_t largest_loss_step;
    /* of the weights after the last step that was compared; negative: not known */
    double weight_difference, weight_norm;
    bool differ, real;
    bool types_differ;  /* in the step that is compared */
    int64_t found_step; /* of the first difference */
    struct shoali_str *out;
};

static double number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : NAN; /* "nan", "inf" */
}

static const char *text(const json_t *line, const char *key)
{
    const char *value = json_string_value(json_object_get(line, key));
    return value ? value : "";
}

static bool same(const json_t *a, const json_t *b, const char *key)
{
    return json_equal(json_object_get(a, key), json_object_get(b, key));
}

/* A fact that is not written when it is 1. */
static int64_t fact(const struct shoali_hashes_file *file, const char *key)
{
    const json_t *value = json_object_get(file->facts, key);
    return value ? json_integer_value(value) : 1;
}

/* Runs of other splits join other partial sums: that their bits differ is no news. */
static bool same_splits(const struct comparison *c)
{
    return fact(&c->a, "tensor_splits") == fact(&c->b, "tensor_splits") &&
           fact(&c->a, "sequence_splits") == fact(&c->b, "sequence_splits");
}

static void log_splits(const struct comparison *c)
{
    if (!same_splits(c))
        shoali_str_append(
            c->out,
            "exact_splits of %s: tensor %lld, sequence %lld; of %s: tensor %lld, sequence %lld: "
            "differences are expected\n",
            c->a.path, (long long)fact(&c->a, "tensor_splits"),
            (long long)fact(&c->a, "sequence_splits"), c->b.path,
            (long long)fact(&c->b, "tensor_splits"), (long long)fact(&c->b, "sequence_splits"));
}

/* ---- what rounding can do ---- */

/* The gradients of activations are the same bits but for a power of two: losses are divided by
 * numbers whose ratio is one (F16: by the same one, as small numbers lose bits there), and nothing
 * on their way is summed over ranks. */
static bool same_roundings(const struct comparison *c, const char *dtype)
{
    const int64_t a = fact(&c->a, "accumulation"), b = fact(&c->b, "accumulation");
    const int64_t more = a > b ? a : b, less = a > b ? b : a;
    const int64_t ratio = less > 0 && more % less == 0 ? more / less : 3;
    const bool scaled = (ratio & (ratio - 1)) == 0 && (ratio == 1 || strcmp(dtype, "F16") != 0);
    return scaled && fact(&c->a, "tensor_ranks") == fact(&c->b, "tensor_ranks");
}

static double roundoff_of(const char *dtype)
{
    return strcmp(dtype, "BF16") == 0  ? 0x1p-8
           : strcmp(dtype, "F16") == 0 ? 0x1p-11
                                       : FP32_ROUNDOFF;
}

/* Ways to sum M contributions differ by at most 2 M roundoffs of the contributions' size, which is
 * about sqrt(M) times the size of their mean when they are mostly noise; each passed at most one
 * rounding more per tensor on its way. Other kernels, splits and layouts round activations
 * elsewhere, too. */
static void set_bounds(struct comparison *c, const char *dtype_a, const char *dtype_b)
{
    const double micro_batches =
        fmax(number(c->a.facts, "micro_batches"), number(c->b.facts, "micro_batches"));
    const double tensors = number(c->a.facts, "tensors");
    const bool alike = same(c->a.facts, c->b.facts, "kernels") && same_splits(c) &&
                       same_roundings(c, dtype_a) && strcmp(dtype_a, dtype_b) == 0;
    c->roundoff = fmax(roundoff_of(dtype_a), roundoff_of(dtype_b));
    c->sum_rounding =
        2 * (alike ? FP32_ROUNDOFF : c->roundoff) * (micro_batches + tensors) * sqrt(micro_batches);
}

/* A step's own type, which a run may change when it is continued; files of before have the first
 * one alone. */
static const char *dtype_of(const struct shoali_hashes_file *file, const json_t *numbers)
{
    const char *dtype = text(numbers, "dtype");
    return *dtype ? dtype : text(file->facts, "dtype");
}

/* Runs in different types differ, and that is no news of the tensor where it shows first. */
static void take_types(struct comparison *c, const json_t *a, const json_t *b)
{
    const char *dtype_a = dtype_of(&c->a, a), *dtype_b = dtype_of(&c->b, b);
    const bool differ = strcmp(dtype_a, dtype_b) != 0;
    if (differ && !c->types_differ)
        shoali_str_append(c->out,
                          "from step %lld on %s computes in %s and %s in %s: differences are "
                          "expected, and compared with the coarser type's rounding\n",
                          (long long)json_integer_value(json_object_get(a, "step")), c->a.path,
                          dtype_a, c->b.path, dtype_b);
    c->types_differ = differ;
    set_bounds(c, dtype_a, dtype_b);
}

/* Every verdict on a difference ends here. bound negative: there is none. */
static void compare(struct comparison *c, int64_t step, double difference, double bound)
{
    const bool within = difference <= bound; /* NaN is not */
    if (bound >= 0)
        shoali_str_append(c->out, "; rounding explains up to %.3g: %s\n", bound,
                          within ? "within rounding" : "more than rounding");
    else
        shoali_str_append(c->out, ": not rounding\n");
    if (!c->differ)
        c->found_step = step;
    c->differ = true;
    c->real = c->real || !within;
}

/* ---- tensors ---- */

/* The norm of A - B, within a factor of about 2. */
static double distance(const json_t *a, const json_t *b)
{
    double sum = 0;
    size_t i;
    json_t *value;
    const json_t *other = json_object_get(b, "sketch");
    json_array_foreach(json_object_get(a, "sketch"), i, value)
    {
        const double d = json_number_value(value) - json_number_value(json_array_get(other, i));
        sum += d * d;
    }
    return sqrt(sum);
}

/* `numbers`: the step's line of them. */
static double tensor_bound(const struct comparison *c, const json_t *a, const json_t *numbers)
{
    if (strcmp(text(a, "kind"), "start") == 0)
        return -1; /* weights that a run begins with are made or loaded, not summed */
    if (strcmp(text(a, "kind"), "gradient") != 0)
        return 2 * FP32_ROUNDOFF * UPDATE_ROUNDINGS * number(a, "norm");
    /* What a tensor's sums are rounded to depends on all that flows through it: where its own
     * gradient cancels, its share of the whole gradient is the scale. */
    const double share = sqrt(number(a, "count") / number(c->a.facts, "elements"));
    return c->sum_rounding * (number(a, "norm") + share * number(numbers, "grad_norm"));
}

/* After the first difference only gradients of the same step are looked at: all of them were made
 * from equal weights. */
static void report_tensor(struct comparison *c, const json_t *a, const json_t *b,
                          const json_t *numbers)
{
    const char *kind = text(a, "kind");
    const int64_t step = json_integer_value(json_object_get(a, "step"));
    const bool alike = same(a, b, "count") && same(a, b, "nonfinite");
    const bool start = strcmp(kind, "start") == 0;
    const double difference = distance(a, b);
    const double bound = alike ? tensor_bound(c, a, numbers) : -1;
    if (c->differ &&
        (c->real || step != c->found_step || strcmp(kind, "gradient") != 0 || difference <= bound))
        return;
    shoali_str_append(c->out, "%s%sstep %lld, %s of `%s`: ",
                      c->differ ? "also: " : "first difference: ", start ? "before " : "",
                      (long long)step, start ? "weight" : kind, text(a, "tensor"));
    if (alike)
        shoali_str_append(c->out, "about %.3g, of a norm of %.3g (largest %.3g and %.3g)",
                          difference, number(a, "norm"), number(a, "largest"),
                          number(b, "largest"));
    else
        shoali_str_append(c->out, "%.0f elements, %.0f of them NaN or infinite, against %.0f, %.0f",
                          number(a, "count"), number(a, "nonfinite"), number(b, "count"),
                          number(b, "nonfinite"));
    compare(c, step, difference, bound);
}

static void only_in(struct comparison *c, const struct shoali_hashes_file *file, const json_t *line)
{
    const int64_t step = json_integer_value(json_object_get(line, "step"));
    if (c->differ)
        return;
    shoali_str_append(c->out, "first difference: step %lld, %s of `%s` stands only in %s",
                      (long long)step, text(line, "kind"), text(line, "tensor"), file->path);
    compare(c, step, 1, -1);
}

/* ---- a step ---- */

/* How far the losses of this step may be apart. Steps whose weights began equal: by rounding. */
static double loss_bound(const struct comparison *c, const json_t *a, const json_t *b)
{
    const double loss = fabs(number(a, "loss"));
    const double gradient = fmax(number(a, "grad_norm"), number(b, "grad_norm"));
    const double own = 2 * c->roundoff * number(c->a.facts, "tensors") * (loss > 1 ? loss : 1);
    if (!c->differ)
        return own;
    if (c->weight_difference < 0)
        return INFINITY;
    /* In 16 bits a small difference moves some weights by a whole unit: in the mean square by
     * |difference| * unit. */
    const double unit = c->roundoff > FP32_ROUNDOFF ? 2 * c->roundoff * c->weight_norm : 0;
    const double moved = sqrt(c->weight_difference * (c->weight_difference + unit));
    return own + loss_slack * gradient * moved;
}

static void compare_numbers(struct comparison *c, const json_t *a, const json_t *b)
{
    static const char *const exact[] = {"lr", "loss_scale", "applied"};
    static const char *const names[] = {"the learning rate", "the loss scale",
                                        "whether the step was applied"};
    const int64_t step = json_integer_value(json_object_get(a, "step"));
    const double difference = fabs(number(a, "loss") - number(b, "loss"));
    take_types(c, a, b);
    if (!same(a, b, "loss")) {
        const double bound = loss_bound(c, a, b);
        if (difference > c->largest_loss || c->largest_loss_step == 0) {
            c->largest_loss = difference;
            c->largest_loss_step = step;
        }
        if (!c->differ || !(difference <= bound)) {
            shoali_str_append(c->out, "%sstep %lld, loss: %.9g against %.9g",
                              c->differ ? "later: " : "first difference: ", (long long)step,
                              number(a, "loss"), number(b, "loss"));
            compare(c, step, difference, bound);
        }
    }
    for (size_t i = 0; i < sizeof exact / sizeof exact[0] && !c->real; i++)
        if (!same(a, b, exact[i])) {
            shoali_str_append(c->out, "%sstep %lld, %s",
                              c->differ ? "later: " : "first difference: ", (long long)step,
                              names[i]);
            compare(c, step, 1, -1);
        }
}

/* kind/tensor -> line; the line of numbers under "". */
static shoal_status by_name(const json_t *lines, json_t **map)
{
    size_t i;
    json_t *line;
    int failed = 0;
    *map = json_object();
    json_array_foreach(lines, i, line)
    {
        struct shoali_str key = {0};
        if (json_object_get(line, "tensor"))
            shoali_str_append(&key, "%s/%s", text(line, "kind"), text(line, "tensor"));
        failed |= key.failed || json_object_set(*map, shoali_str_get(&key), line) != 0;
        shoali_str_fini(&key);
    }
    return failed ? SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the lines of a step") : SHOAL_OK;
}

/* Weights after the step, for the next one's loss. */
static void add_weights(struct comparison *c, const json_t *a, const json_t *b)
{
    const double difference = distance(a, b), norm = number(a, "norm");
    if (strcmp(text(a, "kind"), "weight") != 0)
        return;
    c->weight_difference += difference * difference;
    c->weight_norm += norm * norm;
}

static void compare_maps(struct comparison *c, json_t *map_a, json_t *map_b)
{
    const json_t *numbers = json_object_get(map_a, "");
    const char *key;
    json_t *a, *b;
    json_object_foreach(map_a, key, a)
    {
        b = json_object_get(map_b, key);
        const bool start = strcmp(text(a, "kind"), "start") == 0;
        if (!b && !start) /* a continued run has no start */
            only_in(c, &c->a, a);
        else if (b && !*key) {
            compare_numbers(c, a, b);
            c->weight_difference = c->weight_norm = 0;
        } else if (b && !same(a, b, "hash")) {
            report_tensor(c, a, b, numbers);
            add_weights(c, a, b);
        } else if (b)
            add_weights(c, a, b);
        json_object_del(map_b, key);
    }
    json_object_foreach(map_b, key, b)
    {
        if (strcmp(text(b, "kind"), "start") != 0)
            only_in(c, &c->b, b);
    }
    c->weight_difference = sqrt(c->weight_difference);
    c->weight_norm = sqrt(c->weight_norm);
}

static shoal_status compare_step(struct comparison *c, const struct shoali_hashes_place *a,
                                 const struct shoali_hashes_place *b)
{
    shoal_status status;
    json_t *lines_a = NULL, *lines_b = NULL, *map_a = NULL, *map_b = NULL;
    SHOAL_TRY(status, shoali_hashes_read(&c->a, a, &lines_a), done);
    SHOAL_TRY(status, shoali_hashes_read(&c->b, b, &lines_b), done);
    SHOAL_TRY(status, by_name(lines_a, &map_a), done);
    SHOAL_TRY(status, by_name(lines_b, &map_b), done);
    compare_maps(c, map_a, map_b);
done:
    json_decref(map_a);
    json_decref(map_b);
    json_decref(lines_a);
    json_decref(lines_b);
    return status;
}

/* ---- both files ---- */

static void conclude(struct comparison *c, int32_t steps)
{
    if (!c->differ) {
        shoali_str_append(c->out, "equal: every bit of %d step%s\n", (int)steps,
                          steps > 1 ? "s" : "");
        return;
    }
    if (c->largest_loss_step > 0)
        shoali_str_append(c->out, "losses: at most %.3g apart, at step %lld\n", c->largest_loss,
                          (long long)c->largest_loss_step);
    if (c->weight_norm > 0)
        shoali_str_append(c->out, "weights at the end: about %.3g apart, of a norm of %.3g\n",
                          c->weight_difference, c->weight_norm);
    shoali_str_append(c->out, "result: the runs differ%s, from step %lld on\n",
                      c->real ? " by more than rounding" : " within rounding",
                      (long long)c->found_step);
}

shoal_status shoali_hashes_diff(const char *path_a, const char *path_b, struct shoali_str *out,
                                struct shoali_hashes_verdict *verdict)
{
    shoal_status status;
    struct comparison c = {.out = out};
    int32_t steps = 0;
    SHOAL_TRY(status, shoali_hashes_open(path_a, &c.a), done);
    SHOAL_TRY(status, shoali_hashes_open(path_b, &c.b), done);
    c.weight_difference = -1;
    log_splits(&c);
    set_bounds(&c, text(c.a.facts, "dtype"), text(c.b.facts, "dtype"));
    for (int32_t i = 0, j = 0; i < c.a.place_count && j < c.b.place_count;) {
        const int64_t a = c.a.place[i].step, b = c.b.place[j].step;
        if (a == b) {
            SHOAL_TRY(status, compare_step(&c, &c.a.place[i], &c.b.place[j]), done);
            steps++;
        }
        i += a <= b;
        j += b <= a;
    }
    if (steps == 0) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "%s and %s have no finished step in common", path_a, path_b);
        goto done;
    }
    if (c.a.place_count > steps || c.b.place_count > steps)
        shoali_str_append(out, "compared: the %d step%s in both; %s has %d more, %s %d\n",
                          (int)steps, steps > 1 ? "s" : "", path_a, (int)(c.a.place_count - steps),
                          path_b, (int)(c.b.place_count - steps));
    conclude(&c, steps);
    *verdict = (struct shoali_hashes_verdict){.equal = !c.differ, .rounding = c.differ && !c.real};
    if (out->failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the comparison's text");
done:
    shoali_hashes_close(&c.a);
    shoali_hashes_close(&c.b);
    return status;
}
