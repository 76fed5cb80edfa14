/// cuSOLVER's handles alone, as in cublas_v2.h: a call of a function does not compile.
#pragma once

#include "cublas_v2.h"
#include "cusolver_common.h"

typedef struct cusolverDnContext* cusolverDnHandle_t;
typedef struct cusolverDnParams* cusolverDnParams_t;
typedef struct syevjInfo* syevjInfo_t;
typedef struct gesvdjInfo* gesvdjInfo_t;
