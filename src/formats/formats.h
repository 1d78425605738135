/* formats - files of tensors, seen in one way. Level L2.
 *
 *   formats.h         one file as a list of tensors
 *   element.c         element types: their names in each format, and as numbers
 *   input.c           a file that is read at places, with bounds
 *   safetensors.c     headers of safetensors files
 *   tensor_file.c     which format a file has; the view; reading elements
 *
 * A format is a row {name, probe, open}. The build writes the table of rows: safetensors, and those
 * of foreign/ unless it was left out.
 *
 * Files are read by pread and never mapped: one that shrinks meanwhile is an error, not a signal.
 * Every offset and size is checked against the file before it is used, sums and products with
 * overflow in mind. Memory follows from the description of the tensors alone, not from their bytes,
 * and has a limit.
 *
 * Sentences begin with the file's name, "FILE, byte N: ..." where one byte is to blame. A file that
 * is damaged, or not what its name says, gives SHOAL_EINVAL: the user must name another.
 */
#ifndef SHOALI_FORMATS_H
#define SHOALI_FORMATS_H

#include "tensor/tensor.h"

/* ---- element types (element.c) -------------------------------------------------------------- */

enum shoali_element {
    SHOALI_ELEMENT_F64,
    SHOALI_ELEMENT_F32,
    SHOALI_ELEMENT_F16,
    SHOALI_ELEMENT_BF16,
    SHOALI_ELEMENT_F8_E4M3, /* without infinities, NaN is 0x7f and 0xff */
    SHOALI_ELEMENT_F8_E5M2,
    SHOALI_ELEMENT_I64,
    SHOALI_ELEMENT_I32,
    SHOALI_ELEMENT_I16,
    SHOALI_ELEMENT_I8,
    SHOALI_ELEMENT_U64,
    SHOALI_ELEMENT_U32,
    SHOALI_ELEMENT_U16,
    SHOALI_ELEMENT_U8,
    SHOALI_ELEMENT_BOOL,
    SHOALI_ELEMENT_C64, /* two F32 */
    SHOALI_ELEMENT_C128,
    SHOALI_ELEMENT_COUNT
};
/* Whose names: "F32", "FloatStorage", "float32", "f4". */
enum shoali_element_naming {
    SHOALI_NAMED_BY_SAFETENSORS,
    SHOALI_NAMED_BY_STORAGE,
    SHOALI_NAMED_BY_TORCH,
    SHOALI_NAMED_BY_NUMPY
};
/* SHOALI_ELEMENT_COUNT: there is none of that name. */
enum shoali_element shoali_element_find(enum shoali_element_naming naming, const char *name);
/* As safetensors names it. */
const char *shoali_element_name(enum shoali_element type);
size_t shoali_element_bytes(enum shoali_element type);
/* The tensor type with the same bytes; SHOAL_DTYPE_COUNT: there is none. */
shoal_dtype shoali_element_dtype(enum shoali_element type);
/* Little-endian elements as numbers; false, and nothing written, for complex ones. Integers beyond
 * 2^53 and F64 in F32 are rounded to nearest. */
bool shoali_element_to_f64(enum shoali_element type, const void *from, int64_t count, double *to);
bool shoali_element_to_f32(enum shoali_element type, const void *from, int64_t count, float *to);

/* ---- one file, open for reading (input.c) ----------------------------------------------------- */

struct shoali_input {
    char *path; /* owned */
    int descriptor;
    int64_t bytes; /* when it was opened */
};
/* SHOAL_ENOENT: there is none. */
SHOAL_CHECKED shoal_status shoali_input_open(const char *path, struct shoali_input *input);
void shoali_input_close(struct shoali_input *input);
/* All bytes or an error. */
SHOAL_CHECKED shoal_status shoali_input_read(const struct shoali_input *input, int64_t at,
                                             int64_t bytes, void *out);
/* SHOAL_EINVAL with "FILE, byte N: sentence"; at < 0: "FILE: sentence". */
SHOAL_CHECKED shoal_status shoali_input_fail(const struct shoali_input *input, int64_t at,
                                             const char *format, ...) SHOAL_PRINTF(3, 4);

/* ---- tensors -------------------------------------------------------------------------------- */

