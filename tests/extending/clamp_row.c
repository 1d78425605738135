#include "clamp.h"
#include "ops/kernel.h"

#include "clamp_row.inc"
