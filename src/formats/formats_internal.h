/* formats_internal - what tensor_file.c asks of the files for single formats. Each fills what it knows
 * of a view whose input is open and whose arena is ready. */
#ifndef SHOALI_FORMATS_INTERNAL_H
#define SHOALI_FORMATS_INTERNAL_H

#include "formats/pickle.h"

/* torch.c: root, global, and the place of every storage. PREFIX/data.pkl: an archive of torch.save;
 * zip is its directory. */
SHOAL_CHECKED shoal_status shoali_torch_open_archive(struct shoali_tensor_file *file,
                                                     const struct shoali_zip *zip,
                                                     const struct shoali_zip_entry *pickle);
/* A file that begins with a pickle: kind tells whether it is torch.save's older form. */
SHOAL_CHECKED shoal_status shoali_torch_open_stream(struct shoali_tensor_file *file);

/* npy.c: one array whose header begins at byte `at` of the file, of `bytes` in all. */
SHOAL_CHECKED shoal_status shoali_npy_header(struct shoali_tensor_file *file, int64_t at,
                                             int64_t bytes, struct shoali_file_tensor *weight);

#endif