enum { SHOALI_FILE_TENSOR_MAX_DIMS = 64 };
/* Memory comes from the view's arena. */
struct shoali_file_tensor {
    const char *name;         /* printable; of values in values the keys, joined by dots */
    enum shoali_element type; /* COUNT: not known here, its elements cannot be read */
    const char *type_name;    /* as the file says it where it is not known; else NULL */
    int32_t ndim;
    const int64_t *dim;
    const int64_t *stride; /* in elements, none negative; NULL: row-major without gaps */
    int64_t count;         /* elements */
    int64_t bytes;         /* of all elements */
    int64_t at;            /* byte of the file with element 0 */
    const char *memory;    /* instead of the file: such bytes are in a pickle's own values */
};
/* "[2, 3]" in a caller's buffer of 1400 bytes; returns `buffer`. */
enum { SHOALI_FILE_TENSOR_SHAPE_BYTES = 1400 };
const char *shoali_file_tensor_shape_text(const struct shoali_file_tensor *weight, char *buffer);
/* False: it has more dims than a shape holds. */
bool shoali_file_tensor_shape(const struct shoali_file_tensor *weight, shoal_shape *shape);
/* Of its element type. */
const char *shoali_file_tensor_type(const struct shoali_file_tensor *tensor);

struct shoali_value;
/* A file's tensors, in the order in which the file names them. */
struct shoali_tensor_file {
    struct shoali_input input;
    struct shoali_arena arena;
    const char *kind; /* for people: "safetensors" */
    struct shoali_file_tensor *tensor;
    int32_t count;
    const struct shoali_value *root;    /* of pickles; else NULL */
    const struct shoali_value **global; /* [global_count] what the pickle names, once each */
    int32_t global_count;
    char *window; /* of reads that jump */
    int64_t window_at, window_bytes;
};
struct shoali_tensor_format {
    const char *name;
    /* A file's first bytes, 16 at most. */
    bool (*probe)(const unsigned char *head, int64_t bytes);
    /* Fills a view whose input is open and whose arena is ready. */
    shoal_status (*open)(struct shoali_tensor_file *file);
};
/* NULL-terminated; written by the build. */
extern const struct shoali_tensor_format *const shoali_tensor_formats[];
extern const struct shoali_tensor_format shoali_format_safetensors;

/* Whether a file's first bytes are of one of the formats; reads 16 bytes at most. False also for
 * what cannot be opened. */
bool shoali_tensor_file_looks_known(const char *path);
/* Reads what the file says of its tensors, by its content, whatever its name; no elements.
 * SHOAL_EINVAL: no file of these formats, or a damaged one. */
SHOAL_CHECKED shoal_status shoali_tensor_file_open(const char *path,
                                                   struct shoali_tensor_file *file);
/* Also of a view that is all zero, or that could not be opened. */
void shoali_tensor_file_close(struct shoali_tensor_file *file);
/* Elements [first, first + count) in row-major order as they are stored, little-endian. */
SHOAL_CHECKED shoal_status shoali_tensor_file_read(struct shoali_tensor_file *file,
                                                   const struct shoali_file_tensor *weight,
                                                   int64_t first, int64_t count, void *out);
/* The same as fp32. SHOAL_EUNSUPPORTED: complex elements. */
SHOAL_CHECKED shoal_status shoali_tensor_file_read_f32(struct shoali_tensor_file *file,
                                                       const struct shoali_file_tensor *weight,
                                                       int64_t first, int64_t count, float *out);

/* ---- safetensors (safetensors.c) ------------------------------------------------------------ */

/* Reads a header's JSON text: tensors in file order, `at` from the first data byte on. Types that
 * are not known are no errors. SHOAL_ECORRUPT, with a sentence to be prefixed by the file's name:
 * no such header, gaps, or not data_bytes in all. */
struct shoali_safetensors_args {
    const char *text;
    size_t text_bytes;
    int64_t data_bytes;
    struct shoali_arena *arena;
};
SHOAL_CHECKED shoal_status shoali_safetensors_header(const struct shoali_safetensors_args *args,
                                                     struct shoali_file_tensor **tensors,
                                                     int32_t *count);

#endif
