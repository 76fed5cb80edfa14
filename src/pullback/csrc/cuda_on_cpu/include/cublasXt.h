/// cuBLASXt's handle alone, as in cublas_v2.h.
#pragma once

#include "cublas_v2.h"

typedef struct cublasXtContext* cublasXtHandle_t;
